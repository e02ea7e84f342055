//! Entities as JSON on the wire: how clients send them, and how they are sent at each level of metadata.

use std::collections::HashMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::edm::{EdmType, EdmValue, parse_double, write_binary, write_double, write_time};
use crate::entity::{Entity, EntityKey, InputError, PROPERTIES_MAX, PartitionKey, Properties, RowKey};
use crate::etag::etag;
use crate::json::{self, Json};

/// How much a client wants to be told beside the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Values only: `odata=nometadata`.
    None,
    /// Types where JSON does not show them, and ETags: `odata=minimalmetadata`.
    Minimal,
    /// Links and names as well: `odata=fullmetadata`.
    Full,
}

impl Level {
    /// The content type of a body at this level.
    pub fn content_type(self) -> &'static str {
        match self {
            Level::None => "application/json;odata=nometadata;streaming=true;charset=utf-8",
            Level::Minimal => "application/json;odata=minimalmetadata;streaming=true;charset=utf-8",
            Level::Full => "application/json;odata=fullmetadata;streaming=true;charset=utf-8",
        }
    }

    /// What an `Accept` header or `$format` asks for; none if it is something other than JSON.
    pub fn parse(asked: &str) -> Option<Level> {
        // As the SDKs write it.
        match asked {
            "application/json;odata=minimalmetadata" => return Some(Level::Minimal),
            "application/json;odata=nometadata" => return Some(Level::None),
            _ => {}
        }
        let asked = asked.to_ascii_lowercase();
        let json = asked.is_empty()
            || asked.contains("json")
            || asked.contains("*/*")
            || asked.contains("application/*");
        if !json {
            return None;
        }
        Some(match () {
            () if asked.contains("nometadata") => Level::None,
            () if asked.contains("fullmetadata") => Level::Full,
            () => Level::Minimal,
        })
    }
}

/// An entity as a client sent it: the keys may be missing where the URL has them.
#[derive(Debug, PartialEq)]
pub(crate) struct Draft {
    pub partition: Option<String>,
    pub row: Option<String>,
    pub properties: Properties,
}

impl Draft {
    /// Reads the body of a request.
    pub fn read(body: &[u8]) -> Result<Draft, InputError> {
        let text = std::str::from_utf8(body).map_err(|_| unreadable("the body is not UTF-8"))?;
        let members = json::read_object(text).map_err(|error| unreadable(&error.to_string()))?;
        let mut types = HashMap::new();
        for (name, value) in &members {
            if let (Some(property), Json::Text(edm)) = (name.strip_suffix("@odata.type"), value) {
                let known = EdmType::parse(edm);
                let edm = known.ok_or_else(|| unreadable(&format!("there is no type '{edm}' in tables")))?;
                types.insert(property.to_owned(), edm);
            }
        }
        let (mut partition, mut row, mut list) = (None, None, Vec::with_capacity(members.len()));
        for (name, value) in members {
            if name.contains("odata.") || name == "Timestamp" || value == Json::Null {
                continue;
            }
            let slot = match name.as_ref() {
                "PartitionKey" => &mut partition,
                "RowKey" => &mut row,
                _ => {
                    let value = read_value(&name, value, types.get(name.as_ref()).copied())?;
                    list.push((name.into_owned(), value));
                    continue;
                }
            };
            match value {
                Json::Text(text) if slot.is_none() => *slot = Some(text.into_owned()),
                Json::Text(_) => return Err(InputError::PropertyTwice(name.into_owned())),
                _ => {
                    let (name, edm) = (name.into_owned(), "Edm.String".to_owned());
                    return Err(InputError::ValueType { name, edm });
                }
            }
        }
        Ok(Draft { partition, row, properties: Properties::new(list)? })
    }

    /// Its key, all of which must be in the body, and its properties.
    pub fn keyed(self) -> Result<(EntityKey, Properties), InputError> {
        let partition = self.partition.ok_or(InputError::KeyMissing("PartitionKey"))?;
        let row = self.row.ok_or(InputError::KeyMissing("RowKey"))?;
        Ok((EntityKey::new(partition, row)?, self.properties))
    }
}

fn unreadable(reason: &str) -> InputError {
    InputError::Unreadable(reason.to_owned())
}

/// A value with the type its annotation gives it, or that JSON shows.
fn read_value(name: &str, value: Json<'_>, edm: Option<EdmType>) -> Result<EdmValue, InputError> {
    let mismatch = |edm: &str| InputError::ValueType { name: name.to_owned(), edm: edm.to_owned() };
    let Some(edm) = edm else {
        return match value {
            Json::Bool(value) => Ok(EdmValue::Boolean(value)),
            Json::Text(text) => Ok(EdmValue::String(text.into_owned())),
            Json::Number(text) => bare_number(text).ok_or_else(|| mismatch("Edm.Double")),
            Json::Null | Json::Object(_) => {
                Err(unreadable(&format!("property '{name}' cannot be an object")))
            }
        };
    };
    let value = match (edm, value) {
        (EdmType::String, Json::Text(text)) => Some(EdmValue::String(text.into_owned())),
        (EdmType::Boolean, Json::Bool(value)) => Some(EdmValue::Boolean(value)),
        (EdmType::Int32 | EdmType::Int64 | EdmType::Double, Json::Number(text)) => EdmValue::parse(edm, text),
        (_, Json::Text(text)) => EdmValue::parse(edm, &text),
        _ => None,
    };
    value.ok_or_else(|| mismatch(edm.name()))
}

/// A number without a type. As with the service a whole one that is too long for 32 bits is a double: the JavaScript
/// SDK sends its numbers so, and hands out what is of 64 bits as something else than a number. One that no double is
/// equal to keeps its digits instead.
fn bare_number(text: &str) -> Option<EdmValue> {
    if let Ok(small) = text.parse() {
        return Some(EdmValue::Int32(small));
    }
    let number = parse_double(text)?;
    match text.parse::<i64>() {
        Ok(whole) if number as i128 != i128::from(whole) => Some(EdmValue::Int64(whole)),
        _ => Some(EdmValue::Double(number)),
    }
}

/// Where entities are, for links.
pub(crate) struct Place<'a> {
    /// The account's URL.
    pub base_url: &'a str,
    /// The account.
    pub account: &'a str,
    /// The table.
    pub table: &'a str,
}

impl Place<'_> {
    /// The path of an entity within the account, safe in headers: `table(PartitionKey='p',RowKey='r')`.
    pub fn entity_path(&self, key: &EntityKey) -> String {
        let mut out = String::with_capacity(128);
        self.write_partition_path(&key.partition, &mut out);
        finish_entity_url(&key.row, &mut out);
        out
    }

    /// The URL of an entity.
    pub fn entity_url(&self, key: &EntityKey) -> String {
        let mut out = self.partition_url(&key.partition);
        finish_entity_url(&key.row, &mut out);
        out
    }

    /// The beginning of the URLs of a partition's entities, which [`finish_entity_url`] ends.
    pub fn partition_url(&self, partition: &PartitionKey) -> String {
        let mut out = String::with_capacity(self.base_url.len() + 128);
        out.push_str(self.base_url);
        out.push('/');
        self.write_partition_path(partition, &mut out);
        out
    }

    fn write_partition_path(&self, partition: &PartitionKey, out: &mut String) {
        out.push_str(self.table);
        out.push_str("(PartitionKey='");
        write_quoted(partition.as_str(), out);
        out.push_str("',RowKey='");
    }
}

/// The end of an entity's URL.
pub(crate) fn finish_entity_url(row: &RowKey, out: &mut String) {
    write_quoted(row.as_str(), out);
    out.push_str("')");
}

/// A key between quotes in a URL, where a quote is two of them.
fn write_quoted(key: &str, out: &mut String) {
    /// What RFC 3986 calls unreserved stays.
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    for (at, piece) in key.split('\'').enumerate() {
        if at > 0 {
            out.push_str("%27%27");
        }
        out.extend(utf8_percent_encode(piece, ESCAPED));
    }
}

/// The properties that every entity has.
const SYSTEM: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

/// The properties that a client wants, if not all: no name twice.
pub(crate) type Select = Option<Vec<String>>;

/// Names in `$select`: as many as an entity has properties.
const SELECT_NAMES_MAX: usize = PROPERTIES_MAX + SYSTEM.len();
/// Bytes of `$select`, since every entity of a page is told with those of the names that it has nothing of.
const SELECT_BYTES_MAX: usize = 16 * 1024;

/// Reads `$select`; none if it is longer than is answered.
pub(crate) fn parse_select(text: &str) -> Option<Select> {
    let mut names: Vec<String> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if name == "*" {
            return Some(None);
        }
        if names.len() >= SELECT_NAMES_MAX || text.len() > SELECT_BYTES_MAX {
            return None;
        }
        if !names.iter().any(|own| own == name) {
            names.push(name.to_owned());
        }
    }
    Some((!names.is_empty()).then_some(names))
}

/// A body of one entity.
pub(crate) fn one(entity: &Entity, place: &Place<'_>, level: Level, select: &Select) -> String {
    let mut out = String::with_capacity(256);
    out.push('{');
    if level != Level::None {
        let metadata = format!("{}/$metadata#{}/@Element", place.base_url, place.table);
        member("odata.metadata", &metadata, &mut out);
    }
    write_entity(entity, place, level, select, &mut out);
    out.push('}');
    out
}

/// Properties as [`Draft::read`] reads them back: with the types that JSON does not show.
pub(crate) fn write_properties(properties: &Properties) -> String {
    let mut out = String::from("{");
    for (name, value) in properties.iter() {
        write_property(name, value, Level::Minimal, &mut out);
    }
    out.push('}');
    out
}

/// A body of many entities.
pub(crate) fn many(entities: &[Entity], place: &Place<'_>, level: Level, select: &Select) -> String {
    let mut out = String::with_capacity(256 * (entities.len() + 1));
    out.push('{');
    if level != Level::None {
        member("odata.metadata", &format!("{}/$metadata#{}", place.base_url, place.table), &mut out);
        out.push(',');
    }
    out.push_str("\"value\":[");
    for (at, entity) in entities.iter().enumerate() {
        out.push_str(if at == 0 { "{" } else { ",{" });
        write_entity(entity, place, level, select, &mut out);
        out.push('}');
    }
    out.push_str("]}");
    out
}

/// The members of an entity, after whatever is open already.
fn write_entity(entity: &Entity, place: &Place<'_>, level: Level, select: &Select, out: &mut String) {
    let wanted = |name: &str| select.as_ref().is_none_or(|select| select.iter().any(|own| own == name));
    let mut add = |name: &str, text: &str| {
        if !out.ends_with('{') {
            out.push(',');
        }
        member(name, text, out);
    };
    if level == Level::Full {
        add("odata.type", &format!("{}.{}", place.account, place.table));
        add("odata.id", &place.entity_url(&entity.key));
    }
    if level != Level::None {
        add("odata.etag", &etag(entity.timestamp));
    }
    if level == Level::Full {
        add("odata.editLink", &place.entity_path(&entity.key));
    }
    for (name, text) in [("PartitionKey", entity.key.partition.as_str()), ("RowKey", entity.key.row.as_str())]
    {
        if wanted(name) {
            add(name, text);
        }
    }
    if wanted("Timestamp") {
        if level == Level::Full {
            add("Timestamp@odata.type", "Edm.DateTime");
        }
        let mut time = String::new();
        write_time(entity.timestamp, &mut time);
        add("Timestamp", &time);
    }
    for (name, value) in entity.properties.iter().filter(|(name, _)| wanted(name)) {
        write_property(name, value, level, out);
    }
    // What is selected and not there is told as null.
    let is_there = |name: &str| SYSTEM.contains(&name) || entity.properties.get(name).is_some();
    for name in select.iter().flatten().filter(|name| !is_there(name)) {
        comma(out);
        json::write_text(name, out);
        out.push_str(":null");
    }
}

fn comma(out: &mut String) {
    if !out.ends_with('{') {
        out.push(',');
    }
}

fn write_property(name: &str, value: &EdmValue, level: Level, out: &mut String) {
    let is_shown_by_json = match value {
        EdmValue::String(_) | EdmValue::Boolean(_) | EdmValue::Int32(_) => true,
        EdmValue::Double(number) => number.is_finite(),
        _ => false,
    };
    if level != Level::None && !is_shown_by_json {
        comma(out);
        member(&format!("{name}@odata.type"), value.edm_type().name(), out);
    }
    comma(out);
    json::write_text(name, out);
    out.push(':');
    match value {
        EdmValue::String(text) => json::write_text(text, out),
        EdmValue::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        EdmValue::Int32(number) => out.push_str(&number.to_string()),
        EdmValue::Double(number) if number.is_finite() => write_double(*number, out),
        other => {
            out.push('"');
            match other {
                EdmValue::Binary(bytes) => write_binary(bytes, out),
                EdmValue::DateTime(time) => write_time(*time, out),
                EdmValue::Double(number) => write_double(*number, out),
                EdmValue::Guid(guid) => out.push_str(&guid.to_string()),
                EdmValue::Int64(number) => out.push_str(&number.to_string()),
                EdmValue::String(_) | EdmValue::Boolean(_) | EdmValue::Int32(_) => {}
            }
            out.push('"');
        }
    }
}

fn member(name: &str, text: &str, out: &mut String) {
    json::write_text(name, out);
    out.push(':');
    json::write_text(text, out);
}

/// A body of one table.
pub(crate) fn one_table(name: &str, place: &Place<'_>, level: Level) -> String {
    let mut out = "{".to_owned();
    if level != Level::None {
        member("odata.metadata", &format!("{}/$metadata#Tables/@Element", place.base_url), &mut out);
    }
    write_table(name, place, level, &mut out);
    out.push('}');
    out
}

/// A body of many tables.
pub(crate) fn many_tables(names: &[String], place: &Place<'_>, level: Level) -> String {
    let mut out = "{".to_owned();
    if level != Level::None {
        member("odata.metadata", &format!("{}/$metadata#Tables", place.base_url), &mut out);
        out.push(',');
    }
    out.push_str("\"value\":[");
    for (at, name) in names.iter().enumerate() {
        out.push_str(if at == 0 { "{" } else { ",{" });
        write_table(name, place, level, &mut out);
        out.push('}');
    }
    out.push_str("]}");
    out
}

fn write_table(name: &str, place: &Place<'_>, level: Level, out: &mut String) {
    let mut add = |member_name: &str, text: &str| {
        if !out.ends_with('{') {
            out.push(',');
        }
        member(member_name, text, out);
    };
    if level == Level::Full {
        add("odata.type", &format!("{}.Tables", place.account));
        add("odata.id", &format!("{}/Tables('{name}')", place.base_url));
        add("odata.editLink", &format!("Tables('{name}')"));
    }
    add("TableName", name);
}

/// Reads the body of a request that creates a table.
pub(crate) fn read_table_name(body: &[u8]) -> Result<String, InputError> {
    let text = std::str::from_utf8(body).map_err(|_| unreadable("the body is not UTF-8"))?;
    let members = json::read_object(text).map_err(|error| unreadable(&error.to_string()))?;
    let name = members.into_iter().find_map(|(name, value)| match value {
        Json::Text(text) if name == "TableName" => Some(text.into_owned()),
        _ => None,
    });
    name.ok_or(InputError::KeyMissing("TableName"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyshard_azure_storage::Timestamp;

    const BODY: &str = "{\"PartitionKey\":\"p'1\",\"RowKey\":\"ü\",\"Timestamp\":\"x\",\"odata.etag\":\"y\",\
        \"Age\":23,\"One\":1.0,\"Due@odata.type\":\"Edm.Double\",\"Due\":200,\"Active\":true,\"None\":null,\
        \"Orders@odata.type\":\"Edm.Int64\",\"Orders\":\"255\",\"Nan\":\"NaN\",\"Nan@odata.type\":\"Edm.Double\",\
        \"Since@odata.type\":\"Edm.DateTime\",\"Since\":\"2008-07-10T00:00:00\",\
        \"Id@odata.type\":\"Edm.Guid\",\"Id\":\"C9DA6455-213d-42c9-9a79-3e9149a57833\",\
        \"Raw@odata.type\":\"Edm.Binary\",\"Raw\":\"AAH/\"}";

    fn written(level: Level, select: &Select) -> String {
        let draft = Draft::read(BODY.as_bytes()).unwrap();
        let timestamp = Timestamp::parse_iso("2026-11-15T07:25:16.2221997Z").unwrap();
        let (key, properties) = draft.keyed().unwrap();
        let entity = Entity { key, timestamp, properties };
        let place = Place { base_url: "http://h/acct", account: "acct", table: "People" };
        one(&entity, &place, level, select)
    }

    #[test]
    fn every_type_is_written_at_every_level() {
        let values = "\"PartitionKey\":\"p'1\",\"RowKey\":\"ü\",\"Timestamp\":\"2026-11-15T07:25:16.2221997Z\",\
            \"Age\":23,\"One\":1.0,\"Due\":200.0,\"Active\":true,\"Orders\":\"255\",\"Nan\":\"NaN\",\
            \"Since\":\"2008-07-10T00:00:00Z\",\"Id\":\"c9da6455-213d-42c9-9a79-3e9149a57833\",\
            \"Raw\":\"AAH/\"}";
        assert_eq!(written(Level::None, &None), format!("{{{values}"));
        let typed = values
            .replace("\"Orders\"", "\"Orders@odata.type\":\"Edm.Int64\",\"Orders\"")
            .replace("\"Nan\"", "\"Nan@odata.type\":\"Edm.Double\",\"Nan\"")
            .replace("\"Since\"", "\"Since@odata.type\":\"Edm.DateTime\",\"Since\"")
            .replace("\"Id\"", "\"Id@odata.type\":\"Edm.Guid\",\"Id\"")
            .replace("\"Raw\"", "\"Raw@odata.type\":\"Edm.Binary\",\"Raw\"");
        let etag = "\"odata.etag\":\"W/\\\"datetime'2026-11-15T07%3A25%3A16.2221997Z'\\\"\"";
        let metadata = "{\"odata.metadata\":\"http://h/acct/$metadata#People/@Element\"";
        assert_eq!(written(Level::Minimal, &None), format!("{metadata},{etag},{typed}"));
        let link = "People(PartitionKey='p%27%271',RowKey='%C3%BC')";
        let full = typed.replace("\"Timestamp\"", "\"Timestamp@odata.type\":\"Edm.DateTime\",\"Timestamp\"");
        let names = format!("\"odata.type\":\"acct.People\",\"odata.id\":\"http://h/acct/{link}\"");
        let full = format!("{metadata},{names},{etag},\"odata.editLink\":\"{link}\",{full}");
        assert_eq!(written(Level::Full, &None), full);
    }

    #[test]
    fn only_what_is_selected_is_written() {
        let select = |text| parse_select(text).unwrap();
        assert_eq!(
            written(Level::None, &select("Age, Missing,Age,Missing")),
            "{\"Age\":23,\"Missing\":null}"
        );
        assert_eq!(written(Level::None, &select("a\"b, RowKey")), "{\"RowKey\":\"ü\",\"a\\\"b\":null}");
        assert!(written(Level::Minimal, &select("x")).ends_with("'\\\"\",\"x\":null}"));
        assert_eq!((select("a,*"), select(""), select(",")), (None, None, None));
        let many = |count: usize| (0..count).map(|n| format!("p{n}")).collect::<Vec<_>>().join(",");
        assert!(parse_select(&many(255)).is_some() && parse_select(&many(256)).is_none());
        assert!(parse_select(&"x".repeat(20_000)).is_none());
    }

    #[test]
    fn values_must_be_of_their_types() {
        let read = |members: &str| Draft::read(format!("{{{members}}}").as_bytes());
        for bad in [
            "\"a\":\"x\",\"a@odata.type\":\"Edm.Int64\"",
            "\"a\":1.5,\"a@odata.type\":\"Edm.Int32\"",
            "\"a\":1,\"a@odata.type\":\"Edm.String\"",
            "\"a\":3000000000,\"a@odata.type\":\"Edm.Int32\"",
            "\"a\":\"x\",\"a@odata.type\":\"Edm.Guid\"",
            "\"PartitionKey\":5",
            "\"a\":1e999",
        ] {
            assert!(matches!(read(bad), Err(InputError::ValueType { .. })), "{bad}");
        }
        assert!(matches!(read("\"a\":1,\"a@odata.type\":\"Edm.Byte\""), Err(InputError::Unreadable(_))));
        assert!(matches!(read("\"a\":[1]"), Err(InputError::Unreadable(_))));
        assert!(matches!(read("\"a\":{\"b\":1}"), Err(InputError::Unreadable(_))));
        assert!(matches!(
            read("\"PartitionKey\":\"a\",\"PartitionKey\":\"b\""),
            Err(InputError::PropertyTwice(_))
        ));
        assert!(matches!(Draft::read(b"\xff"), Err(InputError::Unreadable(_))));
        assert_eq!(read("\"RowKey\":\"r\"").unwrap().keyed(), Err(InputError::KeyMissing("PartitionKey")));
        for (text, value) in [
            ("2147483647", EdmValue::Int32(i32::MAX)),
            ("1", EdmValue::Int32(1)),
            ("1.0", EdmValue::Double(1.0)),
            ("1700000000000", EdmValue::Double(1.7e12)),
            ("-3000000000", EdmValue::Double(-3e9)),
            ("9007199254740993", EdmValue::Int64(9_007_199_254_740_993)),
            ("9223372036854775807", EdmValue::Int64(i64::MAX)),
            ("100000000000000000000", EdmValue::Double(1e20)),
        ] {
            assert_eq!(read(&format!("\"a\":{text}")).unwrap().properties.get("a"), Some(&value), "{text}");
        }
    }

    #[test]
    fn levels_are_read_from_accept_and_format() {
        assert_eq!(Level::parse("application/json;odata=nometadata"), Some(Level::None));
        assert_eq!(Level::parse("application/json;odata=fullmetadata"), Some(Level::Full));
        assert_eq!(Level::parse("application/json"), Some(Level::Minimal));
        assert_eq!(Level::parse("application/atom+xml,application/xml"), None);
        assert_eq!(Level::parse("*/*"), Some(Level::Minimal));
    }
}
