//! Backups of real processes: taken, verified, restored and served again; killed in the middle of everything. E1.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polyshard_testkit::process::{Server, Setup};

use crate::fleet::Fleet;
use crate::support::{eventually, json, run, shard_of};

fn with_map() -> Server {
    let server = Setup::new().start();
    server.cli(&["map", "create", "tenants", "--kind", "hash", "--key", "bigint"]).ok();
    server
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub fn psql(server: &Server, sql: &str) -> String {
    let url = url_of(server);
    let mut command = Command::new("psql");
    let ran = command.args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, &url]).output().unwrap();
    assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
}

/// Makes the table of the tests and fills it: tenants 1 to 20, each with so many orders.
pub fn with_orders(server: &Server, each: u32) {
    for sql in [
        "CREATE TABLE orders (tenant bigint, id bigint, what text, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "SELECT polyshard.shard_table('orders', 'tenants', 'tenant')",
    ] {
        psql(server, sql);
    }
    for tenant in 1..=20 {
        let rows: Vec<String> = (0..each).map(|id| format!("({tenant}, {id}, 'order {id}')")).collect();
        psql(server, &format!("INSERT INTO orders VALUES {}", rows.join(", ")));
    }
}

pub fn orders(server: &Server, tenant: u32) -> String {
    psql(server, &format!("SELECT count(*), min(what), max(what) FROM orders WHERE tenant = {tenant}"))
}

/// The program on its own, as a supervisor would start it.
pub fn program(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// How many restorations there were.
pub fn restores(server: &Server) -> usize {
    let listed = json(server, "backup list");
    let listed = listed["backups"].as_array().unwrap();
    listed.iter().filter(|one| one["kind"] == "restore").count()
}

pub fn address(server: &Server) -> String {
    format!("http://{}", server.door("admin").trim_start_matches("http://"))
}

/// How long something that must come by itself may take; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn wait_for(path: &Path) {
    let end = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < end, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A psql that holds a transaction open until it is let go, as a careless person would.
pub struct Holding(Child);

impl Holding {
    /// Runs statements in a transaction and leaves it open.
    pub fn begin(url: &str, sql: &str) -> Holding {
        let mut command = Command::new("psql");
        command.args(["-X", "-At", "-v", "ON_ERROR_STOP=1", url]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "BEGIN; {sql}; SELECT 'held';").unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line == "held"), "{sql}");
        Holding(child)
    }

    /// Ends it, which rolls the transaction back.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// The chunks of a part of a backup, in order.
pub fn chunks_of(backup: &Path, part: &str) -> Vec<PathBuf> {
    let list = std::fs::read_to_string(backup.join(format!("{part}.chunks"))).unwrap();
    let path = |line: &str| backup.join(format!("../chunks/{}/{}", &line[..2], &line[..64]));
    list.lines().map(path).collect()
}

/// A pipe that nobody writes to in the place of a file: whoever reads it waits there.
pub struct Blocked {
    file: PathBuf,
    kept: PathBuf,
}

impl Blocked {
    pub fn new(file: &Path) -> Blocked {
        let kept = file.with_extension("kept");
        std::fs::rename(file, &kept).unwrap();
        assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
        Blocked { file: file.to_owned(), kept }
    }

    pub fn end(self) {
        std::fs::remove_file(&self.file).unwrap();
        std::fs::rename(&self.kept, &self.file).unwrap();
    }
}

pub fn url_of(server: &Server) -> String {
    // The door is told with its user and database, or by its address alone.
    let door = server.door("sql").rsplit('@').next().unwrap().split('/').next().unwrap();
    format!("postgres://polyshard:polyshard@{door}/polyshard")
}

#[test]
fn what_is_backed_up_is_restored_elsewhere_and_served() {
    let mut server = with_map();
    let folder = tempfile::tempdir().unwrap();
    let (backup, data) = (folder.path().join("monday"), folder.path().join("restored"));
    let taken = server.cli(&["backup", "take", text(&backup)]).ok();
    assert!(taken.contains("5 databases"), "{taken}");
    // What comes after the moment is not in it.
    server.cli(&["map", "create", "later", "--kind", "hash", "--key", "text"]).ok();
    let listed = server.cli(&["backup", "list"]).ok();
    assert!(listed.contains("done") && listed.contains("monday"), "{listed}");
    let there = server.cli(&["backup", "list", text(folder.path())]).ok();
    assert!(there.contains("whole") && there.contains("everything"), "{there}");
    let again = server.cli(&["backup", "take", text(&backup)]).fails_with(2);
    assert!(again.contains("there already"), "{again}");
    server.cli(&["backup", "take", "/"]).fails_with(2);
    server.cli(&["backup", "take"]).fails_with(2);
    server.cli(&["backup", "take", "s3://key:secret@bucket/x"]).fails_with(2);
    server.cli(&["backup", "verify", text(&backup)]).ok();
    server.cli(&["restore", text(&backup), "--data", text(&data)]).ok();
    server.stop();

    let restored = Setup::new().data(&data);
    let mut server = restored.start();
    let maps = server.cli(&["map", "list"]).ok();
    assert!(maps.contains("tenants") && !maps.contains("later"), "{maps}");
    let check = server.cli(&["map", "check", "tenants"]).ok();
    assert!(check.contains("agree"), "{check}");
    server.stop();
    let refused = restored.run(&["restore", text(&backup), "--data", text(&data)]).fails_with(2);
    assert!(refused.contains("not empty"), "{refused}");
}

#[test]
fn one_shard_is_copied_alone_and_is_not_taken_for_everything() {
    let mut server = with_map();
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("s2");
    server.cli(&["backup", "take", text(&backup), "--shard", "s2"]).ok();
    assert!(backup.join("shards/s2.chunks").exists() && !backup.join("catalog.chunks").exists());
    let data = folder.path().join("restored");
    let refused = server.cli(&["restore", text(&backup), "--data", text(&data)]).fails_with(2);
    assert!(refused.contains("single shards"), "{refused}");
    let unknown = folder.path().join("s9");
    let refused = server.cli(&["backup", "take", text(&unknown), "--shard", "s9"]).fails_with(2);
    assert!(refused.contains("no shard s9"), "{refused}");
    assert!(!unknown.exists());
    server.stop();
}

#[test]
fn a_process_killed_while_it_takes_a_backup_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Setup::new().start();
    with_orders(&server, 1);
    let setup = server.setup().clone();
    for round in 0..6 {
        let backup = folder.path().join(format!("round-{round}"));
        // The first can never be whole: a write that does not end keeps it from its moment.
        let held = (round == 0)
            .then(|| Holding::begin(&url_of(&server), "UPDATE orders SET what = 'held' WHERE tenant = 7"));
        let mut taking = program(&["--server", &address(&server), "backup", "take", text(&backup)]);
        wait_for(&backup.join("begun.json"));
        std::thread::sleep(Duration::from_millis(6 * round));
        server.kill9();
        taking.wait().unwrap();
        if let Some(held) = held {
            held.end();
            assert!(!backup.join("manifest.json").exists());
        }
        if backup.join("manifest.json").exists() {
            // It was quicker, and so it is whole.
            setup.run(&["backup", "verify", text(&backup)]).ok();
        } else {
            let refused = setup.run(&["backup", "verify", text(&backup)]).fails_with(4);
            assert!(refused.contains("not a whole one"), "{refused}");
        }
        server = setup.start();
        assert!(!setup.data_path().join("backup-scratch").exists(), "what was needed meanwhile is gone");
    }
    let listed = server.cli(&["backup", "list"]).ok();
    assert!(listed.contains("ended before it was done"), "{listed}");
    let there = server.cli(&["backup", "list", text(folder.path())]).ok();
    assert!(there.contains("unfinished"), "{there}");
    let backup = folder.path().join("last");
    server.cli(&["backup", "take", text(&backup)]).ok();
    server.cli(&["backup", "verify", text(&backup)]).ok();
    server.stop();
}

#[test]
fn a_restoration_killed_in_the_middle_leaves_nothing_to_serve() {
    let mut server = with_map();
    let folder = tempfile::tempdir().unwrap();
    let (backup, data) = (folder.path().join("backup"), folder.path().join("restored"));
    server.cli(&["backup", "take", text(&backup)]).ok();
    let setup = server.setup().clone();
    server.stop();
    // A pipe that nobody writes to, in the place of a chunk that the last shard alone has: it waits in the middle.
    let lists = |shard: &str| std::fs::read_to_string(backup.join(format!("shards/{shard}.chunks"))).unwrap();
    let others = ["s1", "s2", "s3"].map(lists).concat();
    let alone = lists("s4").lines().find(|line| !others.contains(line)).unwrap()[..64].to_owned();
    let blocked = Blocked::new(&folder.path().join(format!("chunks/{}/{alone}", &alone[..2])));
    let mut restoring = program(&["restore", text(&backup), "--data", text(&data)]);
    let staging = PathBuf::from(format!("{}.restoring", text(&data)));
    wait_for(&staging.join("shards/s3.db"));
    restoring.kill().unwrap();
    restoring.wait().unwrap();
    assert!(staging.exists() && !data.exists());

    blocked.end();
    setup.run(&["restore", text(&backup), "--data", text(&data)]).ok();
    assert!(!staging.exists());
    let mut server = Setup::new().data(&data).start();
    assert!(server.cli(&["map", "list"]).ok().contains("tenants"));
    server.stop();
}

#[test]
fn a_tenant_is_restored_whole_or_not_at_all_though_the_process_is_killed() {
    let mut server = Setup::new().start();
    with_orders(&server, 300);
    let setup = server.setup().clone();
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("monday");
    server.cli(&["backup", "take", text(&backup)]).ok();
    let then = orders(&server, 7);
    psql(&server, "UPDATE orders SET what = 'now' WHERE tenant = 7");
    let now = orders(&server, 7);
    let shard = shard_of(&server, "tenants", "7");
    for round in 0..6 {
        // The first waits for a chunk that does not come, and so has restored nothing when it is killed.
        let blocked = (round == 0).then(|| Blocked::new(&chunks_of(&backup, &format!("shards/{shard}"))[0]));
        let before = restores(&server);
        let address = address(&server);
        let arguments = ["--server", &address, "restore", text(&backup), "--map", "tenants", "--key", "7"];
        let mut restoring = program(&[&arguments[..], &["--replace"]].concat());
        eventually("the restoration to begin", || (restores(&server) > before).then_some(()));
        std::thread::sleep(Duration::from_millis(10 * round));
        server.kill9();
        restoring.wait().unwrap();
        server = setup.start();
        let found = orders(&server, 7);
        assert!(found == then || found == now, "{found} is neither {then} nor {now}");
        assert_eq!(orders(&server, 8), then, "others are not touched");
        if let Some(blocked) = blocked {
            blocked.end();
            assert_eq!(found, now);
            let listed = server.cli(&["backup", "list"]).ok();
            assert!(listed.contains("all as they were, or all as in the backup"), "{listed}");
        }
        psql(&server, "UPDATE orders SET what = 'now' WHERE tenant = 7");
    }
    let done = server.cli(&["restore", text(&backup), "--map", "tenants", "--key", "7", "--replace"]).ok();
    assert!(done.contains("300 rows"), "{done}");
    assert_eq!(orders(&server, 7), then);
    let refused = server.cli(&["restore", text(&backup), "--map", "tenants", "--key", "7"]).fails_with(2);
    assert!(refused.contains("--replace"), "{refused}");
    server.stop();
}

/// Schedules, retention and what is told of them.
#[test]
fn classes_are_backed_up_when_they_are_due_and_old_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[backup]\nto = {:?}\n[[backups]]\nclass = \"gold\"\nevery_seconds = 2\nkeep = 2\n[[backups]]\nclass = \
         \"yearly\"\nevery_seconds = 31536000\nkeep = 3\n",
        text(folder.path())
    );
    let mut server = Setup::new().config(&config).start();
    let done = |class: &str| {
        let listed = json(&server, "backup list");
        let backups = listed["backups"].as_array().unwrap().clone();
        backups.iter().filter(|one| one["class"] == class && one["state"] == "done").count()
    };
    eventually("five backups of one class", || (done("gold") >= 5).then_some(()));
    eventually("old ones to go", || {
        let there = json(&server, &format!("backup list {}", text(folder.path())));
        let there = there["backups"].as_array().unwrap().clone();
        let of =
            |class: &str| there.iter().filter(|one| one["class"] == class && one["state"] == "whole").count();
        ((2..=3).contains(&of("gold")) && of("yearly") == 1).then_some(())
    });
    assert_eq!(done("yearly"), 1, "one a year");
    let listed = server.cli(&["backup", "list"]).ok();
    assert!(listed.contains("yearly") && listed.contains("31536000 s"), "{listed}");
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("polyshard_backup_last_success_timestamp_seconds{class=\"gold\"}"), "{metrics}");
    // One that somebody asks for gets its name from the time.
    // Scheduled ones come every two seconds, and one is taken or pruned at a time.
    eventually("a moment without a scheduled one", || {
        (server.cli(&["backup", "take"]).code == Some(0)).then_some(())
    });
    let manual = std::fs::read_dir(folder.path()).unwrap();
    assert!(
        manual.into_iter().any(|entry| entry.unwrap().file_name().to_str().unwrap().starts_with("manual-"))
    );
    server.stop();
}

/// Several processes on PostgreSQL: one moment of all, and a paused process is named instead of left out.
#[test]
fn a_paused_process_keeps_the_backup_from_lying() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut first = fleet.setup().start();
    let mut second = fleet.setup().start();
    with_orders(&second, 3);
    let folder = tempfile::tempdir().unwrap();
    let (lying, honest) = (folder.path().join("lying"), folder.path().join("honest"));
    second.pause();
    let refused = run(&first, &format!("backup take {}", text(&lying))).fails_with(5);
    assert!(refused.contains("did not hold its writes"), "{refused}");
    assert!(!lying.exists());
    second.resume();
    let taken = eventually("the process to be heard of again", || {
        let taken = run(&first, &format!("backup take {}", text(&honest)));
        (taken.code == Some(0)).then_some(taken)
    });
    assert!(taken.ok().contains("one moment"));
    first.cli(&["backup", "verify", text(&honest)]).ok();
    // What one process has done, every process knows.
    assert!(second.cli(&["backup", "list"]).ok().contains("honest"));
    psql(&second, "UPDATE orders SET what = 'now' WHERE tenant = 7");
    psql(&second, "UPDATE orders SET what = 'now' WHERE tenant = 8");
    // A shard's copy is laid out in a database beside it.
    for role in ["a", "b"] {
        fleet.servers[0].execute("postgres", &format!("ALTER ROLE {role} CREATEDB"));
    }
    let restored =
        second.cli(&["restore", text(&honest), "--map", "tenants", "--key", "7", "--replace"]).ok();
    assert!(restored.contains("3 rows"), "{restored}");
    assert_eq!(orders(&first, 7), "3|order 0|order 2");
    assert_eq!(orders(&first, 8), "3|now|now");
    first.stop();
    second.stop();
}

/// The drill of docs/backup.md, line by line.
#[test]
fn the_drill_of_the_documents_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/backup.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, drill) = page.split_once("## A drill").expect("the page has the drill");
    let (_, block) = drill.split_once("```sh\n").expect("the drill has commands");
    let (block, _) = block.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut server = Setup::new().start();
    with_orders(&server, 5);
    let then = orders(&server, 7);
    let mut steps = 0;
    for line in block.lines() {
        let command = line.split('#').next().unwrap().trim();
        if command.is_empty() {
            continue;
        }
        steps += 1;
        let command = command.replace("/backups", text(&folder.path().join("backups")));
        let command = command.replace("/srv/restored", text(&folder.path().join("restored")));
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["psql", ..] => {
                psql(&server, command.split('"').nth(1).expect("a statement in quotes"));
            }
            ["kill", ..] => {
                server.kill9();
            }
            ["polyshard", "up", "--data", data] => {
                server = Setup::new().data(Path::new(data)).start();
                assert_eq!(orders(&server, 7), then, "everything is back");
            }
            ["polyshard", "restore", rest @ ..] if !rest.contains(&"--map") => {
                let mut arguments = vec!["restore"];
                arguments.extend(rest);
                server.setup().run(&arguments).ok();
            }
            ["polyshard", rest @ ..] => {
                server.cli(rest).ok();
                if rest.contains(&"--replace") {
                    assert_eq!(orders(&server, 7), then, "the tenant is back");
                }
            }
            other => panic!("the drill says {other:?}, which this test does not know"),
        }
    }
    assert!(steps >= 7, "{steps}");
    server.stop();
}
