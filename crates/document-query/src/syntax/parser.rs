//! Tokens to syntax tree: the clauses. Expressions are in `expression.rs`.

use super::lexer::{Token, tokens};
use super::tree::*;
use crate::error::{ErrorCode, QueryError};
use crate::limits::{DEPTH_MAX, Limits};

/// Words that cannot be a name without a dot before them.
const RESERVED: [&str; 26] = [
    "AND", "ARRAY", "AS", "ASC", "BETWEEN", "BY", "DESC", "DISTINCT", "ESCAPE", "EXISTS", "FROM", "GROUP",
    "HAVING", "IN", "JOIN", "LIKE", "LIMIT", "NOT", "OFFSET", "OR", "ORDER", "SELECT", "TOP", "UDF", "VALUE",
    "WHERE",
];

/// Parses one whole query.
pub(crate) fn parse(text: &str, limits: &Limits) -> Result<Select, QueryError> {
    if text.len() > limits.text_bytes {
        let message =
            format!("The SQL query text exceeded the maximum limit of {} bytes.", limits.text_bytes);
        return Err(QueryError::new(ErrorCode::TooComplex, message));
    }
    let tokens = tokens(text)?;
    let depth_left = limits.depth.min(DEPTH_MAX);
    let mut parser = Parser { text, tokens, next: 0, depth_left, joins_left: limits.joins, limits };
    let select = parser.select()?;
    if *parser.peek() != Token::End {
        return Err(parser.unexpected());
    }
    Ok(select)
}

pub(super) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token<'a>, Span)>,
    next: usize,
    depth_left: usize,
    joins_left: usize,
    pub(super) limits: &'a Limits,
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> &Token<'a> {
        &self.tokens[self.next].0
    }

    /// The token behind the next one.
    pub(super) fn peek_second(&self) -> &Token<'a> {
        &self.tokens[(self.next + 1).min(self.tokens.len() - 1)].0
    }

    pub(super) fn peek_third(&self) -> &Token<'a> {
        &self.tokens[(self.next + 2).min(self.tokens.len() - 1)].0
    }

    pub(super) fn take(&mut self) -> Token<'a> {
        let token = self.tokens[self.next].0.clone();
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
        token
    }

    /// Where the next token starts.
    pub(super) fn start(&self) -> usize {
        self.tokens[self.next].1.start
    }

    /// The text from `start` to the end of the last token taken.
    pub(super) fn span_from(&self, start: usize) -> Span {
        let end = self.next.checked_sub(1).map_or(0, |last| self.tokens[last].1.end);
        Span { start, end: end.max(start) }
    }

    pub(super) fn error_at(&self, code: ErrorCode, message: impl Into<String>, span: Span) -> QueryError {
        QueryError::new(code, message).at(self.text, span.start, span.end)
    }

    pub(super) fn unexpected(&self) -> QueryError {
        let span = self.tokens[self.next].1;
        if *self.peek() == Token::End {
            return self.error_at(ErrorCode::Syntax, "Syntax error, unexpected end of the query.", span);
        }
        let near = &self.text[span.start..span.end];
        self.error_at(ErrorCode::Syntax, format!("Syntax error, incorrect syntax near '{near}'."), span)
    }

    /// Runs `parse` one level deeper.
    pub(super) fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        if self.depth_left == 0 {
            let message = "The SQL query is nested too deeply. Use fewer nested expressions.";
            return Err(self.error_at(ErrorCode::TooComplex, message, self.tokens[self.next].1));
        }
        self.depth_left -= 1;
        let result = parse(self);
        self.depth_left += 1;
        result
    }

    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self.peek(), Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    pub(super) fn take_keyword(&mut self, keyword: &str) -> bool {
        let found = self.is_keyword(keyword);
        if found {
            self.take();
        }
        found
    }

    pub(super) fn expect_keyword(&mut self, keyword: &str) -> Result<(), QueryError> {
        if self.take_keyword(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    pub(super) fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.take();
        }
        found
    }

    pub(super) fn expect_symbol(&mut self, symbol: &str) -> Result<(), QueryError> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// A name that is not a keyword.
    fn name(&mut self) -> Result<String, QueryError> {
        match self.peek() {
            Token::Word(word) if !is_reserved(word) => {
                let name = (*word).to_owned();
                self.take();
                Ok(name)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Any word, as after a dot or AS.
    pub(super) fn any_word(&mut self) -> Result<String, QueryError> {
        match self.peek() {
            Token::Word(word) => {
                let word = (*word).to_owned();
                self.take();
                Ok(word)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn alias(&mut self) -> Result<Option<String>, QueryError> {
        if self.take_keyword("AS") {
            return self.any_word().map(Some);
        }
        match self.peek() {
            Token::Word(word) if !is_reserved(word) => self.name().map(Some),
            _ => Ok(None),
        }
    }

    /// Items separated by commas, at most as many as the limit.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, QueryError>,
    ) -> Result<Vec<T>, QueryError> {
        let mut items = vec![item(self)?];
        while self.take_symbol(",") {
            if items.len() == self.limits.list_items {
                let message = format!("The list has more than {} items.", self.limits.list_items);
                return Err(self.error_at(ErrorCode::TooComplex, message, self.tokens[self.next].1));
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// One SELECT with all its clauses.
    pub(super) fn select(&mut self) -> Result<Select, QueryError> {
        self.deeper(Self::select_clauses)
    }

    fn select_clauses(&mut self) -> Result<Select, QueryError> {
        self.expect_keyword("SELECT")?;
        let distinct = self.take_keyword("DISTINCT");
        let start = self.start();
        let top = if self.take_keyword("TOP") { Some(self.count()?) } else { None };
        let top_span = self.span_from(start);
        let projection = self.projection()?;
        let sources = self.sources()?;
        let filter = if self.take_keyword("WHERE") { Some(self.expression()?) } else { None };
        let group_by = match self.take_keyword("GROUP") {
            true => {
                self.expect_keyword("BY")?;
                self.list(Self::expression)?
            }
            false => Vec::new(),
        };
        let (order_by, order_span) = self.order_by()?;
        let window = self.window()?;
        Ok(Select {
            distinct,
            top,
            top_span,
            projection,
            sources,
            filter,
            group_by,
            order_by,
            order_span,
            window,
        })
    }

    fn count(&mut self) -> Result<Count, QueryError> {
        let start = self.start();
        let value = match self.peek() {
            Token::Number(number) => CountValue::Number(*number),
            Token::Parameter(name) => CountValue::Parameter((*name).to_owned()),
            _ => return Err(self.unexpected()),
        };
        self.take();
        Ok(Count { span: self.span_from(start), value })
    }

    fn projection(&mut self) -> Result<Projection, QueryError> {
        let start = self.start();
        if self.take_symbol("*") {
            return Ok(Projection::Star(self.span_from(start)));
        }
        if self.take_keyword("VALUE") {
            return self.expression().map(Projection::Value);
        }
        let items = self.list(|parser| Ok((parser.expression()?, parser.alias()?)))?;
        Ok(Projection::List(items))
    }

    fn sources(&mut self) -> Result<Vec<Source>, QueryError> {
        if !self.take_keyword("FROM") {
            return Ok(Vec::new());
        }
        let mut sources = vec![self.source()?];
        while self.is_keyword("JOIN") {
            if self.joins_left == 0 {
                let message = format!("The SQL query has more than {} JOIN clauses.", self.limits.joins);
                return Err(self.error_at(ErrorCode::TooComplex, message, self.tokens[self.next].1));
            }
            self.joins_left -= 1;
            self.take();
            sources.push(self.source()?);
        }
        Ok(sources)
    }

    fn source(&mut self) -> Result<Source, QueryError> {
        let start = self.start();
        let second_is_in = matches!(self.peek_second(), Token::Word(word) if word.eq_ignore_ascii_case("IN"));
        if second_is_in {
            let alias = Some(self.name()?);
            self.take();
            let collection = self.collection()?;
            return Ok(Source { span: self.span_from(start), collection, alias, iterate: true });
        }
        let collection = self.collection()?;
        let alias = self.alias()?;
        Ok(Source { span: self.span_from(start), collection, alias, iterate: false })
    }

    fn collection(&mut self) -> Result<Collection, QueryError> {
        if self.take_symbol("(") {
            let select = self.select()?;
            self.expect_symbol(")")?;
            return Ok(Collection::Query(Box::new(select)));
        }
        let root = self.name()?;
        let mut steps = Vec::new();
        loop {
            if self.take_symbol(".") {
                steps.push(Step::Key(self.any_word()?));
            } else if self.take_symbol("[") {
                steps.push(self.bracket_step()?);
                self.expect_symbol("]")?;
            } else {
                return Ok(Collection::Path { root, steps });
            }
        }
    }

    fn bracket_step(&mut self) -> Result<Step, QueryError> {
        let step = match self.peek() {
            Token::Text(key) => Step::Key(key.clone()),
            Token::Number(number) if number.fract() == 0.0 => Step::Index(*number as u64),
            _ => return Err(self.unexpected()),
        };
        self.take();
        Ok(step)
    }

    fn order_by(&mut self) -> Result<(Vec<OrderItem>, Span), QueryError> {
        let start = self.start();
        if !self.take_keyword("ORDER") {
            return Ok((Vec::new(), Span::default()));
        }
        self.expect_keyword("BY")?;
        if self.is_keyword("RANK") && matches!(self.peek_second(), Token::Word(_)) {
            let span = self.tokens[self.next].1;
            return Err(self.error_at(ErrorCode::Unsupported, "ORDER BY RANK is not supported.", span));
        }
        let items = self.list(|parser| {
            let expr = parser.expression()?;
            let descending = parser.take_keyword("DESC");
            if !descending {
                parser.take_keyword("ASC");
            }
            Ok(OrderItem { expr, descending })
        })?;
        Ok((items, self.span_from(start)))
    }

    fn window(&mut self) -> Result<Option<Window>, QueryError> {
        let start = self.start();
        if !self.take_keyword("OFFSET") {
            return Ok(None);
        }
        let offset = self.count()?;
        self.expect_keyword("LIMIT")?;
        let limit = self.count()?;
        Ok(Some(Window { span: self.span_from(start), offset, limit }))
    }
}

pub(super) fn is_reserved(word: &str) -> bool {
    // `true`, `null` and their like are lower case only; any other form is a name.
    matches!(word, "true" | "false" | "null" | "undefined")
        || RESERVED
            .iter()
            .any(|reserved| word.eq_ignore_ascii_case(reserved) && (*reserved != "UDF" || word == "udf"))
}
