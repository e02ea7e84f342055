//! The route of an analysed statement, once the parameters and the maps are known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use polyshard_map::{Key, KeyRange, LocateError, Map, MapName, ShardId};

use super::analysis::{Action, Analysis, InsertRows, Occurrence, Place};
use super::builder::Use;
use super::formula::{Formula, KeyColumn, Operand, Set, unique};
use super::value::Keyed;
use super::{Maps, Part, Route};
use crate::error::{SqlError, SqlState};
use crate::param::Param;
use crate::schema::TableName;

impl Analysis {
    /// Where the statement goes with these parameters.
    pub fn route(&self, params: &[Param<'_>], maps: &dyn Maps) -> Result<Route, SqlError> {
        match &self.action {
            Action::Anywhere => Ok(Route::Anywhere),
            Action::ReferenceRead => Ok(Route::ReferenceRead),
            Action::ReferenceWrite => Ok(Route::ReferenceWrite),
            Action::Everywhere => Ok(Route::Everywhere),
            Action::Placed(occurrences) => self.placed(occurrences, params, maps),
            Action::Insert(insert) => self.insert(insert, params, maps),
        }
    }

    /// The one key that a statement is about, whose shard is its only place: then [`Analysis::route`] says so too. None
    /// where there is more to be said.
    pub fn one_key(&self, params: &[Param<'_>]) -> Option<(&MapName, Key)> {
        match &self.action {
            Action::Placed(occurrences) => match occurrences.as_slice() {
                [only] => only_key(only, params),
                _ => None,
            },
            Action::Insert(insert) if insert.others.is_empty() && insert.arrays.is_none() => {
                match insert.keys.as_slice() {
                    [operand] => Some((&insert.map, row_key(insert, operand, params).ok()?)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The shard of the row that an INSERT of one row adds, as [`Analysis::route`] says it; for loads, which ask it of
    /// every row.
    pub fn shard_of_row<'m>(
        &self,
        params: &[Param<'_>],
        maps: &'m dyn Maps,
    ) -> Result<&'m ShardId, SqlError> {
        match &self.action {
            Action::Insert(insert)
                if insert.others.is_empty() && insert.arrays.is_none() && insert.keys.len() == 1 =>
            {
                let key = row_key(insert, &insert.keys[0], params)?;
                Ok(known_map(maps, &insert.map)?.locate(&key).map_err(unmapped)?.shard())
            }
            _ => Err(SqlError::new(SqlState::INTERNAL_ERROR, "no INSERT of one row")),
        }
    }

    fn placed(
        &self,
        occurrences: &[Occurrence],
        params: &[Param<'_>],
        maps: &dyn Maps,
    ) -> Result<Route, SqlError> {
        if let [only] = occurrences
            && let Some(route) = by_one_key(only, params, maps)?
        {
            return Ok(route);
        }
        let mut found = Found::default();
        for occurrence in occurrences {
            self.add(occurrence, params, maps, &mut found)?;
        }
        if found.shards.len() > 1 {
            if let Some(what) = &self.one_shard_only {
                return Err(several_shards(what));
            }
            if self.writes && !self.separable {
                return Err(SqlError::unsupported(
                    "the statement writes rows by what rows of other shards say",
                    "Name one key by a condition, or join the tables by their keys so that each shard can do its part.",
                ));
            }
        }
        Ok(found.route())
    }

    fn add<'a>(
        &self,
        occurrence: &'a Occurrence,
        params: &[Param<'_>],
        maps: &'a dyn Maps,
        found: &mut Found<'a>,
    ) -> Result<(), SqlError> {
        let (map_name, column_name, column, formula) = match &occurrence.place {
            Place::Local(shard) => {
                found.shards.insert(shard.clone());
                found.local = true;
                return Ok(());
            }
            Place::Sharded { map, column_name, column, formula } => (map, column_name, column, formula),
        };
        let map = known_map(maps, map_name)?;
        let set = formula.keys(column, params, map);
        match &occurrence.use_ {
            Use::Read => {}
            // Rows that come from elsewhere may have keys that nobody has a place for.
            Use::Add { colocated: false } if !matches!(set, Set::Points(_)) => {
                return Err(unknown_key(&occurrence.table, column_name));
            }
            Use::Add { .. } | Use::Change { .. } if self.strict && set == Set::All => {
                return Err(missing_key(occurrence, column_name));
            }
            Use::Add { .. } | Use::Change { .. } => {}
        }
        if let Use::Change { sets_key: Some(operand) } = &occurrence.use_ {
            let same = match (&set, operand.key(column, params)) {
                (Set::Points(points), Keyed::Key(key)) => points.iter().all(|point| *point == key),
                (set, _) => set.is_nothing(),
            };
            if !same {
                return Err(changes_key(&occurrence.table, column_name));
            }
        }
        found.add(map_name, map, set)
    }

    fn insert(&self, insert: &InsertRows, params: &[Param<'_>], maps: &dyn Maps) -> Result<Route, SqlError> {
        let map = known_map(maps, &insert.map)?;
        let mut rows: BTreeMap<&ShardId, (Vec<usize>, Vec<Key>)> = BTreeMap::new();
        for (row, operand) in insert.row_keys(params)?.iter().enumerate() {
            let key = row_key(insert, operand, params)?;
            let shard = map.locate(&key).map_err(unmapped)?.shard();
            let (numbers, keys) = rows.entry(shard).or_default();
            numbers.push(row);
            keys.push(key);
        }
        for (_, keys) in rows.values_mut() {
            *keys = unique(std::mem::take(keys));
        }
        let mut others = Found::default();
        for occurrence in &insert.others {
            self.add(occurrence, params, maps, &mut others)?;
        }
        let same_shard = |shard: &ShardId| others.shards.iter().all(|other| other == shard);
        match rows.pop_first() {
            // Arrays without an element: what else is wrong with them, a shard says.
            None if insert.arrays.is_some() && others.shards.is_empty() => {
                let first = map.shards().next().ok_or_else(|| no_shard(&insert.map))?;
                let ranges = vec![(insert.map.clone(), vec![KeyRange::all()])];
                Ok(Route::One { shard: first.clone(), keys: Vec::new(), ranges })
            }
            Some((shard, (_, keys))) if rows.is_empty() && same_shard(shard) => {
                let (mut all, ranges) = (vec![(insert.map.clone(), keys)], others.ranges());
                for (name, keys) in others.keys {
                    merge(&mut all, name, keys);
                }
                Ok(Route::One { shard: shard.clone(), keys: all, ranges })
            }
            Some((shard, part)) if insert.others.is_empty() => {
                rows.insert(shard, part);
                split(insert, rows)
            }
            _ => Err(SqlError::unsupported(
                format!("the rows for table {} are on several shards", insert.table),
                "Insert the rows of each shard by a statement of its own, and read other tables before.",
            )),
        }
    }
}

/// The key of a row that is inserted.
fn row_key(insert: &InsertRows, operand: &Operand, params: &[Param<'_>]) -> Result<Key, SqlError> {
    let key = match operand.key(&insert.column, params) {
        Keyed::Key(key) => key,
        Keyed::Null => return Err(null_key(&insert.table, &insert.column_name)),
        Keyed::Above | Keyed::Below => return Err(out_of_range(insert)),
        Keyed::Unknown => return Err(unknown_key(&insert.table, &insert.column_name)),
    };
    match (&key, insert.length) {
        (Key::Text(text), Some(length)) if text.chars().count() > length => {
            Err(too_long(text, length, insert))
        }
        _ => Ok(key),
    }
}

/// The usual case, made short: one table whose key equals one value.
fn by_one_key(
    occurrence: &Occurrence,
    params: &[Param<'_>],
    maps: &dyn Maps,
) -> Result<Option<Route>, SqlError> {
    let Some((name, key)) = only_key(occurrence, params) else { return Ok(None) };
    let shard = known_map(maps, name)?.locate(&key).map_err(unmapped)?.shard().clone();
    Ok(Some(Route::One { shard, keys: vec![(name.clone(), vec![key])], ranges: Vec::new() }))
}

/// The value that a table's key equals.
fn only_key<'o>(occurrence: &'o Occurrence, params: &[Param<'_>]) -> Option<(&'o MapName, Key)> {
    let (
        Place::Sharded { map: name, column, formula: Formula::Equal(operand), .. },
        Use::Read | Use::Change { sets_key: None },
    ) = (&occurrence.place, &occurrence.use_)
    else {
        return None;
    };
    let Keyed::Key(key) = operand.key(column, params) else { return None };
    Some((name, key))
}

/// The shards, keys and ranges of all occurrences.
#[derive(Default)]
struct Found<'a> {
    shards: BTreeSet<ShardId>,
    local: bool,
    maps: Vec<(&'a MapName, &'a Map)>,
    keys: Vec<(&'a MapName, Vec<Key>)>,
    ranges: Vec<(&'a MapName, Vec<KeyRange>)>,
}

impl<'a> Found<'a> {
    fn add(&mut self, name: &'a MapName, map: &'a Map, set: Set) -> Result<(), SqlError> {
        if !self.maps.iter().any(|(known, _)| *known == name) {
            self.maps.push((name, map));
        }
        match set {
            Set::All => {
                self.shards.extend(map.shards().cloned());
                self.add_ranges(name, vec![KeyRange::all()]);
            }
            Set::Points(points) if points.is_empty() => {}
            Set::Points(points) => {
                for key in &points {
                    self.shards.insert(map.locate(key).map_err(unmapped)?.shard().clone());
                }
                match self.keys.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, keys)) => {
                        keys.extend(points);
                        *keys = unique(std::mem::take(keys));
                    }
                    None => self.keys.push((name, points)),
                }
            }
            Set::Ranges(ranges) => {
                for range in &ranges {
                    self.shards.extend(map.shards_for(range));
                }
                self.add_ranges(name, ranges);
            }
        }
        Ok(())
    }

    fn add_ranges(&mut self, name: &'a MapName, ranges: Vec<KeyRange>) {
        match self.ranges.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => {
                for range in ranges {
                    if !known.contains(&range) {
                        known.push(range);
                    }
                }
            }
            None => self.ranges.push((name, ranges)),
        }
    }

    fn ranges(&self) -> Vec<(MapName, Vec<KeyRange>)> {
        self.ranges.iter().map(|(name, ranges)| ((*name).clone(), ranges.clone())).collect()
    }

    fn route(self) -> Route {
        let mut shards = self.shards.iter();
        match (shards.next(), shards.next()) {
            (None, _) => Route::Nowhere { maps: self.maps.iter().map(|(name, _)| (*name).clone()).collect() },
            (Some(shard), None) if self.keys.is_empty() && self.ranges.is_empty() => {
                Route::Local(shard.clone())
            }
            (Some(shard), None) => Route::One {
                shard: shard.clone(),
                ranges: self.ranges(),
                keys: self.keys.into_iter().map(|(name, keys)| (name.clone(), keys)).collect(),
            },
            (Some(_), Some(_)) => {
                let mut ranges = self.ranges();
                for (name, keys) in &self.keys {
                    let map = self.maps.iter().find(|(known, _)| known == name).map(|(_, map)| *map);
                    let points = keys.iter().filter_map(|key| map?.placement(key).ok().map(KeyRange::point));
                    match ranges.iter_mut().find(|(known, _)| known == *name) {
                        Some((_, known)) => known.extend(points),
                        None => ranges.push(((*name).clone(), points.collect())),
                    }
                }
                Route::Many { shards: self.shards, ranges }
            }
        }
    }
}

fn merge(all: &mut Vec<(MapName, Vec<Key>)>, name: &MapName, keys: Vec<Key>) {
    match all.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => {
            known.extend(keys);
            *known = unique(std::mem::take(known));
        }
        None => all.push((name.clone(), keys)),
    }
}

impl InsertRows {
    /// The key of each row, now that the parameters are known.
    fn row_keys(&self, params: &[Param<'_>]) -> Result<Cow<'_, [Operand]>, SqlError> {
        let Some(parameter) = self.arrays.as_ref().and_then(|arrays| arrays.parameter.as_ref()) else {
            return Ok(Cow::Borrowed(&self.keys));
        };
        let keys = parameter.elements(params).ok_or_else(|| unknown_key(&self.table, &self.column_name))?;
        let keys: Option<Vec<Operand>> = keys.into_iter().collect();
        keys.map(Cow::Owned).ok_or_else(|| null_key(&self.table, &self.column_name))
    }
}

fn split(insert: &InsertRows, rows: BTreeMap<&ShardId, (Vec<usize>, Vec<Key>)>) -> Result<Route, SqlError> {
    let whole = || {
        SqlError::unsupported(
            format!(
                "the rows for table {} are on several shards, and the statement cannot be cut",
                insert.table
            ),
            "Insert the rows of each shard by a statement of its own.",
        )
    };
    if let Some(arrays) = &insert.arrays {
        let (Some(cut), Some(columns)) = (&arrays.cut, arrays.columns) else { return Err(whole()) };
        let count = rows.values().map(|(rows, _)| rows.len()).sum();
        let mut parts = Vec::with_capacity(rows.len());
        for (shard, (rows, keys)) in rows {
            let beyond = parts.is_empty().then_some(count);
            let text = cut.part(&insert.text, columns, &rows, beyond);
            parts.push(Part { shard: shard.clone(), keys: vec![(insert.map.clone(), keys)], rows, text });
        }
        return Ok(Route::Split(parts));
    }
    let spans = insert.spans.as_ref().ok_or_else(whole)?;
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
        return Err(unknown_key(&insert.table, &insert.column_name));
    };
    let (before, after) = (&insert.text[..first.0], &insert.text[last.1..]);
    let part = |(shard, (rows, keys)): (&ShardId, (Vec<usize>, Vec<Key>))| {
        let mut text = before.to_owned();
        for (place, row) in rows.iter().enumerate() {
            if place > 0 {
                text.push_str(", ");
            }
            let (start, end) = spans[*row];
            text.push_str(&insert.text[start..end]);
        }
        text.push_str(after);
        Part { shard: shard.clone(), keys: vec![(insert.map.clone(), keys)], rows, text }
    };
    Ok(Route::Split(rows.into_iter().map(part).collect()))
}

pub(super) fn known_map<'a>(maps: &'a dyn Maps, name: &MapName) -> Result<&'a Map, SqlError> {
    maps.map(name).ok_or_else(|| {
        SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, format!("map {name} is not known here"))
            .hint("Try again; if it stays so, create the map, or bind the table to another one.")
    })
}

fn no_shard(map: &MapName) -> SqlError {
    SqlError::new(SqlState::UNMAPPED_KEY, format!("map {map} has no shard yet"))
}

pub(super) fn unmapped(error: LocateError) -> SqlError {
    match error {
        LocateError::Gap { .. } => SqlError::new(SqlState::UNMAPPED_KEY, error.to_string()),
        LocateError::WrongType { .. } => SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()),
    }
}

fn missing_key(occurrence: &Occurrence, column: &str) -> SqlError {
    let table = &occurrence.table;
    SqlError::unsupported(
        format!(
            "the statement writes to table {table} without a key: column \"{column}\" says which shard a row is on"
        ),
        format!("Add a condition such as {column} = … with a literal or a parameter of the column's type."),
    )
}

pub(super) fn changes_key(table: &TableName, column: &str) -> SqlError {
    SqlError::unsupported(
        format!(
            "column \"{column}\" of table {table} is its key, and a row's key cannot be changed in place"
        ),
        "SET polyshard.move_rows = on has rows moved, where old and new key are literals or parameters; or delete the \
         row and insert it under its new key.",
    )
}

pub(super) fn null_key(table: &TableName, column: &str) -> SqlError {
    SqlError::new(
        SqlState::NOT_NULL_VIOLATION,
        format!("null value in column \"{column}\" of table {table}: it is the key"),
    )
    .hint("Give every row a key.")
}

fn out_of_range(insert: &InsertRows) -> SqlError {
    let KeyColumn { key_type, .. } = &insert.column;
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!(
            "a value for key column \"{}\" of table {} is no {key_type}",
            insert.column_name, insert.table
        ),
    )
}

/// Blanks at the end would be cut off in silence; everything else PostgreSQL refuses.
fn too_long(text: &str, length: usize, insert: &InsertRows) -> SqlError {
    if text.chars().skip(length).all(|c| c == ' ') {
        return unknown_key(&insert.table, &insert.column_name);
    }
    SqlError::new(SqlState("22001"), format!("value too long for type character varying({length})"))
}

pub(super) fn unknown_key(table: &TableName, column: &str) -> SqlError {
    SqlError::unsupported(
        format!(
            "it cannot be told from its key column \"{column}\" which shard a row for table {table} belongs to"
        ),
        format!("Give \"{column}\" as a literal or a parameter of the column's own type."),
    )
}

fn several_shards(what: &str) -> SqlError {
    SqlError::unsupported(
        format!("{what} is not supported on rows of several shards"),
        "Name one key by a condition, so that the statement stays on one shard.",
    )
}
