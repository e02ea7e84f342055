//! Reads the file into batches.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use polyshard_admin::Problem;
use tokio::sync::mpsc;

use super::batch::{Batch, Gather, Span};
use super::lines::{self, Form, Lines};
use super::parquet::Columns;
use super::send::Tally;
use super::{FileForm, LoadArgs, unreadable};
use crate::exit::Failure;

/// What is read, and the columns that it names.
pub struct Source {
    names: Vec<String>,
    rows: Rows,
    size: u64,
    read: Arc<AtomicU64>,
}

enum Rows {
    Lines(Lines<Box<dyn BufRead + Send>>, Form),
    Columns(Box<Columns>),
}

/// How far reading is.
pub struct Progress {
    /// Bytes of the file, or rows where those are known; 0 if nobody knows.
    pub size: u64,
    read: Arc<AtomicU64>,
    rows: AtomicU64,
    ended: AtomicBool,
}

impl Progress {
    pub fn of(source: &Source) -> Progress {
        let ended = AtomicBool::new(false);
        Progress { size: source.size, read: source.read.clone(), rows: AtomicU64::new(0), ended }
    }

    /// How much of the size is read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Rows read.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Counts the bytes that pass.
struct Counted<R> {
    from: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Source {
    /// Opens the file, and reads its first line if that names the columns.
    pub fn open(args: &LoadArgs) -> Result<Source, Failure> {
        let path = args.file.as_path();
        let form = form(args)?;
        if form == FileForm::Parquet {
            if path == Path::new("-") {
                let problem = Problem::invalid("FILE", "Parquet is not read from the standard input");
                return Err(problem.with_remedy("name the file: its end is read first").into());
            }
            let file = File::open(path).map_err(|error| unreadable(path, &error))?;
            let columns = Columns::open(file).map_err(|error| unreadable(path, &error))?;
            return Ok(Source {
                names: columns.names.clone(),
                size: columns.rows,
                rows: Rows::Columns(Box::new(columns)),
                read: Arc::default(),
            });
        }
        let read = Arc::<AtomicU64>::default();
        let (from, size): (Box<dyn Read + Send>, u64) = if path == Path::new("-") {
            (Box::new(io::stdin()), 0)
        } else {
            let file = File::open(path).map_err(|error| unreadable(path, &error))?;
            let size = file.metadata().map_err(|error| unreadable(path, &error))?.len();
            (Box::new(file), size)
        };
        let counted = Counted { from, read: read.clone() };
        let from: Box<dyn BufRead + Send> = if path.extension().is_some_and(|end| end == "gz") {
            Box::new(BufReader::with_capacity(256 * 1024, MultiGzDecoder::new(counted)))
        } else {
            Box::new(BufReader::with_capacity(256 * 1024, counted))
        };
        let form = match form {
            FileForm::Csv => Form::Csv { delimiter: one_byte(&args.delimiter)? },
            _ => Form::Text,
        };
        let mut lines = Lines::new(from, form);
        let mut names = Vec::new();
        if args.header {
            let mut first = Vec::new();
            lines.next_into(&mut first).map_err(|error| unreadable(path, &error))?;
            if !first.is_empty() {
                names = lines::names(&first, form).map_err(|error| unreadable(path, &error))?;
            }
        }
        Ok(Source { names, rows: Rows::Lines(lines, form), size, read })
    }

    /// COPY for what this reads.
    pub fn copy_statement(&self, args: &LoadArgs) -> String {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let literal = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let table = args.table.split('.').map(quoted).collect::<Vec<_>>().join(".");
        let names = if args.columns.is_empty() { &self.names } else { &args.columns };
        let columns = match names.as_slice() {
            [] => String::new(),
            names => format!(" ({})", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")),
        };
        let mut options = match &self.rows {
            Rows::Lines(_, Form::Csv { delimiter }) => {
                vec![
                    "FORMAT csv".to_owned(),
                    format!("DELIMITER {}", literal(&char::from(*delimiter).to_string())),
                ]
            }
            Rows::Lines(_, Form::Text) | Rows::Columns(_) => vec!["FORMAT text".to_owned()],
        };
        if let (Some(null), Rows::Lines(..)) = (&args.null, &self.rows) {
            options.push(format!("NULL {}", literal(null)));
        }
        format!("COPY {table}{columns} FROM STDIN WITH ({})", options.join(", "))
    }
}

fn form(args: &LoadArgs) -> Result<FileForm, Failure> {
    if let Some(form) = args.form {
        return Ok(form);
    }
    let name = args.file.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("csv") => Ok(FileForm::Csv),
        Some("tsv" | "txt" | "tab") => Ok(FileForm::Tsv),
        Some("parquet" | "pq") => Ok(FileForm::Parquet),
        _ => Err(Problem::invalid("--form", "the file's name does not say how it is written")
            .with_remedy("give --form csv, tsv or parquet")
            .into()),
    }
}

fn one_byte(text: &str) -> Result<u8, Failure> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err(Problem::invalid("--delimiter", "one character of ASCII is wanted").into()),
    }
}

/// Reads to the end, or until no more is wanted; how many rows there are.
pub fn run(
    source: Source,
    spans: &[Span],
    give: &mpsc::Sender<Batch>,
    tally: &Tally,
    far: &Progress,
) -> io::Result<u64> {
    let wanted =
        |row: u64| spans.is_empty() || spans.iter().any(|span| span.first <= row && row <= span.last);
    let mut gather = Gather::default();
    let mut count = 0;
    // A batch has rows in a series only, so that its rows are told by their numbers.
    let send = |gather: &mut Gather, full: Option<Batch>| {
        let batch = full.or_else(|| gather.take());
        batch.is_none_or(|batch| give.blocking_send(batch).is_ok()) && !tally.is_stopped()
    };
    match source.rows {
        Rows::Lines(mut lines, _) => {
            let mut passed_over = Vec::new();
            loop {
                let take = wanted(count + 1);
                passed_over.clear();
                let into = if take { &mut gather.bytes } else { &mut passed_over };
                let Some(line) = lines.next_into(into)? else { break };
                count += 1;
                far.rows.store(count, Ordering::Relaxed);
                let full = if take { gather.count(count, line) } else { gather.take() };
                if (full.is_some() && !send(&mut gather, full)) || tally.is_stopped() {
                    return Ok(count);
                }
            }
        }
        Rows::Columns(columns) => columns.each(|row, put| {
            count = row;
            far.rows.store(count, Ordering::Relaxed);
            far.read.store(count, Ordering::Relaxed);
            let full = if wanted(row) {
                put(&mut gather.bytes)?;
                gather.count(row, row)
            } else {
                gather.take()
            };
            Ok((full.is_none() || send(&mut gather, full)) && !tally.is_stopped())
        })?,
    }
    send(&mut gather, None);
    Ok(count)
}
