//! Conversions between types: which PostgreSQL allows where, and how SQLite computes them.

use polyshard_engine::Value;
use polyshard_sql::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, TimezoneInfo};
use polyshard_sql::{SqlError, TypeOid};

use super::expr::Literal;
use super::{Ex, Translator, literal, name_parts};
use crate::fail::{fail, unsupported};
use crate::system;
use crate::types::{self, CastContext, oid};
use crate::value::text::{Fit, input, limit};

/// Where a conversion takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// In an expression, by itself.
    Implicit,
    /// Into a column.
    Assignment,
    /// By CAST or `::`.
    Explicit,
}

impl Translator<'_> {
    /// Makes an expression one of the type, or says why not.
    pub fn coerce(&mut self, ex: Ex, to: TypeOid, type_mod: i32, how: How) -> Result<Ex, SqlError> {
        let mut ex = ex;
        if let Literal::Parameter(number) = ex.literal
            && ex.type_oid == TypeOid::UNKNOWN
        {
            match self.parameters.get(number).copied().flatten() {
                Some(known) => ex.type_oid = known,
                None => {
                    // A length is not part of a parameter's type: it is checked when the value is there.
                    self.parameters[number] = Some(to);
                    ex.type_oid = to;
                    if let Some(checked) = self.enum_checked(&ex.sql, to) {
                        ex.sql = checked;
                    }
                }
            }
        }
        if ex.type_oid == TypeOid::UNKNOWN {
            return self.coerce_unknown(ex, to, type_mod, how);
        }
        let mut made = if ex.type_oid == to { ex } else { self.convert(ex, to, how)? };
        made.literal = match made.literal {
            Literal::Parameter(number) => Literal::Parameter(number),
            _ => Literal::None,
        };
        if type_mod >= 0 && made.type_mod != type_mod {
            let cut = i32::from(how == How::Explicit);
            made.sql = format!("pg_limit({}, {}, {type_mod}, {cut})", made.sql, to.0);
            made.literal = Literal::None;
        }
        made.type_mod = type_mod;
        Ok(made)
    }

    fn coerce_unknown(&mut self, ex: Ex, to: TypeOid, type_mod: i32, how: How) -> Result<Ex, SqlError> {
        let value = match &ex.literal {
            Literal::Text(text) => match to {
                oid::REGCLASS | oid::REGTYPE | oid::REGNAMESPACE | oid::REGPROC => {
                    Value::Int(system::object_number(self.context, to, text)?)
                }
                _ => {
                    let fit = if how == How::Explicit { Fit::Cut } else { Fit::Strict };
                    let value = input(to, -1, text, self.settings)?;
                    self.check_labels(&value, to)?;
                    limit(to, type_mod, value, fit)?
                }
            },
            _ => Value::Null,
        };
        let mut made = Ex::of(literal(&value), to);
        made.type_mod = type_mod;
        made.not_null = !value.is_null();
        if value.is_null() {
            made.literal = Literal::Null;
        }
        Ok(made)
    }

    /// From one known type to another.
    fn convert(&mut self, ex: Ex, to: TypeOid, how: How) -> Result<Ex, SqlError> {
        let from = ex.type_oid;
        let allowed = match (types::cast_context(from, to), how) {
            (None, _) => false,
            (Some(CastContext::Implicit), _) => true,
            (Some(CastContext::Assignment), How::Implicit) => false,
            (Some(CastContext::Explicit), How::Implicit | How::Assignment) => false,
            (Some(_), _) => true,
        };
        if !allowed {
            let (from, to) = (types::display(from), types::display(to));
            return Err(match how {
                How::Explicit => fail("42846", format!("cannot cast type {from} to {to}")),
                _ => fail("42804", format!("a value of type {from} is no {to}"))
                    .hint("You will need to rewrite or cast the expression."),
            });
        }
        let sql = self.conversion(&ex.sql, from, to)?;
        let not_null = ex.not_null;
        Ok(Ex { not_null, ..Ex::made(sql, to, &[&ex]) })
    }

    fn conversion(&mut self, sql: &str, from: TypeOid, to: TypeOid) -> Result<String, SqlError> {
        if (types::is_string(from) || types::is_array(from))
            && let Some(checked) = self.enum_checked(sql, to)
        {
            if !types::is_array(to) || types::element(from).is_some_and(types::is_string) {
                return Ok(checked);
            }
            return Err(unsupported(format!("the conversion to {}", types::display(to))));
        }
        let zone = self.zone();
        let size = |oid: TypeOid| types::info(oid).map_or(8, |known| known.len);
        Ok(match (from, to) {
            (from, to) if types::is_integer(from) && types::is_integer(to) => {
                if size(from) <= size(to) {
                    sql.to_owned()
                } else {
                    format!("pg_int{}({sql})", size(to))
                }
            }
            (from, to) if (types::is_integer(from) || types::is_oid(from)) && types::is_oid(to) => {
                sql.to_owned()
            }
            (from, to) if types::is_oid(from) && types::is_integer(to) => sql.to_owned(),
            (from, TypeOid::NUMERIC) if types::is_integer(from) => format!("CAST({sql} AS TEXT)"),
            (from, TypeOid::FLOAT8) if types::is_integer(from) => format!("CAST({sql} AS REAL)"),
            (TypeOid::INT4, TypeOid::BOOL) => format!("({sql} <> 0)"),
            (TypeOid::BOOL, TypeOid::INT4) => sql.to_owned(),
            (TypeOid::NUMERIC, to) if types::is_integer(to) => format!("pg_num_int({sql}, {})", size(to)),
            (TypeOid::FLOAT8, to) if types::is_integer(to) => format!("pg_f8_int({sql}, {})", size(to)),
            (TypeOid::NUMERIC, TypeOid::FLOAT8) => format!("pg_num_f8({sql})"),
            (TypeOid::FLOAT8, TypeOid::NUMERIC) => format!("pg_f8_num({sql})"),
            (TypeOid::DATE, TypeOid::TIMESTAMP) => format!("pg_date_ts({sql})"),
            (TypeOid::DATE, TypeOid::TIMESTAMPTZ) => format!("pg_date_tstz({sql}, {zone})"),
            (TypeOid::TIMESTAMP, TypeOid::DATE) => format!("pg_ts_date({sql})"),
            (TypeOid::TIMESTAMP, TypeOid::TIME) => format!("pg_ts_time({sql})"),
            (TypeOid::TIMESTAMP, TypeOid::TIMESTAMPTZ) => format!("pg_from_local({sql}, {zone})"),
            (TypeOid::TIMESTAMPTZ, TypeOid::TIMESTAMP) => format!("pg_to_local({sql}, {zone})"),
            (TypeOid::TIMESTAMPTZ, TypeOid::DATE) => format!("pg_ts_date(pg_to_local({sql}, {zone}))"),
            (TypeOid::TIMESTAMPTZ, TypeOid::TIME) => format!("pg_ts_time(pg_to_local({sql}, {zone}))"),
            (TypeOid::JSONB, TypeOid::JSON) => sql.to_owned(),
            (TypeOid::JSON, TypeOid::JSONB) => format!("pg_in({sql}, {}, -1, {zone})", to.0),
            (TypeOid::JSONB, to) if !types::is_string(to) => format!("pg_jsonb_to({sql}, {})", to.0),
            (oid::INT2VECTOR | oid::OIDVECTOR, to) if types::is_array(to) => sql.to_owned(),
            (oid::PG_NODE_TREE, TypeOid::TEXT) => sql.to_owned(),
            (from, to) if types::is_string(from) && types::is_string(to) => match to {
                TypeOid::BPCHAR => format!("pg_trim_char({sql})"),
                TypeOid::NAME | oid::CHAR => format!("pg_in({sql}, {}, -1, {zone})", to.0),
                _ => sql.to_owned(),
            },
            (from, to) if types::is_array(from) && types::is_array(to) => {
                let (from, to) = (types::element(from), types::element(to));
                let (from, to) = (from.map_or(0, |oid| oid.0), to.map_or(0, |oid| oid.0));
                format!("pg_array_cast({sql}, {from}, {to}, {zone})")
            }
            (TypeOid::BOOL, to) if types::is_string(to) => {
                format!("CASE {sql} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END")
            }
            (oid::REGCLASS | oid::REGTYPE | oid::REGNAMESPACE | oid::REGPROC, to) if types::is_string(to) => {
                system::object_name(self, sql, from)?
            }
            (from, to) if types::is_string(to) && (types::is_integer(from) || types::is_oid(from)) => {
                format!("CAST({sql} AS TEXT)")
            }
            // A column keeps its order, by which 10 comes after 9, unless another one is named.
            (TypeOid::NUMERIC, to) if types::is_string(to) => format!("({sql} COLLATE BINARY)"),
            (TypeOid::JSON | TypeOid::JSONB, to) if types::is_string(to) => sql.to_owned(),
            (from, TypeOid::TEXT | TypeOid::VARCHAR) if types::is_enum(from) => sql.to_owned(),
            (from, to) if types::is_string(to) => {
                let text = format!("pg_out({sql}, {}, {zone})", from.0);
                if to == TypeOid::BPCHAR { format!("pg_trim_char({text})") } else { text }
            }
            (from, oid::REGCLASS) if types::is_string(from) => system::relation_number(self, sql)?,
            (from, oid::REGTYPE) if types::is_string(from) => system::type_number(self, sql)?,
            (from, to) if types::is_string(from) => format!("pg_in({sql}, {}, -1, {zone})", to.0),
            (from, to) => {
                let (from, to) = (types::display(from), types::display(to));
                return Err(unsupported(format!("the conversion of {from} to {to}")));
            }
        })
    }

    /// A value as a client sees it, where that is not as it is kept.
    pub fn shown_value(&mut self, sql: &str, type_oid: TypeOid, type_mod: i32) -> Result<String, SqlError> {
        Ok(match type_oid {
            TypeOid::BPCHAR if type_mod > 4 => format!("pg_pad({sql}, {})", type_mod - 4),
            oid if system::is_named(oid) => system::object_name(self, sql, oid)?,
            _ => sql.to_owned(),
        })
    }

    /// The type that all of these become, as in CASE or UNION.
    pub fn common_type(&self, types_given: &[TypeOid], what: &str) -> Result<TypeOid, SqlError> {
        let mut best = TypeOid::UNKNOWN;
        for given in types_given.iter().copied().filter(|given| *given != TypeOid::UNKNOWN) {
            if best == TypeOid::UNKNOWN || best == given {
                best = given;
                continue;
            }
            if types::category(best) != types::category(given) {
                let (best, given) = (types::display(best), types::display(given));
                return Err(fail("42804", format!("{what} types {best} and {given} cannot be matched")));
            }
            let becomes = |from, to| types::cast_context(from, to) == Some(CastContext::Implicit);
            if !types::is_preferred(best) && becomes(best, given) && !becomes(given, best) {
                best = given;
            }
        }
        Ok(if best == TypeOid::UNKNOWN { TypeOid::TEXT } else { best })
    }

    /// The type a name in the statement means, with its modifier.
    pub fn data_type(&self, data_type: &DataType) -> Result<(TypeOid, i32), SqlError> {
        super::data_type_in(data_type, self.context)
    }
}

/// The type a name in a statement means, with its modifier.
pub(crate) fn data_type_of(data_type: &DataType) -> Result<(TypeOid, i32), SqlError> {
    let plain = |oid| Ok((oid, -1));
    let length = |length: &Option<CharacterLength>, none: i32| match length {
        None => Ok(none),
        Some(CharacterLength::IntegerLength { length, unit: None }) => match i32::try_from(*length) {
            Ok(length @ 1..=10_485_760) => Ok(length + 4),
            Ok(0) => Err(fail("22023", "length for type varchar must be at least 1")),
            _ => Err(fail("22023", "length for type varchar cannot exceed 10485760")),
        },
        Some(_) => Err(unsupported(format!("the type {data_type}"))),
    };
    let precision = |given: &Option<u64>| match given {
        None => Ok(-1),
        Some(digits @ 0..=6) => Ok(*digits as i32),
        Some(_) => Ok(6),
    };
    match data_type {
        DataType::Boolean | DataType::Bool => plain(TypeOid::BOOL),
        DataType::SmallInt(None) | DataType::Int2(None) => plain(TypeOid::INT2),
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => plain(TypeOid::INT4),
        DataType::BigInt(None) | DataType::Int8(None) => plain(TypeOid::INT8),
        DataType::Float8 | DataType::DoublePrecision | DataType::Double(ExactNumberInfo::None) => {
            plain(TypeOid::FLOAT8)
        }
        DataType::Float(ExactNumberInfo::None) => plain(TypeOid::FLOAT8),
        DataType::Float(ExactNumberInfo::Precision(25..=53)) => plain(TypeOid::FLOAT8),
        DataType::Real | DataType::Float4 => {
            Err(unsupported("the type real").hint("use double precision; PostgreSQL shards have both"))
        }
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            let limits = match info {
                ExactNumberInfo::None => return plain(TypeOid::NUMERIC),
                ExactNumberInfo::Precision(precision) => (*precision, 0),
                ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
            };
            if !(1..=1000).contains(&limits.0) {
                return Err(fail(
                    "22023",
                    format!("NUMERIC precision {} must be between 1 and 1000", limits.0),
                ));
            }
            if !(-1000..=1000).contains(&limits.1) {
                return Err(fail(
                    "22023",
                    format!("NUMERIC scale {} must be between -1000 and 1000", limits.1),
                ));
            }
            Ok((TypeOid::NUMERIC, types::numeric_mod(limits.0 as i32, limits.1 as i32)))
        }
        DataType::Text => plain(TypeOid::TEXT),
        DataType::Varchar(given) | DataType::CharacterVarying(given) | DataType::CharVarying(given) => {
            Ok((TypeOid::VARCHAR, length(given, -1)?))
        }
        DataType::Char(given) | DataType::Character(given) => Ok((TypeOid::BPCHAR, length(given, 5)?)),
        DataType::Date => plain(TypeOid::DATE),
        DataType::Time(given, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            Ok((TypeOid::TIME, precision(given)?))
        }
        DataType::Timestamp(given, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            Ok((TypeOid::TIMESTAMP, precision(given)?))
        }
        DataType::Timestamp(given, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            Ok((TypeOid::TIMESTAMPTZ, precision(given)?))
        }
        DataType::Interval { fields: None, precision: None } => plain(TypeOid::INTERVAL),
        DataType::Uuid => plain(TypeOid::UUID),
        DataType::JSONB => plain(TypeOid::JSONB),
        DataType::JSON => plain(TypeOid::JSON),
        DataType::Bytea => plain(TypeOid::BYTEA),
        DataType::Regclass => plain(oid::REGCLASS),
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _) | ArrayElemTypeDef::Qualified(element, _),
        ) => {
            let (element, type_mod) = data_type_of(element)?;
            let array = types::array_of(element).filter(|_| !types::is_array(element));
            array.map(|array| (array, type_mod)).ok_or_else(|| unsupported(format!("the type {data_type}")))
        }
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let (schema, name) = name_parts(name)?;
            let known = match schema.as_deref() {
                None | Some("pg_catalog") => match name.as_str() {
                    "serial" | "serial4" | "bigserial" | "serial8" | "smallserial" | "serial2" => None,
                    "real" | "float4" => return data_type_of(&DataType::Real),
                    "char" => Some(oid::CHAR),
                    name => types::by_name(name),
                },
                Some(_) => None,
            };
            match known {
                Some(known) => plain(known),
                None => Err(fail("42704", format!("type \"{name}\" does not exist on SQLite shards"))),
            }
        }
        other => Err(unsupported(format!("the type {other}"))),
    }
}
