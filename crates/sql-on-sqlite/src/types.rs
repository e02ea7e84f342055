//! PostgreSQL's types as far as SQLite shards know them: names, numbers, categories, casts.

mod made;

use polyshard_sql::TypeOid;

pub(crate) use made::enum_type;

/// Types beyond those the routing crate names.
pub(crate) mod oid {
    use polyshard_sql::TypeOid;

    pub const CHAR: TypeOid = TypeOid(18);
    pub const INT2VECTOR: TypeOid = TypeOid(22);
    pub const REGPROC: TypeOid = TypeOid(24);
    pub const XID: TypeOid = TypeOid(28);
    pub const OIDVECTOR: TypeOid = TypeOid(30);
    pub const PG_NODE_TREE: TypeOid = TypeOid(194);
    pub const RECORD: TypeOid = TypeOid(2249);
    pub const NAME_ARRAY: TypeOid = TypeOid(1003);
    pub const INT4_ARRAY: TypeOid = TypeOid(1007);
    pub const TEXT_ARRAY: TypeOid = TypeOid(1009);
    pub const INT8_ARRAY: TypeOid = TypeOid(1016);
    pub const REGCLASS: TypeOid = TypeOid(2205);
    pub const REGTYPE: TypeOid = TypeOid(2206);
    pub const REGNAMESPACE: TypeOid = TypeOid(4089);
    // Not types of values, but of arguments that take several.
    pub const ANY: TypeOid = TypeOid(2276);
    pub const ANYARRAY: TypeOid = TypeOid(2277);
    pub const ANYELEMENT: TypeOid = TypeOid(2283);
    pub const ANYNONARRAY: TypeOid = TypeOid(2776);
}

/// One type.
pub(crate) struct TypeInfo {
    pub oid: TypeOid,
    /// As in pg_type.
    pub name: &'static str,
    /// As `format_type` writes it.
    pub display: &'static str,
    /// As in pg_type.typcategory.
    pub category: char,
    pub preferred: bool,
    /// As in pg_type.typlen.
    pub len: i16,
    /// The type of its arrays, 0 for none.
    pub array: u32,
    /// The type of its elements, if it is an array.
    pub element: u32,
}

#[allow(clippy::too_many_arguments, reason = "each is a column of the table below")]
const fn t(
    oid: u32,
    name: &'static str,
    display: &'static str,
    category: char,
    preferred: bool,
    len: i16,
    array: u32,
    element: u32,
) -> TypeInfo {
    TypeInfo { oid: TypeOid(oid), name, display, category, preferred, len, array, element }
}

/// All of them.
pub(crate) const TYPES: &[TypeInfo] = &[
    t(16, "bool", "boolean", 'B', true, 1, 1000, 0),
    t(17, "bytea", "bytea", 'U', false, -1, 1001, 0),
    t(18, "char", "\"char\"", 'Z', false, 1, 1002, 0),
    t(19, "name", "name", 'S', false, 64, 1003, 0),
    t(20, "int8", "bigint", 'N', false, 8, 1016, 0),
    t(21, "int2", "smallint", 'N', false, 2, 1005, 0),
    t(22, "int2vector", "int2vector", 'A', false, -1, 1006, 21),
    t(23, "int4", "integer", 'N', false, 4, 1007, 0),
    t(24, "regproc", "regproc", 'N', false, 4, 1008, 0),
    t(25, "text", "text", 'S', true, -1, 1009, 0),
    t(26, "oid", "oid", 'N', true, 4, 1028, 0),
    t(28, "xid", "xid", 'U', false, 4, 1011, 0),
    t(30, "oidvector", "oidvector", 'A', false, -1, 1013, 26),
    t(114, "json", "json", 'U', false, -1, 199, 0),
    t(194, "pg_node_tree", "pg_node_tree", 'Z', false, -1, 0, 0),
    t(700, "float4", "real", 'N', false, 4, 1021, 0),
    t(701, "float8", "double precision", 'N', true, 8, 1022, 0),
    t(705, "unknown", "unknown", 'X', false, -2, 0, 0),
    t(790, "money", "money", 'N', false, 8, 791, 0),
    t(1000, "_bool", "boolean[]", 'A', false, -1, 0, 16),
    t(1001, "_bytea", "bytea[]", 'A', false, -1, 0, 17),
    t(1002, "_char", "\"char\"[]", 'A', false, -1, 0, 18),
    t(1003, "_name", "name[]", 'A', false, -1, 0, 19),
    t(1005, "_int2", "smallint[]", 'A', false, -1, 0, 21),
    t(1007, "_int4", "integer[]", 'A', false, -1, 0, 23),
    t(1009, "_text", "text[]", 'A', false, -1, 0, 25),
    t(1014, "_bpchar", "character[]", 'A', false, -1, 0, 1042),
    t(1015, "_varchar", "character varying[]", 'A', false, -1, 0, 1043),
    t(1016, "_int8", "bigint[]", 'A', false, -1, 0, 20),
    t(1021, "_float4", "real[]", 'A', false, -1, 0, 700),
    t(1022, "_float8", "double precision[]", 'A', false, -1, 0, 701),
    t(1028, "_oid", "oid[]", 'A', false, -1, 0, 26),
    t(1034, "_aclitem", "aclitem[]", 'A', false, -1, 0, 25),
    t(1042, "bpchar", "character", 'S', false, -1, 1014, 0),
    t(1043, "varchar", "character varying", 'S', false, -1, 1015, 0),
    t(1082, "date", "date", 'D', false, 4, 1182, 0),
    t(1083, "time", "time without time zone", 'D', false, 8, 1183, 0),
    t(1114, "timestamp", "timestamp without time zone", 'D', false, 8, 1115, 0),
    t(1115, "_timestamp", "timestamp without time zone[]", 'A', false, -1, 0, 1114),
    t(1182, "_date", "date[]", 'A', false, -1, 0, 1082),
    t(1184, "timestamptz", "timestamp with time zone", 'D', true, 8, 1185, 0),
    t(1185, "_timestamptz", "timestamp with time zone[]", 'A', false, -1, 0, 1184),
    t(1186, "interval", "interval", 'T', true, 16, 1187, 0),
    t(1231, "_numeric", "numeric[]", 'A', false, -1, 0, 1700),
    t(1266, "timetz", "time with time zone", 'D', false, 12, 1270, 0),
    t(1700, "numeric", "numeric", 'N', false, -1, 1231, 0),
    t(2205, "regclass", "regclass", 'N', false, 4, 2210, 0),
    t(2206, "regtype", "regtype", 'N', false, 4, 2211, 0),
    t(2211, "_regtype", "regtype[]", 'A', false, -1, 0, 2206),
    t(2249, "record", "record", 'P', false, -1, 2287, 0),
    t(2278, "void", "void", 'P', false, 4, 0, 0),
    t(2279, "trigger", "trigger", 'P', false, 4, 0, 0),
    t(2950, "uuid", "uuid", 'U', false, 16, 2951, 0),
    t(2951, "_uuid", "uuid[]", 'A', false, -1, 0, 2950),
    t(3802, "jsonb", "jsonb", 'U', false, -1, 3807, 0),
    t(3807, "_jsonb", "jsonb[]", 'A', false, -1, 0, 3802),
    t(4089, "regnamespace", "regnamespace", 'N', false, 4, 4090, 0),
];

/// What is known of a type.
pub(crate) fn info(oid: TypeOid) -> Option<&'static TypeInfo> {
    match TYPES.binary_search_by_key(&oid.0, |known| known.oid.0) {
        Ok(place) => Some(&TYPES[place]),
        Err(_) => made::info(oid),
    }
}

/// Whether it is an enum.
pub(crate) fn is_enum(oid: TypeOid) -> bool {
    info(oid).is_some_and(|known| known.category == 'E')
}

/// Its name in messages and descriptions.
pub(crate) fn display(oid: TypeOid) -> String {
    info(oid).map_or_else(|| format!("type {}", oid.0), |known| known.display.to_owned())
}

/// Its name in a statement that is to mean it without any length: `character` by itself means one of 1.
pub(crate) fn unlimited(oid: TypeOid) -> String {
    match element(oid) {
        Some(element) if info(oid).is_some_and(|known| known.name.starts_with('_')) => {
            format!("{}[]", unlimited(element))
        }
        _ if oid == TypeOid::BPCHAR => "bpchar".to_owned(),
        _ => display(oid),
    }
}

/// Its name with length or precision, as `format_type` gives it.
pub(crate) fn display_with(oid: TypeOid, type_mod: i32) -> String {
    let name = display(oid);
    if type_mod < 0 {
        return name;
    }
    // An array's modifier is that of its elements.
    if let Some(element) = element(oid) {
        return format!("{}[]", display_with(element, type_mod));
    }
    match oid {
        TypeOid::VARCHAR | TypeOid::BPCHAR => format!("{name}({})", type_mod - 4),
        TypeOid::NUMERIC => {
            let (precision, scale) = numeric_limits(type_mod);
            format!("numeric({precision},{scale})")
        }
        TypeOid::TIME => format!("time({type_mod}) without time zone"),
        TypeOid::TIMESTAMP => format!("timestamp({type_mod}) without time zone"),
        TypeOid::TIMESTAMPTZ => format!("timestamp({type_mod}) with time zone"),
        _ => name,
    }
}

/// Precision and scale of a numeric's modifier.
pub(crate) fn numeric_limits(type_mod: i32) -> (i32, i32) {
    let packed = type_mod - 4;
    let scale = packed & 0x7ff;
    ((packed >> 16) & 0xffff, (scale ^ 1024) - 1024)
}

/// The modifier of a numeric.
pub(crate) fn numeric_mod(precision: i32, scale: i32) -> i32 {
    ((precision << 16) | (scale & 0x7ff)) + 4
}

/// By the name in pg_type or in the standard's words.
pub(crate) fn by_name(name: &str) -> Option<TypeOid> {
    let found = TYPES.iter().find(|known| known.name == name || known.display == name);
    found.map(|known| known.oid).or(match name {
        "int" => Some(TypeOid::INT4),
        "decimal" | "dec" => Some(TypeOid::NUMERIC),
        "timestamp" => Some(TypeOid::TIMESTAMP),
        "time" => Some(TypeOid::TIME),
        "string" => None,
        "any" => Some(oid::ANY),
        "anyelement" => Some(oid::ANYELEMENT),
        "anyarray" => Some(oid::ANYARRAY),
        "anynonarray" => Some(oid::ANYNONARRAY),
        _ => None,
    })
}

/// The type of an array's elements.
pub(crate) fn element(array: TypeOid) -> Option<TypeOid> {
    info(array).filter(|known| known.element != 0).map(|known| TypeOid(known.element))
}

/// The type of arrays of this.
pub fn array_of(element: TypeOid) -> Option<TypeOid> {
    info(element)
        .filter(|known| known.array != 0)
        .and_then(|known| info(TypeOid(known.array)))
        .map(|known| known.oid)
}

pub(crate) fn category(oid: TypeOid) -> char {
    info(oid).map_or('U', |known| known.category)
}

pub(crate) fn is_preferred(oid: TypeOid) -> bool {
    info(oid).is_some_and(|known| known.preferred)
}

pub(crate) fn is_array(oid: TypeOid) -> bool {
    element(oid).is_some()
}

/// Whether values are SQLite texts that compare as PostgreSQL's do, byte by byte.
pub(crate) fn is_text(oid: TypeOid) -> bool {
    matches!(oid, TypeOid::TEXT | TypeOid::VARCHAR | TypeOid::NAME | self::oid::CHAR)
}

pub(crate) fn is_integer(oid: TypeOid) -> bool {
    matches!(oid, TypeOid::INT2 | TypeOid::INT4 | TypeOid::INT8)
}

/// Numbers of system objects; all are stored as whole numbers.
pub(crate) fn is_oid(oid: TypeOid) -> bool {
    use self::oid::{REGCLASS, REGNAMESPACE, REGPROC, REGTYPE, XID};
    matches!(oid, TypeOid::OID | REGCLASS | REGNAMESPACE | REGPROC | REGTYPE | XID)
}

/// How freely one type becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CastContext {
    Explicit,
    Assignment,
    Implicit,
}

/// Whether PostgreSQL has a cast, and where it applies it by itself; text input and output apart.
pub(crate) fn cast_context(from: TypeOid, to: TypeOid) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    if from == to || from == TypeOid::UNKNOWN {
        return Some(Implicit);
    }
    if let (Some(from), Some(to)) = (element(from), element(to)) {
        return cast_context(from, to);
    }
    let name = |oid| info(oid).map_or("", |known| known.name);
    let (from_name, to_name) = (name(from), name(to));
    let found = CASTS.iter().find(|(source, targets, _)| {
        *source == from_name && targets.split(' ').any(|target| target == to_name)
    });
    if let Some((_, _, context)) = found {
        return Some(*context);
    }
    // Everything has a text form: to text on assignment, from text when asked for.
    if is_string(to) {
        return Some(if matches!(category(from), 'S') { Implicit } else { Assignment });
    }
    if is_string(from) {
        return Some(Explicit);
    }
    None
}

/// A type of strings, to and from which every type converts.
pub(crate) fn is_string(oid: TypeOid) -> bool {
    matches!(oid, TypeOid::TEXT | TypeOid::VARCHAR | TypeOid::BPCHAR | TypeOid::NAME | self::oid::CHAR)
}

/// From pg_cast.
const CASTS: &[(&str, &str, CastContext)] = {
    use CastContext::{Assignment as A, Explicit as E, Implicit as I};
    &[
        ("bool", "int4", E),
        ("bpchar", "name text varchar", I),
        ("date", "timestamp timestamptz", I),
        ("float4", "float8", I),
        ("float4", "int2 int4 int8 numeric", A),
        ("float8", "float4 int2 int4 int8 numeric", A),
        ("int2", "float4 float8 int4 int8 numeric oid regclass regtype regproc regnamespace", I),
        ("int4", "bool char", E),
        ("int4", "float4 float8 int8 numeric oid regclass regtype regproc regnamespace", I),
        ("int4", "int2 money", A),
        ("int8", "float4 float8 numeric oid regclass regtype regproc regnamespace", I),
        ("int8", "int2 int4 money", A),
        ("interval", "time", A),
        ("json", "jsonb", A),
        ("jsonb", "bool float4 float8 int2 int4 int8 numeric", E),
        ("jsonb", "json", A),
        ("money", "numeric", A),
        ("name", "text", I),
        ("name", "bpchar varchar", A),
        ("numeric", "float4 float8", I),
        ("numeric", "int2 int4 int8 money", A),
        ("oid", "int4 int8", A),
        ("oid", "regclass regtype regproc regnamespace", I),
        ("regclass", "oid", I),
        ("regclass", "int4 int8", A),
        ("regtype", "oid", I),
        ("regtype", "int4 int8", A),
        ("regproc", "oid", I),
        ("regnamespace", "oid", I),
        ("text", "bpchar name varchar", I),
        ("text", "regclass", I),
        ("time", "interval timetz", I),
        ("timestamp", "date time", A),
        ("timestamp", "timestamptz", I),
        ("timestamptz", "date time timestamp timetz", A),
        ("timetz", "time", A),
        ("varchar", "bpchar name text", I),
        ("varchar", "regclass", I),
        ("int2vector", "_int2", I),
        ("oidvector", "_oid", I),
        ("char", "text", I),
        ("char", "bpchar varchar", A),
        ("char", "int4", E),
        ("text", "char", A),
        ("varchar", "char", A),
        ("bpchar", "char", A),
        ("pg_node_tree", "text", I),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(TYPES.windows(2).all(|pair| pair[0].oid.0 < pair[1].oid.0));
        assert_eq!(by_name("double precision"), Some(TypeOid::FLOAT8));
        assert_eq!(display_with(TypeOid::NUMERIC, numeric_mod(10, 2)), "numeric(10,2)");
        assert_eq!(numeric_limits(numeric_mod(5, -2)), (5, -2));
    }
}
