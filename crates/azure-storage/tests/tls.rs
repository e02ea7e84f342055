//! The door inside TLS: requests work, signatures that are for https only do too, and bad certificates are named.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_KEY, Limits, StoreKind, TlsError, Transport};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use support::Running;
use support::streaming::{MIB, content, start};

/// A certificate for `localhost` and its key, made for this test. It is its own issuer.
fn certificate() -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
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
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output()
        .expect("openssl is installed, as for the other tests of TLS");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (std::fs::read(certificate).unwrap(), std::fs::read(key).unwrap())
}

/// A connection that trusts this certificate.
fn connect(certificate: &[u8], address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(session, TcpStream::connect(address).unwrap())
}

#[test]
fn bodies_are_streamed_inside_tls() {
    const LENGTH: usize = 8 * MIB;
    let (certificate, key) = certificate();
    let transport = Transport::tls_from_pem(&certificate, &key).unwrap();
    let (door, _seen) = start(Limits::default(), transport);
    let mut stream = connect(&certificate, door.address);
    let date = "Thu, 01 Jan 1970 00:00:00 GMT";
    let path = "/devstoreaccount1/large";
    let signature =
        AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&format!("{date}\n/devstoreaccount1{path}"));
    let head = |method: &str, query: &str, more: &str| {
        format!(
            "{method} {path}?{query} HTTP/1.1\r\nHost: localhost\r\nx-ms-date: {date}\r\nAuthorization: SharedKeyLite \
             devstoreaccount1:{signature}\r\n{more}\r\n"
        )
    };
    stream.write_all(head("PUT", "", &format!("Content-Length: {LENGTH}\r\n")).as_bytes()).unwrap();
    stream.write_all(&content(0, LENGTH)).unwrap();
    let close = "Connection: close\r\n";
    stream.write_all(head("GET", &format!("do=make&length={LENGTH}"), close).as_bytes()).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    let (heads, body) = replies.split_at(replies.len() - LENGTH);
    assert!(body == content(0, LENGTH), "another body");
    let heads = std::str::from_utf8(heads).unwrap();
    assert!(heads.contains(&format!("\r\nLength: {LENGTH}\r\n")), "{heads}");
    assert!(heads.ends_with("\r\n\r\n"), "{heads}");
}

#[test]
fn requests_work_inside_tls() {
    let (certificate, key) = certificate();
    let transport = Transport::tls_from_pem(&certificate, &key).unwrap();
    let door = Running::start_with(StoreKind::Queue, Limits::default(), transport);

    let mut stream = connect(&certificate, door.address);
    let body = "x".repeat(100_000);
    let text = "u\n\n2026-11-16\n/queue/devstoreaccount1/jobs\n\n\nhttps\n2019-02-02";
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(text).replace('+', "%2B");
    let head = format!(
        "PUT /devstoreaccount1/jobs?sp=u&se=2026-11-16&spr=https&sv=2019-02-02&sig={signature} HTTP/1.1\r\n\
         Host: localhost\r\nConnection: close\r\nContent-Length: 100000\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with(&format!("\r\n\r\n{body}")));

    // Plain text to a TLS door is no request; the door goes on.
    let mut plain = door.connect();
    plain.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    plain.until_closed(0);
    assert_eq!(door.panicked(), 0);
}

#[test]
fn what_is_no_certificate_or_key_is_named() {
    let ((certificate, key), (_, other_key)) = (certificate(), certificate());
    assert!(matches!(Transport::tls_from_pem(b"", &key), Err(TlsError::Certificate)));
    assert!(matches!(Transport::tls_from_pem(&key, &key), Err(TlsError::Certificate)));
    assert!(matches!(Transport::tls_from_pem(&certificate, &certificate), Err(TlsError::Key)));
    assert!(matches!(Transport::tls_from_pem(&certificate, &other_key), Err(TlsError::Pair(_))));
}
