//! The client's calls about archives, and about new data that flows to other shards.

use polyshard_map::MapName;

use super::{Answered, Client};
use crate::operator::{Basis, Data};
use crate::types::{
    ArchiveAnswer, ArchiveRuleView, ArchiveRulesAnswer, ArchiveView, ArchivesAnswer, NewArchive,
    NewArchiveRule, RestoreArchive, RunArchiveRule, SpillAnswer, SpillRequest,
};

/// A name as a part of a path: whatever somebody typed is one part, and not found.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let part = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(part).collect()
}

impl Client {
    /// Archive or drop a range, or look at what that would be.
    pub fn archive(&self, map: &MapName, archive: &NewArchive) -> Answered<ArchiveAnswer> {
        self.call_with(self.post(&format!("/v1/maps/{map}/archives")), archive)
    }

    /// All archives.
    pub fn archives(&self) -> Answered<ArchivesAnswer> {
        self.call(self.get("/v1/archives"))
    }

    /// One archive.
    pub fn show_archive(&self, name: &str) -> Answered<ArchiveView> {
        self.call(self.get(&format!("/v1/archives/{}", escaped(name))))
    }

    /// Read an archive back.
    pub fn verify_archive(&self, name: &str) -> Answered<ArchiveView> {
        self.call_with(
            self.post(&format!("/v1/archives/{}/verify", escaped(name))),
            &RestoreArchive::default(),
        )
    }

    /// Put the rows of an archive back.
    pub fn restore_archive(&self, name: &str, restore: &RestoreArchive) -> Answered<ArchiveAnswer> {
        self.call_with(self.post(&format!("/v1/archives/{}/restore", escaped(name))), restore)
    }

    /// Remove an archive.
    pub fn forget_archive(&self, name: &str, data: Data) -> Answered<()> {
        self.remove(&format!("/v1/archives/{}", escaped(name)), name, data, Basis::Current)
    }

    /// All rules of archiving.
    pub fn archive_rules(&self) -> Answered<ArchiveRulesAnswer> {
        self.call(self.get("/v1/archive-rules"))
    }

    /// Record a rule of archiving.
    pub fn add_archive_rule(&self, map: &MapName, rule: &NewArchiveRule) -> Answered<ArchiveRuleView> {
        self.call_with(self.post(&format!("/v1/maps/{map}/archive-rules")), rule)
    }

    /// Carry out a rule of archiving now, or look at what it would do.
    pub fn run_archive_rule(&self, id: &str, run: &RunArchiveRule) -> Answered<ArchiveAnswer> {
        self.call_with(self.post(&format!("/v1/archive-rules/{}/run", escaped(id))), run)
    }

    /// Forget a rule of archiving.
    pub fn remove_archive_rule(&self, id: &str) -> Answered<()> {
        self.remove(&format!("/v1/archive-rules/{}", escaped(id)), id, Data::Keep, Basis::Current)
    }

    /// Let new data of a map flow to another shard.
    pub fn spill(&self, map: &MapName, request: &SpillRequest) -> Answered<SpillAnswer> {
        self.call_with(self.post(&format!("/v1/maps/{map}/spill")), request)
    }
}
