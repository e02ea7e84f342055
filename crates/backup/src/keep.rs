//! Keeping backups: which there are, whether they are still what they were, and the removal of old ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;

use uuid::Uuid;

use crate::BackupError;
use crate::depot::{Depot, Location};
use crate::manifest::{MANIFEST, Manifest};
use crate::marks::{self, BEGUN, LEFT_AFTER, Pruning};
use crate::pool::{self, CHUNKS, Chunk};
use crate::take::Clock;

/// Chunks read at once to be compared, and removed at once.
const AT_ONCE: usize = 8;
/// Damages that are named.
const DAMAGES_NAMED: usize = 10;

/// A backup in a depot.
pub enum Found {
    /// It is whole, as far as its manifest says.
    Whole(Location, Box<Manifest>),
    /// It has no manifest: it is being taken, or was left by a process that is gone.
    Unfinished(Location),
    /// Its manifest cannot be read.
    Damaged(Location, BackupError),
}

/// The backups of a depot, by name.
pub async fn list(depot: &Depot) -> Result<Vec<Found>, BackupError> {
    let mut found = Vec::new();
    for name in depot.names().await?.into_iter().filter(|name| name != CHUNKS) {
        // A folder with another name than ours is somebody else's.
        let Ok(at) = Location::new(depot.clone(), &name) else { continue };
        // Looked at first: whoever takes it writes the manifest before it takes this mark away.
        let begun = depot.look(&at.path(BEGUN)).await?.is_some();
        match Manifest::read(&at).await {
            Ok(manifest) => found.push(Found::Whole(at, Box::new(manifest))),
            Err(error) if depot.look(&at.path(MANIFEST)).await?.is_some() => {
                found.push(Found::Damaged(at, error));
            }
            Err(BackupError::Damaged(_)) if begun => found.push(Found::Unfinished(at)),
            Err(BackupError::Damaged(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Compares everything that a backup consists of with its checksum. Names what is damaged, and which parts need it.
pub async fn verify(from: &Location) -> Result<Manifest, BackupError> {
    let manifest = Manifest::read(from).await?;
    let mut users: BTreeMap<String, (Chunk, Vec<&str>)> = BTreeMap::new();
    let mut damages = Vec::new();
    for part in manifest.parts() {
        let listed = match part.chunks {
            Some(_) => part.list(from).await,
            None => part.check_file(from).await.map(|_| Vec::new()),
        };
        match listed {
            Ok(chunks) => {
                for chunk in chunks {
                    let (_, parts) = users.entry(chunk.digest.clone()).or_insert((chunk, Vec::new()));
                    if parts.last() != Some(&part.file.as_str()) {
                        parts.push(&part.file);
                    }
                }
            }
            Err(BackupError::Damaged(why)) => damages.push(why),
            Err(error) => return Err(error),
        }
    }
    let users: Vec<(Chunk, Vec<&str>)> = users.into_values().collect();
    for group in users.chunks(AT_ONCE) {
        let checks: Vec<_> = group.iter().map(|(chunk, _)| pool::read(&from.depot, chunk)).collect();
        for (found, (_, parts)) in futures_util::future::join_all(checks).await.into_iter().zip(group) {
            match found {
                Ok(_) => {}
                Err(BackupError::Damaged(why)) => {
                    damages.push(format!("{why} (needed by {})", parts.join(", ")));
                }
                Err(error) => return Err(error),
            }
        }
    }
    if damages.is_empty() {
        return Ok(manifest);
    }
    let more = damages.len().saturating_sub(DAMAGES_NAMED);
    damages.truncate(DAMAGES_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(BackupError::Damaged(format!("{}{more}", damages.join("; "))))
}

/// Which backups stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Only backups of this class are removed; `Some(None)` are those that somebody asked for.
    pub class: Option<Option<String>>,
    /// The latest so many of each class of each cluster stay; of those that somebody asked for, of each thing they are
    /// of. None: all stay.
    pub keep: Option<usize>,
    /// Only backups of this cluster are removed: several may share a depot.
    pub cluster: Option<Uuid>,
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Backups, by name.
    pub backups: Vec<String>,
    /// Backups that were never finished, by name.
    pub unfinished: Vec<String>,
    /// Chunks that no backup needs any more.
    pub chunks: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Why chunks were left, if they were.
    pub left: Option<String>,
}

/// Removes old backups, those that were never finished, and the chunks that none needs any more. With `dry` it only
/// says which backups it would remove.
pub fn prune<'a>(
    depot: &'a Depot,
    retention: &'a Retention,
    clock: &'a Clock,
    dry: Dry,
) -> Pin<Box<dyn Future<Output = Result<Pruned, BackupError>> + Send + 'a>> {
    Box::pin(prune_all(depot, retention, clock, dry, &GO_ON))
}

/// The stop of one that nobody stops.
static GO_ON: AtomicBool = AtomicBool::new(false);

/// The same, until `stop` is set: then it removes nothing more, and leaves no mark that backups would wait for.
pub fn prune_until<'a>(
    depot: &'a Depot,
    retention: &'a Retention,
    clock: &'a Clock,
    stop: &'a AtomicBool,
) -> Pin<Box<dyn Future<Output = Result<Pruned, BackupError>> + Send + 'a>> {
    Box::pin(prune_all(depot, retention, clock, Dry::No, stop))
}

async fn prune_all(
    depot: &Depot,
    retention: &Retention,
    clock: &Clock,
    dry: Dry,
    stop: &AtomicBool,
) -> Result<Pruned, BackupError> {
    if dry == Dry::Yes {
        return prune_marked(depot, retention, None, clock).await;
    }
    let pruning = Pruning::begin(depot, clock, stop).await?;
    let pruned = pruning.kept_while(prune_marked(depot, retention, Some(&pruning), clock)).await;
    if let Err(left) = pruning.end().await {
        // What was removed is removed; the mark is taken for left in time.
        tracing::warn!(depot = depot.url(), %left, "the mark of who pruned is left");
    }
    pruned
}

/// Whether something is only looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dry {
    /// It is done.
    No,
    /// It is only looked at.
    Yes,
}

async fn prune_marked(
    depot: &Depot,
    retention: &Retention,
    pruning: Option<&Pruning<'_>>,
    clock: &Clock,
) -> Result<Pruned, BackupError> {
    let mut pruned = Pruned::default();
    let now = pruning.map_or_else(|| clock(), Pruning::there_ms);
    let (mut whole, mut kept) = (Vec::new(), Vec::new());
    for found in list(depot).await? {
        match found {
            Found::Whole(at, manifest) => whole.push((at, manifest)),
            Found::Damaged(_, error) => {
                pruned.left = Some(format!("a backup cannot be read, and may need any: {error}"));
            }
            Found::Unfinished(at) => {
                let Some(mark) = depot.look(&at.path(BEGUN)).await? else {
                    pruned.left = Some(format!("{} was finished just now", at.url()));
                    continue;
                };
                if now.saturating_sub(mark.modified_ms) > LEFT_AFTER.as_millis() as i64 {
                    if let Some(pruning) = pruning {
                        pruning.check().await?;
                        if !marks::remove_unfinished(&at, clock()).await? {
                            pruned.left = Some(format!("{} was finished just now", at.url()));
                            continue;
                        }
                    }
                    pruned.unfinished.push(at.name);
                } else {
                    pruned.left = Some(format!("{} is being taken, and may need any", at.url()));
                }
            }
        }
    }
    whole.sort_by_key(|(_, manifest)| std::cmp::Reverse(manifest.moment_ms));
    let mut seen: HashMap<(Uuid, Option<String>, Option<String>), usize> = HashMap::new();
    for (at, manifest) in whole {
        // The only copy of its rows: it goes when somebody forgets it by name.
        if manifest.archive.is_some() {
            kept.push((at, manifest));
            continue;
        }
        // Those of a class are alike. Those that somebody asked for may be of everything or of one tenant, and ten of a
        // tenant do not stand for one of everything.
        let asked_for = manifest.class.is_none().then(|| manifest.what());
        let count = seen.entry((manifest.cluster, manifest.class.clone(), asked_for)).or_default();
        *count += 1;
        let concerned = retention.class.as_ref().is_none_or(|class| *class == manifest.class)
            && retention.cluster.is_none_or(|cluster| cluster == manifest.cluster);
        if concerned && retention.keep.is_some_and(|keep| *count > keep) {
            if let Some(pruning) = pruning {
                pruning.check().await?;
                marks::remove(&at, clock()).await?;
            }
            pruned.backups.push(at.name);
        } else {
            kept.push((at, manifest));
        }
    }
    if let (Some(pruning), None) = (pruning, &pruned.left) {
        (pruned.chunks, pruned.bytes) = remove_unused(depot, &kept, pruning).await?;
    }
    Ok(pruned)
}

async fn remove_unused(
    depot: &Depot,
    kept: &[(Location, Box<Manifest>)],
    pruning: &Pruning<'_>,
) -> Result<(u64, u64), BackupError> {
    let mut needed: HashSet<String> = HashSet::new();
    for (at, manifest) in kept {
        for part in manifest.parts().filter(|part| part.chunks.is_some()) {
            needed.extend(part.list(at).await?.iter().map(Chunk::path));
        }
    }
    let listed = depot.list(CHUNKS).await?;
    let unused: Vec<_> = listed.iter().filter(|item| !needed.contains(&item.path)).collect();
    for some in unused.chunks(AT_ONCE) {
        pruning.check().await?;
        let removals: Vec<_> = some.iter().map(|item| depot.delete(&item.path)).collect();
        futures_util::future::try_join_all(removals).await?;
    }
    Ok((unused.len() as u64, unused.iter().map(|item| item.bytes).sum()))
}
