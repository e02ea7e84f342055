//! `polyshard load`: the rows of a file into a table, each to its shard.

mod batch;
mod lines;
mod parquet;
mod read;
mod send;
mod show;

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use polyshard_admin::Problem;
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::{Client, Config, NoTls};

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::runtime::runtime;
use batch::Span;
use read::Source;
use send::{Sending, Tally};

/// Connections at once: several shards work while the file is read, and the server has room for others.
const JOBS: usize = 4;

/// How the file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileForm {
    /// Comma-separated values; an empty field without quotes is NULL
    Csv,
    /// Tab-separated, in PostgreSQL's text form; \N is NULL
    Tsv,
    /// Apache Parquet
    Parquet,
}

/// `load`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard load orders.csv --table orders --header
  polyshard load events.parquet --table events --jobs 8
  polyshard load - --form csv --table orders --max-bad 100 --bad-rows bad.csv

Rows go in by the thousand, over several connections at once; those that were taken stay when a
later one is refused, and the answer says which rows are left, for --rows. A row that is refused by
its own fault is looked for, told with its line, and the rest goes on, up to --max-bad. Exit with 4
if rows are left out.")]
pub struct LoadArgs {
    /// The file; '-' is the standard input. Names that end in .gz are unpacked
    pub file: PathBuf,
    /// The table: NAME, or SCHEMA.NAME
    #[arg(long, value_name = "TABLE")]
    pub table: String,
    /// How the file is written; by its name, if this is not given
    #[arg(long, value_enum)]
    pub form: Option<FileForm>,
    /// The columns, in the file's order; by default those of the first line, of the Parquet schema, or of the table
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// The first line of a CSV or TSV file names the columns
    #[arg(long)]
    pub header: bool,
    /// What separates the fields of a CSV file
    #[arg(long, value_name = "CHARACTER", default_value = ",")]
    pub delimiter: String,
    /// What stands for NULL
    #[arg(long, value_name = "TEXT")]
    pub null: Option<String>,
    /// Load these rows only, counted from 1: 1001-2000, or 1001- ; may be given several times
    #[arg(long, value_name = "FROM-TO")]
    pub rows: Vec<Span>,
    /// Leave out up to so many rows that are refused
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_bad: u64,
    /// Write rows that are left out to this file, as they stood
    #[arg(long, value_name = "FILE")]
    pub bad_rows: Option<PathBuf>,
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = JOBS, value_parser = jobs)]
    pub jobs: usize,
    /// Commit each batch on all its shards or none (PostgreSQL shards with max_prepared_transactions only)
    #[arg(long)]
    pub two_phase: bool,
    /// The SQL door
    #[arg(
        long,
        value_name = "URL",
        env = "POLYSHARD_SQL",
        hide_env_values = true,
        default_value = "postgres://polyshard:polyshard@127.0.0.1:6432/polyshard"
    )]
    pub sql: String,
    /// Speak TLS to the SQL door, and trust these certificates (PEM)
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=64) => Ok(jobs),
        _ => Err("a number from 1 to 64 is wanted".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &LoadArgs, output: &Output) -> Result<Exit, Failure> {
    let source = Source::open(args)?;
    let config: Config =
        args.sql.parse().map_err(|error| Failure::from(Problem::invalid("--sql", format!("{error}"))))?;
    runtime()?.block_on(load(args, source, &config, output))
}

async fn load(args: &LoadArgs, source: Source, config: &Config, output: &Output) -> Result<Exit, Failure> {
    let tls = args.ca.as_ref().map(trusting).transpose()?;
    let mut clients = Vec::new();
    for _ in 0..args.jobs {
        let client = connect(config, tls.clone()).await?;
        if args.two_phase {
            client
                .batch_execute("SET polyshard.multi_shard = 'two_phase'")
                .await
                .map_err(|error| refused("the session cannot be set up", &error))?;
        }
        clients.push(client);
    }
    let bad_file = match &args.bad_rows {
        None => None,
        Some(path) => {
            let file = File::options()
                .append(true)
                .create(true)
                .open(path)
                .map_err(|error| unreadable(path, &error))?;
            Some(std::sync::Mutex::new(Box::new(file) as Box<dyn std::io::Write + Send>))
        }
    };
    let (give, take) = mpsc::channel(args.jobs);
    let tally = Arc::new(Tally::default());
    let copy = source.copy_statement(args);
    check(&clients, &copy).await?;
    let sending = Arc::new(Sending {
        copy,
        max_bad: args.max_bad,
        tally: tally.clone(),
        bad_file,
        batches: Mutex::new(take),
    });
    let began = Instant::now();
    let far = Arc::new(read::Progress::of(&source));
    let shown = tokio::spawn(show::progress(far.clone(), tally.clone(), began, output.format()));
    let spans = args.rows.clone();
    let reading = {
        let (tally, far) = (tally.clone(), far.clone());
        tokio::task::spawn_blocking(move || read::run(source, &spans, &give, &tally, &far))
    };
    let senders: Vec<_> =
        clients.into_iter().map(|client| tokio::spawn(send::run(sending.clone(), client))).collect();
    let mut lost = None;
    for sender in senders {
        if let Err(error) = sender.await {
            lost = Some(error.to_string());
        }
    }
    let read = reading.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    tally.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    far.end();
    if let Err(error) = shown.await {
        tracing_lost(&error);
    }
    let mut ended = tally.end();
    if let Some(lost) = lost {
        ended.failure.get_or_insert(lost);
    }
    let rows_read = match read {
        Ok(rows) => rows,
        Err(error) => {
            ended.failure.get_or_insert(error.to_string());
            far.rows()
        }
    };
    show::report(args, &tally, ended, rows_read, began.elapsed(), output)
}

/// The display of progress is not worth failing for, but worth a word.
fn tracing_lost(error: &tokio::task::JoinError) {
    eprintln!("warning: progress was not shown to the end: {error}");
}

/// A COPY of no rows: a table or column that does not exist is told before anything is read.
async fn check(clients: &[Client], copy: &str) -> Result<(), Failure> {
    let Some(client) = clients.first() else { return Ok(()) };
    let sink =
        client.copy_in::<_, bytes::Bytes>(copy).await.map_err(|error| refused("COPY is refused", &error))?;
    let mut sink = std::pin::pin!(sink);
    sink.as_mut().finish().await.map_err(|error| refused("COPY is refused", &error))?;
    Ok(())
}

async fn connect(config: &Config, tls: Option<Arc<rustls::ClientConfig>>) -> Result<Client, Failure> {
    let unavailable = |error: tokio_postgres::Error| {
        let why = error.as_db_error().map_or_else(|| deepest(&error), |told| told.message().to_owned());
        Failure::from(
            Problem::new(
                polyshard_admin::ErrorCode::Unavailable,
                format!("the SQL door does not let us in: {why}"),
            )
            .with_remedy("see whether 'polyshard up' runs, and give its address with --sql"),
        )
    };
    match tls {
        None => {
            let (client, connection) = config.connect(NoTls).await.map_err(unavailable)?;
            // It ends with the client; what goes wrong reaches whoever waits for an answer.
            tokio::spawn(async move { drop(connection.await) });
            Ok(client)
        }
        Some(tls) => {
            let mut config = config.clone();
            config.ssl_mode(tokio_postgres::config::SslMode::Require);
            let tls = tokio_postgres_rustls::MakeRustlsConnect::new((*tls).clone());
            let (client, connection) = config.connect(tls).await.map_err(unavailable)?;
            tokio::spawn(async move { drop(connection.await) });
            Ok(client)
        }
    }
}

fn trusting(path: &PathBuf) -> Result<Arc<rustls::ClientConfig>, Failure> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let wrong = |why: String| Failure::from(Problem::invalid("--ca", format!("{}: {why}", path.display())));
    let pem = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| wrong(format!("{error:?}")))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it has no certificate".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn refused(what: &str, error: &tokio_postgres::Error) -> Failure {
    let Some(told) = error.as_db_error() else {
        return Failure::new(format!("{what}: {}", deepest(error)), "try again");
    };
    let code = match told.code().code() {
        "42P01" | "42703" | "3F000" => polyshard_admin::ErrorCode::NotFound,
        _ => polyshard_admin::ErrorCode::Invalid,
    };
    let problem = Problem::new(code, format!("{what}: {}", told.message()));
    match told.hint() {
        Some(hint) => problem.with_remedy(hint).into(),
        None => problem.into(),
    }
}

fn deepest(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

pub(crate) fn unreadable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => polyshard_admin::ErrorCode::NotFound,
        _ => polyshard_admin::ErrorCode::Invalid,
    };
    Problem::new(code, format!("{}: {error}", path.display())).into()
}
