//! Messages put and deleted inside a client's SQL transaction (H2).

use polyshard_engine::{Dialect, Rows};
use polyshard_map::{Key, MapName};
use polyshard_router::Access;
use polyshard_shard::Dataset;
use polyshard_store::{Call, Calls, Error, ErrorKind, Function, Parameter, Preparing, Step};

use crate::message::{MessageId, NewMessage, PopReceipt, TTL_DEFAULT_MS, Ttl};
use crate::name::QueueName;
use crate::store::transact::{Enqueue, Removal, enqueue_statements};
use crate::store::{QueueStore, StoreError};

const ENQUEUE: &str = "enqueue";
const MESSAGE_DELETE: &str = "message_delete";

/// What can be called.
pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: ENQUEUE,
        parameters: &[
            Parameter::text("queue"),
            Parameter::text("message"),
            Parameter::optional_seconds("visibility_seconds"),
            Parameter::optional_seconds("ttl_seconds"),
        ],
        about: "puts a message; the answer is its id",
    },
    Function {
        name: MESSAGE_DELETE,
        parameters: &[
            Parameter::text("queue"),
            Parameter::text("message_id"),
            Parameter::text("pop_receipt"),
        ],
        about: "deletes a message that was got; the answer is its id",
    },
];

impl Calls for QueueStore {
    fn prepare<'a>(&'a self, function: &'a str, arguments: Vec<Option<String>>) -> Preparing<'a> {
        Box::pin(async move {
            match function {
                ENQUEUE => self.prepare_put(arguments).await,
                _ => self.prepare_removal(arguments).await,
            }
        })
    }
}

impl QueueStore {
    async fn prepare_put(&self, arguments: Vec<Option<String>>) -> Result<Box<dyn Call>, Error> {
        let [queue, body, invisible, ttl] = four(arguments);
        let queue = self.queue_named(queue)?;
        let invisible_ms = invisible.map_or(Ok(0), |text| milliseconds("visibility_seconds", &text))?;
        let ttl = match ttl.as_deref().map(str::trim) {
            None => Ttl::Ms(TTL_DEFAULT_MS),
            Some("-1") => Ttl::Never,
            Some(text) => match milliseconds("ttl_seconds", text)? {
                0 => return Err(invalid("ttl_seconds must be at least 1, or -1 for never")),
                ms => Ttl::Ms(ms),
            },
        };
        let new = NewMessage { body: body.unwrap_or_default(), invisible_ms, ttl };
        Ok(Box::new(Put { enqueue: self.enlist(&queue, new).await.map_err(refused)? }))
    }

    async fn prepare_removal(&self, arguments: Vec<Option<String>>) -> Result<Box<dyn Call>, Error> {
        let [queue, id, receipt, _] = four(arguments);
        let queue = self.queue_named(queue)?;
        let id = MessageId::parse(id.as_deref().unwrap_or_default().trim());
        let id = id.ok_or_else(|| invalid("message_id is the id of a message: a UUID"))?;
        let receipt = PopReceipt::parse(receipt.as_deref().unwrap_or_default().trim(), &id);
        let receipt = receipt.ok_or_else(|| invalid("pop_receipt is not one that this service gave"))?;
        let removal = self.enlist_removal(&queue, id, receipt).await.map_err(refused)?;
        Ok(Box::new(Remove { removal, id, stage: Stage::Begin }))
    }

    fn queue_named(&self, text: Option<String>) -> Result<QueueName, Error> {
        let (account, name) = self.kit().owner_and_name(text.as_deref().unwrap_or_default())?;
        QueueName::new(&account, name).map_err(|error| invalid(error.to_string()))
    }
}

/// A message to be put.
struct Put {
    enqueue: Enqueue,
}

impl Call for Put {
    fn map(&self) -> &MapName {
        self.enqueue.map()
    }

    fn key(&self) -> &Key {
        self.enqueue.key()
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn registration(&self, dialect: Dialect) -> Vec<Dataset> {
        vec![self.enqueue.dataset(dialect)]
    }

    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, Error> {
        let put = enqueue_statements(dialect, &self.enqueue).into_iter().next();
        Ok(match (answer, put) {
            (None, Some(put)) => Step::Run(put),
            _ => Step::Done(Some(self.enqueue.message().id.to_string())),
        })
    }
}

/// A message to be deleted.
struct Remove {
    removal: Removal,
    id: MessageId,
    stage: Stage,
}

/// How far a removal is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Delete,
    /// Nothing was deleted, and it is being read why.
    Read,
}

impl Call for Remove {
    fn map(&self) -> &MapName {
        self.removal.map()
    }

    fn key(&self) -> &Key {
        self.removal.key()
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn registration(&self, dialect: Dialect) -> Vec<Dataset> {
        vec![self.removal.dataset(dialect)]
    }

    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, Error> {
        match (self.stage, answer) {
            (Stage::Read, Some(state)) => Err(refused(self.removal.why_not(state))),
            (Stage::Delete, Some(deleted)) if deleted.affected() == 1 => {
                Ok(Step::Done(Some(self.id.to_string())))
            }
            (Stage::Delete, Some(_)) => {
                self.stage = Stage::Read;
                Ok(Step::Run(self.removal.state(dialect)))
            }
            _ => {
                self.stage = Stage::Delete;
                Ok(Step::Run(self.removal.delete(dialect)))
            }
        }
    }
}

fn refused(error: StoreError) -> Error {
    let message = error.to_string();
    let kind = match error {
        StoreError::NoSuchQueue(_) => {
            let hint = "Create it with a client of queues first.";
            return Error { kind: ErrorKind::NoDataset, message, hint: Some(hint.to_owned()) };
        }
        StoreError::Kit(error) => return error,
        StoreError::NoSuchMessage => ErrorKind::NoItem,
        StoreError::ReceiptMismatch => ErrorKind::WrongState,
        StoreError::TooLarge
        | StoreError::InvisibleTooLong
        | StoreError::InvisibleMax
        | StoreError::Unwritable
        | StoreError::Misplaced { .. } => ErrorKind::Invalid,
        StoreError::Exists(_) | StoreError::Unfinished => ErrorKind::Fault,
    };
    Error::new(kind, message)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

/// The first four arguments, however many there are.
fn four(arguments: Vec<Option<String>>) -> [Option<String>; 4] {
    let mut arguments = arguments.into_iter();
    std::array::from_fn(|_| arguments.next().flatten())
}

/// A number of seconds, zero or more.
fn milliseconds(name: &str, text: &str) -> Result<i64, Error> {
    let seconds = text.trim().parse::<i64>().ok().filter(|seconds| *seconds >= 0);
    seconds
        .and_then(|seconds| seconds.checked_mul(1000))
        .ok_or_else(|| invalid(format!("{name} is a whole number of seconds, and not {text:?}")))
}
