//! Parameters as typed SQL literals: PostgreSQL itself writes them, whatever their type and form.

use bytes::BufMut;
use polyshard_sql::{SqlError, TypeOid};

use super::worker::{Trouble, Worker};
use crate::client::Client;
use crate::reply;

/// Each parameter as a literal, such as `'42'::bigint`. `bind` is the rest of the client's Bind message.
pub(super) async fn of(
    worker: &mut Worker,
    client: &mut Client,
    types: &[TypeOid],
    bind: &[u8],
) -> Result<Vec<String>, Trouble> {
    let items: Vec<String> = types
        .iter()
        .enumerate()
        .map(|(at, kind)| {
            let (number, oid) = (at + 1, kind.0);
            format!("pg_catalog.quote_nullable(${number}::pg_catalog.text) || '::' || pg_catalog.format_type({oid}, NULL)")
        })
        .collect();
    let sql = format!("SELECT {}", items.join(", "));
    let values = values(bind)?;
    let out = worker.raw().outgoing();
    reply::message(out, b'P', |out| {
        out.put_u8(0);
        reply::text(out, &sql);
        out.put_u16(u16::try_from(types.len()).unwrap_or(0));
        for kind in types {
            out.put_u32(kind.0);
        }
    });
    reply::message(out, b'B', |out| {
        out.put_slice(&[0, 0]);
        out.put_slice(values);
        // All results as texts.
        out.put_u16(0);
    });
    out.put_slice(b"E\0\0\0\x09\0\0\0\0\0");
    worker.sync();
    worker.send().await?;
    let rows = worker.answer(client).await?;
    let row = rows.into_iter().next().unwrap_or_default();
    let literals: Option<Vec<String>> = row.into_iter().collect();
    literals.ok_or_else(|| {
        SqlError::new(polyshard_sql::SqlState::INTERNAL_ERROR, "a parameter could not be written as a literal").into()
    })
}

/// The part of a Bind message from the parameters' forms to the last value.
fn values(bind: &[u8]) -> Result<&[u8], SqlError> {
    let broken = || SqlError::new(reply::state::PROTOCOL_VIOLATION, "a Bind message does not have its form");
    let number = |at: usize| -> Result<usize, SqlError> {
        let bytes = bind.get(at..at + 2).ok_or_else(broken)?;
        Ok(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let mut at = 2 + 2 * number(0)?;
    let count = number(at)?;
    at += 2;
    for _ in 0..count {
        let bytes = bind.get(at..at + 4).ok_or_else(broken)?;
        let length = i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        at += 4 + usize::try_from(length).unwrap_or(0);
    }
    bind.get(..at).ok_or_else(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_results_are_left_out() {
        let bind = [0, 1, 0, 1, 0, 2, 0, 0, 0, 1, b'x', 255, 255, 255, 255, 0, 1, 0, 1];
        assert_eq!(values(&bind).unwrap(), &bind[..15]);
        assert!(values(&bind[..9]).is_err());
        assert!(values(&[]).is_err());
    }
}
