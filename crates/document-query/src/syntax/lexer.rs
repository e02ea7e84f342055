//! Text to tokens.

use super::tree::Span;
use crate::error::{ErrorCode, QueryError};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name or keyword.
    Word(&'a str),
    /// `@name`, with the `@`.
    Parameter(&'a str),
    Number(f64),
    Text(String),
    Symbol(&'static str),
    End,
}

/// Longer symbols stand before their beginnings.
const SYMBOLS: [&str; 30] = [
    ">>>", "<<", ">>", "<=", ">=", "<>", "!=", "||", "??", "(", ")", "[", "]", "{", "}", ",", ".", ":", "?",
    "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^",
];
/// The one-symbol operator that is unary only.
const TILDE: &str = "~";

/// Splits the text; comments run from `--` to the end of the line.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, Span)>, QueryError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip();
        let start = lexer.at;
        let token = lexer.token()?;
        let end = token == Token::End;
        tokens.push((token, Span { start, end: lexer.at }));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error(&self, start: usize, what: &str) -> QueryError {
        let near = &self.text[start..self.at];
        let message = format!("Syntax error, {what} '{near}'.");
        QueryError::new(ErrorCode::Syntax, message).at(self.text, start, self.at)
    }

    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            if !self.rest().starts_with("--") {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn token(&mut self) -> Result<Token<'a>, QueryError> {
        let Some(first) = self.rest().chars().next() else { return Ok(Token::End) };
        match first {
            '"' | '\'' => self.string(first),
            '0'..='9' => self.number(),
            '.' if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number(),
            '@' => {
                let start = self.at;
                self.at += 1;
                let word = self.word();
                if word.is_empty() {
                    return Err(self.error(start, "incorrect syntax near"));
                }
                Ok(Token::Parameter(&self.text[start..self.at]))
            }
            _ if starts_word(first) => Ok(Token::Word(self.word())),
            _ => self.symbol(first),
        }
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c: char| !(starts_word(c) || c.is_numeric())).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn symbol(&mut self, first: char) -> Result<Token<'a>, QueryError> {
        let found = SYMBOLS.iter().chain([&TILDE]).find(|symbol| self.rest().starts_with(**symbol));
        let start = self.at;
        match found {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            None => {
                self.at += first.len_utf8();
                Err(self.error(start, "incorrect syntax near"))
            }
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Token<'a>, QueryError> {
        let start = self.at;
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            return self.hexadecimal(start);
        }
        self.digits();
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.error(start, "invalid numeric value token"));
            }
        }
        if self.rest().starts_with(starts_word) {
            self.word();
            return Err(self.error(start, "invalid numeric value token"));
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Token::Number(number)),
            _ => Err(self.error(start, "invalid numeric value token")),
        }
    }

    fn hexadecimal(&mut self, start: usize) -> Result<Token<'a>, QueryError> {
        self.at += 2;
        let digits = self.word();
        match u64::from_str_radix(digits, 16) {
            Ok(number) => Ok(Token::Number(number as f64)),
            Err(_) => Err(self.error(start, "invalid numeric value token")),
        }
    }

    fn string(&mut self, quote: char) -> Result<Token<'a>, QueryError> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        while let Some(character) = self.rest().chars().next() {
            self.at += character.len_utf8();
            match character {
                _ if character == quote => return Ok(Token::Text(text)),
                '\\' => match self.escape() {
                    Some(character) => text.push(character),
                    None => return Err(self.error(start, "invalid string literal token")),
                },
                _ => text.push(character),
            }
        }
        Err(self.error(start, "invalid string literal token"))
    }

    fn escape(&mut self) -> Option<char> {
        let escape = self.rest().chars().next()?;
        self.at += escape.len_utf8();
        Some(match escape {
            '"' | '\'' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{C}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode(),
            _ => return None,
        })
    }

    fn unicode(&mut self) -> Option<char> {
        let first = self.hex()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        self.at += self.rest().starts_with("\\u").then_some(2)?;
        let second = self.hex()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + second)
    }

    fn hex(&mut self) -> Option<u32> {
        let digits =
            self.rest().get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }
}

fn starts_word(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}
