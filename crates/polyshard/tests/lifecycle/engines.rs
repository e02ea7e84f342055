//! D7, D8, G1: rows of all stores go into an archive and come back: on either engine, from one to the other, killed in
//! between.

use std::os::unix::process::ExitStatusExt;

use polyshard_testkit::process::{Server, Setup};
use tempfile::TempDir;
use tokio_postgres::SimpleQueryMessage;

use crate::azure::{Azure, TABLE, queue};
use crate::fleet::Fleet;
use crate::sql::{block_on, connect, sql};
use crate::support::{await_quiet, json, refused, run, session, shard_of};

/// SIGABRT, by which a server ends itself at a failpoint.
const ABORTED: i32 = 6;
/// The tenant that is archived, and another one.
const TENANT: i64 = 7;
const OTHER: i64 = 8;

/// A column of each type that files keep in a form of their own, and some that are the same everywhere.
const TYPES: &str = "CREATE TABLE things (tenant bigint, id bigint, day date, clock time, local timestamp, \
     moment timestamptz, price numeric(12,3), mark uuid, span interval, tags text[], days date[], body jsonb, \
     half double precision, ok boolean, raw bytea, code char(4), note varchar(40), PRIMARY KEY (tenant, id))";

/// Rows of a tenant: ordinary ones, the ends of what there is, and nothing at all.
fn things(tenant: i64) -> Vec<String> {
    let mut rows: Vec<String> = (0..300)
        .map(|id| {
            format!(
                "({tenant}, {id}, DATE '2024-01-01' + {id}, '13:14:15.123456', '2024-02-29 23:59:59.999999', \
                 '2024-02-29 23:59:59.999999+00', {id}.125, '00000000-0000-4000-8000-{id:012}', \
                 '1 year 2 days 3.5 seconds', '{{a,\"b c\",NULL}}', '{{2024-01-01,infinity}}', '{{\"n\": [{id}]}}', \
                 {id}.5, {}, '\\x00ff', 'ab', 'it''s, \"{id}\"')",
                id % 2 == 0
            )
        })
        .collect();
    rows.push(format!(
        "({tenant}, 1000, 'infinity', '24:00:00', '-infinity', 'infinity', -0.001, \
         'ffffffff-ffff-ffff-ffff-ffffffffffff', '-178000000 years', '{{}}', '{{}}', '[]', 'Infinity', true, '', \
         '', '')"
    ));
    rows.push(format!(
        "({tenant}, 1001, '0044-03-15 BC', '00:00:00', '0044-03-15 01:02:03 BC', '0044-03-15 01:02:03+00 BC', 0, \
         NULL, '00:00:00.000001', NULL, NULL, 'null', -1e-300, NULL, NULL, NULL, NULL)"
    ));
    rows
}

/// Fills a shard with both tenants' rows, entities and messages.
fn filled(server: &Server, shard: &str) {
    session(server, "map create tenants --kind list --key bigint");
    for tenant in [TENANT, OTHER] {
        run(server, &format!("map add tenants --key {tenant} --to {shard}")).ok();
    }
    sql(server, TYPES);
    run(server, "table shard things --map tenants --key tenant").ok();
    for tenant in [TENANT, OTHER] {
        sql(server, &format!("INSERT INTO things VALUES {}", things(tenant).join(", ")));
    }
    run(server, &format!("bind table:{TABLE} --map tenants --rule before:-")).ok();
    let mut tables = Azure::connect(server.door("table")).expect("the door is open");
    let body = format!(r#"{{"TableName":"{TABLE}"}}"#);
    assert_eq!(tables.table("POST", "/devstoreaccount1/Tables", &body).expect("an answer").status, 201);
    let mut queues = Azure::connect(server.door("queue")).expect("the door is open");
    for tenant in [TENANT, OTHER] {
        let name = queue(tenant);
        run(server, &format!("bind queue:{name} --map tenants --rule before:-")).ok();
        let made = queues.queue("PUT", &format!("/devstoreaccount1/{name}"), "", "").expect("an answer");
        assert_eq!(made.status, 201, "{made:?}");
        for id in 0..20 {
            assert_eq!(tables.put_entity(tenant, id).expect("an answer").status, 201);
            assert_eq!(queues.put_message(tenant, id).expect("an answer").status, 201);
        }
    }
}

/// All rows of a tenant in letters, as a client sees them.
#[track_caller]
fn seen(server: &Server, tenant: i64) -> Vec<String> {
    let address = server.door("sql").to_owned();
    let asked = format!("SELECT * FROM things WHERE tenant = {tenant} ORDER BY id");
    let answered = block_on(async move { connect(&address).await.simple_query(&asked).await });
    let messages = answered.unwrap_or_else(|error| panic!("{error:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let values = (0..row.len()).map(|at| row.get(at).unwrap_or("NULL"));
            Some(values.collect::<Vec<_>>().join("|"))
        }
        _ => None,
    });
    rows.collect()
}

/// The entities that there are, by tenant and number.
#[track_caller]
fn entities(server: &Server) -> Vec<(i64, i64)> {
    let mut azure = Azure::connect(server.door("table")).expect("the door is open");
    let mut found = azure.entities().expect("an answer");
    found.sort_unstable();
    found
}

/// Takes the messages of a tenant.
#[track_caller]
fn messages(server: &Server, tenant: i64) -> Vec<i64> {
    let mut azure = Azure::connect(server.door("queue")).expect("the door is open");
    let mut found: Vec<i64> =
        azure.messages(tenant).expect("an answer").into_iter().map(|(_, id)| id).collect();
    found.sort_unstable();
    found
}

fn of(tenants: &[i64]) -> Vec<(i64, i64)> {
    tenants.iter().flat_map(|tenant| (0..20).map(|id| (*tenant, id))).collect()
}

/// Whether the server is killed on the way.
#[derive(Clone, Copy, PartialEq)]
enum Killed {
    Yes,
    No,
}

/// Has a command done; or end the server at a place, and another server go on.
#[track_caller]
fn killed_at(killed: Killed, server: &mut Server, place: &str, line: &str) {
    if killed == Killed::No {
        run(server, &format!("{line} --wait")).ok();
        return;
    }
    let setup = server.setup().clone();
    server.stop();
    let mut doomed = setup.clone().env("POLYSHARD_FAILPOINT", place).start();
    // The answer may be lost with the server.
    let _asked = run(&doomed, line);
    let ended = doomed.wait();
    assert_eq!(ended.signal(), Some(ABORTED), "{place}: {}", doomed.log().text());
    *server = setup.start();
    await_quiet(server);
}

/// Archives a tenant of one shard, perhaps killed when its rows were deleted, and restores it onto another, perhaps
/// killed when they are there.
fn goes_and_comes_back(killed: Killed, server: &mut Server, from: &str, to: &str) {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    filled(server, from);
    let before = seen(server, TENANT);
    assert_eq!(before.len(), 302);
    let line =
        format!("archive run tenants --key {TENANT} --to {} --name seven --csv", place.path().display());
    killed_at(killed, server, "task_drop_rows.after", &line);
    assert_eq!(json(server, "archive show seven")["state"], "archived");
    assert_eq!(json(server, "archive show seven")["rows"], 302 + 20 + 20);
    assert_eq!(sql(server, "SELECT count(*) FROM things"), "302", "the other tenant's");
    assert_eq!(entities(server), of(&[OTHER]));
    let mut azure = Azure::connect(server.door("table")).expect("the door is open");
    let refused = azure.put_entity(TENANT, 99).expect("an answer");
    assert!(refused.status >= 400, "{refused:?}");
    // Dates in readable copies are as people write them.
    let files = std::fs::read_dir(place.path().join("seven/csv")).expect("readable copies");
    let texts: Vec<String> =
        files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a text")).collect();
    if ["a", "b", "big"].contains(&from) {
        assert!(texts.iter().any(|text| text.contains("2024-01-05")), "{texts:?}");
    }

    killed_at(killed, server, "task_restore_archive.after", &format!("archive restore seven --to {to}"));
    assert_eq!(json(server, "archive show seven")["state"], "restored");
    assert_eq!(shard_of(server, "tenants", "7"), to);
    assert_eq!(seen(server, TENANT), before);
    assert_eq!(seen(server, OTHER).len(), 302);
    assert_eq!(entities(server), of(&[TENANT, OTHER]));
    run(server, "check tenants").ok();
    run(server, "archive forget seven").ok();
    // What came back is as good as what was there before.
    assert_eq!(sql(server, "SELECT count(*) FROM things WHERE tenant = 7 AND day = '2024-01-05'"), "1");
    sql(server, "INSERT INTO things (tenant, id, day) VALUES (7, 5000, '2024-05-05')");
    sql(server, "DELETE FROM things WHERE tenant = 7 AND id = 5000");
    let mut azure = Azure::connect(server.door("table")).expect("the door is open");
    assert_eq!(azure.delete_entity(TENANT, 0).expect("an answer").status, 204);
    assert_eq!(azure.put_entity(TENANT, 0).expect("an answer").status, 201);
}

#[test]
#[ignore = "servers are killed and waited for: make test-all"]
fn rows_entities_and_messages_go_into_an_archive_and_come_back() {
    let mut server = Setup::new().start();
    goes_and_comes_back(Killed::Yes, &mut server, "s1", "s2");
    assert_eq!(messages(&server, TENANT), (0..20).collect::<Vec<_>>());
    assert_eq!(messages(&server, OTHER), (0..20).collect::<Vec<_>>());
    server.stop();
}

#[test]
#[ignore = "servers are killed and waited for: make test-all"]
fn rows_entities_and_messages_on_postgres_go_into_an_archive_and_come_back() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = fleet.setup().start();
    goes_and_comes_back(Killed::Yes, &mut server, "a", "b");
    assert_eq!(messages(&server, TENANT), (0..20).collect::<Vec<_>>());
    assert_eq!(messages(&server, OTHER), (0..20).collect::<Vec<_>>());
    server.stop();
}

#[test]
fn an_archive_of_a_file_comes_back_on_postgres_and_the_other_way_round() {
    let fleet = Fleet::start(1, &[]);
    fleet.create(0, "big");
    let (url, password) = (fleet.url(0, "big"), fleet.password_file("big"));
    let secrets = password.parent().expect("a folder").display().to_string();
    let mut server = Setup::new().env("POLYSHARD__SECRETS__SHARD_FOLDER", &secrets).start();
    run(&server, &format!("shard add big --url {url} --password-file {}", password.display())).ok();
    goes_and_comes_back(Killed::No, &mut server, "s1", "big");
    let there =
        fleet.servers[0].execute("big", "SELECT count(*) || ' ' || min(day) FROM things WHERE tenant = 7");
    assert_eq!(there, "302 0044-03-15 BC");

    // And back onto a file, with all that a database can have and a file, too.
    let before = seen(&server, TENANT);
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let line = format!("archive run tenants --key 7 --to {} --name back --wait", place.path().display());
    run(&server, &line).ok();
    assert_eq!(fleet.servers[0].execute("big", "SELECT count(*) FROM things"), "0");
    run(&server, "archive restore back --to s2 --wait").ok();
    assert_eq!((shard_of(&server, "tenants", "7"), seen(&server, TENANT)), ("s2".to_owned(), before));
    assert_eq!(entities(&server), of(&[TENANT, OTHER]));
    assert_eq!(messages(&server, TENANT), (0..20).collect::<Vec<_>>());
    run(&server, "check tenants").ok();
    run(&server, "archive forget back").ok();

    // What a file cannot keep is named, and the archive is as before.
    run(&server, "move tenants --key 7 --to big --wait").ok();
    sql(&server, "INSERT INTO things (tenant, id, half) VALUES (7, 6000, 'NaN')");
    run(&server, &line).ok();
    let error = refused(&server, "archive restore back --to s2 --wait", 4);
    assert!(error["message"].as_str().expect("a message").contains("column half"), "{error}");
    assert_eq!(json(&server, "archive show back")["state"], "archived");
    run(&server, "archive restore back --to big --wait").ok();
    assert_eq!(sql(&server, "SELECT half FROM things WHERE tenant = 7 AND id = 6000"), "NaN");
    server.stop();
}

/// Types of keys, and values of each: as they are written in any notation.
const KEYS: [(&str, &[&str]); 8] = [
    ("timestamptz", &["infinity", "0044-03-15 12:00:00.000001+00 BC", "294276-12-31 23:59:59.999999+00"]),
    ("timestamp", &["-infinity", "2026-03-29 02:30:00.000001", "294276-12-31 23:59:59.999999"]),
    ("date", &["infinity", "-infinity", "4713-01-01 BC", "2026-02-01", "5874897-12-31"]),
    ("time", &["24:00", "00:00:00.000001", "12:34:56.789012"]),
    ("uuid", &["6f9619ff-8b86-d011-b42d-00c04fc964ff", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    ("interval", &["-1 mons -2 days -03:04:05.000006", "1 mons -1 days", "-178000000 years"]),
    ("numeric", &["1.0", "-0.0000001", "NaN"]),
    ("float8", &["0.30000000000000004", "-Infinity", "NaN"]),
];

/// All rows of those tables in a database, to the bit.
fn bits(fleet: &Fleet, database: &str) -> Vec<String> {
    let one = |(kind, _): &(&str, _)| {
        format!("SELECT '{kind} ' || encode(record_send(ROW(t.*)), 'hex') FROM by_{kind} t")
    };
    let all: Vec<String> = KEYS.iter().map(one).collect();
    let rows = fleet.servers[0].execute(database, &all.join(" UNION ALL "));
    let mut rows: Vec<String> = rows.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

#[test]
#[ignore = "many tables are made and archived: make test-all"]
fn keys_that_are_dates_come_back_from_an_archive_whatever_the_databases_have_set() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let settings = [
        ("a", "timezone = 'America/St_Johns'"),
        ("a", "datestyle = 'SQL, DMY'"),
        ("a", "intervalstyle = 'sql_standard'"),
        ("a", "extra_float_digits = -5"),
        ("b", "timezone = 'Asia/Kathmandu'"),
        ("b", "datestyle = 'Postgres, MDY'"),
        ("b", "intervalstyle = 'iso_8601'"),
    ];
    for (database, setting) in settings {
        fleet.servers[0].execute("postgres", &format!("ALTER DATABASE {database} SET {setting}"));
    }
    let mut server = fleet.setup().start();
    session(&server, "map create tenants --kind list --key bigint\nmap add tenants --key 7 --to a");
    for (kind, values) in KEYS {
        let columns = format!("tenant bigint, k {kind}, also {kind}, PRIMARY KEY (tenant, k)");
        sql(&server, &format!("CREATE TABLE by_{kind} ({columns})"));
        run(&server, &format!("table shard by_{kind} --map tenants --key tenant")).ok();
        let rows: Vec<String> = values.iter().map(|value| format!("(7, '{value}', '{value}')")).collect();
        fleet.servers[0].execute("a", &format!("INSERT INTO by_{kind} VALUES {}", rows.join(", ")));
    }
    let before = bits(&fleet, "a");
    assert_eq!(before.len(), KEYS.iter().map(|(_, values)| values.len()).sum::<usize>());

    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let line = format!("archive run tenants --key 7 --to {} --name seven --wait", place.path().display());
    run(&server, &line).ok();
    assert_eq!(bits(&fleet, "a"), Vec::<String>::new());
    run(&server, "archive restore seven --to b --wait").ok();
    assert_eq!(bits(&fleet, "b"), before);
    run(&server, "check tenants").ok();

    // Whoever has slept through a drop finds there that it is done, whatever has come to the range since.
    run(&server, "archive run tenants --key 7 --drop tenants --wait").ok();
    assert_eq!(bits(&fleet, "b"), Vec::<String>::new());
    let kept = "SELECT count(*) FROM polyshard.taken WHERE starts_with(shard, 'offline/drop:')";
    assert_eq!(fleet.servers[0].execute("b", kept), "1");
    server.stop();
}
