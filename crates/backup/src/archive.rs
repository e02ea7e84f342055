//! The rows of a range in a depot instead of on a shard: written, compared, removed from the shard, and put back.
//!
//! Nothing is removed before the archive is whole and was read back. While rows are removed or put back the range is
//! offline, and each transaction proves it; all steps can be repeated.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use polyshard_catalog::ArchiveRecord;
use polyshard_engine::{Access, Dialect, Error, Statement, Transaction, Value};
use polyshard_map::{Epoch, KeyRange, Map, MapDefinition};
use polyshard_router::Router;
use polyshard_shard::{OfflineClaim, Shard, ShardError};
use uuid::Uuid;

use crate::carried::{self, Carriers, Keys, Proof, Wanted};
use crate::depot::Location;
use crate::files::Scratch;
use crate::lines::Line;
use crate::manifest::{ArchivedRange, FORMAT, JSON, MANIFEST, Manifest, engine_word};
use crate::marks::{self, Mark};
use crate::pool::{Chunk, Pool};
use crate::progress::Progress;
use crate::rows::{self, Rows};
use crate::take::{Clock, put_map, put_part};
use crate::{BackupError, csv, keep, notation, shardlet};

/// Rows removed or put back by one transaction, for which others' protocol on the shard waits.
const BITE_ROWS: usize = 256;
/// Keys found by one scan, which may have to read the whole table: so many are kept in memory. Whoever removes fewer at
/// a time scans for nothing.
pub const FOUND_MAX: usize = 65_536;
/// Keys that come from a scan at once.
const PAGE_ROWS: usize = 1_024;

/// One archive, and what is needed to work on it.
pub struct Archive<'a> {
    /// The cluster.
    pub router: &'a Router,
    /// Its name.
    pub cluster: Uuid,
    /// What the catalog knows of it.
    pub record: &'a ArchiveRecord,
    /// The map.
    pub definition: &'a MapDefinition,
    /// Where it is.
    pub at: &'a Location,
    /// The version of the program.
    pub program: String,
    /// What stores keep outside the databases.
    pub carriers: Carriers,
    /// A folder for files that are needed meanwhile.
    pub scratch: PathBuf,
    /// Milliseconds since 1970.
    pub clock: Clock,
}

/// In which form values are written.
#[derive(Clone, Copy)]
enum Form {
    /// As files keep them, which either engine takes.
    Both,
    /// As the database writes them.
    Own,
}

fn of_shard(shard: &Shard, error: ShardError) -> BackupError {
    match error {
        ShardError::CannotMove { .. } | ShardError::Uncomputable { .. } => {
            BackupError::Refused(format!("shard {}: {error}", shard.id()))
        }
        error => BackupError::of_shard(shard.id(), error),
    }
}

impl Archive<'_> {
    async fn shard(&self) -> Result<std::sync::Arc<Shard>, BackupError> {
        let id = &self.record.shard;
        self.router.administer(id).await.map_err(|error| BackupError::of_shard(id, error))
    }

    /// The tables with the columns that are kept, and without triggers, which would act on removed and restored rows.
    async fn tables(&self, shard: &Shard) -> Result<Vec<Rows>, BackupError> {
        let mut tables = rows::tables_of_range(shard, self.definition, &self.record.range).await?;
        if let Some((table, trigger)) = tables.iter().find_map(|one| Some((one, one.shape.triggers.first()?)))
        {
            return Err(BackupError::Refused(format!(
                "{} has the trigger {trigger}, which would act on rows that are archived; drop it first",
                table.dataset.name
            )));
        }
        for column in &self.record.without {
            let (name, column) = column.rsplit_once('.').unwrap_or(("", column));
            let plain = |table: &str| table.rsplit('.').next().unwrap_or(table).trim_matches('"').to_owned();
            let table = tables.iter_mut().find(|one| plain(&one.dataset.table) == name);
            let table = table.ok_or_else(|| {
                BackupError::Refused(format!(
                    "there is no table {name:?} of map {}, whose column {column} is to be left out; write \
                     table.column",
                    self.record.map
                ))
            })?;
            table.leave_out(column)?;
        }
        Ok(tables)
    }

    /// The archive, if it is whole.
    async fn find(&self) -> Result<Option<Manifest>, BackupError> {
        if self.at.depot.look(&self.at.path(MANIFEST)).await?.is_none() {
            return Ok(None);
        }
        let manifest = Manifest::read(self.at).await?;
        match &manifest.archive {
            Some(archive) if archive.id == self.record.id => Ok(Some(manifest)),
            _ => Err(BackupError::Refused(format!(
                "{} is another backup or archive; choose another name",
                self.at.url()
            ))),
        }
    }

    /// Writes the archive; one that is whole is not written again. Nobody may write rows of the range meanwhile.
    pub async fn write(&self, progress: &Progress) -> Result<Manifest, BackupError> {
        if let Some(manifest) = self.find().await? {
            return Ok(manifest);
        }
        // Of an attempt that was interrupted; whoever made it finds that the name is not his any more.
        if !self.at.depot.list(&self.at.name).await?.is_empty()
            && !marks::remove_unfinished(self.at, (self.clock)()).await?
        {
            return self.find().await?.ok_or_else(|| {
                BackupError::Busy(format!("{} was written and removed meanwhile", self.at.url()))
            });
        }
        let mark = Mark::begin(self.at, (self.clock)()).await?;
        let written = self.fill(&mark, progress).await;
        // What a failure leaves is removed by the next one who writes it, or forgets it: this process may have been
        // taken for gone, and what is there may be another's, and soon the only place that has the rows.
        if written.is_ok()
            && let Err(left) = mark.end().await
        {
            tracing::warn!(archive = self.at.url(), %left, "the mark of an archive is left");
        }
        written
    }

    async fn fill(&self, mark: &Mark, progress: &Progress) -> Result<Manifest, BackupError> {
        let pool = mark.kept_while(Pool::open(&self.at.depot)).await?;
        let (file, datasets) = mark.kept_while(self.copy(Form::Both, progress)).await?;
        let chunks = mark.kept_while(store(&pool, &file, progress)).await?;
        let named = carried::named_in_lines(file.path(), &self.carriers)?;
        if self.record.csv {
            // Whoever reads these knows dates and times as the database writes them.
            let (own, _) = mark.kept_while(self.copy(Form::Own, &Progress::default())).await?;
            mark.kept_while(csv::write(self.at, own.path())).await?;
        }
        let bare = Map::build(self.definition.clone(), std::iter::empty(), Epoch::ZERO);
        let bare = bare.map_err(|error| BackupError::Failed(format!("map {}: {error}", self.record.map)))?;
        let manifest = Manifest {
            format: FORMAT,
            program: self.program.clone(),
            cluster: self.cluster,
            moment_ms: (self.clock)(),
            seq: self.router.view().seq,
            class: None,
            shardlet: None,
            archive: Some(ArchivedRange {
                id: self.record.id,
                map: self.record.map.clone(),
                range: self.record.range.clone(),
                says: self.definition.describe_range(&self.record.range),
                without: self.record.without.clone(),
                datasets,
            }),
            new_bytes: pool.new_bytes(),
            catalog: None,
            shards: Vec::new(),
            maps: vec![put_map(self.at, &pool, &bare).await?],
            rows: Some(put_part(self.at, "rows", (JSON, ""), &chunks).await?),
            objects: mark
                .kept_while(carried::store(self.at, &pool, &self.carriers, &named, progress))
                .await?,
        };
        mark.kept_while(mark.check(&manifest)).await?;
        mark.make_whole_once(&manifest).await?;
        mark.confirm().await?;
        Ok(manifest)
    }

    /// The datasets that the archive has, and no others, once it is known that it is there.
    pub async fn dataset_names(&self) -> Result<Vec<String>, BackupError> {
        let manifest = Manifest::read(self.at).await?;
        self.require_mine(&manifest)?;
        Ok(names_of(&manifest))
    }

    /// Reads the rows as they are now into a file.
    async fn copy(
        &self,
        form: Form,
        progress: &Progress,
    ) -> Result<(Scratch, Vec<(String, u64)>), BackupError> {
        let shard = self.shard().await?;
        let mut tables = self.tables(&shard).await?;
        let file = match form {
            Form::Both => {
                tables.iter_mut().for_each(Rows::read_as_files_keep);
                self.scratch_file("archive")?
            }
            Form::Own => self.scratch_file("csv")?,
        };
        let mut tx =
            shard.carrier().await.map_err(|error| of_shard(&shard, error))?.begin(Access::Read).await?;
        nothing_undecided(&mut tx, &shard).await?;
        let counts = shardlet::extract(&mut tx, &shard, &tables, &file, None, progress).await?;
        tx.rollback().await?;
        Ok((file, counts))
    }

    fn scratch_file(&self, what: &str) -> Result<Scratch, BackupError> {
        Scratch::new(&self.scratch, &format!("{what}-{}.jsonl", self.record.id.simple()))
    }

    /// Reads all of the archive back, and compares it with the rows on the shard as they are now.
    pub async fn compare(&self) -> Result<Manifest, BackupError> {
        let manifest = keep::verify(self.at).await?;
        self.require_mine(&manifest)?;
        let pool = Pool::open(&self.at.depot).await?;
        let part = manifest.rows.as_ref().ok_or_else(|| self.no_rows())?;
        let kept = part.list(self.at).await?;
        let says = manifest.archive.as_ref().map(|archive| &archive.datasets);
        // An earlier program may have written it, and was replaced since.
        for form in [Form::Both, Form::Own] {
            let (file, counts) = self.copy(form, &Progress::default()).await?;
            let chunks = store(&pool, &file, &Progress::default()).await?;
            if kept == chunks && says == Some(&counts) {
                return Ok(manifest);
            }
        }
        Err(BackupError::Refused(format!(
            "rows of {} on shard {} were changed past Polyshard while they were archived; nothing was removed",
            self.definition.describe_range(&self.record.range),
            self.record.shard
        )))
    }

    fn require_mine(&self, manifest: &Manifest) -> Result<(), BackupError> {
        match &manifest.archive {
            Some(archive) if archive.id == self.record.id => Ok(()),
            _ => Err(BackupError::Damaged(format!("{} is not the archive any more", self.at.url()))),
        }
    }

    fn no_rows(&self) -> BackupError {
        BackupError::Damaged(format!("{} has no rows part", self.at.url()))
    }

    /// Puts the rows back on the shard that the record names, where the range is offline: what an earlier attempt has
    /// put there is removed first. Answers how many there are.
    pub async fn restore(&self, claim: &OfflineClaim) -> Result<u64, BackupError> {
        let manifest = Manifest::read(self.at).await?;
        self.require_mine(&manifest)?;
        for part in &manifest.maps {
            let text = part.copy.fetch_all(self.at).await?;
            let then = polyshard_map::import(&text)
                .map_err(|error| BackupError::Damaged(format!("map {}: {error}", part.name)))?;
            if then.definition() != self.definition {
                return Err(BackupError::Refused(format!(
                    "map {} was another one when the rows were archived, and they would be in other places",
                    part.name
                )));
            }
        }
        let part = manifest.rows.as_ref().ok_or_else(|| self.no_rows())?;
        let file = self.scratch_file("restore")?;
        crate::restore::write_file(self.at, part, file.path()).await?;
        let named = carried::named_in_lines(file.path(), &self.carriers)?;
        carried::check_places(&self.carriers, &named, self.cluster).await?;
        carried::restore(self.at, &manifest, &self.carriers, Wanted::Named(&named)).await?;
        let shard = self.shard().await?;
        self.bind_all(&shard, file.path()).await?;
        // Tables that were declared since have rows that no archive has.
        let only = names_of(&manifest);
        let mut left = Deleting::new(&shard, self.definition, &self.record.range, Some(&only)).await?;
        while !left.go_on(&shard, claim, u64::MAX).await?.is_done {}
        let mut tables = rows::tables_of_range(&shard, self.definition, &self.record.range).await?;
        tables.retain(|one| only.contains(&one.dataset.name));
        let restored = self.put_all(&shard, claim, &tables, file.path()).await?;
        let mut found = 0;
        let mut tx =
            shard.carrier().await.map_err(|error| of_shard(&shard, error))?.begin(Access::Read).await?;
        for table in &tables {
            found += table.count(&mut tx).await?;
        }
        tx.rollback().await?;
        let wanted = manifest.archive.as_ref().map_or(0, ArchivedRange::rows);
        if (restored, found) != (wanted, wanted) {
            return Err(BackupError::Failed(format!(
                "{wanted} rows are archived, and {found} are on shard {} after {restored} were put there",
                shard.id()
            )));
        }
        if !named.is_empty() {
            // Nobody sees the rows yet. Whoever was deleting the objects of the archive has proved that he may before
            // the claim of this restoration.
            carried::restore_again(self.at, &manifest, &self.carriers, &named, false).await?;
        }
        Ok(restored)
    }

    async fn bind_all(&self, shard: &Shard, lines: &Path) -> Result<(), BackupError> {
        let view = self.router.view();
        let wrong = |error| of_shard(shard, error);
        let known = shard.datasets(&self.record.map).await.map_err(wrong)?;
        for line in shardlet::read_lines(lines)? {
            let Line::Head(head) = line? else { continue };
            // What is known there is called there as it is.
            if known.iter().any(|dataset| dataset.name == head.dataset) {
                continue;
            }
            let Some(mut dataset) = shardlet::dataset_of(&view, &self.record.map, &head) else { continue };
            if let Some(own) = own_table(&head.table) {
                dataset.table = shard.dialect().own_table(own);
                shard.ensure_table(&dataset.table).await.map_err(wrong)?;
            } else if engine_word(shard.dialect()) != head.engine {
                // A table of a user's is known wherever it was declared; if it is not, it is missed by its rows.
                continue;
            }
            shard.bind(&dataset).await.map_err(wrong)?;
        }
        Ok(())
    }

    async fn put_all(
        &self,
        shard: &Shard,
        claim: &OfflineClaim,
        tables: &[Rows],
        lines: &Path,
    ) -> Result<u64, BackupError> {
        let (mut head, mut bite, mut restored) = (None, Vec::new(), 0);
        for line in shardlet::read_lines(lines)? {
            match line? {
                Line::Head(next) => {
                    self.put(shard, claim, tables, head.as_ref(), std::mem::take(&mut bite)).await?;
                    head = Some(next);
                }
                Line::Row(row) => {
                    bite.push(row);
                    restored += 1;
                    if bite.len() >= BITE_ROWS {
                        self.put(shard, claim, tables, head.as_ref(), std::mem::take(&mut bite)).await?;
                    }
                }
            }
        }
        self.put(shard, claim, tables, head.as_ref(), bite).await?;
        Ok(restored)
    }

    /// Puts some rows of one dataset back, in one transaction.
    async fn put(
        &self,
        shard: &Shard,
        claim: &OfflineClaim,
        tables: &[Rows],
        head: Option<&crate::lines::Head>,
        bite: Vec<Vec<Value>>,
    ) -> Result<(), BackupError> {
        let Some(head) = head.filter(|_| !bite.is_empty()) else { return Ok(()) };
        let table = tables.iter().find(|table| table.dataset.name == head.dataset).ok_or_else(|| {
            BackupError::Refused(format!(
                "{} is gone from the cluster, and the archive has rows of it; make it again, or read them from {}",
                head.dataset,
                self.at.url()
            ))
        })?;
        if (head.engine.as_str(), shard.dialect()) == (engine_word(Dialect::Postgres), Dialect::Sqlite)
            && let Some(column) = bite.iter().find_map(|row| notation::unkeepable(head, row))
        {
            return Err(BackupError::Refused(format!(
                "{}: column {column} has a value that a file cannot keep, such as NaN or an array of more than one \
                 dimension; restore it onto a shard on PostgreSQL",
                head.dataset
            )));
        }
        let mut adding = shardlet::adding_to(table, head, shard.dialect())?;
        let begun = shard.offline_transaction(claim, &self.record.map, &self.record.range).await;
        let mut tx = begun.map_err(|error| of_shard(shard, error))?;
        notation::read_as_written(&mut tx, head, shard.dialect()).await?;
        for row in bite {
            adding.push(&mut tx, row).await.map_err(of_rule)?;
        }
        adding.flush(&mut tx).await.map_err(of_rule)?;
        tx.commit().await?;
        Ok(())
    }

    /// Deletes what the rows of the archive named outside the databases, once these rows are gone: a few objects at a
    /// time, each time after a proof that the range is offline on the shard, and that nobody else has claimed it, such
    /// as a restoration. It can be repeated.
    pub async fn delete_objects(&self, shard: &Shard, claim: &OfflineClaim) -> Result<(), BackupError> {
        let manifest = Manifest::read(self.at).await?;
        self.require_mine(&manifest)?;
        let proof = Proof { shard, claim, map: &self.record.map, range: &self.record.range };
        carried::delete_listed(self.at, &manifest, &self.carriers, &proof).await
    }

    /// Removes the archive from its place; one that is gone is fine. What it shares with others goes when that is
    /// pruned.
    pub async fn remove(&self) -> Result<(), BackupError> {
        if self.at.depot.list(&self.at.name).await?.is_empty() {
            return Ok(());
        }
        match Manifest::read(self.at).await {
            Ok(manifest) if manifest.archive.as_ref().is_none_or(|archive| archive.id != self.record.id) => {
                return Ok(());
            }
            Err(error @ (BackupError::Busy(_) | BackupError::Failed(_))) => return Err(error),
            _ => {}
        }
        marks::remove(self.at, (self.clock)()).await
    }
}

/// The name of a table of our own without what each engine puts before it.
pub(crate) fn own_table(table: &str) -> Option<&str> {
    table.strip_prefix("polyshard.").or_else(|| table.strip_prefix("polyshard_"))
}

fn names_of(manifest: &Manifest) -> Vec<String> {
    let datasets = manifest.archive.iter().flat_map(|archive| &archive.datasets);
    datasets.map(|(name, _)| name.clone()).collect()
}

/// Rows of a prepared transaction cannot be seen, and will be there once it is decided. The range is read-only by now:
/// there are no new ones.
async fn nothing_undecided(tx: &mut Transaction, shard: &Shard) -> Result<(), BackupError> {
    if shard.dialect() != Dialect::Postgres {
        return Ok(());
    }
    let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() LIMIT 1";
    match tx.run(Statement::new(sql)).await?.first() {
        None => Ok(()),
        Some(row) => Err(BackupError::Busy(format!(
            "the prepared transaction {} on shard {} is not decided yet",
            row.text(0)?,
            shard.id()
        ))),
    }
}

/// Stores what of a file the depot has not.
async fn store(pool: &Pool, file: &Scratch, progress: &Progress) -> Result<Vec<Chunk>, BackupError> {
    let lines = tokio::fs::File::open(file.path()).await;
    pool.store(lines.map_err(|error| BackupError::of_file(file.path(), &error))?, progress).await
}

/// A row that the database refuses will be refused again.
fn of_rule(error: BackupError) -> BackupError {
    match error {
        BackupError::Failed(why) if why.contains("constraint") => BackupError::Refused(why),
        error => error,
    }
}

/// How far the removal of a range's rows is.
pub struct Deleting {
    definition: MapDefinition,
    range: KeyRange,
    /// Tables still to be looked at, those that refer to others first.
    tables: VecDeque<Rows>,
    /// Keys of the first one that were found.
    found: VecDeque<Vec<Value>>,
    /// The key that was not there any more when it was to be removed.
    missed: Option<Vec<Value>>,
    rows: u64,
    /// Set where what rows name outside the database goes with them.
    carriers: Option<(Carriers, With)>,
}

/// Which objects are deleted with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// All: the rows are lost.
    Objects,
    /// Those that no row names, or none yet: nothing else would delete them when the rows that say so are gone.
    PendingObjects,
}

/// What was removed by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deleted {
    /// Rows.
    pub rows: u64,
    /// Whether there are no more.
    pub is_done: bool,
}

impl Deleting {
    /// Looks which tables there are: all, or those datasets alone.
    pub async fn new(
        shard: &Shard,
        definition: &MapDefinition,
        range: &KeyRange,
        only: Option<&[String]>,
    ) -> Result<Deleting, BackupError> {
        let mut tables = rows::tables_of_range(shard, definition, range).await?;
        tables.retain(|one| only.is_none_or(|names| names.contains(&one.dataset.name)));
        Ok(Deleting {
            definition: definition.clone(),
            range: range.clone(),
            tables: tables.into_iter().rev().collect(),
            found: VecDeque::new(),
            missed: None,
            rows: 0,
            carriers: None,
        })
    }

    /// Deletes what rows name outside the database, too, after the rows. Objects whose rows are gone stay if the
    /// process is killed between the two: nothing names them, and nothing looks for them.
    pub fn with_objects(mut self, carriers: &Carriers, with: With) -> Deleting {
        self.carriers = Some((carriers.clone(), with));
        self
    }

    /// The objects that rows between two keys name, if these go with the rows.
    async fn objects(
        &self,
        shard: &Shard,
        table: &Rows,
        first: &[Value],
        last: &[Value],
    ) -> Result<Keys, BackupError> {
        let mut named = Keys::default();
        let Some((carriers, with)) = &self.carriers else { return Ok(named) };
        let mut naming = carried::columns(carriers, &table.dataset.table, &table.shape);
        naming.retain(|column| *with == With::Objects || column.is_pending);
        if !naming.is_empty() {
            let db = shard.carrier().await.map_err(|error| of_shard(shard, error))?;
            for row in db.read(table.read_between(first, last)).await?.into_rows() {
                named.add_removed_row(&naming, row.values())?;
            }
        }
        Ok(named)
    }

    /// Removes some rows, about as many as it may. Each transaction proves that the range is offline on the shard.
    pub async fn go_on(
        &mut self,
        shard: &Shard,
        claim: &OfflineClaim,
        rows_max: u64,
    ) -> Result<Deleted, BackupError> {
        let before = self.rows;
        while let Some(table) = self.tables.front() {
            if self.found.is_empty() {
                self.found = find(shard, table.first_keys(FOUND_MAX)?).await?;
                if self.found.is_empty() {
                    self.tables.pop_front();
                    continue;
                }
            }
            let bite: Vec<Vec<Value>> = self.found.drain(..self.found.len().min(BITE_ROWS)).collect();
            let (Some(first), Some(last)) = (bite.first(), bite.last()) else { continue };
            let objects = self.objects(shard, table, first, last).await?;
            let removed = match self.run(shard, claim, table.remove_between(first, last)).await {
                // Rows of the table refer to each other: all at once, since then none is left behind.
                Err(Removal::Rule) => {
                    self.found.clear();
                    self.run(shard, claim, table.remove_all()).await
                }
                other => other,
            };
            let removed = removed.map_err(|removal| match removal {
                Removal::Rule => BackupError::Refused(format!(
                    "rows elsewhere refer to rows of {} that are to be removed",
                    table.dataset.name
                )),
                Removal::Other(error) => error,
            })?;
            if let Some((carriers, _)) = &self.carriers {
                let proof = Proof { shard, claim, map: self.definition.name(), range: &self.range };
                carried::delete(carriers, &objects, &proof).await?;
            }
            self.rows += removed;
            if removed == 0 {
                // They went with others; or else they are found again, without end.
                if self.missed.as_ref() == Some(first) {
                    return Err(BackupError::Failed(format!(
                        "rows of {} are found, and cannot be removed by their primary key",
                        table.dataset.name
                    )));
                }
                self.missed = Some(first.clone());
                self.found.clear();
            }
            if self.rows - before >= rows_max {
                return Ok(Deleted { rows: self.rows, is_done: false });
            }
        }
        Ok(Deleted { rows: self.rows, is_done: true })
    }

    async fn run(&self, shard: &Shard, claim: &OfflineClaim, delete: Statement) -> Result<u64, Removal> {
        let other = |error: BackupError| Removal::Other(error);
        let begun = shard.offline_transaction(claim, self.definition.name(), &self.range).await;
        let mut tx = begun.map_err(|error| other(of_shard(shard, error)))?;
        match tx.run(delete).await {
            Ok(rows) => {
                tx.commit().await.map_err(|error| other(error.into()))?;
                Ok(rows.affected())
            }
            Err(Error::Constraint { .. }) => {
                tx.rollback().await.map_err(|error| other(error.into()))?;
                Err(Removal::Rule)
            }
            Err(error) => Err(other(error.into())),
        }
    }
}

/// Why rows were not removed.
enum Removal {
    /// Others refer to them.
    Rule,
    Other(BackupError),
}

async fn find(shard: &Shard, keys: Statement) -> Result<VecDeque<Vec<Value>>, BackupError> {
    let db = shard.carrier().await.map_err(|error| of_shard(shard, error))?;
    let mut scan = db.scan(keys, PAGE_ROWS).await?;
    let mut found = VecDeque::new();
    while let Some(page) = scan.next().await? {
        found.extend(page.into_rows().into_iter().map(polyshard_engine::Row::into_values));
    }
    Ok(found)
}
