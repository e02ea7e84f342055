//! What the ids of serial columns are counted by: one count for a column, whichever engine asks.
//!
//! Counts are called as sequences are. PostgreSQL gives a sequence another name if the usual one is taken, and files
//! never do: such a column has two names, and whoever leases ids of it leases the same ones under both.

use std::collections::BTreeSet;

use polyshard_engine::Transaction;
use polyshard_map::ShardId;
use polyshard_sql::{Schema, TableName};

use crate::JournalError;
use crate::introspect::{self, OwnedSequence};
use crate::journal::Inner;
use crate::quote::identifier;

/// How often a lease under several names is tried: others may lease under one of them at the same moment.
const LEASE_TRIES: u32 = 20;

/// What a sequence's count is called in the catalog, however the sequence is written: `'public.t_id_seq'::regclass` and
/// `t_id_seq` are one, and so are `public."T_id_seq"`, as PostgreSQL writes it, and `T_id_seq`.
pub(crate) fn count_name(sequence: &str) -> String {
    let written = sequence.strip_suffix("::regclass").unwrap_or(sequence);
    let literal = written.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let written = literal.map_or_else(|| written.to_owned(), |inner| inner.replace("''", "'"));
    let written = written.strip_prefix("public.").unwrap_or(&written);
    let mut name = String::with_capacity(written.len());
    let mut letters = written.chars().peekable();
    let mut inside = false;
    while let Some(letter) = letters.next() {
        match letter {
            // Two are one of the name itself.
            '"' if inside && letters.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => inside = !inside,
            letter => name.push(letter),
        }
    }
    name
}

/// The count that a column of a file takes its ids from, by its default: `nextval('…'::regclass)`.
fn sequence_in(default: &str) -> Option<String> {
    default.strip_prefix("nextval(")?.strip_suffix(')').map(count_name)
}

/// What files call the count of a column.
fn name_on_files(files: &Schema, table: &TableName, column: &str) -> Option<String> {
    let table = files.tables.get(table)?;
    let column = table.columns.iter().find(|known| known.name == column)?;
    sequence_in(column.default.as_ref()?)
}

/// The names of the count that a column takes its ids from, given what files have.
pub(crate) fn names_in(files: Option<&Schema>, table: &TableName, owned: &OwnedSequence) -> BTreeSet<String> {
    let mut names = BTreeSet::from([count_name(&owned.sequence)]);
    names.extend(files.and_then(|files| name_on_files(files, table, &owned.column)));
    names
}

impl Inner {
    fn files(&self) -> Vec<ShardId> {
        self.serving().into_iter().filter(|id| self.is_file(id)).collect()
    }

    /// The names of the count that a column takes its ids from.
    pub(crate) async fn names_of_column(
        &self,
        table: &TableName,
        owned: &OwnedSequence,
    ) -> Result<BTreeSet<String>, JournalError> {
        if self.files().is_empty() {
            return Ok(names_in(None, table, owned));
        }
        let files = self.read_schema_of_files(self.position()).await?;
        Ok(names_in(Some(&files.schema), table, owned))
    }

    /// What files have at this position; nothing if there are none. For whoever brings a shard up: the schema that this
    /// process goes by may be waiting for that.
    pub(crate) async fn schema_on_files(&self, position: u64) -> Result<Option<Schema>, JournalError> {
        let files = self.files();
        let mut failed = None;
        for id in &files {
            match self.read_shard(id).await {
                Ok((at, found)) if at >= position => return Ok(Some(found.schema)),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        // What files call a count must not be guessed: ids would be given twice.
        if files.is_empty() { Ok(None) } else { Err(failed.unwrap_or(JournalError::Busy)) }
    }

    /// Has the counts of a file that is new go on where PostgreSQL shards are, if these call them otherwise: they may
    /// be gone before the file leases its first ids.
    pub(crate) async fn align_counts(
        &self,
        server: &mut Transaction,
        file: &mut Transaction,
    ) -> Result<(), JournalError> {
        let found = introspect::read_tables(server).await?;
        let files = self.embedded().schema(file).await?;
        for (table, details) in &found.details {
            for owned in &details.sequences {
                let names = names_in(Some(&files), table, owned);
                if names.len() > 1 {
                    self.lease_of(&names, 0, 1).await?;
                }
            }
        }
        Ok(())
    }

    /// All names of a count that files call so.
    pub(crate) async fn names_of_count(&self, name: String) -> Result<BTreeSet<String>, JournalError> {
        let mut names = BTreeSet::from([name.clone()]);
        if !self.has_postgres() {
            return Ok(names);
        }
        let files = self.read_schema_of_files(self.position()).await?;
        let known = self.read_schema(self.position()).await?;
        for (table, details) in &known.details {
            for owned in &details.sequences {
                if name_on_files(&files.schema, table, &owned.column).as_ref() == Some(&name) {
                    names.insert(count_name(&owned.sequence));
                }
            }
        }
        Ok(names)
    }

    /// Leases ids of a count that has these names: the same under each, so that whoever knows one alone gets others.
    pub(crate) async fn lease_of(
        &self,
        names: &BTreeSet<String>,
        count: u64,
        mut least: i64,
    ) -> Result<i64, JournalError> {
        for name in names {
            // PostgreSQL shards once had counts of their own, by the name with its schema, and by the name in quotes
            // where it needs them: it goes on behind those.
            let quoted = name.contains(|letter: char| !matches!(letter, 'a'..='z' | '0'..='9' | '_'));
            let before = [Some(format!("public.{name}")), quoted.then(|| identifier(name))];
            for before in before.into_iter().flatten() {
                least = self.catalog.lease_ids(&before, 0, least).await?.max(least);
            }
        }
        let _one = if names.len() > 1 { Some(self.ids.leasing.lock().await) } else { None };
        for _ in 0..LEASE_TRIES {
            if names.len() > 1 {
                for name in names {
                    least = self.catalog.lease_ids(name, 0, least).await?.max(least);
                }
            }
            let mut starts = Vec::with_capacity(names.len());
            for name in names {
                starts.push(self.catalog.lease_ids(name, count, least).await?);
            }
            match starts.as_slice() {
                [start, others @ ..] if others.iter().all(|other| other == start) => return Ok(*start),
                // Somebody was quicker with one of them; what was taken of the others is left out.
                _ => {}
            }
        }
        Err(JournalError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::{count_name, sequence_in};

    #[test]
    fn a_sequence_has_one_count_however_it_is_written() {
        for written in ["t_id_seq", "public.t_id_seq", "'t_id_seq'::regclass", "'public.t_id_seq'::regclass"]
        {
            assert_eq!(count_name(written), "t_id_seq");
        }
        for written in ["Orders_id_seq", "public.\"Orders_id_seq\"", "'\"Orders_id_seq\"'::regclass"] {
            assert_eq!(count_name(written), "Orders_id_seq");
        }
        assert_eq!(count_name("app.\"Orders_id_seq\""), "app.Orders_id_seq");
        assert_eq!(count_name("public.\"it's \"\"so\"\"_id_seq\""), "it's \"so\"_id_seq");
        assert_eq!(count_name("'\"it''s \"\"so\"\"_id_seq\"'::regclass"), "it's \"so\"_id_seq");
    }

    #[test]
    fn the_count_of_a_column_is_in_its_default() {
        assert_eq!(sequence_in("nextval('\"T_id_seq\"'::regclass)").as_deref(), Some("T_id_seq"));
        assert_eq!(sequence_in("0"), None);
    }
}
