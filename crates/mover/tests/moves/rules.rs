//! Rows that stand in each other's way: references, unique values that change hands, and columns that the database
//! fills in itself. They move all the same, or are refused before anything is copied (D2, D3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyshard_catalog::Step;
use polyshard_engine::{Dialect, Statement};
use polyshard_shard::{Dataset, Placement};

use crate::cluster::{Cluster, keys, map, request, shard};
use crate::gates::held_at;
use crate::place::Place;

on_both_engines!(
    unique_values_that_change_hands_during_a_move_are_carried,
    unique_values_of_rows_that_others_refer_to_change_hands,
    children_noted_long_before_their_parents_are_carried,
    a_table_that_refers_to_itself_moves_whatever_the_order_of_its_rows,
    long_values_move_in_chunks_that_fit_into_memory,
);

/// Makes a table on s1 and s2, and tells s1 that the map of customers places it.
async fn make(cluster: &Cluster, name: &str, create: &str) {
    for on in ["s1", "s2"] {
        run(cluster, on, &[create]).await;
    }
    let dataset = Dataset {
        name: name.to_owned(),
        map: map("customers"),
        table: name.to_owned(),
        placement: Placement::Key(vec!["customer".to_owned()]),
        rows: polyshard_shard::TableRows::All,
    };
    cluster.router.administer(&shard("s1")).await.unwrap().bind(&dataset).await.unwrap();
}

/// Runs statements in one transaction on a shard.
async fn run(cluster: &Cluster, on: &str, statements: &[&str]) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let mut tx = opened.control_transaction().await.unwrap();
    for sql in statements {
        tx.run(Statement::new(*sql)).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    tx.commit().await.unwrap();
}

/// The rows of a query, as text.
async fn found(cluster: &Cluster, on: &str, sql: &str) -> Vec<String> {
    cluster.rows(on, |_| sql.to_owned()).await.iter().map(|row| format!("{:?}", row.values())).collect()
}

/// Moves the customers 0 to 50, lets `meanwhile` run once all is copied, and sees that the target has what the source
/// had, by each of the queries.
async fn moves_with(cluster: Cluster, held: &AtomicBool, meanwhile: &[&str], queries: &[&str]) {
    let record = cluster.start(request("customers", keys(0, 50), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    run(&cluster, "s1", meanwhile).await;
    let mut expected = Vec::new();
    for query in queries {
        expected.push(found(&cluster, "s1", query).await);
    }
    assert!(expected.iter().all(|rows| !rows.is_empty()), "there is something to compare");
    held.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    for (query, expected) in queries.iter().zip(expected) {
        assert_eq!(found(&cluster, "s2", query).await, expected, "{query}");
        assert!(found(&cluster, "s1", query).await.is_empty(), "{query}");
    }
    cluster.assert_healthy().await;
    cluster.close().await;
}

const SEATS: &str = "CREATE TABLE seat (customer bigint NOT NULL, id bigint NOT NULL, place bigint NOT NULL, \
                     PRIMARY KEY (customer, id), UNIQUE (customer, place))";

async fn unique_values_that_change_hands_during_a_move_are_carried(place: Arc<Place>) {
    let (cluster, [held]) = held_at(&place, ["catch_up.before"]).await;
    make(&cluster, "seat", SEATS).await;
    run(&cluster, "s1", &["INSERT INTO seat VALUES (1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 4), (2, 1, 1)"])
        .await;
    // Two have changed places; one has given its place to another; one is new in the place of one that is gone.
    let meanwhile = [
        "UPDATE seat SET place = 99 WHERE customer = 1 AND id = 1",
        "UPDATE seat SET place = 1 WHERE customer = 1 AND id = 2",
        "UPDATE seat SET place = 2 WHERE customer = 1 AND id = 1",
        "DELETE FROM seat WHERE customer = 1 AND id = 4",
        "UPDATE seat SET place = 4 WHERE customer = 1 AND id = 3",
        "INSERT INTO seat VALUES (1, 0, 3)",
    ];
    moves_with(cluster, &held, &meanwhile, &["SELECT * FROM seat ORDER BY customer, id"]).await;
}

async fn unique_values_of_rows_that_others_refer_to_change_hands(place: Arc<Place>) {
    let (cluster, [held]) = held_at(&place, ["catch_up.before"]).await;
    make(&cluster, "seat", SEATS).await;
    let bags = "CREATE TABLE bag (customer bigint NOT NULL, id bigint NOT NULL, seat bigint NOT NULL, \
                PRIMARY KEY (customer, id), FOREIGN KEY (customer, seat) REFERENCES seat (customer, id) \
                ON DELETE CASCADE)";
    make(&cluster, "bag", bags).await;
    let rows = [
        "INSERT INTO seat VALUES (1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 4)",
        "INSERT INTO bag VALUES (1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 4)",
    ];
    run(&cluster, "s1", &rows).await;
    // The bag of a seat that is gone is another's now; the seat's place is taken; and one moves up for another.
    let meanwhile = [
        "UPDATE bag SET seat = 3 WHERE customer = 1 AND id = 4",
        "DELETE FROM seat WHERE customer = 1 AND id = 4",
        "UPDATE seat SET place = 4 WHERE customer = 1 AND id = 3",
        "UPDATE seat SET place = 3 WHERE customer = 1 AND id = 1",
        "INSERT INTO seat VALUES (1, 0, 1)",
    ];
    let queries = ["SELECT * FROM seat ORDER BY customer, id", "SELECT * FROM bag ORDER BY customer, id"];
    moves_with(cluster, &held, &meanwhile, &queries).await;
}

async fn children_noted_long_before_their_parents_are_carried(place: Arc<Place>) {
    let (cluster, [held]) = held_at(&place, ["catch_up.before"]).await;
    let parents =
        "CREATE TABLE parent (customer bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (customer, id))";
    let children = "CREATE TABLE child (customer bigint NOT NULL, id bigint NOT NULL, parent bigint NOT NULL, \
                    PRIMARY KEY (customer, id), FOREIGN KEY (customer, parent) REFERENCES parent (customer, id) \
                    DEFERRABLE INITIALLY DEFERRED)";
    make(&cluster, "parent", parents).await;
    make(&cluster, "child", children).await;
    run(&cluster, "s1", &["INSERT INTO parent VALUES (1, 0)", "INSERT INTO child VALUES (1, 0, 0)"]).await;
    // More of them than are carried at once.
    let many = "INSERT INTO child WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000) \
                SELECT 1, x, 7 FROM n";
    let meanwhile = [many, "INSERT INTO parent VALUES (1, 7)"];
    let queries = ["SELECT * FROM parent ORDER BY customer, id", "SELECT * FROM child ORDER BY customer, id"];
    moves_with(cluster, &held, &meanwhile, &queries).await;
}

async fn a_table_that_refers_to_itself_moves_whatever_the_order_of_its_rows(place: Arc<Place>) {
    let (cluster, [held]) = held_at(&place, ["catch_up.before"]).await;
    let nodes = "CREATE TABLE node (customer bigint NOT NULL, id bigint NOT NULL, parent bigint, \
                 PRIMARY KEY (customer, id), FOREIGN KEY (customer, parent) REFERENCES node (customer, id) \
                 DEFERRABLE INITIALLY DEFERRED)";
    make(&cluster, "node", nodes).await;
    // Each one's parent comes after it, but for the last; more of them than come in one chunk.
    let many = "INSERT INTO node WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 700) \
                SELECT 1, x, CASE WHEN x < 700 THEN x + 1 END FROM n";
    run(&cluster, "s1", &[many]).await;
    // Parents first, looked at row by row: they cannot be cleaned away in the order in which they came.
    let trees = "CREATE TABLE tree (customer bigint NOT NULL, id bigint NOT NULL, parent bigint, \
                 PRIMARY KEY (customer, id), FOREIGN KEY (customer, parent) REFERENCES tree (customer, id))";
    make(&cluster, "tree", trees).await;
    let rows = "INSERT INTO tree WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 700) \
                SELECT 1, x, CASE WHEN x > 1 THEN x - 1 END FROM n";
    run(&cluster, "s1", &[rows]).await;
    let meanwhile =
        ["INSERT INTO node VALUES (1, 2000, NULL)", "UPDATE node SET parent = 2000 WHERE id = 350"];
    let queries = ["SELECT * FROM node ORDER BY customer, id", "SELECT * FROM tree ORDER BY customer, id"];
    moves_with(cluster, &held, &meanwhile, &queries).await;
}

async fn long_values_move_in_chunks_that_fit_into_memory(place: Arc<Place>) {
    let (cluster, [held]) = held_at(&place, ["catch_up.before"]).await;
    let create = "CREATE TABLE paper (customer bigint NOT NULL, id bigint NOT NULL, body text, \
                  PRIMARY KEY (customer, id))";
    make(&cluster, "paper", create).await;
    let dialect = cluster.router.administer(&shard("s1")).await.unwrap().dialect();
    let long = |id: i64, length: usize| match dialect {
        Dialect::Postgres => format!("INSERT INTO paper VALUES (1, {id}, repeat('x', {length}))"),
        Dialect::Sqlite => format!("INSERT INTO paper VALUES (1, {id}, printf('%.*c', {length}, 'x'))"),
    };
    for id in 0..6 {
        run(&cluster, "s1", &[&long(id, 6 << 20)]).await;
        run(&cluster, "s1", &[&long(100 + id, 10)]).await;
    }
    let meanwhile = long(50, 8 << 20);
    let query = "SELECT id, length(body) FROM paper ORDER BY id";
    moves_with(cluster, &held, &[&meanwhile], &[query]).await;
}

/// What the database fills in itself, and rules that only PostgreSQL has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identity_generated_columns_partial_indexes_and_exclusions_move() {
    let place = Place::server();
    let (cluster, [held]) = held_at(&place, ["catch_up.before"]).await;
    let create = "CREATE TABLE stay (customer bigint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, \
                  span int4range NOT NULL, n bigint, twice bigint GENERATED ALWAYS AS (n * 2) STORED, state text, \
                  PRIMARY KEY (customer, id), EXCLUDE USING gist (span WITH &&))";
    make(&cluster, "stay", create).await;
    for on in ["s1", "s2"] {
        run(&cluster, on, &["CREATE UNIQUE INDEX ON stay (customer, n) WHERE state = 'on'"]).await;
    }
    let rows = "INSERT INTO stay (customer, span, n, state) VALUES (1, '[1,5)', 1, 'on'), (1, '[5,9)', 1, 'off'), \
                (2, '[9,12)', 1, 'on')";
    run(&cluster, "s1", &[rows]).await;
    // Spans and the one that is on change hands.
    let meanwhile = [
        "UPDATE stay SET state = 'off', span = '[100,101)' WHERE id = 1",
        "UPDATE stay SET state = 'on', span = '[1,5)' WHERE id = 2",
        "UPDATE stay SET span = '[5,9)' WHERE id = 1",
    ];
    moves_with(
        cluster,
        &held,
        &meanwhile,
        &["SELECT customer, id, span::text, n, twice, state FROM stay ORDER BY id"],
    )
    .await;
}

/// Tables that refer to each other in a circle are refused before anything is copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_references_is_refused_before_anything_is_copied() {
    let place = Place::server();
    let (cluster, [held]) = held_at(&place, ["nowhere"]).await;
    held.store(false, Ordering::SeqCst);
    let table = |name: &str| {
        format!("CREATE TABLE {name} (customer bigint, id bigint, other bigint, PRIMARY KEY (customer, id))")
    };
    for name in ["egg", "hen"] {
        make(&cluster, name, &table(name)).await;
    }
    for on in ["s1", "s2"] {
        for (from, to) in [("egg", "hen"), ("hen", "egg")] {
            let alter = format!(
                "ALTER TABLE {from} ADD FOREIGN KEY (customer, other) REFERENCES {to} (customer, id)"
            );
            run(&cluster, on, &[&alter]).await;
        }
    }
    let why = cluster.moves("customers", keys(0, 50), "s2").await.unwrap_err();
    assert!(why.contains("refer to each other in a circle"), "{why}");
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// The target may call a table otherwise than the source, also one that is declared while the move is under way.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_declared_during_a_move_between_engines_goes_where_the_target_has_it() {
    let (cluster, [held]) = held_at(&Place::mixed(), ["catch_up.before"]).await;
    let record = cluster.start(request("customers", keys(0, 50), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    let there = SEATS.replace("TABLE seat", "TABLE app.seat");
    run(&cluster, "s1", &[SEATS]).await;
    run(&cluster, "s2", &["CREATE SCHEMA app", &there]).await;
    for (on, table) in [("s2", "app.seat"), ("s1", "seat")] {
        let dataset = Dataset {
            name: "seat".to_owned(),
            map: map("customers"),
            table: table.to_owned(),
            placement: Placement::Key(vec!["customer".to_owned()]),
            rows: polyshard_shard::TableRows::All,
        };
        cluster.router.administer(&shard(on)).await.unwrap().bind(&dataset).await.unwrap();
    }
    run(&cluster, "s1", &["INSERT INTO seat VALUES (1, 1, 1), (1, 2, 2)"]).await;
    held.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    assert_eq!(found(&cluster, "s2", "SELECT id FROM app.seat ORDER BY id").await.len(), 2);
    assert!(found(&cluster, "s1", "SELECT id FROM seat").await.is_empty());
    cluster.close().await;
}
