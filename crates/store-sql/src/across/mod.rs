//! SELECT over several shards: the plan carried out on their sessions, combined on one of them, streamed to the client.
//!
//! Each shard's part is read in one snapshot of that shard. Rows go from session to session as they come: nothing is
//! gathered here, whatever the size of the answer; what does not fit into memory spills on the combine session's server.

mod check;
mod literal;
mod shards;
mod worker;

use bytes::BytesMut;
use polyshard_map::ShardId;
use polyshard_sql::{Context, Fragment, Kind, Mode, Plan, Route, Source, SqlError, Statement, TypeOid};

use crate::reply::{self, Field, Severity, state};
use crate::session::{Done, Session, Stop};
use shards::Shards;
use worker::{Passed, Sink, Trouble, Worker};

/// Most bytes that one fragment may fetch from one shard: a statement that needs more is better written otherwise, and
/// one that was not meant so does not fill a disk.
const FETCH_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;

/// What a client gave with a statement.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Given<'a> {
    /// The rest of its Bind message; empty for the simple protocol.
    pub bind: &'a [u8],
    /// The types of its parameters.
    pub types: &'a [TypeOid],
    /// The forms asked for the columns of the answer: none, one for all, or one each; true is binary.
    pub results: &'a [bool],
    /// The RowDescription that the client was told, as a whole message; none if it is to be told now.
    pub described: Option<&'a [u8]>,
}

impl Session {
    /// Answers a SELECT that concerns several shards.
    pub(crate) async fn run_across(&mut self, statement: &Statement, route: &Route, given: Given<'_>) -> Done {
        let Route::Many { shards, ranges } = route else {
            return Err(SqlError::new(polyshard_sql::SqlState::INTERNAL_ERROR, "this is for several shards").into());
        };
        let (explained, select) = match statement.kind() {
            Kind::Explain(explain) => (true, explain.statement.as_ref()),
            Kind::Select => (false, statement),
            _ => return Err(only_select().into()),
        };
        self.prepare_across().await?;
        let mut keep = None;
        let mut working = Shards::open(self, ranges, shards).await?;
        let done = self.answer_across(&mut working, select, explained, given).await;
        let gone = working.close(&mut self.client, &mut keep).await;
        self.keep_backend(keep);
        match (done, gone) {
            (Err(Trouble::Gone(gone)), _) | (_, Err(gone)) => Err(Stop::Gone(gone)),
            (Ok(()), Ok(())) => Ok(()),
            (Err(Trouble::Said(body)), Ok(())) => {
                self.show_error(&body);
                Err(Stop::Told)
            }
            (Err(Trouble::Refused(error) | Trouble::Lost(error)), Ok(())) => Err(Stop::Refused(error)),
        }
    }

    async fn answer_across(
        &mut self,
        working: &mut Shards,
        select: &Statement,
        explained: bool,
        given: Given<'_>,
    ) -> Result<(), Trouble> {
        let schema = self.schema().await?;
        let search_path = self.search_path();
        let context = Context { schema: &schema, search_path: &search_path, strict: true };
        let literals = match given.types {
            [] => Vec::new(),
            types => literal::of(working.first()?, &mut self.client, types, given.bind).await?,
        };
        let plan = polyshard_sql::plan(select, &context, &literals, None)?;
        if explained {
            return self.explain_across(&plan, working, given);
        }
        match plan.mode {
            Mode::Concat => self.concat(working, &plan.fragments[0], given).await,
            Mode::Combine => {
                working.share_snapshot(&mut self.client, plan.fragments.len()).await?;
                let mut combine = working.take_combine()?;
                let done = self.combine(working, &mut combine, &plan, &schema, given).await;
                working.put_back(combine);
                done
            }
        }
    }

    /// EXPLAIN: the plan, and not the shards' own plans for its parts.
    fn explain_across(&mut self, plan: &Plan, working: &Shards, given: Given<'_>) -> Result<(), Trouble> {
        let lines = plan.explain(&working.ids());
        if given.described.is_none() {
            reply::row_description(&mut self.client.out, &[Field::text("QUERY PLAN")], |_| false);
        }
        for line in &lines {
            reply::data_row(&mut self.client.out, [Some(line.as_str())].into_iter());
        }
        reply::complete(&mut self.client.out, "EXPLAIN");
        Ok(())
    }

    /// The rows of all shards one after the other; they all begin at once.
    async fn concat(&mut self, working: &mut Shards, fragment: &Fragment, given: Given<'_>) -> Result<(), Trouble> {
        for worker in working.all() {
            let sql = fragment.sql_on(worker.shard());
            worker.ask_rows(&sql, given.results);
            worker.send().await?;
        }
        let partial = self.partial_results();
        let (mut rows, mut told, mut failed) = (0, given.described.is_some(), Vec::new());
        for worker in working.all() {
            let one = async {
                let description = worker.description(&mut self.client).await?;
                check::same_types(&description, given.described)?;
                if !told {
                    tell_columns(&mut self.client.out, &description);
                    told = true;
                }
                worker.pass(&mut self.client, Sink::Client, FETCH_BYTES_MAX).await
            };
            match one.await {
                Ok(Passed { rows: more, .. }) => rows += more,
                // Rows that have been sent cannot be taken back; but a shard that has sent none can be left out.
                Err(Trouble::Lost(error)) if partial => failed.push((worker.shard().clone(), error)),
                Err(trouble) => return Err(trouble),
            }
        }
        working.check_failed(&failed)?;
        self.tell_failed(&failed);
        self.tell_failed(&working.missing);
        reply::complete(&mut self.client.out, &format!("SELECT {rows}"));
        Ok(())
    }

    /// Fetches the fragments into temporary tables of the combine session, and runs the statement there.
    async fn combine(
        &mut self,
        working: &mut Shards,
        combine: &mut Worker,
        plan: &Plan,
        schema: &polyshard_sql::Schema,
        given: Given<'_>,
    ) -> Result<(), Trouble> {
        for worker in working.all() {
            for fragment in plan.fragments.iter().filter(|fragment| concerns(fragment, worker.shard())) {
                worker.ask(&format!("COPY ({}) TO STDOUT", fragment.sql_on(worker.shard())));
            }
            worker.send().await?;
        }
        // The combine session's own part needs no journey. And the temporary table has the engine's own types.
        for fragment in &plan.fragments {
            let here = concerns(fragment, combine.shard()) && working.combine_has_rows;
            let data = if here { "" } else { " WITH NO DATA" };
            let (temp, sql) = (&fragment.temp, fragment.sql_on(combine.shard()));
            combine.ask(&format!("CREATE TEMPORARY TABLE {temp} AS {sql}{data}"));
            if !fragment.primary_key.is_empty() {
                let key: Vec<String> =
                    fragment.primary_key.iter().map(|name| format!("\"{}\"", name.replace('"', "\"\""))).collect();
                combine.ask(&format!("ALTER TABLE pg_temp.{temp} ADD PRIMARY KEY ({})", key.join(", ")));
            }
        }
        combine.send().await?;
        while combine.is_waiting() {
            combine.answer(&mut self.client).await?;
        }
        let mut failed = Vec::new();
        for fragment in &plan.fragments {
            for worker in working.all().filter(|worker| concerns(fragment, worker.shard())) {
                combine.ask(&format!("COPY pg_temp.{} FROM STDIN", fragment.temp));
                combine.send().await?;
                combine.ready_for_data(&mut self.client).await?;
                worker.pass(&mut self.client, Sink::Session(combine), FETCH_BYTES_MAX).await?;
                combine.end_data(&mut self.client).await?;
            }
        }
        failed.extend(working.missing.iter().cloned());
        if plan.fragments.len() > 1 {
            let names: Vec<String> =
                plan.fragments.iter().map(|fragment| format!("pg_temp.{}", fragment.temp)).collect();
            combine.ask(&format!("ANALYZE {}", names.join(", ")));
        }
        combine.ask(&format!("EXPLAIN (VERBOSE, FORMAT JSON) {}", plan.combine));
        combine.ask_rows(&plan.combine, given.results);
        combine.send().await?;
        if plan.fragments.len() > 1 {
            combine.answer(&mut self.client).await?;
        }
        let explained = combine.answer(&mut self.client).await?;
        check::relations(&explained, schema)?;
        let description = combine.description(&mut self.client).await?;
        check::same_types(&description, given.described)?;
        if given.described.is_none() {
            tell_columns(&mut self.client.out, &description);
        }
        let passed = combine.pass(&mut self.client, Sink::Client, u64::MAX).await?;
        self.tell_failed(&failed);
        reply::complete(&mut self.client.out, &format!("SELECT {}", passed.rows));
        Ok(())
    }

    /// Says which shards are missing from an answer.
    fn tell_failed(&mut self, failed: &[(ShardId, SqlError)]) {
        for (shard, error) in failed {
            let notice = SqlError::new(state::WARNING, format!("the answer is without shard {shard}: {}", error.message))
                .hint("polyshard.partial_results is on.");
            reply::error(&mut self.client.out, Severity::Notice, &notice);
        }
    }
}

fn concerns(fragment: &Fragment, shard: &ShardId) -> bool {
    match &fragment.from {
        Source::EveryShard => true,
        Source::Shard(only) => only == shard,
    }
}

fn only_select() -> SqlError {
    SqlError::unsupported(
        "this statement concerns several shards",
        "Name the key, so that it concerns one; only SELECT is answered from several.",
    )
}

/// RowDescription without the numbers of tables and columns, which are one shard's own or a temporary table's.
fn tell_columns(out: &mut BytesMut, description: &[u8]) {
    let mut body = BytesMut::from(description);
    let count = body.get(..2).map_or(0, |count| u16::from_be_bytes([count[0], count[1]]));
    let mut at = 2;
    for _ in 0..count {
        let Some(end) = body.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0)) else { break };
        at += end + 1;
        if let Some(numbers) = body.get_mut(at..at + 6) {
            numbers.fill(0);
        }
        at += 18;
    }
    reply::message(out, b'T', |out| out.extend_from_slice(&body));
}
