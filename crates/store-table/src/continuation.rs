//! Where a list goes on: the last key as text that is safe in a header and in a URL, whatever is in the key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Tells the format, so that an old token is never misread.
const FORMAT: &str = "1!";

/// A key as a token.
pub(crate) fn write(key: &str) -> String {
    format!("{FORMAT}{}", URL_SAFE_NO_PAD.encode(key))
}

/// The key of a token; none if it is not one of ours.
pub(crate) fn read(token: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token.strip_prefix(FORMAT)?).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written() {
        for key in ["", "a", "ü/😀 '%", "orders"] {
            let token = write(key);
            assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(read(&token).as_deref(), Some(key));
        }
        for bad in ["", "abc", "2!YQ", "1!@", "1!_w"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
