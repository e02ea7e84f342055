//! Growing out of the embedded default: all shards are SQLite files, then PostgreSQL databases, and no caller notices.
//! D1, D2, G1.

use crate::azure::Azure;
use crate::cluster::Cluster;
use crate::fleet::Fleet;
use crate::support::{eventually, json, run};
use crate::writers::TENANTS;

/// The shards that the program makes by itself.
const FILES: [&str; 4] = ["s1", "s2", "s3", "s4"];

#[test]
#[ignore = "four shards are drained under callers: make test-all"]
fn a_cluster_grows_from_files_onto_postgresql_under_its_callers() {
    let cluster = Cluster::embedded();
    let fleet = Fleet::start(1, &[]);
    fleet.create(0, "big");
    let server = cluster.process(0);
    cluster.sql(&[
        "CREATE TABLE colour (name text PRIMARY KEY, rgb integer)",
        "SELECT polyshard.reference_table('colour')",
        "INSERT INTO colour VALUES ('red', 16711680), ('blue', 255)",
    ]);
    let writers = cluster.writers(&[0]);
    let (url, password) = (fleet.url(0, "big"), fleet.password_file("big"));
    run(server, &format!("shard add big --url {url} --password-file {}", password.display())).ok();
    cluster.ledger.until_written(0..TENANTS, 50);
    for file in FILES {
        run(server, &format!("drain {file} --apply")).ok();
        cluster.ledger.until_written(0..TENANTS, 50);
        run(server, &format!("shard remove {file}")).ok();
    }
    writers.stop();
    let errors = cluster.ledger.errors_of(0);
    assert!(errors.is_empty(), "no statement of a caller fails: {errors:?}");
    cluster.assert_whole();
    assert_eq!(json(server, "shard list")["shards"].as_array().map(Vec::len), Some(1));
    assert_eq!(fleet.servers[0].execute("big", "SELECT sum(rgb) FROM colour"), "16711935");
    assert_eq!(cluster.sql(&["SELECT count(*) FROM counter"])[0][0], TENANTS.to_string());
}

/// Files find entities by other keys than PostgreSQL does, which knows what has changed.
#[test]
fn entities_that_were_deleted_on_postgresql_are_gone_when_the_move_is_undone() {
    let cluster = Cluster::embedded();
    let fleet = Fleet::start(1, &[]);
    fleet.create(0, "big");
    let server = cluster.process(0);
    let (url, password) = (fleet.url(0, "big"), fleet.password_file("big"));
    run(server, &format!("shard add big --url {url} --password-file {}", password.display())).ok();
    cluster.open_stores();
    let mut azure = Azure::connect(server.door("table")).expect("the door is open");
    for id in 0..9 {
        assert_eq!(azure.put_entity(7, id).expect("an answer").status, 201);
    }
    let operation = cluster.begin("move tenants --range 5..15 --to big --keep 1h");
    eventually("the move keeps its old rows", || {
        cluster.operation(&operation).filter(|shown| shown["step"] == "keeping")
    });
    // One of a partition that stays, all of another, and a new one.
    for id in [0, 1, 4, 7] {
        assert_eq!(azure.delete_entity(7, id).expect("an answer").status, 204);
    }
    assert_eq!(azure.put_entity(7, 10).expect("an answer").status, 201);
    let undo = json(server, &format!("ops undo {operation}"));
    run(server, &format!("ops follow {}", undo["id"].as_str().expect("an id"))).ok();
    assert_eq!(cluster.owner(7), cluster.source());
    let mut left: Vec<i64> = azure.entities().expect("an answer").into_iter().map(|(_, id)| id).collect();
    left.sort_unstable();
    assert_eq!(left, [2, 3, 5, 6, 8, 10]);
    for id in left {
        assert_eq!(azure.delete_entity(7, id).expect("an answer").status, 204);
    }
    assert_eq!(azure.entities().expect("an answer"), []);
}
