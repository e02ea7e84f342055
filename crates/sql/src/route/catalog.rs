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

/// Whether a statement that uses none of the user's tables asks what there is, and nothing of its session.
pub(super) fn is_asked(relations: &[String], called: &[Called], text: &str) -> bool {
    if called.iter().any(|called| called.volatility == Volatility::Volatile || called.reads_tables) {
        return false;
    }
    if relations.is_empty() {
        let text = text.to_ascii_lowercase();
        return NAMING_TYPES.iter().any(|word| text.contains(word));
    }
    relations.iter().all(|relation| DESCRIBING.contains(&relation.as_str()))
}
