//! Where one word of a statement ends and the next begins, by PostgreSQL's own rules; knows no grammar.

use crate::error::{SqlError, SqlState};

/// Longest identifier: PostgreSQL cuts what is longer, and so must whoever wants to know which table is meant.
pub(crate) const IDENTIFIER_BYTES_MAX: usize = 63;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lexeme {
    /// An unquoted word: a keyword or a name.
    Word,
    /// `"a name"`.
    Quoted,
    /// `U&"…"`, `B'…'`, `X'…'`, `U&'…'`: seldom seen, read by nobody here.
    Other,
    /// `'text'`.
    Text,
    /// `E'text'`.
    Escaped,
    /// `$tag$text$tag$`.
    Dollar,
    /// `$1`.
    Parameter,
    /// `42`, `4.2e1`.
    Number,
    /// A run of operator characters.
    Operator,
    /// One of `( ) [ ] , ; : .`
    Mark(u8),
}

/// One token, by its place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub lexeme: Lexeme,
    pub start: usize,
    pub end: usize,
}

/// Reads tokens one after the other; white space and comments are passed over.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, bytes: text.as_bytes(), at: 0 }
    }

    /// All tokens of a text.
    pub(crate) fn tokens(text: &'a str) -> Result<Vec<Token>, SqlError> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::with_capacity(text.len() / 4 + 4);
        while let Some(token) = lexer.next()? {
            tokens.push(token);
        }
        Ok(tokens)
    }

    pub(crate) fn next(&mut self) -> Result<Option<Token>, SqlError> {
        self.skip_blanks()?;
        let start = self.at;
        let Some(&first) = self.bytes.get(start) else { return Ok(None) };
        let lexeme = match first {
            b'\'' => {
                self.quoted(b'\'', false)?;
                Lexeme::Text
            }
            b'"' => {
                self.quoted(b'"', false)?;
                Lexeme::Quoted
            }
            b'$' => self.dollar()?,
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_some_and(|b| b.is_ascii_digit()) => self.number(),
            b'(' | b')' | b'[' | b']' | b',' | b';' | b':' | b'.' => {
                self.at += 1;
                Lexeme::Mark(first)
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word()?,
            _ if is_operator(first) => self.operator(),
            _ => {
                let shown = self.text[start..].chars().next().unwrap_or(' ');
                return Err(self.wrong(start, format!("syntax error at or near \"{shown}\"")));
            }
        };
        Ok(Some(Token { lexeme, start, end: self.at }))
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn skip_blanks(&mut self) -> Result<(), SqlError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c), _) => self.at += 1,
                (Some(b'-'), Some(b'-')) => {
                    let rest = &self.bytes[self.at..];
                    let line = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
                    self.at += line;
                }
                (Some(b'/'), Some(b'*')) => self.block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    /// Block comments nest in PostgreSQL.
    fn block_comment(&mut self) -> Result<(), SqlError> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(self.wrong(start, "unterminated /* comment".to_owned())),
            }
        }
    }

    /// Goes past a quoted text, in which the quote is doubled (and, if asked, escaped by a backslash).
    fn quoted(&mut self, quote: u8, backslash: bool) -> Result<(), SqlError> {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            if byte == quote {
                if self.peek(0) != Some(quote) {
                    return Ok(());
                }
                self.at += 1;
            } else if byte == b'\\' && backslash {
                self.at += 1;
            }
        }
        self.at = self.bytes.len();
        let what =
            if quote == b'"' { "unterminated quoted identifier" } else { "unterminated quoted string" };
        Err(self.wrong(start, what.to_owned()))
    }

    /// A parameter, or a dollar-quoted text.
    fn dollar(&mut self) -> Result<Lexeme, SqlError> {
        let start = self.at;
        if self.peek(1).is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
            self.skip_digits();
            return Ok(Lexeme::Parameter);
        }
        let tag_bytes =
            self.bytes[start + 1..].iter().take_while(|b| is_name_byte(**b) && **b != b'$').count();
        if self.bytes.get(start + 1 + tag_bytes) != Some(&b'$') {
            return Err(self.wrong(start, "syntax error at or near \"$\"".to_owned()));
        }
        let tag = &self.text[start..=start + 1 + tag_bytes];
        let body = start + tag.len();
        match self.text[body..].find(tag) {
            Some(length) => {
                self.at = body + length + tag.len();
                Ok(Lexeme::Dollar)
            }
            None => Err(self.wrong(start, "unterminated dollar-quoted string".to_owned())),
        }
    }

    fn number(&mut self) -> Lexeme {
        self.skip_digits();
        if self.peek(0) == Some(b'.') && self.peek(1) != Some(b'.') {
            self.at += 1;
            self.skip_digits();
        }
        if matches!(self.peek(0), Some(b'e' | b'E')) {
            let signed = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
            if self.peek(1 + signed).is_some_and(|b| b.is_ascii_digit()) {
                self.at += 1 + signed;
                self.skip_digits();
            }
        }
        Lexeme::Number
    }

    fn skip_digits(&mut self) {
        while self.peek(0).is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn word(&mut self) -> Result<Lexeme, SqlError> {
        match (self.peek(0), self.peek(1), self.peek(2)) {
            (Some(b'e' | b'E'), Some(b'\''), _) => {
                self.at += 1;
                self.quoted(b'\'', true)?;
                return Ok(Lexeme::Escaped);
            }
            (Some(b'b' | b'B' | b'x' | b'X' | b'n' | b'N'), Some(b'\''), _) => {
                self.at += 1;
                self.quoted(b'\'', false)?;
                return Ok(Lexeme::Other);
            }
            (Some(b'u' | b'U'), Some(b'&'), Some(quote @ (b'\'' | b'"'))) => {
                self.at += 2;
                self.quoted(quote, false)?;
                return Ok(Lexeme::Other);
            }
            _ => {}
        }
        while self.peek(0).is_some_and(is_name_byte) {
            self.at += 1;
        }
        Ok(Lexeme::Word)
    }

    /// A run of operator characters, ended by a comment, and without a trailing sign where PostgreSQL takes it off.
    fn operator(&mut self) -> Lexeme {
        let start = self.at;
        while let Some(byte) = self.peek(0).filter(|b| is_operator(*b)) {
            let comment = matches!((byte, self.peek(1)), (b'-', Some(b'-')) | (b'/', Some(b'*')));
            if comment && self.at > start {
                break;
            }
            self.at += 1;
        }
        let run = &self.bytes[start..self.at];
        if !run.iter().any(|b| b"~!@#%^&|`?".contains(b)) {
            while self.at > start + 1 && matches!(self.bytes[self.at - 1], b'+' | b'-') {
                self.at -= 1;
            }
        }
        Lexeme::Operator
    }

    fn wrong(&self, at: usize, message: String) -> SqlError {
        let mut error = SqlError::new(SqlState::SYNTAX_ERROR, message);
        error.position = u32::try_from(self.text[..at].chars().count() + 1).ok();
        error
    }
}

/// An unquoted name as PostgreSQL stores it.
pub(crate) fn folded(word: &str) -> String {
    cut(word.to_ascii_lowercase())
}

/// A name of at most as many bytes as PostgreSQL keeps.
pub(crate) fn cut(mut name: String) -> String {
    if name.len() > IDENTIFIER_BYTES_MAX {
        let end = (0..=IDENTIFIER_BYTES_MAX).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(end);
    }
    name
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn is_operator(byte: u8) -> bool {
    b"+-*/<>=~!@#%^&|`?".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        Lexer::tokens(text).unwrap().iter().map(|token| &text[token.start..token.end]).collect()
    }

    #[test]
    fn tokens_end_where_postgresql_ends_them() {
        assert_eq!(
            words("select 'it''s', E'\\'' , \"a\"\"b\""),
            ["select", "'it''s'", ",", "E'\\''", ",", "\"a\"\"b\""]
        );
        assert_eq!(words("$1+$tag$ ; ' $tag$;x"), ["$1", "+", "$tag$ ; ' $tag$", ";", "x"]);
        assert_eq!(words("a--b\n/* /* */ ; */c"), ["a", "c"]);
        assert_eq!(
            words("1.5e3 1e .5 a.b 1..2 t$1"),
            ["1.5e3", "1", "e", ".5", "a", ".", "b", "1", ".", ".2", "t$1"]
        );
        assert_eq!(
            words("a=-1 b@-1 x<=y 3*/* */4"),
            ["a", "=", "-", "1", "b", "@-", "1", "x", "<=", "y", "3", "*", "4"]
        );
        assert!(Lexer::tokens("'abc").is_err());
        assert!(Lexer::tokens("E'abc\\'").is_err());
        assert!(Lexer::tokens("$a$ x").is_err());
        assert_eq!(words("é = 'ü'"), ["é", "=", "'ü'"]);
    }
}
