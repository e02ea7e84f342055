//! Keys that are dates, times, uuids and numbers, between PostgreSQL databases whose settings differ, and written by
//! sessions that have others again: a key is the same however a session would print it (D1, D2, D6, E4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use polyshard_catalog::{MoveRequest, Step};
use polyshard_mover::Repaired;
use polyshard_shard::{Dataset, Placement};

use crate::cluster::{Cluster, PATIENCE, Setup, keys, map, request, shard};
use crate::gates::held_at;
use crate::place::Place;
use crate::strays::{APPLY, LOOK, OWNER_WINS, misplaced, repair};

/// A table whose primary key is of some type.
struct Kind {
    name: &'static str,
    sql: &'static str,
    values: &'static [&'static str],
    /// One of the values, and another that is equal to it and written otherwise.
    alike: Option<(&'static str, &'static str)>,
}

const fn kind(name: &'static str, sql: &'static str, values: &'static [&'static str]) -> Kind {
    Kind { name, sql, values, alike: None }
}

const KINDS: [Kind; 11] = [
    kind(
        "at",
        "timestamptz",
        &[
            "infinity",
            "-infinity",
            "4713-01-01 00:00:00+00 BC",
            "0044-03-15 12:00:00.000001+00 BC",
            "1890-07-01 12:00:00+00",
            "1999-12-31 23:59:59.999999+00",
            "2026-11-16 05:40:00.123456+00",
            "294276-12-31 23:59:59.999999+00",
        ],
    ),
    kind(
        "moment",
        "timestamp",
        &[
            "infinity",
            "-infinity",
            "4713-01-01 00:00:00 BC",
            "2026-03-29 02:30:00.000001",
            "294276-12-31 23:59:59.999999",
        ],
    ),
    kind(
        "tenth",
        "timestamp(1) with time zone",
        &["infinity", "2026-11-16 05:40:00.1+00", "1969-12-31 23:59:59.9+00"],
    ),
    kind(
        "day",
        "date",
        &["infinity", "-infinity", "4713-01-01 BC", "0001-01-01", "2000-01-01", "5874897-12-31"],
    ),
    kind("hour", "time", &["24:00", "00:00", "00:00:00.000001", "12:34:56.789012", "23:59:59.999999"]),
    kind("zoned", "timetz", &["00:00+00", "12:00:00.000001+05:30", "12:00-15:59", "24:00+00"]),
    kind(
        "id",
        "uuid",
        &[
            "00000000-0000-0000-0000-000000000000",
            "6f9619ff-8b86-d011-b42d-00c04fc964ff",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        ],
    ),
    Kind {
        name: "span",
        sql: "interval",
        values: &[
            "-1 mons -2 days -03:04:05.000006",
            "1 mons -1 days",
            "-1 days +02:03:04",
            "24:00",
            "-178000000 years",
        ],
        alike: Some(("24:00", "1 days")),
    },
    kind(
        "ratio",
        "double precision",
        &["0.30000000000000004", "NaN", "-Infinity", "1e-300", "123456789012345.67"],
    ),
    Kind {
        name: "price",
        sql: "numeric",
        values: &["-0.0000001", "1.0", "NaN", "Infinity", "1e30"],
        alike: Some(("1.0", "1.00")),
    },
    kind(
        "moments",
        "timestamptz[]",
        &["{}", "{infinity,2026-11-16 05:40:00.123456+00}", "{{1890-07-01 12:00:00+00}}"],
    ),
];

/// What a client may have set: every one of these changes how some key is printed.
const CLIENT: &str = "SET timezone = 'Asia/Kathmandu'; SET datestyle = 'German'; SET intervalstyle = 'sql_standard'; \
                      SET extra_float_digits = 0; ";

/// What the databases have by default.
const DEFAULTS: [(&str, &str); 3] = [
    (
        "s1",
        "timezone = 'America/St_Johns'; datestyle = 'SQL, DMY'; intervalstyle = 'iso_8601'; extra_float_digits = -5",
    ),
    ("s2", "timezone = 'Europe/Amsterdam'; datestyle = 'Postgres, MDY'; intervalstyle = 'sql_standard'"),
    ("s3", "timezone = 'Pacific/Chatham'; datestyle = 'German'; extra_float_digits = 0"),
];

impl Kind {
    fn table(&self) -> String {
        format!("by_{}", self.name)
    }

    /// The nth value, as an expression. The last one comes after itself.
    fn value(&self, number: usize) -> String {
        format!("'{}'::{}", self.values[number.min(self.values.len() - 1)], self.sql)
    }

    fn last(&self) -> String {
        self.value(self.values.len())
    }

    fn rows(&self, customer: i64, n: i64, values: &[&str]) -> String {
        let rows = values.iter().map(|value| format!("({customer}, '{value}', {n}, '{value}')"));
        let rows = rows.collect::<Vec<_>>().join(", ");
        format!("INSERT INTO {} (customer, k, n, also) VALUES {rows}; ", self.table())
    }

    /// What a client does to the rows of a moving range: it changes all of one customer, and of another it deletes a
    /// row, has another take its key, and brings a third one's over.
    fn deeds(&self, stage: i64) -> String {
        let (table, first, second, last) = (self.table(), self.value(0), self.value(1), self.last());
        let mut deeds = format!(
            "UPDATE {table} SET n = n + {stage} WHERE customer = 7; \
             DELETE FROM {table} WHERE customer = 8 AND k = {first}; \
             UPDATE {table} SET k = {first}, n = n + 100 WHERE customer = 8 AND k = {second}; \
             INSERT INTO {table} VALUES (8, {second}, {stage}, {last}) ON CONFLICT DO NOTHING; \
             UPDATE {table} SET customer = {} WHERE customer = 8 AND k = {last}; \
             INSERT INTO {table} VALUES (8, {last}, 1000 + {stage}, NULL); ",
            8 + stage,
        );
        if let Some((is, becomes)) = self.alike {
            let change = |customer: i64, from: &str, to: &str| {
                format!("UPDATE {table} SET k = '{to}' WHERE customer = {customer} AND k = '{from}'; ")
            };
            deeds += &match stage % 2 {
                0 => change(7, becomes, is),
                _ => change(7, is, becomes),
            };
        }
        deeds
    }
}

/// Runs SQL on a shard as a client with settings of its own, past everything.
fn client(place: &Place, on: &str, sql: &str) {
    place.pg().execute(&place.database(on), &format!("{CLIENT}{sql}"));
}

/// The rows of all tables on a shard that a condition holds for, to the bit, in order.
fn found(place: &Place, on: &str, condition: impl Fn(&Kind) -> String) -> Vec<String> {
    let one = |kind: &Kind| {
        let (table, condition) = (kind.table(), condition(kind));
        format!("SELECT '{table} ' || encode(record_send(ROW(t.*)), 'hex') FROM {table} t WHERE {condition}")
    };
    let all: Vec<String> = KINDS.iter().map(one).collect();
    let rows = place.pg().execute(&place.database(on), &all.join(" UNION ALL "));
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

/// Likewise, of the customers from one to another.
fn of_customers(place: &Place, on: &str, from: i64, to: i64) -> Vec<String> {
    found(place, on, |_| format!("customer BETWEEN {from} AND {to}"))
}

/// Databases with settings of their own.
fn place() -> Arc<Place> {
    let place = Place::server();
    for (name, settings) in DEFAULTS {
        place.target(name);
        for setting in settings.split("; ") {
            let sql = format!("ALTER DATABASE \"{}\" SET {setting}", place.database(name));
            place.pg().execute("postgres", &sql);
        }
    }
    place
}

async fn make(cluster: &Cluster, place: &Place) {
    let create = |kind: &Kind| {
        let (table, sql) = (kind.table(), kind.sql);
        format!(
            "CREATE TABLE {table} (customer bigint NOT NULL, k {sql}, n bigint NOT NULL, also {sql}, \
             PRIMARY KEY (customer, k)); "
        )
    };
    for on in ["s1", "s2", "s3"] {
        client(place, on, &KINDS.iter().map(create).collect::<String>());
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        for kind in &KINDS {
            let dataset = Dataset {
                name: kind.table(),
                map: map("customers"),
                table: kind.table(),
                placement: Placement::Key(vec!["customer".to_owned()]),
                rows: polyshard_shard::TableRows::All,
            };
            opened.bind(&dataset).await.unwrap();
        }
    }
}

/// Waits until a move notes what changes in every table.
async fn until_noted(place: &Place) {
    let sql = "SELECT count(DISTINCT tgrelid) FROM pg_trigger WHERE tgname LIKE 'polyshard%'";
    let all = KINDS.len().to_string();
    let noted = async {
        while place.pg().execute(&place.database("s1"), sql) != all {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, noted).await.expect("the triggers come");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_every_kind_move_and_come_back_whatever_their_writers_have_set() {
    let place = place();
    let (cluster, [copies, catches_up]) = held_at(&place, ["copy.before", "catch_up.before"]).await;
    make(&cluster, &place).await;
    let rows = |kind: &Kind| [7, 8, 60].map(|customer| kind.rows(customer, 0, kind.values)).concat();
    client(&place, "s1", &KINDS.iter().map(rows).collect::<String>());
    let stays = of_customers(&place, "s1", 60, 60);
    let deeds = |stage| KINDS.iter().map(|kind| kind.deeds(stage)).collect::<String>();

    let keep = MoveRequest { keep_ms: 600_000, ..request("customers", keys(0, 50), "s2") };
    let record = cluster.start(keep).await.unwrap();
    until_noted(&place).await;
    client(&place, "s1", &deeds(1));
    copies.store(false, Ordering::SeqCst);
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    client(&place, "s1", &deeds(2));
    let expected = of_customers(&place, "s1", 0, 49);
    catches_up.store(false, Ordering::SeqCst);
    cluster.until_step(record.op.id, Step::Keeping).await;
    assert_eq!(of_customers(&place, "s2", 0, 49), expected);

    // The way back takes with it what was written on the other shard.
    client(&place, "s2", &deeds(3));
    let expected = of_customers(&place, "s2", 0, 49);
    let undo = cluster.driver.undo_move(record.op.id).await.unwrap();
    cluster.end_of(undo.op.id).await.unwrap();
    assert_eq!(of_customers(&place, "s1", 0, 49), expected);
    assert_eq!(of_customers(&place, "s1", 60, 60), stays, "nobody has touched the others");
    assert!(of_customers(&place, "s2", 0, 99).is_empty());
    cluster.assert_healthy().await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_with_keys_of_every_kind_are_put_right() {
    let place = place();
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    make(&cluster, &place).await;
    // The owner lacks the first, and has the last one otherwise.
    let (mut theirs, mut strays) = (String::new(), String::new());
    for kind in &KINDS {
        let (values, last) = (kind.values, kind.values.len() - 1);
        theirs += &(kind.rows(110, 1, &values[1..last]) + &kind.rows(110, 2, &values[last..]));
        strays += &kind.rows(110, 1, values);
    }
    client(&place, "s2", &theirs);
    client(&place, "s3", &strays);
    let all: usize = KINDS.iter().map(|kind| kind.values.len()).sum();
    assert_eq!(misplaced(&cluster, "customers", "s3").await, (all as u64, 0));
    let as_told = |done: std::collections::BTreeMap<String, Repaired>| {
        for kind in &KINDS {
            let removed = kind.values.len() as u64 - 2;
            let expected = Repaired { moved: 1, removed, differs: 1, ..Repaired::default() };
            assert_eq!(done[&kind.table()], expected, "{}", kind.sql);
        }
    };
    as_told(repair(&cluster, "customers", "s3", LOOK).await);
    let mut expected = of_customers(&place, "s2", 110, 110);
    expected.extend(found(&place, "s3", |kind| format!("k = {}", kind.value(0))));
    expected.sort();
    as_told(repair(&cluster, "customers", "s3", APPLY).await);
    assert_eq!(of_customers(&place, "s2", 110, 110), expected);
    let done = repair(&cluster, "customers", "s3", OWNER_WINS).await;
    assert!(done.values().all(|of| of.discarded == 1 && of.left() == 0), "{done:?}");
    assert_eq!(misplaced(&cluster, "customers", "s3").await, (0, 0));
    assert_eq!(of_customers(&place, "s2", 110, 110), expected);
    cluster.assert_healthy().await;
    cluster.close().await;
}

// More rows than are copied or compared at once: they are taken in the order of their values, not of their texts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_rows_with_keys_of_every_order_move() {
    let place = place();
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    make(&cluster, &place).await;
    let rows = [
        ("by_price", "(g - 600) * 0.7"),
        ("by_span", "(g - 600) * interval '7 hours'"),
        (
            "by_zoned",
            "('12:00:00+00'::timetz + (g - 600) * interval '7 seconds') AT TIME ZONE make_interval(mins => g % 90)",
        ),
        ("by_ratio", "(g - 600) / 7.0::double precision"),
        ("by_day", "date '2000-01-01' + (g - 600) * 700"),
        ("by_hour", "time '00:00' + g * interval '7 seconds'"),
        ("by_at", "timestamptz '2000-01-01 00:00:00+00' + (g - 600) * interval '500 days'"),
    ];
    let fill = rows.map(|(table, k)| {
        format!("INSERT INTO {table} SELECT 7, {k}, g, NULL FROM generate_series(1, 1200) g; ")
    });
    client(&place, "s1", &fill.concat());
    let expected = of_customers(&place, "s1", 0, 49);
    assert_eq!(expected.len(), 1200 * rows.len());
    cluster.moves("customers", keys(0, 50), "s2").await.unwrap();
    assert!(of_customers(&place, "s2", 0, 49) == expected, "the same rows are there");
    assert!(of_customers(&place, "s1", 0, 49).is_empty());
    cluster.assert_healthy().await;
    cluster.close().await;
}
