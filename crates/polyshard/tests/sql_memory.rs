//! The program's memory while it sorts an answer across shards that is many times larger than it may grow.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use polyshard_testkit::process::{Server, Setup};

/// What the program may grow by. Each session has buffers of some hundred kilobytes; the sort is done elsewhere, or
/// spills.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Rows and bytes of each: 300 MB in all.
const ROWS: u64 = 150_000;
const ROW_BYTES: usize = 2_000;

/// Memory of a process that is its own, not a file's.
fn own_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells it");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib * 1024
}

/// The most that a process has while this is alive.
struct Watch {
    most: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    fn new(process: u32) -> Watch {
        let (most, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, stop) = (most.clone(), over.clone());
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                seen.fetch_max(own_bytes(process), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Watch { most, over, thread: Some(thread) }
    }

    fn end(mut self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("it reads");
        self.most.load(Ordering::Relaxed)
    }
}

fn psql(server: &Server, sql: &str) -> std::process::Command {
    let address = server.door("sql");
    let address = address.rsplit_once("//").map_or(address, |(_, address)| address);
    let address = address.rsplit_once('@').map_or(address, |(_, address)| address);
    let (host, port) = address.rsplit_once(':').expect("a port");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let mut command = std::process::Command::new("psql");
    command
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
        .env("PGHOST", host)
        .env("PGPORT", port)
        .env("PGUSER", "polyshard")
        .env("PGPASSWORD", "polyshard")
        .env("PGDATABASE", "polyshard");
    command
}

fn run(server: &Server, sql: &str) {
    let output = psql(server, sql).output().expect("psql runs");
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
}

fn sorts_in_bounded_memory(server: &mut Server, more: &[&str]) {
    run(server, "CREATE TABLE wide (tenant bigint, id bigint, body text, PRIMARY KEY (tenant, id))");
    run(server, "SELECT polyshard.create_map('tenants', 'hash', 'bigint')");
    run(server, "SELECT polyshard.shard_table('wide', 'tenants', 'tenant')");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows");
    let mut lines = String::new();
    for id in 0..ROWS {
        // Ordered by something that is neither the key nor the order of arrival.
        let body = id.wrapping_mul(2_654_435_761) % 1_000_000_007;
        writeln!(lines, "{}\t{id}\t{body:012}{}", id % 97, "x".repeat(ROW_BYTES)).expect("a string");
    }
    std::fs::write(&file, lines).expect("a file");
    run(server, &format!("\\copy wide FROM '{}'", file.display()));
    // What the first question of a session takes once is not counted.
    run(server, "SELECT body FROM wide ORDER BY body LIMIT 10");
    let before = own_bytes(server.id());
    let watch = Watch::new(server.id());
    let mut question = psql(server, "SELECT body FROM wide ORDER BY body");
    question.args(more).stdout(std::process::Stdio::piped());
    let mut child = question.spawn().expect("psql runs");
    let (mut count, mut last) = (0, String::new());
    let answers = std::io::BufReader::new(child.stdout.take().expect("it is piped"));
    for line in std::io::BufRead::lines(answers) {
        let line = line.expect("text");
        assert!(line.len() == ROW_BYTES + 12 && last <= line, "row {count} is out of order");
        (count, last) = (count + 1, line);
    }
    assert!(child.wait().expect("it ends").success());
    let most = watch.end();
    assert_eq!(count, ROWS);
    println!("{} MiB before, {} MiB at most", before >> 20, most >> 20);
    assert!(most - before.min(most) < GROWTH_BYTES_MAX, "it grew from {before} to {most} bytes");
    server.stop();
}

// C2, E5: an ORDER BY over more than the memory limit completes within the limit.
#[test]
#[ignore = "300 MB of rows: make test-all"]
fn an_order_over_postgres_shards_larger_than_memory_is_streamed() {
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() });
    let mut config = "[sql]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for shard in 1..=3 {
        server.create_database(&format!("shard{shard}"));
        write!(config, "[[shards]]\nid = \"s{shard}\"\nurl = \"{}\"\n", server.url(&format!("shard{shard}")))
            .expect("a string");
    }
    let mut program = Setup::new().config(&config).start();
    // psql takes it by a cursor.
    sorts_in_bounded_memory(&mut program, &["-v", "FETCH_COUNT=1000"]);
}

#[test]
#[ignore = "300 MB of rows: make test-all"]
fn an_order_over_sqlite_shards_larger_than_memory_is_streamed() {
    let mut program = Setup::new().config("[sql]\nlisten = \"127.0.0.1:0\"\n").start();
    sorts_in_bounded_memory(&mut program, &[]);
}
