//! The JSON form of a map, for people and other programs: written one entry at a time.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::definition::MapDefinition;
use crate::entry::State;
use crate::map::{Located, Map};
use crate::range::KeyRange;

/// The version of the form that is written; an older one is kept as a test.
pub const JSON_FORMAT: u64 = 1;

/// Serializes a map in its JSON form, without holding it as a whole: `serde_json::to_writer(out, &MapJson(&map))`.
#[derive(Clone, Copy, Debug)]
pub struct MapJson<'m>(pub &'m Map);

impl Serialize for MapJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let definition = self.0.definition();
        let scheme = definition.scheme();
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("format", &JSON_FORMAT)?;
        object.serialize_entry("name", definition.name())?;
        object.serialize_entry("kind", scheme.kind())?;
        object.serialize_entry("key", definition.key_type())?;
        if let Some(prefix) = scheme.prefix() {
            object.serialize_entry("prefix", &prefix)?;
        }
        if let Some(hash) = scheme.hash() {
            object.serialize_entry("hash", hash)?;
        }
        if scheme.prefix().is_some() {
            let segments = scheme.segments().iter().map(|segment| definition.segment_range_to_json(segment));
            object.serialize_entry("segments", &segments.map(Value::Object).collect::<Vec<_>>())?;
        }
        object.serialize_entry("epoch", &self.0.epoch())?;
        object.serialize_entry("entries", &Entries(self.0))?;
        object.end()
    }
}

struct Entries<'m>(&'m Map);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for located in self.0.located(&KeyRange::all()) {
            list.serialize_element(&EntryJson { map: self.0, located })?;
        }
        list.end()
    }
}

/// What is usual is left out: the state online, the map's own epoch, no group, no lock.
struct EntryJson<'m> {
    map: &'m Map,
    located: Located<'m>,
}

impl Serialize for EntryJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let definition: &MapDefinition = self.map.definition();
        let mut object = serializer.serialize_map(None)?;
        let range = definition.range_to_json(&self.located.range());
        // The order people read: which segment, from where, to where.
        for field in ["segment", "key", "from", "to"] {
            if let Some(value) = range.get(field) {
                object.serialize_entry(field, value)?;
            }
        }
        object.serialize_entry("shard", self.located.shard())?;
        if self.located.state() != State::Online {
            object.serialize_entry("state", &self.located.state())?;
        }
        if self.located.epoch() != self.map.epoch() {
            object.serialize_entry("epoch", &self.located.epoch())?;
        }
        if let Some(group) = self.located.group() {
            object.serialize_entry("group", group)?;
        }
        if let Some(lock) = self.located.lock() {
            object.serialize_entry("lock", &json!({"owner": lock.owner(), "until_ms": lock.until_ms()}))?;
        }
        object.end()
    }
}
