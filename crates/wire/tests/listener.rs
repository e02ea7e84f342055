//! A listener over real sockets: its limit, its counters, and how it stops.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use polyshard_wire::{Connection, Counters, Limits, Listener, Served, Shutdown, ShutdownTrigger};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Longer than any of these tests takes, so that it ends only a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

struct Door {
    address: SocketAddr,
    counters: Arc<Counters>,
    trigger: ShutdownTrigger,
    served: JoinHandle<Served>,
}

async fn open_door<H, F>(limits: Limits, handler: H) -> Door
where
    H: Fn(Connection) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (trigger, shutdown) = Shutdown::new();
    let listener = Listener::bind("test", "127.0.0.1:0".parse().unwrap(), limits).await.unwrap();
    assert_eq!(listener.door(), "test");
    let (address, counters) = (listener.address(), listener.counters());
    let served = tokio::spawn(listener.serve(shutdown, handler));
    Door { address, counters, trigger, served }
}

/// Answers every byte with the same byte until the client leaves or the shutdown starts.
async fn echo(mut connection: Connection) {
    loop {
        tokio::select! {
            () = connection.shutdown.started() => return,
            byte = connection.stream.read_u8() => match byte {
                Ok(byte) => connection.stream.write_u8(byte).await.unwrap(),
                Err(_left) => return,
            },
        }
    }
}

async fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_u8(byte).await?;
    tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an answer or an end")
}

fn limits(connections_max: usize) -> Limits {
    Limits { connections_max, grace: PATIENCE }
}

#[tokio::test]
async fn connections_are_served_side_by_side_and_counted() {
    let door = open_door(limits(8), echo).await;
    let mut first = TcpStream::connect(door.address).await.unwrap();
    let mut second = TcpStream::connect(door.address).await.unwrap();
    assert_eq!(ask(&mut second, 2).await.unwrap(), 2);
    assert_eq!(ask(&mut first, 1).await.unwrap(), 1);
    let counts = door.counters.counts();
    assert_eq!((counts.accepted, counts.open, counts.refused, counts.panicked), (2, 2, 0, 0));
    door.trigger.start();
    assert_eq!(door.served.await.unwrap(), Served { finished: 2, aborted: 0 });
    assert_eq!(door.counters.counts().open, 0);
}

#[tokio::test]
async fn small_answers_are_not_held_back() {
    let (tell, mut told) = mpsc::channel(1);
    let door = open_door(limits(1), move |connection| {
        let tell = tell.clone();
        async move { tell.send(connection.stream.nodelay().unwrap()).await.unwrap() }
    })
    .await;
    let _client = TcpStream::connect(door.address).await.unwrap();
    assert_eq!(told.recv().await, Some(true));
}

#[tokio::test]
async fn a_connection_over_the_limit_is_closed_and_a_place_given_back_is_used_again() {
    let (ended, mut endings) = mpsc::channel(8);
    let door = open_door(limits(1), move |connection| {
        let ended = ended.clone();
        async move {
            echo(connection).await;
            ended.send(()).await.unwrap();
        }
    })
    .await;
    let mut first = TcpStream::connect(door.address).await.unwrap();
    assert_eq!(ask(&mut first, 1).await.unwrap(), 1);

    let mut second = TcpStream::connect(door.address).await.unwrap();
    assert!(ask(&mut second, 2).await.is_err());
    let counts = door.counters.counts();
    assert_eq!((counts.accepted, counts.open, counts.refused), (1, 1, 1));

    drop(first);
    endings.recv().await.unwrap();
    let mut third = TcpStream::connect(door.address).await.unwrap();
    assert_eq!(ask(&mut third, 3).await.unwrap(), 3);
    assert_eq!(door.counters.counts().accepted, 2);
}

#[tokio::test]
async fn a_panicking_handler_loses_its_own_connection_only() {
    let door = open_door(limits(2), |mut connection| async move {
        let byte = connection.stream.read_u8().await.unwrap();
        assert_ne!(byte, 13, "this panic is part of the test");
        connection.stream.write_u8(byte).await.unwrap();
    })
    .await;
    let mut unlucky = TcpStream::connect(door.address).await.unwrap();
    assert!(ask(&mut unlucky, 13).await.is_err());
    let mut other = TcpStream::connect(door.address).await.unwrap();
    assert_eq!(ask(&mut other, 7).await.unwrap(), 7);
    door.trigger.start();
    door.served.await.unwrap();
    let counts = door.counters.counts();
    assert_eq!((counts.accepted, counts.open, counts.panicked), (2, 0, 1));
}

#[tokio::test]
async fn a_request_in_hand_is_finished_after_the_shutdown_started_and_the_port_is_closed_meanwhile() {
    let (tell, mut told) = mpsc::channel(1);
    let door = open_door(limits(2), move |mut connection| {
        let tell = tell.clone();
        async move {
            let Ok(byte) = connection.stream.read_u8().await else { return };
            tell.send(()).await.unwrap();
            connection.shutdown.started().await;
            connection.stream.write_u8(byte).await.unwrap();
            // Held until the client has seen that nobody else gets in.
            let _eof = connection.stream.read_u8().await;
        }
    })
    .await;
    let mut client = TcpStream::connect(door.address).await.unwrap();
    client.write_u8(9).await.unwrap();
    told.recv().await.unwrap();
    door.trigger.start();
    assert_eq!(client.read_u8().await.unwrap(), 9);
    // The handler heard of the shutdown perhaps before the accept loop did: late connections may be served until then.
    let refused = async { while TcpStream::connect(door.address).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("the port is closed while a handler still runs");
    drop(client);
    let served = door.served.await.unwrap();
    assert_eq!(served.aborted, 0);
}

#[tokio::test]
async fn a_handler_that_does_not_stop_is_cut_off_after_the_grace() {
    let limits = Limits { connections_max: 2, grace: Duration::from_millis(20) };
    let (tell, mut told) = mpsc::channel(1);
    let door = open_door(limits, move |connection| {
        let tell = tell.clone();
        async move {
            let _connection = connection;
            tell.send(()).await.unwrap();
            std::future::pending::<()>().await
        }
    })
    .await;
    let mut client = TcpStream::connect(door.address).await.unwrap();
    told.recv().await.unwrap();
    door.trigger.start();
    assert_eq!(door.served.await.unwrap(), Served { finished: 0, aborted: 1 });
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0, "the connection is closed");
    assert_eq!(door.counters.counts().open, 0);
}

#[tokio::test]
async fn an_address_in_use_is_named_with_the_remedy() {
    let address = "127.0.0.1:0".parse().unwrap();
    let first = Listener::bind("admin", address, Limits::default()).await.unwrap();
    let refusal = Listener::bind("admin", first.address(), Limits::default()).await.unwrap_err().to_string();
    let expected = format!("the admin door cannot listen on {}: ", first.address());
    assert!(refusal.starts_with(&expected), "{refusal}");
    assert!(refusal.ends_with("; free that address or configure another one"), "{refusal}");
}
