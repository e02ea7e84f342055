//! What operators can ask for, carried out on catalog, router and driver.

mod adopt;
mod archive;
mod archive_rules;
mod balance;
mod check;
mod datasets;
mod maps;
mod moves;
mod placing;
mod procedures;
mod quotas;
mod room;
mod rules;
mod schema;
mod shards;
mod spill;
mod stores;
mod users;
mod views;
mod writes;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_admin::types::{
    BalanceAnswer, BalanceRequest, BindRequest, ChangeAnswer, ChangeRequest, CheckAnswer, DatasetView,
    DeclareRequest, EntriesAnswer, Located, MapView, MoveAnswer, MoveRequest, MoveWish, NewMap, NewShard,
    OperationView, RepairAnswer, RepairRequest, RowsCheckAnswer, SchemaCheckAnswer, ShardPatch, ShardView,
    Status, StoreView, TableView, UnbindRequest,
};
use polyshard_admin::{Answer, Basis, Data, Exported, Operator, Page, Problem};
use polyshard_catalog::{Catalog, Driver};
use polyshard_engine::Dialect;
use polyshard_map::{Epoch, MapName, ShardId};
use polyshard_mover::Mover;
use polyshard_planner::Heat;
use polyshard_router::Router;
use polyshard_schema::Journal;
use polyshard_store::Host;
use polyshard_workflow::Procedures;

pub(crate) use archive::ArchiveDoor;
pub(crate) use archive_rules::{POLICY as ARCHIVE_POLICY, RuleFailures};
pub(crate) use balance::Manner;
pub(crate) use datasets::is_shown as is_shown_dataset;
pub(crate) use users::Bearers;
pub(crate) use views::shard_engine;

use crate::checking::Found;
use crate::config::Config;
use crate::problem;
use crate::rebalancing::Said;

/// Operations shown in a list.
const OPERATIONS_SHOWN: u32 = 100;

/// The operator's side of one server process.
pub(crate) struct Operations {
    config: Config,
    doors: BTreeMap<String, String>,
    catalog: Arc<Catalog>,
    host: Arc<Host>,
    router: Arc<Router>,
    driver: Arc<Driver>,
    journal: Arc<Journal>,
    /// Looks before moves; those under way are carried by the driver's own.
    mover: Mover,
    procedures: Arc<Procedures>,
    /// How busy shards and keys are, once somebody measures it.
    heat: OnceLock<Box<dyn Fn() -> Heat + Send + Sync>>,
    /// What the checker found last.
    found: Found,
    /// Rules of archiving that could not be begun.
    rule_failures: RuleFailures,
    /// What came of evening out by itself.
    by_itself: Said,
}

impl Operations {
    pub(crate) fn new(
        config: Config,
        doors: BTreeMap<String, String>,
        catalog: Arc<Catalog>,
        host: Arc<Host>,
        journal: Arc<Journal>,
        procedures: Arc<Procedures>,
    ) -> Operations {
        let (router, driver) = (host.router().clone(), host.driver().clone());
        let mover = Mover::new(router.shard_source());
        Operations {
            config,
            doors,
            catalog,
            host,
            router,
            driver,
            journal,
            mover,
            procedures,
            heat: OnceLock::new(),
            found: Found::default(),
            rule_failures: RuleFailures::default(),
            by_itself: Said::default(),
        }
    }

    /// Says who measures how busy shards and keys are. The first one stays.
    pub(crate) fn set_heat(&self, heat: impl Fn() -> Heat + Send + Sync + 'static) {
        // A second one would measure the same.
        let _ = self.heat.set(Box::new(heat));
    }

    /// What the checker found when it last ran by itself.
    pub(crate) fn found(&self) -> &Found {
        &self.found
    }

    /// What came of evening out by itself, for whoever asks for a plan.
    pub(crate) fn by_itself(&self) -> &Said {
        &self.by_itself
    }

    /// Rules of archiving that this process could not begin.
    pub(crate) fn rule_failures(&self) -> &RuleFailures {
        &self.rule_failures
    }

    /// What the stores of this process share.
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Whether other server processes may use the same catalog.
    pub(crate) fn has_peers(&self) -> bool {
        self.catalog.target().dialect() == Dialect::Postgres && !self.config.cluster.single_process
    }

    /// Makes this process see at once what it has just done.
    async fn see(&self) -> Result<(), Problem> {
        self.router.refresh().await.map_err(|error| problem::of_router(&error))
    }

    /// Likewise, and waits until every process does, or is cut off: one that does not know of a right that was taken,
    /// or of a name that was bound elsewhere, would go on as before.
    async fn tell_all(&self) -> Result<(), Problem> {
        self.router.everybody_knows().await.map_err(|error| problem::of_router(&error))
    }

    pub(crate) async fn operation_views(&self) -> Result<Vec<OperationView>, Problem> {
        let records =
            self.catalog.operations(OPERATIONS_SHOWN).await.map_err(|error| problem::of_catalog(&error))?;
        let mut shown = Vec::with_capacity(records.len());
        let mut made: BTreeMap<&MapName, Epoch> = BTreeMap::new();
        for record in records.iter().filter(|record| record.op.kind == "create") {
            let epoch = made.entry(&record.op.map).or_insert(record.op.epoch);
            *epoch = record.op.epoch.max(*epoch);
        }
        for record in &records {
            let mut view = self.shown(record).await?;
            if made.get(&record.op.map).is_some_and(|made| record.op.epoch < *made) {
                // Of an earlier map of that name, whose keys may have been of another type.
                view.ranges.clear();
            }
            shown.push(view);
        }
        self.add_procedures(&mut shown).await?;
        Ok(shown)
    }

    async fn operation_view(&self, id: &str) -> Result<OperationView, Problem> {
        let id = id.parse().map_err(|_| {
            Problem::invalid("id", format!("{id:?} is not the id of an operation"))
                .with_remedy("see 'polyshard ops list'")
        })?;
        if let Some(procedure) = self.procedure_of(id).await? {
            return self.procedure_view(&procedure).await;
        }
        let record = self.catalog.operation(id).await.map_err(|error| problem::of_catalog(&error))?;
        self.shown(&record).await
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn version(basis: Basis) -> Option<u64> {
    match basis {
        Basis::Current => None,
        Basis::Version(version) => Some(version),
    }
}

impl Operator for Operations {
    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(self.check_ready())
    }
    fn status(&self) -> Answer<'_, Status> {
        Box::pin(self.status_view())
    }
    fn shards(&self) -> Answer<'_, Vec<ShardView>> {
        Box::pin(self.shard_views())
    }
    fn shard(&self, id: ShardId) -> Answer<'_, ShardView> {
        Box::pin(async move { self.shard_view(&id).await })
    }
    fn add_shard(&self, shard: NewShard) -> Answer<'_, ShardView> {
        Box::pin(self.add(shard))
    }
    fn set_shard(&self, id: ShardId, patch: ShardPatch, basis: Basis) -> Answer<'_, ShardView> {
        Box::pin(self.set(id, patch, basis))
    }
    fn remove_shard(&self, id: ShardId, data: Data) -> Answer<'_, ()> {
        Box::pin(self.remove(id, data))
    }
    fn attach_shard(&self, shard: NewShard) -> Answer<'_, ShardView> {
        Box::pin(self.attach(shard))
    }
    fn detach_shard(&self, id: ShardId) -> Answer<'_, ()> {
        Box::pin(self.detach(id))
    }
    fn maps(&self) -> Answer<'_, Vec<MapView>> {
        Box::pin(async move { Ok(self.map_views()) })
    }
    fn map(&self, name: MapName) -> Answer<'_, MapView> {
        Box::pin(async move { self.map_view(&name).await })
    }
    fn create_map(&self, map: NewMap) -> Answer<'_, MapView> {
        Box::pin(self.create(map))
    }
    fn drop_map(&self, name: MapName, data: Data, basis: Basis) -> Answer<'_, ()> {
        Box::pin(self.drop_whole(name, data, basis))
    }
    fn entries(&self, name: MapName, page: Page) -> Answer<'_, EntriesAnswer> {
        Box::pin(self.entry_page(name, page))
    }
    fn locate(&self, name: MapName, key: String) -> Answer<'_, Located> {
        Box::pin(self.locate_key(name, key))
    }
    fn change(
        &self,
        name: MapName,
        change: ChangeRequest,
        owner: Option<String>,
        basis: Basis,
    ) -> Answer<'_, ChangeAnswer> {
        Box::pin(self.change_map(name, change, owner, basis))
    }
    fn export_map(&self, name: MapName) -> Answer<'_, Exported> {
        Box::pin(self.export(name))
    }
    fn import_map(&self, document: Vec<u8>) -> Answer<'_, MapView> {
        Box::pin(self.import(document))
    }
    fn check_map(&self, name: MapName) -> Answer<'_, CheckAnswer> {
        Box::pin(self.check(name))
    }
    fn repair_map(&self, name: MapName, repair: RepairRequest) -> Answer<'_, RepairAnswer> {
        Box::pin(self.repair(name, repair))
    }
    fn stores(&self) -> Answer<'_, Vec<StoreView>> {
        Box::pin(async move { Ok(self.store_views()) })
    }
    fn datasets(&self) -> Answer<'_, Vec<DatasetView>> {
        Box::pin(self.dataset_views())
    }
    fn bind_dataset(&self, bind: BindRequest) -> Answer<'_, DatasetView> {
        Box::pin(self.bind(bind))
    }
    fn unbind_dataset(&self, unbind: UnbindRequest) -> Answer<'_, ()> {
        Box::pin(self.unbind(unbind))
    }
    fn tables(&self) -> Answer<'_, Vec<TableView>> {
        Box::pin(self.table_views())
    }
    fn declare_table(&self, declare: DeclareRequest) -> Answer<'_, TableView> {
        Box::pin(self.declare(declare))
    }
    fn check_schema(&self) -> Answer<'_, SchemaCheckAnswer> {
        Box::pin(self.compare_shards())
    }
    fn move_range(&self, name: MapName, request: MoveRequest, basis: Basis) -> Answer<'_, MoveAnswer> {
        Box::pin(self.begin_move(name, request, basis))
    }
    fn balance(&self, name: MapName, request: BalanceRequest) -> Answer<'_, BalanceAnswer> {
        Box::pin(self.plan_balance(name, request))
    }
    fn check_rows(&self, name: MapName) -> Answer<'_, RowsCheckAnswer> {
        Box::pin(self.find_misplaced(name))
    }
    fn wish(&self, id: String, wish: MoveWish) -> Answer<'_, OperationView> {
        Box::pin(self.wish_for(id, wish))
    }
    fn operations(&self) -> Answer<'_, Vec<OperationView>> {
        Box::pin(self.operation_views())
    }
    fn operation(&self, id: String) -> Answer<'_, OperationView> {
        Box::pin(async move { self.operation_view(&id).await })
    }
}
