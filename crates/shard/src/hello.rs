//! The introduction of every database session: it names the router, and learns what has left the shard.
//!
//! The session first takes an advisory lock that carries the router's number, then reads what the shard
//! demands. A fence is raised in the other order (first the demand is committed, then the sessions are
//! listed), so a session is either in the list or knows of the fence.

use std::sync::Arc;

use polyshard_engine::{Dialect, Error, HookFuture, SessionHandle, SessionHook, Statement};
use polyshard_map::ShardId;
use uuid::Uuid;

use crate::demand;
use crate::sql_local::{
    read_departure, read_fence, read_meta, select_departures, select_fences, select_meta,
};
use crate::{FenceEpoch, HelloReply, Learnt, Meta, RouterId, ShardError};

/// The first half of the advisory lock that names a router: "psh" and a version.
pub(crate) const SESSION_LOCK_CLASS: i64 = 0x7073_6801;

/// The router's side of an introduction.
pub trait HelloState: Send + Sync {
    /// Who it is.
    fn router(&self) -> RouterId;
    /// Up to which number it knows the shard's fences and departures.
    fn known(&self, shard: &ShardId) -> FenceEpoch;
    /// The incarnation that it believes the shard to have; none if any is right.
    fn incarnation(&self, shard: &ShardId) -> Option<Uuid>;
    /// Takes in what the shard says to a new session, before it is used. An error refuses the session. A fence may
    /// have been judged clear before this session was there, so whoever is in its ranges must not use it.
    fn learn(&self, shard: &ShardId, reply: HelloReply) -> Result<Learnt, ShardError>;
    /// Takes in what the shard says otherwise: the sessions there are stay as they are.
    fn hear(&self, shard: &ShardId, reply: HelloReply) -> Result<Learnt, ShardError>;
}

/// Introduces every session of one router to one shard.
pub struct Session {
    shard: ShardId,
    state: Arc<dyn HelloState>,
}

impl Session {
    /// For the sessions of a router to a shard.
    pub fn new(shard: ShardId, state: Arc<dyn HelloState>) -> Session {
        Session { shard, state }
    }

    async fn hello(&self, session: &mut SessionHandle<'_>) -> Result<(), ShardError> {
        let dialect = session.dialect();
        if dialect == Dialect::Postgres {
            let sql = format!(
                "SELECT pg_advisory_lock_shared({SESSION_LOCK_CLASS}, {})",
                self.state.router().get()
            );
            session.run(Statement::new(sql)).await?;
        }
        loop {
            let known = self.state.known(&self.shard);
            let before = self.meta(session).await?;
            let departures = session.run(select_departures(dialect, known)).await?;
            let fences = session.run(select_fences(dialect)).await?;
            let demand = session.run(demand::select(dialect, self.state.router())).await?;
            // Fences and departures are of one moment if their number has not moved.
            if self.meta(session).await?.fence_epoch != before.fence_epoch {
                continue;
            }
            let reply = HelloReply {
                since: known,
                incarnation: before.incarnation,
                fence_epoch: before.fence_epoch,
                pruned_epoch: before.pruned_epoch,
                departures: departures.rows().iter().map(read_departure).collect::<Result<_, _>>()?,
                fences: fences.rows().iter().map(read_fence).collect::<Result<_, _>>()?,
                demand: demand::read(&demand)?,
            };
            if self.state.learn(&self.shard, reply)? == Learnt::Known {
                return Ok(());
            }
        }
    }

    /// The shard's identity, if it is the one that the router means.
    async fn meta(&self, session: &mut SessionHandle<'_>) -> Result<Meta, ShardError> {
        let rows = session.run(select_meta(session.dialect())).await?;
        let meta = read_meta(rows.first().ok_or(ShardError::NotAShard)?)?;
        if meta.shard != self.shard {
            let (wanted, found) = (format!("shard {}", self.shard), format!("shard {}", meta.shard));
            return Err(ShardError::WrongDatabase { wanted, found });
        }
        if self.state.incarnation(&self.shard).is_some_and(|believed| believed != meta.incarnation) {
            return Err(ShardError::IncarnationChanged { shard: self.shard.clone() });
        }
        Ok(meta)
    }
}

impl SessionHook for Session {
    fn on_session<'a>(&'a self, session: &'a mut SessionHandle<'_>) -> HookFuture<'a> {
        Box::pin(async move {
            self.hello(session).await.map_err(|error| match error {
                ShardError::Engine(error) => error,
                other => Error::SessionRefused(Arc::new(other)),
            })
        })
    }
}
