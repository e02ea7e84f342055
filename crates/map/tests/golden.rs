//! Runs the scripts in `tests/scripts`: their names are the specification of maps, their contents the examples.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p polyshard-map --test golden` writes what the maps really answer; read it then.

use std::error::Error;
use std::fmt::Write as _;

use goldenscript::{ArgumentConsumer, Command, Context};
use polyshard_map::{
    Change, Delta, Entry, Epoch, GroupName, HashSpec, KeyBytes, KeyRange, KeyType, Map, MapDefinition,
    MapJson, MapName, NewEntry, Scheme, ShardId, State, Step, apply, import, plan_add_shard,
    plan_add_shard_within, plan_remove_shard, spread_buckets, spread_segment,
};
use serde_json::{Map as Object, Value};

type Answer<T> = Result<T, Box<dyn Error>>;

#[test]
fn scripts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("the scripts are beside this file")
        .map(|entry| entry.expect("the folder is readable").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 25, "scripts are missing");
    for path in paths {
        println!("{}", path.display());
        let mut runner = Runner { map: None, now_ms: 0, plan: Vec::new() };
        goldenscript::run(&mut runner, &path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

struct Runner {
    map: Option<Map>,
    now_ms: i64,
    plan: Vec<Step>,
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Answer<String> {
        let mut args = command.consume_args();
        let mut out = String::new();
        match command.name.as_str() {
            "map" => self.make(&mut args)?,
            "spread" => out = self.spread(&mut args)?,
            "clock" => self.now_ms = args.next_pos().ok_or("clock needs milliseconds")?.parse()?,
            "locate" => {
                while let Some(text) = args.next_pos() {
                    out += &self.locate(text)?;
                }
            }
            "encode" => out = encode(&mut args)?,
            "bucket" => out = bucket(&mut args)?,
            "show" => out = self.show(),
            "count" => out = self.count(),
            "export" => out = serde_json::to_string_pretty(&MapJson(self.map()))?,
            "import" => self.map = Some(import(args.next_pos().ok_or("import needs JSON")?.as_bytes())?),
            "round_trip" => self.round_trip()?,
            "plan_add" => out = self.plan(&mut args, Planning::Add)?,
            "plan_remove" => out = self.plan(&mut args, Planning::Remove)?,
            "carry_out" => out = self.carry_out()?,
            verb => {
                let by = args.take_key("by").map(str::to_owned);
                let change = self.change(verb, &mut args)?;
                args.reject_next()?;
                out = self.apply(&change, by.as_deref())?;
            }
        }
        args.reject_next()?;
        Ok(out)
    }
}

enum Planning {
    Add,
    Remove,
}

impl Runner {
    fn map(&self) -> &Map {
        self.map.as_ref().expect("a script begins with `map`")
    }

    fn definition(&self) -> &MapDefinition {
        self.map().definition()
    }

    fn make(&mut self, args: &mut ArgumentConsumer<'_>) -> Answer<()> {
        let name = MapName::new(args.next_pos().unwrap_or("tenants"))?;
        let key_type: KeyType = args.take_key("key").ok_or("key= is missing")?.parse()?;
        let number = |text: Option<&str>, absent: u32| text.map_or(Ok(absent), str::parse);
        let hash = HashSpec::new(
            args.take_key("seed").map_or(Ok(0), str::parse)?,
            number(args.take_key("buckets"), polyshard_map::BUCKETS_DEFAULT)?,
        )?;
        let prefix = number(args.take_key("prefix"), 1)? as usize;
        let segments = Vec::new();
        let scheme = match args.take_key("kind") {
            Some("list") => Scheme::List,
            Some("range") => Scheme::Range,
            Some("hash") => Scheme::Hash(hash),
            Some("range_hash") => Scheme::RangeHash { prefix, hash, segments },
            Some("list_hash") => Scheme::ListHash { prefix, hash, segments },
            other => return Err(format!("kind={other:?}").into()),
        };
        let definition = MapDefinition::new(name, key_type, scheme)?;
        self.map = Some(Map::build(definition, std::iter::empty(), Epoch::ZERO)?);
        Ok(())
    }

    fn spread(&mut self, args: &mut ArgumentConsumer<'_>) -> Answer<String> {
        let shards = shards(args)?;
        let Scheme::Hash(hash) = self.definition().scheme() else {
            return Err("spread is for hash maps".into());
        };
        let change = Change::Add { entries: spread_buckets(hash, &shards)? };
        self.apply(&change, None)
    }

    fn change(&self, verb: &str, args: &mut ArgumentConsumer<'_>) -> Answer<Change> {
        let owner = args.take_key("owner").map(str::to_owned);
        Ok(match verb {
            "add" => {
                let mut entry = NewEntry::new(self.range(args)?, shard(args)?);
                entry.group = args.take_key("group").map(GroupName::new).transpose()?;
                entry.state = args.take_key("state").map_or(Ok(State::Online), str::parse)?;
                Change::Add { entries: vec![entry] }
            }
            "add_keys" => {
                let (to, group) = (shard(args)?, args.take_key("group").map(GroupName::new).transpose()?);
                let mut entries = Vec::new();
                while let Some(text) = args.next_pos() {
                    let key = self.definition().key_type().parse(text)?;
                    let range = KeyRange::point(self.definition().key_type().encode(&key)?);
                    entries.push(NewEntry { group: group.clone(), ..NewEntry::new(range, to.clone()) });
                }
                Change::Add { entries }
            }
            "remove" => Change::Remove { range: self.range(args)? },
            "assign" => Change::Assign { range: self.range(args)?, to: shard(args)? },
            "assign_group" => {
                let group = GroupName::new(args.take_key("group").ok_or("group= is missing")?)?;
                Change::AssignGroup { group, to: shard(args)? }
            }
            "split" => Change::Split { at: self.bound(args)? },
            "merge" => Change::Merge { at: self.bound(args)? },
            "set_state" => {
                let state = args.take_key("state").ok_or("state= is missing")?.parse()?;
                Change::SetState { range: self.range(args)?, state }
            }
            "lock" => {
                let until_ms = args.take_key("until").ok_or("until= is missing")?.parse()?;
                Change::Lock { range: self.range(args)?, owner: owner.ok_or("owner= is missing")?, until_ms }
            }
            "unlock" => Change::Unlock { range: self.range(args)?, owner },
            "add_segment" => {
                let mut object = Object::new();
                self.bounds(args, &mut object)?;
                let segment = self.definition().segment_range_from_json(&object).map_err(field)?;
                let hash = *self.definition().scheme().hash().unwrap_or(&HashSpec::standard());
                let entries = spread_segment(&hash, &segment, &shards(args)?)?;
                Change::AddSegment { segment, entries }
            }
            "split_segment" => Change::SplitSegment {
                segment: self.segment(args, "segment")?,
                at: self.segment(args, "at")?,
            },
            "remove_segment" => Change::RemoveSegment { segment: self.segment(args, "segment")? },
            other => return Err(format!("unknown command {other}").into()),
        })
    }

    fn apply(&mut self, change: &Change, by: Option<&str>) -> Answer<String> {
        let epoch = self.map().epoch().next();
        let window = self.map().window(change);
        let delta = apply(self.definition(), &window, change, by, epoch, self.now_ms)?;
        if delta.is_empty() {
            return Ok("nothing to do\n".to_owned());
        }
        let after = self.map().with(&delta, epoch)?;
        self.check(change, &window, &delta, &after)?;
        let mut out = format!("epoch {epoch}\n");
        for departure in delta.departures(&window) {
            let to = departure.to.map_or("nowhere".to_owned(), |to| to.to_string());
            let range = self.definition().describe_range(&departure.range);
            writeln!(out, "{range} leaves {} for {to}", departure.from)?;
        }
        self.map = Some(after);
        Ok(out)
    }

    /// What holds after every change, whatever it was.
    fn check(&self, change: &Change, window: &[Entry], delta: &Delta, after: &Map) -> Answer<()> {
        let all = KeyRange::all();
        let again = Map::build(after.definition().clone(), after.entries(&all), after.epoch())?;
        assert!(again == *after, "the changed map differs from one built anew");
        let leaves = !delta.departures(window).is_empty();
        assert!(!leaves || change.takes_rights_away(), "a change that needs no fence moved something");
        let text = serde_json::to_string(delta)?;
        assert!(serde_json::from_str::<Delta>(&text)? == *delta, "a stored delta differs");
        let text = serde_json::to_string(change)?;
        assert!(serde_json::from_str::<Change>(&text)? == *change, "a stored change differs");
        Ok(())
    }

    fn locate(&self, text: &str) -> Answer<String> {
        let key = self.definition().key_type().parse(text)?;
        Ok(match self.map().locate(&key) {
            Ok(found) => {
                let range = self.definition().describe_range(&found.range());
                format!("{text} → {} ({range}, {}, epoch {})\n", found.shard(), found.state(), found.epoch())
            }
            Err(e) => format!("{text} → {e}\n"),
        })
    }

    fn show(&self) -> String {
        let mut out = String::new();
        for entry in self.map().entries(&KeyRange::all()) {
            let _ = write!(out, "{} → {}", self.definition().describe_range(&entry.range), entry.shard);
            if entry.state != State::Online {
                let _ = write!(out, " {}", entry.state);
            }
            if let Some(group) = entry.group {
                let _ = write!(out, " group {group}");
            }
            if let Some(lock) = entry.lock {
                let _ = write!(out, " locked by {} until {}", lock.owner(), lock.until_ms());
            }
            let _ = writeln!(out, " @{}", entry.epoch);
        }
        if out.is_empty() { "nothing is mapped\n".to_owned() } else { out }
    }

    /// Buckets of hashed maps, entries of others.
    fn count(&self) -> String {
        let mut counts = std::collections::BTreeMap::<ShardId, u32>::new();
        for entry in self.map().entries(&KeyRange::all()) {
            let bucket =
                |bound: &KeyBytes| self.definition().bucket_of(bound.as_slice()).map(|(_, bucket)| bucket);
            let size = match (bucket(entry.range.lo()), entry.range.hi().and_then(bucket)) {
                (Some(from), Some(to)) => to - from,
                _ => 1,
            };
            *counts.entry(entry.shard).or_default() += size;
        }
        counts.into_iter().map(|(shard, count)| format!("{shard}: {count}\n")).collect()
    }

    fn round_trip(&self) -> Answer<()> {
        let text = serde_json::to_vec(&MapJson(self.map()))?;
        assert!(import(&text)? == *self.map(), "an imported map differs from the exported one");
        Ok(())
    }

    fn plan(&mut self, args: &mut ArgumentConsumer<'_>, planning: Planning) -> Answer<String> {
        let within = args.take_key("segment").map(|text| self.segment_value(text)).transpose()?;
        let shard = ShardId::new(args.next_pos().ok_or("name a shard")?)?;
        self.plan = match (planning, within) {
            (Planning::Add, None) => plan_add_shard(self.map(), &shard)?,
            (Planning::Add, Some(lo)) => {
                let buckets = self.definition().scheme().hash().map_or(0, HashSpec::buckets);
                plan_add_shard_within(
                    self.map(),
                    &self.definition().segment_buckets(&lo, 0, buckets)?,
                    &shard,
                )?
            }
            (Planning::Remove, _) => plan_remove_shard(self.map(), &shard)?,
        };
        let mut out = String::new();
        for Step { range, from, to } in &self.plan {
            writeln!(out, "{} from {from} to {to}", self.definition().describe_range(range))?;
        }
        Ok(if out.is_empty() { "nothing moves\n".to_owned() } else { out })
    }

    fn carry_out(&mut self) -> Answer<String> {
        for Step { range, to, .. } in std::mem::take(&mut self.plan) {
            self.apply(&Change::Assign { range, to }, None)?;
        }
        Ok(self.count())
    }

    /// `key=K`, `range=LO..HI` (a side left empty is infinite), `buckets=A..B`, with `segment=S` in composite maps.
    fn range(&self, args: &mut ArgumentConsumer<'_>) -> Answer<KeyRange> {
        let mut object = Object::new();
        if let Some(text) = args.take_key("buckets") {
            let (from, to) = text.split_once("..").ok_or("buckets=A..B")?;
            object.insert("from".to_owned(), serde_json::from_str(from)?);
            object.insert("to".to_owned(), serde_json::from_str(to)?);
        }
        if let Some(text) = args.take_key("segment") {
            object
                .insert("segment".to_owned(), self.definition().segment_to_json(&self.segment_value(text)?));
        }
        if self.definition().scheme().hash().is_some() && args.take_key("range") == Some("..") {
            return Ok(KeyRange::all());
        }
        self.bounds(args, &mut object)?;
        self.definition().range_from_json(&object).map_err(field)
    }

    fn bounds(&self, args: &mut ArgumentConsumer<'_>, object: &mut Object<String, Value>) -> Answer<()> {
        if let Some(text) = args.take_key("key") {
            object.insert("key".to_owned(), value(text));
        }
        if let Some(text) = args.take_key("range") {
            let (from, to) = text.split_once("..").ok_or("range=LO..HI")?;
            for (side, text) in [("from", from), ("to", to)].into_iter().filter(|(_, text)| !text.is_empty())
            {
                object.insert(side.to_owned(), value(text));
            }
        }
        Ok(())
    }

    /// `at=K`, or `bucket=N` with `segment=S` in composite maps.
    fn bound(&self, args: &mut ArgumentConsumer<'_>) -> Answer<KeyBytes> {
        let mut object = Object::new();
        if let Some(text) = args.take_key("bucket") {
            let bucket: u32 = text.parse()?;
            let buckets = self.definition().scheme().hash().map_or(0, HashSpec::buckets);
            let segment = args.take_key("segment").map(|text| self.segment_value(text)).transpose()?;
            let range = match segment {
                Some(lo) if bucket < buckets => self.definition().segment_buckets(&lo, bucket, buckets)?,
                _ if bucket < buckets => self.definition().buckets(bucket, buckets)?,
                _ => return Ok(KeyBytes::new(bucket.to_be_bytes().to_vec())),
            };
            return Ok(range.lo().clone());
        }
        object.insert("from".to_owned(), value(args.take_key("at").ok_or("at= is missing")?));
        Ok(self.definition().range_from_json(&object).map_err(field)?.lo().clone())
    }

    fn segment(&self, args: &mut ArgumentConsumer<'_>, name: &str) -> Answer<KeyBytes> {
        self.segment_value(args.take_key(name).ok_or("a segment is missing")?)
    }

    fn segment_value(&self, text: &str) -> Answer<KeyBytes> {
        let value = if text.is_empty() { Value::Null } else { value(text) };
        Ok(self.definition().segment_from_json(&value)?)
    }
}

/// An array or object is JSON; all else is the text of a key.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Array(_) | Value::Object(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

fn field((field, message): (String, String)) -> Box<dyn Error> {
    format!("{field}: {message}").into()
}

fn shard(args: &mut ArgumentConsumer<'_>) -> Answer<ShardId> {
    Ok(ShardId::new(args.take_key("shard").ok_or("shard= is missing")?)?)
}

fn shards(args: &mut ArgumentConsumer<'_>) -> Answer<Vec<ShardId>> {
    std::iter::from_fn(|| args.next_pos()).map(|name| Ok(ShardId::new(name)?)).collect()
}

fn encode(args: &mut ArgumentConsumer<'_>) -> Answer<String> {
    let key_type: KeyType = args.take_key("key").ok_or("key= is missing")?.parse()?;
    let mut out = String::new();
    while let Some(text) = args.next_pos() {
        let key = key_type.parse(text)?;
        writeln!(out, "{key} = {}", key_type.encode(&key)?.to_hex())?;
    }
    Ok(out)
}

fn bucket(args: &mut ArgumentConsumer<'_>) -> Answer<String> {
    let key_type: KeyType = args.take_key("key").ok_or("key= is missing")?.parse()?;
    let seed = args.take_key("seed").map_or(Ok(0), str::parse)?;
    let spec = HashSpec::new(seed, args.take_key("buckets").map_or(Ok(1024), str::parse)?)?;
    let mut out = String::new();
    while let Some(text) = args.next_pos() {
        writeln!(out, "{text} → bucket {}", spec.bucket(&key_type.parse(text)?))?;
    }
    Ok(out)
}
