//! Expressions.

use polyshard_engine::Value as Stored;
use polyshard_sql::ast::{
    AccessExpr, BinaryOperator, CeilFloorKind, DateTimeField, Expr, Subscript, TrimWhereField, Value,
};
use polyshard_sql::{SqlError, TypeOid};

use super::{How, Translator, fold, literal, name_parts};
use crate::fail::{fail, unsupported};
use crate::types::{self, oid};
use crate::value::interval::Interval;

/// What is known of a value before it is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    None,
    Null,
    /// A quoted text of no type yet.
    Text(String),
    /// A parameter, counted from 0.
    Parameter(usize),
    /// A whole number, for ORDER BY 1.
    Number(i64),
}

/// An expression in SQLite's words, with PostgreSQL's type.
#[derive(Clone, Debug)]
pub(crate) struct Ex {
    pub sql: String,
    pub type_oid: TypeOid,
    pub type_mod: i32,
    pub literal: Literal,
    pub not_null: bool,
    /// Columns it uses outside of aggregates that are not grouped by: level and name.
    pub ungrouped: Vec<(usize, String)>,
    /// The innermost query whose columns it uses.
    pub level: Option<usize>,
    /// What PostgreSQL would call it as a column.
    pub name: Option<String>,
    /// Whether the name is a makeshift (a type's, say) that a cast around it replaces.
    pub is_weak: bool,
    /// Whether it has a value made by a window.
    pub has_window: bool,
}

impl Ex {
    /// One that uses nothing.
    pub fn of(sql: impl Into<String>, type_oid: TypeOid) -> Ex {
        Ex {
            sql: sql.into(),
            type_oid,
            type_mod: -1,
            literal: Literal::None,
            not_null: false,
            ungrouped: Vec::new(),
            level: None,
            name: None,
            is_weak: false,
            has_window: false,
        }
    }

    /// One made of others.
    pub fn made(sql: impl Into<String>, type_oid: TypeOid, parts: &[&Ex]) -> Ex {
        let mut ex = Ex::of(sql, type_oid);
        for part in parts {
            ex.uses(part);
        }
        ex
    }

    /// Notes that another is part of it.
    pub fn uses(&mut self, part: &Ex) {
        for column in &part.ungrouped {
            if !self.ungrouped.contains(column) {
                self.ungrouped.push(column.clone());
            }
        }
        self.level = self.level.max(part.level);
        self.has_window |= part.has_window;
    }

    pub fn named(mut self, name: impl Into<String>) -> Ex {
        self.name = Some(name.into());
        self.is_weak = false;
        self
    }

    /// With a name that any better one replaces.
    pub fn weakly_named(mut self, name: impl Into<String>) -> Ex {
        self.name = Some(name.into());
        self.is_weak = true;
        self
    }

    pub fn is_unknown(&self) -> bool {
        self.type_oid == TypeOid::UNKNOWN
    }
}

impl Translator<'_> {
    /// Translates an expression.
    pub fn expr(&mut self, expr: &Expr) -> Result<Ex, SqlError> {
        let mut ex = self.deeper(|this| this.expr_inner(expr))?;
        // An expression that is grouped by as a whole needs none of its columns grouped.
        if !ex.ungrouped.is_empty() {
            let level = self.scopes.len().saturating_sub(1);
            if let Some(scope) = self.scopes.last()
                && scope.groups.as_ref().is_some_and(|groups| groups.contains(&ex.sql))
            {
                ex.ungrouped.retain(|(own, _)| *own != level);
            }
        }
        Ok(ex)
    }

    fn expr_inner(&mut self, expr: &Expr) -> Result<Ex, SqlError> {
        match expr {
            Expr::Identifier(ident) => self.identifier(&fold(ident), ident.quote_style.is_some()),
            Expr::CompoundIdentifier(parts) => {
                let parts: Vec<String> = parts.iter().map(fold).collect();
                match &parts[..] {
                    [relation, name] => self.column(Some(relation), name),
                    [_, relation, name] => self.column(Some(relation), name),
                    _ => Err(unsupported(format!("the name {expr}"))),
                }
            }
            Expr::Nested(inner) => self.expr(inner),
            Expr::Value(value) => self.value(&value.value),
            Expr::TypedString(typed) => {
                let (type_oid, type_mod) = self.data_type(&typed.data_type)?;
                let value = self.value(&typed.value.value)?;
                Ok(self.coerce(value, type_oid, type_mod, How::Explicit)?.weakly_named(type_label(type_oid)))
            }
            Expr::Interval(interval) => self.interval(interval),
            Expr::Cast { expr, data_type, .. } => {
                let (type_oid, type_mod) = self.data_type(data_type)?;
                // An empty array has the type that it is said to be of.
                let inner = match &**expr {
                    Expr::Array(array) if array.elem.is_empty() && types::is_array(type_oid) => {
                        Ex { not_null: true, ..Ex::of("'[]'", type_oid).named("array") }
                    }
                    expr => self.expr(expr)?,
                };
                let name = inner.name.clone().filter(|_| !inner.is_weak);
                let cast = self.coerce(inner, type_oid, type_mod, How::Explicit)?;
                Ok(match name {
                    Some(name) => cast.named(name),
                    None => cast.weakly_named(type_label(type_oid)),
                })
            }
            Expr::IsNull(inner) => self.is_null(inner, "IS NULL"),
            Expr::IsNotNull(inner) => self.is_null(inner, "IS NOT NULL"),
            Expr::IsTrue(inner) => self.is_truth(inner, "IS TRUE"),
            Expr::IsNotTrue(inner) => self.is_truth(inner, "IS NOT TRUE"),
            Expr::IsFalse(inner) => self.is_truth(inner, "IS FALSE"),
            Expr::IsNotFalse(inner) => self.is_truth(inner, "IS NOT FALSE"),
            Expr::IsUnknown(inner) => self.is_truth(inner, "IS NULL"),
            Expr::IsNotUnknown(inner) => self.is_truth(inner, "IS NOT NULL"),
            Expr::IsDistinctFrom(a, b) => self.distinct_from(a, b, false),
            Expr::IsNotDistinctFrom(a, b) => self.distinct_from(a, b, true),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            Expr::UnaryOp { op, expr } => self.unary(op, expr),
            Expr::Between { expr, negated, low, high } => {
                let (low, high) = (
                    Expr::BinaryOp { left: expr.clone(), op: BinaryOperator::GtEq, right: low.clone() },
                    Expr::BinaryOp { left: expr.clone(), op: BinaryOperator::LtEq, right: high.clone() },
                );
                let (low, high) = (self.expr(&low)?, self.expr(&high)?);
                let not = if *negated { "NOT " } else { "" };
                Ok(Ex::made(format!("({not}({} AND {}))", low.sql, high.sql), TypeOid::BOOL, &[&low, &high]))
            }
            Expr::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            Expr::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, *negated),
            Expr::AnyOp { left, compare_op, right, .. } => self.any_all(left, compare_op, right, true),
            Expr::AllOp { left, compare_op, right } => self.any_all(left, compare_op, right, false),
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), *negated, 0)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), *negated, 1)
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Expr::Exists { subquery, negated } => {
                let (sql, made) = self.subquery_text(subquery)?;
                let not = if *negated { "NOT " } else { "" };
                let mut ex = Ex::of(format!("({not}EXISTS ({sql}))"), TypeOid::BOOL);
                if !negated {
                    ex = ex.named("exists");
                }
                ex.uses(&made);
                ex.not_null = true;
                Ok(ex)
            }
            Expr::Subquery(query) => self.scalar_subquery(query),
            Expr::Function(function) => self.function(function),
            Expr::Extract { field, expr, .. } => {
                let field = Ex::of(literal(&Stored::Text(field_name(field)?)), TypeOid::TEXT);
                let argument = self.expr(expr)?;
                self.call_rule("extract", vec![field, argument])
            }
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                let argument = self.expr(expr)?;
                self.call_rule("ceil", vec![argument])
            }
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                let argument = self.expr(expr)?;
                self.call_rule("floor", vec![argument])
            }
            Expr::Position { expr, r#in } => {
                let (wanted, subject) = (self.expr(expr)?, self.expr(r#in)?);
                self.call_rule("position", vec![subject, wanted])
            }
            Expr::Substring { expr, substring_from, substring_for, shorthand, .. } => {
                let mut arguments = vec![self.expr(expr)?];
                match (substring_from, substring_for) {
                    (None, Some(_)) => arguments.push(Ex::of("1", TypeOid::INT4)),
                    (Some(from), _) => arguments.push(self.expr(from)?),
                    (None, None) => {}
                }
                if let Some(size) = substring_for {
                    arguments.push(self.expr(size)?);
                }
                self.call_rule(if *shorthand { "substr" } else { "substring" }, arguments)
            }
            Expr::Trim { expr, trim_where, trim_what, trim_characters } => {
                let mut arguments = vec![self.expr(expr)?];
                if let Some(what) = trim_what {
                    arguments.push(self.expr(what)?);
                }
                for what in trim_characters.iter().flatten() {
                    arguments.push(self.expr(what)?);
                }
                self.call_rule(
                    match trim_where {
                        None | Some(TrimWhereField::Both) => "btrim",
                        Some(TrimWhereField::Leading) => "ltrim",
                        Some(TrimWhereField::Trailing) => "rtrim",
                    },
                    arguments,
                )
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments =
                    vec![self.expr(expr)?, self.expr(overlay_what)?, self.expr(overlay_from)?];
                if let Some(size) = overlay_for {
                    arguments.push(self.expr(size)?);
                }
                self.call_rule("overlay", arguments)
            }
            Expr::AtTimeZone { timestamp, time_zone } => {
                let (timestamp, zone) = (self.expr(timestamp)?, self.expr(time_zone)?);
                self.call_rule("timezone", vec![zone, timestamp])
            }
            Expr::Collate { expr, collation } => {
                let (_, name) = name_parts(collation)?;
                if !matches!(name.as_str(), "C" | "POSIX" | "default" | "ucs_basic") {
                    return Err(unsupported(format!("the collation {collation}"))
                        .hint("SQLite shards compare texts byte by byte, as \"C\" does"));
                }
                let inner = self.expr(expr)?;
                if inner.is_unknown() {
                    self.coerce(inner, TypeOid::TEXT, -1, How::Implicit)
                } else {
                    Ok(inner)
                }
            }
            Expr::Array(array) => self.array(&array.elem),
            Expr::CompoundFieldAccess { root, access_chain } => self.subscripts(expr, root, access_chain),
            Expr::Tuple(_) => Err(unsupported(format!("the row {expr} here"))),
            other => Err(unsupported(format!("the expression {other}"))),
        }
    }

    /// `array[1]`, `document['key']['other']`, `table.column[1]`.
    fn subscripts(&mut self, whole: &Expr, root: &Expr, chain: &[AccessExpr]) -> Result<Ex, SqlError> {
        let refuse = || unsupported(format!("the expression {whole}"));
        let (mut value, steps) = match (root, chain) {
            (Expr::Identifier(relation), [AccessExpr::Dot(Expr::Identifier(name)), rest @ ..]) => {
                (self.column(Some(&fold(relation)), &fold(name))?, rest)
            }
            _ => (self.expr(root)?, chain),
        };
        // The only rows there are as values: those of _pg_expandarray.
        if let (oid::RECORD, [AccessExpr::Dot(Expr::Identifier(field))]) = (value.type_oid, steps) {
            let (place, type_oid) = match fold(field).as_str() {
                "x" => (0, TypeOid::INT2),
                "n" => (1, TypeOid::INT4),
                _ => return Err(refuse()),
            };
            let sql = format!("json_extract({}, '$[{place}]')", value.sql);
            return Ok(Ex::made(sql, type_oid, &[&value]).named(fold(field)));
        }
        let name = value.name.clone();
        for step in steps {
            let AccessExpr::Subscript(Subscript::Index { index }) = step else {
                return Err(refuse());
            };
            let index = self.expr(index)?;
            if value.type_oid == TypeOid::JSONB {
                let index = self.as_text(index)?;
                let sql = format!("pg_json_path({}, pg_array({}))", value.sql, index.sql);
                value = Ex::made(sql, TypeOid::JSONB, &[&value, &index]);
                continue;
            }
            let index = self.coerce(index, TypeOid::INT4, -1, How::Assignment)?;
            let element = types::element(value.type_oid).ok_or_else(refuse)?;
            if matches!(element, TypeOid::UUID | TypeOid::BYTEA | TypeOid::FLOAT8) {
                return Err(refuse());
            }
            // The vectors of the system catalog count from 0.
            let shift = matches!(value.type_oid, types::oid::INT2VECTOR | types::oid::OIDVECTOR);
            let place = if shift { format!("{} + 1", index.sql) } else { index.sql.clone() };
            value = Ex::made(format!("pg_array_get({}, {place})", value.sql), element, &[&value, &index]);
        }
        Ok(Ex { name, ..value })
    }

    fn identifier(&mut self, name: &str, is_quoted: bool) -> Result<Ex, SqlError> {
        match self.column(None, name) {
            Err(error) if error.state.0 == "42703" && !is_quoted => match self.keyword(name)? {
                Some(ex) => Ok(ex),
                None => Err(error),
            },
            found => found,
        }
    }

    fn value(&mut self, value: &Value) -> Result<Ex, SqlError> {
        let text = |text: &str| {
            let mut ex = Ex::of(literal(&Stored::from(text)), TypeOid::UNKNOWN);
            ex.literal = Literal::Text(text.to_owned());
            ex.not_null = true;
            ex
        };
        Ok(match value {
            Value::Number(digits, _) => self.number(digits)?,
            Value::SingleQuotedString(value)
            | Value::EscapedStringLiteral(value)
            | Value::UnicodeStringLiteral(value)
            | Value::NationalStringLiteral(value) => text(value),
            Value::DollarQuotedString(value) => text(&value.value),
            Value::Boolean(value) => {
                let mut ex = Ex::of(i64::from(*value).to_string(), TypeOid::BOOL);
                ex.not_null = true;
                ex
            }
            Value::Null => {
                let mut ex = Ex::of("NULL", TypeOid::UNKNOWN);
                ex.literal = Literal::Null;
                ex
            }
            Value::Placeholder(name) => {
                let number: usize = name
                    .strip_prefix('$')
                    .and_then(|digits| digits.parse().ok())
                    .filter(|number| (1..=65_535).contains(number))
                    .ok_or_else(|| fail("42P02", format!("there is no parameter {name}")))?;
                if self.parameters.len() < number {
                    self.parameters.resize(number, None);
                }
                let known =
                    self.parameters[number - 1].filter(|known| *known != TypeOid::UNKNOWN && known.0 != 0);
                let sql = self.parameter(crate::prepared::Source::Parameter(number - 1));
                let sql = known.and_then(|known| self.enum_checked(&sql, known)).unwrap_or(sql);
                let mut ex = Ex::of(sql, known.unwrap_or(TypeOid::UNKNOWN));
                ex.literal = Literal::Parameter(number - 1);
                ex
            }
            other => return Err(unsupported(format!("the literal {other}"))),
        })
    }

    pub(super) fn number(&self, digits: &str) -> Result<Ex, SqlError> {
        let mut ex = match digits.parse::<i64>() {
            Ok(value) => {
                let type_oid = if i32::try_from(value).is_ok() { TypeOid::INT4 } else { TypeOid::INT8 };
                let mut ex = Ex::of(literal(&Stored::Int(value)), type_oid);
                ex.literal = Literal::Number(value);
                ex
            }
            Err(_) => {
                let number = crate::value::numeric::Numeric::parse(digits).map_err(|_| {
                    fail("42601", format!("trailing junk after numeric literal at or near \"{digits}\""))
                })?;
                Ex::of(literal(&Stored::Text(number.to_string())), TypeOid::NUMERIC)
            }
        };
        ex.not_null = true;
        Ok(ex)
    }

    fn interval(&mut self, interval: &polyshard_sql::ast::Interval) -> Result<Ex, SqlError> {
        if interval.last_field.is_some() || interval.leading_precision.is_some() {
            return Err(unsupported("INTERVAL with a range of fields"));
        }
        let Expr::Value(value) = interval.value.as_ref() else {
            return Err(unsupported("INTERVAL with an expression"));
        };
        let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &value.value else {
            return Err(unsupported("INTERVAL without a quoted text"));
        };
        let text = match &interval.leading_field {
            None => text.clone(),
            Some(field) => format!("{text} {}", field_name(field)?),
        };
        let packed = Interval::parse(&text)?.pack();
        Ok(Ex::of(literal(&Stored::Text(packed)), TypeOid::INTERVAL).weakly_named("interval"))
    }

    fn is_null(&mut self, inner: &Expr, test: &str) -> Result<Ex, SqlError> {
        let inner = self.expr(inner)?;
        let inner = self.known(inner)?;
        let mut ex = Ex::made(format!("({} {test})", inner.sql), TypeOid::BOOL, &[&inner]);
        ex.not_null = true;
        Ok(ex)
    }

    fn is_truth(&mut self, inner: &Expr, test: &str) -> Result<Ex, SqlError> {
        let inner = self.condition(inner, "IS")?;
        let mut ex = Ex::made(format!("({} {test})", inner.sql), TypeOid::BOOL, &[&inner]);
        ex.not_null = true;
        Ok(ex)
    }

    /// An expression that must be true or false; `what` is for the message.
    pub fn condition(&mut self, expr: &Expr, what: &str) -> Result<Ex, SqlError> {
        let ex = self.expr(expr)?;
        self.truth(ex, what)
    }

    pub fn truth(&mut self, ex: Ex, what: &str) -> Result<Ex, SqlError> {
        if ex.type_oid != TypeOid::BOOL && !ex.is_unknown() {
            let found = types::display(ex.type_oid);
            return Err(fail("42804", format!("argument of {what} must be type boolean, not type {found}")));
        }
        self.coerce(ex, TypeOid::BOOL, -1, How::Implicit)
    }

    /// A value of no type yet is text.
    pub fn known(&mut self, ex: Ex) -> Result<Ex, SqlError> {
        if !ex.is_unknown() {
            return Ok(ex);
        }
        let (name, is_weak) = (ex.name.clone(), ex.is_weak);
        let made = self.coerce(ex, TypeOid::TEXT, -1, How::Implicit)?;
        Ok(Ex { name, is_weak, ..made })
    }
}

/// The message of a call that no candidate fits.
pub(crate) fn no_such(what: &str, given: &[TypeOid]) -> SqlError {
    fail("42883", format!("{what} does not exist: {}", shown(given)))
        .hint("No operator or function matches the given argument types. You might need to add explicit type casts.")
}

pub(super) fn shown(given: &[TypeOid]) -> String {
    given.iter().map(|oid| types::display(*oid)).collect::<Vec<_>>().join(", ")
}

/// What a column that is a cast is called: an array's after its elements.
fn type_label(type_oid: TypeOid) -> &'static str {
    let named = types::element(type_oid).filter(|_| types::is_array(type_oid)).unwrap_or(type_oid);
    types::info(named).map_or("?column?", |known| known.name)
}

fn field_name(field: &DateTimeField) -> Result<String, SqlError> {
    Ok(match field {
        DateTimeField::Custom(name) => fold(name),
        DateTimeField::Week(None) => "week".to_owned(),
        other => other.to_string().to_ascii_lowercase(),
    })
}
