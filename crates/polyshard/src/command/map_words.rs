//! Maps, entries and differences as people read them.

use polyshard_admin::types::{
    CheckAnswer, Difference, EntriesAnswer, MapView, RepairAnswer, RepairMode, Side,
};

use crate::table::{or_dash, pairs, table};

/// The maps, one a line.
pub fn map_table(maps: &[MapView]) -> String {
    if maps.is_empty() {
        return "No maps yet: polyshard map create NAME --kind hash --key bigint\n".to_owned();
    }
    table(
        ["map", "kind", "key", "buckets", "entries", "shards", "epoch", "version"],
        maps.iter().map(|map| {
            [
                map.name.to_string(),
                map.kind.to_string(),
                map.key.clone(),
                or_dash(&map.hash.as_ref().map(|hash| hash.buckets)),
                map.entries.to_string(),
                map.by_shard.len().to_string(),
                map.epoch.to_string(),
                map.version.to_string(),
            ]
        }),
    )
}

/// One map in full.
pub fn details(map: &MapView) -> String {
    let head = pairs([
        ("map", map.name.to_string()),
        ("kind", map.kind.to_string()),
        ("key", map.key.clone()),
        ("buckets", or_dash(&map.hash.as_ref().map(|hash| hash.buckets))),
        ("entries", map.entries.to_string()),
        ("epoch", map.epoch.to_string()),
        ("version", map.version.to_string()),
    ]);
    let spread =
        table(["shard", "entries"], map.by_shard.iter().map(|(shard, n)| [shard.to_string(), n.to_string()]));
    format!("{head}\n{spread}")
}

/// One page of entries.
pub fn entry_table(page: &EntriesAnswer) -> String {
    if page.entries.is_empty() {
        return "No entries.\n".to_owned();
    }
    let rows = table(
        ["range", "shard", "state", "epoch", "group", "locked by"],
        page.entries.iter().map(|entry| {
            [
                entry.range.to_string(),
                entry.shard.to_string(),
                entry.state.to_string(),
                entry.epoch.to_string(),
                or_dash(&entry.group),
                or_dash(&entry.lock.as_ref().map(|lock| &lock.owner)),
            ]
        }),
    );
    match &page.next {
        Some(next) => format!("{rows}\nThere are more: --after {next}\n"),
        None => rows,
    }
}

/// What a check found.
pub fn check_words(check: &CheckAnswer) -> String {
    let mut text = match (check.differences.len(), check.unreachable.len()) {
        (0, 0) => format!("Catalog and shards agree about map {}.\n", check.map),
        (0, _) => format!("Catalog and the shards that could be asked agree about map {}.\n", check.map),
        (n, _) => {
            let remedy = format!("polyshard map repair {} --from catalog|shards", check.map);
            format!("{}\n{}; believe one side: '{remedy}'.\n", differences(&check.differences), counted(n))
        }
    };
    if !check.unreachable.is_empty() {
        let names: Vec<String> =
            check.unreachable.iter().map(|away| format!("{} ({})", away.shard, away.reason)).collect();
        text.push_str(&format!("Not asked, because not reachable: {}.\n", names.join(", ")));
    }
    text
}

/// What a repair did, or would do.
pub fn repair_words(repair: &RepairAnswer) -> String {
    let (rows, count) = (differences(&repair.differences), counted(repair.differences.len()));
    match repair.mode {
        _ if repair.differences.is_empty() => "Nothing to repair.\n".to_owned(),
        RepairMode::Plan => format!("{rows}\n{count} to settle; repeat with --apply.\n"),
        RepairMode::Apply => format!("{rows}\nSettled {count}.\n"),
    }
}

fn counted(differences: usize) -> String {
    if differences == 1 { "1 difference".to_owned() } else { format!("{differences} differences") }
}

fn differences(differences: &[Difference]) -> String {
    let side = |side: &Option<Side>| match side {
        None => "not there".to_owned(),
        Some(Side { state, epoch, group: None }) => format!("{state} at epoch {epoch}"),
        Some(Side { state, epoch, group: Some(group) }) => format!("{state} at epoch {epoch}, group {group}"),
    };
    table(
        ["shard", "range", "difference", "catalog says", "shard says"],
        differences.iter().map(|difference| {
            [
                difference.shard.to_string(),
                difference.range.to_string(),
                difference.found.to_string(),
                side(&difference.catalog),
                side(&difference.local),
            ]
        }),
    )
}
