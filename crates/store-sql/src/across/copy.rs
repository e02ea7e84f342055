//! COPY … TO STDOUT over several shards: the rows of a SELECT, in the form that COPY is asked for.

use std::sync::Arc;

use bytes::BufMut;
use polyshard_sql::{Copy, CopyWhat, Kind, SqlError, SqlState, Statement, quoted};

use super::shards::Shards;
use super::worker::{BINARY_END, Sink, Trouble, Worker};
use super::{FETCH_BYTES_MAX, Texts};
use crate::reply;
use crate::session::{Session, check_client, given_columns, only};

impl Session {
    /// The SELECT whose rows are copied.
    pub(super) async fn copied_select(&mut self, copy: &Copy) -> Result<Arc<Statement>, SqlError> {
        check_client(copy)?;
        let (name, columns) = match &copy.what {
            CopyWhat::Query(query) if *query.kind() == Kind::Select => return Ok(query.clone()),
            CopyWhat::Query(_) => {
                return Err(SqlError::unsupported(
                    "COPY of a write over several shards is not offered",
                    "Write first, and then copy the rows.",
                ));
            }
            CopyWhat::Table { name, columns } => (name, columns),
        };
        let schema = self.schema().await?;
        let search_path = self.search_path();
        let table = schema.table(name.schema.as_deref(), &name.name, &search_path).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
        })?;
        let columns: Vec<String> = given_columns(table, columns).into_iter().map(quoted).collect();
        let (within, name) = (quoted(&table.name.schema), quoted(&table.name.name));
        only(polyshard_sql::statements(&format!("SELECT {} FROM {within}.{name}", columns.join(", ")))?)
    }

    /// The rows of all shards one after the other; they all begin at once.
    pub(super) async fn copy_concat(
        &mut self,
        working: &mut Shards,
        texts: &Texts,
        copy: &Copy,
    ) -> Result<(), Trouble> {
        let mut first = true;
        for worker in working.all() {
            worker.ask(&copy_text(copy, &texts[worker.shard()][0], first));
            worker.end();
            worker.send().await?;
            first = false;
        }
        let binary = copy.format() == "binary";
        let (mut first, mut rows) = (true, 0);
        for worker in working.all() {
            self.begin_copy(worker, first).await?;
            let passed = if binary {
                worker.pass_binary(self.client(), first).await?
            } else {
                worker.pass(self.client(), Sink::Client, FETCH_BYTES_MAX).await?
            };
            rows += passed.counted();
            first = false;
        }
        self.tell_failed(&working.missing);
        if binary {
            reply::message(&mut self.client().out, b'd', |out| out.put_slice(BINARY_END));
        }
        self.end_copied(&format!("COPY {rows}"));
        Ok(())
    }

    /// Waits for the beginning of a shard's data, and tells it once.
    pub(super) async fn begin_copy(&mut self, worker: &mut Worker, tell: bool) -> Result<(), Trouble> {
        let form = worker.copy_form(self.client()).await?;
        if tell {
            reply::message(&mut self.client().out, b'H', |out| out.put_slice(&form));
        }
        Ok(())
    }

    pub(super) fn end_copied(&mut self, tag: &str) {
        self.client().out.put_slice(b"c\0\0\0\x04");
        reply::complete(&mut self.client().out, tag);
    }
}

/// COPY of a query's rows. Only the first shard's data begins with the columns' names.
pub(super) fn copy_text(copy: &Copy, query: &str, first: bool) -> String {
    let mut text = format!("COPY ({query}) TO STDOUT");
    let options: Vec<String> = copy
        .options
        .iter()
        .filter(|(name, _)| first || name != "header")
        .map(|(name, value)| match (name.as_str(), value) {
            ("force_quote" | "force_not_null" | "force_null", Some(list)) if list == "*" => {
                format!("{name} *")
            }
            ("force_quote" | "force_not_null" | "force_null", Some(list)) => {
                let columns: Vec<String> = list.split(',').map(quoted).collect();
                format!("{name} ({})", columns.join(", "))
            }
            (_, Some(value)) => format!("{name} {}", crate::settings::quoted(value)),
            (_, None) => name.clone(),
        })
        .collect();
    if !options.is_empty() {
        text.push_str(&format!(" WITH ({})", options.join(", ")));
    }
    text
}
