//! SELECT over several shards: the plan carried out on their sessions, combined on one of them, streamed to the client.
//!
//! Each shard's part is read in one snapshot of that shard. Rows go from session to session as they come: nothing but
//! few rows is gathered here, whatever the size of the answer; what does not fit into memory spills on that session's
//! server.

mod check;
mod columns;
mod copy;
mod explain;
mod held_merge;
mod hold;
mod known;
mod merge;
mod merging;
pub(crate) mod motion;
mod quick;
mod series;
mod shards;
mod sort_key;
mod stand_in;
mod stream;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use polyshard_sql::{
    Context, Copy, Fragment, Kind, Mode, Param, Plan, Route, Schema, Source, SqlError, Statement, quoted,
};

use crate::reply::{self, Severity, state};
use crate::session::{Done, RoutedBy, Session, Stop};
pub(crate) use hold::HeldAnswers;
pub(crate) use known::Questions;
use known::{Known, Question};
use shards::Shards;
use worker::{Passed, Sink, Trouble, Worker};

/// Most bytes that one fragment may fetch from one shard: a statement that needs more is better written otherwise, and
/// one that was not meant so does not fill a disk.
const FETCH_BYTES_MAX: u64 = 64 * 1024 * 1024 * 1024;

/// `s`: there may be more rows than were asked for.
pub(crate) const PORTAL_SUSPENDED: &[u8] = b"s\0\0\0\x04";

/// The fragments' texts by shard.
type Texts = BTreeMap<ShardId, Vec<String>>;

/// How the client takes an answer.
#[derive(Clone, Copy)]
enum Delivery<'d> {
    /// All of it, now.
    Rows,
    /// At most so many rows now, and the others when it asks again for this portal.
    Portal { name: &'d str, rows_max: i32 },
    /// All of it, as COPY writes it.
    Copy(&'d Copy),
    /// As EXPLAIN ANALYZE tells of it; these are its words up to the query.
    Analyzed { prefix: &'d str },
    /// By FETCH; this is DECLARE up to the query.
    Cursor { name: &'d str, declare: &'d str, hold: bool, scroll: Option<bool> },
}

impl Session {
    /// Answers a SELECT that concerns several shards.
    pub(crate) async fn run_across(
        &mut self,
        statement: &Statement,
        route: &Route,
        params: &[Param<'_>],
        routed_by: Option<&RoutedBy>,
    ) -> Done {
        let Route::Many { shards, ranges } = route else {
            return Err(
                SqlError::new(polyshard_sql::SqlState::INTERNAL_ERROR, "this is for several shards").into()
            );
        };
        let asked = self.portal_asked();
        let mut delivery = match &asked {
            Some((name, rows_max)) => Delivery::Portal { name, rows_max: *rows_max },
            None => Delivery::Rows,
        };
        let copied;
        let (explained, select) = match statement.kind() {
            Kind::Explain(explain) => {
                explain::check_form(explain)?;
                if explain.analyze {
                    delivery = Delivery::Analyzed { prefix: &explain.prefix };
                }
                (!explain.analyze, explain.statement.as_ref())
            }
            Kind::Select => (false, statement),
            Kind::Declare(cursor) => {
                let declare = self.check_declare(statement, cursor)?;
                // One in binary form is PostgreSQL's own.
                let (hold, scroll) = (cursor.hold, if cursor.binary { Some(true) } else { cursor.scroll });
                delivery = Delivery::Cursor { name: &cursor.name, declare, hold, scroll };
                (false, cursor.query.as_ref())
            }
            Kind::Copy(copy) => {
                copied = self.copied_select(copy).await?;
                delivery = Delivery::Copy(copy);
                (false, copied.as_ref())
            }
            _ => return Err(only_select().into()),
        };
        if let Delivery::Portal { .. } | Delivery::Cursor { .. } = delivery {
            self.check_room()?;
        }
        self.prepare_across().await?;
        let literals = if params.is_empty() { Vec::new() } else { self.literals_of(params).await? };
        let schema = self.schema().await?;
        let search_path = self.search_path();
        let context = Context { schema: &schema, search_path: &search_path, strict: true };
        if explained {
            let plan = polyshard_sql::plan(select, &context, &literals, Some("now"))?;
            let known = Known::passing(self.basis(schema.position), plan);
            let order = self.order_explained(&known, route).await?;
            self.explain_across(&known.plan, order.as_ref().map(|order| &order.merge), shards);
            return Ok(());
        }
        let question = Question { select, literals: &literals };
        let said = self.client().said();
        let (mut again, mut at_once, mut merged) = (true, true, true);
        loop {
            let mut working = Shards::open(self, ranges, shards).await?;
            if routed_by.is_some_and(|by| self.may_be_outdated(by)) {
                working.close(self).await?;
                self.check_routed(routed_by).await?;
                working = Shards::open(self, ranges, shards).await?;
            }
            again &= !working.has_own();
            at_once &= !working.has_own() && !self.partial_results() && !working.has_inside();
            let done =
                self.plan_and_answer(&mut working, &question, &context, delivery, (at_once, merged)).await;
            let gone = working.close(self).await;
            match (done, gone) {
                (Err(Trouble::Gone(gone)), _) | (_, Err(gone)) => return Err(Stop::Gone(gone)),
                (Ok(true), Ok(())) => return Ok(()),
                // The client was told nothing. What is not answered the longer way either is not merged.
                (Ok(false), Ok(())) => (at_once, merged) = (false, at_once),
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

    /// False if it was tried at once, or merged, as far as these may be, and is to be asked the longer way.
    async fn plan_and_answer(
        &mut self,
        working: &mut Shards,
        question: &Question<'_>,
        context: &Context<'_>,
        mut delivery: Delivery<'_>,
        (at_once, merged): (bool, bool),
    ) -> Result<bool, Trouble> {
        let known = self.known(working, question, context).await?;
        let order = if merged { self.order_of(working, &known, delivery).await? } else { None };
        if at_once && matches!(delivery, Delivery::Rows) && !self.door.cache.questions.is_moving() {
            if known.plan.mode == Mode::Concat {
                return self.concat_at_once(working, &known).await;
            }
            if let Some(order) = &order {
                return self.merge_at_once(working, &known, order).await;
            }
            if self.texts_are_exact()
                && let Some(columns) = known.few_rows(quick::ROWS_MAX)
            {
                return self.combine_at_once(working, &known, &columns).await;
            }
        }
        if let Some(order) = order {
            return self.merge_across(working, &known, order, context, delivery).await;
        }
        let mut gathered = None;
        // Where an SQLite file has a part, its rows get PostgreSQL's types before the client sees them.
        if known.plan.mode == Mode::Concat
            && (matches!(delivery, Delivery::Portal { .. } | Delivery::Cursor { .. }) || working.has_inside())
        {
            working.need_combine(self).await?;
            let columns = working.columns_of(self.client(), &known.plan.fragments[0]).await?;
            match delivery {
                Delivery::Cursor { .. } if columns.is_empty() => return Err(no_columns().into()),
                // Rows without columns are only counted.
                _ if columns.is_empty() => delivery = Delivery::Rows,
                _ => {
                    let basis = self.basis(context.schema.position);
                    gathered = Some(Known::passing(basis, known.plan.clone().gathered(&columns)));
                }
            }
        }
        let known = gathered.as_ref().unwrap_or(&known);
        self.answer_across(working, known, context, delivery).await.map(|()| true)
    }

    /// The plan of a question. One that asks for the time is made anew each time.
    async fn known(
        &mut self,
        working: &mut Shards,
        question: &Question<'_>,
        context: &Context<'_>,
    ) -> Result<Arc<Known>, Trouble> {
        let (select, literals) = (question.select, question.literals);
        let basis = self.basis(context.schema.position);
        if mentions_time(select.text()) {
            let now = working.now(self.client()).await?;
            let plan = polyshard_sql::plan(select, context, literals, Some(&now))?;
            return Ok(Arc::new(Known::passing(basis, plan)));
        }
        let make = || polyshard_sql::plan(select, context, literals, None);
        Ok(self.door.cache.questions.plan(question, basis, make)?)
    }

    async fn answer_across(
        &mut self,
        working: &mut Shards,
        known: &Known,
        context: &Context<'_>,
        delivery: Delivery<'_>,
    ) -> Result<(), Trouble> {
        let plan = &known.plan;
        if plan.mode == Mode::Combine {
            working.need_combine(self).await?;
        }
        let motion = working.share_snapshot(self.client(), plan.mode).await?;
        self.door.cache.questions.note_moving(!motion.is_none());
        let view = self.router().view();
        let mut texts = Texts::new();
        for shard in working.ids() {
            let mut foreign = motion.foreign(Dialect::Postgres, &shard, &view, context.schema)?;
            if let Some(worker) = working.inside(&shard) {
                // Whoever answers for the file narrows it, in SQLite's words.
                worker.leave_out(motion.foreign(Dialect::Sqlite, &shard, &view, context.schema)?);
                foreign.clear();
            }
            let of = |fragment: &Fragment| fragment.sql_without(&shard, &foreign, context);
            texts.insert(shard.clone(), plan.fragments.iter().map(of).collect::<Result<_, _>>()?);
        }
        if let Some(other) = working.combine_elsewhere() {
            // No rows of it are asked for, but it makes the tables.
            let of = |fragment: &Fragment| fragment.sql_on(&other);
            texts.insert(other.clone(), plan.fragments.iter().map(of).collect());
        }
        if let Delivery::Analyzed { prefix } = delivery {
            return self.analyze_across(working, plan, &texts, context.schema, prefix).await;
        }
        match plan.mode {
            Mode::Concat => match delivery {
                Delivery::Copy(copy) => self.copy_concat(working, &texts, copy).await,
                _ => self.concat(working, &texts).await,
            },
            Mode::Combine => {
                let mut combine = working.take_combine()?;
                let fetched = match working.has_inside() {
                    true => self.fetch_from_files(working, &mut combine, plan, &texts, context).await,
                    false => self.fetch(working, &mut combine, plan, &texts).await,
                };
                let done = match fetched {
                    Ok(rows) => {
                        known.lesson.count(rows);
                        self.deliver(working, &mut combine, known, context.schema, delivery).await
                    }
                    Err(trouble) => Err(trouble),
                };
                match (&done, delivery) {
                    (Ok(true), Delivery::Portal { name, .. }) => self.hold(name, combine, false),
                    (Ok(true), Delivery::Cursor { name, hold, .. }) => self.hold(name, combine, hold),
                    (Ok(_), Delivery::Portal { name, .. }) => {
                        self.note_taken(name);
                        working.put_back(combine);
                    }
                    _ => working.put_back(combine),
                }
                done.map(drop)
            }
        }
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
                    columns::tell(&mut self.client().out, &description);
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

    /// Fetches the fragments into temporary tables of the combine session. How many rows had to come there.
    async fn fetch(
        &mut self,
        working: &mut Shards,
        combine: &mut Worker,
        plan: &Plan,
        texts: &Texts,
    ) -> Result<u64, Trouble> {
        // Texts fit every type, also those of the user's own, whose numbers differ from shard to shard.
        let form = if self.texts_are_exact() || working.has_inside() { "text" } else { "binary" };
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
            let here = concerns(fragment, combine.shard()) && !combine.rowless;
            let data = if here { "" } else { " WITH NO DATA" };
            let temp = &fragment.temp;
            combine.ask(&format!("CREATE TEMPORARY TABLE {temp} AS {sql}{data}"));
            if !fragment.primary_key.is_empty() {
                let key: Vec<String> = fragment.primary_key.iter().map(|name| quoted(name)).collect();
                combine.ask(&format!("ALTER TABLE pg_temp.{temp} ADD PRIMARY KEY ({})", key.join(", ")));
            }
        }
        let tables = combine.waiting();
        let fetched = |fragment: &&Fragment, working: &mut Shards| {
            working.all().any(|worker| concerns(fragment, worker.shard()))
        };
        let fragments: Vec<&Fragment> =
            plan.fragments.iter().filter(|fragment| fetched(fragment, working)).collect();
        let copy = |temp: &str| format!("COPY pg_temp.{temp} FROM STDIN (FORMAT {form})");
        // The first COPY is asked for with the tables; the others when the one before has ended.
        if let Some(first) = fragments.first() {
            combine.ask(&copy(&first.temp));
        }
        combine.send().await?;
        for _ in 0..tables {
            if let Err(trouble) = combine.answer(self.client()).await {
                // Everything after it fails for that reason too; once that is heard, the session is as good as new.
                while matches!(trouble, Trouble::Said(_)) && combine.is_waiting() {
                    combine.rest(self.client()).await?;
                }
                return Err(trouble);
            }
        }
        let (mut asked, mut rows) = (true, 0);
        for fragment in fragments {
            for worker in working.all().filter(|worker| concerns(fragment, worker.shard())) {
                if !combine.copying {
                    combine.end_copy(self.client()).await?;
                    if !std::mem::replace(&mut asked, false) {
                        combine.ask(&copy(&fragment.temp));
                        combine.send().await?;
                    }
                    combine.ready_for_data(self.client()).await?;
                }
                match worker.pass(self.client(), Sink::Session(combine), FETCH_BYTES_MAX).await {
                    Ok(passed) => rows += passed.rows,
                    Err(trouble) => {
                        combine.fail_data(self.client()).await?;
                        return Err(trouble);
                    }
                }
                // Rows of texts follow each other; in binary form each shard's have a head and an end.
                if form == "binary" {
                    combine.end_data();
                }
            }
            if combine.copying {
                combine.end_data();
            }
        }
        Ok(rows)
    }

    /// Runs the statement over the temporary tables. True if the client has not taken all of its answer.
    async fn deliver(
        &mut self,
        working: &Shards,
        combine: &mut Worker,
        known: &Known,
        schema: &Schema,
        delivery: Delivery<'_>,
    ) -> Result<bool, Trouble> {
        let plan = &known.plan;
        let analysed = plan.fragments.len() > 1;
        if analysed {
            let names: Vec<String> =
                plan.fragments.iter().map(|fragment| format!("pg_temp.{}", fragment.temp)).collect();
            combine.ask(&format!("ANALYZE {}", names.join(", ")));
        }
        combine.ask(&format!("EXPLAIN (VERBOSE, FORMAT JSON) {}", plan.combine));
        let learning = plan.quick.is_some() && known.lesson.is_open();
        if learning {
            combine.ask(&known.lesson.question(&plan.fragments[0].temp));
        }
        let (forms, told) = self.wanted_forms();
        match delivery {
            Delivery::Rows | Delivery::Analyzed { .. } => {
                combine.ask_rows(&plan.combine, &forms);
                combine.end();
            }
            Delivery::Copy(copy) => {
                combine.ask(&copy::copy_text(copy, &plan.combine, true));
                combine.end();
            }
            Delivery::Portal { rows_max, .. } => {
                combine.ask_portal(hold::PORTAL, &plan.combine, &forms, rows_max);
            }
            Delivery::Cursor { declare, .. } => combine.ask(&format!("{declare}{}", plan.combine)),
        }
        combine.send().await?;
        combine.end_copy(self.client()).await?;
        if analysed {
            combine.answer(self.client()).await?;
        }
        let explained = combine.answer(self.client()).await?;
        check::relations(&explained, schema)?;
        if learning {
            known.lesson.learn(&combine.answer(self.client()).await?);
        }
        if let Delivery::Cursor { .. } = delivery {
            combine.answer(self.client()).await?;
            self.tell_failed(&working.missing);
            reply::complete(&mut self.client().out, "DECLARE CURSOR");
            return Ok(true);
        }
        if let Delivery::Copy(_) = delivery {
            self.begin_copy(combine, true).await?;
            let passed = combine.pass(self.client(), Sink::Client, u64::MAX).await?;
            self.tell_failed(&working.missing);
            self.end_copied(&passed.tag);
            return Ok(false);
        }
        let description = combine.description(self.client()).await?;
        if !told {
            columns::tell(&mut self.client().out, &description);
        }
        let passed = combine.pass(self.client(), Sink::Client, u64::MAX).await?;
        self.tell_failed(&working.missing);
        self.tell_end(&passed);
        Ok(passed.suspended)
    }

    /// The end of an answer, or of a part of it.
    fn tell_end(&mut self, passed: &Passed) {
        let out = &mut self.client().out;
        if passed.suspended {
            out.extend_from_slice(PORTAL_SUSPENDED);
        } else {
            reply::complete(out, &passed.tag);
        }
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

fn no_columns() -> SqlError {
    SqlError::unsupported(
        "a cursor over rows without columns is not offered across shards",
        "Select a column.",
    )
}
