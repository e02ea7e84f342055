//! Where the databases of a test are; they are gone when it ends.

use std::sync::{Arc, Mutex};

use polyshard_engine::{Options, Target};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tempfile::TempDir;

use crate::cluster::{Locate, in_folder};

/// Keeps the databases of a test.
pub enum Place {
    Sqlite(TempDir),
    Postgres(Arc<Mutex<PgServer>>),
}

impl Place {
    pub fn sqlite() -> Place {
        Place::Sqlite(tempfile::tempdir().unwrap())
    }

    pub fn postgres() -> Place {
        let settings = vec![("max_connections".to_owned(), "300".to_owned())];
        let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
        // Proving a password takes an unoptimised client a tenth of a second for each of its many sessions.
        let rules = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(rules.path(), "host all all 127.0.0.1/32 trust\n").unwrap();
        server.install_file(rules.path(), "pg_hba.conf");
        server.execute("postgres", "SELECT pg_reload_conf()");
        Place::Postgres(Arc::new(Mutex::new(server)))
    }

    /// Finds databases, and makes those that are new.
    pub fn locate(&self) -> Locate {
        match self {
            Place::Sqlite(folder) => in_folder(folder.path().to_owned()),
            Place::Postgres(server) => {
                let (server, made) = (server.clone(), Mutex::new(Vec::<String>::new()));
                Arc::new(move |name| {
                    let (server, mut made) = (server.lock().unwrap(), made.lock().unwrap());
                    if !made.iter().any(|known| known == name) {
                        server.create_database(name);
                        made.push(name.to_owned());
                    }
                    Target::parse(&server.url(name)).unwrap()
                })
            }
        }
    }

    /// Fewer sessions than a server would have: a test's server is small.
    pub fn options() -> Options {
        Options { postgres_readers: 2, postgres_pool_max: 8, ..Options::default() }
    }
}
