//! Values written into a statement's text, in place of its parameters or as arguments of EXECUTE.

use crate::cursor::Cursor;
use crate::error::{SqlError, SqlState};
use crate::lexer::{Lexeme, Lexer};

/// A statement's text with these literals in place of `$1`, `$2` …; everything else stays as it is written.
pub fn with_literals(text: &str, literals: &[String]) -> Result<String, SqlError> {
    let mut out = String::with_capacity(text.len() + literals.iter().map(|l| l.len() + 2).sum::<usize>());
    let mut copied = 0;
    for token in Lexer::tokens(text)?.iter().filter(|token| token.lexeme == Lexeme::Parameter) {
        let name = &text[token.start..token.end];
        let number: Option<usize> = name[1..].parse().ok();
        let literal = number
            .and_then(|number| literals.get(number.checked_sub(1)?))
            .ok_or_else(|| SqlError::new(SqlState("42P02"), format!("there is no parameter {name}")))?;
        out.push_str(&text[copied..token.start]);
        out.push('(');
        out.push_str(literal);
        out.push(')');
        copied = token.end;
    }
    out.push_str(&text[copied..]);
    Ok(out)
}

/// Whether a text is one literal and nothing else: its value is plain to see, and no server needs to work it out.
pub fn is_literal(text: &str) -> bool {
    let Ok(tokens) = Lexer::tokens(text) else { return false };
    let mut cursor = Cursor::new(text, &tokens);
    let word = cursor.take("null") || cursor.take("true") || cursor.take("false");
    (word || cursor.literal().is_some()) && cursor.is_at_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_are_replaced() {
        let literals = ["'5'::bigint".to_owned(), "'it''s'::text".to_owned()];
        let with = |text| with_literals(text, &literals);
        let text = "SELECT '$1', $$ $2 $$, a$1 FROM t WHERE x = $1 AND y = $2 -- $2";
        let expected =
            "SELECT '$1', $$ $2 $$, a$1 FROM t WHERE x = ('5'::bigint) AND y = ('it''s'::text) -- $2";
        assert_eq!(with(text).unwrap(), expected);
        assert_eq!(with("SELECT $3").unwrap_err().state, SqlState("42P02"));
        assert_eq!(with("SELECT $0").unwrap_err().state, SqlState("42P02"));
    }

    #[test]
    fn a_literal_is_one_value() {
        for text in ["5", "-5.5", "'a'", "E'a'", "NULL", "true", "$$x$$"] {
            assert!(is_literal(text), "{text}");
        }
        for text in ["", "5 + 1", "now()", "'a' || 'b'", "x", "E'\\n'", "5,6", "(SELECT 1)"] {
            assert!(!is_literal(text), "{text}");
        }
    }
}
