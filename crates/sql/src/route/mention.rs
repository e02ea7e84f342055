//! Which of the user's names stand in a text, whatever they mean there: the safety net under the parser.

use super::Context;
use crate::cursor::{identifier, string_value};
use crate::error::SqlError;
use crate::lexer::{Lexeme, Lexer};
use crate::schema::{Placement, TableName};
use crate::statement::Statement;

/// The first table, view or function of the user's that the text names; texts inside it are read too, since a block
/// of code is one.
pub(super) fn first(text: &str, context: &Context<'_>) -> Option<String> {
    find(text, DEPTH_MAX, &|name| {
        let named = |known: &TableName| known.name == name;
        let schema = context.schema;
        schema.tables.keys().any(named)
            || schema.views.keys().any(named)
            || schema.functions.keys().any(named)
    })
}

/// Whether the text names a table whose rows are not on every shard, or a view.
pub(super) fn names_placed_table(text: &str, context: &Context<'_>) -> bool {
    let schema = context.schema;
    let found = find(text, DEPTH_MAX, &|name| {
        schema.views.keys().any(|known| known.name == name)
            || schema.tables.values().any(|table| {
                table.name.name == name && !matches!(table.placement, Placement::Reference { .. })
            })
    });
    found.is_some()
}

/// Whether a schema change has a query after AS.
pub(super) fn fills_table(statement: &Statement) -> bool {
    find(statement.text(), 0, &|name| matches!(name, "select" | "table" | "values" | "with")).is_some()
}

/// A relation that nobody knows may be a temporary table, or a word that the parser took for a name. If the
/// statement then also names a table that the walk has not met, it has been misread.
pub(super) fn check_unknown(
    statement: &Statement,
    unknown: &[String],
    context: &Context<'_>,
) -> Result<(), SqlError> {
    let Some(ast) = statement.ast() else { return Ok(()) };
    let met = super::build::relation_names(ast);
    let schema = context.schema;
    let missed = find(statement.text(), 0, &|name| {
        let placed = schema
            .tables
            .values()
            .any(|table| table.name.name == name && !matches!(table.placement, Placement::Reference { .. }));
        placed && !met.iter().any(|(_, met)| met == name)
    });
    match missed {
        None => Ok(()),
        Some(name) => Err(SqlError::unsupported(
            format!(
                "relation {} is not known, and it could not be told what table {name} is for",
                unknown.join(", ")
            ),
            "Check the names; a column of the name of a sharded table can be given an alias.",
        )),
    }
}

/// Deepest nesting of texts in texts that is looked into; what is deeper counts as found.
pub(super) const DEPTH_MAX: usize = 3;

fn find(text: &str, depth: usize, wanted: &dyn Fn(&str) -> bool) -> Option<String> {
    let Ok(tokens) = Lexer::tokens(text) else {
        return (depth < DEPTH_MAX).then(|| "something that could not be read".to_owned());
    };
    for token in tokens {
        let word = &text[token.start..token.end];
        match token.lexeme {
            Lexeme::Word | Lexeme::Quoted => {
                if let Some(name) = identifier(word, token.lexeme).filter(|name| wanted(name)) {
                    return Some(name);
                }
            }
            Lexeme::Text | Lexeme::Escaped | Lexeme::Dollar | Lexeme::Other if depth > 0 => {
                let inner = string_value(word, token.lexeme).unwrap_or_else(|| word.to_owned());
                if let Some(name) = find_inside(&inner, depth - 1, wanted) {
                    return Some(name);
                }
            }
            _ => {}
        }
    }
    None
}

/// A text that is no SQL names nothing; words are looked at one by one.
fn find_inside(text: &str, depth: usize, wanted: &dyn Fn(&str) -> bool) -> Option<String> {
    match Lexer::tokens(text) {
        Ok(_) => find(text, depth, wanted),
        Err(_) => {
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
            words.find(|word| wanted(&crate::lexer::folded(word)) || wanted(word)).map(str::to_owned)
        }
    }
}
