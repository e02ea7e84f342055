//! A query read page by page, so that its size does not matter.

use crate::{Error, Rows, postgres, sqlite};

/// The largest page a scan delivers; a larger one is not a page any more.
pub const SCAN_PAGE_ROWS_MAX: usize = 10_000;

/// A query under way. At most two pages are in memory; dropping it ends the query.
pub struct Scan {
    inner: Inner,
}

enum Inner {
    Sqlite(sqlite::SqliteScan),
    Postgres(Box<postgres::PostgresScan>),
}

impl Scan {
    pub(crate) fn sqlite(inner: sqlite::SqliteScan) -> Scan {
        Scan { inner: Inner::Sqlite(inner) }
    }

    pub(crate) fn postgres(inner: postgres::PostgresScan) -> Scan {
        Scan { inner: Inner::Postgres(Box::new(inner)) }
    }

    /// The next page, never empty; `None` after the last. All pages are of one snapshot.
    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        match &mut self.inner {
            Inner::Sqlite(scan) => scan.next().await,
            Inner::Postgres(scan) => scan.next().await,
        }
    }
}

pub(crate) fn check_page_rows(page_rows: usize) -> Result<(), Error> {
    if page_rows == 0 || page_rows > SCAN_PAGE_ROWS_MAX {
        return Err(Error::invalid(format!(
            "a scan's page has 1 to {SCAN_PAGE_ROWS_MAX} rows, {page_rows} were asked for"
        )));
    }
    Ok(())
}
