//! A cluster of embedded shards in a temporary folder with a queue door, until standard input ends.
//!
//! `cargo run -p polyshard-store-queue --example queue_door -- 10001`
//!
//! Prints the door's address once it is open. Port 0, the default, takes a free one.

#[path = "../tests/store/cluster.rs"]
mod cluster;

use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cluster::{Cluster, in_folder};
use polyshard_azure_http::{Accounts, Door, Limits, Surroundings, Timestamp, Transport, serve};
use polyshard_engine::Options;
use polyshard_store_queue::{QueueService, Sweeper};
use polyshard_wire::{Limits as ListenerLimits, Listener, Shutdown};
use uuid::Uuid;

/// The machine's clock and randomness.
struct Machine;

impl Surroundings for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::from_ticks(ticks()).expect("the machine's clock is within the calendar")
    }

    fn request_id(&self) -> Uuid {
        Uuid::new_v4()
    }
}

fn ticks() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    i64::try_from(since.as_nanos() / 100).expect("the clock is within the calendar")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let folder = tempfile::tempdir()?;
    let locate = in_folder(folder.path().to_owned());
    let cluster = Cluster::open(&locate, &["s1", "s2"], Arc::new(ticks), Options::default()).await;
    let sweeper = Sweeper::start(cluster.store.clone());
    let listener = Listener::bind("queue", ([127, 0, 0, 1], port).into(), ListenerLimits::default()).await?;
    let address = listener.address();
    let (trigger, shutdown) = Shutdown::new();
    let door = Door {
        service: Arc::new(QueueService::new(cluster.store.clone())),
        accounts: Arc::new(Accounts::development()),
        surroundings: Arc::new(Machine),
        transport: Transport::Plain,
        limits: Limits::default(),
    };
    let serving = tokio::spawn(serve(listener, shutdown, door));
    println!("http://{address}");
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    trigger.start();
    serving.await?;
    sweeper.stop().await;
    cluster.close().await;
    Ok(())
}
