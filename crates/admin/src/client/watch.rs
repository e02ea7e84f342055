//! The client's calls of an onlooker, and of one who takes backups.

use polyshard_map::MapName;

use super::{Answered, Client};
use crate::types::{
    BackupView, BackupsAnswer, HotAnswer, HotBy, HotRequest, LargeAnswer, NewBackup, NewRestore,
    ShardletAnswer, TrafficAnswer, WindowAnswer, WindowRequest,
};

impl Client {
    /// What is going on.
    pub fn traffic(&self) -> Answered<TrafficAnswer> {
        self.call(self.get("/v1/traffic"))
    }

    /// The hottest shardlets.
    pub fn hot(&self, limit: u32) -> Answered<HotAnswer> {
        self.call(self.get("/v1/hot").query("limit", limit.to_string()))
    }

    /// The busiest shardlets, or the least busy, as asked for.
    pub fn busy(&self, request: &HotRequest) -> Answered<HotAnswer> {
        let mut get = self.get("/v1/hot").query("cold", request.cold.to_string());
        if let Some(limit) = request.limit {
            get = get.query("limit", limit.to_string());
        }
        if let Some(map) = &request.map {
            get = get.query("map", map);
        }
        if let Some(by) = request.by {
            let by = if by == HotBy::Bytes { "bytes" } else { "requests" };
            get = get.query("by", by);
        }
        self.call(get)
    }

    /// The largest shardlets, of one map or of all.
    pub fn large(&self, limit: u32, map: Option<&MapName>) -> Answered<LargeAnswer> {
        let mut get = self.get("/v1/large").query("limit", limit.to_string());
        if let Some(map) = map {
            get = get.query("map", map);
        }
        self.call(get)
    }

    /// A part of a map in pieces.
    pub fn window(&self, map: &MapName, request: &WindowRequest) -> Answered<WindowAnswer> {
        let mut get = self.get(&format!("/v1/maps/{map}/window"));
        let fields =
            [("first", request.first), ("count", request.count), ("pieces", request.pieces.map(u64::from))];
        for (name, value) in fields.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            get = get.query(name, value.to_string());
        }
        self.call(get)
    }

    /// One shardlet by its key's text form.
    pub fn shardlet(&self, map: &MapName, key: &str) -> Answered<ShardletAnswer> {
        self.call(self.get(&format!("/v1/maps/{map}/shardlet")).query("key", key))
    }

    /// All metrics in Prometheus' text form.
    pub fn metrics(&self) -> Answered<Vec<u8>> {
        self.send(self.get("/metrics"))
    }
}

impl Client {
    /// Begins to take a backup.
    pub fn begin_backup(&self, backup: &NewBackup) -> Answered<BackupView> {
        self.call_with(self.post("/v1/backups"), backup)
    }

    /// How far a backup is.
    pub fn backup(&self, id: u64) -> Answered<BackupView> {
        self.call(self.get(&format!("/v1/backups/{id}")))
    }

    /// Begins to restore a shardlet.
    pub fn begin_restore(&self, restore: &NewRestore) -> Answered<BackupView> {
        self.call_with(self.post("/v1/restores"), restore)
    }

    /// Asks for a backup or restoration to be given up.
    pub fn cancel_backup(&self, id: u64) -> Answered<BackupView> {
        self.call_with(self.post(&format!("/v1/backups/{id}/cancel")), &())
    }

    /// The backups and restorations of the cluster.
    pub fn backups(&self) -> Answered<BackupsAnswer> {
        self.call(self.get("/v1/backups"))
    }
}
