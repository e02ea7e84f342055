//! UPDATE of a key column: the rows leave one shard and come to another, in one transaction of both.

use polyshard_map::ShardId;
use polyshard_router::Access;
use polyshard_sql::ast::{AssignmentTarget, Expr, Statement as Tree, TableFactor, Update};
use polyshard_sql::{Column, Param, Rekey, SqlError, SqlState, Table, folded, quoted};

use super::load::is_given;
use super::place::{RoutedBy, Wanted};
use super::{Done, Session, Stop};
use crate::cache::Analysed;

/// Rows that one statement moves: they pass through this process.
const MOVED_ROWS_MAX: usize = 10_000;
/// Rows written by one INSERT.
const ROWS_AT_ONCE: usize = 500;

impl Session {
    /// Gives rows a key of another shard.
    pub(super) async fn move_rows(
        &mut self,
        analysed: &Analysed,
        rekey: &Rekey,
        params: &[Param<'_>],
        routed_by: Option<RoutedBy>,
    ) -> Done {
        if !self.is_two_phase() {
            return Err(self.needs_two_phase(&rekey.from, &rekey.to).into());
        }
        if !self.texts_are_exact() {
            return Err(SqlError::unsupported(
                "rows cannot be moved under the settings extra_float_digits and IntervalStyle of this session",
                "RESET extra_float_digits, or IntervalStyle.",
            )
            .into());
        }
        let schema = self.current_schema().await?;
        let table = schema.tables.get(&rekey.table).cloned().ok_or_else(super::place::outdated)?;
        // Taking a row out to put it in elsewhere would take along, or orphan, what refers to it.
        if schema.tables.values().any(|other| other.foreign_keys.iter().any(|key| key.target == table.name)) {
            return Err(SqlError::unsupported(
                format!("other tables refer to {}, whose rows cannot be moved by UPDATE", table.name),
                "Insert the rows under their new key with those that refer to them, and delete the old ones.",
            )
            .into());
        }
        let text = self.literal_text(analysed, params).await?;
        let leaving = leaving(&text, &table)?;
        let alone = self.begin_alone();
        // Looked at again by whoever takes the shard's session: the columns must still be those that are taken along.
        self.routed_by = routed_by;
        let done = self.move_rows_inside(&leaving, &table, rekey).await;
        self.end_and_tell(alone, done.map(|count| Some(format!("UPDATE {count}")))).await
    }

    async fn move_rows_inside(&mut self, leaving: &str, table: &Table, rekey: &Rekey) -> Result<usize, Stop> {
        let keys = vec![(rekey.map.clone(), rekey.keys.clone())];
        let wanted = Wanted::Keys { keys: &keys, ranges: &[], shard: &rekey.from };
        self.acquire(&wanted, Access::Write).await?;
        let rows = self.ask_all_here(leaving).await?;
        if rows.len() > MOVED_ROWS_MAX {
            let message = format!("the statement moves more than {MOVED_ROWS_MAX} rows to another shard");
            let hint = "Move fewer rows by one statement.";
            return Err(SqlError::new(SqlState("54000"), message).hint(hint).into());
        }
        if rows.is_empty() {
            return Ok(0);
        }
        let keys = vec![(rekey.map.clone(), vec![rekey.key.clone()])];
        let wanted = Wanted::Keys { keys: &keys, ranges: &[], shard: &rekey.to };
        self.acquire(&wanted, Access::Write).await?;
        let names: Vec<String> = given(table).map(|column| quoted(&column.name)).collect();
        let into = format!("{}.{}", quoted(&table.name.schema), quoted(&table.name.name));
        for part in rows.chunks(ROWS_AT_ONCE) {
            let rows: Vec<String> = part.iter().map(|row| format!("({})", row.join(", "))).collect();
            let (names, rows) = (names.join(", "), rows.join(", "));
            self.ask_all_here(&format!("INSERT INTO {into} ({names}) OVERRIDING SYSTEM VALUE VALUES {rows}"))
                .await?;
        }
        Ok(rows.len())
    }

    /// Runs a write of our own on the shard that works for us; all fields of all rows.
    async fn ask_all_here(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        self.begun().await?;
        self.note_write(true);
        let Some(backend) = &mut self.backend else { return Ok(Vec::new()) };
        let asked = match backend.ask_openly(sql).await {
            Ok(asked) => asked,
            Err(broken) => return Err(self.lose_broken(broken).await),
        };
        match asked {
            Ok(rows) => Ok(rows.into_iter().map(|row| row.into_iter().flatten().collect()).collect()),
            Err(body) => {
                self.show_error(&body);
                Err(Stop::Told)
            }
        }
    }

    fn needs_two_phase(&self, from: &ShardId, to: &ShardId) -> SqlError {
        let message = format!("under their new key, rows of shard {from} belong to shard {to}");
        let hint = if self.embedded {
            "SQLite shards cannot commit together: insert the rows under their new key, and then delete them."
        } else {
            "SET polyshard.multi_shard = 'two_phase' as well, so that both shards commit or none."
        };
        SqlError::unsupported(message, hint)
    }
}

/// The columns that are written: all but those computed from others.
fn given(table: &Table) -> impl Iterator<Item = &Column> {
    table.columns.iter().filter(|column| is_given(column))
}

/// The statement that takes the rows out: each as it will be, every field as a literal.
fn leaving(text: &str, table: &Table) -> Result<String, SqlError> {
    let parsed = polyshard_sql::statements(text)?;
    let plain = parsed.first().filter(|statement| statement.left_out().is_none());
    let Some(Tree::Update(update)) = plain.and_then(|statement| statement.ast()) else {
        return Err(too_much());
    };
    let Update {
        table: target, assignments, from: None, selection: Some(condition), returning: None, ..
    } = update
    else {
        return Err(too_much());
    };
    let TableFactor::Table { name, alias, .. } = &target.relation else { return Err(too_much()) };
    let called = alias.as_ref().map_or_else(|| name.to_string(), |alias| alias.name.to_string());
    let target = alias.as_ref().map_or_else(|| name.to_string(), |_| format!("{name} AS {called}"));
    let mut assigned: Vec<(String, &Expr)> = Vec::new();
    for assignment in assignments {
        let AssignmentTarget::ColumnName(column) = &assignment.target else { return Err(too_much()) };
        let [part] = column.0.as_slice() else { return Err(too_much()) };
        let ident = part.as_ident().ok_or_else(too_much)?;
        let name = folded(ident);
        if table.column(&name).is_none() {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name.name);
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        }
        if assignment.value.to_string().eq_ignore_ascii_case("default") {
            return Err(too_much());
        }
        assigned.push((name, &assignment.value));
    }
    let mut returned = Vec::new();
    for (at, column) in given(table).enumerate() {
        let value = match assigned.iter().find(|(name, _)| *name == column.name) {
            Some((_, value)) => format!("CAST({value} AS {})", without_length(&column.type_name)?),
            None => format!("{called}.{}", quoted(&column.name)),
        };
        returned.push(format!("{value} AS c{at}"));
    }
    let fields: Vec<String> =
        (0..returned.len()).map(|at| format!("pg_catalog.quote_nullable(c{at}::text)")).collect();
    let (returned, fields) = (returned.join(", "), fields.join(", "));
    Ok(format!(
        "WITH polyshard_moved AS (DELETE FROM {target} WHERE {condition} RETURNING {returned}) \
         SELECT {fields} FROM polyshard_moved LIMIT {}",
        MOVED_ROWS_MAX + 1
    ))
}

/// A type without its length, which is checked where the value is written: a cast would cut it off in silence.
fn without_length(name: &str) -> Result<String, SqlError> {
    if name.starts_with("bit") {
        return Err(too_much());
    }
    let Some((before, rest)) = name.split_once('(') else {
        return Ok(if name == "character" { "bpchar".to_owned() } else { name.to_owned() });
    };
    let after = rest.split_once(')').map_or("", |(_, after)| after);
    let before = if before == "character" { "bpchar" } else { before };
    Ok(format!("{before}{after}"))
}

fn too_much() -> SqlError {
    SqlError::unsupported(
        "rows are moved by UPDATE t SET column = value, … WHERE … alone: no FROM, RETURNING, DEFAULT, lists of columns \
         or bit strings",
        "Insert the rows under their new key, and delete the old ones, in one transaction.",
    )
}

#[cfg(test)]
mod tests {
    use super::without_length;

    #[test]
    fn types_lose_their_length_alone() {
        let without = |name| without_length(name).unwrap();
        assert_eq!(without("character varying(20)"), "character varying");
        assert_eq!(without("timestamp(3) with time zone"), "timestamp with time zone");
        assert_eq!(without("numeric(10,2)[]"), "numeric[]");
        assert_eq!(without("character(3)"), "bpchar");
        assert_eq!(without("bigint"), "bigint");
        assert!(without_length("bit varying(3)").is_err());
    }
}
