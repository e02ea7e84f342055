//! One PostgreSQL server with one plain database and four shards, PgBouncer before the plain one, the program before
//! the shards.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};

use polyshard_testkit::postgres::{PgBouncer, PgOptions, PgServer};
use polyshard_testkit::process::{Server, Setup};

use crate::{Effort, Failure};

/// Shards of the program.
pub const SHARDS: usize = 4;

/// What is measured against.
pub struct World {
    pub server: PgServer,
    pub bouncer: Option<PgBouncer>,
    pub door: Server,
    /// Tenants, which is rows of `accounts`.
    pub tenants: u64,
    /// Rows of `events` over all shards.
    pub events: u64,
}

/// Somewhere a PostgreSQL client connects to.
#[derive(Clone, Debug)]
pub struct Place {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub database: String,
}

impl Place {
    /// A client program that is told where to connect.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("PGHOST", &self.host)
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", &self.user)
            .env("PGPASSWORD", &self.password)
            .env("PGDATABASE", &self.database)
            .env("PGSSLMODE", "disable")
            .stdin(Stdio::null());
        command
    }

    /// Runs SQL by psql and returns what it prints.
    pub fn psql(&self, sql: &str) -> Result<String, Failure> {
        let output = self
            .command("psql")
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()?;
        if !output.status.success() {
            return Err(format!("psql: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl World {
    /// Starts and fills everything.
    pub fn start(effort: Effort) -> Result<World, Failure> {
        let settings = [("max_connections", "300"), ("shared_buffers", "512MB")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let server = PgServer::start_with(PgOptions { settings: settings.into(), ..PgOptions::default() });
        server.create_database("plain");
        let mut config = String::from("[sql]\nlisten = \"127.0.0.1:0\"\n");
        for shard in 1..=SHARDS {
            server.create_database(&format!("shard{shard}"));
            write!(
                config,
                "[[shards]]\nid = \"s{shard}\"\nurl = \"{}\"\n",
                server.url(&format!("shard{shard}"))
            )?;
        }
        let setup = Setup::new().config(&config);
        let door = setup.try_start().map_err(|failure| failure.to_string())?;
        let bouncer = server.pgbouncer("plain");
        let world = World {
            server,
            bouncer,
            door,
            tenants: effort.pick(100_000, 10_000),
            events: effort.pick(1_000_000, 100_000),
        };
        world.fill()?;
        Ok(world)
    }

    fn fill(&self) -> Result<(), Failure> {
        let tables = "CREATE TABLE accounts (tenant bigint PRIMARY KEY, balance int NOT NULL, filler text); \
             CREATE TABLE events (tenant bigint NOT NULL, id bigint NOT NULL, kind int NOT NULL, \
             amount bigint NOT NULL, PRIMARY KEY (tenant, id));";
        self.plain().psql(tables)?;
        let door = self.sharded();
        for table in tables.split_terminator(';') {
            door.psql(table)?;
        }
        door.psql("SELECT polyshard.create_map('tenants', 'hash', 'bigint')")?;
        door.psql("SELECT polyshard.shard_table('accounts', 'tenants', 'tenant')")?;
        door.psql("SELECT polyshard.shard_table('events', 'tenants', 'tenant')")?;
        // The same file to both.
        let folder = tempfile::tempdir()?;
        let (accounts, events) = (folder.path().join("accounts"), folder.path().join("events"));
        let mut lines = String::new();
        for tenant in 0..self.tenants {
            writeln!(lines, "{tenant}\t{}\t{}", tenant % 1000, "x".repeat(80))?;
        }
        fs::write(&accounts, &lines)?;
        lines.clear();
        for id in 0..self.events {
            writeln!(lines, "{}\t{id}\t{}\t{}", id % self.tenants, id % 97, id % 10_007)?;
        }
        fs::write(&events, &lines)?;
        for place in [self.plain(), door] {
            for (table, file) in [("accounts", &accounts), ("events", &events)] {
                place.psql(&format!("\\copy {table} FROM '{}'", file.display()))?;
            }
        }
        self.plain().psql("VACUUM ANALYZE")?;
        for shard in 1..=SHARDS {
            self.shard(shard).psql("VACUUM ANALYZE")?;
        }
        Ok(())
    }

    /// Processor time that PostgreSQL has used, by its sessions that are there and those that have ended; and how many
    /// are there.
    pub fn server_cpu_us(&self) -> Result<(f64, usize), Failure> {
        let told = fs::read_to_string(self.server.data_directory().join("postmaster.pid"))?;
        let postmaster = told.lines().next().ok_or("no process in postmaster.pid")?.trim().to_owned();
        let mut sum = times_us(&postmaster, [11, 12])? + times_us(&postmaster, [13, 14])?;
        let mut sessions = 0;
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // Processes come and go while they are looked at.
            let Ok(stat) = fs::read_to_string(format!("/proc/{name}/stat")) else { continue };
            if fields(&stat).is_ok_and(|fields| fields.get(1) == Some(&postmaster.as_str())) {
                sum += times_us(&name, [11, 12]).unwrap_or(0.0);
                sessions += 1;
            }
        }
        Ok((sum, sessions))
    }

    /// One database, no pooler.
    pub fn plain(&self) -> Place {
        self.database("plain")
    }

    /// One shard's database, past the door.
    pub fn shard(&self, number: usize) -> Place {
        self.database(&format!("shard{number}"))
    }

    fn database(&self, name: &str) -> Place {
        Place {
            host: self.server.host().to_owned(),
            port: self.server.port(),
            user: self.server.user().to_owned(),
            password: self.server.password().to_owned(),
            database: name.to_owned(),
        }
    }

    /// The plain database through PgBouncer.
    pub fn bounced(&self) -> Option<Place> {
        let bouncer = self.bouncer.as_ref()?;
        Some(Place { port: bouncer.port(), ..self.plain() })
    }

    /// All shards through the program.
    pub fn sharded(&self) -> Place {
        let address = self.door.door("sql");
        let address = address.rsplit_once("//").map_or(address, |(_, address)| address);
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "6432"));
        let name = "polyshard".to_owned();
        let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
        Place {
            host: host.rsplit_once('@').map_or(host, |(_, host)| host).to_owned(),
            port: digits.parse().unwrap_or(6432),
            user: name.clone(),
            password: name.clone(),
            database: name,
        }
    }
}

/// Processor time that a process has used, in microseconds.
pub fn cpu_us(process: u32) -> Result<f64, Failure> {
    times_us(&process.to_string(), [11, 12])
}

/// Processor time of the programs that this one has run to their end, in microseconds.
pub fn children_us() -> Result<f64, Failure> {
    times_us("self", [13, 14])
}

/// The sum of two times that Linux tells of a process.
fn times_us(process: &str, places: [usize; 2]) -> Result<f64, Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = fields(&stat)?;
    let ticks =
        |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).ok_or("no time in stat");
    // Linux counts in hundredths of a second here.
    Ok((ticks(places[0])? + ticks(places[1])?) * 10_000.0)
}

/// What follows the name, which may hold spaces, and its bracket.
fn fields(stat: &str) -> Result<Vec<&str>, Failure> {
    Ok(stat.rsplit_once(')').ok_or("no name in stat")?.1.split_whitespace().collect())
}
