//! SET and SHOW where no PostgreSQL server keeps the settings.

use std::sync::Arc;

use polyshard_sql::{SqlError, SqlState};
use polyshard_sql_on_sqlite::{FIXED_SETTINGS, IGNORED_SETTINGS, Zone, all_settings};

use crate::reply::{self, Field};
use crate::session::{Done, Session};

/// Those that the protocol reports when they change, as it spells them.
const REPORTED: [(&str, &str); 2] = [("application_name", "application_name"), ("timezone", "TimeZone")];

/// The columns of SHOW ALL.
fn all_fields() -> [Field; 3] {
    ["name", "setting", "description"].map(Field::text)
}

/// The columns of SHOW.
pub(super) fn show_fields(name: &str) -> Vec<Field> {
    if name == "all" { all_fields().into() } else { vec![Field::text(name)] }
}

impl Session {
    /// Sets something for the session; no value is the default.
    pub(crate) fn set_lite(&mut self, name: &str, value: Option<&str>, tag: &str) -> Done {
        let mut settings = polyshard_sql_on_sqlite::Settings::clone(&self.lite_settings);
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
            (name, value) => match (known(&IGNORED_SETTINGS), known(&FIXED_SETTINGS)) {
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
        if name == "application_name" {
            self.note_application(&shown);
        }
        if let Some((_, spelled)) = REPORTED.iter().find(|(known, _)| *known == name) {
            reply::parameter(&mut self.client.out, spelled, &shown);
        }
        if !tag.is_empty() {
            reply::complete(&mut self.client.out, tag);
        }
        Ok(())
    }

    /// SHOW ALL.
    fn show_all_lite(&mut self) -> Done {
        self.columns(&all_fields());
        let all = all_settings(&self.lite_settings, &self.search_path);
        for (name, value) in &all {
            let row = [Some(name.as_str()), Some(value.as_str()), Some("")];
            reply::data_row(&mut self.client.out, row.into_iter());
        }
        reply::complete(&mut self.client.out, "SHOW");
        Ok(())
    }

    /// SHOW.
    pub(crate) fn show_lite(&mut self, name: &str) -> Done {
        if name == "all" {
            return self.show_all_lite();
        }
        let name = match name {
            "transaction isolation level" | "transaction_isolation_level" => "transaction_isolation",
            "time zone" => "timezone",
            name => name,
        };
        let set =
            self.lite_settings.named.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let listed = IGNORED_SETTINGS.iter().chain(&FIXED_SETTINGS).find(|(known, _)| *known == name);
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
