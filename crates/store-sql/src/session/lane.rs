//! The short way of the simple protocol: statements that differ in their literals alone are looked at once.

use std::sync::Arc;

use polyshard_sql::{Context, Lane, Route, Schema, Shape};

use super::place::{Wanted, is_outdated};
use super::{Session, Stop};
use crate::cache::{Basis, KnownLane};
use crate::door::ViewMaps;
use crate::refuse;

/// How far a text came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    /// Nothing was done.
    Not,
    /// It is answered.
    Answered,
    /// It is answered, and the client knows that it can go on.
    Ready,
}

impl Session {
    /// Carries out a text that goes to one shard as it is, by what is known of others of its shape; not if it must be
    /// looked at by itself.
    pub(super) async fn run_in_lane(&mut self, text: &str) -> Result<Ran, Stop> {
        if self.embedded || self.transaction.failed || self.own.shard.is_some() || self.is_limited() {
            return Ok(Ran::Not);
        }
        let Some(shape) = Shape::of(text) else { return Ok(Ran::Not) };
        if shape.values().any(refuse::is_suspect) {
            return Ok(Ran::Not);
        }
        let schema = self.current_schema().await?;
        let basis = self.basis(schema.position);
        let known = self.known_lane(&shape, &schema, basis);
        let Some(lane) = &known.lane else { return Ok(Ran::Not) };
        let Some(route) = lane.route(&shape, &ViewMaps(&self.door.router.view())) else {
            return Ok(Ran::Not);
        };
        if !matches!(route, Route::One { .. }) && !self.transaction.is_none() {
            // Whether the transaction may move on from it depends on every word.
            return Ok(Ran::Not);
        }
        let Some(wanted) = Wanted::of(&route) else { return Ok(Ran::Not) };
        self.check_global(lane.analysis())?;
        self.order_locks(&wanted, lane.analysis()).await?;
        let alone = self.transaction.is_none() && self.backend.is_none();
        if alone && matches!(route, Route::One { .. }) {
            let read = self.read_point(&known, &shape, &wanted, &schema).await?;
            if read != Ran::Not {
                return Ok(read);
            }
        }
        if self.transaction.schema.is_none() {
            self.routed_by = Some(self.routed_by(schema));
        }
        let done = self.run_here(&wanted, text, lane.statement(), lane.analysis()).await;
        if matches!(&done, Err(Stop::Refused(error)) if is_outdated(error)) && self.transaction.is_none() {
            // Nothing was sent: it is looked at again as things are now.
            return Ok(Ran::Not);
        }
        self.note_movable(lane.statement(), &route, lane.analysis());
        done.map(|()| Ran::Answered)
    }

    /// What is known of a shape, looked at if need be.
    pub(super) fn known_lane(&self, shape: &Shape<'_>, schema: &Schema, basis: Basis) -> Arc<KnownLane> {
        self.door.cache.lane(shape, basis, |shape, basis| {
            let (search_path, strict) = (&basis.search_path, basis.strict);
            let context = Context { schema, search_path, strict };
            Lane::new(shape, &context).filter(|lane| !refuse::is_suspect(lane.statement().text()))
        })
    }
}
