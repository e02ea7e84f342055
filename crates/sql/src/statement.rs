//! A text of the client's cut into statements, each parsed once.

use std::fmt;
use std::sync::Arc;

use crate::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use crate::cursor::Cursor;
use crate::error::{SqlError, SqlState};
use crate::kind::{Ddl, Kind};
use crate::lexer::{Lexeme, Lexer, Token};
use crate::rewrite::{rewrite, simplify};
use crate::utility;

/// Deepest nesting of parentheses and sub-queries; the parser's stack grows as needed, so this only stops nonsense.
const NESTING_MAX: usize = 200;

/// One statement, parsed once; whoever has it may cache it by its text.
#[derive(Clone, PartialEq)]
pub struct Statement {
    text: Arc<str>,
    kind: Kind,
    ast: Option<ast::Statement>,
    parameters: u32,
    failure: Option<SqlError>,
    left_out: Option<&'static str>,
}

impl Statement {
    /// Exactly what the client wrote, without the `;` and blanks at both ends.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// What it is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The tree, for queries, writes and schema changes that could be parsed.
    pub fn ast(&self) -> Option<&ast::Statement> {
        self.ast.as_ref()
    }

    /// The highest `$n`; 0 if there is none.
    pub fn parameters(&self) -> u32 {
        self.parameters
    }

    /// Why there is no tree, for a statement that should have one.
    pub fn failure(&self) -> Option<&SqlError> {
        self.failure.as_ref()
    }

    /// What the tree does not say, though the text does: who writes a statement anew from the tree must refuse it.
    pub fn left_out(&self) -> Option<&'static str> {
        self.left_out
    }

    /// Reads one statement, whose tokens are known.
    pub(crate) fn read(text: &str, tokens: &[Token]) -> Result<Statement, SqlError> {
        let mut parameters = 0;
        for token in tokens.iter().filter(|token| token.lexeme == Lexeme::Parameter) {
            let number = text[token.start + 1..token.end].parse().ok().filter(|n| *n <= PARAMETERS_MAX);
            parameters = parameters.max(number.ok_or_else(|| {
                SqlError::new(
                    SqlState("42P02"),
                    format!("there is no parameter {}", &text[token.start..token.end]),
                )
            })?);
        }
        let made = |kind, ast, failure, left_out| Statement {
            text: Arc::from(text),
            kind,
            ast,
            parameters,
            failure,
            left_out,
        };
        let mut cursor = Cursor::new(text, tokens);
        let kind = utility::kind(&mut cursor)?;
        if kind.as_ref().is_some_and(|kind| !matches!(kind, Kind::Ddl(_))) {
            return Ok(made(kind.unwrap_or(Kind::Unparsed), None, None, None));
        }
        Ok(match parse(text, tokens) {
            Ok((ast, left_out)) => made(kind.unwrap_or_else(|| kind_of(&ast)), Some(ast), None, left_out),
            Err(failure) => made(kind.unwrap_or(Kind::Unparsed), None, Some(failure), None),
        })
    }
}

/// The tree is left out: it says what the text says, at great length.
impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement")
            .field("text", &self.text)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Most parameters of one statement: the protocol counts them in 16 bits.
const PARAMETERS_MAX: u32 = 65_535;

/// Cuts a text at each `;` that ends a statement and reads each one. Empty ones are left out.
pub fn statements(text: &str) -> Result<Vec<Arc<Statement>>, SqlError> {
    let tokens = Lexer::tokens(text)?;
    let mut found = Vec::with_capacity(1);
    for piece in pieces(text, &tokens) {
        let (Some(first), Some(last)) = (piece.first(), piece.last()) else { continue };
        let (start, end) = (first.start, last.end);
        if found.is_empty() && start == 0 && end == text.len() {
            found.push(Arc::new(Statement::read(text, piece)?));
            continue;
        }
        let moved: Vec<Token> = piece
            .iter()
            .map(|token| Token { start: token.start - start, end: token.end - start, ..*token })
            .collect();
        found.push(Arc::new(Statement::read(&text[start..end], &moved)?));
    }
    Ok(found)
}

/// Reads a text that is one statement, part of another.
pub(crate) fn nested(text: &str) -> Result<Arc<Statement>, SqlError> {
    let mut all = statements(text)?;
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => match one.kind() {
            Kind::Polyshard(call) => Err(crate::call::refused(&call.function)),
            _ => Ok(one),
        },
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error: one statement was expected")),
    }
}

/// The tokens of each statement. A `;` inside parentheses, or in the body of a function between BEGIN ATOMIC and
/// END, ends none.
fn pieces<'t>(text: &str, tokens: &'t [Token]) -> Vec<&'t [Token]> {
    let mut found = Vec::with_capacity(1);
    let (mut start, mut depth, mut blocks) = (0, 0_usize, 0_usize);
    let is = |at: usize, word: &str| {
        tokens.get(at).is_some_and(|token| {
            token.lexeme == Lexeme::Word && text[token.start..token.end].eq_ignore_ascii_case(word)
        })
    };
    for (at, token) in tokens.iter().enumerate() {
        match token.lexeme {
            Lexeme::Mark(b'(') => depth += 1,
            Lexeme::Mark(b')') => depth = depth.saturating_sub(1),
            Lexeme::Word if is(start, "create") => {
                if is(at, "begin") && is(at + 1, "atomic") || blocks > 0 && is(at, "case") {
                    blocks += 1;
                } else if blocks > 0 && is(at, "end") {
                    blocks -= 1;
                }
            }
            Lexeme::Mark(b';') if depth == 0 && blocks == 0 => {
                found.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[start..]);
    found
}

/// The tree of a statement, and what it does not say.
fn parse(text: &str, tokens: &[Token]) -> Result<(ast::Statement, Option<&'static str>), SqlError> {
    check_depth(text, tokens)?;
    let first = rewrite(text, tokens);
    let failure = match tree(&first.text) {
        Ok(tree) => return Ok((tree, first.left_out)),
        Err(failure) => failure,
    };
    let simpler = simplify(text, tokens).and_then(|simpler| {
        let tokens = Lexer::tokens(&simpler.text).ok()?;
        tree(&rewrite(&simpler.text, &tokens).text).ok().zip(Some(simpler.left_out))
    });
    simpler.ok_or(failure)
}

fn tree(text: &str) -> Result<ast::Statement, SqlError> {
    let failed = |error: sqlparser::parser::ParserError| {
        let said = error.to_string();
        let said = said.trim_start_matches("sql parser error: ").to_owned();
        SqlError::new(SqlState::SYNTAX_ERROR, format!("the statement could not be parsed: {said}"))
    };
    let dialect = PostgreSqlDialect {};
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(NESTING_MAX).try_with_sql(text).map_err(failed)?;
    let statement = parser.parse_statement().map_err(failed)?;
    let rest = parser.peek_token();
    if rest.token == sqlparser::tokenizer::Token::EOF {
        return Ok(statement);
    }
    Err(SqlError::new(
        SqlState::SYNTAX_ERROR,
        format!("the statement could not be parsed: nothing was expected at {}", rest.token),
    ))
}

/// Longest chain of operators (`a OR b OR c …`): the tree is as deep, and whoever walks it needs a stack.
const CHAIN_MAX: usize = 2_000;

/// Refuses what would make a tree so deep that walking it could run out of stack.
fn check_depth(text: &str, tokens: &[Token]) -> Result<(), SqlError> {
    let mut chains = vec![0_usize];
    for token in tokens {
        match token.lexeme {
            Lexeme::Mark(b'(' | b'[') => chains.push(0),
            Lexeme::Mark(b')' | b']') if chains.len() > 1 => {
                chains.pop();
                // `f(x)(y)(z)` and `a[1][2][3]` are chains too.
                if let Some(chain) = chains.last_mut() {
                    *chain += 1;
                }
            }
            Lexeme::Mark(b',') => {
                if let Some(chain) = chains.last_mut() {
                    *chain = 0;
                }
            }
            Lexeme::Operator | Lexeme::Mark(_) => bump(&mut chains)?,
            Lexeme::Word if is_chaining(&text[token.start..token.end]) => bump(&mut chains)?,
            _ => {}
        }
    }
    Ok(())
}

fn bump(chains: &mut [usize]) -> Result<(), SqlError> {
    let Some(chain) = chains.last_mut() else { return Ok(()) };
    *chain += 1;
    if *chain <= CHAIN_MAX {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState("54001"),
        format!("the statement has more than {CHAIN_MAX} operators in a row"),
    )
    .hint("Use IN (…), = ANY(…) or VALUES instead of a long chain of OR, AND or UNION."))
}

fn is_chaining(word: &str) -> bool {
    const WORDS: [&str; 17] = [
        "and",
        "or",
        "not",
        "is",
        "in",
        "like",
        "ilike",
        "between",
        "union",
        "intersect",
        "except",
        "collate",
        "at",
        "case",
        "similar",
        "isnull",
        "notnull",
    ];
    word.len() <= 9 && WORDS.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn kind_of(statement: &ast::Statement) -> Kind {
    match statement {
        ast::Statement::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Insert(_) => Kind::Insert,
            ast::SetExpr::Update(_) => Kind::Update,
            ast::SetExpr::Delete(_) => Kind::Delete,
            ast::SetExpr::Merge(_) => Kind::Merge,
            ast::SetExpr::Select(select) => match &select.into {
                Some(into) => Kind::Ddl(Ddl {
                    tag: "SELECT INTO".to_owned(),
                    temporary: into.temporary,
                    outside_transaction: false,
                    name: None,
                }),
                None => Kind::Select,
            },
            _ => Kind::Select,
        },
        ast::Statement::Insert(_) => Kind::Insert,
        ast::Statement::Update(_) => Kind::Update,
        ast::Statement::Delete(_) => Kind::Delete,
        ast::Statement::Merge(_) => Kind::Merge,
        // The parser knows statements of other databases too; here they mean nothing.
        _ => Kind::Unparsed,
    }
}
