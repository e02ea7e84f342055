//! What shards say of their types and tables: asked beside what runs, and by name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyshard_engine::{Dialect, Rows, Statement};
use polyshard_map::ShardId;
use polyshard_router::Access;
use polyshard_sql::{SqlError, TypeOid};

use super::{Made, ShardIds, TableIds, TypeId, TypeIds, is_record, is_user_id};
use crate::reply::{self, state};

/// The user's types: names, what they are made of, and of which type. Temporary ones are one session's own.
const TYPES: &str = "SELECT t.oid::bigint, n.nspname::text, t.typname::text, \
     CASE WHEN t.typtype IN ('c', 'd') THEN t.typtype::text \
          WHEN t.typelem <> 0 AND t.typlen = -1 THEN 'a' ELSE 'p' END, t.typbasetype::bigint \
     FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace \
     WHERE t.oid >= 16384 AND n.nspname NOT LIKE 'pg\\_t%'";

/// A table's columns by its number.
const TABLE: &str = "SELECT n.nspname::text, c.relname::text, a.attnum::bigint, a.attname::text \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid \
     WHERE c.oid::bigint = $1::bigint AND a.attnum > 0 AND NOT a.attisdropped \
     AND n.nspname NOT LIKE 'pg\\_t%'";

/// Likewise, by its name.
const TABLE_CALLED: &str = "SELECT c.oid::bigint, c.relname::text, a.attnum::bigint, a.attname::text \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid \
     WHERE n.nspname::text = $1::text AND c.relname::text = $2::text AND a.attnum > 0 AND NOT a.attisdropped";

/// Tables remembered of each shard: temporary ones come and go.
const TABLES_MAX: usize = 10_000;

/// How long a row waits for home to say what it calls the table: an answer can do without.
const HOME_PATIENCE: Duration = Duration::from_secs(1);

/// A type's name with its schema's.
type Name = (String, String);

/// Types by name: number, what they are made of, and of which type if it is a domain.
type Types = HashMap<Name, (u32, String, u32)>;

impl TypeIds {
    /// Reads the types of a shard and of home, at this position of the journal or after it.
    pub(super) async fn learn(
        &self,
        shard: &ShardId,
        home: &ShardId,
        position: u64,
    ) -> Result<ShardIds, SqlError> {
        let incarnations = self.incarnations(shard, home).unwrap_or_default();
        if self.is_home_lost() {
            return Err(away(home, "it could not be reached a moment ago"));
        }
        // What one shard has committed already, another may be about to. Whoever makes a file ready may be waiting for
        // the transaction that this is asked in: what was read for the statement is asked for again.
        let mine = match self.is_file(shard) {
            true => self.types_of_files().await?,
            false => {
                self.journal.ready(shard).await.map_err(|error| error.to_sql())?;
                self.types_of(shard).await?
            }
        };
        let theirs = async {
            self.journal.ready(home).await.map_err(|error| error.to_sql())?;
            self.types_of(home).await
        };
        let theirs = self.note_home(theirs.await).map_err(|error| away(home, &error.message))?;
        let (mut outward, mut inward) = (HashMap::new(), HashMap::new());
        for (name, (there, made, base)) in &theirs {
            let Some((here, made_here, base_here)) = mine.get(name) else {
                // Home's number must not be taken for a type of the shard's own.
                inward.insert(*there, TypeId { other: *there, made: Made::Plain });
                continue;
            };
            outward.insert(*here, TypeId { other: *there, made: made_of(made_here, *base_here) });
            inward.insert(*there, TypeId { other: *here, made: made_of(made, *base) });
        }
        Ok(ShardIds {
            incarnations,
            position: Some(position),
            outward,
            inward,
            missing: Mutex::default(),
            tables: Mutex::default(),
        })
    }

    /// The enums of files, whose numbers follow from their names.
    async fn types_of_files(&self) -> Result<Types, SqlError> {
        let schema = self.journal.schema_of_files(true).await.map_err(|error| error.to_sql())?;
        let mut types = Types::new();
        for made in schema.iter().flat_map(|schema| schema.enums.values()) {
            let (within, name) = (made.name.schema.clone(), made.name.name.clone());
            if let Some(TypeOid(array)) = polyshard_sql_on_sqlite::array_of(made.type_oid) {
                types.insert((within.clone(), format!("_{name}")), (array, "a".to_owned(), 0));
            }
            types.insert((within, name), (made.type_oid.0, "p".to_owned(), 0));
        }
        Ok(types)
    }

    async fn types_of(&self, shard: &ShardId) -> Result<Types, SqlError> {
        let rows = self.ask(shard, Statement::new(TYPES)).await?;
        let mut types = Types::new();
        for row in rows.iter().flat_map(Rows::iter) {
            let read = || -> Result<_, polyshard_engine::Error> {
                let name = (row.text(1)?.to_owned(), row.text(2)?.to_owned());
                Ok((name, (number(row.int(0)?), row.text(3)?.to_owned(), number(row.int(4)?))))
            };
            let (name, found) = read().map_err(|error| reply::of_engine(&error))?;
            types.insert(name, found);
        }
        Ok(types)
    }

    /// Sees that these tables of a shard are known, with these columns, as far as home says what it calls them.
    pub async fn learn_tables(
        &self,
        shard: &ShardId,
        ids: &ShardIds,
        wanted: &[(u32, i16)],
    ) -> Result<(), SqlError> {
        let Some(home) = self.home() else { return Ok(()) };
        let position = self.journal.position();
        for (id, column) in wanted {
            let is_known = |known: &TableIds| {
                known.position == position || known.other != 0 && known.columns.contains_key(column)
            };
            if ids.table(*id).is_some_and(|known| is_known(&known)) {
                continue;
            }
            if self.is_home_lost() {
                return Ok(());
            }
            let Some(table) = self.read_table(shard, &home, *id, position).await? else { return Ok(()) };
            let table = Arc::new(table);
            let mut tables = ids.tables.lock().unwrap_or_else(PoisonError::into_inner);
            if tables.len() >= TABLES_MAX {
                tables.clear();
            }
            tables.insert(*id, table);
        }
        Ok(())
    }

    /// A table by the shard's own number; nothing if it or home cannot be asked.
    async fn read_table(
        &self,
        shard: &ShardId,
        home: &ShardId,
        id: u32,
        position: u64,
    ) -> Result<Option<TableIds>, SqlError> {
        let none = TableIds { other: 0, columns: HashMap::new(), position };
        let here = match self.ask(shard, Statement::new(TABLE).bind(i64::from(id))).await {
            Ok(here) => here,
            // Whoever answers may have been taken out of the cluster since he was asked.
            Err(error) => {
                tracing::debug!(%shard, error = %error.message, "tables are told without their numbers");
                return Ok(None);
            }
        };
        let Some(first) = here.as_ref().and_then(Rows::first) else { return Ok(Some(none)) };
        let of_engine = |error: polyshard_engine::Error| reply::of_engine(&error);
        let asked = Statement::new(TABLE_CALLED).bind(first.text(0).map_err(of_engine)?.to_owned());
        let asked = asked.bind(first.text(1).map_err(of_engine)?.to_owned());
        let there = async {
            self.journal.ready(home).await.map_err(|error| error.to_sql())?;
            self.ask(home, asked).await
        };
        let there = tokio::time::timeout(HOME_PATIENCE, there).await;
        let there = there.unwrap_or_else(|_| Err(away(home, "it does not answer")));
        let there = match self.note_home(there) {
            Ok(there) => there,
            Err(error) => {
                tracing::debug!(%home, error = %error.message, "tables are told without their numbers");
                return Ok(None);
            }
        };
        let Some(found) = there.as_ref().and_then(Rows::first) else { return Ok(Some(none)) };
        let other = number(found.int(0).map_err(of_engine)?);
        let (here, there) = (columns_of(here.as_ref())?, columns_of(there.as_ref())?);
        let columns = here.iter().filter_map(|(name, at)| Some((*at, *there.get(name)?))).collect();
        Ok(Some(TableIds { other, columns, position }))
    }

    /// Whether values of some of these types, by the ids that clients know, have ids of the user's types in them.
    pub async fn have_inner_ids(&self, types: &[u32]) -> Result<bool, SqlError> {
        if types.iter().any(|id| is_record(*id)) {
            return Ok(true);
        }
        let own: Vec<String> =
            types.iter().filter(|id| is_user_id(**id)).map(|id| format!("({id})")).collect();
        let (Some(home), false) = (self.home(), own.is_empty()) else { return Ok(false) };
        let question = format!(
            "WITH RECURSIVE t(oid) AS (SELECT v.id::oid FROM (VALUES {}) AS v(id) UNION \
             SELECT p.typbasetype FROM t JOIN pg_catalog.pg_type p ON p.oid = t.oid WHERE p.typtype = 'd') \
             SELECT count(*) FROM t JOIN pg_catalog.pg_type p ON p.oid = t.oid \
             WHERE p.oid >= 16384 AND (p.typtype = 'c' OR p.typelem <> 0 AND p.typlen = -1)",
            own.join(", ")
        );
        let rows = self.note_home(self.ask(&home, Statement::new(question)).await)?;
        let count = rows.as_ref().and_then(Rows::first).map(|row| row.int(0));
        Ok(count.transpose().map_err(|error| reply::of_engine(&error))?.unwrap_or(0) > 0)
    }

    /// Asks a shard beside what runs on it; nothing if it is no PostgreSQL.
    async fn ask(&self, shard: &ShardId, statement: Statement) -> Result<Option<Rows>, SqlError> {
        let ticket = self.router.enter_unmapped(shard, Access::Read).await;
        let ticket = ticket.map_err(|error| reply::of_router(&error))?;
        if ticket.dialect() != Dialect::Postgres {
            return Ok(None);
        }
        ticket.read(statement).await.map(Some).map_err(|error| reply::of_engine(&error))
    }
}

/// Home cannot say what clients know a type by.
fn away(home: &ShardId, why: &str) -> SqlError {
    let message = format!(
        "shard {home}, by whose numbers clients know the types of the user's own, cannot be asked: {why}"
    );
    SqlError::new(state::CANNOT_CONNECT_NOW, message)
        .hint("Try again once it is back, or leave out columns and parameters of such types.")
}

fn columns_of(rows: Option<&Rows>) -> Result<HashMap<&str, i16>, SqlError> {
    let mut columns = HashMap::new();
    for row in rows.iter().flat_map(|rows| rows.iter()) {
        let read = || Ok((row.text(3)?, i16::try_from(row.int(2)?).unwrap_or(0)));
        let (name, at) = read().map_err(|error: polyshard_engine::Error| reply::of_engine(&error))?;
        columns.insert(name, at);
    }
    Ok(columns)
}

fn made_of(word: &str, base: u32) -> Made {
    match word {
        "a" => Made::Array,
        "c" => Made::Composite,
        "d" => Made::Domain(base),
        _ => Made::Plain,
    }
}

fn number(id: i64) -> u32 {
    u32::try_from(id).unwrap_or(0)
}
