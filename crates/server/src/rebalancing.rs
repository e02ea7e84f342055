//! Evens out load by itself, within limits and quiet hours; off unless the configuration says otherwise.

use std::sync::Arc;

use polyshard_admin::Problem;
use polyshard_admin::types::BalanceRequest;
use polyshard_catalog::{OpState, ProcedureRecord};
use polyshard_wire::Shutdown;

use crate::config::RebalanceConfig;
use crate::operator::{Operations, now_ms};
use crate::problem;

/// Procedures looked at to see how the last one went.
const LOOKED_AT: u32 = 100;
const MINUTE_MS: i64 = 60_000;
const DAY_MINUTES: i64 = 24 * 60;

/// Plans and applies again and again, until the shutdown.
pub(crate) async fn run(operations: Arc<Operations>, config: RebalanceConfig, shutdown: Shutdown) {
    if !config.auto {
        return;
    }
    let mut said = String::new();
    loop {
        tokio::select! {
            () = shutdown.started() => return,
            () = tokio::time::sleep(config.every) => {}
        }
        if !is_quiet(now_ms(), config.hours) {
            continue;
        }
        let round = tokio::select! {
            () = shutdown.started() => return,
            round = once(&operations, &config) => round,
        };
        let why = match round {
            Ok(None) => String::new(),
            Ok(Some(why)) => why,
            Err(problem) => problem.message,
        };
        if !why.is_empty() && why != said {
            tracing::warn!(why, "load is not evened out now");
        }
        said = why;
    }
}

/// One round: at most one map. Answers why nothing may be done, if so.
async fn once(operations: &Operations, config: &RebalanceConfig) -> Result<Option<String>, Problem> {
    let latest = operations.catalog().procedures(LOOKED_AT).await;
    let latest = latest.map_err(|error| problem::of_catalog(&error))?;
    if let Some(why) = hindrance(&latest) {
        return Ok(Some(why));
    }
    let asked = BalanceRequest { drain: None, slack: Some(config.slack_percent), by: None };
    for map in operations.map_names() {
        let answer = operations.apply_some(map, asked.clone(), config.moves_max).await?;
        if let Some(id) = answer.procedure {
            tracing::info!(map = %answer.map, procedure = id, moves = answer.moves.len(), "evening out load");
            return Ok(None);
        }
    }
    Ok(None)
}

/// Never two at once; and after one that failed somebody has to look first.
fn hindrance(latest: &[ProcedureRecord]) -> Option<String> {
    if let Some(running) = latest.iter().find(|one| one.state == OpState::Running) {
        return Some(format!("operation {} ({}) is under way", running.id, running.kind));
    }
    let last = latest.iter().filter(|one| one.kind == "rebalance").max_by_key(|one| one.started_ms)?;
    (last.state == OpState::RolledBack).then(|| {
        format!(
            "the last time it failed: {}; when that is put right, say 'polyshard rebalance {} --apply'",
            last.message.as_deref().unwrap_or("no reason was recorded"),
            last.map.as_ref().map_or("MAP", |map| map.as_str())
        )
    })
}

/// Whether a moment is within the hours, which may go over midnight; both are minutes of the day in UTC.
fn is_quiet(now_ms: i64, (from, until): (u32, u32)) -> bool {
    let now = (now_ms / MINUTE_MS).rem_euclid(DAY_MINUTES);
    let (from, until) = (i64::from(from), i64::from(until));
    if from <= until { (from..until).contains(&now) } else { now >= from || now < until }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64, minute: i64) -> i64 {
        20_000 * DAY_MINUTES * MINUTE_MS + (hour * 60 + minute) * MINUTE_MS
    }

    #[test]
    fn quiet_hours_may_go_over_midnight() {
        let night = (22 * 60, 5 * 60 + 30);
        assert!(is_quiet(at(23, 0), night) && is_quiet(at(0, 0), night) && is_quiet(at(5, 29), night));
        assert!(!is_quiet(at(5, 30), night) && !is_quiet(at(21, 59), night));
        let noon = (12 * 60, 13 * 60);
        assert!(is_quiet(at(12, 0), noon) && !is_quiet(at(13, 0), noon));
        let always = (0, 24 * 60);
        assert!(is_quiet(at(0, 0), always) && is_quiet(at(23, 59), always));
    }

    fn record(kind: &str, state: OpState, started_ms: i64) -> ProcedureRecord {
        ProcedureRecord {
            id: polyshard_shard::OpId::new(uuid::Uuid::from_u128(started_ms.unsigned_abs().into())),
            kind: kind.to_owned(),
            map: None,
            body: serde_json::Value::Null,
            step: String::new(),
            state,
            wish: polyshard_catalog::Wish::Run,
            token: 1,
            started_ms,
            message: Some("no room".to_owned()),
        }
    }

    #[test]
    fn it_waits_for_others_and_stops_after_a_failure_until_somebody_has_made_one_that_works() {
        assert_eq!(hindrance(&[]), None);
        assert!(hindrance(&[record("drain", OpState::Running, 1)]).is_some());
        let failed = record("rebalance", OpState::RolledBack, 5);
        assert!(hindrance(std::slice::from_ref(&failed)).is_some_and(|why| why.contains("no room")));
        assert_eq!(hindrance(&[failed.clone(), record("rebalance", OpState::Done, 9)]), None);
        assert_eq!(hindrance(&[record("isolate", OpState::RolledBack, 9)]), None);
    }
}
