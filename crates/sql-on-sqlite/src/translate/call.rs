//! Calls of functions.

use polyshard_engine::Value;
use polyshard_sql::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};
use polyshard_sql::{SqlError, TypeOid};

use super::compare::{Comparison, compared};
use super::expr::{Literal, no_such};
use super::{Ex, How, Ids, Translator, collated, is_ordered, literal, name_parts};
use crate::fail::{fail, unsupported};
use crate::functions::quote_ident;
use crate::known_settings::{FIXED_SETTINGS, IGNORED_SETTINGS};
use crate::prepared::Source;
use crate::rules;
use crate::system;
use crate::types::{self, oid};

/// The sequence that `polyshard.next_id()` takes from.
pub const NEXT_ID: &str = "polyshard.next_id";

/// Settings that are the same in every session, for clients that ask.
const SETTINGS: [(&str, &str); 14] = [
    ("client_encoding", "UTF8"),
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("search_path", "\"$user\", public"),
    ("standard_conforming_strings", "on"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "off"),
    ("default_table_access_method", "heap"),
    ("server_version_num", "150000"),
    ("server_encoding", "UTF8"),
    ("integer_datetimes", "on"),
    ("max_identifier_length", "63"),
    ("block_size", "8192"),
    // There is none to be on.
    ("jit", "off"),
];

/// Whether an expression is this text.
fn is_text(expr: &Expr, wanted: &str) -> bool {
    expr.to_string() == format!("'{wanted}'")
}

/// What a call has in its parentheses.
pub(super) struct Arguments<'a> {
    pub values: Vec<&'a Expr>,
    pub star: bool,
}

/// The plain arguments of a call.
pub(super) fn arguments(function: &Function) -> Result<Arguments<'_>, SqlError> {
    let mut made = Arguments { values: Vec::new(), star: false };
    match &function.args {
        FunctionArguments::None => {}
        FunctionArguments::Subquery(_) => return Err(unsupported(format!("the call {function}"))),
        FunctionArguments::List(list) => {
            for argument in &list.args {
                match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => made.values.push(expr),
                    FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => made.star = true,
                    _ => return Err(unsupported(format!("the call {function}"))),
                }
            }
        }
    }
    Ok(made)
}

impl Translator<'_> {
    pub(super) fn function(&mut self, function: &Function) -> Result<Ex, SqlError> {
        let (schema, name) = name_parts(&function.name)?;
        match schema.as_deref() {
            None | Some("pg_catalog" | "information_schema") => {}
            Some("polyshard") if name == "next_id" => return self.next_id(NEXT_ID),
            Some(_) => return Err(unsupported(format!("the function {}", function.name))),
        }
        if name == "array"
            && let FunctionArguments::Subquery(query) = &function.args
        {
            return self.array_subquery(query);
        }
        if function.over.is_some() {
            return self.window_call(&name, function);
        }
        if super::aggregate::is_aggregate(&name) {
            return self.aggregate(&name, function, None);
        }
        if super::window::is_window_only(&name) {
            return Err(fail("42809", format!("window function {name} requires an OVER clause")));
        }
        if function.filter.is_some() || !function.within_group.is_empty() {
            return Err(fail("42809", format!("{name} is not an aggregate function")));
        }
        if super::table_function::is_table_function(&name) {
            let text = function.to_string();
            if let Some((_, value)) = self.scope().spread.iter().find(|(known, _)| *known == text) {
                return Ok(value.clone().named(name));
            }
            return Err(unsupported(format!("the function {name} outside of FROM")));
        }
        let shown = name.clone();
        // The one function of uuid-ossp that is asked for: another name of PostgreSQL's own.
        let name = if name == "uuid_generate_v4" { "gen_random_uuid".to_owned() } else { name };
        let given = arguments(function)?;
        if given.star {
            return Err(no_such(&format!("function {name}"), &[]));
        }
        Ok(match self.special(&name, &given.values)? {
            Some(ex) if ex.name.is_some() => ex,
            Some(ex) => ex.named(shown),
            None => {
                let mut values = Vec::with_capacity(given.values.len());
                for value in given.values {
                    values.push(self.expr(value)?);
                }
                self.call_rule(&name, values)?.named(shown)
            }
        })
    }

    /// A function of the rules.
    pub(super) fn call_rule(&mut self, name: &str, values: Vec<Ex>) -> Result<Ex, SqlError> {
        let given: Vec<TypeOid> = values.iter().map(|value| value.type_oid).collect();
        let Some(candidates) = rules::functions().get(name) else {
            // A type's name is a function that converts to it.
            if let (Some(type_oid), [_]) = (types::by_name(name), &given[..])
                && let Some(value) = values.into_iter().next()
            {
                return Ok(self.coerce(value, type_oid, -1, How::Explicit)?.named(name));
            }
            return Err(unsupported(format!("the function {name}({})", shown(&given))));
        };
        let rule =
            self.chosen(rules::choose(candidates.iter(), &given), &format!("function {name}"), &given)?;
        Ok(self.apply(rule, values)?.named(name))
    }

    /// Words that are values.
    pub(super) fn keyword(&mut self, name: &str) -> Result<Option<Ex>, SqlError> {
        self.special(name, &[])
    }

    /// Functions whose arguments are of any type or number.
    fn special(&mut self, name: &str, given: &[&Expr]) -> Result<Option<Ex>, SqlError> {
        let settings = self.settings;
        let text = |text: &str, type_oid| {
            Some(Ex { not_null: true, ..Ex::of(literal(&Value::from(text)), type_oid) })
        };
        Ok(match (name, given) {
            ("current_date", []) => {
                let now = self.parameter(Source::Transaction);
                let sql = format!("pg_ts_date(pg_to_local({now}, {}))", self.zone());
                Some(Ex::of(sql, TypeOid::DATE))
            }
            ("current_timestamp", []) => {
                let now = self.parameter(Source::Transaction);
                Some(Ex::of(now, TypeOid::TIMESTAMPTZ))
            }
            ("localtimestamp", []) => {
                let now = self.parameter(Source::Transaction);
                Some(Ex::of(format!("pg_to_local({now}, {})", self.zone()), TypeOid::TIMESTAMP))
            }
            ("current_time" | "localtime", []) => {
                return Err(unsupported(format!("{name} on SQLite shards")));
            }
            ("current_user" | "session_user" | "user" | "current_role", []) => {
                text(&settings.user, TypeOid::NAME)
            }
            ("current_catalog" | "current_database", []) => text(&settings.database, TypeOid::NAME),
            ("current_schema", []) => match self.schemas().next() {
                Some(schema) => text(schema, TypeOid::NAME),
                None => Some(Ex::of("NULL", TypeOid::NAME)),
            },
            ("current_schemas", [_]) => {
                let implied = given.iter().any(|expr| expr.to_string().eq_ignore_ascii_case("true"));
                let implied = implied.then_some("pg_catalog");
                let names: Vec<Value> = implied.into_iter().chain(self.schemas()).map(Value::from).collect();
                let names = crate::value::array::pack(&names);
                Some(Ex { not_null: true, ..Ex::of(literal(&names), oid::NAME_ARRAY) })
            }
            ("version", []) => text(&settings.version, TypeOid::TEXT),
            ("current_setting", [name, ..]) => {
                let given_name = self.expr(name)?;
                // As it was set; what nobody has set is as PostgreSQL has it.
                let path = match self.context.search_path {
                    [only] if only == "public" => None,
                    set => Some(set.iter().map(|name| quote_ident(name)).collect::<Vec<_>>().join(", ")),
                };
                let path = path.as_deref().map(|path| ("search_path", path));
                let known = || {
                    let zone = std::iter::once(("timezone", settings.zone.name()));
                    let named = settings.named.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                    let rest = IGNORED_SETTINGS
                        .iter()
                        .chain(&FIXED_SETTINGS)
                        .filter(|(name, _)| !name.contains(' '));
                    zone.chain(path).chain(named).chain(SETTINGS.iter().copied()).chain(rest.copied())
                };
                let Literal::Text(name) = &given_name.literal else {
                    let name = self.coerce(given_name, TypeOid::TEXT, -1, How::Implicit)?;
                    let branches: Vec<String> = known()
                        .map(|(name, value)| {
                            format!(
                                "WHEN {} THEN {}",
                                literal(&Value::from(name)),
                                literal(&Value::from(value))
                            )
                        })
                        .collect();
                    let sql = format!(
                        "CASE lower({}) {} ELSE pg_raise('42704', 'unrecognized configuration parameter') END",
                        name.sql,
                        branches.join(" ")
                    );
                    return Ok(Some(Ex::made(sql, TypeOid::TEXT, &[&name])));
                };
                let lower = name.to_ascii_lowercase();
                match known().find(|(known, _)| *known == lower) {
                    Some((_, value)) => text(value, TypeOid::TEXT),
                    None if given.len() == 2 => Some(Ex::of("NULL", TypeOid::TEXT)),
                    None => {
                        return Err(fail(
                            "42704",
                            format!("unrecognized configuration parameter \"{name}\""),
                        ));
                    }
                }
            }
            ("coalesce", [_, ..]) => {
                let values = self.all(given)?;
                let (values, type_oid) = self.same_type(values, "COALESCE")?;
                let sql: Vec<&str> = values.iter().map(|value| value.sql.as_str()).collect();
                // SQLite's own takes two values at least.
                let sql = match sql[..] {
                    [one] => one.to_owned(),
                    _ => format!("coalesce({})", sql.join(", ")),
                };
                let not_null = values.iter().any(|value| value.not_null);
                let used: Vec<&Ex> = values.iter().collect();
                Some(Ex { not_null, ..Ex::made(sql, type_oid, &used) })
            }
            ("nullif", [a, b]) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                let (a, b) = self.comparable(a, b)?;
                let same = compared(&a, Comparison::Equal, &b)?;
                let sql = format!("(CASE WHEN {same} THEN NULL ELSE {} END)", a.sql);
                Some(Ex::made(sql, a.type_oid, &[&a, &b]))
            }
            ("greatest" | "least", [_, ..]) => {
                let values = self.all(given)?;
                let (values, type_oid) = self.same_type(values, &name.to_uppercase())?;
                if !is_ordered(type_oid) {
                    return Err(unsupported(format!("{name} of {}", types::display(type_oid))));
                }
                let sql: Vec<&str> = values.iter().map(|value| value.sql.as_str()).collect();
                let kind = if type_oid == TypeOid::NUMERIC { "n" } else { "" };
                let used: Vec<&Ex> = values.iter().collect();
                Some(Ex::made(format!("pg_{name}{kind}({})", sql.join(", ")), type_oid, &used))
            }
            ("concat" | "concat_ws" | "format", [_, ..]) => {
                let mut values = Vec::with_capacity(given.len());
                for value in given {
                    let value = self.expr(value)?;
                    values.push(self.output_text(value)?);
                }
                Some(self.joined(&format!("pg_{name}"), values, TypeOid::TEXT))
            }
            ("quote_literal" | "quote_nullable", [value]) => {
                let value = self.expr(value)?;
                let value = self.as_text(value)?;
                Some(self.joined(&format!("pg_{name}"), vec![value], TypeOid::TEXT))
            }
            ("to_jsonb" | "to_json", [value]) => {
                if name == "to_json" {
                    return Err(unsupported("the function to_json").hint("use to_jsonb"));
                }
                let value = self.expr(value)?;
                let value = self.known(value)?;
                Some(Ex { name: None, ..self.document(value)? })
            }
            ("jsonb_build_array", values) => {
                let mut parts = Vec::new();
                for value in values {
                    let value = self.expr(value)?;
                    let value = self.known(value)?;
                    parts.push(self.document(value)?);
                }
                Some(self.joined("pg_jsonb_build_array", parts, TypeOid::JSONB))
            }
            ("json_build_array", values) => {
                let mut parts = Vec::new();
                for value in values {
                    let value = self.expr(value)?;
                    let value = self.known(value)?;
                    parts.push(self.json_text(value)?);
                }
                Some(self.joined("pg_json_build_array", parts, TypeOid::JSON))
            }
            ("jsonb_build_object" | "json_build_object", values) => {
                if values.len() % 2 != 0 {
                    return Err(fail("22023", "argument list must have even number of elements"));
                }
                let mut parts = Vec::new();
                for (place, value) in values.iter().enumerate() {
                    let value = self.expr(value)?;
                    let value = self.known(value)?;
                    parts.push(match (place % 2, name) {
                        (0, _) => self.output_text(value)?,
                        (_, "json_build_object") => self.json_text(value)?,
                        _ => self.document(value)?,
                    });
                }
                let type_oid = if name == "json_build_object" { TypeOid::JSON } else { TypeOid::JSONB };
                Some(self.joined(&format!("pg_{name}"), parts, type_oid))
            }
            ("jsonb_extract_path" | "jsonb_extract_path_text", [document, path @ ..]) => {
                let document = self.expr(document)?;
                let document = self.coerce(document, TypeOid::JSONB, -1, How::Implicit)?;
                let mut steps = Vec::new();
                for step in path {
                    let step = self.expr(step)?;
                    steps.push(self.coerce(step, TypeOid::TEXT, -1, How::Implicit)?);
                }
                let path = self.joined("pg_array", steps, oid::TEXT_ARRAY);
                let (function, result) = match name {
                    "jsonb_extract_path" => ("pg_json_path", TypeOid::JSONB),
                    _ => ("pg_json_path_text", TypeOid::TEXT),
                };
                Some(self.joined(function, vec![document, path], result))
            }
            ("num_nulls" | "num_nonnulls", [_, ..]) => {
                let values = self.all(given)?;
                let test = if name == "num_nulls" { "IS NULL" } else { "IS NOT NULL" };
                let sql: Vec<String> = values.iter().map(|value| format!("({} {test})", value.sql)).collect();
                let used: Vec<&Ex> = values.iter().collect();
                Some(Ex::made(format!("({})", sql.join(" + ")), TypeOid::INT4, &used))
            }
            ("array_append", [array, value]) => Some(self.array_with(array, value, false)?),
            ("array_prepend", [value, array]) => Some(self.array_with(array, value, true)?),
            ("array_cat", [left, right]) => {
                let (left, right) = (self.expr(left)?, self.expr(right)?);
                Some(self.array_pair("pg_array_cat", left, right, name)?)
            }
            ("array_remove" | "array_position", [array, value]) => {
                Some(self.array_search(name, array, value)?)
            }
            ("array_to_string", [array, rest @ ..]) if (1..=2).contains(&rest.len()) => {
                let array = self.expr(array)?;
                let element = types::element(array.type_oid)
                    .ok_or_else(|| no_such("function array_to_string", &[array.type_oid]))?;
                let array = match element {
                    TypeOid::TEXT | TypeOid::NAME | TypeOid::VARCHAR | TypeOid::INT4 | TypeOid::INT8 => array,
                    _ => self.coerce(array, oid::TEXT_ARRAY, -1, How::Explicit)?,
                };
                let mut parts = vec![array];
                for part in rest {
                    let part = self.expr(part)?;
                    parts.push(self.coerce(part, TypeOid::TEXT, -1, How::Implicit)?);
                }
                if parts.len() == 2 {
                    parts.push(Ex::of("NULL", TypeOid::TEXT));
                }
                Some(self.joined("pg_array_to_string", parts, TypeOid::TEXT))
            }
            // The base of everything here is UTF-8, so that this changes nothing but the type.
            ("convert_to", [value, encoding]) => {
                let (value, encoding) = (self.expr(value)?, self.expr(encoding)?);
                let value = self.coerce(value, TypeOid::TEXT, -1, How::Implicit)?;
                match &encoding.literal {
                    Literal::Text(name) if name.replace('-', "").eq_ignore_ascii_case("utf8") => {}
                    _ => return Err(unsupported("convert_to another encoding than UTF8")),
                }
                Some(Ex::made(format!("CAST({} AS BLOB)", value.sql), TypeOid::BYTEA, &[&value]))
            }
            ("regexp_replace", [subject, pattern, replacement, flags @ ..]) if flags.len() <= 1 => {
                let mut parts = Vec::new();
                for part in [subject, pattern, replacement].into_iter().chain(flags) {
                    let part = self.expr(part)?;
                    parts.push(self.coerce(part, TypeOid::TEXT, -1, How::Implicit)?);
                }
                if flags.is_empty() {
                    parts.push(Ex::of("''", TypeOid::TEXT));
                }
                Some(self.joined("pg_regexp_replace", parts, TypeOid::TEXT))
            }
            ("pg_typeof", [value]) => {
                let value = self.expr(value)?;
                Some(Ex { not_null: true, ..Ex::of(value.type_oid.0.to_string(), oid::REGTYPE) })
            }
            ("nextval", [value]) => {
                // `nextval('s'::regclass)` is how a default is written.
                let value = match value {
                    Expr::Cast { expr, .. } => self.expr(expr)?,
                    other => self.expr(other)?,
                };
                match &value.literal {
                    Literal::Text(name) => {
                        let mut parts = system::written_parts(name);
                        let name = parts.pop().unwrap_or_default();
                        let name = match parts.pop().filter(|schema| schema != "public") {
                            None => name,
                            // As PostgreSQL writes it: ids are counted by this name on either engine.
                            Some(schema) => [schema, name].map(|part| quote_ident(&part)).join("."),
                        };
                        Some(self.next_id(&name)?)
                    }
                    _ => return Err(unsupported("nextval of a name that is computed")),
                }
            }
            ("currval" | "lastval" | "setval", _) => {
                return Err(unsupported(format!("the function {name}"))
                    .hint("use RETURNING to learn the id of a row"));
            }
            // asyncpg has it set before it asks for types; here it means nothing.
            ("set_config", [name, value, _]) if is_text(name, "jit") && is_text(value, "off") => {
                text("off", TypeOid::TEXT)
            }
            ("set_config", [_, _, _]) => return Err(unsupported("set_config").hint("use SET")),
            (
                "format_type"
                | "pg_get_indexdef"
                | "pg_get_constraintdef"
                | "pg_get_viewdef"
                | "to_regclass"
                | "to_regtype",
                values,
            ) => {
                let values = self.all(values)?;
                Some(system::function(self, name, values)?)
            }
            (name, [value]) if system::SIZE_FUNCTIONS.contains(&name) => {
                let value = self.expr(value)?;
                Some(system::size(self, name, value)?)
            }
            ("pg_type_is_visible", values) if !self.context.schema.enums.is_empty() => {
                let values = self.all(values)?;
                Some(system::function(self, name, values)?)
            }
            ("pg_table_is_visible", values) if !self.context.schema.schemas.is_empty() => {
                let values = self.all(values)?;
                Some(system::function(self, name, values)?)
            }
            _ => return Ok(None),
        })
    }

    /// The schemas of the search path that are there.
    fn schemas(&self) -> impl Iterator<Item = &str> {
        let context = self.context;
        let there = |name: &&String| *name == "public" || context.schema.schemas.contains(*name);
        context.search_path.iter().filter(there).map(String::as_str)
    }

    pub(super) fn all(&mut self, given: &[&Expr]) -> Result<Vec<Ex>, SqlError> {
        given.iter().map(|value| self.expr(value)).collect()
    }

    /// A call of one of our functions.
    pub(crate) fn joined(&self, function: &str, parts: Vec<Ex>, type_oid: TypeOid) -> Ex {
        let sql: Vec<&str> = parts.iter().map(|part| part.sql.as_str()).collect();
        let used: Vec<&Ex> = parts.iter().collect();
        Ex::made(format!("{function}({})", sql.join(", ")), type_oid, &used)
    }

    /// As the type's output function writes it: a boolean is `t` or `f`.
    fn output_text(&mut self, ex: Ex) -> Result<Ex, SqlError> {
        if ex.type_oid == TypeOid::BOOL {
            let sql = format!("CASE {} WHEN 1 THEN 't' WHEN 0 THEN 'f' END", ex.sql);
            return Ok(Ex::made(sql, TypeOid::TEXT, &[&ex]));
        }
        self.as_text(ex)
    }

    /// As a document's text within another: json stays as it was written.
    pub(super) fn json_text(&mut self, ex: Ex) -> Result<Ex, SqlError> {
        // PostgreSQL writes them without blanks.
        if types::is_array(ex.type_oid) {
            return Err(unsupported("arrays in json").hint("use jsonb"));
        }
        if ex.type_oid == TypeOid::JSON { Ok(ex) } else { self.document(ex) }
    }

    /// As a document; NULL becomes JSON's null only where the caller's function makes it so.
    pub(super) fn document(&mut self, ex: Ex) -> Result<Ex, SqlError> {
        if ex.type_oid == TypeOid::JSONB {
            return Ok(ex);
        }
        if !types::is_array(ex.type_oid) && types::info(ex.type_oid).is_none() {
            return Err(unsupported(format!("{} as jsonb", types::display(ex.type_oid))));
        }
        let sql = format!(
            "CASE WHEN {0} IS NOT NULL THEN pg_to_jsonb({0}, {1}, {2}) END",
            ex.sql,
            ex.type_oid.0,
            self.zone()
        );
        Ok(Ex::made(format!("({sql})"), TypeOid::JSONB, &[&ex]))
    }

    /// An id, leased from the catalog for this statement.
    pub(crate) fn next_id(&mut self, sequence: &str) -> Result<Ex, SqlError> {
        let name = sequence.rsplit('.').next().unwrap_or("nextval");
        if let Ids::Rows(count) = self.ids {
            let ids = self.parameter(Source::Ids(sequence.to_owned(), count));
            let sql = format!("pg_array_get({ids}, row_number() OVER ())");
            return Ok(Ex { not_null: true, has_window: true, ..Ex::of(sql, TypeOid::INT8) }.named(name));
        }
        if self.ids == Ids::Held {
            let sql = self.held.get_or_insert_default().id(sequence);
            return Ok(Ex { not_null: true, ..Ex::of(sql, TypeOid::INT8) }.named(name));
        }
        if self.ids == Ids::None {
            return Err(crate::held::not_here());
        }
        let sql = self.parameter(Source::Id(sequence.to_owned()));
        Ok(Ex { not_null: true, ..Ex::of(sql, TypeOid::INT8) }.named(name))
    }

    /// `ARRAY(SELECT …)`.
    fn array_subquery(&mut self, query: &polyshard_sql::ast::Query) -> Result<Ex, SqlError> {
        let made = self.query(query, None)?;
        let [column] = &made.columns[..] else {
            return Err(fail("42601", "subquery must return only one column"));
        };
        let array = types::array_of(column.type_oid)
            .ok_or_else(|| unsupported(format!("arrays of {}", types::display(column.type_oid))))?;
        let sql = format!("(SELECT coalesce(pg_array_agg(\"s\".\"c1\"), '[]') FROM ({}) AS \"s\")", made.sql);
        Ok(Ex::made(sql, array, &[&made.uses]).named("array"))
    }

    /// A query that gives one value.
    pub(super) fn scalar_subquery(&mut self, query: &polyshard_sql::ast::Query) -> Result<Ex, SqlError> {
        let made = self.query(query, None)?;
        let [column] = &made.columns[..] else {
            return Err(fail("42601", "subquery must return only one column"));
        };
        // SQLite would take the first row of several and say nothing.
        let sql = if made.one_row {
            format!("({})", made.sql)
        } else {
            format!("(SELECT pg_only(\"s\".\"c1\") FROM ({}) AS \"s\")", made.sql)
        };
        let name = column.name.clone();
        let mut ex = Ex::made(sql, column.type_oid, &[&made.uses]).named(name);
        ex.type_mod = column.type_mod;
        Ok(ex)
    }
}

fn shown(given: &[TypeOid]) -> String {
    given.iter().map(|oid| types::display(*oid)).collect::<Vec<_>>().join(", ")
}

/// A value in SQLite's MIN, MAX, DISTINCT and the like.
pub(super) fn ordered_value(ex: &Ex) -> String {
    collated(&ex.sql, ex.type_oid)
}
