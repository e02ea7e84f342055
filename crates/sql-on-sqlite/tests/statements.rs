//! Scripts of statements that answer the same on SQLite as on PostgreSQL, one after the other; those marked with `~`
//! are refused by SQLite shards, and no other. Rows are compared in order where a statement ends with its order.

mod common;

use common::Pair;

async fn script(text: &str) {
    let mut pair = Pair::open().await;
    let mut wrong = Vec::new();
    let mut count = 0;
    // A statement may go over several lines; an empty line ends it.
    for block in text.split("\n\n") {
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with("--")).collect();
        let statement = lines.join("\n");
        if statement.trim().is_empty() {
            continue;
        }
        count += 1;
        let (refused, statement) = match statement.strip_prefix("~ ") {
            Some(rest) => (true, rest.to_owned()),
            None => (false, statement),
        };
        let ours = pair.lite.run(&statement).await;
        if refused {
            if ours.state() != Some("0A000") {
                wrong.push(format!("{statement}\n   should be refused: {ours:?}"));
            }
            continue;
        }
        let theirs = pair.postgres.run(&statement).await;
        let ordered = statement.to_lowercase().contains("order by");
        let same = if ordered { ours.agrees(&theirs) } else { ours.agrees_unordered(&theirs) };
        if !same {
            let sql = pair.lite.prepare(&statement, &[]).map(|prepared| prepared.sql.to_string());
            wrong.push(format!("{statement}\n   PostgreSQL {theirs:?}\n   SQLite     {ours:?}\n   {sql:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries() {
    // G1, C1
    script(include_str!("queries.txt")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_and_schema_changes() {
    // G1, C1, C7
    script(include_str!("writes.txt")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_newcomers_bring() {
    // G1, C1, C7: arrays, generated columns, schemas, DROP with what depends on it.
    script(include_str!("newcomers.txt")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_steps_in_psql() {
    // G1, C1: tables are filled with rows of queries, by series, and their sizes asked for.
    script(include_str!("first_steps.txt")).await;
}
