//! PostgreSQL's statements in SQLite's words: every expression gets PostgreSQL's type first.

mod aggregate;
mod array;
mod body;
mod call;
mod cast;
mod compare;
mod cte;
mod dml;
mod enums;
mod expr;
mod from;
mod names;
mod operator;
mod query;
mod scope;
mod select;
mod table_function;
mod window;
mod with_writes;

use std::collections::BTreeMap;

use polyshard_engine::Value;
use polyshard_sql::{Context, SqlError, TypeOid};

pub use call::NEXT_ID;
pub(crate) use cast::How;
pub(crate) use enums::{MARK as ENUM_MARK, check_label, data_type_in, find as find_enum, sort_value};
pub(crate) use expr::Ex;
pub(crate) use from::no_relation;
pub use names::file_name;
pub(crate) use names::{column_value, fold, kept_value, name_parts, quoted, quoted_name};
pub(crate) use scope::{Scope, Visible};

use crate::across::Across;
use crate::fail::fail;
use crate::held::Holding;
use crate::prepared::{OutColumn, Source};
use crate::settings::Settings;
use crate::types;

/// The deepest nesting of queries and expressions: SQLite's own limit is 1000 for an expression.
const DEPTH_MAX: usize = 200;

/// Turns one statement into SQLite's.
pub(crate) struct Translator<'c> {
    pub context: &'c Context<'c>,
    pub settings: &'c Settings,
    /// The types of the parameters as far as they are known.
    pub parameters: Vec<Option<TypeOid>>,
    /// What SQLite's parameters stand for, in order.
    pub sources: Vec<Source>,
    /// The queries around the place being translated, outermost first.
    pub scopes: Vec<Scope>,
    /// The WITH queries in sight, innermost last.
    pub ctes: Vec<Cte>,
    /// Tables of the system catalog that are used, as VALUES.
    pub system: BTreeMap<String, String>,
    /// The databases that a table's rows are in, for a query across shards.
    pub across: Option<Across>,
    /// How ids can be taken where the translation is now.
    pub ids: Ids,
    /// Whether values are inserted into columns that are always generated as identities.
    pub overriding: bool,
    /// What must be laid ready before the statement.
    pub held: Option<Holding>,
    /// Whether the next query is the whole statement, whose values a client sees.
    pub is_top: bool,
    aliases: usize,
    depth: usize,
}

/// How new ids can be taken at a place in a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    /// It is computed once: an id each time one is asked for.
    Once,
    /// In a select list over at most so many rows: an id for each.
    Rows(usize),
    /// For each row that is laid ready before: an id for each.
    Held,
    /// Nobody knows how often it is computed.
    None,
}

/// A WITH query in sight.
#[derive(Clone)]
pub(crate) struct Cte {
    pub name: String,
    pub alias: String,
    pub columns: Vec<OutColumn>,
}

impl<'c> Translator<'c> {
    pub fn new(
        context: &'c Context<'c>,
        settings: &'c Settings,
        parameters: Vec<Option<TypeOid>>,
    ) -> Translator<'c> {
        Translator {
            context,
            settings,
            parameters,
            sources: Vec::new(),
            scopes: Vec::new(),
            ctes: Vec::new(),
            system: BTreeMap::new(),
            across: None,
            ids: Ids::Once,
            overriding: false,
            held: None,
            is_top: false,
            aliases: 0,
            depth: 0,
        }
    }

    /// A name that nothing else in the statement has.
    pub fn alias(&mut self, kind: &str) -> String {
        self.aliases += 1;
        format!("{kind}{}", self.aliases)
    }

    /// Goes one level deeper, or refuses.
    pub fn deeper<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T, SqlError>) -> Result<T, SqlError> {
        if self.depth >= DEPTH_MAX {
            return Err(fail("54001", format!("the statement is nested deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let result = body(self);
        self.depth -= 1;
        result
    }

    /// SQLite's parameter for a value that comes with the call.
    pub fn parameter(&mut self, source: Source) -> String {
        // An id is taken anew wherever one is asked for.
        let known = match &source {
            Source::Id(_) | Source::Ids(..) => None,
            other => self.sources.iter().position(|known| known == other),
        };
        let place = known.unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        format!("${}", place + 1)
    }

    /// The session's zone as SQLite's literal.
    pub fn zone(&self) -> String {
        literal(&Value::from(self.settings.zone.name()))
    }

    /// `WITH` and the tables of the system catalog, or nothing.
    pub fn system_ctes(&self) -> Vec<String> {
        self.system
            .iter()
            .map(|(name, values)| format!("{} AS MATERIALIZED ({values})", quoted(name)))
            .collect()
    }

    /// The parameters' types; one that nothing tells is text, as PostgreSQL has it for output.
    pub fn parameter_types(&self) -> Result<Vec<TypeOid>, SqlError> {
        let told = |(place, known): (usize, &Option<TypeOid>)| {
            known.ok_or_else(|| {
                fail("42P18", format!("could not determine data type of parameter ${}", place + 1))
            })
        };
        self.parameters.iter().enumerate().map(told).collect()
    }
}

/// A value as SQLite reads it.
pub(crate) fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(value) => i64::from(*value).to_string(),
        // Its digits alone would be too large for a whole number.
        Value::Int(i64::MIN) => "(-9223372036854775807 - 1)".to_owned(),
        Value::Int(value) if *value < 0 => format!("({value})"),
        Value::Int(value) => value.to_string(),
        Value::Real(value) if value.is_infinite() => {
            if *value > 0.0 { "9e999" } else { "(-9e999)" }.to_owned()
        }
        Value::Real(value) if *value < 0.0 => format!("({value:?})"),
        Value::Real(value) => format!("{value:?}"),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Blob(bytes) => format!("x'{}'", crate::value::text::hex(bytes)),
    }
}

/// Numerics are texts in an order of their own, which must be said wherever values meet.
pub(crate) fn collated(sql: &str, type_oid: TypeOid) -> String {
    if type_oid == TypeOid::NUMERIC {
        format!("({sql} COLLATE {})", crate::functions::NUMERIC_COLLATION)
    } else if types::is_string(type_oid) && sql.contains(crate::functions::NUMERIC_COLLATION) {
        // SQLite lets a collation reach from within an expression to the whole of it.
        format!("({sql} COLLATE BINARY)")
    } else {
        sql.to_owned()
    }
}

/// Whether equality and order of this type are SQLite's own, the numeric's with its collation.
pub(crate) fn is_ordered(type_oid: TypeOid) -> bool {
    types::is_integer(type_oid)
        || types::is_string(type_oid)
        || types::is_oid(type_oid)
        || matches!(
            type_oid,
            TypeOid::BOOL
                | TypeOid::FLOAT8
                | TypeOid::NUMERIC
                | TypeOid::DATE
                | TypeOid::TIME
                | TypeOid::TIMESTAMP
                | TypeOid::TIMESTAMPTZ
                | TypeOid::UUID
                | TypeOid::BYTEA
        )
}

/// Whether equal values are kept alike, the numeric's with its collation.
pub(crate) fn is_comparable(type_oid: TypeOid) -> bool {
    is_ordered(type_oid) || types::is_enum(type_oid)
}

/// Types that cannot be grouped, sorted or made distinct here.
pub(crate) fn check_ordered(type_oid: TypeOid, what: &str) -> Result<(), SqlError> {
    // Arrays are equal if their texts are, but for elements that have several texts.
    let same = |element| !matches!(element, TypeOid::NUMERIC | TypeOid::JSONB);
    let is_equal = types::is_enum(type_oid) || types::element(type_oid).is_some_and(same);
    if is_ordered(type_oid) || is_equal && what != "ORDER BY" {
        return Ok(());
    }
    if matches!(type_oid, TypeOid::JSON) {
        return Err(fail(
            "42883",
            format!("could not identify an equality operator for type json in {what}"),
        ));
    }
    Err(crate::fail::unsupported(format!("{what} with values of type {}", types::display(type_oid))))
}
