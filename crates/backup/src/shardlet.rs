//! One shardlet: its rows taken out of a running cluster or of a backup, and put back beside the running rest.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;

use polyshard_engine::{Access as EngineAccess, Dialect, Target, Transaction, Value};
use polyshard_map::{Key, Map, MapDefinition, MapName};
use polyshard_router::{Access, Router, RouterError, Ticket, View};
use polyshard_shard::{Column, Dataset, Shard, ShardOptions, TableRows, one_notation, whole_name};
use uuid::Uuid;

use crate::carried::{self, Carriers, Keys, Removed, Wanted};
use crate::depot::Location;
use crate::files::Scratch;
use crate::lines::{self, Head, LINES_FORMAT, LINES_FORMAT_FILED, Line, PlacementText};
use crate::manifest::{Manifest, ShardPart, Shardlet, engine_word};
use crate::progress::Progress;
use crate::rows::{self, Adding, Extent, PAGE_ROWS, Rows};
use crate::{BackupError, copy, notation};

fn of_router(error: RouterError) -> BackupError {
    match error {
        RouterError::Locate(_) | RouterError::NoSuchMap(_) => BackupError::Refused(error.to_string()),
        RouterError::Moving(_) | RouterError::ReadOnly(_) | RouterError::Offline(_) => {
            BackupError::Busy(error.to_string())
        }
        other => BackupError::Failed(other.to_string()),
    }
}

/// The definition of a map now, and a key of it.
fn key_of(router: &Router, map: &MapName, text: &str) -> Result<(MapDefinition, Key), BackupError> {
    let view = router.view();
    let known = view.maps.get(map).ok_or_else(|| of_router(RouterError::NoSuchMap(map.clone())))?;
    let definition = known.map.definition().clone();
    let key = parse(&definition, text)?;
    Ok((definition, key))
}

fn parse(definition: &MapDefinition, text: &str) -> Result<Key, BackupError> {
    let key = definition.key_type().parse(text);
    key.map_err(|error| {
        BackupError::Refused(format!("{text:?} is no key of map {}: {error}", definition.name()))
    })
}

/// Writes the rows of a shardlet into a file, as they are at one moment; and what its map is.
pub(crate) async fn extract_live(
    router: &Router,
    map: &MapName,
    key: &str,
    file: Scratch,
    progress: &Progress,
) -> Result<(Scratch, MapDefinition), BackupError> {
    let (definition, key) = key_of(router, map, key)?;
    let ticket = router.enter(map, std::slice::from_ref(&key), Access::Read).await.map_err(of_router)?;
    let shard = router.administer(ticket.shard()).await;
    let shard = shard.map_err(|error| BackupError::of_shard(ticket.shard(), error))?;
    let tables = rows::tables(&shard, &definition, &key, Extent::Key).await?;
    let mut tx = ticket.begin().await?;
    if let Some(notation) = one_notation(ticket.dialect()) {
        tx.run(notation).await?;
    }
    extract(&mut tx, &shard, &tables, &file, Some(notation::NOTATION), progress).await?;
    tx.rollback().await?;
    Ok((file, definition))
}

/// Writes the rows of these tables into a file, in the notation that the transaction has; answers how many of each.
pub(crate) async fn extract(
    tx: &mut Transaction,
    shard: &Shard,
    tables: &[Rows],
    file: &Scratch,
    notation: Option<u32>,
    progress: &Progress,
) -> Result<Vec<(String, u64)>, BackupError> {
    let mut counts = Vec::with_capacity(tables.len());
    let wrong = |error: std::io::Error| BackupError::of_file(file.path(), &error);
    let mut out = BufWriter::new(std::fs::File::create(file.path()).map_err(wrong)?);
    for table in tables {
        table.check_apart(tx).await?;
        let name = |column: &Column| (column.name.clone(), column.kind.clone());
        let format = if table.is_filed { LINES_FORMAT_FILED } else { LINES_FORMAT };
        let head = Head {
            format,
            dataset: table.dataset.name.clone(),
            table: table.dataset.table.clone(),
            engine: engine_word(shard.dialect()).to_owned(),
            columns: table.shape.columns.iter().map(name).collect(),
            placement: (&table.dataset.placement).into(),
            rows_column: table.dataset.rows_column().map(str::to_owned),
            kept: if table.is_filed { notation::kept(&table.shape) } else { Vec::new() },
            notation: notation.filter(|_| shard.dialect() == Dialect::Postgres),
        };
        writeln!(out, "{}", lines::head_line(&head)).map_err(wrong)?;
        let (mut last, mut count): (Option<Vec<Value>>, u64) = (None, 0);
        loop {
            let page = table.page(tx, last.as_deref()).await?;
            for row in &page {
                writeln!(out, "{}", lines::row_line(row)).map_err(wrong)?;
            }
            count += page.len() as u64;
            progress.add_rows(page.len() as u64);
            let whole = page.len() == PAGE_ROWS;
            last = page.into_iter().next_back();
            if !whole {
                break;
            }
        }
        counts.push((table.dataset.name.clone(), count));
    }
    out.flush().map_err(wrong)?;
    Ok(counts)
}

/// A name that no other run has, for what is needed only meanwhile: of the cluster, and of the run in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunName {
    cluster: String,
    run: u64,
}

impl RunName {
    /// The name of a run of a cluster.
    pub fn new(cluster: Uuid, run: u64) -> RunName {
        RunName { cluster: cluster.simple().to_string(), run }
    }

    /// What the names of all runs of the cluster begin with, before an underscore.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    pub(crate) fn text(&self) -> String {
        format!("{}_{}", self.cluster, self.run)
    }
}

/// What happens to rows that the shardlet has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// They keep it from being restored.
    Keep,
    /// They are replaced by those of the backup.
    Replace,
}

/// Restores one shardlet into a running cluster.
pub struct RestoreShardlet<'a> {
    /// The cluster.
    pub router: &'a Router,
    /// The backup: of everything, of the shard that had it, or of the shardlet itself.
    pub backup: &'a Location,
    /// Its map.
    pub map: MapName,
    /// Its key, as people write it.
    pub key: String,
    /// Whether the whole bucket is meant.
    pub extent: Extent,
    /// What happens to the rows that are there.
    pub present: Present,
    /// A folder for files that are needed meanwhile.
    pub scratch: PathBuf,
    /// What they are called by.
    pub run: RunName,
    /// How the copy of a shard is opened.
    pub options: ShardOptions,
    /// What stores keep outside the databases.
    pub carriers: Carriers,
}

impl RestoreShardlet<'_> {
    /// Restores it: everything is fetched, compared and laid ready first, and then put into the shard that owns the key
    /// now in one transaction. Until that is committed, and if it is not, everybody sees what was there before. It can
    /// be cancelled until the commit begins, of which the outcome is told.
    pub fn run<'r>(
        &'r self,
        progress: &'r Progress,
    ) -> Pin<Box<dyn Future<Output = Result<u64, BackupError>> + Send + 'r>> {
        Box::pin(self.restore(progress))
    }

    async fn restore(&self, progress: &Progress) -> Result<u64, BackupError> {
        let (definition, key) = key_of(self.router, &self.map, &self.key)?;
        let manifest = progress.unless_cancelled(Manifest::read(self.backup)).await?;
        let (lines, then) = match (&manifest.shardlet, &manifest.rows) {
            (Some(shardlet), Some(part)) => {
                self.check_shardlet(shardlet, &definition, &key)?;
                let file = self.scratch_file()?;
                let writing = crate::restore::write_file(self.backup, part, file.path());
                progress.unless_cancelled(writing).await?;
                let then = match manifest.maps.is_empty() {
                    true => None,
                    false => Some(self.map_then(&manifest).await?.definition().clone()),
                };
                (file, then)
            }
            _ => {
                let map = progress.unless_cancelled(self.map_then(&manifest)).await?;
                if self.extent == Extent::Bucket && *map.definition() != definition {
                    return Err(BackupError::Refused(format!(
                        "map {} was another one when the backup was taken, whose buckets have other keys; restore the \
                         backup elsewhere, or single keys without --bucket",
                        self.map
                    )));
                }
                (self.lines_of_shard(&manifest, &map, progress).await?, Some(map.definition().clone()))
            }
        };
        let place =
            |definition: &MapDefinition| definition.placement(&parse(definition, &self.key).ok()?).ok();
        let same = then.is_some_and(|then| place(&then) == place(&definition));
        let placed = if same { Placed::AsNow } else { Placed::Otherwise };
        let named = carried::named_in_lines(lines.path(), &self.carriers)?;
        let fetching = async {
            carried::check_places(&self.carriers, &named, self.router.view().cluster).await?;
            carried::restore(self.backup, &manifest, &self.carriers, Wanted::Named(&named)).await
        };
        progress.unless_cancelled(fetching).await?;
        let putting = self.put(&definition, &key, (lines.path(), &named), placed, progress);
        let put = progress.unless_cancelled(putting).await?;
        if !named.is_empty() {
            carried::restore_again(self.backup, &manifest, &self.carriers, &named, put.is_pending).await?;
        }
        Ok(put.rows)
    }

    /// For the rows, until they are put.
    fn scratch_file(&self) -> Result<Scratch, BackupError> {
        Scratch::new(&self.scratch, &format!("rows-{}.jsonl", self.run.text()))
    }

    /// Whether the backup of one shardlet is of this one.
    fn check_shardlet(
        &self,
        shardlet: &Shardlet,
        definition: &MapDefinition,
        key: &Key,
    ) -> Result<(), BackupError> {
        if self.extent == Extent::Bucket {
            return Err(BackupError::Refused(
                "this is a backup of one key, and not of its whole bucket: the other keys' rows would be \
                 removed; use a backup of the shard or of everything"
                    .to_owned(),
            ));
        }
        if shardlet.map != self.map || parse(definition, &shardlet.key)? != *key {
            return Err(BackupError::Refused(format!(
                "this is a backup of {} {}, and not of {} {}",
                shardlet.map, shardlet.key, self.map, self.key
            )));
        }
        Ok(())
    }

    /// Takes the rows out of the copy of the shard that had them.
    async fn lines_of_shard(
        &self,
        manifest: &Manifest,
        map: &Map,
        progress: &Progress,
    ) -> Result<Scratch, BackupError> {
        let key = parse(map.definition(), &self.key)?;
        let located = map.locate(&key).map_err(|error| {
            BackupError::Refused(format!("the backup has no {} {}: {error}", self.map, self.key))
        })?;
        let part = manifest.shards.iter().find(|part| part.id == *located.shard());
        let part: &ShardPart = part.ok_or_else(|| {
            BackupError::Refused(format!(
                "{} {} was on shard {}, and the backup has only {}; use another backup",
                self.map,
                self.key,
                located.shard(),
                manifest.what()
            ))
        })?;
        let ticket = self.router.enter(&self.map, std::slice::from_ref(&key), Access::Read).await;
        let owner = ticket.map_err(of_router)?.shard().clone();
        let owner =
            self.router.administer(&owner).await.map_err(|error| BackupError::of_shard(&owner, error))?;
        progress.set_databases(1);
        let opened =
            copy::open(self.backup, part, &owner, &self.run, &self.scratch, &self.options, progress).await?;
        let extracted = async {
            let shard = opened.shard();
            let tables = rows::tables(shard, map.definition(), &key, self.extent).await?;
            let wrong = |error| BackupError::of_shard(shard.id(), error);
            let mut tx = shard.carrier().await.map_err(wrong)?.begin(EngineAccess::Read).await?;
            let file = self.scratch_file()?;
            let written = Some(notation::NOTATION);
            extract(&mut tx, shard, &tables, &file, written, &Progress::default()).await?;
            tx.rollback().await?;
            Ok(file)
        };
        // The copy goes also if it is cancelled.
        let extracted = progress.unless_cancelled(extracted).await;
        opened.close().await?;
        progress.add_done();
        extracted
    }

    async fn map_then(&self, manifest: &Manifest) -> Result<Map, BackupError> {
        let part = manifest.maps.iter().find(|part| part.name == self.map).ok_or_else(|| {
            BackupError::Refused(match manifest.maps.is_empty() {
                true => "a backup of format 1 does not tell which shard had which key; restore it elsewhere"
                    .to_owned(),
                false => format!("the backup has no map {}", self.map),
            })
        })?;
        let text = part.copy.fetch_all(self.backup).await?;
        polyshard_map::import(&text)
            .map_err(|error| BackupError::Damaged(format!("map {}: {error}", self.map)))
    }

    /// Puts the rows in, in one transaction on the shard that owns the key now. Objects that only replaced rows named
    /// are condemned in it.
    async fn put(
        &self,
        definition: &MapDefinition,
        key: &Key,
        (lines, named): (&Path, &Keys),
        placed: Placed,
        progress: &Progress,
    ) -> Result<Put, BackupError> {
        let ticket = self.router.enter(&self.map, std::slice::from_ref(key), Access::Write).await;
        let ticket = ticket.map_err(of_router)?;
        let shard = self.router.administer(ticket.shard()).await;
        let shard = shard.map_err(|error| BackupError::of_shard(ticket.shard(), error))?;
        self.bind_all(&ticket, lines).await?;
        let tables = rows::tables(&shard, definition, key, self.extent).await?;
        if let Some((table, trigger)) = tables.iter().find_map(|one| Some((one, one.shape.triggers.first()?)))
        {
            return Err(BackupError::Refused(format!(
                "{} has the trigger {trigger}, which would act on restored rows; drop it until they are restored",
                table.dataset.name
            )));
        }
        let mut tx = ticket.begin().await?;
        let removed = self.objects_of(&mut tx, &tables).await?;
        for table in tables.iter().rev() {
            table.check_apart(&mut tx).await?;
            match self.present {
                Present::Replace => drop(table.remove(&mut tx).await?),
                Present::Keep if table.any(&mut tx).await? => {
                    return Err(BackupError::Refused(format!(
                        "{} {} has rows in {} now; use --replace to put those of the backup in their place",
                        self.map, self.key, table.dataset.name
                    )));
                }
                Present::Keep => {}
            }
        }
        let restored = self.add_all(&mut tx, &ticket, &tables, lines, placed).await?;
        for statement in removed.condemn(&self.carriers, ticket.dialect(), named)? {
            tx.run(statement).await?;
        }
        // Whoever cancels it from here on is told how the commit ended, and not that there was none.
        progress.seal()?;
        tx.commit().await?;
        progress.add_rows(restored);
        Ok(Put { rows: restored, is_pending: removed.has_pending(named) })
    }

    /// The objects of the rows that are there now.
    async fn objects_of(&self, tx: &mut Transaction, tables: &[Rows]) -> Result<Removed, BackupError> {
        let mut named = Removed::default();
        for table in tables {
            let columns = carried::columns(&self.carriers, &table.dataset.table, &table.shape);
            if columns.is_empty() {
                continue;
            }
            let mut last: Option<Vec<Value>> = None;
            loop {
                let page = table.page(tx, last.as_deref()).await?;
                page.iter().try_for_each(|row| named.add_row(&columns, row))?;
                if page.len() < PAGE_ROWS {
                    break;
                }
                last = page.into_iter().next_back();
            }
        }
        Ok(named)
    }

    /// Lets the shard know of datasets that had no rows there yet.
    async fn bind_all(&self, ticket: &Ticket, lines: &Path) -> Result<(), BackupError> {
        let view = self.router.view();
        for line in read_lines(lines)? {
            let Line::Head(head) = line? else { continue };
            // Whether one that is gone matters is seen when it has a row.
            let Some(dataset) = dataset_of(&view, &self.map, &head) else { continue };
            if engine_word(ticket.dialect()) == head.engine {
                self.router.bind(ticket, &dataset).await.map_err(of_router)?;
            }
        }
        Ok(())
    }

    async fn add_all(
        &self,
        tx: &mut Transaction,
        ticket: &Ticket,
        tables: &[Rows],
        lines: &Path,
        placed: Placed,
    ) -> Result<u64, BackupError> {
        let (mut adding, mut restored): (Option<Adding>, u64) = (None, 0);
        let mut missing: Option<Head> = None;
        let mut misplaced: Option<String> = None;
        for line in read_lines(lines)? {
            match line? {
                Line::Head(head) => {
                    if let Some(mut before) = adding.take() {
                        before.flush(tx).await?;
                    }
                    let carries = matches!(head.placement, PlacementText::Column(_));
                    misplaced = (carries && placed == Placed::Otherwise).then(|| head.dataset.clone());
                    match tables.iter().find(|table| table.dataset.name == head.dataset) {
                        Some(_) if engine_word(ticket.dialect()) != head.engine => {
                            return Err(BackupError::Refused(format!(
                                "{}: its rows are of {}, and the shard that owns the key now is of {}; restore the \
                                 backup elsewhere",
                                head.dataset,
                                head.engine,
                                engine_word(ticket.dialect())
                            )));
                        }
                        Some(table) => {
                            notation::read_as_written(tx, &head, ticket.dialect()).await?;
                            adding = Some(adding_to(table, &head, ticket.dialect())?);
                        }
                        None => missing = Some(head),
                    }
                }
                Line::Row(row) => {
                    let Some(adding) = &mut adding else {
                        let name = missing.map_or_else(String::new, |head| head.dataset);
                        return Err(BackupError::Refused(format!(
                            "{name} of the backup is gone from the cluster, and {} {} had rows in it; restore the \
                             backup elsewhere to get at them",
                            self.map, self.key
                        )));
                    };
                    if let Some(dataset) = misplaced {
                        return Err(BackupError::Refused(format!(
                            "map {} is not known to be as it was when the backup was taken, and rows of {dataset} \
                             carry their place in it; restore the backup elsewhere to get at them",
                            self.map
                        )));
                    }
                    adding.push(tx, row).await?;
                    restored += 1;
                }
            }
        }
        if let Some(mut last) = adding {
            last.flush(tx).await?;
        }
        Ok(restored)
    }
}

/// What was put in.
struct Put {
    rows: u64,
    /// Whether their store may just be deleting objects that they name.
    is_pending: bool,
}

/// Whether placements that rows carry mean the same as when they were backed up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placed {
    AsNow,
    Otherwise,
}

/// The dataset whose rows follow a head; none if the cluster has it no more.
pub(crate) fn dataset_of(view: &View, map: &MapName, head: &Head) -> Option<Dataset> {
    let whole = whole_name(&head.dataset);
    let record = view.datasets.values().find(|record| record.name_on_shards() == whole);
    let record = record.filter(|record| record.map == *map)?;
    let number = i64::try_from(record.id).expect("the catalog counts datasets within 63 bits");
    Some(Dataset {
        name: head.dataset.clone(),
        map: map.clone(),
        table: head.table.clone(),
        placement: head.placement.clone().into(),
        rows: match head.rows_column.clone() {
            Some(column) => TableRows::Numbered { column, number },
            None => TableRows::All,
        },
    })
}

/// Gets ready to add a dataset's rows to its table as it is now.
pub(crate) fn adding_to(table: &Rows, head: &Head, dialect: Dialect) -> Result<Adding, BackupError> {
    let columns = notation::columns_for(head, &table.shape, dialect);
    let columns = columns.map_err(|why| BackupError::Refused(format!("{}: {why}", head.dataset)))?;
    Ok(Adding::new(&table.dataset.table, columns, dialect))
}

pub(crate) fn read_lines(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Line, BackupError>>, BackupError> {
    let owned = path.to_owned();
    let file = std::fs::File::open(path).map_err(|error| BackupError::of_file(path, &error))?;
    Ok(BufReader::new(file)
        .lines()
        .map(move |line| lines::read_line(&line.map_err(|error| BackupError::of_file(&owned, &error))?)))
}

/// Where the copy of a shard can be looked into, beside the shard that owns the key now.
pub(crate) fn beside(owner: &Shard, database: &str) -> Option<Target> {
    match owner.address() {
        Target::Sqlite(_) => None,
        Target::Postgres(target) => {
            let mut target = target.clone();
            target.database = database.to_owned();
            Some(Target::Postgres(target))
        }
    }
}
