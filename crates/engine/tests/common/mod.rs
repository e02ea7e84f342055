//! Databases for the tests: one of each engine, thrown away afterwards.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::time::Duration;

use polyshard_engine::{Access, Batch, Database, Error, Expect, Options, Row, Statement, Target};
use polyshard_testkit::postgres::PgServer;
use tempfile::TempDir;

pub enum Place {
    File(TempDir),
    Server(Box<PgServer>),
}

/// An open database and the place it lives in.
pub struct Bed {
    pub db: Database,
    pub target: Target,
    pub options: Options,
    pub place: Place,
}

pub fn options() -> Options {
    Options { unavailable_wait: Duration::from_millis(300), ..Options::default() }
}

impl Bed {
    pub async fn sqlite() -> Bed {
        Bed::sqlite_with(options()).await
    }

    pub async fn sqlite_with(options: Options) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::sqlite(folder.path().join("shard.db"));
        let db = Database::open(target.clone(), options.clone(), None).await.unwrap();
        Bed { db, target, options, place: Place::File(folder) }
    }

    pub async fn postgres() -> Bed {
        Bed::postgres_with(options()).await
    }

    pub async fn postgres_with(options: Options) -> Bed {
        let server = PgServer::start();
        let target = Target::parse(&server.url("postgres")).unwrap();
        let db = Database::open(target.clone(), options.clone(), None).await.unwrap();
        Bed { db, target, options, place: Place::Server(Box::new(server)) }
    }

    pub fn server(&mut self) -> &mut PgServer {
        match &mut self.place {
            Place::Server(server) => server,
            Place::File(_) => panic!("SQLite has no server"),
        }
    }

    /// Closes the database and opens it again with these options.
    pub async fn reopen_with(&mut self, options: Options) {
        self.db.close().await;
        self.db = Database::open(self.target.clone(), options, None).await.unwrap();
    }

    /// A table with a key and a version, as stores have.
    pub async fn items(&self) {
        let (bigint, text) = (self.db.dialect().bigint(), self.db.dialect().text());
        self.ddl(&format!(
            "CREATE TABLE item (id {bigint} PRIMARY KEY, body {text} NOT NULL, version {bigint})"
        ))
        .await;
    }

    pub async fn ddl(&self, sql: &str) {
        self.db.write(Statement::new(sql).into()).await.unwrap();
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.one(Statement::new(sql)).await.int(0).unwrap()
    }

    pub async fn one(&self, statement: Statement) -> Row {
        self.db.read(statement).await.unwrap().one().unwrap().clone()
    }

    /// The ids present, in order.
    pub async fn ids(&self) -> Vec<i64> {
        let rows = self.db.read(Statement::new("SELECT id FROM item ORDER BY id")).await.unwrap();
        rows.iter().map(|row| row.int(0).unwrap()).collect()
    }
}

pub fn insert(id: i64) -> Statement {
    Statement::new("INSERT INTO item (id, body, version) VALUES ($1, $2, 1)")
        .bind(id)
        .bind(format!("body {id}"))
        .expect(Expect::Rows(1))
}

pub fn update(id: i64, version: i64) -> Statement {
    Statement::new("UPDATE item SET version = version + 1 WHERE id = $1 AND version = $2")
        .bind(id)
        .bind(version)
        .expect(Expect::Rows(1))
}

pub async fn write(db: &Database, statement: Statement) -> Result<(), Error> {
    db.write(Batch::new().push(statement)).await.map(drop)
}

/// Inserts in a write transaction without ending it.
pub async fn hold(db: &Database, id: i64) -> polyshard_engine::Transaction {
    let mut transaction = db.begin(Access::Write).await.unwrap();
    transaction.run(insert(id)).await.unwrap();
    transaction
}
