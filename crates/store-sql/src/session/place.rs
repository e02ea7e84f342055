//! On which shard a statement runs, and how its session is lent, used and given back.

use std::sync::Arc;

use polyshard_engine::Dialect;
use polyshard_map::{Key, KeyRange, MapName, ShardId};
use polyshard_router::{Access, RouterError, Ticket};
use polyshard_sql::{Analysis, Kind, Route, Schema, SqlError, SqlState, Statement};
use polyshard_store::rights::Users;

use super::extended::Portal;
use super::{Done, Session, Stop};
use crate::backend::{Backend, Broken, Drained};
use crate::embedded::enter_briefly;
use crate::reply::{self, state};
use crate::settings;

/// Tries of a statement that provably was not carried out.
const TRIES_MAX: u32 = 8;

/// What [`other_engine`] is known by.
const OTHER_ENGINE: &str = "is on another engine";

/// Keys of maps.
type Keys = Vec<(MapName, Vec<Key>)>;

/// What a statement was routed and judged by.
#[derive(Clone)]
pub(crate) struct RoutedBy {
    pub schema: Arc<Schema>,
    /// None for whoever may do everything.
    users: Option<Arc<Users>>,
}

/// Where a statement wants to go.
pub(crate) enum Wanted<'a> {
    /// Wherever the transaction is, or anywhere.
    Anywhere,
    /// To this shard.
    Shard(&'a ShardId),
    /// To the shard that has these.
    Keys { keys: &'a Keys, ranges: &'a [(MapName, Vec<KeyRange>)], shard: &'a ShardId },
}

impl<'a> Wanted<'a> {
    /// Of a route that leads to one shard.
    pub fn of(route: &'a Route) -> Option<Wanted<'a>> {
        match route {
            Route::Anywhere | Route::ReferenceRead | Route::Nowhere { .. } => Some(Wanted::Anywhere),
            Route::Local(shard) => Some(Wanted::Shard(shard)),
            Route::One { shard, keys, ranges } => Some(Wanted::Keys { keys, ranges, shard }),
            _ => None,
        }
    }
}

impl Session {
    /// To be remembered of a statement that is judged after this.
    pub(crate) fn routed_by(&self, schema: Arc<Schema>) -> RoutedBy {
        RoutedBy { schema, users: self.judged_by() }
    }

    /// The users by whose rights is judged now; none for whoever may do everything.
    pub(super) fn judged_by(&self) -> Option<Arc<Users>> {
        self.who.as_ref().map(|_| self.door.host.users())
    }

    /// Whether these are still the users.
    pub(super) fn is_judged_by(&self, users: Option<&Arc<Users>>) -> bool {
        users.is_none_or(|users| Arc::ptr_eq(users, &self.door.host.users()))
    }

    /// Makes sure that a shard's session for this place works for us, with our settings and in our transaction.
    pub(super) async fn acquire(&mut self, wanted: &Wanted<'_>, access: Access) -> Done {
        let routed_by = self.routed_by.take();
        self.acquire_as_routed(wanted, access).await?;
        self.check_routed(routed_by.as_ref()).await
    }

    /// A statement may have waited long for its shard: what was true of the tables then, and of the rights, must still
    /// be so. To be asked once the session is there: to open it, a process that was cut off reads the catalog.
    pub(crate) async fn check_routed(&mut self, by: Option<&RoutedBy>) -> Done {
        match by {
            Some(by) if self.may_be_outdated(by) => Box::pin(self.check_again(by)).await,
            _ => Ok(()),
        }
    }

    /// Whether tables or users have changed since a statement was routed. Cheap.
    pub(crate) fn may_be_outdated(&self, by: &RoutedBy) -> bool {
        by.schema.position < self.door.journal.position() || !self.is_judged_by(by.users.as_ref())
    }

    async fn check_again(&mut self, by: &RoutedBy) -> Done {
        let now = self.schema_by_engine().await?;
        let same = now.tables == by.schema.tables
            && now.views == by.schema.views
            && now.functions == by.schema.functions;
        if same && self.is_judged_by(by.users.as_ref()) {
            return Ok(());
        }
        if self.transaction.is_none() && self.backend.as_ref().is_some_and(|backend| !backend.in_series) {
            self.release().await;
        }
        Err(outdated().into())
    }

    async fn acquire_as_routed(&mut self, wanted: &Wanted<'_>, access: Access) -> Done {
        if let Some(first) = self.first_shard() {
            let shard = match wanted {
                Wanted::Anywhere => &first,
                Wanted::Shard(shard) | Wanted::Keys { shard, .. } => *shard,
            };
            if !self.switch_to(shard) {
                let message = format!("shard {shard} does not take part in this transaction");
                return Err(SqlError::new(state::CANNOT_CONNECT_NOW, message).into());
            }
        }
        self.take_up();
        if self.backend.is_some() {
            return self.stay(wanted, access).await;
        }
        self.open(wanted, access, true).await
    }

    /// Lends a session for a turn of our own: the journal itself sees that the shard has everything.
    pub(super) async fn acquire_unready(&mut self, wanted: &Wanted<'_>, access: Access) -> Done {
        self.open(wanted, access, false).await
    }

    pub(super) async fn open(&mut self, wanted: &Wanted<'_>, access: Access, ready: bool) -> Done {
        if self.transaction.lost {
            return Err(super::transaction::failed_transaction().into());
        }
        let backend = self.lend(wanted, access, ready).await?;
        backend.ticket().begin_at(self.client.settled());
        self.begin_on(backend).await
    }

    /// Has a session work for us, with our settings and in our transaction.
    pub(super) async fn begin_on(&mut self, mut backend: Backend) -> Done {
        self.note_places();
        self.cancel.running.add(backend.cancel());
        let mut to_confirm = backend.apply(&self.settings);
        if let Some((begin, prelude)) = self.transaction.opening() {
            backend.query(begin, true);
            for statement in prelude {
                if may_set(statement) {
                    backend.note_local();
                }
                backend.query(statement, true);
                to_confirm = true;
            }
        }
        self.backend = Some(backend);
        if !to_confirm {
            return Ok(());
        }
        // What was set may not be possible here; then nothing else may run as if it were.
        Box::pin(self.drain()).await?;
        let failure = self.backend.as_mut().and_then(|backend| backend.take_quiet_error());
        match failure {
            None => Ok(()),
            Some(body) => {
                self.show_error(&body);
                if self.transaction.is_none() {
                    Box::pin(self.let_go()).await;
                } else {
                    self.transaction.failed = true;
                    if let Some(backend) = &mut self.backend {
                        // What was to be set may not be.
                        backend.closing = true;
                    }
                }
                Err(Stop::Told)
            }
        }
    }

    async fn lend(&mut self, wanted: &Wanted<'_>, access: Access, ready: bool) -> Result<Backend, Stop> {
        let door = self.door.clone();
        self.admit(wanted)?;
        let mut tries = 0;
        loop {
            let home = if matches!(wanted, Wanted::Anywhere) { door.home().ok() } else { None };
            let entered = self.enter(wanted, access).await;
            let error = match entered {
                Ok(tickets) => {
                    if ready && let Err(error) = door.journal.ready(tickets[0].shard()).await {
                        tries += 1;
                        if home.is_some() && tries < TRIES_MAX && Box::pin(door.has_moved_home(home)).await {
                            continue;
                        }
                        return Err(error.to_sql().into());
                    }
                    let keys = match wanted {
                        Wanted::Keys { keys, .. } => {
                            keys.iter().map(|(map, keys)| (map.clone(), keys.clone(), access)).collect()
                        }
                        _ => Vec::new(),
                    };
                    match Backend::open(&door, tickets, keys).await {
                        Ok(backend) => return Ok(backend),
                        Err(error) => RouterError::Engine(error),
                    }
                }
                Err(error) => error,
            };
            tries += 1;
            if home.is_some() && tries < TRIES_MAX && Box::pin(door.has_moved_home(home)).await {
                continue;
            }
            let waited = matches!(error, RouterError::Moving(_));
            // Boxed, here and wherever something seldom happens on the way of every statement: a future is as large as
            // its largest part, and is moved when it is made.
            if tries >= TRIES_MAX || waited || !Box::pin(door.router.heal(&error)).await {
                return Err(reply::of_router(&error).into());
            }
            tokio::time::sleep(std::time::Duration::from_millis(5 << tries.min(6))).await;
        }
    }

    /// Whether quotas let a statement in; asked once, however often its shard is looked for.
    pub(crate) fn admit(&self, wanted: &Wanted<'_>) -> Done {
        if let Wanted::Keys { keys, .. } = wanted {
            for (map, keys) in keys.iter() {
                self.door.host.quotas().admit(map, keys).map_err(|error| reply::of_store(&error.into()))?;
            }
        }
        Ok(())
    }

    pub(crate) async fn enter(
        &self,
        wanted: &Wanted<'_>,
        access: Access,
    ) -> Result<Vec<Ticket>, RouterError> {
        let router = &self.door.router;
        match wanted {
            Wanted::Anywhere => {
                let home = self.door.home().map_err(|_| RouterError::Offline("every shard".to_owned()))?;
                Ok(vec![router.enter_unmapped(&home, access).await?])
            }
            Wanted::Shard(shard) => Ok(vec![router.enter_unmapped(shard, access).await?]),
            Wanted::Keys { keys, ranges, shard } => {
                let mut tickets = match keys.as_slice() {
                    [] => Vec::new(),
                    [(map, keys)] => vec![router.enter(map, keys, access).await?],
                    several => Box::pin(router.enter_all(several, access)).await?,
                };
                if !ranges.is_empty() {
                    let by_shard = Box::pin(router.enter_ranges(ranges, access)).await?;
                    let shard = tickets.first().map_or(*shard, |ticket: &Ticket| ticket.shard()).clone();
                    if by_shard.keys().any(|other| *other != shard) {
                        // The map has changed since the route was found.
                        return Err(RouterError::CrossShard(by_shard.into_keys().collect()));
                    }
                    tickets.extend(by_shard.into_values().flatten());
                    if tickets.is_empty() {
                        tickets.push(Box::pin(router.enter_unmapped(&shard, access)).await?);
                    }
                }
                Ok(tickets)
            }
        }
    }

    /// A transaction or series stays on its shard; more keys of the same shard need more tickets.
    async fn stay(&mut self, wanted: &Wanted<'_>, access: Access) -> Done {
        if let Wanted::Keys { keys, ranges, .. } = wanted {
            self.check_places(keys, ranges)?;
        }
        let Some(backend) = &mut self.backend else { return Ok(()) };
        match wanted {
            Wanted::Anywhere => Ok(()),
            Wanted::Shard(shard) if **shard == backend.shard => Ok(()),
            Wanted::Shard(shard) | Wanted::Keys { shard, .. } if **shard != backend.shard => {
                let refusal = other_shard(&backend.shard, shard);
                if !self.can_move() {
                    if self.may_go_on(shard, access) || (self.is_two_phase() && !self.transaction.is_none()) {
                        return Box::pin(self.spread(wanted, access)).await;
                    }
                    return Err(refusal.into());
                }
                Box::pin(self.leave()).await?;
                Box::pin(self.acquire(wanted, access)).await
            }
            Wanted::Shard(_) => Ok(()),
            Wanted::Keys { keys, ranges, shard } => {
                for (map, keys) in keys.iter() {
                    if backend.covers(map, keys, access) {
                        continue;
                    }
                    self.door.host.quotas().charge(map, keys);
                    let router = &self.door.router;
                    match router.enter_within_map(backend.ticket(), map, keys, access).await {
                        Ok(ticket) => backend.add(ticket, map.clone(), keys.clone(), access),
                        Err(RouterError::CrossShard(_)) => {
                            return Err(reply::of_router(&RouterError::Moving(map.clone())).into());
                        }
                        Err(error) => return Err(reply::of_router(&error).into()),
                    }
                }
                for (map, ranges) in ranges.iter() {
                    let router = &self.door.router;
                    for range in ranges {
                        let entering = Box::pin(router.enter_shard(map, range, shard, access));
                        let entered = match backend.is_inside() {
                            true => enter_briefly(entering, map).await,
                            false => entering.await,
                        };
                        match entered {
                            Ok(ticket) => backend.add(ticket, map.clone(), Vec::new(), access),
                            Err(error) => return Err(reply::of_router(&error).into()),
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// Whether what was done so far could as well be done on another shard.
    fn can_move(&self) -> bool {
        let movable = self.transaction.is_none() || self.transaction.movable;
        movable && !self.transaction.wrote && self.parked.is_empty()
    }

    /// Whether the transaction could begin again elsewhere.
    pub(super) fn can_leave(&self) -> bool {
        self.parked.is_empty() && (self.backend.is_none() || self.can_move())
    }

    /// Leaves the shard, if it is on one.
    pub(super) async fn leave_all(&mut self) -> Done {
        if self.backend.is_some() { self.leave().await } else { Ok(()) }
    }

    /// Leaves a shard on which nothing was done that counts.
    async fn leave(&mut self) -> Done {
        if self.transaction.is_none() {
            self.told = false;
            self.end_series().await?;
            return if self.told { Err(Stop::Told) } else { Ok(()) };
        }
        self.settle().await?;
        if let Some(backend) = &mut self.backend {
            if backend.in_series {
                backend.sync();
            }
            backend.query("COMMIT", true);
        }
        self.drain().await?;
        self.release().await;
        Ok(())
    }

    /// Notes whether a transaction may still move to another shard after this statement: it must have read only what
    /// every shard has, under an isolation where each statement sees what is there.
    pub(super) fn note_movable(&mut self, statement: &Statement, route: &Route, analysis: &Analysis) {
        const BOUND: [&str; 5] = ["lock", "nextval", "set_config", "xact", "xid"];
        // Rows that are locked stay so only as long as it does not leave.
        let locks = analysis.locks_reference().is_some();
        let everywhere = matches!(route, Route::Anywhere | Route::ReferenceRead | Route::Nowhere { .. });
        let plain = matches!(statement.kind(), Kind::Select | Kind::Show(_)) && !analysis.writes();
        let binds = || {
            let text = statement.text().to_ascii_lowercase();
            BOUND.iter().any(|word| text.contains(word))
        };
        if !everywhere || !plain || locks || binds() {
            self.transaction.movable = false;
        }
    }

    /// Passes the shard's answers on until there is nothing more to come, and the client's data where it is asked.
    pub(super) async fn drain(&mut self) -> Done {
        let mut failed = false;
        loop {
            let Some(backend) = &mut self.backend else { return Ok(()) };
            match backend.drain(&mut self.client, &mut failed).await {
                Ok(Drained::Done) => break,
                Ok(Drained::CopyIn) => Box::pin(self.copy_in()).await?,
                Err(Broken::Client(gone)) => return Err(Stop::Gone(gone)),
                Err(Broken::Ended(error)) => return Err(Box::pin(self.lose(error, false)).await),
                Err(Broken::Cut(error)) => return Err(Box::pin(self.lose(error, true)).await),
            }
        }
        self.told = failed;
        let status = self.backend.as_ref().map_or(b'I', |backend| backend.status);
        if (failed || status == b'E') && !self.transaction.is_none() {
            self.transaction.failed = true;
        }
        if self.backend.as_ref().is_some_and(|backend| backend.stale) {
            self.forget_descriptions();
        }
        Ok(())
    }

    /// The shard's answer did not come: what it ran is over, unless it is the client that is gone.
    pub(super) async fn lose_broken(&mut self, broken: Broken) -> Stop {
        match broken {
            Broken::Client(gone) => Stop::Gone(gone),
            Broken::Ended(error) => self.lose(error, false).await,
            Broken::Cut(error) => self.lose(error, true).await,
        }
    }

    /// The shard's session is lost: what ran on it is over.
    pub(super) async fn lose(&mut self, error: SqlError, cut: bool) -> Stop {
        self.cut = cut;
        if !self.transaction.is_none() {
            self.transaction.failed = true;
            self.transaction.lost = true;
        }
        self.portals.clear();
        self.let_go().await;
        Stop::Refused(error)
    }

    /// Gives the session back, if nothing is open on it.
    pub(super) async fn release(&mut self) {
        let Some(backend) = self.backend.take() else { return };
        backend.ticket().end_at(self.client.exchanged());
        self.cancel.running.clear().await;
        // The door's own are not on it.
        self.portals.retain(|_, portal| !matches!(portal, Portal::Shard));
        if backend.status == b'I' && backend.is_settled() && !backend.stale && backend.is_as_noted() {
            if !backend.cursors.is_empty() {
                return Box::pin(self.hold_backend(backend)).await;
            }
            backend.finish();
        } else {
            Box::pin(backend.abandon()).await;
        }
    }

    /// Ends the session, whatever is open on it.
    pub(super) async fn let_go(&mut self) {
        if let Some(global) = self.transaction.global.take() {
            self.roll_back_global(global).await;
        }
        if self.end_cursors(false).await.is_err() {
            tracing::debug!("a client was gone before its cursors were closed");
        }
        for (_, backend) in std::mem::take(&mut self.parked) {
            backend.abandon().await;
        }
        if let Some(turn) = self.transaction.lite_turn.take() {
            self.roll_back_lite_turn(turn).await;
        }
        self.lite = None;
        if let Some(backend) = self.backend.take() {
            self.cancel.running.clear().await;
            backend.abandon().await;
        }
    }

    /// Shows a shard's error to the client.
    pub(crate) fn show_error(&mut self, body: &[u8]) {
        reply::message(&mut self.client.out, b'E', |out| out.extend_from_slice(body));
    }
}

pub(crate) fn other_shard(mine: &ShardId, other: &ShardId) -> SqlError {
    let message = format!("the transaction is on shard {mine}, and this statement needs shard {other}");
    SqlError::new(polyshard_sql::SqlState::FEATURE_NOT_SUPPORTED, message).hint(
        "Keep a transaction to keys of one shard, or SET polyshard.multi_shard = 'two_phase' before it begins.",
    )
}

/// The same between SQLite files, which have no two phases.
pub(crate) fn other_file(mine: &ShardId, other: &ShardId) -> SqlError {
    SqlError {
        hint: Some(
            "Keep a transaction to keys of one shard, or SET polyshard.multi_shard = 'eventual' before it begins."
                .into(),
        ),
        ..other_shard(mine, other)
    }
}

/// Something is on another engine than the one that the session speaks to.
fn other_engine(what: &str) -> SqlError {
    let message = format!("{what} {OTHER_ENGINE} than those that the transaction began with");
    SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try the transaction again.")
}

/// Whether what was said before a shard was chosen may set something that statements' meaning depends on.
fn may_set(said: &str) -> bool {
    let mut words = said.split_whitespace().map(str::to_ascii_lowercase);
    match words.next().as_deref() {
        Some("savepoint" | "release" | "rollback") => false,
        Some("set") => match (words.next().as_deref(), words.next().as_deref()) {
            (Some("transaction" | "constraints"), _) => false,
            (Some("local"), Some(rest)) => {
                let name = rest.split('=').next().unwrap_or_default();
                settings::has_meaning(name.trim_matches('"'))
            }
            _ => true,
        },
        _ => true,
    }
}

/// Whether all of these are for SQLite files, for a session that speaks to those: its words mean something else on a
/// server.
pub(crate) fn only_files<'t>(tickets: impl IntoIterator<Item = &'t Ticket>) -> Result<(), SqlError> {
    let other = tickets.into_iter().find(|ticket| ticket.dialect() != Dialect::Sqlite);
    other.map_or(Ok(()), |ticket| Err(other_engine(&format!("shard {}", ticket.shard()))))
}

/// The session speaks to SQLite files, and the last one was taken out.
pub(super) fn no_files() -> SqlError {
    other_engine("every shard")
}

/// Whether an error is of that kind.
pub(super) fn is_other_engine(error: &SqlError) -> bool {
    error.state == SqlState::SERIALIZATION_FAILURE && error.message.contains(OTHER_ENGINE)
}

/// What a statement is told that was routed by a schema that is not the last any more.
pub(super) fn outdated() -> SqlError {
    let message = "tables or rights were changed while the statement waited for its shard";
    SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try again.")
}

/// Whether nothing was sent because it was looked at too early: tables were changed since, or keys were moved apart.
pub(super) fn is_outdated(error: &SqlError) -> bool {
    *error == outdated() || *error == reply::apart()
}

/// The answer to a write whose shard was lost on the way.
pub(super) fn unknown_outcome(error: &SqlError) -> SqlError {
    SqlError::new(
        state::OUTCOME_UNKNOWN,
        format!("it is not known whether the statement was done: {}", error.message),
    )
    .hint("Read the data before you try again.")
}

#[cfg(test)]
mod tests {
    use super::may_set;

    #[test]
    fn what_has_no_meaning_for_statements_is_not_taken_for_a_setting() {
        for said in [
            "SAVEPOINT a",
            "SET TRANSACTION READ ONLY",
            "SET LOCAL statement_timeout = '5s'",
            "set local \"lock_timeout\"='5s'",
            "SET LOCAL application_name TO 'x'",
        ] {
            assert!(!may_set(said), "{said}");
        }
        for said in ["SET LOCAL TimeZone = 'UTC'", "SET LOCAL app.user TO 'x'", "SET TimeZone = 'UTC'"] {
            assert!(may_set(said), "{said}");
        }
    }
}
