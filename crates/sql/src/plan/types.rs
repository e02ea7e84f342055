//! The types of simple expressions: only what is certain, nothing where it is not.

use crate::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use super::scope::Scope;
use super::tree::{bare, function_name};
use crate::schema::TypeOid;

/// The type of an expression over these relations, if it is certain.
pub(super) fn of(expr: &Expr, scope: &Scope) -> Option<TypeOid> {
    match bare(expr) {
        column @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => scope.type_of(column),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if digits.parse::<i32>().is_ok() => Some(TypeOid::INT4),
            Value::Number(digits, _) if digits.parse::<i64>().is_ok() => Some(TypeOid::INT8),
            Value::Number(..) => Some(TypeOid::NUMERIC),
            Value::Boolean(_) => Some(TypeOid::BOOL),
            _ => None,
        },
        Expr::Cast { data_type, .. } => named(&data_type.to_string()),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => number(of(expr, scope)?),
        Expr::BinaryOp { left, op, right } => {
            let (left, right) = (of(left, scope)?, of(right, scope)?);
            match op {
                BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo => arithmetic(left, right),
                _ => None,
            }
        }
        Expr::Case { conditions, else_result, .. } => {
            let mut results = conditions.iter().map(|when| &when.result).chain(else_result.as_deref());
            let first = of(results.next()?, scope)?;
            results.all(|result| is_null(result) || of(result, scope) == Some(first)).then_some(first)
        }
        Expr::Function(function) if function.over.is_none() => match function_name(function)?.as_str() {
            "length" | "char_length" | "octet_length" | "strpos" | "ascii" => Some(TypeOid::INT4),
            "count" => Some(TypeOid::INT8),
            "coalesce" => {
                let arguments = super::tree::arguments(function)?;
                let mut types = arguments.iter().map(|argument| match argument {
                    crate::ast::FunctionArgExpr::Expr(expr) => of(expr, scope),
                    _ => None,
                });
                let first = types.next()??;
                types.all(|other| other == Some(first)).then_some(first)
            }
            "abs" => match super::tree::arguments(function)?.first()? {
                crate::ast::FunctionArgExpr::Expr(expr) => number(of(expr, scope)?),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(bare(expr), Expr::Value(value) if value.value == Value::Null)
}

fn number(kind: TypeOid) -> Option<TypeOid> {
    rank(kind).map(|_| kind)
}

/// PostgreSQL's order of preference among the types of numbers; float4 mixed with others is float8.
fn rank(kind: TypeOid) -> Option<u8> {
    Some(match kind {
        TypeOid::INT2 => 0,
        TypeOid::INT4 => 1,
        TypeOid::INT8 => 2,
        TypeOid::NUMERIC => 3,
        TypeOid::FLOAT8 => 4,
        _ => return None,
    })
}

fn arithmetic(left: TypeOid, right: TypeOid) -> Option<TypeOid> {
    Some(if rank(left)? >= rank(right)? { left } else { right })
}

/// A type by the name that a cast gives.
fn named(written: &str) -> Option<TypeOid> {
    let written = written.to_lowercase();
    if written.contains('[') {
        return None;
    }
    Some(match written.split('(').next()?.trim() {
        "smallint" | "int2" => TypeOid::INT2,
        "int" | "integer" | "int4" => TypeOid::INT4,
        "bigint" | "int8" => TypeOid::INT8,
        "numeric" | "decimal" => TypeOid::NUMERIC,
        "double precision" | "float8" => TypeOid::FLOAT8,
        "real" | "float4" => TypeOid::FLOAT4,
        "boolean" | "bool" => TypeOid::BOOL,
        "text" => TypeOid::TEXT,
        "date" => TypeOid::DATE,
        "uuid" => TypeOid::UUID,
        _ => return None,
    })
}
