//! XML as the storage clients write and read it: elements, text and attributes, nothing more.

mod element;

use std::borrow::Cow;

pub use element::{DEPTH_MAX, Element, NODES_MAX, parse};

/// What is not a character in XML 1.0 is written as this one, since there is no way to write it.
const REPLACEMENT: char = '\u{FFFD}';

/// A text with everything escaped that has a meaning in XML.
pub fn escape(text: &str) -> Cow<'_, str> {
    let special = |char: char| matches!(char, '&' | '<' | '>' | '"' | '\'' | '\r') || !is_xml_char(char);
    let Some(first) = text.find(special) else { return Cow::Borrowed(text) };
    let mut escaped = String::with_capacity(text.len() + 16);
    escaped.push_str(&text[..first]);
    for char in text[first..].chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // A bare one would be read as a line feed.
            '\r' => escaped.push_str("&#xD;"),
            other if is_xml_char(other) => escaped.push(other),
            _ => escaped.push(REPLACEMENT),
        }
    }
    Cow::Owned(escaped)
}

/// Whether XML 1.0 can hold this character at all (its production 2, `Char`).
pub fn is_xml_char(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | '\u{20}'..='\u{FFFD}' | '\u{10000}'..)
}

/// Writes a document from front to back.
#[derive(Debug)]
pub struct Writer(String);

impl Writer {
    /// A document that has nothing but its declaration.
    pub fn document() -> Writer {
        Writer("<?xml version=\"1.0\" encoding=\"utf-8\"?>".to_owned())
    }

    /// `<name>`.
    pub fn open(&mut self, name: &str) {
        self.open_with(name, &[]);
    }

    /// `<name attribute="value">`.
    pub fn open_with(&mut self, name: &str, attributes: &[(&str, &str)]) {
        self.0.push('<');
        self.0.push_str(name);
        for (attribute, value) in attributes {
            self.0.push(' ');
            self.0.push_str(attribute);
            self.0.push_str("=\"");
            self.0.push_str(&escape(value));
            self.0.push('"');
        }
        self.0.push('>');
    }

    /// `</name>`.
    pub fn close(&mut self, name: &str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    /// `<name />`.
    pub fn empty(&mut self, name: &str) {
        self.0.push('<');
        self.0.push_str(name);
        self.0.push_str(" />");
    }

    /// Text inside the element that is open.
    pub fn text(&mut self, text: &str) {
        self.0.push_str(&escape(text));
    }

    /// `<name>text</name>`.
    pub fn element(&mut self, name: &str, text: &str) {
        self.open(name);
        self.text(text);
        self.close(name);
    }

    /// The document.
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Writer, escape};
    use proptest::prelude::*;

    #[test]
    fn a_document_is_written_from_front_to_back() {
        let mut xml = Writer::document();
        xml.open_with("List", &[("Endpoint", "http://x/?a=1&b=\"2\"")]);
        xml.element("Name", "a<b>&c");
        xml.empty("NextMarker");
        xml.close("List");
        let expected = "<?xml version=\"1.0\" encoding=\"utf-8\"?><List Endpoint=\"http://x/?a=1&amp;b=&quot;2&quot;\">\
                        <Name>a&lt;b&gt;&amp;c</Name><NextMarker /></List>";
        assert_eq!(xml.finish(), expected);
    }

    proptest! {
        #[test]
        fn any_text_of_xml_characters_is_read_again(text in any::<String>()) {
            let text: String = text.chars().filter(|char| super::is_xml_char(*char)).collect();
            let escaped = escape(&text);
            prop_assert_eq!(&*quick_xml::escape::unescape(&escaped).unwrap(), &text);
        }
    }
}
