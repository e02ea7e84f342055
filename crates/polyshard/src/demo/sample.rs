//! The data of a company with many tenants: rows, entities and queues that lie on one shard for each tenant.

use std::fmt::Write as _;
use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt as _;
use polyshard_admin::Client;
use polyshard_admin::types::BindRequest;

use super::server::Running;
use super::{azure, connect, wrong};
use crate::exit::Failure;

/// The map of the tenants.
pub const MAP: &str = "tenants";
/// The table of entities.
pub const TOTALS: &str = "DemoTotals";
/// Rows sent at once.
const ROWS_AT_ONCE: u64 = 10_000;

const STATEMENTS: [&str; 6] = [
    "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
    "CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL)",
    "SELECT polyshard.reference_table('countries')",
    "CREATE TABLE orders (tenant bigint NOT NULL, id bigint NOT NULL, country text NOT NULL, amount bigint NOT NULL, \
     placed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tenant, id))",
    "SELECT polyshard.shard_table('orders', 'tenants', 'tenant')",
    "INSERT INTO countries VALUES ('ch', 'Switzerland'), ('is', 'Iceland'), ('nz', 'New Zealand'), ('uy', 'Uruguay')",
];

/// Countries of orders.
pub const COUNTRIES: [&str; 4] = ["ch", "is", "nz", "uy"];

/// Makes tables, a queue for each tenant, and the first rows.
pub async fn make(
    sql: &str,
    admin: &Client,
    running: &Running,
    tenants: u64,
    rows: u64,
) -> Result<(), Failure> {
    let client = connect(sql).await?;
    for statement in STATEMENTS {
        client.simple_query(statement).await.map_err(|error| wrong(statement, &error))?;
    }
    let map = MAP.parse().map_err(|error| Failure::new(format!("{error}"), "report this"))?;
    let bind = |dataset: String, rule: Option<String>| BindRequest { dataset, map, key: None, rule };
    admin.bind_dataset(&bind.clone()(format!("table:{TOTALS}"), None))?;
    azure::make_table(running.door("table")?, TOTALS)?;
    for tenant in 0..tenants {
        let queue = outbox(tenant);
        admin.bind_dataset(&bind.clone()(format!("queue:{queue}"), Some("before:-".to_owned())))?;
        azure::make_queue(running.door("queue")?, &queue)?;
    }
    let mut next = 0;
    while next < rows {
        let until = (next + ROWS_AT_ONCE).min(rows);
        let mut lines = String::new();
        for id in next..until {
            let country = COUNTRIES[id as usize % COUNTRIES.len()];
            // Writing into a text does not fail.
            let _ = writeln!(lines, "{}\t{id}\t{country}\t{}", id % tenants, id * 7919 % 10_007);
        }
        let copy = "COPY orders (tenant, id, country, amount) FROM STDIN";
        let sink = client.copy_in::<_, Bytes>(copy).await.map_err(|error| wrong(copy, &error))?;
        let mut sink = pin!(sink);
        sink.send(Bytes::from(lines)).await.map_err(|error| wrong(copy, &error))?;
        sink.finish().await.map_err(|error| wrong(copy, &error))?;
        next = until;
    }
    Ok(())
}

/// The queue of a tenant.
pub fn outbox(tenant: u64) -> String {
    format!("{tenant}-outbox")
}

/// How many orders there are.
pub async fn count(sql: &str) -> Result<u64, Failure> {
    let client = connect(sql).await?;
    let asked = "SELECT count(*) FROM orders";
    let row = client.query_one(asked, &[]).await.map_err(|error| wrong(asked, &error))?;
    Ok(u64::try_from(row.get::<_, i64>(0)).unwrap_or_default())
}
