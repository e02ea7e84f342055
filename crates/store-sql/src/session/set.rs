//! SET, RESET, SHOW and DISCARD: settings belong to the client's session, whichever shard's session works for it.

use std::sync::Arc;

use polyshard_router::Access;
use polyshard_sql::{
    Analysis, Discard, Isolation, Kind, Setting, SqlError, SqlState, Statement, TransactionModes,
};

use super::place::Wanted;
use super::transaction::Transaction;
use super::{Done, Session, Stop, bad_setting};
use crate::reply::{self, Field, Severity, state};
use crate::settings::{self, Own, Settings};

/// What a session has left behind by acting as if there were no transaction.
pub(super) struct Outside {
    transaction: Transaction,
    settings: Arc<Settings>,
}

/// SET LOCAL as it is said for a session.
fn said_for_session(text: &str, setting: &Setting, values: &[String]) -> String {
    let mut words = text.trim_start().splitn(3, char::is_whitespace);
    match (words.next(), words.next(), words.next()) {
        (Some(set), Some(local), Some(rest))
            if set.eq_ignore_ascii_case("set") && local.eq_ignore_ascii_case("local") =>
        {
            format!("SET {}", rest.trim_end().trim_end_matches(';'))
        }
        _ => settings::set_statement(&setting.name, &values.join(", ")),
    }
}

impl Session {
    /// SET.
    pub(super) async fn set(&mut self, statement: &Statement, setting: &Setting) -> Done {
        let name = setting.name.as_str();
        let value = setting.values.as_ref().map(|values| values.join(", "));
        self.check_set_recorded(Some(name))?;
        if Own::has(name) {
            self.own.set(name, value.as_deref()).map_err(bad_setting)?;
            reply::complete(&mut self.client.out, "SET");
            return Ok(());
        }
        check_value(name, value.as_deref())?;
        self.check_setting(name)?;
        if name == "search_path" {
            check_search_path(setting.values.iter().flatten())?;
            if let Some(text) = without_own_schema(setting) {
                let parsed = polyshard_sql::statements(&text)?;
                let Some((statement, Kind::Set(setting))) = parsed.first().map(|set| (set, set.kind()))
                else {
                    return Err(bad_setting("invalid value for parameter \"search_path\"".to_owned()).into());
                };
                return Box::pin(self.set(statement, setting)).await;
            }
        }
        if name == "transaction_isolation" && value.as_deref().is_some_and(settings::is_one_snapshot) {
            let serializable = value.as_deref().is_some_and(settings::is_serializable);
            let isolation =
                Some(if serializable { Isolation::Serializable } else { Isolation::RepeatableRead });
            self.note_modes(&TransactionModes { isolation, ..TransactionModes::default() });
        }
        if name == "client_encoding" || name == "names" {
            reply::complete(&mut self.client.out, "SET");
            return Ok(());
        }
        if self.embedded {
            self.set_lite(name, value.as_deref(), "SET")?;
        } else if setting.local {
            self.transaction.note_local(name);
            self.in_transaction(statement, "SET LOCAL").await?;
        } else {
            let said = setting.values.is_some().then(|| statement.text().to_string());
            self.set_for_session(statement.text(), &[(name, said)]).await?;
        }
        if name == "search_path" && !self.transaction.failed {
            self.search_path = match &setting.values {
                Some(values) => values.iter().filter(|name| *name != "$user").cloned().collect(),
                None => self.door.defaults().await?.search_path.clone(),
            };
            self.transaction.note_search_path(setting.local, &self.search_path);
        }
        Ok(())
    }

    /// `SELECT set_config(…)` as a whole statement: SET, answered by the value.
    pub(super) async fn set_config(&mut self, setting: &Setting) -> Done {
        let value = setting.values.as_deref().and_then(<[String]>::first).cloned().unwrap_or_default();
        let local = if setting.local { "LOCAL " } else { "" };
        let text = match (setting.name.as_str(), value.is_empty()) {
            // A list of names, which would be one name in quotes.
            ("search_path", false) => format!("SET {local}search_path TO {value}"),
            (name, _) => {
                format!("SET {local}{} TO {}", settings::quoted_name(name), settings::quoted(&value))
            }
        };
        let parsed = polyshard_sql::statements(&text)?;
        let Some((statement, Kind::Set(setting))) = parsed.first().map(|set| (set, set.kind())) else {
            return Err(bad_setting(format!("invalid value for parameter \"{}\"", setting.name)).into());
        };
        // Nothing else is in the way of taking its tag out again; what is reported of settings stays.
        self.client.flush().await?;
        Box::pin(self.set(statement, setting)).await?;
        if self.told {
            return Ok(());
        }
        let mut said = self.client.out.split();
        while said.len() >= 5 {
            let length = u32::from_be_bytes([said[1], said[2], said[3], said[4]]) as usize + 1;
            let message = said.split_to(length.min(said.len()));
            if message[0] != b'C' {
                self.client.out.extend_from_slice(&message);
            }
        }
        self.columns(&[Field::text("set_config")]);
        reply::data_row(&mut self.client.out, [Some(value.as_str())].into_iter());
        reply::complete(&mut self.client.out, "SELECT 1");
        Ok(())
    }

    /// Notes that a statement sets something for the transaction: what was prepared before may mean something else
    /// then. What a function of the user's sets is not seen.
    pub(super) fn note_configs(&mut self, statement: &Statement, analysis: &Analysis) {
        let Some(backend) = &mut self.backend else { return };
        if self.transaction.is_none() || analysis.is_aside() {
            return;
        }
        let mut called = analysis.called().iter();
        if !called.any(|called| called.name == "set_config") {
            return;
        }
        let names = crate::refuse::local_configs(statement.text()).unwrap_or_default();
        if names.iter().any(|name| settings::has_meaning(name)) {
            backend.note_local();
        }
        for name in names {
            self.transaction.note_local(&name);
            let set = (backend.shard.clone(), name);
            self.transaction.configs.retain(|(_, known)| *known != set.1);
            self.transaction.configs.push(set);
        }
    }

    /// Has the transaction's other sessions, and those that it takes from now on, have what its statements have set:
    /// the session where they ran knows the values.
    pub(crate) async fn share_configs(&mut self) -> Done {
        if self.transaction.configs.is_empty() || self.transaction.failed || self.transaction.lost {
            return Ok(());
        }
        self.settle().await?;
        let current = self.backend.as_ref().map(|backend| backend.shard.clone());
        for (shard, name) in self.transaction.configs.clone() {
            if !self.switch_to(&shard) {
                continue;
            }
            let Some(backend) = &mut self.backend else { continue };
            let asked = format!("SELECT pg_catalog.current_setting({}, true)", settings::quoted(&name));
            let said = backend.ask_row(&asked).await.map_err(|error| reply::of_engine(&error))?;
            let Some(value) = said.into_iter().next().flatten() else { continue };
            let set = settings::set_statement(&name, &value);
            let set: Arc<str> = Arc::from(match set.strip_prefix("SET ") {
                Some(rest) => format!("SET LOCAL {rest}"),
                // DateStyle takes a list as one text, too.
                None => format!("SET LOCAL {name} TO {}", settings::quoted(&value)),
            });
            for backend in self.parked.values_mut() {
                backend.note_local();
            }
            self.run_on_parked(&set).await?;
            let about = |said: &Arc<str>| {
                said.strip_prefix("SET LOCAL ")
                    .is_some_and(|rest| rest.starts_with(&settings::quoted_name(&name)))
            };
            if self.transaction.prelude.iter().rev().find(|said| about(said)) != Some(&set) {
                self.say_first(&set);
            }
        }
        if let Some(current) = current {
            self.switch_to(&current);
        }
        Ok(())
    }

    /// RESET.
    pub(super) async fn reset(&mut self, statement: &Statement, name: Option<&str>) -> Done {
        self.check_set_recorded(name)?;
        match name {
            Some(name) if Own::has(name) => {
                self.own.set(name, None).map_err(bad_setting)?;
                reply::complete(&mut self.client.out, "RESET");
            }
            Some("client_encoding") => reply::complete(&mut self.client.out, "RESET"),
            Some(name) => {
                if self.embedded {
                    self.set_lite(name, None, "RESET")?;
                } else {
                    self.set_for_session(statement.text(), &[(name, None)]).await?;
                }
                if name == "search_path" && !self.transaction.failed {
                    self.search_path = self.door.defaults().await?.search_path.clone();
                    self.transaction.note_search_path(false, &self.search_path);
                }
            }
            None => self.reset_all("RESET").await?,
        }
        Ok(())
    }

    async fn reset_all(&mut self, tag: &str) -> Done {
        if self.backend.is_some() {
            return Err(SqlError::unsupported(
                "all settings cannot be reset inside a transaction",
                "End the transaction first, or reset them one by one.",
            )
            .into());
        }
        self.own = Own::default();
        self.search_path = self.door.defaults().await?.search_path.clone();
        let path = self.search_path.clone();
        self.transaction.note_search_path(false, &path);
        if self.embedded {
            self.lite_settings = Arc::new(super::lite_settings(&self.door, self.user_name()));
            self.settings = Arc::default();
        } else if !self.settings.is_empty() {
            self.settings = Arc::default();
            // A shard's session is brought to it at once, so that the client hears what its settings are now.
            let outside = self.step_outside();
            let acquired = self.acquire(&Wanted::Anywhere, Access::Read).await;
            self.release().await;
            self.step_inside(outside);
            acquired?;
        }
        reply::complete(&mut self.client.out, tag);
        Ok(())
    }

    /// Sets something for the session, on a shard first: it knows whether the value can be. The settings come with the
    /// statement that sets each; none resets it.
    async fn set_for_session(&mut self, text: &Arc<str>, changes: &[(&str, Option<String>)]) -> Done {
        if let Some(backend) = &mut self.backend {
            backend.set_inside |= !self.transaction.is_none();
            self.pass_query(text).await?;
            if !self.told {
                // Wherever else the transaction is, the same words must mean the same.
                self.run_on_parked(text).await?;
                for backend in self.parked.values_mut() {
                    backend.set_inside = true;
                }
            }
        } else {
            let outside = self.step_outside();
            let mut done = self.acquire(&Wanted::Anywhere, Access::Read).await;
            if done.is_ok() {
                done = self.pass_query(text).await;
            }
            if done.is_ok() && !self.told {
                // Noted before it is given back: the next one to lend it must know.
                let settings = self.settings_after(changes);
                if let Some(backend) = &mut self.backend {
                    backend.note_settings(&settings);
                }
            }
            self.release().await;
            self.step_inside(outside);
            done?;
            if self.told {
                return Err(Stop::Told);
            }
        }
        if self.transaction.failed || self.told {
            return Ok(());
        }
        self.settings = self.settings_after(changes);
        for backend in self.backend.iter_mut().chain(self.parked.values_mut()) {
            backend.note_settings(&self.settings);
        }
        Ok(())
    }

    fn settings_after(&self, changes: &[(&str, Option<String>)]) -> Arc<Settings> {
        changes.iter().fold(self.settings.clone(), |settings, (name, said)| match said {
            Some(said) => settings.with(name, said),
            None => settings.without(name),
        })
    }

    /// Acts as if there were no transaction until [`Session::step_inside`]: it is not on a shard so far. What is set
    /// for the transaction alone holds all the same.
    pub(super) fn step_outside(&mut self) -> Outside {
        self.routed_by = None;
        let settings = self.settings_now();
        let settings = std::mem::replace(&mut self.settings, settings);
        Outside { transaction: std::mem::replace(&mut self.transaction, Transaction::none()), settings }
    }

    pub(super) fn step_inside(&mut self, outside: Outside) {
        self.transaction = outside.transaction;
        self.settings = outside.settings;
    }

    /// The settings as a statement of the transaction has them: those of the session, and what is set for the
    /// transaction alone.
    pub(super) fn settings_now(&self) -> Arc<Settings> {
        let mut settings = self.settings.clone();
        let said = self.transaction.opening().map_or(&[][..], |(_, prelude)| prelude);
        for text in said {
            let parsed = polyshard_sql::statements(text).ok();
            if let Some(Kind::Set(setting)) =
                parsed.as_ref().and_then(|all| all.first()).map(|set| set.kind())
                && setting.local
            {
                settings = match &setting.values {
                    Some(values) => settings.with(&setting.name, &said_for_session(text, setting, values)),
                    None => settings.without(&setting.name),
                };
            }
        }
        settings
    }

    /// Something that concerns the running transaction alone.
    pub(super) async fn in_transaction(&mut self, statement: &Statement, what: &str) -> Done {
        self.take_up();
        if self.transaction.is_none() {
            let message = format!("{what} can only be used in transaction blocks");
            self.notice(Severity::Warning, &SqlError::new(state::NO_ACTIVE_TRANSACTION, message));
        } else if self.backend.is_some() {
            if matches!(statement.kind(), Kind::Set(setting) if settings::has_meaning(&setting.name)) {
                for backend in self.backend.iter_mut().chain(self.parked.values_mut()) {
                    backend.note_local();
                }
            }
            self.pass_query(statement.text()).await?;
            if !self.told {
                self.run_on_parked(statement.text()).await?;
                self.say_first(statement.text());
            }
            return Ok(());
        } else if !self.embedded {
            self.say_first(statement.text());
        }
        reply::complete(&mut self.client.out, if what == "SET LOCAL" { "SET" } else { what });
        Ok(())
    }

    /// SET TRANSACTION, and SET SESSION CHARACTERISTICS.
    pub(super) async fn set_transaction(
        &mut self,
        statement: &Statement,
        session: bool,
        modes: &TransactionModes,
    ) -> Done {
        if self.embedded {
            self.note_modes(modes);
            reply::complete(&mut self.client.out, "SET");
            return Ok(());
        }
        if session {
            return self.set_for_session(statement.text(), &characteristics(modes)).await;
        }
        self.note_modes(modes);
        self.in_transaction(statement, "SET LOCAL").await
    }

    /// SHOW of a setting of the door's own; false for any other.
    pub(super) async fn show(&mut self, name: &str) -> Result<bool, Stop> {
        let Some(value) = self.own.show(name).map(str::to_owned) else { return Ok(false) };
        self.columns(&[Field::text(name)]);
        reply::data_row(&mut self.client.out, [Some(value.as_str())].into_iter());
        reply::complete(&mut self.client.out, "SHOW");
        Ok(true)
    }

    /// DISCARD. What a session of a shard keeps is not the client's to discard.
    pub(super) async fn discard(&mut self, what: Discard) -> Done {
        if what == Discard::All {
            if !self.transaction.is_none() {
                let message = "DISCARD ALL cannot run inside a transaction block";
                return Err(SqlError::new(state::ACTIVE_TRANSACTION, message).into());
            }
            self.statements.clear();
            self.portals.clear();
            self.close_all_held().await?;
            return self.reset_all("DISCARD ALL").await;
        }
        let tag = match what {
            Discard::All => "DISCARD ALL",
            Discard::Plans => "DISCARD PLANS",
            Discard::Sequences => "DISCARD SEQUENCES",
            Discard::Temporary => "DISCARD TEMP",
        };
        reply::complete(&mut self.client.out, tag);
        Ok(())
    }

    /// DEALLOCATE.
    pub(super) fn deallocate(&mut self, name: Option<&str>) -> Done {
        match name {
            None => {
                self.statements.clear();
                reply::complete(&mut self.client.out, "DEALLOCATE ALL");
            }
            Some(name) => {
                if self.statements.remove(name).is_none() {
                    let message = format!("prepared statement \"{name}\" does not exist");
                    return Err(SqlError::new(state::INVALID_STATEMENT_NAME, message).into());
                }
                reply::complete(&mut self.client.out, "DEALLOCATE");
            }
        }
        Ok(())
    }

    /// Checks the settings of a start-up packet on a shard, and hears what it reports of them.
    pub(super) async fn check_settings(&mut self, reported: &mut [(String, String)]) -> Done {
        let before = self.client.out.len();
        let acquired = self.acquire(&Wanted::Anywhere, Access::Read).await;
        // What the shard said was meant for this, not for the client: it is not that far yet.
        let mut said = self.client.out.split_off(before);
        let refused = self.told;
        self.release().await;
        while said.len() >= 5 {
            let length = u32::from_be_bytes([said[1], said[2], said[3], said[4]]) as usize + 1;
            let message = said.split_to(length.min(said.len()));
            let body = &message[5..];
            match message[0] {
                b'S' => {
                    let mut parts = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
                    let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                    for (_, known) in reported.iter_mut().filter(|(known, _)| *known == name) {
                        *known = value.clone().into_owned();
                    }
                }
                b'E' => {
                    let said =
                        crate::backend::field(body, b'M').unwrap_or("a setting was refused").to_owned();
                    return Err(Stop::Fatal(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, said)));
                }
                _ => {}
            }
        }
        debug_assert!(!refused || acquired.is_err());
        acquired
    }

    /// Settings made since a savepoint are undone with it: the search path must be what the shard has.
    pub(super) async fn settings_rolled_back(&mut self) -> Done {
        for backend in self.backend.iter_mut().chain(self.parked.values_mut()) {
            // What is noted of it was, in part, undone.
            backend.closing |= backend.set_inside;
            backend.note_rolled_back();
        }
        if !self.transaction.search_path_changed() {
            return Ok(());
        }
        let Some(backend) = &mut self.backend else { return Ok(()) };
        match backend.ask("SHOW search_path").await {
            Ok(shown) => {
                self.search_path = settings::search_path(&shown);
                Ok(())
            }
            Err(error) => Err(self.lose(crate::reply::of_engine(&error), true).await),
        }
    }
}

/// SET SESSION CHARACTERISTICS as the settings that it sets.
fn characteristics(modes: &TransactionModes) -> Vec<(&'static str, Option<String>)> {
    let isolation = modes.isolation.map(|isolation| match isolation {
        Isolation::ReadUncommitted => "read uncommitted",
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Serializable => "serializable",
    });
    let word = |truth| if truth { "on" } else { "off" };
    let all = [
        ("default_transaction_isolation", isolation),
        ("default_transaction_read_only", modes.read_only.map(word)),
        ("default_transaction_deferrable", modes.deferrable.map(word)),
    ];
    let said = |(name, value): (&'static str, Option<&str>)| {
        value.map(|value| (name, Some(settings::set_statement(name, value))))
    };
    all.into_iter().filter_map(said).collect()
}

/// A name without a schema is looked for on the shards along the path, where Polyshard has tables of its own.
pub(super) fn check_search_path<'a>(mut schemas: impl Iterator<Item = &'a String>) -> Result<(), SqlError> {
    match schemas.any(|schema| schema.eq_ignore_ascii_case("polyshard")) {
        false => Ok(()),
        true => Err(SqlError::new(
            state::INSUFFICIENT_PRIVILEGE,
            "schema \"polyshard\" cannot be in the search_path: what is in it is no table to SQL",
        )
        .hint("SET search_path to the schemas of your tables; functions of Polyshard are called by their whole name.")),
    }
}

/// The same setting without `"$user"`, if it has that: no client has a schema of his own, and on a shard whose role is
/// called `polyshard` it would be Polyshard's.
fn without_own_schema(setting: &Setting) -> Option<String> {
    let values = setting.values.as_ref().filter(|values| values.iter().any(|name| name == "$user"))?;
    let others = values.iter().filter(|name| *name != "$user");
    let others: Vec<String> = others.map(|name| polyshard_sql::quoted(name)).collect();
    let path = if others.is_empty() { "''".to_owned() } else { others.join(", ") };
    Some(format!("SET {}search_path TO {path}", if setting.local { "LOCAL " } else { "" }))
}

/// Refuses values of settings under which the door and the shards would read a text differently.
pub(super) fn check_value(name: &str, value: Option<&str>) -> Result<(), SqlError> {
    match (name, value) {
        ("client_encoding" | "names", Some(value)) => check_encoding(value),
        ("standard_conforming_strings", Some(value))
            if !["on", "true", "yes", "1"].contains(&value.to_ascii_lowercase().as_str()) =>
        {
            Err(SqlError::unsupported(
                "standard_conforming_strings is always on here",
                "Write texts with backslashes as E'…'.",
            ))
        }
        _ => Ok(()),
    }
}

/// Only UTF-8 is spoken: a key in another encoding would be placed by other bytes.
fn check_encoding(value: &str) -> Result<(), SqlError> {
    let plain: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    if plain.eq_ignore_ascii_case("utf8") || plain.eq_ignore_ascii_case("unicode") || plain == "auto" {
        return Ok(());
    }
    Err(SqlError::unsupported(
        format!("client_encoding {value} is not offered"),
        "Set client_encoding to UTF8.",
    ))
}
