//! Writes on several shards: refused by default, all or nothing when asked for; COPY by key. C5, E3.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, TryStreamExt};
use polyshard_engine::{Dialect, Rows, Statement};
use polyshard_map::{HashSpec, Key, KeyType, MapDefinition, MapName, Scheme};
use polyshard_router::Access;
use polyshard_shard::{Dataset, Placement, StoreSchema};
use polyshard_store::{AllCalls, Call, Calls, Error, Preparing, Step};
use polyshard_store_sql::Limits;

use crate::support::{Cluster, OTHER, Setup, refusal, rows};
use crate::transactions::script;

fn count(cluster: &Cluster, shard: &str) -> i64 {
    cluster.on_shard(shard, "SELECT count(*) FROM notes").parse().unwrap()
}

fn prepared(cluster: &Cluster) -> String {
    cluster.on_shard("s1", "SELECT count(*) FROM pg_prepared_xacts")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_over_several_shards_is_all_or_nothing_when_asked_for() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let many: Vec<String> = (0..20).map(|tenant| format!("({tenant}, 1, 'x')")).collect();
    let insert = format!("INSERT INTO notes VALUES {}", many.join(", "));
    assert_eq!(refusal(&client, &insert).await.0, "0A000");
    run("SET polyshard.multi_shard = 'two_phase'").await;
    run(&insert).await;
    assert!(count(&cluster, "s1") > 0 && count(&cluster, "s2") > 0);
    assert_eq!(count(&cluster, "s1") + count(&cluster, "s2"), 20);

    run("BEGIN").await;
    for tenant in 0..20 {
        run(&format!("UPDATE notes SET body = 'y' WHERE tenant = {tenant}")).await;
    }
    run("SAVEPOINT a").await;
    run("DELETE FROM notes WHERE tenant = 1").await;
    run("DELETE FROM notes WHERE tenant = 2").await;
    run("DELETE FROM notes WHERE tenant = 3").await;
    run("ROLLBACK TO a").await;
    run("COMMIT").await;
    assert_eq!(run("SELECT count(*) FROM notes WHERE body = 'y'").await, [["20"]]);
    run("BEGIN").await;
    for tenant in 0..20 {
        run(&format!("DELETE FROM notes WHERE tenant = {tenant}")).await;
    }
    run("ROLLBACK").await;
    assert_eq!(run("SELECT count(*) FROM notes").await, [["20"]]);
    // One shard's refusal undoes what the others have done.
    run("BEGIN").await;
    for tenant in 20..30 {
        run(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'z')")).await;
    }
    assert_eq!(refusal(&client, "INSERT INTO notes VALUES (20, 1, 'twice')").await.0, "23505");
    run("COMMIT").await;
    assert_eq!(run("SELECT count(*) FROM notes").await, [["20"]]);
    assert_eq!(prepared(&cluster), "0");
    drop(client);
    cluster.close().await;
}

/// A shard that cannot be reached fails its statement alone; a savepoint still reaches the shards that are there.
#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_outlives_a_shard_that_cannot_be_reached() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("SET polyshard.multi_shard = 'two_phase'").await;
    let many: Vec<String> = (0..30).map(|tenant| format!("({tenant}, 0, 'x')")).collect();
    run(&format!("INSERT INTO notes VALUES {}", many.join(", "))).await;
    let first = |shard: &str| cluster.on_shard(shard, "SELECT min(tenant) FROM notes");
    let (here, there) = (first("s1"), first("s2"));

    run("BEGIN").await;
    run(&format!("INSERT INTO notes VALUES ({here}, 1, 'kept')")).await;
    run("SAVEPOINT s").await;
    run(&format!("INSERT INTO notes VALUES ({here}, 2, 'taken back')")).await;
    cluster.on_shard("catalog", "ALTER DATABASE s2 ALLOW_CONNECTIONS false");
    let sessions =
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = 's2'";
    cluster.on_shard("catalog", sessions);
    let insert = format!("INSERT INTO notes VALUES ({there}, 1, 'x')");
    assert!(client.simple_query(&insert).await.is_err());
    cluster.on_shard("catalog", "ALTER DATABASE s2 ALLOW_CONNECTIONS true");
    run("ROLLBACK TO s").await;
    run(&format!("INSERT INTO notes VALUES ({here}, 3, 'kept too')")).await;
    run("COMMIT").await;
    let of = format!("SELECT string_agg(id::text, ',' ORDER BY id) FROM notes WHERE tenant = {here}");
    assert_eq!(cluster.on_shard("s1", &of), "0,1,3");
    drop(client);
    cluster.close().await;
}

/// A statement that writes on several shards binds the transaction to them, and is not part of a series' transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_on_several_shards_is_rolled_back_on_all() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("SET polyshard.multi_shard = 'two_phase'").await;
    let many: Vec<String> = (0..30).map(|tenant| format!("({tenant}, 0, 'x')")).collect();
    run("BEGIN").await;
    run(&format!("INSERT INTO notes VALUES {}", many.join(", "))).await;
    for tenant in 0..30 {
        run(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'y')")).await;
    }
    run("ROLLBACK").await;
    assert_eq!((count(&cluster, "s1"), count(&cluster, "s2")), (0, 0));
    drop(client);
    cluster.close().await;
}

/// In the middle of a pipeline, a write on several shards is a transaction of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_on_several_shards_is_all_or_nothing_in_a_pipeline() {
    let cluster = Cluster::with_tables().await;
    let many: Vec<String> = (0..30).map(|tenant| format!("({tenant}, 0, 'x')")).collect();
    let many = many.join(", ");
    let delete = |which: &str| {
        for shard in ["s1", "s2"] {
            cluster.on_shard(shard, &format!("DELETE FROM notes WHERE {which}"));
        }
    };
    for tenant in 100..104 {
        // Each time the pipeline is on the shard of another tenant before.
        let pipeline = |first: i32, rows: &str| {
            format!(
                "SET polyshard.multi_shard = 'two_phase';\n\\startpipeline\n\
                 INSERT INTO notes VALUES ({tenant}, {first}, 'first');\n\
                 INSERT INTO notes VALUES {rows};\n\\endpipeline\n"
            )
        };
        let (done, said) = script(&cluster, &pipeline(1, &many)).await;
        assert!(done, "{said}");
        assert_eq!(count(&cluster, "s1") + count(&cluster, "s2"), 31);
        // One row is there already: no other row of the statement is left.
        let client = cluster.connect().await;
        delete("tenant <> 29");
        let (done, said) = script(&cluster, &pipeline(2, &many)).await;
        assert!(!done && said.contains("duplicate key"), "{said}");
        assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE id = 0").await, [["1"]]);
        assert_eq!(prepared(&cluster), "0");
        drop(client);
        delete("true");
    }
    cluster.close().await;
}

/// The server stops at each step of a commit in two phases; what is left ends as was decided.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopped_server_leaves_prepared_is_ended_as_decided() {
    let stop_at = Arc::new(Mutex::new(String::new()));
    let stopped = Arc::new(AtomicBool::new(false));
    let (wanted, told) = (stop_at.clone(), stopped.clone());
    let failpoint = Arc::new(move |place: &str| {
        let stop = place == wanted.lock().unwrap().as_str();
        if stop {
            told.store(true, Ordering::SeqCst);
        }
        stop
    });
    let limits = Limits { prepared_patience: Duration::ZERO, ..Limits::default() };
    let cluster = Cluster::start_with(Setup { failpoint: Some(failpoint), limits, ..Setup::default() }).await;
    cluster.make_tables().await;
    let steps = [
        ("two_phase.prepare.before", false),
        ("two_phase.decide.before", false),
        ("two_phase.decide.after", true),
        ("two_phase.commit:s1.before", true),
        ("two_phase.commit:s2.before", true),
        ("two_phase.commit.after", true),
    ];
    for (number, (place, committed)) in steps.into_iter().enumerate() {
        stop_at.lock().unwrap().clear();
        stopped.store(false, Ordering::SeqCst);
        let client = cluster.connect().await;
        rows(&client, "SET polyshard.multi_shard = 'two_phase'; BEGIN").await;
        for tenant in 0..20 {
            rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, {number}, 'x')")).await;
        }
        *stop_at.lock().unwrap() = place.to_owned();
        assert!(client.simple_query("COMMIT").await.is_err(), "{place}");
        assert!(stopped.load(Ordering::SeqCst), "{place} was not passed");
        drop(client);
        // The sessions of the one that stopped end; then somebody looks.
        while prepared(&cluster) != "0" {
            cluster.door.end_prepared().await;
        }
        let one = |shard: &str| {
            cluster
                .on_shard(shard, &format!("SELECT count(*) FROM notes WHERE id = {number}"))
                .parse::<i32>()
                .unwrap()
        };
        let expected = if committed { 20 } else { 0 };
        assert_eq!(one("s1") + one("s2"), expected, "{place}");
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_takes_each_row_to_its_shard_and_back() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let copy = async |sql: &str, data: String| {
        let sink = client.copy_in(sql).await.unwrap();
        tokio::pin!(sink);
        // In pieces that end in the middle of rows.
        for piece in data.as_bytes().chunks(1000) {
            sink.send(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        sink.finish().await
    };
    let lines: String = (0..1000).map(|id| format!("{}\t{id}\ta\\tb\\nc\n", id % 50)).collect();
    assert_eq!(copy("COPY notes FROM STDIN", lines).await.unwrap(), 1000);
    assert!(count(&cluster, "s1") > 0 && count(&cluster, "s2") > 0);
    assert_eq!(count(&cluster, "s1") + count(&cluster, "s2"), 1000);
    assert_eq!(rows(&client, "SELECT body FROM notes WHERE tenant = 7 AND id = 7").await, [["a\tb\nc"]]);
    let csv: String = (1000..1100).map(|id| format!("\"two\nlines\",{id},{}\n", id % 50)).collect();
    let header = format!("body,id,tenant\n{csv}");
    let done = copy("COPY notes (body, id, tenant) FROM STDIN WITH (FORMAT csv, HEADER)", header).await;
    assert_eq!(done.unwrap(), 100);
    assert_eq!(
        rows(&client, "SELECT body FROM notes WHERE tenant = 0 AND id = 1000").await,
        [["two\nlines"]]
    );

    // A row that a shard refuses undoes all; one without its key is refused at once.
    let twice = "1\t5000\tx\n2\t5000\tx\n3\t5000\tx\n1\t5000\tx\n".to_owned();
    let error = copy("COPY notes FROM STDIN", twice).await.unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "23505");
    assert!(copy("COPY notes FROM STDIN", "\\N\t1\tx\n".to_owned()).await.is_err());
    assert!(copy("COPY notes FROM STDIN", "abc\t1\tx\n".to_owned()).await.is_err());
    assert_eq!(count(&cluster, "s1") + count(&cluster, "s2"), 1100);

    let out = client.copy_out("COPY notes (tenant, id) TO STDOUT WITH (FORMAT csv, HEADER)").await.unwrap();
    let pieces: Vec<Bytes> = out.try_collect().await.unwrap();
    let text = String::from_utf8(pieces.concat()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (1101, "tenant,id"));
    assert_eq!(lines.iter().filter(|line| line.starts_with("tenant")).count(), 1);
    assert_eq!(rows(&client, "SELECT 1").await, [["1"]]);
    drop(client);
    cluster.close().await;
}

/// Another store: it keeps things of tenants, which `polyshard.keep` adds.
struct Things;

impl Calls for Things {
    fn prepare<'a>(&'a self, _: &'a str, arguments: Vec<Option<String>>) -> Preparing<'a> {
        let [Some(tenant), Some(thing)] = arguments.as_slice() else { panic!("{arguments:?}") };
        let (tenant, thing) = (tenant.parse().unwrap(), thing.parse().unwrap());
        Box::pin(async move { Ok(Box::new(Keeping::new(tenant, thing)) as Box<dyn Call>) })
    }
}

struct Keeping {
    map: MapName,
    key: Key,
    insert: Option<Statement>,
}

impl Keeping {
    fn new(tenant: i64, thing: i64) -> Keeping {
        let (map, key) = (MapName::new("tenants").unwrap(), Key::BigInt(tenant));
        // As the journal makes a hash map; only the shard is looked at here, and the placement by nobody.
        let hash = Scheme::Hash(HashSpec::new(0, 16).unwrap());
        let definition = MapDefinition::new(map.clone(), KeyType::BigInt, hash).unwrap();
        let placement = definition.placement(&key).unwrap().into_vec();
        let insert =
            Statement::new("INSERT INTO polyshard.thing (placement, tenant, id) VALUES ($1, $2, $3)")
                .bind(placement)
                .bind(tenant)
                .bind(thing);
        Keeping { map, key, insert: Some(insert) }
    }
}

impl Call for Keeping {
    fn map(&self) -> &MapName {
        &self.map
    }

    fn key(&self) -> &Key {
        &self.key
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn registration(&self, dialect: Dialect) -> Vec<Dataset> {
        vec![Dataset {
            name: "things".to_owned(),
            map: self.map.clone(),
            table: dialect.own_table("thing"),
            placement: Placement::Column("placement".to_owned()),
            rows: polyshard_shard::TableRows::All,
        }]
    }

    fn step(&mut self, _: Dialect, _: Option<&Rows>) -> Result<Step, Error> {
        Ok(self.insert.take().map_or(Step::Done(Some("kept".to_owned())), Step::Run))
    }
}

fn things(_: Dialect) -> Vec<String> {
    vec![
        "CREATE TABLE IF NOT EXISTS polyshard.thing (placement bytea NOT NULL, tenant bigint NOT NULL, \
         id bigint NOT NULL, PRIMARY KEY (tenant, id))"
            .to_owned(),
    ]
}

/// What another store writes on several shards commits with the rows there, or not at all, wherever the server stops.
/// E3, H2.
#[tokio::test(flavor = "multi_thread")]
async fn another_stores_writes_on_several_shards_are_all_or_nothing() {
    let stop_at = Arc::new(Mutex::new(String::new()));
    let wanted = stop_at.clone();
    let failpoint = Arc::new(move |place: &str| place == wanted.lock().unwrap().as_str());
    let setup = Setup {
        failpoint: Some(failpoint),
        limits: Limits { prepared_patience: Duration::ZERO, ..Limits::default() },
        calls: AllCalls::new(vec![(&OTHER, Arc::new(Things) as Arc<dyn Calls>)]),
        schema: Some(StoreSchema { statements: things, shared: &[] }),
        ..Setup::default()
    };
    let cluster = Cluster::start_with(setup).await;
    cluster.make_tables().await;
    let kept = |id: i64| -> (i64, i64) {
        let of = |table: &str| -> i64 {
            let count = |shard: &str| -> i64 {
                cluster
                    .on_shard(shard, &format!("SELECT count(*) FROM {table} WHERE id = {id}"))
                    .parse()
                    .unwrap()
            };
            count("s1") + count("s2")
        };
        (of("polyshard.thing"), of("notes"))
    };
    // Things of ten tenants, notes of ten others: each shard has some of both, or of one alone.
    let write = async |client: &tokio_postgres::Client, id: i64| {
        for tenant in 0..10 {
            let said = rows(client, &format!("SELECT polyshard.keep({tenant}, {id})")).await;
            assert_eq!(said, [["kept"]]);
            rows(client, &format!("INSERT INTO notes VALUES ({}, {id}, 'x')", tenant + 10)).await;
        }
    };
    let client = cluster.connect().await;
    rows(&client, "SET polyshard.multi_shard = 'two_phase'; BEGIN").await;
    write(&client, 1).await;
    rows(&client, "COMMIT").await;
    let on_one = |shard: &str| cluster.on_shard(shard, "SELECT count(*) FROM polyshard.thing");
    assert!(on_one("s1") != "0" && on_one("s2") != "0", "the things are on one shard");
    assert_eq!(kept(1), (10, 10));
    rows(&client, "BEGIN").await;
    write(&client, 2).await;
    rows(&client, "ROLLBACK").await;
    assert_eq!(kept(2), (0, 0));
    rows(&client, "BEGIN").await;
    rows(&client, "SAVEPOINT a").await;
    write(&client, 3).await;
    rows(&client, "ROLLBACK TO a").await;
    write(&client, 4).await;
    // What the store refuses takes along what it did elsewhere.
    rows(&client, "SAVEPOINT b").await;
    assert_eq!(refusal(&client, "SELECT polyshard.keep(0, 4)").await.0, "23505");
    rows(&client, "ROLLBACK TO b").await;
    rows(&client, "COMMIT").await;
    assert_eq!((kept(3), kept(4)), ((0, 0), (10, 10)));
    // Things alone, none of whose shards has rows written.
    rows(&client, "BEGIN").await;
    for tenant in 0..10 {
        rows(&client, &format!("SELECT polyshard.keep({tenant}, 5)")).await;
    }
    rows(&client, "COMMIT").await;
    assert_eq!(kept(5), (10, 0));
    drop(client);

    let steps = [
        ("two_phase.prepare.before", false),
        ("two_phase.decide.before", false),
        ("two_phase.decide.after", true),
        ("two_phase.commit:s1.before", true),
        ("two_phase.commit:s2.before", true),
        ("two_phase.commit.after", true),
    ];
    for (id, (place, committed)) in (10..).zip(steps) {
        let client = cluster.connect().await;
        rows(&client, "SET polyshard.multi_shard = 'two_phase'; BEGIN").await;
        write(&client, id).await;
        *stop_at.lock().unwrap() = place.to_owned();
        assert!(client.simple_query("COMMIT").await.is_err(), "{place}");
        drop(client);
        stop_at.lock().unwrap().clear();
        // The sessions of the one that stopped end; then somebody looks.
        while prepared(&cluster) != "0" {
            cluster.door.end_prepared().await;
        }
        assert_eq!(kept(id), if committed { (10, 10) } else { (0, 0) }, "{place}");
    }
    cluster.close().await;
}
