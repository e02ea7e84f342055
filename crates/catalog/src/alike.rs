//! PostgreSQL shards write and order texts alike: what several of them answer is put together in one order.

use std::fmt::Write as _;

use polyshard_engine::{Dialect, Statement};
use polyshard_map::{ShardId, State};
use polyshard_shard::{Shard, ShardError};

use crate::driver::Driver;
use crate::error::CatalogError;

/// What decides about texts, in the order of [`NAMES`], and whether the server can tell the version of the order. What
/// a server of another version does not know is empty.
const ASK: &str = "SELECT pg_catalog.pg_encoding_to_char(d.encoding)::text, \
     coalesce(pg_catalog.to_jsonb(d) ->> 'datlocprovider', 'c'), \
     coalesce(pg_catalog.to_jsonb(d) ->> 'datlocale', pg_catalog.to_jsonb(d) ->> 'daticulocale', ''), \
     coalesce(pg_catalog.to_jsonb(d) ->> 'daticurules', ''), \
     d.datcollate::text, d.datctype::text, \
     (pg_catalog.current_setting('server_version_num')::int >= 150000)::text \
     FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()";
/// The version of the order that the operating system, or ICU, gives now. What the database was created with, or was
/// told of since, is another matter: files are carried to other servers, and servers get other libraries.
const ASK_VERSION: &str = "SELECT coalesce(pg_catalog.pg_database_collation_actual_version(d.oid), '') \
     FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()";
const NAMES: [&str; 6] =
    ["encoding", "locale provider", "locale", "ICU rules", "collation", "character type"];
/// The place of the provider among them, and of what counts only where the operating system orders.
const PROVIDER: usize = 1;
const OF_SYSTEM: std::ops::Range<usize> = 4..6;

/// How a shard's database writes and orders texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    shard: ShardId,
    facts: Vec<String>,
    /// Empty if it is not known, or if the order has none, as that of C.
    version: String,
}

/// How one database does it beside another, if both can be in one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Likeness {
    /// Alike.
    Same,
    /// Alike by name, but by another version of the operating system or of ICU: most texts are ordered alike, and what
    /// is not is in another order than elsewhere. The text is for people.
    OtherVersion(String),
}

impl Likeness {
    /// Says in the log what people should know.
    pub fn tell(&self) {
        if let Likeness::OtherVersion(words) = self {
            tracing::warn!("{words}");
        }
    }
}

impl Texts {
    /// Asks a PostgreSQL shard; nothing of an SQLite one, which writes and orders them in one way.
    pub async fn of(shard: &Shard) -> Result<Option<Texts>, CatalogError> {
        let wrap = |error: ShardError| CatalogError::Shard { shard: shard.id().clone(), error };
        if shard.dialect() != Dialect::Postgres {
            return Ok(None);
        }
        let mut asking = shard.control_snapshot().await.map_err(wrap)?;
        let rows = asking.run(Statement::new(ASK)).await.map_err(|error| wrap(error.into()))?;
        let tells = rows.first().map(|row| row.text(NAMES.len()).map(|tells| tells == "true"));
        let versions = match tells.transpose().map_err(|error| wrap(error.into()))? {
            Some(true) => {
                Some(asking.run(Statement::new(ASK_VERSION)).await.map_err(|error| wrap(error.into()))?)
            }
            _ => None,
        };
        asking.rollback().await.map_err(|error| wrap(error.into()))?;
        let row = rows.first().ok_or_else(|| wrap(ShardError::NotAShard))?;
        let facts = (0..NAMES.len()).map(|at| row.text(at).map(ToOwned::to_owned)).collect::<Result<_, _>>();
        let facts = facts.map_err(|error| wrap(error.into()))?;
        let version = versions.as_ref().and_then(|rows| rows.first()).map(|row| row.text(0)).transpose();
        let version = version.map_err(|error| wrap(error.into()))?.unwrap_or_default().to_owned();
        Ok(Some(Texts { shard: shard.id().clone(), facts, version }))
    }

    /// Refuses this one beside another that surely does it otherwise.
    pub fn check_like(&self, other: &Texts) -> Result<Likeness, CatalogError> {
        let by_system = self.facts.get(PROVIDER).is_some_and(|provider| provider == "c");
        let counts = |at: &usize| by_system || !OF_SYSTEM.contains(at);
        let differs = |at: &usize| spelling(*at, &self.facts[*at]) != spelling(*at, &other.facts[*at]);
        let Some(at) = (0..NAMES.len()).filter(counts).find(differs) else {
            return Ok(self.version_beside(other));
        };
        Err(CatalogError::Invalid(format!(
            "the database of shard {} has {} {}, that of shard {} has {}, so texts of both have no order in common; \
             create the database alike: CREATE DATABASE … TEMPLATE template0{}",
            self.shard,
            NAMES[at],
            shown(&self.facts[at]),
            other.shard,
            shown(&other.facts[at]),
            other.wording(),
        )))
    }

    fn version_beside(&self, other: &Texts) -> Likeness {
        // Before PostgreSQL 15 none is known.
        if self.version == other.version || self.version.is_empty() || other.version.is_empty() {
            return Likeness::Same;
        }
        Likeness::OtherVersion(format!(
            "the server of shard {} orders texts by version {} of its operating system's or ICU's rules, that of shard \
             {} by version {}: some texts may be in another order there, and so in what several shards answer \
             together; use servers of one version, and REINDEX what was moved to another",
            self.shard, self.version, other.shard, other.version
        ))
    }

    /// The options of CREATE DATABASE by which another comes out like this.
    fn wording(&self) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let [encoding, provider, locale, rules, collation, character_type] = self.facts.as_slice() else {
            return String::new();
        };
        let mut words = format!(" ENCODING {}", quoted(encoding));
        let provided = match provider.as_str() {
            "i" => Some(("icu", "ICU_LOCALE")),
            "b" => Some(("builtin", "BUILTIN_LOCALE")),
            _ => None,
        };
        if let Some((name, option)) = provided {
            // Writing to a string does not fail.
            let _ = write!(words, " LOCALE_PROVIDER {name} {option} {}", quoted(locale));
            if !rules.is_empty() {
                let _ = write!(words, " ICU_RULES {}", quoted(rules));
            }
        }
        let _ = write!(words, " LC_COLLATE {} LC_CTYPE {}", quoted(collation), quoted(character_type));
        words
    }
}

/// A fact as it is compared: operating systems write one locale in several ways, as `en_US.UTF-8` and `en_US.utf8`.
fn spelling(at: usize, fact: &str) -> String {
    let small = fact.to_ascii_lowercase();
    match NAMES[at] {
        "locale" => small.replace('_', "-"),
        "collation" | "character type" => match small.split_once('.') {
            Some((place, code)) => format!("{place}.{}", code.replace(['-', '_'], "")),
            None if small == "posix" => "c".to_owned(),
            None => small,
        },
        _ => fact.to_owned(),
    }
}

fn shown(fact: &str) -> &str {
    match fact {
        "" => "none",
        "c" => "libc",
        "i" => "icu",
        "b" => "builtin",
        fact => fact,
    }
}

impl Driver {
    /// Refuses a database that is to become a shard, and writes or orders texts otherwise than the shards do that are
    /// there. Where they differ among themselves, as in clusters that were made before anybody looked, one that does it
    /// alike is enough. What is only of another version is told in the log.
    pub async fn check_alike(&self, opened: &Shard) -> Result<(), CatalogError> {
        let Some(texts) = Texts::of(opened).await? else { return Ok(()) };
        let (mut nearest, mut refused) = (None, None);
        for record in self.catalog().shards().await? {
            if record.id == *opened.id()
                || record.state == State::Offline
                || record.url.starts_with("sqlite:")
            {
                continue;
            }
            let asked = async { Texts::of(&*self.shard(&record.id).await?).await };
            match asked.await {
                Ok(Some(others)) => match texts.check_like(&others) {
                    Ok(Likeness::Same) => return Ok(()),
                    Ok(other) => nearest = nearest.or(Some(other)),
                    Err(error) => refused = refused.or(Some(error)),
                },
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "a shard cannot say how it orders texts; another is asked")
                }
            }
        }
        match (nearest, refused) {
            (Some(nearest), _) => {
                nearest.tell();
                Ok(())
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use polyshard_map::ShardId;

    use super::{Likeness, Texts};

    fn texts(shard: &str, facts: [&str; 6]) -> Texts {
        let facts = facts.map(str::to_owned).to_vec();
        Texts { shard: ShardId::new(shard).unwrap(), facts, version: String::new() }
    }

    #[test]
    fn what_differs_is_named_with_the_way_to_make_it_alike() {
        let mine = texts("s2", ["UTF8", "c", "", "", "en_US.UTF-8", "en_US.UTF-8"]);
        let theirs = texts("s1", ["UTF8", "c", "", "", "C.UTF-8", "C.UTF-8"]);
        let error = mine.check_like(&theirs).unwrap_err().to_string();
        assert_eq!(
            error,
            "the database of shard s2 has collation en_US.UTF-8, that of shard s1 has C.UTF-8, so texts of both have \
             no order in common; create the database alike: CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8' \
             LC_COLLATE 'C.UTF-8' LC_CTYPE 'C.UTF-8'"
        );
        assert!(mine.check_like(&mine).is_ok());
        let icu = texts("s1", ["UTF8", "i", "en-US", "", "C", "C"]);
        let error = mine.check_like(&icu).unwrap_err().to_string();
        assert!(
            error.contains("locale provider libc")
                && error.contains("LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
        );
        let other = texts("s1", ["UTF8", "i", "de", "", "C", "C"]);
        assert!(icu.check_like(&other).unwrap_err().to_string().contains("has locale en-US"));
    }

    #[test]
    fn one_locale_is_written_in_several_ways() {
        let of = |name| texts("s1", ["UTF8", "c", "", "", name, name]);
        for (one, other) in
            [("en_US.UTF-8", "en_US.utf8"), ("C", "POSIX"), ("de_DE.ISO-8859-1", "de_DE.iso88591")]
        {
            assert_eq!(of(one).check_like(&of(other)).unwrap(), Likeness::Same, "{one} {other}");
        }
        for (one, other) in [("en_US.UTF-8", "en_GB.UTF-8"), ("C", "C.UTF-8"), ("de_DE.utf8", "de_DE.utf8@x")]
        {
            assert!(of(one).check_like(&of(other)).is_err(), "{one} {other}");
        }
        // Where ICU orders, the operating system does not.
        let icu = |name| texts("s1", ["UTF8", "i", "en-US", "", name, name]);
        assert_eq!(icu("C").check_like(&icu("en_US.utf8")).unwrap(), Likeness::Same);
    }

    #[test]
    fn another_version_is_told_and_not_refused() {
        let of = |version: &str| Texts {
            version: version.to_owned(),
            ..texts("s1", ["UTF8", "c", "", "", "en_US.UTF-8", "en_US.UTF-8"])
        };
        assert_eq!(of("2.36").check_like(&of("")).unwrap(), Likeness::Same);
        assert_eq!(of("").check_like(&of("2.36")).unwrap(), Likeness::Same);
        assert_eq!(of("2.36").check_like(&of("2.36")).unwrap(), Likeness::Same);
        let Likeness::OtherVersion(words) = of("2.36").check_like(&of("2.27")).unwrap() else {
            panic!("the same")
        };
        assert!(words.contains("version 2.36") && words.contains("version 2.27"), "{words}");
    }
}
