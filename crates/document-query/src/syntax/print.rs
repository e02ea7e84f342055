//! Syntax tree to text: every operator in parentheses, so that reading it again gives the same tree.

use std::fmt::{self, Display, Formatter, Write};

use super::tree::*;
use crate::value::{Value, write_json_string};

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        if self.distinct {
            f.write_str("DISTINCT ")?;
        }
        if let Some(top) = &self.top {
            write!(f, "TOP {top} ")?;
        }
        write!(f, "{}", self.projection)?;
        for (position, source) in self.sources.iter().enumerate() {
            write!(f, " {} {source}", if position == 0 { "FROM" } else { "JOIN" })?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " WHERE {filter}")?;
        }
        if !self.group_by.is_empty() {
            f.write_str(" GROUP BY ")?;
            list(f, &self.group_by)?;
        }
        for (position, item) in self.order_by.iter().enumerate() {
            let before = if position == 0 { " ORDER BY" } else { "," };
            write!(f, "{before} {}{}", item.expr, if item.descending { " DESC" } else { " ASC" })?;
        }
        match &self.window {
            Some(window) => write!(f, " OFFSET {} LIMIT {}", window.offset, window.limit),
            None => Ok(()),
        }
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.value {
            CountValue::Number(number) => write!(f, "{number}"),
            CountValue::Parameter(name) => f.write_str(name),
        }
    }
}

impl Display for Projection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Projection::Star(_) => f.write_char('*'),
            Projection::Value(expr) => write!(f, "VALUE {expr}"),
            Projection::List(items) => {
                for (position, (expr, alias)) in items.iter().enumerate() {
                    write!(f, "{}{expr}", comma(position))?;
                    if let Some(alias) = alias {
                        write!(f, " AS {alias}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.alias, self.iterate) {
            (Some(alias), true) => write!(f, "{alias} IN {}", self.collection),
            (Some(alias), false) => write!(f, "{} AS {alias}", self.collection),
            (None, _) => write!(f, "{}", self.collection),
        }
    }
}

impl Display for Collection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Collection::Query(select) => write!(f, "({select})"),
            Collection::Path { root, steps } => {
                f.write_str(root)?;
                steps.iter().try_for_each(|step| match step {
                    Step::Key(key) => member(f, key),
                    Step::Index(index) => write!(f, "[{index}]"),
                })
            }
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Constant(value) if value.is_undefined() => f.write_str("undefined"),
            Kind::Constant(Value::Number(number)) if *number == 0.0 && number.is_sign_negative() => {
                f.write_str("-0")
            }
            Kind::Constant(value) => f.write_str(&value.to_json()),
            Kind::Parameter(name) | Kind::Name(name) => f.write_str(name),
            Kind::Path(base, members) => {
                let bare = matches!(base.kind, Kind::Name(_) | Kind::Parameter(_));
                if bare {
                    write!(f, "{base}")?
                } else {
                    write!(f, "({base})")?
                }
                members.iter().try_for_each(|item| match item {
                    Member::Key(key) => member(f, key),
                    Member::Computed(expr) => write!(f, "[{expr}]"),
                })
            }
            Kind::Array(items) => bracketed(f, "[", items, "]"),
            Kind::Object(properties) => object(f, properties),
            Kind::Unary(operator, operand) => write!(f, "({}{operand})", unary(*operator)),
            Kind::Binary(first, rest) => {
                write!(f, "({first}")?;
                rest.iter()
                    .try_for_each(|(operator, operand)| write!(f, " {} {operand}", operator.symbol()))?;
                f.write_char(')')
            }
            Kind::And(items) => joined(f, items, " AND "),
            Kind::Or(items) => joined(f, items, " OR "),
            Kind::Coalesce(items) => joined(f, items, " ?? "),
            Kind::Conditional(parts) => write!(f, "({} ? {} : {})", parts[0], parts[1], parts[2]),
            Kind::In { value, list, negated } => {
                write!(f, "({value}{} IN ", not(*negated))?;
                bracketed(f, "(", list, "))")
            }
            Kind::Between { operands, negated } => {
                let [value, low, high] = &**operands;
                write!(f, "({value}{} BETWEEN {low} AND {high})", not(*negated))
            }
            Kind::Like { operands, escape, negated } => {
                let [value, pattern] = &**operands;
                write!(f, "({value}{} LIKE {pattern}", not(*negated))?;
                if let Some(escape) = escape {
                    write!(f, " ESCAPE {}", quoted(&escape.to_string()))?;
                }
                f.write_char(')')
            }
            Kind::Call { name, arguments } => {
                f.write_str(name)?;
                bracketed(f, "(", arguments, ")")
            }
            Kind::UserCall { name, arguments } => {
                write!(f, "udf.{name}")?;
                bracketed(f, "(", arguments, ")")
            }
            Kind::Query(form, select) => write!(f, "{}({select})", form_word(*form)),
        }
    }
}

fn form_word(form: Form) -> &'static str {
    match form {
        Form::Scalar => "",
        Form::Exists => "EXISTS",
        Form::Array => "ARRAY",
        Form::All => "ALL",
        Form::First => "FIRST",
        Form::Last => "LAST",
    }
}

fn unary(operator: Unary) -> &'static str {
    match operator {
        Unary::Minus => "- ",
        Unary::Plus => "+ ",
        Unary::BitNot => "~ ",
        Unary::Not => "NOT ",
    }
}

fn not(negated: bool) -> &'static str {
    if negated { " NOT" } else { "" }
}

fn comma(position: usize) -> &'static str {
    if position == 0 { "" } else { ", " }
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_json_string(text, &mut out);
    out
}

fn member(f: &mut Formatter<'_>, key: &str) -> fmt::Result {
    write!(f, "[{}]", quoted(key))
}

fn list(f: &mut Formatter<'_>, items: &[Expr]) -> fmt::Result {
    items.iter().enumerate().try_for_each(|(position, item)| write!(f, "{}{item}", comma(position)))
}

fn bracketed(f: &mut Formatter<'_>, open: &str, items: &[Expr], close: &str) -> fmt::Result {
    f.write_str(open)?;
    list(f, items)?;
    f.write_str(close)
}

fn object(f: &mut Formatter<'_>, properties: &[(String, Expr)]) -> fmt::Result {
    f.write_char('{')?;
    for (position, (key, value)) in properties.iter().enumerate() {
        write!(f, "{}{}: {value}", comma(position), quoted(key))?;
    }
    f.write_char('}')
}

fn joined(f: &mut Formatter<'_>, items: &[Expr], operator: &str) -> fmt::Result {
    f.write_char('(')?;
    for (position, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if position == 0 { "" } else { operator })?;
    }
    f.write_char(')')
}
