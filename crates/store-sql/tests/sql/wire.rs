//! A client that says the protocol's messages one by one, as drivers that send several at once do.

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Cluster, PASSWORD};

pub struct Wire {
    stream: TcpStream,
    out: BytesMut,
}

impl Wire {
    pub async fn connect(cluster: &Cluster) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", cluster.port)).await.unwrap();
        let mut wire = Wire { stream, out: BytesMut::new() };
        let words = b"user\0polyshard\0database\0polyshard\0\0";
        wire.out.put_u32(u32::try_from(words.len()).unwrap() + 8);
        wire.out.put_u32(196_608);
        wire.out.put_slice(words);
        wire.log_in().await;
        wire
    }

    async fn log_in(&mut self) {
        use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
        let mut scram = ScramSha256::new(PASSWORD.as_bytes(), ChannelBinding::unsupported());
        self.send().await;
        assert_eq!(self.next().await.0, b'R');
        let first = scram.message().to_vec();
        self.message(b'p', |out| {
            out.put_slice(b"SCRAM-SHA-256\0");
            out.put_u32(u32::try_from(first.len()).unwrap());
            out.put_slice(&first);
        });
        self.send().await;
        scram.update(&self.next().await.1[4..]).unwrap();
        let last = scram.message().to_vec();
        self.message(b'p', |out| out.put_slice(&last));
        self.send().await;
        scram.finish(&self.next().await.1[4..]).unwrap();
        self.answers().await;
    }
    fn message(&mut self, kind: u8, body: impl FnOnce(&mut BytesMut)) {
        let mut inner = BytesMut::new();
        body(&mut inner);
        self.out.put_u8(kind);
        self.out.put_u32(u32::try_from(inner.len()).unwrap() + 4);
        self.out.put_slice(&inner);
    }

    async fn send(&mut self) {
        let out = self.out.split();
        self.stream.write_all(&out).await.unwrap();
    }

    async fn next(&mut self) -> (u8, Vec<u8>) {
        let kind = self.stream.read_u8().await.unwrap();
        let length = self.stream.read_u32().await.unwrap();
        let mut body = vec![0; length as usize - 4];
        self.stream.read_exact(&mut body).await.unwrap();
        (kind, body)
    }

    /// The kinds of all messages up to ReadyForQuery.
    async fn answers(&mut self) -> String {
        let mut kinds = String::new();
        while !kinds.ends_with('Z') {
            kinds.push(char::from(self.next().await.0));
        }
        kinds
    }

    /// A simple query.
    pub async fn simple(&mut self, sql: &str) -> String {
        self.message(b'Q', |out| {
            out.put_slice(sql.as_bytes());
            out.put_u8(0);
        });
        self.send().await;
        self.answers().await
    }

    /// A statement without parameters: prepared, bound and run, with what is sent next.
    pub fn statement(&mut self, sql: &str) {
        self.message(b'P', |out| {
            out.put_u8(0);
            out.put_slice(sql.as_bytes());
            out.put_slice(&[0, 0, 0]);
        });
        self.message(b'B', |out| out.put_slice(&[0; 8]));
        self.message(b'E', |out| out.put_slice(&[0; 5]));
    }

    /// Prepares a statement under a name; the types of its parameters are found out.
    pub async fn prepare(&mut self, name: &str, sql: &str) -> String {
        self.message(b'P', |out| {
            for text in [name, sql] {
                out.put_slice(text.as_bytes());
                out.put_u8(0);
            }
            out.put_u16(0);
        });
        self.sync().await
    }

    /// Binds values as texts to a prepared statement and runs it, with what is sent next; columns are told if wanted.
    pub fn run(&mut self, name: &str, values: &[&str], describe: bool) {
        self.message(b'B', |out| {
            out.put_u8(0);
            out.put_slice(name.as_bytes());
            out.put_slice(&[0, 0, 0]);
            out.put_u16(u16::try_from(values.len()).unwrap());
            for value in values {
                out.put_u32(u32::try_from(value.len()).unwrap());
                out.put_slice(value.as_bytes());
            }
            out.put_u16(0);
        });
        if describe {
            self.message(b'D', |out| out.put_slice(b"P\0"));
        }
        self.message(b'E', |out| out.put_slice(&[0; 5]));
    }

    /// Sync, whose answers nobody waits for.
    pub async fn send_sync(&mut self) {
        self.message(b'S', |_| {});
        self.send().await;
    }

    /// Sync, and the answers to everything, whole.
    pub async fn sync_whole(&mut self) -> Vec<(u8, Vec<u8>)> {
        self.message(b'S', |_| {});
        self.send().await;
        let mut all = vec![self.next().await];
        while all.last().is_some_and(|(kind, _)| *kind != b'Z') {
            all.push(self.next().await);
        }
        all
    }

    /// Flush, and sent at once.
    pub async fn flush(&mut self) {
        self.message(b'H', |_| {});
        self.send().await;
    }

    /// Sync, and the answers to everything.
    pub async fn sync(&mut self) -> String {
        self.message(b'S', |_| {});
        self.send().await;
        self.answers().await
    }
}
