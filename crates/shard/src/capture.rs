//! Captures: for the time of one move, triggers that note which rows of its ranges change, and that refuse changes once
//! the ranges have left (PROTOCOL §3).
//!
//! A capture is made of three triggers for each table, and on PostgreSQL of the function that they call. Row triggers
//! append to one log; nothing is updated there, and whoever has carried what he read deletes just that. For rows of
//! others nothing is called: the condition of the trigger is all that they cost.

use polyshard_engine::{Dialect, Row, Statement, Transaction};
use polyshard_map::{KeyRange, MapDefinition};

use crate::dataset::Dataset;
use crate::shape::{self, Shape, Travel};
use crate::{OpId, ShardError, keys};

/// The first half of the advisory lock that a writer in a moving range shares, and that the departure takes alone.
/// The second half is of the capture's name.
pub(crate) const MOVE_LOCK_CLASS: i32 = 0x7073_4d56;

/// Whether a function lets changes through is one word in it, so that one statement can close it for everybody, also
/// for a transaction whose snapshot is older.
const OPEN_MARK: &str = "sealed constant boolean := false";
const SEALED_MARK: &str = "sealed constant boolean := true";

/// The setting by which the mover's own transactions on PostgreSQL say who they are.
pub(crate) const MOVER_SETTING: &str = "polyshard.mover";

/// How a capture is called in names of triggers and functions.
fn tag(capture: OpId) -> String {
    capture.to_string().replace('-', "")
}

/// The second half of a capture's advisory lock.
pub(crate) fn lock_number(capture: OpId) -> i32 {
    let hex = tag(capture);
    u32::from_str_radix(&hex[..8], 16).expect("an id is written in hex") as i32
}

/// A short name for a table, the same for ever (FNV-1a).
fn table_number(table: &str) -> u32 {
    table.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What a capture watches.
pub(crate) struct Watch<'a> {
    pub capture: OpId,
    pub definition: &'a MapDefinition,
    pub ranges: &'a [KeyRange],
}

impl Watch<'_> {
    fn name(&self, table: &str) -> String {
        format!("{}_{:08x}", tag(self.capture), table_number(table))
    }

    /// Puts the triggers on a dataset's table, unless they are there.
    pub(crate) async fn install(
        &self,
        tx: &mut Transaction,
        dialect: Dialect,
        dataset: &Dataset,
    ) -> Result<(), ShardError> {
        if self.is_installed(tx, dialect, &dataset.table).await? {
            return Ok(());
        }
        let refuse =
            |why: &str| ShardError::CannotMove { dataset: dataset.name.clone(), why: why.to_owned() };
        let shape = shape::read(tx, dialect, &dataset.table).await?;
        let shape = shape.ok_or_else(|| refuse("its table is not there"))?;
        if shape.primary_key.is_empty() {
            return Err(refuse(
                "its table has no primary key, so that changed rows cannot be told apart; add one",
            ));
        }
        let statements = match dialect {
            Dialect::Sqlite => self.sqlite(dataset, &shape)?,
            Dialect::Postgres => self.postgres(dataset, &shape)?,
        };
        // In one round trip: the writers of the table wait from the first trigger on.
        tx.run_known(statements.into_iter().map(Statement::new).collect()).await?;
        Ok(())
    }

    async fn is_installed(
        &self,
        tx: &mut Transaction,
        dialect: Dialect,
        table: &str,
    ) -> Result<bool, ShardError> {
        let name = self.name(table);
        let statement = match dialect {
            Dialect::Sqlite => {
                Statement::new("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = $1")
                    .bind(format!("polyshard_{name}_i"))
            }
            Dialect::Postgres => {
                Statement::new("SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = $2")
                    .bind(table.to_owned())
                    .bind(format!("polyshard_{name}"))
            }
        };
        Ok(!tx.run(statement).await?.is_empty())
    }

    /// The condition that a row is one of the move's.
    fn condition(&self, dialect: Dialect, dataset: &Dataset, row: &str) -> Result<String, ShardError> {
        let inside = dataset.placement.in_ranges(dialect, self.definition, self.ranges, row)?;
        // Looked up, and not listed: a dataset may get its first rows while the move is under way.
        Ok(match dataset.rows_of_map(dialect, row) {
            None => inside,
            Some(of_map) => format!("({inside} AND {of_map})"),
        })
    }

    fn sqlite(&self, dataset: &Dataset, shape: &Shape) -> Result<Vec<String>, ShardError> {
        let dialect = Dialect::Sqlite;
        let key: Vec<_> = shape.key().collect();
        let (table, name) = (&dataset.table, self.name(&dataset.table));
        let capture = self.capture;
        let state = format!("(SELECT state FROM polyshard_capture WHERE capture = '{capture}')");
        let guard = format!(
            "SELECT RAISE(ABORT, 'polyshard: the range has moved to another shard; try again') \
             WHERE {state} = 'sealed';"
        );
        let note = |row: &str, more: &str| {
            format!(
                "INSERT INTO polyshard_capture_log (capture, tab, pk) SELECT '{capture}', {}, {} \
                 WHERE {state} = 'open'{more};",
                text(table),
                keys::expression(dialect, &key, row)
            )
        };
        let (old, new) = (self.condition(dialect, dataset, "OLD")?, self.condition(dialect, dataset, "NEW")?);
        let changed: Vec<String> =
            key.iter().map(|column| format!("OLD.{0} IS NOT NEW.{0}", column.name)).collect();
        let changed = format!(" AND ({})", changed.join(" OR "));
        let trigger = |suffix: &str, event: &str, when: &str, body: String| {
            format!(
                "CREATE TRIGGER \"polyshard_{name}_{suffix}\" AFTER {event} ON {table} WHEN {when} \
                 BEGIN {guard} {body} END"
            )
        };
        Ok(vec![
            trigger("i", "INSERT", &new, note("NEW", "")),
            trigger("d", "DELETE", &old, note("OLD", "")),
            trigger("u", "UPDATE", &format!("({old} OR {new})"), note("OLD", "") + &note("NEW", &changed)),
        ])
    }

    fn postgres(&self, dataset: &Dataset, shape: &Shape) -> Result<Vec<String>, ShardError> {
        let dialect = Dialect::Postgres;
        let key: Vec<_> = shape.key().collect();
        let (table, name) = (&dataset.table, self.name(&dataset.table));
        let (capture, class, number) = (self.capture, MOVE_LOCK_CLASS, lock_number(self.capture));
        let note = |row: &str| {
            format!(
                "INSERT INTO polyshard.capture_log (capture, tab, pk) VALUES ('{capture}', {}, {});",
                text(table),
                keys::expression(dialect, &key, row)
            )
        };
        let (old, new) = (self.condition(dialect, dataset, "OLD")?, self.condition(dialect, dataset, "NEW")?);
        let row = |row: &str| {
            // What is equal may be written in two ways, 1.0 and 1.00: then both are noted.
            let columns = key.iter().map(|column| match column.travel {
                Travel::Cast => format!("({row}.{})::text", column.name),
                _ => format!("{row}.{}", column.name),
            });
            format!("ROW({})", columns.collect::<Vec<_>>().join(", "))
        };
        // What is noted of keys must not depend on the writer's settings.
        let settings = crate::notation::of_function(&key);
        // A statement that began before the range left may run the function as it was then: the record is asked, too,
        // after the lock is held. An older snapshot sees the record as it was; locking it fails then.
        let body = format!(
            "DECLARE {OPEN_MARK}; was boolean := false; now boolean := false;
             BEGIN
               IF TG_OP = 'TRUNCATE' THEN
                 RAISE EXCEPTION 'polyshard: % is being moved and cannot be truncated; delete its rows', TG_TABLE_NAME
                   USING ERRCODE = '55006';
               END IF;
               IF current_setting('{MOVER_SETTING}', true) = '{capture}' THEN RETURN NULL; END IF;
               IF TG_OP <> 'INSERT' THEN was := {old}; END IF;
               IF TG_OP <> 'DELETE' THEN now := {new}; END IF;
               IF (was OR now) IS NOT TRUE THEN RETURN NULL; END IF;
               IF sealed OR NOT pg_try_advisory_xact_lock_shared({class}, {number}) THEN
                 RAISE EXCEPTION 'polyshard: the range is moving to another shard; try again' USING ERRCODE = '40001';
               END IF;
               IF current_setting('transaction_isolation') = 'read committed' THEN
                 PERFORM 1 FROM polyshard.capture WHERE capture = '{capture}' AND state = 'open';
               ELSE
                 PERFORM 1 FROM polyshard.capture WHERE capture = '{capture}' AND state = 'open' FOR SHARE;
               END IF;
               IF NOT FOUND THEN
                 RAISE EXCEPTION 'polyshard: the range is moving to another shard; try again' USING ERRCODE = '40001';
               END IF;
               IF TG_OP <> 'INSERT' THEN {} END IF;
               IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND {} IS DISTINCT FROM {}) THEN {} END IF;
               RETURN NULL;
             END",
            note("OLD"),
            row("OLD"),
            row("NEW"),
            note("NEW"),
        );
        let function = format!("polyshard.capture_{name}()");
        let trigger = |suffix: &str, event: &str, when: String| {
            format!(
                "CREATE TRIGGER polyshard_{name}{suffix} AFTER {event} ON {table} FOR EACH ROW WHEN ({when}) \
                 EXECUTE FUNCTION {function}"
            )
        };
        // Every statement on the table reads the condition anew: of many ranges only their outer bounds are in it, and
        // the function decides.
        let hull = hull(self.ranges);
        let near = |row: &str| dataset.placement.in_ranges(dialect, self.definition, &hull, row);
        let (near_old, near_new) = (near("OLD")?, near("NEW")?);
        Ok(vec![
            format!(
                "CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER \
                 SET search_path = pg_catalog, pg_temp{settings} AS $capture${body}$capture$"
            ),
            // By the first one's name a program of an earlier version finds that all are there.
            trigger("", "INSERT", near_new.clone()),
            trigger("_u", "UPDATE", format!("{near_old} OR {near_new}")),
            trigger("_d", "DELETE", near_old),
            format!(
                "CREATE TRIGGER polyshard_{name}_t BEFORE TRUNCATE ON {table} FOR EACH STATEMENT \
                 EXECUTE FUNCTION {function}"
            ),
            // Also for sessions that replay what happened elsewhere.
            format!(
                "ALTER TABLE {table} {}",
                ["", "_u", "_d", "_t"]
                    .map(|suffix| format!("ENABLE ALWAYS TRIGGER polyshard_{name}{suffix}"))
                    .join(", ")
            ),
        ])
    }
}

/// Closes a capture for good in the transaction by which its ranges leave. False if something is left to carry, or a
/// writer is still in the ranges: then the transaction must be rolled back.
pub(crate) async fn seal(tx: &mut Transaction, dialect: Dialect, capture: OpId) -> Result<bool, ShardError> {
    let own = |name| dialect.own_table(name);
    // In one round trip: requests are held. What is left is looked for after the lock is taken, by a statement of its
    // own: a writer that has just ended is then seen. Without the lock nothing is touched, and so nobody waited for.
    let (mut statements, mut alone) = (Vec::new(), "");
    if dialect == Dialect::Postgres {
        let sql =
            "SELECT set_config('polyshard.alone', pg_try_advisory_xact_lock($1::int, $2::int)::text, true)";
        statements.push(Statement::new(sql).bind(MOVE_LOCK_CLASS).bind(lock_number(capture)));
        alone = " AND current_setting('polyshard.alone') = 'true'";
    }
    let close = format!(
        "UPDATE {} SET state = 'sealed' WHERE capture = $1 AND ready = 1{alone} \
         AND NOT EXISTS (SELECT 1 FROM {} WHERE capture = $1)",
        own("capture"),
        own("capture_log")
    );
    statements.push(Statement::new(close).bind(capture.to_string()));
    if dialect == Dialect::Postgres {
        statements.push(select_functions(capture));
    }
    let answers = tx.run_known(statements).await?;
    let (closed, functions) = match answers.as_slice() {
        [_, closed, functions] => (closed, functions.rows()),
        [closed] => (closed, [].as_slice()),
        _ => return Ok(false),
    };
    if closed.affected() != 1 {
        return Ok(false);
    }
    let mut sealed = Vec::new();
    for row in functions {
        sealed.push(Statement::new(row.text(1)?.replace(OPEN_MARK, SEALED_MARK)));
    }
    tx.run_known(sealed).await?;
    Ok(true)
}

/// The statements that take a capture's triggers and functions away, one for each table and kind.
pub(crate) async fn parts(
    tx: &mut Transaction,
    dialect: Dialect,
    capture: OpId,
) -> Result<Vec<String>, ShardError> {
    match dialect {
        Dialect::Postgres => {
            let functions = tx.run(select_functions(capture)).await?;
            let drop = |row: &Row| Ok(format!("DROP FUNCTION polyshard.{}() CASCADE", row.text(0)?));
            functions.rows().iter().map(drop).collect()
        }
        Dialect::Sqlite => {
            let sql = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE $1";
            let names = tx.run(Statement::new(sql).bind(format!("polyshard%{}%", tag(capture)))).await?;
            names.rows().iter().map(|row| Ok(format!("DROP TRIGGER \"{}\"", row.text(0)?))).collect()
        }
    }
}

/// Forgets a capture that has no triggers any more, with what it caught.
pub(crate) async fn forget(tx: &mut Transaction, dialect: Dialect, capture: OpId) -> Result<(), ShardError> {
    for table in ["capture_log", "capture"] {
        let sql = format!("DELETE FROM {} WHERE capture = $1", dialect.own_table(table));
        tx.run(Statement::new(sql).bind(capture.to_string())).await?;
    }
    Ok(())
}

/// A capture's functions on PostgreSQL, with the statements that make them.
fn select_functions(capture: OpId) -> Statement {
    let sql = "SELECT p.proname::text, pg_get_functiondef(p.oid) FROM pg_proc p \
               WHERE p.pronamespace = 'polyshard'::regnamespace AND p.proname LIKE $1";
    Statement::new(sql).bind(format!("capture\\_{}\\_%", tag(capture)))
}

/// One range from the least bound of some to the greatest; none of none.
fn hull(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let Some(lo) = ranges.iter().map(KeyRange::lo).min() else { return Vec::new() };
    let his: Option<Vec<_>> = ranges.iter().map(KeyRange::hi).collect();
    let hi = his.and_then(|his| his.into_iter().max().cloned());
    vec![KeyRange::new(lo.clone(), hi).unwrap_or_else(|_| KeyRange::all())]
}

/// A text as an SQL literal.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
