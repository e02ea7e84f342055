//! D7: an archive removes what it has, and nothing of anybody else.

use polyshard_testkit::process::{Server, Setup};
use tempfile::TempDir;

use crate::archive::{filled, refusal, seen};
use crate::fleet::Fleet;
use crate::sql::sql;
use crate::support::{await_quiet, eventually, json, run, running, session};

/// Has a server wait before rows are deleted, until somebody lets go of it.
struct Holding {
    _folder: TempDir,
    hold: std::path::PathBuf,
}

impl Holding {
    fn at(place: &str) -> Holding {
        let folder = TempDir::with_prefix("polyshard-holds-").expect("a folder");
        let hold = folder.path().join(place);
        std::fs::write(&hold, "").expect("a file");
        Holding { _folder: folder, hold }
    }

    fn with(&self, setup: Setup) -> Setup {
        let folder = self.hold.parent().expect("a folder").display().to_string();
        setup.env("POLYSHARD_FAILPOINT_HOLD", &folder)
    }

    fn let_go(&self) {
        std::fs::remove_file(&self.hold).expect("held");
    }
}

fn state_of(server: &Server, archive: &str) -> String {
    json(server, &format!("archive show {archive}"))["state"].as_str().expect("a state").to_owned()
}

fn waits_for_deletion(server: &Server, archive: &str) {
    eventually("the archive to be written", || (state_of(server, archive) == "written").then_some(()));
}

#[test]
fn tables_that_are_declared_while_rows_are_deleted_keep_theirs() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let holding = Holding::at("task_drop_rows.before");
    let fleet = Fleet::start_with(1, &[("a", 0), ("b", 0)], &[("max_prepared_transactions", "8")]);
    let pg = &fleet.servers[0];
    let mut server = holding.with(fleet.setup()).start();
    filled(&server, "a");
    let before = seen(&server);
    sql(&server, "CREATE TABLE shipments (day date, id bigint, PRIMARY KEY (day, id))");
    sql(&server, "CREATE TABLE bills (day date, id bigint, PRIMARY KEY (day, id))");
    sql(&server, "INSERT INTO shipments VALUES ('2024-01-05', 1), ('2024-02-05', 2)");

    // What is prepared will be there once it is decided, and belongs into the archive.
    let prepared =
        "BEGIN; INSERT INTO orders VALUES ('2024-01-07', 9001, 'late'); PREPARE TRANSACTION 'someone';";
    pg.execute("a", prepared);
    let line = format!("archive run orders --range 2024-01-01..2024-02-01 --to {}", place.path().display());
    run(&server, &format!("{line} --name january")).ok();
    eventually("a word about what is prepared", || {
        running(&server)
            .iter()
            .any(|one| one.to_string().contains("prepared transaction someone"))
            .then_some(())
    });
    pg.execute("a", "COMMIT PREPARED 'someone'");
    waits_for_deletion(&server, "january");

    let why = refusal(&server, "SELECT polyshard.shard_table('shipments', 'orders', 'day')");
    assert!(why.contains("archive:january") && why.contains("has rows"), "{why}");
    sql(&server, "SELECT polyshard.shard_table('bills', 'orders', 'day')");
    pg.execute("a", "INSERT INTO bills VALUES ('2024-01-05', 1)");
    holding.let_go();
    await_quiet(&server);
    assert_eq!(state_of(&server, "january"), "archived");
    let left = "SELECT (SELECT count(*) FROM bills) || ' ' || (SELECT count(*) FROM orders WHERE day < '2024-02-01')";
    assert_eq!(pg.execute("a", left), "1 0");
    assert_eq!(sql(&server, "SELECT count(*) FROM shipments"), "2");

    run(&server, "archive restore january --wait").ok();
    assert_eq!(pg.execute("a", left), "1 601");
    sql(&server, "DELETE FROM orders WHERE day = '2024-01-07' AND id = 9001");
    assert_eq!(seen(&server), before);
    server.stop();
}

#[test]
fn what_somebody_let_go_of_by_force_is_restored() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let holding = Holding::at("task_drop_rows.before");
    let mut server = holding.with(Setup::new()).start();
    filled(&server, "s1");
    let before = seen(&server);
    let line = format!("archive run orders --range 2024-01-01..2024-02-01 --to {}", place.path().display());
    run(&server, &format!("{line} --name january")).ok();
    waits_for_deletion(&server, "january");
    run(&server, "map unlock orders --range 2024-01-01..2024-02-01 --force").ok();
    holding.let_go();
    await_quiet(&server);
    assert_eq!(state_of(&server, "january"), "written");
    run(&server, "archive restore january --wait").ok();
    assert_eq!((state_of(&server, "january"), seen(&server)), ("restored".to_owned(), before));
    server.stop();
}

#[test]
fn a_rule_finds_the_first_rows_however_long_ago_the_map_begins() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let mut server = Setup::new().start();
    session(&server, "map create logs --kind range --key date\nmap add logs --range '1990-01-01..' --to s1");
    sql(&server, "CREATE TABLE logs (day date, id bigint, PRIMARY KEY (day, id))");
    run(&server, "table shard logs --map logs --key day").ok();
    sql(&server, "INSERT INTO logs VALUES ('2024-01-05', 1)");
    sql(&server, "INSERT INTO logs VALUES ('2024-01-07', 1)");
    let to = place.path().display();
    run(&server, &format!("archive rule add logs --older-than 2months --by day --every day --to {to}")).ok();
    let archived = |name: &str| {
        let list = json(&server, "archive list")["archives"].clone();
        let mut all = list.as_array().expect("a list").iter();
        all.any(|one| one["name"] == name && one["state"] == "archived").then_some(())
    };
    eventually("both days in archives", || archived("logs-2024-01-05").and(archived("logs-2024-01-07")));
    await_quiet(&server);
    assert_eq!(sql(&server, "SELECT count(*) FROM logs"), "0");
    server.stop();
}

#[test]
#[ignore = "waits for the leases of a process that sleeps: make test-all"]
fn a_process_that_sleeps_in_the_middle_of_a_deletion_is_replaced_and_does_no_harm_when_it_wakes() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let pg = &fleet.servers[0];
    let (mut sleeper, mut other) = (fleet.setup().start(), fleet.setup().start());
    filled(&sleeper, "a");
    let before = seen(&sleeper);
    let february = sql(&sleeper, "SELECT count(*) FROM lines WHERE day >= '2024-02-01'");

    // Somebody holds a row that is to be deleted, so that the deletion stops in the middle of its transaction.
    let holder = pg.connect_string("a");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (held, is_held) = std::sync::mpsc::channel::<()>();
    let holding = std::thread::spawn(move || {
        crate::sql::block_on(async move {
            let (client, connection) =
                tokio_postgres::connect(&holder, tokio_postgres::NoTls).await.expect("a connection");
            let connection = tokio::spawn(connection);
            client
                .batch_execute("BEGIN; SELECT 1 FROM lines WHERE day = '2024-01-01' FOR UPDATE")
                .await
                .expect("rows are locked");
            held.send(()).expect("the test waits");
            // Also if the test has failed.
            let _over = tokio::task::spawn_blocking(move || released.recv()).await;
            client.batch_execute("ROLLBACK").await.expect("an end");
            drop(client);
            connection.await.expect("no panic").expect("an orderly end");
        });
    });
    is_held.recv().expect("rows are locked");
    let line = format!("archive run orders --range 2024-01-01..2024-02-01 --to {}", place.path().display());
    run(&sleeper, &format!("{line} --name january")).ok();
    eventually("a deletion that waits", || {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'DELETE%'";
        (pg.execute("a", waiting) == "1").then_some(())
    });
    sleeper.pause();
    release.send(()).expect("the holder waits");
    holding.join().expect("no panic");

    // The deletion is not committed, and holds what others need; another process ends that and goes on.
    eventually("the other process to end it", || (state_of(&other, "january") == "archived").then_some(()));
    await_quiet(&other);
    assert_eq!(sql(&other, "SELECT count(*) FROM lines"), february);
    run(&other, "archive restore january --to b --wait").ok();
    assert_eq!(seen(&other), before);
    sleeper.resume();
    eventually("the one that slept to see it", || {
        (json(&sleeper, "archive show january")["state"] == "restored").then_some(())
    });
    await_quiet(&sleeper);
    assert_eq!((seen(&sleeper), seen(&other)), (before.clone(), before));
    run(&other, "check orders").ok();
    sleeper.stop();
    other.stop();
}
