//! Tables and queues inside transactions of the SQL door (H2): the functions that clients call there.

use std::sync::Arc;

use polyshard_engine::{Dialect, Rows};
use polyshard_map::{Key, MapName};
use polyshard_router::Access;
use polyshard_shard::Dataset;
use polyshard_sql::{SqlError, SqlState};
use polyshard_store::Store;
use polyshard_store_queue::transact::{Enqueue, Removal, enqueue_statements};
use polyshard_store_queue::{
    MessageId, NewMessage, PopReceipt, QueueName, QueueStore, StoreError as QueueError, TTL_DEFAULT_MS, Ttl,
};
use polyshard_store_sql::{Enlisted, Enlisting, Refusal, Step, StoreFunction, Stores};
use polyshard_store_table::transact::{EntityChange, EntityRead, etag, read_properties};
use polyshard_store_table::{
    ChangeKind, IfMatch, InputError, PartitionKey, RowKey, StoreError as TableError, TableName, TableStore,
};

use crate::config::AzureConfig;

/// An object that does not exist.
const UNDEFINED_OBJECT: SqlState = SqlState("42704");
const UNIQUE_VIOLATION: SqlState = SqlState("23505");
const OUTCOME_UNKNOWN: SqlState = SqlState("08007");
/// A row that was counted on is not there.
const NO_DATA_FOUND: SqlState = SqlState("P0002");

const ENTITY: &[&str] = &["table_name", "partition_key", "row_key", "properties"];
const FUNCTIONS: &[StoreFunction] = &[
    StoreFunction { name: "entity_upsert", parameters: ENTITY, required: 4 },
    StoreFunction { name: "entity_merge", parameters: ENTITY, required: 4 },
    StoreFunction { name: "entity_insert", parameters: ENTITY, required: 4 },
    StoreFunction { name: "entity_delete", parameters: ENTITY.split_at(3).0, required: 3 },
    StoreFunction { name: "entity_get", parameters: ENTITY.split_at(3).0, required: 3 },
    StoreFunction {
        name: "enqueue",
        parameters: &["queue", "message", "visibility_seconds", "ttl_seconds"],
        required: 2,
    },
    StoreFunction {
        name: "message_delete",
        parameters: &["queue", "message_id", "pop_receipt"],
        required: 3,
    },
];

/// The stores of this process, where their doors are open.
pub(crate) struct OtherStores {
    pub(crate) queues: Option<Arc<QueueStore>>,
    pub(crate) tables: Option<Arc<TableStore>>,
    pub(crate) azure: AzureConfig,
}

impl Stores for OtherStores {
    fn functions(&self) -> &'static [StoreFunction] {
        FUNCTIONS
    }

    fn concerned(&self, function: &str, arguments: &[Option<String>]) -> (&'static Store, String) {
        let of_queues = matches!(function, "enqueue" | "message_delete");
        let store = if of_queues { &polyshard_store_queue::STORE } else { &polyshard_store_table::STORE };
        let named = arguments.first().and_then(Option::as_deref).unwrap_or_default();
        let own =
            |(account, name): (&str, &str)| (account == self.azure.first_account()).then(|| name.to_owned());
        let name = named.split_once('/').and_then(own).unwrap_or_else(|| named.to_owned());
        (store, name.to_ascii_lowercase())
    }

    fn enlist<'a>(&'a self, function: &'a str, arguments: Vec<Option<String>>) -> Enlisting<'a> {
        Box::pin(async move {
            match function {
                "enqueue" => self.message(arguments).await,
                "message_delete" => self.removal(arguments).await,
                _ => self.entity(function, arguments).await,
            }
        })
    }
}

impl OtherStores {
    async fn message(&self, arguments: Vec<Option<String>>) -> Result<Box<dyn Enlisted>, Refusal> {
        let store = self.queues.as_ref().ok_or_else(|| not_served("queues"))?;
        let [queue, body, invisible, ttl] = four(arguments);
        let (account, name) = self.named(queue.as_deref().unwrap_or_default())?;
        let queue = QueueName::new(account, name).map_err(|error| invalid(error.to_string()))?;
        let invisible_ms = invisible.map_or(Ok(0), |text| milliseconds("visibility_seconds", &text))?;
        let ttl = match ttl.as_deref().map(str::trim) {
            None => Ttl::Ms(TTL_DEFAULT_MS),
            Some("-1") => Ttl::Never,
            Some(text) => match milliseconds("ttl_seconds", text)? {
                0 => return Err(invalid("ttl_seconds must be at least 1, or -1 for never").into()),
                ms => Ttl::Ms(ms),
            },
        };
        let new = NewMessage { body: body.unwrap_or_default(), invisible_ms, ttl };
        let enqueue = store.enlist(&queue, new).await.map_err(of_queue)?;
        Ok(Box::new(Putting { enqueue }))
    }

    async fn removal(&self, arguments: Vec<Option<String>>) -> Result<Box<dyn Enlisted>, Refusal> {
        let store = self.queues.as_ref().ok_or_else(|| not_served("queues"))?;
        let [queue, id, receipt, _] = four(arguments);
        let (account, name) = self.named(queue.as_deref().unwrap_or_default())?;
        let queue = QueueName::new(account, name).map_err(|error| invalid(error.to_string()))?;
        let id = MessageId::parse(id.as_deref().unwrap_or_default().trim());
        let id = id.ok_or_else(|| invalid("message_id is the id of a message: a UUID"))?;
        let receipt = PopReceipt::parse(receipt.as_deref().unwrap_or_default().trim(), &id);
        let receipt = receipt.ok_or_else(|| invalid("pop_receipt is not one that this service gave"))?;
        let removal = store.enlist_removal(&queue, id, receipt).await.map_err(of_queue)?;
        Ok(Box::new(Removing { removal, id, stage: Stage::Begin }))
    }

    async fn entity(
        &self,
        function: &str,
        arguments: Vec<Option<String>>,
    ) -> Result<Box<dyn Enlisted>, Refusal> {
        let store = self.tables.as_ref().ok_or_else(|| not_served("tables"))?;
        let [table, partition, row, properties] = four(arguments);
        let (account, name) = self.named(table.as_deref().unwrap_or_default())?;
        let table = TableName::new(account, name).map_err(|error| invalid(error.to_string()))?;
        let input = |error: InputError| Refusal::Sql(invalid(error.to_string()));
        let partition = PartitionKey::new(partition.unwrap_or_default()).map_err(input)?;
        let row = RowKey::new(row.unwrap_or_default()).map_err(input)?;
        let of_table = |error| of_table(error, &table);
        if function == "entity_get" {
            let read = store.enlist_read(&table, partition, row).await.map_err(of_table)?;
            return Ok(Box::new(Getting { read }));
        }
        let kind = if function == "entity_delete" {
            ChangeKind::Delete(IfMatch::Any)
        } else {
            let properties = read_properties(properties.as_deref().unwrap_or_default()).map_err(input)?;
            match function {
                "entity_insert" => ChangeKind::Insert(properties),
                "entity_merge" => ChangeKind::UpsertMerge(properties),
                _ => ChangeKind::UpsertReplace(properties),
            }
        };
        let deletes = matches!(kind, ChangeKind::Delete(_));
        let change = store.enlist(&table, partition, row, kind).await.map_err(of_table)?;
        let table = table.clone();
        Ok(Box::new(Changing { change, table, deletes, stage: Stage::Begin }))
    }

    /// `name`, or `account/name`.
    fn named<'a>(&'a self, text: &'a str) -> Result<(&'a str, &'a str), SqlError> {
        let (account, name) = text.split_once('/').unwrap_or((self.azure.first_account(), text));
        if self.azure.has_account(account) {
            return Ok((account, name));
        }
        Err(SqlError::new(UNDEFINED_OBJECT, format!("there is no account {account:?}"))
            .hint("Say the name alone for the first account, or account/name."))
    }
}

/// A message to be put.
struct Putting {
    enqueue: Enqueue,
}

impl Enlisted for Putting {
    fn map(&self) -> &MapName {
        self.enqueue.map()
    }
    fn key(&self) -> &Key {
        self.enqueue.key()
    }
    fn access(&self) -> Access {
        Access::Write
    }
    fn dataset(&self, dialect: Dialect) -> Dataset {
        self.enqueue.dataset(dialect)
    }
    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, SqlError> {
        let put = enqueue_statements(dialect, &self.enqueue).into_iter().next();
        Ok(match (answer, put) {
            (None, Some(put)) => Step::Run(put),
            _ => Step::Done(Some(self.enqueue.message().id.to_string())),
        })
    }
}

/// A message to be deleted.
struct Removing {
    removal: Removal,
    id: MessageId,
    stage: Stage,
}

impl Enlisted for Removing {
    fn map(&self) -> &MapName {
        self.removal.map()
    }
    fn key(&self) -> &Key {
        self.removal.key()
    }
    fn access(&self) -> Access {
        Access::Write
    }
    fn dataset(&self, dialect: Dialect) -> Dataset {
        self.removal.dataset(dialect)
    }
    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, SqlError> {
        match (self.stage, answer) {
            (Stage::Read, Some(state)) => Err(of_queue(self.removal.why_not(state)).into()),
            (Stage::Write, Some(deleted)) if deleted.affected() == 1 => {
                Ok(Step::Done(Some(self.id.to_string())))
            }
            (Stage::Write, Some(_)) => {
                self.stage = Stage::Read;
                Ok(Step::Run(self.removal.state(dialect)))
            }
            _ => {
                self.stage = Stage::Write;
                Ok(Step::Run(self.removal.delete(dialect)))
            }
        }
    }
}

/// An entity to be read.
struct Getting {
    read: EntityRead,
}

impl Enlisted for Getting {
    fn map(&self) -> &MapName {
        self.read.map()
    }
    fn key(&self) -> &Key {
        self.read.key()
    }
    fn access(&self) -> Access {
        Access::Read
    }
    fn dataset(&self, dialect: Dialect) -> Dataset {
        self.read.dataset(dialect)
    }
    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, SqlError> {
        let Some(rows) = answer else { return Ok(Step::Run(self.read.read(dialect))) };
        let found = self.read.answer(rows);
        found.map(Step::Done).map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))
    }
}

/// An entity to be changed.
struct Changing {
    change: EntityChange,
    table: TableName,
    deletes: bool,
    stage: Stage,
}

/// How far a change is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    /// What must be known of the entity, or of the message that is not deleted, is being read.
    Read,
    Write,
}

impl Enlisted for Changing {
    fn map(&self) -> &MapName {
        self.change.map()
    }
    fn key(&self) -> &Key {
        self.change.key()
    }
    fn access(&self) -> Access {
        Access::Write
    }
    fn dataset(&self, dialect: Dialect) -> Dataset {
        self.change.dataset(dialect)
    }
    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, SqlError> {
        let damaged = |error: polyshard_engine::Error| {
            SqlError::new(SqlState::INTERNAL_ERROR, format!("a stored entity cannot be read: {error}"))
        };
        let refused = |error| SqlError::from(of_table(error, &self.table));
        let row = answer.and_then(Rows::first);
        match self.stage {
            Stage::Begin => {
                if let Some(read) = self.change.read(dialect) {
                    self.stage = Stage::Read;
                    return Ok(Step::Run(read));
                }
                self.stage = Stage::Write;
                self.change.write(dialect, None).map(Step::Run).map_err(refused)
            }
            Stage::Read => {
                self.stage = Stage::Write;
                let found = match row {
                    Some(row) => Some((row.int(0).map_err(damaged)?, row.text(1).map_err(damaged)?)),
                    None => None,
                };
                self.change.write(dialect, found).map(Step::Run).map_err(refused)
            }
            Stage::Write => {
                if row.is_none() && self.deletes {
                    // As DELETE does, that finds nothing.
                    return Ok(Step::Done(None));
                }
                let Some(rows) = answer else { return Ok(Step::Done(None)) };
                let time = self.change.answer(rows).map_err(refused)?;
                Ok(Step::Done(Some(etag(time))))
            }
        }
    }
}

fn four(arguments: Vec<Option<String>>) -> [Option<String>; 4] {
    let mut arguments = arguments.into_iter();
    std::array::from_fn(|_| arguments.next().flatten())
}

fn milliseconds(name: &str, text: &str) -> Result<i64, SqlError> {
    let seconds = text.trim().parse::<i64>().ok().filter(|seconds| *seconds >= 0);
    seconds
        .and_then(|seconds| seconds.checked_mul(1000))
        .ok_or_else(|| invalid(format!("{name} is a whole number of seconds, and not {text:?}")))
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message.into())
}

fn not_served(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{what} are not served by this process"),
        "Open their door in the configuration, or connect to a process that has it open.",
    )
}

fn of_queue(error: QueueError) -> Refusal {
    let message = error.to_string();
    let state = match error {
        QueueError::NoSuchQueue(_) => {
            let hint = "Create it with a client of queues first.";
            return SqlError::new(UNDEFINED_OBJECT, message).hint(hint).into();
        }
        QueueError::Kit(error) => return Refusal::Store(error),
        QueueError::NoSuchMessage => NO_DATA_FOUND,
        QueueError::ReceiptMismatch => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        QueueError::TooLarge
        | QueueError::InvisibleTooLong
        | QueueError::InvisibleMax
        | QueueError::Unwritable
        | QueueError::Misplaced { .. } => SqlState::INVALID_PARAMETER_VALUE,
        _ => SqlState::INTERNAL_ERROR,
    };
    SqlError::new(state, message).into()
}

fn of_table(error: TableError, table: &TableName) -> Refusal {
    let message = error.to_string();
    let unknown = error.is_outcome_unknown();
    let state = match error {
        TableError::NoSuchTable(_) => {
            let hint = "Create it with a client of tables first.";
            return SqlError::new(UNDEFINED_OBJECT, message).hint(hint).into();
        }
        _ if unknown => OUTCOME_UNKNOWN,
        TableError::Router(error) => return Refusal::Router(error),
        TableError::EntityExists => {
            let message = format!("{message} in table {table}");
            return SqlError::new(UNIQUE_VIOLATION, message).hint("entity_upsert replaces it.").into();
        }
        TableError::Contended | TableError::Changed => SqlState::SERIALIZATION_FAILURE,
        TableError::OverQuota(over) => return Refusal::Store(over.into()),
        TableError::NoMap(_) => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        TableError::Input(_) | TableError::Misplaced { .. } => SqlState::INVALID_PARAMETER_VALUE,
        _ => SqlState::INTERNAL_ERROR,
    };
    SqlError::new(state, message).into()
}
