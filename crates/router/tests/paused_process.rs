//! A process stopped across a switch (SIGSTOP) is cut off, and finds its way when it goes on (B2, PROTOCOL §2).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{
    Catalog, ChangeRequest, Driver, FenceLimits, NewShard, PasswordSource, ShardLimits, ShardRecord,
};
use polyshard_engine::{Options, Target};
use polyshard_map::{
    Change, Epoch, HashSpec, KeyRange, KeyType, MapDefinition, Scheme, ShardId, spread_buckets,
};
use polyshard_router::{Router, RouterOptions};
use polyshard_shard::{RouterId, ShardOptions};
use polyshard_testkit::postgres::PgServer;
use uuid::Uuid;

const NOTES: i64 = 3_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_is_cut_off_and_misplaces_nothing_when_it_goes_on() {
    let server = PgServer::start();
    for database in ["catalog", "a", "b"] {
        server.create_database(database);
    }
    let url = |database: &str| {
        format!("postgres://{}@{}:{}/{database}", server.user(), server.host(), server.port())
    };
    let password = polyshard_engine::Secret::new(server.password());
    let target = Target::parse(&url("catalog")).unwrap().with_password(password.clone());
    let catalog =
        Arc::new(Catalog::new(target, Options::default(), "operator".into(), Arc::new(Uuid::new_v4)));
    let options = RouterOptions {
        router: RouterId::new(rand::random()),
        shard: ShardOptions::default(),
        hold_max: Duration::from_secs(2),
        wait_max: Duration::from_secs(20),
        poll: Duration::from_secs(1),
        saved: None,
    };
    let connect =
        Arc::new(move |record: &ShardRecord| Ok(Target::parse(&record.url)?.with_password(password.clone())));
    let router = Router::start(catalog.clone(), connect, options).await.unwrap();
    let driver = Driver::new(catalog.clone(), router.shard_source(), FenceLimits::default(), None);
    let shards: Vec<ShardId> = vec!["a".parse().unwrap(), "b".parse().unwrap()];
    for id in &shards {
        let new = NewShard {
            id: id.clone(),
            url: url(id.as_ref()),
            password: PasswordSource::Config,
            server: None,
            region: None,
            tier: None,
            limits: ShardLimits::default(),
        };
        let opened = router.open_candidate(&new.candidate()).await.unwrap();
        let record = driver.add_shard(new, &opened).await.unwrap();
        router.adopt(record, opened).await;
    }
    let hash = HashSpec::standard();
    let entries =
        spread_buckets(&hash, &shards).unwrap().into_iter().map(|entry| entry.at(Epoch::ZERO)).collect();
    let map = MapDefinition::new("tenants".parse().unwrap(), KeyType::BigInt, Scheme::Hash(hash)).unwrap();
    driver.create_map(&map, entries).await.unwrap();

    let mut writer = Writer::start(&server.url("catalog"));
    writer.wait_for(500);
    writer.signal("STOP");
    let request = ChangeRequest {
        map: map.name().clone(),
        change: Change::Assign { range: KeyRange::all(), to: shards[1].clone() },
        if_version: None,
        by: None,
    };
    // Everything on b already stays there; a's half changes hands although its writer does not answer.
    driver.change(&request).await.expect("the silent process is cut off, and the change is made");
    let left_on_a: i64 = server.execute("a", "SELECT count(*) FROM notes").trim().parse().unwrap();
    writer.signal("CONT");

    let wrote = writer.finish();
    assert_eq!(wrote.len() as i64, NOTES, "every note was acknowledged once");
    let on_a = numbers(&server, "a");
    let on_b = numbers(&server, "b");
    assert_eq!(on_a.len() as i64, left_on_a, "nothing came to a after it had let go");
    assert_eq!(on_a.len() + on_b.len(), NOTES as usize, "no note is lost or doubled");
    for (number, shard) in &wrote {
        let found = if shard == "a" { &on_a } else { &on_b };
        assert!(found.contains(number), "note {number} was acknowledged by {shard} but is not there");
    }
    assert!(wrote.values().any(|shard| shard == "a"), "the writer wrote to a before");
    driver.close().await;
    router.close().await;
    catalog.close().await;
}

fn numbers(server: &PgServer, database: &str) -> Vec<i64> {
    let rows = server.execute(database, "SELECT number FROM notes");
    rows.lines().filter(|line| !line.trim().is_empty()).map(|line| line.trim().parse().unwrap()).collect()
}

/// The example program as a process.
struct Writer {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Writer {
    fn start(catalog: &str) -> Writer {
        let mut child = Command::new(example("notes"))
            .args([catalog, "tenants", &NOTES.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example is built with the tests");
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = std::sync::mpsc::sync_channel(NOTES as usize * 2);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Writer { child, lines, seen: Vec::new() }
    }

    fn wait_for(&mut self, count: usize) {
        while self.seen.len() < count {
            self.seen.push(self.lines.recv_timeout(Duration::from_secs(60)).expect("the writer writes"));
        }
    }

    fn signal(&self, name: &str) {
        // The shell's own `kill`: the program of that name is missing on small systems.
        let id = self.child.id().to_string();
        let status = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &id]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end, and gives what it wrote: number → shard.
    fn finish(mut self) -> BTreeMap<i64, String> {
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(120)) {
            self.seen.push(line);
        }
        assert!(self.child.wait().unwrap().success(), "the writer saw no error");
        let note = |line: &String| {
            let mut words = line.strip_prefix("wrote ")?.split(' ');
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        };
        self.seen.iter().filter_map(note).collect()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Only a failed test leaves it running; it may be stopped or gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An example program of this package, beside the test's own. A run of single tests does not build examples, and
/// an old one would prove nothing: so it is built here, of the whole workspace, with the features of the tests' own
/// build, so that nothing is compiled twice.
fn example(name: &str) -> PathBuf {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--workspace", "--example", name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.unwrap().success(), "the example is built");
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.join("examples").join(name)
}
