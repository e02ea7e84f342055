//! Whether a dataset has rows of some ranges. Reads only, and looks up single keys by their column.

use polyshard_engine::{Database, Dialect, Error, Statement};
use polyshard_map::{KeyRange, KeyType, MapDefinition, Scheme};
use polyshard_shard::{Dataset, Placement, ShardError};

/// The places of those ranges that the dataset has rows of.
pub(super) async fn in_dataset(
    db: &Database,
    dataset: &Dataset,
    definition: &MapDefinition,
    ranges: &[KeyRange],
) -> Result<Vec<usize>, ShardError> {
    match any(db, format!("SELECT 1 FROM {} LIMIT 1", dataset.table)).await {
        Ok(true) => {}
        // Or a table of a store that is made when its first row comes.
        Ok(false) | Err(Error::Invalid { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let mut found = Vec::new();
    // Mostly there is none of any; else they are told apart by halves.
    let mut asked = Vec::from_iter(Some(0..ranges.len()));
    while let Some(places) = asked.pop() {
        let sql = rows_of(db.dialect(), dataset, definition, &ranges[places.clone()])?;
        let middle = places.start + places.len() / 2;
        match any(db, sql).await? {
            false => {}
            true if places.len() == 1 => found.push(places.start),
            true => asked.extend([places.start..middle, middle..places.end]),
        }
    }
    Ok(found)
}

async fn any(db: &Database, sql: String) -> Result<bool, Error> {
    let mut scan = db.scan(Statement::new(sql), 1).await?;
    while let Some(page) = scan.next().await? {
        if page.iter().next().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn rows_of(
    dialect: Dialect,
    dataset: &Dataset,
    definition: &MapDefinition,
    ranges: &[KeyRange],
) -> Result<String, ShardError> {
    let inside = dataset.placement.in_ranges(dialect, definition, ranges, "")?;
    let keys: Option<Vec<String>> = ranges.iter().map(|range| key_of(dialect, definition, range)).collect();
    let by_key = match (&dataset.placement, keys) {
        (Placement::Key(columns), Some(keys)) if columns.len() == 1 && !keys.is_empty() => {
            format!("{} IN ({}) AND ", columns[0], keys.join(", "))
        }
        _ => String::new(),
    };
    let rows_of = dataset.and_own_rows(dialect);
    Ok(format!("SELECT 1 FROM {} WHERE {by_key}{inside}{rows_of} LIMIT 1", dataset.table))
}

/// The key that is all of a range, as an index on its column finds it: where the placement is computed, the whole table
/// would have to be read. None where the stored form may be another: what is meant may be wider, and never narrower.
fn key_of(dialect: Dialect, definition: &MapDefinition, range: &KeyRange) -> Option<String> {
    if !matches!(definition.scheme(), Scheme::List | Scheme::Range) || !is_point(range) {
        return None;
    }
    let (bytes, hex) = (range.lo().as_slice(), range.lo().to_hex());
    // PostgreSQL has no such texts.
    if *definition.key_type() == KeyType::Text && bytes.contains(&0) {
        return None;
    }
    match (dialect, definition.key_type()) {
        (Dialect::Postgres, KeyType::Text) => Some(format!("convert_from('\\x{hex}'::bytea, 'UTF8')")),
        (Dialect::Postgres, KeyType::Uuid) => Some(format!("'{hex}'::uuid")),
        (Dialect::Postgres, KeyType::Binary) => Some(format!("'\\x{hex}'::bytea")),
        (Dialect::Sqlite, KeyType::Text) => Some(format!("CAST(x'{hex}' AS TEXT)")),
        (Dialect::Sqlite, KeyType::Binary) => Some(format!("x'{hex}'")),
        _ => None,
    }
}

fn is_point(range: &KeyRange) -> bool {
    *range == KeyRange::point(range.lo().clone())
}
