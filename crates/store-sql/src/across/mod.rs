//! SELECT over several shards: the plan carried out on their sessions, combined on one of them, streamed to the client.
//!
//! Each shard's part is read in one snapshot of that shard. Rows go from session to session as they come: nothing is
//! gathered here, whatever the size of the answer; what does not fit into memory spills on that session's server.

mod check;
pub(crate) mod motion;
mod shards;
mod worker;

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use polyshard_sql::{Context, Fragment, Kind, Mode, Param, Plan, Route, Schema, Source, SqlError, Statement};

use crate::reply::{self, Field, Severity, state};
use crate::session::{Done, Session, Stop};
use shards::Shards;
use worker::{Passed, Sink, Trouble, Worker};

/// Most bytes that one fragment may fetch from one shard: a statement that needs more is better written otherwise, and
/// one that was not meant so does not fill a disk.
const FETCH_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;

/// The fragments' texts by shard.
type Texts = BTreeMap<ShardId, Vec<String>>;

impl Session {
    /// Answers a SELECT that concerns several shards.
    pub(crate) async fn run_across(
        &mut self,
        statement: &Statement,
        route: &Route,
        params: &[Param<'_>],
    ) -> Done {
        let Route::Many { shards, ranges } = route else {
            return Err(
                SqlError::new(polyshard_sql::SqlState::INTERNAL_ERROR, "this is for several shards").into()
            );
        };
        let (explained, select) = match statement.kind() {
            Kind::Explain(explain) => (true, explain.statement.as_ref()),
            Kind::Select => (false, statement),
            _ => return Err(only_select().into()),
        };
        self.prepare_across().await?;
        let literals = if params.is_empty() { Vec::new() } else { self.literals_of(params).await? };
        let schema = self.schema().await?;
        let search_path = self.search_path();
        let context = Context { schema: &schema, search_path: &search_path, strict: true };
        if explained {
            let plan = polyshard_sql::plan(select, &context, &literals, Some("now"))?;
            self.explain_across(&plan, shards);
            return Ok(());
        }
        let said = self.client().said();
        let had = self.has_backend();
        let mut again = !had;
        loop {
            let mut keep = None;
            let mut working = Shards::open(self, ranges, shards).await?;
            let done = self.plan_and_answer(&mut working, select, &literals, &context).await;
            let gone = working.close(self, &mut keep).await;
            self.keep_backend(keep, had).await;
            match (done, gone) {
                (Err(Trouble::Gone(gone)), _) | (_, Err(gone)) => return Err(Stop::Gone(gone)),
                (Ok(()), Ok(())) => return Ok(()),
                (Err(Trouble::Said(body)), Ok(())) => {
                    self.show_error(&body);
                    return Err(Stop::Told);
                }
                // A pooled session was dead already, or died of this: what has said nothing can be repeated.
                (Err(Trouble::Lost(_)), Ok(())) if again && self.client().said() == said => again = false,
                (Err(Trouble::Refused(error) | Trouble::Lost(error)), Ok(())) => {
                    return Err(Stop::Refused(error));
                }
            }
        }
    }

    async fn plan_and_answer(
        &mut self,
        working: &mut Shards,
        select: &Statement,
        literals: &[String],
        context: &Context<'_>,
    ) -> Result<(), Trouble> {
        let now = if mentions_time(select.text()) { Some(working.now(self.client()).await?) } else { None };
        let plan = polyshard_sql::plan(select, context, literals, now.as_deref())?;
        self.answer_across(working, &plan, context).await
    }

    async fn answer_across(
        &mut self,
        working: &mut Shards,
        plan: &Plan,
        context: &Context<'_>,
    ) -> Result<(), Trouble> {
        let motion = working.share_snapshot(self.client(), plan.mode).await?;
        let view = self.router().view();
        let mut texts = Texts::new();
        for shard in working.ids() {
            let foreign = motion.foreign(Dialect::Postgres, &shard, &view, context.schema)?;
            let of = |fragment: &Fragment| fragment.sql_without(&shard, &foreign, context);
            texts.insert(shard.clone(), plan.fragments.iter().map(of).collect::<Result<_, _>>()?);
        }
        match plan.mode {
            Mode::Concat => self.concat(working, &texts).await,
            Mode::Combine => {
                let mut combine = working.take_combine()?;
                let done = self.combine(working, &mut combine, plan, &texts, context.schema).await;
                working.put_back(combine);
                done
            }
        }
    }

    /// EXPLAIN: the plan, and not the shards' own plans for its parts.
    fn explain_across(&mut self, plan: &Plan, shards: &BTreeSet<ShardId>) {
        let ids: Vec<ShardId> = shards.iter().cloned().collect();
        let (_, told) = self.wanted_forms();
        let out = &mut self.client().out;
        if !told {
            reply::row_description(out, &[Field::text("QUERY PLAN")], |_| false);
        }
        for line in plan.explain(&ids) {
            reply::data_row(out, [Some(line.as_str())].into_iter());
        }
        reply::complete(out, "EXPLAIN");
    }

    /// The rows of all shards one after the other; they all begin at once.
    async fn concat(&mut self, working: &mut Shards, texts: &Texts) -> Result<(), Trouble> {
        let (forms, mut told) = self.wanted_forms();
        for worker in working.all() {
            worker.ask_rows(&texts[worker.shard()][0], &forms);
            worker.end();
            worker.send().await?;
        }
        let partial = self.partial_results();
        let (mut rows, mut failed) = (0, Vec::new());
        for worker in working.all() {
            let mut before = None;
            let one = async {
                let description = worker.description(self.client()).await?;
                if !told {
                    tell_columns(&mut self.client().out, &description);
                    told = true;
                }
                before = Some(self.client().said());
                worker.pass(self.client(), Sink::Client, FETCH_BYTES_MAX).await
            };
            match one.await {
                Ok(Passed { rows: more, .. }) => rows += more,
                // Rows that have been sent cannot be taken back; but a shard that has sent none can be left out.
                Err(Trouble::Lost(error))
                    if partial
                        && !worker.borrowed
                        && before.is_none_or(|said| said == self.client().said()) =>
                {
                    failed.push((worker.shard().clone(), error));
                }
                Err(trouble) => return Err(trouble),
            }
        }
        working.check_failed(&failed)?;
        self.tell_failed(&failed);
        self.tell_failed(&working.missing);
        reply::complete(&mut self.client().out, &format!("SELECT {rows}"));
        Ok(())
    }

    /// Fetches the fragments into temporary tables of the combine session, and runs the statement there.
    async fn combine(
        &mut self,
        working: &mut Shards,
        combine: &mut Worker,
        plan: &Plan,
        texts: &Texts,
        schema: &Schema,
    ) -> Result<(), Trouble> {
        // Texts fit every type, also those of the user's own, whose numbers differ from shard to shard.
        let form = if self.texts_are_exact() { "text" } else { "binary" };
        for worker in working.all() {
            let shard = worker.shard().clone();
            for (fragment, sql) in plan.fragments.iter().zip(&texts[&shard]) {
                if concerns(fragment, &shard) {
                    worker.ask(&format!("COPY ({sql}) TO STDOUT (FORMAT {form})"));
                }
            }
            worker.end();
            worker.send().await?;
        }
        // The combine session's own part needs no journey. And the temporary table has the engine's own types.
        for (fragment, sql) in plan.fragments.iter().zip(&texts[combine.shard()]) {
            let here = concerns(fragment, combine.shard()) && working.combine_has_rows;
            let data = if here { "" } else { " WITH NO DATA" };
            let temp = &fragment.temp;
            combine.ask(&format!("CREATE TEMPORARY TABLE {temp} AS {sql}{data}"));
            if !fragment.primary_key.is_empty() {
                let key: Vec<String> = fragment
                    .primary_key
                    .iter()
                    .map(|name| format!("\"{}\"", name.replace('"', "\"\"")))
                    .collect();
                combine.ask(&format!("ALTER TABLE pg_temp.{temp} ADD PRIMARY KEY ({})", key.join(", ")));
            }
        }
        combine.send().await?;
        while combine.is_waiting() {
            combine.answer(self.client()).await?;
        }
        let mut failed = Vec::new();
        for fragment in &plan.fragments {
            for worker in working.all().filter(|worker| concerns(fragment, worker.shard())) {
                combine.ask(&format!("COPY pg_temp.{} FROM STDIN (FORMAT {form})", fragment.temp));
                combine.send().await?;
                combine.ready_for_data(self.client()).await?;
                match worker.pass(self.client(), Sink::Session(combine), FETCH_BYTES_MAX).await {
                    Ok(_) => combine.end_data(self.client()).await?,
                    Err(trouble) => {
                        combine.fail_data(self.client()).await?;
                        return Err(trouble);
                    }
                }
            }
        }
        failed.extend(working.missing.iter().cloned());
        if plan.fragments.len() > 1 {
            let names: Vec<String> =
                plan.fragments.iter().map(|fragment| format!("pg_temp.{}", fragment.temp)).collect();
            combine.ask(&format!("ANALYZE {}", names.join(", ")));
        }
        combine.ask(&format!("EXPLAIN (VERBOSE, FORMAT JSON) {}", plan.combine));
        let (forms, told) = self.wanted_forms();
        combine.ask_rows(&plan.combine, &forms);
        combine.end();
        combine.send().await?;
        if plan.fragments.len() > 1 {
            combine.answer(self.client()).await?;
        }
        let explained = combine.answer(self.client()).await?;
        check::relations(&explained, schema)?;
        let description = combine.description(self.client()).await?;
        if !told {
            tell_columns(&mut self.client().out, &description);
        }
        let passed = combine.pass(self.client(), Sink::Client, u64::MAX).await?;
        self.tell_failed(&failed);
        reply::complete(&mut self.client().out, &format!("SELECT {}", passed.rows));
        Ok(())
    }

    /// Says which shards are missing from an answer.
    fn tell_failed(&mut self, failed: &[(ShardId, SqlError)]) {
        for (shard, error) in failed {
            let notice = SqlError::new(
                state::WARNING,
                format!("the answer is without shard {shard}: {}", error.message),
            )
            .hint("polyshard.partial_results is on.");
            reply::error(&mut self.client().out, Severity::Notice, &notice);
        }
    }
}

fn concerns(fragment: &Fragment, shard: &ShardId) -> bool {
    match &fragment.from {
        Source::EveryShard => true,
        Source::Shard(only) => only == shard,
    }
}

/// Whether a statement might ask for the time. What asks in vain costs one question.
fn mentions_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["now", "current_", "localtime", "_timestamp"].iter().any(|word| text.contains(word))
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
        let Some(end) = body.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0)) else {
            break;
        };
        at += end + 1;
        if let Some(numbers) = body.get_mut(at..at + 6) {
            numbers.fill(0);
        }
        at += 18;
    }
    reply::message(out, b'T', |out| out.extend_from_slice(&body));
}
