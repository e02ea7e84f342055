//! D2, D8: the offline procedure, killed at each of its steps: it ends by itself, and the range is online.

use std::os::unix::process::ExitStatusExt;

use polyshard_testkit::process::{Server, Setup};

use crate::sql::{load, rows, sql};
use crate::support::{await_quiet, json, refused, run, session, shard_of};

/// SIGABRT, by which a server ends itself at a failpoint.
const ABORTED: i32 = 6;

fn filled(server: &Server) {
    session(server, "map create tenants --kind range --key bigint\nmap add tenants --range '..' --to s1");
    sql(server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(server, "table shard orders --map tenants --key tenant").ok();
    load(server, "orders", rows(9, 50, ""));
}

fn state_of(server: &Server, key: &str) -> String {
    json(server, &format!("map locate tenants {key}"))["state"].as_str().expect("a state").to_owned()
}

#[test]
fn an_offline_move_ends_with_the_range_online_on_its_new_shard() {
    let mut server = Setup::new().start();
    filled(&server);
    let looked = run(&server, "move tenants --range 3..5 --to s2 --offline --dry-run").ok();
    assert!(looked.contains("take the range offline") && looked.contains("about 100 rows"), "{looked}");
    assert_eq!(state_of(&server, "3"), "online", "a dry run changes nothing");
    run(&server, "move tenants --range 3..5 --to s2 --offline --wait").ok();
    assert_eq!((shard_of(&server, "tenants", "3"), state_of(&server, "3")), ("s2".into(), "online".into()));
    run(&server, "move tenants --range 5..6 --to s3 --offline --read-only --wait").ok();
    assert_eq!((shard_of(&server, "tenants", "5"), state_of(&server, "5")), ("s3".into(), "online".into()));
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "450");
    // What is not online is no business of an offline move.
    run(&server, "map state tenants read_only --key 8").ok();
    let error = refused(&server, "move tenants --key 8 --to s2 --offline", 4);
    assert!(error["message"].as_str().expect("a message").contains("read_only"), "{error}");
    server.stop();
}

#[test]
fn an_offline_move_that_cannot_be_made_is_not_begun() {
    let mut server = Setup::new().start();
    filled(&server);
    let error = refused(&server, "move tenants --key 3 --to nowhere --offline", 3);
    assert!(error["message"].as_str().expect("a message").contains("nowhere"), "{error}");
    assert_eq!(state_of(&server, "3"), "online");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders WHERE tenant = 3"), "50");
    server.stop();
}

#[test]
#[ignore = "eight servers are killed and waited for: make test-all"]
fn killed_at_each_step_an_offline_move_goes_on_by_itself() {
    let places = [
        "task_set_state.before",
        "task_set_state.after",
        "task_move.before",
        "copy.after",
        "verify.after",
        "depart.after",
        "publish.after",
        "clean.before",
    ];
    let setup = Setup::new();
    let mut server = setup.start();
    filled(&server);
    server.stop();
    for (number, place) in places.into_iter().enumerate() {
        let key = number + 1;
        let mut server = setup.clone().env("POLYSHARD_FAILPOINT", place).start();
        let line = format!("move tenants --key {key} --to s2 --offline");
        // The answer may be lost with the server.
        let _asked = run(&server, &line);
        let ended = server.wait();
        assert_eq!(ended.signal(), Some(ABORTED), "{place}: {}", server.log().text());
        let mut server = setup.start();
        await_quiet(&server);
        let list = json(&server, "ops list")["operations"].to_string();
        let place_now = (shard_of(&server, "tenants", &key.to_string()), state_of(&server, &key.to_string()));
        assert_eq!(place_now, ("s2".to_owned(), "online".to_owned()), "{place}: {list}");
        assert_eq!(
            sql(&server, &format!("SELECT count(*) FROM orders WHERE tenant = {key}")),
            "50",
            "{place}"
        );
        server.stop();
    }
    let mut server = setup.start();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "450");
    run(&server, "check tenants").ok();
    server.stop();
}
