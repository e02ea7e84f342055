//! Expressions over tags, as `x-ms-if-tags` and the search for blobs have them: `"a" = 'x' AND "b" > 'y'`.

use std::fmt;

/// How deep parentheses may be: more than anybody writes.
const DEPTH_MAX: usize = 16;
/// Comparisons of one expression: a blob has at most ten tags.
const COMPARISONS_MAX: usize = 64;
/// What stands for the container where blobs are searched for.
const CONTAINER: &str = "@container";

/// What an expression is for: the two know different words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagUse {
    /// To find blobs: `AND`, `=`, `<`, `<=`, `>`, `>=`, and `@container =`.
    Find,
    /// As the condition of a request: also `OR`, `<>` and parentheses, and no `@container`.
    Condition,
}

/// An expression over tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter {
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Compare { key: String, operator: Operator, value: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilterError {
    position: usize,
    what: &'static str,
}

impl fmt::Display for TagFilterError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Error parsing query at or near character position {}: {}", self.position, self.what)
    }
}

impl std::error::Error for TagFilterError {}

impl TagFilter {
    /// Reads an expression.
    pub fn parse(text: &str, is_for: TagUse) -> Result<TagFilter, TagFilterError> {
        let mut parser = Parser { text, at: 0, is_for, comparisons: 0 };
        let root = parser.any(0)?;
        match parser.next()? {
            None => Ok(TagFilter { root }),
            Some(_) => Err(parser.error("expected AND, OR or the end")),
        }
    }

    /// Whether a blob of this container with these tags fits.
    pub fn matches(&self, container: &str, tags: &[(String, String)]) -> bool {
        self.root.matches(container, tags)
    }

    /// The only container whose blobs can fit, if the expression names one.
    pub fn container(&self) -> Option<&str> {
        self.root.comparisons().find(|(key, _)| *key == CONTAINER).map(|(_, value)| value)
    }

    /// The names of the tags it compares.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.root.comparisons().map(|(key, _)| key).filter(|key| *key != CONTAINER)
    }
}

impl Node {
    fn matches(&self, container: &str, tags: &[(String, String)]) -> bool {
        match self {
            Node::All(nodes) => nodes.iter().all(|node| node.matches(container, tags)),
            Node::Any(nodes) => nodes.iter().any(|node| node.matches(container, tags)),
            Node::Compare { key, operator, value } => {
                let own = if key == CONTAINER {
                    Some(container)
                } else {
                    tags.iter().find(|(name, _)| name == key).map(|(_, own)| own.as_str())
                };
                operator.holds(own, value)
            }
        }
    }

    /// The keys and values that are compared, from left to right.
    fn comparisons(&self) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        match self {
            Node::All(nodes) | Node::Any(nodes) => Box::new(nodes.iter().flat_map(Node::comparisons)),
            Node::Compare { key, value, .. } => Box::new(std::iter::once((key.as_str(), value.as_str()))),
        }
    }
}

impl Operator {
    /// A tag that a blob has not is unlike everything, and neither before nor after anything.
    fn holds(self, own: Option<&str>, value: &str) -> bool {
        let Some(own) = own else { return self == Operator::NotEqual };
        match self {
            Operator::Equal => own == value,
            Operator::NotEqual => own != value,
            Operator::Less => own < value,
            Operator::LessOrEqual => own <= value,
            Operator::Greater => own > value,
            Operator::GreaterOrEqual => own >= value,
        }
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Key(String),
    Value(String),
    Operator(Operator),
    And,
    Or,
    Open,
    Close,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    is_for: TagUse,
    comparisons: usize,
}

impl Parser<'_> {
    fn error(&self, what: &'static str) -> TagFilterError {
        TagFilterError { position: self.at, what }
    }

    fn any(&mut self, depth: usize) -> Result<Node, TagFilterError> {
        let mut nodes = vec![self.all(depth)?];
        while self.take(&Token::Or)? {
            if self.is_for == TagUse::Find {
                return Err(self.error("unexpected OR"));
            }
            nodes.push(self.all(depth)?);
        }
        Ok(one_or(nodes, Node::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Node, TagFilterError> {
        let mut nodes = vec![self.comparison(depth)?];
        while self.take(&Token::And)? {
            nodes.push(self.comparison(depth)?);
        }
        Ok(one_or(nodes, Node::All))
    }

    fn comparison(&mut self, depth: usize) -> Result<Node, TagFilterError> {
        let key = match self.next()? {
            Some(Token::Key(key)) => key,
            Some(Token::Open) if self.is_for == TagUse::Condition && depth < DEPTH_MAX => {
                let node = self.any(depth + 1)?;
                return match self.next()? {
                    Some(Token::Close) => Ok(node),
                    _ => Err(self.error("expected a closing parenthesis")),
                };
            }
            _ => return Err(self.error("expected the name of a tag")),
        };
        let Some(Token::Operator(operator)) = self.next()? else {
            return Err(self.error("expected an operator"));
        };
        let Some(Token::Value(value)) = self.next()? else {
            return Err(self.error("expected a value in single quotes"));
        };
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            return Err(self.error("too many comparisons"));
        }
        let is_container = key == CONTAINER;
        match (self.is_for, operator) {
            (TagUse::Find, Operator::NotEqual) => Err(self.error("unexpected <>")),
            (TagUse::Condition, _) if is_container => Err(self.error("unexpected @container")),
            (_, operator) if is_container && operator != Operator::Equal => {
                Err(self.error("@container can only be compared by ="))
            }
            _ => Ok(Node::Compare { key, operator, value }),
        }
    }

    fn take(&mut self, token: &Token) -> Result<bool, TagFilterError> {
        let before = self.at;
        if self.next()?.as_ref() == Some(token) {
            return Ok(true);
        }
        self.at = before;
        Ok(false)
    }

    fn next(&mut self) -> Result<Option<Token>, TagFilterError> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        let Some(first) = rest.chars().next() else { return Ok(None) };
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '"' => self.quoted(rest, '"', Token::Key)?,
            '\'' => self.quoted(rest, '\'', Token::Value)?,
            '=' if rest.starts_with("==") => (Token::Operator(Operator::Equal), 2),
            '=' => (Token::Operator(Operator::Equal), 1),
            '<' if rest.starts_with("<>") => (Token::Operator(Operator::NotEqual), 2),
            '<' if rest.starts_with("<=") => (Token::Operator(Operator::LessOrEqual), 2),
            '<' => (Token::Operator(Operator::Less), 1),
            '>' if rest.starts_with(">=") => (Token::Operator(Operator::GreaterOrEqual), 2),
            '>' => (Token::Operator(Operator::Greater), 1),
            first if first.is_ascii_alphanumeric() || matches!(first, '_' | '@') => {
                let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
                let end = rest[1..].find(|char| !is_word(char)).map_or(rest.len(), |end| end + 1);
                (word(&rest[..end]), end)
            }
            _ => return Err(self.error("unexpected character")),
        };
        self.at += length;
        Ok(Some(token))
    }

    /// A text up to the quote that ends it; two quotes stand for one.
    fn quoted(
        &self,
        rest: &str,
        quote: char,
        of: fn(String) -> Token,
    ) -> Result<(Token, usize), TagFilterError> {
        let mut text = String::new();
        let mut chars = rest.char_indices().skip(1).peekable();
        while let Some((at, char)) = chars.next() {
            if char != quote {
                text.push(char);
            } else if chars.next_if(|(_, next)| *next == quote).is_some() {
                text.push(quote);
            } else {
                return Ok((of(text), at + quote.len_utf8()));
            }
        }
        Err(self.error("a quote is not closed"))
    }
}

fn word(text: &str) -> Token {
    if text.eq_ignore_ascii_case("and") {
        Token::And
    } else if text.eq_ignore_ascii_case("or") {
        Token::Or
    } else {
        Token::Key(text.to_owned())
    }
}

fn one_or(mut nodes: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(node) if nodes.is_empty() => node,
        Some(node) => {
            nodes.push(node);
            many(nodes)
        }
        None => many(nodes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tags() -> Vec<(String, String)> {
        [("a", "m"), ("b", "1"), ("c d", "it's")].map(|(name, value)| (name.into(), value.into())).to_vec()
    }

    fn holds(text: &str, is_for: TagUse) -> Result<bool, String> {
        let filter = TagFilter::parse(text, is_for).map_err(|error| error.to_string())?;
        Ok(filter.matches("box", &tags()))
    }

    #[test]
    fn comparisons_are_of_text_and_and_binds_first() {
        for (text, expected) in [
            ("\"a\" = 'm'", true),
            ("a='m' and b='2'", false),
            ("a='m' AND b<'10'", true),
            ("\"c d\" >= 'it''s'", true),
            ("a > 'l' And a < 'n' and a<='m' and a>='m'", true),
            ("x = 'm'", false),
            ("x < 'm'", false),
            ("b<'2'", true),
            ("A = 'm'", false),
        ] {
            assert_eq!(holds(text, TagUse::Find), Ok(expected), "{text}");
            assert_eq!(holds(text, TagUse::Condition), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("x <> 'm'", true),
            ("a <> 'm'", false),
            ("a = 'x' OR b = '1'", true),
            ("b = '1' OR a = 'x' AND a = 'y'", true),
            ("(b = '1' OR a = 'x') AND a = 'y'", false),
            ("((a='m'))", true),
        ] {
            assert_eq!(holds(text, TagUse::Condition), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_search_may_name_its_container() {
        let filter = TagFilter::parse("@container = 'box' AND \"a\" > ''", TagUse::Find).unwrap();
        assert_eq!(filter.container(), Some("box"));
        assert_eq!(filter.names().collect::<Vec<_>>(), ["a"]);
        assert!(filter.matches("box", &tags()) && !filter.matches("other", &tags()));
        for text in ["@container > 'a'", "a <> 'm'", "a='m' OR b='1'", "(a='m')"] {
            assert!(holds(text, TagUse::Find).is_err(), "{text}");
        }
        assert!(holds("@container='box'", TagUse::Condition).is_err());
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let deep = format!("{}a='m'{}", "(".repeat(40), ")".repeat(40));
        let long = ["a='m'"; 65].join(" and ");
        for text in [
            "",
            " ",
            "a",
            "a=",
            "a='m",
            "a=m",
            "'m'=a",
            "a='m' b='1'",
            "a='m' and",
            "and",
            "(a='m'",
            "a='m')",
            "a!='m'",
            "ä='m'",
            &deep,
            &long,
        ] {
            assert!(holds(text, TagUse::Condition).is_err(), "{text}");
        }
        let error = TagFilter::parse("a = m", TagUse::Find).unwrap_err();
        assert!(
            error.to_string().starts_with("Error parsing query at or near character position"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[ab@'\"=<>()äAND or]{0,40}", any in any::<String>()) {
            for is_for in [TagUse::Find, TagUse::Condition] {
                let _any = holds(&text, is_for);
                let _any = holds(&any, is_for);
            }
        }
    }
}
