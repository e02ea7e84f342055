//! SELECT over several SQLite shards: one connection that sees all their files, in one read of each.

use polyshard_engine::{Dialect, Statement as EngineStatement};
use polyshard_router::{Access, Ticket};
use polyshard_sql::{Context, Param, Route, Schema, SqlError, SqlState, TypeOid};
use polyshard_sql_on_sqlite::{Across, Attached, QUIET, prepare_across};

use super::pages::PAGE_ROWS;
use super::translate::statement_of;
use crate::across::motion::Motion;
use crate::cache::Analysed;
use crate::reply;
use crate::session::{Done, Session, Stop, only_files};

/// Times that a statement is begun anew because moves began or ended meanwhile: they do so rarely.
pub(super) const TRIES_MAX: u32 = 8;

impl Session {
    pub(super) async fn run_lite_across(
        &mut self,
        analysed: &Analysed,
        route: &Route,
        params: &[Param<'_>],
        types: &[u32],
    ) -> Done {
        let Route::Many { shards, ranges } = route else { return Ok(()) };
        if self.transaction.has_one_snapshot() {
            return Err(SqlError::unsupported(
                "a transaction whose statements share one snapshot cannot query across SQLite shards",
                "Use READ COMMITTED; each statement then reads one snapshot of each shard.",
            )
            .into());
        }
        if self.lite.as_ref().is_some_and(|lite| lite.transaction.is_some()) {
            return Err(SqlError::unsupported(
                "a transaction that has written cannot query across SQLite shards",
                "End the transaction first.",
            )
            .into());
        }
        let router = self.door.router.clone();
        let mut tickets =
            router.enter_ranges(ranges, Access::Read).await.map_err(|error| reply::of_router(&error))?;
        tickets.retain(|shard, _| self.own.shard.as_ref().is_none_or(|only| only == shard));
        for shard in shards {
            if !tickets.contains_key(shard) {
                let ticket = router.enter_unmapped(shard, Access::Read).await;
                tickets.insert(shard.clone(), vec![ticket.map_err(|error| reply::of_router(&error))?]);
            }
        }
        only_files(tickets.values().flatten())?;
        for shard in tickets.keys() {
            self.door.journal.ready(shard).await.map_err(|error| error.to_sql())?;
        }
        let firsts: Vec<&Ticket> = tickets.values().filter_map(|tickets| tickets.first()).collect();
        let Some(main) = firsts.first() else { return Ok(()) };
        let schema = self.current_schema().await?;
        let search_path = self.search_path.clone();
        let context = Context { schema: &schema, search_path: &search_path, strict: self.own.strict };
        let types: Vec<Option<TypeOid>> =
            types.iter().map(|oid| (*oid != 0).then_some(TypeOid(*oid))).collect();
        // Moves are rare: it is tried as if there were none, and the query itself says if there are.
        let mut said = vec![QUIET.to_owned(); firsts.len()];
        let beside = others(&firsts);
        let mut tries = 0;
        loop {
            let across = self.parts_of(&firsts, &said, &schema)?;
            let prepared =
                prepare_across(&analysed.statement, &context, &types, &self.lite_settings, &across)?;
            let moment = self.moment(&prepared, main.shard()).await?;
            let statement = statement_of(&prepared, prepared.bind(params, &moment)?);
            let mut told = false;
            let scan = main.scan_attached(&beside, statement, PAGE_ROWS);
            match self.pass_pages(scan, &prepared, &schema, &mut told).await {
                Err(Stop::Refused(error)) if error.state == SqlState::SERIALIZATION_FAILURE => {
                    tries += 1;
                    if told || tries >= TRIES_MAX {
                        return Err(error.hint("Try again.").into());
                    }
                    said = ask_motion(&firsts).await?;
                }
                done => return done,
            }
        }
    }

    /// The files, and which rows of theirs do not count, by what they have said about moves.
    fn parts_of(&self, tickets: &[&Ticket], said: &[String], schema: &Schema) -> Result<Across, SqlError> {
        let mut motion = Motion::default();
        for said in said {
            motion.learn_from_file(said)?;
        }
        let view = self.door.router.view();
        let files = tickets.iter().zip(said).enumerate().map(|(at, (ticket, said))| {
            let foreign = motion.foreign(Dialect::Sqlite, ticket.shard(), &view, schema)?;
            Ok((Attached { database: name_of(at), foreign }, said.clone()))
        });
        Ok(Across::new(files.collect::<Result<_, SqlError>>()?))
    }
}

/// What each file says about ranges that are being moved.
pub(super) async fn ask_motion(tickets: &[&Ticket]) -> Result<Vec<String>, Stop> {
    let names: Vec<String> = (0..tickets.len()).map(name_of).collect();
    let question = EngineStatement::new(Across::question(&names));
    let mut scan = tickets[0].scan_attached(&others(tickets), question, 1).await.map_err(wrong)?;
    let page = scan.next().await.map_err(wrong)?;
    let row = page.and_then(|rows| rows.into_iter().next());
    let row =
        row.ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "no file says what is being moved"))?;
    (0..tickets.len()).map(|at| row.text(at).map(str::to_owned).map_err(wrong)).collect()
}

pub(super) fn others<'t>(tickets: &[&'t Ticket]) -> Vec<(String, &'t Ticket)> {
    tickets.iter().enumerate().skip(1).map(|(at, ticket)| (name_of(at), *ticket)).collect()
}

pub(super) fn name_of(at: usize) -> String {
    if at == 0 { "main".to_owned() } else { format!("shard_{at}") }
}

pub(super) fn wrong(error: polyshard_engine::Error) -> Stop {
    Stop::Refused(polyshard_sql_on_sqlite::error(&error, &Schema::default()))
}
