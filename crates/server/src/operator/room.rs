//! Whether a shard may take what is to be moved there: rules, limits, free space, rights.

use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::CatalogError;
use polyshard_engine::{Dialect, Statement, Target};
use polyshard_map::{KeyRange, MapDefinition, ShardId};
use polyshard_planner::Rule;
use polyshard_planner::measure;
use polyshard_planner::plan::{Piece, Situation};
use polyshard_router::view::KnownMap;
use polyshard_shard::{Shard, ShardError};

use super::Operations;
use crate::problem;

/// How much of what is carried must be free on an SQLite shard's disk: the rows, and the log they are written to first.
const FREE_TIMES: u64 = 2;

/// What a move does on the shard it leaves, and on the one it goes to.
const RIGHTS: [(&str, &[&str]); 2] =
    [("from", &["SELECT", "DELETE", "TRIGGER"]), ("to", &["SELECT", "INSERT", "UPDATE", "DELETE"])];

impl Operations {
    /// The rules of a map.
    pub(super) async fn rules_of(&self, known: &KnownMap) -> Result<Vec<Rule>, Problem> {
        let stored = self.catalog.rules(Some(known.map.definition().name())).await;
        let stored = stored.map_err(|error| problem::of_catalog(&error))?;
        let read = |(_, _, body): &_| Rule::read(body).map_err(|why| Problem::new(ErrorCode::Internal, why));
        stored.iter().map(read).collect()
    }

    /// Refuses what a rule forbids, or what a shard has no room for.
    pub(super) async fn check_room(
        &self,
        known: &KnownMap,
        range: &KeyRange,
        bytes: u64,
        to: &ShardId,
    ) -> Result<(), Problem> {
        let rules = self.rules_of(known).await?;
        let record = self.catalog.shard(to).await.map_err(|error| problem::of_catalog(&error))?;
        let mut places = measure::places(&self.router, std::slice::from_ref(&record)).await;
        self.keep_for_others(known.map.definition().name(), &mut places).await?;
        let piece = |entry: polyshard_map::Entry| Piece {
            range: entry.range,
            shard: entry.shard,
            rows: 0,
            bytes: 0,
            requests: 0.0,
            traffic: 0.0,
            adjoins: false,
        };
        // Only rules look at what else is where.
        let pieces: Vec<Piece> = match rules.is_empty() {
            true => Vec::new(),
            false => known.map.entries(&KeyRange::all()).map(piece).collect(),
        };
        let definition = Some(known.map.definition());
        let situation =
            Situation { pieces: &pieces, places: &places, rules: &rules, resting: &[], definition };
        if let Some(why) = situation.refuses(range, bytes, to) {
            return Err(Problem::new(ErrorCode::Conflict, why).with_remedy(
                "choose another shard, raise the limit with 'polyshard shard set', or see 'polyshard rule list'",
            ));
        }
        self.check_disk(bytes, to).await
    }

    async fn check_disk(&self, bytes: u64, to: &ShardId) -> Result<(), Problem> {
        let shard = self.opened(to).await?;
        let Target::Sqlite(file) = shard.address() else { return Ok(()) };
        let folder = file.path.parent().unwrap_or(&file.path);
        let free = rustix::fs::statvfs(folder).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        match free {
            Ok(free) if free < bytes.saturating_mul(FREE_TIMES) => Err(Problem::new(
                ErrorCode::Conflict,
                format!(
                    "shard {to} would get about {bytes} bytes, twice that is needed while they are written, and \
                     {free} are free on its disk"
                ),
            )
            .with_remedy("make room there, or choose another shard")),
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!(shard = %to, %error, "how much is free on its disk cannot be said");
                Ok(())
            }
        }
    }

    /// Refuses a move that the shards' users have no right to make.
    pub(super) async fn check_rights(
        &self,
        definition: &MapDefinition,
        from: &ShardId,
        to: &ShardId,
    ) -> Result<(), Problem> {
        let datasets = self.opened(from).await?.tables(definition.name()).await;
        let datasets = datasets.map_err(|error| on(from, error))?;
        for ((side, rights), id) in RIGHTS.into_iter().zip([from, to]) {
            let shard = self.opened(id).await?;
            if shard.dialect() != Dialect::Postgres {
                continue;
            }
            for dataset in &datasets {
                let missing = missing(&shard, &dataset.table, rights).await.map_err(|error| on(id, error))?;
                if let Some(right) = missing {
                    return Err(Problem::new(
                        ErrorCode::Conflict,
                        format!(
                            "the user of shard {id} lacks {right} on {}, which a move {side} there needs",
                            dataset.table
                        ),
                    )
                    .with_remedy(format!("GRANT {right} ON {} TO that user", dataset.table)));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn opened(&self, id: &ShardId) -> Result<std::sync::Arc<Shard>, Problem> {
        self.router.administer(id).await.map_err(|error| on(id, error))
    }
}

pub(super) fn on(shard: &ShardId, error: ShardError) -> Problem {
    problem::of_catalog(&CatalogError::Shard { shard: shard.clone(), error })
}

/// The first right that is missing; a table that is not there is somebody else's complaint.
async fn missing(
    shard: &Shard,
    table: &str,
    rights: &'static [&'static str],
) -> Result<Option<&'static str>, ShardError> {
    let columns: Vec<String> = rights
        .iter()
        .map(|right| format!("coalesce(has_table_privilege(to_regclass($1), '{right}'), true)"))
        .collect();
    let sql = format!("SELECT {}", columns.join(", "));
    let mut tx = shard.control_transaction().await?;
    let rows = tx.run(Statement::new(sql).bind(table.to_owned())).await?;
    let row = rows.one()?;
    for (index, right) in rights.iter().enumerate() {
        if !row.bool(index)? {
            return Ok(Some(right));
        }
    }
    Ok(None)
}
