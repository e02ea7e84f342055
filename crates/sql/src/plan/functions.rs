//! Which functions may run on the shards, which are aggregates, and which are refused across shards.

/// Scalar and set-returning functions of pg_catalog that give the same answer on every shard for the same
/// arguments and settings. A function that is not listed is never pushed down; it runs once, in the combine step.
const SAFE: &[&str] = &[
    "abs", "acos", "acosd", "array_append", "array_cat", "array_dims", "array_fill", "array_length",
    "array_lower", "array_ndims", "array_position", "array_positions", "array_prepend", "array_remove",
    "array_replace", "array_to_string", "array_upper", "ascii", "asin", "asind", "atan", "atan2", "atand",
    "bit_count", "bit_length", "bool", "btrim", "cardinality", "cbrt", "ceil", "ceiling", "char_length",
    "character_length", "chr", "coalesce", "concat", "concat_ws", "convert_from", "convert_to", "cos", "cosd",
    "cosh", "cot", "date", "date_bin", "date_part", "date_trunc", "daterange", "decode", "degrees", "div",
    "encode", "erf", "exp", "factorial", "float4", "float8", "floor", "format", "gcd", "get_bit", "get_byte",
    "greatest", "hashint4", "hashint8", "hashtext", "hex", "initcap", "int2", "int4", "int4range", "int8",
    "int8range", "isempty", "isfinite", "json_array_length", "json_build_array", "json_build_object",
    "json_extract_path", "json_extract_path_text", "json_object", "json_typeof", "jsonb_array_length",
    "jsonb_build_array", "jsonb_build_object", "jsonb_exists", "jsonb_extract_path", "jsonb_extract_path_text",
    "jsonb_insert", "jsonb_object", "jsonb_path_exists", "jsonb_path_match", "jsonb_path_query_array",
    "jsonb_path_query_first", "jsonb_pretty", "jsonb_set", "jsonb_strip_nulls", "jsonb_typeof",
    "justify_days", "justify_hours", "justify_interval", "lcm", "least", "left", "length", "like", "ln", "log",
    "log10", "lower", "lower_inc", "lower_inf", "lpad", "ltrim", "make_date", "make_interval", "make_time",
    "make_timestamp", "make_timestamptz", "md5", "min_scale", "mod", "normalize", "nullif", "num_nonnulls",
    "num_nulls", "numeric", "numrange", "octet_length", "overlaps", "overlay", "parse_ident", "pi", "position",
    "power", "quote_ident", "quote_literal", "quote_nullable", "radians", "range_merge", "regexp_count",
    "regexp_instr", "regexp_like", "regexp_match", "regexp_replace", "regexp_split_to_array", "regexp_substr",
    "repeat", "replace", "reverse", "right", "round", "row_to_json", "rpad", "rtrim", "scale", "set_bit",
    "set_byte", "sha224", "sha256", "sha384", "sha512", "sign", "sin", "sind", "sinh", "split_part", "sqrt",
    "starts_with", "string_to_array", "strpos", "substr", "substring", "tan", "tand", "tanh", "text",
    "timezone", "to_char", "to_date", "to_hex", "to_json", "to_jsonb", "to_number", "to_timestamp",
    "to_tsquery", "to_tsvector", "plainto_tsquery", "phraseto_tsquery", "websearch_to_tsquery", "ts_rank",
    "ts_rank_cd", "ts_headline", "translate", "trim", "trim_array", "trim_scale", "trunc", "tsrange",
    "tstzrange", "unistr", "upper", "upper_inc", "upper_inf", "uuid_send", "width_bucket",
];

/// Set-returning functions that may stand in FROM of what is pushed down, and have one column named like themselves.
const SAFE_SETS: &[&str] = &["generate_series", "unnest", "regexp_split_to_table", "string_to_table"];

/// Aggregates of pg_catalog.
const AGGREGATES: &[&str] = &[
    "any_value", "array_agg", "avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "corr", "count",
    "covar_pop", "covar_samp", "cume_dist", "dense_rank", "every", "json_agg", "json_object_agg", "jsonb_agg",
    "jsonb_object_agg", "max", "min", "mode", "percent_rank", "percentile_cont", "percentile_disc",
    "range_agg", "range_intersect_agg", "rank", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept",
    "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "stddev", "stddev_pop", "stddev_samp",
    "string_agg", "sum", "var_pop", "var_samp", "variance", "xmlagg", "grouping",
];

/// Functions that only stand before OVER.
const WINDOWS: &[&str] = &[
    "cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile", "percent_rank",
    "rank", "row_number",
];

/// Refused in any statement over several shards: they keep state in one database, read tables that are named in
/// texts, or tell of one database only.
const REFUSED: &[&str] = &[
    "currval", "lastval", "nextval", "setval", "set_config", "setseed", "query_to_xml", "query_to_xmlschema",
    "query_to_xml_and_xmlschema", "table_to_xml", "table_to_xmlschema", "table_to_xml_and_xmlschema",
    "cursor_to_xml", "cursor_to_xmlschema", "schema_to_xml", "schema_to_xmlschema",
    "schema_to_xml_and_xmlschema", "database_to_xml", "database_to_xmlschema",
    "database_to_xml_and_xmlschema", "ts_stat", "ts_rewrite", "loread", "lowrite", "txid_current",
    "txid_current_if_assigned", "txid_current_snapshot", "txid_snapshot_xmin", "txid_snapshot_xmax",
    "txid_snapshot_xip", "txid_visible_in_snapshot", "txid_status", "has_table_privilege", "row_security_active",
];

/// Of the functions whose names begin with `pg_`, which tell of a database, those that do not.
const PG_ALLOWED: &[&str] = &["pg_typeof", "pg_size_pretty", "pg_client_encoding", "pg_size_bytes"];

pub(super) fn is_safe(name: &str) -> bool {
    SAFE.contains(&name)
}

pub(super) fn is_safe_set(name: &str) -> bool {
    SAFE_SETS.contains(&name)
}

pub(super) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.contains(&name)
}

pub(super) fn is_window(name: &str) -> bool {
    WINDOWS.contains(&name)
}

/// Whether the answer of an aggregate depends on nothing but the set of values.
pub(super) fn is_orderless(name: &str) -> bool {
    matches!(
        name,
        "count" | "min" | "max" | "sum" | "avg" | "bool_and" | "bool_or" | "every" | "bit_and" | "bit_or"
    )
}

pub(super) fn is_refused(name: &str) -> bool {
    REFUSED.contains(&name)
        || name.starts_with("lo_")
        || name.starts_with("dblink")
        || (name.starts_with("pg_") && !PG_ALLOWED.contains(&name))
}
