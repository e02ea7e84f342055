//! Puts the pieces of a filter together. `not` binds closest, then `and`, then `or`.

use super::lex::{Placed, Token, lex, wrong};
use super::{COMPARISONS_MAX, DEPTH_MAX, Expr, FilterError, Operand};
use crate::edm::EdmValue;

pub(super) fn parse(text: &str) -> Result<Expr, FilterError> {
    let tokens = lex(text)?;
    let mut parser = Parser { text, tokens: tokens.into_iter().peekable(), conditions: 0, depth: 0 };
    let root = parser.or()?;
    match parser.tokens.next() {
        None if is_condition(&root) => Ok(root),
        None => Err(wrong(text, 0, "a value alone is no condition: compare it with a property")),
        Some((_, at)) => Err(wrong(text, at, "'and', 'or' or the end is expected")),
    }
}

/// Whether every value that stands for itself is a truth value. Only the whole tells: in `(1) eq a` it does not.
fn is_condition(expr: &Expr) -> bool {
    match expr {
        Expr::And(left, right) | Expr::Or(left, right) => is_condition(left) && is_condition(right),
        Expr::Not(inner) => is_condition(inner),
        Expr::Truth(Operand::Literal(value)) => matches!(value, EdmValue::Boolean(_)),
        Expr::Truth(Operand::Property(_)) | Expr::Compare { .. } => true,
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: std::iter::Peekable<std::vec::IntoIter<Placed>>,
    conditions: usize,
    depth: usize,
}

impl Parser<'_> {
    fn next_is(&mut self, token: &Token) -> bool {
        self.tokens.next_if(|(next, _)| next == token).is_some()
    }

    /// Conditions joined on the same level make a tree as deep as there are conditions: their number is limited.
    fn or(&mut self) -> Result<Expr, FilterError> {
        let mut left = self.and()?;
        while self.next_is(&Token::Or) {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, FilterError> {
        let mut left = self.not()?;
        while self.next_is(&Token::And) {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FilterError::TooLong);
        }
        let expr = if self.next_is(&Token::Not) {
            Expr::Not(Box::new(self.not()?))
        } else if self.next_is(&Token::Open) {
            self.parenthesis()?
        } else {
            self.condition()?
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// What follows an opening parenthesis: a condition, or just one side of a comparison, as some clients write it.
    fn parenthesis(&mut self) -> Result<Expr, FilterError> {
        let inner = self.or()?;
        if !self.next_is(&Token::Close) {
            return Err(self.expected("a closing parenthesis"));
        }
        match inner {
            Expr::Truth(operand) => self.rest_of_condition(operand),
            other => Ok(other),
        }
    }

    fn condition(&mut self) -> Result<Expr, FilterError> {
        let left = self.operand()?;
        self.conditions += 1;
        if self.conditions > COMPARISONS_MAX {
            return Err(FilterError::TooLong);
        }
        self.rest_of_condition(left)
    }

    fn rest_of_condition(&mut self, left: Operand) -> Result<Expr, FilterError> {
        match self.tokens.next_if(|(next, _)| matches!(next, Token::Compare(_))) {
            Some((Token::Compare(op), _)) => {
                let right = self.side()?;
                Ok(Expr::Compare { left, op, right })
            }
            _ => Ok(Expr::Truth(left)),
        }
    }

    /// The right side of a comparison, maybe in one pair of parentheses.
    fn side(&mut self) -> Result<Operand, FilterError> {
        if !self.next_is(&Token::Open) {
            return self.operand();
        }
        let operand = self.operand()?;
        if self.next_is(&Token::Close) { Ok(operand) } else { Err(self.expected("a closing parenthesis")) }
    }

    fn operand(&mut self) -> Result<Operand, FilterError> {
        match self.tokens.next_if(|(next, _)| matches!(next, Token::Name(_) | Token::Literal(_))) {
            Some((Token::Name(name), _)) if matches!(self.tokens.peek(), Some((Token::Open, _))) => {
                Err(FilterError::Function(name))
            }
            Some((Token::Name(name), _)) => Ok(Operand::Property(name)),
            Some((Token::Literal(value), _)) => Ok(Operand::Literal(value)),
            _ => Err(self.expected("a property or a value")),
        }
    }

    fn expected(&mut self, what: &str) -> FilterError {
        let at = self.tokens.peek().map_or(self.text.len(), |(_, at)| *at);
        wrong(self.text, at, format!("{what} is expected"))
    }
}
