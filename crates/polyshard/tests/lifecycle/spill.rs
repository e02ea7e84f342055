//! D6: new data flows to another shard when one is full, while it is written; reads look in both.

use polyshard_testkit::process::{Server, Setup};

use crate::fleet::Fleet;
use crate::sql::{Writer, sql};
use crate::support::{eventually, json, refused, run, session, shard_of};

fn filled(server: &Server, shard: &str) {
    session(server, "map create events --kind range --key bigint");
    run(server, &format!("map add events --range '..' --to {shard}")).ok();
    sql(server, "CREATE TABLE events (id bigint PRIMARY KEY, note text)");
    run(server, "table shard events --map events --key id").ok();
}

fn flows(server: &Server, [first, second, third]: [&str; 3]) {
    filled(server, first);
    let writer = Writer::start(server, "INSERT INTO events VALUES ($1, 'note')");
    let rows = || sql(server, "SELECT count(*) FROM events").parse::<u64>().expect("a number");
    eventually("some rows", || (rows() > 50).then_some(()));
    let spilled = json(server, &format!("map spill events --to {second}"));
    assert_eq!((&spilled["from"], &spilled["to"]), (&first.into(), &second.into()), "{spilled}");
    let from = spilled["range"]["from"].as_i64().expect("a number");
    eventually("rows on the other shard", || {
        (rows() > u64::try_from(from).expect("above 0") + 20).then_some(())
    });
    // By itself, when a shard is full: it always is, with so small a limit.
    run(server, &format!("shard set {second} --bytes-max 1")).ok();
    run(server, &format!("map spill events --auto --to {second},{third}")).ok();
    let far = i64::MAX.to_string();
    eventually("a range on the third shard", || (shard_of(server, "events", &far) == third).then_some(()));
    let entries = json(server, "map entries events")["entries"].clone();
    let begin = entries.as_array().and_then(|all| all.last()).expect("entries")["range"]["from"]
        .as_u64()
        .expect("a number");
    eventually("rows on the third shard", || (rows() > begin + 20).then_some(()));
    let written = writer.stop();
    assert_eq!(rows(), written, "each row that was acknowledged is seen once");
    assert_eq!(sql(server, "SELECT max(id) FROM events"), (written - 1).to_string());
    assert_eq!(shard_of(server, "events", "0"), first, "nothing was moved");
    run(server, "map spill events --no-auto").ok();
    run(server, "check events").ok();
    run(server, "map check events").ok();
}

#[test]
fn new_data_flows_to_the_next_shard_while_it_is_written() {
    let mut server = Setup::new().start();
    flows(&server, ["s1", "s2", "s3"]);
    session(&server, "map create tenants --kind list --key bigint\nmap add tenants --key 1 --to s1");
    let error = refused(&server, "map spill tenants", 1);
    assert!(error["message"].as_str().expect("a message").contains("no last range"), "{error}");
    server.stop();
}

#[test]
fn new_data_on_postgres_flows_to_the_next_shard_while_it_is_written() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0), ("c", 0)]);
    let mut server = fleet.setup().start();
    flows(&server, ["a", "b", "c"]);
    server.stop();
}
