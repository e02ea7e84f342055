//! Archives: rows of a range in a folder or object store instead of on a shard.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RangeView;

/// A range to be archived, or dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewArchive {
    /// Which keys of a list or range map.
    pub range: RangeView,
    /// Where to: a folder on the server's machine from its root, `s3://bucket/prefix` or `az://container/prefix`.
    /// Without it the configured place of backups (`backup.to`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What it is called; made of the map and the range if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Keep nothing: the rows are deleted, and nothing is mapped there any more. The name of the map, once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy: Option<String>,
    /// Columns that are left out, as `table.column`; restored rows have their default there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_columns: Vec<String>,
    /// Write a readable copy beside it: CSV files.
    #[serde(default)]
    pub csv: bool,
    /// Only look.
    #[serde(default)]
    pub dry_run: bool,
}

/// What is archived, and the operation that does it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ArchiveBegun)]
pub struct ArchiveAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// One archive for each shard that has a part of the range.
    pub parts: Vec<ArchivePart>,
    /// What is done, in words.
    pub steps: Vec<String>,
    /// The operation; none if it is only looked at, or there is nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<String>,
}

/// A part of a range that is archived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ArchivePart {
    /// The archive.
    pub name: String,
    /// Which keys.
    pub range: RangeView,
    /// The shard that has them.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Rows, as counted now; not counted unless it is only looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// About how many bytes they are on the shard; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why a rule takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// One archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Archive)]
pub struct ArchiveView {
    /// Its name.
    pub name: String,
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// Which keys; none if the map is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
    /// The shard that had them.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Its address.
    pub at: String,
    /// `writing`; `written`: the rows are in it, and perhaps still on the shard; `archived`: only in it; `restored`: on
    /// a shard again, and still in it.
    pub state: String,
    /// Rows.
    pub rows: u64,
    /// Bytes of them, before they were compressed.
    pub bytes: u64,
    /// Columns that were left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_columns: Vec<String>,
    /// When it was begun, in milliseconds since 1970.
    pub began_ms: i64,
}

/// All archives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Archives)]
pub struct ArchivesAnswer {
    /// By name.
    pub archives: Vec<ArchiveView>,
}

/// An archive to be restored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreArchive {
    /// Onto this shard; the one that had it, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub to: Option<ShardId>,
}

/// What an archive is removed with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub struct ForgetArchive {
    /// Its name once more, if its rows are nowhere else: they are lost, and nothing is mapped there any more.
    pub destroy: Option<String>,
}

/// A rule by which old ranges are archived, dropped or moved on a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewArchiveRule {
    /// How old a range must be, from its end: `13months`, `90days`, `2years`.
    pub older_than: String,
    /// The ranges that are archived together, from their beginnings: `day`, `month` or `year`.
    #[serde(default = "month")]
    pub by: String,
    /// How often: `hour`, `day`, `week` or `month`.
    #[serde(default = "day")]
    pub every: String,
    /// When on such a day, in UTC: `03:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What is done.
    pub then: ArchiveThen,
    /// Columns that are left out, as `table.column`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_columns: Vec<String>,
}

fn month() -> String {
    "month".to_owned()
}

fn day() -> String {
    "day".to_owned()
}

/// What a rule does with old ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ArchiveThen {
    /// Archive them at a place.
    Archive {
        /// Where to.
        to: String,
    },
    /// Drop them with their rows.
    Drop,
    /// Move them, online, to shards of a tier.
    Tier {
        /// The tier.
        tier: String,
    },
}

/// A rule as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ArchiveRule)]
pub struct ArchiveRuleView {
    /// Its id.
    pub id: String,
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// What it says.
    pub rule: NewArchiveRule,
    /// When it was last carried out, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<i64>,
    /// When it is due next, in milliseconds since 1970; what has passed waits for a quiet hour or another operation.
    pub next_ms: i64,
    /// Why it could not be begun when this process last tried; it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The ranges that it would be carried out on now.
    pub due: Vec<RangeView>,
}

/// How a rule is carried out now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunArchiveRule {
    /// Only look.
    #[serde(default)]
    pub dry_run: bool,
}

/// All rules of archiving.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ArchiveRules)]
pub struct ArchiveRulesAnswer {
    /// By map.
    pub rules: Vec<ArchiveRuleView>,
}

/// Where new data of a map flows when the shard of its last range is full.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SpillRequest {
    /// The shards, in order; those with the most room, if none are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub to: Vec<ShardId>,
    /// Whether it is done by itself from now on, when a shard is full; `false` ends that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<bool>,
    /// Only look.
    #[serde(default)]
    pub dry_run: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Spill)]
pub struct SpillAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// Whether it is done by itself.
    pub auto: bool,
    /// The new range; none if nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
    /// The shard that had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub from: Option<ShardId>,
    /// The shard that has it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub to: Option<ShardId>,
    /// What was found, in words.
    pub says: String,
}
