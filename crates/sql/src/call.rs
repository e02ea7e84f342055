//! `SELECT polyshard.f(…)` as a whole statement: a command of Polyshard's.

use crate::cursor::Cursor;
use crate::kind::{Argument, PolyshardCall, Setting};
use crate::lexer::Lexeme;

/// Functions of the schema `polyshard` that are ordinary expressions, wherever they stand.
const EXPRESSIONS: [&str; 1] = ["next_id"];

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
        arguments.push(argument(&mut cursor)?);
    }
    if cursor.take("as") || !cursor.is_at_end() {
        cursor.name()?;
    }
    cursor.is_at_end().then_some(PolyshardCall { function, arguments, names })
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

fn argument(cursor: &mut Cursor<'_>) -> Option<Argument> {
    let token = cursor.peek()?;
    let word = cursor.text_of(token);
    let argument = match token.lexeme {
        Lexeme::Parameter => Argument::Parameter(word[1..].parse().ok()?),
        Lexeme::Word if word.eq_ignore_ascii_case("null") => Argument::Null,
        Lexeme::Word if word.eq_ignore_ascii_case("true") => Argument::Text("true".to_owned()),
        Lexeme::Word if word.eq_ignore_ascii_case("false") => Argument::Text("false".to_owned()),
        Lexeme::Word => return None,
        _ => Argument::Text(cursor.literal()?),
    };
    if token.lexeme == Lexeme::Parameter || token.lexeme == Lexeme::Word {
        cursor.advance();
    }
    // A cast says what the value is already: commands read their arguments by themselves.
    while cursor.take_mark(b':') {
        if !cursor.take_mark(b':') {
            return None;
        }
        cursor.qualified()?;
        if cursor.is_mark(b'(') {
            cursor.parenthesised()?;
        }
        while cursor.take_mark(b'[') {
            cursor.take_mark(b']');
        }
    }
    Some(argument)
}
