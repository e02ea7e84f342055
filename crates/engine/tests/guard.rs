//! Leave that is taken back while its holder waits is refused before anything is sent.

mod common;

use common::{Bed, hold, insert};
use polyshard_engine::{Access, Batch, Error, Generation, Statement};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_void_guard_refuses_everything_on_sqlite() {
    refuses_everything(Bed::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_void_guard_refuses_everything_on_postgres() {
    refuses_everything(Bed::postgres().await).await;
}

async fn refuses_everything(bed: Bed) {
    bed.items().await;
    let generation = Generation::default();
    let guard = generation.guard();
    let guarded = bed.db.guarded(&guard);
    guarded.write(Batch::new().push(insert(1))).await.unwrap();
    assert_eq!(guarded.read(Statement::new("SELECT id FROM item")).await.unwrap().len(), 1);
    generation.advance();
    let query = || Statement::new("SELECT id FROM item");
    for error in [
        guarded.write(Batch::new().push(insert(2))).await.map(drop).unwrap_err(),
        guarded.read(query()).await.map(drop).unwrap_err(),
        guarded.read_wanted(query(), &mut |_| panic!("nothing is read")).await.map(drop).unwrap_err(),
        guarded.scan(query(), 1).await.map(drop).unwrap_err(),
        guarded.begin(Access::Read).await.map(drop).unwrap_err(),
        guarded.begin(Access::Write).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
    }
    // Without a guard, or with a new one, all goes on.
    let guard = generation.guard();
    bed.db.guarded(&guard).write(Batch::new().push(insert(3))).await.unwrap();
    assert_eq!(bed.ids().await, [1, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_voided_while_waiting_for_the_sqlite_writer_is_refused() {
    let bed = Bed::sqlite().await;
    bed.items().await;
    let generation = Generation::default();
    let holder = hold(&bed.db, 1).await;
    let (db, guard) = (bed.db.clone(), generation.guard());
    let waiting = tokio::spawn(async move { db.guarded(&guard).begin(Access::Write).await.map(drop) });
    while bed.db.stats().queued == 0 {
        tokio::task::yield_now().await;
    }
    generation.advance();
    holder.commit().await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Conflict { .. })));
    common::write(&bed.db, insert(2)).await.unwrap();
    assert_eq!(bed.ids().await, [1, 2]);
}
