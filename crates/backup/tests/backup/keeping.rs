//! Backups in one place share what they have in common; old ones go, and what is damaged is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use polyshard_backup::{
    BackupError, Clock, Depot, Dry, Found, MANIFEST, Memory, Probe, Progress, Request, Retention, What,
    is_pruned, list, prune, prune_until, verify,
};
use polyshard_map::ShardId;

use crate::cluster::{Cluster, Place, clock, location, variables};

fn chunks(depot: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(depot.join("chunks")).into_iter().flatten() {
        found.extend(std::fs::read_dir(folder.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    found.sort();
    found
}

fn depot(path: &Path) -> Depot {
    Depot::open(path.to_str().unwrap(), &variables()).unwrap()
}

const ALL: Retention = Retention { class: None, keep: None, cluster: None };

#[tokio::test(flavor = "multi_thread")]
async fn a_second_backup_of_embedded_shards_costs_only_what_is_new() {
    only_what_is_new_is_stored(&Place::sqlite()).await;
}

/// They are read whole, and what was not changed is found to be the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_backup_of_postgresql_costs_only_what_is_new() {
    only_what_is_new_is_stored(&Place::postgres()).await;
}

/// A long text that nothing makes short, each another: so that there are many chunks and none is like the next.
fn noise(seed: i64) -> String {
    let mut state = seed as u64 ^ 0x9E37_79B9_7F4A_7C15;
    let mut word = || {
        // Multiply and add, with Knuth's constants; the upper half is random enough.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:08x}", state >> 32)
    };
    (0..400).map(|_| word()).collect()
}

async fn only_what_is_new_is_stored(place: &Arc<Place>) {
    let cluster = Cluster::new(place).await;
    cluster.with_orders().await;
    for id in 0..1_500 {
        cluster.order(1, id, &noise(id)).await;
    }
    let at = place.folder.path().join("backups");
    let first = cluster.back_up(&at.join("first")).await.unwrap();
    assert!(first.new_bytes > 0 && first.bytes() > 1_500_000, "{first:?}");
    let again = cluster.back_up(&at.join("again")).await.unwrap();
    // The catalog differs, it tells of backups; the shards do not.
    assert!(again.new_bytes * 4 < first.new_bytes, "{} of {}", again.new_bytes, first.new_bytes);
    cluster.order(1, 5_000, "new").await;
    let third = cluster.back_up(&at.join("third")).await.unwrap();
    assert!(third.new_bytes > 0 && third.new_bytes * 2 < first.new_bytes, "{}", third.new_bytes);
    for name in ["first", "again", "third"] {
        verify(&location(&at.join(name))).await.unwrap();
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_of_each_class_stay_and_what_they_need_stays_with_them() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    for (number, (name, class)) in
        [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")].into_iter().enumerate()
    {
        cluster.note(1, number as i64 + 1).await;
        let moment = 1_000 + number as i64;
        let request =
            Request { class: Some(class.to_owned()), ..cluster.request(&at.join(name), What::Everything) };
        let clock: polyshard_backup::Clock = std::sync::Arc::new(move || moment);
        let progress = polyshard_backup::Progress::default();
        polyshard_backup::take(&cluster.router, &cluster.catalog, &request, &clock, &progress).await.unwrap();
    }
    cluster.close().await;
    let before = chunks(&at).len();
    let keep = |class: Option<&str>, keep| Retention {
        class: class.map(|class| Some(class.to_owned())),
        keep,
        ..ALL
    };
    let looked = prune(&depot(&at), &keep(Some("a"), Some(1)), &clock(), Dry::Yes).await.unwrap();
    assert_eq!((looked.backups, chunks(&at).len()), (vec!["a2".to_owned(), "a1".to_owned()], before));
    let pruned = prune(&depot(&at), &keep(Some("a"), Some(2)), &clock(), Dry::No).await.unwrap();
    assert_eq!((pruned.backups, pruned.left), (vec!["a1".to_owned()], None));
    assert!(pruned.chunks > 0 && chunks(&at).len() + pruned.chunks as usize == before);
    let pruned = prune(&depot(&at), &keep(None, Some(1)), &clock(), Dry::No).await.unwrap();
    assert_eq!(pruned.backups, ["a2"]);
    let left: Vec<String> = list(&depot(&at))
        .await
        .unwrap()
        .iter()
        .map(|found| match found {
            Found::Whole(at, _) => at.name.clone(),
            Found::Unfinished(at) | Found::Damaged(at, _) => panic!("{} is not whole", at.name),
        })
        .collect();
    assert_eq!(left, ["a3", "b1"]);
    for name in left {
        verify(&location(&at.join(name))).await.unwrap();
    }
    assert_eq!(prune(&depot(&at), &keep(None, Some(1)), &clock(), Dry::No).await.unwrap().chunks, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_left_unfinished_is_shown_and_goes_when_it_is_old() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    cluster.back_up(&at.join("whole")).await.unwrap();
    cluster.back_up(&at.join("left")).await.unwrap();
    cluster.close().await;
    // As a process that was killed before the end leaves it.
    std::fs::remove_file(at.join("left").join(MANIFEST)).unwrap();
    std::fs::write(at.join("left/begun.json"), "{\"began_ms\":1}").unwrap();
    let found = list(&depot(&at)).await.unwrap();
    assert!(matches!(&found[0], Found::Unfinished(at) if at.name == "left"));
    let refused = verify(&location(&at.join("left"))).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Damaged(why) if why.contains("not a whole one")), "{refused}");
    // It may still be being taken, and need any chunk.
    let young = prune(&depot(&at), &ALL, &clock(), Dry::No).await.unwrap();
    assert!(young.unfinished.is_empty() && young.chunks == 0 && young.left.is_some(), "{young:?}");
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::open(at.join("left/begun.json")).unwrap().set_modified(hour_ago).unwrap();
    let old = prune(&depot(&at), &ALL, &clock(), Dry::No).await.unwrap();
    assert_eq!((old.unfinished, old.left), (vec!["left".to_owned()], None));
    assert!(!at.join("left").exists() && !at.join("pruning.json").exists());
    verify(&location(&at.join("whole"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn taking_and_pruning_keep_out_of_each_others_way() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    cluster.back_up(&at.join("first")).await.unwrap();
    std::fs::write(at.join("pruning.json"), "{\"began_ms\":1}").unwrap();
    let refused = cluster.back_up(&at.join("second")).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Busy(why) if why.contains("pruned")), "{refused}");
    assert!(!at.join("second").exists());
    let refused = prune(&depot(&at), &ALL, &clock(), Dry::No).await.unwrap_err();
    assert!(matches!(refused, BackupError::Busy(_)), "{refused}");
    // Left by a process that is gone.
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::open(at.join("pruning.json")).unwrap().set_modified(hour_ago).unwrap();
    cluster.back_up(&at.join("second")).await.unwrap();
    prune(&depot(&at), &ALL, &clock(), Dry::No).await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_damage_is_found_and_named() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    let backup = at.join("monday");
    cluster.back_up(&backup).await.unwrap();
    cluster.close().await;
    verify(&location(&backup)).await.unwrap();
    let mut files = chunks(&at);
    files.extend(
        ["shards/s2.chunks", "catalog.chunks", "maps/tenants.chunks", MANIFEST].map(|file| backup.join(file)),
    );
    assert!(files.len() > 6);
    for file in files {
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [Some(flipped), None] {
            match &damaged {
                Some(bytes) => std::fs::write(&file, bytes).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            let found = verify(&location(&backup)).await.unwrap_err();
            let name = file.file_name().unwrap().to_str().unwrap();
            let named = matches!(&found, BackupError::Damaged(why) if why.contains(name));
            assert!(named, "{}: {found}", file.display());
        }
        std::fs::write(&file, whole).unwrap();
    }
    verify(&location(&backup)).await.unwrap();
}

/// The names of the whole backups of a depot.
async fn names(at: &Path) -> Vec<String> {
    let found = list(&depot(at)).await.unwrap();
    let name = |found: &Found| match found {
        Found::Whole(at, _) => Some(at.name.clone()),
        _ => None,
    };
    found.iter().filter_map(name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_that_share_a_place_leave_each_others_backups() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("backups");
    let (place, other) = (Place::sqlite(), Place::sqlite());
    let (mine, theirs) = (Cluster::new(&place).await, Cluster::new(&other).await);
    let moment = AtomicI64::new(1_000);
    for (cluster, name) in [(&theirs, "b1"), (&mine, "a1"), (&theirs, "b2"), (&mine, "a2"), (&mine, "a3")] {
        let now = moment.fetch_add(1, Ordering::SeqCst);
        let clock: Clock = Arc::new(move || now);
        let class = Some("gold".to_owned());
        let request = Request { class, ..cluster.request(&at.join(name), What::Everything) };
        let progress = polyshard_backup::Progress::default();
        polyshard_backup::take(&cluster.router, &cluster.catalog, &request, &clock, &progress).await.unwrap();
    }
    let mine_only = Retention {
        class: Some(Some("gold".to_owned())),
        keep: Some(1),
        cluster: Some(mine.catalog.cluster().await.unwrap()),
    };
    let pruned = prune(&depot(&at), &mine_only, &clock(), Dry::No).await.unwrap();
    assert_eq!(pruned.backups, ["a2", "a1"]);
    assert_eq!(names(&at).await, ["a3", "b1", "b2"], "the other cluster has kept its own");
    // Whoever prunes by hand keeps so many of each cluster.
    let all = Retention { class: None, keep: Some(1), cluster: None };
    assert_eq!(prune(&depot(&at), &all, &clock(), Dry::No).await.unwrap().backups, ["b1"]);
    for name in names(&at).await {
        verify(&location(&at.join(name))).await.unwrap();
    }
    mine.close().await;
    theirs.close().await;
}

/// A process that slept while it pruned: somebody else may have begun since.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_lost_the_mark_removes_nothing_more() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    for name in ["first", "second"] {
        cluster.back_up(&at.join(name)).await.unwrap();
    }
    cluster.close().await;
    let before = chunks(&at).len();
    // Whoever looks at the clock the second time has slept for ten minutes, and the mark is another's.
    let (looks, mark) = (AtomicI64::new(0), at.join("pruning.json"));
    let taken_over = "{\"began_ms\":7}";
    let clock: Clock = Arc::new(move || {
        let look = looks.fetch_add(1, Ordering::SeqCst);
        if look == 1 {
            std::fs::write(&mark, taken_over).unwrap();
        }
        look.min(1) * 600_000
    });
    let keep = Retention { keep: Some(1), ..ALL };
    let lost = prune(&depot(&at), &keep, &clock, Dry::No).await.unwrap_err();
    assert!(matches!(&lost, BackupError::Busy(why) if why.contains("held up")), "{lost}");
    assert_eq!((names(&at).await.len(), chunks(&at).len()), (2, before), "nothing was removed");
    let mark = std::fs::read_to_string(at.join("pruning.json")).unwrap();
    assert_eq!(mark, taken_over, "another's mark stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_has_not_changed_is_not_read_again_and_one_that_has_is() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    cluster.note(1, 1).await;
    let at = place.folder.path().join("backups");
    let memory = Arc::new(Memory::default());
    let request = |name: &str| Request {
        memory: memory.clone(),
        ..cluster.request(&at.join(name), What::Shards(vec![ShardId::new("s1").unwrap()]))
    };
    // A file where the folder for copies would be: nothing can be read.
    let blocked = place.folder.path().join("blocked");
    std::fs::write(&blocked, "").unwrap();
    let without_reading = |name: &str| Request { scratch: blocked.clone(), ..request(name) };

    cluster.take(&without_reading("zero")).await.unwrap_err();
    let first = cluster.take(&request("first")).await.unwrap();
    let second = cluster.take(&without_reading("second")).await.unwrap();
    assert_eq!(second.shards[0].copy.sha256, first.shards[0].copy.sha256);
    // Written to by somebody else altogether.
    let outside = rusqlite::Connection::open(place.data().join("s1.db")).unwrap();
    outside.execute("INSERT INTO notes (number) VALUES (2)", []).unwrap();
    drop(outside);
    cluster.take(&without_reading("third")).await.unwrap_err();
    let third = cluster.take(&request("third")).await.unwrap();
    assert_ne!(third.shards[0].copy.sha256, first.shards[0].copy.sha256);
    cluster.note(1, 3).await;
    cluster.take(&without_reading("fourth")).await.unwrap_err();
    cluster.take(&request("fourth")).await.unwrap();
    cluster.take(&without_reading("fifth")).await.unwrap();
    // What it would refer to is gone.
    std::fs::remove_dir_all(at.join("chunks")).unwrap();
    cluster.take(&without_reading("sixth")).await.unwrap_err();
    cluster.take(&request("sixth")).await.unwrap();
    verify(&location(&at.join("sixth"))).await.unwrap();
    cluster.close().await;
}

/// A backup that was held up until it was pruned as left, and its name taken by another.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_lost_its_name_leaves_the_backup_of_whoever_took_it() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    cluster.back_up(&at.join("another")).await.unwrap();
    for tenant in 1..=3 {
        cluster.note(tenant, 1).await;
    }
    let (monday, another) = (at.join("monday"), at.join("another"));
    let probe: Probe = Arc::new(move |_| {
        if another.exists() {
            std::fs::remove_dir_all(&monday).unwrap();
            std::fs::rename(&another, &monday).unwrap();
        }
        Box::pin(async {})
    });
    let request = cluster.request(&at.join("monday"), What::Everything);
    let lost = cluster.take(&Request { probe: Some(probe), ..request }).await.unwrap_err();
    assert!(matches!(&lost, BackupError::Failed(why) if why.contains("take it again")), "{lost}");
    assert_eq!(names(&at).await, ["monday"]);
    verify(&location(&at.join("monday"))).await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_of_single_tenants_and_shards_do_not_push_out_those_of_everything() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    let shard = |name: &str| What::Shards(vec![ShardId::new(name).unwrap()]);
    let taken = [
        ("all1", What::Everything),
        ("all2", What::Everything),
        ("s1-1", shard("s1")),
        ("s1-2", shard("s1")),
        ("s2-1", shard("s2")),
    ];
    for (number, (name, what)) in taken.into_iter().enumerate() {
        let clock: Clock = Arc::new(move || 1_000 + number as i64);
        let (request, progress) = (cluster.request(&at.join(name), what), Progress::default());
        polyshard_backup::take(&cluster.router, &cluster.catalog, &request, &clock, &progress).await.unwrap();
    }
    cluster.close().await;
    let keep = Retention { keep: Some(1), ..ALL };
    assert_eq!(prune(&depot(&at), &keep, &clock(), Dry::No).await.unwrap().backups, ["s1-1", "all1"]);
    assert_eq!(names(&at).await, ["all2", "s1-2", "s2-1"]);
}

/// Two who find a mark that was left both take it over; the first of them finds out before it removes anything.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_take_over_an_old_mark_one_removes_nothing() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    for name in ["first", "second"] {
        cluster.back_up(&at.join(name)).await.unwrap();
    }
    cluster.close().await;
    let (looks, mark) = (AtomicI64::new(0), at.join("pruning.json"));
    let clock: Clock = Arc::new(move || {
        if looks.fetch_add(1, Ordering::SeqCst) == 1 {
            std::fs::write(&mark, "{\"began_ms\":7}").unwrap();
        }
        1_000
    });
    let keep = Retention { keep: Some(1), ..ALL };
    let lost = prune(&depot(&at), &keep, &clock, Dry::No).await.unwrap_err();
    assert!(matches!(lost, BackupError::Busy(_)), "{lost}");
    assert_eq!(names(&at).await.len(), 2);
    assert!(is_pruned(&depot(&at)).await.unwrap(), "the other goes on");
    assert!(!at.join("pruning.json.look").exists());
    std::fs::remove_file(at.join("pruning.json")).unwrap();
    assert!(!is_pruned(&depot(&at)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_stopped_removes_nothing_more_and_leaves_no_mark() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let at = place.folder.path().join("backups");
    for name in ["first", "second"] {
        cluster.back_up(&at.join(name)).await.unwrap();
    }
    let keep = Retention { keep: Some(1), ..ALL };
    let stopped = prune_until(&depot(&at), &keep, &clock(), &AtomicBool::new(true)).await.unwrap_err();
    assert!(matches!(&stopped, BackupError::Busy(why) if why.contains("stopped")), "{stopped}");
    assert_eq!((names(&at).await.len(), at.join("pruning.json").exists()), (2, false));
    cluster.back_up(&at.join("third")).await.unwrap();
    cluster.close().await;
}
