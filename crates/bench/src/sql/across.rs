//! Questions to all shards, beside the slowest shard's own time for its part while all of them work at once.

use std::time::Instant;

use tokio_postgres::{Client, NoTls};

use super::world::{Place, SHARDS, World};
use crate::measure::{Spread, ms_since};
use crate::report::Table;
use crate::{Effort, Failure};

const QUERIES: &[(&str, &str)] = &[
    (
        "group, order, limit",
        "SELECT kind, count(*), sum(amount) FROM events GROUP BY kind ORDER BY sum(amount) DESC, kind LIMIT 10",
    ),
    ("top 10", "SELECT tenant, id, amount FROM events ORDER BY amount DESC, id LIMIT 10"),
    ("count", "SELECT count(*) FROM events"),
    (
        "join by key, group",
        "SELECT e.kind, sum(a.balance) FROM events e JOIN accounts a ON a.tenant = e.tenant \
         GROUP BY e.kind ORDER BY 1 LIMIT 10",
    ),
    (
        "one row of each of four keys",
        "SELECT count(*), sum(balance) FROM accounts WHERE tenant IN (1, 2, 3, 4)",
    ),
];

/// Milliseconds of each question. Both sides have open connections; rounds in turn, the ratio is the median of the
/// pairs.
pub fn run(world: &World, effort: Effort) -> Result<Table, Failure> {
    let rounds = effort.pick(25, 5);
    let title =
        format!("Questions to {SHARDS} shards with {} rows in all, ms, median of {rounds}", world.events);
    let columns = &["question", "slowest shard, all at once", "Polyshard", "ratio", "goal"];
    let mut table = Table::new("sql-across", title, columns);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let door = connect(&world.sharded()).await?;
        let mut shards = Vec::new();
        for shard in 1..=SHARDS {
            shards.push(connect(&world.shard(shard)).await?);
        }
        for (at, (name, sql)) in QUERIES.iter().enumerate() {
            let (mut own, mut through, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            // The first one of each is not counted: caches fill.
            for round in 0..=rounds {
                let slowest = slowest(&shards, sql).await?;
                let start = Instant::now();
                door.simple_query(sql).await?;
                let took = ms_since(start);
                if round > 0 {
                    own.push(slowest);
                    through.push(took);
                    ratios.push(took / slowest);
                }
            }
            let goal = if at == 0 { "1.3" } else { "-" };
            let median = |figures: Vec<f64>| Spread::of(figures).median;
            table.row([
                (*name).into(),
                median(own).into(),
                median(through).into(),
                median(ratios).into(),
                goal.into(),
            ]);
        }
        Ok::<(), Failure>(())
    })?;
    Ok(table)
}

pub(super) async fn connect(place: &Place) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::Config::new()
        .host(&place.host)
        .port(place.port)
        .user(&place.user)
        .password(&place.password)
        .dbname(&place.database)
        .connect(NoTls)
        .await?;
    // It ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

/// All shards asked at once, past the door.
async fn slowest(shards: &[Client], sql: &str) -> Result<f64, Failure> {
    let each = shards.iter().map(|shard| async move {
        let start = Instant::now();
        shard.simple_query(sql).await?;
        Ok::<f64, Failure>(ms_since(start))
    });
    let times = futures_util::future::try_join_all(each).await?;
    Ok(times.into_iter().fold(0.0, f64::max))
}
