//! D7: a range goes into an archive and comes back, on both engines; what cannot be archived stays as it was.

use polyshard_testkit::process::{Server, Setup};
use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::Fleet;
use crate::sql::{block_on, connect, load, sql};
use crate::support::{await_quiet, eventually, json, refused, run, running, session, shard_of};

/// Rows of one month.
const MONTH_ROWS: usize = 600;

/// Orders of January to March 2024, by day, all on one shard; with lines that refer to them.
pub fn filled(server: &Server, shard: &str) {
    session(server, "map create orders --kind range --key date");
    run(server, &format!("map add orders --range '..' --to {shard}")).ok();
    sql(server, "CREATE TABLE orders (day date, id bigint, note text, PRIMARY KEY (day, id))");
    run(server, "table shard orders --map orders --key day").ok();
    sql(
        server,
        "CREATE TABLE lines (day date, id bigint, line int, PRIMARY KEY (day, id, line), \
         FOREIGN KEY (day, id) REFERENCES orders (day, id))",
    );
    run(server, "table shard lines --map orders --key day").ok();
    let ids =
        |month: usize| (0..MONTH_ROWS).map(move |id| (format!("2024-{month:02}-{:02}", id % 28 + 1), id));
    load(server, "orders", (1..=3).flat_map(ids).map(|(day, id)| format!("{day}\t{id}\tnote, \"{id}\"")));
    load(server, "lines", (1..=3).flat_map(ids).map(|(day, id)| format!("{day}\t{id}\t1")));
}

/// What all clients can see, in few letters.
pub fn seen(server: &Server) -> String {
    sql(
        server,
        "SELECT (SELECT count(*) FROM orders)::text || ' ' || (SELECT count(*) FROM lines)::text || ' ' || \
         (SELECT coalesce(sum(id), 0) FROM orders)::text || ' ' || \
         (SELECT count(DISTINCT note) FROM orders)::text",
    )
}

/// Why a statement is refused.
pub fn refusal(server: &Server, statement: &str) -> String {
    let (address, statement) = (server.door("sql").to_owned(), statement.to_owned());
    block_on(async move {
        let error = connect(&address).await.simple_query(&statement).await.expect_err("a refusal");
        error.as_db_error().map(|error| error.message().to_owned()).unwrap_or_else(|| error.to_string())
    })
}

fn archives(server: &Server) -> Vec<Value> {
    json(server, "archive list")["archives"].as_array().expect("a list").clone()
}

fn goes_and_comes_back(server: &Server, first: &str, second: &str) {
    filled(server, first);
    let before = seen(server);
    // Whatever types its columns have, a map is measured.
    let plan = json(server, "rebalance orders --plan --by bytes");
    let here = plan["shards"].as_array().expect("shards").iter().find(|load| load["shard"] == first);
    let here = here.unwrap_or_else(|| panic!("{plan}"));
    assert_eq!(here["rows"].as_u64(), Some(6 * MONTH_ROWS as u64), "{plan}");
    assert!(here["bytes"].as_u64().is_some_and(|bytes| bytes > 24 * 6 * MONTH_ROWS as u64), "{plan}");
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let at = place.path().display();
    let line = format!("archive run orders --range 2024-01-01..2024-02-01 --to {at} --name january");
    let looked = run(server, &format!("{line} --dry-run")).ok();
    assert!(
        looked.contains(&format!("{} rows", 2 * MONTH_ROWS)) && looked.contains("Nothing was done"),
        "{looked}"
    );
    assert_eq!((seen(server), archives(server).len()), (before.clone(), 0));

    run(server, &format!("{line} --csv --wait")).ok();
    let [archive] = archives(server).try_into().expect("one archive");
    assert_eq!(
        (&archive["state"], archive["rows"].as_u64()),
        (&"archived".into(), Some(2 * MONTH_ROWS as u64))
    );
    // Whoever asks for more than that does not see it; whoever asks for it is told.
    assert_eq!(sql(server, "SELECT count(*) FROM orders"), (2 * MONTH_ROWS).to_string());
    assert_eq!(
        sql(server, "SELECT count(*) FROM orders WHERE day >= '2023-06-01'"),
        (2 * MONTH_ROWS).to_string()
    );
    for statement in [
        "SELECT * FROM orders WHERE day = '2024-01-05'",
        "INSERT INTO orders VALUES ('2024-01-05', 9999, 'late')",
        "SELECT count(*) FROM orders WHERE day BETWEEN '2024-01-02' AND '2024-01-09'",
    ] {
        let why = refusal(server, statement);
        assert!(
            why.contains("archived as january") && why.contains("polyshard archive restore"),
            "{statement}: {why}"
        );
    }
    let left = refused(server, "map state orders online --range 2024-01-01..2024-02-01", 4);
    assert!(left["message"].as_str().expect("a message").contains("archived:january"), "{left}");
    run(server, "check orders").ok();
    run(server, "archive verify january").ok();
    run(server, &format!("backup verify {at}/january")).ok();
    let csv = std::fs::read_dir(place.path().join("january/csv")).expect("readable copies").count();
    assert_eq!(csv, 2);
    // Nobody removes the only copy by accident.
    run(server, &format!("backup prune {at} --keep 1")).ok();
    refused(server, "archive forget january", 4);
    sql(server, "INSERT INTO orders VALUES ('2024-02-05', 7777, 'new')");

    run(server, &format!("archive restore january --to {second} --wait")).ok();
    assert_eq!(shard_of(server, "orders", "2024-01-05"), second);
    assert_eq!(sql(server, "SELECT count(*) FROM orders WHERE day < '2024-02-01'"), MONTH_ROWS.to_string());
    sql(server, "DELETE FROM orders WHERE day = '2024-02-05' AND id = 7777");
    assert_eq!(seen(server), before);
    assert_eq!(sql(server, "SELECT note FROM orders WHERE day = '2024-01-05' AND id = 4"), "note, \"4\"");
    sql(server, "INSERT INTO orders VALUES ('2024-01-05', 9999, 'late')");
    assert_eq!(archives(server)[0]["state"], "restored");
    run(server, "archive forget january").ok();
    assert_eq!((archives(server).len(), place.path().join("january").exists()), (0, false));
    run(server, "check orders").ok();
}

#[test]
fn a_month_goes_into_an_archive_and_comes_back() {
    let mut server = Setup::new().start();
    goes_and_comes_back(&server, "s1", "s2");
    server.stop();
}

#[test]
fn a_month_on_postgres_goes_into_an_archive_and_comes_back() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = fleet.setup().start();
    goes_and_comes_back(&server, "a", "b");
    server.stop();
}

#[test]
fn a_key_of_a_list_map_goes_with_columns_left_out_and_can_be_dropped() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let at = place.path().display();
    let mut server = Setup::new().start();
    session(
        &server,
        "map create tenants --kind list --key bigint\nmap add tenants --key 7 --to s1\nmap add tenants --key 8 --to s1",
    );
    sql(&server, "CREATE TABLE cards (tenant bigint, id bigint, card text, PRIMARY KEY (tenant, id))");
    run(&server, "table shard cards --map tenants --key tenant").ok();
    sql(&server, "INSERT INTO cards VALUES (7, 1, 'a'), (7, 2, 'b'), (7, 3, 'c'), (7, 4, 'd'), (7, 5, 'e')");
    sql(&server, "INSERT INTO cards VALUES (8, 1, 'other')");
    let error = refused(
        &server,
        &format!("archive run tenants --key 7 --to {at} --name gone --without-columns cards.id --wait"),
        4,
    );
    assert!(error["message"].as_str().expect("a message").contains("primary key"), "{error}");
    assert_eq!(sql(&server, "SELECT count(*) FROM cards"), "6");
    run(
        &server,
        &format!("archive run tenants --key 7 --to {at} --name gone --without-columns cards.card --wait"),
    )
    .ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM cards"), "1");
    run(&server, "archive restore gone --wait").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM cards WHERE tenant = 7 AND card IS NULL"), "5");
    // Dropping keeps nothing, and needs the word.
    refused(&server, "archive run tenants --key 7 --drop tenant", 2);
    run(&server, "archive run tenants --key 7 --drop tenants --wait").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM cards"), "1");
    refused(&server, "map locate tenants 7", 3);
    server.stop();
}

#[test]
fn what_is_cancelled_or_damaged_before_rows_are_deleted_is_as_it_was() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let holds = TempDir::with_prefix("polyshard-holds-").expect("a folder");
    let hold = holds.path().join("task_compare_archive.before");
    std::fs::write(&hold, "").expect("a file");
    let folder = holds.path().display().to_string();
    let mut server = Setup::new().env("POLYSHARD_FAILPOINT_HOLD", &folder).start();
    filled(&server, "s1");
    let before = seen(&server);
    let line = format!("archive run orders --range 2024-01-01..2024-02-01 --to {}", place.path().display());
    let written = |name: &str| {
        let manifest = place.path().join(name).join("manifest.json");
        eventually("the archive to be whole", || manifest.exists().then_some(()));
    };

    let begun = json(&server, &format!("{line} --name first"));
    written("first");
    // Reading goes on, and writing is refused.
    assert_eq!(seen(&server), before);
    assert!(refusal(&server, "DELETE FROM lines WHERE day = '2024-01-05'").contains("read-only"));
    let id = begun["procedure"].as_str().expect("an operation");
    run(&server, &format!("ops cancel {id}")).ok();
    std::fs::remove_file(&hold).expect("held");
    await_quiet(&server);
    assert_eq!(json(&server, &format!("ops show {id}"))["state"], "rolled_back");
    assert_eq!((seen(&server), archives(&server).len()), (before.clone(), 0));
    assert!(!place.path().join("first").exists());

    std::fs::write(&hold, "").expect("a file");
    let begun = json(&server, &format!("{line} --name second"));
    written("second");
    // The largest chunk, which has the rows, is not what it was any more.
    let chunks = std::fs::read_dir(place.path().join("chunks")).expect("chunks");
    let files =
        chunks.flat_map(|folder| std::fs::read_dir(folder.expect("a folder").path()).expect("a folder"));
    let largest = files.map(|file| file.expect("a file").path());
    let largest = largest.max_by_key(|file| file.metadata().expect("a file").len()).expect("a chunk");
    let mut bytes = std::fs::read(&largest).expect("a chunk");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest, bytes).expect("a chunk");
    std::fs::remove_file(&hold).expect("held");
    eventually("the end", || running(&server).is_empty().then_some(()));
    let ended = json(&server, &format!("ops show {}", begun["procedure"].as_str().expect("an operation")));
    assert_eq!(ended["state"], "rolled_back", "{ended}");
    assert!(ended["message"].as_str().expect("a reason").contains("not as it was written"), "{ended}");
    assert_eq!(seen(&server), before);
    sql(&server, "UPDATE orders SET note = 'x' WHERE day = '2024-01-05'");
    server.stop();
}
