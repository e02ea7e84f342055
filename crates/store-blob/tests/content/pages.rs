//! Page blobs.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use polyshard_store_blob::{
    ByteRange, Conditions, NewBlob, PageQuery, PageRanges, SequenceAction, SnapshotId, StoreError,
};

use crate::place::Place;
use crate::process::{Process, blob, bytes, unconditional, upload};

on_both_engines! {
    a_terabyte_of_zeros_costs_nothing
    only_whole_pages_within_the_blob_are_written
    much_that_is_cleared_stays_in_snapshots
    a_shorter_blob_grows_with_zeros
    sequence_numbers_are_conditions
    ranges_come_in_parts
    a_read_of_pages_that_were_removed_fails
    large_clears_that_overlap_clear_all
    what_is_cut_off_twice_does_not_come_back
    any_number_of_large_ranges_is_cleared
    pages_that_nobody_sees_are_given_back
    many_large_clears_are_what_a_model_says
}

const MIB: u64 = 1024 * 1024;
const UNIT: u64 = 64 * 1024;

async fn create(process: &Process, size: u64) {
    let (name, new) = (blob("disk"), NewBlob::default());
    process.store.create_pages(&name, size, 7, &new, unconditional()).await.unwrap();
}

async fn write(process: &Process, first: u64, data: &[u8]) -> Result<(), StoreError> {
    process.store.put_pages(&blob("disk"), first, upload(data), unconditional()).await.map(drop)
}

async fn clear(process: &Process, first: u64, end: u64) -> Result<(), StoreError> {
    process.store.clear_pages(&blob("disk"), first..end, unconditional()).await.map(drop)
}

async fn ranges(process: &Process, snapshot: Option<SnapshotId>, query: PageQuery) -> PageRanges {
    process.store.page_ranges(&blob("disk"), snapshot, &query, unconditional()).await.unwrap()
}

/// First and last bytes.
async fn valid(process: &Process, snapshot: Option<SnapshotId>) -> Vec<(u64, u64)> {
    let found = ranges(process, snapshot, PageQuery::default()).await;
    found.ranges.iter().map(|range| (range.first, range.last)).collect()
}

async fn a_terabyte_of_zeros_costs_nothing(place: Place) {
    let process = place.open().await;
    create(&process, MIB * MIB).await;
    let far = MIB * MIB - 1024;
    write(&process, far, &[9; 512]).await.unwrap();
    write(&process, 512, &[8; 512]).await.unwrap();
    assert_eq!(valid(&process, None).await, [(512, 1023), (far, far + 511)]);
    let read = process.range("disk", None, (far - 100, far + 612)).await.unwrap();
    assert!(read == [vec![0; 100], vec![9; 512], vec![0; 100]].concat());
    let read = process.range("disk", None, (0, 9 * MIB)).await.unwrap();
    assert!(
        read[512..1024].iter().all(|byte| *byte == 8)
            && read.iter().filter(|byte| **byte != 0).count() == 512
    );
    let refused =
        process.store.create_pages(&blob("x"), 9 << 40, 0, &NewBlob::default(), unconditional()).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

async fn only_whole_pages_within_the_blob_are_written(place: Place) {
    let process = place.open().await;
    create(&process, 2048).await;
    for (first, length) in [(1, 512), (0, 511), (1536, 1024), (2048, 512), (u64::MAX - 511, 512), (0, 0)] {
        let refused = write(&process, first, &bytes(length, 1)).await;
        assert!(
            matches!(refused, Err(StoreError::InvalidPageRange { size: 2048 })),
            "{first} {length}: {refused:?}"
        );
    }
    let large = write(&process, 0, &vec![0; 4 * MIB as usize + 512]).await;
    assert!(matches!(large, Err(StoreError::TooLarge { .. })), "{large:?}");
    assert!(matches!(clear(&process, 0, 4096).await, Err(StoreError::InvalidPageRange { .. })));
    assert_eq!(valid(&process, None).await, []);
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

/// More rows than are cleared one by one.
async fn write_much(process: &Process) -> Vec<u8> {
    let mut all = Vec::new();
    for part in 0..5 {
        let data = bytes(4 * MIB as usize, part + 1);
        write(process, part * 4 * MIB, &data).await.unwrap();
        all.extend(data);
    }
    all
}

async fn much_that_is_cleared_stays_in_snapshots(place: Place) {
    let process = place.open().await;
    create(&process, 20 * MIB).await;
    let mut all = write_much(&process).await;
    let taken = process.snapshot("disk").await;
    clear(&process, 1024, 20 * MIB - 512).await.unwrap();
    write(&process, UNIT * 3, &[1; 512]).await.unwrap();
    assert!(process.all("disk", Some(taken)).await.unwrap() == all);
    assert_eq!(valid(&process, Some(taken)).await, [(0, 20 * MIB - 1)]);
    all[1024..20 * MIB as usize - 512].fill(0);
    all[UNIT as usize * 3..][..512].fill(1);
    assert!(process.all("disk", None).await.unwrap() == all);
    let pages = [(0, 1023), (UNIT * 3, UNIT * 3 + 511), (20 * MIB - 512, 20 * MIB - 1)];
    assert_eq!(valid(&process, None).await, pages);
    let changes = ranges(&process, None, PageQuery { since: Some(taken), ..PageQuery::default() }).await;
    let changes: Vec<_> =
        changes.ranges.iter().map(|range| (range.first, range.last, range.is_cleared)).collect();
    let expected = [
        (1024, UNIT * 3 - 1, true),
        (UNIT * 3, UNIT * 3 + 511, false),
        (UNIT * 3 + 512, 20 * MIB - 513, true),
    ];
    assert_eq!(changes, expected);
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

async fn a_shorter_blob_grows_with_zeros(place: Place) {
    let process = place.open().await;
    create(&process, 20 * MIB).await;
    let all = write_much(&process).await;
    let resize = async |size: u64| process.store.resize(&blob("disk"), size, unconditional()).await.unwrap();
    assert_eq!(resize(MIB + 512).await.size, MIB + 512);
    assert!(process.all("disk", None).await.unwrap() == all[..MIB as usize + 512]);
    resize(20 * MIB).await;
    let read = process.all("disk", None).await.unwrap();
    assert!(read[..MIB as usize + 512] == all[..MIB as usize + 512]);
    assert!(read[MIB as usize + 512..].iter().all(|byte| *byte == 0));
    assert_eq!(valid(&process, None).await, [(0, MIB + 511)]);
    // What is written in the generation after the hole is seen.
    write(&process, 2 * MIB, &[5; 512]).await.unwrap();
    assert_eq!(process.range("disk", None, (2 * MIB - 1, 2 * MIB + 1)).await.unwrap(), [0, 5]);
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

async fn sequence_numbers_are_conditions(place: Place) {
    let process = place.open().await;
    create(&process, 1024).await;
    let equal = |number| Conditions { sequence_equal: Some(number), ..Conditions::default() };
    let put = async |number| {
        process.store.put_pages(&blob("disk"), 0, upload(&[1; 512]), &equal(number)).await.map(drop)
    };
    put(7).await.unwrap();
    assert!(matches!(put(8).await, Err(StoreError::Condition(_))));
    let set = async |action| {
        process.store.set_sequence(&blob("disk"), action, unconditional()).await.unwrap().props.sequence
    };
    assert_eq!(set(SequenceAction::Increment).await, 8);
    assert_eq!(set(SequenceAction::Max(3)).await, 8);
    assert_eq!(set(SequenceAction::Max(30)).await, 30);
    assert_eq!(set(SequenceAction::Update(2)).await, 2);
    put(2).await.unwrap();
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

async fn ranges_come_in_parts(place: Place) {
    let process = place.open().await;
    create(&process, MIB).await;
    for page in 0..20 {
        write(&process, page * 20 * 1024, &[1; 512]).await.unwrap();
    }
    let all = valid(&process, None).await;
    assert_eq!(all.len(), 20);
    let (mut found, mut marker) = (Vec::new(), None);
    loop {
        let query = PageQuery { max: 7, marker, ..PageQuery::default() };
        let part = ranges(&process, None, query).await;
        assert!(part.ranges.len() <= 7);
        found.extend(part.ranges.iter().map(|range| (range.first, range.last)));
        match part.next {
            Some(next) => marker = Some(next),
            None => break,
        }
    }
    assert_eq!(found, all);
    let range = Some(ByteRange { first: 20 * 1024 + 100, last: Some(20 * 1024 + 200) });
    let part = ranges(&process, None, PageQuery { range, ..PageQuery::default() }).await;
    assert_eq!(
        part.ranges.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>(),
        [(20_480, 20_991)]
    );
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

async fn a_read_of_pages_that_were_removed_fails(place: Place) {
    let process = place.open().await;
    create(&process, 20 * MIB).await;
    write_much(&process).await;
    let mut download = process.store.get_blob(&blob("disk"), None, None, unconditional()).await.unwrap();
    download.bytes.next().await.unwrap().unwrap();
    create(&process, 512).await;
    for _ in 0..5 {
        process.store.sweep().await;
    }
    let rest: Result<Vec<Bytes>, _> = download.bytes.try_collect().await;
    assert!(rest.is_err());
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

/// Units of the first bytes that are not zero.
async fn expect_zeros(process: &Process) {
    let all = process.all("disk", None).await.unwrap();
    let first = all.iter().position(|byte| *byte != 0).map(|at| at as u64 / UNIT);
    assert_eq!((first, valid(process, None).await), (None, vec![]));
}

/// Clear Pages clears all of a range, also when most of it was cleared before.
async fn large_clears_that_overlap_clear_all(place: Place) {
    let process = place.open().await;
    create(&process, 40 * MIB).await;
    for part in 0..10 {
        write(&process, part * 4 * MIB, &bytes(4 * MIB as usize, part + 1)).await.unwrap();
    }
    clear(&process, 0, 20 * MIB).await.unwrap();
    assert_eq!(valid(&process, None).await, [(20 * MIB, 40 * MIB - 1)]);
    clear(&process, 0, 40 * MIB).await.unwrap();
    expect_zeros(&process).await;
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

/// Resizing throws away what is cut off, also behind what was cut off before.
async fn what_is_cut_off_twice_does_not_come_back(place: Place) {
    let process = place.open().await;
    create(&process, 40 * MIB).await;
    for part in 0..10 {
        write(&process, part * 4 * MIB, &bytes(4 * MIB as usize, part + 1)).await.unwrap();
    }
    clear(&process, 0, 20 * MIB).await.unwrap();
    for size in [0, 40 * MIB] {
        process.store.resize(&blob("disk"), size, unconditional()).await.unwrap();
    }
    expect_zeros(&process).await;
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

/// Fills units from one to before another with one page each, beside the store, which would take long.
async fn fill(process: &Process, (from, to): (u64, u64)) {
    let zeros = "00".repeat(15);
    let (bits, page) = (format!("01{zeros}"), "07".repeat(512));
    for (bytes, shard_is_sqlite) in [("X'{}'", true), ("'\\x{}'::bytea", false)] {
        if process.is_sqlite() != shard_is_sqlite {
            continue;
        }
        let (bits, page) = (bytes.replace("{}", &bits), bytes.replace("{}", &page));
        let sql = format!(
            "WITH RECURSIVE units(unit) AS (SELECT {from} UNION ALL SELECT unit + 1 FROM units WHERE unit + 1 < {to}) \
             INSERT INTO {{table}} (placement, dataset, name, content, page, generation, valid, written, bytes) \
             SELECT placement, dataset, name, content, unit, generation, {bits}, {bits}, {page} \
             FROM {{items}}, units WHERE name = 'disk' AND snapshot = {}",
            i64::MAX
        );
        assert_eq!(process.run_sql("blob_page", &sql).await, to - from);
    }
}

/// There is no number of large ranges after which clearing and shrinking fail.
async fn any_number_of_large_ranges_is_cleared(place: Place) {
    const RANGES: u64 = 270;
    const UNITS: u64 = 257;
    let process = place.open().await;
    create(&process, RANGES * (UNITS + 1) * UNIT).await;
    fill(&process, (0, RANGES * (UNITS + 1))).await;
    let page = |range: u64| (range * (UNITS + 1) * UNIT, range * (UNITS + 1) * UNIT + 511);
    let taken = process.snapshot("disk").await;
    let mut expected = Vec::new();
    for range in 0..RANGES {
        clear(&process, page(range).0 + UNIT, page(range + 1).0).await.unwrap();
        expected.push(page(range));
    }
    assert_eq!(valid(&process, None).await, expected);
    let end = RANGES * (UNITS + 1) * UNIT;
    assert_eq!(process.range("disk", Some(taken), (end - UNIT, end - UNIT + 2)).await.unwrap(), [7, 7]);
    assert_eq!(process.range("disk", None, (end - UNIT, end - UNIT + 2)).await.unwrap(), [0, 0]);
    let blob = process.store.resize(&blob("disk"), 2 * UNITS * UNIT, unconditional()).await.unwrap();
    assert!(blob.props.holes.len() <= 256);
    assert_eq!(valid(&process, None).await, expected[..2]);
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

/// A blob takes no more rows than it and its snapshots have pages, however often they are written and cleared.
async fn pages_that_nobody_sees_are_given_back(place: Place) {
    let process = place.open().await;
    create(&process, 20 * MIB).await;
    let first = process.snapshot("disk").await;
    write(&process, 0, &[1; 512]).await.unwrap();
    for round in 1..6 {
        let taken = process.snapshot("disk").await;
        write(&process, round * 512, &[1; 512]).await.unwrap();
        let refuse = polyshard_store_blob::DeleteSnapshots::Refuse;
        process.store.delete_blob(&blob("disk"), Some(taken), refuse, unconditional()).await.unwrap();
        process.store.sweep().await;
    }
    assert_eq!(process.count("blob_page").await, 1);
    // What the rows said of the pages written since the first snapshot is not lost with them.
    let changes = ranges(&process, None, PageQuery { since: Some(first), ..PageQuery::default() }).await;
    let changes: Vec<_> =
        changes.ranges.iter().map(|range| (range.first, range.last, range.is_cleared)).collect();
    assert_eq!(changes, [(0, 6 * 512 - 1, false)]);
    for _ in 0..3 {
        fill(&process, (1, 320)).await;
        clear(&process, UNIT, 20 * MIB).await.unwrap();
        process.store.sweep().await;
    }
    assert_eq!(process.count("blob_page").await, 1);
    let found = process.store.head_blob(&blob("disk"), None, unconditional()).await.unwrap();
    assert_eq!(found.props.holes, []);
    assert_eq!(valid(&process, None).await, [(0, 6 * 512 - 1)]);
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}

/// What a blob of whole units should be: of each the number it was filled with last, and when.
#[derive(Clone)]
struct Disk {
    units: Vec<Option<u8>>,
    written: Vec<u64>,
}

impl Disk {
    /// Runs of units of which something holds, as first and last bytes.
    fn runs(&self, holds: impl Fn(usize) -> bool) -> Vec<(u64, u64)> {
        let runs = crate::model::runs(self.units.len(), holds);
        let scale = UNIT / 512;
        runs.into_iter().map(|(first, last)| (first * scale, (last + 1) * scale - 1)).collect()
    }
}

async fn many_large_clears_are_what_a_model_says(place: Place) {
    use rand::{RngExt, SeedableRng};
    const UNITS: usize = 640;
    const WRITTEN: usize = 64;
    let process = place.open().await;
    let seed = std::env::var("POLYSHARD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    println!("POLYSHARD_SEED={seed}");
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    create(&process, UNITS as u64 * UNIT).await;
    let mut disk = Disk { units: vec![None; UNITS], written: vec![0; UNITS] };
    let mut snapshots: Vec<(SnapshotId, u64, Disk)> = Vec::new();
    let mut time = 1;
    for step in 0..120_u64 {
        let size = disk.units.len();
        match if step < 10 { 0 } else { random.random_range(0..12) } {
            0..4 if size >= WRITTEN => {
                let first =
                    if step < 10 { step as usize * WRITTEN } else { random.random_range(0..=size - WRITTEN) };
                let number = step as u8 + 1;
                write(&process, first as u64 * UNIT, &vec![number; WRITTEN * UNIT as usize]).await.unwrap();
                disk.units[first..first + WRITTEN].fill(Some(number));
                disk.written[first..first + WRITTEN].fill(time);
            }
            4..8 if size > 1 => {
                let first = random.random_range(0..size - 1);
                let end = random.random_range(first + 1..=size);
                clear(&process, first as u64 * UNIT, end as u64 * UNIT).await.unwrap();
                disk.units[first..end].fill(None);
            }
            8 => {
                let size = random.random_range(UNITS / 2..=UNITS);
                process.store.resize(&blob("disk"), size as u64 * UNIT, unconditional()).await.unwrap();
                disk.units.resize(size, None);
                disk.written.resize(size, 0);
            }
            9 => {
                snapshots.push((process.snapshot("disk").await, time, disk.clone()));
                time += 1;
            }
            10 if !snapshots.is_empty() => {
                let (taken, ..) = snapshots.remove(random.random_range(0..snapshots.len()));
                let refuse = polyshard_store_blob::DeleteSnapshots::Refuse;
                process.store.delete_blob(&blob("disk"), Some(taken), refuse, unconditional()).await.unwrap();
            }
            _ => process.store.sweep().await,
        }
        let context = format!("seed {seed}, step {step}");
        assert_eq!(valid(&process, None).await, disk.runs(|unit| disk.units[unit].is_some()), "{context}");
        for (taken, then, old) in &snapshots {
            let context = format!("{context}, snapshot {taken}");
            let expected = old.runs(|unit| old.units[unit].is_some());
            assert_eq!(valid(&process, Some(*taken)).await, expected, "{context}");
            let query = PageQuery { since: Some(*taken), ..PageQuery::default() };
            let changes = ranges(&process, None, query).await.ranges;
            let of = |is_cleared: bool| {
                let of = changes.iter().filter(|range| range.is_cleared == is_cleared);
                of.map(|range| (range.first, range.last)).collect::<Vec<_>>()
            };
            let changed = |unit: usize| disk.units[unit].is_some() && disk.written[unit] > *then;
            assert_eq!(of(false), disk.runs(changed), "{context}");
            let was_valid = |unit: usize| old.units.get(unit).is_some_and(Option::is_some);
            assert_eq!(
                of(true),
                disk.runs(|unit| disk.units[unit].is_none() && was_valid(unit)),
                "{context}"
            );
        }
        if step % 20 == 19 {
            let shown = snapshots.iter().map(|(taken, _, old)| (Some(*taken), old)).chain([(None, &disk)]);
            for (taken, disk) in shown {
                let all = process.all("disk", taken).await.unwrap();
                let units = all.chunks(UNIT as usize).zip(&disk.units);
                let wrong = units.enumerate().find(|(_, (got, wanted))| {
                    let wanted = wanted.unwrap_or(0);
                    got.iter().any(|byte| *byte != wanted)
                });
                assert_eq!(wrong.map(|(unit, _)| unit), None, "{context}");
            }
        }
    }
    process.expect_nothing_left(&["disk"]).await;
    process.close().await;
}
