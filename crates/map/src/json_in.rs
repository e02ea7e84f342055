//! Reads the JSON form of a map, and says where in the file something is wrong.
//!
//! The file is gone over twice: first for all but the entries, then for the entries, which then need no buffering
//! whatever the order of the fields.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map as Object, Value};
use thiserror::Error;

use crate::definition::{MapDefinition, Scheme, Segment};
use crate::entry::{Entry, Lock, State};
use crate::hash::HashSpec;
use crate::ids::{Epoch, ShardId};
use crate::json::JSON_FORMAT;
use crate::map::Map;

/// A file that is not a map: fix the field it names.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ImportError {
    /// The field, such as `entries[3].shard`; empty if it is about the whole.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
    /// Line and column in the file, from 1, where they are known.
    pub place: Option<(usize, usize)>,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match self.place {
            Some((line, column)) => write!(f, " (line {line}, column {column})"),
            None => Ok(()),
        }
    }
}

/// Reads a map from its JSON form. Entries may stand in any order, and so may fields.
pub fn import(json: &[u8]) -> Result<Map, ImportError> {
    let fields = parse(json, Pass::Fields)?.0;
    let (definition, epoch) = read_definition(&fields)?;
    let mut entries = parse(json, Pass::Entries { definition: &definition, epoch })?.1;
    entries.sort_by(|(_, a), (_, b)| a.range.lo().cmp(b.range.lo()));
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].1.range.ends_after(pair[1].1.range.lo())) {
        let (first, second) = (pair[0].0.min(pair[1].0), pair[0].0.max(pair[1].0));
        return Err(wrong(
            format!("entries[{second}]"),
            format!("it overlaps entries[{first}]: give each key once"),
        ));
    }
    let sorted = entries.into_iter().map(|(_, entry)| entry);
    Map::build(definition, sorted, epoch).map_err(|e| wrong("entries".to_owned(), e.to_string()))
}

/// The fields of a file; every one must be known, so that a misspelt one is not silently without effect.
const FIELDS: [&str; 9] = ["format", "name", "kind", "key", "prefix", "hash", "segments", "epoch", "entries"];

/// The fields of an entry.
const ENTRY_FIELDS: [&str; 9] = ["segment", "key", "from", "to", "shard", "state", "epoch", "group", "lock"];

fn wrong(path: String, message: String) -> ImportError {
    ImportError { path, message, place: None }
}

fn read_definition(fields: &Object<String, Value>) -> Result<(MapDefinition, Epoch), ImportError> {
    let field = |name: &str| {
        fields.get(name).ok_or_else(|| wrong(name.to_owned(), "missing: every map has this field".to_owned()))
    };
    match field("format")? {
        format if format.as_u64() == Some(JSON_FORMAT) => {}
        other => {
            let message =
                format!("{other} is not known here, only {JSON_FORMAT}: use a program of the right version");
            return Err(wrong("format".to_owned(), message));
        }
    }
    let name = read(field("name")?, "name")?;
    let key_type = read(field("key")?, "key")?;
    let epoch: Epoch = read(field("epoch")?, "epoch")?;
    let kind: String = read(field("kind")?, "kind")?;
    let takes: &[&str] = match kind.as_str() {
        "list" | "range" => &[],
        "hash" => &["hash"],
        "range_hash" | "list_hash" => &["prefix", "hash", "segments"],
        other => {
            let message = format!("{other:?} is not a kind: use list, range, hash, range_hash or list_hash");
            return Err(wrong("kind".to_owned(), message));
        }
    };
    if let Some(extra) =
        ["prefix", "hash", "segments"].into_iter().find(|f| fields.contains_key(*f) && !takes.contains(f))
    {
        return Err(wrong(extra.to_owned(), format!("a map of kind {kind} does not have this field")));
    }
    let hash = || -> Result<HashSpec, ImportError> { read_hash(field("hash")?) };
    let prefix = || -> Result<usize, ImportError> { read(field("prefix")?, "prefix") };
    let scheme = match kind.as_str() {
        "list" => Scheme::List,
        "range" => Scheme::Range,
        "hash" => Scheme::Hash(hash()?),
        "range_hash" => Scheme::RangeHash { prefix: prefix()?, hash: hash()?, segments: Vec::new() },
        _ => Scheme::ListHash { prefix: prefix()?, hash: hash()?, segments: Vec::new() },
    };
    let field_of_error = if scheme.prefix().is_some() { "prefix" } else { "key" };
    let mut definition = MapDefinition::new(name, key_type, scheme)
        .map_err(|e| wrong(field_of_error.to_owned(), e.to_string()))?;
    if takes.contains(&"segments") {
        let segments = read_segments(&definition, field("segments")?)?;
        definition =
            definition.with_segments(segments).map_err(|e| wrong("segments".to_owned(), e.to_string()))?;
    }
    Ok((definition, epoch))
}

fn read<T: de::DeserializeOwned>(value: &Value, path: &str) -> Result<T, ImportError> {
    T::deserialize(value).map_err(|e| wrong(path.to_owned(), e.to_string()))
}

fn read_hash(value: &Value) -> Result<HashSpec, ImportError> {
    let Value::Object(object) = value else {
        return Err(wrong("hash".to_owned(), "it is an object with function, seed and buckets".to_owned()));
    };
    for name in ["function", "seed", "buckets"] {
        if !object.contains_key(name) {
            return Err(wrong(format!("hash.{name}"), "missing: the hash of a map is pinned".to_owned()));
        }
    }
    read(value, "hash")
}

fn read_segments(definition: &MapDefinition, value: &Value) -> Result<Vec<Segment>, ImportError> {
    let Value::Array(values) = value else {
        return Err(wrong("segments".to_owned(), "it is a list of segments".to_owned()));
    };
    let mut segments = Vec::with_capacity(values.len());
    for (index, value) in values.iter().enumerate() {
        let Value::Object(object) = value else {
            return Err(wrong(format!("segments[{index}]"), "a segment has from and to, or key".to_owned()));
        };
        let segment = definition
            .segment_range_from_json(object)
            .map_err(|(field, message)| wrong(format!("segments[{index}].{field}"), message))?;
        segments.push(segment);
    }
    segments.sort();
    Ok(segments)
}

fn read_entry(
    definition: &MapDefinition,
    map_epoch: Epoch,
    shards: &mut HashMap<String, ShardId>,
    mut object: Object<String, Value>,
) -> Result<Entry, (String, String)> {
    fn part<T: de::DeserializeOwned>(value: Value, field: &str) -> Result<T, (String, String)> {
        serde_json::from_value(value).map_err(|e| (field.to_owned(), e.to_string()))
    }
    if let Some(unknown) = object.keys().find(|field| !ENTRY_FIELDS.contains(&field.as_str())) {
        return Err((unknown.clone(), format!("unknown field: an entry has {}", ENTRY_FIELDS.join(", "))));
    }
    let shard = match object.remove("shard") {
        None => return Err(("shard".to_owned(), "missing: every entry names its shard".to_owned())),
        Some(Value::String(name)) => match shards.get(&name) {
            Some(shard) => shard.clone(),
            None => {
                let shard = ShardId::new(&name).map_err(|e| ("shard".to_owned(), e.to_string()))?;
                shards.insert(name, shard.clone());
                shard
            }
        },
        Some(other) => return Err(("shard".to_owned(), format!("{other} is not the name of a shard"))),
    };
    let state = object.remove("state").map_or(Ok(State::Online), |value| part(value, "state"))?;
    let epoch = object.remove("epoch").map_or(Ok(map_epoch), |value| part(value, "epoch"))?;
    if epoch > map_epoch {
        return Err(("epoch".to_owned(), format!("{epoch} is above the map's own, {map_epoch}")));
    }
    let group = object.remove("group").map(|value| part(value, "group")).transpose()?;
    let lock = object.remove("lock").map(|value| part::<Lock>(value, "lock")).transpose()?;
    let range = definition.range_from_json(&object)?;
    definition.check_entry_range(&range).map_err(|e| ("key".to_owned(), e.to_string()))?;
    Ok(Entry { range, shard, state, epoch, group, lock })
}

/// Which part of the file is read.
#[derive(Clone, Copy)]
enum Pass<'d> {
    Fields,
    Entries { definition: &'d MapDefinition, epoch: Epoch },
}

type Parsed = (Object<String, Value>, Vec<(usize, Entry)>);

fn parse(json: &[u8], pass: Pass<'_>) -> Result<Parsed, ImportError> {
    let place = RefCell::new(Place::default());
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let parsed = File { pass, place: &place }.deserialize(&mut deserializer);
    parsed.and_then(|parsed| deserializer.end().map(|()| parsed)).map_err(|e| {
        let Place { path, message } = place.into_inner();
        let message = message.unwrap_or_else(|| {
            let text = e.to_string();
            // The line is shown on its own.
            text.rsplit_once(" at line ").map_or(text.clone(), |(before, _)| before.to_owned())
        });
        ImportError { path, message, place: (e.line() > 0).then_some((e.line(), e.column())) }
    })
}

/// Where the reader is, and what it found wrong there beyond what the JSON reader knows.
#[derive(Default)]
struct Place {
    path: String,
    message: Option<String>,
}

#[derive(Clone, Copy)]
struct File<'a> {
    pass: Pass<'a>,
    place: &'a RefCell<Place>,
}

impl File<'_> {
    fn go(&self, path: String) {
        self.place.borrow_mut().path = path;
    }

    fn fail<E: de::Error>(&self, path: String, message: String) -> E {
        *self.place.borrow_mut() = Place { path, message: Some(message.clone()) };
        E::custom(message)
    }
}

impl<'de> DeserializeSeed<'de> for File<'_> {
    type Value = Parsed;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parsed, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for File<'_> {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map: an object with format, name, kind, key, epoch and entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Parsed, A::Error> {
        let mut fields = Object::new();
        let mut entries = None;
        while let Some(name) = object.next_key::<String>()? {
            self.go(name.clone());
            if !FIELDS.contains(&name.as_str()) {
                let message = format!("unknown field: a map has {}", FIELDS.join(", "));
                return Err(self.fail(name, message));
            }
            let again = if name == "entries" { entries.is_some() } else { fields.contains_key(&name) };
            if again {
                return Err(self.fail(name, "the field is there twice".to_owned()));
            }
            match self.pass {
                Pass::Entries { .. } if name == "entries" => {
                    entries = Some(object.next_value_seed(EntryList(self))?)
                }
                Pass::Fields if name != "entries" => {
                    fields.insert(name, object.next_value()?);
                }
                Pass::Fields | Pass::Entries { .. } => {
                    object.next_value::<IgnoredAny>()?;
                    if name == "entries" {
                        entries = Some(Vec::new());
                    }
                }
            }
            self.go(String::new());
        }
        match entries {
            Some(entries) => Ok((fields, entries)),
            None => Err(self.fail("entries".to_owned(), "missing: every map has this field".to_owned())),
        }
    }
}

/// The list of entries; the first pass skips it.
struct EntryList<'a>(File<'a>);

impl<'de> DeserializeSeed<'de> for EntryList<'_> {
    type Value = Vec<(usize, Entry)>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EntryList<'_> {
    type Value = Vec<(usize, Entry)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let file = self.0;
        let Pass::Entries { definition, epoch } = file.pass else { return Ok(Vec::new()) };
        let mut shards = HashMap::new();
        let mut entries = Vec::new();
        loop {
            let index = entries.len();
            file.go(format!("entries[{index}]"));
            let Some(object) = list.next_element::<Object<String, Value>>()? else { return Ok(entries) };
            let entry = read_entry(definition, epoch, &mut shards, object)
                .map_err(|(field, message)| file.fail(format!("entries[{index}].{field}"), message))?;
            entries.push((index, entry));
        }
    }
}
