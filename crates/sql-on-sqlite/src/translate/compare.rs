//! Comparisons: pairs of types as PostgreSQL compares them, IN, ANY, CASE, and rows.

use polyshard_sql::ast::{BinaryOperator, CaseWhen, Expr, FunctionArguments, Query};
use polyshard_sql::{SqlError, TypeOid};

use super::expr::no_such;
use super::{Ex, How, Translator, collated, is_comparable, is_ordered, sort_value};
use crate::fail::{fail, unsupported};
use crate::types;

/// One of the six.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};

impl Comparison {
    pub fn parse(name: &str) -> Option<Comparison> {
        Some(match name {
            "=" => Equal,
            "<>" | "!=" => NotEqual,
            "<" => Less,
            "<=" => LessOrEqual,
            ">" => Greater,
            ">=" => GreaterOrEqual,
            _ => return None,
        })
    }

    pub fn sql(self) -> &'static str {
        match self {
            Equal => "=",
            NotEqual => "<>",
            Less => "<",
            LessOrEqual => "<=",
            Greater => ">",
            GreaterOrEqual => ">=",
        }
    }
}

impl Translator<'_> {
    pub(super) fn comparison(&mut self, left: &Expr, op: Comparison, right: &Expr) -> Result<Ex, SqlError> {
        match (unnested(left), unnested(right)) {
            (Expr::Tuple(a), Expr::Tuple(b)) => self.rows(a, op, b),
            (Expr::Tuple(_), _) | (_, Expr::Tuple(_)) => Err(unsupported("a row beside something else")),
            _ => {
                let (a, b) = (self.expr(left)?, self.expr(right)?);
                self.compare(a, op, b)
            }
        }
    }

    /// `(a, b) < (c, d)`.
    fn rows(&mut self, a: &[Expr], op: Comparison, b: &[Expr]) -> Result<Ex, SqlError> {
        if a.len() != b.len() {
            return Err(fail("42601", "unequal number of entries in row expressions"));
        }
        let mut pairs = Vec::new();
        for (left, right) in a.iter().zip(b) {
            let (left, right) = (self.expr(left)?, self.expr(right)?);
            pairs.push(self.comparable(left, right)?);
        }
        let used: Vec<&Ex> = pairs.iter().flat_map(|(a, b)| [a, b]).collect();
        let sql = if matches!(op, Equal | NotEqual) {
            let parts: Result<Vec<String>, SqlError> =
                pairs.iter().map(|(a, b)| compared(a, op, b)).collect();
            format!("({})", parts?.join(if op == Equal { " AND " } else { " OR " }))
        } else {
            for (a, _) in &pairs {
                if !is_ordered(a.type_oid) {
                    return Err(unsupported(format!("rows with {}", types::display(a.type_oid))));
                }
            }
            let side = |pick: fn(&(Ex, Ex)) -> &Ex| {
                let parts: Vec<String> =
                    pairs.iter().map(|pair| collated(&pick(pair).sql, pick(pair).type_oid)).collect();
                parts.join(", ")
            };
            format!("(({}) {} ({}))", side(|pair| &pair.0), op.sql(), side(|pair| &pair.1))
        };
        Ok(Ex::made(sql, TypeOid::BOOL, &used))
    }

    /// Compares two values.
    pub fn compare(&mut self, a: Ex, op: Comparison, b: Ex) -> Result<Ex, SqlError> {
        let (a, b) = self.comparable(a, b)?;
        if types::is_enum(a.type_oid) && !matches!(op, Equal | NotEqual) {
            let [x, y] = [sort_value(self.context, &a)?, sort_value(self.context, &b)?];
            return Ok(Ex::made(format!("({x} {} {y})", op.sql()), TypeOid::BOOL, &[&a, &b]));
        }
        Ok(Ex {
            not_null: a.not_null && b.not_null,
            ..Ex::made(compared(&a, op, &b)?, TypeOid::BOOL, &[&a, &b])
        })
    }

    /// Both as the types that PostgreSQL's operator takes, which are then compared by [`compared`].
    pub(super) fn comparable(&mut self, a: Ex, b: Ex) -> Result<(Ex, Ex), SqlError> {
        let (x, y) = (a.type_oid, b.type_oid);
        let unknown = TypeOid::UNKNOWN;
        let to = |this: &mut Self, a: Ex, b: Ex, oid: TypeOid| -> Result<(Ex, Ex), SqlError> {
            Ok((this.coerce(a, oid, -1, How::Implicit)?, this.coerce(b, oid, -1, How::Implicit)?))
        };
        if x == unknown && y == unknown {
            return to(self, a, b, TypeOid::TEXT);
        }
        if x == unknown || y == unknown {
            let known = if x == unknown { y } else { x };
            let as_type = if known == TypeOid::VARCHAR { TypeOid::TEXT } else { known };
            if !has_equality(as_type) {
                return Err(no_such("operator =", &[x, y]));
            }
            return to(self, a, b, as_type);
        }
        if types::is_integer(x) && types::is_integer(y) {
            return Ok((a, b));
        }
        if x == y {
            let as_type = if x == TypeOid::VARCHAR { TypeOid::TEXT } else { x };
            return if has_equality(as_type) {
                to(self, a, b, as_type)
            } else {
                Err(no_such("operator =", &[x, y]))
            };
        }
        let string = |oid: TypeOid| types::is_string(oid);
        if string(x) && string(y) {
            // character(n) beside text is compared as text, after its blanks are gone; beside itself likewise.
            let as_type =
                if x == TypeOid::BPCHAR && y == TypeOid::BPCHAR { TypeOid::BPCHAR } else { TypeOid::TEXT };
            if [x, y].contains(&TypeOid::BPCHAR) && [x, y].contains(&TypeOid::VARCHAR) {
                return Err(unsupported("comparing character(n) with character varying"));
            }
            return to(self, a, b, as_type);
        }
        let number =
            |oid: TypeOid| types::is_integer(oid) || matches!(oid, TypeOid::NUMERIC | TypeOid::FLOAT8);
        if number(x) && number(y) {
            let as_type = if [x, y].contains(&TypeOid::FLOAT8) { TypeOid::FLOAT8 } else { TypeOid::NUMERIC };
            return to(self, a, b, as_type);
        }
        if (types::is_oid(x) || types::is_integer(x)) && (types::is_oid(y) || types::is_integer(y)) {
            return Ok((a, b));
        }
        let time = |oid: TypeOid| matches!(oid, TypeOid::DATE | TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ);
        if time(x) && time(y) {
            let zoned = [x, y].contains(&TypeOid::TIMESTAMPTZ);
            return to(self, a, b, if zoned { TypeOid::TIMESTAMPTZ } else { TypeOid::TIMESTAMP });
        }
        if types::is_array(x) && types::is_array(y) && types::element(x) == types::element(y) {
            return Ok((a, b));
        }
        Err(no_such("operator =", &[x, y]))
    }

    /// NULLs are values here.
    pub(super) fn distinct_from(&mut self, a: &Expr, b: &Expr, same: bool) -> Result<Ex, SqlError> {
        let (a, b) = (self.expr(a)?, self.expr(b)?);
        let (a, b) = self.comparable(a, b)?;
        if !is_comparable(a.type_oid) {
            return Err(unsupported(format!("IS DISTINCT FROM with {}", types::display(a.type_oid))));
        }
        let is = if same { "IS" } else { "IS NOT" };
        let sql = format!("({} {is} {})", collated(&a.sql, a.type_oid), b.sql);
        Ok(Ex { not_null: true, ..Ex::made(sql, TypeOid::BOOL, &[&a, &b]) })
    }

    pub(super) fn in_list(&mut self, expr: &Expr, list: &[Expr], negated: bool) -> Result<Ex, SqlError> {
        if let Expr::Tuple(own) = unnested(expr) {
            let mut parts = Vec::new();
            for other in list {
                let Expr::Tuple(other) = unnested(other) else {
                    return Err(fail("42601", "unequal number of entries in row expressions"));
                };
                parts.push(self.rows(own, Equal, other)?);
            }
            return Ok(any_of(&parts, negated));
        }
        let subject = self.expr(expr)?;
        let mut values = Vec::with_capacity(list.len());
        for value in list {
            values.push(self.expr(value)?);
        }
        // PostgreSQL first looks for one type for all; only if there is none, each is compared by itself.
        let mut given: Vec<TypeOid> = vec![subject.type_oid];
        given.extend(values.iter().map(|value| value.type_oid));
        if let Ok(common) = self.common_type(&given, "IN") {
            let common = if common == TypeOid::VARCHAR { TypeOid::TEXT } else { common };
            if is_ordered(common) {
                let subject = self.coerce(subject, common, -1, How::Implicit)?;
                let mut parts = Vec::with_capacity(values.len());
                for value in values {
                    parts.push(self.coerce(value, common, -1, How::Implicit)?);
                }
                let sql: Vec<&str> = parts.iter().map(|part| part.sql.as_str()).collect();
                let not = if negated { "NOT " } else { "" };
                let sql = format!("({} {not}IN ({}))", collated(&subject.sql, common), sql.join(", "));
                let mut used: Vec<&Ex> = parts.iter().collect();
                used.push(&subject);
                return Ok(Ex::made(sql, TypeOid::BOOL, &used));
            }
        }
        let mut parts = Vec::with_capacity(values.len());
        for value in values {
            parts.push(self.compare(subject.clone(), Equal, value)?);
        }
        Ok(any_of(&parts, negated))
    }

    pub(super) fn in_subquery(&mut self, expr: &Expr, query: &Query, negated: bool) -> Result<Ex, SqlError> {
        let subjects: Vec<Ex> = match unnested(expr) {
            Expr::Tuple(parts) => parts.iter().map(|part| self.expr(part)).collect::<Result<_, _>>()?,
            _ => vec![self.expr(expr)?],
        };
        let made = self.query(query, None)?;
        if made.columns.len() != subjects.len() {
            let few = if made.columns.len() < subjects.len() { "few" } else { "many" };
            return Err(fail("42601", format!("subquery has too {few} columns")));
        }
        let mut left = Vec::new();
        let mut right = Vec::new();
        for (place, (subject, column)) in subjects.into_iter().zip(&made.columns).enumerate() {
            let value = Ex::of(format!("\"s\".\"c{}\"", place + 1), column.type_oid);
            let (subject, value) = self.comparable(subject, value)?;
            if !is_comparable(subject.type_oid) {
                return Err(unsupported(format!("IN with {}", types::display(subject.type_oid))));
            }
            right.push(value.sql.clone());
            left.push(subject);
        }
        let names: Vec<String> = left.iter().map(|ex| collated(&ex.sql, ex.type_oid)).collect();
        let subject = if names.len() == 1 { names[0].clone() } else { format!("({})", names.join(", ")) };
        let not = if negated { "NOT " } else { "" };
        let sql = format!("({subject} {not}IN (SELECT {} FROM ({}) AS \"s\"))", right.join(", "), made.sql);
        let mut used: Vec<&Ex> = left.iter().collect();
        used.push(&made.uses);
        Ok(Ex::made(sql, TypeOid::BOOL, &used))
    }

    /// `= ANY(array)`, `<> ALL(array)`, `= ANY(SELECT …)`.
    pub(super) fn any_all(
        &mut self,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
        any: bool,
    ) -> Result<Ex, SqlError> {
        let negated = match (op, any) {
            (BinaryOperator::Eq, true) => false,
            (BinaryOperator::NotEq, false) => true,
            (BinaryOperator::PGCustomBinaryOperator(parts), true)
                if parts.last().is_some_and(|op| op == "=") =>
            {
                false
            }
            _ => return Err(unsupported(format!("{op} {}", if any { "ANY" } else { "ALL" }))),
        };
        match unnested(right) {
            Expr::Subquery(query) => return self.in_subquery(left, query, negated),
            Expr::Function(function) => {
                if let FunctionArguments::Subquery(query) = &function.args
                    && function.name.to_string().eq_ignore_ascii_case("array")
                {
                    return self.in_subquery(left, query, negated);
                }
            }
            _ => {}
        }
        let (subject, array) = (self.expr(left)?, self.expr(right)?);
        let subject = match types::element(array.type_oid) {
            // A literal is taken to be of the elements' type.
            Some(element) if subject.is_unknown() => self.coerce(subject, element, -1, How::Implicit)?,
            _ => self.known(subject)?,
        };
        let own = if subject.type_oid == TypeOid::VARCHAR { TypeOid::TEXT } else { subject.type_oid };
        let array = if array.is_unknown() {
            let wanted = types::array_of(own)
                .ok_or_else(|| unsupported(format!("ANY with {}", types::display(own))))?;
            self.coerce(array, wanted, -1, How::Implicit)?
        } else {
            array
        };
        let element = types::element(array.type_oid)
            .ok_or_else(|| fail("42809", "op ANY/ALL (array) requires array on right side"))?;
        let value = Ex::of(element_sql(element), element);
        let (subject, value) = self.comparable(subject, value)?;
        if !is_comparable(subject.type_oid) {
            return Err(unsupported(format!("ANY with {}", types::display(subject.type_oid))));
        }
        let not = if negated { "NOT " } else { "" };
        // A missing array is an array with a missing element: neither true nor false.
        let sql = format!(
            "({} {not}IN (SELECT {} FROM json_each(coalesce({}, '[null]')) AS \"e\"))",
            collated(&subject.sql, subject.type_oid),
            value.sql,
            array.sql
        );
        Ok(Ex::made(sql, TypeOid::BOOL, &[&subject, &array]))
    }

    pub(super) fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
    ) -> Result<Ex, SqlError> {
        let operand = operand.map(|operand| self.expr(operand)).transpose()?;
        let operand = operand.map(|operand| self.known(operand)).transpose()?;
        let mut tests = Vec::new();
        let mut results = Vec::new();
        for when in conditions {
            tests.push(match &operand {
                None => self.condition(&when.condition, "CASE/WHEN")?,
                Some(operand) => {
                    let value = self.expr(&when.condition)?;
                    self.compare(operand.clone(), Equal, value)?
                }
            });
            results.push(self.expr(&when.result)?);
        }
        if let Some(otherwise) = otherwise {
            results.push(self.expr(otherwise)?);
        }
        let (results, type_oid) = self.same_type(results, "CASE")?;
        let mut sql = String::from("CASE");
        for (test, result) in tests.iter().zip(&results) {
            sql.push_str(&format!(" WHEN {} THEN {}", test.sql, result.sql));
        }
        if let (true, Some(last)) = (otherwise.is_some(), results.last()) {
            sql.push_str(&format!(" ELSE {}", last.sql));
        }
        sql.push_str(" END");
        let used: Vec<&Ex> = tests.iter().chain(&results).collect();
        // PostgreSQL calls it after the last branch, if that has a name of its own.
        let last = if otherwise.is_some() { results.last() } else { None };
        let made = Ex::made(format!("({sql})"), type_oid, &used);
        Ok(match last.filter(|ex| !ex.is_weak).and_then(|ex| ex.name.clone()) {
            Some(name) => made.named(name),
            None => made.weakly_named("case"),
        })
    }

    /// All as their common type.
    pub fn same_type(&mut self, values: Vec<Ex>, what: &str) -> Result<(Vec<Ex>, TypeOid), SqlError> {
        let given: Vec<TypeOid> = values.iter().map(|value| value.type_oid).collect();
        let type_oid = self.common_type(&given, what)?;
        let mut made = Vec::with_capacity(values.len());
        for value in values {
            let (name, is_weak) = (value.name.clone(), value.is_weak);
            made.push(Ex { name, is_weak, ..self.coerce(value, type_oid, -1, How::Implicit)? });
        }
        Ok((made, type_oid))
    }
}

fn any_of(parts: &[Ex], negated: bool) -> Ex {
    let sql: Vec<&str> = parts.iter().map(|part| part.sql.as_str()).collect();
    let not = if negated { "NOT " } else { "" };
    let used: Vec<&Ex> = parts.iter().collect();
    Ex::made(format!("({not}({}))", sql.join(" OR ")), TypeOid::BOOL, &used)
}

/// An element of an array that json_each takes apart.
pub(crate) fn element_sql(element: TypeOid) -> String {
    match element {
        TypeOid::UUID | TypeOid::BYTEA => "unhex(\"e\".\"value\")".to_owned(),
        // The infinite ones are words in JSON.
        TypeOid::FLOAT8 => "CASE \"e\".\"value\" WHEN 'Infinity' THEN 9e999 WHEN '-Infinity' THEN -9e999 \
                            ELSE CAST(\"e\".\"value\" AS REAL) END"
            .to_owned(),
        _ => "\"e\".\"value\"".to_owned(),
    }
}

/// The SQL for two values of types that fit.
pub(super) fn compared(a: &Ex, op: Comparison, b: &Ex) -> Result<String, SqlError> {
    let (x, y) = (&a.sql, &b.sql);
    Ok(match a.type_oid {
        TypeOid::JSONB => match op {
            Equal => format!("pg_jsonb_eq({x}, {y})"),
            NotEqual => format!("(NOT pg_jsonb_eq({x}, {y}))"),
            _ => return Err(unsupported("the order of jsonb")),
        },
        made if types::is_enum(made) && !matches!(op, Equal | NotEqual) => {
            return Err(unsupported("the order of an enum here"));
        }
        TypeOid::INTERVAL => format!("(pg_interval_cmp({x}, {y}) {} 0)", op.sql()),
        oid if types::is_array(oid) => match (op, types::element(oid)) {
            (Equal | NotEqual, Some(element)) if element != TypeOid::NUMERIC && element != TypeOid::JSONB => {
                format!("({x} {} {y})", op.sql())
            }
            _ => return Err(unsupported("the order of arrays")),
        },
        TypeOid::NUMERIC => {
            format!("({x} {} {y} COLLATE {})", op.sql(), crate::functions::NUMERIC_COLLATION)
        }
        // One side's collation may not slip in.
        oid if types::is_string(oid) && y.contains(crate::functions::NUMERIC_COLLATION) => {
            format!("({x} COLLATE BINARY {} {y})", op.sql())
        }
        oid => format!("({} {} {y})", collated(x, oid), op.sql()),
    })
}

fn has_equality(oid: TypeOid) -> bool {
    is_comparable(oid) || matches!(oid, TypeOid::JSONB | TypeOid::INTERVAL) || types::is_array(oid)
}

/// Without the parentheses around it.
pub(crate) fn unnested(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unnested(inner),
        other => other,
    }
}
