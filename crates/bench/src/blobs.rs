//! Large blobs: downloads beside nginx, which serves the same bytes from a file, and uploads beside a file that is
//! written and synced.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polyshard_testkit::process::Setup;
use tempfile::TempDir;

use crate::azure::client::{Ask, Door, Signer};
use crate::measure::{Random, Spread};
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Bytes of a large blob.
const BLOB_BYTES: usize = 64 << 20;
/// Bytes read from a connection at once.
const READ_BYTES: usize = 256 << 10;
/// How long nginx may take to open its port.
const START_MAX: Duration = Duration::from_secs(10);

/// Throughput of downloads and uploads, on one connection.
pub fn run(effort: Effort) -> Result<Vec<Table>, Failure> {
    let signer = Signer::new()?;
    let program = Setup::new().try_start().map_err(|failure| failure.to_string())?;
    let address: SocketAddr = program.door("blob").parse()?;
    let mut ours = TcpStream::connect(address)?;
    ours.set_nodelay(true)?;
    let content = content();
    let create = Ask { method: "PUT", path: "/large", query: "restype=container", ..Ask::default() };
    put(&mut ours, &signer, &create, &[])?;

    let folder = TempDir::with_prefix("polyshard-nginx-")?;
    std::fs::write(folder.path().join("blob"), &content)?;
    let nginx = Nginx::start(folder.path())?;
    let mut theirs = TcpStream::connect(nginx.address)?;
    theirs.set_nodelay(true)?;

    let rounds = effort.pick(15, 5);
    let (mut uploads, mut files) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let path = format!("/large/blob-{round}");
        let ask =
            Ask { method: "PUT", path: &path, content_type: "application/octet-stream", ..Ask::default() };
        let (upload, file) = (
            seconds(|| put(&mut ours, &signer, &ask, content.as_bytes()))?,
            seconds(|| write_synced(folder.path(), round, content.as_bytes()))?,
        );
        // The first of each is thrown away.
        if round > 0 {
            uploads.push(upload);
            files.push(file);
        }
    }
    let (mut downloads, mut served) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let ask = Ask { method: "GET", path: "/large/blob-0", is_repeated: true, ..Ask::default() };
        let head = format!("{}0\r\n\r\n", signer.head(Door::Blob, &ask)?);
        let download = seconds(|| get(&mut ours, &head))?;
        let nginx = seconds(|| get(&mut theirs, "GET /blob HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))?;
        if round > 0 {
            downloads.push(download);
            served.push(nginx);
        }
    }
    let mut table = Table::new(
        "blob",
        "Blobs of 64 MiB on one connection",
        &["what", "ours MiB/s", "beside", "its MiB/s", "ratio"],
    );
    table.row(row("download", &downloads, "nginx, the same bytes", &served));
    table.row(row("upload", &uploads, "a file, written and synced", &files));
    Ok(vec![table])
}

fn row(what: &str, ours: &[f64], beside: &str, theirs: &[f64]) -> [Cell; 5] {
    let rate = |times: &[f64]| {
        let rates = times.iter().map(|seconds| BLOB_BYTES as f64 / f64::from(1 << 20) / seconds);
        Spread::of(rates.collect()).median
    };
    let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| theirs / ours).collect();
    [what.into(), rate(ours).into(), beside.into(), rate(theirs).into(), Spread::of(ratios).median.into()]
}

fn seconds(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

/// Letters that nothing can pack.
fn content() -> String {
    let mut random = Random::new(1);
    let mut text = String::with_capacity(BLOB_BYTES);
    while text.len() < BLOB_BYTES {
        text.push_str(&format!("{:016x}", random.next()));
    }
    text
}

fn put(stream: &mut TcpStream, signer: &Signer, ask: &Ask<'_>, body: &[u8]) -> Result<(), Failure> {
    let text = std::str::from_utf8(body)?;
    let head = signer.head(Door::Blob, &Ask { body: text, ..*ask })?;
    stream.write_all(format!("{head}{}\r\n\r\n", body.len()).as_bytes())?;
    stream.write_all(body)?;
    answer(stream, 201)
}

fn get(stream: &mut TcpStream, head: &str) -> Result<(), Failure> {
    stream.write_all(head.as_bytes())?;
    answer(stream, 200)
}

/// Reads an answer, and sees that it is whole.
fn answer(stream: &mut TcpStream, expected: u16) -> Result<(), Failure> {
    let mut buffer = vec![0; READ_BYTES];
    let mut read = 0;
    let head = loop {
        if let Some(at) = memchr::memmem::find(&buffer[..read], b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut buffer[read..])? {
            0 => return Err("the server closed the connection".into()),
            more => read += more,
        }
    };
    let text = std::str::from_utf8(&buffer[..head])?;
    let status: u16 = text.get(9..12).ok_or("no status")?.parse()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut left = length.ok_or("no length")? - (read - head);
    while left > 0 {
        match stream.read(&mut buffer)? {
            0 => return Err("the answer broke off".into()),
            more => left -= more,
        }
    }
    if status == expected { Ok(()) } else { Err(format!("status {status}").into()) }
}

/// A file as durable as a blob: its bytes, and its name in the folder.
fn write_synced(folder: &Path, round: usize, content: &[u8]) -> Result<(), Failure> {
    let mut file = File::create(folder.join(format!("file-{round}")))?;
    file.write_all(content)?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// nginx, serving a folder. It is stopped when this is dropped.
struct Nginx {
    process: Child,
    address: SocketAddr,
}

impl Nginx {
    fn start(folder: &Path) -> Result<Nginx, Failure> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let own = folder.display();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {own}/pid; error_log stderr error;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; sendfile on; client_body_temp_path {own}/body; proxy_temp_path {own}/proxy;\n\
             fastcgi_temp_path {own}/fastcgi; uwsgi_temp_path {own}/uwsgi; scgi_temp_path {own}/scgi;\n\
             server {{ listen {address}; root {own}; }} }}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, format!("{}{config}", if is_root()? { "user root; " } else { "" }))?;
        let process = Command::new("nginx").arg("-c").arg(&file).stdin(Stdio::null()).spawn();
        let process = process
            .map_err(|error| format!("nginx is not installed: run scripts/setup-bench.sh first ({error})"))?;
        let nginx = Nginx { process, address };
        let end = Instant::now() + START_MAX;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > end {
                return Err("nginx did not open its port".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }
}

/// As root, nginx gives its work to another user, who may not look into the folder.
fn is_root() -> Result<bool, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It is one process: `master_process off`.
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}
