//! Where a cluster's databases are: SQLite files in a folder, or databases of a PostgreSQL server, thrown away after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use polyshard_engine::Target;
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use polyshard_testkit::scratch;
use tempfile::TempDir;

/// A server that several places, and the test, use together.
pub type SharedServer = Arc<Mutex<PgServer>>;

/// Names databases, and makes them when they are first named.
pub struct Place {
    kind: Kind,
    /// Databases made so far.
    made: Mutex<BTreeSet<String>>,
    /// Databases that are elsewhere.
    elsewhere: Mutex<BTreeMap<String, Target>>,
}

enum Kind {
    Files(TempDir),
    Server { server: SharedServer, prefix: String },
}

/// Starts a server for tests that never cut the power.
pub fn start_server() -> SharedServer {
    let settings = vec![("max_connections".to_owned(), "400".to_owned())];
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
    // Proving a password takes an unoptimised client a tenth of a second for each of its many sessions.
    let rules = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rules.path(), "host all all 127.0.0.1/32 trust\n").unwrap();
    server.install_file(rules.path(), "pg_hba.conf");
    server.execute("postgres", "SELECT pg_reload_conf()");
    Arc::new(Mutex::new(server))
}

impl Place {
    /// SQLite files.
    pub fn files() -> Arc<Place> {
        Place::new(Kind::Files(scratch::folder("polyshard-place-")))
    }

    /// A PostgreSQL server of its own.
    pub fn server() -> Arc<Place> {
        Place::on(start_server())
    }

    /// Databases on a server that others may use too.
    pub fn on(server: SharedServer) -> Arc<Place> {
        Place::new(Kind::Server { server, prefix: prefix() })
    }

    fn new(kind: Kind) -> Arc<Place> {
        Arc::new(Place { kind, made: Mutex::default(), elsewhere: Mutex::default() })
    }

    /// The server, to kill or ask it.
    pub fn pg(&self) -> MutexGuard<'_, PgServer> {
        match &self.kind {
            Kind::Server { server, .. } => server.lock().unwrap(),
            Kind::Files(_) => panic!("SQLite has no server"),
        }
    }

    /// The server, to share.
    pub fn shared_server(&self) -> SharedServer {
        match &self.kind {
            Kind::Server { server, .. } => server.clone(),
            Kind::Files(_) => panic!("SQLite has no server"),
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.kind, Kind::Server { .. })
    }

    /// The name of a database on the server.
    pub fn database(&self, name: &str) -> String {
        match &self.kind {
            Kind::Server { prefix, .. } => format!("{prefix}_{name}"),
            Kind::Files(_) => name.to_owned(),
        }
    }

    /// Says that a database is found at another address from now on.
    pub fn move_to(&self, name: &str, target: Target) {
        self.elsewhere.lock().unwrap().insert(name.to_owned(), target);
    }

    /// The address of a database, which is made if it is new.
    pub fn target(&self, name: &str) -> Target {
        if let Some(target) = self.elsewhere.lock().unwrap().get(name) {
            return target.clone();
        }
        let new = self.made.lock().unwrap().insert(name.to_owned());
        match &self.kind {
            Kind::Files(folder) => Target::sqlite(folder.path().join(format!("{name}.db"))),
            Kind::Server { server, .. } => {
                let (server, database) = (server.lock().unwrap(), self.database(name));
                if new {
                    server.create_database(&database);
                }
                Target::parse(&server.url(&database)).unwrap()
            }
        }
    }

    /// Another place with copies of all databases, which nobody may have open.
    pub fn copy(&self) -> Arc<Place> {
        let copy = match &self.kind {
            Kind::Files(folder) => {
                let to = scratch::folder("polyshard-place-");
                for file in std::fs::read_dir(folder.path()).unwrap() {
                    let file = file.unwrap();
                    std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
                }
                Place::new(Kind::Files(to))
            }
            Kind::Server { server, .. } => {
                let copy = Place::on(server.clone());
                let (server, made) = (server.lock().unwrap(), self.made.lock().unwrap());
                std::thread::scope(|threads| {
                    for name in made.iter() {
                        let (from, to) = (self.database(name), copy.database(name));
                        let sql = format!("CREATE DATABASE \"{to}\" TEMPLATE \"{from}\"");
                        let server: &PgServer = &server;
                        threads.spawn(move || server.execute("postgres", &sql));
                    }
                });
                copy
            }
        };
        *copy.made.lock().unwrap() = self.made.lock().unwrap().clone();
        copy
    }

    /// Copies one closed database under a new name in the same place.
    pub fn copy_one(&self, from: &str, to: &str) {
        self.made.lock().unwrap().insert(to.to_owned());
        match &self.kind {
            Kind::Files(folder) => {
                let path = |name: &str| folder.path().join(format!("{name}.db"));
                std::fs::copy(path(from), path(to)).unwrap();
            }
            Kind::Server { server, .. } => {
                let (from, to) = (self.database(from), self.database(to));
                let sql = format!("CREATE DATABASE \"{to}\" TEMPLATE \"{from}\"");
                server.lock().unwrap().execute("postgres", &sql);
            }
        }
    }
}

fn prefix() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("p{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
