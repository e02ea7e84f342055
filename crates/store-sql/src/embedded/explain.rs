//! EXPLAIN on SQLite shards: the route, the shards and what each is asked; with ANALYZE, what each of them took.
//!
//! Several files are read by one statement on one connection, so that none has a time of its own. What a shard takes is
//! measured by the same statement on its rows alone, and that is said.

use polyshard_engine::{Dialect, Statement as EngineStatement};
use polyshard_map::ShardId;
use polyshard_router::{Access, Ticket};
use polyshard_sql::{Context, Explain, Kind, Param, Route, Schema, SqlError, SqlState, Statement, TypeOid};
use polyshard_sql_on_sqlite::{Across, Attached, Prepared, QUIET, prepare_across};

use super::across::{TRIES_MAX, ask_motion, name_of, others, wrong};
use super::pages::{PAGE_ROWS, next_page};
use super::translate::statement_of;
use crate::across::motion::Motion;
use crate::cache::Analysed;
use crate::cancel::Running;
use crate::client::Client;
use crate::reply::{self, Field};
use crate::session::{Done, Session, Stop, only_files};

/// Files that one statement reads, and what each has said about moves.
struct Files<'t> {
    tickets: Vec<&'t Ticket>,
    said: Vec<String>,
}

/// What running a statement gave.
struct Ran {
    rows: usize,
    micros: i64,
}

/// The statement that is explained, with all that running it needs.
struct Asked<'a> {
    statement: &'a Statement,
    schema: &'a Schema,
    search_path: &'a [String],
    types: Vec<Option<TypeOid>>,
    params: &'a [Param<'a>],
}

impl Session {
    /// Tells how a statement would be carried out, which `route` and its description are of.
    pub(super) async fn explain_lite(
        &mut self,
        explain: &Explain,
        route: &Route,
        mut lines: Vec<String>,
        params: &[Param<'_>],
        types: &[u32],
    ) -> Done {
        check(explain)?;
        let query = Analysed::new(explain.statement.clone());
        let selects = *query.statement.kind() == Kind::Select;
        let shards = self.explained_shards(route);
        let schema = self.current_schema().await?;
        let translated =
            matches!(query.statement.kind(), Kind::Select | Kind::Insert | Kind::Update | Kind::Delete);
        // A write over several shards is put together for each of them.
        if translated && (selects || shards.len() == 1) {
            let prepared = self.lite_prepared(&query, &schema, types)?;
            if explain.analyze && (prepared.writes() || prepared.locks) {
                return Err(only_reads().into());
            }
            lines.extend(asked_of(&shards, &prepared));
        } else if explain.analyze {
            return Err(only_reads().into());
        } else if !shards.is_empty() {
            lines.push(format!("On each of {}", count(&shards)));
        }
        if explain.analyze {
            let types = types.iter().map(|oid| (*oid != 0).then_some(TypeOid(*oid))).collect();
            let search_path = self.search_path.clone();
            let statement = query.statement.as_ref();
            let asked = Asked { statement, schema: &schema, search_path: &search_path, types, params };
            lines.extend(self.analyze_lite(&asked, &shards).await?);
        }
        self.columns(&[Field::text("QUERY PLAN")]);
        for line in &lines {
            reply::data_row(&mut self.client.out, [Some(line.as_str())].into_iter());
        }
        reply::complete(&mut self.client.out, "EXPLAIN");
        Ok(())
    }

    /// The shards of a statement; none if any will do.
    fn explained_shards(&self, route: &Route) -> Vec<ShardId> {
        match route {
            Route::One { shard, .. } | Route::Local(shard) => vec![shard.clone()],
            Route::Many { shards, .. } => {
                let wanted = |shard: &&ShardId| self.own.shard.as_ref().is_none_or(|only| only == *shard);
                shards.iter().filter(wanted).cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Runs a query for its time: on each shard alone, and on all of them.
    async fn analyze_lite(&mut self, asked: &Asked<'_>, shards: &[ShardId]) -> Result<Vec<String>, Stop> {
        let written = self.lite.as_ref().is_some_and(|lite| lite.transaction.is_some());
        if written || self.transaction.has_one_snapshot() {
            return Err(SqlError::unsupported(
                "a transaction that has written, or whose statements share one snapshot, cannot time a query",
                "Use EXPLAIN ANALYZE outside of it.",
            )
            .into());
        }
        let router = self.door.router.clone();
        let any = router.view().shards.keys().next().cloned();
        let ids: Vec<ShardId> = if shards.is_empty() { any.into_iter().collect() } else { shards.to_vec() };
        let mut tickets = Vec::new();
        for shard in &ids {
            let ticket = router.enter_unmapped(shard, Access::Read).await;
            tickets.push(ticket.map_err(|error| reply::of_router(&error))?);
            only_files(&tickets)?;
            self.door.journal.ready(shard).await.map_err(|error| error.to_sql())?;
        }
        let mut lines = Vec::new();
        for ticket in &tickets {
            let ran = self.run_timed(asked, &[ticket], &tickets).await?;
            lines.push(format!("Shard {}:", ticket.shard()));
            lines.extend(ran.lines());
        }
        if tickets.len() > 1 {
            let all: Vec<&Ticket> = tickets.iter().collect();
            let ran = self.run_timed(asked, &all, &tickets).await?;
            lines.push("All shards together:".to_owned());
            lines.extend(ran.lines());
            lines.push(
                "Measured by running the query on the rows of each shard alone, one after the other, and then on all."
                    .to_owned(),
            );
        }
        Ok(lines)
    }

    /// Runs a query on the rows of some of the shards that it concerns. What is being moved is known to all together.
    async fn run_timed(&mut self, asked: &Asked<'_>, of: &[&Ticket], all: &[Ticket]) -> Result<Ran, Stop> {
        let every: Vec<&Ticket> = all.iter().collect();
        let mut files = Files { said: vec![QUIET.to_owned(); every.len()], tickets: every };
        let mut tries = 0;
        loop {
            let across = self.files_of(&files, of, asked.schema)?;
            let context =
                Context { schema: asked.schema, search_path: asked.search_path, strict: self.own.strict };
            let prepared =
                prepare_across(asked.statement, &context, &asked.types, &self.lite_settings, &across)?;
            let moment = self.moment(&prepared, of[0].shard()).await?;
            let statement = statement_of(&prepared, prepared.bind(asked.params, &moment)?);
            let began = self.door.now_micros();
            let running = self.running();
            match read_all(of, statement, &running, &mut self.client).await {
                Err(Stop::Refused(error))
                    if error.state == SqlState::SERIALIZATION_FAILURE && tries < TRIES_MAX =>
                {
                    tries += 1;
                    files.said = ask_motion(&files.tickets).await?;
                }
                // The clock may have been set back meanwhile.
                Ok(rows) => return Ok(Ran { rows, micros: (self.door.now_micros() - began).max(0) }),
                Err(stop) => return Err(stop),
            }
        }
    }

    /// Some files, the first of which is `main`, and which rows of theirs do not count.
    fn files_of(&self, files: &Files<'_>, of: &[&Ticket], schema: &Schema) -> Result<Across, SqlError> {
        let mut motion = Motion::default();
        for said in &files.said {
            motion.learn_from_file(said)?;
        }
        let view = self.door.router.view();
        let mut attached = Vec::new();
        for (at, ticket) in of.iter().enumerate() {
            let said = files.tickets.iter().position(|one| one.shard() == ticket.shard());
            let said = said.map_or(QUIET, |at| files.said[at].as_str());
            let foreign = motion.foreign(Dialect::Sqlite, ticket.shard(), &view, schema)?;
            attached.push((Attached { database: name_of(at), foreign }, said.to_owned()));
        }
        Ok(Across::new(attached))
    }
}

impl Ran {
    fn lines(&self) -> [String; 2] {
        let ms = self.micros as f64 / 1000.0;
        [format!("  Rows: {}", self.rows), format!("  Execution Time: {ms:.3} ms")]
    }
}

/// What is asked of which shards.
fn asked_of(shards: &[ShardId], prepared: &Prepared) -> Vec<String> {
    let sql = &prepared.sql;
    match shards {
        [] => vec![format!("On any shard: {sql}")],
        [shard] => vec![format!("On shard {shard}: {sql}")],
        shards => vec![
            format!("On each of {}, read by one connection: {sql}", count(shards)),
            "Combine: the rows of all files are one table of that statement".to_owned(),
        ],
    }
}

fn count(shards: &[ShardId]) -> String {
    let names: Vec<String> = shards.iter().map(ShardId::to_string).collect();
    format!("{} shards ({})", shards.len(), names.join(", "))
}

/// Refuses forms that would not be what was asked for.
fn check(explain: &Explain) -> Result<(), SqlError> {
    if explain.format == "text" {
        return Ok(());
    }
    Err(SqlError::unsupported(
        format!("EXPLAIN in the form {} is not offered on SQLite shards", explain.format),
        "Leave FORMAT out.",
    ))
}

fn only_reads() -> SqlError {
    SqlError::unsupported(
        "EXPLAIN ANALYZE of a statement that writes or locks is not offered on SQLite shards",
        "Leave ANALYZE out: the statement is then not carried out.",
    )
}

/// Reads everything, and keeps nothing.
async fn read_all(
    tickets: &[&Ticket],
    statement: EngineStatement,
    running: &Running,
    client: &mut Client,
) -> Result<usize, Stop> {
    let mut stopped = std::pin::pin!(running.stopped());
    stopped.as_mut().enable();
    let mut scan = tickets[0].scan_attached(&others(tickets), statement, PAGE_ROWS).await.map_err(wrong)?;
    let mut rows = 0;
    while let Some(page) = next_page(&mut scan, &Schema::default(), stopped.as_mut(), client).await? {
        rows += page.len();
    }
    Ok(rows)
}
