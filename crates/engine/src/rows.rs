//! What a statement answered: rows with typed getters whose errors name the column.

use std::sync::Arc;

use crate::{Error, Value};

/// The answer to one statement.
#[derive(Clone, Debug)]
pub struct Rows {
    pub(crate) columns: Arc<[String]>,
    pub(crate) rows: Vec<Row>,
    pub(crate) affected: u64,
}

impl Rows {
    pub(crate) fn none() -> Rows {
        Rows { columns: Arc::from([]), rows: Vec::new(), affected: 0 }
    }

    /// The names of the columns; empty for a statement that returns none.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The rows in the order the database gave them.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows, owned.
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
    }

    /// Rows returned if the statement returns columns, also those that nobody wanted
    /// ([`crate::Database::read_wanted`]); otherwise rows changed.
    pub fn affected(&self) -> u64 {
        self.affected
    }

    /// How many rows were returned.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row was returned.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows in turn.
    pub fn iter(&self) -> std::slice::Iter<'_, Row> {
        self.rows.iter()
    }

    /// The first row, if there is one.
    pub fn first(&self) -> Option<&Row> {
        self.rows.first()
    }

    /// The only row; an error if there is none or more than one.
    pub fn one(&self) -> Result<&Row, Error> {
        match self.rows.as_slice() {
            [row] => Ok(row),
            rows => Err(Error::invalid(format!("expected exactly 1 row, the query returned {}", rows.len()))),
        }
    }
}

impl IntoIterator for Rows {
    type Item = Row;
    type IntoIter = std::vec::IntoIter<Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<'a> IntoIterator for &'a Rows {
    type Item = &'a Row;
    type IntoIter = std::slice::Iter<'a, Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// Shared by all rows of an answer; only read to name a column in an error.
    pub(crate) columns: Arc<[String]>,
    pub(crate) values: Vec<Value>,
}

impl Row {
    /// The value at `index`.
    ///
    /// # Panics
    /// If there is no such column, as indexing a slice would.
    pub fn get(&self, index: usize) -> &Value {
        &self.values[index]
    }

    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// All values, owned.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }

    /// A whole number.
    pub fn int(&self, index: usize) -> Result<i64, Error> {
        self.opt_int(index)?.ok_or_else(|| self.mismatch(index, "an int"))
    }

    /// A whole number or NULL.
    pub fn opt_int(&self, index: usize) -> Result<Option<i64>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            Value::Int(value) => Ok(Some(*value)),
            _ => Err(self.mismatch(index, "an int")),
        }
    }

    /// A truth value; 0 and 1 count, since SQLite has no other.
    pub fn bool(&self, index: usize) -> Result<bool, Error> {
        self.opt_bool(index)?.ok_or_else(|| self.mismatch(index, "a bool"))
    }

    /// A truth value or NULL.
    pub fn opt_bool(&self, index: usize) -> Result<Option<bool>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            Value::Bool(value) => Ok(Some(*value)),
            Value::Int(0) => Ok(Some(false)),
            Value::Int(1) => Ok(Some(true)),
            _ => Err(self.mismatch(index, "a bool")),
        }
    }

    /// A floating point number; a whole number is converted.
    pub fn real(&self, index: usize) -> Result<f64, Error> {
        self.opt_real(index)?.ok_or_else(|| self.mismatch(index, "a real"))
    }

    /// A floating point number or NULL.
    pub fn opt_real(&self, index: usize) -> Result<Option<f64>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            Value::Real(value) => Ok(Some(*value)),
            Value::Int(value) => Ok(Some(*value as f64)),
            _ => Err(self.mismatch(index, "a real")),
        }
    }

    /// A text.
    pub fn text(&self, index: usize) -> Result<&str, Error> {
        self.opt_text(index)?.ok_or_else(|| self.mismatch(index, "a text"))
    }

    /// A text or NULL.
    pub fn opt_text(&self, index: usize) -> Result<Option<&str>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            Value::Text(value) => Ok(Some(value)),
            _ => Err(self.mismatch(index, "a text")),
        }
    }

    /// Bytes.
    pub fn blob(&self, index: usize) -> Result<&[u8], Error> {
        self.opt_blob(index)?.ok_or_else(|| self.mismatch(index, "a blob"))
    }

    /// Bytes or NULL.
    pub fn opt_blob(&self, index: usize) -> Result<Option<&[u8]>, Error> {
        match self.at(index)? {
            Value::Null => Ok(None),
            Value::Blob(value) => Ok(Some(value)),
            _ => Err(self.mismatch(index, "a blob")),
        }
    }

    fn at(&self, index: usize) -> Result<&Value, Error> {
        self.values.get(index).ok_or_else(|| {
            Error::invalid(format!("column {index} does not exist: the row has {}", self.values.len()))
        })
    }

    fn mismatch(&self, index: usize, wanted: &str) -> Error {
        let name = self.columns.get(index).map_or("?", String::as_str);
        let found = self.values[index].type_name();
        Error::invalid(format!("column {index} ({name}) is {found}, not {wanted}: cast it in the statement"))
    }
}
