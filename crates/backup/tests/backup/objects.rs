//! Backups in object stores: a real S3 server (moto) on a free port, spoken to over HTTP.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use polyshard_backup::{
    BackupError, Depot, Dry, Found, Location, Request, Restore, Retention, Variables, What, list, prune,
    verify,
};
use polyshard_engine::Target;

use crate::cluster::{Cluster, Place};

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
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
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

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs moto_server; run by 'make test-all'"]
async fn everything_comes_back_from_an_object_store() {
    let s3 = S3::start();
    s3.bucket("bucket");
    let variables = s3.variables();
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    cluster.note(1, 5).await;
    let at = |name: &str| Location::open(&format!("s3://bucket/deep/prefix/{name}"), &variables).unwrap();
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
    cluster.close().await;

    let depot = Depot::open("s3://bucket/deep/prefix", &variables).unwrap();
    let found = list(&depot).await.unwrap();
    assert_eq!(found.iter().filter(|one| matches!(one, Found::Whole(..))).count(), 2);
    verify(&at("first")).await.unwrap();
    let retention = Retention { class: None, keep: Some(1) };
    let pruned = prune(&depot, &retention, 0, Dry::No).await.unwrap();
    assert_eq!((pruned.backups.len(), pruned.left), (1, None));
    let left = list(&depot).await.unwrap();
    let [Found::Whole(left, _)] = left.as_slice() else { panic!("one is left") };
    verify(left).await.unwrap();

    let data = place.folder.path().join("restored");
    let target = |_: Option<&_>, url: &str| -> Result<Target, BackupError> { Ok(place.target(&data, url)) };
    let catalog_url = place.url("catalog");
    Restore { backup: left, data: &data, catalog_url: &catalog_url, target: &target }.run().await.unwrap();
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
