//! The bounds of the language: how large a query and its values may get, each with the origin of the number.

/// Bytes of a query's text: the service's documented limit.
pub const TEXT_BYTES_MAX: usize = 512 * 1024;
/// Nesting of expressions and sub-queries. Ten times what the SDKs' translators write; at this depth the recursive
/// functions of this crate use less than half of a 2 MiB stack.
pub const DEPTH_MAX: usize = 128;
/// Items of one list or literal. The text allows no more than about this many.
pub const LIST_ITEMS_MAX: usize = 256 * 1024;
/// JOIN clauses of one query: the service's documented limit.
pub const JOINS_MAX: usize = 10;
/// Memory of one compiled regular expression. The pattern comes from the client.
pub const REGEX_BYTES_MAX: usize = 1024 * 1024;
/// Compiled regular expressions kept by one execution; beyond it the cache is emptied.
pub const REGEX_CACHED_MAX: usize = 64;
/// Nesting of a JSON document: the service's documented limit.
pub const JSON_DEPTH_MAX: usize = 128;
/// Nesting of any value. Queries nest documents in literals; deeper values are refused, because values are compared,
/// written and freed by recursion.
pub const VALUE_DEPTH_MAX: usize = 512;
/// Bytes of one string, or of one array or object written out. Eight times the largest document of the service.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Default memory for sorting, grouping and DISTINCT of one execution.
pub const STATE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Evaluation steps for one document, a few seconds of one processor. Only JOINs over several long arrays get there.
pub const STEPS_PER_DOCUMENT_MAX: u64 = 100_000_000;
/// Characters that REPLICATE returns at most: the service's documented limit.
pub const REPLICATE_CHARACTERS_MAX: usize = 10_000;
/// The largest count of TOP, OFFSET and LIMIT: the service refuses larger ones.
pub const COUNT_MAX: u64 = i32::MAX as u64;

/// Limits that a caller may lower for one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text.
    pub text_bytes: usize,
    /// Nesting of expressions and sub-queries; values above [`DEPTH_MAX`] count as that.
    pub depth: usize,
    /// Items of one list or literal.
    pub list_items: usize,
    /// JOIN clauses of the whole query.
    pub joins: usize,
    /// Memory of one compiled regular expression.
    pub regex_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            text_bytes: TEXT_BYTES_MAX,
            depth: DEPTH_MAX,
            list_items: LIST_ITEMS_MAX,
            joins: JOINS_MAX,
            regex_bytes: REGEX_BYTES_MAX,
        }
    }
}
