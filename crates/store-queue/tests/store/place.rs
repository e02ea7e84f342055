//! Where the databases of a test are; they are gone when it ends. The tests of all stores share it.

use std::sync::{Arc, Mutex};

use polyshard_engine::{Options, Target};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tempfile::TempDir;

use crate::cluster::{Clock, Cluster, Locate, Store};

/// Declares each test once for each engine.
macro_rules! on_both_engines {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::place::Place::postgres()).await;
            })*
        }
    };
}

/// Keeps the databases of a test.
pub struct Place {
    locate: Locate,
    _kept: Kept,
}

/// What is thrown away at the end; never read, only dropped.
#[expect(dead_code, reason = "kept to be dropped")]
enum Kept {
    Folder(TempDir),
    Server(Arc<Mutex<PgServer>>),
}

impl Place {
    pub fn sqlite() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let locate: Locate = Arc::new(move |name| Target::sqlite(path.join(format!("{name}.db"))));
        Place { locate, _kept: Kept::Folder(folder) }
    }

    pub fn postgres() -> Place {
        let settings = vec![("max_connections".to_owned(), "300".to_owned())];
        let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
        // Proving a password takes an unoptimised client a tenth of a second for each of its many sessions.
        let rules = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(rules.path(), "host all all 127.0.0.1/32 trust\n").unwrap();
        server.install_file(rules.path(), "pg_hba.conf");
        server.execute("postgres", "SELECT pg_reload_conf()");
        let server = Arc::new(Mutex::new(server));
        let (find, made) = (server.clone(), Mutex::new(Vec::<String>::new()));
        let locate: Locate = Arc::new(move |name| {
            let (server, mut made) = (find.lock().unwrap(), made.lock().unwrap());
            if !made.iter().any(|known| known == name) {
                server.create_database(name);
                made.push(name.to_owned());
            }
            Target::parse(&server.url(name)).unwrap()
        });
        Place { locate, _kept: Kept::Server(server) }
    }

    /// A process on the databases, with three shards.
    pub async fn open_at<S: Store>(&self, clock: Clock) -> Cluster<S> {
        // Fewer sessions than a server would have: a test's server is small.
        let options = Options { postgres_readers: 2, postgres_pool_max: 8, ..Options::default() };
        Cluster::open(&self.locate, &["s1", "s2", "s3"], clock, options).await
    }
}
