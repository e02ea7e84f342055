//! Functions in FROM: series and the elements of arrays and documents, by SQLite's json_each.

use polyshard_sql::ast::{Expr, Function, SelectItem, TableAlias};
use polyshard_sql::{SqlError, TypeOid};

use super::compare::element_sql;
use super::expr::no_such;
use super::from::Joined;
use super::scope::Relation;
use super::{Ex, How, Translator, Visible, fold, name_parts, quoted};
use crate::fail::unsupported;
use crate::types::{self, oid};

const TABLE_FUNCTIONS: [&str; 10] = [
    "unnest",
    "generate_series",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_object_keys",
    "jsonb_each",
    "jsonb_each_text",
    "generate_subscripts",
    "pg_partition_ancestors",
    "_pg_expandarray",
];

pub(super) fn is_table_function(name: &str) -> bool {
    TABLE_FUNCTIONS.contains(&name)
}

impl Translator<'_> {
    /// One function in FROM; it may use the tables before it.
    pub(super) fn table_function(
        &mut self,
        name: &str,
        values: &[&Expr],
        ordinality: bool,
        alias: Option<&TableAlias>,
    ) -> Result<Joined, SqlError> {
        let values = self.all(values)?;
        let own = self.alias("f");
        let (array, elements) = match (name, values.len()) {
            ("unnest", 2..) => self.zipped(values, &own)?,
            _ => {
                let (array, element) = self.rows_of(name, values)?;
                let value = element_sql(element).replace("\"e\"", &quoted(&own));
                (array, vec![(value, element)])
            }
        };
        let relation = alias.map_or_else(|| name.to_owned(), |alias| fold(&alias.name));
        let aliased: Vec<String> = alias
            .map_or_else(Vec::new, |alias| alias.columns.iter().map(|column| fold(&column.name)).collect());
        // With an alias for the table alone, the only column is called like it.
        let called = |place: usize| aliased.get(place).cloned().unwrap_or_else(|| relation.clone());
        let column = |name: String, sql: String, type_oid: TypeOid| Visible {
            relation: Some(relation.clone()),
            name,
            sql,
            type_oid,
            type_mod: -1,
            not_null: false,
            bare: true,
        };
        let given = elements.len();
        let elements = elements.into_iter().enumerate();
        let mut columns: Vec<Visible> =
            elements.map(|(place, (value, element))| column(called(place), value, element)).collect();
        if ordinality {
            let name = aliased.get(given).cloned().unwrap_or_else(|| "ordinality".to_owned());
            let mut counted = column(name, format!("({}.\"key\" + 1)", quoted(&own)), TypeOid::INT8);
            counted.not_null = true;
            columns.push(counted);
        }
        Ok(Joined {
            sql: format!("json_each({}) AS {}", array.sql, quoted(&own)),
            columns,
            relations: vec![Relation { name: relation, key: Vec::new() }],
            beside: false,
        })
    }

    /// Functions that give rows in a select list: tables to join for them, and how their rows go together.
    pub(super) fn spread_functions(
        &mut self,
        projection: &[SelectItem],
    ) -> Result<Vec<(String, Option<String>)>, SqlError> {
        let mut tables = Vec::new();
        let mut first: Option<(String, String)> = None;
        for item in projection {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
                continue;
            };
            let Some(function) = called_function(expr) else {
                continue;
            };
            let (_, name) = name_parts(&function.name)?;
            let text = function.to_string();
            let known = self.scope().spread.iter().any(|(known, _)| *known == text);
            if !is_table_function(&name) || function.over.is_some() || known {
                continue;
            }
            let given = super::call::arguments(function)?;
            let values = self.all(&given.values)?;
            let (array, element) = self.rows_of(&name, values)?;
            let own = self.alias("f");
            let condition = match &first {
                None => {
                    first = Some((own.clone(), array.sql.clone()));
                    None
                }
                // PostgreSQL fills the shorter one up with NULLs; here they must be of one length.
                Some((leader, leading)) => Some(format!(
                    "{}.\"key\" = {}.\"key\" AND pg_same_length({leading}, {})",
                    quoted(&own),
                    quoted(leader),
                    array.sql
                )),
            };
            let mut value =
                Ex::made(element_sql(element).replace("\"e\"", &quoted(&own)), element, &[&array]);
            value.level = Some(self.scopes.len() - 1);
            self.scope().spread.push((text, value));
            tables.push((format!("json_each({}) AS {}", array.sql, quoted(&own)), condition));
        }
        Ok(tables)
    }

    /// Several arrays side by side, and how the element of each is read.
    fn zipped(&mut self, arrays: Vec<Ex>, own: &str) -> Result<(Ex, Vec<(String, TypeOid)>), SqlError> {
        let given: Vec<TypeOid> = arrays.iter().map(|array| array.type_oid).collect();
        let mut elements = Vec::with_capacity(arrays.len());
        for (place, array) in given.iter().enumerate() {
            let element = types::element(*array).ok_or_else(|| no_such("function unnest", &given))?;
            let value = format!("json_extract({}.\"value\", '$[{place}]')", quoted(own));
            elements.push((element_sql(element).replace("\"e\".\"value\"", &value), element));
        }
        Ok((self.joined("pg_zip", arrays, oid::TEXT_ARRAY), elements))
    }

    /// Whether a series is one of timestamps: PostgreSQL then has its bounds of one type.
    fn is_series_of_moments(&self, given: &[TypeOid]) -> bool {
        let moments = [TypeOid::DATE, TypeOid::TIMESTAMP, TypeOid::TIMESTAMPTZ];
        given[..2].iter().any(|oid| moments.contains(oid))
            && given[..2].iter().all(|oid| moments.contains(oid) || *oid == TypeOid::UNKNOWN)
    }

    /// A series of timestamps: with a zone, unless one bound is a timestamp without and none is one with it.
    fn moments(&mut self, values: Vec<Ex>) -> Result<(Ex, TypeOid), SqlError> {
        let has = |wanted: TypeOid| values[..2].iter().any(|value| value.type_oid == wanted);
        let plain = has(TypeOid::TIMESTAMP) && !has(TypeOid::TIMESTAMPTZ);
        let type_oid = if plain { TypeOid::TIMESTAMP } else { TypeOid::TIMESTAMPTZ };
        let mut parts = Vec::new();
        for (value, wanted) in values.into_iter().zip([type_oid, type_oid, TypeOid::INTERVAL]) {
            parts.push(self.coerce(value, wanted, -1, How::Implicit)?);
        }
        let function = if plain { "pg_series_ts" } else { "pg_series_tstz" };
        if !plain {
            parts.push(Ex::of(self.zone(), TypeOid::TEXT));
        }
        Ok((self.joined(function, parts, oid::INT8_ARRAY), type_oid))
    }

    fn rows_of(&mut self, name: &str, mut values: Vec<Ex>) -> Result<(Ex, TypeOid), SqlError> {
        let given: Vec<TypeOid> = values.iter().map(|value| value.type_oid).collect();
        let none = || no_such(&format!("function {name}"), &given);
        Ok(match (name, values.len()) {
            ("unnest", 1) => {
                let array = values.remove(0);
                let element = types::element(array.type_oid).ok_or_else(none)?;
                (array, element)
            }
            // Pairs of an element and its place, as the standard's views have them.
            ("_pg_expandarray", 1) => {
                let array = values.remove(0);
                types::element(array.type_oid).ok_or_else(none)?;
                let pairs = "SELECT json_group_array(json_array(value, key + 1))";
                let sql = format!("({pairs} FROM json_each({}))", array.sql);
                (Ex::made(sql, oid::TEXT_ARRAY, &[&array]), oid::RECORD)
            }
            // No table here is a partition.
            ("pg_partition_ancestors", 1) => (Ex::of("'[]'", oid::INT4_ARRAY), oid::REGCLASS),
            ("generate_subscripts", 2) => {
                let array = values.remove(0);
                if !types::is_array(array.type_oid) {
                    return Err(none());
                }
                let from = i32::from(!matches!(array.type_oid, oid::INT2VECTOR | oid::OIDVECTOR));
                let sql = format!("pg_series({from}, pg_cardinality({}) - 1 + {from}, 1)", array.sql);
                (Ex::made(sql, oid::INT4_ARRAY, &[&array]), TypeOid::INT4)
            }
            ("generate_series", 3) if self.is_series_of_moments(&given) => self.moments(values)?,
            ("generate_series", 2 | 3) => {
                let wide = given.contains(&TypeOid::INT8);
                if !given.iter().all(|oid| types::is_integer(*oid) || *oid == TypeOid::UNKNOWN) {
                    return Err(unsupported("generate_series of anything but whole numbers and timestamps"));
                }
                let type_oid = if wide { TypeOid::INT8 } else { TypeOid::INT4 };
                let mut parts = Vec::new();
                for value in values {
                    parts.push(self.coerce(value, type_oid, -1, How::Implicit)?);
                }
                if parts.len() == 2 {
                    parts.push(Ex::of("1", type_oid));
                }
                (self.joined("pg_series", parts, oid::INT8_ARRAY), type_oid)
            }
            ("jsonb_array_elements" | "jsonb_array_elements_text", 1) => {
                let document = self.coerce(values.remove(0), TypeOid::JSONB, -1, How::Implicit)?;
                let as_text = name == "jsonb_array_elements_text";
                let sql = format!("pg_jsonb_elements({}, {})", document.sql, i32::from(as_text));
                let element = if as_text { TypeOid::TEXT } else { TypeOid::JSONB };
                (Ex::made(sql, oid::TEXT_ARRAY, &[&document]), element)
            }
            ("jsonb_object_keys", 1) => {
                let document = self.coerce(values.remove(0), TypeOid::JSONB, -1, How::Implicit)?;
                (
                    Ex::made(format!("pg_jsonb_keys({})", document.sql), oid::TEXT_ARRAY, &[&document]),
                    TypeOid::TEXT,
                )
            }
            ("jsonb_each" | "jsonb_each_text", _) => return Err(unsupported(format!("the function {name}"))),
            _ => return Err(none()),
        })
    }
}

/// The function of `f(…)` or `(f(…)).field`.
fn called_function(expr: &Expr) -> Option<&Function> {
    match expr {
        Expr::Function(function) => Some(function),
        Expr::CompoundFieldAccess { root, .. } => match &**root {
            Expr::Nested(inner) => called_function(inner),
            _ => None,
        },
        _ => None,
    }
}
