//! PostgreSQL's spellings that the parser does not know, in others that mean the same to it.

use std::borrow::Cow;

use crate::cursor::identifier;
use crate::lexer::{Lexeme, Token};

/// A statement as the parser is given it.
pub(crate) struct Rewritten<'t> {
    pub text: Cow<'t, str>,
    /// What was left out, so that the tree does not say all that the text says.
    pub left_out: Option<&'static str>,
}

/// Replaces words by others; the tokens are those of the text.
pub(crate) fn rewrite<'t>(text: &'t str, tokens: &[Token]) -> Rewritten<'t> {
    let is = |at: usize, word: &str| {
        tokens.get(at).is_some_and(|token| {
            token.lexeme == Lexeme::Word && text[token.start..token.end].eq_ignore_ascii_case(word)
        })
    };
    let mut changed: Option<String> = None;
    let (mut copied, mut left_out) = (0, None);
    for (at, token) in tokens.iter().enumerate() {
        // Within what was left out already.
        if token.start < copied {
            continue;
        }
        if let Some(end) = sequence_name_end(tokens, at, &is) {
            if !is_usual_sequence(text, tokens, at, &is) {
                left_out = Some("SEQUENCE NAME");
            }
            let out = changed.get_or_insert_with(|| String::with_capacity(text.len()));
            out.push_str(&text[copied..token.start]);
            copied = end;
            continue;
        }
        if token.lexeme != Lexeme::Word || at > 0 && tokens[at - 1].lexeme == Lexeme::Mark(b'.') {
            continue;
        }
        let instead = match token.end - token.start {
            // The parser would take ONLY for the table.
            4 if is(at, "only") && names_table(tokens, at, &is) => {
                left_out = Some("ONLY");
                ""
            }
            5 if at == 0 && is(at, "table") => "SELECT * FROM",
            6 if at > 0 && is(at, "isnull") => "IS NULL",
            // The strength of a row lock makes no difference to where the rows are.
            2 if is(at, "no") && is(at + 1, "key") && is(at + 2, "update") => "",
            3 if is(at, "key") && at > 1 && is(at - 1, "no") && is(at - 2, "for") => "",
            3 if at > 0 && is(at, "key") && is(at - 1, "for") && is(at + 1, "share") => "",
            _ => continue,
        };
        let out = changed.get_or_insert_with(|| String::with_capacity(text.len() + 16));
        out.push_str(&text[copied..token.start]);
        out.push_str(instead);
        copied = token.end;
    }
    let text = match changed {
        None => Cow::Borrowed(text),
        Some(mut out) => {
            out.push_str(&text[copied..]);
            Cow::Owned(out)
        }
    };
    Rewritten { text, left_out }
}

/// A second try for what the parser refused: without parts that say nothing about where the rows are.
pub(crate) fn simplify(text: &str, tokens: &[Token]) -> Option<Rewritten<'static>> {
    let is = |at: usize, word: &str| {
        tokens.get(at).is_some_and(|token| {
            token.lexeme == Lexeme::Word && text[token.start..token.end].eq_ignore_ascii_case(word)
        })
    };
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut at, mut left_out) = (0, 0, None);
    while at < tokens.len() {
        let end = if is(at, "variadic") {
            left_out = Some("VARIADIC");
            at + 1
        } else if is(at, "overriding") && is(at + 2, "value") {
            left_out = Some("OVERRIDING");
            at + 3
        } else if at > 1
            && is(at - 1, "conflict")
            && is(at - 2, "on")
            && tokens[at].lexeme == Lexeme::Mark(b'(')
        {
            // The columns of an index with expressions or a condition, up to DO.
            left_out = Some("ON CONFLICT with an expression");
            (at..tokens.len()).find(|end| is(*end, "do"))?
        } else {
            at += 1;
            continue;
        };
        out.push_str(&text[copied..tokens[at].start]);
        copied = tokens.get(end).map_or(text.len(), |token| token.start);
        at = end;
    }
    out.push_str(&text[copied..]);
    left_out.map(|_| Rewritten { text: Cow::Owned(out), left_out })
}

/// Whether a table's name follows: not so in FETCH FIRST ROW ONLY.
fn names_table(tokens: &[Token], at: usize, is: &dyn Fn(usize, &str) -> bool) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    let place = ["from", "join", "update", "using", "into"].iter().any(|word| is(before, word))
        || tokens[before].lexeme == Lexeme::Mark(b',');
    let next = tokens.get(at + 1).map(|next| next.lexeme);
    place && matches!(next, Some(Lexeme::Word | Lexeme::Quoted | Lexeme::Mark(b'(')))
}

/// Where the name of an identity's sequence ends, if it begins here: `IDENTITY (SEQUENCE NAME "t_id_seq" …)`.
fn sequence_name_end(tokens: &[Token], at: usize, is: &dyn Fn(usize, &str) -> bool) -> Option<usize> {
    let behind = at > 1 && tokens[at - 1].lexeme == Lexeme::Mark(b'(') && is(at - 2, "identity");
    if !(behind && is(at, "sequence") && is(at + 1, "name")) {
        return None;
    }
    let mut last = at + 2;
    while tokens.get(last + 1).is_some_and(|token| token.lexeme == Lexeme::Mark(b'.')) {
        last += 2;
    }
    tokens.get(last).map(|token| token.end)
}

/// Whether that name is the one which the sequence has when none is given, so that nothing is lost without it.
fn is_usual_sequence(text: &str, tokens: &[Token], at: usize, is: &dyn Fn(usize, &str) -> bool) -> bool {
    let name = |at: usize| {
        let token = tokens.get(at)?;
        identifier(&text[token.start..token.end], token.lexeme)
    };
    let dotted = |at: usize| tokens.get(at + 1).is_some_and(|token| token.lexeme == Lexeme::Mark(b'.'));
    let last_part = |mut at: usize| {
        while dotted(at) {
            at += 2;
        }
        name(at)
    };
    let mut table = 2;
    while ["if", "not", "exists", "only"].iter().any(|word| is(table, word)) {
        table += 1;
    }
    // The column's definition begins behind the last comma or parenthesis that is open, or behind ADD COLUMN.
    let (mut depth, mut column) = (0_usize, None);
    for before in (0..at.saturating_sub(2)).rev() {
        match tokens[before].lexeme {
            Lexeme::Mark(b')') => depth += 1,
            Lexeme::Mark(b'(') if depth > 0 => depth -= 1,
            Lexeme::Mark(b'(' | b',') if depth == 0 => column = Some(before + 1),
            Lexeme::Word if depth == 0 && is(before, "column") => column = Some(before + 1),
            _ => continue,
        }
        if column.is_some() {
            break;
        }
    }
    let usual =
        last_part(table).zip(column.and_then(name)).map(|(table, column)| format!("{table}_{column}_seq"));
    is(1, "table") && usual.is_some() && usual == last_part(at + 2)
}

#[cfg(test)]
mod tests {
    use super::rewrite;
    use crate::lexer::Lexer;

    #[test]
    fn the_usual_name_of_a_sequence_is_left_out() {
        let with = |sql: &str| {
            let tokens = Lexer::tokens(sql).unwrap();
            let rewritten = rewrite(sql, &tokens);
            (rewritten.text.into_owned(), rewritten.left_out)
        };
        let drizzle = "CREATE TABLE \"u\" (\"a\" numeric(3, 1), \"id\" integer PRIMARY KEY GENERATED ALWAYS AS \
                       IDENTITY (sequence name \"u_id_seq\" INCREMENT BY 1))";
        assert_eq!(with(drizzle), (drizzle.replace("sequence name \"u_id_seq\"", ""), None));
        let other = drizzle.replace("u_id_seq", "u_seq");
        assert_eq!(with(&other).1, Some("SEQUENCE NAME"));
        let added =
            "ALTER TABLE s.u ADD COLUMN id int GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME s.u_id_seq)";
        assert_eq!(with(added), (added.replace("SEQUENCE NAME s.u_id_seq", ""), None));
    }
}
