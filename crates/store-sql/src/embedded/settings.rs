//! SET and SHOW where no PostgreSQL server keeps the settings.

use std::sync::Arc;

use polyshard_lite::Zone;
use polyshard_sql::{SqlError, SqlState};

use crate::reply::{self, Field};
use crate::session::{Done, Session};

/// Settings that can be set to anything and change nothing here, and their values in the beginning.
const IGNORED: [(&str, &str); 26] = [
    ("application_name", ""),
    ("backslash_quote", "safe_encoding"),
    ("check_function_bodies", "on"),
    ("client_min_messages", "notice"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
    ("default_transaction_deferrable", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    ("extra_float_digits", "1"),
    ("geqo", "on"),
    ("idle_in_transaction_session_timeout", "0"),
    ("jit", "off"),
    ("lock_timeout", "0"),
    ("log_statement", "none"),
    ("max_identifier_length", "63"),
    ("row_security", "on"),
    ("server_version_num", "150000"),
    ("statement_timeout", "0"),
    ("synchronous_commit", "on"),
    ("tcp_keepalives_idle", "0"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
    ("work_mem", "4MB"),
    ("xmloption", "content"),
    ("session characteristics", ""),
];

/// Settings that can be one thing only.
const FIXED: [(&str, &str); 6] = [
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("password_encryption", "scram-sha-256"),
    ("standard_conforming_strings", "on"),
    ("server_encoding", "UTF8"),
    ("server_version", "15.0 (Polyshard)"),
];

/// Those that the protocol reports when they change, as it spells them.
const REPORTED: [(&str, &str); 2] = [("application_name", "application_name"), ("timezone", "TimeZone")];

impl Session {
    /// Sets something for the session; no value is the default.
    pub(crate) fn set_lite(&mut self, name: &str, value: Option<&str>, tag: &str) -> Done {
        let mut settings = polyshard_lite::Settings::clone(&self.lite_settings);
        let known = |list: &[(&str, &str)]| {
            list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let shown = match (name, value) {
            ("timezone", None | Some("default" | "local")) => {
                settings.zone = Zone::utc();
                "UTC".to_owned()
            }
            ("timezone", Some(zone)) => {
                settings.zone = Zone::parse(zone)?;
                settings.zone.name().to_owned()
            }
            ("bytea_output", value) => {
                settings.bytea_escape = value.is_some_and(|value| value.eq_ignore_ascii_case("escape"));
                if settings.bytea_escape { "escape".to_owned() } else { "hex".to_owned() }
            }
            ("search_path" | "client_encoding", _) => {
                reply::complete(&mut self.client.out, tag);
                return Ok(());
            }
            ("role" | "session_authorization", Some("none")) | ("role" | "session_authorization", None) => {
                reply::complete(&mut self.client.out, tag);
                return Ok(());
            }
            (name, value) => match (known(&IGNORED), known(&FIXED)) {
                (Some(default), _) => value.map_or(default, str::to_owned),
                (None, Some(only)) => {
                    let same = |text: &str| text.split(',').next().unwrap_or_default().trim().to_lowercase();
                    if value.is_some_and(|value| same(value) != same(&only)) {
                        return Err(SqlError::unsupported(
                            format!("{name} is always {only} on SQLite shards"),
                            "Use PostgreSQL shards to set it otherwise.",
                        )
                        .into());
                    }
                    only
                }
                (None, None) => {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    return Err(SqlError::new(SqlState("42704"), message).into());
                }
            },
        };
        settings.named.retain(|(known, _)| known != name);
        settings.named.push((name.to_owned(), shown.clone()));
        self.lite_settings = Arc::new(settings);
        if let Some((_, spelled)) = REPORTED.iter().find(|(known, _)| *known == name) {
            reply::parameter(&mut self.client.out, spelled, &shown);
        }
        if !tag.is_empty() {
            reply::complete(&mut self.client.out, tag);
        }
        Ok(())
    }

    /// SHOW.
    pub(crate) fn show_lite(&mut self, name: &str) -> Done {
        let name = match name {
            "transaction isolation level" | "transaction_isolation_level" => "transaction_isolation",
            "time zone" => "timezone",
            name => name,
        };
        let set =
            self.lite_settings.named.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let listed = IGNORED.iter().chain(&FIXED).find(|(known, _)| *known == name);
        let value = match (name, set, listed) {
            ("search_path", ..) => self.search_path.join(", "),
            ("timezone", ..) => self.lite_settings.zone.name().to_owned(),
            ("client_encoding", ..) => "UTF8".to_owned(),
            ("bytea_output", None, _) => "hex".to_owned(),
            (_, Some(value), _) => value,
            (_, None, Some((_, value))) => (*value).to_owned(),
            _ => {
                let message = format!("unrecognized configuration parameter \"{name}\"");
                return Err(SqlError::new(SqlState("42704"), message).into());
            }
        };
        self.columns(&[Field::text(name)]);
        reply::data_row(&mut self.client.out, [Some(value.as_str())].into_iter());
        reply::complete(&mut self.client.out, "SHOW");
        Ok(())
    }
}
