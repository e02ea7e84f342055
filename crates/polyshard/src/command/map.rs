//! `polyshard map`: which key is on which shard.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use polyshard_admin::types::{
    ChangeRequest, MapKind, NewMap, PageRequest, RepairMode, RepairRequest, RepairSource,
};
use polyshard_admin::{Client, IMPORT_BYTES_MAX, Problem};
use polyshard_map::{MapName, ShardId};

use super::change::{
    AddArgs, AddSegmentArgs, AssignArgs, BoundaryArgs, ChangeArgs, LockArgs, RemoveArgs, RemoveSegmentArgs,
    SplitSegmentArgs, StateArgs, UnlockArgs,
};
use super::map_words::{check_words, details, entry_table, map_table, repair_words};
use super::{BasisFlag, explicit_word};
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::table::pairs;

/// Maps: which key is on which shard.
#[derive(Debug, Subcommand)]
pub enum MapCommand {
    /// Make a map; a hash map is spread over all shards, or those named
    #[command(after_help = "\
Examples:
  polyshard map create tenants --kind hash --key bigint
  polyshard map create orders --kind hash --key uuid --buckets 256 --shards s1,s2
  polyshard map create customers --kind list --key text
  polyshard map create events --kind range_hash --key '(date, bigint)'")]
    Create(CreateArgs),
    /// All maps
    #[command(after_help = "Examples:\n  polyshard map list")]
    List,
    /// One map, and how its entries are spread over shards
    #[command(after_help = "Examples:\n  polyshard map show tenants")]
    Show {
        /// The map
        name: MapName,
    },
    /// The entries of a map, page by page
    #[command(after_help = "\
Examples:
  polyshard map entries tenants
  polyshard map entries tenants --limit 1000 --after CURSOR")]
    Entries {
        /// The map
        name: MapName,
        /// Go on after the page that ended with this cursor
        #[arg(long, value_name = "CURSOR", allow_hyphen_values = true)]
        after: Option<String>,
        /// Entries in a page, at most 10000
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
    },
    /// Where a key is
    #[command(after_help = "\
Examples:
  polyshard map locate tenants 42
  polyshard map locate tenants -7 --json
  polyshard map locate events '[\"2024-01-31\", 7]'")]
    Locate {
        /// The map
        name: MapName,
        /// The key
        #[arg(allow_hyphen_values = true)]
        key: String,
    },
    /// Map keys that are not mapped yet
    #[command(after_help = "\
Examples:
  polyshard map add customers --key acme               to the emptiest shard that has room
  polyshard map add customers --key acme --to s1
  polyshard map add customers --key oslo --to s2 --group scandinavia
  polyshard map add orders --range 0..1000 --to s1
  polyshard map add orders --range 1000.. --to s2")]
    Add(AddArgs),
    /// Take keys out of the map
    #[command(after_help = "Examples:\n  polyshard map remove customers --key acme")]
    Remove(RemoveArgs),
    /// Cut an entry in two; both parts stay on its shard
    #[command(after_help = "\
Examples:
  polyshard map split orders --at 500
  polyshard map split tenants --at 128        a hash map: before bucket 128")]
    Split(BoundaryArgs),
    /// Join the two entries that meet at a boundary and are on one shard
    #[command(after_help = "Examples:\n  polyshard map merge orders --at 500")]
    Merge(BoundaryArgs),
    /// Point keys that hold no data at another shard
    #[command(after_help = "\
Examples:
  polyshard map assign tenants --buckets 0..64 --to s3
  polyshard map assign customers --group scandinavia --to s2
  polyshard map assign orders --range 500..1000 --to s4 --if-version 7")]
    Assign(AssignArgs),
    /// Take keys offline, make them read-only, or bring them back
    #[command(after_help = "\
Examples:
  polyshard map state customers read_only --key acme
  polyshard map state orders online --range ..")]
    State(StateArgs),
    /// Keep others from changing a part of the map, for a while
    #[command(
        after_help = "Examples:\n  polyshard map lock orders --range 0..1000 --owner alice --lease 30m"
    )]
    Lock(LockArgs),
    /// Give a lock back, or break it
    #[command(after_help = "\
Examples:
  polyshard map unlock orders --range 0..1000 --owner alice
  polyshard map unlock orders --range .. --force")]
    Unlock(UnlockArgs),
    /// Add a segment to a composite map, its buckets spread over shards
    #[command(after_help = "\
Examples:
  polyshard map add-segment events --range 2024-01-01..2024-02-01 --shards s1,s2")]
    AddSegment(AddSegmentArgs),
    /// Cut a segment of a composite map in two, before anything is placed by the map
    #[command(
        after_help = "Examples:\n  polyshard map split-segment events --segment 2024-01-01 --at 2024-01-15"
    )]
    SplitSegment(SplitSegmentArgs),
    /// Take a segment out of a composite map
    #[command(after_help = "Examples:\n  polyshard map remove-segment events --segment 2024-01-01")]
    RemoveSegment(RemoveSegmentArgs),
    /// The map as a JSON document
    #[command(after_help = "\
Examples:
  polyshard map export tenants > tenants.json
  polyshard map export tenants --output tenants.json")]
    Export {
        /// The map
        name: MapName,
        /// Write it to this file instead of stdout
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make a map from an exported document
    #[command(after_help = "\
Examples:
  polyshard map import tenants.json
  polyshard map import - < tenants.json")]
    Import {
        /// The document, '-' for stdin
        file: PathBuf,
    },
    /// Compare the catalog with the shards' local maps; exits with 4 when they differ, 5 when a shard cannot be asked
    #[command(after_help = "Examples:\n  polyshard map check tenants")]
    Check {
        /// The map
        name: MapName,
    },
    /// Rebuild the catalog from the shards, or the other way round; only shows what it would do without --apply
    #[command(after_help = "\
Examples:
  polyshard map repair tenants --from shards
  polyshard map repair tenants --from shards --apply
  polyshard map repair tenants --from catalog --shard s2 --apply")]
    Repair {
        /// The map
        name: MapName,
        /// The side that is believed
        #[arg(long, value_enum)]
        from: Source,
        /// Only this shard
        #[arg(long)]
        shard: Option<ShardId>,
        /// Do it
        #[arg(long)]
        apply: bool,
    },
    /// Let new data of a range map flow to another shard; nothing is moved
    Spill(super::spill::SpillArgs),
    /// Drop a map; one whose keys hold data is refused without the explicit word
    #[command(after_help = "\
Examples:
  polyshard map drop tenants
  polyshard map drop tenants --destroy tenants     even if its keys hold data")]
    Drop {
        /// The map
        name: MapName,
        /// Its name once more: drop it even if its keys hold data
        #[arg(long, value_name = "NAME")]
        destroy: Option<String>,
        #[command(flatten)]
        basis: BasisFlag,
    },
}

/// A map to make.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Its name: a lower-case letter, then a-z, 0-9, '_' and '-'
    name: MapName,
    /// How keys are placed
    #[arg(long, value_enum)]
    kind: Kind,
    /// The key type: int, bigint, uuid, binary, text, timestamp, date, or a tuple such as '(text, bigint)'
    #[arg(long, value_name = "TYPE")]
    key: String,
    /// Buckets of a map that hashes [default: 1024]
    #[arg(long, value_name = "N")]
    buckets: Option<u32>,
    /// Seed of a map that hashes [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seed: Option<i64>,
    /// How many leading key parts choose the segment of a composite map [default: 1]
    #[arg(long, value_name = "N")]
    prefix: Option<u32>,
    /// The shards a hash map is spread over [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SHARD,…")]
    shards: Option<Vec<ShardId>>,
}

/// How keys are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kind {
    /// Single keys, each listed
    List,
    /// Ranges of keys
    Range,
    /// Buckets that the key is hashed to
    Hash,
    /// Ranges of the leading key parts, and buckets within each
    RangeHash,
    /// Listed leading key parts, and buckets within each
    ListHash,
}

impl From<Kind> for MapKind {
    fn from(kind: Kind) -> MapKind {
        match kind {
            Kind::List => MapKind::List,
            Kind::Range => MapKind::Range,
            Kind::Hash => MapKind::Hash,
            Kind::RangeHash => MapKind::RangeHash,
            Kind::ListHash => MapKind::ListHash,
        }
    }
}

/// The side a repair believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// Write the shards' local maps from the catalog
    Catalog,
    /// Write the catalog from the shards' local maps
    Shards,
}

/// Runs the command.
pub fn run(command: &MapCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let change = |args: &ChangeArgs, request: ChangeRequest| change(client, output, args, &request);
    match command {
        MapCommand::Create(args) => {
            let map = client.create_map(&new_map(args))?;
            output.answer(&map, |map| format!("Created map {} ({}, key {}).", map.name, map.kind, map.key))
        }
        MapCommand::Spill(args) => super::spill::run(args, client, output),
        MapCommand::List => output.answer(&client.maps()?, |answer| map_table(&answer.maps)),
        MapCommand::Show { name } => output.answer(&client.map(name)?, details),
        MapCommand::Entries { name, after, limit } => {
            let page = PageRequest { after: after.clone(), limit: *limit };
            output.answer(&client.entries(name, &page)?, entry_table)
        }
        MapCommand::Locate { name, key } => output.answer(&client.locate(name, key)?, |located| {
            pairs([
                ("key", located.key.to_string()),
                ("shard", located.shard.to_string()),
                ("range", located.range.to_string()),
                ("state", located.state.to_string()),
                ("epoch", located.epoch.to_string()),
            ])
        }),
        MapCommand::Add(args) => change(&args.change, args.request()),
        MapCommand::Remove(args) => change(&args.change, args.request()),
        MapCommand::Split(args) => change(&args.change, args.split()),
        MapCommand::Merge(args) => change(&args.change, args.merge()),
        MapCommand::Assign(args) => change(&args.change, args.request()),
        MapCommand::State(args) => change(&args.change, args.request()),
        MapCommand::Lock(args) => change(&args.change, args.request()),
        MapCommand::Unlock(args) => change(&args.change, args.request()),
        MapCommand::AddSegment(args) => change(&args.change, args.request()),
        MapCommand::SplitSegment(args) => change(&args.change, args.request()),
        MapCommand::RemoveSegment(args) => change(&args.change, args.request()),
        MapCommand::Export { name, output: file } => export(client, output, name, file.as_deref()),
        MapCommand::Import { file } => {
            let map = client.import_map(&read_document(file)?)?;
            output.answer(&map, |map| format!("Imported map {} with {} entries.", map.name, map.entries))
        }
        MapCommand::Check { name } => {
            let check = client.check_map(name)?;
            output.answer(&check, check_words)?;
            Ok(match (check.differences.is_empty(), check.unreachable.is_empty()) {
                (false, _) => Exit::Conflict,
                (true, false) => Exit::Unavailable,
                (true, true) => Exit::Ok,
            })
        }
        MapCommand::Repair { name, from, shard, apply } => {
            let from = match from {
                Source::Catalog => RepairSource::Catalog,
                Source::Shards => RepairSource::Shards,
            };
            let mode = if *apply { RepairMode::Apply } else { RepairMode::Plan };
            let request = RepairRequest { from, shard: shard.clone(), mode };
            output.answer(&client.repair_map(name, &request)?, repair_words)
        }
        MapCommand::Drop { name, destroy, basis } => {
            let data = explicit_word(destroy.as_deref(), name.as_str())?;
            client.drop_map(name, data, basis.basis())?;
            output.answer(&serde_json::json!({ "dropped": name }), |_| format!("Dropped map {name}."))
        }
    }
}

fn change(
    client: &Client,
    output: &Output,
    args: &ChangeArgs,
    request: &ChangeRequest,
) -> Result<Exit, Failure> {
    let answer = client.change(&args.name, request, args.lock_owner.as_deref(), args.basis.basis())?;
    output.answer(&answer, |answer| {
        let map = &answer.map;
        let placed = answer.placed.iter().map(|one| format!("{} goes to shard {}.\n", one.range, one.shard));
        let placed: String = placed.collect();
        format!("{placed}Changed map {}; its version is {}, its epoch {}.", map.name, map.version, map.epoch)
    })
}

fn new_map(args: &CreateArgs) -> NewMap {
    NewMap {
        name: args.name.clone(),
        kind: args.kind.into(),
        key: args.key.clone(),
        buckets: args.buckets,
        seed: args.seed,
        prefix: args.prefix,
        shards: args.shards.clone(),
    }
}

fn export(client: &Client, output: &Output, name: &MapName, file: Option<&Path>) -> Result<Exit, Failure> {
    let mut document = client.export_map(name)?;
    document.push(b'\n');
    let Some(file) = file else {
        output.bytes(&document)?;
        return Ok(Exit::Ok);
    };
    std::fs::write(file, &document).map_err(|e| {
        Failure::new(format!("{} cannot be written: {e}", file.display()), "choose another file")
    })?;
    if output.format() == Format::People {
        output.text(&format!("Exported map {name} to {}.", file.display()))?;
    }
    Ok(Exit::Ok)
}

fn read_document(file: &Path) -> Result<Vec<u8>, Failure> {
    let refused = |reason: String| {
        Problem::invalid("file", format!("{} {reason}", file.display()))
            .with_remedy("give an exported map, or '-' for stdin")
    };
    let unread = |e: std::io::Error| refused(format!("cannot be read: {e}"));
    let mut document = Vec::new();
    // One byte more than allowed is enough to be told so, and a wrong file is not read to its end.
    let limit = IMPORT_BYTES_MAX as u64 + 1;
    if file == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut document).map_err(unread)?;
    } else {
        std::fs::File::open(file).and_then(|f| f.take(limit).read_to_end(&mut document)).map_err(unread)?;
    }
    if document.len() > IMPORT_BYTES_MAX {
        return Err(refused(format!("is larger than {IMPORT_BYTES_MAX} bytes")).into());
    }
    Ok(document)
}
