//! Writes on several shards in one transaction: asked for by `polyshard.multi_shard`, committed in two phases or
//! completed eventually.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_map::{Key, KeyRange, MapName, ShardId};
use polyshard_router::{Access, Ticket, View};
use polyshard_sql::{Param, Part, SqlError, SqlState};
use uuid::Uuid;

use super::eventual::Lasting;
use super::global::{quietly, two_sessions};
use super::moving::in_motion;
use super::place::{RoutedBy, Wanted, only_files};
use super::{Done, Session, Stop};
use crate::backend::Backend;
use crate::cache::Analysed;
use crate::reply::{self, state};
use crate::settings::MultiShard;

/// What the names of our prepared transactions begin with.
pub(crate) const PREPARED_PREFIX: &str = "polyshard:";

impl Session {
    /// Whether a transaction may write on several shards.
    pub(super) fn is_two_phase(&self) -> bool {
        self.own.multi_shard == MultiShard::TwoPhase && !self.embedded
    }

    /// Why a write on several shards is refused.
    fn several(&self, shards: usize) -> SqlError {
        let hint = if self.embedded {
            "Write rows of one shard at a time, or SET polyshard.multi_shard = 'eventual'."
        } else {
            "Write rows of one shard at a time, or SET polyshard.multi_shard = 'two_phase' or 'eventual'."
        };
        SqlError::unsupported(format!("the statement writes on {shards} shards"), hint)
    }

    /// Whether a statement may write on several shards.
    fn check_several(&self, shards: usize) -> Result<(), SqlError> {
        match self.is_eventual() {
            true => self.check_single(),
            false if self.is_two_phase() => Ok(()),
            false => Err(self.several(shards)),
        }
    }

    /// Runs a write on each of several shards; their counts are added up.
    pub(super) async fn write_many(
        &mut self,
        analysed: &Analysed,
        shards: usize,
        ranges: &[(MapName, Vec<KeyRange>)],
        params: &[Param<'_>],
        routed_by: Option<RoutedBy>,
    ) -> Done {
        self.check_several(shards)?;
        let view = self.door.router.view();
        if shards > 1
            && !self.is_eventual()
            && let Some(file) = tickets_of_files(&view, ranges)
        {
            return Err(not_with_files(&file).into());
        }
        let lasting = self.lasting(view.seq, analysed.statement.text());
        let text = self.literal_text(analysed, params).await?;
        let entering = self.door.router.enter_ranges(ranges, Access::Write);
        let tickets = self.enter_held(entering, ranges.first().map(|(map, _)| map)).await;
        let tickets = tickets.map_err(|error| reply::of_router(&error))?;
        let parts = tickets.into_iter().map(|(shard, tickets)| (shard, (tickets, text.clone()))).collect();
        self.run_parts(parts, true, lasting, routed_by).await
    }

    /// What is kept of a write, if it is one that is completed whatever happens.
    pub(super) fn lasting(&self, since: u64, about: &Arc<str>) -> Option<Box<Lasting>> {
        self.is_eventual().then(|| Box::new(Lasting::new(since, about)))
    }

    /// Inserts rows of several shards.
    pub(super) async fn insert_split(
        &mut self,
        parts: Vec<Part>,
        params: &[Param<'_>],
        routed_by: Option<RoutedBy>,
    ) -> Done {
        self.check_several(parts.len())?;
        if !self.is_eventual()
            && let Some(part) = parts.iter().find(|part| self.door.is_file(&part.shard))
        {
            return Err(not_with_files(&part.shard).into());
        }
        let about: Arc<str> = Arc::from(parts.first().map(|part| part.text.as_str()).unwrap_or_default());
        let lasting = self.lasting(self.door.router.view().seq, &about);
        let mut by_shard: BTreeMap<ShardId, (Vec<Ticket>, String)> = BTreeMap::new();
        for part in parts {
            let statement = polyshard_sql::statements(&part.text)?.into_iter().next();
            let statement = statement
                .ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "a part of an INSERT is empty"))?;
            let text = self.literal_text(&Analysed::new(statement), params).await?;
            let entering = self.door.router.enter_all(&part.keys, Access::Write);
            let tickets = self.enter_held(entering, part.keys.first().map(|(map, _)| map)).await;
            let tickets = tickets.map_err(|error| reply::of_router(&error))?;
            if tickets.iter().any(|ticket| *ticket.shard() != part.shard) {
                let message = "a range was moved while its rows were inserted";
                return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
                    .hint("Try again.")
                    .into());
            }
            by_shard.insert(part.shard, (tickets, text));
        }
        self.run_parts(by_shard, false, lasting, routed_by).await
    }

    /// Runs each shard's part, and answers for all. What finds its rows itself must be kept to those of their owners.
    pub(super) async fn run_parts(
        &mut self,
        parts: BTreeMap<ShardId, (Vec<Ticket>, String)>,
        finds: bool,
        lasting: Option<Box<Lasting>>,
        routed_by: Option<RoutedBy>,
    ) -> Done {
        // Where no server keeps the settings, those who answer for files are told of them.
        let settings = self.settings.clone();
        if self.embedded {
            self.settings = self.settings_of_files();
        }
        let alone = self.begin_alone();
        if self.transaction.lasting.is_none() {
            self.transaction.lasting = lasting;
        }
        let done = self.run_parts_inside(parts, finds, routed_by).await;
        let done = self.end_and_tell(alone, done.map(Some)).await;
        if self.embedded {
            self.settings = settings;
        }
        done
    }

    async fn run_parts_inside(
        &mut self,
        parts: BTreeMap<ShardId, (Vec<Ticket>, String)>,
        finds: bool,
        routed_by: Option<RoutedBy>,
    ) -> Result<String, Stop> {
        let mut described = self.extended;
        let (mut tag, mut count) = (String::new(), 0_u64);
        for (shard, (tickets, mut text)) in parts {
            if let Some(lasting) = &mut self.transaction.lasting {
                lasting.note_ranges(&tickets);
            }
            self.turn_to(&shard, tickets).await?;
            self.check_routed(routed_by.as_ref()).await?;
            let mut before = None;
            self.begun().await?;
            if self.transaction.lasting.is_some() {
                text = self.lasting_text(&text).await?;
            }
            if finds {
                let said = self.ask_motion().await?;
                text = self.own_write(&text, &shard, said.clone()).await?;
                before = Some(said);
            }
            self.transaction.wrote = true;
            let Some(backend) = &mut self.backend else { return Err(Stop::Told) };
            backend.wrote = true;
            backend.gather(described);
            let passed = self.pass_alone(&text).await;
            // Also after a failure: the next answer is not one of several.
            let gathered = self.backend.as_mut().and_then(|backend| backend.gathered());
            passed?;
            if self.told {
                return Err(Stop::Told);
            }
            described = true;
            if let Some(lasting) = &mut self.transaction.lasting {
                lasting.note_part(&shard, text, finds)?;
            }
            if let Some((word, more)) = gathered {
                tag = word;
                count += more;
            }
            // A move that began in between may have brought rows that were then found here too. What was written
            // is locked, so that nobody has cleaned them away since.
            if let Some(before) = before
                && self.ask_motion().await? != before
            {
                return Err(in_motion().into());
            }
        }
        self.note_lasting_settings().await?;
        Ok(format!("{tag} {count}"))
    }

    /// Makes the session to a shard the current one; the transaction begins there if it has not.
    pub(super) async fn turn_to(&mut self, shard: &ShardId, tickets: Vec<Ticket>) -> Done {
        if self.embedded && self.under.is_none() {
            only_files(&tickets)?;
        }
        if self.switch_to(shard) {
            if let Some(backend) = &mut self.backend {
                backend.hold(tickets);
            }
            return Ok(());
        }
        Box::pin(self.share_configs()).await?;
        let before = self.backend.as_ref().map(|backend| backend.shard.clone());
        self.park();
        let opened = self.open_with(tickets, Vec::new(), true).await;
        self.go_back(before, opened)
    }

    /// Goes on on another shard, if the transaction may be on several.
    pub(super) async fn spread(&mut self, wanted: &Wanted<'_>, access: Access) -> Done {
        let (Wanted::Shard(shard) | Wanted::Keys { shard, .. }) = wanted else { return Ok(()) };
        self.settle().await?;
        Box::pin(self.share_configs()).await?;
        if self.switch_to(shard) {
            return Box::pin(self.acquire(wanted, access)).await;
        }
        let before = self.backend.as_ref().map(|backend| backend.shard.clone());
        self.park();
        let opened = Box::pin(self.open(wanted, access, true)).await;
        self.go_back(before, opened)
    }

    /// Takes the session up again that was put aside for one that could not be opened: what ends the transaction, or
    /// goes back to a savepoint, must reach it.
    fn go_back(&mut self, before: Option<ShardId>, opened: Done) -> Done {
        if opened.is_err()
            && self.backend.is_none()
            && let Some(before) = before
        {
            self.switch_to(&before);
        }
        opened
    }

    /// Commits on all shards of the transaction, or on none.
    pub(super) async fn commit_several(&mut self, lasting: Option<Box<Lasting>>) -> Done {
        if !self.park() {
            self.roll_back_parked().await;
            return Err(two_sessions().into());
        }
        let writers: Vec<ShardId> =
            self.parked.iter().filter(|(_, backend)| backend.wrote).map(|(shard, _)| shard.clone()).collect();
        let readers: Vec<ShardId> =
            self.parked.keys().filter(|shard| !writers.contains(shard)).cloned().collect();
        let ended = self.on_each(&readers, |_| "COMMIT".to_owned()).await;
        if let Some(error) = ended.into_values().find_map(Result::err) {
            self.roll_back_parked().await;
            return Err(error.into());
        }
        for shard in &readers {
            if let Some(backend) = self.parked.get_mut(shard) {
                backend.set_inside = false;
            }
        }
        // Cursors that outlive the transaction do so only if all of it is committed.
        let has_cursors =
            |shard: &ShardId| self.parked.get(shard).is_some_and(|backend| !backend.cursors.is_empty());
        let (with_cursors, readers): (Vec<ShardId>, Vec<ShardId>) =
            readers.into_iter().partition(has_cursors);
        self.finish_parked(&readers).await;
        let done = match writers.as_slice() {
            [] => Ok(()),
            [one] => {
                self.switch_to(one);
                self.commit_backend(true).await
            }
            several => match lasting {
                Some(lasting) => self.commit_eventually(several, lasting).await,
                None => self.commit_in_two_phases(several).await,
            },
        };
        if done.is_err() {
            for shard in &with_cursors {
                if let Some(backend) = self.parked.remove(shard) {
                    backend.abandon().await;
                }
            }
        }
        self.finish_parked(&with_cursors).await;
        done
    }

    async fn commit_in_two_phases(&mut self, writers: &[ShardId]) -> Done {
        let is_inside = |shard: &&ShardId| self.parked.get(shard).is_some_and(Backend::is_inside);
        if let Some(file) = writers.iter().find(is_inside).cloned() {
            self.roll_back_parked().await;
            return Err(not_with_files(&file).into());
        }
        let id = Uuid::from_bytes(self.door.random());
        let cluster = self.door.router.view().cluster;
        let name = |shard: &ShardId| format!("{PREPARED_PREFIX}{cluster}:{id}:{shard}");
        self.door.pass("two_phase.prepare.before")?;
        let prepared = self.on_each(writers, |shard| format!("PREPARE TRANSACTION '{}'", name(shard))).await;
        if let Some(error) = prepared.values().find_map(|result| result.as_ref().err().cloned()) {
            let done: Vec<ShardId> = prepared
                .iter()
                .filter(|(_, result)| result.is_ok())
                .map(|(shard, _)| shard.clone())
                .collect();
            // If this fails, they are rolled back later: nothing was decided.
            self.on_each(&done, |shard| format!("ROLLBACK PREPARED '{}'", name(shard))).await;
            self.roll_back_parked().await;
            return Err(explained(error).into());
        }
        self.door.pass("two_phase.decide.before")?;
        let decided = self.decide(id).await;
        self.door.pass("two_phase.decide.after")?;
        match decided {
            Ok(true) => {}
            Ok(false) => {
                self.on_each(writers, |shard| format!("ROLLBACK PREPARED '{}'", name(shard))).await;
                self.finish_parked(writers).await;
                let message = "the transaction took too long to commit, and was rolled back";
                return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
                    .hint("Try again.")
                    .into());
            }
            Err(error) => {
                self.finish_parked(writers).await;
                return Err(error.into());
            }
        }
        let mut all = true;
        for shard in writers {
            self.door.pass(&format!("two_phase.commit:{shard}.before"))?;
            let ended = self
                .on_each(std::slice::from_ref(shard), |shard| format!("COMMIT PREPARED '{}'", name(shard)));
            for (shard, result) in ended.await {
                if let Err(error) = result {
                    all = false;
                    tracing::warn!(%shard, %error, "a prepared transaction is committed later");
                }
            }
        }
        self.door.pass("two_phase.commit.after")?;
        self.finish_parked(writers).await;
        if all && let Err(error) = self.door.catalog.forget_outcome(id).await {
            tracing::debug!(%error, "the outcome of a transaction that has ended is kept");
        }
        Ok(())
    }

    /// Has it decided; asks again if the answer was lost, since asking twice does no harm.
    async fn decide(&self, id: Uuid) -> Result<bool, SqlError> {
        const TRIES: u32 = 20;
        let mut tries = 0;
        loop {
            match self.door.catalog.decide_outcome(id, true).await {
                Ok(committed) => return Ok(committed),
                Err(error) if tries >= TRIES => {
                    let message =
                        format!("it is not known yet whether the transaction is committed: {error}");
                    return Err(SqlError::new(state::OUTCOME_UNKNOWN, message)
                        .hint("It is committed on all shards or on none, once the catalog is back."));
                }
                Err(error) => {
                    tracing::debug!(%error, "the outcome of a transaction could not be decided yet")
                }
            }
            tries += 1;
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
    }

    /// Says something to several shards at once, and waits for all.
    pub(super) async fn on_each(
        &mut self,
        shards: &[ShardId],
        text: impl Fn(&ShardId) -> String,
    ) -> BTreeMap<ShardId, Result<(), SqlError>> {
        let mut results = BTreeMap::new();
        for shard in shards {
            let Some(backend) = self.parked.get_mut(shard) else { continue };
            backend.query(&text(shard), true);
            if let Err(broken) = backend.flush().await {
                results.insert(shard.clone(), Err(super::global::of_broken(broken, shard)));
            }
        }
        for shard in shards {
            let Some(backend) = self.parked.get_mut(shard) else { continue };
            if !results.contains_key(shard) {
                let done = quietly(backend, &mut self.client).await;
                // A transaction that has failed there is rolled back by PREPARE and COMMIT, without an error.
                let done = done.and_then(|()| if backend.undone { Err(rolled_back(shard)) } else { Ok(()) });
                results.insert(shard.clone(), done);
            }
        }
        results
    }

    /// Gives sessions back whose part is over.
    pub(super) async fn finish_parked(&mut self, shards: &[ShardId]) {
        // First, so that no word to stop reaches whoever has them next.
        self.cancel.running.clear().await;
        for shard in shards {
            if let Some(backend) = self.parked.remove(shard) {
                if backend.status == b'I' && backend.is_settled() {
                    self.finish_or_hold(backend).await;
                } else {
                    backend.abandon().await;
                }
            }
        }
    }

    /// Gives a session back, unless cursors on it have outlived its transaction.
    pub(super) async fn finish_or_hold(&mut self, backend: Backend) {
        if backend.cursors.is_empty() || !backend.is_as_noted() {
            return backend.finish();
        }
        Box::pin(self.hold_backend(backend)).await;
    }

    /// Opens a session with tickets that are there already.
    pub(super) async fn open_with(
        &mut self,
        tickets: Vec<Ticket>,
        keys: Vec<(MapName, Vec<Key>, Access)>,
        ready: bool,
    ) -> Done {
        let Some(first) = tickets.first() else { return Ok(()) };
        if ready {
            self.door.journal.ready(first.shard()).await.map_err(|error| error.to_sql())?;
        }
        let backend = Backend::open(&self.door, tickets, keys).await;
        self.begin_on(backend.map_err(|error| reply::of_engine(&error))?).await
    }
}

/// A write on several shards of which one is an SQLite file, which cannot promise to commit.
fn not_with_files(file: &ShardId) -> SqlError {
    SqlError::unsupported(
        format!("shard {file} is an SQLite file, which cannot commit together with other shards"),
        "Write rows of one shard at a time, or move the rows to PostgreSQL shards first.",
    )
}

/// A shard that has some of the ranges and is an SQLite file.
fn tickets_of_files(view: &View, ranges: &[(MapName, Vec<KeyRange>)]) -> Option<ShardId> {
    let is_file =
        |shard: &ShardId| view.shards.get(shard).is_some_and(|record| record.url.starts_with("sqlite:"));
    ranges.iter().find_map(|(map, ranges)| {
        let known = view.maps.get(map)?;
        let mut shards = ranges.iter().flat_map(|range| known.map.entries(range));
        shards.find(|entry| is_file(&entry.shard)).map(|entry| entry.shard.clone())
    })
}

/// The answer to a COMMIT or PREPARE that the shard answered by rolling back.
pub(super) fn rolled_back(shard: &ShardId) -> SqlError {
    let message = format!("the transaction had failed on shard {shard}, and was rolled back");
    SqlError::new(state::IN_FAILED_TRANSACTION, message).hint("Try it again as a whole.")
}

fn explained(error: SqlError) -> SqlError {
    if error.message.contains("prepared transactions are disabled") {
        return error.hint("Set max_prepared_transactions on the shard's server, and start it again.");
    }
    error
}
