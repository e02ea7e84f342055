//! The system catalog: what PostgreSQL's clients ask it, answered from the descriptions that a shard keeps.

mod names;
mod sizes;
mod tables;

use polyshard_engine::Value;
use polyshard_sql::{Context, SqlError, TypeOid};

pub(crate) use names::written_parts;
use names::{Names, written_file, written_name};
pub use sizes::SIZE_FUNCTIONS;
pub(crate) use sizes::size;

use crate::fail::{fail, unsupported};
use crate::prepared::{OutColumn, Source};
use crate::translate::{Ex, How, Translator, file_name, find_enum, literal};
use crate::types::{self, oid};

/// The first number that is not PostgreSQL's own.
const FIRST_OWN: u32 = 16_384;

/// The number of the function that reads arrays.
const ARRAY_IN: u32 = 750;

/// Tables of the catalog that clients name by their numbers.
const KNOWN: &[(&str, u32)] = &[
    ("pg_type", 1247),
    ("pg_attribute", 1249),
    ("pg_proc", 1255),
    ("pg_class", 1259),
    ("pg_authid", 1260),
    ("pg_database", 1262),
    ("pg_attrdef", 2604),
    ("pg_constraint", 2606),
    ("pg_index", 2610),
    ("pg_namespace", 2615),
    ("pg_description", 2609),
    ("pg_trigger", 2620),
    ("pg_extension", 3079),
];

/// A table of the catalog.
pub(crate) struct Relation {
    /// The name of its CTE.
    pub name: String,
    pub columns: Vec<OutColumn>,
}

/// The number of a table, index, view or sequence: of its name, so that every shard and session has the same.
pub(crate) fn number(name: &str) -> u32 {
    if let Some((_, known)) = KNOWN.iter().find(|(known, _)| *known == name) {
        return *known;
    }
    // FNV-1a over the bytes, kept above PostgreSQL's own numbers and within 31 bits.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    FIRST_OWN + (hash % u64::from(i32::MAX as u32 - FIRST_OWN)) as u32
}

/// Types whose values are numbers that clients see as names.
pub(crate) fn is_named(type_oid: TypeOid) -> bool {
    matches!(type_oid, oid::REGCLASS | oid::REGTYPE | oid::REGNAMESPACE | oid::REGPROC)
}

/// A table of the catalog by its name, noted for the statement's WITH.
pub(crate) fn relation(
    translator: &mut Translator<'_>,
    schema: Option<&str>,
    name: &str,
) -> Result<Option<Relation>, SqlError> {
    let Some(table) = tables::find(schema, name) else {
        return Ok(None);
    };
    let cte = format!("{}.{}", table.schema, table.name);
    if !translator.system.contains_key(&cte) {
        let mut sql = table.sql(translator.settings, &Names::new(translator.context));
        if sql.contains("{activity}") {
            sql = sql.replace("{activity}", &translator.parameter(Source::Activity));
        }
        translator.system.insert(cte.clone(), sql);
    }
    let columns = table.columns.iter().filter(|column| !column.is_hidden());
    let columns = columns.map(|column| OutColumn {
        name: column.name.to_owned(),
        type_oid: column.type_oid,
        type_mod: -1,
    });
    Ok(Some(Relation { name: cte, columns: columns.collect() }))
}

/// `(SELECT column FROM catalog WHERE key = value)`.
fn lookup(
    translator: &mut Translator<'_>,
    name: &str,
    column: &str,
    key: &str,
    value: &str,
) -> Result<String, SqlError> {
    let table = tables::find(Some("pg_catalog"), name).ok_or_else(|| fail("XX000", format!("no {name}")))?;
    relation(translator, Some("pg_catalog"), name)?;
    let place = |wanted: &str| {
        let found = table.columns.iter().position(|column| column.name == wanted);
        found
            .map(|place| format!("\"c{}\"", place + 1))
            .ok_or_else(|| fail("XX000", format!("no {wanted} in {name}")))
    };
    Ok(format!("(SELECT {} FROM \"pg_catalog.{name}\" WHERE {} = {value})", place(column)?, place(key)?))
}

/// The number of an object by its name, as a literal has it.
pub(crate) fn object_number(context: &Context<'_>, kind: TypeOid, text: &str) -> Result<i64, SqlError> {
    let given = text.trim();
    if let Ok(number) = given.parse::<u32>() {
        return Ok(number.into());
    }
    match kind {
        oid::REGCLASS => {
            let (within, name) = written_name(given);
            let (schema, path) = (context.schema, context.search_path);
            let table = schema.table(within.as_deref(), &name, path).map(|table| &table.name);
            let view = || schema.view(within.as_deref(), &name, path).map(|view| &view.name);
            if let Some(full) = table.or_else(view) {
                return Ok(number(&file_name(full)).into());
            }
            if within.is_none() && KNOWN.iter().any(|(known, _)| *known == name) {
                return Ok(number(&name).into());
            }
            // Indexes and sequences are not in the schema; a number of none finds nothing.
            if ["_seq", "_pkey", "_key", "_idx"].iter().any(|end| name.ends_with(end)) {
                let first = path.iter().find(|name| *name == "public" || schema.schemas.contains(*name));
                return Ok(number(&written_file(given, first.map_or("public", String::as_str))).into());
            }
            Err(fail("42P01", format!("relation \"{text}\" does not exist")))
        }
        oid::REGTYPE => written_type(context, given)
            .map(|found| found.0.into())
            .ok_or_else(|| fail("42704", format!("type \"{text}\" does not exist"))),
        oid::REGNAMESPACE => match bare_name(given).as_str() {
            "public" => Ok(2200),
            "pg_catalog" => Ok(11),
            made if context.schema.schemas.contains(made) => Ok(number(&format!("schema:{made}")).into()),
            other => Err(fail("3F000", format!("schema \"{other}\" does not exist"))),
        },
        // By which JDBC knows arrays.
        oid::REGPROC if bare_name(given) == "array_in" => Ok(ARRAY_IN.into()),
        _ => Err(unsupported(format!("\"{text}\" as {}", types::display(kind)))),
    }
}

/// The number of an object from a parameter or a computed text: of a table that is not there, one that finds nothing.
pub(crate) fn input(kind: TypeOid, text: &str) -> Option<i64> {
    let given = text.trim();
    if let Ok(number) = given.parse::<u32>() {
        return Some(number.into());
    }
    match kind {
        oid::REGCLASS => Some(number(&written_file(given, "public")).into()),
        oid::REGTYPE => types::by_name(&bare_name(given)).map(|found| found.0.into()),
        _ => None,
    }
}

/// A type as it is written: PostgreSQL's own, or an enum.
fn written_type(context: &Context<'_>, text: &str) -> Option<TypeOid> {
    if let Some(element) = text.strip_suffix("[]") {
        return types::array_of(written_type(context, element)?);
    }
    let (within, name) = written_name(text);
    let made = || find_enum(context, within.as_deref(), &name).map(|made| made.type_oid);
    types::by_name(&bare_name(text)).or_else(made)
}

/// Without schema and quotes, folded as PostgreSQL folds.
fn bare_name(text: &str) -> String {
    let schemas = ["public.", "pg_catalog.", "\"public\".", "\"pg_catalog\"."];
    let last = schemas.iter().find_map(|schema| text.strip_prefix(schema)).unwrap_or(text);
    match last.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => last.to_ascii_lowercase(),
    }
}

/// The name of an object by its number, as SQL.
pub(crate) fn object_name(
    translator: &mut Translator<'_>,
    sql: &str,
    kind: TypeOid,
) -> Result<String, SqlError> {
    let name = match kind {
        oid::REGTYPE => type_name(translator, sql, "-1"),
        oid::REGCLASS => lookup(translator, "pg_class", "#shown", "oid", sql)?,
        oid::REGNAMESPACE => lookup(translator, "pg_namespace", "nspname", "oid", sql)?,
        _ => {
            return Ok(format!(
                "(CASE {sql} WHEN 0 THEN '-' WHEN {ARRAY_IN} THEN 'array_in' ELSE CAST({sql} AS TEXT) END)"
            ));
        }
    };
    Ok(format!("coalesce({name}, CAST({sql} AS TEXT))"))
}

/// The number of a table whose name is computed, as SQL: of one that is not there, a number that finds nothing.
pub(crate) fn relation_number(translator: &mut Translator<'_>, sql: &str) -> Result<String, SqlError> {
    let plain = format!("pg_regclass({sql})");
    let context = translator.context;
    if context.schema.schemas.is_empty() {
        return Ok(plain);
    }
    let mut tries = Vec::new();
    for schema in context.search_path {
        let number = format!("pg_regclass_in({sql}, {})", text_literal(schema));
        tries.push(lookup(translator, "pg_class", "oid", "oid", &number)?);
    }
    tries.push(plain);
    Ok(if tries.len() == 1 { tries.remove(0) } else { format!("coalesce({})", tries.join(", ")) })
}

/// A type's name, as SQL.
fn type_name(translator: &Translator<'_>, sql: &str, type_mod: &str) -> String {
    let plain = format!("pg_format_type({sql}, {type_mod})");
    let made = Names::new(translator.context).shown_types();
    if made.is_empty() { plain } else { format!("(CASE {sql}{made} ELSE {plain} END)") }
}

/// The number of a type whose name is computed, as SQL; NULL for one that is not there.
fn known_type(translator: &mut Translator<'_>, sql: &str) -> Result<String, SqlError> {
    let plain = format!("pg_regtype({sql})");
    if translator.context.schema.enums.is_empty() {
        return Ok(plain);
    }
    let made = lookup(translator, "pg_type", "oid", "typname", &format!("pg_bare({sql})"))?;
    Ok(format!("coalesce({plain}, {made})"))
}

/// Likewise, and an error for one that is not there.
pub(crate) fn type_number(translator: &mut Translator<'_>, sql: &str) -> Result<String, SqlError> {
    let read = format!("pg_in({sql}, {}, -1, 'UTC')", oid::REGTYPE.0);
    if translator.context.schema.enums.is_empty() {
        return Ok(read);
    }
    Ok(format!("coalesce({}, {read})", known_type(translator, sql)?))
}

/// The number of a relation as it is written, if it says no schema in this one.
pub(crate) fn number_within(text: &str, schema: &str) -> i64 {
    number(&written_file(text, schema)).into()
}

/// Functions that know the schema.
pub(crate) fn function(
    translator: &mut Translator<'_>,
    name: &str,
    mut values: Vec<Ex>,
) -> Result<Ex, SqlError> {
    let bad = || unsupported(format!("this call of {name}"));
    if values.is_empty() {
        return Err(bad());
    }
    let first_type = if matches!(name, "to_regclass" | "to_regtype") { TypeOid::TEXT } else { TypeOid::OID };
    let first = translator.coerce(values.remove(0), first_type, -1, How::Implicit)?;
    let mut rest = Vec::new();
    for value in values {
        let wanted = if value.type_oid == TypeOid::BOOL { TypeOid::BOOL } else { TypeOid::INT4 };
        // The last argument of these is whether to print it nicely.
        let wanted = if value.is_unknown() && name != "format_type" { TypeOid::BOOL } else { wanted };
        rest.push(translator.coerce(value, wanted, -1, How::Assignment)?);
    }
    let mut used: Vec<&Ex> = rest.iter().collect();
    used.push(&first);
    let sql = match (name, &rest[..]) {
        ("format_type", [type_mod]) => type_name(translator, &first.sql, &type_mod.sql),
        ("pg_type_is_visible", []) => {
            let hidden = Names::new(translator.context).hidden_types();
            let sql = format!("({0} IS NOT NULL AND {0} NOT IN ({hidden}))", first.sql);
            return Ok(Ex::made(sql, TypeOid::BOOL, &used).named(name));
        }
        ("pg_get_constraintdef", _) => lookup(translator, "pg_constraint", "#definition", "oid", &first.sql)?,
        ("pg_get_indexdef", [place, ..]) if place.type_oid != TypeOid::BOOL => {
            let whole = lookup(translator, "pg_index", "#definition", "indexrelid", &first.sql)?;
            let names = lookup(translator, "pg_index", "#columns", "indexrelid", &first.sql)?;
            format!(
                "CASE {0} WHEN 0 THEN {whole} ELSE coalesce(json_extract({names}, '$[' || ({0} - 1) || ']'), '') END",
                place.sql
            )
        }
        ("pg_get_indexdef", _) => lookup(translator, "pg_index", "#definition", "indexrelid", &first.sql)?,
        ("pg_get_viewdef", _) => {
            format!("(SELECT v.definition FROM polyshard_sql_view AS v WHERE pg_oid(v.name) = {})", first.sql)
        }
        ("pg_table_is_visible", []) => {
            let found = lookup(translator, "pg_class", "#visible", "oid", &first.sql)?;
            let sql = format!("(CASE WHEN {0} < {FIRST_OWN} THEN 1 ELSE {found} END)", first.sql);
            return Ok(Ex::made(sql, TypeOid::BOOL, &used).named(name));
        }
        ("to_regclass", []) => {
            let number = relation_number(translator, &first.sql)?;
            let found = lookup(translator, "pg_class", "oid", "oid", &number)?;
            return Ok(Ex::made(found, oid::REGCLASS, &used).named(name));
        }
        ("to_regtype", []) => {
            let sql = known_type(translator, &first.sql)?;
            return Ok(Ex::made(sql, oid::REGTYPE, &used).named(name));
        }
        _ => return Err(bad()),
    };
    Ok(Ex::made(sql, TypeOid::TEXT, &used).named(name))
}

/// A text as SQLite's literal.
fn text_literal(text: &str) -> String {
    literal(&Value::from(text))
}
