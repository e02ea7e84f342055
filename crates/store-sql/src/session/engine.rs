//! A session goes on when the first PostgreSQL shard comes to a cluster of SQLite files, or the last one goes.

use std::sync::Arc;

use polyshard_sql::{Kind, SqlError, TypeOid};

use super::named::Named;
use super::transaction::Transaction;
use super::{Session, lite_settings};
use crate::door::Defaults;
use crate::settings::set_statement;
use crate::type_ids::is_user_id;

/// What SQLite shards let be set, but PostgreSQL does not, or only where it is set anew for each transaction.
const NOT_CARRIED: [&str; 9] = [
    "max_identifier_length",
    "server_encoding",
    "server_version",
    "server_version_num",
    "session characteristics",
    "tcp_keepalives_idle",
    "transaction_isolation",
    "transaction_read_only",
    "standard_conforming_strings",
];

impl Session {
    /// Takes up how the cluster is served now, if nothing is under way that was begun otherwise. If it cannot be known,
    /// it goes on as before: whoever needs the other engine says why.
    pub(super) async fn take_up_engine(&mut self) -> bool {
        let embedded = !self.door.journal.has_postgres();
        if self.under.is_some() || embedded == self.embedded || !self.is_free() {
            return false;
        }
        let defaults = match self.door.defaults().await {
            Ok(defaults) => defaults,
            Err(error) => {
                tracing::debug!(%error, "a session goes on as it was");
                return false;
            }
        };
        self.keep_types().await;
        if self.transaction.is_in_series() {
            // PostgreSQL makes a series one transaction by itself, and nothing was done so far.
            self.transaction = Transaction::none();
        }
        self.carry(embedded, &defaults);
        // What a rollback gives back is carried likewise.
        if let Some(before) = self.transaction.before.take() {
            let now = self.remembered();
            self.remember(before);
            self.carry(embedded, &defaults);
            self.transaction.before = Some(self.remembered());
            self.remember(now);
        }
        self.embedded = embedded;
        self.one_snapshot = defaults.one_snapshot;
        true
    }

    fn carry(&mut self, embedded: bool, defaults: &Defaults) {
        if embedded { self.carry_to_files() } else { self.carry_to_servers(defaults) }
    }

    /// Whether an error says that a shard is on the other engine, and the session could take that up.
    pub(super) async fn is_elsewhere(&mut self, error: &SqlError) -> bool {
        super::place::is_other_engine(error) && self.take_up_engine().await
    }

    fn is_free(&self) -> bool {
        self.backend.is_none()
            && self.parked.is_empty()
            && self.lite.is_none()
            && !self.held.are_under_way()
            // Portals of SQLite shards are only values: they can be used as well after it.
            && (self.embedded || self.portals.is_empty())
            && self.transaction.is_nowhere()
            // As a setting of the session it would outlive the transaction.
            && !self.transaction.has_local_path(&self.search_path)
    }

    /// Prepares statements anew as the client knows them: with the types that it was told.
    async fn keep_types(&mut self) {
        let Ok(schema) = self.current_schema().await else { return };
        let basis = self.basis(schema.position);
        let mut kept = Vec::new();
        let statements: Vec<_> =
            self.statements.iter().map(|(name, named)| (name.clone(), named.clone())).collect();
        for (name, Named { prepared, told }) in statements {
            // The home is another one already.
            let known = match (prepared.description_before(&basis), &prepared.analysed) {
                (Some(known), _) => known,
                // Another session, which has taken it up before, is told of it otherwise.
                (None, Some(analysed)) if self.embedded && has_types(analysed.statement.kind()) => {
                    let Ok(known) = self.describe_lite(&prepared, analysed).await else { continue };
                    Arc::new(known)
                }
                _ => continue,
            };
            // Each engine has numbers of its own for the types that users have made: it finds those by itself.
            let number = |TypeOid(number): &TypeOid| if is_user_id(*number) { 0 } else { *number };
            let types: Vec<u32> = known.parameters.iter().map(number).collect();
            if *types == *prepared.types {
                continue;
            }
            if let Ok(again) = self.door.cache.prepared(&prepared.text, &types) {
                kept.push((name, Named { prepared: again, told }));
            }
        }
        self.statements.extend(kept);
    }

    /// What was set where no PostgreSQL server keeps the settings, as statements for those that do.
    fn carry_to_servers(&mut self, defaults: &Defaults) {
        let reported = |name: &str| {
            let known = defaults.parameters.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            known.map(|(_, value)| value.as_str())
        };
        // What the client was told when it began, and the servers have otherwise.
        for (name, value) in [("timezone", "UTC"), ("datestyle", "ISO, MDY"), ("intervalstyle", "postgres")] {
            if reported(name).is_some_and(|known| known != value) {
                self.settings = self.settings.with(name, &set_statement(name, value));
            }
        }
        for (name, value) in &self.lite_settings.named {
            if !NOT_CARRIED.contains(&name.as_str()) {
                self.settings = self.settings.with(name, &set_statement(name, value));
            }
        }
        if *self.search_path != *defaults.search_path {
            let path: Vec<String> = self.search_path.iter().map(|name| polyshard_sql::quoted(name)).collect();
            self.settings =
                self.settings.with("search_path", &set_statement("search_path", &path.join(", ")));
        } else {
            // It may have been another when the session began.
            self.settings = self.settings.without("search_path");
        }
    }

    /// What was set by statements, where nobody else keeps it. What SQLite shards do not know is left as it is there.
    fn carry_to_files(&mut self) {
        self.lite_settings = Arc::new(lite_settings(&self.door, self.user_name()));
        let parsed = self.settings.statements().filter_map(|text| polyshard_sql::statements(text).ok());
        let parsed: Vec<_> = parsed.flatten().collect();
        for statement in parsed {
            let (Kind::Set(setting) | Kind::SetConfig(setting)) = statement.kind() else { continue };
            let value = setting.values.as_ref().map(|values| values.join(", "));
            let said = self.client.out.len();
            if let Err(refused) = self.set_lite(&setting.name, value.as_deref(), "") {
                tracing::debug!(?refused, name = %setting.name, "a setting has no meaning on SQLite shards");
            }
            // The client has it set already.
            self.client.out.truncate(said);
        }
    }
}

/// Whether a statement's parameters have types that it gives them.
fn has_types(kind: &Kind) -> bool {
    matches!(kind, Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Declare(_))
}
