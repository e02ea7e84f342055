//! A catalog and shards on PostgreSQL servers, each database with a role and a password of its own.

use std::fs;
use std::path::PathBuf;

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use polyshard_testkit::process::Setup;
use tempfile::TempDir;

/// Part of every password, to look for where none may be.
pub const SECRET: &str = "open-sesame";

/// Real PostgreSQL servers with the databases of a cluster; any number of server processes can be set up on them.
pub struct Fleet {
    /// The first has the catalog.
    pub servers: Vec<PgServer>,
    /// Shard id, and which server it is on.
    shards: Vec<(String, usize)>,
    folder: TempDir,
}

impl Fleet {
    /// Starts so many servers; `shards` says on which of them each is.
    pub fn start(servers: usize, shards: &[(&str, usize)]) -> Fleet {
        Fleet::start_with(servers, shards, &[])
    }

    /// The same, with settings of PostgreSQL.
    pub fn start_with(servers: usize, shards: &[(&str, usize)], settings: &[(&str, &str)]) -> Fleet {
        // These tests stop databases and never the machine.
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let settings = settings.iter().map(owned).collect();
        let options = PgOptions { durability: Durability::NoFsync, settings };
        let fleet = Fleet {
            servers: (0..servers).map(|_| PgServer::start_with(options.clone())).collect(),
            shards: shards.iter().map(|(id, server)| ((*id).to_owned(), *server)).collect(),
            folder: TempDir::with_prefix("polyshard-fleet-").expect("a temporary folder"),
        };
        fleet.create(0, "catalog");
        for (id, server) in shards {
            fleet.create(*server, id);
        }
        fleet
    }

    /// Makes a database that its role owns, with nothing but ordinary rights.
    pub fn create(&self, server: usize, name: &str) {
        let pg = &self.servers[server];
        pg.create_role(name, &password(name));
        pg.execute("postgres", &format!("CREATE DATABASE \"{name}\" OWNER \"{name}\""));
        fs::write(self.password_file(name), format!("{}\n", password(name))).expect("a password file");
    }

    /// The file that holds the password of a database.
    pub fn password_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The address of a database, without its password.
    pub fn url(&self, server: usize, name: &str) -> String {
        format!("postgres://{name}@127.0.0.1:{}/{name}", self.servers[server].port())
    }

    /// A server process on this fleet. Its shards' passwords are in the file, in a variable, in a file of their own,
    /// in turns.
    pub fn setup(&self) -> Setup {
        let mut setup = Setup::new();
        let mut toml = format!(
            "[catalog]\nurl = \"{}\"\npassword_file = \"{}\"\n[secrets]\nshard_folder = \"{}\"\n",
            self.url(0, "catalog"),
            self.password_file("catalog").display(),
            self.folder.path().display()
        );
        for (index, (id, server)) in self.shards.iter().enumerate() {
            let secret = match index % 3 {
                0 => format!("password = \"{}\"", password(id)),
                1 => {
                    let name = variable(id);
                    setup = setup.env(&name, &password(id));
                    format!("password_env = \"{name}\"")
                }
                _ => format!("password_file = \"{}\"", self.password_file(id).display()),
            };
            toml.push_str(&format!(
                "[[shards]]\nid = \"{id}\"\nurl = \"{}\"\n{secret}\n",
                self.url(*server, id)
            ));
        }
        setup.config(&toml)
    }
}

/// The password of a database.
pub fn password(name: &str) -> String {
    format!("{SECRET}-{name}")
}

/// The variable that holds it.
fn variable(name: &str) -> String {
    format!("{}_SECRET", name.to_uppercase())
}
