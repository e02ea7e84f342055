//! What counting and tracing cost: the same requests to servers that differ in nothing else, turn by turn.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use polyshard_testkit::process::{Server, Setup};

use crate::measure::Spread;
use crate::report::{Cell, Table};
use crate::sql::world::cpu_us;
use crate::{Effort, Failure};

/// Rows that are read and changed.
const ROWS: u64 = 20_000;
/// Clients at once: enough to keep the server busy, on few cores.
const CLIENTS: &str = "8";
/// What of all requests is traced, where some are.
const TRACED: &str = "0.01";

/// One server, and what was measured of it.
struct Way {
    name: &'static str,
    server: Server,
    runs: Vec<Run>,
}

/// One turn.
struct Run {
    tps: f64,
    cpu_us: f64,
}

impl Way {
    fn figure(&self, of: impl Fn(&Run) -> f64) -> f64 {
        Spread::of(self.runs.iter().map(of).collect()).median
    }

    /// The median over all rounds of how this way did beside the other in the same round.
    fn against(&self, other: &Way, of: impl Fn(&Run) -> f64) -> f64 {
        let ratios = self.runs.iter().zip(&other.runs).map(|(mine, theirs)| of(mine) / of(theirs));
        Spread::of(ratios.collect()).median
    }
}

/// Throughput and processor time without counting, with it, and with traces.
pub fn run(effort: Effort) -> Result<Vec<Table>, Failure> {
    let collector = collector()?;
    let traced = format!("[trace]\nendpoint = \"http://{collector}\"\nsample = {TRACED}\n");
    let kinds = [
        ("nothing counted", "[metrics]\ncount = false\n"),
        ("counted", ""),
        ("counted, 1 in 100 traced", &traced),
    ];
    let mut ways = Vec::new();
    for (name, config) in kinds {
        let server = Setup::new().config(config).try_start().map_err(|failure| failure.to_string())?;
        let way = Way { name, server, runs: Vec::new() };
        fill(&way)?;
        ways.push(way);
    }
    let folder = tempfile::tempdir()?;
    let last = ROWS - 1;
    let works = [
        ("read", format!("\\set t random(0, {last})\nSELECT balance FROM accounts WHERE tenant = :t;\n")),
        (
            "write",
            format!(
                "\\set t random(0, {last})\nUPDATE accounts SET balance = balance + 1 WHERE tenant = :t;\n"
            ),
        ),
    ];
    let rounds = effort.pick(15, 3);
    let title = format!(
        "What counting and tracing cost, {CLIENTS} clients, embedded shards, {rounds} rounds in turn"
    );
    let columns = ["work", "server", "tps", "of nothing counted", "µs CPU", "CPU of nothing counted"];
    let mut table = Table::new("overhead", title, &columns);
    for (work, text) in works {
        let script = folder.path().join(work);
        fs::write(&script, text)?;
        for round in 0..rounds {
            for turn in 0..ways.len() {
                // Each goes first as often as the others.
                let way = (round + turn) % ways.len();
                let run = pgbench(&ways[way], &script, effort)?;
                ways[way].runs.push(run);
            }
        }
        for way in &ways {
            table.row([
                work.into(),
                way.name.into(),
                way.figure(|run| run.tps).into(),
                Cell::Number(way.against(&ways[0], |run| run.tps), 3),
                way.figure(|run| run.cpu_us).into(),
                Cell::Number(way.against(&ways[0], |run| run.cpu_us), 3),
            ]);
        }
        ways.iter_mut().for_each(|way| way.runs.clear());
    }
    Ok(vec![table])
}

/// A client program that connects to the SQL door.
fn client(way: &Way, program: &str) -> Result<Command, Failure> {
    let address = way.server.door("sql");
    let address = address.rsplit_once('@').map_or(address, |(_, address)| address);
    let address = address.split('/').next().unwrap_or(address);
    let (host, port) = address.rsplit_once(':').ok_or("the SQL door has no port")?;
    let mut command = Command::new(program);
    let name = "polyshard";
    command.env("PGHOST", host).env("PGPORT", port).env("PGSSLMODE", "disable").stdin(Stdio::null());
    command.env("PGUSER", name).env("PGPASSWORD", name).env("PGDATABASE", name);
    Ok(command)
}

fn psql(way: &Way, sql: &str) -> Result<(), Failure> {
    let output = client(way, "psql")?.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("psql: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn fill(way: &Way) -> Result<(), Failure> {
    psql(way, "CREATE TABLE accounts (tenant bigint PRIMARY KEY, balance bigint NOT NULL, filler text)")?;
    psql(way, "SELECT polyshard.create_map('tenants', 'hash', 'bigint')")?;
    psql(way, "SELECT polyshard.shard_table('accounts', 'tenants', 'tenant')")?;
    let mut lines = String::new();
    for tenant in 0..ROWS {
        writeln!(lines, "{tenant}\t{}\t{}", tenant % 1000, "x".repeat(80))?;
    }
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), lines)?;
    psql(way, &format!("\\copy accounts FROM '{}'", file.path().display()))
}

fn pgbench(way: &Way, script: &Path, effort: Effort) -> Result<Run, Failure> {
    let seconds = effort.pick(3, 2).to_string();
    let mut command = client(way, "pgbench")?;
    command.args(["-n", "-M", "prepared", "-c", CLIENTS, "-j", "1", "-T", &seconds, "-f"]).arg(script);
    let before = cpu_us(way.server.id())?;
    let output = command.output()?;
    let used = cpu_us(way.server.id())? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.contains("number of failed transactions: 0 ") {
        return Err(format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let number = |label: &str| -> Result<f64, Failure> {
        let line = text.lines().find_map(|line| line.strip_prefix(label));
        let line = line.ok_or_else(|| format!("pgbench says no {label}"))?;
        Ok(line.split_whitespace().next().ok_or("pgbench says no number")?.parse()?)
    };
    let transactions = number("number of transactions actually processed:")?;
    Ok(Run { tps: number("tps =")?, cpu_us: used / transactions })
}

/// A collector of traces that takes everything and keeps nothing. Its threads end with the program.
fn collector() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away ends its thread, and that is all.
            std::thread::spawn(move || drop(take(stream)));
        }
    });
    Ok(address)
}

fn take(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
    }
}
