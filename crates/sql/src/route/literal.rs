//! Literals and parameters in a statement, with their casts, and what value they have beside a column.

use crate::ast::{self, ArrayElemTypeDef, CastKind, DataType, Expr, TimezoneInfo, UnaryOperator, Value};

use super::array;
use super::formula::{Formula, Operand, Parameter};
use super::value::{Family, Scalar, read_int};
use crate::lexer::folded;
use crate::schema::TypeOid;

/// A value that is written down, or a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Literal {
    written: Written,
    casts: Vec<TypeOid>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Written {
    Null,
    Int(i64),
    Text(String),
    Parameter(u32),
}

impl Literal {
    /// Reads an expression that is one; none for everything else.
    pub(super) fn read(expr: &Expr) -> Option<Literal> {
        let plain = |written| Some(Literal { written, casts: Vec::new() });
        match expr {
            Expr::Nested(inner) => Literal::read(inner),
            Expr::Value(value) => plain(written(&value.value)?),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
                Expr::Value(value) => match &value.value {
                    // Read with its sign: the least number has no positive counterpart.
                    Value::Number(digits, false) => plain(Written::Int(read_int(&format!("-{digits}"))?)),
                    _ => None,
                },
                _ => None,
            },
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
                let mut literal = Literal::read(expr)?;
                literal.casts.push(type_of(data_type)?);
                Some(literal)
            }
            Expr::TypedString(typed) if !typed.uses_odbc_syntax => {
                let written = written(&typed.value.value)?;
                Some(Literal { written, casts: vec![type_of(&typed.data_type)?] })
            }
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        self.written == Written::Null
    }

    pub(super) fn is_parameter(&self) -> bool {
        matches!(self.written, Written::Parameter(_))
    }

    /// The number it is, for constants without casts.
    pub(super) fn number(&self) -> Option<i64> {
        match (&self.written, self.casts.as_slice()) {
            (Written::Int(n), []) => Some(*n),
            _ => None,
        }
    }

    /// The family it has by itself, with no column beside it; a bare parameter has none.
    pub(super) fn family(&self) -> Option<Family> {
        match (self.casts.last(), &self.written) {
            (Some(cast), _) => Family::of(*cast),
            (None, Written::Int(_)) => Some(Family::Int),
            (None, Written::Text(_)) => Some(Family::Text),
            (None, Written::Null | Written::Parameter(_)) => None,
        }
    }

    /// What it is beside a column of the family; none if that cannot be told. NULL is no operand.
    pub(super) fn operand(&self, family: Family) -> Option<Operand> {
        let scalar = match (&self.written, self.casts.split_first()) {
            (Written::Null, _) => return None,
            (Written::Parameter(number), _) => {
                let casts = self.casts.clone();
                return Some(Operand::Parameter(Parameter { number: *number, casts, family }));
            }
            (Written::Int(n), _) => {
                self.casts.iter().try_fold(Scalar::Int(*n), |scalar, cast| scalar.cast(*cast))
            }
            // A text literal has no type of its own: the first cast, or the column, says what it is.
            (Written::Text(text), None) => Scalar::read(family, text),
            (Written::Text(text), Some(_)) => {
                self.casts.iter().try_fold(Scalar::Text(text.clone()), |scalar, cast| scalar.cast(*cast))
            }
        };
        scalar.filter(|scalar| scalar.family() == family).map(Operand::Constant)
    }

    /// Its elements, none for NULL, where it is an array that is cast so, or the parameter that has them; nothing if
    /// they cannot be told.
    pub(super) fn array(
        &self,
        casts: &[TypeOid],
        family: Family,
    ) -> Option<Result<Vec<Option<Scalar>>, Parameter>> {
        let casts: Vec<TypeOid> = self.casts.iter().chain(casts).copied().collect();
        match &self.written {
            Written::Null => Some(Ok(Vec::new())),
            Written::Int(_) => None,
            Written::Parameter(number) => Some(Err(Parameter { number: *number, casts, family })),
            Written::Text(text) => {
                let element = casts
                    .first()
                    .map_or(Some(family), |first| array::element_type(*first).and_then(Family::of))?;
                array::cast_all(array::literal(text, element)?, &casts, family).map(Ok)
            }
        }
    }

    /// With one more cast.
    pub(super) fn cast(mut self, to: TypeOid) -> Literal {
        self.casts.push(to);
        self
    }

    /// The condition that a column of the family equals it.
    pub(super) fn equals(&self, family: Family) -> Formula {
        if self.is_null() {
            return Formula::Nothing;
        }
        self.operand(family).map_or(Formula::All, Formula::Equal)
    }

    /// The condition that a column of the family equals an element of it, where it is an array.
    pub(super) fn contains(&self, family: Family) -> Formula {
        match (&self.written, self.casts.as_slice()) {
            (Written::Null, _) => Formula::Nothing,
            (Written::Int(_), _) => Formula::All,
            (Written::Parameter(number), casts) => {
                let (number, casts) = (*number, casts.to_vec());
                Formula::Any(Operand::Parameter(Parameter { number, casts, family }))
            }
            (Written::Text(text), casts) => {
                let read_as = match casts {
                    [] => Some(family),
                    [cast] => array::element_type(*cast).and_then(Family::of).filter(|f| *f == family),
                    _ => None,
                };
                let elements = read_as.and_then(|family| array::literal(text, family));
                elements.map_or(Formula::All, |elements| {
                    // No row equals a NULL.
                    Formula::one_of(elements.into_iter().flatten().map(Operand::Constant).collect())
                })
            }
        }
    }
}

fn written(value: &Value) -> Option<Written> {
    Some(match value {
        Value::Null => Written::Null,
        Value::Number(digits, false) => Written::Int(read_int(digits)?),
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Written::Text(text.clone()),
        Value::DollarQuotedString(text) => Written::Text(text.value.clone()),
        Value::Placeholder(name) => {
            Written::Parameter(name.strip_prefix('$').and_then(|number| number.parse().ok())?)
        }
        _ => return None,
    })
}

/// The type a cast names, if a value keeps its meaning there: lengths and precisions change it.
pub(super) fn type_of(data_type: &DataType) -> Option<TypeOid> {
    Some(match data_type {
        DataType::SmallInt(None) | DataType::Int2(None) => TypeOid::INT2,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => TypeOid::INT4,
        DataType::BigInt(None) | DataType::Int8(None) => TypeOid::INT8,
        DataType::Text => TypeOid::TEXT,
        DataType::Varchar(None) | DataType::CharacterVarying(None) | DataType::CharVarying(None) => {
            TypeOid::VARCHAR
        }
        DataType::Uuid => TypeOid::UUID,
        DataType::Date => TypeOid::DATE,
        DataType::Bytea => TypeOid::BYTEA,
        DataType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => TypeOid::TIMESTAMP,
        DataType::Timestamp(None, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => TypeOid::TIMESTAMPTZ,
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => array::array_type(type_of(element)?)?,
        DataType::Custom(name, modifiers) if modifiers.is_empty() => system_type(name)?,
        _ => return None,
    })
}

/// Types by the names that PostgreSQL's own tools write: `pg_catalog.int4`.
fn system_type(name: &ast::ObjectName) -> Option<TypeOid> {
    let [schema, name] = name.0.as_slice() else { return None };
    if folded(&schema.as_ident()?.value) != "pg_catalog" {
        return None;
    }
    Some(match folded(&name.as_ident()?.value).as_str() {
        "int2" => TypeOid::INT2,
        "int4" => TypeOid::INT4,
        "int8" => TypeOid::INT8,
        "text" => TypeOid::TEXT,
        "varchar" => TypeOid::VARCHAR,
        "uuid" => TypeOid::UUID,
        "date" => TypeOid::DATE,
        "timestamp" => TypeOid::TIMESTAMP,
        "timestamptz" => TypeOid::TIMESTAMPTZ,
        "bytea" => TypeOid::BYTEA,
        _ => return None,
    })
}
