//! The tags of a blob, in a header and in XML.

use polyshard_azure_storage::{Headers, ServiceError, decode_query, xml};

use super::headers::text;
use crate::model::Tags;
use crate::reply::errors;

/// Tags of one blob, and the characters of their names and values: the service's limits.
const TAGS_MAX: usize = 10;
const NAME_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;

/// `x-ms-tags: a=1&b=2`, if it is there.
pub(super) fn tags_of_header(headers: &Headers) -> Result<Option<Tags>, ServiceError> {
    let Some(text) = text(headers, "x-ms-tags") else { return Ok(None) };
    let pairs = decode_query(text).map_err(|_| ServiceError::invalid_header("x-ms-tags", text))?;
    checked(pairs).map(Some)
}

/// `<Tags><TagSet><Tag><Key/><Value/></Tag>…`
pub(super) fn tags_of_body(body: &[u8]) -> Result<Tags, ServiceError> {
    let root = xml::parse(body)?;
    if root.name != "Tags" {
        return Err(ServiceError::invalid_xml("the root element must be Tags"));
    }
    let set = root.child("TagSet").ok_or_else(|| errors::missing_node("TagSet"))?;
    let mut pairs = Vec::with_capacity(set.children.len().min(TAGS_MAX + 1));
    for tag in &set.children {
        if tag.name != "Tag" {
            return Err(ServiceError::invalid_xml("TagSet holds only Tag elements"));
        }
        let part = |name| {
            let text = tag.child_text(name).ok_or_else(|| errors::missing_node(name));
            text.map(str::to_owned)
        };
        pairs.push((part("Key")?, part("Value")?));
    }
    checked(pairs)
}

/// Checks tags and puts them into the order of their names.
fn checked(mut tags: Tags) -> Result<Tags, ServiceError> {
    if tags.len() > TAGS_MAX {
        return Err(errors::tags_too_large());
    }
    for (name, value) in &tags {
        if name.is_empty() {
            return Err(errors::empty_tag_name());
        }
        if !name.chars().chain(value.chars()).all(is_tag_char) {
            return Err(errors::invalid_tag());
        }
        // All characters that may be in them are of one byte.
        if name.len() > NAME_CHARS_MAX || value.len() > VALUE_CHARS_MAX {
            return Err(errors::tags_too_large());
        }
    }
    tags.sort();
    if tags.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(errors::duplicate_tag_names());
    }
    Ok(tags)
}

fn is_tag_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, ' ' | '+' | '-' | '.' | '/' | ':' | '=' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Result<Tags, &'static str> {
        let headers = [("x-ms-tags".to_owned(), text.to_owned())].into_iter().collect();
        tags_of_header(&headers).map(Option::unwrap_or_default).map_err(|error| error.code())
    }

    fn body(inner: &str) -> Result<Tags, &'static str> {
        let text = format!("<Tags><TagSet>{inner}</TagSet></Tags>");
        tags_of_body(text.as_bytes()).map_err(|error| error.code())
    }

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn tags_are_read_from_either_and_sorted() {
        assert_eq!(header("b=x%20y&a=1%2B1&c="), Ok(tags(&[("a", "1+1"), ("b", "x y"), ("c", "")])));
        assert_eq!(header("a=x+y"), Ok(tags(&[("a", "x y")])));
        let two = "<Tag><Key>b</Key><Value>2</Value></Tag><Tag><Key>a</Key><Value/></Tag>";
        assert_eq!(body(two), Ok(tags(&[("a", ""), ("b", "2")])));
        assert_eq!(body(""), Ok(Vec::new()));
    }

    #[test]
    fn the_limits_are_those_of_the_service() {
        assert_eq!(header("=1"), Err("EmptyTagName"));
        assert_eq!(header("a=1&a=2"), Err("DuplicateTagNames"));
        assert_eq!(header("a=%C3%BC"), Err("InvalidTag"));
        assert_eq!(header("a%26=1"), Err("InvalidTag"));
        assert_eq!(header("a=%FF"), Err("InvalidHeaderValue"));
        let many = (0..11).map(|number| format!("k{number}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(header(&many), Err("TagsTooLarge"));
        assert_eq!(header(&format!("{}=1", "k".repeat(129))), Err("TagsTooLarge"));
        assert_eq!(header(&format!("a={}", "v".repeat(257))), Err("TagsTooLarge"));
        assert!(header(&format!("{}={}", "k".repeat(128), "v".repeat(256))).is_ok());
        assert_eq!(body("<Tag><Key>a</Key></Tag>"), Err("MissingRequiredXmlNode"));
        assert_eq!(body("<Other/>"), Err("InvalidXmlDocument"));
        assert_eq!(tags_of_body(b"<Tags/>").unwrap_err().code(), "MissingRequiredXmlNode");
    }
}
