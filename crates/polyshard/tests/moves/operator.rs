//! D1, D2: what an operator sees and says of a move: what it would carry, how far it is, how it ended; and splits and
//! merges around it, while callers write and read.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::support::{eventually, refused, run};

/// The tenants that move.
const MOVING: std::ops::Range<i64> = 5..15;
const MOVE: &str = "move tenants --range 5..15 --to";

#[test]
fn what_a_move_would_carry_how_far_it_is_and_how_it_ended_is_said() {
    let cluster = Cluster::embedded();
    let (source, target) = (cluster.source(), cluster.target());
    let server = cluster.process(0);
    let looked = run(server, &format!("{MOVE} {target} --dry-run")).ok();
    // Ten tenants with eight entries and a counter each.
    for said in ["rows", "bytes", "90", "It can be done", "compare"] {
        assert!(looked.contains(said), "{said}: {looked}");
    }
    assert_eq!(cluster.owner(5), source, "a dry run changes nothing");

    // Held before it compares: everything is copied, and how far it is can be seen.
    cluster.hold("verify.before");
    let operation = cluster.begin(&format!("{MOVE} {target}"));
    cluster.await_held("verify.before");
    run(server, &format!("ops pause {operation}")).ok();
    // A wish is looked for when so much time has passed since the last look: longer than that.
    std::thread::sleep(Duration::from_millis(300));
    cluster.let_go();
    let shown = eventually("the move waits", || {
        let shown = cluster.operation(&operation)?;
        (shown["progress"]["paused"] == true && shown["progress"]["copied_rows"] == 90).then_some(shown)
    });
    assert_eq!((&shown["state"], &shown["step"]), (&"running".into(), &"catching_up".into()), "{shown}");
    assert_eq!(shown["progress"]["total_rows"], 90, "{shown}");
    assert!(shown["progress"]["copied_bytes"].as_u64().is_some_and(|bytes| bytes > 90), "{shown}");
    let bar = run(server, &format!("ops pause {operation}")).ok();
    assert!(bar.contains("[####################] 90/90 rows") && bar.contains("paused"), "{bar}");
    let words = run(server, &format!("ops show {operation}")).ok();
    for said in ["90 of 90 rows", "lag", "pause", "compared", "left"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    // A second one of the same range is told to wait.
    let error = refused(server, &format!("move tenants --range 14..16 --to {target}"), 5);
    assert!(error["message"].as_str().is_some_and(|words| words.contains(&operation[..8])), "{error}");
    // Whoever waits for one that is cancelled learns it from the exit code.
    let line = format!("ops follow {operation}");
    let followed = std::thread::scope(|scope| {
        let follower = scope.spawn(|| run(server, &line));
        run(server, &format!("ops cancel {operation}")).ok();
        follower.join().expect("it ends")
    });
    assert_eq!(followed.code, Some(4), "{followed:?}");
    assert!(followed.stderr.contains("cancelled by an operator"), "{followed:?}");
    assert_eq!(cluster.owner(5), source);

    // Past its point of no return it can be undone, and not cancelled.
    let done = run(server, &format!("{MOVE} {target} --wait")).ok();
    assert!(done.contains("move"), "{done}");
    assert_eq!(cluster.owner(5), target);
    // However short it was, all of it is told when it has ended.
    run(server, &format!("{MOVE} {source} --wait")).ok();
    let operation = cluster.begin(&format!("{MOVE} {target}"));
    let ended = cluster.ended(&operation);
    for rows in ["total_rows", "copied_rows", "verified_rows", "cleaned_rows"] {
        assert_eq!(ended["progress"][rows], 90, "{rows}: {ended}");
    }
    assert!(ended["progress"]["pause_ms"].is_u64(), "{ended}");
    let listed = run(server, "ops list").ok();
    let line = listed.lines().find(|line| line.contains(&operation[..8]));
    assert!(line.is_some_and(|line| line.contains("100 %")), "{listed}");
    let operation = cluster.begin(&format!("{MOVE} {source} --keep 1h"));
    eventually("the move keeps its old rows", || {
        cluster.operation(&operation).filter(|shown| shown["step"] == "keeping")
    });
    let error = refused(server, &format!("ops cancel {operation}"), 4);
    assert!(error["message"].as_str().is_some_and(|words| words.contains("point of no return")), "{error}");
    // Progress is told a moment after the step.
    eventually("it is said how long requests were held", || {
        cluster.operation(&operation).filter(|shown| shown["progress"]["pause_ms"].is_u64())
    });
    run(server, &format!("ops clean {operation}")).ok();
    run(server, &format!("ops follow {operation}")).ok();
    cluster.assert_whole();
}

#[test]
fn a_range_is_split_moved_in_part_and_merged_again_while_callers_write() {
    let cluster = Cluster::embedded();
    let (source, target) = (cluster.source(), cluster.target());
    let writers = cluster.writers(&[0]);
    cluster.ledger.until_written(MOVING, 10);
    let server = cluster.process(0);
    let both = || {
        let counters = cluster.sql(&["SELECT count(*), count(DISTINCT tenant) FROM counter"]);
        assert_eq!(counters[0][0], counters[0][1], "each counter once");
        let parts = cluster.sql(&["SELECT tenant / 10, count(*) FROM counter GROUP BY 1 ORDER BY 1"]);
        assert!(parts.iter().all(|part| part[1] == "10"), "{parts:?}");
    };
    run(server, "map split tenants --at 5").ok();
    run(server, "map split tenants --at 15").ok();
    both();
    run(server, &format!("{MOVE} {target} --wait")).ok();
    both();
    // What is on two shards is not merged.
    refused(server, "map merge tenants --at 5", 4);
    cluster.ledger.until_written(MOVING, 10);
    run(server, &format!("{MOVE} {source} --wait")).ok();
    run(server, "map merge tenants --at 5").ok();
    run(server, "map merge tenants --at 15").ok();
    both();
    cluster.ledger.until_written(MOVING, 10);
    writers.stop();
    assert_eq!(cluster.ledger.errors_of(0), Vec::<String>::new());
    cluster.assert_whole();
}
