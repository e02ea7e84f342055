//! The syntax tree of a query. Chains such as `a AND b AND c` are lists, so that long ones do not nest.

use crate::value::Value;

/// A part of the text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: usize,
    pub end: usize,
}

/// One SELECT.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub distinct: bool,
    pub top: Option<Count>,
    pub top_span: Span,
    pub projection: Projection,
    pub sources: Vec<Source>,
    pub filter: Option<Expr>,
    pub group_by: Vec<Expr>,
    pub order_by: Vec<OrderItem>,
    pub order_span: Span,
    pub window: Option<Window>,
}

/// `OFFSET … LIMIT …`.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub span: Span,
    pub offset: Count,
    pub limit: Count,
}

/// A count of TOP, OFFSET or LIMIT.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub span: Span,
    pub value: CountValue,
}

#[derive(Clone, Debug)]
pub(crate) enum CountValue {
    Number(f64),
    Parameter(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Projection {
    Star(Span),
    Value(Expr),
    List(Vec<(Expr, Option<String>)>),
}

#[derive(Clone, Debug)]
pub(crate) struct OrderItem {
    pub expr: Expr,
    pub descending: bool,
}

/// One item of FROM or JOIN.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub span: Span,
    pub collection: Collection,
    pub alias: Option<String>,
    /// `alias IN collection`: one row for each item of the array.
    pub iterate: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Collection {
    Path { root: String, steps: Vec<Step> },
    Query(Box<Select>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Key(String),
    Index(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub span: Span,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Constant(Value),
    Parameter(String),
    Name(String),
    Path(Box<Expr>, Vec<Member>),
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Unary(Unary, Box<Expr>),
    /// Operators of one precedence, applied from left to right.
    Binary(Box<Expr>, Vec<(Binary, Expr)>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Coalesce(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    In {
        value: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    /// The value and both ends.
    Between {
        operands: Box<[Expr; 3]>,
        negated: bool,
    },
    /// The value and the pattern.
    Like {
        operands: Box<[Expr; 2]>,
        escape: Option<char>,
        negated: bool,
    },
    Call {
        name: String,
        arguments: Vec<Expr>,
    },
    UserCall {
        name: String,
        arguments: Vec<Expr>,
    },
    Query(Form, Box<Select>),
}

/// A step behind an expression.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    Key(String),
    Computed(Expr),
}

/// What a sub-query in an expression stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Scalar,
    Exists,
    Array,
    All,
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Minus,
    Plus,
    BitNot,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Concat,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
    ShiftRightZero,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Binary {
    /// The operator of a symbol.
    pub fn from_symbol(symbol: &str) -> Option<Binary> {
        Some(match symbol {
            "||" => Binary::Concat,
            "|" => Binary::BitOr,
            "^" => Binary::BitXor,
            "&" => Binary::BitAnd,
            "=" => Binary::Equal,
            "!=" | "<>" => Binary::NotEqual,
            "<" => Binary::Less,
            "<=" => Binary::LessOrEqual,
            ">" => Binary::Greater,
            ">=" => Binary::GreaterOrEqual,
            "<<" => Binary::ShiftLeft,
            ">>" => Binary::ShiftRight,
            ">>>" => Binary::ShiftRightZero,
            "+" => Binary::Add,
            "-" => Binary::Subtract,
            "*" => Binary::Multiply,
            "/" => Binary::Divide,
            "%" => Binary::Modulo,
            _ => return None,
        })
    }

    /// How the operator is written.
    pub fn symbol(self) -> &'static str {
        match self {
            Binary::Concat => "||",
            Binary::BitOr => "|",
            Binary::BitXor => "^",
            Binary::BitAnd => "&",
            Binary::Equal => "=",
            Binary::NotEqual => "!=",
            Binary::Less => "<",
            Binary::LessOrEqual => "<=",
            Binary::Greater => ">",
            Binary::GreaterOrEqual => ">=",
            Binary::ShiftLeft => "<<",
            Binary::ShiftRight => ">>",
            Binary::ShiftRightZero => ">>>",
            Binary::Add => "+",
            Binary::Subtract => "-",
            Binary::Multiply => "*",
            Binary::Divide => "/",
            Binary::Modulo => "%",
        }
    }

    /// Higher binds tighter.
    pub fn precedence(self) -> u8 {
        match self {
            Binary::Concat => 1,
            Binary::BitOr => 2,
            Binary::BitXor => 3,
            Binary::BitAnd => 4,
            Binary::Equal | Binary::NotEqual => 5,
            Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual => 6,
            Binary::ShiftLeft | Binary::ShiftRight | Binary::ShiftRightZero => 7,
            Binary::Add | Binary::Subtract => 8,
            Binary::Multiply | Binary::Divide | Binary::Modulo => 9,
        }
    }
}
