//! Every expression of the list gives the same type, value or error class on SQLite as on PostgreSQL; those marked
//! with `~` are refused by SQLite shards, and no other.

mod common;

use common::Pair;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_mean_the_same_as_on_postgresql() {
    // G1, C1
    let mut pair = Pair::open().await;
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("expressions.txt").lines() {
        if line.trim().is_empty() || line.starts_with("--") {
            continue;
        }
        let (refused, expression) = match line.strip_prefix("~ ") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        count += 1;
        let text = format!("SELECT {expression}");
        let theirs = pair.postgres.run(&text).await;
        let ours = pair.lite.run(&text).await;
        let is_refused = ours.state() == Some("0A000") && theirs.state() != Some("0A000");
        let fine = if refused { is_refused } else { ours.agrees(&theirs) };
        if !fine {
            wrong.push(format!("{line}\n   PostgreSQL {theirs:?}\n   SQLite     {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
