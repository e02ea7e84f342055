//! What operators ask about shards, and the state of the whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use polyshard_admin::types::{
    CatalogView, NewShard as Asked, RouterView, ShardLimits as AskedLimits, ShardPatch as AskedPatch,
    ShardView, Status,
};
use polyshard_admin::{Basis, Data, Problem};
use polyshard_catalog::{CatalogError, NewShard, PasswordSource, ShardLimits, ShardPatch, ShardRecord};
use polyshard_engine::{Dialect, Target};
use polyshard_map::ShardId;
use polyshard_shard::Meta;

use super::{Operations, room, version, views};
use crate::problem;

/// How long a shard may take to answer before it is shown as away.
const ASK_WAIT: Duration = Duration::from_secs(2);
/// Shards asked at once.
const ASKED_AT_ONCE: usize = 64;

impl Operations {
    /// Ready means that the map is known: from the catalog, or as last saved.
    pub(super) async fn check_ready(&self) -> Result<(), Problem> {
        if self.router.view().cluster.is_nil() {
            return Err(Problem::unavailable("the map has not been read yet"));
        }
        Ok(())
    }

    pub(super) async fn status_view(&self) -> Result<Status, Problem> {
        let view = self.router.view();
        let status = self.router.status();
        let target = self.catalog.target();
        let epoch = view.maps.values().map(|known| known.map.epoch()).max();
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: view.cluster.to_string(),
            epoch: epoch.unwrap_or(view.epoch).max(view.epoch).get(),
            catalog: CatalogView {
                engine: views::engine(target.dialect()),
                url: self.config.catalog.url.clone(),
                reachable: tokio::time::timeout(ASK_WAIT, self.catalog.ping())
                    .await
                    .is_ok_and(|ping| ping.is_ok()),
            },
            shards: self.shard_views().await?,
            maps: self.map_views(),
            doors: self.doors.clone(),
            router: RouterView {
                id: status.router.to_string(),
                holds: status.holds as u64,
                tickets: status.tickets as u64,
            },
        })
    }

    pub(super) async fn shard_views(&self) -> Result<Vec<ShardView>, Problem> {
        let view = self.router.view();
        let ranges = self.ranges_by_shard();
        let ask = |record: Arc<ShardRecord>| async move {
            let meta = self.ask(&record.id).await;
            (record, meta)
        };
        let mut answers: Vec<_> = futures_util::stream::iter(view.shards.values().cloned())
            .map(ask)
            .buffer_unordered(ASKED_AT_ONCE)
            .collect()
            .await;
        answers.sort_by(|a, b| a.0.id.cmp(&b.0.id));
        let count = |id: &ShardId| ranges.get(id).copied().unwrap_or(0);
        Ok(answers
            .iter()
            .map(|(record, meta)| views::shard(record, meta.as_ref(), count(&record.id)))
            .collect())
    }

    pub(super) async fn shard_view(&self, id: &ShardId) -> Result<ShardView, Problem> {
        let view = self.router.view();
        let record = view.shards.get(id).ok_or_else(|| CatalogError::NoSuchShard(id.clone()));
        let record = record.map_err(|error| problem::of_catalog(&error))?;
        let meta = self.ask(id).await;
        Ok(views::shard(record, meta.as_ref(), self.ranges_by_shard().get(id).copied().unwrap_or(0)))
    }

    pub(super) async fn add(&self, asked: Asked) -> Result<ShardView, Problem> {
        let new = self.new_shard(asked)?;
        let id = new.id.clone();
        if self.router.view().shards.contains_key(&id) {
            return Err(problem::of_catalog(&CatalogError::Exists(format!("shard {id}"))));
        }
        let opened = self.open(&new).await?;
        let added = match self.driver.check_alike(&opened).await {
            Ok(()) => self.driver.add_shard(new, &opened).await,
            Err(error) => Err(error),
        };
        match added {
            Ok(record) => self.router.adopt(record, opened).await,
            Err(error) => {
                opened.close().await;
                return Err(problem::of_catalog(&error));
            }
        }
        self.see().await?;
        self.shard_view(&id).await
    }

    pub(super) async fn attach(&self, asked: Asked) -> Result<ShardView, Problem> {
        let new = self.new_shard(asked)?;
        let id = new.id.clone();
        let opened = self.open(&new).await?;
        let attached = match self.driver.check_alike(&opened).await {
            Ok(()) => self.driver.attach_shard(new, &opened).await,
            Err(error) => Err(error),
        };
        match attached {
            Ok(record) => self.router.adopt(record, opened).await,
            Err(error) => {
                opened.close().await;
                return Err(problem::of_catalog(&error));
            }
        }
        self.see().await?;
        self.shard_view(&id).await
    }

    pub(super) async fn set(
        &self,
        id: ShardId,
        asked: AskedPatch,
        basis: Basis,
    ) -> Result<ShardView, Problem> {
        let known = self.catalog.shard(&id).await.map_err(|error| problem::of_catalog(&error))?;
        // Without a word about the password it stays where it is.
        let password = match (asked.password_env, asked.password_file) {
            (None, None) => known.password.clone(),
            (env, file) => self.password(env.flatten(), file.flatten())?,
        };
        let moved = asked.url.is_some() || password != known.password;
        let patch = ShardPatch {
            url: asked.url.clone(),
            password: moved.then_some(password.clone()),
            server: asked.server,
            region: asked.region,
            tier: asked.tier,
            limits: asked.limits.map(|limits| read_limits(&limits)),
            state: asked.state,
            if_version: version(basis),
        };
        // A new address or password is tried first, to see that the same shard is there.
        let candidate = match moved {
            true => {
                let url = asked.url.unwrap_or_else(|| known.url.clone());
                self.check_url(&url)?;
                let record = ShardRecord { url, password, ..known };
                let opened = self.router.open_candidate(&record).await;
                Some(opened.map_err(|error| room::on(&id, error))?)
            }
            false => None,
        };
        let patched = self.driver.patch_shard(&id, patch, candidate.as_deref()).await;
        if let Some(candidate) = candidate {
            candidate.close().await;
        }
        patched.map_err(|error| problem::of_catalog(&error))?;
        self.see().await?;
        self.shard_view(&id).await
    }

    pub(super) async fn remove(&self, id: ShardId, data: Data) -> Result<(), Problem> {
        let removed = self.driver.remove_shard(&id, data == Data::Destroy).await;
        // Also after a refusal, ranges may have left.
        self.see().await?;
        removed.map_err(|error| problem::of_catalog(&error))
    }

    pub(super) async fn detach(&self, id: ShardId) -> Result<(), Problem> {
        self.driver.detach_shard(&id).await.map_err(|error| problem::of_catalog(&error))?;
        self.see().await
    }

    /// Opens a database that is to become a shard.
    pub(super) async fn open(&self, new: &NewShard) -> Result<Arc<polyshard_shard::Shard>, Problem> {
        let opened = self.router.open_candidate(&new.candidate()).await;
        opened.map_err(|error| room::on(&new.id, error))
    }

    fn new_shard(&self, asked: Asked) -> Result<NewShard, Problem> {
        self.check_url(&asked.url)?;
        Ok(NewShard {
            id: asked.id,
            url: asked.url,
            password: self.password(asked.password_env, asked.password_file)?,
            server: asked.server,
            region: asked.region,
            tier: asked.tier,
            limits: asked.limits.map(|limits| read_limits(&limits)).unwrap_or_default(),
        })
    }

    /// An address from the outside: no password in it, and no embedded shard that other processes could not reach.
    pub(super) fn check_url(&self, url: &str) -> Result<(), Problem> {
        let target = Target::parse(url).map_err(|error| Problem::invalid("url", error.to_string()))?;
        if let Target::Postgres(postgres) = &target
            && !postgres.password.is_empty()
        {
            return Err(Problem::invalid(
                "url",
                "the address carries a password, which would be stored and shown",
            )
            .with_remedy("leave it out, and name password_env or password_file"));
        }
        let shared =
            self.catalog.target().dialect() == Dialect::Postgres && !self.config.cluster.single_process;
        if target.dialect() == Dialect::Sqlite && shared {
            return Err(Problem::invalid(
                "url",
                "an SQLite shard belongs to one process, but the catalog is shared",
            )
            .with_remedy(
                "use a PostgreSQL shard, or set cluster.single_process if this is the only process",
            ));
        }
        Ok(())
    }

    /// Where a shard's password is said to be: only where passwords of shards are.
    pub(super) fn password(
        &self,
        env: Option<String>,
        file: Option<String>,
    ) -> Result<PasswordSource, Problem> {
        let (field, source) = match (env, file) {
            (None, None) => return Ok(PasswordSource::Config),
            (Some(name), None) => ("password_env", PasswordSource::Env(name)),
            (None, Some(path)) => ("password_file", PasswordSource::File(path)),
            (Some(_), Some(_)) => {
                let both = "the password is in a variable or in a file, not both";
                return Err(Problem::invalid("password_file", both)
                    .with_remedy("give one of password_env and password_file"));
            }
        };
        match self.config.shard_password(&source) {
            Ok(_) => Ok(source),
            Err(error) => Err(Problem::invalid(field, error.what()).with_remedy(error.remedy())),
        }
    }

    /// What a shard says of itself, if it answers soon.
    async fn ask(&self, id: &ShardId) -> Option<Meta> {
        let ask = async { self.router.administer(id).await.ok()?.meta().await.ok()? };
        tokio::time::timeout(ASK_WAIT, ask).await.ok().flatten()
    }

    pub(crate) fn ranges_by_shard(&self) -> BTreeMap<ShardId, u64> {
        let mut counts = BTreeMap::new();
        for known in self.router.view().maps.values() {
            for (shard, count) in known.map.count_by_shard() {
                *counts.entry(shard).or_insert(0) += count as u64;
            }
        }
        counts
    }
}

fn read_limits(limits: &AskedLimits) -> ShardLimits {
    ShardLimits {
        bytes_max: limits.bytes_max.map(Into::into),
        connections_max: limits.connections_max.map(Into::into),
        shardlets_max: limits.shardlets_max.map(Into::into),
    }
}
