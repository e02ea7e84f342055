//! Cut-overs that have broken others: what is under way when a range leaves is neither lost nor doubled (D1-D4, C4).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, TryStreamExt};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::cluster::Cluster;
use crate::ledger::Fate;
use crate::support::run;
use crate::writers::connect;

/// How long all moves of a test may take together; only a hang reaches it, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs callers on the door of the first process.
fn with_client<T>(cluster: &Cluster, work: impl AsyncFnOnce(Client) -> T) -> T {
    let address = cluster.process(0).door("sql").to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = connect(&address).await.expect("the door is open");
        let answer = tokio::time::timeout(PATIENCE, work(client)).await.expect("it does not hang");
        connection.abort();
        answer
    })
}

/// The move of the tenants 5 to 14 from the first shard to the second.
fn line(cluster: &Cluster) -> String {
    format!("move tenants --range 5..15 --to {}", cluster.target())
}

/// The position up to which changes are carried must be read after writes have stopped.
fn what_is_written_between_the_last_look_and_the_fence_arrives(cluster: &Cluster) {
    cluster.hold("raise.before");
    let operation = cluster.begin(&line(cluster));
    cluster.await_held("raise.before");
    let id = cluster.ledger.number();
    cluster.ledger.note(("entry", 7, id), Fate::There);
    let insert = format!("INSERT INTO entry (tenant, id, body) VALUES (7, {id}, 'late')");
    cluster.sql(&[
        &insert,
        "UPDATE counter SET n = n + 1 WHERE tenant = 7",
        "DELETE FROM counter WHERE tenant = 8",
    ]);
    cluster.let_go();
    assert_eq!(cluster.ended(&operation)["state"], "done");
    assert_eq!(cluster.owner(7), cluster.target());
    let body = cluster.sql(&[&format!("SELECT body FROM entry WHERE tenant = 7 AND id = {id}")]);
    assert_eq!(body, [["late"]]);
    assert_eq!(cluster.sql(&["SELECT n FROM counter WHERE tenant = 7"]), [["1"]]);
    assert!(
        cluster.sql(&["SELECT n FROM counter WHERE tenant = 8"]).is_empty(),
        "a deleted row does not come back"
    );
    cluster.sql(&["INSERT INTO counter VALUES (8, 0)"]);
    cluster.assert_whole();
}

#[test]
fn what_is_written_between_the_last_look_and_the_fence_arrives_on_databases() {
    what_is_written_between_the_last_look_and_the_fence_arrives(&Cluster::together(1));
}

#[test]
fn what_is_written_between_the_last_look_and_the_fence_arrives_on_files() {
    what_is_written_between_the_last_look_and_the_fence_arrives(&Cluster::embedded());
}

/// A transaction that has written in the range delays the switch, and keeps what it wrote; `others` go on meanwhile.
fn an_open_transaction_delays_the_switch_and_keeps_its_writes(cluster: &Cluster, others: &[i64]) {
    let operation = with_client(cluster, async |client| {
        client.batch_execute("BEGIN; UPDATE counter SET n = 41 WHERE tenant = 7").await.unwrap();
        let operation = cluster.begin(&line(cluster));
        // While it waits, it holds nobody for longer than a moment.
        let (other, connection) = connect(cluster.process(0).door("sql")).await.unwrap();
        for tenant in others.iter().cycle().take(5 * others.len()) {
            let sql = format!("UPDATE counter SET n = n + 1 WHERE tenant = {tenant}");
            other.batch_execute(&sql).await.unwrap();
        }
        drop(other);
        connection.abort();
        assert_eq!(cluster.operation(&operation).unwrap()["state"], "running");
        client.batch_execute("UPDATE counter SET n = n + 1 WHERE tenant = 7; COMMIT").await.unwrap();
        operation
    });
    assert_eq!(cluster.ended(&operation)["state"], "done");
    assert_eq!(cluster.sql(&["SELECT n FROM counter WHERE tenant = 7"]), [["42"]]);
    for tenant in others {
        let sql = format!("SELECT n FROM counter WHERE tenant = {tenant}");
        assert_eq!(cluster.sql(&[&sql]), [["5"]], "tenant {tenant}");
    }
    cluster.assert_whole();
}

#[test]
fn an_open_transaction_delays_the_switch_and_keeps_its_writes_on_databases() {
    an_open_transaction_delays_the_switch_and_keeps_its_writes(&Cluster::together(1), &[9, 30]);
}

#[test]
fn an_open_transaction_delays_the_switch_and_keeps_its_writes_on_files() {
    // A file has one writer at a time: those of the other one go on.
    an_open_transaction_delays_the_switch_and_keeps_its_writes(&Cluster::embedded(), &[30]);
}

/// A cursor that is half read when the fence is raised gives the rest of its rows, or says that it may be tried again;
/// one that outlives its transaction has its rows whatever has moved.
fn cursors_across_the_switch_give_each_row_once(cluster: &Cluster) {
    let ids: Vec<i64> = (0..20).map(|_| cluster.ledger.number()).collect();
    let insert = |id: &i64| {
        cluster.ledger.note(("entry", 7, *id), Fate::There);
        format!("INSERT INTO entry (tenant, id, body) VALUES (7, {id}, 'read')")
    };
    let inserts: Vec<String> = ids.iter().map(insert).collect();
    cluster.sql(&inserts.iter().map(String::as_str).collect::<Vec<_>>());
    let mine = "SELECT id FROM entry WHERE tenant = 7 AND body = 'read' ORDER BY id";
    let all = "SELECT id FROM entry ORDER BY id";
    let everything: Vec<Vec<String>> = cluster.sql(&[all]);
    let wanted: Vec<Vec<String>> = ids.iter().map(|id| vec![id.to_string()]).collect();
    let operation = with_client(cluster, async |client| {
        cluster.hold("raise.before");
        let operation = cluster.begin(&line(cluster));
        cluster.await_held("raise.before");
        client
            .batch_execute(&format!("BEGIN; DECLARE kept CURSOR WITH HOLD FOR {all}; COMMIT"))
            .await
            .unwrap();
        client.batch_execute(&format!("BEGIN; DECLARE c CURSOR FOR {mine}")).await.unwrap();
        let mut found = answer(&client, "FETCH 5 FROM c").await;
        cluster.let_go();
        // Some before the fence is there, some under it, and all of them if it comes later.
        let mut told = None;
        for _ in 0..15 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            match client.simple_query("FETCH 1 FROM c").await {
                Ok(messages) => found.extend(rows(&messages)),
                Err(error) => {
                    told = error.code().map(|code| code.code().to_owned());
                    break;
                }
            }
        }
        match told {
            None => assert_eq!(found, wanted),
            Some(code) => assert_eq!(code, "40001", "only what may be tried again"),
        }
        client.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(answer(&client, "FETCH 3 FROM kept").await, everything[..3]);
        assert_eq!(cluster.ended(&operation)["state"], "done");
        assert_eq!(answer(&client, "FETCH ALL FROM kept").await, everything[3..]);
        assert_eq!(answer(&client, mine).await, wanted);
        operation
    });
    assert_eq!(cluster.ended(&operation)["state"], "done");
    cluster.assert_whole();
}

#[test]
fn cursors_across_the_switch_give_each_row_once_on_databases() {
    cursors_across_the_switch_give_each_row_once(&Cluster::together(1));
}

#[test]
fn cursors_across_the_switch_give_each_row_once_on_files() {
    cursors_across_the_switch_give_each_row_once(&Cluster::embedded());
}

/// A statement prepared before the switch finds its rows after it.
fn prepared_statements_go_on_after_the_switch(cluster: &Cluster) {
    with_client(cluster, async |client| {
        let bump =
            client.prepare("UPDATE counter SET n = n + 1 WHERE tenant = $1 RETURNING n").await.unwrap();
        let value: i64 = client.query_one(&bump, &[&7_i64]).await.unwrap().get(0);
        assert_eq!(value, 1);
        // Begun, and bound to no shard yet.
        client.batch_execute("BEGIN").await.unwrap();
        run(cluster.process(0), &format!("{} --wait", line(cluster))).ok();
        let value: i64 = client.query_one(&bump, &[&7_i64]).await.unwrap().get(0);
        assert_eq!(value, 2);
        client.batch_execute("COMMIT").await.unwrap();
        let value: i64 = client.query_one(&bump, &[&7_i64]).await.unwrap().get(0);
        assert_eq!(value, 3);
    });
    cluster.assert_whole();
}

#[test]
fn prepared_statements_and_begun_transactions_go_on_after_the_switch_on_databases() {
    prepared_statements_go_on_after_the_switch(&Cluster::together(1));
}

#[test]
fn prepared_statements_and_begun_transactions_go_on_after_the_switch_on_files() {
    prepared_statements_go_on_after_the_switch(&Cluster::embedded());
}

/// COPY into the range, half sent when the fence is raised: all its rows are there, or none and it may be tried again.
fn a_copy_across_the_switch_is_whole(cluster: &Cluster) {
    let ids: Vec<i64> = (0..200).map(|_| cluster.ledger.number()).collect();
    let row = |id: &i64| Bytes::from(format!("{}\t{id}\tcopied\n", id % 40));
    let (operation, copied) = with_client(cluster, async |client| {
        // Triggers are made when nobody copies; the fence comes when half of it is there.
        cluster.hold("raise.before");
        let operation = cluster.begin(&line(cluster));
        cluster.await_held("raise.before");
        let sink = client.copy_in::<_, Bytes>("COPY entry (tenant, id, body) FROM STDIN").await.unwrap();
        let mut sink = std::pin::pin!(sink);
        let mut sent = true;
        for id in &ids[..100] {
            sent &= sink.send(row(id)).await.is_ok();
        }
        cluster.let_go();
        for id in &ids[100..] {
            sent &= sink.send(row(id)).await.is_ok();
        }
        let ended = sink.finish().await;
        if let Err(error) = &ended {
            let code = error.code().map(tokio_postgres::error::SqlState::code);
            assert!(matches!(code, Some("40001")), "only what may be tried again: {error:?}");
        }
        (operation, sent && ended.is_ok())
    });
    assert_eq!(cluster.ended(&operation)["state"], "done");
    let fate = if copied { Fate::There } else { Fate::Gone };
    ids.iter().for_each(|id| cluster.ledger.note(("entry", id % 40, *id), fate));
    cluster.assert_whole();
}

#[test]
fn a_copy_across_the_switch_is_whole_on_databases() {
    a_copy_across_the_switch_is_whole(&Cluster::together(1));
}

#[test]
fn a_copy_across_the_switch_is_whole_on_files() {
    a_copy_across_the_switch_is_whole(&Cluster::embedded());
}

/// A statement about two tenants of one shard waits for the switch of one of them, and finds them on two: it is looked
/// at again, and written on both. At the most it may be tried again.
fn keys_that_are_moved_apart_while_a_statement_waits_are_written(cluster: &Cluster) {
    let waits = || {
        let page = cluster.process(0).get("/metrics").body;
        let line =
            page.lines().find(|line| line.starts_with("polyshard_router_waits_total")).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("a number")
    };
    cluster.hold("depart.before");
    let operation = cluster.begin(&line(cluster));
    cluster.await_held("depart.before");
    let before = waits();
    let bump = "UPDATE counter SET n = n + 1 WHERE tenant IN (3, 7)";
    let code = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            with_client(cluster, async |client| {
                client.batch_execute("SET polyshard.multi_shard = 'eventual'").await.unwrap();
                let done = client.batch_execute(bump).await;
                done.err().map(|error| error.code().map(|code| code.code().to_owned()))
            })
        });
        // About to leave: whoever names one of its keys waits.
        let deadline = std::time::Instant::now() + PATIENCE;
        while waits() == before && !writing.is_finished() {
            assert!(std::time::Instant::now() < deadline, "nobody waits");
            std::thread::sleep(Duration::from_millis(2));
        }
        cluster.let_go();
        writing.join().expect("no panic")
    });
    assert_eq!(cluster.ended(&operation)["state"], "done");
    if let Some(code) = code {
        assert_eq!(code.as_deref(), Some("40001"), "only what may be tried again");
        cluster.sql(&["SET polyshard.multi_shard = 'eventual'", bump]);
    }
    assert_ne!(cluster.owner(3), cluster.owner(7));
    for tenant in [3, 7] {
        assert_eq!(cluster.sql(&[&format!("SELECT n FROM counter WHERE tenant = {tenant}")]), [["1"]]);
    }
    cluster.assert_whole();
}

#[test]
fn keys_that_are_moved_apart_while_a_statement_waits_are_written_on_databases() {
    keys_that_are_moved_apart_while_a_statement_waits_are_written(&Cluster::together(1));
}

#[test]
fn keys_that_are_moved_apart_while_a_statement_waits_are_written_on_files() {
    keys_that_are_moved_apart_while_a_statement_waits_are_written(&Cluster::embedded());
}

/// Queries and COPY over all shards, again and again while a range goes to and fro: each sees every row once.
fn queries_over_all_shards_see_every_row_once(cluster: &Cluster) {
    let sql = "SELECT count(*), sum(id), count(DISTINCT id) FROM entry";
    let wanted = cluster.sql(&[sql]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let queries = scope.spawn(|| {
            with_client(cluster, async |client| {
                let mut asked = 0;
                while !over.load(Ordering::SeqCst) {
                    assert_eq!(answer(&client, sql).await, wanted, "query {asked}");
                    let joined = "SELECT count(*) FROM entry e JOIN counter c ON c.tenant = e.tenant";
                    assert_eq!(answer(&client, joined).await[0][0], wanted[0][0], "query {asked}");
                    asked += 1;
                }
                asked
            })
        });
        let copies = scope.spawn(|| {
            with_client(cluster, async |client| {
                let mut asked = 0;
                while !over.load(Ordering::SeqCst) {
                    let rows = client.copy_out("COPY entry (id) TO STDOUT").await.unwrap();
                    let bytes: Vec<Bytes> = rows.try_collect().await.unwrap();
                    let text = String::from_utf8(bytes.concat()).unwrap();
                    let sum: i64 = text.lines().map(|id| id.parse::<i64>().unwrap()).sum();
                    let found = [text.lines().count().to_string(), sum.to_string()];
                    assert_eq!(found[..], wanted[0][..2], "copy {asked}");
                    asked += 1;
                }
                asked
            })
        });
        for (to, keep) in [(cluster.target(), ""), (cluster.source(), " --keep 1s"), (cluster.target(), "")] {
            run(cluster.process(0), &format!("move tenants --range 5..15 --to {to}{keep} --wait")).ok();
        }
        let operation = cluster.begin(&format!("move tenants --range 5..15 --to {}", cluster.source()));
        // It may be done before: then it is refused.
        drop(run(cluster.process(0), &format!("ops cancel {operation}")));
        cluster.ended(&operation);
        over.store(true, Ordering::SeqCst);
        assert!(queries.join().expect("every query is right") > 0);
        assert!(copies.join().expect("every copy is right") > 0);
    });
    cluster.assert_whole();
}

#[test]
fn queries_over_all_shards_see_every_row_once_while_a_range_moves_on_databases() {
    queries_over_all_shards_see_every_row_once(&Cluster::together(1));
}

#[test]
fn queries_over_all_shards_see_every_row_once_while_a_range_moves_on_files() {
    queries_over_all_shards_see_every_row_once(&Cluster::embedded());
}

/// A schema change waits for the move, or is refused, or stops it; the shards are alike afterwards.
fn a_schema_change_during_a_move_leaves_all_shards_alike(cluster: &Cluster) {
    cluster.hold("verify.before");
    let operation = cluster.begin(&line(cluster));
    cluster.await_held("verify.before");
    let changed = std::thread::scope(|scope| {
        let change = scope.spawn(|| {
            with_client(cluster, async |client| {
                client.batch_execute("ALTER TABLE entry ADD COLUMN extra bigint DEFAULT 7").await
            })
        });
        cluster.let_go();
        change.join().expect("no panic")
    });
    let ended = cluster.ended(&operation);
    if let Err(error) = &changed {
        let code = error.code().map(|code| code.code().to_owned());
        assert!(matches!(code.as_deref(), Some("55006" | "40001" | "55P03")), "{error:?}");
        cluster.sql(&["ALTER TABLE entry ADD COLUMN extra bigint DEFAULT 7"]);
    }
    assert!(ended["state"] == "done" || changed.is_ok(), "neither the move nor the change: {ended}");
    run(cluster.process(0), "schema check").ok();
    let extra = cluster.sql(&["SELECT count(*) FROM entry WHERE extra = 7"]);
    assert_eq!(extra, cluster.sql(&["SELECT count(*) FROM entry"]));
    cluster.assert_whole();
}

#[test]
fn a_schema_change_during_a_move_leaves_all_shards_alike_on_databases() {
    a_schema_change_during_a_move_leaves_all_shards_alike(&Cluster::together(1));
}

#[test]
fn a_schema_change_during_a_move_leaves_all_shards_alike_on_files() {
    a_schema_change_during_a_move_leaves_all_shards_alike(&Cluster::embedded());
}

/// The first rows of an answer, as text.
async fn answer(client: &Client, sql: &str) -> Vec<Vec<String>> {
    rows(&client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")))
}

fn rows(messages: &[SimpleQueryMessage]) -> Vec<Vec<String>> {
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| (0..row.len()).map(|at| row.get(at).unwrap_or("").to_owned()).collect()).collect()
}
