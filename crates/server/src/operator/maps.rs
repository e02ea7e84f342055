//! What operators ask about maps.

use polyshard_admin::convert::{entry_view, range_view, read_change, read_definition};
use polyshard_admin::types::{
    ChangeAnswer, ChangeRequest as Asked, CheckAnswer, EntriesAnswer, Located, MapView, NewMap, RepairAnswer,
    RepairMode, RepairRequest, RepairSource, Unreachable,
};
use polyshard_admin::{Basis, Data, ErrorCode, Exported, Page, Problem};
use polyshard_catalog::{CatalogError, ChangeRequest};
use polyshard_map::{
    Entry, Epoch, ImportError, KeyBytes, KeyRange, LocateError, MapJson, MapName, Scheme, ShardId, State,
    spread_buckets,
};
use polyshard_router::view::KnownMap;
use std::sync::Arc;

use super::{Operations, now_ms, version, views};
use crate::problem;

impl Operations {
    pub(super) fn map_views(&self) -> Vec<MapView> {
        self.router.view().maps.values().map(|known| views::map(known)).collect()
    }

    pub(super) async fn map_view(&self, name: &MapName) -> Result<MapView, Problem> {
        Ok(views::map(&*self.known(name).await?))
    }

    /// A map as the router knows it; one that is not there may have come since.
    pub(crate) async fn known(&self, name: &MapName) -> Result<Arc<KnownMap>, Problem> {
        if let Some(known) = self.router.view().maps.get(name) {
            return Ok(known.clone());
        }
        self.see().await?;
        let found = self.router.view().maps.get(name).cloned();
        found.ok_or_else(|| problem::of_catalog(&CatalogError::NoSuchMap(name.clone())))
    }

    pub(super) async fn create(&self, new: NewMap) -> Result<MapView, Problem> {
        let definition = read_definition(&new)?;
        let entries = match definition.scheme() {
            Scheme::Hash(hash) => {
                let shards = match new.shards {
                    Some(shards) => shards,
                    None => self.placeable().await?,
                };
                spread_buckets(hash, &shards)
                    .map_err(|error| Problem::invalid("shards", error.to_string()))?
            }
            _ => vec![],
        };
        let entries = entries.into_iter().map(|entry| entry.at(Epoch::ZERO)).collect();
        let created = self.driver.create_map(&definition, entries).await;
        let record = created.map_err(|error| problem::of_catalog(&error))?;
        self.see().await?;
        self.map_view(&record.op.map).await
    }

    /// The shards that new ranges may be put on: those that are online, not full, and nobody's alone.
    async fn placeable(&self) -> Result<Vec<ShardId>, Problem> {
        let shards = self.catalog.shards().await.map_err(|error| problem::of_catalog(&error))?;
        let online: Vec<_> = shards.into_iter().filter(|shard| shard.state == State::Online).collect();
        let mut full = self.full_shards(&online).await;
        let kept = self.kept_shards(None).await?;
        full.extend(kept.into_iter().filter(|(kept, _)| online.iter().any(|shard| shard.id == *kept)));
        if !online.is_empty() && full.len() == online.len() {
            return Err(Problem::new(ErrorCode::Conflict, full.into_values().collect::<Vec<_>>().join("; "))
                .with_remedy(
                    "add a shard, raise a limit with 'polyshard shard set', change a rule, or name shards by --shards",
                ));
        }
        Ok(online.into_iter().map(|shard| shard.id).filter(|id| !full.contains_key(id)).collect())
    }

    pub(super) async fn drop_whole(&self, name: MapName, data: Data, basis: Basis) -> Result<(), Problem> {
        let dropped = self.driver.drop_map(&name, version(basis), data == Data::Destroy).await;
        self.see().await?;
        dropped.map(drop).map_err(|error| problem::of_catalog(&error))
    }

    pub(super) async fn entry_page(&self, name: MapName, page: Page) -> Result<EntriesAnswer, Problem> {
        let known = self.known(&name).await?;
        let after = match &page.after {
            None => None,
            Some(text) => Some(KeyBytes::from_hex(text).map_err(|_| {
                Problem::invalid("after", format!("{text:?} is not the next of an earlier page"))
                    .with_remedy("give the value of next, or leave it out for the first page")
            })?),
        };
        let lo = after.as_ref().map(KeyBytes::successor).unwrap_or_default();
        let range = KeyRange::new(lo, None).map_err(|error| Problem::invalid("after", error.to_string()))?;
        let mut entries: Vec<Entry> = known
            .map
            .entries(&range)
            .filter(|entry| after.as_ref().is_none_or(|after| entry.range.lo() > after))
            .take(page.limit as usize + 1)
            .collect();
        let more = entries.len() > page.limit as usize;
        entries.truncate(page.limit as usize);
        let next = entries.last().filter(|_| more).map(|entry| entry.range.lo().to_hex());
        let (definition, now) = (known.map.definition(), now_ms());
        let entries = entries.iter().map(|entry| entry_view(definition, entry, now)).collect();
        Ok(EntriesAnswer { entries, next, version: known.version })
    }

    pub(super) async fn locate_key(&self, name: MapName, text: String) -> Result<Located, Problem> {
        let mut known = self.known(&name).await?;
        let key = known.map.definition().key_type().parse(&text);
        let key = key.map_err(|error| Problem::invalid("key", error.to_string()))?;
        if let Err(LocateError::Gap { .. }) = known.map.locate(&key) {
            // What is not here may have come since; while the catalog is away nobody can say that it has not.
            self.see().await?;
            known = self.known(&name).await?;
        }
        let located = known.map.locate(&key)?;
        Ok(Located {
            map: name,
            key: key.to_json().into(),
            shard: located.shard().clone(),
            range: range_view(known.map.definition(), &located.range()),
            state: located.state(),
            epoch: known.map.epoch().get(),
        })
    }

    pub(super) async fn change_map(
        &self,
        name: MapName,
        mut asked: Asked,
        owner: Option<String>,
        basis: Basis,
    ) -> Result<ChangeAnswer, Problem> {
        let known = self.known(&name).await?;
        let placed = match &mut asked {
            Asked::Add(add) => self.place_new(&known, add).await?,
            _ => Vec::new(),
        };
        let change = read_change(known.map.definition(), &asked, now_ms())?;
        let request = ChangeRequest { map: name.clone(), change, if_version: version(basis), by: owner };
        let changed = self.driver.change(&request).await;
        self.see().await?;
        let record = changed.map_err(|error| problem::of_catalog(&error))?;
        Ok(ChangeAnswer { operation: record.op.id.to_string(), map: self.map_view(&name).await?, placed })
    }

    pub(super) async fn export(&self, name: MapName) -> Result<Exported, Problem> {
        let known = self.known(&name).await?;
        let document = serde_json::to_vec(&MapJson(&known.map));
        let document = document.map_err(|error| {
            Problem::new(ErrorCode::Internal, format!("map {name} cannot be written: {error}"))
        })?;
        Ok(Exported { document, version: known.version })
    }

    pub(super) async fn import(&self, document: Vec<u8>) -> Result<MapView, Problem> {
        let map = polyshard_map::import(&document).map_err(|error: ImportError| {
            let problem = Problem::new(ErrorCode::Invalid, error.to_string());
            if error.path.is_empty() { problem } else { problem.with_field(error.path.clone()) }
        })?;
        let entries: Vec<Entry> = map.entries(&KeyRange::all()).collect();
        let created = self.driver.create_map(map.definition(), entries).await;
        let record = created.map_err(|error| problem::of_catalog(&error))?;
        self.see().await?;
        self.map_view(&record.op.map).await
    }

    pub(super) async fn check(&self, name: MapName) -> Result<CheckAnswer, Problem> {
        let record = self.catalog.map(&name).await.map_err(|error| problem::of_catalog(&error))?;
        let (found, away) = self.driver.check(&name).await.map_err(|error| problem::of_catalog(&error))?;
        Ok(CheckAnswer {
            map: name,
            version: record.version,
            differences: views::differences(&record.definition, &found),
            unreachable: away.into_iter().map(|(shard, reason)| Unreachable { shard, reason }).collect(),
        })
    }

    pub(super) async fn repair(&self, name: MapName, asked: RepairRequest) -> Result<RepairAnswer, Problem> {
        let fail = |error: CatalogError| problem::of_catalog(&error);
        if asked.from == RepairSource::Shards && asked.shard.is_some() {
            return Err(Problem::invalid("shard", "the catalog is rebuilt from all shards at once")
                .with_remedy("leave shard out"));
        }
        let record = self.catalog.map(&name).await.map_err(fail)?;
        let found = match (asked.mode, asked.from) {
            (RepairMode::Plan, _) => self.driver.check(&name).await.map_err(fail)?.0,
            (RepairMode::Apply, RepairSource::Catalog) => {
                self.driver.repair_shards(&name, asked.shard.as_ref()).await.map_err(fail)?
            }
            (RepairMode::Apply, RepairSource::Shards) => {
                self.driver.repair_catalog(&name).await.map_err(fail)?
            }
        };
        self.see().await?;
        let version = self.catalog.map(&name).await.map_err(fail)?.version;
        let wanted: Vec<_> = found
            .into_iter()
            .filter(|one| asked.shard.as_ref().is_none_or(|shard| one.shard == *shard))
            .collect();
        Ok(RepairAnswer {
            map: name,
            mode: asked.mode,
            differences: views::differences(&record.definition, &wanted),
            version,
        })
    }
}
