//! A client of the SQL door, and of databases behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::SinkExt;
use polyshard_testkit::process::Server;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Runs a future to its end.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// A client of the SQL door.
pub async fn connect(address: &str) -> Client {
    let address = address.rsplit('@').next().and_then(|rest| rest.split('/').next()).expect("an address");
    let (host, port) = address.split_once(':').expect("host and port");
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(port.parse().expect("a port"));
    config.user("polyshard").password("polyshard").dbname("polyshard");
    let (client, connection) = config.connect(NoTls).await.expect("the door lets in");
    tokio::spawn(async move {
        // It ends with the client.
        let _ended = connection.await;
    });
    client
}

/// Runs statements through the SQL door; answers the last one's first column, one row a line.
#[track_caller]
pub fn sql(server: &Server, statements: &str) -> String {
    let address = server.door("sql").to_owned();
    let ran = block_on(async move {
        let client = connect(&address).await;
        client.simple_query(statements).await
    });
    let messages = ran.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
        _ => None,
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// Loads rows into a table, each a line of values with tabs between them.
#[track_caller]
pub fn load(server: &Server, table: &str, rows: impl Iterator<Item = String>) {
    let address = server.door("sql").to_owned();
    let text: String = rows.map(|row| row + "\n").collect();
    let loaded = block_on(async move {
        let client = connect(&address).await;
        let sink = client.copy_in::<_, Bytes>(&format!("COPY {table} FROM STDIN")).await?;
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from(text)).await?;
        sink.finish().await
    });
    loaded.unwrap_or_else(|error| panic!("{table} cannot be loaded: {error:?}"));
}

/// Rows of a number of tenants, so many of each: tenant, number, and what else there is.
pub fn rows(tenants: u64, each: u64, rest: &'static str) -> impl Iterator<Item = String> {
    (1..=tenants).flat_map(move |tenant| (1..=each).map(move |number| format!("{tenant}\t{number}{rest}")))
}

/// Somebody who writes rows for one key through the SQL door until he is told to stop.
pub struct Writer {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<u64, String>>,
}

impl Writer {
    /// Begins; `insert` has one parameter, the number of the row.
    pub fn start(server: &Server, insert: &str) -> Writer {
        let (address, insert) = (server.door("sql").to_owned(), insert.to_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            block_on(async move {
                let client = connect(&address).await;
                let mut written = 0;
                while !told.load(Ordering::Relaxed) {
                    let number = i64::try_from(written).expect("not that many");
                    let done = client.execute(&insert, &[&number]).await;
                    done.map_err(|error| format!("write {written}: {error:?}"))?;
                    written += 1;
                }
                Ok(written)
            })
        });
        Writer { stop, thread }
    }

    /// Stops, and answers how many rows were acknowledged; a failure of any is one of the test.
    #[track_caller]
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join().expect("the writer does not panic") {
            Ok(written) => written,
            Err(why) => panic!("{why}"),
        }
    }
}
