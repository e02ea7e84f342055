//! Continuation tokens: where a query or feed goes on. They hold positions and nothing of a process, so that they
//! outlive restarts and moves.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polyshard_document_query::{Object, Position, Progress, Value};
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// Bytes of a token at most: it travels in a header.
const BYTES_MAX: usize = 12 * 1024;

/// The form of the tokens of this program.
const FORMAT: f64 = 1.0;

/// Where to go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token {
    /// Documents up to here were looked at.
    pub scanned: Option<Vec<u8>>,
    /// The last row that the client has.
    pub after: Option<Position>,
    pub skipped: u64,
    pub returned: u64,
}

impl Token {
    /// Of a list, which goes on after a position.
    pub fn at(position: Vec<u8>) -> Token {
        Token { scanned: Some(position), ..Token::default() }
    }

    /// What of a query was answered.
    pub fn progress(&self) -> Progress {
        Progress { rows_skipped: self.skipped, rows_returned: self.returned }
    }

    /// As a client gets it; `of` is what it belongs to.
    pub fn write(&self, of: &str) -> Result<String, Failure> {
        let mut object = Object::new();
        object.insert("f", Value::Number(FORMAT));
        object.insert("q", Value::string(fingerprint(of)));
        if let Some(scanned) = &self.scanned {
            object.insert("s", Value::string(URL_SAFE_NO_PAD.encode(scanned)));
        }
        if let Some(after) = &self.after {
            object.insert("a", after.to_value());
        }
        object.insert("k", Value::Number(self.skipped as f64));
        object.insert("r", Value::Number(self.returned as f64));
        let text = URL_SAFE_NO_PAD.encode(Value::object(object).to_json());
        if text.len() > BYTES_MAX {
            return Err(Failure::bad_request(
                "the query cannot be continued: its sort keys are too long for a token; order by shorter properties, \
                 or ask for larger pages",
            ));
        }
        Ok(text)
    }

    /// Reads what a client has sent.
    pub fn read(text: &str, of: &str) -> Result<Token, Failure> {
        let wrong = || Failure::bad_request("the continuation token is none that this query has given");
        if text.len() > BYTES_MAX {
            return Err(wrong());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let value = Value::from_json(&bytes).map_err(|_| wrong())?;
        if value.get("f").as_number() != Some(FORMAT) || value.get("q").as_str() != Some(&fingerprint(of)) {
            return Err(wrong());
        }
        let scanned = match value.get("s").as_str() {
            Some(scanned) => Some(URL_SAFE_NO_PAD.decode(scanned).map_err(|_| wrong())?),
            None => None,
        };
        let after = match value.get("a") {
            Value::Undefined => None,
            after => Some(Position::from_value(&after).ok_or_else(wrong)?),
        };
        let count = |name: &str| {
            let count = value.get(name).as_number().filter(|count| *count >= 0.0 && count.fract() == 0.0);
            count.map(|count| count as u64).ok_or_else(wrong)
        };
        Ok(Token { scanned, after, skipped: count("k")?, returned: count("r")? })
    }
}

/// What a token belongs to, in short.
fn fingerprint(of: &str) -> String {
    URL_SAFE_NO_PAD.encode(&Sha256::digest(of.as_bytes())[..9])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_by_the_query_that_gave_them_alone() {
        let token = Token { skipped: 3, returned: 5, ..Token::at(vec![0, 255, 7]) };
        let text = token.write("one").unwrap();
        let read = Token::read(&text, "one").unwrap();
        assert_eq!((read.scanned, read.skipped, read.returned), (Some(vec![0, 255, 7]), 3, 5));
        for (text, of) in [(text.as_str(), "other"), ("", "one"), ("!!", "one"), ("e30", "one")] {
            assert_eq!(Token::read(text, of).unwrap_err().status, 400, "{text}");
        }
    }
}
