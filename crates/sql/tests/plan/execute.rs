//! The plainest executor of a plan: it has no limits and no speed, so that what is tested is the plan itself.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, pin_mut};
use polyshard_map::ShardId;
use polyshard_sql::{Mode, Plan, Source};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// An answer: names and types of the columns, and the rows as texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub columns: Vec<(String, u32)>,
    pub rows: Vec<Vec<Option<String>>>,
}

/// Runs a statement on one database.
pub async fn whole(client: &Client, sql: &str) -> Result<Answer, Error> {
    let prepared = client.prepare(sql).await?;
    let columns =
        prepared.columns().iter().map(|column| (column.name().to_owned(), column.type_().oid())).collect();
    let mut rows = Vec::new();
    for message in client.simple_query(sql).await? {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
        }
    }
    Ok(Answer { columns, rows })
}

/// Runs a plan over the shards; the first of them has the combine session. As in the door, PostgreSQL itself looks at
/// the statement first: names, types and many errors are the same on every shard.
pub async fn planned(
    shards: &[(ShardId, Client)],
    combine: &Client,
    sql: &str,
    plan: &Plan,
) -> Result<Answer, Error> {
    combine.prepare(sql).await?;
    if plan.mode == Mode::Concat {
        let mut answer: Option<Answer> = None;
        for (shard, client) in shards {
            let part = whole(client, &plan.fragments[0].sql_on(shard)).await?;
            match &mut answer {
                None => answer = Some(part),
                Some(answer) => answer.rows.extend(part.rows),
            }
        }
        return Ok(answer.expect("there is a shard"));
    }
    combine.batch_execute("BEGIN").await?;
    let answer = combined(shards, combine, plan).await;
    combine.batch_execute("ROLLBACK").await?;
    answer
}

async fn combined(shards: &[(ShardId, Client)], combine: &Client, plan: &Plan) -> Result<Answer, Error> {
    for fragment in &plan.fragments {
        let temp = &fragment.temp;
        let sample = fragment.sql_on(&shards[0].0);
        combine.batch_execute(&format!("CREATE TEMP TABLE {temp} AS {sample} WITH NO DATA")).await?;
        if !fragment.primary_key.is_empty() {
            let names: Vec<String> = fragment.primary_key.iter().map(|name| format!("\"{name}\"")).collect();
            combine
                .batch_execute(&format!("ALTER TABLE pg_temp.{temp} ADD PRIMARY KEY ({})", names.join(", ")))
                .await?;
        }
        for (shard, client) in shards {
            if matches!(&fragment.from, Source::Shard(only) if only != shard) {
                continue;
            }
            let rows = client.copy_out(&format!("COPY ({}) TO STDOUT", fragment.sql_on(shard))).await?;
            let into = combine.copy_in::<_, Bytes>(&format!("COPY pg_temp.{temp} FROM STDIN")).await?;
            pin_mut!(rows);
            pin_mut!(into);
            while let Some(chunk) = rows.next().await {
                into.send(chunk?).await?;
            }
            into.finish().await?;
        }
    }
    whole(combine, &plan.combine).await
}
