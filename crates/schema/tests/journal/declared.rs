//! Declaring tables: where rows go, what is refused, and what the protocol knows of them.

use std::sync::Arc;

use polyshard_map::{Key, KeyType};
use polyshard_schema::Declaration;
use polyshard_sql::Placement;

use crate::cluster::{Cluster, map, refusal, shard, sharded, table};
use crate::place::Place;

const ORDERS: &str =
    "CREATE TABLE orders (tenant bigint NOT NULL, id int NOT NULL, note text, PRIMARY KEY (tenant, id))";

/// G1, C3: the rows of a table that is sharded are where the map says, each exactly once.
async fn rows_go_where_the_map_says(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let rows: Vec<String> = (-30..30).map(|tenant| format!("({tenant}, 1, 'x')")).collect();
    cluster.apply(&[ORDERS, &format!("INSERT INTO orders VALUES {}", rows.join(", "))]).await.unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    let placement = cluster.placement("orders").await;
    assert_eq!(placement, Placement::Sharded { map: map("tenants"), column: 0, key_type: KeyType::BigInt });
    let view = cluster.router.view();
    let known = &view.maps[&map("tenants")].map;
    for tenant in -30..30 {
        let owner = known.locate(&Key::BigInt(tenant)).unwrap().shard().clone();
        for name in ["s1", "s2", "s3"] {
            let count =
                cluster.number(name, &format!("SELECT count(*) FROM orders WHERE tenant = {tenant}")).await;
            assert_eq!(count, i64::from(owner == shard(name)), "tenant {tenant} on {name}");
        }
    }
    // Said again, it is so already; the map that places rows cannot be dropped.
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    assert_eq!(cluster.journal.position(), 3);
    let error = cluster.driver.drop_map(&map("tenants"), None, false).await.unwrap_err();
    assert!(error.to_string().contains("sql public.orders"), "{error}");
    // The protocol knows what the ranges hold.
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    assert_eq!(opened.datasets(&map("tenants")).await.unwrap().len(), 1);
    assert_eq!(cluster.catalog.journal_depends().await.unwrap(), []);
    // A shard that comes later has the table, none of its rows, and knows it too.
    cluster.add_shard("s4").await;
    cluster.journal.ready(&shard("s4")).await.unwrap();
    assert_eq!(cluster.number("s4", "SELECT count(*) FROM orders").await, 0);
    let opened = cluster.router.administer(&shard("s4")).await.unwrap();
    assert_eq!(opened.datasets(&map("tenants")).await.unwrap().len(), 1);
    cluster.close().await;
}

/// C7: a table that somebody has dropped in one database behind Polyshard's back is not forgotten with the next change
/// of another one: its rows on the other shards would not be found any more.
async fn a_table_that_is_missing_on_one_shard_stays_declared(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&[ORDERS, "CREATE TABLE other (a int PRIMARY KEY)"]).await.unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    cluster.journal.declare(Declaration::Reference { table: table("other") }).await.unwrap();
    cluster.on("s1", "DROP TABLE orders").await;
    let is_sharded = async || matches!(cluster.placement("orders").await, Placement::Sharded { .. });
    for change in ["ALTER TABLE other ADD COLUMN b int", "CREATE TABLE third (a int)", "DROP TABLE other"] {
        let error = refusal(cluster.apply(&[change]).await.map(drop));
        assert!(error.message.contains("orders is not on shard s1"), "{change}: {}", error.message);
        assert!(is_sharded().await, "{change}");
    }
    // Made again there, it goes on, and what is dropped by a change is forgotten.
    cluster.on("s1", ORDERS).await;
    let change = "ALTER TABLE other ADD COLUMN b int";
    if cluster.apply(&[change]).await.is_err() {
        // It has another number there, which is learnt by that.
        cluster.apply(&[change]).await.unwrap();
    }
    cluster.apply(&["DROP TABLE other"]).await.unwrap();
    assert!(is_sharded().await);
    assert!(!cluster.journal.schema().await.unwrap().tables.contains_key(&table("other")));
    cluster.close().await;
}

/// Rows whose key has no shard are refused before anything is deleted.
async fn a_key_without_a_shard_is_refused(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.journal.create_map("customers", "list", "bigint").await.unwrap();
    cluster.apply(&[ORDERS, "INSERT INTO orders VALUES (1, 1, 'x')"]).await.unwrap();
    let error = refusal(cluster.journal.declare(sharded("orders", "customers", "tenant")).await);
    assert!(error.message.contains("have no shard"), "{}", error.message);
    assert_eq!(cluster.numbers("SELECT count(*) FROM orders").await, [1, 1, 1]);
    assert_eq!(cluster.placement("orders").await, Placement::Reference { declared: false });
    cluster.close().await;
}

async fn reference_and_local_tables_are_declared(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&["CREATE TABLE a (x int PRIMARY KEY)", "CREATE TABLE b (x int PRIMARY KEY)"])
        .await
        .unwrap();
    cluster.apply(&["INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1), (2)"]).await.unwrap();
    cluster.journal.declare(Declaration::Reference { table: table("a") }).await.unwrap();
    assert_eq!(cluster.placement("a").await, Placement::Reference { declared: true });
    let local = Declaration::Local { table: table("b"), shard: shard("s2") };
    cluster.journal.declare(local.clone()).await.unwrap();
    cluster.journal.declare(local).await.unwrap();
    assert_eq!(cluster.placement("b").await, Placement::Local(shard("s2")));
    assert_eq!(cluster.numbers("SELECT count(*) FROM b").await, [0, 2, 0]);
    let other = Declaration::Local { table: table("b"), shard: shard("s1") };
    assert_eq!(refusal(cluster.journal.declare(other).await).state.0, "0A000");
    let missing = Declaration::Reference { table: table("nowhere") };
    assert_eq!(refusal(cluster.journal.declare(missing).await).state.0, "42P01");
    let error = refusal(cluster.journal.declare(sharded("a", "nobody", "x")).await);
    assert_eq!(error.state.0, "42704");
    assert!(error.hint.unwrap().contains("polyshard.create_map"));
    cluster.close().await;
}

/// C9: what could cross shards, or stop a later move, is refused while the user can still act.
async fn what_would_cross_shards_is_refused(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&[
            "CREATE TABLE no_key (tenant bigint NOT NULL, id int)",
            "CREATE TABLE nullable (tenant bigint, id int PRIMARY KEY)",
            "CREATE TABLE by_id (tenant bigint NOT NULL, id int PRIMARY KEY)",
            "CREATE TABLE twice (tenant bigint NOT NULL, id int, mail text UNIQUE, PRIMARY KEY (tenant, id))",
            "CREATE TABLE partial (tenant bigint NOT NULL, id int, PRIMARY KEY (tenant, id))",
            "CREATE UNIQUE INDEX partial_lower ON partial (lower('x')) WHERE id > 3",
            "CREATE TABLE texts (tenant text NOT NULL, id int, PRIMARY KEY (tenant, id))",
            "CREATE TABLE secret (tenant bigint NOT NULL, id int, PRIMARY KEY (tenant, id))",
            "ALTER TABLE secret ENABLE ROW LEVEL SECURITY",
            "CREATE TABLE parts (tenant bigint NOT NULL, id int, PRIMARY KEY (tenant, id)) PARTITION BY HASH (tenant)",
            "CREATE TABLE parent (tenant bigint NOT NULL, id int, UNIQUE (id, tenant), PRIMARY KEY (tenant, id))",
            "CREATE TABLE child (tenant bigint NOT NULL, id int, parent int, other bigint, PRIMARY KEY (tenant, id), \
             CONSTRAINT child_parent FOREIGN KEY (other, parent) REFERENCES parent (tenant, id))",
            "CREATE TABLE good (tenant bigint NOT NULL, id int, parent int, PRIMARY KEY (tenant, id), \
             CONSTRAINT good_parent FOREIGN KEY (tenant, parent) REFERENCES parent (tenant, id))",
            "CREATE VIEW seen AS SELECT * FROM parent",
        ])
        .await
        .unwrap();
    let refused = async |name: &str, state: &str, words: &str| {
        let error = refusal(cluster.journal.declare(sharded(name, "tenants", "tenant")).await);
        assert_eq!(error.state.0, state, "{name}: {}", error.message);
        assert!(error.message.contains(words), "{name}: {}", error.message);
        assert!(error.hint.is_some() || state == "42P16", "{name}");
    };
    refused("no_key", "42P16", "has no primary key").await;
    refused("nullable", "42P16", "allows NULL").await;
    refused("by_id", "42P16", "by_id_pkey").await;
    refused("twice", "42P16", "twice_mail_key").await;
    refused("partial", "42P16", "partial_lower").await;
    refused("texts", "42P16", "the map's keys are bigint").await;
    refused("secret", "0A000", "row-level security").await;
    refused("parts", "0A000", "partitioned").await;
    refused("seen", "42809", "is a view").await;
    refused("parent", "42P16", "is not sharded itself").await;
    let missing = refusal(cluster.journal.declare(sharded("good", "tenants", "nothing")).await);
    assert_eq!(missing.state.0, "42703");

    // A child that holds the key may go first; the parent follows once every child can.
    cluster.journal.declare(sharded("good", "tenants", "tenant")).await.unwrap();
    cluster.journal.declare(sharded("child", "tenants", "tenant")).await.unwrap();
    refused("parent", "42P16", "could refer to a row on another shard").await;
    cluster.apply(&["ALTER TABLE child DROP CONSTRAINT child_parent"]).await.unwrap();
    cluster.journal.declare(sharded("parent", "tenants", "tenant")).await.unwrap();
    // Now a key that crosses would be found at the child as well.
    cluster
        .apply(&["CREATE TABLE late (tenant bigint NOT NULL, id int, other bigint, parent int, \
                  PRIMARY KEY (tenant, id), CONSTRAINT late_parent FOREIGN KEY (other, parent) \
                  REFERENCES parent (tenant, id))"])
        .await
        .unwrap();
    refused("late", "42P16", "could refer to a row on another shard").await;
    let whole = Declaration::Reference { table: table("late") };
    assert!(refusal(cluster.journal.declare(whole).await).message.contains("not all there"));
    cluster.close().await;
}

/// G1: serial and identity columns of sharded tables give no id twice, also next to rows that were there before.
async fn serial_ids_are_unique_over_shards(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&[
            "CREATE TABLE orders (tenant bigint NOT NULL, id serial, PRIMARY KEY (tenant, id))",
            "CREATE TABLE items (tenant bigint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, \
             PRIMARY KEY (tenant, id))",
            "INSERT INTO orders SELECT t, 500 + t FROM generate_series(1, 20) AS g(t)",
        ])
        .await
        .unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    cluster.journal.declare(sharded("items", "tenants", "tenant")).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for name in ["s1", "s2", "s3"] {
        for table in ["orders", "items"] {
            let sql = format!(
                "INSERT INTO {table} (tenant) SELECT 1 FROM generate_series(1, 300) RETURNING id::bigint"
            );
            for row in cluster.on(name, &sql).await {
                let polyshard_engine::Value::Int(id) = row[0] else { panic!("{row:?}") };
                assert!(table == "items" || id > 520, "{table} {id} on {name} was there before");
                assert!(seen.insert((table, id)), "{table} {id} twice, on {name}");
            }
        }
    }
    assert_eq!(seen.len(), 1800);
    cluster.close().await;
}

/// C7, C9: what was declared holds after any change of the schema, whatever words it was made with.
async fn a_schema_change_keeps_what_was_declared(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&[ORDERS, "CREATE TABLE country (code int PRIMARY KEY)"]).await.unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    cluster.journal.declare(Declaration::Reference { table: table("country") }).await.unwrap();
    cluster.journal.create_map("ranges", "range", "bigint").await.unwrap();
    cluster.apply(&["CREATE TABLE ranged (tenant bigint PRIMARY KEY)"]).await.unwrap();
    cluster.journal.declare(sharded("ranged", "ranges", "tenant")).await.unwrap();
    let refused = async |sql: &str, state: &str, words: &str| {
        let error = cluster.apply(&[sql]).await.expect_err(sql).to_sql();
        assert_eq!(error.state.0, state, "{sql}: {}", error.message);
        assert!(error.message.contains(words), "{sql}: {}", error.message);
    };
    refused("CREATE UNIQUE INDEX note_once ON orders (note)", "42P16", "note_once").await;
    refused("DO $$ BEGIN EXECUTE 'CREATE UNIQUE INDEX x ON orders (id)'; END $$", "42P16", "unique index x")
        .await;
    refused("ALTER TABLE orders ADD COLUMN other int UNIQUE", "42P16", "orders_other_key").await;
    refused("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "42P16", "no primary key").await;
    refused("ALTER TABLE ranged ALTER COLUMN tenant TYPE numeric", "42P16", "the map's keys are bigint")
        .await;
    refused("ALTER TABLE orders DROP COLUMN tenant", "2BP01", "is the key").await;
    let crossing = "ALTER TABLE country ADD COLUMN t bigint, ADD COLUMN o int, \
                    ADD FOREIGN KEY (t, o) REFERENCES orders (tenant, id)";
    refused(crossing, "42P16", "whose rows are not all there").await;
    assert_eq!(cluster.positions(&place).await, [5, 5, 5]);

    // Names may change; the declaration goes with them.
    cluster.apply(&["ALTER TABLE orders RENAME COLUMN tenant TO customer"]).await.unwrap();
    cluster
        .apply(&["ALTER TABLE orders RENAME TO sales", "ALTER TABLE country RENAME TO land"])
        .await
        .unwrap();
    cluster.journal.finish().await.unwrap();
    let Placement::Sharded { column: 0, .. } = cluster.placement("sales").await else {
        panic!("not sharded")
    };
    assert_eq!(cluster.placement("land").await, Placement::Reference { declared: true });
    let opened = cluster.router.administer(&shard("s2")).await.unwrap();
    let [dataset] = &opened.datasets(&map("tenants")).await.unwrap()[..] else { panic!("one dataset") };
    assert_eq!(dataset.table, "\"public\".\"sales\"");
    assert_eq!(dataset.placement, polyshard_shard::Placement::Key(vec!["\"customer\"".into()]));

    // A table that is gone is forgotten, and so the map is free.
    cluster.apply(&["DROP TABLE sales", "CREATE TABLE sales (customer int)"]).await.unwrap();
    assert_eq!(cluster.placement("sales").await, Placement::Reference { declared: false });
    assert_eq!(opened.datasets(&map("tenants")).await.unwrap(), []);
    cluster.driver.drop_map(&map("tenants"), None, false).await.unwrap();
    cluster.close().await;
}

/// A process that has not heard of it never reads a part of a table for the whole: rows leave shards only when all
/// know, and one that does not answer is in the way.
async fn rows_are_spread_only_when_every_process_knows(place: Arc<Place>) {
    let one = Cluster::with_shards(&place).await;
    one.apply(&[ORDERS, "INSERT INTO orders SELECT t, 1, 'x' FROM generate_series(1, 30) AS g(t)"])
        .await
        .unwrap();
    let two = Cluster::open_with(&place, 2, None).await;
    assert_eq!(two.placement("orders").await, Placement::Reference { declared: false });
    // It has sessions on the shards, and its background does not run: it cannot answer.
    let all = polyshard_map::KeyRange::all();
    for name in ["s1", "s2", "s3"] {
        let access = polyshard_router::Access::Read;
        drop(two.router.enter_shard(&map("tenants"), &all, &shard(name), access).await.unwrap());
    }
    let error = refusal(one.journal.declare(sharded("orders", "tenants", "tenant")).await);
    assert!(error.message.contains("did not answer"), "{}", error.message);
    assert_eq!(one.numbers("SELECT count(*) FROM orders").await, [30, 30, 30]);
    assert_eq!(one.placement("orders").await, Placement::Reference { declared: false });
    // Now it answers; whoever asks for the schema afterwards sees a sharded table.
    let keeper = two.journal.keep_up();
    one.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    assert_eq!(one.numbers("SELECT count(*) FROM orders").await.iter().sum::<i64>(), 30);
    two.router.refresh().await.unwrap();
    assert!(matches!(two.placement("orders").await, Placement::Sharded { .. }));
    keeper.stop().await;
    two.close().await;
    one.close().await;
}

/// C9: triggers are looked into whenever they, or what they write to, come to be.
async fn a_trigger_does_not_cross_shards(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let made = [
        ORDERS,
        "CREATE TABLE totals (tenant bigint PRIMARY KEY, n bigint)",
        "CREATE TABLE counts (n bigint PRIMARY KEY)",
        "CREATE FUNCTION adds() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO totals VALUES (NEW.tenant, 1) ON CONFLICT (tenant) DO UPDATE SET n = totals.n + 1; \
          RETURN NEW; END'",
        "CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN UPDATE public.counts SET n = n + 1; RETURN NEW; END'",
        "CREATE FUNCTION moves() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN NEW.tenant = NEW.tenant + 1; RETURN NEW; END'",
    ];
    cluster.apply(&made).await.unwrap();
    for table in ["orders", "totals"] {
        cluster.journal.declare(sharded(table, "tenants", "tenant")).await.unwrap();
    }
    // What it writes is on its row's shard.
    let trigger = |function: &str| {
        format!("CREATE TRIGGER after AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION {function}()")
    };
    cluster.apply(&[&trigger("adds")]).await.unwrap();
    let before = "CREATE TRIGGER before BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION moves()";
    let error = refusal(cluster.apply(&[before]).await.map(drop));
    assert!(error.message.contains("trigger before of table orders may change its key"), "{}", error.message);
    // A table that nobody has declared may be anything yet.
    cluster.apply(&["DROP TRIGGER after ON orders", &trigger("counts")]).await.unwrap();
    let declared = Declaration::Reference { table: table("counts") };
    let error = refusal(cluster.journal.declare(declared.clone()).await);
    assert!(error.message.contains("writes to table counts, that every shard has"), "{}", error.message);
    cluster.apply(&["DROP TRIGGER after ON orders"]).await.unwrap();
    cluster.journal.declare(declared).await.unwrap();
    let error = refusal(cluster.apply(&[&trigger("counts")]).await.map(drop));
    assert!(
        error.message.contains("trigger after of table orders writes to table counts"),
        "{}",
        error.message
    );
    // Nor does the body of a trigger that is there become such a one.
    cluster.apply(&[&trigger("adds")]).await.unwrap();
    let body = "CREATE OR REPLACE FUNCTION adds() RETURNS trigger LANGUAGE plpgsql AS \
                'BEGIN DELETE FROM counts; RETURN NEW; END'";
    let error = refusal(cluster.apply(&[body]).await.map(drop));
    assert!(error.message.contains("writes to table counts"), "{}", error.message);
    cluster.close().await;
}

/// C7: no two rows of a shard are alike under a unique index; those of several could be, if the key is not in it. So
/// it is for indexes on expressions and on some rows, whichever is first, the index or the declaration.
async fn unique_indexes_on_expressions_have_the_key(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let [lower, some] = [
        "CREATE UNIQUE INDEX note_lower ON orders (lower(note))",
        "CREATE UNIQUE INDEX note_some ON orders (note) WHERE id > 0",
    ];
    for index in [lower, some] {
        cluster.apply(&[ORDERS, index]).await.unwrap();
        let error = refusal(cluster.journal.declare(sharded("orders", "tenants", "tenant")).await);
        assert!(error.state.0 == "42P16" && error.message.contains("note_"), "{}", error.message);
        cluster.apply(&["DROP TABLE orders"]).await.unwrap();
    }
    cluster.apply(&[ORDERS]).await.unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    for index in [lower, some] {
        let error = refusal(cluster.apply(&[index]).await.map(drop));
        assert!(error.state.0 == "42P16" && error.message.contains("note_"), "{}", error.message);
    }
    let with_key = [
        "CREATE UNIQUE INDEX note_lower ON orders (tenant, lower(note))",
        "CREATE UNIQUE INDEX note_some ON orders (note, tenant) WHERE id > 0",
        "CREATE INDEX note_any ON orders (lower(note)) WHERE id > 0",
        "ALTER TABLE orders ADD COLUMN more int",
    ];
    cluster.apply(&with_key).await.unwrap();
    cluster.close().await;
}

on_both_engines!(
    unique_indexes_on_expressions_have_the_key,
    rows_go_where_the_map_says,
    a_key_without_a_shard_is_refused,
    reference_and_local_tables_are_declared,
);

mod in_postgres {
    use super::{
        a_schema_change_keeps_what_was_declared, a_trigger_does_not_cross_shards,
        rows_are_spread_only_when_every_process_knows, serial_ids_are_unique_over_shards,
        what_would_cross_shards_is_refused,
    };

    on_postgres!(
        a_schema_change_keeps_what_was_declared,
        a_trigger_does_not_cross_shards,
        rows_are_spread_only_when_every_process_knows,
        serial_ids_are_unique_over_shards,
        what_would_cross_shards_is_refused,
    );
}

/// Nobody else can change a file.
mod databases {
    use super::a_table_that_is_missing_on_one_shard_stays_declared;

    on_postgres!(a_table_that_is_missing_on_one_shard_stays_declared);
}
