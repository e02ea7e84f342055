//! Writes on several shards that are completed whatever happens, asked for by `polyshard.multi_shard = 'eventual'`: run
//! on every shard, decided in the catalog, then committed. A shard that misses its commit gets its part from there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_router::Ticket;
use polyshard_schema::{JournalError, LastingStatement, LastingWrite, Moment, WRITE_BYTES_MAX};
use polyshard_sql::{Context, SqlError, SqlState, quoted};
use polyshard_sql_on_sqlite::{REFERENCES_QUERY, Writes};
use uuid::Uuid;

use super::reference::TIMES;
use super::{Done, Session, Stop};
use crate::reply::{self, Severity, state};
use crate::settings::{MultiShard, Settings, set_statement};

/// How long the client waits for a shard that has missed its commit: one that is there is done by then.
const COMPLETE_WAIT: Duration = Duration::from_secs(2);

/// The settings of SQLite shards that change what a statement does or answers.
pub(super) const OF_FILES: [&str; 2] = ["timezone", "bytea_output"];

/// What a write on several shards has done so far.
pub(crate) struct Lasting {
    /// The last event of the view that it was routed by.
    since: u64,
    about: Arc<str>,
    /// The time of the statement, the same on every shard.
    moment: Option<String>,
    /// In the order in which they were run.
    parts: Vec<(ShardId, LastingStatement)>,
    /// Of all their statements.
    bytes: usize,
    ranges: Vec<(MapName, Vec<KeyRange>)>,
    settings: BTreeMap<String, String>,
}

impl Lasting {
    pub fn new(since: u64, about: &Arc<str>) -> Lasting {
        Lasting {
            since,
            about: about.clone(),
            moment: None,
            parts: Vec::new(),
            bytes: 0,
            ranges: Vec::new(),
            settings: BTreeMap::new(),
        }
    }

    /// Notes where rows must stay until it is decided.
    pub fn note_ranges(&mut self, tickets: &[Ticket]) {
        let ranges = tickets.iter().map(|ticket| (ticket.map().clone(), ticket.ranges().to_vec()));
        self.ranges.extend(ranges);
    }

    /// Notes what a shard has run. Refused at once if it is more than can be decided in the end.
    pub fn note_part(&mut self, shard: &ShardId, sql: String, finds: bool) -> Result<(), SqlError> {
        self.bytes += sql.len();
        if self.bytes > WRITE_BYTES_MAX {
            return Err(polyshard_schema::too_large());
        }
        self.parts.push((shard.clone(), LastingStatement { sql, finds }));
        Ok(())
    }

    /// Whether something was noted of a shard.
    pub fn has(&self, shard: &ShardId) -> bool {
        self.parts.iter().any(|(of, _)| of == shard)
    }

    /// How much it has noted.
    pub fn extent(&self) -> usize {
        self.parts.len()
    }

    /// Forgets what was noted since.
    pub fn cut_to(&mut self, extent: usize) {
        self.parts.truncate(extent);
        self.bytes = self.parts.iter().map(|(_, part)| part.sql.len()).sum();
    }

    fn by_shard(&self) -> BTreeMap<ShardId, Vec<LastingStatement>> {
        let mut by_shard: BTreeMap<ShardId, Vec<LastingStatement>> = BTreeMap::new();
        for (shard, statement) in &self.parts {
            by_shard.entry(shard.clone()).or_default().push(statement.clone());
        }
        by_shard
    }
}

impl Session {
    /// Whether writes on several shards are completed later where a shard misses them.
    pub(super) fn is_eventual(&self) -> bool {
        self.own.multi_shard == MultiShard::Eventual
    }

    /// A transaction of several statements is one such write only where all that it does on each shard is known.
    pub(super) fn check_single(&self) -> Result<(), SqlError> {
        if self.transaction.is_none() || (self.records() && self.transaction.lite_turn.is_none()) {
            return Ok(());
        }
        let (message, hint) = match self.embedded {
            true => (
                "a transaction that changes what every shard has cannot write what some shards have",
                "Change schema and reference tables in a transaction of their own.",
            ),
            false => (
                "polyshard.multi_shard = 'eventual' completes single statements on PostgreSQL shards, not \
                 transactions",
                "Run the statement by itself, outside a transaction block, or SET polyshard.multi_shard = \
                 'two_phase' before it begins.",
            ),
        };
        Err(SqlError::unsupported(message, hint))
    }

    /// The settings for sessions that answer for files, where no server keeps them.
    pub(super) fn settings_of_files(&self) -> Arc<Settings> {
        let path: Vec<String> = self.search_path.iter().map(|name| quoted(name)).collect();
        let settings = Arc::new(Settings::default());
        let settings = settings.with("search_path", &set_statement("search_path", &path.join(", ")));
        let named = self.lite_settings.named.iter().filter(|(name, _)| OF_FILES.contains(&name.as_str()));
        named.fold(settings, |settings, (name, value)| settings.with(name, &set_statement(name, value)))
    }

    /// A shard's part in words that do the same whenever it is run, on the session to that shard.
    pub(super) async fn lasting_text(&mut self, text: &str) -> Result<String, Stop> {
        let empty = || SqlError::new(SqlState::INTERNAL_ERROR, "a part of a write is empty");
        let statement = polyshard_sql::statements(text)?.into_iter().next().ok_or_else(empty)?;
        let schema = self.current_schema().await?;
        let search_path = self.search_path.clone();
        let context = Context { schema: &schema, search_path: &search_path, strict: self.own.strict };
        let exact = self.check_exact();
        let (Some(backend), Some(lasting)) = (&mut self.backend, &mut self.transaction.lasting) else {
            return Ok(text.to_owned());
        };
        let asked = |error: polyshard_engine::Error| Stop::Refused(reply::of_engine(&error));
        let moment = match &lasting.moment {
            Some(moment) => moment.clone(),
            None => {
                let times = if backend.is_inside() { "SELECT now()" } else { TIMES };
                let moment = backend.ask(times).await.map_err(asked)?;
                lasting.moment.insert(moment).clone()
            }
        };
        // One for all of its statements and shards.
        let moment = Moment { transaction: &moment, statement: &moment };
        let write = polyshard_schema::lasting_write(&statement, &context, &[], moment)?;
        let mut answers = Vec::new();
        for ask in write.asks() {
            if !backend.is_inside() {
                exact.clone()?;
                answers.push(backend.ask_all(&ask.query_for_all()).await.map_err(asked)?);
                continue;
            }
            let mut rows = Vec::new();
            if let Some(sequence) = &ask.sequence {
                let ids = self.door.journal.allocate(sequence, ask.times as u64, 1).await;
                rows.extend(ids.map_err(|error| error.to_sql())?.map(|id| vec![Some(id.to_string())]));
            } else {
                for _ in 0..ask.times {
                    rows.extend(backend.ask_all(&ask.query).await.map_err(asked)?);
                }
            }
            answers.push(rows);
        }
        Ok(write.fill(answers)?.sql)
    }

    /// Notes the settings that the parts' meaning depends on, as the shards have them now.
    pub(super) async fn note_lasting_settings(&mut self) -> Result<(), Stop> {
        if self.transaction.lasting.is_none() {
            return Ok(());
        }
        let server = self.parked.values().find(|backend| !backend.is_inside()).map(|on| on.shard.clone());
        if let Some(server) = server {
            self.switch_to(&server);
        }
        let inside = self.backend.as_ref().is_some_and(|backend| backend.is_inside());
        let settings = match inside {
            true => self.settings_of_file().await?,
            false => self.recorded_settings_now().await?,
        };
        let Some(lasting) = &mut self.transaction.lasting else { return Ok(()) };
        if !lasting.settings.is_empty() && lasting.settings != settings {
            return Err(SqlError::unsupported(
                "settings that writes depend on were changed within a transaction on several shards",
                "SET search_path and TimeZone before it begins.",
            )
            .into());
        }
        lasting.settings = settings;
        Ok(())
    }

    async fn settings_of_file(&mut self) -> Result<BTreeMap<String, String>, Stop> {
        let mut settings = BTreeMap::new();
        let Some(backend) = &mut self.backend else { return Ok(settings) };
        for name in ["search_path", "timezone"] {
            let shown = backend.ask(&format!("SHOW {name}")).await;
            settings.insert(name.to_owned(), shown.map_err(|error| Stop::Refused(reply::of_engine(&error)))?);
        }
        Ok(settings)
    }

    /// Decides a write that all these shards have run, and commits it on each.
    pub(super) async fn commit_eventually(&mut self, writers: &[ShardId], lasting: Box<Lasting>) -> Done {
        let id = Uuid::from_bytes(self.door.random());
        let ready = match self.check_ends(writers, &lasting).await {
            Ok(()) => self.mark_parts(writers, &lasting, id).await,
            failed => failed,
        };
        if let Err(error) = ready {
            self.roll_back_parked().await;
            return Err(error.into());
        }
        self.door.pass("eventual.decide.before")?;
        let parts = lasting.by_shard();
        let Lasting { since, about, ranges, settings, .. } = *lasting;
        let write = LastingWrite { id, about: about.to_string(), parts, settings, ranges, since };
        if let Err(error) = self.door.journal.decide_write(write).await {
            if matches!(error, JournalError::Unknown(_)) {
                // It may have been decided: it is the one to ask about, and no shard is known to have all.
                self.own.last_write = Some(id.to_string());
                writers.iter().for_each(|shard| self.door.journal.write_missed(shard));
            }
            self.roll_back_parked().await;
            return Err(undecided(&error, id).into());
        }
        self.own.last_write = Some(id.to_string());
        self.door.pass("eventual.decide.after")?;
        let (mut done, mut missed) = (Vec::new(), Vec::new());
        // One after the other where a test may stop it in between.
        let at_once = if self.door.has_failpoint() { 1 } else { writers.len() };
        for group in writers.chunks(at_once.max(1)) {
            for shard in group {
                self.door.pass(&format!("eventual.commit:{shard}.before"))?;
            }
            for (shard, result) in self.on_each(group, |_| "COMMIT".to_owned()).await {
                match result {
                    Ok(()) => done.push(shard),
                    Err(error) => {
                        tracing::warn!(%shard, %error, write = %id, "a shard gets its part of a write later");
                        missed.push((shard, error));
                    }
                }
            }
        }
        self.door.pass("eventual.commit.after")?;
        for shard in &done {
            if let Some(backend) = self.parked.get_mut(shard) {
                backend.set_inside = false;
            }
        }
        // Before the tickets are given back: whoever waits for the ranges would find it not to be complete.
        self.door.journal.write_committed(id, &done).await;
        // Before anybody completes the rest: what is left of the first transaction there would be in the way.
        self.finish_parked(writers).await;
        if !missed.is_empty() {
            self.complete_missed(id, missed).await;
        }
        Ok(())
    }

    /// Has the shards check now what they would check at COMMIT: after the decision nothing may be refused.
    async fn check_ends(&mut self, writers: &[ShardId], lasting: &Lasting) -> Result<(), SqlError> {
        self.check_deferred().await?;
        let schema = self.current_schema().await?;
        if schema.tables.values().all(|table| table.foreign_keys.is_empty()) {
            return Ok(());
        }
        let search_path = self.search_path.clone();
        let context = Context { schema: &schema, search_path: &search_path, strict: false };
        for shard in writers {
            let Some(backend) = self.parked.get_mut(shard).filter(|backend| backend.is_inside()) else {
                continue;
            };
            let mut writes = Writes::default();
            for (_, part) in lasting.parts.iter().filter(|(of, _)| of == shard) {
                for statement in polyshard_sql::statements(&part.sql)? {
                    writes.note(&statement, &context);
                }
            }
            let wrong = |error: polyshard_engine::Error| polyshard_sql_on_sqlite::error(&error, &schema);
            let references = backend.run_rows(&Statement::new(REFERENCES_QUERY)).await.map_err(wrong)?;
            for check in writes.checks(&references)? {
                backend.run(&Statement::new(check)).await.map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// The mark on every shard; nothing is decided yet.
    async fn mark_parts(&mut self, writers: &[ShardId], lasting: &Lasting, id: Uuid) -> Result<(), SqlError> {
        for shard in writers {
            let Some(backend) = self.parked.get_mut(shard) else { continue };
            if !lasting.has(shard) {
                let message = format!("shard {shard} has written something that is not known");
                return Err(SqlError::new(SqlState::INTERNAL_ERROR, message));
            }
            let mark = self.door.journal.write_mark(backend.dialect(), id);
            backend.run(&mark).await.map_err(|error| reply::of_engine(&error))?;
        }
        Ok(())
    }

    /// It is decided: the client hears that it is done, and of shards that do not have it yet.
    async fn complete_missed(&mut self, id: Uuid, missed: Vec<(ShardId, SqlError)>) {
        let journal = self.door.journal.clone();
        for (shard, _) in &missed {
            journal.write_missed(shard);
        }
        if let Ok(Ok(true)) = tokio::time::timeout(COMPLETE_WAIT, journal.complete_write(id)).await {
            return;
        }
        let names: Vec<String> = missed.iter().map(|(shard, _)| shard.to_string()).collect();
        let why = missed.first().map(|(_, error)| error.message.to_string()).unwrap_or_default();
        let message = format!(
            "write {id} is decided, but shard {} does not have it yet ({why}); it is completed by itself",
            names.join(", ")
        );
        let hint = format!("SELECT polyshard.write_completed('{id}') tells whether it is.");
        self.notice(Severity::Warning, &SqlError::new(state::WARNING, message).hint(hint));
    }

    /// Whether every shard has a write: no answer if it is not known.
    pub(super) async fn write_completed(
        &self,
        arguments: &[Option<String>],
    ) -> Result<Option<String>, SqlError> {
        let wrong = |message: &str| {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message.to_owned()).hint(
                "SHOW polyshard.last_write tells the name of the session's last write on several shards.",
            )
        };
        let [Some(name)] = arguments else {
            return Err(wrong("polyshard.write_completed takes the name of a write"));
        };
        let id: Uuid = name.parse().map_err(|_| wrong("a write's name is a UUID"))?;
        let found = self.door.journal.write(id).await.map_err(|error| error.to_sql())?;
        let found = found.filter(|write| !write.void);
        Ok(found.map(|write| write.is_complete().to_string()))
    }
}

/// What the client hears if it was not decided, or nobody knows.
fn undecided(error: &JournalError, id: Uuid) -> SqlError {
    match error {
        JournalError::Unknown(_) => {
            let message = format!("it is not known yet whether the write was decided: {error}");
            let hint = format!("SELECT polyshard.write_completed('{id}') tells, once the catalog is back.");
            SqlError::new(state::OUTCOME_UNKNOWN, message).hint(hint)
        }
        // The ranges: nothing was written.
        JournalError::Catalog(polyshard_catalog::CatalogError::Unsettled(why)) => {
            SqlError::new(SqlState::SERIALIZATION_FAILURE, why.clone()).hint("Try again.")
        }
        error => error.to_sql(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_refused_where_it_becomes_so() {
        let mut lasting = Lasting::new(1, &Arc::from("INSERT"));
        let shard = ShardId::new("s1").unwrap();
        let quarter = "x".repeat(WRITE_BYTES_MAX / 4);
        for _ in 0..4 {
            lasting.note_part(&shard, quarter.clone(), false).unwrap();
        }
        assert_eq!(lasting.note_part(&shard, "x".to_owned(), false).unwrap_err().state, SqlState("54000"));
        // What a savepoint undoes does not count.
        lasting.cut_to(3);
        lasting.note_part(&shard, "x".to_owned(), false).unwrap();
        lasting.cut_to(0);
        assert!(!lasting.has(&shard));
    }
}
