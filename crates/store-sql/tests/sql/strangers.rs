//! Wrong passwords, garbage and clients that vanish. C7, E5.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::NoTls;

use crate::support::{Cluster, rows};

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_the_password_stays_outside() {
    let cluster = Cluster::start().await;
    let refused = async |string: String| {
        let error = match tokio_postgres::connect(&string, NoTls).await {
            Ok(_) => panic!("let in with {string}"),
            Err(error) => error,
        };
        error.as_db_error().unwrap_or_else(|| panic!("{error:?}")).code().code().to_owned()
    };
    let right = cluster.connect_string();
    assert_eq!(refused(right.replace("a password", "another")).await, "28P01");
    assert_eq!(refused(right.replace("user=polyshard", "user=nobody")).await, "28P01");
    assert_eq!(refused(right.replace("dbname=polyshard", "dbname=other")).await, "3D000");
    assert_eq!(refused(format!("{right} options='-c no_such_setting=1'")).await, "22023");
    let client = cluster.connect().await;
    assert_eq!(rows(&client, "SELECT 1").await, [["1"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_answered_or_dropped_and_harms_nobody() {
    let cluster = Cluster::with_tables().await;
    let mut seed = 7_u64;
    let mut byte = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    for length in [0_usize, 1, 3, 4, 7, 8, 64, 5000] {
        let mut stream = TcpStream::connect(("127.0.0.1", cluster.port)).await.unwrap();
        let garbage: Vec<u8> = (0..length).map(|_| byte()).collect();
        // It may be gone before it has read all.
        let _sent = stream.write_all(&garbage).await;
        let _closed = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "{length} bytes of garbage keep a connection open");
    }
    // A length that promises more than anybody sends.
    let mut stream = TcpStream::connect(("127.0.0.1", cluster.port)).await.unwrap();
    stream.write_all(&[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0]).await.unwrap();
    let mut answer = Vec::new();
    let _reset =
        tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await.unwrap();
    let client = cluster.connect().await;
    assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE tenant = 1").await, [["0"]]);
    drop(client);
    cluster.close().await;
}
