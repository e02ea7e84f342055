//! An operator over maps in memory: enough truth behind the API to test how it is spoken to.

use std::collections::BTreeMap;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use polyshard_admin::types::{
    BalanceAnswer, BalanceRequest, BindRequest, CatalogView, ChangeAnswer, ChangeRequest, CheckAnswer,
    DatasetView, DeclareRequest, Difference, EndpointView, Engine, EntriesAnswer, Found, KeyText, Located,
    MapView, MoveAnswer, MovePart, MoveRequest, MoveWish, NewMap, NewShard, OperationState, OperationView,
    RangeView, RepairAnswer, RepairRequest, RouterView, RowsCheckAnswer, SchemaCheckAnswer, ShardPatch,
    ShardView, Side, Status, StoreView, TableView, UnbindRequest, Unreachable,
};
use polyshard_admin::{
    Answer, Auth, Basis, Data, ErrorCode, Exported, Operator, Page, Problem, convert, router, serve,
};
use polyshard_map::{
    Epoch, KeyRange, Map, MapJson, MapName, NewEntry, ShardId, State, apply, import, spread_buckets,
};
use polyshard_wire::{Limits, Listener, Shutdown, ShutdownTrigger};

/// The moment at which everything here happens.
pub const NOW_MS: i64 = 1_700_000_000_000;

/// The token of the servers here.
pub const TOKEN: &str = "the-right-token";

/// An operator over maps in memory.
#[derive(Default)]
pub struct Memory {
    state: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    shards: BTreeMap<ShardId, ShardView>,
    maps: BTreeMap<MapName, (Map, u64)>,
    bound: BTreeMap<String, DatasetView>,
    epoch: u64,
}

/// A server over a new [`Memory`] with shards s1 and s2; stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    trigger: Option<ShutdownTrigger>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Server {
        let (trigger, shutdown) = Shutdown::new();
        let (told, hear) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let any = "127.0.0.1:0".parse().unwrap();
                let listener = Listener::bind("admin", any, Limits::default()).await.unwrap();
                let auth = Auth::new(TOKEN, listener.address()).unwrap();
                told.send(listener.address()).unwrap();
                let memory = Memory::default();
                for id in ["s1", "s2"] {
                    memory
                        .state
                        .lock()
                        .unwrap()
                        .shards
                        .insert(id.parse().unwrap(), shard(id.parse().unwrap(), "sqlite:x"));
                }
                let clock = || std::time::Duration::ZERO;
                serve(listener, shutdown, router(Arc::new(memory), auth), clock).await;
            });
        });
        Server { address: hear.recv().unwrap(), trigger: Some(trigger), thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.trigger.take();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "the server panicked");
        }
    }
}

fn shard(id: ShardId, url: &str) -> ShardView {
    ShardView {
        id,
        engine: Engine::Sqlite,
        url: url.to_owned(),
        server: None,
        region: None,
        tier: None,
        limits: Default::default(),
        state: State::Online,
        reachable: true,
        incarnation: None,
        ranges: 0,
        fence_epoch: Some(0),
        version: 1,
    }
}

fn view(map: &Map, version: u64) -> MapView {
    let definition = map.definition();
    MapView {
        name: definition.name().clone(),
        kind: convert::kind_view(definition.scheme()),
        key: definition.key_type().to_string(),
        hash: convert::hash_view(definition.scheme()),
        epoch: map.epoch().get(),
        version,
        entries: map.len() as u64,
        by_shard: map.count_by_shard().into_iter().map(|(shard, count)| (shard, count as u64)).collect(),
    }
}

fn check_basis(what: &str, basis: Basis, version: u64) -> Result<(), Problem> {
    match basis {
        Basis::Version(expected) if expected != version => Err(Problem::changed_meanwhile(what, version)),
        _ => Ok(()),
    }
}

impl Contents {
    fn map(&self, name: &MapName) -> Result<&(Map, u64), Problem> {
        self.maps.get(name).ok_or_else(|| Problem::not_found(format!("there is no map {name}")))
    }

    fn shard(&mut self, id: &ShardId) -> Result<&mut ShardView, Problem> {
        self.shards.get_mut(id).ok_or_else(|| Problem::not_found(format!("there is no shard {id}")))
    }

    fn put(&mut self, map: Map, version: u64) -> MapView {
        let seen = view(&map, version);
        self.maps.insert(seen.name.clone(), (map, version));
        seen
    }

    fn create(&mut self, new: &NewMap) -> Result<MapView, Problem> {
        let definition = convert::read_definition(new)?;
        if self.maps.contains_key(&new.name) {
            return Err(Problem::new(ErrorCode::Exists, format!("there is a map {} already", new.name)));
        }
        let all = || self.shards.keys().cloned().collect();
        let entries: Vec<NewEntry> = match definition.scheme() {
            polyshard_map::Scheme::Hash(hash) => {
                spread_buckets(hash, &new.shards.clone().unwrap_or_else(all)).unwrap()
            }
            _ => Vec::new(),
        };
        self.epoch += 1;
        let epoch = Epoch::new(self.epoch);
        let map = Map::build(definition, entries.into_iter().map(|entry| entry.at(epoch)), epoch).unwrap();
        Ok(self.put(map, 1))
    }

    fn change(
        &mut self,
        name: &MapName,
        request: &ChangeRequest,
        owner: Option<&str>,
        basis: Basis,
    ) -> Result<ChangeAnswer, Problem> {
        let (map, version) = self.map(name)?.clone();
        check_basis(&format!("map {name}"), basis, version)?;
        let change = convert::read_change(map.definition(), request, NOW_MS)?;
        let epoch = Epoch::new(self.epoch + 1);
        let delta = apply(map.definition(), &map.window(&change), &change, owner, epoch, NOW_MS)?;
        let map = map.with(&delta, epoch).unwrap();
        self.epoch += 1;
        Ok(ChangeAnswer {
            operation: format!("op{}", self.epoch),
            map: self.put(map, version + 1),
            placed: Vec::new(),
        })
    }

    fn entries(&self, name: &MapName, page: &Page) -> Result<EntriesAnswer, Problem> {
        let (map, version) = self.map(name)?;
        let skip: usize = match &page.after {
            Some(after) => after.parse().map_err(|_| Problem::invalid("after", "it is no cursor"))?,
            None => 0,
        };
        let all = KeyRange::all();
        let shown = map.entries(&all).skip(skip).take(page.limit as usize);
        let entries: Vec<_> =
            shown.map(|entry| convert::entry_view(map.definition(), &entry, NOW_MS)).collect();
        let end = skip + entries.len();
        let next = (end < map.len()).then(|| end.to_string());
        Ok(EntriesAnswer { entries, next, version: *version })
    }

    fn locate(&self, name: &MapName, key: &str) -> Result<Located, Problem> {
        let (map, _) = self.map(name)?;
        let definition = map.definition();
        let key = definition.key_type().parse(key).map_err(|e| Problem::invalid("key", e.to_string()))?;
        let found = map.locate(&key)?;
        Ok(Located {
            map: name.clone(),
            key: KeyText::of(&key),
            shard: found.shard().clone(),
            range: convert::range_view(definition, &found.range()),
            state: found.state(),
            epoch: map.epoch().get(),
        })
    }

    fn check(&self, name: &MapName) -> Result<CheckAnswer, Problem> {
        let (_, version) = self.map(name)?;
        let side = |state, epoch| Some(Side { state, epoch, group: None });
        let difference = |shard: &str, found, catalog, local| Difference {
            shard: shard.parse().unwrap(),
            range: RangeView::Buckets { buckets: (0, 4) },
            found,
            catalog,
            local,
        };
        let differences = vec![
            difference("s1", Found::CatalogOnly, side(State::Online, 1), None),
            difference("s2", Found::Differs, side(State::Online, 1), side(State::Offline, 2)),
        ];
        let unreachable =
            vec![Unreachable { shard: "s9".parse().unwrap(), reason: "connection refused".to_owned() }];
        Ok(CheckAnswer { map: name.clone(), version: *version, differences, unreachable })
    }
}

/// Runs `f` on the contents and boxes what it says.
fn answer<T: Send + 'static>(
    memory: &Memory,
    f: impl FnOnce(&mut Contents) -> Result<T, Problem>,
) -> Answer<'_, T> {
    let result = f(&mut memory.state.lock().unwrap());
    Box::pin(ready(result))
}

fn operation() -> OperationView {
    OperationView {
        id: "op1".to_owned(),
        kind: "split".to_owned(),
        map: Some("orders".parse().unwrap()),
        state: OperationState::RolledBack,
        step: "prepared".to_owned(),
        ranges: vec![],
        from: None,
        to: None,
        progress: None,
        paused: false,
        started_ms: NOW_MS,
        message: None,
    }
}

impl Operator for Memory {
    fn ready(&self) -> Answer<'_, ()> {
        answer(self, |_| Err(Problem::unavailable("the catalog is not reachable")))
    }

    fn status(&self) -> Answer<'_, Status> {
        answer(self, |contents| {
            Ok(Status {
                version: "0.0.0".to_owned(),
                cluster: "c".to_owned(),
                epoch: contents.epoch,
                catalog: CatalogView {
                    engine: Engine::Sqlite,
                    url: "sqlite:catalog.db".to_owned(),
                    reachable: true,
                },
                shards: contents.shards.values().cloned().collect(),
                maps: contents.maps.values().map(|(map, version)| view(map, *version)).collect(),
                doors: BTreeMap::from([("admin".to_owned(), "127.0.0.1:7070".to_owned())]),
                router: RouterView { id: "r".to_owned(), holds: 0, tickets: 0 },
            })
        })
    }

    fn shards(&self) -> Answer<'_, Vec<ShardView>> {
        answer(self, |contents| Ok(contents.shards.values().cloned().collect()))
    }

    fn shard(&self, id: ShardId) -> Answer<'_, ShardView> {
        answer(self, |contents| contents.shard(&id).cloned())
    }

    fn add_shard(&self, new: NewShard) -> Answer<'_, ShardView> {
        answer(self, |contents| {
            let added = ShardView {
                region: new.region,
                limits: new.limits.unwrap_or_default(),
                ..shard(new.id, &new.url)
            };
            contents.shards.insert(added.id.clone(), added.clone());
            Ok(added)
        })
    }

    fn set_shard(&self, id: ShardId, patch: ShardPatch, basis: Basis) -> Answer<'_, ShardView> {
        answer(self, |contents| {
            let shard = contents.shard(&id)?;
            check_basis(&format!("shard {id}"), basis, shard.version)?;
            shard.region = patch.region.unwrap_or(shard.region.take());
            shard.state = patch.state.unwrap_or(shard.state);
            shard.version += 1;
            Ok(shard.clone())
        })
    }

    fn remove_shard(&self, id: ShardId, data: Data) -> Answer<'_, ()> {
        answer(self, |contents| {
            contents.shard(&id)?;
            if data == Data::Keep {
                let remedy = format!("move its data, or say destroy={id}");
                return Err(
                    Problem::new(ErrorCode::HoldsData, format!("shard {id} holds data")).with_remedy(remedy)
                );
            }
            contents.shards.remove(&id);
            Ok(())
        })
    }

    fn attach_shard(&self, new: NewShard) -> Answer<'_, ShardView> {
        answer(self, |_| Ok(ShardView { ranges: 7, ..shard(new.id, &new.url) }))
    }

    fn detach_shard(&self, id: ShardId) -> Answer<'_, ()> {
        answer(self, |contents| {
            contents.shard(&id)?;
            contents.shards.remove(&id);
            Ok(())
        })
    }

    fn maps(&self) -> Answer<'_, Vec<MapView>> {
        answer(self, |contents| {
            Ok(contents.maps.values().map(|(map, version)| view(map, *version)).collect())
        })
    }

    fn map(&self, name: MapName) -> Answer<'_, MapView> {
        answer(self, |contents| contents.map(&name).map(|(map, version)| view(map, *version)))
    }

    fn create_map(&self, map: NewMap) -> Answer<'_, MapView> {
        answer(self, |contents| contents.create(&map))
    }

    fn drop_map(&self, name: MapName, _data: Data, basis: Basis) -> Answer<'_, ()> {
        answer(self, |contents| {
            check_basis(&format!("map {name}"), basis, contents.map(&name)?.1)?;
            contents.maps.remove(&name);
            Ok(())
        })
    }

    fn entries(&self, name: MapName, page: Page) -> Answer<'_, EntriesAnswer> {
        answer(self, |contents| contents.entries(&name, &page))
    }

    fn locate(&self, name: MapName, key: String) -> Answer<'_, Located> {
        answer(self, |contents| contents.locate(&name, &key))
    }

    fn change(
        &self,
        name: MapName,
        change: ChangeRequest,
        owner: Option<String>,
        basis: Basis,
    ) -> Answer<'_, ChangeAnswer> {
        answer(self, |contents| contents.change(&name, &change, owner.as_deref(), basis))
    }

    fn export_map(&self, name: MapName) -> Answer<'_, Exported> {
        answer(self, |contents| {
            let (map, version) = contents.map(&name)?;
            Ok(Exported { document: serde_json::to_vec(&MapJson(map)).unwrap(), version: *version })
        })
    }

    fn import_map(&self, document: Vec<u8>) -> Answer<'_, MapView> {
        answer(self, |contents| {
            let map = import(&document).map_err(|e| Problem::invalid(e.path.clone(), e.to_string()))?;
            Ok(contents.put(map, 1))
        })
    }

    fn check_map(&self, name: MapName) -> Answer<'_, CheckAnswer> {
        answer(self, |contents| contents.check(&name))
    }

    fn repair_map(&self, name: MapName, repair: RepairRequest) -> Answer<'_, RepairAnswer> {
        answer(self, |contents| {
            let check = contents.check(&name)?;
            let RepairRequest { mode, .. } = repair;
            Ok(RepairAnswer { map: name, mode, differences: check.differences, version: check.version })
        })
    }

    fn stores(&self) -> Answer<'_, Vec<StoreView>> {
        let endpoint = EndpointView {
            name: "queue".to_owned(),
            about: "Azure Queue Storage".to_owned(),
            address: Some("http://127.0.0.1:10001".to_owned()),
        };
        let store = StoreView {
            id: "queue".to_owned(),
            title: "queues".to_owned(),
            endpoints: vec![endpoint],
            nouns: vec!["queue".to_owned()],
            attributes: vec!["name".to_owned()],
        };
        answer(self, move |_| Ok(vec![store]))
    }

    fn datasets(&self) -> Answer<'_, Vec<DatasetView>> {
        answer(self, |contents| Ok(contents.bound.values().cloned().collect()))
    }

    fn bind_dataset(&self, bind: BindRequest) -> Answer<'_, DatasetView> {
        answer(self, |contents| {
            contents.map(&bind.map)?;
            let view = DatasetView {
                dataset: bind.dataset.clone(),
                map: bind.map,
                key: bind.key.unwrap_or_else(|| "PartitionKey".to_owned()),
                rule: bind.rule.unwrap_or_else(|| "whole".to_owned()),
                exists: false,
                bound: true,
            };
            contents.bound.insert(bind.dataset, view.clone());
            Ok(view)
        })
    }

    fn unbind_dataset(&self, unbind: UnbindRequest) -> Answer<'_, ()> {
        answer(self, |contents| {
            let missing = || Problem::not_found(format!("{} is not bound", unbind.dataset));
            contents.bound.remove(&unbind.dataset).map(drop).ok_or_else(missing)
        })
    }

    fn tables(&self) -> Answer<'_, Vec<TableView>> {
        answer(self, |_| Ok(vec![]))
    }
    fn declare_table(&self, declare: DeclareRequest) -> Answer<'_, TableView> {
        answer(self, move |_| {
            let DeclareRequest { table, placement, map, key, shard } = declare;
            Ok(TableView { table, placement, declared: true, map, key, shard })
        })
    }
    fn check_schema(&self) -> Answer<'_, SchemaCheckAnswer> {
        answer(self, |_| {
            Ok(SchemaCheckAnswer {
                position: 0,
                like: None,
                shards: 0,
                objects: 0,
                differences: vec![],
                unreachable: vec![],
            })
        })
    }

    fn move_range(&self, name: MapName, request: MoveRequest, _: Basis) -> Answer<'_, MoveAnswer> {
        answer(self, move |_| {
            let part = MovePart {
                range: request.range,
                from: "s1".parse().unwrap(),
                to: request.to,
                datasets: vec![],
                operation: (!request.dry_run).then(|| "op1".to_owned()),
            };
            Ok(MoveAnswer { map: name, parts: vec![part], steps: vec![], procedure: None })
        })
    }
    fn balance(&self, name: MapName, _: BalanceRequest) -> Answer<'_, BalanceAnswer> {
        answer(self, move |_| {
            Ok(BalanceAnswer {
                map: name,
                shards: vec![],
                moves: vec![],
                notes: vec![],
                by_itself: None,
                procedure: None,
                estimated: false,
            })
        })
    }
    fn check_rows(&self, name: MapName) -> Answer<'_, RowsCheckAnswer> {
        answer(self, move |_| Ok(RowsCheckAnswer { map: name, misplaced: vec![], unreachable: vec![] }))
    }
    fn wish(&self, id: String, _: MoveWish) -> Answer<'_, OperationView> {
        self.operation(id)
    }

    fn operations(&self) -> Answer<'_, Vec<OperationView>> {
        answer(self, |_| Ok(vec![operation()]))
    }

    fn operation(&self, id: String) -> Answer<'_, OperationView> {
        answer(self, |_| {
            if id == "op1" {
                Ok(operation())
            } else {
                Err(Problem::not_found(format!("there is no operation {id}")))
            }
        })
    }
}
