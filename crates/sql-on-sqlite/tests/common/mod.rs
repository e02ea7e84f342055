//! The same statement on a real PostgreSQL and on SQLite by this crate, answers side by side.

#![allow(dead_code, reason = "each test uses its part")]

use std::sync::Arc;

use polyshard_engine::{Access, Database, Options, Rows, Statement as EngineStatement, Target, Value};
use polyshard_sql::{Context, Kind, Param, ParamValue, Schema, SqlError, Statement, TypeOid};
use polyshard_sql_on_sqlite::{Format, Held, Moment, Prepared, Settings};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// What a statement answered: column names and types, and the rows as text; or the class of its error.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Rows { columns: Vec<(String, u32)>, rows: Vec<Vec<Option<String>>> },
    Done(u64),
    Failed(String, String),
}

impl Answer {
    pub fn state(&self) -> Option<&str> {
        match self {
            Answer::Failed(state, _) => Some(state),
            _ => None,
        }
    }

    /// Whether both say the same: errors by their class alone.
    pub fn agrees(&self, other: &Answer) -> bool {
        match (self, other) {
            (Answer::Failed(a, _), Answer::Failed(b, _)) => a == b,
            (a, b) => a == b,
        }
    }

    /// Whether both say the same, whatever the order of rows.
    pub fn agrees_unordered(&self, other: &Answer) -> bool {
        match (self, other) {
            (Answer::Rows { columns: a, rows: x }, Answer::Rows { columns: b, rows: y }) => {
                let (mut x, mut y) = (x.clone(), y.clone());
                x.sort();
                y.sort();
                a == b && x == y
            }
            _ => self.agrees(other),
        }
    }
}

/// An SQLite file as a shard has it.
pub struct Lite {
    pub db: Database,
    pub schema: Schema,
    pub settings: Settings,
    path: Vec<String>,
    next: i64,
    _folder: tempfile::TempDir,
}

impl Lite {
    pub async fn open() -> Lite {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            functions: polyshard_sql_on_sqlite::functions(),
            aggregates: polyshard_sql_on_sqlite::aggregates(),
            collations: polyshard_sql_on_sqlite::collations(),
            ..Options::default()
        };
        let db = Database::open(Target::sqlite(folder.path().join("shard.db")), options, None).await.unwrap();
        for sql in polyshard_sql_on_sqlite::BOOKKEEPING {
            db.write(EngineStatement::new(sql).into()).await.unwrap();
        }
        let (schema, settings, path) = (Schema::default(), Settings::default(), vec!["public".to_owned()]);
        Lite { db, schema, settings, path, next: 0, _folder: folder }
    }

    pub fn statement(text: &str) -> Result<Arc<Statement>, SqlError> {
        let mut all = polyshard_sql::statements(text)?;
        Ok(all.pop().expect("a statement"))
    }

    pub fn prepare(&self, text: &str, types: &[Option<TypeOid>]) -> Result<Prepared, SqlError> {
        let statement = Lite::statement(text)?;
        let context = Context { schema: &self.schema, search_path: &self.path, strict: false };
        polyshard_sql_on_sqlite::prepare(&statement, &context, types, &self.settings)
    }

    pub async fn run(&mut self, text: &str) -> Answer {
        self.run_with(text, &[]).await
    }

    /// With parameters as text.
    pub async fn run_with(&mut self, text: &str, params: &[Option<&str>]) -> Answer {
        match self.try_run(text, params).await {
            Ok(answer) => answer,
            Err(error) => Answer::Failed(error.state.0.to_owned(), error.message.to_string()),
        }
    }

    async fn try_run(&mut self, text: &str, params: &[Option<&str>]) -> Result<Answer, SqlError> {
        if let Some(path) = text.strip_prefix("SET search_path TO ") {
            self.path = path.split(", ").map(str::to_owned).collect();
            return Ok(Answer::Done(0));
        }
        let statement = Lite::statement(text)?;
        if matches!(statement.kind(), Kind::Ddl(_) | Kind::Truncate(_) | Kind::Do) {
            return self.ddl(&statement).await;
        }
        let prepared = self.prepare(text, &[])?;
        let values: Vec<Param<'_>> = params
            .iter()
            .zip(&prepared.parameters)
            .map(|(value, type_oid)| Param {
                type_oid: *type_oid,
                value: value.map_or(ParamValue::Null, |value| ParamValue::Text(value.as_bytes())),
            })
            .collect();
        let rows = self.execute(&prepared, &values).await?;
        self.answer(&prepared, &rows)
    }

    pub async fn execute(&mut self, prepared: &Prepared, params: &[Param<'_>]) -> Result<Rows, SqlError> {
        // 2026-11-15 12:34:56.789012 UTC.
        let micros = 847_975_296_789_012 + 1_577_836_800_000_000 - 1_577_836_800_000_000;
        let mut moment = Moment { transaction_micros: micros, statement_micros: micros, ..Moment::default() };
        for (sequence, count) in prepared.ids() {
            let from = self.next;
            self.next += count as i64;
            moment.ids.insert(sequence, (from + 1..=self.next).collect());
        }
        if let Some(held) = prepared.held() {
            return self.execute_held(prepared, held, params, &moment).await;
        }
        let mut statement = EngineStatement::new(prepared.sql.clone());
        for value in prepared.bind(params, &moment)? {
            statement = statement.bind(value);
        }
        let result = if prepared.writes() {
            self.db.write(statement.into()).await.map(|mut answers| answers.remove(0))
        } else {
            self.db.read(statement).await
        };
        result.map_err(|error| polyshard_sql_on_sqlite::error(&error, &self.schema))
    }

    /// With what is laid ready before.
    async fn execute_held(
        &mut self,
        prepared: &Prepared,
        held: &Held,
        params: &[Param<'_>],
        moment: &Moment,
    ) -> Result<Rows, SqlError> {
        let wrong = |error| polyshard_sql_on_sqlite::error(&error, &self.schema);
        let mut transaction = self.db.begin(Access::Write).await.unwrap();
        let steps = held.steps(prepared, params, moment)?;
        for (place, [make, write]) in steps.writes.into_iter().enumerate() {
            transaction.run(make).await.map_err(wrong)?;
            let returned = transaction.run(write).await.map_err(wrong)?;
            transaction.run_all(held.put(place, &returned)).await.map_err(wrong)?;
        }
        let mut count = 0;
        for statement in steps.lay {
            count = transaction.run(statement).await.map_err(wrong)?.affected() as i64;
        }
        for place in 0..held.sequences().len() {
            let ids: Vec<i64> = (self.next + 1..=self.next + count).collect();
            self.next += count;
            transaction.run(held.give(place, &ids)).await.map_err(wrong)?;
        }
        let rows = transaction.run(steps.main).await.map_err(wrong)?;
        for statement in steps.clear {
            transaction.run(statement).await.map_err(wrong)?;
        }
        transaction.commit().await.map_err(wrong)?;
        Ok(rows)
    }

    fn answer(&self, prepared: &Prepared, rows: &Rows) -> Result<Answer, SqlError> {
        let Some(columns) = &prepared.columns else {
            return Ok(Answer::Done(rows.affected()));
        };
        let mut out = Vec::new();
        for row in rows {
            let mut values = Vec::new();
            for (value, column) in row.values().iter().zip(columns) {
                values.push(match value {
                    Value::Null => None,
                    value => {
                        let mut bytes = Vec::new();
                        polyshard_sql_on_sqlite::encode(
                            column.type_oid,
                            value,
                            Format::Text,
                            &self.settings,
                            &mut bytes,
                        )?;
                        Some(String::from_utf8(bytes).unwrap())
                    }
                });
            }
            out.push(values);
        }
        let columns = columns.iter().map(|column| (column.name.clone(), column.type_oid.0)).collect();
        Ok(Answer::Rows { columns, rows: out })
    }

    async fn ddl(&mut self, statement: &Statement) -> Result<Answer, SqlError> {
        let context = Context { schema: &self.schema, search_path: &self.path, strict: false };
        let statements = polyshard_sql_on_sqlite::ddl(statement, &context)?;
        let mut transaction = self.db.begin(Access::Write).await.unwrap();
        for sql in statements {
            transaction
                .run(EngineStatement::new(sql))
                .await
                .map_err(|error| polyshard_sql_on_sqlite::error(&error, &self.schema))?;
        }
        transaction.commit().await.unwrap();
        self.reload().await;
        Ok(Answer::Done(0))
    }

    async fn reload(&mut self) {
        let mut answers = Vec::new();
        for query in polyshard_sql_on_sqlite::DESCRIPTION_QUERIES {
            answers.push(self.db.read(EngineStatement::new(query)).await.unwrap());
        }
        self.schema = polyshard_sql_on_sqlite::schema_from(&answers.try_into().unwrap()).unwrap();
    }
}

/// The real one.
pub struct Postgres {
    pub client: Client,
    pub server: PgServer,
}

impl Postgres {
    pub async fn open() -> Postgres {
        let server =
            PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() });
        let (client, connection) =
            tokio_postgres::connect(&server.connect_string("postgres"), NoTls).await.unwrap();
        tokio::spawn(async move {
            // It ends with an error when the server is stopped.
            let _ = connection.await;
        });
        client.batch_execute("SET timezone = 'UTC'; SET lc_messages = 'C'").await.unwrap();
        Postgres { client, server }
    }

    pub async fn run(&self, text: &str) -> Answer {
        let failed = |error: tokio_postgres::Error| {
            let db = error.as_db_error().unwrap_or_else(|| panic!("{text}: {error}"));
            Answer::Failed(db.code().code().to_owned(), db.message().to_owned())
        };
        let columns: Vec<(String, u32)> = match self.client.prepare(text).await {
            Ok(prepared) => prepared
                .columns()
                .iter()
                .map(|column| (column.name().to_owned(), column.type_().oid()))
                .collect(),
            Err(error) => return failed(error),
        };
        let messages = match self.client.simple_query(text).await {
            Ok(messages) => messages,
            Err(error) => return failed(error),
        };
        let mut rows = Vec::new();
        let mut count = 0;
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => {
                    rows.push((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect());
                }
                SimpleQueryMessage::CommandComplete(rows) => count = rows,
                _ => {}
            }
        }
        if columns.is_empty() { Answer::Done(count) } else { Answer::Rows { columns, rows } }
    }
}

/// Both at once.
pub struct Pair {
    pub postgres: Postgres,
    pub lite: Lite,
}

impl Pair {
    pub async fn open() -> Pair {
        Pair { postgres: Postgres::open().await, lite: Lite::open().await }
    }

    /// Runs a statement on both that must succeed on both.
    pub async fn both(&mut self, text: &str) {
        let (a, b) = (self.postgres.run(text).await, self.lite.run(text).await);
        assert!(a.state().is_none(), "PostgreSQL: {text}: {a:?}");
        assert!(b.state().is_none(), "SQLite: {text}: {b:?}");
    }
}
