//! What was measured: tables for people (they are Markdown, too), and the same as JSON for scripts.

use serde_json::{Map, Value, json};

/// One table of results.
pub struct Table {
    name: &'static str,
    title: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One result.
pub enum Cell {
    /// A word.
    Text(String),
    /// A number, and how many digits of it after the point mean something.
    Number(f64, usize),
    /// Nothing to compare with.
    None,
}

impl Cell {
    /// A number with as many digits as are worth reading: three, or all before the point.
    pub fn number(value: f64) -> Cell {
        let digits = match value.abs() {
            size if size >= 100.0 => 0,
            size if size >= 10.0 => 1,
            _ => 2,
        };
        Cell::Number(value, digits)
    }

    fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(value, digits) => grouped(&format!("{value:.digits$}")),
            Cell::None => "-".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Cell::Text(text) => Value::from(text.as_str()),
            Cell::Number(value, _) => json!(value),
            Cell::None => Value::Null,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::number(value)
    }
}

impl Table {
    /// An empty table.
    pub fn new(name: &'static str, title: impl Into<String>, columns: &[&'static str]) -> Table {
        Table { name, title: title.into(), columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, which has a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        assert_eq!(N, self.columns.len(), "table {} has another number of columns", self.name);
        self.rows.push(cells.into());
    }

    /// Prints it with its title, columns aligned.
    pub fn print(&self) {
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = shown.iter().map(|row| row[column].chars().count());
                cells.chain([self.columns[column].chars().count(), 3]).max().unwrap_or(3)
            })
            .collect();
        // A column of numbers is read from the right.
        let right: Vec<bool> = (0..self.columns.len())
            .map(|column| self.rows.iter().all(|row| !matches!(row[column], Cell::Text(_))))
            .collect();
        let line = |cells: &[&str]| {
            let padded = cells.iter().zip(&widths).zip(&right).map(|((cell, width), right)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            println!("| {} |", padded.collect::<Vec<_>>().join(" | "));
        };
        println!("\n### {}\n", self.title);
        line(&self.columns);
        let rules: Vec<String> = widths
            .iter()
            .zip(&right)
            .map(
                |(width, right)| {
                    if *right { format!("{}:", "-".repeat(width - 1)) } else { "-".repeat(*width) }
                },
            )
            .collect();
        line(&rules.iter().map(String::as_str).collect::<Vec<_>>());
        for row in &shown {
            line(&row.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    /// The same for scripts.
    pub fn json(&self) -> Value {
        let row = |row: &Vec<Cell>| {
            let cells = self.columns.iter().zip(row).map(|(column, cell)| (column.to_string(), cell.json()));
            Value::Object(cells.collect::<Map<String, Value>>())
        };
        json!({ "name": self.name, "title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

/// 1234567.8 as 1,234,567.8.
fn grouped(number: &str) -> String {
    let whole = number.find('.').unwrap_or(number.len());
    let start = usize::from(number.starts_with('-'));
    let mut out = String::with_capacity(number.len() + 4);
    for (index, digit) in number.char_indices() {
        if index > start && index < whole && (whole - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown = ["7", "999", "1000", "-1234567.85", "123456"].map(grouped);
        assert_eq!(shown, ["7", "999", "1,000", "-1,234,567.85", "123,456"]);
    }
}
