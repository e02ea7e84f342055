//! A real PostgreSQL server of its own for each test, on a free port, that can be stopped, killed and paused.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::scratch;

/// The superuser's password; servers listen on loopback for the length of a test.
const PASSWORD: &str = "testkit-superuser";

/// A start takes a fraction of a second; crash recovery on a loaded machine may take long.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a start is tried when somebody else takes the free port first.
const START_TRIES: usize = 5;

/// Settings of a server.
#[derive(Clone, Debug, Default)]
pub struct PgOptions {
    /// Whether commits reach the disk.
    pub durability: Durability,
    /// Further settings, as `name=value` of postgresql.conf.
    pub settings: Vec<(String, String)>,
}

/// Whether commits reach the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// As in production.
    #[default]
    Fsync,
    /// `fsync=off` and files in memory, for tests that never crash the machine and want speed.
    NoFsync,
}

/// A running server; dropping it stops it and deletes its files. Should the test process be killed, a
/// watcher does the same.
pub struct PgServer {
    directory: TempDir,
    options: PgOptions,
    port: u16,
    postmaster: Option<Child>,
    watcher: Option<Child>,
}

impl PgServer {
    /// Starts a server with the default settings.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start, as everything in this module.
    pub fn start() -> PgServer {
        PgServer::start_with(PgOptions::default())
    }

    /// Starts a server with these settings.
    pub fn start_with(options: PgOptions) -> PgServer {
        let template = template();
        let directory = match options.durability {
            Durability::Fsync => TempDir::with_prefix("polyshard-pg-").expect("a temporary folder"),
            Durability::NoFsync => scratch::folder("polyshard-pg-"),
        };
        run(Command::new("cp").arg("-a").arg(template.join("data")).arg(directory.path()));
        fs::create_dir(directory.path().join("socket")).expect("a folder for the socket");
        give_to_postgres(directory.path());
        give_to_postgres(&directory.path().join("socket"));
        let watcher = watch(directory.path());
        let mut server = PgServer { directory, options, port: 0, postmaster: None, watcher: Some(watcher) };
        for _ in 0..START_TRIES {
            server.port = free_port();
            if server.try_start().is_ok() {
                return server;
            }
        }
        panic!("PostgreSQL does not start; its log:\n{}", server.log());
    }

    /// The address it listens on.
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// The port it listens on; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The superuser.
    pub fn user(&self) -> &'static str {
        "postgres"
    }

    /// The superuser's password.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The directory of its Unix socket.
    pub fn socket_directory(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Where `database` is, with the superuser's password.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{}:{PASSWORD}@{}:{}/{database}", self.user(), self.host(), self.port)
    }

    /// The same as libpq writes it, for `tokio_postgres::connect`.
    pub fn connect_string(&self, database: &str) -> String {
        format!(
            "host={} port={} user={} password={PASSWORD} dbname={database}",
            self.host(),
            self.port,
            self.user()
        )
    }

    /// Makes a database.
    pub fn create_database(&self, name: &str) {
        self.execute("postgres", &format!("CREATE DATABASE \"{name}\""));
    }

    /// Makes a role with ordinary rights that may log in.
    pub fn create_role(&self, name: &str, password: &str) {
        self.execute("postgres", &format!("CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}'"));
    }

    /// Runs SQL with psql as the superuser; returns the unaligned output.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        let output = Command::new(binary("psql"))
            .env("PGPASSWORD", PASSWORD)
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.host(), "-U", self.user()])
            .args(["-p", &self.port.to_string(), "-d", database, "-c", sql])
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Stops it as an administrator would: sessions are cut off, committed data is written.
    pub fn stop(&mut self) {
        self.end("INT");
    }

    /// Kills every process of it at once, as a power cut would.
    pub fn kill9(&mut self) {
        // Paused first, so that no new child appears between the look and the shot.
        let Some(postmaster) = self.postmaster.as_ref().map(Child::id) else { return };
        signal("STOP", &[postmaster]);
        let mut processes = self.processes(postmaster);
        processes.push(postmaster);
        signal("KILL", &processes);
        self.reap();
        // A process that is still dying holds the shared memory, and the server would refuse to start again. One that
        // was only being made when the others were looked for does not know that they are gone: a busy one would go on
        // with its query for minutes.
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            processes.extend(self.processes(postmaster));
            processes.retain(|pid| is_alive(*pid));
            if processes.is_empty() || Instant::now() >= deadline {
                break;
            }
            signal("KILL", &processes);
            sleep(Duration::from_millis(1));
        }
        self.remove_shared_memory();
        // The watcher must not take the number in it for a living server.
        let _ = fs::remove_file(self.data_directory().join("postmaster.pid"));
    }

    /// Kills one of its processes, the backend `pid`, which makes the server recover from its log.
    pub fn kill_backend(&self, pid: u32) {
        signal("KILL", &[pid]);
    }

    /// Starts it again after a stop or kill, on the same port with the same data.
    pub fn start_again(&mut self) {
        if let Err(error) = self.try_start() {
            panic!("PostgreSQL does not start again ({error}); its log:\n{}", self.log());
        }
    }

    /// Stops it and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// Pauses every process of it: connections stay open and nothing answers.
    pub fn suspend(&self) {
        let Some(postmaster) = self.postmaster.as_ref().map(Child::id) else { return };
        signal("STOP", &[postmaster]);
        signal("STOP", &self.processes(postmaster));
    }

    /// Ends a pause.
    pub fn resume(&self) {
        let Some(postmaster) = self.postmaster.as_ref().map(Child::id) else { return };
        let mut processes = self.processes(postmaster);
        processes.push(postmaster);
        signal("CONT", &processes);
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The directory of its data files.
    pub fn data_directory(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Copies a file into its data directory, readable by the server alone.
    pub fn install_file(&self, from: &Path, name: &str) {
        let to = self.data_directory().join(name);
        fs::copy(from, &to).expect("the file is copied");
        run(Command::new("chmod").arg("600").arg(&to));
        give_to_postgres(&to);
    }

    /// A transaction pooler in front of it, or `None` where pgbouncer is not installed.
    pub fn pgbouncer(&self, database: &str) -> Option<PgBouncer> {
        PgBouncer::start(self, database)
    }

    fn try_start(&mut self) -> Result<(), String> {
        let data = self.data_directory();
        let pid_file = data.join("postmaster.pid");
        // A killed server leaves its file; its number may be another process by now.
        let _ = fs::remove_file(&pid_file);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("log"))
            .map_err(|error| error.to_string())?;
        let mut command = as_postgres(binary("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(self.socket_directory());
        command.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        // Within its own folder, and so gone with it, however it ends.
        command.args(["-c", "dynamic_shared_memory_type=mmap"]);
        if self.options.durability == Durability::NoFsync {
            command.args(["-c", "fsync=off"]);
        }
        for (name, value) in &self.options.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // A group of its own: if a test runner kills the test's whole group, the watcher still finds a living server,
        // which ends its own processes. One that is killed leaves those that are busy.
        command.process_group(0);
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(|error| error.to_string())?).stdout(log);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("it ended with {status}"));
            }
            // The last line of the file becomes "ready" once connections are accepted.
            let state = fs::read_to_string(&pid_file).unwrap_or_default();
            if state.lines().nth(7).is_some_and(|line| line.trim() == "ready") {
                self.postmaster = Some(child);
                return Ok(());
            }
            if Instant::now() > deadline {
                signal("QUIT", &[child.id()]);
                let _ = child.wait();
                return Err(format!("it was not ready within {START_TIMEOUT:?}"));
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Its processes but for the first: those that this one has made, and whoever works in its data directory, as an
    /// orphan of it still does.
    fn processes(&self, postmaster: u32) -> Vec<u32> {
        let data = canonical(&self.data_directory());
        let is_inside = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data);
        let is_child = |pid: &u32| parent_of(*pid).is_ok_and(|parent| parent == Some(postmaster));
        all_processes().filter(|pid| *pid != postmaster && (is_child(pid) || is_inside(pid))).collect()
    }

    /// Takes away the segment by which the system knows that somebody uses the data directory. It outlives a killed
    /// server; the seventh line of its file has the key and the number of it.
    fn remove_shared_memory(&self) {
        if let Some(number) = self.shared_memory() {
            // The last of several processes may have taken it along.
            let _ = Command::new("ipcrm").args(["-m", &number]).stderr(Stdio::null()).status();
        }
    }

    fn shared_memory(&self) -> Option<String> {
        let state = fs::read_to_string(self.data_directory().join("postmaster.pid")).ok()?;
        Some(state.lines().nth(6)?.split_ascii_whitespace().nth(1)?.to_owned())
    }

    fn end(&mut self, name: &str) {
        if let Some(postmaster) = &self.postmaster {
            signal(name, &[postmaster.id()]);
            self.reap();
        }
    }

    fn reap(&mut self) {
        if let Some(mut postmaster) = self.postmaster.take() {
            let _ = postmaster.wait();
        }
    }
}

impl Drop for PgServer {
    fn drop(&mut self) {
        self.resume();
        self.end("QUIT");
        // Closing its standard input tells the watcher to end; the server is gone, so it only deletes.
        if let Some(mut watcher) = self.watcher.take() {
            drop(watcher.stdin.take());
            let _ = watcher.wait();
        }
    }
}

/// A pgbouncer in transaction mode, whose clients change server sessions between transactions.
pub struct PgBouncer {
    _directory: TempDir,
    port: u16,
    process: Child,
}

impl PgBouncer {
    /// The port it listens on, on 127.0.0.1; users and passwords are the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process, to read what it uses.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn start(server: &PgServer, database: &str) -> Option<PgBouncer> {
        let binary = Path::new("/usr/sbin/pgbouncer");
        if !binary.exists() {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("polyshard-pgb-").tempdir().expect("a folder");
        let port = free_port();
        let users = directory.path().join("users");
        fs::write(&users, format!("\"{}\" \"{PASSWORD}\"\n", server.user())).expect("the user file");
        let config = format!(
            "[databases]\n{database} = host={} port={} dbname={database}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             unix_socket_dir =\nlogfile = {}\n",
            server.host(),
            server.port(),
            users.display(),
            directory.path().join("log").display()
        );
        let config_file = directory.path().join("pgbouncer.ini");
        fs::write(&config_file, config).expect("the config file");
        for path in [directory.path(), &users, &config_file] {
            give_to_postgres(path);
        }
        let process = as_postgres(binary.to_owned())
            .arg("-q")
            .arg(&config_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer runs");
        let mut bouncer = PgBouncer { _directory: directory, port, process };
        let deadline = Instant::now() + START_TIMEOUT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = bouncer.process.try_wait().expect("its state is known");
            assert!(ended.is_none() && Instant::now() < deadline, "pgbouncer does not start: {ended:?}");
            sleep(Duration::from_millis(10));
        }
        Some(bouncer)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        signal("KILL", &[self.process.id()]);
        let _ = self.process.wait();
    }
}

/// A data directory made once per machine and version, copied for every server: initdb takes a second,
/// copying a tenth.
fn template() -> PathBuf {
    let version = Command::new(binary("postgres")).arg("--version").output().expect("postgres runs");
    let version: String = String::from_utf8_lossy(&version.stdout)
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
        .collect();
    let owner = if is_root() { "root" } else { "user" };
    let base = std::env::temp_dir();
    let template = base.join(format!("polyshard-template-{}-{owner}", version.trim_matches('-')));
    let lock = base.join(format!("polyshard-template-{}-{owner}.lock", version.trim_matches('-')));
    let lock = File::options().create(true).truncate(false).write(true).open(lock).expect("the lock file");
    lock.lock().expect("the lock on the template");
    if template.join("complete").exists() {
        return template;
    }
    let _ = fs::remove_dir_all(&template);
    fs::create_dir_all(&template).expect("a folder for the template");
    let password = template.join("password");
    fs::write(&password, PASSWORD).expect("the password file");
    give_to_postgres(&template);
    give_to_postgres(&password);
    run(as_postgres(binary("initdb"))
        .args(["--no-sync", "-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8"])
        .arg("--pwfile")
        .arg(&password)
        .arg("-D")
        .arg(template.join("data")));
    fs::write(template.join("complete"), "").expect("the mark of completeness");
    template
}

/// The newest installed PostgreSQL's program of this name.
fn binary(name: &str) -> PathBuf {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin").join(name))).collect())
        .unwrap_or_default();
    versions.retain(|path| path.exists());
    versions.sort_by_key(|path| {
        path.iter().nth(4).and_then(|version| version.to_str()?.parse::<u32>().ok()).unwrap_or(0)
    });
    versions.pop().unwrap_or_else(|| panic!("PostgreSQL's {name} is missing: install the package postgresql"))
}

/// PostgreSQL refuses to run as root.
fn as_postgres(program: PathBuf) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
    command
}

fn give_to_postgres(path: &Path) {
    if is_root() {
        run(Command::new("chown").arg("postgres:postgres").arg(path));
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Outlives the test process if that is killed, also with its whole group; then it stops the server and deletes its
/// files.
fn watch(directory: &Path) -> Child {
    let script = "trap '' INT TERM HUP; cat >/dev/null; file=\"$1/data/postmaster.pid\"; \
                  pid=$(head -n 1 \"$file\" 2>/dev/null); segment=$(sed -n '7s/.* //p' \"$file\" 2>/dev/null); \
                  if [ -n \"$pid\" ]; then kill -QUIT \"$pid\" 2>/dev/null; \
                  while kill -0 \"$pid\" 2>/dev/null; do sleep 0.1; done; fi; \
                  for one in $(find /proc -mindepth 2 -maxdepth 2 -name cwd -lname \"$1/data\" 2>/dev/null); \
                  do one=${one#/proc/}; kill -KILL \"${one%/cwd}\" 2>/dev/null; done; \
                  if [ -n \"$segment\" ] && [ -e \"$file\" ]; then ipcrm -m \"$segment\" 2>/dev/null; fi; \
                  rm -rf \"$1\"";
    Command::new("sh")
        .args(["-c", script, "watch"])
        .arg(canonical(directory))
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh runs")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn signal(name: &str, processes: &[u32]) {
    if processes.is_empty() {
        return;
    }
    let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
    // A process that has ended meanwhile makes kill fail, and is none the worse.
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", processes.join(" "))])
        .stderr(Stdio::null())
        .status();
}

/// A folder by the name that the system has for it.
fn canonical(folder: &Path) -> PathBuf {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
}

/// Whether a process still has its memory; one that only waits to be reaped has not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn parent_of(pid: u32) -> io::Result<Option<u32>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; the state and the parent follow its last one.
    Ok(stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_data_over_a_kill_and_leaves_nothing_behind() {
        let mut server = PgServer::start();
        let directory = server.directory.path().to_owned();
        server.create_database("shop");
        server.execute("shop", "CREATE TABLE t AS SELECT 42 AS a");
        let segment = server.shared_memory().expect("a running server has one");
        let is_there = || Path::new("/proc/sysvipc/shm").exists().then(|| segments().contains(&segment));
        assert_ne!(is_there(), Some(false));
        server.kill9();
        assert_ne!(is_there(), Some(true));
        server.start_again();
        server.restart();
        assert_eq!(server.execute("shop", "SELECT a FROM t"), "42");
        drop(server);
        assert!(!directory.exists());
    }

    /// The numbers of the machine's segments of shared memory.
    fn segments() -> Vec<String> {
        let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
        table.lines().filter_map(|line| line.split_ascii_whitespace().nth(1).map(str::to_owned)).collect()
    }

    /// A query that computes for a long time does not look whether its server is still there.
    #[test]
    fn a_killed_server_takes_its_busy_sessions_along() {
        let mut server = PgServer::start();
        let busy = "DO $$ BEGIN FOR n IN 1..2000000000 LOOP NULL; END LOOP; END $$";
        let mut client = Command::new(binary("psql"))
            .env("PGPASSWORD", PASSWORD)
            .args(["-X", "-h", server.host(), "-U", server.user(), "-p", &server.port().to_string()])
            .args(["-d", "postgres", "-c", busy])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("psql runs");
        let deadline = Instant::now() + START_TIMEOUT;
        let working = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'DO $$%' AND state = 'active'";
        let session: u32 = loop {
            if let Ok(pid) = server.execute("postgres", working).parse() {
                break pid;
            }
            assert!(Instant::now() < deadline, "the query does not begin");
            sleep(Duration::from_millis(10));
        };
        // As a test runner may do: the first process alone.
        let postmaster = server.postmaster.as_ref().map(Child::id).expect("it runs");
        signal("KILL", &[postmaster]);
        while is_alive(postmaster) {
            assert!(Instant::now() < deadline, "it lives on");
            sleep(Duration::from_millis(1));
        }
        assert!(is_alive(session), "it goes on by itself");
        server.kill9();
        assert!(!is_alive(session));
        assert!(!client.wait().expect("psql ends").success());
        server.start_again();
    }
}
