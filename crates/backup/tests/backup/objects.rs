//! Backups in object stores: a real S3 server (moto) and Azurite on free ports, spoken to over HTTP.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyshard_backup::{
    BackupError, Carriers, Depot, Dry, Extent, Found, Location, Present, Progress, Request, Restore,
    RestoreShardlet, Retention, RunName, Variables, What, list, prune, verify,
};
use polyshard_engine::Target;

use crate::cluster::{Cluster, Place, clock, no_carriers};

/// How long a server may take to open its port; only one that does not start reaches it.
const START_MAX: Duration = Duration::from_secs(60);

fn await_port(port: u16) {
    let end = Instant::now() + START_MAX;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "the object store did not open its port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Stopped when it is dropped.
struct S3 {
    child: Child,
    port: u16,
}

impl S3 {
    fn start() -> S3 {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program());
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("moto_server is installed: pip install 'moto[server]'");
        let s3 = S3 { child, port };
        await_port(port);
        s3
    }

    fn variables(&self) -> Variables {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        Arc::new(move |name| match name {
            "AWS_ENDPOINT" => Some(endpoint.clone()),
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("testing".to_owned()),
            "AWS_REGION" => Some("us-east-1".to_owned()),
            _ => None,
        })
    }

    /// Makes a bucket: a plain PUT of its name, which this server takes without a signature.
    fn bucket(&self, name: &str) {
        use std::io::{Read, Write};
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let host = format!("127.0.0.1:{}", self.port);
        write!(
            stream,
            "PUT /{name} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, \
             SignedHeaders=host, Signature=0\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// That of the tests' own Python, or the one on the path.
fn program() -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/moto_server");
    if own.exists() { own.display().to_string() } else { "moto_server".to_owned() }
}

/// Azurite, the emulator of Azure storage, with its own account. Stopped when it is dropped.
struct Azurite {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

/// Public: the account and key of the emulator.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes a container by a signed request, with nothing but what Node.js has.
const MAKE_CONTAINER: &str = "
const [port, account, key, name] = process.argv.slice(1);
const date = new Date().toUTCString(), version = '2021-08-06';
const signed = 'PUT' + '\\n'.repeat(12) + `x-ms-date:${date}\\nx-ms-version:${version}\\n` +
    `/${account}/${account}/${name}\\nrestype:container`;
const mac = require('crypto').createHmac('sha256', Buffer.from(key, 'base64')).update(signed, 'utf8');
const headers = { 'x-ms-date': date, 'x-ms-version': version, 'content-length': 0,
    authorization: `SharedKey ${account}:${mac.digest('base64')}` };
const path = `/${account}/${name}?restype=container`;
require('http').request({ host: '127.0.0.1', port, path, method: 'PUT', headers }, (answer) => {
    answer.pipe(process.stderr);
    process.exitCode = answer.statusCode === 201 ? 0 : 1;
}).end();
";

impl Azurite {
    fn start() -> Azurite {
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/azurite/node_modules/azurite/dist/src/azurite.js");
        assert!(script.exists(), "Azurite is not installed: run scripts/setup-bench.sh first");
        let folder = tempfile::tempdir().unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let held = [free(), free(), free()];
        let ports = held.each_ref().map(|held| held.local_addr().unwrap().port().to_string());
        drop(held);
        let mut command = Command::new("node");
        command.arg(script).args(["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--location"]);
        command.arg(folder.path()).args(["--blobPort", &ports[0], "--queuePort", &ports[1]]);
        command.args(["--tablePort", &ports[2]]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("node is installed");
        let port = ports[0].parse().unwrap();
        let azurite = Azurite { child, port, _folder: folder };
        await_port(port);
        azurite
    }

    fn container(&self, name: &str) {
        let mut command = Command::new("node");
        command.args(["-e", MAKE_CONTAINER, &self.port.to_string(), ACCOUNT, KEY, name]);
        assert!(command.status().unwrap().success(), "the container was not made");
    }

    fn variables(&self) -> Variables {
        let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", self.port);
        Arc::new(move |name| match name {
            "AZURE_STORAGE_ENDPOINT" => Some(endpoint.clone()),
            "AZURE_STORAGE_ACCOUNT_NAME" => Some(ACCOUNT.to_owned()),
            "AZURE_STORAGE_ACCOUNT_KEY" => Some(KEY.to_owned()),
            _ => None,
        })
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto_server; run by 'make test-all'"]
async fn everything_comes_back_from_s3() {
    let s3 = S3::start();
    s3.bucket("bucket");
    everything_comes_back("s3://bucket/deep/prefix", s3.variables()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Azurite; run by 'make test-all'"]
async fn everything_comes_back_from_azure() {
    let azurite = Azurite::start();
    azurite.container("container");
    everything_comes_back("az://container/deep/prefix", azurite.variables()).await;
    // A container that is not there is told with the address.
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let to = Location::open("az://missing/monday", &azurite.variables()).unwrap();
    let request = Request { to, ..cluster.request(&place.folder.path().join("x"), What::Everything) };
    let failed = cluster.take(&request).await.unwrap_err();
    assert!(failed.to_string().contains("az://missing"), "{failed}");
    cluster.close().await;
}

async fn everything_comes_back(prefix: &str, variables: Variables) {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    cluster.with_orders().await;
    cluster.note(1, 5).await;
    cluster.order(2, 1, "chair").await;
    let at = |name: &str| Location::open(&format!("{prefix}/{name}"), &variables).unwrap();
    let request = |name: &str| Request {
        to: at(name),
        ..cluster.request(&place.folder.path().join("x"), What::Everything)
    };
    let first = cluster.take(&request("first")).await.unwrap();
    cluster.note(1, 6).await;
    let second = cluster.take(&request("second")).await.unwrap();
    assert!(second.new_bytes < first.new_bytes);
    let taken = cluster.take(&request("second")).await.unwrap_err();
    assert!(matches!(&taken, BackupError::Refused(why) if why.contains("there already")), "{taken}");
    // One tenant beside the running rest.
    cluster.write(2, polyshard_engine::Statement::new("DELETE FROM orders")).await;
    let restore = RestoreShardlet {
        router: &cluster.router,
        backup: &at("second"),
        map: crate::cluster::map(),
        key: "2".to_owned(),
        extent: Extent::Key,
        present: Present::Keep,
        scratch: place.folder.path().join("scratch"),
        run: RunName::new(cluster.catalog.cluster().await.unwrap(), 1),
        options: polyshard_shard::ShardOptions::default(),
        carriers: Carriers::default(),
    };
    assert_eq!(restore.run(&Progress::default()).await.unwrap(), 1);
    assert_eq!(cluster.orders(2).await.len(), 1);
    cluster.close().await;

    let depot = Depot::open(prefix, &variables).unwrap();
    let found = list(&depot).await.unwrap();
    assert_eq!(found.iter().filter(|one| matches!(one, Found::Whole(..))).count(), 2);
    verify(&at("first")).await.unwrap();
    let retention = Retention { class: None, keep: Some(1), cluster: None };
    let pruned = prune(&depot, &retention, &clock(), Dry::No).await.unwrap();
    assert_eq!((pruned.backups.len(), pruned.left), (1, None));
    let left = list(&depot).await.unwrap();
    let [Found::Whole(left, _)] = left.as_slice() else { panic!("one is left") };
    verify(left).await.unwrap();

    let data = place.folder.path().join("restored");
    let target = |_: Option<&_>, url: &str| -> Result<Target, BackupError> { Ok(place.target(&data, url)) };
    let catalog_url = place.url("catalog");
    Restore { backup: left, data: &data, carriers: &no_carriers, catalog_url: &catalog_url, target: &target }
        .run()
        .await
        .unwrap();
    let again = Cluster::open(&place, &data, 3).await;
    assert!(again.last(1).await >= 5);
    again.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_reached_is_named_and_nothing_is_left() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    // A port that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let variables: Variables = Arc::new(move |name| match name {
        "AWS_ENDPOINT" => Some(format!("http://127.0.0.1:{port}")),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("testing".to_owned()),
        _ => None,
    });
    let to = Location::open("s3://bucket/monday", &variables).unwrap();
    let request = Request { to, ..cluster.request(&place.folder.path().join("x"), What::Everything) };
    let failed = cluster.take(&request).await.unwrap_err();
    assert!(matches!(&failed, BackupError::Failed(why) if why.contains("s3://bucket")), "{failed}");
    cluster.note(1, 1).await;
    cluster.close().await;
}
