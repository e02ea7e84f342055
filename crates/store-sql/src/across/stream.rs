//! The rows of several shards one after the other, asked in one round trip: each shard is sent the beginning of a
//! transaction, the question for ranges in motion, that for its rows, and the end of the transaction together.
//!
//! The snapshot is that of the longer way: one transaction of each shard, in which the ranges in motion are read too.
//! Should there be some, nothing was said to the client, and the question is asked that way.

use super::FETCH_BYTES_MAX;
use super::columns;
use super::known::Known;
use super::motion::{self, Motion};
use super::series::{Asked, Series, is_stale};
use super::shards::Shards;
use super::worker::{Sink, Trouble, fields, no_copy};
use crate::reply;
use crate::session::Session;

pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
pub(super) const END: &str = "COMMIT";

/// Where the rows stand in the series: after its beginning and the ranges in motion.
const ROWS_AT: usize = 2;

impl Session {
    /// The rows of all shards. False if it is to be asked the longer way.
    pub(super) async fn concat_at_once(
        &mut self,
        working: &mut Shards,
        known: &Known,
    ) -> Result<bool, Trouble> {
        let (forms, mut told) = self.wanted_forms();
        let said = self.client().said();
        let [begin, in_motion, end] = self.door.cache.questions.constant;
        let question = motion::question();
        let id = known.prepared().map(|[fragment, ..]| fragment);
        let mut all = Vec::new();
        for worker in working.all() {
            let text = known.plan.fragments[0].sql_on(worker.shard());
            let rows = Asked { id, text: &text, values: &[], forms: &forms, described: true, rows_max: 0 };
            let mut series = Series::default();
            series.ask(worker, &Asked::plain(begin, BEGIN));
            series.ask(worker, &Asked::plain(in_motion, &question));
            series.ask(worker, &rows);
            series.ask(worker, &Asked::plain(end, END));
            series.send(worker).await?;
            all.push(series);
        }
        if !self.all_is_still(known, working, &mut all).await? {
            return Ok(false);
        }
        let mut rows = 0;
        for (worker, series) in working.all().zip(&mut all) {
            let description = match series.columns(worker, self.client()).await {
                Err(trouble) if self.client().said() == said && is_stale(known, &trouble) => {
                    return Ok(false);
                }
                described => described?,
            };
            if !told {
                columns::tell(&mut self.client().out, &description);
                told = true;
            }
            let passed = worker.pass(self.client(), Sink::Client, FETCH_BYTES_MAX).await;
            if passed.is_err() && !series.is_prepared() {
                // Whether the end was prepared was not heard.
                worker.backend.closing = true;
            }
            rows += passed?.rows;
        }
        reply::complete(&mut self.client().out, &format!("SELECT {rows}"));
        Ok(true)
    }

    /// Whether the shards say before their rows that nothing is in motion. If something is, or they have to be asked
    /// otherwise, the question is asked again in full.
    pub(super) async fn all_is_still(
        &mut self,
        known: &Known,
        working: &mut Shards,
        all: &mut [Series],
    ) -> Result<bool, Trouble> {
        match self.hear_motion(working, all).await {
            Err(trouble) if is_stale(known, &trouble) => Ok(false),
            motion => Ok(self.is_still(!motion?.is_none())),
        }
    }

    /// Notes that something is moving, so that the next questions begin by asking what.
    pub(super) fn is_still(&self, moving: bool) -> bool {
        if moving {
            self.door.cache.questions.note_moving(true);
        }
        !moving
    }

    /// Which ranges are in motion, as the shards say before their rows.
    async fn hear_motion(&mut self, working: &mut Shards, all: &mut [Series]) -> Result<Motion, Trouble> {
        if let Some(failed) = working.begun(self.client()).await? {
            // What the others have to say does not matter.
            if let Some((worker, series)) = working.all().zip(&mut *all).nth(failed) {
                loop {
                    match series.next(worker, self.client()).await? {
                        (b'E', body) => return Err(series.fail(worker, self.client(), body).await),
                        (b'Z', _) => return Err(no_copy(worker.shard())),
                        _ => {}
                    }
                }
            }
        }
        let mut motion = Motion::default();
        for (worker, series) in working.all().zip(all) {
            let mut ranges = Vec::new();
            while series.ended < ROWS_AT {
                match series.next(worker, self.client()).await? {
                    (b'D', body) => ranges.push(fields(&body)?),
                    (b'E', body) => return Err(series.fail(worker, self.client(), body).await),
                    (b'Z', _) => return Err(no_copy(worker.shard())),
                    _ => {}
                }
            }
            motion.learn(ranges)?;
        }
        Ok(motion)
    }
}
