//! Users of the catalog, and what each may do: by table, by map, by key, at once when it changes. E7.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use polyshard_catalog::{CatalogError, USER_STORE};
use polyshard_map::MapName;
use polyshard_store::rights::{AccessCheck, Grant, GrantedKeys, Right, USER_FORMAT, UserBody};
use polyshard_store_sql::kept_password;
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use crate::embedded::with_tables as files_with_tables;
use crate::support::{Cluster, OTHER, PASSWORD, STORES, refusal, rows};

pub fn everywhere(right: Right) -> Grant {
    Grant { right, store: None, map: None, keys: None, table: None }
}

pub fn on_table(right: Right, table: &str) -> Grant {
    Grant { store: STORES.id("sql").ok(), table: Some(table.to_owned()), ..everywhere(right) }
}

fn on_keys(right: Right, keys: GrantedKeys) -> Grant {
    Grant { map: Some(MapName::new("tenants").unwrap()), keys: Some(keys), ..everywhere(right) }
}

/// Makes or changes a user, as the server does; the router has heard of it then.
pub async fn put(cluster: &Cluster, name: &str, grants: &[Grant]) {
    let scram = Some(kept_password(PASSWORD, &|bytes| rand::fill(bytes)).unwrap());
    let body = UserBody { format: USER_FORMAT, scram, account: false, grants: grants.to_vec() };
    let change = |_| Ok::<_, CatalogError>(serde_json::to_value(&body).unwrap());
    cluster.driver.catalog().put_user(USER_STORE, name, change).await.unwrap();
    cluster.router.refresh().await.unwrap();
}

pub async fn connect(cluster: &Cluster, user: &str) -> Client {
    let string = cluster.connect_string().replace("user=polyshard", &format!("user={user}"));
    let (client, connection) = tokio_postgres::connect(&string, NoTls).await.unwrap();
    tokio::spawn(async move {
        // Its end is seen by the client.
        let _ended = connection.await;
    });
    client
}

async fn fill(cluster: &Cluster) {
    let owner = connect(cluster, "polyshard").await;
    rows(&owner, "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))").await;
    rows(&owner, "SELECT polyshard.shard_table('orders', 'tenants', 'tenant')").await;
    for tenant in 40..46 {
        rows(&owner, &format!("INSERT INTO notes (tenant, id, body) VALUES ({tenant}, 1, 'of {tenant}')"))
            .await;
        rows(&owner, &format!("INSERT INTO orders VALUES ({tenant}, 1, 'of {tenant}')")).await;
    }
}

/// What is refused, with the words for it.
async fn not_allowed(client: &Client, sql: &str, words: &str) {
    let (code, message) = refusal(client, sql).await;
    assert_eq!(code, "42501", "{sql}: {message}");
    assert!(message.contains(words), "{sql}: {message}");
}

async fn by_table(cluster: &Cluster) {
    fill(cluster).await;
    put(cluster, "reader", &[on_table(Right::Read, "orders")]).await;
    let reader = connect(cluster, "reader").await;
    assert_eq!(rows(&reader, "SELECT note FROM orders WHERE tenant = 42").await, [["of 42"]]);
    assert_eq!(rows(&reader, "SELECT count(*) FROM orders").await, [["6"]]);
    not_allowed(&reader, "SELECT * FROM notes WHERE tenant = 42", "reader may not read notes").await;
    not_allowed(&reader, "SELECT * FROM countries", "reader may not read countries").await;
    let mixed = "SELECT 1 FROM orders o JOIN notes n ON n.tenant = o.tenant WHERE o.tenant = 42";
    not_allowed(&reader, mixed, "may not read notes").await;
    for write in [
        "UPDATE orders SET note = 'x' WHERE tenant = 42",
        "INSERT INTO orders VALUES (42, 2, 'x')",
        "WITH gone AS (DELETE FROM orders WHERE tenant = 42 RETURNING 1) SELECT * FROM gone",
        "EXPLAIN DELETE FROM orders WHERE tenant = 42",
        "TRUNCATE orders",
        "COPY orders FROM STDIN",
        "SELECT note FROM orders WHERE tenant = 42 FOR UPDATE",
    ] {
        not_allowed(&reader, write, "reader may not write orders").await;
    }
    for schema in [
        "CREATE TABLE mine (id bigint)",
        "DROP TABLE orders",
        "ALTER TABLE orders ADD COLUMN more text",
        "CREATE VIEW seen AS SELECT * FROM orders",
        "SELECT polyshard.reference_table('orders')",
        "SELECT polyshard.create_map('mine', 'hash', 'bigint')",
    ] {
        not_allowed(&reader, schema, "may not make or change").await;
    }
    // Nothing was done, and the session goes on.
    assert_eq!(rows(&reader, "SELECT count(*) FROM orders").await, [["6"]]);
    assert_eq!(rows(&reader, "SELECT 1 + 1").await, [["2"]]);
    put(cluster, "keeper", &[everywhere(Right::Schema)]).await;
    let keeper = connect(cluster, "keeper").await;
    rows(&keeper, "CREATE TABLE theirs (id bigint PRIMARY KEY)").await;
    rows(&keeper, "INSERT INTO theirs VALUES (1)").await;
    // Who has nothing sees nothing but what there is.
    put(cluster, "nobody", &[]).await;
    let nobody = connect(cluster, "nobody").await;
    assert_eq!(rows(&nobody, "SELECT 1").await, [["1"]]);
    not_allowed(&nobody, "SELECT * FROM theirs", "nobody may not read theirs").await;
}

async fn by_key(cluster: &Cluster) {
    fill(cluster).await;
    let one = on_keys(Right::Write, GrantedKeys::Key(json!(42)));
    put(cluster, "alice", std::slice::from_ref(&one)).await;
    let alice = connect(cluster, "alice").await;
    assert_eq!(rows(&alice, "SELECT note FROM orders WHERE tenant = 42").await, [["of 42"]]);
    let joined = "SELECT n.body, c.name FROM notes n JOIN orders o ON o.tenant = n.tenant AND o.id = n.id \
                  JOIN countries c ON c.code = 'is' WHERE n.tenant = 42";
    assert_eq!(rows(&alice, joined).await, [["of 42", "Iceland"]]);
    rows(
        &alice,
        "INSERT INTO orders VALUES (42, 2, 'new') ON CONFLICT (tenant, id) DO UPDATE SET note = 'old'",
    )
    .await;
    rows(&alice, "UPDATE orders SET note = 'mine' WHERE tenant = 42 AND id = 2").await;
    assert_eq!(rows(&alice, "SELECT 1 FROM orders WHERE tenant = NULL").await, [[""; 0]; 0]);
    for (sql, words) in [
        ("SELECT note FROM orders WHERE tenant = 43", "alice may not read orders of key 43"),
        ("SELECT note FROM orders WHERE tenant IN (42, 43)", "alice may not read orders of"),
        ("SELECT count(*) FROM orders", "alice may not read orders of every key"),
        ("SELECT note FROM orders WHERE tenant = 42 OR id = 1", "of every key"),
        ("SELECT note FROM orders WHERE tenant < 43", "of every key"),
        ("UPDATE orders SET note = 'x' WHERE tenant = 43", "alice may not write orders of key 43"),
        ("SET polyshard.strict = off; DELETE FROM orders", "alice may not write orders of every key"),
        ("INSERT INTO orders VALUES (42, 3, 'x'), (43, 3, 'x')", "of key 43"),
        ("SELECT o.note FROM orders o, notes n WHERE o.tenant = 42 AND n.tenant = 43", "of key 43"),
        ("SELECT (SELECT note FROM orders WHERE tenant = 44) FROM notes WHERE tenant = 42", "of key 44"),
        ("INSERT INTO countries VALUES ('fr', 'France')", "alice may not write countries"),
        ("TRUNCATE orders", "alice may not write orders"),
        ("COPY orders FROM STDIN", "alice may not write orders of every key"),
        ("COPY orders TO STDOUT", "alice may not read orders of every key"),
        ("INSERT INTO orders VALUES (42, 1, 'x') ON CONFLICT (id) DO UPDATE SET note = 'x'", "ON CONFLICT"),
        ("EXPLAIN SELECT note FROM orders WHERE tenant = 43", "of key 43"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM orders", "of every key"),
        ("SET polyshard.shard = 's1'; SELECT note FROM orders", "of every key"),
    ] {
        not_allowed(&alice, sql, words).await;
    }
    rows(&alice, "RESET polyshard.shard").await;
    // In the extended protocol the key comes with the values.
    let statement = alice.prepare("SELECT note FROM orders WHERE tenant = $1 AND id = $2").await.unwrap();
    let row = alice.query_one(&statement, &[&42_i64, &1_i64]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "of 42");
    let refused = alice.query(&statement, &[&43_i64, &1_i64]).await.unwrap_err();
    assert_eq!(refused.as_db_error().unwrap().message(), "alice may not read orders of key 43");
    // So does it with EXECUTE, and an argument can ask for nothing else.
    rows(&alice, "PREPARE by_key(bigint) AS SELECT note FROM orders WHERE tenant = $1 AND id = 1").await;
    assert_eq!(rows(&alice, "EXECUTE by_key(42)").await, [["of 42"]]);
    not_allowed(&alice, "EXECUTE by_key(43)", "of key 43").await;
    // A cursor on what is allowed.
    rows(&alice, "BEGIN").await;
    rows(&alice, "DECLARE mine CURSOR FOR SELECT id FROM orders WHERE tenant = 42 ORDER BY id").await;
    assert_eq!(rows(&alice, "FETCH ALL FROM mine").await, [["1"], ["2"]]);
    rows(&alice, "COMMIT").await;
    let out =
        alice.copy_out("COPY (SELECT id FROM orders WHERE tenant = 42 ORDER BY id) TO STDOUT").await.unwrap();
    let parts: Vec<Bytes> = out.map(|part| part.unwrap()).collect().await;
    assert_eq!(parts.concat(), b"1\n2\n");

    // What is revoked is so for the next statement, prepared or not; what is granted too.
    put(cluster, "alice", &[on_keys(Right::Read, GrantedKeys::Range(Some(json!(43)), Some(json!(45))))])
        .await;
    let refused = alice.query(&statement, &[&42_i64, &1_i64]).await.unwrap_err();
    assert_eq!(refused.as_db_error().unwrap().message(), "alice may not read orders of key 42");
    for (tenant, there) in [(42_i64, false), (43, true), (44, true), (45, false)] {
        let read = alice.query(&statement, &[&tenant, &1_i64]).await;
        assert_eq!(read.is_ok(), there, "{tenant}");
    }
    not_allowed(&alice, "UPDATE orders SET note = 'x' WHERE tenant = 43", "may not write orders of key 43")
        .await;
    put(cluster, "alice", &[one, everywhere(Right::Read)]).await;
    assert_eq!(rows(&alice, "SELECT count(*) FROM orders").await, [["7"]]);
    rows(&alice, "UPDATE orders SET note = 'again' WHERE tenant = 42 AND id = 2").await;
    not_allowed(&alice, "UPDATE orders SET note = 'x' WHERE tenant = 43", "may not write orders of key 43")
        .await;
    rows(&alice, "DECLARE held CURSOR WITH HOLD FOR SELECT id FROM orders WHERE tenant = 42").await;
    assert_eq!(rows(&alice, "FETCH 1 FROM held").await.len(), 1);
    assert!(cluster.driver.catalog().remove_user(USER_STORE, "alice").await.unwrap());
    cluster.router.refresh().await.unwrap();
    assert_eq!(refusal(&alice, "SELECT 1 FROM countries").await.0, "28000");
    assert_eq!(refusal(&alice, "FETCH 1 FROM held").await.0, "28000");
    let string = cluster.connect_string().replace("user=polyshard", "user=alice");
    let outside = tokio_postgres::connect(&string, NoTls).await.err().unwrap();
    assert_eq!(outside.as_db_error().unwrap().code().code(), "28P01");
    // Another of the same name is not the one who was removed.
    put(cluster, "alice", &[everywhere(Right::Admin)]).await;
    assert_eq!(refusal(&alice, "SELECT 1 FROM countries").await.0, "28000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_may_do_what_was_granted_on_tables_and_no_more() {
    let cluster = Cluster::with_tables().await;
    by_table(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_may_do_what_was_granted_on_tables_and_no_more_on_sqlite_shards() {
    let cluster = files_with_tables().await;
    by_table(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_some_keys_reaches_no_other_key() {
    let cluster = Cluster::with_tables().await;
    by_key(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_some_keys_reaches_no_other_key_on_sqlite_shards() {
    let cluster = files_with_tables().await;
    by_key(&cluster).await;
    cluster.close().await;
}

/// Ways around: what a shard would answer if it were asked.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_way_around_rights_by_what_shards_know() {
    let cluster = Cluster::with_tables().await;
    fill(&cluster).await;
    let owner = connect(&cluster, "polyshard").await;
    rows(
        &owner,
        "CREATE FUNCTION peek(t bigint) RETURNS text LANGUAGE sql STABLE AS 'SELECT note FROM orders WHERE tenant = t'",
    )
    .await;
    put(&cluster, "alice", &[on_keys(Right::Write, GrantedKeys::Key(json!(42)))]).await;
    let alice = connect(&cluster, "alice").await;
    for sql in [
        "SELECT query_to_xml('SELECT * FROM orders', true, true, '')",
        "SELECT table_to_xml('orders', true, true, '')",
        "SELECT * FROM pg_stats WHERE tablename = 'orders'",
        "SELECT query FROM pg_stat_activity",
        "SELECT pg_read_file('/etc/hostname')",
        "SELECT peek(43) FROM orders WHERE tenant = 42",
        "SELECT set_config('role', 'postgres', true), 1",
        "SET ROLE postgres",
        "SET SESSION AUTHORIZATION postgres",
        "DO $$ BEGIN PERFORM 1; END $$",
        "VACUUM",
        "COPY orders TO '/tmp/orders'",
        "UPDATE pg_settings SET setting = 'off' WHERE name = 'synchronous_commit'",
        "WITH set AS (UPDATE pg_catalog.pg_settings SET setting = 'off' WHERE name = 'synchronous_commit' RETURNING 1) \
         SELECT * FROM set",
        "DELETE FROM pg_proc",
        "SELECT count(*) FROM orders TABLESAMPLE bernoulli (\
         query_to_xml('SELECT * FROM orders', true, true, '')::text::float4) WHERE tenant = 42",
        "SELECT 1 FROM orders TABLESAMPLE bernoulli ((SELECT id FROM orders WHERE tenant = 43)) WHERE tenant = 42",
        "SET search_path = polyshard, public; SELECT * FROM countries",
    ] {
        let (code, message) = refusal(&alice, sql).await;
        assert!(code == "42501" || code == "0A000", "{sql}: {code} {message}");
    }
    rows(&alice, "RESET search_path").await;
    rows(&alice, "PREPARE echo(text) AS SELECT $1").await;
    not_allowed(
        &alice,
        "EXECUTE echo(query_to_xml('SELECT * FROM orders', true, true, '')::text)",
        "query_to_xml",
    )
    .await;
    // The stores' own tables, also behind the name of one's own temporary table.
    assert_eq!(refusal(&alice, "SELECT * FROM polyshard.dataset").await.0, "42P01");
    rows(&alice, "BEGIN").await;
    rows(&alice, "CREATE TEMP TABLE dataset ON COMMIT DROP AS SELECT id FROM orders WHERE tenant = 42").await;
    assert_eq!(rows(&alice, "SELECT count(*) FROM dataset").await, [["1"]]);
    assert_eq!(refusal(&alice, "SELECT * FROM polyshard.dataset").await.0, "42P01");
    rows(&alice, "ROLLBACK").await;
    // Which table a name means is the shard's to say: not another than the temporary one.
    let made = |table: &str| format!("CREATE TEMP TABLE {table} (x int) ON COMMIT DROP");
    for (steps, last) in [
        (vec![made("entity")], "SET LOCAL search_path = polyshard, pg_temp"),
        (vec!["SET LOCAL search_path = public, pg_temp".to_owned(), made("mine")], "SELECT * FROM mine"),
        (
            vec!["SAVEPOINT a".to_owned(), made("dataset"), "ROLLBACK TO a".to_owned()],
            "SELECT * FROM dataset",
        ),
        (
            vec![],
            "CREATE TEMP TABLE t (x text DEFAULT query_to_xml('SELECT 1', true, true, '')) ON COMMIT DROP",
        ),
        (vec![], "LOCK TABLE pg_class IN ACCESS EXCLUSIVE MODE"),
    ] {
        rows(&alice, "BEGIN").await;
        for step in steps {
            rows(&alice, &step).await;
        }
        let (code, message) = refusal(&alice, last).await;
        assert!(code == "42501" || code == "42P01", "{last}: {code} {message}");
        rows(&alice, "ROLLBACK").await;
    }
    rows(&alice, "BEGIN; CREATE TEMP TABLE mine (x int DEFAULT 7) ON COMMIT DROP").await;
    rows(&alice, "INSERT INTO mine DEFAULT VALUES; SAVEPOINT a; ROLLBACK TO a").await;
    assert_eq!(rows(&alice, "SELECT x FROM mine").await, [["7"]]);
    rows(&alice, "ROLLBACK").await;
    // Other tables refer to one that may be emptied.
    put(&cluster, "bob", &[on_table(Right::Write, "countries")]).await;
    let bob = connect(&cluster, "bob").await;
    not_allowed(&bob, "TRUNCATE countries CASCADE", "bob may not write").await;
    // What everything is allowed to do with settings stays in that session.
    rows(&owner, "UPDATE pg_settings SET setting = '12345' WHERE name = 'lock_timeout'").await;
    for _ in 0..3 {
        assert_eq!(rows(&connect(&cluster, "polyshard").await, "SHOW lock_timeout").await, [["0"]]);
    }
    // What tools ask about tables is answered.
    let described = "SELECT relname FROM pg_catalog.pg_class WHERE relname = 'orders' AND relkind = 'r'";
    assert_eq!(rows(&alice, described).await, [["orders"]]);
    let (done, said) = cluster.program("psql", &["-U", "alice", "-c", "\\d orders"]).await;
    assert!(done && said.contains("note"), "{said}");
    drop((alice, bob, owner));
    cluster.close().await;
}

/// Of a newer process beside this one: nobody comes in, and the account is not without limits for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_cannot_be_read_may_do_nothing() {
    let cluster = Cluster::with_tables().await;
    let change = |_| Ok::<_, CatalogError>(json!({"format": USER_FORMAT + 1, "beyond": true}));
    cluster.driver.catalog().put_user(USER_STORE, "newer", change).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let users = cluster.host.users();
    let asked = AccessCheck { right: Right::Read, store: &OTHER, table: Some("t"), map: None, keys: None };
    assert!(users.account("newer").is_some_and(|rights| rights.check(&asked).is_err()));
    assert!(users.user("newer").is_some_and(|user| user.scram.is_none()));
    cluster.close().await;
}

/// As PostgreSQL's own words have it, where they mean the same.
#[tokio::test(flavor = "multi_thread")]
async fn users_are_made_by_sql_too() {
    let cluster = Cluster::with_tables().await;
    let owner = connect(&cluster, "polyshard").await;
    rows(&owner, "CREATE USER maria PASSWORD 'a password'").await;
    assert_eq!(refusal(&owner, "CREATE USER maria PASSWORD 'a password'").await.0, "42710");
    assert_eq!(refusal(&owner, "CREATE USER polyshard PASSWORD 'a password'").await.0, "42710");
    assert_eq!(refusal(&owner, "CREATE ROLE boss SUPERUSER").await.0, "0A000");
    assert_eq!(refusal(&owner, "BEGIN; DROP USER maria").await.0, "25001");
    rows(&owner, "ROLLBACK").await;
    let maria = connect(&cluster, "maria").await;
    assert_eq!(rows(&maria, "SELECT current_user;").await, [["maria"]]);
    assert_eq!(maria.query_one("select session_user", &[]).await.unwrap().get::<_, String>(0), "maria");
    assert_eq!(rows(&owner, "SELECT USER").await, [["polyshard"]]);
    not_allowed(&maria, "SELECT * FROM countries", "maria may not read countries").await;
    not_allowed(&maria, "ALTER USER maria PASSWORD 'another one'", "may not make or change users").await;
    rows(&owner, "ALTER USER maria PASSWORD 'another one'").await;
    let string = cluster.connect_string().replace("user=polyshard", "user=maria");
    assert!(tokio_postgres::connect(&string, NoTls).await.is_err());
    let other = string.replace(&format!("'{PASSWORD}'"), "'another one'");
    assert!(tokio_postgres::connect(&other, NoTls).await.is_ok());
    rows(&owner, "DROP USER maria").await;
    rows(&owner, "DROP USER IF EXISTS maria").await;
    assert_eq!(refusal(&owner, "DROP USER maria").await.0, "42704");
    assert_eq!(refusal(&maria, "SELECT * FROM countries").await.0, "28000");
    // No shard has heard of any of it, least of all of a password.
    assert_eq!(cluster.on_shard("s1", "SELECT count(*) FROM pg_roles WHERE rolname = 'maria'"), "0");
    drop((owner, maria));
    cluster.close().await;
}

/// Rows come by COPY too, where the right is on a whole table.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_write_a_table_may_load_it() {
    let cluster = Cluster::with_tables().await;
    fill(&cluster).await;
    put(&cluster, "loader", &[on_table(Right::Write, "orders")]).await;
    let loader = connect(&cluster, "loader").await;
    let sink = loader.copy_in("COPY orders FROM STDIN").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    sink.send(Bytes::from_static(b"50\t1\tloaded\n51\t1\tloaded\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 2);
    assert_eq!(rows(&loader, "SELECT count(*) FROM orders WHERE note = 'loaded'").await, [["2"]]);
    drop(loader);
    cluster.close().await;
}
