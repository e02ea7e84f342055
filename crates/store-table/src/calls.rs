//! Entities read and changed inside a client's SQL transaction (H2).

use polyshard_engine::{self as engine, Dialect, Rows};
use polyshard_map::{Key, MapName};
use polyshard_router::Access;
use polyshard_shard::Dataset;
use polyshard_store::{Call, Calls, Error, ErrorKind, Function, Parameter, Preparing, Reason, Step};

use crate::entity::{PartitionKey, RowKey};
use crate::etag::{IfMatch, etag};
use crate::name::TableName;
use crate::store::transact::{EntityChange, EntityRead, read_properties};
use crate::store::{ChangeKind, StoreError, TableStore};

const GET: &str = "entity_get";
const DELETE: &str = "entity_delete";
const INSERT: &str = "entity_insert";
const MERGE: &str = "entity_merge";
const UPSERT: &str = "entity_upsert";

const TABLE: Parameter = Parameter::text("table_name");
const PARTITION: Parameter = Parameter::text("partition_key");
const ROW: Parameter = Parameter::text("row_key");
const KEYS: &[Parameter] = &[TABLE, PARTITION, ROW];
const ENTITY: &[Parameter] = &[TABLE, PARTITION, ROW, Parameter::text("properties")];

/// What can be called.
pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: UPSERT,
        parameters: ENTITY,
        about: "inserts or replaces an entity; the answer is its ETag",
    },
    Function {
        name: MERGE,
        parameters: ENTITY,
        about: "inserts an entity or puts properties over it; the answer is its ETag",
    },
    Function { name: INSERT, parameters: ENTITY, about: "inserts an entity; the answer is its ETag" },
    Function { name: DELETE, parameters: KEYS, about: "deletes an entity; the answer is its ETag, or NULL" },
    Function {
        name: GET,
        parameters: KEYS,
        about: "reads an entity; the answer is its properties in JSON, or NULL",
    },
];

impl Calls for TableStore {
    fn prepare<'a>(&'a self, function: &'a str, arguments: Vec<Option<String>>) -> Preparing<'a> {
        Box::pin(self.prepare_entity(function, arguments))
    }
}

impl TableStore {
    async fn prepare_entity(
        &self,
        function: &str,
        arguments: Vec<Option<String>>,
    ) -> Result<Box<dyn Call>, Error> {
        let mut arguments = arguments.into_iter();
        let mut next = || arguments.next().flatten().unwrap_or_default();
        let (table, partition, row, properties) = (next(), next(), next(), next());
        let (account, name) = self.kit().owner_and_name(&table)?;
        let table = TableName::new(&account, name).map_err(invalid)?;
        let partition = PartitionKey::new(partition).map_err(invalid)?;
        let row = RowKey::new(row).map_err(invalid)?;
        let refused = |error| refused(error, &table);
        if function == GET {
            let read = self.enlist_read(&table, partition, row).await.map_err(refused)?;
            return Ok(Box::new(Get { read }));
        }
        let kind = if function == DELETE {
            ChangeKind::Delete(IfMatch::Any)
        } else {
            let properties = read_properties(&properties).map_err(invalid)?;
            match function {
                INSERT => ChangeKind::Insert(properties),
                MERGE => ChangeKind::UpsertMerge(properties),
                _ => ChangeKind::UpsertReplace(properties),
            }
        };
        let deletes = matches!(kind, ChangeKind::Delete(_));
        let change = self.enlist(&table, partition, row, kind).await.map_err(refused)?;
        Ok(Box::new(Changing { change, table, deletes, stage: Stage::Begin }))
    }
}

/// An entity to be read.
struct Get {
    read: EntityRead,
}

impl Call for Get {
    fn map(&self) -> &MapName {
        self.read.map()
    }

    fn key(&self) -> &Key {
        self.read.key()
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn registration(&self, dialect: Dialect) -> Vec<Dataset> {
        vec![self.read.dataset(dialect)]
    }

    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, Error> {
        let Some(rows) = answer else { return Ok(Step::Run(self.read.read(dialect))) };
        let found = self.read.answer(rows);
        found.map(Step::Done).map_err(|error| Error::new(ErrorKind::Fault, error.to_string()))
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
    /// What must be known of the entity is being read.
    Read,
    Write,
}

impl Call for Changing {
    fn map(&self) -> &MapName {
        self.change.map()
    }

    fn key(&self) -> &Key {
        self.change.key()
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn registration(&self, dialect: Dialect) -> Vec<Dataset> {
        vec![self.change.dataset(dialect)]
    }

    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, Error> {
        let damaged = |error: engine::Error| {
            Error::new(ErrorKind::Fault, format!("a stored entity cannot be read: {error}"))
        };
        let refused = |error| refused(error, &self.table);
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

fn refused(error: StoreError, table: &TableName) -> Error {
    let message = error.to_string();
    let hinted = |kind, message, hint: &str| Error { kind, message, hint: Some(hint.to_owned()) };
    let kind = match error {
        StoreError::NoSuchTable(_) => {
            return hinted(ErrorKind::NoDataset, message, "Create it with a client of tables first.");
        }
        StoreError::EntityExists => {
            let message = format!("{message} in table {table}");
            return hinted(ErrorKind::Exists, message, "entity_upsert replaces it.");
        }
        StoreError::Router(error) => return error.into(),
        StoreError::Kit(error) => return error,
        StoreError::OverQuota(over) => return over.into(),
        StoreError::Contended | StoreError::Changed => ErrorKind::Changed,
        StoreError::NoMap(_) => ErrorKind::OutOfService(Reason::NoMap),
        StoreError::Input(_) | StoreError::Misplaced { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Fault,
    };
    Error::new(kind, message)
}

fn invalid(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, error.to_string())
}
