//! Server processes on databases that can be killed one by one, with the rows that move among them.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyshard_testkit::process::{Server, Setup, StartFailure};
use serde_json::Value;
use tempfile::TempDir;

use crate::fleet::Fleet;
use crate::ledger::{Fate, Ledger};
use crate::support::{eventually, json, run, session, shard_of};
use crate::writers::{Addresses, TENANTS, Writers, connect};

/// How long a process may take to come to a place.
const PATIENCE: Duration = Duration::from_secs(60);
/// Entries of each tenant to begin with.
const ENTRIES_EACH: i64 = 8;
/// A database server has the catalog, another one the first shard, a third the second.
pub const CATALOG: usize = 0;
/// The server of the shard that rows leave.
pub const SOURCE: usize = 1;
/// The server of the shard they go to.
pub const TARGET: usize = 2;

/// The signal of a process that has ended itself.
const ABORTED: i32 = 6;

/// A cluster under test.
pub struct Cluster {
    /// None where the shards are files.
    pub fleet: Option<Fleet>,
    setups: Vec<Setup>,
    processes: Vec<Option<Server>>,
    pub addresses: Addresses,
    pub tables: Addresses,
    pub queues: Addresses,
    pub ledger: Arc<Ledger>,
    holds: TempDir,
    shards: [&'static str; 2],
}

impl Cluster {
    /// So many server processes on databases of one PostgreSQL server.
    pub fn together(processes: usize) -> Cluster {
        Cluster::together_with(processes, &[])
    }

    /// The same, with settings of PostgreSQL.
    pub fn together_with(processes: usize, settings: &[(&str, &str)]) -> Cluster {
        Cluster::on(Some(Fleet::start_with(1, &[("a", 0), ("b", 0)], settings)), processes)
    }

    /// So many server processes, with catalog, source and target on PostgreSQL servers of their own.
    pub fn apart(processes: usize) -> Cluster {
        Cluster::on(Some(Fleet::start(3, &[("a", SOURCE), ("b", TARGET)])), processes)
    }

    /// One server process on files.
    pub fn embedded() -> Cluster {
        Cluster::on(None, 1)
    }

    fn on(fleet: Option<Fleet>, processes: usize) -> Cluster {
        let holds = TempDir::with_prefix("polyshard-holds-").expect("a temporary folder");
        let folder = holds.path().display().to_string();
        let mut setups: Vec<Setup> =
            (0..processes).map(|_| fleet.as_ref().map_or_else(Setup::new, Fleet::setup)).collect();
        if fleet.is_none() {
            // For a fleet that comes later.
            let folder = std::env::temp_dir();
            setups[0] =
                setups[0].clone().env("POLYSHARD__SECRETS__SHARD_FOLDER", &folder.display().to_string());
        }
        // Only the first can be held: the others are there to take over.
        setups[0] = setups[0].clone().env("POLYSHARD_FAILPOINT_HOLD", &folder);
        let mut cluster = Cluster {
            shards: if fleet.is_some() { ["a", "b"] } else { ["s1", "s2"] },
            fleet,
            processes: setups.iter().map(|_| None).collect(),
            setups,
            addresses: Addresses::default(),
            tables: Addresses::default(),
            queues: Addresses::default(),
            ledger: Arc::default(),
            holds,
        };
        (0..processes).for_each(|process| cluster.start(process));
        cluster.fill();
        cluster
    }

    /// The first shard, where the tenants that move begin.
    pub fn source(&self) -> &'static str {
        self.shards[0]
    }

    /// The second shard.
    pub fn target(&self) -> &'static str {
        self.shards[1]
    }

    /// Starts a process, or starts it again.
    pub fn start(&mut self, process: usize) {
        let server = self.setups[process].start();
        self.open_doors(process, &server);
        self.processes[process] = Some(server);
    }

    fn open_doors(&self, process: usize, server: &Server) {
        self.addresses.set(process, server.door("sql"));
        self.tables.set(process, server.door("table"));
        self.queues.set(process, server.door("queue"));
    }

    /// Kills a process, starts it so that it dies by itself when it comes to this place, or is killed if it has not
    /// after so long, and starts it again. True if it came there.
    pub fn die_at(&mut self, process: usize, place: &str, patience: Duration) -> bool {
        self.kill(process);
        let came = match self.setups[process].clone().env("POLYSHARD_FAILPOINT", place).try_start() {
            Ok(mut server) => {
                self.open_doors(process, &server);
                let deadline = Instant::now() + patience;
                while TcpStream::connect(server.door("admin")).is_ok() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(5));
                }
                server.kill9().signal() == Some(ABORTED)
            }
            Err(StartFailure::Ended(status, _)) if status.signal() == Some(ABORTED) => true,
            Err(failure) => panic!("{failure}"),
        };
        self.start(process);
        came
    }

    /// Kills a process.
    pub fn kill(&mut self, process: usize) {
        self.processes[process].take().expect("it runs").kill9();
    }

    /// Kills a database, and starts it again after a while.
    pub fn kill_database(&mut self, number: usize, away: Duration) {
        let database = &mut self.fleet.as_mut().expect("databases of their own").servers[number];
        database.kill9();
        std::thread::sleep(away);
        database.start_again();
    }

    /// A process that runs.
    #[track_caller]
    pub fn process(&self, process: usize) -> &Server {
        self.processes[process].as_ref().expect("it runs")
    }

    /// A process that runs, whichever.
    pub fn any(&self) -> &Server {
        self.processes.iter().flatten().next_back().expect("one runs")
    }

    fn fill(&self) {
        let (half, [a, b]) = (TENANTS / 2, self.shards);
        session(
            self.process(0),
            &format!(
                "map create tenants --kind range --key bigint
                 map add tenants --range 0..{half} --to {a}
                 map add tenants --range {half}..{TENANTS} --to {b}"
            ),
        );
        let mut lines = vec![
            "CREATE TABLE entry (tenant bigint, id bigint, body text, PRIMARY KEY (tenant, id))".to_owned(),
            "CREATE TABLE counter (tenant bigint PRIMARY KEY, n bigint NOT NULL)".to_owned(),
            "SELECT polyshard.shard_table('entry', 'tenants', 'tenant')".to_owned(),
            "SELECT polyshard.shard_table('counter', 'tenants', 'tenant')".to_owned(),
        ];
        for tenant in 0..TENANTS {
            let rows: Vec<String> = (0..ENTRIES_EACH)
                .map(|_| {
                    let id = self.ledger.number();
                    self.ledger.note(("entry", tenant, id), Fate::There);
                    format!("({tenant}, {id}, 'body {id}')")
                })
                .collect();
            lines.push(format!("INSERT INTO entry (tenant, id, body) VALUES {}", rows.join(", ")));
            lines.push(format!("INSERT INTO counter VALUES ({tenant}, 0)"));
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        self.sql(&lines);
    }

    /// Runs statements one after the other; answers the rows of the last, as text.
    #[track_caller]
    pub fn sql(&self, statements: &[&str]) -> Vec<Vec<String>> {
        let address = self.any().door("sql").to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = connect(&address).await.expect("the door is open");
            let mut rows = Vec::new();
            for sql in statements {
                let answers =
                    client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
                rows = answers
                    .iter()
                    .filter_map(|message| match message {
                        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
                        _ => None,
                    })
                    .map(|row| (0..row.len()).map(|at| row.get(at).unwrap_or("").to_owned()).collect())
                    .collect();
            }
            drop(client);
            connection.abort();
            rows
        })
    }

    /// Callers of these processes.
    pub fn writers(&self, processes: &[usize]) -> Writers {
        Writers::start(&self.ledger, &self.addresses, processes, 6)
    }

    /// Has the first process wait when it comes to this place.
    pub fn hold(&self, place: &str) {
        fs::write(self.holds.path().join(place), "").expect("a file can be written");
    }

    /// Waits until it is there.
    #[track_caller]
    pub fn await_held(&self, place: &str) {
        let (action, moment) = place.split_once('.').expect("a place has a moment");
        let is_there = |line: &str| {
            let words = line.split_once("held at a failpoint").map(|(_, rest)| rest);
            words.is_some_and(|words| words.contains(action) && words.contains(moment))
        };
        let held = self.process(0).log().wait_for(PATIENCE, is_there);
        assert!(held.is_some(), "{place} is not come to:\n{}", self.process(0).log().text());
    }

    /// Lets it go on from this place.
    pub fn let_go_of(&self, place: &str) {
        fs::remove_file(self.holds.path().join(place)).expect("it was held there");
    }

    /// Lets it go on.
    pub fn let_go(&self) {
        for file in fs::read_dir(self.holds.path()).expect("the folder is there") {
            fs::remove_file(file.expect("the folder can be listed").path()).expect("a file can be removed");
        }
    }

    /// Asks the first process for a move; answers the operation.
    #[track_caller]
    pub fn begin(&self, line: &str) -> String {
        let answer = json(self.process(0), line);
        answer["parts"][0]["operation"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Waits until an operation has ended, by itself; answers how.
    #[track_caller]
    pub fn ended(&self, operation: &str) -> Value {
        eventually("the end of the operation", || {
            self.operation(operation).filter(|shown| shown["state"] != "running")
        })
    }

    /// An operation as it is shown; none while the catalog cannot be asked.
    pub fn operation(&self, operation: &str) -> Option<Value> {
        let output = run(self.any(), &format!("ops show {operation} --json"));
        (output.code == Some(0)).then(|| output.json())
    }

    /// The shard of a tenant.
    #[track_caller]
    pub fn owner(&self, tenant: i64) -> String {
        shard_of(self.any(), "tenants", &tenant.to_string())
    }

    /// Everything acknowledged is there once, on its owner, and no move has left anything behind.
    #[track_caller]
    pub fn assert_whole(&self) {
        let errors: Vec<String> = (0..self.setups.len())
            .flat_map(|process| self.ledger.errors_of(process))
            .filter(|error| error.starts_with("LOST"))
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        run(self.any(), "map check tenants").ok();
        run(self.any(), "check tenants").ok();
        let numbers =
            |row: &Vec<String>| -> (i64, i64) { (row[0].parse().unwrap(), row[1].parse().unwrap()) };
        let found: Vec<(i64, i64)> =
            self.sql(&["SELECT tenant, id FROM entry"]).iter().map(numbers).collect();
        self.ledger.assert_found("entry", &found);
        self.ledger.assert_together("entry", &found);
        let counters: Vec<(i64, i64)> =
            self.sql(&["SELECT tenant, n FROM counter"]).iter().map(numbers).collect();
        let last: BTreeMap<i64, i64> = counters.iter().copied().collect();
        assert_eq!((last.len(), counters.len()), (TENANTS as usize, TENANTS as usize));
        self.ledger.assert_linear("counter", &last);
        if let Some(fleet) = &self.fleet {
            self.assert_shards(fleet, found.len());
        }
    }

    /// Looks into the databases themselves.
    fn assert_shards(&self, fleet: &Fleet, entries: usize) {
        let mut all = 0;
        for (shard, apart) in self.shards.into_iter().zip([SOURCE, TARGET]) {
            let server = if fleet.servers.len() == 1 { 0 } else { apart };
            let count = |sql: &str| -> usize { fleet.servers[server].execute(shard, sql).parse().unwrap() };
            all += count("SELECT count(*) FROM entry");
            for left in ["capture", "capture_log", "carried", "fence"] {
                assert_eq!(count(&format!("SELECT count(*) FROM polyshard.{left}")), 0, "{left} on {shard}");
            }
            let triggers =
                "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'polyshard%' AND NOT tgisinternal";
            assert_eq!(count(triggers), 0, "triggers of a move on {shard}");
        }
        assert_eq!(all, entries, "entries on the shards, and those that callers see");
    }
}
