//! DO: a block of code, which is run on every shard if it can only do the same on each.
//!
//! Migration tools write blocks to change the schema only where it is not yet changed. What such a block reads are the
//! system's catalogs, which are alike on all shards; what it writes is the schema. What touches rows is refused.

use super::Context;
use super::from::OWN_SCHEMA;
use super::mention::{self, DEPTH_MAX};
use crate::cursor::{identifier, string_value};
use crate::error::SqlError;
use crate::lexer::{Lexeme, Lexer};
use crate::schema::{Placement, TableName};

/// Words that begin a change of rows.
const WRITING: [&str; 7] = ["insert", "update", "delete", "merge", "copy", "truncate", "call"];
/// Words after which no more tables of a FROM are named.
const ENDS_FROM: [&str; 13] = [
    "where", "group", "order", "limit", "having", "union", "loop", "then", "window", "offset", "fetch",
    "for", "set",
];

/// Refuses a block that could do something else on each shard.
pub(super) fn check(text: &str, context: &Context<'_>) -> Result<(), SqlError> {
    match why_not(text, DEPTH_MAX, context) {
        None => Ok(()),
        Some(why) => Err(SqlError::unsupported(
            format!("the block {why}, and it would run on every shard"),
            "Let it change the schema alone, and run statements about rows outside of it.",
        )),
    }
}

/// What is in the way, in words.
fn why_not(text: &str, depth: usize, context: &Context<'_>) -> Option<String> {
    let Ok(tokens) = Lexer::tokens(text) else {
        return mention::first(text, context).map(|name| format!("could not be read, and names {name}"));
    };
    let words: Vec<Option<String>> =
        tokens.iter().map(|token| identifier(&text[token.start..token.end], token.lexeme)).collect();
    let is = |at: Option<usize>, wanted: &[&str]| {
        at.and_then(|at| words.get(at)?.as_deref()).is_some_and(|word| wanted.contains(&word))
    };
    let (mut in_from, mut outer) = (false, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1);
        match token.lexeme {
            Lexeme::Mark(b'(') => outer.push(in_from),
            // What was before the parenthesis goes on after it.
            Lexeme::Mark(b')') => in_from = outer.pop().unwrap_or(false),
            Lexeme::Mark(b';') => (in_from, outer) = (false, Vec::new()),
            Lexeme::Word | Lexeme::Quoted => {
                let Some(word) = words[at].as_deref() else { continue };
                let plain = token.lexeme == Lexeme::Word;
                if plain
                    && WRITING.contains(&word)
                    && !is(before, &["on", "for", "before", "after", "or", "of"])
                {
                    return Some(format!("changes rows ({})", word.to_uppercase()));
                }
                if plain && word == "language" && !is(Some(at + 1), &["plpgsql", "sql"]) {
                    return Some("is in a language that is not looked into".to_owned());
                }
                if word == OWN_SCHEMA {
                    return Some(format!("names {OWN_SCHEMA}, whose tables are not SQL's"));
                }
                if plain && matches!(word, "from" | "join" | "using") {
                    in_from = true;
                } else if plain && ENDS_FROM.contains(&word) {
                    in_from = false;
                } else if in_from && is_placed(word, context) {
                    return Some(format!("reads {word}, of which each shard has a part"));
                } else if may_read(word, context) && !is(before, &["function", "procedure"]) {
                    return Some(format!("calls {word}, which may read or write tables"));
                }
            }
            Lexeme::Text | Lexeme::Escaped | Lexeme::Dollar | Lexeme::Other if depth > 0 => {
                let written = &text[token.start..token.end];
                let inner = string_value(written, token.lexeme).unwrap_or_else(|| written.to_owned());
                // Names of tables in conditions are no more than texts; statements have several words.
                if inner.contains(char::is_whitespace)
                    && let Some(why) = why_not(&inner, depth - 1, context)
                {
                    return Some(why);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether it is the name of a view, or of a table whose rows are not on every shard.
fn is_placed(name: &str, context: &Context<'_>) -> bool {
    let schema = context.schema;
    let named = |known: &TableName| known.name == name;
    schema.views.keys().any(named)
        || schema
            .tables
            .values()
            .any(|table| named(&table.name) && !matches!(table.placement, Placement::Reference { .. }))
}

/// Whether it is the name of a function of the user's that may read tables.
fn may_read(name: &str, context: &Context<'_>) -> bool {
    let functions = &context.schema.functions;
    functions.iter().any(|(known, function)| known.name == name && !function.table_free)
}
