//! The shardlets that have the most data: counted where that is quick, estimated from a sample where it is not.
//!
//! Rows that were copied by a move that is not done are not counted: a row counts on the shard that owns it.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use polyshard_admin::Problem;
use polyshard_admin::types::{HOT_MAX, KeyText, LargeAnswer, LargeShardlet, LeftOut};
use polyshard_catalog::DatasetRecord;
use polyshard_engine::{Database, Dialect, Error, Row, Statement, Value};
use polyshard_map::{Key, KeyBytes, Map, MapName, ShardId};
use polyshard_shard::{Dataset, Placement, Shard, ShardError, whole_name};

use super::Watcher;
use super::keys::Tells;
use crate::operator::now_ms;

/// What was counted holds for so long.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How long all shards together may take; what is not counted then is left out, and said so.
const LOOK_WAIT: Duration = Duration::from_secs(10);
/// Shards asked at once: more would be felt by requests.
const ASKED_AT_ONCE: usize = 4;
/// Rows of a table on one shard that are counted one by one: about half a second. Beyond it, a sample is taken.
const COUNTED_MAX: u64 = 1_000_000;
/// Rows, or places where a row may be, in a sample.
const SAMPLE_ROWS: u64 = 50_000;
/// Hits that a sample must have to say anything.
const HITS_MIN: i64 = 500;
/// Shardlets of one table on one shard that are looked at: the largest of all are among them.
const KEPT_MAX: usize = 1_000;
/// Rows whose mean length is taken for that of all.
const MEASURED_ROWS: usize = 64;
/// Things told as left out.
const LEFT_OUT_MAX: usize = 100;

/// A shardlet: its map, its placement, and its key where that is known.
type Name = (MapName, KeyBytes, Option<Key>);

/// What a shardlet has on one shard.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    rows: u64,
    bytes: u64,
    sampled: bool,
}

/// What was counted, and when.
pub(super) struct Counted {
    at: std::time::Instant,
    answer: LargeAnswer,
}

/// One shard's.
struct OnShard {
    shard: ShardId,
    sizes: HashMap<Name, Size>,
    left_out: Vec<LeftOut>,
}

impl Watcher {
    pub(super) async fn largest(&self, limit: usize, map: Option<MapName>) -> Result<LargeAnswer, Problem> {
        if let Some(map) = &map {
            self.operations.known(map).await?;
        }
        // Whoever comes meanwhile waits, and gets the same.
        let mut counted = self.large.lock().await;
        if counted.as_ref().is_none_or(|counted| counted.at.elapsed() >= LOOK_AGAIN) {
            let answer = self.count_all().await;
            *counted = Some(Counted { at: std::time::Instant::now(), answer });
        }
        let mut answer = counted.as_ref().expect("it was just counted").answer.clone();
        drop(counted);
        answer.shardlets.retain(|one| map.as_ref().is_none_or(|map| one.map == *map));
        answer.shardlets.truncate(limit);
        Ok(answer)
    }

    async fn count_all(&self) -> LargeAnswer {
        let ids: Vec<ShardId> = self.router.view().shards.keys().cloned().collect();
        let mut missing: Vec<ShardId> = ids.clone();
        let mut shards = Vec::new();
        let mut asked =
            futures_util::stream::iter(ids).map(|id| self.count_shard(id)).buffer_unordered(ASKED_AT_ONCE);
        let all = async {
            while let Some(done) = asked.next().await {
                missing.retain(|id| *id != done.shard);
                shards.push(done);
            }
        };
        let late = tokio::time::timeout(LOOK_WAIT, all).await.is_err();
        drop(asked);
        let mut left_out: Vec<LeftOut> =
            shards.iter_mut().flat_map(|one| std::mem::take(&mut one.left_out)).collect();
        if late {
            let why = format!("not counted within {} s", LOOK_WAIT.as_secs());
            left_out.extend(missing.into_iter().map(|shard| LeftOut {
                shard,
                dataset: None,
                why: why.clone(),
            }));
        }
        left_out.sort_by(|a, b| (&a.shard, &a.dataset).cmp(&(&b.shard, &b.dataset)));
        let left_out_more = left_out.len().saturating_sub(LEFT_OUT_MAX) as u64;
        left_out.truncate(LEFT_OUT_MAX);
        LargeAnswer { at_ms: now_ms(), shardlets: self.ranked(shards), left_out, left_out_more }
    }

    /// The largest of all maps, of each map as many as are ever asked for.
    fn ranked(&self, shards: Vec<OnShard>) -> Vec<LargeShardlet> {
        let view = self.router.view();
        let mut found: Vec<LargeShardlet> = Vec::new();
        for one in shards {
            for ((map, placement, key), size) in one.sizes {
                let Some(known) = view.maps.get(&map) else { continue };
                let bucket = known.map.definition().bucket_of(placement.as_slice());
                found.push(LargeShardlet {
                    map,
                    key: key.as_ref().map(KeyText::of),
                    bucket: bucket.map(|(_, bucket)| bucket.into()),
                    shard: one.shard.clone(),
                    rows: size.rows,
                    bytes: size.bytes,
                    sampled: size.sampled,
                });
            }
        }
        found.sort_by_key(|one| std::cmp::Reverse((one.bytes, one.rows)));
        let mut of_maps: HashMap<MapName, u32> = HashMap::new();
        found.retain(|one| {
            let taken = of_maps.entry(one.map.clone()).or_default();
            *taken += 1;
            *taken <= HOT_MAX
        });
        found
    }

    async fn count_shard(&self, id: ShardId) -> OnShard {
        let mut one = OnShard { shard: id.clone(), sizes: HashMap::new(), left_out: Vec::new() };
        if let Err(error) = self.count_maps(&id, &mut one).await {
            one.left_out.push(LeftOut { shard: id, dataset: None, why: error.to_string() });
        }
        one
    }

    async fn count_maps(&self, id: &ShardId, one: &mut OnShard) -> Result<(), ShardError> {
        let view = self.router.view();
        let mut maps: Vec<&MapName> = view.datasets.values().map(|record| &record.map).collect();
        maps.sort_unstable();
        maps.dedup();
        let records: Records<'_> =
            view.datasets.values().map(|record| (record.name_on_shards(), record.as_ref())).collect();
        let shard = self.router.administer(id).await?;
        for known in maps.into_iter().filter_map(|map| view.maps.get(map)) {
            if known.map.count_by_shard().contains_key(id) {
                count_map(&shard, &known.map, &records, one).await?;
            }
        }
        Ok(())
    }
}

/// What the catalog knows of datasets, by what shards call them.
type Records<'v> = HashMap<String, &'v DatasetRecord>;

async fn count_map(
    shard: &Shard,
    map: &Map,
    records: &Records<'_>,
    one: &mut OnShard,
) -> Result<(), ShardError> {
    let (id, name) = (shard.id(), map.definition().name());
    for dataset in shard.datasets(name).await? {
        let tells = Tells::of(&dataset, records.get(whole_name(&dataset.name)).copied(), map.definition());
        let counted = count_dataset(shard.carrier().await?, &dataset, map, &tells).await;
        let why = match counted {
            Ok(Some(counted)) => {
                for (placement, key, size) in counted {
                    let here = map.locate_placement(placement.as_slice()).is_some_and(|at| at.shard() == id);
                    if here {
                        let sum = one.sizes.entry((name.clone(), placement, key)).or_default();
                        sum.rows += size.rows;
                        sum.bytes += size.bytes;
                        sum.sampled |= size.sampled;
                    }
                }
                continue;
            }
            Ok(None) => format!("more than {COUNTED_MAX} rows, and no sample can be taken of them"),
            Err(error) => error.to_string(),
        };
        let dataset = Some(whole_name(&dataset.name).to_owned());
        one.left_out.push(LeftOut { shard: id.clone(), dataset, why });
    }
    Ok(())
}

type Sizes = Vec<(KeyBytes, Option<Key>, Size)>;

/// The largest shardlets of one table on one shard; none if there are too many rows to count and to sample.
async fn count_dataset(
    db: &Database,
    dataset: &Dataset,
    map: &Map,
    tells: &Tells,
) -> Result<Option<Sizes>, ShardError> {
    let (table, dialect) = (&dataset.table, db.dialect());
    let rows_of = dataset.own_rows(dialect);
    let condition = rows_of.map_or_else(String::new, |rows_of| format!(" WHERE {rows_of}"));
    let limit = COUNTED_MAX + 1;
    let few = format!("SELECT count(*) FROM (SELECT 1 FROM {table}{condition} LIMIT {limit}) AS counted");
    let rows = match number(db, few).await {
        // A table of a store that is made when its first row comes.
        Err(Error::Invalid { .. }) => return Ok(Some(Vec::new())),
        rows => rows?.unwrap_or(0),
    };
    if rows == 0 {
        return Ok(Some(Vec::new()));
    }
    let mean = mean_bytes(db, table, &condition).await?;
    let (from, scale) = match u64::try_from(rows).unwrap_or(u64::MAX) > COUNTED_MAX {
        false => (format!("{table}{condition}"), None),
        true => match sample(db, table, &condition).await? {
            Some((from, scale)) => (from, Some(scale)),
            None => return Ok(None),
        },
    };
    let definition = map.definition();
    let mut columns = match &dataset.placement {
        Placement::Column(column) => vec![column.as_str()],
        Placement::Key(columns) => columns.iter().map(String::as_str).collect(),
    };
    columns.extend(tells.column().filter(|column| !columns.contains(column)));
    let columns = columns.join(", ");
    // The placement is computed once for a key, not for each of its rows.
    let placement = dataset.placement.expression(dialect, definition, "")?;
    let text = format!("CAST({} AS TEXT)", tells.column().unwrap_or("NULL"));
    let statement = format!(
        "SELECT {placement}, {text}, polyshard_rows FROM (SELECT {columns}, count(*) AS polyshard_rows FROM {from} \
         GROUP BY {columns} ORDER BY polyshard_rows DESC LIMIT {KEPT_MAX}) AS large"
    );
    let mut scan = db.scan(Statement::new(statement), KEPT_MAX).await?;
    let (mut found, mut hits) = (Vec::new(), 0);
    while let Some(page) = scan.next().await? {
        for row in page.iter() {
            let (Some(placement), count) = (row.opt_blob(0)?, row.int(2)?) else { continue };
            hits += count;
            let count = u64::try_from(count).unwrap_or(0);
            let rows = scale.map_or(count, |scale| (count as f64 * scale) as u64);
            let key = tells.key(definition, placement, row.opt_text(1)?);
            let size = Size { rows, bytes: rows.saturating_mul(mean), sampled: scale.is_some() };
            found.push((KeyBytes::from(placement), key, size));
        }
    }
    Ok((scale.is_none() || hits >= HITS_MIN).then_some(found))
}

/// A source of some of a table's rows, and how many rows of the table each of them stands for.
async fn sample(db: &Database, table: &str, condition: &str) -> Result<Option<(String, f64)>, Error> {
    match db.dialect() {
        Dialect::Postgres => {
            let estimate = "SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass($1)";
            let known = db.read(Statement::new(estimate).bind(Value::Text(table.to_owned()))).await?;
            let known = known.first().map(|row| row.opt_int(0)).transpose()?.flatten().unwrap_or(0);
            let rows = known.max(i64::try_from(COUNTED_MAX).unwrap_or(i64::MAX)) as f64;
            let percent = (100.0 * SAMPLE_ROWS as f64 / rows).clamp(0.001, 100.0);
            Ok(Some((format!("{table} TABLESAMPLE SYSTEM ({percent:.6}){condition}"), 100.0 / percent)))
        }
        Dialect::Sqlite => {
            // One by one, since SQLite finds either end at once, and for both together reads all that is between.
            let ends =
                format!("SELECT (SELECT min(_rowid_) FROM {table}), (SELECT max(_rowid_) FROM {table})");
            let ends = match db.read(Statement::new(ends)).await {
                // A table without row numbers.
                Err(Error::Invalid { .. }) => return Ok(None),
                ends => ends?,
            };
            let (Some(low), Some(high)) = (ends.one()?.opt_int(0)?, ends.one()?.opt_int(1)?) else {
                return Ok(None);
            };
            let Some(span) = high.checked_sub(low).and_then(|span| span.checked_add(1)) else {
                return Ok(None);
            };
            let place = format!("{low} + abs(random() % {span})");
            let from = format!(
                "(WITH RECURSIVE probe(n, place) AS (SELECT 1, {place} UNION ALL SELECT n + 1, {place} FROM probe \
                 WHERE n < {SAMPLE_ROWS}) SELECT kept.* FROM probe CROSS JOIN {table} AS kept \
                 ON kept._rowid_ = probe.place) AS sampled{condition}"
            );
            Ok(Some((from, span as f64 / SAMPLE_ROWS as f64)))
        }
    }
}

/// The mean length of some rows.
async fn mean_bytes(db: &Database, table: &str, condition: &str) -> Result<u64, Error> {
    let some = format!("SELECT * FROM {table}{condition} LIMIT {MEASURED_ROWS}");
    if db.dialect() == Dialect::Postgres {
        let mean = format!("SELECT avg(pg_column_size(measured.*))::bigint FROM ({some}) AS measured");
        return Ok(number(db, mean).await?.and_then(|mean| u64::try_from(mean).ok()).unwrap_or(0));
    }
    let rows = db.read(Statement::new(some)).await?;
    Ok(rows.iter().map(length).sum::<u64>().checked_div(rows.len() as u64).unwrap_or(0))
}

fn length(row: &Row) -> u64 {
    let value = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Int(_) | Value::Real(_) => 8,
        Value::Text(text) => text.len() as u64,
        Value::Blob(bytes) => bytes.len() as u64,
    };
    row.values().iter().map(value).sum()
}

async fn number(db: &Database, statement: String) -> Result<Option<i64>, Error> {
    db.read(Statement::new(statement)).await?.one()?.opt_int(0)
}
