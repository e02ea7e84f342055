//! Several processes, one of them paused: what was made, dropped or made anew through another counts for it from the
//! moment when that was answered (B2, E7).

use std::thread;

use polyshard_testkit::process::Server;
use tokio_postgres::Client;

use crate::azure::Azure;
use crate::fleet::Fleet;
use crate::sql::{block_on, connect, sql};
use crate::support::run;

fn two() -> (Fleet, Server, Server) {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let first = fleet.setup().start();
    let second = fleet.setup().start();
    (fleet, first, second)
}

fn on(fleet: &Fleet, shard: &str, query: &str) -> String {
    fleet.servers[0].execute(shard, query).trim().to_owned()
}

/// Changes tables through one process while the other is paused, and sends that one statements before it goes on, by
/// sessions that it had before. Each is tried again until it is acknowledged: its sessions with shards were ended.
fn behind(first: &Server, second: &Server, changes: &[String], statements: &[String]) {
    block_on(async {
        let mut clients: Vec<Client> = Vec::new();
        for _ in statements {
            let client = connect(second.door("sql")).await;
            client.simple_query("SELECT count(*) FROM warm WHERE tenant = 1").await.unwrap();
            clients.push(client);
        }
        second.pause();
        let address = first.door("sql").to_owned();
        let changer = connect(&address).await;
        for change in changes {
            changer.simple_query(change).await.unwrap_or_else(|error| panic!("{change}: {error:?}"));
        }
        let sent = clients.iter().zip(statements).map(|(client, statement)| client.simple_query(statement));
        let go_on = async {
            // The statements are on their way by then; if not, they come later, and nothing else may come of it.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            second.resume();
        };
        let (answers, ()) = tokio::join!(futures_util::future::join_all(sent), go_on);
        for ((client, statement), mut answer) in clients.iter().zip(statements).zip(answers) {
            let mut tries = 0;
            while let Err(error) = answer {
                tries += 1;
                assert!(tries < 10, "{statement}: {error:?}");
                answer = match client.is_closed() {
                    true => connect(second.door("sql")).await.simple_query(statement).await,
                    false => client.simple_query(statement).await,
                };
            }
        }
    });
}

#[test]
fn statements_through_a_paused_process_find_tables_as_they_are_when_it_goes_on() {
    let (fleet, first, second) = two();
    sql(&first, "SELECT polyshard.create_map('tenants', 'hash', 'bigint')");
    sql(&first, "CREATE TABLE warm (tenant bigint PRIMARY KEY)");
    sql(&first, "SELECT polyshard.shard_table('warm', 'tenants', 'tenant')");
    for round in 0..3 {
        // A reference table: its row is on every shard.
        let table = format!("country{round}");
        behind(
            &first,
            &second,
            &[
                format!("CREATE TABLE {table} (code text PRIMARY KEY)"),
                format!("SELECT polyshard.reference_table('{table}')"),
            ],
            &[format!("INSERT INTO {table} VALUES ('no') ON CONFLICT DO NOTHING")],
        );
        for shard in ["a", "b"] {
            assert_eq!(
                on(&fleet, shard, &format!("SELECT count(*) FROM {table}")),
                "1",
                "{table} on {shard}"
            );
        }
        // A sharded table: each row is where its key is.
        let table = format!("orders{round}");
        let insert = |table: &str| -> Vec<String> {
            let insert = |tenant| format!("INSERT INTO {table} VALUES ({tenant}) ON CONFLICT DO NOTHING");
            (1..=6).map(insert).collect()
        };
        let made = |table: &str| {
            vec![
                format!("CREATE TABLE {table} (tenant bigint PRIMARY KEY)"),
                format!("SELECT polyshard.shard_table('{table}', 'tenants', 'tenant')"),
            ]
        };
        behind(&first, &second, &made(&table), &insert(&table));
        for tenant in 1..=6 {
            let found = sql(&first, &format!("SELECT count(*) FROM {table} WHERE tenant = {tenant}"));
            assert_eq!(found, "1", "{table} {tenant}");
        }
        // One that was sharded is made anew as a reference table.
        let mut anew = vec![format!("DROP TABLE {table}")];
        anew.push(format!("CREATE TABLE {table} (tenant bigint PRIMARY KEY)"));
        anew.push(format!("SELECT polyshard.reference_table('{table}')"));
        behind(&first, &second, &anew, &insert(&table));
        for shard in ["a", "b"] {
            assert_eq!(
                on(&fleet, shard, &format!("SELECT count(*) FROM {table}")),
                "6",
                "{table} on {shard}"
            );
        }
    }
    let checked = run(&first, "check");
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

/// What one process was told is done, the next statement through the other finds done, without any pause.
#[test]
fn a_change_that_was_answered_is_known_to_all() {
    let (fleet, first, second) = two();
    sql(&first, "SELECT polyshard.create_map('tenants', 'hash', 'bigint')");
    block_on(async {
        let (one, other) = (connect(first.door("sql")).await, connect(second.door("sql")).await);
        other.simple_query("SELECT 1").await.unwrap();
        for round in 0..15 {
            let (from, to) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
            from.simple_query("CREATE TABLE t (tenant bigint PRIMARY KEY)").await.unwrap();
            let placed = match round % 3 {
                0 => "SELECT polyshard.reference_table('t')",
                _ => "SELECT polyshard.shard_table('t', 'tenants', 'tenant')",
            };
            from.simple_query(placed).await.unwrap();
            for tenant in 1..=4 {
                to.simple_query(&format!("INSERT INTO t VALUES ({tenant})")).await.unwrap();
            }
            let of = |shard: &str| -> u32 { on(&fleet, shard, "SELECT count(*) FROM t").parse().unwrap() };
            let wanted = if round % 3 == 0 { 8 } else { 4 };
            assert_eq!(of("a") + of("b"), wanted, "round {round}");
            to.simple_query("DROP TABLE t").await.unwrap();
            let gone = from.simple_query("INSERT INTO t VALUES (1)").await.unwrap_err();
            assert_eq!(gone.code().map(|code| code.code()), Some("42P01"), "{gone:?}");
        }
    });
    let checked = run(&first, "check");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    // Tables that came and went are not in the way of a move off the shard.
    let drained = run(&first, "drain a --apply");
    assert_eq!(drained.code, Some(0), "{drained:?}");
    sql(&second, "CREATE TABLE last (tenant bigint PRIMARY KEY)");
    sql(&second, "SELECT polyshard.shard_table('last', 'tenants', 'tenant')");
    sql(&first, "INSERT INTO last VALUES (1), (2), (3), (4)");
    assert_eq!(on(&fleet, "b", "SELECT count(*) FROM last"), "4", "no range is left on the other");
}

/// What a user may not do any more when that was answered, he does not do by a process that was paused before.
#[test]
fn a_right_that_was_taken_is_gone_for_a_paused_process() {
    let (fleet, first, second) = two();
    sql(&first, "SELECT polyshard.create_map('tenants', 'hash', 'bigint')");
    sql(&first, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    sql(&first, "SELECT polyshard.shard_table('orders', 'tenants', 'tenant')");
    sql(&first, "CREATE TABLE country (code text PRIMARY KEY)");
    sql(&first, "SELECT polyshard.reference_table('country')");
    let grant = "user grant alice write --store sql";
    let statements = [
        "INSERT INTO orders VALUES (1, {round})",
        "INSERT INTO orders VALUES (1, {round}), (2, {round}), (3, {round}), (4, {round})",
        "SELECT count(*) FROM orders",
        "SELECT count(*) FROM orders WHERE tenant = 1",
        "INSERT INTO country VALUES ('{round}')",
    ];
    for (round, statement) in statements.iter().enumerate() {
        let statement = statement.replace("{round}", &round.to_string());
        sql(&first, "CREATE USER alice PASSWORD 'correct horse'");
        run(&first, grant).ok();
        let (prepared, failed) = block_on(async {
            let client = connect_as(second.door("sql"), "alice", "correct horse").await;
            client.simple_query("SET polyshard.multi_shard = 'two_phase'").await.unwrap();
            client.simple_query("SELECT count(*) FROM orders").await.unwrap();
            client.simple_query("SELECT count(*) FROM orders WHERE tenant = 1").await.unwrap();
            let prepared = client.prepare(&statement).await.unwrap();
            second.pause();
            // Either takes it from him.
            match round % 2 {
                0 => drop(connect(first.door("sql")).await.simple_query("DROP USER alice").await.unwrap()),
                _ => drop(run(&first, "user revoke alice write --store sql").ok()),
            }
            let sent = client.execute(&prepared, &[]);
            let resume = async {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                second.resume();
            };
            let (sent, ()) = tokio::join!(sent, resume);
            (format!("{sent:?}"), sent.is_err())
        });
        assert!(failed, "{statement}: {prepared}");
        for shard in ["a", "b"] {
            let left = format!("SELECT count(*) FROM orders WHERE id = {round}");
            assert_eq!(on(&fleet, shard, &left), "0", "{statement} on {shard}");
            assert_eq!(on(&fleet, shard, "SELECT count(*) FROM country"), "0", "{statement} on {shard}");
        }
        sql(&first, "DROP USER IF EXISTS alice");
    }
}

async fn connect_as(address: &str, user: &str, password: &str) -> Client {
    let address = address.rsplit('@').next().and_then(|rest| rest.split('/').next()).expect("an address");
    let (host, port) = address.split_once(':').expect("host and port");
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(port.parse().expect("a port"));
    config.user(user).password(password).dbname("polyshard");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.expect("the door lets in");
    tokio::spawn(async move {
        // It ends with the client.
        let _ended = connection.await;
    });
    client
}

#[test]
fn a_queue_that_was_deleted_takes_no_messages_anywhere() {
    let (_fleet, first, second) = two();
    let (mut one, other) = (azure(&first), azure(&second));
    let mut other = Some(other);
    let message = "<QueueMessage><MessageText>x</MessageText></QueueMessage>";
    let (queue, messages) = ("/devstoreaccount1/jobs", "/devstoreaccount1/jobs/messages");
    for round in 0..4 {
        assert_eq!(one.queue("PUT", queue, "", "").unwrap().status, 201);
        let mut caller = other.take().unwrap();
        assert_eq!(caller.queue("POST", messages, "", message).unwrap().status, 201, "round {round}");
        let paused = round % 2 == 0;
        if paused {
            second.pause();
        }
        assert_eq!(one.queue("DELETE", queue, "", "").unwrap().status, 204);
        let late = thread::spawn(move || {
            let put = caller.queue("POST", messages, "", message).unwrap();
            (caller, put.status)
        });
        if paused {
            second.resume();
        }
        let (mut caller, status) = late.join().unwrap();
        assert_eq!(status, 404, "round {round}: it was taken, and nobody will see it");
        // Made again, it is another one, and takes messages through every process.
        assert_eq!(one.queue("PUT", queue, "", "").unwrap().status, 201);
        assert_eq!(caller.queue("POST", messages, "", message).unwrap().status, 201, "round {round}");
        let seen = one.queue("GET", messages, "", "").unwrap();
        assert_eq!(seen.body.matches("<MessageText>").count(), 1, "{}", seen.body);
        assert_eq!(one.queue("DELETE", queue, "", "").unwrap().status, 204);
        other = Some(caller);
    }
}

fn azure(server: &Server) -> Azure {
    Azure::connect(server.door("queue")).expect("the door is open")
}
