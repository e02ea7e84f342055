//! Rows that each shard has sorted, put together as they come: in PostgreSQL's order whatever the keys are, without a
//! temporary table, in parts if the client wants them so.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::{Cluster, Setup, refusal, rows};
use crate::world::Dice;
use crate::{asked, difference};

/// Columns of each type that can be a key, with values in which every form has its corners.
const COLUMNS: &[(&str, &str, &[&str])] = &[
    ("b", "boolean", &["true", "false"]),
    ("s", "smallint", &["-32768", "-1", "0", "1", "32767"]),
    ("i", "integer", &["-2147483648", "-256", "-1", "0", "255", "2147483647"]),
    ("l", "bigint", &["-9223372036854775808", "-65536", "0", "7", "9223372036854775807"]),
    ("o", "oid", &["0", "1", "2147483648", "4294967295"]),
    ("r", "real", &["'-Infinity'", "-1.5", "'-0'", "0", "1e-45", "1.5", "'Infinity'", "'NaN'"]),
    (
        "d",
        "double precision",
        &[
            "'-Infinity'",
            "-1e300",
            "-5e-324",
            "'-0'",
            "0",
            "5e-324",
            "0.1",
            "0.30000000000000004",
            "0.3",
            "'NaN'",
        ],
    ),
    (
        "n",
        "numeric",
        &[
            "'-Infinity'",
            "-10000",
            "-9999.9999",
            "-1",
            "-0.0001",
            "0",
            "0.000",
            "0.00001",
            "0.5",
            "0.50",
            "1",
            "9999",
            "10000",
            "10000.0001",
            "1e40",
            "1e-40",
            "-1e40",
            "'Infinity'",
            "'NaN'",
        ],
    ),
    (
        "t",
        "text COLLATE \"C\"",
        &["''", "'a'", "'A'", "'a b'", "'ab'", "'é'", "'Ω'", "'𝄞'", "'_'", "E'\\u0001'"],
    ),
    ("v", "varchar(9) COLLATE \"POSIX\"", &["''", "'x'", "'x '", "'X'", "'é'"]),
    ("c", "char(4) COLLATE \"C\"", &["''", "'a'", "'a b'", "'A'", "E'a\\t'"]),
    ("y", "bytea", &["''", "'\\x00'", "'\\x0000'", "'\\x00ff'", "'\\x01'", "'\\xff'"]),
    (
        "u",
        "uuid",
        &[
            "'00000000-0000-0000-0000-000000000000'",
            "'00000000-0000-0000-0000-0000000000ff'",
            "'80000000-0000-0000-0000-000000000000'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        ],
    ),
    ("e", "date", &["'-infinity'", "'4713-01-01 BC'", "'1999-12-31'", "'2000-01-01'", "'infinity'"]),
    ("h", "time", &["'00:00'", "'12:34:56.789'", "'24:00'"]),
    ("m", "timestamp", &["'-infinity'", "'1999-12-31 23:59:59.999999'", "'2000-01-01'", "'infinity'"]),
    ("z", "timestamptz", &["'-infinity'", "'2024-01-01 00:00+02'", "'2023-12-31 22:00+00'", "'infinity'"]),
    (
        "w",
        "interval",
        &[
            "'-1 day'",
            "'0'",
            "'24 hours'",
            "'1 day'",
            "'30 days'",
            "'1 month'",
            "'29 days 24 hours'",
            "'178000000 years'",
            "'-178000000 years'",
        ],
    ),
];

/// Rows of the table. Every shard has some hundred.
const ROWS: usize = 600;

struct World {
    cluster: Cluster,
    whole: Client,
    door: Client,
}

impl World {
    async fn new(seed: u64) -> World {
        let cluster = Cluster::start_with(Setup { shards: 3, ..Setup::default() }).await;
        cluster.server().create_database("whole");
        let (whole, door) = (crate::plain(cluster.server()).await, cluster.connect().await);
        let columns: Vec<String> = COLUMNS.iter().map(|(name, kind, _)| format!("{name} {kind}")).collect();
        let ddl = format!("CREATE TABLE keys (id bigint PRIMARY KEY, {}, loose text)", columns.join(", "));
        door.batch_execute(&ddl).await.expect("create");
        whole.batch_execute(&ddl).await.expect("create");
        for sql in [
            "SELECT polyshard.create_map('ids', 'hash', 'bigint')",
            "SELECT polyshard.shard_table('keys', 'ids', 'id')",
        ] {
            door.batch_execute(sql).await.expect("declare");
        }
        let mut dice = Dice::new(seed);
        let mut values = Vec::new();
        for id in 0..ROWS {
            let mut row = vec![id.to_string()];
            for (_, _, among) in COLUMNS {
                row.push(if dice.percent(12) { "NULL".to_owned() } else { (*dice.pick(among)).to_owned() });
            }
            row.push(format!("'{}'", dice.pick(&["a", "B", "_", "é"])));
            values.push(format!("({})", row.join(", ")));
        }
        let insert = format!("INSERT INTO keys VALUES {}", values.join(", "));
        whole.batch_execute(&insert).await.expect("insert");
        for row in values {
            door.batch_execute(&format!("INSERT INTO keys VALUES {row}")).await.expect("insert a row");
        }
        World { cluster, whole, door }
    }

    async fn plan(&self, sql: &str) -> String {
        rows(&self.door, &format!("EXPLAIN {sql}")).await.concat().join("\n")
    }

    async fn same(&self, sql: &str) -> Result<(), String> {
        let (expected, got) = (crate::ask(&self.whole, sql).await, crate::ask(&self.door, sql).await);
        let told = |error: tokio_postgres::Error| format!("{error:?}\n  query: {sql}");
        match difference(expected.map_err(told)?, got.map_err(told)?, true) {
            None => Ok(()),
            Some(what) => Err(format!("{what}\n  query: {sql}")),
        }
    }
}

/// A query whose order leaves nothing open: its last key is the id.
fn query(dice: &mut Dice) -> String {
    let mut order = Vec::new();
    for _ in 0..1 + dice.below(3) {
        let (name, kind, _) = dice.pick(COLUMNS);
        let key = match dice.below(6) {
            0 if kind.starts_with("text") => format!("lower({name})"),
            0 if *name == "i" => format!("{name} % 7"),
            0 if *name == "n" => format!("{name} * 0.10"),
            _ => (*name).to_owned(),
        };
        let direction = *dice.pick(&["", " ASC", " DESC"]);
        order.push(format!("{key}{direction}{}", dice.pick(&["", " NULLS FIRST", " NULLS LAST"])));
    }
    order.push(format!("id{}", dice.pick(&["", " DESC"])));
    let mut list: Vec<&str> = (0..1 + dice.below(4)).map(|_| dice.pick(COLUMNS).0).collect();
    list.insert(dice.below(list.len() + 1), "id");
    let condition = *dice.pick(&["", "", " WHERE i > 0 OR i IS NULL", " WHERE b", " WHERE id < 0"]);
    let end = match dice.below(5) {
        0 => format!(" LIMIT {}", dice.below(40)),
        1 => format!(" LIMIT {} OFFSET {}", dice.below(700), dice.below(700)),
        2 => format!(" OFFSET {}", dice.below(650)),
        _ => String::new(),
    };
    format!("SELECT {} FROM keys{condition} ORDER BY {}{end}", list.join(", "), order.join(", "))
}

// C2: every type of key, each way round, as one database has it.
#[tokio::test]
async fn rows_are_merged_in_postgresqls_order() {
    let seed = asked("POLYSHARD_SEED").unwrap_or(1);
    let world = World::new(seed).await;
    let mut different = Vec::new();
    for (name, _, _) in COLUMNS {
        for order in ["", " DESC", " NULLS FIRST", " DESC NULLS LAST"] {
            let sql = format!("SELECT {name}, id FROM keys ORDER BY {name}{order}, id");
            assert!(world.plan(&sql).await.contains("\nMerge: "), "{sql}: {}", world.plan(&sql).await);
            different.extend(world.same(&sql).await.err());
        }
    }
    // A session that writes floats with fewer digits has them in the same order.
    world.door.batch_execute("SET extra_float_digits = 0").await.unwrap();
    world.whole.batch_execute("SET extra_float_digits = 0").await.unwrap();
    different.extend(world.same("SELECT d, id FROM keys ORDER BY d, id").await.err());
    let queries = asked("POLYSHARD_QUERIES").unwrap_or(match std::env::var("POLYSHARD_LONG") {
        Ok(_) => 3_000,
        Err(_) => 150,
    });
    let mut dice = Dice::new(seed + 1);
    for number in 0..queries {
        let sql = query(&mut dice);
        different
            .extend(world.same(&sql).await.err().map(|what| format!("seed {seed}, query {number}: {what}")));
    }
    world.cluster.close().await;
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n\n"));
}

// C2: what cannot be compared here is sorted by PostgreSQL.
#[tokio::test]
async fn what_is_not_in_the_order_of_its_bytes_is_sorted_by_postgresql() {
    let world = World::new(2).await;
    for (sql, merged) in [
        ("SELECT id FROM keys ORDER BY loose COLLATE \"und-x-icu\", id", false),
        ("SELECT id FROM keys ORDER BY loose COLLATE \"C\", id", true),
        ("SELECT id FROM keys ORDER BY ARRAY[i], id", false),
        // All but the first: together more than a number of rows can be.
        ("SELECT id FROM keys ORDER BY id LIMIT 9223372036854775807 OFFSET 1", true),
        ("SELECT id FROM keys ORDER BY ARRAY[i], id LIMIT 9223372036854775807 OFFSET 1", false),
        ("SELECT DISTINCT i FROM keys ORDER BY i", false),
        ("SELECT DISTINCT id, i FROM keys ORDER BY i, id", true),
        ("SELECT DISTINCT ON (i) i, id FROM keys ORDER BY i, id", false),
        ("SELECT i, id FROM keys ORDER BY i, id FETCH FIRST 3 ROWS WITH TIES", false),
        ("SELECT i, count(*) FROM keys GROUP BY i ORDER BY i", false),
        ("SELECT id, count(*) FROM keys GROUP BY id ORDER BY id DESC LIMIT 9", true),
        ("SELECT id AS k0, i AS k0, 1 AS k1 FROM keys ORDER BY keys.id LIMIT 9", true),
        ("WITH a AS (SELECT id, i FROM keys WHERE i > 0) SELECT * FROM a ORDER BY i, id", true),
        ("SELECT id FROM keys WHERE id < 9 UNION ALL SELECT id FROM keys WHERE id > 590 ORDER BY id", true),
    ] {
        let plan = world.plan(sql).await;
        assert_eq!(plan.contains("\nMerge: "), merged, "{sql}: {plan}");
        assert_eq!(plan.contains("\nCombine: "), !merged, "{sql}: {plan}");
        // Asked again, it goes the shorter way.
        for _ in 0..6 {
            if let Err(what) = world.same(sql).await {
                panic!("{what}");
            }
        }
    }
    let analyzed = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) SELECT id FROM keys ORDER BY i, id LIMIT 5";
    let lines = rows(&world.door, analyzed).await.concat();
    assert!(lines[1].starts_with("Merge: in the order of the first 2 columns"), "{lines:#?}");
    assert!(
        lines.iter().any(|line| line == "Shard s3:") && !lines.iter().any(|line| line == "Combine step:")
    );
    world.cluster.close().await;
}

/// A table that nobody else sees yet: one that is temporary.
pub const TEMPORARY: &str = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                         WHERE d.datname = current_database() AND l.mode = 'AccessExclusiveLock' \
                         AND NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = l.relation)";
const BUSY: &str = "FROM pg_stat_activity WHERE datname IN ('s1', 's2', 's3') \
                    AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND application_name NOT LIKE 'psql%'";

async fn until_nothing_is_open(cluster: &Cluster) {
    let closed = async {
        while cluster.on_shard("s1", &format!("SELECT count(*) {BUSY}")) != "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), closed).await.is_err() {
        let open = format!("SELECT datname, pid, state, wait_event, now() - xact_start, query {BUSY}");
        panic!("something is left open:\n{}", cluster.on_shard("s1", &open));
    }
}

// C2, C3: a fetch size, and a cursor: the rows stay on their shards until they are wanted.
#[tokio::test]
async fn sorted_rows_are_taken_in_parts_without_a_temporary_table() {
    let mut world = World::new(3).await;
    let expected: Vec<i64> = {
        let all = world.whole.query("SELECT id FROM keys ORDER BY n DESC, id", &[]).await.unwrap();
        all.iter().map(|row| row.get(0)).collect()
    };
    let ids = |rows: Vec<tokio_postgres::Row>| -> Vec<i64> { rows.iter().map(|row| row.get("id")).collect() };
    for size in [1, 7, 250, 599, 600, 601] {
        let transaction = world.door.transaction().await.unwrap();
        let statement =
            transaction.prepare("SELECT id, n::text AS shown FROM keys ORDER BY n DESC, id").await.unwrap();
        let portal = transaction.bind(&statement, &[]).await.unwrap();
        let mut all = Vec::new();
        loop {
            let part = ids(transaction.query_portal(&portal, size).await.unwrap());
            assert!(part.len() <= usize::try_from(size).unwrap());
            for shard in ["s1", "s2", "s3"] {
                assert_eq!(world.cluster.on_shard(shard, TEMPORARY), "0", "{shard}");
            }
            let last = part.is_empty();
            all.extend(part);
            // A few parts, and then the rest at once.
            if size < 250 && all.len() > 3 * usize::try_from(size).unwrap() {
                all.extend(ids(transaction.query_portal(&portal, 0).await.unwrap()));
                break;
            }
            if last {
                break;
            }
        }
        assert_eq!(all, expected, "{size} at a time");
        assert!(transaction.query_portal(&portal, size).await.unwrap().is_empty());
        transaction.commit().await.unwrap();
        until_nothing_is_open(&world.cluster).await;
    }
    let client = &world.door;
    let fetched = async |sql: &str| -> Vec<i64> {
        rows(client, sql).await.into_iter().map(|row| row[0].parse().unwrap()).collect()
    };
    client
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT id FROM keys ORDER BY n DESC, id")
        .await
        .unwrap();
    assert_eq!(fetched("FETCH c").await, expected[..1]);
    // What others write after it was declared is not seen.
    let other = world.cluster.connect().await;
    for id in [5, 6] {
        other.batch_execute(&format!("DELETE FROM keys WHERE id = {id}")).await.unwrap();
    }
    assert_eq!(fetched("FETCH FORWARD 9 FROM c").await, expected[1..10]);
    assert_eq!(fetched("MOVE 5 FROM c").await, [0; 0]);
    assert_eq!(fetched("FETCH RELATIVE 2 FROM c").await, expected[16..17]);
    assert_eq!(fetched("FETCH ABSOLUTE 20 FROM c").await, expected[19..20]);
    assert_eq!(world.cluster.on_shard("s2", TEMPORARY), "0");
    assert_eq!(fetched("FETCH ALL FROM c").await, expected[20..]);
    assert_eq!(fetched("FETCH NEXT FROM c").await, [0; 0]);
    assert_eq!(refusal(client, "FETCH PRIOR FROM c").await.0, "55000");
    client.batch_execute("ROLLBACK").await.unwrap();
    until_nothing_is_open(&world.cluster).await;
    // In the extended protocol its rows are binary, and closed it is gone; rows in no order come too.
    client.batch_execute("BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT id FROM keys").await.unwrap();
    let first = client.query("FETCH 400 FROM c", &[]).await.unwrap();
    assert_eq!((first.len(), first[0].columns()[0].name()), (400, "id"));
    assert_eq!(client.query("FETCH 400 FROM c", &[]).await.unwrap().len(), 198);
    assert_eq!(world.cluster.on_shard("s3", TEMPORARY), "0");
    client.batch_execute("CLOSE c").await.unwrap();
    assert_eq!(refusal(client, "FETCH 1 FROM c").await.0, "34000");
    client.batch_execute("ROLLBACK").await.unwrap();
    until_nothing_is_open(&world.cluster).await;
    world.cluster.close().await;
}

// C2, C9: more rows than are asked for at a time, of which not all are wanted; long ones; errors in the middle; a
// client that goes away, or says stop.
#[tokio::test]
async fn a_long_merge_ends_when_it_is_to_end() {
    let cluster = Cluster::start_with(Setup { shards: 3, ..Setup::default() }).await;
    let client = cluster.connect().await;
    for sql in [
        "CREATE TABLE many (tenant bigint, id bigint, body text, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "SELECT polyshard.shard_table('many', 'tenants', 'tenant')",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    for tenant in 0..12 {
        let insert = format!(
            "INSERT INTO many SELECT {tenant}, id * 12 + {tenant}, repeat('x', 20) FROM generate_series(0, 1499) id"
        );
        client.batch_execute(&insert).await.unwrap();
    }
    let ids = async |client: &Client, sql: &str| -> Vec<i64> {
        rows(client, sql).await.into_iter().map(|row| row[0].parse().unwrap()).collect()
    };
    for (limit, offset) in [(999, 0), (1000, 1), (5_000, 0), (5_000, 12_345), (18_000, 0), (20_000, 17_000)] {
        let sql = format!("SELECT id, body FROM many ORDER BY id LIMIT {limit} OFFSET {offset}");
        let expected: Vec<i64> = (offset..(offset + limit).min(18_000)).collect();
        for _ in 0..2 {
            assert_eq!(ids(&client, &sql).await, expected, "{sql}");
        }
        let sql = format!("SELECT id FROM many LIMIT {limit} OFFSET {offset}");
        assert_eq!(ids(&client, &sql).await.len(), expected.len(), "{sql}");
    }
    until_nothing_is_open(&cluster).await;
    // Rows longer than any buffer, and one that fails after others were sent.
    let long =
        rows(&client, "SELECT id, repeat(body, 30000) FROM many WHERE id < 9 ORDER BY id DESC LIMIT 4").await;
    assert_eq!(long.iter().map(|row| row[1].len()).collect::<Vec<_>>(), [600_000; 4]);
    assert_eq!(long[0][0], "8");
    let failing = "SELECT id, 1 / (17000 - id) FROM many WHERE id <= 17000 ORDER BY id";
    assert_eq!(refusal(&client, failing).await.0, "22012");
    assert_eq!(ids(&client, "SELECT id FROM many ORDER BY id LIMIT 2").await, [0, 1]);
    // In a transaction that has written on one shard, its own session is one of those that are merged.
    client.batch_execute("BEGIN; INSERT INTO many VALUES (1, -1, 'mine')").await.unwrap();
    for _ in 0..2 {
        assert_eq!(ids(&client, "SELECT id FROM many ORDER BY id LIMIT 3").await, [-1, 0, 1]);
        assert_eq!(ids(&client, "SELECT id FROM many ORDER BY id LIMIT 1500").await.len(), 1500);
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    // A word to stop, while the shards sort something that takes longer than anybody waits.
    let endless = "SELECT a.id FROM many a JOIN many b ON a.tenant = b.tenant JOIN many c ON c.tenant = b.tenant \
                   ORDER BY a.id + b.id * c.id";
    let token = client.cancel_token();
    let asking = tokio::spawn(async move {
        let refused = refusal(&client, endless).await;
        (client, refused)
    });
    let sorting = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%AS k0%ORDER BY%' \
                   AND pid <> pg_backend_pid()";
    let begun = async {
        while cluster.on_shard("s1", sorting) != "3" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), begun).await.is_ok(), "the shards sort");
    // PostgreSQL does not hear a word to stop that comes between two messages; who wants it to stop says it again.
    let stopping = async {
        while !asking.is_finished() {
            cluster.stop(&token).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), stopping).await.is_ok(), "it is stopped");
    let (client, refused) = asking.await.unwrap();
    assert_eq!(refused.0, "57014", "{refused:?}");
    assert_eq!(ids(&client, "SELECT id FROM many ORDER BY id LIMIT 2").await, [0, 1]);
    // A session that is lost: rows that came before are passed on, and what is not known is not passed off as the end.
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT id FROM many ORDER BY id").await.unwrap();
    assert_eq!(ids(&client, "FETCH 2 FROM c").await, [0, 1]);
    cluster.on_shard(
        "s2",
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
         WHERE datname = current_database() AND backend_type = 'client backend' AND xact_start IS NOT NULL \
         AND pid <> pg_backend_pid()",
    );
    assert_eq!(refusal(&client, "FETCH ALL FROM c").await.0, "08006");
    assert_eq!(refusal(&client, "FETCH ALL FROM c").await.0, "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    // A client that is gone in the middle leaves nothing behind.
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT id FROM many ORDER BY id").await.unwrap();
    assert_eq!(ids(&client, "FETCH 2 FROM c").await, [0, 1]);
    drop(client);
    until_nothing_is_open(&cluster).await;
    cluster.close().await;
}

// C2, M: while ranges are moved, a row is merged once.
#[tokio::test]
async fn rows_of_ranges_in_motion_are_merged_once() {
    let cluster = crate::across::notes().await;
    let client = cluster.connect().await;
    let sql = "SELECT tenant, id FROM notes ORDER BY tenant DESC, id";
    let expected = rows(&client, sql).await;
    assert_eq!(expected.len(), 40);
    let moves = cluster.swap_and_keep("tenants").await;
    for _ in 0..3 {
        assert_eq!(rows(&client, sql).await, expected);
    }
    client
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT tenant, id FROM notes ORDER BY tenant DESC, id")
        .await
        .unwrap();
    assert_eq!(rows(&client, "FETCH ALL FROM c").await, expected);
    client.batch_execute("ROLLBACK").await.unwrap();
    cluster.clean_up(moves).await;
    assert_eq!(rows(&client, sql).await, expected);
    cluster.close().await;
}
