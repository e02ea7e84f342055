//! Repairs that are stopped in the middle and begun again, old rows that an operator decides on, and rows that were
//! there before their dataset was known (E4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use polyshard_catalog::{ChangeRequest, Failpoint, Step};
use polyshard_engine::Statement;
use polyshard_map::{Change, Key, NewEntry};
use polyshard_mover::{Mover, OldRows, Repair, Repaired};
use polyshard_shard::OpId;
use uuid::Uuid;

use crate::cluster::{Cluster, Setup, buckets, dataset, keys, map, request, shard, tenants};
use crate::gates::filled;
use crate::place::Place;
use crate::strays::{APPLY, LOOK, family, misplaced, moving_tenants, repair, run};

on_both_engines!(
    a_repair_that_is_stopped_anywhere_loses_nothing_and_brings_nothing_back,
    what_was_taken_is_known_wherever_its_range_goes_and_forgotten_when_it_is_gone,
    a_repair_that_has_paused_is_refused_when_another_has_begun,
    old_rows_are_carried_or_removed_when_an_operator_says_so,
    a_dataset_that_has_rows_in_a_moving_range_is_bound_when_the_move_is_over,
    rows_of_a_dataset_that_only_the_target_knows_stop_a_move_before_it_begins,
);

/// A repair that is stopped when it comes to a place for the nth time, as a kill would.
async fn stopped(cluster: &Cluster, at: &'static str, nth: usize) {
    let passed = Arc::new(AtomicUsize::new(0));
    let failpoint: Failpoint =
        Arc::new(move |here| here == at && passed.fetch_add(1, Ordering::SeqCst) + 1 == nth);
    let mover = Mover::new(cluster.router.shard_source()).failing(Some(failpoint));
    let record = cluster.catalog.map(&map("customers")).await.unwrap();
    let entries = cluster.catalog.entries(&map("customers")).await.unwrap();
    let mark = OpId::new(Uuid::new_v4());
    let ended = mover
        .repair(&record.definition, (&entries, &[], &cluster.shards().await), &shard("s1"), APPLY, mark)
        .await;
    assert!(ended.unwrap_err().to_string().contains(at), "it comes to {at} {nth} times");
}

/// Accounts and entries of a customer on a shard: the note, and the ids and amounts of entries.
async fn there(cluster: &Cluster, on: &str, customer: i64) -> (Vec<String>, Vec<(i64, i64)>) {
    let sql = format!("SELECT note FROM account WHERE customer = {customer}");
    let notes = cluster.rows(on, |_| sql.clone()).await;
    let sql = format!("SELECT id, CAST(amount AS bigint) FROM entry WHERE customer = {customer} ORDER BY id");
    let entries = cluster.rows(on, |_| sql.clone()).await;
    (
        notes.iter().map(|row| row.text(0).unwrap().to_owned()).collect(),
        entries.iter().map(|row| (row.int(0).unwrap(), row.int(1).unwrap())).collect(),
    )
}

async fn with_customers(place: &Arc<Place>) -> Cluster {
    let cluster = Cluster::with_maps(place, Setup::default()).await;
    for on in ["s1", "s2", "s3"] {
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        opened.ensure_tables().await.unwrap();
        for name in ["account", "entry"] {
            opened.bind(&dataset(opened.dialect(), name)).await.unwrap();
        }
    }
    cluster
}

async fn a_repair_that_is_stopped_anywhere_loses_nothing_and_brings_nothing_back(place: Arc<Place>) {
    let cluster = with_customers(&place).await;
    let sql = |text: &str| vec![Statement::new(text.to_owned())];
    let words = |note: &str| vec![note.to_owned()];

    // Before anything was carried.
    run(&cluster, "s1", family(110, "mine", 3)).await;
    stopped(&cluster, "repair_hide.after", 1).await;
    assert_eq!(there(&cluster, "s1", 110).await, (words("mine"), vec![(0, 0), (1, 0), (2, 0)]));

    // The account has come to its owner, whose client changes it.
    stopped(&cluster, "repair_put.after", 1).await;
    run(&cluster, "s2", sql("UPDATE account SET note = 'changed' WHERE customer = 110")).await;

    // The entries have come, too, and a client deletes one and changes another.
    stopped(&cluster, "repair_put.after", 1).await;
    let delete = "DELETE FROM entry WHERE customer = 110 AND id = 0";
    run(&cluster, "s2", sql(delete)).await;
    run(&cluster, "s2", sql("UPDATE entry SET amount = '7' WHERE customer = 110 AND id = 1")).await;
    let done = repair(&cluster, "customers", "s1", APPLY).await;
    assert_eq!(done["account"], Repaired { moved: 1, ..Repaired::default() });
    assert_eq!(done["entry"], Repaired { moved: 3, ..Repaired::default() });
    let expected = (words("changed"), vec![(1, 7), (2, 0)]);
    assert_eq!(there(&cluster, "s2", 110).await, expected, "what was deleted there is not back");
    assert_eq!(there(&cluster, "s1", 110).await, (vec![], vec![]));
    cluster.assert_healthy().await;

    // Everything is removed, and nobody has said so at the owner: what comes later is another row, and is carried.
    run(&cluster, "s1", family(120, "mine", 2)).await;
    stopped(&cluster, "repair_remove.after", 1).await;
    run(&cluster, "s2", sql("DELETE FROM entry WHERE customer = 120 AND id = 0")).await;
    let insert = "INSERT INTO entry (customer, account, id, amount) VALUES (120, 1, 0, '5')";
    run(&cluster, "s1", sql(insert)).await;
    stopped(&cluster, "repair_remove.after", 2).await;
    repair(&cluster, "customers", "s1", APPLY).await;
    assert_eq!(there(&cluster, "s2", 120).await, (words("mine"), vec![(0, 5), (1, 0)]));
    assert_eq!(there(&cluster, "s1", 120).await, (vec![], vec![]));

    // An account that its client has deleted meanwhile takes the entries' place with it: they stay, and are not lost.
    run(&cluster, "s1", family(130, "mine", 1)).await;
    stopped(&cluster, "repair_put.after", 1).await;
    run(&cluster, "s2", sql("DELETE FROM account WHERE customer = 130")).await;
    let done = repair(&cluster, "customers", "s1", APPLY).await;
    assert_eq!((done["account"].stuck, done["entry"].stuck), (1, 1), "{done:?}");
    assert_eq!(there(&cluster, "s2", 130).await, (vec![], vec![]), "what was deleted there is not back");
    assert_eq!(there(&cluster, "s1", 130).await, (words("mine"), vec![(0, 0)]));
    run(&cluster, "s1", sql("DELETE FROM entry WHERE customer = 130")).await;
    assert_eq!(repair(&cluster, "customers", "s1", APPLY).await["account"].moved, 1);
    assert_eq!(there(&cluster, "s1", 130).await, (vec![], vec![]));
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// How many rows a shard has noted as taken.
async fn noted(cluster: &Cluster, on: &str) -> i64 {
    let count = |dialect: polyshard_engine::Dialect| {
        format!("SELECT count(*) FROM {} WHERE tab <> ''", dialect.own_table("taken"))
    };
    cluster.rows(on, count).await[0].int(0).unwrap()
}

async fn what_was_taken_is_known_wherever_its_range_goes_and_forgotten_when_it_is_gone(place: Arc<Place>) {
    let cluster = with_customers(&place).await;
    let mine = || (vec!["mine".to_owned()], vec![]);
    let none = || (vec![], vec![]);

    // Its owner's client deletes it, and the range goes on to another: that one has no note of it.
    run(&cluster, "s1", family(110, "mine", 0)).await;
    stopped(&cluster, "repair_put.after", 1).await;
    run(&cluster, "s2", vec![Statement::new("DELETE FROM account WHERE customer = 110")]).await;
    cluster.moves("customers", keys(100, 200), "s3").await.unwrap();
    assert_eq!(repair(&cluster, "customers", "s1", LOOK).await["account"].moved, 1);
    assert_eq!(repair(&cluster, "customers", "s1", APPLY).await["account"].moved, 1);
    for on in ["s1", "s2", "s3"] {
        assert_eq!(there(&cluster, on, 110).await, none(), "{on}: what was deleted there is not back");
        assert_eq!(noted(&cluster, on).await, 0, "{on}");
    }

    // It is removed, and nobody has said so: there is nothing left to do but that.
    run(&cluster, "s1", family(120, "mine", 0)).await;
    stopped(&cluster, "repair_remove.after", 1).await;
    assert_eq!((there(&cluster, "s1", 120).await, noted(&cluster, "s3").await), (none(), 1));
    assert_eq!(repair(&cluster, "customers", "s1", APPLY).await, Default::default());
    assert_eq!((there(&cluster, "s3", 120).await, noted(&cluster, "s3").await), (mine(), 0));

    // The shard gets it back by right, and then it is the only one.
    run(&cluster, "s1", family(130, "mine", 0)).await;
    stopped(&cluster, "repair_remove.after", 1).await;
    cluster.moves("customers", keys(100, 200), "s1").await.unwrap();
    cluster.driver.detach_shard(&shard("s1")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let change = Change::Add { entries: vec![NewEntry::new(keys(100, 200), shard("s3"))] };
    let add = ChangeRequest { map: map("customers"), change, if_version: None, by: None };
    cluster.driver.change(&add).await.unwrap();
    cluster.attach("s1").await;
    assert_eq!(noted(&cluster, "s3").await, 1);
    for how in [LOOK, APPLY] {
        let done = repair(&cluster, "customers", "s1", how).await;
        assert_eq!(done["account"], Repaired { old: 2, ..Repaired::default() });
    }
    assert_eq!(there(&cluster, "s1", 130).await, mine(), "the only one");
    cluster.close().await;
}

async fn a_repair_that_has_paused_is_refused_when_another_has_begun(place: Arc<Place>) {
    let cluster = with_customers(&place).await;
    run(&cluster, "s1", family(110, "mine", 0)).await;
    let (arrived, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (at_gate, opened) = (arrived.clone(), Arc::downgrade(&goes_on));
    let failpoint: Failpoint = Arc::new(move |here| {
        if here == "repair_put.before" {
            at_gate.store(true, Ordering::SeqCst);
            // A test that fails drops the gate, and so opens it.
            tokio::task::block_in_place(|| {
                while opened.upgrade().is_some_and(|opened| !opened.load(Ordering::SeqCst)) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        false
    });
    let mover = Mover::new(cluster.router.shard_source()).failing(Some(failpoint));
    let record = cluster.catalog.map(&map("customers")).await.unwrap();
    let entries = cluster.catalog.entries(&map("customers")).await.unwrap();
    let shards = cluster.shards().await;
    let paused = tokio::spawn(async move {
        let mark = OpId::new(Uuid::new_v4());
        mover.repair(&record.definition, (&entries, &[], &shards), &shard("s1"), APPLY, mark).await
    });
    let wait = async {
        while !arrived.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    // Another one does it all, and a client deletes the row.
    assert_eq!(repair(&cluster, "customers", "s1", APPLY).await["account"].moved, 1);
    run(&cluster, "s2", vec![Statement::new("DELETE FROM account WHERE customer = 110")]).await;
    goes_on.store(true, Ordering::SeqCst);
    let refused = paused.await.unwrap().unwrap_err().to_string();
    assert!(refused.contains("taken over by another process"), "{refused}");
    for on in ["s1", "s2"] {
        assert_eq!(there(&cluster, on, 110).await, (vec![], vec![]), "{on}: what was deleted is not back");
    }
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn old_rows_are_carried_or_removed_when_an_operator_says_so(place: Arc<Place>) {
    let (cluster, world, []) = filled(&place, 20, []).await;
    let rows = 2 * moving_tenants(20).len() as u64;
    // Another shard has the range, and nobody knows whether it has ever had the rows.
    let give_away = async |to: &str| {
        cluster.driver.detach_shard(&shard("s1")).await.unwrap();
        cluster.router.refresh().await.unwrap();
        let entries = vec![NewEntry::new(buckets(0, 4), shard(to))];
        let change = Change::Add { entries };
        let add = ChangeRequest { map: map("tenants"), change, if_version: None, by: None };
        cluster.driver.change(&add).await.unwrap();
        cluster.attach("s1").await;
    };
    give_away("s2").await;
    let looked = repair(&cluster, "tenants", "s1", LOOK).await.remove("thing").unwrap();
    assert_eq!((looked.old, looked.left()), (rows, rows));
    let mover = Mover::new(cluster.router.shard_source());
    let entries = cluster.catalog.entries(&map("tenants")).await.unwrap();
    let mark = OpId::new(Uuid::new_v4());
    let found = mover
        .repair(&tenants(), (&entries, &[], &cluster.shards().await), &shard("s1"), LOOK, mark)
        .await
        .unwrap();
    assert!(found["thing"].examples.len() > 1, "some are named: {found:?}");
    let with = |old, dry_run| Repair { dry_run, owner_wins: false, old };
    let moved = Repaired { moved: rows, ..Repaired::default() };
    let discarded = Repaired { discarded: rows, ..Repaired::default() };
    assert_eq!(repair(&cluster, "tenants", "s1", with(OldRows::Remove, true)).await["thing"], discarded);
    assert_eq!(repair(&cluster, "tenants", "s1", with(OldRows::Carry, true)).await["thing"], moved);
    assert_eq!(misplaced(&cluster, "tenants", "s1").await, (rows, 0), "it was only looked at");
    assert_eq!(repair(&cluster, "tenants", "s1", with(OldRows::Carry, false)).await["thing"], moved);
    world.assert_found(&cluster).await;
    cluster.assert_healthy().await;

    // The same again with what s1 has got back; this time they go.
    cluster.moves("tenants", buckets(0, 4), "s1").await.unwrap();
    give_away("s3").await;
    assert_eq!(repair(&cluster, "tenants", "s1", with(OldRows::Remove, false)).await["thing"], discarded);
    for on in ["s1", "s3"] {
        assert_eq!(count_moving(&cluster, on, 1).await, 0, "{on}");
    }
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// How many rows of a dataset a shard has in the range that moves.
async fn count_moving(cluster: &Cluster, on: &str, dataset: i64) -> i64 {
    let rows = cluster
        .rows(on, |dialect| {
            let end =
                if dialect == polyshard_engine::Dialect::Sqlite { "x'00000004'" } else { "'\\x00000004'" };
            let table = dialect.own_table("thing");
            format!("SELECT count(*) FROM {table} WHERE dataset = {dataset} AND placement < {end}")
        })
        .await;
    rows[0].int(0).unwrap()
}

/// A row of the second dataset in the range that moves, put on a shard past everything.
async fn leave_behind(cluster: &Cluster, on: &str) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    opened.ensure_tables().await.unwrap();
    let tenant = moving_tenants(20)[0];
    let placement = tenants().placement(&Key::BigInt(tenant)).unwrap().into_vec();
    let sql = format!(
        "INSERT INTO {} (dataset, tenant, id, placement, n, body) VALUES (2, $1, 1, $2, 0, 'left behind')",
        opened.dialect().own_table("thing")
    );
    run(cluster, on, vec![Statement::new(sql).bind(tenant).bind(placement)]).await;
}

async fn forget_behind(cluster: &Cluster, on: &str) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let sql = format!("DELETE FROM {} WHERE dataset = 2", opened.dialect().own_table("thing"));
    run(cluster, on, vec![Statement::new(sql)]).await;
}

async fn a_dataset_that_has_rows_in_a_moving_range_is_bound_when_the_move_is_over(place: Arc<Place>) {
    let (cluster, world, [fencing]) = filled(&place, 20, ["record_fencing.before"]).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    // On the source nobody has noted the row, on the target it would be taken for one that was carried.
    for on in ["s1", "s2"] {
        leave_behind(&cluster, on).await;
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        let other = dataset(opened.dialect(), "other");
        let refused = opened.bind(&other).await.unwrap_err().to_string();
        assert!(refused.contains("from before it was bound"), "{on}: {refused}");
        let known = opened.datasets(&map("tenants")).await.unwrap();
        assert!(known.iter().all(|known| known.name != "other"), "{on}: {known:?}");
    }
    // Without the row of the source it can be bound there; the mover finds that of the target, and gives up.
    forget_behind(&cluster, "s1").await;
    let source = cluster.router.administer(&shard("s1")).await.unwrap();
    source.bind(&dataset(source.dialect(), "other")).await.unwrap();
    leave_behind(&cluster, "s1").await;
    fencing.store(false, Ordering::SeqCst);
    let why = cluster.end_of(record.op.id).await.unwrap_err();
    assert!(why.contains("from before it was bound"), "{why}");
    assert_eq!(count_moving(&cluster, "s2", 2).await, 1, "it is not the move's to clear away");
    assert_eq!(count_moving(&cluster, "s1", 2).await, 1, "nor is this one lost");
    forget_behind(&cluster, "s2").await;
    cluster.moves("tenants", buckets(0, 4), "s2").await.unwrap();
    assert_eq!((count_moving(&cluster, "s1", 2).await, count_moving(&cluster, "s2", 2).await), (0, 1));
    forget_behind(&cluster, "s2").await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

async fn rows_of_a_dataset_that_only_the_target_knows_stop_a_move_before_it_begins(place: Arc<Place>) {
    let (cluster, world, []) = filled(&place, 20, []).await;
    leave_behind(&cluster, "s2").await;
    let opened = cluster.router.administer(&shard("s2")).await.unwrap();
    opened.bind(&dataset(opened.dialect(), "other")).await.unwrap();
    let mover = Mover::new(cluster.router.shard_source());
    let looked = mover.preflight(&tenants(), &buckets(0, 4), &shard("s1"), &shard("s2")).await;
    let why = looked.unwrap_err().to_string();
    assert!(why.contains("rows of other in the range already"), "{why}");
    let why = cluster.moves("tenants", buckets(0, 4), "s2").await.unwrap_err();
    assert!(why.contains("rows of other in the range already"), "{why}");
    assert_eq!(count_moving(&cluster, "s2", 2).await, 1, "it is not the move's to clear away");
    forget_behind(&cluster, "s2").await;
    cluster.moves("tenants", buckets(0, 4), "s2").await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}
