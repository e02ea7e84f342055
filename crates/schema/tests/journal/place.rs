//! Where a cluster's databases are: SQLite files in a folder, or databases of a PostgreSQL server, thrown away after.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use polyshard_engine::Target;
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tempfile::TempDir;

/// Names databases, and makes them when they are first named.
pub struct Place {
    kind: Kind,
    made: Mutex<BTreeSet<String>>,
}

enum Kind {
    Files(TempDir),
    Server(Mutex<PgServer>),
}

impl Place {
    /// SQLite files.
    pub fn files() -> Arc<Place> {
        let folder = polyshard_testkit::scratch::folder("polyshard-place-");
        Arc::new(Place { kind: Kind::Files(folder), made: Mutex::default() })
    }

    /// A PostgreSQL server of its own.
    pub fn server() -> Arc<Place> {
        let settings = vec![("max_connections".to_owned(), "400".to_owned())];
        let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
        // Proving a password takes an unoptimised client a tenth of a second for each of its many sessions.
        let rules = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(rules.path(), "host all all 127.0.0.1/32 trust\n").unwrap();
        server.install_file(rules.path(), "pg_hba.conf");
        server.execute("postgres", "SELECT pg_reload_conf()");
        Arc::new(Place { kind: Kind::Server(Mutex::new(server)), made: Mutex::default() })
    }

    /// The server, to ask it.
    pub fn pg(&self) -> MutexGuard<'_, PgServer> {
        match &self.kind {
            Kind::Server(server) => server.lock().unwrap(),
            Kind::Files(_) => panic!("SQLite has no server"),
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.kind, Kind::Server(_))
    }

    /// The address of a database, which is made if it is new.
    pub fn target(&self, name: &str) -> Target {
        let new = self.made.lock().unwrap().insert(name.to_owned());
        match &self.kind {
            Kind::Files(folder) => Target::sqlite(folder.path().join(format!("{name}.db"))),
            Kind::Server(server) => {
                let server = server.lock().unwrap();
                if new {
                    server.create_database(name);
                }
                Target::parse(&server.url(name)).unwrap()
            }
        }
    }
}
