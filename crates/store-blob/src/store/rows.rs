//! Between rows and blobs, and the statements that write a row. Pure.

use std::sync::Arc;

use bytes::Bytes;
use polyshard_engine::{self as engine, Dialect, Expect, Row, Statement, Value};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::home::Home;
use super::statements::{BASE, texts};
use crate::model::{Blob, BlobKind, Etag, Lease, Props};
use crate::objects::ObjectId;

/// The format of the properties that this program writes.
const PROPS_FORMAT: u32 = 1;
/// Where the time is read, after the columns of a blob.
const NOW: usize = 19;
/// Where the body or placement is read, if one was asked for.
pub(super) const AFTER_NOW: usize = 20;

/// A statement about one blob. It owns what it needs, so that it can be run again elsewhere; its first parameters are
/// the dataset, the placement and the name.
#[derive(Clone, Debug)]
pub(super) struct Step {
    text: fn(Dialect) -> Arc<str>,
    params: Vec<Value>,
    expect: Expect,
}

impl Step {
    /// A statement about a blob, or about what belongs to it.
    pub fn new(home: &Home, text: fn(Dialect) -> Arc<str>) -> Step {
        let params =
            vec![home.dataset().into(), home.placed.placement.clone().into(), home.name.name().into()];
        Step { text, params, expect: Expect::Any }
    }

    /// Adds the value of the next parameter: the first of them is `$4`.
    pub fn bind(mut self, value: impl Into<Value>) -> Step {
        self.params.push(value.into());
        self
    }

    /// How many rows it must touch, or everything written with it is rolled back.
    pub fn expect(mut self, expect: Expect) -> Step {
        self.expect = expect;
        self
    }

    /// The statement for an engine.
    pub fn statement(&self, dialect: Dialect) -> Statement {
        let first = Statement::with_room((self.text)(dialect), self.params.len());
        self.params.iter().cloned().fold(first, Statement::bind).expect(self.expect)
    }
}

/// What becomes of the content that is in the row itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
    /// It stays.
    Keep,
    /// It is this, or nothing.
    Set(Option<Bytes>),
}

/// Properties with their format.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(rename = "f")]
    format: u32,
    #[serde(flatten)]
    props: Props,
}

/// Properties as they are stored.
pub(super) fn write_props(props: &Props) -> Result<String, engine::Error> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        #[serde(rename = "f")]
        format: u32,
        #[serde(flatten)]
        props: &'a Props,
    }
    let wrong = |error: serde_json::Error| engine::Error::invalid(format!("properties of a blob: {error}"));
    serde_json::to_string(&Borrowed { format: PROPS_FORMAT, props }).map_err(wrong)
}

/// Properties as they were stored.
pub(super) fn read_props(text: &str) -> Result<Props, engine::Error> {
    let damaged = |detail: String| engine::Error::invalid(format!("stored properties of a blob: {detail}"));
    let stored: Stored = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    if stored.format > PROPS_FORMAT {
        let format = stored.format;
        return Err(damaged(format!("format {format} is of a newer program; upgrade this process")));
    }
    Ok(stored.props)
}

/// The number of a snapshot in its row.
pub(super) fn stored_snapshot(snapshot: i64) -> i64 {
    if snapshot == 0 { BASE } else { snapshot }
}

/// The blob of a row.
pub(super) fn read_blob(row: &Row) -> Result<Blob, engine::Error> {
    let damaged = |what: &str| engine::Error::invalid(format!("stored {what} of a blob is damaged"));
    let lease_id = row.opt_text(12)?.map(Uuid::try_parse).transpose().map_err(|_| damaged("lease"))?;
    let object = row.opt_text(17)?.map(|id| ObjectId::parse(id).ok_or_else(|| damaged("object")));
    let snapshot = row.int(1)?;
    Ok(Blob {
        name: row.text(0)?.to_owned(),
        snapshot: if snapshot == BASE { 0 } else { snapshot },
        version: row.int(2)?,
        etag: Etag(row.int(3)?),
        kind: BlobKind::of_number(row.int(4)?).ok_or_else(|| damaged("kind"))?,
        size: u64::try_from(row.int(5)?).map_err(|_| damaged("size"))?,
        created: row.int(6)?,
        modified: row.int(7)?,
        content: row.int(8)?,
        generation: row.int(9)?,
        stage: row.int(10)?,
        is_committed: row.int(11)? != 0,
        lease: Lease { id: lease_id, seconds: row.int(13)?, until_ms: row.int(14)?, broken_ms: row.int(15)? },
        deleted: row.int(16)?,
        object: object.transpose()?,
        props: read_props(row.text(18)?)?,
        body: None,
        now_ms: row.int(NOW)?,
    })
}

/// The same of a row that has a body after the time.
pub(super) fn read_blob_with_body(row: Row) -> Result<Blob, engine::Error> {
    let blob = read_blob(&row)?;
    let body = match row.into_values().into_iter().nth(AFTER_NOW) {
        Some(Value::Blob(body)) => Some(Bytes::from(body)),
        _ => None,
    };
    Ok(Blob { body, ..blob })
}

fn bind_blob(step: Step, blob: &Blob) -> Result<Step, engine::Error> {
    let size = i64::try_from(blob.size).map_err(|_| engine::Error::invalid("a blob is too large"))?;
    let lease = &blob.lease;
    Ok(step
        .bind(stored_snapshot(blob.snapshot))
        .bind(blob.version)
        .bind(blob.etag.0)
        .bind(blob.kind.number())
        .bind(size)
        .bind(blob.created)
        .bind(blob.modified)
        .bind(blob.content)
        .bind(blob.generation)
        .bind(blob.stage)
        .bind(i64::from(blob.is_committed))
        .bind(lease.id.map(|id| id.hyphenated().to_string()))
        .bind(lease.seconds)
        .bind(lease.until_ms)
        .bind(lease.broken_ms)
        .bind(blob.deleted)
        .bind(blob.object.as_ref().map(|id| id.as_str().to_owned()))
        .bind(write_props(&blob.props)?))
}

fn bytes_value(body: &Option<Bytes>) -> Value {
    body.as_ref().map_or(Value::Null, |body| Value::Blob(body.to_vec()))
}

/// Adds the row of a blob that there is not.
pub(super) fn insert(home: &Home, blob: &Blob, body: &Body) -> Result<Step, engine::Error> {
    let step = bind_blob(Step::new(home, |dialect| texts(dialect).insert.clone()), blob)?;
    let body = match body {
        Body::Keep => Value::Null,
        Body::Set(body) => bytes_value(body),
    };
    Ok(step.bind(body).expect(Expect::Rows(1)))
}

/// Changes the row of a blob that is as it was read.
pub(super) fn update(home: &Home, blob: &Blob, body: &Body, version: i64) -> Result<Step, engine::Error> {
    let step = match body {
        Body::Keep => bind_blob(Step::new(home, |dialect| texts(dialect).update.clone()), blob)?,
        Body::Set(body) => bind_blob(Step::new(home, |dialect| texts(dialect).update_body.clone()), blob)?
            .bind(bytes_value(body)),
    };
    Ok(step.bind(version).expect(Expect::Rows(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ContentHeaders, Tier};

    #[test]
    fn properties_are_read_as_they_were_written() {
        let props = Props {
            headers: ContentHeaders { content_md5: Some([7; 16]), ..ContentHeaders::default() },
            metadata: vec![("MixedCase".to_owned(), "1".to_owned())],
            tier: Some(Tier::Premium(10)),
            sequence: 3,
            ..Props::default()
        };
        let text = write_props(&props).unwrap();
        assert_eq!(read_props(&text).unwrap(), props);
        assert_eq!(write_props(&Props::default()).unwrap(), r#"{"f":1,"h":{}}"#);
    }

    #[test]
    fn the_first_format_of_properties_is_still_read() {
        let old = r#"{"f":1,"h":{"t":"text/plain"},"m":[["a","b"]],"g":[["tag","x"]],"t":"Cool","s":true,"q":7,"b":2}"#;
        let props = read_props(old).unwrap();
        assert_eq!(props.headers.content_type.as_deref(), Some("text/plain"));
        assert_eq!((props.sequence, props.blocks, props.is_sealed), (7, 2, true));
        assert!(read_props(r#"{"f":2,"h":{}}"#).is_err());
        assert!(read_props(r#"{"h":{}}"#).is_err());
    }
}
