//! Rows whose keys are dates, times, uuids, intervals and numbers come back to the bit, whatever the databases have set
//! when they are saved and when they come back. E1.

use std::sync::Arc;

use polyshard_backup::{Present, What};
use polyshard_map::Key;
use polyshard_router::Access;
use polyshard_shard::{Dataset, Placement};

use crate::cluster::{Cluster, Place, SHARDS, map};

/// Types of keys, and values of each.
const KINDS: [(&str, &[&str]); 8] = [
    ("timestamptz", &["infinity", "0044-03-15 12:00:00.000001+00 BC", "294276-12-31 23:59:59.999999+00"]),
    ("timestamp", &["-infinity", "2026-03-29 02:30:00.000001", "294276-12-31 23:59:59.999999"]),
    ("date", &["infinity", "-infinity", "4713-01-01 BC", "5874897-12-31"]),
    ("time", &["24:00", "00:00:00.000001", "12:34:56.789012"]),
    ("uuid", &["6f9619ff-8b86-d011-b42d-00c04fc964ff", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    ("interval", &["-1 mons -2 days -03:04:05.000006", "1 mons -1 days", "-178000000 years"]),
    ("numeric", &["1.0", "-0.0000001", "NaN"]),
    ("float8", &["0.30000000000000004", "-Infinity", "NaN"]),
];

fn set(place: &Place, settings: &[&str]) {
    for (database, setting) in SHARDS.iter().flat_map(|name| settings.iter().map(move |one| (name, one))) {
        let server = place.server.as_ref().unwrap();
        server.execute("postgres", &format!("ALTER DATABASE {database} SET {setting}"));
    }
}

/// All rows of the tenant, to the bit.
fn found(place: &Place) -> Vec<String> {
    let one = |(kind, _): &(&str, _)| {
        format!("SELECT '{kind} ' || encode(record_send(ROW(t.*)), 'hex') FROM by_{kind} t WHERE tenant = 2")
    };
    let all: Vec<String> = KINDS.iter().map(one).collect();
    let rows = place.server.as_ref().unwrap().execute("s2", &all.join(" UNION ALL "));
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

async fn make(cluster: &Cluster, place: &Arc<Place>) {
    let server = place.server.as_ref().unwrap();
    for (kind, values) in KINDS {
        for (tenant, on) in (1..).zip(SHARDS) {
            server.execute(
                on,
                &format!(
                    "CREATE TABLE by_{kind} (tenant bigint, k {kind}, also {kind}, PRIMARY KEY (tenant, k))"
                ),
            );
            let ticket = cluster.router.enter(&map(), &[Key::BigInt(tenant)], Access::Write).await.unwrap();
            let dataset = Dataset {
                name: format!("by_{kind}"),
                map: map(),
                table: format!("by_{kind}"),
                placement: Placement::Key(vec!["tenant".to_owned()]),
                rows: polyshard_shard::TableRows::All,
            };
            cluster.router.bind(&ticket, &dataset).await.unwrap();
        }
        let rows = values.iter().map(|value| format!("(2, '{value}', '{value}')"));
        let rows = rows.collect::<Vec<_>>().join(", ");
        server.execute("s2", &format!("INSERT INTO by_{kind} VALUES {rows}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_kind_come_back_whatever_is_set() {
    let place = Place::postgres();
    let saved = ["timezone = 'America/St_Johns'", "datestyle = 'SQL, DMY'", "intervalstyle = 'sql_standard'"];
    set(&place, &saved);
    set(&place, &["extra_float_digits = -5"]);
    let cluster = Cluster::new(&place).await;
    make(&cluster, &place).await;
    // More than a page, in an order that is not that of their texts.
    let fill = "INSERT INTO by_numeric SELECT 2, (g - 1200) * 0.7, g FROM generate_series(1, 2500) g";
    place.server.as_ref().unwrap().execute("s2", fill);
    let before = found(&place);
    let at = place.folder.path().join("backups");
    cluster.back_up(&at.join("all")).await.unwrap();
    let tenant = What::Shardlet { map: map(), key: "2".to_owned() };
    cluster.take(&cluster.request(&at.join("two"), tenant)).await.unwrap();
    cluster.close().await;

    // When they come back, nothing is set as it was.
    set(
        &place,
        &["timezone = 'Asia/Kathmandu'", "datestyle = 'Postgres, MDY'", "intervalstyle = 'iso_8601'"],
    );
    let cluster = Cluster::open(&place, &place.data(), 2).await;
    for name in ["all", "two"] {
        for (kind, values) in KINDS {
            let (first, last) = (values[0], values[values.len() - 1]);
            let sql = format!(
                "UPDATE by_{kind} SET also = NULL WHERE k = '{first}'; DELETE FROM by_{kind} WHERE k = '{last}'"
            );
            place.server.as_ref().unwrap().execute("s2", &sql);
        }
        let rows = cluster.restore_tenant(&at.join(name), 2, Present::Replace).await.unwrap();
        assert_eq!(rows as usize, before.len(), "{name}");
        assert_eq!(found(&place), before, "{name}");
    }
    cluster.close().await;
}
