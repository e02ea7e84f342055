//! `SET polyshard.shard`: what names no key is asked of one shard, to look at it by itself.

use std::collections::BTreeSet;

use polyshard_sql::{Analysis, Kind, Placement, Route, Schema, SqlError, SqlState};

use super::Session;
use super::statement::reads;

impl Session {
    /// The route of a statement in a session that has chosen a shard. What has a key goes where the key is all the
    /// same, and what every shard has is changed on every shard.
    pub(super) fn pinned(
        &self,
        route: Route,
        kind: &Kind,
        analysis: &Analysis,
        schema: &Schema,
    ) -> Result<Route, SqlError> {
        let Some(shard) = &self.own.shard else { return Ok(route) };
        if !self.door.router.view().shards.contains_key(shard) {
            let message = format!("there is no shard {shard}, which polyshard.shard names");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .hint("RESET polyshard.shard, or choose one that \"polyshard shard list\" shows."));
        }
        let is_placed = self.backend.is_some() || !self.parked.is_empty() || self.lite.is_some();
        match route {
            // A transaction stays where it is.
            Route::Anywhere | Route::ReferenceRead | Route::Nowhere { .. } if !is_placed => {
                Ok(Route::Local(shard.clone()))
            }
            Route::Many { ranges, .. } if reads(kind) => {
                for (name, _) in analysis.tables() {
                    if let Some(Placement::Local(on)) = schema.tables.get(name).map(|table| &table.placement)
                        && on != shard
                    {
                        return Err(SqlError::unsupported(
                            format!("table {name} is on shard {on}, and polyshard.shard is {shard}"),
                            "RESET polyshard.shard to query both.",
                        ));
                    }
                }
                Ok(Route::Many { shards: BTreeSet::from([shard.clone()]), ranges })
            }
            Route::Many { .. } => Err(SqlError::unsupported(
                format!(
                    "a write that names no key is not narrowed to shard {shard}, which polyshard.shard names"
                ),
                "Name the keys, or RESET polyshard.shard.",
            )),
            route => Ok(route),
        }
    }
}
