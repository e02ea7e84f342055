//! Procedures on real databases: what they make and undo, what they heed, who may steer them, and what the checker's
//! repairs do (D1, D3, D8, E4).

#![recursion_limit = "256"]

mod bed;
mod check;
mod found;

use std::time::Duration;

use bed::{Bed, carry, keys, map, new_shard, range_map, shard};
use polyshard_catalog::{CatalogError, MoveRequest, OnBehalf, OpState, PROCEDURES_KEPT, Wish};
use polyshard_planner::Rule;
use polyshard_shard::OpId;
use polyshard_workflow::{Columns, Procedure, Task};
use uuid::Uuid;

fn add(name: &str, url: &str) -> Task {
    Task::AddShard { shard: shard(name), url: url.to_owned(), region: None, tier: None }
}

fn remove(name: &str) -> Task {
    Task::RemoveShard { shard: shard(name) }
}

/// Keys that may not be on any shard there is.
async fn pin(bed: &Bed) {
    let rule = Rule::Region { range: keys(0, 10), region: "moon".to_owned() };
    bed.catalog.add_rule(&map("tenants"), &rule.write()).await.unwrap();
}

async fn has_shard(bed: &Bed, name: &str) -> bool {
    bed.catalog.shards().await.unwrap().iter().any(|record| record.id == shard(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_made_after_a_plan_stops_its_moves_with_the_reason() {
    let bed = Bed::start().await;
    bed.on("s1", "INSERT INTO orders VALUES (5, 1, 'a'), (50, 1, 'b')").await;
    pin(&bed).await;
    let id = bed.begin(Procedure::new(vec![carry(keys(40, 60), "s2"), carry(keys(0, 10), "s2")])).await;
    let ended = bed.end_of(id).await;
    assert_eq!(ended.state, OpState::RolledBack);
    let why = ended.message.unwrap();
    assert!(why.contains("stays in region moon"), "{why}");
    assert_eq!((bed.count("s1", "orders").await, bed.count("s2", "orders").await), (1, 1));
    // So does a shard that was taken out of use.
    let patch = polyshard_catalog::ShardPatch {
        state: Some(polyshard_map::State::ReadOnly),
        ..polyshard_catalog::ShardPatch::default()
    };
    bed.driver.patch_shard(&shard("s1"), patch, None).await.unwrap();
    let id = bed.begin(Procedure::new(vec![carry(keys(40, 60), "s1")])).await;
    let why = bed.end_of(id).await.message.unwrap();
    assert!(why.contains("shard s1 is read_only"), "{why}");
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undoing_takes_away_what_the_procedure_made_and_nothing_else_of_that_name() {
    let bed = Bed::start().await;
    pin(&bed).await;
    let forbidden = || carry(keys(0, 10), "s2");
    // Its own goes.
    let id = bed.begin(Procedure::new(vec![add("s7", "s7"), forbidden()]).or_else(vec![remove("s7")])).await;
    assert_eq!(bed.end_of(id).await.state, OpState::RolledBack);
    assert!(!has_shard(&bed, "s7").await);
    // An operator's stays: at another address it is in the way, at the same it is what was wanted.
    bed.add_shard("s8", "s8").await;
    for url in ["elsewhere", "s8"] {
        let tasks = vec![add("s8", url), forbidden()];
        let id = bed.begin(Procedure::new(tasks).or_else(vec![remove("s8")])).await;
        assert_eq!(bed.end_of(id).await.state, OpState::RolledBack);
        assert!(has_shard(&bed, "s8").await, "{url}");
    }
    // The same for maps.
    let whole = polyshard_map::KeyRange::all();
    bed.create_map("others", &[(whole, "s1")]).await;
    for (name, is_there) in [("others", true), ("fresh", false)] {
        let create = Task::CreateMap {
            definition: Box::new(range_map(name)),
            shard: shard("s1"),
            columns: Columns::default(),
        };
        let undo = vec![Task::DropMap { map: map(name) }];
        let id = bed.begin(Procedure::new(vec![create, forbidden()]).or_else(undo)).await;
        assert_eq!(bed.end_of(id).await.state, OpState::RolledBack);
        assert_eq!(bed.catalog.map(&map(name)).await.is_ok(), is_there, "{name}");
    }
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_was_replaced_by_another_of_its_name_is_not_removed() {
    let bed = Bed::start().await;
    pin(&bed).await;
    // The procedure has made s7; then somebody took it away and made one himself, while it was paused.
    bed.gate.close("copy.before");
    let tasks = vec![add("s7", "s7"), carry(keys(40, 60), "s2"), carry(keys(0, 10), "s2")];
    let id = bed.begin(Procedure::new(tasks).or_else(vec![remove("s7")])).await;
    bed.move_of(id).await;
    bed.driver.remove_shard(&shard("s7"), false).await.unwrap();
    bed.router.refresh().await.unwrap();
    let new = new_shard("s7", "another");
    let opened = bed.router.open_candidate(&new.candidate()).await.unwrap();
    let record = bed.driver.add_shard(new, &opened).await.unwrap();
    bed.router.adopt(record, opened).await;
    bed.gate.open();
    assert_eq!(bed.end_of(id).await.state, OpState::RolledBack);
    assert!(has_shard(&bed, "s7").await);
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_paused_by_its_own_name_stays_paused() {
    let bed = Bed::start().await;
    bed.on("s1", "INSERT INTO orders VALUES (50, 1, 'b')").await;
    bed.gate.close("copy.before");
    let id = bed.begin(Procedure::new(vec![carry(keys(40, 60), "s2")])).await;
    let inner = bed.move_of(id).await;
    bed.driver.wish_for(inner, Wish::Pause).await.unwrap();
    bed.hold_until_heard().await;
    bed.gate.open();
    bed.rounds(5).await;
    assert_eq!(bed.status(inner).await.unwrap().wish, Wish::Pause);
    // What the procedure was asked for, it takes back itself, and only that.
    bed.driver.wish_for(inner, Wish::Run).await.unwrap();
    bed.catalog.wish_for_procedure(id, Wish::Pause).await.unwrap_or_else(|error| {
        assert!(matches!(error, CatalogError::Invalid(_)), "{error}");
    });
    bed.catalog.wish_for_procedure(id, Wish::Run).await.unwrap_or_else(|error| {
        assert!(matches!(error, CatalogError::Invalid(_)), "{error}");
    });
    assert_eq!(bed.end_of(id).await.state, OpState::Done);
    assert_eq!(bed.count("s2", "orders").await, 1);
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_procedure_that_is_paused_pauses_its_move_and_resumes_it() {
    let bed = Bed::start().await;
    bed.gate.close("copy.before");
    let id = bed.begin(Procedure::new(vec![carry(keys(40, 60), "s2")])).await;
    let inner = bed.move_of(id).await;
    bed.catalog.wish_for_procedure(id, Wish::Pause).await.unwrap();
    let paused = async {
        while bed.status(inner).await.is_none_or(|status| status.wish != Wish::Pause) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(bed::PATIENCE, paused).await.unwrap();
    bed.hold_until_heard().await;
    bed.gate.open();
    bed.rounds(3).await;
    assert_eq!(bed.status(inner).await.unwrap().wish, Wish::Pause);
    bed.catalog.wish_for_procedure(id, Wish::Run).await.unwrap();
    assert_eq!(bed.end_of(id).await.state, OpState::Done);
    bed.close().await;
}

/// The process that began a move for a procedure has died before anything else; another cancels it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_after_a_takeover_finds_the_move_that_was_begun() {
    let bed = Bed::start().await;
    bed.on("s1", "INSERT INTO orders VALUES (50, 1, 'b')").await;
    bed.gate.close("copy.before");
    let noted = OpId::new(Uuid::new_v4());
    let mut body = Procedure::new(vec![carry(keys(40, 60), "s2")]);
    body.note_operation(Some(noted));
    let dead = bed.catalog.begin_procedure("test", None, body.write(), "1 of 1").await.unwrap();
    let request = MoveRequest {
        map: map("tenants"),
        range: keys(40, 60),
        to: shard("s2"),
        keep_ms: 0,
        if_version: None,
        by: None,
    };
    let behalf = OnBehalf { id: noted, procedure: dead.id, token: dead.token };
    let begun = bed.driver.start_planned_move(&request, None, behalf).await.unwrap();
    assert_eq!(begun.op.id, noted);
    bed.catalog.wish_for_procedure(dead.id, Wish::Cancel).await.unwrap();
    bed.until(dead.id, |record| record.token > dead.token).await;
    bed.gate.open();
    let ended = bed.end_of(dead.id).await;
    assert_eq!(
        (ended.state, ended.message.as_deref()),
        (OpState::RolledBack, Some("cancelled by an operator"))
    );
    assert_eq!(bed.catalog.operation(noted).await.unwrap().state, OpState::RolledBack, "it ended first");
    assert_eq!((bed.count("s1", "orders").await, bed.count("s2", "orders").await), (1, 0));
    // If it was only asleep, it begins nothing more in the procedure's name.
    let late = OnBehalf { id: OpId::new(Uuid::new_v4()), ..behalf };
    let refused = bed.driver.start_planned_move(&request, None, late).await.unwrap_err();
    assert!(matches!(refused, CatalogError::Superseded(_)), "{refused}");
    assert!(bed.catalog.running().await.unwrap().is_empty());
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_procedures_are_forgotten_beyond_a_number() {
    let bed = Bed::start().await;
    // Nobody shall take the one that is kept over, and end it.
    bed.procedures.stop().await;
    let body = Procedure::new(vec![]).write();
    let running = bed.catalog.begin_procedure("kept", None, body.clone(), "").await.unwrap();
    for _ in 0..PROCEDURES_KEPT + 5 {
        let mut record = bed.catalog.begin_procedure("test", None, body.clone(), "").await.unwrap();
        record.state = OpState::Done;
        bed.catalog.save_procedure(&record).await.unwrap();
    }
    let last = bed.catalog.begin_procedure("test", None, body, "").await.unwrap();
    let all = bed.catalog.procedures(10 * PROCEDURES_KEPT).await.unwrap();
    let known = |id: OpId| all.iter().any(|record| record.id == id);
    assert!(known(last.id) && known(running.id), "those under way are not forgotten");
    let ended = all.iter().filter(|record| record.kind == "test" && record.state != OpState::Running).count();
    assert_eq!(ended, PROCEDURES_KEPT as usize);
    bed.close().await;
}
