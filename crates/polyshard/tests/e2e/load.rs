//! `polyshard load` of a real process: CSV, TSV and Parquet, bad rows with their lines, what is left. E3.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use polyshard_testkit::process::{Output, Server, Setup};
use serde_json::Value;

use crate::fleet::Fleet;
use crate::support::error_of;

const TABLES: &str = "CREATE TABLE orders (tenant bigint, id bigint, note text, price double precision, at date, \
     PRIMARY KEY (tenant, id)); \
     SELECT polyshard.create_map('tenants', 'hash', 'bigint'); \
     SELECT polyshard.shard_table('orders', 'tenants', 'tenant')";

fn url(server: &Server) -> String {
    let door = server.door("sql").rsplit_once('@').map_or(server.door("sql"), |(_, door)| door);
    format!("postgres://polyshard:polyshard@{door}")
}

fn psql(server: &Server, sql: &str) -> String {
    let mut command = std::process::Command::new("psql");
    let ran = command.args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, &url(server)]).output().unwrap();
    assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
}

fn start() -> Server {
    let server = Setup::new().start();
    for sql in TABLES.split("; ") {
        psql(&server, sql);
    }
    server
}

fn load(server: &Server, file: &Path, more: &[&str]) -> Output {
    let url = url(server);
    let mut words = vec!["load", file.to_str().unwrap(), "--table", "orders", "--sql", &url];
    words.extend_from_slice(more);
    server.cli(&words)
}

fn count(server: &Server) -> String {
    psql(server, "SELECT count(*), count(DISTINCT tenant), coalesce(sum(id), 0) FROM orders")
}

#[test]
fn a_csv_file_is_loaded_and_every_row_is_on_its_shard() {
    let mut server = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.csv");
    let mut text = "id,tenant,note\n".to_owned();
    for id in 0..50_000 {
        text.push_str(&format!("{id},{},\"note, {id}\nof two lines\"\n", id % 100));
    }
    fs::write(&file, &text).unwrap();
    let said = load(&server, &file, &["--header"]).ok();
    assert!(said.starts_with("50000 rows are loaded into orders"), "{said}");
    assert_eq!(count(&server), "50000|100|1249975000");
    assert_eq!(psql(&server, "SELECT note FROM orders WHERE tenant = 7 AND id = 7"), "note, 7\nof two lines");
    let checked = server.cli(&["check", "tenants"]).ok();
    assert!(!checked.is_empty());
    // The same again: every row is there already, and it says where it stopped.
    let error = error_of(load(&server, &file, &["--header", "--json"]), 1);
    assert!(error["message"].as_str().unwrap().contains("line "), "{error}");
    assert!(error["remedy"].as_str().unwrap().contains("--rows 1-"), "{error}");
    assert_eq!(count(&server), "50000|100|1249975000");
    server.stop();
}

#[test]
fn bad_rows_are_left_out_told_with_their_lines_and_kept_in_a_file() {
    let mut server = start();
    let folder = tempfile::tempdir().unwrap();
    let (file, bad) = (folder.path().join("orders.csv.gz"), folder.path().join("bad.csv"));
    let mut text = String::new();
    for id in 1..=3000 {
        match id {
            17 => text.push_str("1,seventeen,x,,\n"),
            2000 => text.push_str("1,2000,x,not a price,\n"),
            2500 => text.push_str("1,2500\n"),
            id => text.push_str(&format!("{},{id},x,1.5,2024-02-29\n", id % 50)),
        }
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, text.as_bytes()).unwrap();
    fs::write(&file, packed.finish().unwrap()).unwrap();

    // None may be bad: it stops, and what was good of others stays.
    let error = error_of(load(&server, &file, &["--json"]), 1);
    assert!(error["message"].as_str().unwrap().contains("line 17:"), "{error}");
    for tenant in 0..50 {
        psql(&server, &format!("DELETE FROM orders WHERE tenant = {tenant}"));
    }
    let output = load(&server, &file, &["--max-bad", "5", "--bad-rows", bad.to_str().unwrap(), "--json"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    let said: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((said["loaded"].as_u64(), said["bad"].as_u64()), (Some(2997), Some(3)), "{said}");
    let mut lines: Vec<u64> =
        said["bad_rows"].as_array().unwrap().iter().map(|row| row["line"].as_u64().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, [17, 2000, 2500]);
    let kept = fs::read_to_string(&bad).unwrap();
    assert!(kept.contains("1,seventeen,x,,\n") && kept.lines().count() == 3, "{kept}");
    assert_eq!(psql(&server, "SELECT count(*), min(at) FROM orders"), "2997|2024-02-29");
    server.stop();
}

#[test]
fn a_bad_row_that_cannot_be_kept_is_left_to_load() {
    let mut server = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.csv");
    fs::write(&file, "1,1,x,,\n1,two,x,,\n1,3,x,,\n").unwrap();
    // A device that is always full.
    let full = ["--max-bad", "5", "--bad-rows", "/dev/full", "--jobs", "1", "--json"];
    let error = error_of(load(&server, &file, &full), 1);
    assert!(error["message"].as_str().unwrap().contains("the file for bad rows"), "{error}");
    assert!(error["remedy"].as_str().unwrap().contains("--rows 2-"), "{error}");
    server.stop();
}

#[test]
fn a_parquet_file_is_loaded_by_the_names_of_its_columns() {
    let mut server = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.parquet");
    let schema = "message orders { required int64 id; required int64 tenant; optional binary note (UTF8); \
         required double price; required int32 at (DATE); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties =
        Arc::new(WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(fs::File::create(&file).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let ids: Vec<i64> = (0..1000).collect();
    let mut at = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        match at {
            0 => column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap(),
            1 => {
                let tenants: Vec<i64> = ids.iter().map(|id| id % 10).collect();
                column.typed::<Int64Type>().write_batch(&tenants, None, None).unwrap()
            }
            2 => {
                let levels: Vec<i16> = ids.iter().map(|id| i16::from(id % 2 == 0)).collect();
                let notes = vec![ByteArray::from("tab\tand\\n"); 500];
                column.typed::<ByteArrayType>().write_batch(&notes, Some(&levels), None).unwrap()
            }
            3 => {
                let prices: Vec<f64> = ids.iter().map(|id| *id as f64 / 4.0).collect();
                column.typed::<DoubleType>().write_batch(&prices, None, None).unwrap()
            }
            _ => column.typed::<Int32Type>().write_batch(&[19_782; 1000], None, None).unwrap(),
        };
        column.close().unwrap();
        at += 1;
    }
    group.close().unwrap();
    writer.close().unwrap();
    let said = load(&server, &file, &["--jobs", "2"]).ok();
    assert!(said.starts_with("1000 rows are loaded"), "{said}");
    let sums = "SELECT count(*), count(note), sum(price), min(at), max(note) FROM orders";
    assert_eq!(psql(&server, sums), "1000|500|124875|2024-02-29|tab\tand\\n");
    server.stop();
}

/// PostgreSQL shards, rows from the standard input, and a part of the rows.
#[test]
fn rows_are_loaded_into_postgresql_shards_from_the_standard_input() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = fleet.setup().start();
    for sql in TABLES.split("; ") {
        psql(&server, sql);
    }
    let text: String = (1..=1000).map(|id| format!("{}\t{id}\t\\N\n", id % 20)).collect();
    let url = url(&server);
    let words =
        ["load", "-", "--form", "tsv", "--table", "orders", "--columns", "tenant,id,note", "--sql", &url];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_polyshard"));
    let mut child = command
        .args(words)
        .args(["--rows", "1-10", "--rows", "501-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(psql(&server, "SELECT count(*), min(id), max(id), count(note) FROM orders"), "510|1|1000|0");
    for (words, exit) in [
        (vec!["load", "/no/such.csv", "--table", "orders", "--sql", &url], 3),
        (vec!["load", "-", "--table", "orders", "--sql", &url], 2),
        (vec!["load", "-", "--form", "csv", "--table", "nothing", "--sql", &url], 3),
        (vec!["load", "-", "--form", "csv", "--table", "orders", "--sql", "postgres://x@127.0.0.1:1/x"], 5),
    ] {
        server.cli(&words).fails_with(exit);
    }
    server.stop();
}
