//! The endpoints of queues, tables and blobs beside Azurite, the emulator: one load generator drives both in one run.

pub mod client;
mod raw;
mod servers;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::client::{Signer, Wait};
use self::raw::{Alone, Bounds};
use self::servers::Servers;
use self::work::{Kind, Worker};
use crate::measure::Spread;
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Connections that are measured.
const CONNECTIONS: [usize; 3] = [1, 16, 64];

/// What one round of one server came to.
struct Round {
    operations: usize,
    seconds: f64,
    cpu_seconds: f64,
    /// What the load itself took.
    load_cpu_seconds: f64,
    /// Of each operation, in milliseconds.
    times_ms: Vec<f64>,
}

/// All rounds of one server.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    rates_of_cpu: Vec<f64>,
    load_us: Vec<f64>,
    times_ms: Vec<f64>,
}

impl Figures {
    fn add(&mut self, round: Round) {
        let operations = round.operations as f64;
        self.rates.push(operations / round.seconds);
        // The clock of processes ticks a hundred times a second: less than a tick is not known.
        self.rates_of_cpu.push(operations / round.cpu_seconds.max(0.01));
        self.load_us.push(round.load_cpu_seconds * 1e6 / operations);
        self.times_ms.extend(round.times_ms);
    }

    fn p99_ms(&mut self) -> f64 {
        self.times_ms.sort_by(f64::total_cmp);
        let at = (self.times_ms.len() * 99 / 100).min(self.times_ms.len().saturating_sub(1));
        self.times_ms.get(at).copied().unwrap_or(f64::NAN)
    }
}

/// Measures the operations whose name has `only` in it, on so many shards or as many as there are cores.
pub fn run(effort: Effort, only: &str, shards: Option<usize>) -> Result<Vec<Table>, Failure> {
    let shards = match shards {
        Some(shards) => shards,
        None => std::thread::available_parallelism()?.get(),
    };
    let (mut alone, mut bounds) = (Alone::new(), Bounds::new()?);
    let signer = Arc::new(Signer::new()?);
    let servers = Servers::start(shards)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut table = Table::new(
        "azure",
        "Queues, tables and blobs beside Azurite",
        &[
            "operation",
            "connections",
            "ours/s",
            "Azurite/s",
            "ratio",
            "p99 ms",
            "Azurite p99 ms",
            "p99 ratio",
            "ours/CPU s",
            "Azurite/CPU s",
            "CPU ratio",
            "load CPU µs",
        ],
    );
    runtime.block_on(async {
        for server in servers.all() {
            work::prepare(server, &signer).await?;
        }
        for kind in Kind::ALL.into_iter().filter(|kind| kind.name().contains(only)) {
            for connections in CONNECTIONS {
                eprintln!("{} with {connections} connections", kind.name());
                let mut figures = [Figures::default(), Figures::default()];
                // A round that is thrown away, then rounds in turn.
                let rounds = effort.pick(5, 2);
                let mut allowed = Vec::new();
                // A scan takes far longer than to be asked for it.
                let is_bound = connections == 1 && !matches!(kind, Kind::Scan | Kind::ListBlobs);
                for round in 0..=rounds {
                    if is_bound && round > 0 {
                        allowed.push(bounds.round(Duration::from_millis(effort.pick(600, 300)))?);
                    }
                    for (server, figures) in servers.all().zip(&mut figures) {
                        let length = if round == 0 { 300 } else { effort.pick(2000, 700) };
                        let length = Duration::from_millis(length);
                        let measured = one_round(server, kind, connections, &signer, length).await?;
                        if round > 0 {
                            figures.add(measured);
                        }
                    }
                }
                let [mut ours, mut theirs] = figures;
                if is_bound {
                    alone.add(kind, &ours.rates, &allowed);
                }
                table.row(row(kind, connections, &mut ours, &mut theirs));
            }
        }
        Ok::<_, Failure>(())
    })?;
    Ok(vec![table, alone.table()])
}

fn row(kind: Kind, connections: usize, ours: &mut Figures, theirs: &mut Figures) -> [Cell; 12] {
    let ratio = |a: &[f64], b: &[f64]| Spread::of(a.iter().zip(b).map(|(a, b)| a / b).collect()).median;
    let median = |figures: &[f64]| Spread::of(figures.to_vec()).median;
    let (rate, rate_of_cpu) =
        (ratio(&ours.rates, &theirs.rates), ratio(&ours.rates_of_cpu, &theirs.rates_of_cpu));
    let (p99, their_p99) = (ours.p99_ms(), theirs.p99_ms());
    [
        kind.name().into(),
        Cell::Number(connections as f64, 0),
        median(&ours.rates).into(),
        median(&theirs.rates).into(),
        rate.into(),
        p99.into(),
        their_p99.into(),
        (their_p99 / p99).into(),
        median(&ours.rates_of_cpu).into(),
        median(&theirs.rates_of_cpu).into(),
        rate_of_cpu.into(),
        median(&ours.load_us).into(),
    ]
}

async fn one_round(
    server: &servers::Server,
    kind: Kind,
    connections: usize,
    signer: &Arc<Signer>,
    length: Duration,
) -> Result<Round, Failure> {
    let wait = if connections == 1 { Wait::Looking } else { Wait::Asleep };
    let mut workers = Vec::new();
    for _ in 0..connections {
        workers.push(Worker::connect(server, kind, signer, wait).await?);
    }
    let own = std::process::id();
    let (cpu, load_cpu) = (server.cpu_seconds()?, servers::cpu_seconds(own)?);
    let began = Instant::now();
    let end = began + length;
    let mut tasks = tokio::task::JoinSet::new();
    for mut worker in workers {
        tasks.spawn(async move {
            let mut times_ms = Vec::new();
            loop {
                let began = Instant::now();
                if began >= end {
                    return Ok::<_, Failure>(times_ms);
                }
                worker.step().await?;
                times_ms.push(began.elapsed().as_secs_f64() * 1e3);
            }
        });
    }
    let mut times_ms = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times_ms.extend(done??);
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = server.cpu_seconds()? - cpu;
    let load_cpu_seconds = servers::cpu_seconds(own)? - load_cpu;
    Ok(Round { operations: times_ms.len(), seconds, cpu_seconds, load_cpu_seconds, times_ms })
}
