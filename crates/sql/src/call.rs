//! `SELECT polyshard.f(…)` as a whole statement: a command of Polyshard's.

use std::iter::Peekable;
use std::str::Chars;

use crate::cursor::Cursor;
use crate::error::SqlError;
use crate::kind::{Argument, PolyshardCall, Setting};
use crate::lexer::Lexeme;
use crate::plan::is_shard_function;

/// Functions of the schema `polyshard` that are ordinary expressions, wherever they stand.
const EXPRESSIONS: [&str; 1] = ["next_id"];

/// Parentheses and casts around an argument: more than any tool writes.
const DEPTH_MAX: u32 = 16;

/// Why a function of the schema `polyshard` cannot be part of a statement, if it cannot.
pub(crate) fn refused_inside(function: &str) -> Option<SqlError> {
    let is_expression = EXPRESSIONS.contains(&function) || is_shard_function(function);
    (!is_expression).then(|| refused(function))
}

/// What a statement is told that such a call is a part of: EXPLAIN, PREPARE, DECLARE and COPY have one, too.
pub(crate) fn refused(function: &str) -> SqlError {
    SqlError::unsupported(
        format!("polyshard.{function}() cannot be a part of another statement"),
        "Call it as a statement of its own, SELECT polyshard.function(…), whose arguments are literals or \
         parameters: let the client work them out. Drivers may prepare it.",
    )
}

/// Reads the statement if it is such a call, and nothing else.
pub(crate) fn call(cursor: &Cursor<'_>) -> Option<PolyshardCall> {
    let mut cursor = cursor.clone();
    if !cursor.take("select") {
        return None;
    }
    if cursor.take_operator("*") && !cursor.take("from") {
        return None;
    }
    if cursor.name()? != "polyshard" || !cursor.take_mark(b'.') {
        return None;
    }
    let function = cursor.name().filter(|name| !EXPRESSIONS.contains(&name.as_str()))?;
    let (mut arguments, mut names) = (Vec::new(), Vec::new());
    if !cursor.take_mark(b'(') {
        return None;
    }
    while !cursor.take_mark(b')') {
        if !arguments.is_empty() && !cursor.take_mark(b',') {
            return None;
        }
        names.push(argument_name(&mut cursor));
        arguments.push(argument(&mut cursor, DEPTH_MAX)?);
    }
    let alias = if cursor.take("as") || !cursor.is_at_end() { Some(cursor.name()?) } else { None };
    cursor.is_at_end().then_some(PolyshardCall { function, arguments, names, alias })
}

/// Reads the statement if it is `SELECT set_config('name', 'value', true or false)`, and nothing else.
pub(crate) fn set_config(cursor: &Cursor<'_>) -> Option<Setting> {
    let mut cursor = cursor.clone();
    if !cursor.take("select") {
        return None;
    }
    let (schema, function) = cursor.qualified()?;
    let known = function == "set_config" && schema.is_none_or(|schema| schema == "pg_catalog");
    if !known || !cursor.take_mark(b'(') {
        return None;
    }
    let name = cursor.literal()?.to_ascii_lowercase();
    if !cursor.take_mark(b',') {
        return None;
    }
    let value = cursor.literal()?;
    if !cursor.take_mark(b',') {
        return None;
    }
    let local = cursor.take("true");
    if !local && !cursor.take("false") || !cursor.take_mark(b')') {
        return None;
    }
    cursor.is_at_end().then_some(Setting { local, name, values: Some(vec![value]) })
}

fn argument_name(cursor: &mut Cursor<'_>) -> Option<String> {
    let mut ahead = cursor.clone();
    let name = ahead.name()?;
    let arrow = ahead.take_operator("=>") || (ahead.take_mark(b':') && ahead.take_operator("="));
    arrow.then(|| {
        *cursor = ahead;
        name
    })
}

/// An argument, inside of so many more parentheses at most.
fn argument(cursor: &mut Cursor<'_>, deeper: u32) -> Option<Argument> {
    let mut ahead = cursor.clone();
    let argument = if ahead.take_mark(b'(') {
        let inner = argument(&mut ahead, deeper.checked_sub(1)?)?;
        *cursor = ahead;
        cursor.take_mark(b')').then_some(inner)?
    } else if ahead.take("cast") && ahead.take_mark(b'(') {
        let inner = argument(&mut ahead, deeper.checked_sub(1)?)?;
        *cursor = ahead;
        if !cursor.take("as") {
            return None;
        }
        type_name(cursor)?;
        cursor.take_mark(b')').then_some(inner)?
    } else {
        plain_argument(cursor)?
    };
    // A cast says what the value is already: commands read their arguments by themselves.
    while cursor.take_mark(b':') {
        if !cursor.take_mark(b':') {
            return None;
        }
        type_name(cursor)?;
    }
    Some(argument)
}

fn type_name(cursor: &mut Cursor<'_>) -> Option<()> {
    cursor.qualified()?;
    // As in `character varying(9)` and `timestamp(3) with time zone`.
    while cursor.name().is_some() {}
    if cursor.is_mark(b'(') {
        cursor.parenthesised()?;
    }
    while cursor.name().is_some() {}
    while cursor.take_mark(b'[') {
        cursor.take_mark(b']');
    }
    Some(())
}

fn plain_argument(cursor: &mut Cursor<'_>) -> Option<Argument> {
    let token = cursor.peek()?;
    let word = cursor.text_of(token);
    let argument = match token.lexeme {
        Lexeme::Parameter => Argument::Parameter(word[1..].parse().ok()?),
        Lexeme::Word if word.eq_ignore_ascii_case("null") => Argument::Null,
        Lexeme::Word if word.eq_ignore_ascii_case("true") => Argument::Text("true".to_owned()),
        Lexeme::Word if word.eq_ignore_ascii_case("false") => Argument::Text("false".to_owned()),
        Lexeme::Word => return None,
        Lexeme::Escaped => Argument::Text(unescaped(&word[2..word.len() - 1])?),
        _ => return cursor.literal().map(Argument::Text),
    };
    cursor.advance();
    Some(argument)
}

/// What stands between the quotes of `E'…'`, as PostgreSQL reads it ("String Constants With C-Style Escapes").
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let octal = char == '\\' && chars.peek().is_some_and(|next| next.is_digit(8));
        let char = match char {
            '\'' => {
                chars.next();
                '\''
            }
            '\\' if octal => {
                bytes.push((number(&mut chars, 8, 3) & 0xFF) as u8);
                continue;
            }
            '\\' => match chars.next()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => char::from_u32(number(&mut chars, 16, 4))?,
                'U' => char::from_u32(number(&mut chars, 16, 8))?,
                'x' if chars.peek().is_some_and(char::is_ascii_hexdigit) => {
                    bytes.push((number(&mut chars, 16, 2) & 0xFF) as u8);
                    continue;
                }
                other => other,
            },
            other => other,
        };
        bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
    // No text of PostgreSQL's has a zero byte.
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The number that so many digits, at most, begin with.
fn number(chars: &mut Peekable<Chars<'_>>, radix: u32, digits_max: usize) -> u32 {
    let mut value = 0_u32;
    for _ in 0..digits_max {
        let Some(digit) = chars.peek().and_then(|next| next.to_digit(radix)) else { break };
        value = value.wrapping_mul(radix) | digit;
        chars.next();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn a_call_is_a_statement_of_its_own_and_no_part_of_another() {
        let call = "SELECT polyshard.enqueue('jobs', 'a')";
        let read = crate::statements(call).unwrap();
        assert!(matches!(read[0].kind(), crate::Kind::Polyshard(call) if call.function == "enqueue"));
        for around in [
            format!("PREPARE p AS {call}"),
            format!("EXPLAIN (ANALYZE) {call}"),
            format!("DECLARE c CURSOR FOR {call}"),
            format!("COPY ({call}) TO STDOUT"),
        ] {
            let refused = crate::statements(&around).unwrap_err();
            assert_eq!(refused.state.0, "0A000", "{around}");
            assert_eq!(refused.message, "polyshard.enqueue() cannot be a part of another statement");
        }
    }

    #[test]
    fn escapes_are_read_as_postgresql_reads_them() {
        for (written, meant) in [
            ("plain", "plain"),
            ("it''s", "it's"),
            (r"it\'s", "it's"),
            (r"\\ \n\t\r\b\f\q", "\\ \n\t\r\u{8}\u{c}q"),
            (r"\x41\x4a!\x7", "AJ!\u{7}"),
            (r"\101\0601\7", "A01\u{7}"),
            (r"\u00e4\U0001F600", "ä😀"),
            (r"\xc3\xa4", "ä"),
        ] {
            assert_eq!(unescaped(written).as_deref(), Some(meant), "{written}");
        }
        for wrong in [r"\xff", r"\0", r"\uD83D", "\\"] {
            assert_eq!(unescaped(wrong), None, "{wrong}");
        }
    }
}
