//! INSERT … SELECT … FROM UNNEST(…): rows that come as one array for each column, as drivers send them in bulk.

use crate::ast::{
    Array, ArrayElemTypeDef, CastKind, DataType, Expr, Query, SelectItem, SetExpr, TableAlias, TableFactor,
    UnaryOperator, Value,
};

use super::array;
use super::formula::{Operand, Parameter};
use super::literal::{Literal, type_of};
use super::scope::name_of;
use super::value::Family;
use crate::lexer::{Lexeme, Lexer, Token};
use crate::schema::TypeOid;

/// The rows of such an INSERT.
#[derive(Debug, Clone)]
pub(super) struct ArrayRows {
    /// The keys, where they are one parameter.
    pub parameter: Option<Parameter>,
    /// How many columns the rows have; none if an array may be several.
    pub columns: Option<usize>,
    /// How the text is cut, if it can be.
    pub cut: Option<Cut>,
}

/// Where the text of a statement is changed, so that it inserts some of its rows.
#[derive(Debug, Clone)]
pub(super) struct Cut {
    /// The `*` of SELECT.
    star: (usize, usize),
    /// Behind the parenthesis of UNNEST.
    end: usize,
}

/// The keys of all rows.
pub(super) enum Keys {
    /// One for each row; none is NULL.
    Known(Vec<Option<Operand>>),
    Parameter(Parameter),
}

/// What a query selects that reads UNNEST alone, the alias and the arrays.
pub(super) fn arrays(source: &Query) -> Option<(&[SelectItem], Option<&TableAlias>, &[Expr])> {
    let SetExpr::Select(select) = source.body.as_ref() else { return None };
    let [from] = select.from.as_slice() else { return None };
    let TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. } =
        &from.relation
    else {
        return None;
    };
    let alone = source.with.is_none() && from.joins.is_empty();
    alone.then_some((select.projection.as_slice(), alias.as_ref(), array_exprs.as_slice()))
}

/// The array that gives the column at this place, and how many columns the rows have, if that can be told.
pub(super) fn array_of(source: &Query, place: usize) -> Option<(&Expr, Option<usize>)> {
    let (items, alias, array_exprs) = arrays(source)?;
    let at = match items {
        [SelectItem::Wildcard(_)] => place,
        items => {
            let plain = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) =
                items.get(place)?
            else {
                return None;
            };
            if !items.iter().all(plain) {
                return None;
            }
            let name = match expr {
                Expr::Identifier(name) => name_of(name),
                Expr::CompoundIdentifier(path) => name_of(path.last()?),
                _ => return None,
            };
            let mut named = alias?.columns.iter().map(|column| name_of(&column.name));
            named.position(|column| column == name)?
        }
    };
    let array = array_exprs.get(at)?;
    if !array_exprs[..at].iter().all(is_one_column) {
        return None;
    }
    let columns = array_exprs[at + 1..].iter().all(is_one_column).then_some(array_exprs.len());
    Some((array, columns))
}

/// Whether an array is certainly one column: one of composites is a column for each of their fields.
fn is_one_column(array: &Expr) -> bool {
    match array {
        Expr::Nested(inner) => is_one_column(inner),
        Expr::Cast { data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)), .. } => {
            is_one_value(element)
        }
        Expr::Array(Array { elem, named: true }) => elem.iter().all(is_plain),
        _ => false,
    }
}

/// Whether an element of an array is certainly no composite.
fn is_plain(element: &Expr) -> bool {
    match element {
        Expr::Nested(inner) => is_plain(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_plain(expr),
        // Whoever prepares the statement may say what type a bare parameter is.
        Expr::Value(value) => !matches!(value.value, Value::Placeholder(_)),
        Expr::Cast { data_type, .. } => is_one_value(data_type),
        Expr::TypedString(typed) => is_one_value(&typed.data_type),
        _ => false,
    }
}

/// Whether a type is one of PostgreSQL's own that is no composite; of a name that is not its own nobody can tell.
fn is_one_value(data_type: &DataType) -> bool {
    let own = matches!(
        data_type,
        DataType::Boolean
            | DataType::Bool
            | DataType::Numeric(_)
            | DataType::Decimal(_)
            | DataType::Dec(_)
            | DataType::Float(_)
            | DataType::Float4
            | DataType::Float8
            | DataType::Real
            | DataType::DoublePrecision
            | DataType::JSON
            | DataType::JSONB
            | DataType::Time(..)
            | DataType::Timestamp(..)
            | DataType::Interval { .. }
            | DataType::Character(_)
            | DataType::Char(_)
            | DataType::CharacterVarying(_)
            | DataType::CharVarying(_)
            | DataType::Varchar(_)
            | DataType::Bit(_)
            | DataType::BitVarying(_)
            | DataType::VarBit(_)
    );
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => is_one_value(element),
        other => own || type_of(other).is_some(),
    }
}

/// The keys in an array, for a column of the family; none if they cannot be told.
pub(super) fn keys_of(array: &Expr, family: Family) -> Option<Keys> {
    read(array, &mut Vec::new(), family)
}

fn read(expr: &Expr, casts: &mut Vec<TypeOid>, family: Family) -> Option<Keys> {
    match expr {
        Expr::Nested(inner) => read(inner, casts, family),
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
            // The outermost comes first, and is done last.
            casts.insert(0, type_of(data_type)?);
            read(expr, casts, family)
        }
        Expr::Array(Array { elem, named: true }) => {
            let element = |expr: &Expr| {
                let mut literal = Literal::read(expr)?;
                for cast in casts.iter() {
                    literal = literal.cast(array::element_type(*cast)?);
                }
                Some(if literal.is_null() { None } else { Some(literal.operand(family)?) })
            };
            elem.iter().map(element).collect::<Option<Vec<_>>>().map(Keys::Known)
        }
        plain => match Literal::read(plain)?.array(casts, family)? {
            Ok(scalars) => {
                Some(Keys::Known(scalars.into_iter().map(|key| key.map(Operand::Constant)).collect()))
            }
            Err(parameter) => Some(Keys::Parameter(parameter)),
        },
    }
}

impl Cut {
    /// Of `INSERT … SELECT * FROM UNNEST(…)` with nothing but ON CONFLICT and RETURNING behind it.
    pub(super) fn of(text: &str) -> Option<Cut> {
        let tokens = Lexer::tokens(text).ok()?;
        let is = |at: usize, word: &str| {
            let token: Option<&Token> = tokens.get(at);
            token.is_some_and(|token| {
                token.lexeme == Lexeme::Word && text[token.start..token.end].eq_ignore_ascii_case(word)
            })
        };
        let mut depth = 0_usize;
        let mut found = None;
        for (at, token) in tokens.iter().enumerate() {
            match (token.lexeme, found) {
                (Lexeme::Mark(b'('), _) => depth += 1,
                (Lexeme::Mark(b')'), _) => {
                    depth = depth.checked_sub(1)?;
                    if let (0, Some(star)) = (depth, found) {
                        let ends = at + 1 == tokens.len() || is(at + 1, "on") || is(at + 1, "returning");
                        return ends.then_some(Cut { star, end: token.end });
                    }
                }
                (Lexeme::Word, None) if depth == 0 && is(at, "select") => {
                    let star = tokens.get(at + 1)?;
                    let shape =
                        &text[star.start..star.end] == "*" && is(at + 2, "from") && is(at + 3, "unnest");
                    if !shape {
                        return None;
                    }
                    found = Some((star.start, star.end));
                }
                _ => {}
            }
        }
        None
    }

    /// The statement with these rows alone, counted from 0; with all behind the last key if it is asked for: they have
    /// none, and are refused by whoever gets them.
    pub(super) fn part(&self, text: &str, columns: usize, rows: &[usize], beyond: Option<usize>) -> String {
        let names: Vec<String> = (0..columns).map(|column| format!("polyshard_c{column}")).collect();
        let names = names.join(", ");
        let rows: Vec<String> = rows.iter().map(|row| (row + 1).to_string()).collect();
        let beyond = beyond.map_or_else(String::new, |last| format!(" OR polyshard_row > {last}"));
        format!(
            "{}{names}{} WITH ORDINALITY AS polyshard_rows ({names}, polyshard_row) \
             WHERE polyshard_row IN ({}){beyond}{}",
            &text[..self.star.0],
            &text[self.star.1..self.end],
            rows.join(", "),
            &text[self.end..],
        )
    }
}
