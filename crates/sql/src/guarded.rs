//! DO blocks that make a type unless it is there: PostgreSQL has no CREATE TYPE IF NOT EXISTS.

use crate::cursor::string_value;
use crate::lexer::{Lexeme, Lexer, Token};

/// The CREATE TYPE of a block that is `BEGIN CREATE TYPE …; EXCEPTION WHEN duplicate_object THEN null; END` and no
/// more.
pub fn guarded_type(text: &str) -> Option<String> {
    let tokens = Lexer::tokens(text).ok()?;
    let mut code = None;
    let mut at = 1;
    if !is(text, tokens.first(), "do") {
        return None;
    }
    while let Some(token) = tokens.get(at) {
        if is(text, Some(token), "language") && is(text, tokens.get(at + 1), "plpgsql") {
            at += 2;
            continue;
        }
        if code.is_some() {
            return None;
        }
        code = Some(string_value(&text[token.start..token.end], token.lexeme)?);
        at += 1;
    }
    inner(&code?)
}

fn is(text: &str, token: Option<&Token>, word: &str) -> bool {
    token.is_some_and(|token| {
        token.lexeme == Lexeme::Word && text[token.start..token.end].eq_ignore_ascii_case(word)
    })
}

/// What stands between BEGIN and EXCEPTION.
fn inner(code: &str) -> Option<String> {
    let mut tokens = Lexer::tokens(code).ok()?;
    let ends = |token: &Token| token.lexeme == Lexeme::Mark(b';');
    while tokens.last().is_some_and(ends) {
        tokens.pop();
    }
    let is = |at: usize, word: &str| is(code, tokens.get(at), word);
    if !(is(0, "begin") && is(1, "create") && is(2, "type")) {
        return None;
    }
    let end = tokens.iter().position(ends)?;
    let words = ["exception", "when", "duplicate_object", "then", "null"];
    let guarded = words.iter().enumerate().all(|(place, word)| is(end + 1 + place, word));
    let last = end + 1 + words.len();
    let over = tokens.get(last).is_some_and(ends) && is(last + 1, "end") && tokens.len() == last + 2;
    (guarded && over).then(|| code[tokens[1].start..tokens[end].start].trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::guarded_type;

    #[test]
    fn only_a_block_that_makes_one_type_is_one() {
        let made = Some("CREATE TYPE \"public\".\"e\" AS ENUM('a', 'b')".to_owned());
        let sequelize = "DO 'BEGIN CREATE TYPE \"public\".\"e\" AS ENUM(''a'', ''b''); EXCEPTION WHEN \
                         duplicate_object THEN \
                         null; END'";
        assert_eq!(guarded_type(sequelize), made);
        let drizzle = "DO $$ BEGIN\n CREATE TYPE \"public\".\"e\" AS ENUM('a', 'b');\nEXCEPTION\n WHEN \
                       duplicate_object \
                       THEN null;\nEND $$ LANGUAGE plpgsql";
        assert_eq!(guarded_type(drizzle), made);
        for other in [
            "DO $$ BEGIN CREATE TYPE e AS ENUM ('a'); END $$",
            "DO $$ BEGIN CREATE TYPE e AS ENUM ('a'); DROP TABLE t; EXCEPTION WHEN duplicate_object THEN null; END $$",
            "DO $$ BEGIN DROP TABLE t; EXCEPTION WHEN duplicate_object THEN null; END $$",
            "DO $$ BEGIN CREATE TYPE e AS ENUM ('a'); EXCEPTION WHEN OTHERS THEN null; END $$",
            "DO $$ BEGIN CREATE TYPE e AS ENUM ('a'); EXCEPTION WHEN duplicate_object THEN null; END; x $$",
            "SELECT 1",
        ] {
            assert_eq!(guarded_type(other), None, "{other}");
        }
    }
}
