//! A PostgreSQL shard's tables, views and functions, read from its system catalog in one snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::{self as engine, Statement, Transaction};
use polyshard_sql::{
    Collation, Column, ForeignKey, Function, Generated, Placement, Schema, Table, TableName, TypeOid, View,
    Volatility,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::JournalError;

/// What is nobody's: system schemas, and ours.
pub(crate) const USERS: &str = "n.nspname NOT IN ('pg_catalog', 'information_schema', 'polyshard') \
                     AND n.nspname !~ '^pg_(toast|temp)'";

/// Everything of one shard, with what the checks of declarations need beyond the schema.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The schema, without position and placements.
    pub schema: Schema,
    /// What else is known of each table.
    pub details: BTreeMap<TableName, Details>,
}

/// What the checks of declarations need to know of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// Unique indexes and exclusion constraints by name, with the columns that are in them as such.
    pub unique: Vec<(String, Vec<String>)>,
    /// Whether it is partitioned, a partition, or inherits.
    pub family: bool,
    /// The number that the shard it was read from knows it by, whatever it is called; none where there is no such.
    pub number: Option<i64>,
    /// The numbers of its columns, in order; empty where there are none.
    pub columns: Vec<i32>,
    /// Columns that take their value from a sequence: column, the sequence's name in SQL, kind of identity.
    pub sequences: Vec<OwnedSequence>,
}

/// A sequence behind a column.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct OwnedSequence {
    /// The column.
    pub column: String,
    /// The sequence, as it is written in SQL.
    pub sequence: String,
    /// Whether it is an identity column.
    pub identity: bool,
}

#[derive(Deserialize)]
struct RawTable {
    number: i64,
    schema: String,
    name: String,
    family: bool,
    row_security: bool,
    triggers: bool,
    columns: Option<Vec<RawColumn>>,
    indexes: Option<Vec<RawIndex>>,
    exclusions: Option<Vec<(String, Vec<i32>)>>,
    foreign_keys: Option<Vec<RawForeignKey>>,
    sequences: Option<Vec<OwnedSequence>>,
}

#[derive(Deserialize)]
struct RawColumn {
    number: i32,
    name: String,
    type_oid: u32,
    type_mod: i32,
    type_name: String,
    not_null: bool,
    default: Option<String>,
    identity: String,
    generated: String,
    collation: Option<String>,
    deterministic: Option<bool>,
}

#[derive(Deserialize)]
struct RawIndex {
    name: String,
    primary: bool,
    plain: bool,
    columns: Vec<i32>,
}

#[derive(Deserialize)]
struct RawForeignKey {
    name: String,
    columns: Vec<i32>,
    target_schema: String,
    target: String,
    target_columns: Vec<String>,
}

#[derive(Deserialize)]
struct RawView {
    schema: String,
    name: String,
    columns: Option<Vec<String>>,
    definition: String,
}

#[derive(Deserialize)]
struct RawFunction {
    schema: String,
    name: String,
    volatility: String,
}

/// Reads everything. The transaction must not have run a statement yet.
pub(crate) async fn read(tx: &mut Transaction) -> Result<Found, JournalError> {
    let mut found = read_tables(tx).await?;
    add_views(&mut found, rows::<RawView>(tx, &views()).await?);
    add_functions(&mut found, rows::<RawFunction>(tx, &functions()).await?);
    Ok(found)
}

fn add_views(found: &mut Found, raw: Vec<RawView>) {
    for raw in raw {
        let name = TableName { schema: raw.schema, name: raw.name };
        let definition = raw.definition.trim().trim_end_matches(';').to_owned();
        let view = View { name: name.clone(), columns: raw.columns.unwrap_or_default(), definition };
        found.schema.views.insert(name, Arc::new(view));
    }
}

fn add_functions(found: &mut Found, raw: Vec<RawFunction>) {
    for raw in raw {
        let volatility = volatility(&raw.volatility);
        if raw.schema == "pg_catalog" {
            found.schema.unstable_builtins.insert(raw.name, volatility);
        } else {
            let name = TableName { schema: raw.schema, name: raw.name };
            let function = Function { name: name.clone(), volatility, table_free: false };
            found.schema.functions.insert(name, Arc::new(function));
        }
    }
}

/// The tables alone, in whatever transaction.
pub(crate) async fn read_tables(tx: &mut Transaction) -> Result<Found, JournalError> {
    join(rows::<RawTable>(tx, &tables()).await?)
}

/// The query of the tables alone, for those who ask it themselves.
pub(crate) fn tables_alone() -> String {
    tables()
}

/// What its rows say.
pub(crate) fn from_tables(rows: &[String]) -> Result<Found, JournalError> {
    join(rows.iter().map(|row| parse(row)).collect::<Result<_, _>>()?)
}

/// The queries of everything, for those who ask them themselves; their answers go to [`from_all`]. Names in views are
/// written as the asking session's search path has them found.
pub(crate) fn all_queries() -> [String; 3] {
    [tables(), views(), functions()]
}

/// What the answers to [`all_queries`] say.
pub(crate) fn from_all(answers: [Vec<String>; 3]) -> Result<Found, JournalError> {
    let [tables, views, functions] = answers;
    let mut found = from_tables(&tables)?;
    add_views(&mut found, views.iter().map(|row| parse(row)).collect::<Result<_, _>>()?);
    add_functions(&mut found, functions.iter().map(|row| parse(row)).collect::<Result<_, _>>()?);
    Ok(found)
}

fn join(raw: Vec<RawTable>) -> Result<Found, JournalError> {
    let mut found = Found::default();
    for raw in raw {
        let (table, details) = table(raw)?;
        found.details.insert(table.name.clone(), details);
        found.schema.tables.insert(table.name.clone(), Arc::new(table));
    }
    Ok(found)
}

/// What must be run first: one snapshot, and names written out in full.
pub(crate) fn preamble() -> Vec<Statement> {
    vec![
        Statement::new("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        Statement::new("SET LOCAL search_path = pg_catalog"),
    ]
}

pub(crate) async fn rows<T: DeserializeOwned>(
    tx: &mut Transaction,
    sql: &str,
) -> Result<Vec<T>, JournalError> {
    let read = tx.run(Statement::new(sql)).await.map_err(|error: engine::Error| damaged(&error))?;
    read.iter().map(|row| row.text(0).map_err(|error| damaged(&error)).and_then(parse)).collect()
}

pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, JournalError> {
    serde_json::from_str(text).map_err(|error| damaged(&error))
}

fn damaged(error: &dyn std::fmt::Display) -> JournalError {
    JournalError::Damaged { what: "answer of a shard about its tables", detail: error.to_string() }
}

fn tables() -> String {
    format!(
        "SELECT json_build_object(
    'number', c.oid::bigint, 'schema', n.nspname, 'name', c.relname, 'row_security', c.relrowsecurity,
    'family', c.relkind = 'p' OR c.relispartition OR EXISTS (
        SELECT 1 FROM pg_inherits h WHERE h.inhrelid = c.oid OR h.inhparent = c.oid),
    'triggers', EXISTS (
        SELECT 1 FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace pn ON pn.oid = p.pronamespace
        WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND pn.nspname <> 'polyshard'),
    'columns', (SELECT json_agg(json_build_object(
            'number', a.attnum, 'name', a.attname, 'type_oid', a.atttypid::bigint, 'type_mod', a.atttypmod,
            'type_name', format_type(a.atttypid, a.atttypmod), 'not_null', a.attnotnull,
            'default', CASE WHEN a.attgenerated = '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid),
                (SELECT y.typdefault FROM pg_type y WHERE y.oid = a.atttypid AND y.typtype = 'd')) END,
            'identity', a.attidentity, 'generated', a.attgenerated,
            'collation', CASE WHEN l.collname = 'default' THEN b.datcollate ELSE l.collname END,
            'deterministic', l.collisdeterministic) ORDER BY a.attnum)
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        JOIN pg_database b ON b.datname = current_database()
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'indexes', (SELECT json_agg(json_build_object(
            'name', ic.relname, 'primary', i.indisprimary, 'plain', i.indpred IS NULL AND i.indexprs IS NULL,
            'columns', (SELECT json_agg(k ORDER BY o) FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS u(k, o)
                        WHERE o <= i.indnkeyatts)) ORDER BY ic.relname)
        FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indislive),
    'exclusions', (SELECT json_agg(json_build_array(x.conname, to_json(x.conkey)))
        FROM pg_constraint x WHERE x.conrelid = c.oid AND x.contype = 'x'),
    'foreign_keys', (SELECT json_agg(json_build_object(
            'name', f.conname, 'columns', to_json(f.conkey), 'target_schema', tn.nspname, 'target', tc.relname,
            'target_columns', (SELECT json_agg(ta.attname ORDER BY o)
                FROM unnest(f.confkey) WITH ORDINALITY AS u(k, o)
                JOIN pg_attribute ta ON ta.attrelid = f.confrelid AND ta.attnum = u.k)) ORDER BY f.conname)
        FROM pg_constraint f JOIN pg_class tc ON tc.oid = f.confrelid JOIN pg_namespace tn ON tn.oid = tc.relnamespace
        WHERE f.conrelid = c.oid AND f.contype = 'f'),
    'sequences', (SELECT json_agg(json_build_object(
            'column', a.attname, 'identity', a.attidentity <> '',
            'sequence', format('%I.%I', sn.nspname, s.relname)) ORDER BY a.attnum)
        FROM pg_depend dep JOIN pg_class s ON s.oid = dep.objid AND s.relkind = 'S'
        JOIN pg_namespace sn ON sn.oid = s.relnamespace
        JOIN pg_attribute a ON a.attrelid = dep.refobjid AND a.attnum = dep.refobjsubid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE dep.classid = 'pg_class'::regclass AND dep.refclassid = 'pg_class'::regclass
          AND dep.refobjid = c.oid AND dep.deptype IN ('a', 'i')
          AND (a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%'))
)::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't' AND {USERS}
ORDER BY n.nspname, c.relname"
    )
}

fn views() -> String {
    format!(
        "SELECT json_build_object('schema', n.nspname, 'name', c.relname,
    'definition', pg_get_viewdef(c.oid),
    'columns', (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm') AND c.relpersistence <> 't' AND {USERS}"
    )
}

fn functions() -> String {
    format!(
        "SELECT json_build_object('schema', n.nspname, 'name', p.proname,
    'volatility', CASE WHEN bool_or(p.provolatile = 'v') THEN 'v'
        WHEN bool_or(p.provolatile = 's') THEN 's' ELSE 'i' END
)::text
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE {USERS} OR (n.nspname = 'pg_catalog' AND p.provolatile <> 'i')
GROUP BY n.nspname, p.proname"
    )
}

fn volatility(letter: &str) -> Volatility {
    match letter {
        "i" => Volatility::Immutable,
        "s" => Volatility::Stable,
        _ => Volatility::Volatile,
    }
}

fn table(raw: RawTable) -> Result<(Table, Details), JournalError> {
    let columns = raw.columns.unwrap_or_default();
    let place = |number: &i32| columns.iter().position(|column| column.number == *number);
    let places = |numbers: &[i32]| numbers.iter().map(place).collect::<Option<Vec<usize>>>();
    let names = |numbers: &[i32]| -> Vec<String> {
        numbers.iter().filter_map(place).map(|at| columns[at].name.clone()).collect()
    };
    let (mut primary_key, mut unique, mut all_unique) = (Vec::new(), Vec::new(), Vec::new());
    for index in raw.indexes.unwrap_or_default() {
        all_unique.push((index.name, names(&index.columns)));
        match places(&index.columns) {
            Some(columns) if index.primary => primary_key = columns,
            Some(columns) if index.plain => unique.push(columns),
            _ => {}
        }
    }
    all_unique.extend(raw.exclusions.unwrap_or_default().into_iter().map(|(name, key)| (name, names(&key))));
    let missing = || damaged(&format!("a foreign key of {} names a column that is not there", raw.name));
    let mut foreign_keys = Vec::new();
    for key in raw.foreign_keys.unwrap_or_default() {
        foreign_keys.push(ForeignKey {
            name: key.name,
            columns: places(&key.columns).ok_or_else(missing)?,
            target: TableName { schema: key.target_schema, name: key.target },
            target_columns: key.target_columns,
        });
    }
    let sequences = raw.sequences.unwrap_or_default();
    let name = TableName { schema: raw.schema, name: raw.name.clone() };
    let numbers = columns.iter().map(|column| column.number).collect();
    let table = Table {
        name,
        primary_key,
        unique,
        foreign_keys,
        row_security: raw.row_security,
        triggers: raw.triggers,
        columns: columns.into_iter().map(|raw| column(raw, &sequences)).collect(),
        placement: Placement::Reference { declared: false },
    };
    let details = Details {
        unique: all_unique,
        family: raw.family,
        sequences,
        number: Some(raw.number),
        columns: numbers,
    };
    Ok((table, details))
}

fn column(raw: RawColumn, sequences: &[OwnedSequence]) -> Column {
    let generated = match (raw.identity.as_str(), raw.generated.as_str()) {
        ("a", _) => Generated::Always,
        ("d", _) => Generated::ByDefault,
        (_, "s") => Generated::Stored,
        _ if sequences.iter().any(|sequence| sequence.column == raw.name) => Generated::ByDefault,
        _ => Generated::No,
    };
    let collation = match (raw.collation.as_deref(), raw.deterministic) {
        (_, Some(false)) => Collation::Nondeterministic,
        (None | Some("C" | "POSIX"), _) => Collation::C,
        _ => Collation::Deterministic,
    };
    Column {
        name: raw.name,
        type_oid: TypeOid(raw.type_oid),
        type_mod: raw.type_mod,
        type_name: raw.type_name,
        not_null: raw.not_null,
        default: raw.default,
        generated,
        collation,
    }
}
