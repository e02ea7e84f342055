//! A read transaction that is kept open, and the copy of the file as that transaction sees it.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::backup::{Backup, StepResult};

use super::connection::{Connection, Go, Role};
use super::engine::Engine;
use super::error::translate;
use crate::snapshot::CopyProgress;
use crate::{Error, Rows, Version};

/// Pages copied between two looks at the progress: a few megabytes.
const STEP_PAGES: i32 = 1024;

/// A moment of an SQLite file.
pub(crate) struct Moment {
    connection: Connection,
    pub(crate) before: Version,
    pub(crate) after: Version,
}

impl Engine {
    /// Holds this moment.
    pub(crate) async fn moment(self: &Arc<Engine>) -> Result<Moment, Error> {
        let engine = Arc::clone(self);
        blocking(move || {
            let before = engine.version()?;
            let connection = Connection::open(engine.readers.path(), Role::Reader, &engine.options)?;
            // The transaction sees a moment from its first read on.
            connection.raw.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;").map_err(translate)?;
            let after = engine.version()?;
            Ok(Moment { connection, before, after })
        })
        .await
    }
}

/// Pages that wait to be looked at while the next one is read.
const PAGES_AHEAD: usize = 2;

impl Moment {
    /// Hands out the rows of a query in pages. They are read on a thread of their own, which ends when nobody looks at
    /// them any more.
    pub(crate) async fn read(
        self,
        query: &str,
        page_rows: usize,
        page: &mut (dyn FnMut(Rows) -> Result<(), Error> + Send),
    ) -> Result<Moment, Error> {
        let (sender, mut pages) = tokio::sync::mpsc::channel(PAGES_AHEAD);
        let query: Arc<str> = query.into();
        let mut moment = self;
        let reading = blocking(move || {
            let hand_out = |rows: Rows| match sender.blocking_send(rows) {
                Ok(()) => Go::On,
                Err(_) => Go::Stop,
            };
            moment.connection.run_pages(&query, &[], |_| true, page_rows, hand_out)?;
            Ok(moment)
        });
        let looking = async {
            while let Some(rows) = pages.recv().await {
                page(rows)?;
            }
            Ok::<_, Error>(())
        };
        let (moment, ()) = futures_util::future::try_join(reading, looking).await?;
        Ok(moment)
    }

    pub(crate) async fn copy_to(self, path: PathBuf, progress: Box<CopyProgress>) -> Result<(), Error> {
        blocking(move || {
            let refused = |error: std::io::Error| Error::invalid(format!("{}: {error}", path.display()));
            // It must be new: a copy into a file that holds something would be a mixture until it is whole.
            let file = std::fs::File::create_new(&path).map_err(refused)?;
            let mut copy = rusqlite::Connection::open(&path).map_err(translate)?;
            {
                let backup = Backup::new(&self.connection.raw, &mut copy).map_err(translate)?;
                loop {
                    let step = backup.step(STEP_PAGES).map_err(translate)?;
                    let told = backup.progress();
                    let pages = |number: i32| u64::try_from(number).unwrap_or(0);
                    progress(pages(told.pagecount - told.remaining), pages(told.pagecount));
                    match step {
                        StepResult::Done => break,
                        StepResult::More => {}
                        _ => std::thread::sleep(std::time::Duration::from_millis(5)),
                    }
                }
            }
            // One file, without a log beside it.
            copy.pragma_update(None, "journal_mode", "DELETE").map_err(translate)?;
            copy.close().map_err(|(_, error)| translate(error))?;
            file.sync_all().map_err(refused)
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Error::Unavailable { message: "copying the SQLite file was stopped".to_owned() })?
}
