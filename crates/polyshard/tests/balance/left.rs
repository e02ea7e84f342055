//! Old rows that a move has left behind on a shard which was away when they were to be cleaned up.

use polyshard_testkit::process::Server;

use crate::fleet::Fleet;
use crate::sql::sql;
use crate::support::{await_quiet, eventually, run, running};

/// Moves the tenants 1 and 2 of a fleet from `a` to `b`, with `a` detached before it is cleaned; has clients write
/// meanwhile, and brings `a` back.
pub fn leave_old_rows(fleet: &Fleet, server: &Server, meanwhile: &str) {
    run(server, "move tenants --range 1..3 --to b --keep 1h").ok();
    let kept = eventually("the move keeps its old rows", || {
        running(server).into_iter().find(|one| one["step"] == "keeping")
    });
    run(server, "shard detach a").ok();
    run(server, &format!("ops clean {}", kept["id"].as_str().expect("an id"))).ok();
    await_quiet(server);
    sql(server, meanwhile);
    run(server, &format!("shard attach a --url {}", fleet.url(0, "a"))).ok();
}
