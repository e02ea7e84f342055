//! How a statement is routed and why, in words: for EXPLAIN and the console.

use std::fmt;

use super::analysis::{Action, Analysis, Occurrence, Place};
use super::builder::Use;
use super::formula::{Comparison, Formula, Operand};
use super::value::Scalar;

/// Most values of a list that are shown.
const SHOWN_MAX: usize = 8;

impl Analysis {
    /// One line a fact: where it goes, then what is known of the keys of each table.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.action {
            Action::Anywhere => lines.push("Route: any shard, no table is concerned".to_owned()),
            Action::ReferenceRead => {
                lines.push("Route: any shard, only reference tables are read".to_owned());
            }
            Action::ReferenceWrite => {
                lines.push("Route: all shards in one order, reference tables are written".to_owned());
            }
            Action::Everywhere => lines.push("Route: all shards in one order".to_owned()),
            Action::Placed(occurrences) => {
                lines.push("Route: the shards of these keys".to_owned());
                lines.extend(occurrences.iter().map(described));
            }
            Action::Insert(insert) => {
                lines.push("Route: each row to the shard of its key".to_owned());
                let keys = match insert.formula() {
                    keys @ (Formula::Or(_) | Formula::Any(_)) => keys,
                    one => Formula::Or(vec![one]),
                };
                let keys = Shown { column: &insert.column_name, formula: &keys };
                lines.push(format!("  {} by map {}: {keys}", insert.table, insert.map));
                lines.extend(insert.others.iter().map(described));
            }
        }
        if let Some(what) = &self.one_shard_only {
            lines.push(format!("  {what}: on one shard only"));
        }
        if self.reads_reference && matches!(self.action, Action::Placed(_) | Action::Insert(_)) {
            lines.push("  reference tables are read on the shard itself".to_owned());
        }
        lines
    }
}

fn described(occurrence: &Occurrence) -> String {
    let table = &occurrence.table;
    let written = if occurrence.use_ == Use::Read { "" } else { ", written" };
    match &occurrence.place {
        Place::Local(shard) => format!("  {table} on shard {shard}{written}"),
        Place::Sharded { map, column_name, formula, .. } => {
            let shown = Shown { column: column_name, formula };
            format!("  {table} by map {map}{written}: {shown}")
        }
    }
}

struct Shown<'a> {
    column: &'a str,
    formula: &'a Formula,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = self.column;
        match self.formula {
            Formula::All => write!(f, "any {column}"),
            Formula::Nothing => write!(f, "no row"),
            Formula::Equal(operand) => write!(f, "{column} = {operand}"),
            Formula::Any(operand) => write!(f, "{column} = ANY ({operand})"),
            Formula::Compare(comparison, operand) => write!(f, "{column} {comparison} {operand}"),
            Formula::And(all) => self.joined(f, all, " and "),
            Formula::Or(all) => self.joined(f, all, " or "),
        }
    }
}

impl Shown<'_> {
    fn joined(&self, f: &mut fmt::Formatter<'_>, all: &[Formula], word: &str) -> fmt::Result {
        for (place, formula) in all.iter().take(SHOWN_MAX).enumerate() {
            if place > 0 {
                f.write_str(word)?;
            }
            let shown = Shown { column: self.column, formula };
            match formula {
                Formula::And(_) | Formula::Or(_) => write!(f, "({shown})")?,
                _ => write!(f, "{shown}")?,
            }
        }
        if all.len() > SHOWN_MAX {
            write!(f, "{word}{} more", all.len() - SHOWN_MAX)?;
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        })
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scalar = match self {
            Operand::Parameter(parameter) => return write!(f, "${}", parameter.number),
            Operand::Constant(scalar) => scalar,
        };
        use polyshard_map::Key;
        let key = match scalar {
            Scalar::Int(n) => return write!(f, "{n}"),
            Scalar::Text(text) => Key::Text(text.clone()),
            Scalar::Uuid(uuid) => Key::Uuid(*uuid),
            Scalar::Date(days) => Key::Date(*days),
            Scalar::Timestamp(micros) | Scalar::TimestampTz(micros) => Key::Timestamp(*micros),
            Scalar::Bytes(bytes) => Key::Binary(bytes.clone()),
        };
        write!(f, "'{key}'")
    }
}
