//! Reading a small XML body into a tree, with limits on its depth and size.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use crate::ServiceError;
use crate::xml::is_xml_char;

/// Elements inside elements. The deepest body of the storage protocols has five levels.
pub const DEPTH_MAX: usize = 16;

/// Elements in all. The largest body, a list of 50,000 blocks, has about as many; each costs some hundred bytes.
pub const NODES_MAX: usize = 100_000;

/// An element with its text and the elements inside it, both in order. Attributes and comments are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its name, without a namespace prefix.
    pub name: String,
    /// All its own text, put together, white space kept.
    pub text: String,
    /// The elements in it, in order.
    pub children: Vec<Element>,
}

impl Element {
    /// The first element in it of that name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of the first element in it of that name.
    pub fn child_text(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }
}

/// Reads a whole document. A byte order mark is passed over; a document type, and with it every entity of the
/// document's own, is refused. Line ends in text stay as they are.
pub fn parse(bytes: &[u8]) -> Result<Element, ServiceError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ServiceError::invalid_xml("it is not UTF-8"))?;
    let mut reader = Reader::from_str(text.strip_prefix('\u{FEFF}').unwrap_or(text));
    let mut tree = Tree::default();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) => tree.open(start.local_name().as_ref())?,
            Ok(Event::Empty(start)) => {
                tree.open(start.local_name().as_ref())?;
                tree.close()?;
            }
            Ok(Event::End(_)) => tree.close()?,
            Ok(Event::Text(text)) => tree.text(&text)?,
            Ok(Event::CData(text)) => tree.text(&text)?,
            Ok(Event::GeneralRef(reference)) => tree.text(&resolve(&reference)?)?,
            Ok(Event::Comment(_) | Event::Decl(_) | Event::PI(_)) => {}
            Ok(Event::DocType(_)) => {
                return Err(ServiceError::invalid_xml("a document type is not read here"));
            }
            Ok(Event::Eof) => return tree.finish(),
            Err(error) => return Err(ServiceError::invalid_xml(&error.to_string())),
        }
    }
}

/// The elements that are open, and the root once it is closed.
#[derive(Default)]
struct Tree {
    open: Vec<Element>,
    root: Option<Element>,
    nodes: usize,
}

impl Tree {
    fn open(&mut self, name: &str) -> Result<(), ServiceError> {
        self.nodes += 1;
        if self.open.len() >= DEPTH_MAX || self.nodes > NODES_MAX {
            return Err(ServiceError::invalid_xml("it is too deep or too large"));
        }
        if self.root.is_some() {
            return Err(ServiceError::invalid_xml("it has more than one root element"));
        }
        self.open.push(Element { name: name.to_owned(), ..Element::default() });
        Ok(())
    }

    fn close(&mut self) -> Result<(), ServiceError> {
        let done = self.open.pop().ok_or_else(|| ServiceError::invalid_xml("an end tag has no start tag"))?;
        match self.open.last_mut() {
            Some(parent) => parent.children.push(done),
            None => self.root = Some(done),
        }
        Ok(())
    }

    /// What XML has no way to write is refused: it could not be given back as it came.
    fn text(&mut self, text: &str) -> Result<(), ServiceError> {
        if !text.chars().all(is_xml_char) {
            return Err(ServiceError::invalid_xml(
                "it has a character that XML has not; encode the text in base64",
            ));
        }
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(ServiceError::invalid_xml("there is text outside the root element")),
        }
        Ok(())
    }

    fn finish(self) -> Result<Element, ServiceError> {
        if !self.open.is_empty() {
            return Err(ServiceError::invalid_xml("it ends inside an element"));
        }
        self.root.ok_or_else(|| ServiceError::invalid_xml("there is no root element"))
    }
}

/// The character of a numeric reference, or of one of the five that XML itself defines.
fn resolve(reference: &BytesRef<'_>) -> Result<String, ServiceError> {
    let unknown = || ServiceError::invalid_xml(&format!("the entity '&{};' is not known", &**reference));
    if let Some(char) = reference.resolve_char_ref().map_err(|_| unknown())? {
        return Ok(char.to_string());
    }
    quick_xml::escape::resolve_predefined_entity(reference).map(str::to_owned).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::xml::Writer;
    use proptest::prelude::*;

    #[test]
    fn text_is_put_together_and_white_space_kept() {
        let text = "\u{FEFF}<?xml version='1.0'?><q:QueueMessage xmlns:q='x'><!-- c --><MessageText> a&amp;&#x41;\r\n\
                    <![CDATA[<b>]]> </MessageText><Empty/></q:QueueMessage>\n";
        let root = parse(text.as_bytes()).unwrap();
        assert_eq!(root.name, "QueueMessage");
        assert_eq!(root.child_text("MessageText"), Some(" a&A\r\n<b> "));
        assert_eq!(root.child_text("Empty"), Some(""));
        assert_eq!(root.child("Other"), None);
    }

    #[test]
    fn what_is_no_plain_xml_is_refused() {
        let deep = "<a>".repeat(20) + &"</a>".repeat(20);
        for text in [
            "",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "text",
            "<a>&own;</a>",
            "<!DOCTYPE a><a/>",
            "<a",
            "<a>\u{c}</a>",
            "<a>&#1;</a>",
            &deep,
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().code(), "InvalidXmlDocument", "{text}");
        }
        assert!(parse(b"<a>\xff</a>").is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(text in any::<String>()) {
            let text: String = text.chars().filter(|char| crate::xml::is_xml_char(*char)).collect();
            let mut xml = Writer::document();
            xml.element("Text", &text);
            prop_assert_eq!(parse(xml.finish().as_bytes()).unwrap().text, text);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[<>/a&;#x!\\[\\]?\"'= -]{0,60}", bytes in any::<Vec<u8>>()) {
            let _any = parse(text.as_bytes());
            let _any = parse(&bytes);
        }
    }
}
