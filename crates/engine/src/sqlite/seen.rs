//! A row where it lies, before it is copied.

use rusqlite::Row;
use rusqlite::types::ValueRef;

/// A row of a file while it is read.
pub struct Seen<'a>(pub(super) &'a Row<'a>);

/// Says whether a row is wanted.
pub type Look<'a> = dyn FnMut(&Seen<'_>) -> bool + Send + 'a;

/// A value where it lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Glimpse<'a> {
    /// No value.
    Null,
    /// A whole number.
    Int(i64),
    /// A text.
    Text(&'a str),
    /// Bytes.
    Blob(&'a [u8]),
    /// Something else, or nothing that can be read.
    Other,
}

impl Seen<'_> {
    /// A value. Each look at one takes as long as the last.
    pub fn get(&self, index: usize) -> Glimpse<'_> {
        match self.0.get_ref(index) {
            Ok(ValueRef::Null) => Glimpse::Null,
            Ok(ValueRef::Integer(number)) => Glimpse::Int(number),
            Ok(ValueRef::Text(bytes)) => std::str::from_utf8(bytes).map_or(Glimpse::Other, Glimpse::Text),
            Ok(ValueRef::Blob(bytes)) => Glimpse::Blob(bytes),
            Ok(ValueRef::Real(_)) | Err(_) => Glimpse::Other,
        }
    }

    /// A text; none if it is something else.
    pub fn text(&self, index: usize) -> Option<&str> {
        match self.get(index) {
            Glimpse::Text(text) => Some(text),
            _ => None,
        }
    }
}
