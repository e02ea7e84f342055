//! Asks many shards at once: bounded, with deadlines, complete or knowingly partial.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use polyshard_engine as engine;
use polyshard_map::{KeyRange, MapName, ShardId};
use tokio::time::Instant;

use crate::error::RouterError;
use crate::gate::Access;
use crate::router::Router;
use crate::ticket::Ticket;

/// What to do when a shard fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All shards must answer, or the whole is an error.
    Complete,
    /// What answers is given, with the failed shards listed.
    Partial,
}

/// Limits of a fan-out.
#[derive(Debug, Clone, Copy)]
pub struct FanOutOptions {
    /// Shards asked at once.
    pub concurrency_max: usize,
    /// How long one shard may take, retries included.
    pub shard_deadline: Duration,
    /// How long the whole may take.
    pub overall_deadline: Duration,
    /// Tries on one shard, for failures that provably did nothing.
    pub tries_max: u32,
    /// What to do when a shard fails.
    pub policy: Policy,
}

impl Default for FanOutOptions {
    fn default() -> FanOutOptions {
        FanOutOptions {
            concurrency_max: 64,
            shard_deadline: Duration::from_secs(30),
            overall_deadline: Duration::from_secs(300),
            tries_max: 3,
            policy: Policy::Complete,
        }
    }
}

/// What the shards answered.
#[derive(Debug)]
pub struct FanOut<T> {
    /// Answers, in the order of shard names.
    pub answers: Vec<(ShardId, T)>,
    /// Failures, in the order of shard names; empty unless partial answers were asked for.
    pub failed: Vec<(ShardId, String)>,
}

impl Router {
    /// Runs work on every shard that has a part of the range of a map.
    pub async fn fan_out<T>(
        &self,
        map: &MapName,
        range: &KeyRange,
        access: Access,
        options: FanOutOptions,
        work: impl AsyncFn(&Ticket) -> Result<T, engine::Error>,
    ) -> Result<FanOut<T>, RouterError> {
        let overall = Instant::now() + options.overall_deadline;
        let parts = tokio::time::timeout_at(overall, self.parts(map, range, access, options.policy));
        let parts = parts.await.map_err(|_| engine::Error::Timeout {
            message:
                "the shards could not all be reached within the deadline of the fan-out; try again later"
                    .into(),
        })??;
        let asked = parts.len();
        let work = &work;
        let ask = |(shard, ticket): (ShardId, Result<Ticket, String>)| async move {
            let answer = match ticket {
                Ok(ticket) => one(&ticket, options, overall, work).await,
                Err(why) => Err(why),
            };
            (shard, answer)
        };
        let mut running = stream::iter(parts).map(ask).buffer_unordered(options.concurrency_max.max(1));
        let (mut answers, mut failed) = (Vec::new(), Vec::new());
        while let Some((shard, answer)) = running.next().await {
            match answer {
                Ok(answer) => answers.push((shard, answer)),
                Err(why) => {
                    failed.push((shard, why));
                    if options.policy == Policy::Complete {
                        // The rest is of no use: dropping it ends it.
                        break;
                    }
                }
            }
        }
        drop(running);
        answers.sort_by(|a, b| a.0.cmp(&b.0));
        failed.sort_by(|a, b| a.0.cmp(&b.0));
        if !failed.is_empty() && (options.policy == Policy::Complete || answers.is_empty()) {
            return Err(RouterError::FanOut { asked, failed });
        }
        Ok(FanOut { answers, failed })
    }

    /// Tickets for all shards concerned. Under the partial policy a shard that cannot be entered is listed; it
    /// does not fail the others.
    async fn parts(
        &self,
        map: &MapName,
        range: &KeyRange,
        access: Access,
        policy: Policy,
    ) -> Result<Vec<(ShardId, Result<Ticket, String>)>, RouterError> {
        match self.enter_range(map, range, access).await {
            Ok(tickets) => {
                Ok(tickets.into_iter().map(|ticket| (ticket.shard().clone(), Ok(ticket))).collect())
            }
            Err(error @ RouterError::NoSuchMap(_)) => Err(error),
            Err(error) if policy == Policy::Complete => Err(error),
            Err(_) => {
                let view = self.view();
                let known = view.maps.get(map).ok_or_else(|| RouterError::NoSuchMap(map.clone()))?;
                let mut parts = Vec::new();
                for shard in known.map.shards_for(range) {
                    let ticket = self.enter_shard(map, range, &shard, access).await;
                    parts.push((shard, ticket.map_err(|error| error.to_string())));
                }
                Ok(parts)
            }
        }
    }
}

/// One shard's answer, tried again while that is safe and there is time.
async fn one<T>(
    ticket: &Ticket,
    options: FanOutOptions,
    overall: Instant,
    work: &impl AsyncFn(&Ticket) -> Result<T, engine::Error>,
) -> Result<T, String> {
    let deadline = overall.min(Instant::now() + options.shard_deadline);
    let mut tries = 0;
    loop {
        tries += 1;
        match tokio::time::timeout_at(deadline, work(ticket)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if error.is_retryable() && tries < options.tries_max => {
                tracing::debug!(shard = %ticket.shard(), %error, tries, "fan-out tries a shard again");
                let pause = Duration::from_millis(10 << tries);
                if tokio::time::timeout_at(deadline, tokio::time::sleep(pause)).await.is_err() {
                    return Err(format!("no answer within the deadline; last: {error}"));
                }
            }
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("no answer within the deadline".into()),
        }
    }
}
