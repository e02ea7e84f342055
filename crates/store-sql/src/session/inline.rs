//! Texts of the extended protocol with literals in them, as drivers send what has no parameters: a row read by its
//! primary key is asked by the statement that the shards have prepared for all texts of that shape.
//!
//! The client binds no values; the literals are bound in their place, as texts, which PostgreSQL reads as it reads the
//! literals. See [`super::point`] for the simple protocol.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use polyshard_sql::{Shape, TypeOid};

use super::{Session, Stop};
use crate::cache::{Inline, Prepared};
use crate::codec::{Malformed, Values};
use crate::refuse;

/// A uuid as it is commonly written; PostgreSQL and others differ in what else they take.
const UUID_TEXT_BYTES: usize = 36;

impl Session {
    /// The text as a statement whose literals are bound to a prepared one; nothing if it is to be looked at by itself.
    pub(super) async fn parse_inline(&mut self, text: &str) -> Result<Option<Arc<Prepared>>, Stop> {
        if self.embedded || self.own.shard.is_some() {
            return Ok(None);
        }
        let Some(shape) = Shape::of(text) else { return Ok(None) };
        if shape.values().next().is_none() || shape.values().any(refuse::is_suspect) {
            return Ok(None);
        }
        let schema = self.current_schema().await?;
        let basis = self.basis(schema.position);
        let known = self.known_lane(&shape, &schema, basis);
        let Some(point) = known.point(&shape, &self.door.cache) else { return Ok(None) };
        if point.description(&known.basis).is_none() {
            if self.backend.is_some() {
                // A refusal would end the transaction.
                return Ok(None);
            }
            match self.described_by_shard(&point, &super::Wanted::Anywhere).await {
                Ok(Ok(description)) => point.describe(known.basis.clone(), Arc::new(description)),
                Ok(Err(_refused)) => {
                    // The client gets the shard's own words for it when its text is looked at.
                    known.leave_as_it_is();
                    return Ok(None);
                }
                Err(Stop::Refused(_)) => return Ok(None),
                Err(stop) => return Err(stop),
            }
        }
        let Some(description) = point.description(&known.basis) else { return Ok(None) };
        let mut values = shape.values().zip(&description.parameters).zip(&*point.types);
        if !values.all(|((value, type_oid), own)| *own != 0 || is_value(value, *type_oid)) {
            // The client is told about its own words.
            return Ok(None);
        }
        Ok(Some(Arc::new(Prepared::inline(text, point, given(&shape)))))
    }
}

/// Whether a text surely is a value of a type.
fn is_value(text: &str, type_oid: TypeOid) -> bool {
    match type_oid {
        TypeOid::TEXT | TypeOid::VARCHAR => true,
        TypeOid::INT4 => text.parse::<i32>().is_ok(),
        TypeOid::INT8 => text.parse::<i64>().is_ok(),
        TypeOid::UUID => uuid::Uuid::try_parse(text).is_ok() && text.len() == UUID_TEXT_BYTES,
        _ => false,
    }
}

/// The values of a Bind: how many, and each with its length.
fn given(shape: &Shape<'_>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u16(u16::try_from(shape.values().count()).unwrap_or(u16::MAX));
    for value in shape.values() {
        out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        out.put_slice(value.as_bytes());
    }
    out.freeze()
}

/// The rest of a Bind without values, with the literals as values.
pub(super) fn with_values(inline: &Inline, values: &Values<'_>) -> Result<BytesMut, Malformed> {
    let mut out = BytesMut::new();
    // All of them are texts.
    out.put_u16(0);
    out.put_slice(&inline.values);
    out.put_u16(u16::try_from(values.results.len()).map_err(|_| Malformed::Length)?);
    for binary in &values.results {
        out.put_u16(u16::from(*binary));
    }
    Ok(out)
}
