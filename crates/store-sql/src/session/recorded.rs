//! A transaction of several statements on SQLite shards under `polyshard.multi_shard = 'eventual'`: sessions that
//! answer for the files carry it out, and what they write is noted, to be decided at its end.

use std::collections::BTreeMap;
use std::time::Duration;

use polyshard_map::MapName;
use polyshard_router::{Access, RouterError};
use polyshard_sql::{Kind, Param, Route, SqlError, ast};

use super::eventual::{Lasting, OF_FILES};
use super::place::Wanted;
use super::{Done, Session, Stop};
use crate::cache::Analysed;
use crate::reply;

/// How long a transaction that has begun on a file waits for a range: as long as a switch that goes well takes.
/// Whoever switches it may be waiting for the file's only writer.
const HELD_WAIT: Duration = Duration::from_millis(500);

impl Session {
    /// Whether the transaction is one whose writes are noted.
    pub(crate) fn records(&self) -> bool {
        let several = !self.transaction.is_none() && !self.transaction.is_in_series();
        // Also if the setting is another by now, because of a savepoint: what was begun so ends so.
        self.embedded && several && self.under.is_none() && (self.is_eventual() || self.is_on_backends())
    }

    /// Whether sessions of shards work for the transaction.
    pub(crate) fn is_on_backends(&self) -> bool {
        self.backend.is_some() || !self.parked.is_empty()
    }

    /// Refuses what is neither read nor written by statements, once shards work for such a transaction.
    pub(crate) fn check_recorded(&self, kind: &Kind) -> Result<(), SqlError> {
        let plain = matches!(kind, Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Show(_));
        if plain || !self.records() || !self.is_on_backends() {
            return Ok(());
        }
        Err(SqlError::unsupported(
            "a transaction under polyshard.multi_shard = 'eventual' has SELECT, INSERT, UPDATE and DELETE only",
            "End the transaction first, or SET polyshard.multi_shard = 'refuse' before it begins.",
        ))
    }

    /// Refuses to change what shards' sessions have taken over, once they work for such a transaction.
    pub(super) fn check_set_recorded(&self, name: Option<&str>) -> Result<(), SqlError> {
        let matters = name.is_none_or(|name| {
            ["polyshard.multi_shard", "search_path"].contains(&name) || OF_FILES.contains(&name)
        });
        if !matters || !self.records() || !self.is_on_backends() {
            return Ok(());
        }
        let what = name.unwrap_or("what all settings are");
        Err(SqlError::unsupported(
            format!("{what} cannot be changed within a transaction on several shards"),
            "Set it before the transaction begins.",
        ))
    }

    /// Carries out a statement of such a transaction that is about one shard. False if it is not bound to one, and can
    /// be carried out as usual.
    pub(crate) async fn run_recorded(
        &mut self,
        analysed: &Analysed,
        route: &Route,
        writes: bool,
        params: &[Param<'_>],
    ) -> Result<bool, Stop> {
        if !self.records() || self.transaction.lite_turn.is_some() {
            return Ok(false);
        }
        // What is no plain statement, or whose answer is kept for a cursor, is refused before once shards work for the
        // transaction; until then it is carried out as usual.
        let plain =
            matches!(analysed.statement.kind(), Kind::Select | Kind::Insert | Kind::Update | Kind::Delete);
        if !plain || self.keeping.is_some() || self.copy_out.is_some() {
            return Ok(false);
        }
        // What only looks binds the transaction to nothing.
        let locks = locks_rows(analysed);
        if !writes && !locks && !self.is_on_backends() && !self.transaction.has_one_snapshot() {
            return Ok(false);
        }
        let Some(wanted) = Wanted::of(route) else { return self.check_spread(analysed, route) };
        if matches!(wanted, Wanted::Anywhere) {
            if !self.is_on_backends() {
                return Ok(false);
            }
            self.take_up();
            self.read_recorded(analysed, params).await?;
            return Ok(true);
        }
        self.check_alone()?;
        // Rows may be locked by a query, but what it writes would not be noted.
        if writes && writes_within(analysed) {
            return Err(SqlError::unsupported(
                "a query that writes within WITH is not part of a transaction under polyshard.multi_shard = 'eventual'",
                "Write by a statement of its own.",
            )
            .into());
        }
        let access = if writes || locks { Access::Write } else { Access::Read };
        // It has only looked, which is over: leave to do so would keep a range from being switched.
        self.lite = None;
        self.admit(&wanted)?;
        let tickets = self.enter_held(self.enter(&wanted, access), first_map(route)).await;
        let tickets = tickets.map_err(|error| reply::of_router(&error))?;
        let Some(shard) = tickets.first().map(|ticket| ticket.shard().clone()) else { return Ok(false) };
        // One that locks rows is not to be done again.
        if writes && *analysed.statement.kind() != Kind::Select {
            let routed_by = self.routed_by.take();
            let lasting = Lasting::new(self.door.router.view().seq, analysed.statement.text());
            let lasting = Some(Box::new(lasting));
            let text = self.literal_text(analysed, params).await?;
            let finds = matches!(&wanted, Wanted::Keys { ranges, .. } if !ranges.is_empty());
            let parts = BTreeMap::from([(shard, (tickets, text))]);
            self.run_parts(parts, finds, lasting, routed_by).await?;
        } else {
            let of_files = self.settings_of_files();
            let settings = std::mem::replace(&mut self.settings, of_files);
            let turned = self.turn_to(&shard, tickets).await;
            self.settings = settings;
            turned?;
            self.read_recorded(analysed, params).await?;
        }
        Ok(true)
    }

    /// A statement about several shards, or all, in such a transaction: false if it can be carried out as usual.
    fn check_spread(&mut self, analysed: &Analysed, route: &Route) -> Result<bool, Stop> {
        let is_write = matches!(route, Route::Many { .. } | Route::Split(_));
        if is_write && *analysed.statement.kind() != Kind::Select {
            self.check_alone()?;
            self.lite = None;
            return Ok(false);
        }
        if self.is_on_backends() {
            let (message, hint) = if *analysed.statement.kind() == Kind::Select {
                (
                    "a transaction that works on some shards cannot query across SQLite shards",
                    "End the transaction first.",
                )
            } else {
                (
                    "a transaction that works on some shards cannot change what every shard has",
                    "Change schema and reference tables in a transaction of their own.",
                )
            };
            return Err(SqlError::unsupported(message, hint).into());
        }
        Ok(false)
    }

    /// A file has one writer: a transaction that is on it otherwise would wait for itself.
    fn check_alone(&self) -> Result<(), SqlError> {
        if self.lite.as_ref().is_none_or(|lite| lite.transaction.is_none()) {
            return Ok(());
        }
        Err(SqlError::unsupported(
            "the transaction has done something on one shard that cannot be noted for several",
            "Keep COPY, cursors and functions of other stores apart from writes on several shards.",
        ))
    }

    async fn read_recorded(&mut self, analysed: &Analysed, params: &[Param<'_>]) -> Done {
        self.begun().await?;
        let text = self.literal_text(analysed, params).await?;
        self.pass_alone(&text).await?;
        if self.told { Err(Stop::Told) } else { Ok(()) }
    }

    /// Enters ranges: a transaction that has begun on a file does not wait long for them.
    pub(super) async fn enter_held<T>(
        &self,
        entering: impl Future<Output = Result<T, RouterError>>,
        map: Option<&MapName>,
    ) -> Result<T, RouterError> {
        if !self.is_on_backends() || !self.embedded {
            return entering.await;
        }
        let Some(map) = map else { return entering.await };
        let entered = tokio::time::timeout(HELD_WAIT, entering).await;
        entered.unwrap_or_else(|_| Err(RouterError::Moving(map.clone())))
    }
}

/// Whether a query locks rows.
pub(crate) fn locks_rows(analysed: &Analysed) -> bool {
    matches!(analysed.statement.ast(), Some(ast::Statement::Query(query)) if !query.locks.is_empty())
}

/// Whether a query has parts of its own, any of which may write.
fn writes_within(analysed: &Analysed) -> bool {
    matches!(analysed.statement.ast(), Some(ast::Statement::Query(query)) if query.with.is_some())
}

/// A map that a route goes by, to name it.
fn first_map(route: &Route) -> Option<&MapName> {
    match route {
        Route::One { keys, ranges, .. } => {
            keys.first().map(|(map, _)| map).or_else(|| ranges.first().map(|(map, _)| map))
        }
        Route::Many { ranges, .. } => ranges.first().map(|(map, _)| map),
        _ => None,
    }
}
