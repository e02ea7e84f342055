//! The two servers: the program on embedded shards, and Azurite on a folder.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polyshard_testkit::process::{self, Setup};
use tempfile::TempDir;

use crate::Failure;

/// Where `scripts/setup-bench.sh` puts it, from the folder of the repository.
const AZURITE: &str = "target/azurite/node_modules/azurite/dist/src/azurite.js";
/// How long Azurite may take to open its ports.
const START_MAX: Duration = Duration::from_secs(60);

/// A server that is measured.
pub struct Server {
    /// Its door for queues.
    pub queue: SocketAddr,
    /// Its door for tables.
    pub table: SocketAddr,
    /// Its endpoint for blobs.
    pub blob: SocketAddr,
    process: u32,
}

impl Server {
    /// The time that its process has had a core so far.
    pub fn cpu_seconds(&self) -> Result<f64, Failure> {
        cpu_seconds(self.process)
    }
}

/// The time that a process has had a core so far.
pub fn cpu_seconds(process: u32) -> Result<f64, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the program, in parentheses, may contain anything.
    let after = stat.rsplit_once(')').ok_or("no name in /proc/stat")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks =
        |at: usize| -> Result<f64, Failure> { Ok(fields.get(at).ok_or("a short /proc/stat")?.parse()?) };
    // utime and stime are fields 14 and 15; a tick is a hundredth of a second on every Linux.
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

/// Both servers. They are stopped when this is dropped.
pub struct Servers {
    ours: Server,
    theirs: Server,
    _program: process::Server,
    azurite: Child,
    _folder: TempDir,
}

impl Servers {
    /// Starts both, ours on so many shards.
    pub fn start(shards: usize) -> Result<Servers, Failure> {
        let shard =
            |number| format!("[[shards]]\nid = \"s{number}\"\nurl = \"sqlite:shards/s{number}.db\"\n");
        let config: String = (1..=shards).map(shard).collect();
        let program = Setup::new().config(&config).try_start().map_err(|failure| failure.to_string())?;
        let door = |name: &str| -> Result<SocketAddr, Failure> { Ok(program.door(name).parse()?) };
        let ours = Server {
            queue: door("queue")?,
            table: door("table")?,
            blob: door("blob")?,
            process: program.id(),
        };
        let folder = TempDir::with_prefix("polyshard-azurite-")?;
        let [blob, queue, table] = free_ports()?;
        let script = script()?;
        let azurite = Command::new("node")
            .arg(script)
            .args(["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location"])
            .arg(folder.path())
            .args(["--blobPort", &blob.to_string(), "--queuePort", &queue.to_string()])
            .args(["--tablePort", &table.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let theirs = Server {
            queue: address(queue),
            table: address(table),
            blob: address(blob),
            process: azurite.id(),
        };
        let servers = Servers { ours, theirs, _program: program, azurite, _folder: folder };
        servers.await_azurite()?;
        Ok(servers)
    }

    /// Ours, then theirs.
    pub fn all(&self) -> impl Iterator<Item = &Server> {
        [&self.ours, &self.theirs].into_iter()
    }

    fn await_azurite(&self) -> Result<(), Failure> {
        let end = Instant::now() + START_MAX;
        for door in [self.theirs.queue, self.theirs.table, self.theirs.blob] {
            while TcpStream::connect(door).is_err() {
                if Instant::now() > end {
                    return Err("Azurite did not open its ports".into());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // Nothing to be done about a failure here: the process is gone, which is what is wanted.
        let _gone = self.azurite.kill();
        let _reaped = self.azurite.wait();
    }
}

/// Azurite's program, from this build's own folder upwards.
fn script() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let found = own.ancestors().map(|folder: &Path| folder.join(AZURITE)).find(|path| path.exists());
    found.ok_or_else(|| "Azurite is not installed: run scripts/setup-bench.sh first".into())
}

/// Ports that were free a moment ago.
fn free_ports() -> Result<[u16; 3], Failure> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}
