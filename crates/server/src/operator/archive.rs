//! What operators ask about archives.

use std::sync::Arc;
use std::time::Duration;

use polyshard_admin::convert::{range_view, read_range};
use polyshard_admin::types::{
    ArchiveAnswer, ArchivePart, ArchiveRuleView, ArchiveView, ForgetArchive, NewArchive, NewArchiveRule,
    RestoreArchive, RunArchiveRule, SpillAnswer, SpillRequest,
};
use polyshard_admin::{Answer, Archives, ErrorCode, Problem};
use polyshard_backup::BackupError;
use polyshard_catalog::{
    ARCHIVE, ArchiveRecord, ArchiveState, CatalogError, ChangeRequest, OpState, RESTORE_ARCHIVE,
};
use polyshard_map::{Change, Entry, KeyRange, MapDefinition, MapName, Scheme, ShardId, State};
use polyshard_planner::measure::{self, Weight};
use polyshard_store::PeriodicTask;
use polyshard_workflow::archiving::{self, NotStepped};
use tokio::sync::Notify;

use super::{OPERATIONS_SHOWN, Operations, now_ms};
use crate::archives::Keeper;
use crate::problem;

/// Archives made by one procedure: each has some tasks, and a procedure has a limit.
pub(super) const PARTS_MAX: usize = 100;

/// The operator's side of archives.
pub(crate) struct ArchiveDoor {
    pub(super) operations: Arc<Operations>,
    pub(super) keeper: Arc<Keeper>,
    /// Told when a rule was recorded, which may be due at once.
    pub(super) wake: Arc<Notify>,
}

/// How often it is looked whether a rule is due, or a shard is full.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// What is to be archived, and how.
pub(super) struct Wanted {
    /// Each range, and what its archive is called.
    pub ranges: Vec<(KeyRange, String)>,
    /// Where to; none to drop it.
    pub place: Option<String>,
    pub without: Vec<String>,
    pub csv: bool,
    pub dry_run: bool,
}

pub(super) fn of_backup(error: BackupError) -> Problem {
    let code = match &error {
        BackupError::Busy(_) => ErrorCode::Busy,
        BackupError::Refused(_) => ErrorCode::Invalid,
        BackupError::Damaged(_) => ErrorCode::Conflict,
        BackupError::Failed(_) => ErrorCode::Unavailable,
    };
    problem::worded(code, &error.to_string())
}

fn of_step(error: NotStepped) -> Problem {
    match error {
        NotStepped::Later(why) => Problem::new(ErrorCode::Unavailable, why),
        NotStepped::Refused(why) => Problem::new(ErrorCode::Conflict, why),
        NotStepped::Catalog(error) => problem::of_catalog(&error),
    }
}

fn fail(error: CatalogError) -> Problem {
    problem::of_catalog(&error)
}

impl ArchiveDoor {
    pub(crate) fn new(operations: Arc<Operations>, keeper: Arc<Keeper>) -> Arc<ArchiveDoor> {
        Arc::new(ArchiveDoor { operations, keeper, wake: Arc::new(Notify::new()) })
    }

    /// Starts to carry out rules that are due, and to let new data flow to other shards.
    pub(crate) fn start(self: &Arc<ArchiveDoor>) -> PeriodicTask {
        let door = self.clone();
        PeriodicTask::start("carries out rules of maps", LOOK_EVERY, self.wake.clone(), move || {
            let door = door.clone();
            async move {
                door.carry_out_rules().await;
                door.spill_full().await;
            }
        })
    }

    /// Whether it is an hour at which moves and archives may begin by themselves.
    pub(super) fn is_quiet(&self) -> bool {
        crate::rebalancing::is_quiet(now_ms(), self.operations.config.rebalance.hours)
    }

    async fn begin(&self, map: MapName, asked: NewArchive) -> Result<ArchiveAnswer, Problem> {
        let known = self.operations.known(&map).await?;
        let definition = known.map.definition();
        require_ranges(definition)?;
        let range = read_range(definition, &asked.range, "range")?;
        let place = match (&asked.destroy, asked.to) {
            (Some(word), None) if *word == map.as_str() => None,
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("destroy", "what is dropped goes nowhere")
                    .with_remedy("say where to, or that it is dropped, and not both"));
            }
            (Some(word), None) => {
                return Err(Problem::invalid("destroy", format!("it says {word:?}, but the map is {map}"))
                    .with_remedy(format!("repeat the name of the map: --drop {map}")));
            }
            (None, to) => Some(self.place(to)?),
        };
        let name = asked.name.unwrap_or_else(|| default_name(definition, &range));
        let wanted = Wanted {
            ranges: vec![(range, name)],
            place,
            without: asked.without_columns,
            csv: asked.csv,
            dry_run: asked.dry_run,
        };
        self.archive_ranges(&map, wanted).await
    }

    /// Where archives go that somebody asks for.
    pub(super) fn place(&self, to: Option<String>) -> Result<String, Problem> {
        to.or_else(|| self.operations.config.backup.to.clone()).ok_or_else(|| {
            Problem::invalid("to", "it is not said where to").with_remedy(
                "name a place, as /archives or s3://bucket/prefix, or set backup.to in the configuration",
            )
        })
    }

    /// Begins to archive or drop a range, or looks at it.
    pub(super) async fn archive_ranges(
        &self,
        map: &MapName,
        wanted: Wanted,
    ) -> Result<ArchiveAnswer, Problem> {
        let operations = &self.operations;
        operations.see().await?;
        let known = operations.known(map).await?;
        let definition = known.map.definition();
        let mut named: Vec<(KeyRange, ShardId, String)> = Vec::new();
        for (range, name) in &wanted.ranges {
            let entries: Vec<Entry> = known.map.entries(range).collect();
            let parts = parts_of(definition, &entries, range)?;
            let several = parts.len() > 1;
            for (at, (range, shard)) in parts.into_iter().enumerate() {
                let name = if several { format!("{name}.{}", at + 1) } else { name.clone() };
                named.push((range, shard, name));
            }
        }
        if named.len() > PARTS_MAX {
            let message = format!("it has {} parts, and {PARTS_MAX} are archived in one go", named.len());
            return Err(Problem::invalid("range", message).with_remedy("name fewer keys"));
        }
        let mut answer =
            ArchiveAnswer { map: map.clone(), parts: Vec::new(), steps: Vec::new(), procedure: None };
        let mut records = Vec::new();
        for (range, shard, name) in &named {
            let weight = match wanted.dry_run {
                true => Some(self.weigh(definition, range, shard).await?),
                false => None,
            };
            let says = definition.describe_range(range);
            let about = weight.map_or_else(String::new, |weight| format!(", {} rows", weight.rows));
            match &wanted.place {
                Some(place) => {
                    let at = self.keeper.location(place, name).map_err(of_backup)?.url();
                    answer.steps.extend([
                        format!("{says} on {shard}: make it read-only"),
                        format!("{says}: write it to {at}{about}"),
                        format!("{says}: read that back and compare it with the rows"),
                        format!("{says}: take it offline, and delete its rows on {shard}"),
                        format!("{says}: archived as {name}"),
                    ]);
                    let id = operations.catalog.fresh_id();
                    let mut record = ArchiveRecord::new(
                        (id, name.clone()),
                        (map.clone(), range.clone()),
                        shard.clone(),
                        place.clone(),
                    );
                    (record.without, record.csv) = (wanted.without.clone(), wanted.csv);
                    records.push(record);
                }
                None => answer.steps.extend([
                    format!("{says} on {shard}: take it offline, and delete its rows{about}"),
                    format!("{says}: nothing is mapped there any more"),
                ]),
            }
            let (range, shard) = (range_view(definition, range), shard.clone());
            let (rows, bytes) = (weight.map(|weight| weight.rows), weight.map(|weight| weight.bytes));
            answer.parts.push(ArchivePart { name: name.clone(), range, shard, rows, bytes, why: None });
        }
        if wanted.dry_run {
            return Ok(answer);
        }
        let ranges: Vec<(KeyRange, String)> =
            named.into_iter().map(|(range, _, name)| (range, name)).collect();
        operations.catalog.add_archives(&records).await.map_err(fail)?;
        let procedure = match &wanted.place {
            Some(_) => archiving::archive(map, &ranges),
            None => {
                // A name that no other drop has: the shard keeps by it who has deleted last, so that one who slept
                // through it deletes nothing of what comes there later.
                let unique = |(range, _)| (range, operations.catalog.fresh_id().to_string());
                let ranges: Vec<(KeyRange, String)> = ranges.into_iter().map(unique).collect();
                archiving::drop_ranges(map, &ranges)
            }
        };
        match operations.procedures.begin(ARCHIVE, Some(map), procedure).await {
            Ok(begun) => answer.procedure = Some(begun.id.to_string()),
            Err(error) => {
                for record in &records {
                    operations.catalog.remove_archive(&record.name).await.map_err(fail)?;
                }
                return Err(fail(error));
            }
        }
        Ok(answer)
    }

    /// What a shard has of a range, for those who only look.
    pub(super) async fn weigh(
        &self,
        definition: &MapDefinition,
        range: &KeyRange,
        shard: &ShardId,
    ) -> Result<Weight, Problem> {
        let weighed = measure::weigh(&self.operations.router, definition, range, shard).await;
        weighed.map_err(|error| {
            Problem::unavailable(error.to_string()).with_remedy("bring the shard back, then look again")
        })
    }

    fn view(&self, record: &ArchiveRecord) -> ArchiveView {
        let view = self.operations.router.view();
        let known = view.maps.get(&record.map);
        let at = self.keeper.location(&record.place, &record.name);
        ArchiveView {
            name: record.name.clone(),
            map: record.map.clone(),
            range: known.map(|known| range_view(known.map.definition(), &record.range)),
            shard: record.shard.clone(),
            at: at.map_or_else(|_| format!("{}/{}", record.place, record.name), |at| at.url()),
            state: record.state.as_str().to_owned(),
            rows: record.rows,
            bytes: record.bytes,
            without_columns: record.without.clone(),
            began_ms: record.began_ms,
        }
    }

    async fn list(&self) -> Result<Vec<ArchiveView>, Problem> {
        let records = self.operations.catalog.archives().await.map_err(fail)?;
        Ok(records.iter().map(|record| self.view(record)).collect())
    }

    async fn found(&self, name: &str) -> Result<ArchiveRecord, Problem> {
        let record = self.operations.catalog.archive(name).await.map_err(fail)?;
        record.ok_or_else(|| {
            Problem::not_found(format!("there is no archive {name}"))
                .with_remedy("see 'polyshard archive list'")
        })
    }

    async fn verify(&self, name: &str) -> Result<ArchiveView, Problem> {
        let record = self.found(name).await?;
        if record.state == ArchiveState::Writing {
            return Err(Problem::new(ErrorCode::Conflict, format!("archive {name} is being written")));
        }
        self.keeper.verify(&record).await.map_err(of_backup)?;
        Ok(self.view(&record))
    }

    async fn restore(&self, name: &str, asked: RestoreArchive) -> Result<ArchiveAnswer, Problem> {
        let operations = &self.operations;
        let record = self.found(name).await?;
        if !matches!(record.state, ArchiveState::Archived | ArchiveState::Written) {
            return Err(Problem::new(
                ErrorCode::Conflict,
                format!(
                    "archive {name} is {}, and only what is archived can be restored",
                    record.state.as_str()
                ),
            )
            .with_remedy("see 'polyshard archive show' and 'polyshard ops list'"));
        }
        if record.state == ArchiveState::Written {
            // Whoever deletes its rows goes on; if nobody does, part of them may be gone.
            self.nobody_works_on(&record).await?;
        }
        operations.see().await?;
        let known = operations.known(&record.map).await?;
        let entries: Vec<Entry> = known.map.entries(&record.range).collect();
        // Somebody may have let go of it by force; what is offline is nobody's then.
        let is_free = |entry: &Entry| {
            let held = entry.lock.as_ref().is_some_and(|lock| lock.holds_at(now_ms()));
            entry.state == State::Offline && !held
        };
        let held = entries.iter().all(|entry| entry.archive() == Some(name) || is_free(entry));
        if !held || entries.is_empty() {
            let what = known.map.definition().describe_range(&record.range);
            let message = format!("{what} of map {} is not held by archive {name} any more", record.map);
            return Err(Problem::new(ErrorCode::Conflict, message).with_remedy(
                "somebody has changed the map there: see 'polyshard map show'. If the rows that are there may be \
                 replaced, take the range offline ('polyshard map state') and restore it then",
            ));
        }
        let there = entries[0].shard.clone();
        let to = asked.to.filter(|to| *to != there);
        let shard = to.clone().unwrap_or(there);
        operations.require_shard(&shard).await?;
        operations.journal.ready(&shard).await.map_err(|error| super::schema::of_journal(&error))?;
        operations.check_room(&known, &record.range, record.bytes, &shard).await?;
        let procedure = archiving::restore(&record.map, &record.range, name, to.as_ref());
        let begun = operations.procedures.begin(RESTORE_ARCHIVE, Some(&record.map), procedure).await;
        let range = range_view(known.map.definition(), &record.range);
        let says = known.map.definition().describe_range(&record.range);
        Ok(ArchiveAnswer {
            map: record.map.clone(),
            parts: vec![ArchivePart {
                name: name.to_owned(),
                range,
                shard: shard.clone(),
                rows: Some(record.rows),
                bytes: Some(record.bytes),
                why: None,
            }],
            steps: vec![
                format!("{says}: put {} rows on {shard}", record.rows),
                format!("{says}: bring it online; the archive stays until you forget it"),
            ],
            procedure: Some(begun.map_err(fail)?.id.to_string()),
        })
    }

    async fn nobody_works_on(&self, record: &ArchiveRecord) -> Result<(), Problem> {
        let latest = self.operations.catalog.procedures(OPERATIONS_SHOWN).await.map_err(fail)?;
        let busy = latest.iter().find(|one| {
            one.state == OpState::Running
                && [ARCHIVE, RESTORE_ARCHIVE].contains(&one.kind.as_str())
                && one.map.as_ref() == Some(&record.map)
        });
        match busy {
            Some(busy) => Err(fail(CatalogError::Busy { op: busy.id, kind: busy.kind.clone() })),
            None => Ok(()),
        }
    }

    async fn forget(&self, name: &str, asked: ForgetArchive) -> Result<(), Problem> {
        let operations = &self.operations;
        let record = self.found(name).await?;
        self.nobody_works_on(&record).await?;
        if matches!(record.state, ArchiveState::Written | ArchiveState::Archived)
            && asked.destroy.as_deref() != Some(name)
        {
            let message = format!("archive {name} may be the only place that has its {} rows", record.rows);
            return Err(Problem::new(ErrorCode::HoldsData, message)
                .with_remedy(format!("restore it first, or give them up with --destroy {name}")));
        }
        if record.state == ArchiveState::Archived {
            operations.see().await?;
            let known = operations.known(&record.map).await?;
            let entries: Vec<Entry> = known.map.entries(&record.range).collect();
            if !entries.is_empty() && entries.iter().all(|entry| entry.archive() == Some(name)) {
                let request = ChangeRequest {
                    map: record.map.clone(),
                    change: Change::Remove { range: record.range.clone() },
                    if_version: None,
                    by: Some(archiving::gone(name)),
                };
                operations.driver.change(&request).await.map_err(fail)?;
                operations.see().await?;
            }
        }
        self.keeper.remove(name).await.map_err(of_step)
    }
}

/// Archives are of maps whose rows tell their place.
pub(super) fn require_ranges(definition: &MapDefinition) -> Result<(), Problem> {
    match definition.scheme() {
        Scheme::List | Scheme::Range => Ok(()),
        _ => {
            let (name, kind) = (definition.name(), definition.scheme().kind());
            let message = format!("map {name} is a {kind} map, whose neighbours are not old together");
            Err(Problem::new(ErrorCode::Unsupported, message)
                .with_remedy("archive ranges of range maps and keys of list maps"))
        }
    }
}

/// The parts of a range that are each on one shard, all online and held by nobody.
fn parts_of(
    definition: &MapDefinition,
    entries: &[Entry],
    range: &KeyRange,
) -> Result<Vec<(KeyRange, ShardId)>, Problem> {
    let mut parts: Vec<(KeyRange, ShardId)> = Vec::new();
    for entry in entries {
        let says = definition.describe_range(&entry.range);
        let refuse = |why: String| Problem::new(ErrorCode::Conflict, format!("{says} {why}"));
        if let Some(archive) = entry.archive() {
            return Err(refuse(format!("is archived already, as {archive}")).with_remedy("name other keys"));
        }
        if entry.state != State::Online {
            return Err(refuse(format!("is {}", entry.state)).with_remedy("set it online first"));
        }
        if let Some(lock) = entry.lock.as_ref().filter(|lock| lock.holds_at(now_ms())) {
            return Err(refuse(format!("is held by {}", lock.owner())).with_remedy("wait until it is let go"));
        }
        let Some(part) = entry.range.intersect(range) else { continue };
        match parts.last_mut() {
            Some((last, shard)) if *shard == entry.shard && last.hi() == Some(part.lo()) => {
                let joined = KeyRange::new(last.lo().clone(), part.hi().cloned());
                *last = joined.expect("two that meet are one");
            }
            _ => parts.push((part, entry.shard.clone())),
        }
    }
    if parts.is_empty() {
        let message = format!("nothing of map {} is mapped there", definition.name());
        return Err(Problem::not_found(message).with_remedy("see 'polyshard map show'"));
    }
    Ok(parts)
}

/// What an archive is called if nobody says: the map and the range, in letters that a name may have.
pub(super) fn default_name(definition: &MapDefinition, range: &KeyRange) -> String {
    let plain = |text: String| -> String {
        text.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-_.:+".contains(*letter)).collect()
    };
    let lo = plain(definition.describe_bound(range.lo()));
    let hi = range.hi().filter(|_| !range.is_point()).map(|hi| plain(definition.describe_bound(hi)));
    let mut name = format!("{}-{lo}", definition.name());
    if let Some(hi) = hi {
        name.push('_');
        name.push_str(&hi);
    }
    name.truncate(80);
    name
}

impl Archives for ArchiveDoor {
    fn archive(&self, map: MapName, archive: NewArchive) -> Answer<'_, ArchiveAnswer> {
        Box::pin(self.begin(map, archive))
    }
    fn archives(&self) -> Answer<'_, Vec<ArchiveView>> {
        Box::pin(self.list())
    }
    fn show_archive(&self, name: String) -> Answer<'_, ArchiveView> {
        Box::pin(async move { Ok(self.view(&self.found(&name).await?)) })
    }
    fn verify_archive(&self, name: String) -> Answer<'_, ArchiveView> {
        Box::pin(async move { self.verify(&name).await })
    }
    fn restore_archive(&self, name: String, restore: RestoreArchive) -> Answer<'_, ArchiveAnswer> {
        Box::pin(async move { self.restore(&name, restore).await })
    }
    fn forget_archive(&self, name: String, forget: ForgetArchive) -> Answer<'_, ()> {
        Box::pin(async move { self.forget(&name, forget).await })
    }
    fn archive_rules(&self) -> Answer<'_, Vec<ArchiveRuleView>> {
        Box::pin(self.rule_views())
    }
    fn add_archive_rule(&self, map: MapName, rule: NewArchiveRule) -> Answer<'_, ArchiveRuleView> {
        Box::pin(self.add_rule(map, rule))
    }
    fn run_archive_rule(&self, id: String, run: RunArchiveRule) -> Answer<'_, ArchiveAnswer> {
        Box::pin(self.run_rule(id, run))
    }
    fn remove_archive_rule(&self, id: String) -> Answer<'_, ()> {
        Box::pin(self.remove_rule(id))
    }
    fn spill(&self, map: MapName, request: SpillRequest) -> Answer<'_, SpillAnswer> {
        Box::pin(self.spill_map(map, request))
    }
}
