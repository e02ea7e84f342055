//! What PostgreSQL calls an output column that has no alias (its FigureColname).

use crate::ast::{DataType, Expr, Function, ObjectNamePart, SelectItem, SetExpr, Value};

use super::tree::folded;

/// How sure a name is: a cast's type yields to a name of its argument.
type Named = Option<(String, Strength)>;

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Strength {
    Weak,
    Strong,
}

/// The name of one item of a select list; none for `*`, and where we do not know PostgreSQL's choice.
pub(super) fn item(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(expr) => Some(output(expr)),
        _ => None,
    }
}

/// The name of an expression in a select list.
pub(super) fn output(expr: &Expr) -> String {
    figure(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

fn strong(name: impl Into<String>) -> Named {
    Some((name.into(), Strength::Strong))
}

fn figure(expr: &Expr) -> Named {
    match expr {
        Expr::Identifier(ident) => strong(folded(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().and_then(|ident| strong(folded(ident))),
        Expr::Nested(inner) => figure(inner),
        Expr::Collate { expr, .. } => figure(expr),
        Expr::Function(function) => named_function(function),
        Expr::Cast { expr, data_type, .. } => match figure(expr) {
            found @ Some((_, Strength::Strong)) => found,
            _ => Some((type_name(data_type), Strength::Weak)),
        },
        Expr::TypedString(typed) => Some((type_name(&typed.data_type), Strength::Weak)),
        Expr::Interval(_) => Some(("interval".to_owned(), Strength::Weak)),
        Expr::Value(value) if matches!(value.value, Value::Boolean(_)) => {
            Some(("bool".to_owned(), Strength::Weak))
        }
        Expr::Case { else_result, .. } => match else_result.as_ref().and_then(|result| figure(result)) {
            found @ Some((_, Strength::Strong)) => found,
            _ => Some(("case".to_owned(), Strength::Weak)),
        },
        Expr::Exists { negated: false, .. } => strong("exists"),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => {
                let first = select.projection.first()?;
                match first {
                    SelectItem::ExprWithAlias { alias, .. } => strong(folded(alias)),
                    SelectItem::UnnamedExpr(expr) => strong(output(expr)),
                    _ => None,
                }
            }
            _ => None,
        },
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) => strong("row"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Substring { shorthand, .. } => strong(if *shorthand { "substr" } else { "substring" }),
        Expr::Position { .. } => strong("position"),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(crate::ast::TrimWhereField::Leading) => "ltrim",
            Some(crate::ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        _ => None,
    }
}

fn named_function(function: &Function) -> Named {
    match function.name.0.last()? {
        ObjectNamePart::Identifier(ident) => strong(folded(ident)),
        ObjectNamePart::Function(_) => None,
    }
}

/// The catalog's name of a type, as a cast shows it.
fn type_name(data_type: &DataType) -> String {
    let written = data_type.to_string().to_lowercase();
    let base = written.split(['(', '[']).next().unwrap_or_default().trim();
    match base {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "boolean" => "bool",
        "real" => "float4",
        "double precision" | "double" | "float" => "float8",
        "decimal" | "dec" => "numeric",
        "character varying" | "char varying" => "varchar",
        "character" | "char" => "bpchar",
        "timestamp with time zone" => "timestamptz",
        "timestamp without time zone" => "timestamp",
        "time with time zone" => "timetz",
        "time without time zone" => "time",
        other => other.rsplit('.').next().unwrap_or(other),
    }
    .trim_matches('"')
    .to_owned()
}
