//! SELECT … ORDER BY over several shards without a temporary table: each shard sorts its rows, and they are put
//! together here in their order, as they come.
//!
//! The planner has proven that this is the answer, if keys are compared here as PostgreSQL compares them. Whether they
//! can be is asked once: of a shard what types the keys have, and of all of them whether texts among them are in the
//! order of their bytes. Nothing is merged if a shard has keys of other types, or columns of other types than another.

use std::collections::BTreeSet;
use std::sync::Arc;

use polyshard_engine::Dialect;
use polyshard_sql::{Context, Merge, Mode, Route};
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::held_merge::HeldMerge;
use super::known::{Keys, Known};
use super::merging::{Merging, Parts};
use super::series::{Asked, Series, is_stale};
use super::shards::Shards;
use super::sort_key::Form;
use super::stream::{BEGIN, END};
use super::worker::{Trouble, Worker};
use super::{Delivery, PORTAL_SUSPENDED, columns, hold, motion};
use crate::reply;
use crate::session::{Session, Stop};

/// Rows of one shard that are asked for all at once though a LIMIT may leave some of them untaken; they are heard out.
const WHOLE_ROWS_MAX: u64 = 1000;
/// How many rows are asked for at a time where more would be left untaken.
const PART_ROWS: i32 = 1000;
/// Answers of one client, taken in parts, that keep a session of every shard. Further ones are put into a temporary
/// table, which keeps one.
const HELD_MERGES_MAX: usize = 2;

/// How a plan's rows are put together.
pub(super) struct Order {
    pub merge: Merge,
    pub forms: Arc<Vec<Form>>,
    /// Leave to keep a session of every shard until the client has taken all rows, where it takes them in parts.
    pub leave: Option<OwnedSemaphorePermit>,
}

impl Session {
    /// How the rows of a plan are put together in their order, if they can be, and may be for this delivery.
    pub(super) async fn order_of(
        &mut self,
        working: &mut Shards,
        known: &Known,
        delivery: Delivery<'_>,
    ) -> Result<Option<Order>, Trouble> {
        let Some(merge) = &known.plan.merge else { return Ok(None) };
        let held = match delivery {
            // Rows that are not in any order have a shorter way.
            Delivery::Rows | Delivery::Analyzed { .. } if known.plan.mode == Mode::Concat => return Ok(None),
            Delivery::Rows | Delivery::Analyzed { .. } => false,
            Delivery::Portal { .. } => true,
            // Whoever declares it by the extended protocol may ask for rows in one form first, and then in another.
            Delivery::Cursor { .. } if self.extended => return Ok(None),
            Delivery::Cursor { hold, scroll, .. } if !hold && scroll != Some(true) => true,
            Delivery::Cursor { .. } | Delivery::Copy(_) => return Ok(None),
        };
        if self.partial_results()
            || working.has_inside()
            || held && (working.has_own() || self.held.merges() >= HELD_MERGES_MAX)
        {
            return Ok(None);
        }
        let leave = match held.then(|| self.door.held_merges.clone().try_acquire_owned()) {
            None => None,
            Some(Ok(leave)) => Some(leave),
            Some(Err(_)) => return Ok(None),
        };
        let keys = match known.lesson.keys() {
            Some(keys) => Some(keys),
            None => self.learn_keys(working, known, merge).await?,
        };
        let Some((keys, forms)) = keys.and_then(|keys| Some((keys.clone(), keys.forms.clone()?))) else {
            return Ok(None);
        };
        if !self.are_by_bytes(working, known, merge, &keys).await? {
            return Ok(None);
        }
        Ok(Some(Order { merge: merge.clone(), forms, leave }))
    }

    /// How the rows of a plan would be put together, as far as shards can be asked.
    pub(super) async fn order_explained(
        &mut self,
        known: &Known,
        route: &Route,
    ) -> Result<Option<Order>, Stop> {
        let (Mode::Combine, Some(_), Route::Many { shards, ranges }) =
            (known.plan.mode, &known.plan.merge, route)
        else {
            return Ok(None);
        };
        let mut working = match Shards::open(self, ranges, shards).await {
            Ok(working) => working,
            Err(Stop::Gone(gone)) => return Err(Stop::Gone(gone)),
            // A plan is told also while nobody could carry it out.
            Err(_) => return Ok(None),
        };
        let order = self.order_of(&mut working, known, Delivery::Rows).await;
        working.close(self).await.map_err(Stop::Gone)?;
        match order {
            Err(Trouble::Gone(gone)) => Err(Stop::Gone(gone)),
            order => Ok(order.ok().flatten()),
        }
    }

    /// Asks a shard what the keys are like.
    async fn learn_keys(
        &mut self,
        working: &mut Shards,
        known: &Known,
        merge: &Merge,
    ) -> Result<Option<Arc<Keys>>, Trouble> {
        // Not within the client's own transaction, which a question that fails would end.
        let Some(worker) = working.all().find(|worker| !worker.borrowed) else { return Ok(None) };
        let shard = worker.shard().clone();
        let learnt = async {
            worker.ask_columns_of(&merge.rows.sql_on(&shard));
            worker.send().await?;
            let Some(description) = worker.columns(self.client()).await? else { return Ok(None) };
            worker.rest(self.client()).await?;
            Ok(forms(&description, merge.keys.len()).map(Arc::new))
        };
        let forms = match learnt.await {
            // Whoever asks the other way is told what is wrong, if it is the statement.
            Err(Trouble::Said(_)) => return Ok(None),
            learnt => learnt?,
        };
        Ok(Some(known.lesson.note_keys(Keys { forms, by_bytes: BTreeSet::new() })))
    }

    /// Whether all shards have the texts among the keys in the order of their bytes. Those that have not said so yet
    /// are asked: a database may have another collation than the others.
    async fn are_by_bytes(
        &mut self,
        working: &mut Shards,
        known: &Known,
        merge: &Merge,
        keys: &Keys,
    ) -> Result<bool, Trouble> {
        let forms = keys.forms.as_deref().map_or(&[][..], Vec::as_slice);
        if !forms.iter().any(|form| form.is_collated()) {
            return Ok(true);
        }
        let view = self.router().view();
        let database = |worker: &Worker| {
            let record = view.shards.get(worker.shard());
            (worker.shard().clone(), record.map_or(Uuid::nil(), |record| record.incarnation))
        };
        let mut asked = BTreeSet::new();
        for worker in working.all() {
            let database = database(worker);
            if !keys.by_bytes.contains(&database) {
                // A question that fails would end the client's own transaction.
                if worker.borrowed {
                    return Ok(false);
                }
                asked.insert(database);
            }
        }
        if asked.is_empty() {
            return Ok(true);
        }
        let mut by_bytes = true;
        for worker in working.all().filter(|worker| asked.contains(&database(worker))) {
            if let Some(question) = collations(&merge.keys_alone.sql_on(worker.shard()), forms) {
                worker.ask(&question);
                worker.send().await?;
            }
        }
        for worker in working.all().filter(|worker| asked.contains(&database(worker))) {
            match worker.answer(self.client()).await {
                Ok(answer) => {
                    by_bytes &= answer.into_iter().flatten().flatten().next().as_deref() == Some("t");
                }
                // As it is with the statement itself.
                Err(Trouble::Said(_)) => by_bytes = false,
                Err(trouble) => return Err(trouble),
            }
        }
        if by_bytes {
            let by_bytes = asked.union(&keys.by_bytes).cloned().collect();
            known.lesson.note_keys(Keys { forms: keys.forms.clone(), by_bytes });
        } else {
            known.lesson.note_unlike();
        }
        Ok(by_bytes)
    }

    /// All rows, asked for in one round trip. False if it is to be asked the longer way.
    pub(super) async fn merge_at_once(
        &mut self,
        working: &mut Shards,
        known: &Known,
        order: &Order,
    ) -> Result<bool, Trouble> {
        let merge = &order.merge;
        let (wanted, told) = self.wanted_forms();
        let forms = with_keys(&wanted, merge);
        let parts = parts_of(merge);
        let [begin, in_motion, end] = self.door.cache.questions.constant;
        let question = motion::question();
        let id = known.prepared().map(|[.., sorted]| sorted);
        let rows_max = parts.map_or(0, |parts| parts.rows);
        let mut all = Vec::new();
        for worker in working.all() {
            let text = merge.rows.sql_on(worker.shard());
            let rows = Asked { id, text: &text, values: &[], forms: &forms, described: true, rows_max };
            let mut series = Series::default();
            series.ask(worker, &Asked::plain(begin, BEGIN));
            series.ask(worker, &Asked::plain(in_motion, &question));
            series.ask(worker, &rows);
            if parts.is_none() {
                series.ask(worker, &Asked::plain(end, END));
            }
            worker.open = parts.is_some();
            series.send(worker).await?;
            ask_ahead(worker, parts);
            worker.send().await?;
            all.push(series);
        }
        if !self.all_is_still(known, working, &mut all).await? {
            return Ok(false);
        }
        let mut first = None;
        for (worker, series) in working.all().zip(&mut all) {
            let description = match series.columns(worker, self.client()).await {
                Err(trouble) if is_stale(known, &trouble) => return Ok(false),
                described => described?,
            };
            if !order.fits(&description, first.as_deref()) {
                known.lesson.forget_keys();
                return Ok(false);
            }
            first.get_or_insert(description);
        }
        self.tell_merged(merge, first.as_deref().filter(|_| !told));
        let merging = order.of(working.take_all(), parts);
        let passed = self.pass_all(working, merging).await;
        if passed.is_err() {
            for (worker, _) in working.all().zip(&all).filter(|(_, series)| !series.is_prepared()) {
                // Whether the end was prepared was not heard.
                worker.backend.closing = true;
            }
        }
        passed.map(|()| true)
    }

    /// The rows after each shard has said which ranges are in motion. False if keys are not what they were said to be,
    /// or other columns are of another type on another shard, which is noted.
    pub(super) async fn merge_across(
        &mut self,
        working: &mut Shards,
        known: &Known,
        order: Order,
        context: &Context<'_>,
        delivery: Delivery<'_>,
    ) -> Result<bool, Trouble> {
        let merge = &order.merge;
        let motion = working.share_snapshot(self.client(), Mode::Concat).await?;
        self.door.cache.questions.note_moving(!motion.is_none());
        let view = self.router().view();
        let mut texts = Vec::new();
        for shard in working.ids() {
            let foreign = motion.foreign(Dialect::Postgres, &shard, &view, context.schema)?;
            texts.push(merge.rows.sql_without(&shard, &foreign, context)?);
        }
        let (wanted, told) = self.wanted_forms();
        let parts = match delivery {
            Delivery::Analyzed { prefix } => {
                return self.analyze_merge(working, known, merge, &texts, prefix).await.map(|()| true);
            }
            Delivery::Cursor { name, .. } => {
                return self.declare_merge(working, known, order, texts, name).await;
            }
            Delivery::Portal { rows_max, .. } => {
                Some(Parts { portal: hold::PORTAL, rows: rows_max.clamp(1, PART_ROWS) })
            }
            _ => parts_of(merge),
        };
        let forms = with_keys(&wanted, merge);
        for (worker, text) in working.all().zip(&texts) {
            let portal = parts.map_or("", |parts| parts.portal);
            worker.ask_portal(portal, text, &forms, parts.map_or(0, |parts| parts.rows));
            match (parts, delivery) {
                (None, _) => worker.end(),
                // Nothing is under way on sessions that wait for a client.
                (_, Delivery::Portal { .. }) => {}
                _ => ask_ahead(worker, parts),
            }
            worker.send().await?;
        }
        if let Some(failed) = working.begun(self.client()).await? {
            // What the others have to say does not matter.
            if let Some(worker) = working.all().nth(failed) {
                worker.answer(self.client()).await?;
            }
        }
        let mut first = None;
        for worker in working.all() {
            let description = worker.description(self.client()).await?;
            if !order.fits(&description, first.as_deref()) {
                known.lesson.note_unlike();
                return Ok(false);
            }
            first.get_or_insert(description);
        }
        self.tell_merged(merge, first.as_deref().filter(|_| !told));
        let mut merging = order.of(working.take_all(), parts);
        let Delivery::Portal { name, rows_max } = delivery else {
            return self.pass_all(working, merging).await.map(|()| true);
        };
        let rows_max = u64::try_from(rows_max).unwrap_or(0);
        match merging.pass(self.client(), rows_max, true).await {
            Ok(rows) if rows == rows_max => {
                self.client().out.extend_from_slice(PORTAL_SUSPENDED);
                self.hold_merge(name, HeldMerge::under_way(merging, order.leave));
                Ok(true)
            }
            passed => {
                let settled = match passed {
                    Ok(rows) => merging.settle(self.client()).await.map(|()| rows),
                    Err(trouble) => Err(trouble),
                };
                working.put_all_back(merging.into_workers());
                reply::complete(&mut self.client().out, &format!("SELECT {}", settled?));
                self.note_taken(name);
                Ok(true)
            }
        }
    }

    fn tell_merged(&mut self, merge: &Merge, description: Option<&[u8]>) {
        if let Some(description) = description {
            let shown = columns::without_first(description, merge.keys.len());
            columns::tell(&mut self.client().out, &shown);
        }
    }

    /// Passes all rows on, and gives the sessions back.
    async fn pass_all(&mut self, working: &mut Shards, mut merging: Merging) -> Result<(), Trouble> {
        let passed = match merging.pass(self.client(), u64::MAX, true).await {
            Ok(rows) => merging.settle(self.client()).await.map(|()| rows),
            Err(trouble) => Err(trouble),
        };
        working.put_all_back(merging.into_workers());
        reply::complete(&mut self.client().out, &format!("SELECT {}", passed?));
        Ok(())
    }
}

impl Order {
    /// Whether rows of this description have the keys that are expected, and columns of the types that another shard
    /// has them of.
    pub fn fits(&self, description: &[u8], other: Option<&[u8]>) -> bool {
        let types = |description| columns::kinds(description).map(|kind| kind.type_oid);
        forms(description, self.merge.keys.len()).is_some_and(|forms| forms == *self.forms)
            && other.is_none_or(|other| types(other).eq(types(description)))
    }

    pub fn of(&self, workers: Vec<Worker>, parts: Option<Parts>) -> Merging {
        let Merge { keys, offset, limit, .. } = &self.merge;
        Merging::new(workers, self.forms.clone(), keys, parts).within(*offset, *limit)
    }
}

/// How rows are asked for: all at once if they will all be taken, or are few.
fn parts_of(merge: &Merge) -> Option<Parts> {
    let taken = merge.limit.map(|limit| limit.saturating_add(merge.offset));
    taken.filter(|rows| *rows > WHOLE_ROWS_MAX).map(|_| Parts { portal: "", rows: PART_ROWS })
}

/// Has the next rows be on their way while these are taken.
fn ask_ahead(worker: &mut Worker, parts: Option<Parts>) {
    if let Some(Parts { portal, rows }) = parts {
        worker.ask_more(portal, rows);
    }
}

/// The forms of all columns: the keys in binary form, and then as the client wants them.
pub(super) fn with_keys(wanted: &[bool], merge: &Merge) -> Vec<bool> {
    if merge.keys.is_empty() {
        return wanted.to_vec();
    }
    let mut forms = vec![true; merge.keys.len()];
    match wanted {
        [] => forms.extend(std::iter::repeat_n(false, merge.columns)),
        [one] => forms.extend(std::iter::repeat_n(*one, merge.columns)),
        each => forms.extend(each),
    }
    forms
}

/// How so many keys are compared that rows begin with; nothing if they are not known here.
fn forms(description: &[u8], keys: usize) -> Option<Vec<Form>> {
    let forms: Vec<Form> = columns::kinds(description).take(keys).map(Form::of).collect::<Option<_>>()?;
    (forms.len() == keys).then_some(forms)
}

/// Whether the texts among some keys are in the order of their bytes, if there are some: those of the collation "C",
/// and of databases that have it.
fn collations(keys: &str, forms: &[Form]) -> Option<String> {
    let each = |at: usize| {
        format!(
            "(SELECT c.collprovider = 'c' AND c.collcollate IN ('C', 'POSIX') OR c.collprovider = 'd' \
             AND d.datcollate IN ('C', 'POSIX') \
             AND COALESCE(pg_catalog.to_jsonb(d) ->> 'datlocprovider', 'c') = 'c' \
             FROM pg_catalog.pg_collation c, pg_catalog.pg_database d \
             WHERE c.oid = pg_catalog.pg_collation_for(f.k{at})::pg_catalog.regcollation::pg_catalog.oid \
             AND d.datname = pg_catalog.current_database())"
        )
    };
    let texts = forms.iter().enumerate().filter(|(_, form)| form.is_collated());
    let conditions: Vec<String> = texts.map(|(at, _)| each(at)).collect();
    (!conditions.is_empty()).then(|| {
        format!(
            "SELECT {} FROM (SELECT 1) AS o LEFT JOIN (SELECT * FROM ({keys}) AS x LIMIT 0) AS f ON true",
            conditions.join(" AND ")
        )
    })
}
