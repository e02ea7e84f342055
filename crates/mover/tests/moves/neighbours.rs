//! What a move costs those whose rows stay on the shard that others leave (D3).

use std::sync::atomic::Ordering;

use polyshard_catalog::Step;
use polyshard_map::KeyRange;

use crate::cluster::{Cluster, buckets, request};
use crate::gates::filled;
use crate::place::Place;

/// What PostgreSQL says it does for a statement.
async fn explained(cluster: &Cluster, statement: &str) -> String {
    let lines = cluster.rows("s1", |_| format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}")).await;
    lines.iter().map(|line| line.text(0).unwrap()).collect::<Vec<_>>().join("\n")
}

/// Whether the rows that a statement changes are any: those of the step below it.
fn touches_rows(plan: &str) -> bool {
    plan.lines()
        .nth(1)
        .is_some_and(|below| below.contains("actual rows=") && !below.contains("actual rows=0 "))
}

fn hex(range: &KeyRange) -> String {
    format!("'\\x{}'", range.lo().to_hex())
}

/// The database decides by the condition of a trigger: no function is called for rows that do not move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_called_for_rows_that_stay() {
    let place = Place::server();
    let (cluster, _world, [gate]) = filled(&place, 40, ["verify.before"]).await;
    let record = cluster.start(request("tenants", buckets(0, 2), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    let changed = |condition: String| format!("UPDATE polyshard.thing SET n = n WHERE placement {condition}");
    let staying = hex(&buckets(2, 4));
    let plan = explained(&cluster, &changed(format!(">= {staying}"))).await;
    assert!(touches_rows(&plan) && !plan.contains("Trigger"), "{plan}");
    let plan = explained(&cluster, &changed(format!("< {staying}"))).await;
    assert!(plan.contains("Trigger polyshard_") && plan.contains("_u: calls="), "{plan}");
    let added = format!(
        "INSERT INTO polyshard.thing SELECT dataset, tenant, id + 1000000, placement, -7, body FROM polyshard.thing \
         WHERE placement >= {staying} LIMIT 1"
    );
    let deleted = format!("DELETE FROM polyshard.thing WHERE placement >= {staying} AND n = -7");
    for statement in [added, deleted] {
        let plan = explained(&cluster, &statement).await;
        assert!(touches_rows(&plan) && !plan.contains("Trigger"), "{plan}");
    }
    gate.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}
