//! One shard on both engines: its identity, its side of an operation, and what it tells sessions.

use polyshard_engine::{Access, Durable, Statement, Target, Value};
use polyshard_map::{
    Entry, Epoch, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId, State,
};
use polyshard_shard::{
    AckPhase, Dataset, Edit, FenceEpoch, FenceState, OpId, OpRef, Placement, Role, RouterId, Shard,
    ShardError, ShardOptions,
};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use uuid::Uuid;

/// Where the shard is; dropped last.
enum Place {
    File(tempfile::TempDir),
    Server(PgServer),
}

impl Place {
    fn target(&self) -> Target {
        match self {
            Place::File(folder) => Target::sqlite(folder.path().join("shard.db")),
            Place::Server(server) => Target::parse(&server.url("postgres")).unwrap(),
        }
    }
}

macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Place::File(tempfile::tempdir().unwrap())).await;
            })*
        }
        mod postgres {
            use polyshard_testkit::postgres::PgServer;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Place::Server(PgServer::start_with(super::quick()))).await;
            })*
        }
    };
}

on_both_engines!(
    a_shard_knows_who_it_is_and_refuses_to_be_another,
    a_shard_of_a_newer_format_is_left_alone,
    every_step_of_a_departure_may_be_repeated,
    a_driver_that_was_superseded_can_do_nothing_more,
    an_operation_undone_before_it_arrived_never_acts,
    a_fence_that_a_router_withdrew_from_cannot_depart,
    after_the_point_of_no_return_nothing_is_undone_or_withdrawn,
    an_operation_that_does_not_fit_the_local_map_is_refused_whole,
    a_session_is_told_of_every_departure_it_does_not_know,
    the_record_of_a_move_under_way_is_never_pruned,
    just_the_rows_of_the_ranges_that_move_are_noted,
    datasets_that_share_a_table_are_one_and_are_forgotten_when_they_are_gone,
);

fn quick() -> PgOptions {
    PgOptions { durability: Durability::NoFsync, ..PgOptions::default() }
}

const CLUSTER: Uuid = Uuid::from_u128(1);
const ROUTER: u32 = 9;

fn name(shard: &str) -> ShardId {
    ShardId::new(shard).unwrap()
}

fn definition() -> MapDefinition {
    MapDefinition::new(MapName::new("orders").unwrap(), KeyType::BigInt, Scheme::Range).unwrap()
}

fn keys(from: i64, to: i64) -> KeyRange {
    let bound = |number| KeyType::BigInt.encode_bound(&Key::BigInt(number)).unwrap();
    KeyRange::new(bound(from), Some(bound(to))).unwrap()
}

fn entry(range: KeyRange, epoch: u64) -> Entry {
    NewEntry::new(range, name("s1")).at(Epoch::new(epoch))
}

fn op(number: u64, token: u64) -> OpRef {
    // Locks are named by the first half of an id.
    let id = u128::from(number) << 96 | u128::from(number);
    OpRef { id: OpId::new(Uuid::from_u128(id)), epoch: Epoch::new(number), token }
}

fn gain(range: KeyRange, epoch: u64) -> Edit {
    let after = vec![entry(range, epoch)];
    Edit {
        definition: definition(),
        role: Role::Gain,
        before: vec![],
        after,
        lost: vec![],
        destroy: false,
        carried: None,
    }
}

fn lose(range: KeyRange, epoch: u64) -> Edit {
    let lost = vec![(range.clone(), Some(name("s2")), State::Online)];
    Edit {
        definition: definition(),
        role: Role::Lose,
        before: vec![entry(range, epoch)],
        after: vec![],
        lost,
        destroy: false,
        carried: None,
    }
}

async fn open(place: &Place, as_shard: &str) -> Shard {
    Shard::open(name(as_shard), place.target(), ShardOptions::default()).await.unwrap()
}

/// A shard that has the keys 0 to 100 by operation 1.
async fn shard_with_keys(place: &Place) -> Shard {
    let shard = open(place, "s1").await;
    shard.initialise(CLUSTER, Uuid::from_u128(2)).await.unwrap();
    shard.prepare(op(1, 1), &gain(keys(0, 100), 1)).await.unwrap();
    shard.activate(op(1, 1), None).await.unwrap();
    shard
}

/// The ranges in force.
async fn owned(shard: &Shard) -> Vec<KeyRange> {
    let rows = shard.local_entries(definition().name()).await.unwrap();
    rows.into_iter().filter(|row| row.incoming.is_none()).map(|row| row.entry.range).collect()
}

fn is_superseded(reply: Result<(), ShardError>) -> bool {
    matches!(reply, Err(ShardError::Superseded(_)))
}

async fn a_shard_knows_who_it_is_and_refuses_to_be_another(place: Place) {
    let shard = open(&place, "s1").await;
    assert_eq!(shard.meta().await.unwrap(), None);
    let meta = shard.initialise(CLUSTER, Uuid::from_u128(2)).await.unwrap();
    let again = shard.initialise(CLUSTER, Uuid::from_u128(3)).await.unwrap();
    assert_eq!(again, meta, "repeating it changes nothing");
    let refused = shard.initialise(Uuid::from_u128(4), Uuid::from_u128(3)).await.unwrap_err();
    assert!(matches!(refused, ShardError::WrongDatabase { .. }), "{refused}");
    shard.close().await;

    let other = open(&place, "s2").await;
    let refused = other.initialise(CLUSTER, Uuid::from_u128(3)).await.unwrap_err();
    assert!(
        refused.to_string().contains("shard s1") && refused.to_string().contains("shard s2"),
        "{refused}"
    );
    let renamed = other.reincarnate(CLUSTER, Uuid::from_u128(5)).await.unwrap();
    assert_eq!((renamed.shard, renamed.incarnation), (name("s2"), Uuid::from_u128(5)));
    other.wipe().await.unwrap();
    assert_eq!(other.meta().await.unwrap(), None);
    other.close().await;
}

async fn a_shard_of_a_newer_format_is_left_alone(place: Place) {
    let shard = shard_with_keys(&place).await;
    let mut tx = shard.control_transaction().await.unwrap();
    let sql = format!("UPDATE {} SET format = 99", shard.dialect().own_table("meta"));
    tx.run(Statement::new(sql)).await.unwrap();
    tx.commit().await.unwrap();
    let refused = shard.meta().await.unwrap_err();
    assert!(matches!(refused, ShardError::FormatTooNew { found: 99, .. }), "{refused}");
    let refused = shard.initialise(CLUSTER, Uuid::from_u128(2)).await.unwrap_err();
    assert!(matches!(refused, ShardError::FormatTooNew { .. }), "{refused}");
    shard.close().await;
}

/// A driver that did not hear the answer asks again.
async fn every_step_of_a_departure_may_be_repeated(place: Place) {
    let shard = shard_with_keys(&place).await;
    for _ in 0..2 {
        shard.prepare(op(2, 1), &lose(keys(0, 100), 1)).await.unwrap();
    }
    let attempt = shard.raise_fence(op(2, 1)).await.unwrap().unwrap().attempt;
    let again = shard.raise_fence(op(2, 1)).await.unwrap().unwrap().attempt;
    assert!(again > attempt, "each raising is another, so that an old acknowledgement does not count");
    let router = RouterId::new(ROUTER);
    let late = shard.acknowledge(op(2, 1).id, attempt, router, AckPhase::Drained).await.unwrap();
    assert!(!late);
    for _ in 0..2 {
        assert!(shard.acknowledge(op(2, 1).id, again, router, AckPhase::Drained).await.unwrap());
        shard.check_empty(op(2, 1)).await.unwrap();
    }
    for _ in 0..2 {
        shard.depart(op(2, 1), again).await.unwrap();
    }
    assert_eq!(owned(&shard).await, []);
    assert!(shard.raise_fence(op(2, 1)).await.unwrap().is_none(), "it has departed");
    for _ in 0..2 {
        shard.activate(op(2, 1), None).await.unwrap();
        shard.release(op(2, 1)).await.unwrap();
    }
    let reply = shard.hello(FenceEpoch::ZERO).await.unwrap();
    assert_eq!((reply.departures.len(), reply.fences.len()), (1, 0));
    shard.close().await;
}

async fn a_driver_that_was_superseded_can_do_nothing_more(place: Place) {
    let shard = shard_with_keys(&place).await;
    let edit = lose(keys(0, 100), 1);
    shard.prepare(op(2, 1), &edit).await.unwrap();
    let attempt = shard.raise_fence(op(2, 1)).await.unwrap().unwrap().attempt;
    // The next driver shows its token.
    shard.prepare(op(2, 2), &edit).await.unwrap();
    assert!(is_superseded(shard.prepare(op(2, 1), &edit).await));
    assert!(is_superseded(shard.raise_fence(op(2, 1)).await.map(drop)));
    assert!(is_superseded(shard.check_empty(op(2, 1)).await));
    assert!(is_superseded(shard.depart(op(2, 1), attempt).await));
    assert!(is_superseded(shard.activate(op(2, 1), None).await));
    assert!(is_superseded(shard.release(op(2, 1)).await));
    assert!(is_superseded(shard.undo(op(2, 1)).await));
    assert_eq!(owned(&shard).await, [keys(0, 100)]);
    shard.depart(op(2, 2), attempt).await.unwrap();
    assert_eq!(owned(&shard).await, []);
    shard.close().await;
}

async fn an_operation_undone_before_it_arrived_never_acts(place: Place) {
    let shard = shard_with_keys(&place).await;
    shard.undo(op(2, 2)).await.unwrap();
    shard.undo(op(2, 2)).await.unwrap();
    let late = gain(keys(200, 300), 2);
    assert!(is_superseded(shard.prepare(op(2, 1), &late).await), "an old driver");
    assert!(is_superseded(shard.prepare(op(2, 2), &late).await), "and the same");
    // One that had arrived is taken back whole.
    shard.prepare(op(3, 1), &gain(keys(200, 300), 3)).await.unwrap();
    shard.undo(op(3, 1)).await.unwrap();
    assert!(is_superseded(shard.activate(op(3, 1), None).await));
    assert_eq!(shard.local_entries(definition().name()).await.unwrap().len(), 1);
    shard.close().await;
}

async fn a_fence_that_a_router_withdrew_from_cannot_depart(place: Place) {
    let shard = shard_with_keys(&place).await;
    shard.prepare(op(2, 1), &lose(keys(0, 100), 1)).await.unwrap();
    let attempt = shard.raise_fence(op(2, 1)).await.unwrap().unwrap().attempt;
    let (id, router) = (op(2, 1).id, RouterId::new(ROUTER));
    assert!(shard.acknowledge(id, attempt, router, AckPhase::Drained).await.unwrap());
    assert!(shard.withdraw(id, attempt, router).await.unwrap(), "it may let its requests go on");
    assert_eq!(shard.acks(id).await.unwrap(), []);
    assert_eq!(shard.hello(FenceEpoch::ZERO).await.unwrap().fences[0].state, FenceState::Broken);
    let broken = shard.depart(op(2, 1), attempt).await.unwrap_err();
    assert!(matches!(broken, ShardError::FenceBroken(_)) && broken.is_retryable(), "{broken}");
    assert_eq!(owned(&shard).await, [keys(0, 100)]);
    let attempt = shard.raise_fence(op(2, 1)).await.unwrap().unwrap().attempt;
    shard.depart(op(2, 1), attempt).await.unwrap();
    shard.close().await;
}

async fn after_the_point_of_no_return_nothing_is_undone_or_withdrawn(place: Place) {
    let shard = shard_with_keys(&place).await;
    shard.prepare(op(2, 1), &lose(keys(0, 100), 1)).await.unwrap();
    let attempt = shard.raise_fence(op(2, 1)).await.unwrap().unwrap().attempt;
    shard.depart(op(2, 1), attempt).await.unwrap();
    let refused = shard.undo(op(2, 1)).await.unwrap_err();
    assert!(matches!(refused, ShardError::PastReturn(_)), "{refused}");
    let router = RouterId::new(ROUTER);
    assert!(!shard.withdraw(op(2, 1).id, attempt, router).await.unwrap(), "requests must not go on here");
    shard.close().await;
}

async fn an_operation_that_does_not_fit_the_local_map_is_refused_whole(place: Place) {
    let shard = shard_with_keys(&place).await;
    let differs = |reply: Result<(), ShardError>| matches!(reply, Err(ShardError::LocalMapDiffers { .. }));
    assert!(differs(shard.prepare(op(2, 1), &gain(keys(50, 150), 2)).await), "part of it is here");
    assert!(differs(shard.prepare(op(3, 1), &lose(keys(0, 50), 1)).await), "only a larger one is here");
    assert!(differs(shard.prepare(op(4, 1), &lose(keys(200, 300), 1)).await), "it is not here");
    let both = Edit { after: vec![entry(keys(200, 300), 5), entry(keys(90, 110), 5)], ..gain(keys(0, 1), 5) };
    assert!(differs(shard.prepare(op(5, 1), &both).await));
    assert_eq!(
        shard.local_entries(definition().name()).await.unwrap().len(),
        1,
        "nothing of it was laid ready"
    );
    assert!(is_superseded(shard.activate(op(5, 1), None).await));
    shard.close().await;
}

async fn a_session_is_told_of_every_departure_it_does_not_know(place: Place) {
    let shard = open(&place, "s1").await;
    shard.initialise(CLUSTER, Uuid::from_u128(2)).await.unwrap();
    let mut known = FenceEpoch::ZERO;
    for number in 1..=3u64 {
        let (range, arrive, leave) = (keys(number as i64, number as i64 + 1), number * 2, number * 2 + 1);
        shard.prepare(op(arrive, 1), &gain(range.clone(), arrive)).await.unwrap();
        shard.activate(op(arrive, 1), None).await.unwrap();
        shard.prepare(op(leave, 1), &lose(range.clone(), arrive)).await.unwrap();
        let fence = shard.raise_fence(op(leave, 1)).await.unwrap().unwrap();
        assert_eq!(shard.hello(known).await.unwrap().fences, std::slice::from_ref(&fence));
        shard.depart(op(leave, 1), fence.attempt).await.unwrap();
        shard.release(op(leave, 1)).await.unwrap();
        let reply = shard.hello(known).await.unwrap();
        assert!(reply.fence_epoch > known);
        let told: Vec<_> = reply.departures.iter().map(|left| (&left.range, left.to.clone())).collect();
        assert_eq!(told, [(&range, Some(name("s2")))]);
        known = reply.fence_epoch;
        assert_eq!(shard.hello(known).await.unwrap().departures, []);
        assert_eq!(shard.hello(FenceEpoch::ZERO).await.unwrap().departures.len(), number as usize);
    }
    shard.close().await;
}

async fn the_record_of_a_move_under_way_is_never_pruned(place: Place) {
    let shard = shard_with_keys(&place).await;
    let (moving, capture) = (op(5, 1), OpId::new(Uuid::from_u128(77)));
    shard.prepare(moving, &gain(keys(100, 200), 5)).await.unwrap();
    shard.announce_capture(moving, capture, definition().name(), &[keys(100, 200)]).await.unwrap();
    shard.activate(moving, None).await.unwrap();
    // Many more operations than records are kept of.
    let mut tx = shard.control_transaction().await.unwrap();
    let many = format!(
        "INSERT INTO {} (id, epoch, token, phase) WITH RECURSIVE n (x) AS (SELECT 6 UNION ALL SELECT x + 1 FROM n \
         WHERE x < 11000) SELECT 'op' || x, x, 1, 'active' FROM n",
        shard.dialect().own_table("local_op")
    );
    tx.run(Statement::new(many)).await.unwrap();
    tx.commit().await.unwrap();
    shard.prune().await.unwrap();
    assert_eq!(shard.meta().await.unwrap().unwrap().pruned_epoch, Epoch::new(4));
    shard.remove_capture(moving, capture).await.unwrap();
    shard.prune().await.unwrap();
    assert!(is_superseded(shard.remove_capture(moving, capture).await), "an ended one is forgotten");
    assert!(shard.meta().await.unwrap().unwrap().pruned_epoch > Epoch::new(5));
    shard.close().await;
}

/// One that was stopped in the middle of a write holds the record of its move: whoever takes over need not wait for
/// the limit of an idle transaction (E4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_takes_a_move_over_ends_the_sessions_of_a_mover_that_has_stopped() {
    let place = Place::Server(PgServer::start_with(quick()));
    let shard = shard_with_keys(&place).await;
    let (first, second) = (op(5, 1), op(5, 2));
    shard.prepare(first, &gain(keys(100, 200), 5)).await.unwrap();
    let sleeping = Shard::open(name("s1"), place.target(), ShardOptions::default()).await.unwrap();
    let mut stopped = sleeping.carrier().await.unwrap().begin(Access::Write).await.unwrap();
    stopped.run(sleeping.token_check(first)).await.unwrap();
    // Another move's session is left alone.
    shard.prepare(op(6, 1), &gain(keys(200, 300), 6)).await.unwrap();
    let mut other = sleeping.carrier().await.unwrap().begin(Access::Write).await.unwrap();
    other.run(sleeping.token_check(op(6, 1))).await.unwrap();
    shard.claim(second).await.unwrap();
    stopped.run(Statement::new("SELECT 1")).await.expect_err("its session is gone");
    other.run(Statement::new("SELECT 1")).await.unwrap();
    other.rollback().await.unwrap();
    assert!(is_superseded(shard.claim(first).await), "and it does not come back");
    sleeping.close().await;
    shard.close().await;
}

/// What is cleaned away waits for the local map: no other move's write waits with it, nor has its record locked before.
#[tokio::test]
async fn rows_are_cleaned_away_in_a_transaction_of_their_own() {
    let place = Place::Server(PgServer::start_with(quick()));
    let shard = shard_with_keys(&place).await;
    shard.prepare(op(5, 1), &gain(keys(100, 200), 5)).await.unwrap();
    shard.prepare(op(6, 1), &gain(keys(200, 300), 6)).await.unwrap();
    let carrier = shard.carrier().await.unwrap();
    carrier.write(Statement::new("CREATE TABLE seen (xid text)").into()).await.unwrap();
    let note = || vec![Statement::new("INSERT INTO seen SELECT pg_current_xact_id()::text")];
    let (map, capture) = (definition().name().clone(), OpId::new(Uuid::from_u128(77)));
    let elsewhere = [keys(300, 400)];
    for _ in 0..5 {
        // Of one thread, so that both are there when the writer looks.
        let (carried, cleaned) = tokio::join!(
            shard.carry_write(op(5, 1), capture, note()),
            shard.clean(op(6, 1), capture, (&map, &elsewhere), note(), Durable::WithTheNext),
        );
        carried.unwrap();
        assert_eq!(cleaned.unwrap(), 1);
    }
    let seen = carrier.read(Statement::new("SELECT count(*), count(DISTINCT xid) FROM seen")).await.unwrap();
    let seen = seen.one().unwrap();
    assert_eq!((seen.int(0).unwrap(), seen.int(1).unwrap()), (10, 10));
    let here =
        shard.clean(op(6, 1), capture, (&map, &[keys(300, 400), keys(50, 60)]), note(), Durable::Now).await;
    assert!(matches!(here, Err(ShardError::LocalMapDiffers { .. })), "{here:?}");
    assert!(is_superseded(shard.clean(op(9, 1), capture, (&map, &[]), note(), Durable::Now).await.map(drop)));
    shard.close().await;
}

/// A dataset that is bound during a move gets its triggers without holding up the writers of its table (D3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_bound_during_a_move_is_watched_without_its_writers_queueing() {
    let place = Place::Server(PgServer::start_with(quick()));
    let shard = shard_with_keys(&place).await;
    let (moving, capture) = (op(5, 1), OpId::new(Uuid::from_u128(77)));
    shard.prepare(moving, &lose(keys(0, 100), 5)).await.unwrap();
    let mut tx = shard.control_transaction().await.unwrap();
    tx.run(Statement::new("CREATE TABLE late (k bigint PRIMARY KEY, n bigint)")).await.unwrap();
    // Not of the range that moves: nobody would have noted it.
    tx.run(Statement::new("INSERT INTO late VALUES (1001, 0)")).await.unwrap();
    tx.commit().await.unwrap();
    shard.open_capture(moving, capture, &definition(), &[keys(0, 100)]).await.unwrap();
    let mut long = shard.control_transaction().await.unwrap();
    long.run(Statement::new("UPDATE late SET n = n + 1")).await.unwrap();
    let dataset = Dataset {
        name: "late".to_owned(),
        map: definition().name().clone(),
        table: "late".to_owned(),
        placement: Placement::Key(vec!["k".to_owned()]),
        rows: polyshard_shard::TableRows::All,
    };
    let refused = shard.bind(&dataset).await;
    assert!(matches!(refused, Err(ShardError::Engine(_))), "{refused:?}");
    // The table is free again for others although the long writer is still there.
    let mut short = shard.control_transaction().await.unwrap();
    short.run(Statement::new("INSERT INTO late VALUES (2, 0)")).await.unwrap();
    short.commit().await.unwrap();
    long.commit().await.unwrap();
    // That one is of the range, and came before anybody could note it.
    let refused = shard.bind(&dataset).await;
    assert!(matches!(refused, Err(ShardError::CannotMove { .. })), "{refused:?}");
    let mut gone = shard.control_transaction().await.unwrap();
    gone.run(Statement::new("DELETE FROM late WHERE k = 2")).await.unwrap();
    gone.commit().await.unwrap();
    // A writer in whose way the triggers are for a moment: what he writes is seen.
    let mut racing = shard.control_transaction().await.unwrap();
    racing.run(Statement::new("INSERT INTO late VALUES (3, 0)")).await.unwrap();
    let (bound, _) = tokio::join!(shard.bind(&dataset), async {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        racing.commit().await.unwrap();
    });
    assert!(matches!(bound, Err(ShardError::CannotMove { .. })), "{bound:?}");
    let mut gone = shard.control_transaction().await.unwrap();
    gone.run(Statement::new("DELETE FROM late WHERE k = 3")).await.unwrap();
    gone.commit().await.unwrap();
    shard.bind(&dataset).await.unwrap();
    let mut noted = shard.control_transaction().await.unwrap();
    noted.run(Statement::new("INSERT INTO late VALUES (2, 0)")).await.unwrap();
    noted.commit().await.unwrap();
    assert_eq!(shard.tail_length(capture).await.unwrap(), 1);
    shard.remove_capture(moving, capture).await.unwrap();
    shard.close().await;
}

/// D3, E4: several ranges with others between them, and rows that come into one or leave it.
async fn just_the_rows_of_the_ranges_that_move_are_noted(place: Place) {
    let shard = shard_with_keys(&place).await;
    let (moving, capture) = (op(5, 1), OpId::new(Uuid::from_u128(77)));
    shard.prepare(moving, &lose(keys(0, 100), 5)).await.unwrap();
    let run = async |sql: &str| {
        let mut tx = shard.control_transaction().await.unwrap();
        tx.run(Statement::new(sql.to_owned())).await.unwrap();
        tx.commit().await.unwrap();
    };
    run("CREATE TABLE item (k bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (k, id))").await;
    let dataset = Dataset {
        name: "item".to_owned(),
        map: definition().name().clone(),
        table: "item".to_owned(),
        placement: Placement::Key(vec!["k".to_owned()]),
        rows: polyshard_shard::TableRows::All,
    };
    shard.bind(&dataset).await.unwrap();
    shard.open_capture(moving, capture, &definition(), &[keys(0, 10), keys(50, 60)]).await.unwrap();
    for (sql, noted) in [
        ("INSERT INTO item VALUES (5, 1), (20, 1), (55, 1), (70, 1)", vec![5, 55]),
        ("UPDATE item SET id = 2 WHERE k IN (20, 70)", vec![]),
        ("UPDATE item SET k = 7 WHERE k = 20", vec![20, 7]),
        ("UPDATE item SET k = 30 WHERE k = 55", vec![55, 30]),
        ("DELETE FROM item WHERE k IN (7, 30, 70)", vec![7]),
        ("DELETE FROM item WHERE k = 5", vec![5]),
    ] {
        run(sql).await;
        let notes = shard.tail(capture, 100).await.unwrap();
        let keys: Vec<Value> = notes.iter().map(|note| note.key.0[0].clone()).collect();
        let noted: Vec<Value> = noted.into_iter().map(Value::Int).collect();
        assert_eq!(keys, noted, "{sql}");
        let ids: Vec<i64> = notes.iter().map(|note| note.id).collect();
        shard.forget_tail(moving, capture, &ids).await.unwrap();
    }
    shard.remove_capture(moving, capture).await.unwrap();
    shard.close().await;
}

/// E3: what a killed process left undecided, or another one has open, is in nobody's way who starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_is_opened_while_a_change_of_its_local_map_is_undecided() {
    let place = Place::Server(PgServer::start_with(quick()));
    let shard = shard_with_keys(&place).await;
    let mut undecided = shard.control_transaction().await.unwrap();
    undecided.run(Statement::new("UPDATE polyshard.local_range SET state = state")).await.unwrap();
    let another = open(&place, "s1").await;
    let refused = another.initialise(CLUSTER, Uuid::from_u128(2)).await.unwrap_err();
    assert!(matches!(refused, ShardError::WasAShard { .. }), "{refused}");
    undecided.rollback().await.unwrap();
    another.close().await;
    shard.close().await;
}

/// D2, KIT 2g: what moves have to ask for is one table, however many datasets it has; and a deleted dataset is
/// forgotten when nothing of it is left and no move may bring anything.
async fn datasets_that_share_a_table_are_one_and_are_forgotten_when_they_are_gone(place: Place) {
    let shard = shard_with_keys(&place).await;
    let run = async |sql: &str| {
        let mut tx = shard.control_transaction().await.unwrap();
        let rows = tx.run(Statement::new(sql.to_owned())).await.unwrap();
        tx.commit().await.unwrap();
        rows.len()
    };
    run("CREATE TABLE item (k bigint NOT NULL, dataset bigint NOT NULL, PRIMARY KEY (k, dataset))").await;
    let map = definition().name().clone();
    let other = polyshard_map::MapName::new("elsewhere").unwrap();
    let item = |number: i64, map: &polyshard_map::MapName| Dataset {
        name: format!("queue {number}"),
        map: map.clone(),
        table: "item".to_owned(),
        placement: Placement::Key(vec!["k".to_owned()]),
        rows: polyshard_shard::TableRows::Numbered { column: "dataset".to_owned(), number },
    };
    for number in 1..40 {
        shard.bind(&item(number, &map)).await.unwrap();
    }
    shard.bind(&item(40, &other)).await.unwrap();
    let tables = shard.tables(&map).await.unwrap();
    let [table] = tables.as_slice() else { panic!("one table: {tables:?}") };
    assert_eq!((table.name.as_str(), table.is_of_map()), ("item", true));
    assert_eq!(shard.settled_tables(&map).await.unwrap(), tables);
    assert_eq!(shard.named(table, &[3, 7, 40, 99]).await.unwrap(), [item(3, &map), item(7, &map)]);
    run("INSERT INTO item VALUES (5, 3), (5, 40)").await;
    let own = table.own_rows(shard.dialect()).unwrap();
    assert_eq!(run(&format!("SELECT 1 FROM item WHERE {own}")).await, 1, "not those of the other map");
    // A row that is here, and a move that may bring one.
    assert!(!shard.forget_dataset(&["queue 3".to_owned()]).await.unwrap());
    run("DELETE FROM item WHERE dataset = 3").await;
    let (moving, capture) = (op(5, 1), OpId::new(Uuid::from_u128(77)));
    shard.prepare(moving, &lose(keys(0, 100), 5)).await.unwrap();
    shard.announce_capture(moving, capture, &map, &[keys(0, 100)]).await.unwrap();
    assert!(!shard.forget_dataset(&["queue 3".to_owned()]).await.unwrap());
    assert_eq!(shard.named(table, &[3]).await.unwrap().len(), 1);
    shard.remove_capture(moving, capture).await.unwrap();
    assert!(!shard.forget_dataset(&["queue 3".to_owned()]).await.unwrap(), "it was here");
    assert_eq!(shard.named(table, &[3]).await.unwrap(), []);
    assert!(shard.forget_dataset(&["queue 3".to_owned()]).await.unwrap());
    shard.close().await;
}
