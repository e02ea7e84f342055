//! A cluster of throw-away shards with a table door, until standard input ends.
//!
//! `cargo run -p polyshard-store-table --example serve -- sqlite 10002`
//!
//! Prints the door's address once it is open. The shards are `sqlite` files, or databases of a `postgres` server that
//! is started for it. Port 0, the default, takes a free one.

#[path = "../tests/store/cluster.rs"]
mod cluster;
#[path = "../tests/store/place.rs"]
mod place;

use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use place::Place;
use polyshard_azure_http::{Accounts, Door, Limits, Surroundings, Timestamp, Transport, serve};
use polyshard_store_table::{Sweeper, TableService};
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
    let mut arguments = std::env::args().skip(1);
    let place = match arguments.next().as_deref() {
        None | Some("sqlite") => Place::sqlite(),
        Some("postgres") => Place::postgres(),
        Some(other) => return Err(format!("{other} is no engine: say sqlite or postgres").into()),
    };
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let cluster = place.open_at(Arc::new(ticks)).await;
    let sweeper = Sweeper::start(cluster.store.clone());
    let listener = Listener::bind("table", ([127, 0, 0, 1], port).into(), ListenerLimits::default()).await?;
    let address = listener.address();
    let (trigger, shutdown) = Shutdown::new();
    let door = Door {
        service: Arc::new(TableService::new(cluster.store.clone())),
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
