//! Questions to the system catalog about what there is, which every shard answers with numbers of its own.

use super::analysis::Called;
use crate::schema::Volatility;

/// Relations of the system's that tell what tables, types and the like there are; those that tell of sessions, locks
/// and settings are not among them. `information_schema` stands for all of its.
const DESCRIBING: [&str; 31] = [
    "information_schema",
    "pg_aggregate",
    "pg_am",
    "pg_attrdef",
    "pg_attribute",
    "pg_cast",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_conversion",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_extension",
    "pg_index",
    "pg_indexes",
    "pg_inherits",
    "pg_language",
    "pg_matviews",
    "pg_namespace",
    "pg_opclass",
    "pg_operator",
    "pg_policy",
    "pg_proc",
    "pg_range",
    "pg_rewrite",
    "pg_tables",
    "pg_trigger",
    "pg_ts_config",
    "pg_type",
    "pg_views",
];

/// Types whose texts are looked up in the catalog.
const NAMING_TYPES: [&str; 2] = ["regclass", "regtype"];

/// Whether a relation of the system's tells what tables, types and the like there are, and nothing of rows or sessions.
pub fn is_describing(relation: &str) -> bool {
    DESCRIBING.contains(&relation)
}

/// Whether a statement does no more than to set whether plans are compiled, which changes no answer, and to show
/// settings. asyncpg does so for the time of its question about types.
pub fn sets_jit_alone(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut calls = text.split("set_config").skip(1).peekable();
    let is_jit = |after: &str| {
        let call = after.trim_start().strip_prefix('(').map(str::trim_start);
        let rest = call.and_then(|call| call.strip_prefix("'jit'")).map(str::trim_start);
        rest.is_some_and(|rest| rest.starts_with(','))
    };
    calls.peek().is_some() && calls.all(is_jit)
}

/// Likewise, by the functions that it calls, and without any table.
pub(super) fn is_aside(relations: &[String], called: &[Called], text: &str) -> bool {
    let shows = |called: &Called| matches!(called.name.as_str(), "set_config" | "current_setting");
    relations.is_empty()
        && called.iter().any(|called| called.name == "set_config")
        && called.iter().all(shows)
        && sets_jit_alone(text)
}

/// Whether a statement that uses none of the user's tables asks what there is, and nothing of its session.
pub(super) fn is_asked(relations: &[String], called: &[Called], text: &str) -> bool {
    if called.iter().any(|called| called.volatility == Volatility::Volatile || called.reads_tables) {
        return false;
    }
    if relations.is_empty() {
        let text = text.to_ascii_lowercase();
        return NAMING_TYPES.iter().any(|word| text.contains(word));
    }
    relations.iter().all(|relation| is_describing(relation))
}
