//! The statements that a client has prepared, and what it was told that they answer: that stays so.

use std::sync::Arc;

use polyshard_sql::{Kind, SqlError};

use super::{Session, Stop};
use crate::cache::{Description, Prepared};
use crate::type_ids::is_user_id;

/// A message's type, its length, and how many columns it tells.
const HEAD_BYTES: usize = 7;
/// What follows a column's name: its table and place there, its type, length and modifier, and its form.
const COLUMN_BYTES: usize = 18;

/// A column's name and type.
type Column<'m> = (&'m [u8], u32);

/// A statement under the name that the client gave it.
#[derive(Clone)]
pub(crate) struct Named {
    pub prepared: Arc<Prepared>,
    /// What it was like when the client was told.
    pub told: Arc<Description>,
}

impl Session {
    /// A client's statement as it is now, after the tables may have changed. Its parameters keep their types; one whose
    /// columns would be others is refused, as by PostgreSQL: the client reads the rows by what it was told.
    pub(super) async fn as_told(&mut self, name: Option<&str>, named: Named) -> Result<Named, Stop> {
        let Named { mut prepared, told } = named;
        let mut now = self.description(&prepared).await?;
        if Arc::ptr_eq(&now, &told) {
            return Ok(Named { prepared, told });
        }
        let kind = prepared.analysed.as_ref().map(|analysed| analysed.statement.kind());
        if !matches!(kind, Some(Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge)) {
            return Ok(Named { prepared, told: now });
        }
        if now.parameters != told.parameters {
            let own = |type_oid: &polyshard_sql::TypeOid| is_user_id(type_oid.0);
            if !told.parameters.iter().chain(&now.parameters).any(own) {
                let types: Vec<u32> = told.parameters.iter().map(|type_oid| type_oid.0).collect();
                prepared = self.door.cache.prepared(&prepared.text, &types)?;
                now = self.description(&prepared).await?;
            }
        }
        if !same_columns(&now.row_message, &told.row_message) {
            return Err(changed().into());
        }
        let named = Named { prepared, told: now };
        if let Some(known) = name.and_then(|name| self.statements.get_mut(name)) {
            *known = named.clone();
        }
        Ok(named)
    }
}

/// In PostgreSQL's words, by which drivers know that they are to prepare it again.
fn changed() -> SqlError {
    SqlError::unsupported(
        "cached plan must not change result type",
        "A table that the statement reads was changed: prepare it again.",
    )
}

/// Whether two descriptions tell columns of the same names, in whose values the same bytes mean the same. Numbers of
/// types of the user's own are not compared: another shard, or another engine, has others.
pub(super) fn same_columns(one: &[u8], other: &[u8]) -> bool {
    let (Some(one), Some(other)) = (columns(one), columns(other)) else { return one == other };
    // text, character and character varying.
    let form = |id: u32| if matches!(id, 1042 | 1043) { 25 } else { id };
    let same = |(a, b): (&Column<'_>, &Column<'_>)| {
        a.0 == b.0 && (form(a.1) == form(b.1) || (is_user_id(a.1) && is_user_id(b.1)))
    };
    one.len() == other.len() && one.iter().zip(&other).all(same)
}

/// Names and types; nothing if it tells no columns.
fn columns(message: &[u8]) -> Option<Vec<Column<'_>>> {
    let mut rest = message.get(HEAD_BYTES..).filter(|_| message.first() == Some(&b'T'))?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (name, after) = rest.split_at(end);
        let column = after.get(1..=COLUMN_BYTES)?;
        found.push((name, u32::from_be_bytes(column[6..10].try_into().ok()?)));
        rest = &after[1 + COLUMN_BYTES..];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use polyshard_sql::TypeOid;

    use super::*;
    use crate::reply::{self, Field};

    fn told(columns: &[(&str, u32)]) -> BytesMut {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, oid)| Field { type_oid: TypeOid(*oid), ..Field::text(name) })
            .collect();
        let mut out = BytesMut::new();
        reply::row_description(&mut out, &fields, |_| false);
        out
    }

    #[test]
    fn columns_are_the_same_by_name_and_type() {
        let before = told(&[("id", 23), ("name", 25), ("mood", 16_500)]);
        assert!(same_columns(&before, &told(&[("id", 23), ("name", 25), ("mood", 20_000)])));
        assert!(same_columns(&before, &told(&[("id", 23), ("name", 1043), ("mood", 16_500)])));
        assert!(!same_columns(&before, &told(&[("id", 701), ("name", 25), ("mood", 16_500)])));
        assert!(!same_columns(&before, &told(&[("id", 23), ("title", 25), ("mood", 16_500)])));
        assert!(!same_columns(&before, &told(&[("id", 23), ("name", 25)])));
        assert!(!same_columns(&before, reply::NO_DATA));
        assert!(same_columns(reply::NO_DATA, reply::NO_DATA));
    }
}
