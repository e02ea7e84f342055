//! The real `polyshard` program as a process of a test: started on free ports, stopped, killed, paused, asked.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

mod ask;
mod log;

pub use ask::{Answer, Output};
pub use log::Log;

/// How long a start or a stop may take: only a hang reaches it, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The token of development setups, which a server on a loopback address accepts unless it is configured otherwise.
const DEVELOPMENT_TOKEN: &str = "polyshard";

/// How to start a server: its own data folder, and what differs from the defaults. Start it as often as wanted.
#[derive(Clone, Debug)]
pub struct Setup {
    program: PathBuf,
    folder: Arc<TempDir>,
    data: PathBuf,
    environment: BTreeMap<String, String>,
    token: String,
    configured: bool,
}

/// Why a server did not become ready.
#[derive(Debug)]
pub enum StartFailure {
    /// The program could not be started at all.
    Missing(io::Error),
    /// It ended before it was ready; the log says why.
    Ended(ExitStatus, String),
    /// It neither became ready nor ended.
    Silent(String),
}

/// A running server. Dropping it kills it; the data folder goes with the last [`Setup`] or server that uses it.
#[derive(Debug)]
pub struct Server {
    setup: Setup,
    child: Child,
    ended: Option<ExitStatus>,
    doors: BTreeMap<String, String>,
    log: Arc<Log>,
    readers: Vec<JoinHandle<()>>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup::new()
    }
}

impl Setup {
    /// A server on embedded shards in a new temporary folder, its doors on free ports.
    pub fn new() -> Setup {
        let folder = TempDir::with_prefix("polyshard-test-").expect("a temporary folder can be made");
        let data = folder.path().join("data");
        let setup = Setup {
            program: program(),
            folder: Arc::new(folder),
            data,
            environment: BTreeMap::new(),
            token: DEVELOPMENT_TOKEN.to_owned(),
            configured: false,
        };
        setup
            .env("POLYSHARD__ADMIN__LISTEN", "127.0.0.1:0")
            .env("POLYSHARD__BLOB__LISTEN", "127.0.0.1:0")
            .env("POLYSHARD__DOCUMENT__LISTEN", "127.0.0.1:0")
            .env("POLYSHARD__QUEUE__LISTEN", "127.0.0.1:0")
            .env("POLYSHARD__TABLE__LISTEN", "127.0.0.1:0")
            .env("POLYSHARD__SQL__LISTEN", "127.0.0.1:0")
    }

    /// With this configuration file.
    pub fn config(mut self, toml: &str) -> Setup {
        fs::write(self.config_path(), toml).expect("the configuration can be written");
        self.configured = true;
        self
    }

    /// With this variable in the environment. Nothing called `POLYSHARD…` is taken over from the test's own.
    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// On this data folder, which the caller owns.
    pub fn data(mut self, folder: &Path) -> Setup {
        self.data = folder.to_owned();
        self
    }

    /// Asks with this token instead of the one of development setups.
    pub fn token(mut self, token: &str) -> Setup {
        self.token = token.to_owned();
        self
    }

    /// Another program than the `polyshard` of this build, an older one for instance.
    pub fn program(mut self, path: &Path) -> Setup {
        self.program = path.to_owned();
        self
    }

    /// Where its data is.
    pub fn data_path(&self) -> &Path {
        &self.data
    }

    /// Where its configuration file is, if it has one.
    pub fn config_path(&self) -> PathBuf {
        self.folder.path().join("polyshard.toml")
    }

    /// Starts the server and waits until it is ready.
    #[track_caller]
    pub fn start(&self) -> Server {
        self.try_start().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts the server and waits until it is ready, or says why it is not.
    pub fn try_start(&self) -> Result<Server, StartFailure> {
        let mut command = self.command();
        command.arg("up").arg("--data").arg(&self.data);
        if self.configured {
            command.arg("--config").arg(self.config_path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(StartFailure::Missing)?;
        let log = Arc::new(Log::default());
        let readers = vec![
            follow(&log, child.stdout.take().expect("stdout is a pipe")),
            follow(&log, child.stderr.take().expect("stderr is a pipe")),
        ];
        let mut server =
            Server { setup: self.clone(), child, ended: None, doors: BTreeMap::new(), log, readers };
        server.await_ready()?;
        Ok(server)
    }

    /// Runs a command of the program without a server: `config check`, `completions`, or one that must fail.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Output::of(self.command().args(arguments))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("POLYSHARD") {
                command.env_remove(name);
            }
        }
        command.current_dir(self.folder.path()).envs(&self.environment);
        command
    }
}

impl Server {
    /// The address of a door, as the server printed it when it became ready.
    #[track_caller]
    pub fn door(&self, name: &str) -> &str {
        match self.doors.get(name) {
            Some(address) => address,
            None => panic!("the server named no {name} door, only {:?}", self.doors.keys()),
        }
    }

    /// The process id, for tools that look at the process from outside.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it was started: start it again from here once it has ended.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Everything it has printed.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Runs an operator's command against this server.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        let server = format!("http://{}", self.door("admin"));
        let mut command = self.setup.command();
        command.args(arguments).env("POLYSHARD_SERVER", server).env("POLYSHARD_TOKEN", &self.setup.token);
        Output::of(&mut command)
    }

    /// Asks the admin API, with the token.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        Answer::get(self.door("admin"), path, &self.setup.token)
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Kills it as a power cut would: no handler of its own runs.
    pub fn kill9(&mut self) -> ExitStatus {
        if self.ended.is_none() {
            self.child.kill().expect("a child of ours can be killed");
        }
        self.wait()
    }

    /// Pauses it: it keeps its connections and locks but does nothing (SIGSTOP).
    #[track_caller]
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets a paused one go on (SIGCONT).
    #[track_caller]
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends a signal by its name without `SIG`. The process is ours and not yet waited for, so its id is its own.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        assert!(self.ended.is_none(), "the server has ended already");
        // The shell's own `kill`: the program of that name is missing on small systems.
        let status =
            Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &self.id().to_string()]).status();
        assert!(status.expect("there is a shell").success(), "the server cannot be sent SIG{name}");
    }

    /// Waits until it ends by itself; its log is then complete.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        if let Some(status) = self.ended {
            return status;
        }
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours can be waited for") {
                break status;
            }
            assert!(Instant::now() < deadline, "the server did not end; its log:\n{}", self.log.text());
            std::thread::sleep(Duration::from_millis(5));
        };
        self.ended = Some(status);
        for reader in self.readers.drain(..) {
            reader.join().expect("reading a log does not panic");
        }
        status
    }

    /// Fails if the log so far has a warning, an error or a panic that contains none of the allowed words.
    #[track_caller]
    pub fn assert_clean_log(&self, allow: &[&str]) {
        let unexpected = self.log.complaints(allow);
        assert!(unexpected.is_empty(), "unexpected in the log:\n{}", unexpected.join("\n"));
    }

    /// Doors are the indented lines before the ready line: `  <door>  <address>`.
    fn await_ready(&mut self) -> Result<(), StartFailure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Asked before the log is read: what an ended process printed is then complete.
            let ended = self.child.try_wait().expect("a child of ours can be waited for");
            if ended.is_some() {
                self.wait();
            }
            if self.log.wait_for(Duration::from_millis(20), |line| line.starts_with("ready")).is_some() {
                self.doors = self.log.doors();
                return Ok(());
            }
            if let Some(status) = ended {
                return Err(StartFailure::Ended(status, self.log.text()));
            }
            if Instant::now() >= deadline {
                return Err(StartFailure::Silent(self.log.text()));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Nothing to be done about a failure here: the process is gone, which is what is wanted.
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
            for reader in self.readers.drain(..) {
                let _read = reader.join();
            }
        }
        if std::thread::panicking() {
            eprintln!("--- log of the server on {}:\n{}---", self.setup.data.display(), self.log.text());
        }
    }
}

impl std::fmt::Display for StartFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartFailure::Missing(error) => {
                write!(f, "the program cannot be started ({error}); build it first: cargo build -p polyshard")
            }
            StartFailure::Ended(status, log) => {
                write!(f, "the server ended before it was ready ({status}):\n{log}")
            }
            StartFailure::Silent(log) => write!(f, "the server did not become ready; its log:\n{log}"),
        }
    }
}

impl std::error::Error for StartFailure {}

/// The `polyshard` of this build: named by the test runner, or beside the test's own program.
fn program() -> PathBuf {
    for variable in ["CARGO_BIN_EXE_polyshard", "NEXTEST_BIN_EXE_polyshard"] {
        if let Some(path) = std::env::var_os(variable) {
            return path.into();
        }
    }
    let test = std::env::current_exe().expect("a test knows its own program");
    let folder = test.parent().expect("a program is in a folder");
    let profile =
        if folder.ends_with("deps") || folder.ends_with("examples") { folder.parent() } else { Some(folder) };
    profile.expect("a build has a folder").join(format!("polyshard{}", std::env::consts::EXE_SUFFIX))
}

fn follow(log: &Arc<Log>, from: impl Read + Send + 'static) -> JoinHandle<()> {
    let log = Arc::clone(log);
    std::thread::spawn(move || log.read(from))
}
