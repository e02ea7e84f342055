//! The map as last seen, in a file, to start from when the catalog is away.

use std::collections::BTreeSet;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use polyshard_catalog::{DatasetRecord, MapContents, MapRecord, ShardRecord, Snapshot};
use polyshard_map::{Entry, Epoch, KeyRange};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::RouterError;
use crate::view::View;

/// The format this program writes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    cluster: Uuid,
    seq: u64,
    epoch: Epoch,
    unsettled: BTreeSet<Epoch>,
    shards: Vec<ShardRecord>,
    maps: Vec<SavedMap>,
    #[serde(default)]
    datasets: Vec<DatasetRecord>,
    #[serde(default)]
    journal: u64,
}

#[derive(Serialize, Deserialize)]
struct SavedMap {
    record: MapRecord,
    entries: Vec<Entry>,
}

/// Writes what is published, not what shards have told, since they will tell it again. It goes to a file of its own
/// that is then renamed, so that there is always a whole one.
pub(crate) fn save(path: &Path, view: &View) -> Result<(), RouterError> {
    let maps = view.maps.values().map(|known| SavedMap {
        record: MapRecord {
            definition: known.map.definition().clone(),
            epoch: known.published.epoch(),
            version: known.version,
            live: true,
        },
        entries: known.published.entries(&KeyRange::all()).collect(),
    });
    let saved = Saved {
        format: FORMAT,
        cluster: view.cluster,
        seq: view.seq,
        epoch: view.epoch,
        unsettled: view.unsettled.clone(),
        shards: view.shards.values().map(|record| ShardRecord::clone(record)).collect(),
        maps: maps.collect(),
        datasets: view.datasets.values().map(|record| DatasetRecord::clone(record)).collect(),
        journal: view.journal,
    };
    let beside = path.with_extension("new");
    let fail = |error: &dyn std::fmt::Display| RouterError::Saved(format!("{}: {error}", beside.display()));
    let file = std::fs::File::create(&beside).map_err(|error| fail(&error))?;
    let mut out = BufWriter::new(file);
    serde_json::to_writer(&mut out, &saved).map_err(|error| fail(&error))?;
    out.flush().map_err(|error| fail(&error))?;
    out.get_ref().sync_all().map_err(|error| fail(&error))?;
    std::fs::rename(&beside, path).map_err(|error| fail(&error))
}

/// Reads it back.
pub(crate) fn load(path: &Path) -> Result<View, RouterError> {
    let fail = |error: &dyn std::fmt::Display| RouterError::Saved(format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| fail(&error))?;
    let saved: Saved = serde_json::from_reader(BufReader::new(file)).map_err(|error| fail(&error))?;
    if saved.format > FORMAT {
        return Err(fail(&format!("format {} is newer than this program's {FORMAT}", saved.format)));
    }
    let maps =
        saved.maps.into_iter().map(|map| MapContents { record: map.record, entries: map.entries }).collect();
    let Saved { cluster, seq, epoch, shards, unsettled, datasets, journal, .. } = saved;
    let running = unsettled.into_iter().collect();
    View::from_snapshot(Snapshot { cluster, seq, epoch, running, shards, maps, datasets, journal })
        .map_err(|error| fail(&error))
}
