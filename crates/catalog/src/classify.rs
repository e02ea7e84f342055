//! What a change of a map means for each shard. Pure.

use std::collections::BTreeMap;

use polyshard_map::{Delta, Entry, KeyRange, MapDefinition, ShardId, State};
use polyshard_shard::{Edit, Role};

use crate::CatalogError;

/// The edits that turn the shards' local maps from `window` (before) into what `delta` says.
pub fn edits(
    definition: &MapDefinition,
    window: &[Entry],
    delta: &Delta,
) -> Result<Vec<(ShardId, Edit)>, CatalogError> {
    let removed: Vec<Entry> =
        window.iter().filter(|entry| delta.remove.contains(&entry.range)).map(without_lock).collect();
    let put: Vec<Entry> = delta.put.iter().map(without_lock).collect();
    let mut shards: BTreeMap<ShardId, (Vec<Entry>, Vec<Entry>)> = BTreeMap::new();
    for entry in &removed {
        shards.entry(entry.shard.clone()).or_default().0.push(entry.clone());
    }
    for entry in &put {
        shards.entry(entry.shard.clone()).or_default().1.push(entry.clone());
    }
    let mut out = Vec::new();
    for (shard, (before, after)) in shards {
        // What stays as it is does not concern the shard: a lock, which lives in the catalog alone, or the lower
        // part of a segment that is cut in two.
        let (before, after) = (without(&before, &after), without(&after, &before));
        if before.is_empty() && after.is_empty() {
            continue;
        }
        let gains = after.iter().any(|entry| !covered(&entry.range, &before));
        let lost = lost(&before, &put, &shard);
        let role = match (gains, lost.is_empty()) {
            (true, false) => {
                return Err(CatalogError::Invalid(format!(
                    "one change cannot both give to and take from shard {shard}"
                )));
            }
            (true, true) => Role::Gain,
            (false, false) => Role::Lose,
            (false, true) => Role::Keep,
        };
        out.push((
            shard,
            Edit { definition: definition.clone(), role, before, after, lost, destroy: false, carried: None },
        ));
    }
    // Gainers first: what can fail for want of a shard should fail before anybody is asked to hold.
    out.sort_by_key(|(_, edit)| match edit.role {
        Role::Gain => 0,
        Role::Keep => 1,
        Role::Lose | Role::Drop => 2,
    });
    Ok(out)
}

fn without_lock(entry: &Entry) -> Entry {
    Entry { lock: None, ..entry.clone() }
}

/// The entries that are not also among the others, whatever their epochs.
fn without(entries: &[Entry], others: &[Entry]) -> Vec<Entry> {
    let others: BTreeMap<&KeyRange, &Entry> = others.iter().map(|other| (&other.range, other)).collect();
    let stays = |entry: &&Entry| {
        let other = others.get(&entry.range);
        other.is_some_and(|other| other.state == entry.state && other.group == entry.group)
    };
    entries.iter().filter(|entry| !stays(entry)).cloned().collect()
}

/// Whether a range lies inside the union of entries (they are sorted and do not overlap).
fn covered(range: &KeyRange, entries: &[Entry]) -> bool {
    entries.iter().any(|entry| entry.range.overlaps(range))
}

/// What `shard` had in `before` and has no longer, or with fewer rights, piece by piece.
fn lost(before: &[Entry], put: &[Entry], shard: &ShardId) -> Vec<(KeyRange, Option<ShardId>, State)> {
    let mut lost = Vec::new();
    for old in before {
        let mut rest = vec![old.range.clone()];
        for new in put.iter().filter(|new| new.range.overlaps(&old.range)) {
            let Some(piece) = new.range.intersect(&old.range) else { continue };
            rest = rest.iter().flat_map(|range| range.subtract(&piece)).collect();
            if new.shard != *shard {
                lost.push((piece, Some(new.shard.clone()), new.state));
            } else if rights(new.state) < rights(old.state) {
                lost.push((piece, Some(shard.clone()), new.state));
            }
        }
        lost.extend(rest.into_iter().map(|range| (range, None, State::Offline)));
    }
    lost
}

fn rights(state: State) -> u8 {
    match state {
        State::Offline => 0,
        State::ReadOnly => 1,
        State::Online => 2,
    }
}
