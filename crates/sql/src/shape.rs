//! A statement without its literals: those that differ in nothing else are parsed and analysed once.
//!
//! The simple protocol sends values as literals, so that every statement is new. Its *shape* has a parameter for each
//! number and text; the analysis of the shape, given the values, says where the statement goes. The statement itself
//! is sent as it is.

use std::borrow::Cow;
use std::sync::Arc;

use crate::kind::Kind;
use crate::lexer::{Lexeme, Lexer, Token};
use crate::param::{Param, ParamValue};
use crate::point::is_point_read;
use crate::route::{Analysis, Context, Maps, Route, analyse};
use crate::schema::TypeOid;
use crate::statement::{Statement, statements};

/// Longest text that has a shape: longer ones are loads, and seldom the same twice.
const TEXT_BYTES_MAX: usize = 4096;
/// Most literals of a shape: those beyond are rows of an INSERT, which is cut by its own text.
const VALUES_MAX: usize = 64;

/// A statement's shape and values; for SELECT, INSERT, UPDATE, DELETE and WITH.
#[derive(Debug)]
pub struct Shape<'a> {
    text: String,
    values: Vec<(TypeOid, Cow<'a, str>)>,
}

impl<'a> Shape<'a> {
    /// The shape of a text that is one SELECT, INSERT, UPDATE or DELETE without parameters; none for all others.
    pub fn of(text: &'a str) -> Option<Shape<'a>> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let mut lexer = Lexer::new(text);
        let mut shape = Shape { text: String::with_capacity(text.len() + 16), values: Vec::with_capacity(4) };
        let (mut copied, mut before): (usize, [Option<Token>; 2]) = (0, [None, None]);
        while let Some(token) = lexer.next().ok()? {
            match token.lexeme {
                Lexeme::Mark(b';') => {
                    // The end, or another statement.
                    if lexer.next().ok()?.is_some() {
                        return None;
                    }
                    shape.text.push_str(&text[copied..token.start]);
                    return shape.finished();
                }
                Lexeme::Parameter => return None,
                Lexeme::Word if before[1].is_none() && !has_shape(&text[token.start..token.end]) => {
                    return None;
                }
                Lexeme::Number | Lexeme::Text => {
                    let start = sign(text, before).unwrap_or(token.start);
                    shape.text.push_str(&text[copied..start]);
                    shape.push(text, start, token)?;
                    copied = token.end;
                }
                _ => {}
            }
            before = [before[1], Some(token)];
        }
        shape.text.push_str(&text[copied..]);
        shape.finished()
    }

    /// The text with `$1`, `$2` … for the literals: what statements of this shape share.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What its literals say.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|(_, value)| value.as_ref())
    }

    /// The types that its literals have by themselves, 0 for those that take the type of what they are compared with.
    /// Nothing if one of them is not certain: a fraction, or a text in which a backslash may mean something.
    pub fn types(&self) -> Option<Vec<u32>> {
        self.values.iter().map(own_type).collect()
    }

    /// Whether its literals have these types.
    pub fn has_types(&self, types: &[u32]) -> bool {
        let mine = self.values.iter().map(own_type);
        self.values.len() == types.len() && mine.zip(types).all(|(mine, given)| mine == Some(*given))
    }

    fn push(&mut self, text: &'a str, start: usize, token: Token) -> Option<()> {
        if self.values.len() >= VALUES_MAX {
            return None;
        }
        let written = &text[start..token.end];
        let value = match token.lexeme {
            Lexeme::Text => {
                let inner = &written[1..written.len() - 1];
                let value = if inner.contains('\'') {
                    Cow::Owned(inner.replace("''", "'"))
                } else {
                    Cow::Borrowed(inner)
                };
                // Like a literal: what it is compared with says what it is.
                (TypeOid::UNKNOWN, value)
            }
            _ => {
                let digits = written.strip_prefix('-').unwrap_or(written);
                let whole = digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
                (if whole { TypeOid::INT8 } else { TypeOid::NUMERIC }, Cow::Borrowed(written))
            }
        };
        self.values.push(value);
        // What stands close to it must not become part of it: `AND'x'` is two words.
        let is_close = |byte: Option<&u8>| {
            byte.is_some_and(|b| b.is_ascii_alphanumeric() || !b.is_ascii() || b"_$".contains(b))
        };
        if is_close(self.text.as_bytes().last()) {
            self.text.push(' ');
        }
        self.text.push('$');
        self.text.push_str(&self.values.len().to_string());
        if is_close(text.as_bytes().get(token.end)) {
            self.text.push(' ');
        }
        Some(())
    }

    fn finished(self) -> Option<Shape<'a>> {
        (!self.text.is_empty()).then_some(self)
    }
}

/// The type of a literal: a whole number is an `integer` if it fits, else a `bigint`, whatever its sign.
fn own_type((type_oid, value): &(TypeOid, Cow<'_, str>)) -> Option<u32> {
    match *type_oid {
        TypeOid::UNKNOWN => (!value.contains('\\')).then_some(0),
        TypeOid::INT8 => {
            let digits = value.strip_prefix('-').unwrap_or(value);
            let small = digits.parse::<i64>().ok()? <= i64::from(i32::MAX);
            Some(if small { TypeOid::INT4.0 } else { TypeOid::INT8.0 })
        }
        _ => None,
    }
}

fn has_shape(first: &str) -> bool {
    ["select", "insert", "update", "delete", "with"].iter().any(|word| word.eq_ignore_ascii_case(first))
}

/// Where the minus sign of a number stands, if it can be nothing else: after an operator, a comma or a parenthesis.
fn sign(text: &str, before: [Option<Token>; 2]) -> Option<usize> {
    let minus =
        before[1].filter(|token| token.lexeme == Lexeme::Operator && &text[token.start..token.end] == "-")?;
    match before[0]?.lexeme {
        Lexeme::Operator | Lexeme::Mark(b'(' | b',') => Some(minus.start),
        _ => None,
    }
}

/// What all statements of a shape have in common.
#[derive(Debug, Clone)]
pub struct Lane {
    statement: Arc<Statement>,
    analysis: Arc<Analysis>,
    point: bool,
}

impl Lane {
    /// Reads a shape against the schema; none if a statement of this shape must be looked at by itself.
    pub fn new(shape: &Shape<'_>, context: &Context<'_>) -> Option<Lane> {
        let mut all = statements(&shape.text).ok()?;
        let statement = all.pop().filter(|_| all.is_empty())?;
        if !matches!(statement.kind(), Kind::Select | Kind::Insert | Kind::Update | Kind::Delete) {
            return None;
        }
        let analysis = Arc::new(analyse(&statement, context).ok()?);
        let point = *statement.kind() == Kind::Select && is_point_read(&shape.text, context);
        Some(Lane { statement, analysis, point })
    }

    /// The shape as a statement: its kind is that of all of them.
    pub fn statement(&self) -> &Arc<Statement> {
        &self.statement
    }

    /// What is known of all of them.
    pub fn analysis(&self) -> &Arc<Analysis> {
        &self.analysis
    }

    /// Whether they read one row by its primary key: then the literals can as well be the values of a prepared
    /// statement.
    pub fn is_point_read(&self) -> bool {
        self.point
    }

    /// Where the statement goes, if it goes as it is to one shard (or to any): everything else is looked at by itself.
    pub fn route(&self, shape: &Shape<'_>, maps: &dyn Maps) -> Option<Route> {
        let params: Vec<Param<'_>> = shape
            .values
            .iter()
            .map(|(type_oid, value)| Param { type_oid: *type_oid, value: ParamValue::Text(value.as_bytes()) })
            .collect();
        match self.analysis.route(&params, maps) {
            Ok(route @ (Route::One { .. } | Route::Anywhere | Route::ReferenceRead)) => Some(route),
            _ => None,
        }
    }
}
