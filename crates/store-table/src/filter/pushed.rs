//! What a filter says of properties, as a condition that PostgreSQL asks of a row before it sends it.
//!
//! A shard in a file is in this process: there, what is asked of a row costs the same on either side of SQL.
//!
//! As with keys, a condition may let more rows through than the filter, and never fewer; the rest is asked afterwards.

use super::keys::{Piece, Sense};
use super::{Expr, Op, Operand};
use crate::edm::EdmValue;

/// Texts that PostgreSQL's JSON does not read, and those of a later format, which are told as such: such rows are all
/// sent.
const BEGIN: &str =
    "CASE WHEN strpos(props, '\\u0000') > 0 OR strpos(props, '\"$format\":') > 0 THEN true ELSE ";
/// The property, read once: `->` yields NULL where there is none.
const OF: &str = " FROM (SELECT props::json -> ";
const OF_END: &str = "::text AS f OFFSET 0) AS property)";

/// The condition of a comparison or truth value, or of its contrary; none is no condition.
pub(super) fn property(expr: &Expr, sense: Sense) -> Option<Vec<Piece>> {
    let (name, op, value) = match expr {
        Expr::Compare { left: Operand::Property(name), op, right: Operand::Literal(value) } => {
            (name, *op, value)
        }
        Expr::Compare { left: Operand::Literal(value), op, right: Operand::Property(name) } => {
            (name, op.mirrored(), value)
        }
        Expr::Truth(Operand::Property(name)) => (name, Op::Eq, &EdmValue::Boolean(true)),
        _ => return None,
    };
    match name.as_str() {
        "PartitionKey" | "RowKey" => None,
        "Timestamp" => changed(op, value, sense),
        _ => {
            let test = test(op, value, sense)?;
            let mut all = vec![Piece::Sql(BEGIN), Piece::Sql("((SELECT ")];
            all.extend(test);
            all.extend([Piece::Sql(OF), Piece::Param(name.clone()), Piece::Sql(OF_END)]);
            all.push(Piece::Sql(match sense {
                Sense::Kept => ") END",
                // Where there is no such property, or none of that type, the contrary holds.
                Sense::Negated => " IS NOT TRUE) END",
            }));
            Some(all)
        }
    }
}

/// Of the time of the last change.
fn changed(op: Op, value: &EdmValue, sense: Sense) -> Option<Vec<Piece>> {
    let EdmValue::DateTime(time) = value else { return None };
    let op = if sense == Sense::Kept { op } else { op.negated() };
    let ticks = Piece::Param(time.ticks().to_string());
    Some(vec![Piece::Sql("ts "), Piece::Sql(op.sql()), Piece::Sql(" "), ticks, Piece::Sql("::text::bigint")])
}

/// Whether the property `f` compares so with a value: as it is stored, see `stored.rs`.
fn test(op: Op, value: &EdmValue, sense: Sense) -> Option<Vec<Piece>> {
    let compared = |left: &'static str, text: String| {
        vec![
            Piece::Sql(left),
            Piece::Sql(op.sql()),
            Piece::Sql(" "),
            Piece::Param(text),
            Piece::Sql("::text"),
        ]
    };
    Some(match value {
        // A text of PostgreSQL cannot have it.
        EdmValue::String(text) if text.contains('\0') => return None,
        EdmValue::String(text) => {
            compared("json_typeof(f) = 'string' AND (f #>> '{}') COLLATE \"C\" ", text.clone())
        }
        // `false` comes before `true` in the order of texts, too.
        EdmValue::Boolean(value) => {
            compared("json_typeof(f) = 'boolean' AND (f #>> '{}') COLLATE \"C\" ", value.to_string())
        }
        // Of these all texts are equally long, and in their own order.
        EdmValue::DateTime(time) => compared("(f ->> 'DateTime') COLLATE \"C\" ", time.iso()),
        EdmValue::Guid(guid) => compared("(f ->> 'Guid') COLLATE \"C\" ", guid.to_string()),
        EdmValue::Int32(number) => whole(op, i64::from(*number), sense),
        EdmValue::Int64(number) => whole(op, *number, sense),
        EdmValue::Double(_) | EdmValue::Binary(_) => return None,
    })
}

/// Whether it compares so with a whole number. Doubles are compared exactly afterwards: here they all pass, or none if
/// the contrary is asked for.
fn whole(op: Op, number: i64, sense: Sense) -> Vec<Piece> {
    let double = if sense == Sense::Kept { "true" } else { "false" };
    let number = || {
        [
            Piece::Sql(op.sql()),
            Piece::Sql(" "),
            Piece::Param(number.to_string()),
            Piece::Sql("::text::numeric"),
        ]
    };
    let mut all = vec![
        Piece::Sql("CASE WHEN json_typeof(f) = 'number' THEN CASE WHEN (f #>> '{}') ~ '[.eE]' THEN "),
        Piece::Sql(double),
        Piece::Sql(" ELSE (f #>> '{}')::numeric "),
    ];
    all.extend(number());
    all.push(Piece::Sql(" END WHEN f ->> 'Int64' IS NOT NULL THEN (f ->> 'Int64')::numeric "));
    all.extend(number());
    all.extend([
        Piece::Sql(" WHEN f ->> 'Double' IS NOT NULL THEN "),
        Piece::Sql(double),
        Piece::Sql(" ELSE false END"),
    ]);
    all
}
