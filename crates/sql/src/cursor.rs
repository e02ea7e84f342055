//! Reads tokens in order, for the statements that need no grammar: BEGIN, SET, COPY and their like.

use crate::lexer::{Lexeme, Token, cut, folded};

/// A place among the tokens of one statement.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str, tokens: &'a [Token]) -> Cursor<'a> {
        Cursor { text, tokens, at: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub(crate) fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    pub(crate) fn advance(&mut self) -> Option<Token> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    pub(crate) fn text_of(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    /// The text from the next token on.
    pub(crate) fn rest(&self) -> &'a str {
        self.peek().map_or("", |token| &self.text[token.start..])
    }

    /// The text before the next token.
    pub(crate) fn before(&self) -> &'a str {
        self.peek().map_or(self.text, |token| &self.text[..token.start])
    }

    /// Whether the next word is this keyword, given in lower case.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        self.is_ahead(0, keyword)
    }

    pub(crate) fn is_ahead(&self, ahead: usize, keyword: &str) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|token| {
            token.lexeme == Lexeme::Word && self.text_of(*token).eq_ignore_ascii_case(keyword)
        })
    }

    /// Goes past the keyword if it is next.
    pub(crate) fn take(&mut self, keyword: &str) -> bool {
        let found = self.is(keyword);
        self.at += usize::from(found);
        found
    }

    /// Goes past these keywords if all of them are next.
    pub(crate) fn take_all(&mut self, keywords: &[&str]) -> bool {
        let found = keywords.iter().enumerate().all(|(ahead, keyword)| self.is_ahead(ahead, keyword));
        self.at += if found { keywords.len() } else { 0 };
        found
    }

    pub(crate) fn is_mark(&self, mark: u8) -> bool {
        self.peek().is_some_and(|token| token.lexeme == Lexeme::Mark(mark))
    }

    pub(crate) fn take_mark(&mut self, mark: u8) -> bool {
        let found = self.is_mark(mark);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn take_operator(&mut self, operator: &str) -> bool {
        let found = self
            .peek()
            .is_some_and(|token| token.lexeme == Lexeme::Operator && self.text_of(token) == operator);
        self.at += usize::from(found);
        found
    }

    /// A name: a word folded to lower case, or what stands in double quotes.
    pub(crate) fn name(&mut self) -> Option<String> {
        let token = self.peek()?;
        let name = identifier(self.text_of(token), token.lexeme)?;
        self.at += 1;
        Some(name)
    }

    /// A name of one or two parts; of three, the first (the database) is left out.
    pub(crate) fn qualified(&mut self) -> Option<(Option<String>, String)> {
        let mut parts = vec![self.name()?];
        while self.take_mark(b'.') {
            parts.push(self.name()?);
        }
        let name = parts.pop()?;
        Some((parts.pop(), name))
    }

    /// A literal's value: a text in any quotes, or a number with its sign.
    pub(crate) fn literal(&mut self) -> Option<String> {
        let mut ahead = self.clone();
        let sign = if ahead.take_operator("-") {
            "-"
        } else {
            ahead.take_operator("+");
            ""
        };
        let signed = ahead.at > self.at;
        let token = ahead.advance()?;
        let text = self.text_of(token);
        let value = match token.lexeme {
            Lexeme::Number => format!("{sign}{text}"),
            _ if signed => return None,
            lexeme => string_value(text, lexeme)?,
        };
        self.at = ahead.at;
        Some(value)
    }

    /// Goes past a balanced pair of parentheses; the text between them.
    pub(crate) fn parenthesised(&mut self) -> Option<&'a str> {
        let mut ahead = self.clone();
        let open = ahead.advance().filter(|token| token.lexeme == Lexeme::Mark(b'('))?;
        let mut depth = 1_usize;
        loop {
            let token = ahead.advance()?;
            match token.lexeme {
                Lexeme::Mark(b'(') => depth += 1,
                Lexeme::Mark(b')') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at = ahead.at;
                return Some(self.text[open.end..token.start].trim());
            }
        }
    }
}

/// The name a token stands for.
pub(crate) fn identifier(text: &str, lexeme: Lexeme) -> Option<String> {
    match lexeme {
        Lexeme::Word => Some(folded(text)),
        Lexeme::Quoted => Some(cut(text[1..text.len() - 1].replace("\"\"", "\""))),
        _ => None,
    }
}

/// The value of a text literal; none for a form whose value is not plain to see.
pub(crate) fn string_value(text: &str, lexeme: Lexeme) -> Option<String> {
    match lexeme {
        Lexeme::Text => Some(text[1..text.len() - 1].replace("''", "'")),
        Lexeme::Escaped if !text.contains('\\') => Some(text[2..text.len() - 1].replace("''", "'")),
        Lexeme::Dollar => {
            let tag = text[1..].find('$')? + 2;
            Some(text[tag..text.len() - tag].to_owned())
        }
        _ => None,
    }
}
