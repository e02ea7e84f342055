//! Takes the text of a filter apart into words, literals and parentheses.

use polyshard_azure_storage::Timestamp;

use super::{FilterError, Op};
use crate::edm::{EdmValue, parse_double, parse_guid};
use crate::entity::is_name_char;

/// One piece of a filter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Open,
    Close,
    /// Between the arguments of functions, none of which the service knows.
    Comma,
    And,
    Or,
    Not,
    Compare(Op),
    /// The name of a property (or of a function, if a parenthesis follows).
    Name(String),
    Literal(EdmValue),
}

/// A piece and where it begins, in bytes.
pub(super) type Placed = (Token, usize);

/// All pieces of a text.
pub(super) fn lex(text: &str) -> Result<Vec<Placed>, FilterError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    while let Some(placed) = lexer.next()? {
        tokens.push(placed);
    }
    Ok(tokens)
}

/// A syntax error at a byte of the text.
pub(super) fn wrong(text: &str, at: usize, problem: impl Into<String>) -> FilterError {
    let at = text.get(..at).unwrap_or(text).chars().count() + 1;
    FilterError::Syntax { problem: problem.into(), at }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Result<Option<Placed>, FilterError> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        let start = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok(None) };
        let token = match first {
            '(' => self.single(Token::Open),
            ')' => self.single(Token::Close),
            ',' => self.single(Token::Comma),
            '\'' => Token::Literal(EdmValue::String(self.quoted()?)),
            '-' | '0'..='9' => self.number()?,
            char if is_name_char(char) => self.word()?,
            char => return Err(wrong(self.text, start, format!("'{char}' means nothing here"))),
        };
        Ok(Some((token, start)))
    }

    fn single(&mut self, token: Token) -> Token {
        self.at += 1;
        token
    }

    /// A quoted text; a quote inside it is doubled.
    fn quoted(&mut self) -> Result<String, FilterError> {
        let start = self.at;
        let mut out = String::new();
        self.at += 1;
        loop {
            let Some(end) = self.rest().find('\'') else {
                return Err(wrong(self.text, start, "a quote that is not closed"));
            };
            out.push_str(&self.rest()[..end]);
            self.at += end + 1;
            if !self.rest().starts_with('\'') {
                return Ok(out);
            }
            out.push('\'');
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Token, FilterError> {
        let start = self.at;
        let mut previous = ' ';
        let length = self
            .rest()
            .find(|char: char| {
                let sign = matches!(char, '-' | '+') && matches!(previous, ' ' | 'e' | 'E');
                let part = sign || char.is_ascii_alphanumeric() || char == '.';
                previous = char;
                !part
            })
            .unwrap_or(self.rest().len());
        let text = &self.rest()[..length];
        let value =
            read_number(text).ok_or_else(|| wrong(self.text, start, format!("'{text}' is no number")))?;
        self.at += length;
        Ok(Token::Literal(value))
    }

    fn word(&mut self) -> Result<Token, FilterError> {
        let start = self.at;
        let length = self.rest().find(|char| !is_name_char(char)).unwrap_or(self.rest().len());
        let word = self.rest()[..length].to_owned();
        self.at += length;
        if self.rest().starts_with('\'') {
            let text = self.quoted()?;
            let unreadable = || wrong(self.text, start, format!("{word}'{text}' is not a value"));
            return typed(&word, &text).map(Token::Literal).ok_or_else(unreadable);
        }
        Ok(match word.as_str() {
            "and" => Token::And,
            "or" => Token::Or,
            "not" => Token::Not,
            "eq" => Token::Compare(Op::Eq),
            "ne" => Token::Compare(Op::Ne),
            "gt" => Token::Compare(Op::Gt),
            "ge" => Token::Compare(Op::Ge),
            "lt" => Token::Compare(Op::Lt),
            "le" => Token::Compare(Op::Le),
            // As some languages write them.
            "true" | "True" => Token::Literal(EdmValue::Boolean(true)),
            "false" | "False" => Token::Literal(EdmValue::Boolean(false)),
            "NaN" | "INF" | "Infinity" => {
                let number = parse_double(&word).expect("these three are doubles");
                Token::Literal(EdmValue::Double(number))
            }
            // The service knows none either. As the name of a property it would quietly find nothing.
            "null" => {
                let problem = "there is no null in tables, where a property without a value is absent";
                return Err(wrong(self.text, start, problem));
            }
            _ => Token::Name(word),
        })
    }
}

/// `5`, `5L`, `5.0`, `5e3`, `5.0d`. A whole number that is too long for 32 bits is one of 64, as the SDKs mean it.
fn read_number(text: &str) -> Option<EdmValue> {
    if let Some(digits) = text.strip_suffix(['L', 'l']) {
        return digits.parse().ok().map(EdmValue::Int64);
    }
    if text == "-INF" || text == "-Infinity" {
        return Some(EdmValue::Double(f64::NEG_INFINITY));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        let small = text.parse().ok().map(EdmValue::Int32);
        return small.or_else(|| text.parse().ok().map(EdmValue::Int64));
    }
    let number = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    if number.ends_with(|char: char| char.is_ascii_digit()) {
        parse_double(number).map(EdmValue::Double)
    } else {
        None
    }
}

/// `datetime'…'`, `guid'…'`, `X'…'`, `binary'…'`.
fn typed(word: &str, text: &str) -> Option<EdmValue> {
    match word {
        "datetime" => Timestamp::parse_iso(text).map(EdmValue::DateTime),
        "guid" => parse_guid(text).map(EdmValue::Guid),
        "X" | "x" | "binary" => hex(text).map(EdmValue::Binary),
        _ => None,
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|char| char.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}
