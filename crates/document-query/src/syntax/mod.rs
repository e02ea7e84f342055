//! From text to syntax tree and back.

mod expression;
mod lexer;
mod parser;
mod print;
pub(crate) mod tree;

pub(crate) use parser::parse;
