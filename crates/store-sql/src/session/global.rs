//! A transaction on every shard: schema changes, and writes to reference tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use polyshard_router::Access;
use polyshard_schema::{Change, EntryKind, JournalError, Recorded, Turn};
use polyshard_sql::{SqlError, SqlState, TableName};

use super::place::Wanted;
use super::{Done, Extent, Session, Stop};
use crate::backend::{Backend, Broken, field};
use crate::client::Client;
use crate::reply;
use crate::settings::quoted;

/// Settings that the meaning of a recorded statement depends on.
const RECORDED_SETTINGS: [&str; 6] =
    ["search_path", "timezone", "datestyle", "intervalstyle", "bytea_output", "standard_conforming_strings"];

/// Likewise, if the client has set them; so do all that it has named itself (`app.tenant`).
const RECORDED_IF_SET: [&str; 12] = [
    "array_nulls",
    "backslash_quote",
    "default_text_search_config",
    "extra_float_digits",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "session_replication_role",
    "timezone_abbreviations",
    "transform_null_equals",
    "xmlbinary",
    "xmloption",
];

/// What a transaction on every shard has done.
pub(crate) struct Global {
    turn: Turn,
    statements: Vec<Recorded>,
    kind: EntryKind,
    /// The settings that its first statement ran under.
    settings: BTreeMap<String, String>,
    /// Those that the last recorded statement ran under; none if that is not known any more.
    last: Option<BTreeMap<String, String>>,
}

/// Tags that end in a number of rows.
const COUNTED: [&str; 6] = ["INSERT 0", "UPDATE", "DELETE", "MERGE", "SELECT", "COPY"];

impl Global {
    /// The tables that it has made.
    pub fn made(&self) -> Vec<TableName> {
        self.turn.made()
    }

    /// How much it has recorded.
    pub fn extent(&self) -> Extent {
        Extent { statements: self.statements.len(), kind: self.kind }
    }

    /// Forgets what was recorded since.
    pub fn cut_to(&mut self, extent: Extent) {
        self.statements.truncate(extent.statements);
        self.kind = extent.kind;
        self.last = None;
    }

    /// Records a statement with the settings that it ran under, where they are not those of the one before.
    fn record(&mut self, statement: Recorded, settings: BTreeMap<String, String>) {
        if self.statements.is_empty() {
            self.settings.clone_from(&settings);
        } else if self.last.as_ref() != Some(&settings) {
            for (name, value) in &settings {
                if self.last.as_ref().and_then(|last| last.get(name)) == Some(value) {
                    continue;
                }
                let (name, value) = (quoted(name), quoted(value));
                let sql = format!("SELECT pg_catalog.set_config({name}, {value}, true)");
                let engine = Some(Dialect::Postgres.name().to_owned());
                self.statements.push(Recorded { engine, ..Recorded::new(sql) });
            }
        }
        self.last = Some(settings);
        self.statements.push(statement);
    }
}

impl Session {
    /// Makes the transaction one on every shard. It may not have written anything else.
    pub(super) async fn go_global(&mut self) -> Done {
        if self.transaction.global.is_some() {
            return Ok(());
        }
        if self.transaction.wrote || !self.can_leave() {
            return Err(SqlError::unsupported(
                "a transaction that works on one shard cannot change what every shard has",
                "Change schema and reference tables in a transaction of their own.",
            )
            .into());
        }
        self.leave_all().await?;
        let turn = self.door.journal.turn().await.map_err(|error| error.to_sql())?;
        let shards: Vec<ShardId> = turn.shards().to_vec();
        if shards.is_empty() {
            turn.give_up().await;
            return self.door.home().map(drop).map_err(Stop::from);
        }
        self.transaction.global = Some(Box::new(Global {
            turn,
            statements: Vec::new(),
            kind: EntryKind::Rows,
            settings: BTreeMap::new(),
            last: None,
        }));
        for shard in &shards {
            self.acquire_unready(&Wanted::Shard(shard), Access::Write).await?;
            self.check_engine(shard)?;
            self.park();
        }
        // Everywhere, before anything is done: where BEGIN failed, it would count by itself.
        for backend in self.parked.values_mut() {
            if let Err(broken) = backend.flush().await {
                return Err(of_broken(broken, &backend.shard).into());
            }
        }
        for backend in self.parked.values_mut() {
            quietly(backend, &mut self.client).await?;
        }
        // Files have one writer each. They are taken before any lock of a server: whoever has one may be waiting for a
        // server to say what his next statement is like.
        for backend in self.parked.values_mut().filter(|backend| backend.is_inside()) {
            let begun = backend.run(&polyshard_engine::Statement::new("SELECT 1")).await;
            begun.map_err(|error| reply::of_engine(&error))?;
        }
        Ok(())
    }

    fn check_engine(&self, shard: &ShardId) -> Done {
        match &self.backend {
            Some(_) => Ok(()),
            None => {
                Err(SqlError::new(SqlState::INTERNAL_ERROR, format!("shard {shard} lent no session")).into())
            }
        }
    }

    /// The shard whose answers are shown, in a transaction on every shard.
    pub(super) fn first_shard(&self) -> Option<ShardId> {
        self.transaction.global.as_ref().and_then(|global| global.turn.shards().first().cloned())
    }

    /// Runs a statement on every shard; the first one's answer is shown, but for its end, which is answered here: it is
    /// told once nothing can fail any more.
    pub(super) async fn run_everywhere(&mut self, text: &str, kind: EntryKind) -> Result<String, Stop> {
        self.go_global().await?;
        let Some(first) = self.first_shard() else { return Ok(String::new()) };
        self.switch_to(&first);
        Box::pin(self.share_configs()).await?;
        let described = self.extended;
        if let Some(backend) = &mut self.backend {
            backend.gather(described);
        }
        let passed = self.pass_alone(text).await;
        let tag = self.backend.as_mut().and_then(|backend| backend.gathered());
        passed?;
        if self.told {
            return Err(Stop::Told);
        }
        self.run_on_parked(text).await?;
        let settings = self.recorded_settings_now().await?;
        if let Some(global) = &mut self.transaction.global {
            global.record(Recorded::new(text), settings);
            if kind == EntryKind::Schema {
                global.kind = EntryKind::Schema;
                self.read_schema_within().await?;
            }
        }
        Ok(match tag {
            Some((words, count)) if COUNTED.contains(&words.as_str()) => format!("{words} {count}"),
            Some((words, _)) => words,
            None => String::new(),
        })
    }

    /// The settings that the meaning of what was just run depends on.
    pub(super) async fn recorded_settings_now(&mut self) -> Result<BTreeMap<String, String>, SqlError> {
        let mut names: BTreeSet<String> = RECORDED_SETTINGS.iter().map(|name| (*name).to_owned()).collect();
        let counts = |name: &&str| name.contains('.') || RECORDED_IF_SET.contains(name);
        names.extend(self.settings.names().filter(counts).map(str::to_owned));
        names.extend(self.transaction.local_names().filter(counts).map(str::to_owned));
        // What was said of one before is to be said again once it is another.
        let last = self.transaction.global.as_ref().and_then(|global| global.last.as_ref());
        names.extend(last.into_iter().flat_map(|last| last.keys().cloned()));
        let Some(on) = &mut self.backend else { return Ok(BTreeMap::new()) };
        let list: Vec<String> =
            names.iter().map(|name| format!("pg_catalog.current_setting({}, true)", quoted(name))).collect();
        let ask = format!("SELECT {}", list.join(", "));
        let shown = on.ask_row(&ask).await.map_err(|error| reply::of_engine(&error))?;
        Ok(names.into_iter().zip(shown.into_iter().map(Option::unwrap_or_default)).collect())
    }

    /// Reads the schema as this transaction has made it, for the statements that follow.
    async fn read_schema_within(&mut self) -> Done {
        let (Some(global), Some(on)) = (&self.transaction.global, &mut self.backend) else { return Ok(()) };
        let shard = on.shard.clone();
        let on = tokio::sync::Mutex::new(on);
        let ask = |sql: String| {
            let (on, shard) = (&on, shard.clone());
            async move {
                let rows = on.lock().await.ask_rows(&sql).await;
                rows.map_err(|error| JournalError::on(&shard, error))
            }
        };
        let mut schema = global.turn.schema_within(ask).await.map_err(|error| error.to_sql())?;
        schema.position = self.door.cache.passing_position();
        self.transaction.schema = Some(Arc::new(schema));
        Ok(())
    }

    /// Runs what follows from a write, and records it.
    pub(super) async fn run_after(&mut self, after: Vec<Recorded>) -> Done {
        for recorded in after {
            self.park();
            for (shard, backend) in &mut self.parked {
                if recorded.concerns(shard, backend.dialect()) {
                    let ran = backend.run_recorded(&recorded.sql).await;
                    ran.map_err(|error| Stop::Refused(reply::of_engine(&error)))?;
                }
            }
            if let Some(global) = &mut self.transaction.global {
                global.statements.push(recorded);
            }
        }
        Ok(())
    }

    /// Runs a statement quietly on all sessions but the current one, all at once.
    pub(super) async fn run_on_parked(&mut self, text: &str) -> Done {
        for backend in self.parked.values_mut() {
            backend.query(text, true);
        }
        let mut failure = None;
        for backend in self.parked.values_mut() {
            if let Err(broken) = backend.flush().await {
                failure.get_or_insert(of_broken(broken, &backend.shard));
            }
        }
        for backend in self.parked.values_mut() {
            if let Err(error) = quietly(backend, &mut self.client).await {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Commits on every shard: what follows from it is run, the mark is set, it is decided, and then committed. An
    /// inner error says that it is committed, but that not all processes could be told.
    pub(super) async fn commit_global(&mut self, global: Box<Global>) -> Result<Result<(), SqlError>, Stop> {
        let Global { mut turn, statements, kind, settings, .. } = *global;
        if !self.park() {
            self.roll_back_parked().await;
            turn.give_up().await;
            return Err(two_sessions().into());
        }
        if statements.is_empty() {
            turn.give_up().await;
            self.roll_back_parked().await;
            return Ok(Ok(()));
        }
        if let Err(error) = self.prepare_decision(&mut turn, kind).await {
            self.roll_back_parked().await;
            turn.give_up().await;
            return Err(error.into());
        }
        let decided = match turn.decide(Change { kind, statements, settings }).await {
            Ok(decided) => decided,
            Err(error) => {
                self.roll_back_parked().await;
                return Err(error.to_sql().into());
            }
        };
        for backend in self.parked.values_mut() {
            backend.query("COMMIT", true);
            if let Err(broken) = backend.flush().await {
                tracing::warn!(shard = %backend.shard, ?broken, "a shard is brought up later");
            }
        }
        // First, so that no word to stop reaches whoever has them next.
        self.cancel.running.clear().await;
        for (shard, mut backend) in std::mem::take(&mut self.parked) {
            match quietly(&mut backend, &mut self.client).await {
                Ok(()) if backend.status == b'I' && !backend.undone => {
                    self.door.journal.committed(&shard, decided);
                    backend.set_inside = false;
                    self.finish_or_hold(backend).await;
                }
                result => {
                    // It is decided: whoever uses the shard next brings it there.
                    tracing::warn!(%shard, ?result, position = decided.position, "a shard is brought up later");
                    backend.abandon().await;
                }
            }
        }
        // Whoever is told of it may use it through any process.
        Ok(Box::pin(self.door.journal.told(kind)).await.map_err(|error| error.to_sql()))
    }

    /// Everything before the decision: what the change means for declared tables, and the mark on every shard.
    async fn prepare_decision(&mut self, turn: &mut Turn, kind: EntryKind) -> Result<(), SqlError> {
        let first = turn.shards().first().cloned();
        let Some(on) = first.and_then(|first| self.parked.get_mut(&first)) else { return Ok(()) };
        if kind == EntryKind::Schema {
            let shard = on.shard.clone();
            let on = tokio::sync::Mutex::new(on);
            let ask = |sql: String| {
                let (on, shard) = (&on, shard.clone());
                async move {
                    let rows = on.lock().await.ask_rows(&sql).await;
                    rows.map_err(|error| JournalError::on(&shard, error))
                }
            };
            let follows = turn.review(ask).await.map_err(|error| error.to_sql())?;
            for recorded in follows {
                for (shard, backend) in &mut self.parked {
                    if recorded.concerns(shard, backend.dialect()) {
                        backend
                            .run_recorded(&recorded.sql)
                            .await
                            .map_err(|error| reply::of_engine(&error))?;
                    }
                }
            }
        }
        self.check_deferred().await?;
        for backend in self.parked.values_mut() {
            let mark = turn.mark(backend.dialect());
            backend.run(&mark).await.map_err(|error| reply::of_engine(&error))?;
        }
        Ok(())
    }

    /// Has the servers check now what they would check at COMMIT: after the decision nothing may be refused.
    pub(super) async fn check_deferred(&mut self) -> Result<(), SqlError> {
        let mut failure = None;
        for backend in self.parked.values_mut().filter(|backend| backend.dialect() == Dialect::Postgres) {
            backend.query("SET CONSTRAINTS ALL IMMEDIATE", true);
            if let Err(broken) = backend.flush().await {
                failure.get_or_insert(of_broken(broken, &backend.shard));
            }
        }
        for backend in self.parked.values_mut().filter(|backend| backend.dialect() == Dialect::Postgres) {
            if let Err(mut error) = quietly(backend, &mut self.client).await {
                // All shards say the same.
                if let Some(message) = error.message.strip_prefix(&format!("shard {}: ", backend.shard)) {
                    error.message = message.to_owned().into();
                }
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Rolls back on every shard.
    pub(super) async fn roll_back_global(&mut self, global: Box<Global>) {
        self.park();
        self.roll_back_parked().await;
        global.turn.give_up().await;
    }

    /// Rolls back on all sessions that are put aside, and gives them back.
    pub(super) async fn roll_back_parked(&mut self) {
        // First, so that no word to stop reaches whoever has them next.
        self.cancel.running.clear().await;
        for (_, mut backend) in std::mem::take(&mut self.parked) {
            backend.query("ROLLBACK", true);
            match quietly(&mut backend, &mut self.client).await {
                Ok(()) if backend.status == b'I' => backend.finish(),
                _ => backend.abandon().await,
            }
        }
    }

    /// Puts the current session aside, for another one of the same transaction.
    ///
    /// False if the transaction has another session to the same shard already. They cannot end as one: it has failed.
    pub(super) fn park(&mut self) -> bool {
        let Some(backend) = self.backend.take() else { return true };
        if self.parked.contains_key(&backend.shard) {
            tracing::error!(shard = %backend.shard, "a transaction has two sessions to one shard");
            self.transaction.failed = true;
            self.transaction.lost = true;
            return false;
        }
        self.parked.insert(backend.shard.clone(), backend);
        true
    }

    /// If the transaction is on shards, but none of its sessions is the current one, the first becomes it.
    pub(super) fn take_up(&mut self) {
        if self.backend.is_none() && !self.transaction.is_none() {
            self.backend = self.parked.pop_first().map(|(_, backend)| backend);
        }
    }

    /// Takes the session to this shard as the current one, if there is one.
    pub(super) fn switch_to(&mut self, shard: &ShardId) -> bool {
        if self.backend.as_ref().is_some_and(|backend| backend.shard == *shard) {
            return true;
        }
        let Some(other) = self.parked.remove(shard) else { return false };
        self.park();
        self.backend = Some(other);
        true
    }
}

/// The answer to a COMMIT that would be of a part of the transaction alone.
pub(super) fn two_sessions() -> SqlError {
    let message = "the transaction has two sessions to one shard, and was rolled back";
    SqlError::new(SqlState::INTERNAL_ERROR, message)
}

/// Waits for the answer to something quiet.
pub(super) async fn quietly(backend: &mut Backend, client: &mut Client) -> Result<(), SqlError> {
    let mut failed = false;
    match backend.drain(client, &mut failed).await {
        Ok(_) => {}
        Err(broken) => return Err(of_broken(broken, &backend.shard)),
    }
    match backend.take_quiet_error() {
        None => Ok(()),
        Some(body) => Err(of_body(&body, &backend.shard)),
    }
}

pub(super) fn of_broken(broken: Broken, shard: &ShardId) -> SqlError {
    match broken {
        Broken::Ended(error) | Broken::Cut(error) => error,
        Broken::Client(gone) => SqlError::new(
            SqlState("08006"),
            format!("the client left while shard {shard} was at work: {gone}"),
        ),
    }
}

/// A shard's error as one of ours: it is shown with the shard's name.
pub(super) fn of_body(body: &[u8], shard: &ShardId) -> SqlError {
    let message = field(body, b'M').unwrap_or("it failed");
    let mut error = SqlError::new(
        reply::known_state(field(body, b'C').unwrap_or_default()),
        format!("shard {shard}: {message}"),
    );
    error.detail = field(body, b'D').map(|detail| detail.to_owned().into());
    error.hint = field(body, b'H').map(|hint| hint.to_owned().into());
    error.context = field(body, b'W').map(|context| context.to_owned().into());
    error
}
