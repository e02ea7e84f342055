//! UPDATE of a key column, where the session has asked that rows be moved.

use super::analysis::{Action, Analysis, Occurrence, Place};
use super::builder::Use;
use super::decide::{known_map, unmapped};
use super::formula::Set;
use super::value::Keyed;
use super::{Maps, Rekey, Route};
use crate::error::SqlError;
use crate::param::Param;

impl Analysis {
    /// Like [`Analysis::route`], but an UPDATE of one table may give its rows another key, if all of them are on one
    /// shard and the new key is plain to see.
    pub fn route_with_moves(&self, params: &[Param<'_>], maps: &dyn Maps) -> Result<Route, SqlError> {
        if let Action::Placed(occurrences) = &self.action
            && let [only] = occurrences.as_slice()
            && let Some(route) = rekey(only, params, maps)?
        {
            return Ok(route);
        }
        self.route(params, maps)
    }
}

fn rekey(occurrence: &Occurrence, params: &[Param<'_>], maps: &dyn Maps) -> Result<Option<Route>, SqlError> {
    let (Place::Sharded { map: name, column, formula, .. }, Use::Change { sets_key: Some(operand) }) =
        (&occurrence.place, &occurrence.use_)
    else {
        return Ok(None);
    };
    let map = known_map(maps, name)?;
    let (Set::Points(keys), Keyed::Key(key)) =
        (formula.keys(column, params, map), operand.key(column, params))
    else {
        return Ok(None);
    };
    if keys.iter().all(|old| *old == key) {
        return Ok(None);
    }
    let to = map.locate(&key).map_err(unmapped)?.shard().clone();
    let mut from = None;
    for old in &keys {
        let shard = map.locate(old).map_err(unmapped)?.shard();
        if from.get_or_insert(shard) != &shard {
            return Err(SqlError::unsupported(
                format!("rows of several shards would get one key of table {}", occurrence.table),
                "Change the rows of one key at a time.",
            ));
        }
    }
    let Some(from) = from.cloned() else { return Ok(None) };
    if from == to {
        let keys = keys.into_iter().chain([key]).collect();
        let keys = vec![(name.clone(), super::formula::unique(keys))];
        return Ok(Some(Route::One { shard: to, keys, ranges: Vec::new() }));
    }
    let (table, map) = (occurrence.table.clone(), name.clone());
    Ok(Some(Route::Rekey(Box::new(Rekey { table, map, from, keys, to, key }))))
}
