//! What of a session changes the meaning or the look of values.

use polyshard_sql::SqlError;

use crate::fail::{fail, unsupported};
use crate::value::calendar::{HOUR, MINUTE, SECOND, parse_offset};

/// A time zone with a fixed distance from UTC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    name: String,
    offset_micros: i64,
}

impl Zone {
    /// Universal time.
    pub fn utc() -> Zone {
        Zone { name: "UTC".to_owned(), offset_micros: 0 }
    }

    /// A zone by its name or distance, as `SET timezone` takes it. Zones that change over the year are not
    /// known on SQLite shards.
    pub fn parse(name: &str) -> Result<Zone, SqlError> {
        let lower = name.trim().to_ascii_lowercase();
        const UTC: [&str; 9] =
            ["utc", "gmt", "etc/utc", "etc/gmt", "z", "zulu", "universal", "greenwich", "etc/universal"];
        if UTC.contains(&lower.as_str()) {
            return Ok(Zone { name: name.trim().to_owned(), offset_micros: 0 });
        }
        if lower.bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'_' | b'-'))
            && !lower.is_empty()
        {
            return Err(unsupported(format!("the time zone {name} on SQLite shards"))
                .hint("use UTC or a fixed distance such as +02; PostgreSQL shards know all zones"));
        }
        // A number of hours counts to the east; any other distance counts to the west, as POSIX has it.
        if let Ok(hours) = lower.parse::<f64>()
            && hours.abs() <= 15.0
        {
            let offset_micros = (hours * HOUR as f64) as i64;
            return Ok(Zone { name: name.trim().to_owned(), offset_micros });
        }
        match parse_offset(&lower) {
            Some(offset_micros) => Ok(Zone { name: name.trim().to_owned(), offset_micros: -offset_micros }),
            None => Err(fail("22023", format!("invalid value for parameter \"TimeZone\": \"{name}\""))),
        }
    }

    /// A zone as `AT TIME ZONE` takes it: every distance counts to the west.
    pub(crate) fn parse_posix(name: &str) -> Result<Zone, SqlError> {
        match parse_offset(name.trim()) {
            Some(offset_micros) => Ok(Zone { name: name.trim().to_owned(), offset_micros: -offset_micros }),
            None => match Zone::parse(name) {
                Err(error) if error.state.0 == "22023" => {
                    Err(fail("22023", format!("time zone \"{name}\" not recognized")))
                }
                other => other,
            },
        }
    }

    /// As it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// East of UTC.
    pub(crate) fn offset_micros(&self) -> i64 {
        self.offset_micros
    }

    /// As it stands behind a timestamp.
    pub(crate) fn shown(&self) -> String {
        let (sign, rest) =
            if self.offset_micros < 0 { ('-', -self.offset_micros) } else { ('+', self.offset_micros) };
        let (hours, minutes, seconds) = (rest / HOUR, rest % HOUR / MINUTE, rest % MINUTE / SECOND);
        match (minutes, seconds) {
            (0, 0) => format!("{sign}{hours:02}"),
            (_, 0) => format!("{sign}{hours:02}:{minutes:02}"),
            _ => format!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
        }
    }
}

/// A session's settings; a prepared statement belongs to those it was prepared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// `TimeZone`.
    pub zone: Zone,
    /// What `current_user` is.
    pub user: String,
    /// Whether this user may do everything.
    pub is_superuser: bool,
    /// What `current_database()` is.
    pub database: String,
    /// What `version()` says.
    pub version: String,
    /// Whether bytes are shown in the old way (`bytea_output = escape`).
    pub bytea_escape: bool,
    /// Whether sizes cannot be told: a part of each relation is in files that the statement does not see.
    pub sizes_unknown: bool,
    /// Settings that `current_setting` can be asked for, by their names in lower case.
    pub named: Vec<(String, String)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            zone: Zone::utc(),
            user: "polyshard".to_owned(),
            is_superuser: true,
            database: "polyshard".to_owned(),
            version: "PostgreSQL 15.0 (Polyshard on SQLite shards)".to_owned(),
            bytea_escape: false,
            sizes_unknown: false,
            named: Vec::new(),
        }
    }
}
