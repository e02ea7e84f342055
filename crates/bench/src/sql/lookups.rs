//! One row by its key: pgbench through the program, through PgBouncer, and straight.

use std::fs;
use std::path::Path;

use super::world::{Place, World, cpu_us};
use crate::measure::Spread;
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// What one run of pgbench tells.
struct Run {
    tps: f64,
    /// Median of a transaction in microseconds, where it was asked for.
    p50_us: Option<f64>,
    /// Of the process in between, per transaction.
    cpu_us: Option<f64>,
}

/// A way to the rows.
struct Way {
    place: Place,
    process: Option<u32>,
    runs: Vec<Run>,
}

impl Way {
    fn tps(&self) -> f64 {
        Spread::of(self.runs.iter().map(|run| run.tps).collect()).median
    }

    /// Median of what this way does for each transaction of the other, round by round.
    fn against(&self, other: &Way) -> f64 {
        let ratios = self.runs.iter().zip(&other.runs).map(|(mine, theirs)| mine.tps / theirs.tps);
        Spread::of(ratios.collect()).median
    }

    fn figure(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let figures: Vec<f64> = self.runs.iter().filter_map(of).collect();
        (!figures.is_empty()).then(|| Spread::of(figures).median)
    }
}

/// Throughput and processor time by mode and clients, then the latency that is added.
pub fn run(world: &World, effort: Effort) -> Result<Vec<Table>, Failure> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("lookup.sql");
    let last = world.tenants - 1;
    fs::write(
        &script,
        format!("\\set t random(0, {last})\nSELECT balance FROM accounts WHERE tenant = :t;\n"),
    )?;
    let title = format!("One row by its key, {} rounds interleaved", rounds(effort));
    let mut table = Table::new(
        "sql-lookups",
        title,
        &[
            "mode",
            "clients",
            "direct tps",
            "PgBouncer tps",
            "Polyshard tps",
            "of PgBouncer",
            "of direct",
            "PgBouncer µs CPU",
            "Polyshard µs CPU",
        ],
    );
    let mut latency = Table::new(
        "sql-latency",
        "Median latency of one client, µs",
        &["mode", "direct", "PgBouncer", "Polyshard", "Polyshard adds", "PgBouncer adds"],
    );
    for mode in ["simple", "extended", "prepared"] {
        for clients in [1, 10, 50] {
            let mut ways = ways(world, mode);
            // Debian's PgBouncer keeps no prepared statements in transaction mode: there direct is the peer.
            for _ in 0..rounds(effort) {
                for way in &mut ways {
                    let run = pgbench(way, &script, mode, clients, effort)?;
                    way.runs.push(run);
                }
            }
            let [direct, door] = [&ways[0], &ways[1]];
            let bouncer = ways.get(2);
            let cell = |value: Option<f64>| value.map_or(Cell::None, Cell::number);
            table.row([
                mode.into(),
                Cell::Number(f64::from(clients), 0),
                direct.tps().into(),
                cell(bouncer.map(Way::tps)),
                door.tps().into(),
                cell(bouncer.map(|bouncer| door.against(bouncer))),
                door.against(direct).into(),
                cell(bouncer.and_then(|way| way.figure(|run| run.cpu_us))),
                cell(door.figure(|run| run.cpu_us)),
            ]);
            if clients == 1 {
                let p50 = |way: &Way| way.figure(|run| run.p50_us);
                let added = |way: &Way| Some(p50(way)? - p50(direct)?);
                latency.row([
                    mode.into(),
                    cell(p50(direct)),
                    cell(bouncer.and_then(p50)),
                    cell(p50(door)),
                    cell(added(door)),
                    cell(bouncer.and_then(added)),
                ]);
            }
        }
    }
    Ok(vec![table, latency])
}

fn rounds(effort: Effort) -> usize {
    effort.pick(5, 2)
}

/// Direct, the program, and PgBouncer where it can.
fn ways(world: &World, mode: &str) -> Vec<Way> {
    let way = |place, process| Way { place, process, runs: Vec::new() };
    let mut ways = vec![way(world.plain(), None), way(world.sharded(), Some(world.door.id()))];
    if mode != "prepared" {
        let process = world.bouncer.as_ref().map(|bouncer| bouncer.id());
        ways.extend(world.bounced().map(|place| way(place, process)));
    }
    ways
}

fn pgbench(way: &Way, script: &Path, mode: &str, clients: u32, effort: Effort) -> Result<Run, Failure> {
    let folder = tempfile::tempdir()?;
    let seconds = effort.pick(5, 2).to_string();
    let mut command = way.place.command("pgbench");
    command
        .args(["-n", "-M", mode, "-c", &clients.to_string(), "-j", "1", "-T", &seconds])
        .arg("-f")
        .arg(script);
    if clients == 1 {
        command.arg("-l").arg(format!("--log-prefix={}", folder.path().join("log").display()));
    }
    let before = way.process.map(cpu_us).transpose()?;
    let output = command.output()?;
    let after = way.process.map(cpu_us).transpose()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !text.contains("number of failed transactions: 0 ") {
        return Err(format!("pgbench -M {mode}: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let number = |label: &str| -> Result<f64, Failure> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(label))
            .ok_or(format!("pgbench says no {label}"))?;
        let digits: String =
            line.trim().chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
        Ok(digits.parse()?)
    };
    let transactions = number("number of transactions actually processed:")?;
    let cpu_us = before.zip(after).map(|(before, after)| (after - before) / transactions);
    let p50_us = if clients == 1 { Some(median_us(folder.path())?) } else { None };
    Ok(Run { tps: number("tps =")?, p50_us, cpu_us })
}

/// The third field of each line of pgbench's log is the time of one transaction.
fn median_us(folder: &Path) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for file in fs::read_dir(folder)? {
        let text = fs::read_to_string(file?.path())?;
        times.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok()));
    }
    if times.is_empty() {
        return Err("pgbench wrote no log".into());
    }
    Ok(Spread::of(times).median)
}
