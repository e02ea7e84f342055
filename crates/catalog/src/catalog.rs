//! A handle to the catalog's database: reading it whole, following its changes, and its transactions.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_engine::{Database, Listener, Options, Row, Statement, Target};
use polyshard_map::{Entry, Epoch, KeyRange, MapName, ShardId};
use polyshard_shard::OpId;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::datasets::DatasetRecord;
use crate::sql_catalog::{self, ENTRY_COLUMNS, SqlCatalog, from_json};
use crate::tx::Reply;
use crate::types::{Event, MapContents, MapRecord, OpRecord, ShardRecord};
use crate::{CatalogError, LEASE, schema};

/// Where published changes are announced.
pub const CHANGE_CHANNEL: &str = "polyshard_change";

/// Rows read at once.
const PAGE_ROWS: usize = 10_000;
/// Events read at once.
const EVENTS_PAGE: i64 = 1_000;

/// Makes ids: randomness is passed in, so that the simulation can repeat a run.
pub(crate) type IdSource = Arc<dyn Fn() -> Uuid + Send + Sync>;

/// The global map. It is opened on first use and again after a failure, so that a server can start, and go
/// on, without it.
pub struct Catalog {
    target: Target,
    options: Options,
    /// Who this process is, in leases.
    owner: String,
    lease: Duration,
    ids: IdSource,
    open: OnceCell<(Database, Uuid)>,
}

/// Everything a router needs, and from which event on to follow.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The cluster.
    pub cluster: Uuid,
    /// The last event that is surely included; later ones are to be applied, even if some are included too.
    pub seq: u64,
    /// The last epoch given when it was read.
    pub epoch: Epoch,
    /// Which of the epochs up to there belong to operations that were still under way: shards may be ahead of
    /// the entries in these.
    pub running: Vec<Epoch>,
    /// Shards.
    pub shards: Vec<ShardRecord>,
    /// Live maps with their entries.
    pub maps: Vec<MapContents>,
    /// Datasets.
    pub datasets: Vec<DatasetRecord>,
    /// The last position of the journal.
    pub journal: u64,
}

/// What happened since an event.
#[derive(Debug, Clone)]
pub enum Changes {
    /// These events, in order, up to the number.
    Events(u64, Vec<Event>),
    /// More than is kept: read everything anew.
    TooOld,
}

impl Catalog {
    /// A handle; nothing is opened yet.
    pub fn new(target: Target, options: Options, owner: String, ids: IdSource) -> Catalog {
        Catalog { target, options, owner, lease: LEASE, ids, open: OnceCell::new() }
    }

    /// The same handle, under which an operation may be taken over after another time than [`LEASE`].
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Catalog {
        Catalog { lease, ..self }
    }

    async fn opened(&self) -> Reply<&(Database, Uuid)> {
        let open = || async {
            let db = Database::open(self.target.clone(), self.options.clone(), None).await?;
            let cluster = schema::create(&db, (self.ids)()).await?;
            Ok::<_, CatalogError>((db, cluster))
        };
        self.open.get_or_try_init(open).await
    }

    pub(crate) async fn db(&self) -> Reply<&Database> {
        Ok(&self.opened().await?.0)
    }

    /// A name that nothing else has.
    pub fn fresh_id(&self) -> Uuid {
        (self.ids)()
    }

    /// For how long a driver may be silent before another takes over: it says more often than that that it lives.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Where it is, without a password.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Which cluster this is.
    pub async fn cluster(&self) -> Reply<Uuid> {
        Ok(self.opened().await?.1)
    }

    /// Answers if the catalog does.
    pub async fn ping(&self) -> Reply<()> {
        Ok(self.db().await?.ping().await?)
    }

    /// Holds this moment of it, to be copied while changes go on.
    pub async fn hold_moment(&self) -> Reply<polyshard_engine::Snapshot> {
        Ok(self.db().await?.snapshot().await?)
    }

    pub(crate) async fn begin(&self) -> Reply<SqlCatalog> {
        SqlCatalog::begin(self.db().await?, self.lease).await
    }

    /// Hears of published changes.
    pub async fn listen(&self) -> Reply<Listener> {
        Ok(self.db().await?.listen(CHANGE_CHANNEL).await?)
    }

    /// Reads everything that routers need.
    #[boxed]
    pub async fn snapshot(&self) -> Reply<Snapshot> {
        let (db, cluster) = self.opened().await?;
        // The number comes first: what is published while the rest is read is then applied once more.
        let rows =
            db.read(Statement::new(format!("SELECT seq, epoch FROM {}", self.own("cluster").await?))).await?;
        let row =
            rows.first().ok_or(CatalogError::Damaged { what: "cluster row", detail: "missing".into() })?;
        let (seq, epoch) = (row.int(0)? as u64, Epoch::new(row.int(1)? as u64));
        // Before the entries: what ends meanwhile is counted as under way, and its event comes later.
        let running = self.running().await?.iter().map(|record| record.op.epoch).collect();
        let shards = self.shards().await?;
        let mut maps = Vec::new();
        for record in self.maps().await?.into_iter().filter(|record| record.live) {
            let entries = self.entries(record.definition.name()).await?;
            maps.push(MapContents { record, entries });
        }
        let datasets = self.datasets().await?;
        let journal = self.journal_position().await?;
        Ok(Snapshot { cluster: *cluster, seq, epoch, running, shards, maps, datasets, journal })
    }

    /// What was published after an event.
    #[boxed]
    pub async fn changes(&self, since: u64) -> Reply<Changes> {
        let sql = format!(
            "SELECT seq, event FROM {} WHERE seq > $1 ORDER BY seq LIMIT {EVENTS_PAGE}",
            self.own("event").await?
        );
        let rows = self.db().await?.read(Statement::new(sql).bind(since as i64)).await?;
        let Some(first) = rows.first() else {
            let sql = format!("SELECT seq FROM {}", self.own("cluster").await?);
            let rows = self.db().await?.read(Statement::new(sql)).await?;
            let now = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) as u64;
            // Fewer events than this router has seen: the catalog was restored or replaced.
            return Ok(if now < since { Changes::TooOld } else { Changes::Events(since, vec![]) });
        };
        if first.int(0)? as u64 != since + 1 {
            return Ok(Changes::TooOld);
        }
        let last = rows.rows().last().map(|row| row.int(0)).transpose()?.unwrap_or(0) as u64;
        let events: Reply<Vec<Event>> =
            rows.rows().iter().map(|row| from_json("event", row.text(1)?)).collect();
        Ok(Changes::Events(last, events?))
    }

    /// All shards.
    #[boxed]
    pub async fn shards(&self) -> Reply<Vec<ShardRecord>> {
        let sql = format!("SELECT record FROM {} ORDER BY id", self.own("shard").await?);
        let rows = self.db().await?.read(Statement::new(sql)).await?;
        rows.rows().iter().map(|row| from_json("shard record", row.text(0)?)).collect()
    }

    /// One shard.
    pub async fn shard(&self, id: &ShardId) -> Reply<ShardRecord> {
        let sql = format!("SELECT record FROM {} WHERE id = $1", self.own("shard").await?);
        let rows = self.db().await?.read(Statement::new(sql).bind(id.to_string())).await?;
        let row = rows.first().ok_or_else(|| CatalogError::NoSuchShard(id.clone()))?;
        from_json("shard record", row.text(0)?)
    }

    /// All maps, also those being created.
    #[boxed]
    pub async fn maps(&self) -> Reply<Vec<MapRecord>> {
        let sql =
            format!("SELECT definition, epoch, version, live FROM {} ORDER BY name", self.own("map").await?);
        let rows = self.db().await?.read(Statement::new(sql)).await?;
        rows.rows().iter().map(sql_catalog::read_map).collect()
    }

    /// One live map.
    pub async fn map(&self, name: &MapName) -> Reply<MapRecord> {
        let found =
            self.maps().await?.into_iter().find(|record| record.live && record.definition.name() == name);
        found.ok_or_else(|| CatalogError::NoSuchMap(name.clone()))
    }

    /// All entries of a map.
    #[boxed]
    pub async fn entries(&self, map: &MapName) -> Reply<Vec<Entry>> {
        let sql = format!(
            "SELECT {ENTRY_COLUMNS} FROM {} WHERE map = $1 ORDER BY lo",
            self.own("map_range").await?
        );
        self.scan_entries(Statement::new(sql).bind(map.to_string())).await
    }

    /// Entries of a map that begin after a bound, at most so many.
    pub async fn entries_after(&self, map: &MapName, after: Option<&[u8]>, limit: u32) -> Reply<Vec<Entry>> {
        let table = self.own("map_range").await?;
        let statement = match after {
            None => Statement::new(format!(
                "SELECT {ENTRY_COLUMNS} FROM {table} WHERE map = $1 ORDER BY lo LIMIT {limit}"
            ))
            .bind(map.to_string()),
            Some(after) => Statement::new(format!(
                "SELECT {ENTRY_COLUMNS} FROM {table} WHERE map = $1 AND lo > $2 ORDER BY lo LIMIT {limit}"
            ))
            .bind(map.to_string())
            .bind(after.to_vec()),
        };
        let rows = self.db().await?.read(statement).await?;
        rows.rows().iter().map(sql_catalog::read_entry).collect()
    }

    /// The entry that has a placement, if it is mapped.
    pub async fn entry_at(&self, map: &MapName, placement: &[u8]) -> Reply<Option<Entry>> {
        let point = KeyRange::point(polyshard_map::KeyBytes::new(placement.to_vec()));
        let db = self.db().await?;
        let rows = db.read(sql_catalog::select_entries(db.dialect(), map, &point)).await?;
        let entries: Reply<Vec<Entry>> = rows.rows().iter().map(sql_catalog::read_entry).collect();
        Ok(entries?.into_iter().find(|entry| entry.range.contains(placement)))
    }

    /// A shard's entries of a map.
    pub async fn entries_of(&self, map: &MapName, shard: &ShardId) -> Reply<Vec<Entry>> {
        let sql = format!(
            "SELECT {ENTRY_COLUMNS} FROM {} WHERE shard = $1 AND map = $2 ORDER BY lo",
            self.own("map_range").await?
        );
        self.scan_entries(Statement::new(sql).bind(shard.to_string()).bind(map.to_string())).await
    }

    /// How many entries each shard has in a map.
    pub async fn count_by_shard(&self, map: &MapName) -> Reply<Vec<(ShardId, u64)>> {
        let sql = format!(
            "SELECT shard, count(*) FROM {} WHERE map = $1 GROUP BY shard ORDER BY shard",
            self.own("map_range").await?
        );
        let rows = self.db().await?.read(Statement::new(sql).bind(map.to_string())).await?;
        let read = |row: &Row| Ok((sql_catalog::parse("shard", row.text(0)?)?, row.int(1)? as u64));
        rows.rows().iter().map(read).collect()
    }

    /// Operations, the newest first.
    pub async fn operations(&self, limit: u32) -> Reply<Vec<OpRecord>> {
        let db = self.db().await?;
        let sql = format!(
            "{} ORDER BY started DESC, id LIMIT {limit}",
            sql_catalog::select_operation(db.dialect())
        );
        db.read(Statement::new(sql)).await?.rows().iter().map(sql_catalog::read_operation).collect()
    }

    /// One operation.
    pub async fn operation(&self, id: OpId) -> Reply<OpRecord> {
        let db = self.db().await?;
        let sql = format!("{} WHERE id = $1", sql_catalog::select_operation(db.dialect()));
        let rows = db.read(Statement::new(sql).bind(id.to_string())).await?;
        rows.first().map(sql_catalog::read_operation).ok_or(CatalogError::NoSuchOperation(id))?
    }

    /// Operations under way.
    pub async fn running(&self) -> Reply<Vec<OpRecord>> {
        let db = self.db().await?;
        let sql = format!("{} WHERE state = 'running'", sql_catalog::select_operation(db.dialect()));
        db.read(Statement::new(sql)).await?.rows().iter().map(sql_catalog::read_operation).collect()
    }

    /// Ends all sessions.
    pub async fn close(&self) {
        if let Some((db, _)) = self.open.get() {
            db.close().await;
        }
    }

    async fn own(&self, table: &str) -> Reply<String> {
        Ok(self.db().await?.dialect().own_table(table))
    }

    async fn scan_entries(&self, statement: Statement) -> Reply<Vec<Entry>> {
        let mut scan = self.db().await?.scan(statement, PAGE_ROWS).await?;
        let mut entries = Vec::new();
        while let Some(page) = scan.next().await? {
            for row in page.rows() {
                entries.push(sql_catalog::read_entry(row)?);
            }
        }
        Ok(entries)
    }
}
