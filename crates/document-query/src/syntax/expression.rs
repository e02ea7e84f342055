//! Tokens to syntax tree: expressions, by precedence climbing.

use super::lexer::Token;
use super::parser::{Parser, is_reserved};
use super::tree::*;
use crate::error::QueryError;
use crate::value::Value;

impl Parser<'_> {
    /// Any expression.
    pub(super) fn expression(&mut self) -> Result<Expr, QueryError> {
        self.deeper(Self::conditional)
    }

    fn conditional(&mut self) -> Result<Expr, QueryError> {
        let start = self.start();
        let condition = self.chain("??", Kind::Coalesce, |parser| {
            parser.word_chain("OR", Kind::Or, |parser| parser.word_chain("AND", Kind::And, Self::predicate))
        })?;
        if !self.take_symbol("?") {
            return Ok(condition);
        }
        let consequent = self.expression()?;
        self.expect_symbol(":")?;
        let alternative = self.expression()?;
        let kind = Kind::Conditional(Box::new([condition, consequent, alternative]));
        Ok(Expr { span: self.span_from(start), kind })
    }

    fn chain(
        &mut self,
        symbol: &str,
        kind: fn(Vec<Expr>) -> Kind,
        item: impl Fn(&mut Self) -> Result<Expr, QueryError>,
    ) -> Result<Expr, QueryError> {
        let start = self.start();
        let first = item(self)?;
        if !self.is_symbol(symbol) {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.take_symbol(symbol) {
            items.push(item(self)?);
        }
        Ok(Expr { span: self.span_from(start), kind: kind(items) })
    }

    fn word_chain(
        &mut self,
        keyword: &str,
        kind: fn(Vec<Expr>) -> Kind,
        item: impl Fn(&mut Self) -> Result<Expr, QueryError>,
    ) -> Result<Expr, QueryError> {
        let start = self.start();
        let first = item(self)?;
        if !self.is_keyword(keyword) {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.take_keyword(keyword) {
            items.push(item(self)?);
        }
        Ok(Expr { span: self.span_from(start), kind: kind(items) })
    }

    /// IN, BETWEEN and LIKE around operators. They do not follow each other: `a IN (1) IN (2)` is refused.
    fn predicate(&mut self) -> Result<Expr, QueryError> {
        let start = self.start();
        let value = self.binary(0)?;
        let negated = self.take_keyword("NOT");
        let kind = if self.take_keyword("IN") {
            self.expect_symbol("(")?;
            let list = self.list(Self::expression)?;
            self.expect_symbol(")")?;
            Kind::In { value: Box::new(value), list, negated }
        } else if self.take_keyword("BETWEEN") {
            let low = self.binary(0)?;
            self.expect_keyword("AND")?;
            let high = self.binary(0)?;
            Kind::Between { operands: Box::new([value, low, high]), negated }
        } else if self.take_keyword("LIKE") {
            let pattern = self.binary(0)?;
            let escape = self.escape()?;
            Kind::Like { operands: Box::new([value, pattern]), escape, negated }
        } else if negated {
            return Err(self.unexpected());
        } else {
            return Ok(value);
        };
        Ok(Expr { span: self.span_from(start), kind })
    }

    fn escape(&mut self) -> Result<Option<char>, QueryError> {
        if !self.take_keyword("ESCAPE") {
            return Ok(None);
        }
        let Token::Text(text) = self.peek() else { return Err(self.unexpected()) };
        let mut characters = text.chars();
        let (Some(character), None) = (characters.next(), characters.next()) else {
            return Err(self.unexpected());
        };
        self.take();
        Ok(Some(character))
    }

    fn binary(&mut self, precedence_min: u8) -> Result<Expr, QueryError> {
        let start = self.start();
        let mut left = self.unary()?;
        loop {
            let Token::Symbol(symbol) = self.peek() else { return Ok(left) };
            let Some(operator) = Binary::from_symbol(symbol) else { return Ok(left) };
            let precedence = operator.precedence();
            if precedence < precedence_min {
                return Ok(left);
            }
            let mut rest = Vec::new();
            while let Some(operator) = self.operator_of(precedence) {
                self.take();
                rest.push((operator, self.binary(precedence + 1)?));
            }
            left = Expr { span: self.span_from(start), kind: Kind::Binary(Box::new(left), rest) };
        }
    }

    fn operator_of(&self, precedence: u8) -> Option<Binary> {
        let Token::Symbol(symbol) = self.peek() else { return None };
        Binary::from_symbol(symbol).filter(|operator| operator.precedence() == precedence)
    }

    fn unary(&mut self) -> Result<Expr, QueryError> {
        let operator = match self.peek() {
            Token::Symbol("-") => Unary::Minus,
            Token::Symbol("+") => Unary::Plus,
            Token::Symbol("~") => Unary::BitNot,
            Token::Word(word) if word.eq_ignore_ascii_case("NOT") => Unary::Not,
            _ => return self.postfix(),
        };
        let start = self.start();
        self.take();
        let operand = self.deeper(Self::unary)?;
        let kind = match (operator, operand.kind) {
            (Unary::Minus, Kind::Constant(Value::Number(number))) => Kind::Constant(Value::Number(-number)),
            (operator, kind) => Kind::Unary(operator, Box::new(Expr { span: operand.span, kind })),
        };
        Ok(Expr { span: self.span_from(start), kind })
    }

    fn postfix(&mut self) -> Result<Expr, QueryError> {
        let start = self.start();
        let base = self.primary()?;
        let mut members = Vec::new();
        loop {
            if self.take_symbol(".") {
                members.push(Member::Key(self.any_word()?));
            } else if self.take_symbol("[") {
                let expr = self.expression()?;
                self.expect_symbol("]")?;
                members.push(match expr.kind {
                    Kind::Constant(Value::String(key)) => Member::Key(key.to_string()),
                    _ => Member::Computed(expr),
                });
            } else if members.is_empty() {
                return Ok(base);
            } else {
                return Ok(Expr { span: self.span_from(start), kind: Kind::Path(Box::new(base), members) });
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, QueryError> {
        let start = self.start();
        let kind = match self.peek().clone() {
            Token::Number(number) => self.constant(Value::Number(number)),
            Token::Text(text) => self.constant(Value::from(text)),
            Token::Parameter(name) => {
                self.take();
                Kind::Parameter(name.to_owned())
            }
            Token::Symbol("(") => return self.parenthesis(),
            Token::Symbol("[") => {
                self.take();
                Kind::Array(self.items("]", Self::expression)?)
            }
            Token::Symbol("{") => {
                self.take();
                Kind::Object(self.items("}", Self::property)?)
            }
            Token::Word(word) => self.word(word)?,
            _ => return Err(self.unexpected()),
        };
        Ok(Expr { span: self.span_from(start), kind })
    }

    fn constant(&mut self, value: Value) -> Kind {
        self.take();
        Kind::Constant(value)
    }

    /// A list that may be empty, up to its closing symbol.
    fn items<T>(
        &mut self,
        close: &str,
        item: impl FnMut(&mut Self) -> Result<T, QueryError>,
    ) -> Result<Vec<T>, QueryError> {
        if self.take_symbol(close) {
            return Ok(Vec::new());
        }
        let items = self.list(item)?;
        self.expect_symbol(close)?;
        Ok(items)
    }

    fn property(&mut self) -> Result<(String, Expr), QueryError> {
        let key = match self.peek() {
            Token::Text(key) => key.clone(),
            Token::Word(key) => (*key).to_owned(),
            _ => return Err(self.unexpected()),
        };
        self.take();
        self.expect_symbol(":")?;
        Ok((key, self.expression()?))
    }

    fn parenthesis(&mut self) -> Result<Expr, QueryError> {
        let start = self.start();
        self.take();
        if self.is_keyword("SELECT") {
            let select = self.select()?;
            self.expect_symbol(")")?;
            return Ok(Expr {
                span: self.span_from(start),
                kind: Kind::Query(Form::Scalar, Box::new(select)),
            });
        }
        let inner = self.expression()?;
        self.expect_symbol(")")?;
        Ok(inner)
    }

    fn word(&mut self, word: &str) -> Result<Kind, QueryError> {
        match word {
            "true" => return Ok(self.constant(Value::Bool(true))),
            "false" => return Ok(self.constant(Value::Bool(false))),
            "null" => return Ok(self.constant(Value::Null)),
            "undefined" => return Ok(self.constant(Value::Undefined)),
            "udf" if *self.peek_second() == Token::Symbol(".") => return self.user_call(),
            _ => {}
        }
        let opens = *self.peek_second() == Token::Symbol("(");
        let selects =
            opens && matches!(self.peek_third(), Token::Word(third) if third.eq_ignore_ascii_case("SELECT"));
        if let Some(form) = form(word).filter(|_| selects) {
            self.take();
            self.take();
            let select = self.select()?;
            self.expect_symbol(")")?;
            return Ok(Kind::Query(form, Box::new(select)));
        }
        if is_reserved(word) {
            return Err(self.unexpected());
        }
        let name = word.to_owned();
        self.take();
        if !self.take_symbol("(") {
            return Ok(Kind::Name(name));
        }
        let arguments = self.items(")", Self::expression)?;
        Ok(Kind::Call { name, arguments })
    }

    fn user_call(&mut self) -> Result<Kind, QueryError> {
        self.take();
        self.take();
        let name = self.any_word()?;
        self.expect_symbol("(")?;
        let arguments = self.items(")", Self::expression)?;
        Ok(Kind::UserCall { name, arguments })
    }
}

fn form(word: &str) -> Option<Form> {
    let forms =
        [("EXISTS", Form::Exists), ("ARRAY", Form::Array), ("ALL", Form::All), ("FIRST", Form::First)];
    let forms = forms.into_iter().chain([("LAST", Form::Last)]);
    forms.into_iter().find(|(keyword, _)| word.eq_ignore_ascii_case(keyword)).map(|(_, form)| form)
}
