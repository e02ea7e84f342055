//! Arrays in expressions: made of values, put together, searched.

use polyshard_sql::ast::Expr;
use polyshard_sql::{SqlError, TypeOid};

use super::expr::no_such;
use super::{Ex, How, Translator};
use crate::fail::{fail, unsupported};
use crate::types;

impl Translator<'_> {
    pub(super) fn array(&mut self, elements: &[Expr]) -> Result<Ex, SqlError> {
        let mut made = Vec::with_capacity(elements.len());
        for element in elements {
            made.push(self.expr(element)?);
        }
        if made.is_empty() {
            return Err(fail("42P18", "cannot determine type of empty array"));
        }
        let given: Vec<TypeOid> = made.iter().map(|ex| ex.type_oid).collect();
        let element = self.common_type(&given, "ARRAY")?;
        let array = types::array_of(element)
            .ok_or_else(|| unsupported(format!("arrays of {}", types::display(element))))?;
        let mut parts = Vec::new();
        for ex in made {
            parts.push(self.coerce(ex, element, -1, How::Implicit)?);
        }
        let sql: Vec<&str> = parts.iter().map(|part| part.sql.as_str()).collect();
        let used: Vec<&Ex> = parts.iter().collect();
        Ok(Ex::made(format!("pg_array({})", sql.join(", ")), array, &used).named("array"))
    }

    pub(super) fn array_concatenation(&mut self, left: Ex, right: Ex) -> Result<Ex, SqlError> {
        let array = if types::is_array(left.type_oid) { left.type_oid } else { right.type_oid };
        let side = |this: &mut Self, ex: Ex| -> Result<Ex, SqlError> {
            if ex.type_oid == array || ex.is_unknown() {
                return this.coerce(ex, array, -1, How::Implicit);
            }
            let element = types::element(array).ok_or_else(|| fail("XX000", "not an array"))?;
            let ex = this.coerce(ex, element, -1, How::Implicit)?;
            Ok(Ex::made(format!("pg_array({})", ex.sql), array, &[&ex]))
        };
        let (left, right) = (side(self, left)?, side(self, right)?);
        Ok(Ex::made(format!("pg_array_cat({}, {})", left.sql, right.sql), array, &[&left, &right]))
    }

    /// `@>`, `<@`, `&&`: which elements two arrays have.
    pub(super) fn array_sets(&mut self, name: &str, left: Ex, right: Ex) -> Result<Ex, SqlError> {
        let operator = format!("operator {name}");
        let function = if name == "&&" { "pg_array_overlap" } else { "pg_array_contains" };
        let (left, right) = if name == "<@" { (right, left) } else { (left, right) };
        let pair = self.array_pair(function, left, right, &operator)?;
        Ok(Ex { type_oid: TypeOid::BOOL, ..pair })
    }

    /// A function of two arrays of one type; the answer is of that, too.
    pub(super) fn array_pair(
        &mut self,
        function: &str,
        left: Ex,
        right: Ex,
        what: &str,
    ) -> Result<Ex, SqlError> {
        let given = [left.type_oid, right.type_oid];
        let array = if left.is_unknown() { right.type_oid } else { left.type_oid };
        let fits = |ex: &Ex| ex.is_unknown() || ex.type_oid == array;
        if !types::is_array(array) || !fits(&left) || !fits(&right) {
            return Err(no_such(what, &given));
        }
        if function != "pg_array_cat" {
            told_apart(array)?;
        }
        let left = self.coerce(left, array, -1, How::Implicit)?;
        let right = self.coerce(right, array, -1, How::Implicit)?;
        Ok(self.joined(function, vec![left, right], array))
    }

    /// An array with one more element.
    pub(super) fn array_with(&mut self, array: &Expr, value: &Expr, first: bool) -> Result<Ex, SqlError> {
        let (array, value) = (self.expr(array)?, self.expr(value)?);
        let (array, value) = self.array_and_element(array, value, "function array_append")?;
        let array_type = array.type_oid;
        let one = Ex::made(format!("pg_array({})", value.sql), array_type, &[&value]);
        let (left, right) = if first { (one, array) } else { (array, one) };
        Ok(self.joined("pg_array_cat", vec![left, right], array_type))
    }

    /// `array_remove`, `array_position`.
    pub(super) fn array_search(&mut self, name: &str, array: &Expr, value: &Expr) -> Result<Ex, SqlError> {
        let (array, value) = (self.expr(array)?, self.expr(value)?);
        let (array, value) = self.array_and_element(array, value, &format!("function {name}"))?;
        told_apart(array.type_oid)?;
        let result = if name == "array_position" { TypeOid::INT4 } else { array.type_oid };
        Ok(self.joined(&format!("pg_{name}"), vec![array, value], result))
    }

    /// An array and a value of its elements' type.
    fn array_and_element(&mut self, array: Ex, value: Ex, what: &str) -> Result<(Ex, Ex), SqlError> {
        let given = [array.type_oid, value.type_oid];
        let array_type =
            if array.is_unknown() { types::array_of(value.type_oid) } else { Some(array.type_oid) };
        let array_type = array_type.ok_or_else(|| no_such(what, &given))?;
        let element = types::element(array_type).ok_or_else(|| no_such(what, &given))?;
        let implicit = types::cast_context(value.type_oid, element) == Some(types::CastContext::Implicit);
        if !value.is_unknown() && !implicit {
            return Err(unsupported(format!(
                "{what} of {} and {}",
                types::display(array_type),
                types::display(given[1])
            )));
        }
        let array = self.coerce(array, array_type, -1, How::Implicit)?;
        let value = self.coerce(value, element, -1, How::Implicit)?;
        Ok((array, value))
    }
}

/// Refuses arrays whose elements may be equal and written differently.
fn told_apart(array: TypeOid) -> Result<(), SqlError> {
    match types::element(array) {
        Some(element @ (TypeOid::NUMERIC | TypeOid::JSONB)) => {
            Err(unsupported(format!("a search in arrays of {}", types::display(element))))
        }
        _ => Ok(()),
    }
}
