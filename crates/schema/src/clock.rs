//! Texts that mean the clock where a date or time is read from them: 'now', 'tomorrow 10:00'. Each shard would read
//! another time.

use std::ops::ControlFlow;

use polyshard_sql::ast::{self, AssignmentTarget, Expr, Function, Visit, Visitor};
use polyshard_sql::{Column, Context, SqlError, Table};

use crate::defaults;
use crate::stable::{Stability, arguments, stored};

const CLOCK_WORDS: &[&str] = &["now", "today", "tomorrow", "yesterday"];

/// Words that may stand beside them in a time.
const BESIDE: &[&str] = &["allballs", "am", "at", "gmt", "pm", "t", "utc", "z", "zulu"];

/// Functions that read a time from a text.
const READERS: &[&str] = &["date", "time", "timestamp", "timestamptz", "timetz"];

/// Functions that take texts, or whatever type their other arguments have.
const OF_TEXTS: &[&str] = &[
    "btrim",
    "coalesce",
    "concat",
    "concat_ws",
    "greatest",
    "initcap",
    "least",
    "left",
    "length",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "nullif",
    "repeat",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "split_part",
    "substr",
    "upper",
];

/// The type that a function of the clock gives when it is told how exact: `current_timestamp(3)`.
pub(crate) fn rounded(name: &str, function: &Function) -> Option<String> {
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(Expr::Value(digits)))] = &list.args[..] else {
        return None;
    };
    let digits: u8 = digits.value.to_string().parse().ok()?;
    Some(match name {
        "current_timestamp" => format!("timestamp({digits}) with time zone"),
        "localtimestamp" => format!("timestamp({digits})"),
        "current_time" => format!("time({digits}) with time zone"),
        "localtime" => format!("time({digits})"),
        _ => return None,
    })
}

/// Whether a function reads the clock with these arguments: what is older than something, or a text that means it.
pub(crate) fn reads(name: &str, function: &Function) -> bool {
    match name {
        "age" => arguments(function) == 1,
        "current_timestamp" | "localtimestamp" | "current_time" | "localtime" => true,
        _ => READERS.contains(&name) && says(&function.args).is_some(),
    }
}

/// A text within that means the clock where a time is read from it.
pub(crate) fn says<T: Visit>(tree: &T) -> Option<String> {
    match tree.visit(&mut Finder) {
        ControlFlow::Break(found) => Some(found),
        ControlFlow::Continue(()) => None,
    }
}

struct Finder;

impl Visitor for Finder {
    type Break = String;

    fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<String> {
        match is_clock_word(&value.value) {
            true => ControlFlow::Break(value.value.to_string()),
            false => ControlFlow::Continue(()),
        }
    }
}

fn is_clock_word(value: &ast::Value) -> bool {
    let (ast::Value::SingleQuotedString(text)
    | ast::Value::EscapedStringLiteral(text)
    | ast::Value::NationalStringLiteral(text)) = value
    else {
        return false;
    };
    let text = text.to_ascii_lowercase();
    let words = || text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '/');
    let fits = |word: &str| {
        let is_number = word.starts_with(|first: char| first.is_ascii_digit()) || word.is_empty();
        // A zone is called by a path.
        is_number || word.contains('/') || BESIDE.contains(&word) || CLOCK_WORDS.contains(&word)
    };
    words().any(|word| CLOCK_WORDS.contains(&word)) && words().all(fits)
}

/// Whether times are read from the texts that a column is given.
pub(crate) fn is_time(column: &Column) -> bool {
    is_time_name(&column.type_name)
}

pub(crate) fn is_time_type(data_type: &ast::DataType) -> bool {
    is_time_name(&data_type.to_string())
}

fn is_time_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    name.starts_with("date") || name.starts_with("time")
}

/// Whether no time can be read from the texts in an expression: what it is made of is neither a time, nor takes one.
fn is_of_texts(value: &Expr, is_plain: &impl Fn(&Expr) -> bool) -> bool {
    let found = ast::visit_expressions(value, |part| {
        let fits = match part {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => is_plain(part),
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(|part| part.as_ident()).map(stored);
                name.is_some_and(|name| OF_TEXTS.contains(&name.as_str()))
            }
            Expr::Cast { data_type, .. } => !is_time_type(data_type),
            Expr::Value(_)
            | Expr::Nested(_)
            | Expr::BinaryOp { .. }
            | Expr::UnaryOp { .. }
            | Expr::Case { .. }
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::Trim { .. }
            | Expr::Substring { .. }
            | Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::InList { .. }
            | Expr::Between { .. } => true,
            _ => false,
        };
        if fits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found.is_continue()
}

/// Refuses such a text where it may be read as a time: in a statement about a table that has times, but not where it
/// is plain that a column of another type gets it or is compared with it.
pub(crate) fn refuse(
    tree: &ast::Statement,
    context: &Context<'_>,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    if says(tree).is_none() {
        return Ok(());
    }
    let mut tables: Vec<&Table> = Vec::new();
    let _: ControlFlow<()> = ast::visit_relations(tree, |name| {
        tables.extend(defaults::named(name, context));
        ControlFlow::Continue(())
    });
    if let ast::Statement::Insert(ast::Insert { table: ast::TableObject::TableName(name), .. }) = tree {
        tables.extend(defaults::named(name, context));
    }
    // What is not known here, such as a view, may have some.
    if !tables.is_empty() && !tables.iter().any(|table| table.columns.iter().any(is_time)) {
        return Ok(());
    }
    let mut rest = tree.clone();
    let plain = |name: &ast::Ident| {
        let name = stored(name);
        let mut called = tables.iter().filter_map(|table| Some(&table.columns[table.column(&name)?]));
        called.next().is_some_and(|first| !is_time(first)) && !called.any(is_time)
    };
    let assignments = match &mut rest {
        ast::Statement::Update(update) => Some(&mut update.assignments),
        ast::Statement::Insert(insert) => defaults::on_conflict(insert),
        _ => None,
    };
    let forget = |value: &mut Expr| {
        if matches!(value, Expr::Value(_)) {
            *value = Expr::Value(ast::Value::Null.into());
        }
    };
    let is_plain_name =
        |name: &ast::ObjectName| name.0.last().and_then(|part| part.as_ident()).is_some_and(plain);
    let is_plain = |expression: &Expr| match expression {
        Expr::Identifier(name) => plain(name),
        Expr::CompoundIdentifier(names) => names.last().is_some_and(plain),
        _ => false,
    };
    let forget_assigned = |value: &mut Expr| match is_of_texts(value, &is_plain) {
        true => {
            let _: ControlFlow<()> = ast::visit_expressions_mut(value, |part| {
                forget(part);
                ControlFlow::Continue(())
            });
        }
        false => forget(value),
    };
    for assignment in assignments.into_iter().flatten() {
        match (&assignment.target, &mut assignment.value) {
            (AssignmentTarget::ColumnName(name), value) if is_plain_name(name) => forget_assigned(value),
            (AssignmentTarget::Tuple(names), Expr::Tuple(values)) => {
                let pairs = names.iter().zip(values);
                pairs.filter(|(name, _)| is_plain_name(name)).for_each(|(_, value)| forget_assigned(value));
            }
            _ => {}
        }
    }
    let _: ControlFlow<()> = ast::visit_expressions_mut(&mut rest, |expression| {
        match expression {
            Expr::BinaryOp { left, right, .. } if is_plain(left) => forget(right),
            Expr::BinaryOp { left, right, .. } if is_plain(right) => forget(left),
            Expr::InList { expr, list, .. } if is_plain(expr) => list.iter_mut().for_each(forget),
            Expr::Between { expr, low, high, .. } if is_plain(expr) => {
                forget(low);
                forget(high);
            }
            // No time is compared so.
            Expr::Like { pattern, .. } | Expr::ILike { pattern, .. } | Expr::SimilarTo { pattern, .. } => {
                forget(pattern);
            }
            Expr::Cast { expr, data_type, .. } if !is_time_type(data_type) => forget(expr),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    match says(&rest) {
        None => Ok(()),
        Some(word) => Err(SqlError::unsupported(
            format!("{word} means the clock, and may be another time {}", stability.otherwise),
            "write now() or current_date, or a constant",
        )),
    }
}
