//! The program with its Azure Storage doors open, for the tests in other languages, until standard input ends.
//!
//! `cargo run -p polyshard-testkit --example doors -- postgres tls`
//!
//! The shards are `sqlite` files or databases of a `postgres` server that is started for it; the doors are `plain` or
//! inside `tls`. Prints a line of JSON when the doors are open: their addresses, and the certificate to trust. A line
//! `kill` on standard input kills the program as a power cut would and starts it again, which is told by another line.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Command;

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use polyshard_testkit::process::{Server, Setup};
use serde_json::json;
use tempfile::TempDir;

/// The emulators' account with its published key, and another one with two keys.
const ACCOUNTS: &str = "
[azure]
key = \"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==\"

[[accounts]]
name = \"another\"
key = \"Zmlyc3Qga2V5\"
key2 = \"c2Vjb25kIGtleQ==\"
";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (engine, transport) = match arguments.as_slice() {
        [engine, transport] => (engine.as_str(), transport.as_str()),
        _ => panic!("say sqlite or postgres, and plain or tls"),
    };
    let folder = TempDir::with_prefix("polyshard-doors-").expect("a temporary folder");
    let certificate = (transport == "tls").then(|| certificate(folder.path()));
    let mut setup = Setup::new();
    if let Some((certificate, key)) = &certificate {
        let text = |path: &Path| path.to_str().expect("a path of ours is UTF-8").to_owned();
        setup = setup
            .env("POLYSHARD__AZURE__CERTIFICATE_FILE", &text(certificate))
            .env("POLYSHARD__AZURE__CERTIFICATE_KEY_FILE", &text(key))
            .env("POLYSHARD__SQL__CERTIFICATE_FILE", &text(certificate))
            .env("POLYSHARD__SQL__CERTIFICATE_KEY_FILE", &text(key))
            .env("POLYSHARD__SQL__REQUIRE_TLS", "true");
    }
    // Dropped after the program.
    let databases = (engine == "postgres").then(databases);
    setup = setup.config(&format!("{}{ACCOUNTS}", databases.as_ref().map(configuration).unwrap_or_default()));
    let mut server = setup.start();
    let trusted = certificate.as_ref().map(|(certificate, _)| certificate.as_path());
    tell(&server, trusted);
    for line in std::io::stdin().lock().lines() {
        match line.expect("standard input is text").trim() {
            "kill" => {
                server.kill9();
                server = setup.start();
                tell(&server, trusted);
            }
            "" => {}
            other => panic!("{other:?} is no command"),
        }
    }
    assert!(server.stop().success(), "the program did not end well:\n{}", server.log().text());
}

fn tell(server: &Server, certificate: Option<&Path>) {
    let url = |door: &str| {
        let scheme = if certificate.is_some() && door != "admin" { "https" } else { "http" };
        format!("{scheme}://{}", server.door(door))
    };
    let (admin, blob, queue, table) = (url("admin"), url("blob"), url("queue"), url("table"));
    // It speaks HTTP alone.
    let document = format!("http://{}", server.door("document"));
    let sql = server.door("sql").rsplit('@').next().unwrap_or_default().split('/').next().unwrap_or_default();
    let data = server.setup().data_path();
    let told = json!({
        "admin": admin,
        "blob": blob,
        "document": document,
        "queue": queue,
        "table": table,
        "sql": sql,
        "certificate": certificate,
        "data": data,
    });
    println!("{told}");
}

/// A server with a catalog and three shards.
fn databases() -> PgServer {
    // These tests kill the program and never the machine. Transactions over several shards are prepared.
    let settings = vec![("max_prepared_transactions".to_owned(), "20".to_owned())];
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
    for name in ["catalog", "s1", "s2", "s3"] {
        server.create_database(name);
    }
    server
}

fn configuration(server: &PgServer) -> String {
    let mut toml = format!("[catalog]\nurl = \"{}\"\n", server.url("catalog"));
    for shard in ["s1", "s2", "s3"] {
        toml.push_str(&format!("[[shards]]\nid = \"{shard}\"\nurl = \"{}\"\n", server.url(shard)));
    }
    toml
}

/// A certificate for this machine's loopback address and its key. It is its own issuer.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-out"])
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (certificate, key)
}
