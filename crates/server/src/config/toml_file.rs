//! From TOML text to single values with their lines; knows no option by name.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One key of the file with its value.
#[derive(Debug)]
pub(super) struct Item {
    /// The key as written.
    pub key: String,
    /// The line of the key.
    pub line: usize,
    /// What stands there.
    pub value: Written,
}

/// A value as the file has it.
#[derive(Debug)]
pub(super) enum Written {
    /// A string.
    Text(String),
    /// A whole number, in decimal.
    Integer(String),
    /// A number with a fraction, as it is written.
    Fraction(String),
    /// A truth value.
    Bool(bool),
    /// A table.
    Table(Vec<Item>),
    /// An array of tables, each with its line.
    Tables(Vec<(usize, Vec<Item>)>),
    /// Something no option takes: a date, a mixed array.
    Other(&'static str),
}

impl Written {
    /// What to call it in a message.
    pub fn type_name(&self) -> &'static str {
        match self {
            Written::Text(_) => "a string",
            Written::Integer(_) => "a number",
            Written::Fraction(_) => "a fraction",
            Written::Bool(_) => "a truth value",
            Written::Table(_) => "a table",
            Written::Tables(_) => "an array of tables",
            Written::Other(name) => name,
        }
    }
}

/// The items of the file, or every syntax error with its line.
pub(super) fn parse(text: &str) -> Result<Vec<Item>, Vec<(usize, String)>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(items(text, table.get_ref()));
    }
    let start = |e: &toml::de::Error| e.span().map_or(0, |span| span.start);
    Err(errors.iter().map(|e| (line(text, start(e)), e.message().to_owned())).collect())
}

fn items(text: &str, table: &DeTable<'_>) -> Vec<Item> {
    let mut items: Vec<Item> = table
        .iter()
        .map(|(key, value)| Item {
            key: key.get_ref().to_string(),
            line: line(text, key.span().start),
            value: written(text, value),
        })
        .collect();
    items.sort_by_key(|item| item.line);
    items
}

fn written(text: &str, value: &Spanned<DeValue<'_>>) -> Written {
    match value.get_ref() {
        DeValue::String(string) => Written::Text(string.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => Written::Integer(number.to_string()),
            Err(_) => Written::Other("a number beyond 64 bits"),
        },
        DeValue::Float(float) => Written::Fraction(float.as_str().to_owned()),
        DeValue::Boolean(truth) => Written::Bool(*truth),
        DeValue::Datetime(_) => Written::Other("a date"),
        DeValue::Table(table) => Written::Table(items(text, table)),
        DeValue::Array(array) => {
            let tables = array.iter().map(|element| match element.get_ref() {
                DeValue::Table(table) => Some((line(text, element.span().start), items(text, table))),
                _ => None,
            });
            tables.collect::<Option<Vec<_>>>().map_or(Written::Other("an array"), Written::Tables)
        }
    }
}

/// The line of a byte, counted from 1.
fn line(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}
