//! Asking many shards at once: bounded, with deadlines, complete or knowingly partial (C2).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polyshard_engine::{Error, Statement, Target};
use polyshard_map::{KeyRange, ShardId};
use polyshard_router::{Access, FanOutOptions, Policy, RouterError, Ticket};

use crate::cluster::{Cluster, Setup, keys, map, shard};
use crate::place::{Place, start_server};

on_both_engines!(
    a_fan_out_gathers_from_every_shard_of_the_range_and_no_other,
    at_most_so_many_shards_are_asked_at_once,
    a_shard_that_fails_for_a_moment_is_asked_again_and_one_that_refuses_is_not,
    a_shard_that_does_not_answer_in_time_is_listed_or_fails_the_whole,
);

fn names(answers: &[(ShardId, i64)]) -> Vec<&str> {
    answers.iter().map(|(id, _)| id.as_str()).collect()
}

async fn count(ticket: &Ticket) -> Result<i64, Error> {
    ticket.read(Statement::new("SELECT count(*) FROM item")).await?.one()?.int(0)
}

async fn a_fan_out_gathers_from_every_shard_of_the_range_and_no_other(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    for number in [5, 6, 150, 250] {
        cluster.write("orders", number, 1).await.unwrap();
    }
    let options = FanOutOptions::default();
    let router = &cluster.router;
    let all = router.fan_out(&map("orders"), &KeyRange::all(), Access::Read, options, count).await.unwrap();
    assert_eq!(all.answers, [(shard("s1"), 2), (shard("s2"), 1), (shard("s3"), 1)]);
    assert_eq!(all.failed, []);
    let some = keys(90, 110);
    let some = router.fan_out(&map("orders"), &some, Access::Read, options, count).await.unwrap();
    assert_eq!(names(&some.answers), ["s1", "s2"]);
    let missing = router.fan_out(&map("nowhere"), &KeyRange::all(), Access::Read, options, count).await;
    assert!(matches!(missing, Err(RouterError::NoSuchMap(_))));
    assert_eq!(router.status().tickets, 0);
    cluster.close().await;
}

async fn at_most_so_many_shards_are_asked_at_once(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    for concurrency_max in [1, 2] {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = async |ticket: &Ticket| {
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let answer = ticket.read(Statement::new("SELECT 1")).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            answer
        };
        let options = FanOutOptions { concurrency_max, ..FanOutOptions::default() };
        let all = KeyRange::all();
        let found = cluster.router.fan_out(&map("orders"), &all, Access::Read, options, work).await.unwrap();
        assert_eq!(found.answers.len(), 3);
        assert_eq!(most.load(Ordering::SeqCst), concurrency_max);
    }
    cluster.close().await;
}

async fn a_shard_that_fails_for_a_moment_is_asked_again_and_one_that_refuses_is_not(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let asked = AtomicUsize::new(0);
    let stumbles = async |ticket: &Ticket| {
        if ticket.shard() == &shard("s2") && asked.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err(Error::Conflict { message: "somebody was in the way".into() });
        }
        Ok(0)
    };
    let (options, all) = (FanOutOptions { tries_max: 3, ..FanOutOptions::default() }, KeyRange::all());
    let found = cluster.router.fan_out(&map("orders"), &all, Access::Read, options, stumbles).await.unwrap();
    assert_eq!((found.answers.len(), asked.load(Ordering::SeqCst)), (3, 3));

    let asked = AtomicUsize::new(0);
    let refuses = async |ticket: &Ticket| {
        if ticket.shard() == &shard("s2") {
            asked.fetch_add(1, Ordering::SeqCst);
            return Err(Error::invalid("no such table"));
        }
        Ok(0)
    };
    let failed =
        cluster.router.fan_out(&map("orders"), &all, Access::Read, options, refuses).await.unwrap_err();
    assert!(matches!(&failed, RouterError::FanOut { asked: 3, failed } if failed.len() == 1), "{failed}");
    assert!(failed.to_string().contains("s2") && failed.to_string().contains("no such table"), "{failed}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    cluster.close().await;
}

async fn a_shard_that_does_not_answer_in_time_is_listed_or_fails_the_whole(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let hangs = async |ticket: &Ticket| {
        if ticket.shard() == &shard("s3") {
            std::future::pending::<()>().await;
        }
        Ok(0)
    };
    let all = KeyRange::all();
    let short = Duration::from_millis(100);
    let partial =
        FanOutOptions { shard_deadline: short, policy: Policy::Partial, ..FanOutOptions::default() };
    let found = cluster.router.fan_out(&map("orders"), &all, Access::Read, partial, hangs).await.unwrap();
    assert_eq!(names(&found.answers), ["s1", "s2"]);
    assert_eq!(found.failed.len(), 1);
    assert!(found.failed[0].0 == shard("s3") && found.failed[0].1.contains("deadline"), "{:?}", found.failed);
    for (shard_deadline, overall_deadline) in
        [(short, Duration::from_secs(60)), (Duration::from_secs(60), short)]
    {
        let options = FanOutOptions { shard_deadline, overall_deadline, ..FanOutOptions::default() };
        let failed =
            cluster.router.fan_out(&map("orders"), &all, Access::Read, options, hangs).await.unwrap_err();
        assert!(
            matches!(&failed, RouterError::FanOut { .. }) && failed.to_string().contains("s3"),
            "{failed}"
        );
    }
    // Nobody answers: that is no answer, not even a partial one.
    let nobody = async |_: &Ticket| -> Result<i64, Error> { std::future::pending().await };
    let failed =
        cluster.router.fan_out(&map("orders"), &all, Access::Read, partial, nobody).await.unwrap_err();
    assert!(matches!(&failed, RouterError::FanOut { failed, .. } if failed.len() == 3), "{failed}");
    assert_eq!(cluster.router.status().tickets, 0);
    cluster.close().await;
}

/// C2: complete or error by default; partial results on request, with the failed shards listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_server_dead_the_complete_answer_is_an_error_and_the_partial_one_names_its_shard() {
    let place = Place::server();
    let far = start_server();
    {
        let server = far.lock().unwrap();
        server.create_database("far");
        place.move_to("s2", Target::parse(&server.url("far")).unwrap());
    }
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    let all = KeyRange::all();
    let complete = FanOutOptions::default();
    let partial = FanOutOptions { policy: Policy::Partial, ..FanOutOptions::default() };
    cluster.router.fan_out(&map("orders"), &all, Access::Read, complete, count).await.unwrap();
    far.lock().unwrap().kill9();
    let failed =
        cluster.router.fan_out(&map("orders"), &all, Access::Read, complete, count).await.unwrap_err();
    assert!(failed.to_string().contains("s2"), "{failed}");
    let found = cluster.router.fan_out(&map("orders"), &all, Access::Read, partial, count).await.unwrap();
    assert_eq!(names(&found.answers), ["s1", "s3"]);
    assert_eq!(found.failed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["s2"]);
    // The same for a process that has never been there.
    let second = Cluster::open(&place, Setup { router: 2, ..Setup::default() }).await;
    let failed =
        second.router.fan_out(&map("orders"), &all, Access::Read, complete, count).await.unwrap_err();
    assert!(failed.to_string().contains("s2"), "{failed}");
    let found = second.router.fan_out(&map("orders"), &all, Access::Read, partial, count).await.unwrap();
    assert_eq!(names(&found.answers), ["s1", "s3"]);
    assert_eq!(found.failed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["s2"]);
    far.lock().unwrap().start_again();
    for process in [&cluster, &second] {
        let back = async {
            while process.router.fan_out(&map("orders"), &all, Access::Read, complete, count).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(crate::cluster::PATIENCE, back).await.expect("all shards answer again");
    }
    second.close().await;
    cluster.close().await;
}
