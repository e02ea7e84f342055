//! One shardlet's page: where it is, why, and what belongs to it in all stores.

use polyshard_admin::types::{ShardletAnswer, ShardletData};
use polyshard_admin::{Operator, Problem};
use polyshard_catalog::DatasetRecord;
use polyshard_engine::{Dialect, Statement, Value};
use polyshard_map::{Key, KeyRange, MapDefinition, MapName, Scheme};
use polyshard_router::{Access, RouterError, Ticket};
use polyshard_shard::{Dataset, Placement, whole_name};

use super::Watcher;
use super::keys::Tells;
use crate::operator::is_shown_dataset;
use crate::problem;

/// Rows are counted up to here: more take long, and nobody asks for the exact number.
const ROWS_COUNTED_MAX: u64 = 100_000;

impl Watcher {
    pub(super) async fn shardlet_page(&self, map: MapName, text: String) -> Result<ShardletAnswer, Problem> {
        let located = self.operations.locate(map.clone(), text.clone()).await?;
        let known = self.operations.known(&map).await?;
        let definition = known.map.definition();
        let key = definition.key_type().parse(&text);
        let key = key.map_err(|error| Problem::invalid("key", error.to_string()))?;
        let placement = known.map.placement(&key).map_err(Problem::from)?;
        let bucket = definition.bucket_of(placement.as_slice()).map(|(_, bucket)| u64::from(bucket));
        let position = self.index(&map).await?.position(&placement).unwrap_or(0);
        let view = self.router.view();
        let records = view.datasets.values().filter(|record| record.map == map && is_shown_dataset(record));
        let mut datasets: Vec<(&DatasetRecord, ShardletData)> = records
            .map(|record| {
                let dataset = format!("{}:{}", record.store, record.name);
                (record.as_ref(), ShardletData { dataset, rows: None, of_key: true })
            })
            .collect();
        let counted = self.count(definition, &key, &mut datasets).await;
        Ok(ShardletAnswer {
            located,
            position,
            bucket,
            datasets: datasets.into_iter().map(|(_, data)| data).collect(),
            uncounted: counted.err().map(|problem| problem.message),
        })
    }

    async fn count(
        &self,
        definition: &MapDefinition,
        key: &Key,
        datasets: &mut [(&DatasetRecord, ShardletData)],
    ) -> Result<(), Problem> {
        let fail = |error: RouterError| problem::of_router(&error);
        let ticket = self.router.enter(definition.name(), std::slice::from_ref(key), Access::Read).await;
        let ticket = ticket.map_err(fail)?;
        let shard = self.router.administer(ticket.shard()).await;
        let shard =
            shard.map_err(|error| fail(RouterError::Shard { shard: ticket.shard().clone(), error }))?;
        let there = shard.datasets(definition.name()).await;
        let there =
            there.map_err(|error| fail(RouterError::Shard { shard: ticket.shard().clone(), error }))?;
        for (record, data) in datasets {
            let name = record.name_on_shards();
            let mut sum = (0, true);
            for dataset in there.iter().filter(|dataset| whole_name(&dataset.name) == name) {
                let tells = Tells::of(dataset, Some(record), definition);
                let (rows, of_key) = count_one(&ticket, dataset, &tells, definition, key).await?;
                sum = (sum.0 + rows, sum.1 && of_key);
            }
            data.rows = Some(sum.0);
            data.of_key = sum.1;
        }
        Ok(())
    }
}

/// How many rows of one dataset are of a key, or of its bucket where a row does not tell its key.
async fn count_one(
    ticket: &Ticket,
    dataset: &Dataset,
    tells: &Tells,
    definition: &MapDefinition,
    key: &Key,
) -> Result<(u64, bool), Problem> {
    let internal = |message: String| Problem::new(polyshard_admin::ErrorCode::Unavailable, message);
    let placement = definition.placement(key).map_err(Problem::from)?;
    let ranges = [KeyRange::point(placement.clone())];
    let dialect = ticket.dialect();
    let condition = dataset.placement.in_ranges(dialect, definition, &ranges, "");
    let mut condition = condition.map_err(|error| internal(error.to_string()))?;
    let hashes = !matches!(definition.scheme(), Scheme::List | Scheme::Range);
    let mut of_key = !hashes;
    let mut values = Vec::new();
    if let (Placement::Key(columns), true) = (&dataset.placement, hashes)
        && let Some(equal) = equal(columns, key, dialect, &mut values)
    {
        condition = format!("{condition} AND {equal}");
        of_key = true;
    }
    condition.push_str(&dataset.and_own_rows(dialect));
    if let (Tells::Name(of), false) = (tells, of_key) {
        if of != key {
            return Ok((0, true));
        }
        of_key = true;
    }
    let limit = ROWS_COUNTED_MAX;
    let table = &dataset.table;
    // Where a column tells the key, rows of other keys in the bucket are told apart by it.
    let column = if of_key { None } else { tells.column() };
    let told =
        column.map_or_else(|| "CAST(NULL AS TEXT)".to_owned(), |column| format!("CAST({column} AS TEXT)"));
    let text = format!(
        "SELECT told, count(*) FROM (SELECT {told} AS told FROM {table} WHERE {condition} LIMIT {limit}) AS rows \
         GROUP BY told"
    );
    let statement = values.into_iter().fold(Statement::new(text), Statement::bind);
    let counted = async {
        let (mut all, mut own) = (0, 0);
        for row in ticket.read(statement).await?.iter() {
            let rows = u64::try_from(row.int(1)?).unwrap_or(0);
            all += rows;
            if tells.key(definition, placement.as_slice(), row.opt_text(0)?).as_ref() == Some(key) {
                own += rows;
            }
        }
        Ok::<_, polyshard_engine::Error>((all, own))
    };
    let (all, own) = counted.await.map_err(|error| internal(error.to_string()))?;
    // If not all rows of the bucket were looked at, nobody knows how many are of this key.
    Ok(if column.is_some() && all < limit { (own, true) } else { (all, of_key) })
}

/// A condition that the key's columns have its values, for the kinds of keys that both engines compare alike.
fn equal(columns: &[String], key: &Key, dialect: Dialect, values: &mut Vec<Value>) -> Option<String> {
    let [column] = columns else { return None };
    values.push(match key {
        Key::BigInt(number) => Value::Int(*number),
        Key::Int(number) => Value::Int((*number).into()),
        Key::Text(text) => Value::Text(text.clone()),
        _ => return None,
    });
    let cast = match (dialect, key) {
        (Dialect::Postgres, Key::BigInt(_) | Key::Int(_)) => "::bigint",
        (Dialect::Postgres, _) => "::text",
        (Dialect::Sqlite, _) => "",
    };
    Some(format!("{column} = $1{cast}"))
}
