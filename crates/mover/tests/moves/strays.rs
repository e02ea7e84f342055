//! Rows on shards that do not own them: hidden, carried to their owner, removed where that has them, and never lost
//! (B4, E4).

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_catalog::{ChangeRequest, MoveRequest, Step, Wish};
use polyshard_engine::Statement;
use polyshard_map::{Change, Key, NewEntry};
use polyshard_mover::{Mover, OldRows, Repair, Repaired};
use polyshard_shard::{Dataset, OpId, Placement, StrayKind};
use uuid::Uuid;

use crate::cluster::{Cluster, Setup, buckets, dataset, map, request, shard, tenants};
use crate::gates::filled;
use crate::place::Place;

on_both_engines!(
    what_a_move_left_on_a_shard_that_was_detached_is_hidden_when_it_is_attached,
    rows_are_carried_to_their_owner_or_removed_if_it_has_them,
    rows_of_a_move_under_way_are_left_to_it,
    rows_that_refer_to_each_other_go_together_or_stay_together,
    what_a_shard_had_before_another_got_its_range_is_kept_whoever_wins,
);

pub const LOOK: Repair = Repair { dry_run: true, owner_wins: false, old: OldRows::Leave };
pub const APPLY: Repair = Repair { dry_run: false, ..LOOK };
pub const OWNER_WINS: Repair = Repair { owner_wins: true, ..APPLY };

/// Puts rows of a map right that a shard does not own; what was done, by dataset, but for examples.
pub async fn repair(cluster: &Cluster, name: &str, on: &str, how: Repair) -> BTreeMap<String, Repaired> {
    let mover = Mover::new(cluster.router.shard_source());
    let record = cluster.catalog.map(&map(name)).await.unwrap();
    let entries = cluster.catalog.entries(&map(name)).await.unwrap();
    let busy = cluster.driver.busy(&map(name)).await.unwrap();
    let mark = OpId::new(Uuid::new_v4());
    let mut done = mover
        .repair(&record.definition, (&entries, &busy, &cluster.shards().await), &shard(on), how, mark)
        .await
        .unwrap();
    done.values_mut().for_each(|of| of.examples.clear());
    done.retain(|_, of| *of != Repaired::default());
    done
}

pub async fn misplaced(cluster: &Cluster, name: &str, on: &str) -> (u64, u64) {
    let mover = Mover::new(cluster.router.shard_source());
    let record = cluster.catalog.map(&map(name)).await.unwrap();
    let entries = cluster.catalog.entries(&map(name)).await.unwrap();
    let busy = cluster.driver.busy(&map(name)).await.unwrap();
    let found = mover.misplaced(&record.definition, &entries, &busy, &shard(on)).await.unwrap();
    found.iter().fold((0, 0), |(rows, moving), one| (rows + one.rows, moving + one.moving))
}

/// Runs statements on a shard, past everything.
pub async fn run(cluster: &Cluster, on: &str, statements: Vec<Statement>) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let mut tx = opened.control_transaction().await.unwrap();
    tx.run_all(statements).await.unwrap();
    tx.commit().await.unwrap();
}

pub fn moving_tenants(upto: i64) -> Vec<i64> {
    let inside =
        |tenant: &i64| buckets(0, 4).contains(tenants().placement(&Key::BigInt(*tenant)).unwrap().as_slice());
    (0..upto).filter(inside).collect()
}

async fn what_a_move_left_on_a_shard_that_was_detached_is_hidden_when_it_is_attached(place: Arc<Place>) {
    let (cluster, world, []) = filled(&place, 20, []).await;
    let moved = moving_tenants(20);
    let [changed, deleted] = [moved[0], moved[1]];
    let keep = MoveRequest { keep_ms: 600_000, ..request("tenants", buckets(0, 4), "s2") };
    let record = cluster.start(keep).await.unwrap();
    cluster.until_step(record.op.id, Step::Keeping).await;
    cluster.driver.detach_shard(&shard("s1")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.driver.wish_for(record.op.id, Wish::Clean).await.unwrap();
    cluster.end_of(record.op.id).await.unwrap();
    // Life goes on where the range is now.
    world.change(&cluster, ("thing", changed, 0)).await;
    world.delete(&cluster, ("thing", deleted, 0)).await;
    cluster.attach("s1").await;

    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    let strays = opened.strays(&map("tenants")).await.unwrap();
    assert_eq!(strays, [(StrayKind::Left, buckets(0, 4))], "whoever reads all shards leaves them out");
    let rows = 2 * moved.len() as u64;
    assert_eq!(misplaced(&cluster, "tenants", "s1").await, (rows, 0));
    // They are in the way of a move back, and are put right as far as it can be decided.
    let refused = cluster.moves("tenants", buckets(0, 4), "s1").await.unwrap_err();
    assert!(refused.contains("polyshard check"), "{refused}");
    let expected = Repaired { removed: rows - 2, differs: 1, old: 1, ..Repaired::default() };
    let expected = BTreeMap::from([("thing".to_owned(), expected)]);
    assert_eq!(repair(&cluster, "tenants", "s1", LOOK).await, expected);
    assert_eq!(misplaced(&cluster, "tenants", "s1").await, (rows, 0), "it was only looked at");
    assert_eq!(repair(&cluster, "tenants", "s1", APPLY).await, expected);
    assert_eq!(misplaced(&cluster, "tenants", "s1").await, (2, 0));
    assert_eq!(opened.strays(&map("tenants")).await.unwrap(), strays, "what is left stays hidden");
    let expected = Repaired { discarded: 2, ..Repaired::default() };
    assert_eq!(repair(&cluster, "tenants", "s1", OWNER_WINS).await["thing"], expected);
    assert_eq!(repair(&cluster, "tenants", "s1", APPLY).await, BTreeMap::new());
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.moves("tenants", buckets(0, 4), "s1").await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

/// An account of a customer, and its entries, put where they do not belong.
pub fn family(customer: i64, note: &str, entries: i64) -> Vec<Statement> {
    let account = "INSERT INTO account (customer, id, note) VALUES ($1, 1, $2)";
    let entry = "INSERT INTO entry (customer, account, id, amount) VALUES ($1, 1, $2, 0)";
    let mut all = vec![Statement::new(account).bind(customer).bind(note.to_owned())];
    all.extend((0..entries).map(|id| Statement::new(entry).bind(customer).bind(id)));
    all
}

async fn rows_are_carried_to_their_owner_or_removed_if_it_has_them(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    for on in ["s1", "s2", "s3"] {
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        opened.ensure_tables().await.unwrap();
        for name in ["account", "entry"] {
            opened.bind(&dataset(opened.dialect(), name)).await.unwrap();
        }
    }
    // All on s1, which owns the customers up to 100; 500 is nobody's.
    run(&cluster, "s1", family(7, "its own", 2)).await;
    run(&cluster, "s1", family(110, "only here", 3)).await;
    run(&cluster, "s1", family(210, "there, too", 2)).await;
    run(&cluster, "s3", family(210, "there, too", 2)).await;
    run(&cluster, "s1", family(220, "otherwise", 1)).await;
    run(&cluster, "s3", family(220, "there", 1)).await;
    run(&cluster, "s1", family(500, "nobody's", 1)).await;
    let of = |moved, removed, differs, homeless| Repaired {
        moved,
        removed,
        differs,
        homeless,
        ..Repaired::default()
    };
    let expected =
        BTreeMap::from([("account".to_owned(), of(1, 1, 1, 1)), ("entry".to_owned(), of(3, 3, 0, 1))]);
    assert_eq!(repair(&cluster, "customers", "s1", LOOK).await, expected);
    assert_eq!(repair(&cluster, "customers", "s1", APPLY).await, expected);
    let all = |on: &'static str| {
        let cluster = &cluster;
        async move {
            let sql = "SELECT a.customer, a.note, count(e.id) FROM account a LEFT JOIN entry e \
                       ON e.customer = a.customer AND e.account = a.id GROUP BY 1, 2 ORDER BY 1";
            let rows = cluster.rows(on, |_| sql.to_owned()).await;
            let row = |row: &polyshard_engine::Row| {
                (row.int(0).unwrap(), row.text(1).unwrap().to_owned(), row.int(2).unwrap())
            };
            rows.iter().map(row).collect::<Vec<_>>()
        }
    };
    let row = |customer: i64, note: &str, entries: i64| (customer, note.to_owned(), entries);
    // The entry of 220 was the same on both; its account differs, and stays.
    assert_eq!(all("s1").await, [row(7, "its own", 2), row(220, "otherwise", 0), row(500, "nobody's", 1)]);
    assert_eq!(all("s2").await, [row(110, "only here", 3)]);
    assert_eq!(all("s3").await, [row(210, "there, too", 2), row(220, "there", 1)]);
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    let hidden = opened.strays(&map("customers")).await.unwrap();
    assert!(hidden.iter().all(|(kind, _)| *kind == StrayKind::Unknown) && hidden.len() >= 2, "{hidden:?}");

    // A process that died after a row had come to its owner, and before it was removed, is one that had it.
    run(&cluster, "s1", family(120, "twice", 1)).await;
    run(&cluster, "s2", family(120, "twice", 0)).await;
    run(&cluster, "s1", vec![Statement::new("DELETE FROM account WHERE customer = 500")]).await;
    let done = repair(&cluster, "customers", "s1", OWNER_WINS).await;
    let account = Repaired { removed: 1, discarded: 1, ..Repaired::default() };
    let entry = Repaired { moved: 1, ..Repaired::default() };
    assert_eq!(done, BTreeMap::from([("account".to_owned(), account), ("entry".to_owned(), entry)]));
    assert_eq!(all("s1").await, [row(7, "its own", 2)]);
    assert_eq!(all("s2").await, [row(110, "only here", 3), row(120, "twice", 1)]);
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn rows_of_a_move_under_way_are_left_to_it(place: Arc<Place>) {
    let (cluster, world, [cleaning]) = filled(&place, 20, ["clean.before"]).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::Cleaning).await;
    let rows = 2 * moving_tenants(20).len() as u64;
    assert_eq!(misplaced(&cluster, "tenants", "s1").await, (rows, rows));
    let expected = Repaired { moving: rows, ..Repaired::default() };
    assert_eq!(repair(&cluster, "tenants", "s1", OWNER_WINS).await["thing"], expected);
    // Also if nobody has said that there is a move: its capture does.
    let mover = Mover::new(cluster.router.shard_source());
    let entries = cluster.catalog.entries(&map("tenants")).await.unwrap();
    let mark = OpId::new(Uuid::new_v4());
    let refused = mover
        .repair(&tenants(), (&entries, &[], &cluster.shards().await), &shard("s1"), OWNER_WINS, mark)
        .await;
    assert!(refused.unwrap_err().to_string().contains("being moved"));
    cleaning.store(false, std::sync::atomic::Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    assert_eq!(repair(&cluster, "tenants", "s1", APPLY).await, BTreeMap::new());
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

/// A row that stays must not go along with the one that it refers to; and one that comes before it is carried, too.
async fn rows_that_refer_to_each_other_go_together_or_stay_together(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    for on in ["s1", "s2", "s3"] {
        let sql = "CREATE TABLE node (customer bigint NOT NULL, id bigint NOT NULL, parent bigint, note text, \
                   PRIMARY KEY (customer, id), \
                   FOREIGN KEY (customer, parent) REFERENCES node (customer, id) ON DELETE CASCADE)";
        run(&cluster, on, vec![Statement::new(sql)]).await;
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        let node = Dataset {
            name: "node".to_owned(),
            map: map("customers"),
            table: "node".to_owned(),
            placement: Placement::Key(vec!["customer".to_owned()]),
            rows: polyshard_shard::TableRows::All,
        };
        opened.bind(&node).await.unwrap();
    }
    // The child sorts before its parent.
    let nodes = |customer: i64, note: &str| {
        let parent = "INSERT INTO node (customer, id, note) VALUES ($1, 2, 'parent')";
        let child = "INSERT INTO node (customer, id, parent, note) VALUES ($1, 1, 2, $2)";
        vec![
            Statement::new(parent).bind(customer),
            Statement::new(child).bind(customer).bind(note.to_owned()),
        ]
    };
    run(&cluster, "s1", nodes(110, "only here")).await;
    run(&cluster, "s1", nodes(210, "otherwise")).await;
    run(&cluster, "s3", nodes(210, "there")).await;
    let all = |on: &'static str| {
        let cluster = &cluster;
        async move {
            let rows =
                cluster.rows(on, |_| "SELECT customer, note FROM node ORDER BY 1, id".to_owned()).await;
            let row = |row: &polyshard_engine::Row| (row.int(0).unwrap(), row.text(1).unwrap().to_owned());
            rows.iter().map(row).collect::<Vec<_>>()
        }
    };
    let row = |customer: i64, note: &str| (customer, note.to_owned());
    let expected = Repaired { moved: 2, stuck: 2, ..Repaired::default() };
    assert_eq!(repair(&cluster, "customers", "s1", LOOK).await["node"], expected);
    assert_eq!(repair(&cluster, "customers", "s1", APPLY).await["node"], expected);
    assert_eq!(all("s1").await, [row(210, "otherwise"), row(210, "parent")]);
    assert_eq!(all("s2").await, [row(110, "only here"), row(110, "parent")]);
    let expected = Repaired { removed: 1, discarded: 1, ..Repaired::default() };
    assert_eq!(repair(&cluster, "customers", "s1", OWNER_WINS).await["node"], expected);
    assert_eq!(all("s1").await, []);
    assert_eq!(all("s3").await, [row(210, "there"), row(210, "parent")]);
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// The other shard may never have had these rows.
async fn what_a_shard_had_before_another_got_its_range_is_kept_whoever_wins(place: Arc<Place>) {
    let (cluster, _, []) = filled(&place, 20, []).await;
    let rows = 2 * moving_tenants(20).len() as u64;
    cluster.driver.detach_shard(&shard("s1")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let entries = vec![NewEntry::new(buckets(0, 4), shard("s2"))];
    let add =
        ChangeRequest { map: map("tenants"), change: Change::Add { entries }, if_version: None, by: None };
    cluster.driver.change(&add).await.unwrap();
    cluster.attach("s1").await;
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    let strays = opened.strays(&map("tenants")).await.unwrap();
    assert_eq!(strays, [(StrayKind::Stale, buckets(0, 4))], "whoever reads all shards leaves them out");
    let expected = Repaired { old: rows, ..Repaired::default() };
    for how in [LOOK, APPLY, OWNER_WINS] {
        assert_eq!(repair(&cluster, "tenants", "s1", how).await["thing"], expected, "{how:?}");
        assert_eq!(misplaced(&cluster, "tenants", "s1").await, (rows, 0), "{how:?}");
    }
    // Another attachment does not make them any older.
    cluster.driver.detach_shard(&shard("s1")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.attach("s1").await;
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    assert_eq!(opened.strays(&map("tenants")).await.unwrap(), strays);
    cluster.close().await;
}
