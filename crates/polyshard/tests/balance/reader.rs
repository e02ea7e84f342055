//! Somebody who reads keys in turn through the SQL door, at a steady pace, until he is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polyshard_testkit::process::Server;

use crate::sql::{block_on, connect};

/// The pause between two reads: a few hundred a second, and time for the moves.
const PAUSE: Duration = Duration::from_millis(1);

/// A reader.
pub struct Reader {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<u64, String>>,
}

impl Reader {
    /// Begins; `select` has one parameter, the key.
    pub fn start(server: &Server, select: &str, keys: Vec<i64>) -> Reader {
        let (address, select) = (server.door("sql").to_owned(), select.to_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            block_on(async move {
                let client = connect(&address).await;
                let select = client.prepare(&select).await.map_err(|error| format!("{error:?}"))?;
                let mut read = 0;
                while !told.load(Ordering::Relaxed) {
                    for key in &keys {
                        let rows = client.query(&select, &[key]).await;
                        rows.map_err(|error| format!("read {read} of {key}: {error:?}"))?;
                        read += 1;
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                Ok(read)
            })
        });
        Reader { stop, thread }
    }

    /// Stops, and answers how many reads there were; a failure of any is one of the test.
    #[track_caller]
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join().expect("the reader does not panic") {
            Ok(read) => read,
            Err(why) => panic!("{why}"),
        }
    }
}
