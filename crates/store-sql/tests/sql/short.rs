//! Series that run one prepared statement for one key are taken as a whole; nobody may notice. G1, C2, C9.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polyshard_catalog::{KeyPart, KeyRule, QUOTA_STORE};
use polyshard_map::MapName;
use polyshard_store::rights::Right;
use polyshard_store::{QUOTA_FORMAT, QuotaBody, QuotaOf};
use tokio_postgres::error::SqlState;

use crate::rights::{connect, everywhere, on_table, put};
use crate::support::{Cluster, Setup, refusal, rows};
use crate::wire::Wire;

const TENANTS: i64 = 12;
/// Longer than what is held back of an answer.
const LONG: usize = 100_000;

async fn filled() -> Cluster {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    for tenant in 0..TENANTS {
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 1, 'of {tenant}')")).await;
    }
    cluster
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let there = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), there).await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_answered_as_before_whatever_comes_between() {
    let cluster = filled().await;
    let client = cluster.connect().await;
    let get = client.prepare("SELECT body, id FROM notes WHERE tenant = $1 ORDER BY id").await.unwrap();
    let put = client.prepare("INSERT INTO notes VALUES ($1, $2, $3)").await.unwrap();
    let change = client.prepare("UPDATE notes SET body = $2 WHERE tenant = $1 AND id = 1").await.unwrap();
    let drop_one = client.prepare("DELETE FROM notes WHERE tenant = $1 AND id = $2").await.unwrap();
    let tenths = client.prepare("SELECT 10 / (id - $2) FROM notes WHERE tenant = $1").await.unwrap();
    let bodies = async |tenant: i64| -> Vec<String> {
        client.query(&get, &[&tenant]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    for round in 0..4_i64 {
        for tenant in 0..TENANTS {
            let (id, body) = (100 + round, format!("{round}"));
            assert_eq!(client.execute(&put, &[&tenant, &id, &body]).await.unwrap(), 1);
            let error = client.execute(&put, &[&tenant, &id, &body]).await.unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION));
            assert_eq!(client.execute(&change, &[&tenant, &body]).await.unwrap(), 1);
            assert_eq!(bodies(tenant).await, [body.clone(), body.clone()]);
            let error = client.query(&tenths, &[&tenant, &1_i64]).await.unwrap_err();
            assert_eq!(error.code(), Some(&SqlState::DIVISION_BY_ZERO));
            assert_eq!(client.execute(&drop_one, &[&tenant, &id]).await.unwrap(), 1);
            assert_eq!(client.execute(&drop_one, &[&tenant, &id]).await.unwrap(), 0);
        }
        assert!(client.query(&get, &[&None::<i64>]).await.unwrap().is_empty());
        assert!(client.query(&get, &[&777_i64]).await.unwrap().is_empty());
        let error = client.execute(&put, &[&None::<i64>, &1_i64, &"x"]).await.unwrap_err();
        assert!(error.as_db_error().is_some(), "{error:?}");
        match round {
            0 => rows(&client, "SET application_name = 'another'").await,
            // Answers that do not fit, as one row and as many.
            1 => {
                let long = "x".repeat(LONG);
                client.execute(&change, &[&3_i64, &long]).await.unwrap();
                assert_eq!(bodies(3).await, [long]);
                let many =
                    format!("INSERT INTO notes SELECT 4, 1000 + n, 'many' FROM generate_series(1, {LONG}) n");
                rows(&client, &many).await;
                assert_eq!(bodies(4).await.len(), 1 + LONG);
                rows(&client, "DELETE FROM notes WHERE tenant = 4 AND id > 1000").await
            }
            // A transaction, whose statements go the long way.
            2 => {
                rows(&client, "BEGIN").await;
                client.execute(&change, &[&5_i64, &"mine"]).await.unwrap();
                assert_eq!(bodies(5).await, ["mine"]);
                rows(&client, "ROLLBACK").await;
                assert_eq!(bodies(5).await, ["2"]);
                Vec::new()
            }
            _ => Vec::new(),
        };
    }
    // A change of what names mean: what is kept of a statement is shared by sessions that see other tables.
    rows(&client, "CREATE SCHEMA other").await;
    rows(&client, "CREATE TABLE other.notes (tenant bigint, id bigint, body text, PRIMARY KEY (tenant, id))")
        .await;
    rows(&client, "SELECT polyshard.shard_table('other.notes', 'tenants', 'tenant')").await;
    rows(&client, "INSERT INTO other.notes VALUES (1, 1, 'of the other')").await;
    let text = "SELECT body FROM notes WHERE tenant = $1 AND id = 1";
    let elsewhere = cluster.connect().await;
    rows(&elsewhere, "SET search_path TO other").await;
    let (here, there) = (client.prepare(text).await.unwrap(), elsewhere.prepare(text).await.unwrap());
    for _ in 0..4 {
        let (here, there) = (client.query_one(&here, &[&1_i64]), elsewhere.query_one(&there, &[&1_i64]));
        assert_eq!(here.await.unwrap().get::<_, String>(0), "3");
        assert_eq!(there.await.unwrap().get::<_, String>(0), "of the other");
    }
    drop(elsewhere);
    // A change of the tables.
    rows(&client, "ALTER TABLE notes ALTER COLUMN body TYPE varchar(40)").await;
    for tenant in [0, 1, 2, 5, 6, 7] {
        assert_eq!(bodies(tenant).await, ["3"]);
    }
    assert_eq!(cluster.router.status().tickets, 0);
    drop(client);
    cluster.close().await;
}

// G1: what a client is told of columns is the same whichever shard has the row.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_the_same_from_every_shard_and_in_every_round() {
    let cluster = filled().await;
    // So that the same table has another number there.
    cluster.on_shard("s2", "CREATE TABLE of_its_own (a int)");
    let client = cluster.connect().await;
    rows(&client, "CREATE TABLE other (tenant bigint PRIMARY KEY, body text)").await;
    rows(&client, "SELECT polyshard.shard_table('other', 'tenants', 'tenant')").await;
    let on = |shard: &str| cluster.on_shard(shard, "SELECT 'other'::regclass::oid");
    assert_ne!(on("s1"), on("s2"));
    let mut wire = Wire::connect(&cluster).await;
    assert_eq!(wire.prepare("get", "SELECT tenant, body FROM other WHERE tenant = $1").await, "1Z");
    let mut told = Vec::new();
    for _ in 0..4 {
        for tenant in 0..TENANTS {
            wire.run("get", &[&tenant.to_string()], true);
            let answer = wire.sync_whole().await;
            let kinds: Vec<u8> = answer.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, b"2TCZ");
            told.push(answer[1].1.clone());
        }
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    // Several at once, with an error among them; each has its own Sync.
    wire.prepare("tenths", "SELECT 10 / (id - $2) FROM notes WHERE tenant = $1").await;
    for round in 0..4 {
        wire.run("get", &["1"], round % 2 == 0);
        assert_eq!(wire.sync().await, if round % 2 == 0 { "2TCZ" } else { "2CZ" });
        wire.run("tenths", &["2", "5"], true);
        assert_eq!(wire.sync().await, "2TDCZ");
        wire.run("tenths", &["2", "1"], true);
        assert_eq!(wire.sync().await, "2TEZ");
        wire.run("tenths", &["2"], true);
        assert_eq!(wire.sync().await, "EZ");
        wire.run("nothing", &["2"], true);
        assert_eq!(wire.sync().await, "EZ");
        // Two statements in one series, and none.
        wire.run("get", &["1"], false);
        wire.run("get", &["2"], false);
        assert_eq!(wire.sync().await, "2C2CZ");
        assert_eq!(wire.sync().await, "Z");
    }
    drop((client, wire));
    cluster.close().await;
}

// C9: a statement that waits is stopped by word, and when its client is gone; nothing is left behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_is_stopped() {
    let cluster = filled().await;
    let client = Arc::new(cluster.connect().await);
    let sleep = client.prepare("SELECT pg_sleep($2) FROM notes WHERE tenant = $1").await.unwrap();
    for _ in 0..3 {
        client.query(&sleep, &[&1_i64, &0.0_f64]).await.unwrap();
    }
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = 'PgSleep'";
    let (token, asking, asked) = (client.cancel_token(), client.clone(), sleep.clone());
    let sleeping = tokio::spawn(async move { asking.query(&asked, &[&1_i64, &600.0_f64]).await });
    until("it sleeps", || cluster.on_shard("s1", asleep) == "1").await;
    cluster.stop(&token).await;
    let stopped = tokio::time::timeout(Duration::from_secs(60), sleeping).await.expect("it is stopped");
    assert_eq!(stopped.unwrap().unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    client.query(&sleep, &[&1_i64, &0.0_f64]).await.unwrap();

    let mut wire = Wire::connect(&cluster).await;
    wire.prepare("sleep", "SELECT pg_sleep($2) FROM notes WHERE tenant = $1").await;
    for _ in 0..3 {
        wire.run("sleep", &["1", "0"], false);
        assert_eq!(wire.sync().await, "2DCZ");
    }
    wire.run("sleep", &["1", "600"], false);
    wire.send_sync().await;
    until("it sleeps", || cluster.on_shard("s1", asleep) == "1").await;
    drop(wire);
    until("it is stopped", || cluster.on_shard("s1", asleep) == "0").await;
    until("no ticket is out", || cluster.router.status().tickets == 0).await;
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [[TENANTS.to_string()]]);
    drop(client);
    cluster.close().await;
}

// C9: sessions that others end.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_were_ended_are_not_used_again() {
    let cluster = filled().await;
    let client = cluster.connect().await;
    let get = client.prepare("SELECT body FROM notes WHERE tenant = $1").await.unwrap();
    let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 60000)) || ' of ' || count(*) \
         FROM pg_stat_activity \
         WHERE datname IN ('s1', 's2') AND pid <> pg_backend_pid() AND query LIKE '%notes%'";
    let forget = "ALTER TABLE notes ADD COLUMN strange int";
    for round in 0..3 {
        for tenant in 0..TENANTS {
            let row = client.query_one(&get, &[&tenant]).await.unwrap();
            assert_eq!(row.get::<_, String>(0), format!("of {tenant}"));
        }
        let ended = cluster.on_shard("s1", end);
        let (ended, all) = ended.split_once(" of ").unwrap();
        assert!(ended == all && all != "0", "{round}: {ended} of {all}");
        // Their ends have arrived; a timer fires after all that has arrived was looked at.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Past the door: what is prepared stays good.
    cluster.on_shard("s1", forget);
    for tenant in 0..TENANTS {
        client.query_one(&get, &[&tenant]).await.unwrap();
    }
    assert_eq!(refusal(&client, "SELECT nothing FROM notes WHERE tenant = 1").await.0, "42703");
    drop(client);
    cluster.close().await;
}

// E7: a right that is taken away is gone at the next run of what was prepared with it, and so is what a quota allows.
#[tokio::test(flavor = "multi_thread")]
async fn rights_and_quotas_hold_for_what_was_prepared_before() {
    let cluster = filled().await;
    put(&cluster, "app", &[everywhere(Right::Admin)]).await;
    let app = connect(&cluster, "app").await;
    let get = app.prepare("SELECT body FROM notes WHERE tenant = $1").await.unwrap();
    let put_one = app.prepare("UPDATE notes SET body = $2 WHERE tenant = $1").await.unwrap();
    for _ in 0..3 {
        assert_eq!(app.query(&get, &[&3_i64]).await.unwrap().len(), 1);
        assert_eq!(app.execute(&put_one, &[&3_i64, &"mine"]).await.unwrap(), 1);
    }
    put(&cluster, "app", &[on_table(Right::Read, "notes")]).await;
    let error = app.execute(&put_one, &[&3_i64, &"again"]).await.unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE));
    assert_eq!(app.query_one(&get, &[&3_i64]).await.unwrap().get::<_, String>(0), "mine");

    // One request in an hour: whatever way it goes, it counts once, and the next is refused in the same words.
    let client = cluster.connect().await;
    let get = client.prepare("SELECT body FROM notes WHERE tenant = $1").await.unwrap();
    for _ in 0..3 {
        client.query_one(&get, &[&3_i64]).await.unwrap();
    }
    let body = QuotaBody { format: QUOTA_FORMAT, of: QuotaOf::Key(3.into()), requests: 1 };
    let body = serde_json::to_value(&body).unwrap();
    let rule = KeyRule { attribute: "requests".to_owned(), part: KeyPart::Whole };
    let map = MapName::new("tenants").unwrap();
    cluster.driver.create_dataset(QUOTA_STORE, "of 3", &map, rule, body).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.host.quotas().share(3600);
    client.query_one(&get, &[&3_i64]).await.unwrap();
    let short = client.query_one(&get, &[&3_i64]).await.unwrap_err();
    let short = short.as_db_error().unwrap().clone();
    let (code, words) = refusal(&client, "SELECT body FROM notes WHERE tenant = 3").await;
    assert_eq!((short.code().code(), code.as_str()), ("53400", "53400"));
    let begin = |words: &str| words.split(';').next().unwrap().to_owned();
    assert_eq!(begin(short.message()), begin(&words));
    client.query_one(&get, &[&4_i64]).await.unwrap();
    drop((app, client));
    cluster.close().await;
}

// D1, E3: each write counts once, on the shard that has its key, while keys move.
#[tokio::test(flavor = "multi_thread")]
async fn writes_of_prepared_statements_count_once_while_keys_move() {
    let cluster = Arc::new(Cluster::start_with(Setup { raw_max: 4, ..Setup::default() }).await);
    cluster.make_tables().await;
    let client = cluster.connect().await;
    for tenant in 0..TENANTS {
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 0, '')")).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for number in 0..6 {
        let (client, stop) = (cluster.connect().await, stop.clone());
        writers.push(tokio::spawn(async move {
            let add = client.prepare("UPDATE notes SET id = id + 1 WHERE tenant = $1").await.unwrap();
            let mut counts = vec![0_i64; usize::try_from(TENANTS).unwrap()];
            let mut tenant = number;
            while !stop.load(Ordering::SeqCst) {
                tenant = (tenant + 5) % TENANTS;
                assert_eq!(client.execute(&add, &[&tenant]).await.unwrap(), 1);
                counts[usize::try_from(tenant).unwrap()] += 1;
            }
            counts
        }));
    }
    let moves = cluster.swap_and_keep("tenants").await;
    cluster.clean_up(moves).await;
    cluster.move_all("tenants", "s1", "s2").await;
    stop.store(true, Ordering::SeqCst);
    let mut wanted = vec![0_i64; usize::try_from(TENANTS).unwrap()];
    for writer in writers {
        for (sum, count) in wanted.iter_mut().zip(writer.await.unwrap()) {
            *sum += count;
        }
    }
    let found = rows(&client, "SELECT id FROM notes ORDER BY tenant").await;
    let found: Vec<i64> = found.iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(found, wanted);
    assert!(wanted.iter().all(|count| *count > 0), "{wanted:?}");
    assert_eq!(cluster.router.status().tickets, 0);
    drop(client);
    Arc::into_inner(cluster).unwrap().close().await;
}
