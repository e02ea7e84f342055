//! `polyshard demo`: a server of its own, a company's data on it, customers at work, and moves meanwhile.

mod azure;
mod sample;
mod server;
mod traffic;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use polyshard_admin::types::{
    BalanceBy, BalanceRequest, IsolateRequest, KeyText, MoveAnswer, OperationState, RangeView,
};
use polyshard_admin::{Client, DEVELOPMENT_TOKEN};
use polyshard_map::MapName;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::runtime::runtime;
use server::Running;
use traffic::Traffic;

/// How often it says how it goes.
const SAY_EVERY: Duration = Duration::from_secs(2);
/// How often an operation is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard demo                        a minute; open the console meanwhile
  polyshard demo --seconds 600          ten minutes, to look around
  polyshard demo --data /tmp/demo       keep the data

It starts a server on the usual ports with embedded shards, loads tenants with rows, entities and
queues, and has clients work on them. Then the busiest tenant gets a shard of its
own, and the rest is evened out, while the clients go on. In the end every acknowledged write is looked
for. Without --data, nothing is left behind.")]
pub struct DemoArgs {
    /// How long the clients work
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..=86_400))]
    seconds: u64,
    /// Tenants
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u64).range(10..=1_000))]
    tenants: u64,
    /// Orders to begin with
    #[arg(long, value_name = "N", default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rows: u64,
    /// Clients at work
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    clients: u64,
    /// Keep the data in this folder, which must be new or empty
    #[arg(long, value_name = "DIR")]
    data: Option<std::path::PathBuf>,
}

/// Runs the demonstration.
pub fn run(args: &DemoArgs, output: &Output) -> Result<Exit, Failure> {
    let runtime = runtime()?;
    // Before the server starts: from here on, whoever stops this program stops the server with it.
    let mut stopped_by = runtime.block_on(async { StopSignals::new() })?;
    let running = Running::start(args.data.as_deref())?;
    let shown = Demo {
        args,
        output,
        client: Client::new(running.door("admin")?, DEVELOPMENT_TOKEN)?,
        running: &running,
    };
    let done = runtime.block_on(async {
        tokio::select! {
            done = shown.run() => Some(done),
            () = stopped_by.any() => None,
        }
    });
    // The clients end first. The server is stopped whatever came of it.
    drop(runtime);
    let stopped = running.stop();
    let Some(done) = done else {
        stopped?;
        return output
            .answer(&json!({ "stopped": true }), |_| "\nStopped, and the server with it.".to_owned());
    };
    let exit = done?;
    stopped?;
    Ok(exit)
}

/// What stops this program: Ctrl-C, `kill`, a terminal that is closed.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl StopSignals {
    fn new() -> Result<StopSignals, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(format!("signals cannot be listened for: {error}"), "report this")
            })
        };
        Ok(StopSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

struct Demo<'d> {
    args: &'d DemoArgs,
    output: &'d Output,
    client: Client,
    running: &'d Running,
}

impl Demo<'_> {
    fn say(&self, text: &str) -> Result<(), Failure> {
        if self.output.format() == Format::People { self.output.text(text) } else { Ok(()) }
    }

    async fn run(&self) -> Result<Exit, Failure> {
        let map: MapName =
            sample::MAP.parse().map_err(|error| Failure::new(format!("{error}"), "report this"))?;
        let sql = self.running.door("sql")?.replace("polyshard@", "polyshard:polyshard@");
        let admin = self.running.door("admin")?;
        self.say(&format!(
            "A server is up. Look on at {admin}\n  in the terminal: polyshard top --server {admin}\n  \
             SQL: psql {sql}\nIt takes about {} s; Ctrl-C ends it.\n\n",
            self.args.seconds
        ))?;
        sample::make(&sql, &self.client, self.running, self.args.tenants, self.args.rows).await?;
        self.say(&format!(
            "{} tenants with {} orders, an entity table and a queue each are on {} shards.\n",
            self.args.tenants,
            self.args.rows,
            self.client.shards()?.shards.len()
        ))?;
        let traffic = Traffic::start(&sql, self.args.tenants, self.args.clients).await?;
        let whole = Duration::from_secs(self.args.seconds);
        let began = Instant::now();
        self.watch(&traffic, began + whole / 4).await?;

        let hot = traffic.hot_tenant();
        self.say(&format!("\nTenant {hot} gets a third of all requests: it moves to a shard of its own.\n"))?;
        let isolated = self.client.isolate(&map, &isolate(hot))?;
        self.follow(&traffic, &operations(&isolated)).await?;
        self.say(&format!("Tenant {hot} is now on {}.\n", self.shard_of(&map, hot)?))?;
        self.watch(&traffic, began + whole / 2).await?;

        self.say("\nThe load of the others is evened out.\n")?;
        let request = BalanceRequest { drain: None, slack: None, by: Some(BalanceBy::Load) };
        let plan = self.client.rebalance(&map, &request)?;
        match &plan.procedure {
            None => self.say("It is even enough already.\n")?,
            Some(id) => {
                let moves = plan.moves.len();
                self.say(&format!(
                    "{moves} {} under way.\n",
                    if moves == 1 { "move is" } else { "moves are" }
                ))?;
                self.follow(&traffic, std::slice::from_ref(id)).await?;
            }
        }
        self.watch(&traffic, began + whole).await?;
        self.report(traffic, &sql).await
    }

    /// Says how it goes until then.
    async fn watch(&self, traffic: &Traffic, until: Instant) -> Result<(), Failure> {
        while Instant::now() < until {
            tokio::time::sleep(SAY_EVERY.min(until - Instant::now())).await;
            self.say(&self.line(traffic)?)?;
        }
        Ok(())
    }

    fn line(&self, traffic: &Traffic) -> Result<String, Failure> {
        let shards = self.client.traffic()?.shards;
        let shards: Vec<String> =
            shards.iter().map(|one| format!("{} {:.0}/s", one.shard, one.requests_per_s)).collect();
        Ok(format!("{}   {}\n", traffic.line(), shards.join("  ")))
    }

    /// Follows operations to their ends.
    async fn follow(&self, traffic: &Traffic, ids: &[String]) -> Result<(), Failure> {
        for id in ids {
            let mut said = Instant::now();
            loop {
                let operation = self.client.operation(id)?;
                match operation.state {
                    OperationState::Done => break,
                    OperationState::RolledBack => {
                        let why = operation.message.unwrap_or_default();
                        return Err(Failure::new(
                            format!("the operation was rolled back: {why}"),
                            "see the console",
                        ));
                    }
                    OperationState::Running => {}
                }
                if said.elapsed() >= SAY_EVERY {
                    said = Instant::now();
                    self.say(&format!(
                        "{}\n{}",
                        super::command::ops::progress(&operation),
                        self.line(traffic)?
                    ))?;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    fn shard_of(&self, map: &MapName, tenant: u64) -> Result<String, Failure> {
        Ok(self.client.locate(map, &tenant.to_string())?.shard.to_string())
    }

    /// Stops the clients, and looks for every write that was acknowledged.
    async fn report(&self, traffic: Traffic, sql: &str) -> Result<Exit, Failure> {
        let done = traffic.stop().await?;
        let found = sample::count(sql).await?;
        let wanted = self.args.rows + done.acknowledged;
        let whole = (wanted..=wanted + done.unknown).contains(&found);
        let answer = json!({
            "requests": done.requests, "errors": done.errors, "tried_again": done.retries,
            "orders_acknowledged": done.acknowledged, "orders_found": found, "whole": whole,
            "longest_ms": done.longest.as_millis() as u64, "p99_ms": done.p99.as_secs_f64() * 1e3,
        });
        self.output.answer(&answer, |_| {
            format!(
                "\n{} requests, {} errors, {} transactions tried again; 99 of 100 took less than {:.1} ms, \
                 the longest {} ms.\n\
                 {} new orders were acknowledged, and {} of {wanted} orders are found.\n",
                done.requests,
                done.errors,
                done.retries,
                done.p99.as_secs_f64() * 1e3,
                done.longest.as_millis(),
                done.acknowledged,
                found,
            )
        })?;
        if whole && done.errors == 0 {
            return Ok(Exit::Ok);
        }
        let first = done.first_error.unwrap_or_else(|| "rows are missing, or there are too many".to_owned());
        Err(Failure::new(format!("not everything went well: {first}"), "report this"))
    }
}

fn isolate(tenant: u64) -> IsolateRequest {
    IsolateRequest {
        range: RangeView::Key { key: KeyText::text(tenant.to_string()) },
        to: None,
        keep_ms: 0,
        dry_run: false,
    }
}

fn operations(answer: &MoveAnswer) -> Vec<String> {
    match &answer.procedure {
        Some(id) => vec![id.clone()],
        None => answer.parts.iter().filter_map(|part| part.operation.clone()).collect(),
    }
}

/// Shared by those who connect.
pub(crate) async fn connect(sql: &str) -> Result<Arc<tokio_postgres::Client>, Failure> {
    let (client, connection) = tokio_postgres::connect(sql, tokio_postgres::NoTls)
        .await
        .map_err(|error| wrong("the SQL door does not answer", &error))?;
    // It ends with the client; what goes wrong reaches whoever waits for an answer.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Arc::new(client))
}

pub(crate) fn wrong(what: &str, error: &tokio_postgres::Error) -> Failure {
    let why = error.as_db_error().map_or_else(|| error.to_string(), |told| told.message().to_owned());
    Failure::new(format!("{what}: {why}"), "report this")
}
