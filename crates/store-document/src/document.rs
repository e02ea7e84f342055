//! A document: checked as it comes in, stored without what the system adds, and given out with it.

use polyshard_document_query::{Object, Value};

use crate::failure::Failure;
use crate::name::check_id;

/// Bytes of a document at most.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What the system adds; a client may send it back as it was, which says nothing.
const SYSTEM: [&str; 6] = ["_rid", "_self", "_etag", "_ts", "_attachments", "_lsn"];

/// The longest time to live, in seconds.
const TTL_MAX: f64 = i32::MAX as f64;

/// A document that can be stored.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub id: String,
    /// Without what the system adds.
    pub value: Value,
    /// Its own time to live in seconds, if it has one; -1 is for ever.
    pub ttl: Option<i64>,
    /// Its JSON.
    pub body: Vec<u8>,
}

/// What the system adds to a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub rid: String,
    pub self_link: String,
    pub etag: i64,
    pub ts_ms: i64,
}

impl Document {
    /// Checks what a client has sent.
    pub fn parse(bytes: &[u8]) -> Result<Document, Failure> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(too_large());
        }
        Document::of_value(&Value::from_json(bytes)?)
    }

    /// Checks a value that a client has sent.
    pub fn of_value(value: &Value) -> Result<Document, Failure> {
        let sent = value.as_object().ok_or_else(|| Failure::bad_request("a document is a JSON object"))?;
        let mut object = Object::new();
        for (name, value) in sent.iter().filter(|(name, _)| !SYSTEM.contains(&&***name)) {
            object.insert(name.clone(), value.clone());
        }
        let id = match object.get("id") {
            Some(Value::String(id)) => id.to_string(),
            Some(_) => return Err(Failure::bad_request("the property 'id' must be a string")),
            None => {
                let message =
                    "The input content is invalid because the required properties - 'id; ' - are missing";
                return Err(Failure::bad_request(message));
            }
        };
        check_id(&id)?;
        let ttl = ttl(object.get("ttl"))?;
        let value = Value::object(object);
        let body = value.to_json().into_bytes();
        if body.len() > DOCUMENT_BYTES_MAX {
            return Err(too_large());
        }
        Ok(Document { id, value, ttl, body })
    }
}

/// A time to live as a client writes it: a number of seconds, or -1 for ever.
fn ttl(value: Option<&Value>) -> Result<Option<i64>, Failure> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(seconds))
            if seconds.fract() == 0.0 && (*seconds == -1.0 || (1.0..=TTL_MAX).contains(seconds)) =>
        {
            Ok(Some(*seconds as i64))
        }
        Some(_) => {
            Err(Failure::bad_request("the property 'ttl' must be -1 or a whole number of seconds from 1 on"))
        }
    }
}

fn too_large() -> Failure {
    Failure::too_large("Request size is too large: a document has at most 2 MB")
}

/// A document's JSON with what the system adds, at the end of an answer.
pub(crate) fn append(out: &mut Vec<u8>, body: &[u8], stamp: &Stamp) {
    let open = body.strip_suffix(b"}").unwrap_or(body);
    out.extend(open);
    if open.len() > 1 {
        out.push(b',');
    }
    let Stamp { rid, self_link, etag, ts_ms } = stamp;
    let etag = etag_text(*etag);
    let etag = etag.trim_matches('"');
    out.extend(
        format!(
            r#""_rid":"{rid}","_self":"{self_link}","_etag":"\"{etag}\"","_attachments":"attachments/","_ts":{}}}"#,
            ts_ms.div_euclid(1000)
        )
        .into_bytes(),
    );
}

/// The same as a value, for queries.
pub(crate) fn stamped(value: &Value, stamp: &Stamp) -> Value {
    let mut object = value.as_object().cloned().unwrap_or_default();
    object.insert("_rid", Value::string(stamp.rid.as_str()));
    object.insert("_self", Value::string(stamp.self_link.as_str()));
    object.insert("_etag", Value::string(etag_text(stamp.etag)));
    object.insert("_attachments", Value::string("attachments/"));
    object.insert("_ts", Value::Number(stamp.ts_ms.div_euclid(1000) as f64));
    Value::object(object)
}

/// An ETag as clients see it, with its quotes.
pub(crate) fn etag_text(etag: i64) -> String {
    let bits = etag as u64;
    format!("\"00000000-0000-0000-{:04x}-{:012x}\"", bits >> 48, bits & 0xFFFF_FFFF_FFFF)
}

/// An ETag that a client sent; none if it is none of ours, so that nothing has it.
pub(crate) fn parse_etag(text: &str) -> Option<i64> {
    let digits = text.trim().trim_matches('"').replace('-', "");
    if digits.len() != 32 || !digits.starts_with("0000000000000000") {
        return None;
    }
    u64::from_str_radix(&digits, 16).ok().map(|bits| bits as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_adds_is_not_stored_and_is_given_out() {
        let sent = br#"{"z":1,"id":"a","_etag":"old","_ts":5,"b":{"_ts":6}}"#;
        let document = Document::parse(sent).unwrap();
        assert_eq!(String::from_utf8(document.body.clone()).unwrap(), r#"{"z":1,"id":"a","b":{"_ts":6}}"#);
        let stamp = Stamp { rid: "r".to_owned(), self_link: "s/".to_owned(), etag: 255, ts_ms: 1_999 };
        let mut out = Vec::new();
        append(&mut out, &document.body, &stamp);
        let read = Value::from_json(&out).unwrap();
        assert_eq!(read, stamped(&document.value, &stamp));
        assert_eq!(read.get("_ts").as_number(), Some(1.0));
        let etag = read.get("_etag");
        assert_eq!(parse_etag(etag.as_str().unwrap()), Some(255));
        assert_eq!(parse_etag("\"x\""), None);
        assert_eq!(parse_etag(&etag_text(i64::MIN)), Some(i64::MIN));
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        for wrong in [
            "[]",
            "{}",
            r#"{"id":5}"#,
            r#"{"id":""}"#,
            r#"{"id":"a/b"}"#,
            r#"{"id":"a","ttl":0}"#,
            r#"{"id":"a","ttl":"5"}"#,
        ] {
            assert_eq!(Document::parse(wrong.as_bytes()).unwrap_err().status, 400, "{wrong}");
        }
        let large = format!(r#"{{"id":"a","t":"{}"}}"#, "x".repeat(DOCUMENT_BYTES_MAX));
        assert_eq!(Document::parse(large.as_bytes()).unwrap_err().status, 413);
        assert_eq!(Document::parse(br#"{"id":"a","ttl":-1}"#).unwrap().ttl, Some(-1));
    }
}
