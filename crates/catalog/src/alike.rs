//! PostgreSQL shards write and order texts alike: what several of them answer is put together in one order.

use std::fmt::Write as _;

use polyshard_engine::{Dialect, Statement};
use polyshard_map::{ShardId, State};
use polyshard_shard::{Shard, ShardError};

use crate::driver::Driver;
use crate::error::CatalogError;

/// What decides about texts, in the order of [`NAMES`]. What a server of another version does not know is empty.
const ASK: &str = "SELECT pg_catalog.pg_encoding_to_char(d.encoding)::text, \
     coalesce(pg_catalog.to_jsonb(d) ->> 'datlocprovider', 'c'), \
     coalesce(pg_catalog.to_jsonb(d) ->> 'datlocale', pg_catalog.to_jsonb(d) ->> 'daticulocale', ''), \
     coalesce(pg_catalog.to_jsonb(d) ->> 'daticurules', ''), \
     d.datcollate::text, d.datctype::text, coalesce(pg_catalog.to_jsonb(d) ->> 'datcollversion', '') \
     FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()";
const NAMES: [&str; 7] = [
    "encoding",
    "locale provider",
    "locale",
    "ICU rules",
    "collation",
    "character type",
    "collation version",
];
/// The version of the order that the operating system, or ICU, gives: the last of them.
const VERSION: usize = NAMES.len() - 1;

/// How a shard's database writes and orders texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    shard: ShardId,
    facts: Vec<String>,
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
        asking.rollback().await.map_err(|error| wrap(error.into()))?;
        let row = rows.first().ok_or_else(|| wrap(ShardError::NotAShard))?;
        let facts = (0..NAMES.len()).map(|at| row.text(at).map(ToOwned::to_owned)).collect::<Result<_, _>>();
        Ok(Some(Texts { shard: shard.id().clone(), facts: facts.map_err(|error| wrap(error.into()))? }))
    }

    /// Refuses this one beside another that does it otherwise.
    pub fn check_like(&self, other: &Texts) -> Result<(), CatalogError> {
        let pairs = self.facts.iter().zip(&other.facts);
        let differs = |at: usize, mine: &str, theirs: &str| {
            // Before PostgreSQL 15 none is known.
            mine != theirs && (at != VERSION || !(mine.is_empty() || theirs.is_empty()))
        };
        let Some((at, (mine, theirs))) =
            pairs.enumerate().find(|(at, (mine, theirs))| differs(*at, mine, theirs))
        else {
            return Ok(());
        };
        let remedy = match at {
            VERSION => "use servers whose operating system, or ICU, is of one version".to_owned(),
            _ => {
                format!("create the database alike: CREATE DATABASE … TEMPLATE template0{}", other.wording())
            }
        };
        Err(CatalogError::Invalid(format!(
            "the database of shard {} has {} {}, that of shard {} has {}, so texts of both have no order in common; \
             {remedy}",
            self.shard,
            NAMES[at],
            shown(mine),
            other.shard,
            shown(theirs),
        )))
    }

    /// The options of CREATE DATABASE by which another comes out like this.
    fn wording(&self) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let [encoding, provider, locale, rules, collation, character_type, _] = self.facts.as_slice() else {
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
    /// there. They are all alike, so one that can be asked is enough.
    pub async fn check_alike(&self, opened: &Shard) -> Result<(), CatalogError> {
        let Some(texts) = Texts::of(opened).await? else { return Ok(()) };
        for record in self.catalog().shards().await? {
            if record.id == *opened.id()
                || record.state == State::Offline
                || record.url.starts_with("sqlite:")
            {
                continue;
            }
            let asked = async { Texts::of(&*self.shard(&record.id).await?).await };
            match asked.await {
                Ok(Some(others)) => return texts.check_like(&others),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "a shard cannot say how it orders texts; another is asked")
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use polyshard_map::ShardId;

    use super::Texts;

    fn texts(shard: &str, facts: [&str; 7]) -> Texts {
        Texts { shard: ShardId::new(shard).unwrap(), facts: facts.map(str::to_owned).to_vec() }
    }

    #[test]
    fn what_differs_is_named_with_the_way_to_make_it_alike() {
        let mine = texts("s2", ["UTF8", "c", "", "", "en_US.UTF-8", "en_US.UTF-8", "2.36"]);
        let theirs = texts("s1", ["UTF8", "c", "", "", "C.UTF-8", "C.UTF-8", ""]);
        let error = mine.check_like(&theirs).unwrap_err().to_string();
        assert_eq!(
            error,
            "the database of shard s2 has collation en_US.UTF-8, that of shard s1 has C.UTF-8, so texts of both have \
             no order in common; create the database alike: CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8' \
             LC_COLLATE 'C.UTF-8' LC_CTYPE 'C.UTF-8'"
        );
        assert!(mine.check_like(&mine).is_ok());
        let icu = texts("s1", ["UTF8", "i", "en-US", "", "C", "C", "153.14"]);
        let error = mine.check_like(&icu).unwrap_err().to_string();
        assert!(
            error.contains("locale provider libc")
                && error.contains("LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
        );
    }

    #[test]
    fn versions_count_where_both_are_known() {
        let of = |version| texts("s1", ["UTF8", "c", "", "", "en_US.UTF-8", "en_US.UTF-8", version]);
        assert!(of("2.36").check_like(&of("")).is_ok());
        assert!(of("").check_like(&of("2.36")).is_ok());
        let error = of("2.36").check_like(&of("2.27")).unwrap_err().to_string();
        assert!(error.contains("collation version 2.36") && error.contains("of one version"), "{error}");
    }
}
