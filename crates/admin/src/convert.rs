//! Between what operators write and what the map crate works on; pure, so that every operator reads keys the same way.

use polyshard_map::{
    Change, ChangeError, Entry, HASH_FUNCTION, HashSpec, KeyBytes, KeyRange, KeyType, LocateError,
    MapDefinition, NameError, NewEntry, Scheme, Segment, State,
};
use serde_json::{Map as Object, Value};

use crate::problem::{ErrorCode, Problem};
use crate::types::{
    AddSegmentChange, ChangeRequest, EntryView, HashView, KeyText, LockView, MapKind, NewMap, RangeView,
};

/// The longest lease of a lock: a day. Whoever needs longer renews it, and shows by that to be alive.
pub const LEASE_MS_MAX: u64 = 24 * 3_600_000;

/// The definition of a map to make; it has no segments yet.
pub fn read_definition(new: &NewMap) -> Result<MapDefinition, Problem> {
    let key_type: KeyType = new.key.parse().map_err(|e| Problem::invalid("key", format!("{e}")))?;
    let spec = HashSpec::standard();
    let hash = HashSpec::new(new.seed.unwrap_or(spec.seed()), new.buckets.unwrap_or(spec.buckets()))
        .map_err(|e| Problem::invalid("buckets", e.to_string()))?;
    let prefix = new.prefix.map_or(1, |prefix| prefix as usize);
    let misplaced = [
        ("buckets", new.buckets.is_some() && !new.kind.hashes()),
        ("seed", new.seed.is_some() && !new.kind.hashes()),
        ("prefix", new.prefix.is_some() && !new.kind.is_composite()),
        ("shards", new.shards.is_some() && new.kind != MapKind::Hash),
    ];
    if let Some((field, _)) = misplaced.iter().find(|(_, is_misplaced)| *is_misplaced) {
        return Err(Problem::invalid(*field, format!("a map of kind {} has no {field}", new.kind))
            .with_remedy(format!("leave {field} out, or choose another kind")));
    }
    let scheme = match new.kind {
        MapKind::List => Scheme::List,
        MapKind::Range => Scheme::Range,
        MapKind::Hash => Scheme::Hash(hash),
        MapKind::RangeHash => Scheme::RangeHash { prefix, hash, segments: Vec::new() },
        MapKind::ListHash => Scheme::ListHash { prefix, hash, segments: Vec::new() },
    };
    MapDefinition::new(new.name.clone(), key_type, scheme)
        .map_err(|e| Problem::invalid("prefix", e.to_string()))
}

/// The kind of a scheme.
pub fn kind_view(scheme: &Scheme) -> MapKind {
    match scheme {
        Scheme::List => MapKind::List,
        Scheme::Range => MapKind::Range,
        Scheme::Hash(_) => MapKind::Hash,
        Scheme::RangeHash { .. } => MapKind::RangeHash,
        Scheme::ListHash { .. } => MapKind::ListHash,
    }
}

/// The hash of a scheme that has one.
pub fn hash_view(scheme: &Scheme) -> Option<HashView> {
    let hash = scheme.hash()?;
    Some(HashView { function: HASH_FUNCTION.to_owned(), seed: hash.seed(), buckets: hash.buckets() })
}

/// A range as people read it.
pub fn range_view(definition: &MapDefinition, range: &KeyRange) -> RangeView {
    let mut object = definition.range_to_json(range);
    let mut side = |name: &str| object.remove(name).filter(|value| !value.is_null()).map(KeyText::from);
    let (segment, key, from, to) = (side("segment"), side("key"), side("from"), side("to"));
    let Some(hash) = definition.scheme().hash() else {
        return match key {
            Some(key) => RangeView::Key { key },
            None => RangeView::Keys { from, to },
        };
    };
    let bucket =
        |side: Option<KeyText>| side.and_then(|s| s.json().as_u64()).and_then(|n| u32::try_from(n).ok());
    let buckets = (bucket(from).unwrap_or(0), bucket(to).unwrap_or(hash.buckets()));
    match definition.scheme().prefix() {
        Some(_) => RangeView::Segment { segment, buckets },
        None => RangeView::Buckets { buckets },
    }
}

/// An entry as people read it; a lock that has expired is none.
pub fn entry_view(definition: &MapDefinition, entry: &Entry, now_ms: i64) -> EntryView {
    let lock = entry.lock.as_ref().filter(|lock| lock.holds_at(now_ms));
    EntryView {
        range: range_view(definition, &entry.range),
        shard: entry.shard.clone(),
        state: entry.state,
        epoch: entry.epoch.get(),
        group: entry.group.clone(),
        lock: lock.map(|lock| LockView { owner: lock.owner().to_owned(), until_ms: lock.until_ms() }),
    }
}

/// The range an operator wrote; `field` is where it stood in the request.
pub fn read_range(definition: &MapDefinition, range: &RangeView, field: &str) -> Result<KeyRange, Problem> {
    let buckets = |(from, to): &(u32, u32)| [("from", Value::from(*from)), ("to", Value::from(*to))];
    let key = |value: &KeyText, name: &str| whole_key(definition, value, &format!("{field}.{name}"));
    let hashes = definition.scheme().hash().is_some();
    let object: Object<String, Value> = match range {
        RangeView::Keys { from: None, to: None } => return Ok(KeyRange::all()),
        RangeView::Key { .. } | RangeView::Keys { .. } if hashes => {
            return Err(Problem::invalid(field, format!("map {} places keys by bucket", definition.name()))
                .with_remedy(
                    "name buckets, for example {\"buckets\": [0, 256]}; locate a key to learn its bucket",
                ));
        }
        RangeView::Buckets { .. } | RangeView::Segment { .. } if !hashes => {
            return Err(Problem::invalid(field, format!("map {} has no buckets", definition.name()))
                .with_remedy("name a key or a range of keys"));
        }
        RangeView::Key { key: value } => Object::from_iter([("key".to_owned(), key(value, "key")?)]),
        RangeView::Keys { from, to } => {
            let mut object = Object::new();
            for (name, side) in [("from", from), ("to", to)] {
                if let Some(value) = side {
                    object.insert(name.to_owned(), key(value, name)?);
                }
            }
            object
        }
        RangeView::Buckets { buckets: pair } => {
            buckets(pair).map(|(name, n)| (name.to_owned(), n)).into_iter().collect()
        }
        RangeView::Segment { segment, buckets: pair } => {
            let segment = segment_key(definition, segment.as_ref(), field)?;
            let pair = buckets(pair).map(|(name, n)| (name.to_owned(), n));
            pair.into_iter().chain([("segment".to_owned(), segment)]).collect()
        }
    };
    read_bounds(definition, &object, field)
}

/// The change an operator asked for, over placement bytes; leases begin at `now_ms`.
pub fn read_change(
    definition: &MapDefinition,
    change: &ChangeRequest,
    now_ms: i64,
) -> Result<Change, Problem> {
    Ok(match change {
        ChangeRequest::Add(add) => {
            let entries = add.entries.iter().enumerate().map(|(i, entry)| {
                let shard = entry.shard.clone().ok_or_else(|| {
                    Problem::invalid(format!("add.entries[{i}].shard"), "it is not said which shard")
                        .with_remedy("name a shard")
                })?;
                Ok(NewEntry {
                    range: read_range(definition, &entry.range, &format!("add.entries[{i}].range"))?,
                    shard,
                    state: entry.state.unwrap_or(State::Online),
                    group: entry.group.clone(),
                })
            });
            Change::Add { entries: entries.collect::<Result<_, Problem>>()? }
        }
        ChangeRequest::Remove(remove) => {
            Change::Remove { range: read_range(definition, &remove.range, "remove.range")? }
        }
        ChangeRequest::Assign(assign) => match (&assign.range, &assign.group) {
            (Some(range), None) => Change::Assign {
                range: read_range(definition, range, "assign.range")?,
                to: assign.to.clone(),
            },
            (None, Some(group)) => Change::AssignGroup { group: group.clone(), to: assign.to.clone() },
            _ => {
                return Err(Problem::invalid("assign", "an assignment is of one range or of one group")
                    .with_remedy("give exactly one of range and group"));
            }
        },
        ChangeRequest::Split(split) => {
            Change::Split { at: read_bound(definition, &split.at, split.segment.as_ref(), "split")? }
        }
        ChangeRequest::Merge(merge) => {
            Change::Merge { at: read_bound(definition, &merge.at, merge.segment.as_ref(), "merge")? }
        }
        ChangeRequest::SetState(set) => Change::SetState {
            range: read_range(definition, &set.range, "set_state.range")?,
            state: set.state,
        },
        ChangeRequest::Lock(lock) => {
            if !(1..=LEASE_MS_MAX).contains(&lock.lease_ms) {
                let message = format!("a lease of {} ms: it lasts 1 to {LEASE_MS_MAX} ms", lock.lease_ms);
                return Err(Problem::invalid("lock.lease_ms", message)
                    .with_remedy("renew the lock to hold it longer"));
            }
            Change::Lock {
                range: read_range(definition, &lock.range, "lock.range")?,
                owner: lock.owner.clone(),
                until_ms: now_ms.saturating_add_unsigned(lock.lease_ms),
            }
        }
        ChangeRequest::Unlock(unlock) => Change::Unlock {
            range: read_range(definition, &unlock.range, "unlock.range")?,
            owner: unlock.owner.clone(),
        },
        ChangeRequest::AddSegment(add) => read_add_segment(definition, add)?,
        ChangeRequest::SplitSegment(split) => Change::SplitSegment {
            segment: read_segment(definition, split.segment.as_ref(), "split_segment.segment")?,
            at: read_segment(definition, Some(&split.at), "split_segment.at")?,
        },
        ChangeRequest::RemoveSegment(remove) => Change::RemoveSegment {
            segment: read_segment(definition, remove.segment.as_ref(), "remove_segment.segment")?,
        },
    })
}

fn read_add_segment(definition: &MapDefinition, add: &AddSegmentChange) -> Result<Change, Problem> {
    let field = "add_segment.segment";
    let mut object = Object::new();
    match &add.segment {
        RangeView::Key { key } => {
            object.insert("key".to_owned(), segment_key(definition, Some(key), field)?);
        }
        RangeView::Keys { from, to } => {
            for (name, side) in [("from", from), ("to", to)] {
                if side.is_some() {
                    object.insert(name.to_owned(), segment_key(definition, side.as_ref(), field)?);
                }
            }
        }
        RangeView::Buckets { .. } | RangeView::Segment { .. } => {
            return Err(Problem::invalid(field, "a segment is of leading keys, not of buckets")
                .with_remedy("give key, or from and to"));
        }
    }
    let hash = definition.scheme().hash().filter(|_| definition.scheme().prefix().is_some());
    let hash = hash.ok_or_else(|| no_segments(definition, field))?;
    let segment: Segment = definition
        .segment_range_from_json(&object)
        .map_err(|(name, message)| Problem::invalid(format!("{field}.{name}"), message))?;
    let entries = polyshard_map::spread_segment(hash, &segment, &add.shards)
        .map_err(|e| Problem::invalid("add_segment.shards", e.to_string()))?;
    Ok(Change::AddSegment { segment, entries })
}

/// Where entries meet, or shall meet: a key, or a bucket number.
fn read_bound(
    definition: &MapDefinition,
    at: &KeyText,
    segment: Option<&KeyText>,
    field: &str,
) -> Result<KeyBytes, Problem> {
    let mut object = Object::new();
    if definition.scheme().hash().is_some() {
        // The command line sends every key as text; here it must be the number of a bucket.
        let number = at.json().as_u64().or_else(|| at.json().as_str().and_then(|text| text.parse().ok()));
        let number = number.ok_or_else(|| {
            Problem::invalid(format!("{field}.at"), format!("{at} is not the number of a bucket"))
        })?;
        object.insert("from".to_owned(), number.into());
    } else {
        object.insert("from".to_owned(), whole_key(definition, at, &format!("{field}.at"))?);
    }
    if segment.is_some() || definition.scheme().prefix().is_some() {
        object.insert("segment".to_owned(), segment_key(definition, segment, field)?);
    }
    let range = definition.range_from_json(&object).map_err(|(name, message)| {
        let name = if name == "segment" { "segment" } else { "at" };
        Problem::invalid(format!("{field}.{name}"), message)
    })?;
    Ok(range.lo().clone())
}

fn read_bounds(
    definition: &MapDefinition,
    object: &Object<String, Value>,
    field: &str,
) -> Result<KeyRange, Problem> {
    definition
        .range_from_json(object)
        .map_err(|(name, message)| Problem::invalid(format!("{field}.{name}"), message))
}

fn read_segment(definition: &MapDefinition, key: Option<&KeyText>, field: &str) -> Result<KeyBytes, Problem> {
    only_composite(definition, field)?;
    let value = segment_key(definition, key, field)?;
    definition.segment_from_json(&value).map_err(|e| Problem::invalid(field, e.to_string()))
}

fn only_composite(definition: &MapDefinition, field: &str) -> Result<(), Problem> {
    match definition.scheme().prefix() {
        Some(_) => Ok(()),
        None => Err(no_segments(definition, field)),
    }
}

fn no_segments(definition: &MapDefinition, field: &str) -> Problem {
    let (name, kind) = (definition.name(), definition.scheme().kind());
    Problem::invalid(field, format!("map {name} is of kind {kind} and has no segments"))
}

fn whole_key(definition: &MapDefinition, key: &KeyText, field: &str) -> Result<Value, Problem> {
    parts(key, definition.key_type().components().len(), field)
}

fn segment_key(definition: &MapDefinition, key: Option<&KeyText>, field: &str) -> Result<Value, Problem> {
    match key {
        Some(key) => parts(key, definition.scheme().prefix().unwrap_or(1), field),
        None => Ok(Value::Null),
    }
}

/// A tuple may come as the text of a JSON array, as on a command line; other keys are read from text as they are.
fn parts(key: &KeyText, count: usize, field: &str) -> Result<Value, Problem> {
    match key.json() {
        Value::String(text) if count > 1 => serde_json::from_str(text).map_err(|_| {
            Problem::invalid(field, format!("{text:?} is not a key of several parts"))
                .with_remedy("write it as a JSON array, for example [\"eu\", 7]")
        }),
        value => Ok(value.clone()),
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Problem {
        let code = match &error {
            ChangeError::Locked { .. } => ErrorCode::Locked,
            ChangeError::Overlap { .. }
            | ChangeError::Gap { .. }
            | ChangeError::NotABoundary { .. }
            | ChangeError::NotInside { .. }
            | ChangeError::MergeDiffers { .. }
            | ChangeError::NotLocked { .. }
            | ChangeError::UnknownGroup { .. }
            | ChangeError::GroupElsewhere { .. } => ErrorCode::Conflict,
            _ => ErrorCode::Invalid,
        };
        // The map crate ends each message with the remedy.
        let text = error.to_string();
        match text.rsplit_once(": ") {
            Some((message, remedy)) => Problem::new(code, message).with_remedy(remedy),
            None => Problem::new(code, text),
        }
    }
}

impl From<LocateError> for Problem {
    fn from(error: LocateError) -> Problem {
        match &error {
            LocateError::Gap { map, key } => Problem::not_found(format!("map {map} has no entry for {key}"))
                .with_remedy("add an entry for it, or correct the key"),
            LocateError::WrongType { .. } => Problem::invalid("key", error.to_string()),
        }
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Problem {
        Problem::new(ErrorCode::Invalid, error.to_string())
    }
}
