//! COPY, read from its tokens: PostgreSQL's options in both spellings, and nothing of other databases.

use crate::cursor::Cursor;
use crate::error::SqlError;
use crate::kind::{Copy, CopyOther, CopyWhat};
use crate::lexer::Lexeme;
use crate::statement::nested;
use crate::utility::{relation, syntax_error};

/// Reads what follows the word COPY.
pub(crate) fn copy(cursor: &mut Cursor<'_>) -> Result<Copy, SqlError> {
    let mut options = Vec::new();
    if cursor.take("binary") {
        options.push(("format".to_owned(), Some("binary".to_owned())));
    }
    let what = if cursor.is_mark(b'(') {
        let query = cursor.parenthesised().ok_or_else(|| syntax_error(cursor))?;
        CopyWhat::Query(nested(query)?)
    } else {
        let name = relation(cursor)?;
        CopyWhat::Table { name, columns: if cursor.is_mark(b'(') { names(cursor)? } else { Vec::new() } }
    };
    let from = cursor.take("from");
    if !from && !cursor.take("to") {
        return Err(syntax_error(cursor));
    }
    let other = if cursor.take("program") {
        CopyOther::Program(cursor.literal().ok_or_else(|| syntax_error(cursor))?)
    } else if cursor.take("stdin") || cursor.take("stdout") {
        CopyOther::Client
    } else {
        CopyOther::File(cursor.literal().ok_or_else(|| syntax_error(cursor))?)
    };
    cursor.take("with");
    if cursor.take_mark(b'(') {
        new_options(cursor, &mut options)?;
    } else {
        old_options(cursor, &mut options)?;
    }
    let has_filter = from && cursor.take("where");
    if has_filter {
        while cursor.advance().is_some() {}
    }
    if cursor.is_at_end() {
        Ok(Copy { what, from, other, options, has_filter })
    } else {
        Err(syntax_error(cursor))
    }
}

fn names(cursor: &mut Cursor<'_>) -> Result<Vec<String>, SqlError> {
    let mut found = Vec::new();
    if !cursor.take_mark(b'(') {
        return Err(syntax_error(cursor));
    }
    loop {
        found.push(cursor.name().ok_or_else(|| syntax_error(cursor))?);
        if cursor.take_mark(b')') {
            return Ok(found);
        }
        if !cursor.take_mark(b',') {
            return Err(syntax_error(cursor));
        }
    }
}

fn new_options(cursor: &mut Cursor<'_>, options: &mut Vec<(String, Option<String>)>) -> Result<(), SqlError> {
    loop {
        let name = cursor.name().ok_or_else(|| syntax_error(cursor))?;
        let value = if cursor.is_mark(b',') || cursor.is_mark(b')') {
            None
        } else if cursor.is_mark(b'(') {
            Some(names(cursor)?.join(","))
        } else if cursor.take_operator("*") {
            Some("*".to_owned())
        } else {
            Some(value(cursor)?)
        };
        options.push((name, value));
        if cursor.take_mark(b')') {
            return Ok(());
        }
        if !cursor.take_mark(b',') {
            return Err(syntax_error(cursor));
        }
    }
}

fn old_options(cursor: &mut Cursor<'_>, options: &mut Vec<(String, Option<String>)>) -> Result<(), SqlError> {
    while cursor.peek().is_some_and(|token| token.lexeme == Lexeme::Word) && !cursor.is("where") {
        let mut add = |name: &str, value: Option<String>| options.push((name.to_owned(), value));
        if cursor.take("binary") {
            add("format", Some("binary".to_owned()));
        } else if cursor.take("csv") {
            add("format", Some("csv".to_owned()));
        } else if cursor.take("freeze") {
            add("freeze", None);
        } else if cursor.take("header") {
            add("header", None);
        } else if cursor.take_all(&["force", "quote"]) {
            let columns = if cursor.take_operator("*") { "*".to_owned() } else { list(cursor)? };
            add("force_quote", Some(columns));
        } else if cursor.take_all(&["force", "not", "null"]) {
            add("force_not_null", Some(list(cursor)?));
        } else if cursor.take_all(&["force", "null"]) {
            add("force_null", Some(list(cursor)?));
        } else {
            let name = cursor.name().ok_or_else(|| syntax_error(cursor))?;
            if !matches!(name.as_str(), "delimiter" | "null" | "quote" | "escape" | "encoding") {
                return Err(syntax_error(cursor));
            }
            cursor.take("as");
            add(&name, Some(value(cursor)?));
        }
    }
    Ok(())
}

fn list(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    let mut found = cursor.name().ok_or_else(|| syntax_error(cursor))?;
    while cursor.take_mark(b',') {
        found.push(',');
        found.push_str(&cursor.name().ok_or_else(|| syntax_error(cursor))?);
    }
    Ok(found)
}

/// A literal or a word; texts with backslashes (`E'\t'`) are the usual way to name a delimiter.
fn value(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    if let Some(value) = cursor.literal() {
        return Ok(value);
    }
    let token = cursor.peek().ok_or_else(|| syntax_error(cursor))?;
    if token.lexeme == Lexeme::Escaped {
        let text = cursor.text_of(token);
        let value = match &text[2..text.len() - 1] {
            "\\t" => "\t",
            "\\b" => "\u{8}",
            "\\\\" => "\\",
            "\\x01" => "\u{1}",
            "\\x02" => "\u{2}",
            _ => return Err(syntax_error(cursor)),
        };
        cursor.advance();
        return Ok(value.to_owned());
    }
    cursor.name().ok_or_else(|| syntax_error(cursor))
}
