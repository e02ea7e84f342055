//! Rows of a dataset by placement: counted where that is quick, estimated from a sample where it is not. Reads only.
//!
//! A plan needs no more than that. A move counts and compares exactly whatever it carries.

use polyshard_engine::{Database, Dialect, Error, Statement};
use polyshard_map::{KeyBytes, KeyRange, Map, MapDefinition};
use polyshard_router::meter::value_bytes;
use polyshard_shard::{Dataset, ShardError};

use super::Mass;

/// Rows whose mean length is taken for that of all.
const MEASURED_ROWS: usize = 64;
/// What a row takes beside its values, about.
const ROW_OVERHEAD_BYTES: u64 = 24;
/// Groups read at once.
const PAGE_ROWS: usize = 1_000;
/// Pages of a PostgreSQL table that are read as a whole: 16 MiB, a fraction of a second.
const WHOLE_PAGES_MAX: i64 = 2_000;
/// Pages in a sample of a larger one: what has a fiftieth of the rows is then known to a few percent.
const SAMPLE_PAGES: i64 = 1_500;
/// Row numbers of an SQLite table that are all looked at.
const WHOLE_NUMBERS_MAX: i64 = 100_000;
/// Row numbers that are looked at in a larger one.
const PROBES: i64 = 50_000;
/// Probes of which one must find a row, or the numbers are too sparse to say anything.
const HIT_ONE_OF: i64 = 20;
/// Spreads probes over the row numbers: the golden section of 2³², and odd.
const STRIDE: i64 = 2_654_435_761;
/// Rows that are counted of an SQLite table without row numbers, or with too sparse ones: about a second.
const FIRST_ROWS: u64 = 2_000_000;

/// Which rows are looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    /// All.
    Whole,
    /// Some pages of a PostgreSQL table.
    Pages { percent: f64 },
    /// Those with some numbers of an SQLite table.
    Probes { low: i64, span: i64 },
    /// The first of an SQLite table.
    First,
}

/// Counts the rows of a dataset and hands them on by placement. True if they are an estimate.
pub(super) async fn count(
    db: &Database,
    dataset: &Dataset,
    map: &Map,
    mut take: impl FnMut(&[u8], Mass),
) -> Result<bool, ShardError> {
    let Some(average) = average(db, dataset).await? else { return Ok(false) };
    let mut source = choose(db, dataset).await?;
    let mut counted = groups(db, dataset, map, source).await?;
    let rows = |counted: &[(KeyBytes, u64)]| counted.iter().map(|(_, rows)| rows).sum::<u64>();
    if matches!(source, Source::Probes { .. }) && rows(&counted) < (PROBES / HIT_ONE_OF) as u64 {
        source = Source::First;
        counted = groups(db, dataset, map, source).await?;
    }
    let scale = match source {
        Source::Whole => 1.0,
        Source::Pages { percent } => 100.0 / percent,
        Source::Probes { span, .. } => span as f64 / PROBES as f64,
        Source::First if rows(&counted) < FIRST_ROWS => 1.0,
        // What was not reached is thought to be like what was; how much it is, the size of the file says.
        Source::First => (file_bytes(db).await? as f64 / (FIRST_ROWS * average.max(1)) as f64).max(1.0),
    };
    for (placement, rows) in &counted {
        let rows = (*rows as f64 * scale).round() as u64;
        take(placement.as_slice(), Mass { rows, bytes: rows.saturating_mul(average) });
    }
    Ok(!matches!(source, Source::Whole) && (source != Source::First || rows(&counted) >= FIRST_ROWS))
}

/// The rows of a dataset within a range: all are counted, and their length is that of some of the dataset's.
pub(super) async fn within(
    db: &Database,
    dataset: &Dataset,
    definition: &MapDefinition,
    range: &KeyRange,
) -> Result<Mass, ShardError> {
    let Some(average) = average(db, dataset).await? else { return Ok(Mass::default()) };
    let inside = dataset.placement.in_ranges(db.dialect(), definition, std::slice::from_ref(range), "")?;
    let rows_of = dataset.and_own_rows(db.dialect());
    let sql = format!("SELECT count(*) FROM {} WHERE {inside}{rows_of}", dataset.table);
    let mut scan = db.scan(Statement::new(sql), 1).await?;
    let mut rows = 0;
    while let Some(page) = scan.next().await? {
        for row in page.iter() {
            rows += u64::try_from(row.int(0)?).unwrap_or(0);
        }
    }
    Ok(Mass { rows, bytes: rows.saturating_mul(average) })
}

/// Where the rows of the dataset are, if it shares its table with others.
fn condition(dataset: &Dataset, dialect: Dialect) -> String {
    dataset.own_rows(dialect).map_or_else(String::new, |own| format!(" WHERE {own}"))
}

/// The mean length of some rows; none if there are none.
async fn average(db: &Database, dataset: &Dataset) -> Result<Option<u64>, ShardError> {
    let sample =
        format!("SELECT * FROM {}{} LIMIT {MEASURED_ROWS}", dataset.table, condition(dataset, db.dialect()));
    // PostgreSQL has types that are not read as they are; it knows itself how long a row is, with its head.
    let sample = match db.dialect() {
        Dialect::Postgres => format!("SELECT pg_column_size(measured.*)::bigint FROM ({sample}) AS measured"),
        Dialect::Sqlite => sample,
    };
    let mut scan = match db.scan(Statement::new(sample), MEASURED_ROWS).await {
        Ok(scan) => scan,
        // A table of a store that is made when its first row comes.
        Err(Error::Invalid { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (mut rows, mut bytes) = (0, 0);
    while let Some(page) = scan.next().await? {
        for row in page.iter() {
            rows += 1;
            bytes += match db.dialect() {
                Dialect::Postgres => u64::try_from(row.int(0)?).unwrap_or(0),
                Dialect::Sqlite => ROW_OVERHEAD_BYTES + value_bytes(row.values()),
            };
        }
    }
    Ok(u64::checked_div(bytes, rows))
}

async fn choose(db: &Database, dataset: &Dataset) -> Result<Source, ShardError> {
    let table = &dataset.table;
    match db.dialect() {
        Dialect::Postgres => {
            let pages = "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::bigint";
            let answer = db.read(Statement::new(pages).bind(table.clone())).await?;
            let pages = answer.one()?.opt_int(0)?.unwrap_or(0);
            Ok(match pages > WHOLE_PAGES_MAX {
                true => Source::Pages { percent: 100.0 * SAMPLE_PAGES as f64 / pages as f64 },
                false => Source::Whole,
            })
        }
        Dialect::Sqlite => {
            // One by one, since SQLite finds either end at once, and for both together reads all that is between.
            let ends =
                format!("SELECT (SELECT min(_rowid_) FROM {table}), (SELECT max(_rowid_) FROM {table})");
            let ends = match db.read(Statement::new(ends)).await {
                // A table without row numbers.
                Err(Error::Invalid { .. }) => return Ok(Source::First),
                ends => ends?,
            };
            let (low, high) = (ends.one()?.opt_int(0)?.unwrap_or(0), ends.one()?.opt_int(1)?.unwrap_or(0));
            Ok(match high.checked_sub(low).and_then(|span| span.checked_add(1)) {
                Some(span) if span <= WHOLE_NUMBERS_MAX => Source::Whole,
                Some(span) if span < STRIDE * PROBES => Source::Probes { low, span },
                _ => Source::First,
            })
        }
    }
}

/// Rows of the source by placement.
async fn groups(
    db: &Database,
    dataset: &Dataset,
    map: &Map,
    source: Source,
) -> Result<Vec<(KeyBytes, u64)>, ShardError> {
    let placement = dataset.placement.expression(db.dialect(), map.definition(), "")?;
    let (table, condition) = (&dataset.table, condition(dataset, db.dialect()));
    let from = match source {
        Source::Whole => format!("{table}{condition}"),
        // The same pages each time: a plan that is applied is the one that was shown.
        Source::Pages { percent } => {
            format!("{table} TABLESAMPLE SYSTEM ({percent:.6}) REPEATABLE (1){condition}")
        }
        Source::Probes { low, span } => format!(
            "(WITH RECURSIVE probe(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM probe WHERE n < {PROBES}) \
             SELECT kept.* FROM probe CROSS JOIN {table} AS kept \
             ON kept._rowid_ = {low} + (n * {STRIDE}) % {span}) AS sampled{condition}"
        ),
        Source::First => format!("(SELECT * FROM {table}{condition} LIMIT {FIRST_ROWS}) AS first"),
    };
    let grouped = format!("SELECT {placement} AS placement, count(*) FROM {from} GROUP BY 1");
    let mut scan = db.scan(Statement::new(grouped), PAGE_ROWS).await?;
    let mut counted = Vec::new();
    while let Some(page) = scan.next().await? {
        for row in page.iter() {
            let Some(placement) = row.opt_blob(0)? else { continue };
            counted.push((KeyBytes::from(placement), u64::try_from(row.int(1)?).unwrap_or(0)));
        }
    }
    Ok(counted)
}

/// The size of an SQLite file.
async fn file_bytes(db: &Database) -> Result<u64, ShardError> {
    let size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    Ok(u64::try_from(db.read(Statement::new(size)).await?.one()?.int(0)?).unwrap_or(0))
}
