//! Where a cluster's databases are: SQLite files, databases of a PostgreSQL server, or some of both.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use polyshard_engine::Target;
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tempfile::TempDir;

/// Which engine a database is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Files,
    Server,
    /// Shards with an even number are on PostgreSQL, all else in files.
    Mixed,
}

/// Names databases, and makes them when they are first named.
pub struct Place {
    kind: Kind,
    folder: TempDir,
    server: Option<Arc<Mutex<PgServer>>>,
    prefix: String,
    made: Mutex<BTreeSet<String>>,
}

impl Place {
    pub fn files() -> Arc<Place> {
        Place::new(Kind::Files, None)
    }

    pub fn server() -> Arc<Place> {
        Place::new(Kind::Server, Some(start_server()))
    }

    pub fn mixed() -> Arc<Place> {
        Place::new(Kind::Mixed, Some(start_server()))
    }

    fn new(kind: Kind, server: Option<Arc<Mutex<PgServer>>>) -> Arc<Place> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let folder = polyshard_testkit::scratch::folder("polyshard-place-");
        let prefix = format!("p{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Arc::new(Place { kind, folder, server, prefix, made: Mutex::default() })
    }

    pub fn is_postgres(&self, name: &str) -> bool {
        match self.kind {
            Kind::Files => false,
            Kind::Server => true,
            Kind::Mixed => name.ends_with(['2', '4', '6', '8']),
        }
    }

    /// Whether several processes may use it at once.
    pub fn is_shared(&self) -> bool {
        self.kind == Kind::Server
    }

    /// The name of a database on the server.
    pub fn database(&self, name: &str) -> String {
        format!("{}_{name}", self.prefix)
    }

    pub fn pg(&self) -> std::sync::MutexGuard<'_, PgServer> {
        self.server.as_ref().expect("there is a server").lock().unwrap()
    }

    /// The address of a database, which is made if it is new.
    pub fn target(&self, name: &str) -> Target {
        if !self.is_postgres(name) {
            return Target::sqlite(self.folder.path().join(format!("{name}.db")));
        }
        let new = self.made.lock().unwrap().insert(name.to_owned());
        let (server, database) = (self.pg(), self.database(name));
        if new {
            server.create_database(&database);
        }
        Target::parse(&server.url(&database)).unwrap()
    }

    /// Another place with copies of all databases, which nobody may have open.
    pub fn copy(&self) -> Arc<Place> {
        let copy = Place::new(self.kind, self.server.clone());
        for file in std::fs::read_dir(self.folder.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.folder.path().join(file.file_name())).unwrap();
        }
        for name in self.made.lock().unwrap().iter() {
            let sql =
                format!("CREATE DATABASE \"{}\" TEMPLATE \"{}\"", copy.database(name), self.database(name));
            self.pg().execute("postgres", &sql);
            copy.made.lock().unwrap().insert(name.clone());
        }
        copy
    }
}

/// A server for tests that never cut the power. Proving a password takes an unoptimised client a tenth of a second.
fn start_server() -> Arc<Mutex<PgServer>> {
    let settings = vec![("max_connections".to_owned(), "400".to_owned())];
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
    let rules = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rules.path(), "host all all 127.0.0.1/32 trust\n").unwrap();
    server.install_file(rules.path(), "pg_hba.conf");
    server.execute("postgres", "SELECT pg_reload_conf()");
    Arc::new(Mutex::new(server))
}
