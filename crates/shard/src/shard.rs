//! A handle to one shard: its data for stores, its own tables for the protocol.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_engine::{Access, Database, Dialect, Durable, Listener, Options, Statement, Target};
use polyshard_map::{Entry, Epoch, KeyRange, MapDefinition, MapName, ShardId};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::demand;
use crate::functions;
use crate::hello::{HelloState, SESSION_LOCK_CLASS, Session};
use crate::schema::StoreSchema;
use crate::sql_local::{self, SqlLocal};
use crate::{
    Ack, AckPhase, Departure, Edit, FenceEpoch, FenceRow, HelloReply, Learnt, LocalEntry, LocalTx, Meta,
    OpId, OpRef, RouterId, ShardError, protocol, schema,
};

/// Where fences are announced.
pub const FENCE_CHANNEL: &str = "polyshard_fence";

/// Records of ended operations and departures that a shard keeps.
const RECORDS_KEPT: i64 = 10_000;
/// How long a statement of a patient transaction may take: an index on a very large table.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// Sessions for patient transactions: one changes the schema at a time, others may wait for it or look.
const PATIENT_SESSIONS: usize = 4;
/// Rows of the local map read at once.
const PAGE_ROWS: usize = 1000;

/// How to open a shard.
#[derive(Clone)]
pub struct ShardOptions {
    /// Of the sessions that carry data.
    pub data: Options,
    /// How long to wait for a terminated session to be gone.
    pub terminate_wait: Duration,
    /// Tables that stores keep on every shard.
    pub stores: Vec<StoreSchema>,
}

impl Default for ShardOptions {
    fn default() -> ShardOptions {
        ShardOptions { data: Options::default(), terminate_wait: Duration::from_secs(5), stores: Vec::new() }
    }
}

/// One shard. The protocol's own sessions are apart from those that carry data, so that a router whose
/// sessions are cut off can still be told why.
pub struct Shard {
    id: ShardId,
    target: Target,
    options: ShardOptions,
    control: Database,
    data: OnceCell<Database>,
    carrier: OnceCell<Database>,
    lazy_carrier: OnceCell<Database>,
    patient: OnceCell<Database>,
    /// Routers of this process on an embedded shard, which has no sessions to list.
    local_routers: Mutex<BTreeSet<RouterId>>,
}

/// Runs one protocol transaction and commits it.
macro_rules! transaction {
    ($self:ident, |$tx:ident| $body:expr) => {{
        let mut $tx = SqlLocal::begin(&$self.control).await?;
        let reply = $body.await?;
        $tx.commit().await?;
        Ok(reply)
    }};
}

impl Shard {
    /// Opens the protocol's own sessions. Sessions for data are opened by [`Shard::data`].
    #[boxed]
    pub async fn open(id: ShardId, target: Target, mut options: ShardOptions) -> Result<Shard, ShardError> {
        options.data.functions.extend(functions::placement_functions());
        let control_options = match &target {
            Target::Sqlite(_) => options.data.clone(),
            Target::Postgres(_) => {
                Options { postgres_readers: 1, postgres_pool_max: 4, ..options.data.clone() }
            }
        };
        let control = Database::open(target.clone(), control_options, None).await?;
        let local_routers = Mutex::default();
        let (data, patient) = (OnceCell::new(), OnceCell::new());
        let (carrier, lazy_carrier) = (OnceCell::new(), OnceCell::new());
        Ok(Shard { id, target, options, control, data, carrier, lazy_carrier, patient, local_routers })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }
    pub(crate) fn options(&self) -> &ShardOptions {
        &self.options
    }
    pub(crate) fn control(&self) -> &Database {
        &self.control
    }
    pub(crate) fn carrier_cell(&self, durable: Durable) -> &OnceCell<Database> {
        match durable {
            Durable::Now => &self.carrier,
            Durable::WithTheNext => &self.lazy_carrier,
        }
    }

    /// The database for data, if it is open.
    pub(crate) fn opened_data(&self) -> Option<&Database> {
        self.data.get()
    }

    /// Its name.
    pub fn id(&self) -> &ShardId {
        &self.id
    }

    /// Which engine it is on.
    pub fn dialect(&self) -> Dialect {
        self.control.dialect()
    }

    /// The database for data, if it is open.
    pub fn open_data(&self) -> Option<&Database> {
        self.data.get()
    }

    /// The database for data, whose every session introduces itself with `hello`.
    pub async fn data(&self, hello: &Arc<dyn HelloState>) -> Result<&Database, ShardError> {
        let open = || async {
            self.ensure_tables().await?;
            let session = Session::new(self.id.clone(), hello.clone());
            match self.dialect() {
                Dialect::Postgres => {
                    let target = self.target.clone();
                    Ok(Database::open(target, self.options.data.clone(), Some(Arc::new(session))).await?)
                }
                Dialect::Sqlite => {
                    self.local_routers.lock().expect("no panic while held").insert(hello.router());
                    self.teach(hello.as_ref()).await?;
                    Ok::<Database, ShardError>(self.control.clone())
                }
            }
        };
        self.data.get_or_try_init(open).await
    }

    /// Gives an empty database the identity of this shard. Repeating it is fine; another shard's or
    /// cluster's database is refused.
    pub async fn initialise(&self, cluster: Uuid, incarnation: Uuid) -> Result<Meta, ShardError> {
        schema::create(&self.control).await?;
        let mut tx = SqlLocal::begin(&self.control).await?;
        if let Some(found) = tx.find_meta().await? {
            check_identity(&found, cluster, &self.id)?;
            if tx.has_ranges().await? {
                return Err(ShardError::WasAShard { shard: self.id.clone() });
            }
            return Ok(found);
        }
        let meta = Meta {
            format: schema::FORMAT,
            cluster,
            shard: self.id.clone(),
            incarnation,
            fence_epoch: FenceEpoch::ZERO,
            pruned_epoch: Epoch::ZERO,
        };
        tx.put_meta(&meta).await?;
        tx.commit().await?;
        Ok(meta)
    }

    /// Who this database says it is; nothing if it is no shard.
    pub async fn meta(&self) -> Result<Option<Meta>, ShardError> {
        if !schema::exists(&self.control).await? {
            return Ok(None);
        }
        let rows = self.control.read(sql_local::select_meta(self.dialect())).await?;
        let meta = rows.first().map(sql_local::read_meta).transpose()?;
        match meta {
            Some(meta) if meta.format > schema::FORMAT => {
                Err(ShardError::FormatTooNew { found: meta.format, known: schema::FORMAT })
            }
            other => Ok(other),
        }
    }

    /// Refuses an embedded shard's database that is not this shard of this cluster in this incarnation: another file
    /// may lie in its place, or none. On PostgreSQL every session asks that for itself.
    pub async fn prove(&self, cluster: Uuid, incarnation: Uuid) -> Result<(), ShardError> {
        let Target::Sqlite(file) = &self.target else { return Ok(()) };
        let Some(found) = self.meta().await? else {
            let why = format!("{} holds no shard", file.path.display());
            return Err(ShardError::Lost { shard: self.id.clone(), why });
        };
        check_identity(&found, cluster, &self.id)?;
        if found.incarnation != incarnation {
            return Err(ShardError::IncarnationChanged { shard: self.id.clone() });
        }
        Ok(())
    }

    /// Gives the shard a new incarnation (and name, and cluster) after a restore or attach.
    pub async fn reincarnate(&self, cluster: Uuid, incarnation: Uuid) -> Result<Meta, ShardError> {
        schema::create(&self.control).await?;
        let mut tx = SqlLocal::begin(&self.control).await?;
        let mut meta = tx.find_meta().await?.ok_or(ShardError::NotAShard)?;
        meta.cluster = cluster;
        meta.shard = self.id.clone();
        meta.incarnation = incarnation;
        tx.put_meta(&meta).await?;
        tx.clear_unfinished().await?;
        tx.leave_strays().await?;
        tx.commit().await?;
        Ok(meta)
    }

    /// Forgets the shard's identity and local map; the users' data stays.
    pub async fn wipe(&self) -> Result<(), ShardError> {
        schema::create(&self.control).await?;
        transaction!(self, |tx| tx.wipe())
    }

    /// See [`protocol::prepare`].
    pub async fn prepare(&self, op: OpRef, edit: &Edit) -> Result<(), ShardError> {
        transaction!(self, |tx| protocol::prepare(&mut tx, op, edit))
    }
    /// See [`protocol::load`].
    pub async fn load(&self, op: OpRef, edit: &Edit, entries: &[Entry]) -> Result<(), ShardError> {
        transaction!(self, |tx| protocol::load(&mut tx, op, edit, entries))
    }
    /// See [`protocol::raise_fence`].
    pub async fn raise_fence(&self, op: OpRef) -> Result<Option<FenceRow>, ShardError> {
        transaction!(self, |tx| protocol::raise_fence(&mut tx, op))
    }
    /// See [`protocol::acknowledge`]: the same in fewer round trips, since requests are held meanwhile.
    pub async fn acknowledge(
        &self,
        id: OpId,
        attempt: u64,
        router: RouterId,
        phase: AckPhase,
    ) -> Result<bool, ShardError> {
        let answers =
            self.control.write(sql_local::acknowledge(self.dialect(), id, attempt, router, phase)).await?;
        Ok(answers.last().is_some_and(|rows| rows.affected() == 1))
    }
    /// See [`protocol::withdraw`].
    pub async fn withdraw(&self, id: OpId, attempt: u64, router: RouterId) -> Result<bool, ShardError> {
        transaction!(self, |tx| protocol::withdraw(&mut tx, id, attempt, router))
    }
    /// See [`protocol::check_empty`].
    pub async fn check_empty(&self, op: OpRef) -> Result<(), ShardError> {
        transaction!(self, |tx| protocol::check_empty(&mut tx, op))
    }
    /// See [`protocol::depart`].
    pub async fn depart(&self, op: OpRef, attempt: u64) -> Result<(), ShardError> {
        transaction!(self, |tx| protocol::depart(&mut tx, op, attempt))
    }
    /// See [`protocol::activate`].
    pub async fn activate(&self, op: OpRef, inside: Option<&[KeyRange]>) -> Result<(), ShardError> {
        transaction!(self, |tx| protocol::activate(&mut tx, op, inside))
    }
    /// See [`protocol::release`].
    pub async fn release(&self, op: OpRef) -> Result<(), ShardError> {
        transaction!(self, |tx| protocol::release(&mut tx, op))
    }
    /// See [`protocol::undo`].
    pub async fn undo(&self, op: OpRef) -> Result<(), ShardError> {
        transaction!(self, |tx| protocol::undo(&mut tx, op))
    }
    /// See [`protocol::hello`]: the same of one snapshot, for which nobody has to wait.
    pub async fn hello(&self, known: FenceEpoch) -> Result<HelloReply, ShardError> {
        self.hello_to(RouterId::new(0), known).await
    }

    async fn hello_to(&self, router: RouterId, known: FenceEpoch) -> Result<HelloReply, ShardError> {
        let mut tx = self.control.begin(Access::Read).await?;
        let dialect = self.dialect();
        let asked = vec![
            sql_local::select_meta(dialect),
            sql_local::select_departures(dialect, known),
            sql_local::select_fences(dialect),
            demand::select(dialect, router),
        ];
        let answers = tx.run_all(asked).await?;
        tx.rollback().await?;
        let [meta, departures, fences, demand] = answers.as_slice() else {
            return Err(ShardError::Damaged { what: "hello", detail: "an answer is missing".into() });
        };
        let meta = sql_local::read_meta(meta.first().ok_or(ShardError::NotAShard)?)?;
        Ok(HelloReply {
            since: known,
            incarnation: meta.incarnation,
            fence_epoch: meta.fence_epoch,
            pruned_epoch: meta.pruned_epoch,
            departures: departures.rows().iter().map(sql_local::read_departure).collect::<Result<_, _>>()?,
            fences: fences.rows().iter().map(sql_local::read_fence).collect::<Result<_, _>>()?,
            demand: demand::read(demand)?,
        })
    }

    /// Tells a router what has left and which fences stand.
    #[boxed]
    pub async fn teach(&self, state: &dyn HelloState) -> Result<(), ShardError> {
        while state.hear(&self.id, self.hello_to(state.router(), state.known(&self.id)).await?)?
            == Learnt::AskAgain
        {}
        Ok(())
    }

    /// An operation whose ranges have left this shard and whose fence still stands: how to name it, and what left.
    pub async fn departed(&self, id: OpId) -> Result<Option<(OpRef, Vec<Departure>)>, ShardError> {
        transaction!(self, |tx| protocol::departed(&mut tx, id))
    }

    /// A fence as it stands.
    pub async fn fence(&self, id: OpId) -> Result<Option<FenceRow>, ShardError> {
        transaction!(self, |tx| tx.fence(id))
    }

    /// The acknowledgements of a fence so far.
    pub async fn acks(&self, id: OpId) -> Result<Vec<Ack>, ShardError> {
        let rows = self.control.read(sql_local::select_acks(self.dialect(), id)).await?;
        rows.rows().iter().map(sql_local::read_ack).collect()
    }

    /// Hears of fences.
    pub async fn listen(&self) -> Result<Listener, ShardError> {
        Ok(self.control.listen(FENCE_CHANNEL).await?)
    }

    /// Routers that have sessions for data open on this shard, from any process.
    pub async fn routers(&self) -> Result<BTreeSet<RouterId>, ShardError> {
        if self.dialect() == Dialect::Sqlite {
            return Ok(self.local_routers.lock().expect("no panic while held").clone());
        }
        let sql = format!(
            "SELECT DISTINCT objid::bigint {SESSION_LOCKS} AND classid::bigint = {SESSION_LOCK_CLASS}"
        );
        let rows = self.control.read(Statement::new(sql)).await?;
        rows.rows().iter().map(|row| Ok(RouterId::new(row.int(0)? as u32))).collect()
    }

    /// Ends all sessions of a router and waits until they are gone. False if one is still there.
    pub async fn cut_off(&self, router: RouterId) -> Result<bool, ShardError> {
        if self.dialect() == Dialect::Sqlite {
            // One process owns an embedded shard: a router of it that does not answer is this process.
            return Ok(false);
        }
        let wait_ms = self.options.terminate_wait.as_millis();
        let sql = format!(
            "SELECT bool_and(pg_terminate_backend(pid, {wait_ms})) {SESSION_LOCKS} \
             AND classid::bigint = {SESSION_LOCK_CLASS} AND objid::bigint = {}",
            router.get()
        );
        let rows = self.control.read(Statement::new(sql)).await?;
        let gone = rows.first().map(|row| row.opt_bool(0)).transpose()?.flatten().unwrap_or(true);
        Ok(gone && !self.routers().await?.contains(&router))
    }

    /// The maps that this shard has a part of.
    pub async fn definitions(&self) -> Result<Vec<MapDefinition>, ShardError> {
        transaction!(self, |tx| tx.definitions())
    }

    /// This shard's part of a map, in key order, page by page.
    pub async fn local_entries(&self, map: &MapName) -> Result<Vec<LocalEntry>, ShardError> {
        let meta = self.meta().await?.ok_or(ShardError::NotAShard)?;
        let all = KeyRange::all();
        let statement = sql_local::select_ranges(self.dialect(), map, &all, None);
        let mut scan = self.control.scan(statement, PAGE_ROWS).await?;
        let mut entries = Vec::new();
        while let Some(page) = scan.next().await? {
            for row in page.rows() {
                entries.push(sql_local::read_range(row, &meta)?);
            }
        }
        Ok(entries)
    }

    /// Removes ranges that are out of date and keeps the given ones, when a shard is attached: it serves nobody
    /// yet, so no fence is needed. What it has of ranges that are not its own is marked, under a name of the caller's,
    /// so that nobody reads it.
    pub async fn reconcile(
        &self,
        mark: OpId,
        map: &MapName,
        stale: &[Entry],
        kept: &[Entry],
    ) -> Result<(), ShardError> {
        let mut tx = SqlLocal::begin(&self.control).await?;
        tx.reconcile_strays(mark, map, stale, kept).await?;
        tx.delete_ranges(map, stale).await?;
        tx.put_ranges(map, kept, None).await?;
        tx.commit().await
    }

    /// Closes the name of a dataset, so that [`Shard::bind`] refuses it from now on, also to a router that has not
    /// heard of it. False, and nothing is done, if it was bound already and so has or had rows.
    pub async fn close_dataset(&self, name: &str) -> Result<bool, ShardError> {
        transaction!(self, |tx| tx.close_dataset(name))
    }

    /// Opens a closed name again.
    pub async fn reopen_dataset(&self, name: &str) -> Result<(), ShardError> {
        transaction!(self, |tx| tx.reopen_dataset(name))
    }

    /// Whether ranges have left here by an operation.
    pub async fn has_departed(&self, id: OpId) -> Result<bool, ShardError> {
        let row: Result<Option<crate::OpRow>, ShardError> = transaction!(self, |tx| tx.op(id));
        Ok(row?.is_some_and(|row| row.phase == crate::Phase::Departed))
    }

    /// Drops old records of ended operations.
    pub async fn prune(&self) -> Result<(), ShardError> {
        transaction!(self, |tx| tx.prune(RECORDS_KEPT))
    }

    /// Runs SQL on the protocol's own session: for tests and repairs, never for requests.
    pub async fn control_transaction(&self) -> Result<polyshard_engine::Transaction, ShardError> {
        Ok(self.control.begin(Access::Write).await?)
    }

    /// Likewise, where nothing is written: on SQLite it does not wait for whoever writes, who may be waiting for this.
    pub async fn control_snapshot(&self) -> Result<polyshard_engine::Transaction, ShardError> {
        let access = match self.target {
            Target::Sqlite(_) => Access::Read,
            Target::Postgres(_) => Access::Write,
        };
        Ok(self.control.begin(access).await?)
    }

    /// Begins a transaction whose statements, and the pauses between them, may take long: a change of the schema
    /// of a large table, which other shards are waited for in.
    pub async fn patient_transaction(&self) -> Result<polyshard_engine::Transaction, ShardError> {
        let open = || async {
            match &self.target {
                Target::Sqlite(_) => Ok::<Database, ShardError>(self.control.clone()),
                Target::Postgres(_) => {
                    let options = Options {
                        postgres_readers: 1,
                        postgres_pool_max: PATIENT_SESSIONS,
                        statement_timeout: PATIENCE,
                        transaction_idle_max: PATIENCE,
                        ..self.options.data.clone()
                    };
                    Ok(Database::open(self.target.clone(), options, None).await?)
                }
            }
        };
        Ok(self.patient.get_or_try_init(open).await?.begin(Access::Write).await?)
    }

    /// Answers if the shard does.
    pub async fn ping(&self) -> Result<(), ShardError> {
        Ok(self.control.ping().await?)
    }

    /// Ends all sessions.
    pub async fn close(&self) {
        let cells = [&self.data, &self.carrier, &self.lazy_carrier, &self.patient];
        for open in cells.into_iter().filter_map(OnceCell::get) {
            open.close().await;
        }
        self.control.close().await;
    }
}

/// The advisory locks of this database that name routers.
const SESSION_LOCKS: &str = "FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

fn check_identity(found: &Meta, cluster: Uuid, shard: &ShardId) -> Result<(), ShardError> {
    if found.format > schema::FORMAT {
        return Err(ShardError::FormatTooNew { found: found.format, known: schema::FORMAT });
    }
    if found.cluster != cluster || found.shard != *shard {
        return Err(ShardError::WrongDatabase {
            wanted: format!("shard {shard} of cluster {cluster}"),
            found: format!("shard {} of cluster {}", found.shard, found.cluster),
        });
    }
    Ok(())
}
