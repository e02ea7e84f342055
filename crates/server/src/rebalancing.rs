//! Evens out load by itself, within limits and quiet hours; off unless the configuration says otherwise.
//!
//! It must come to rest: what it has moved lately stays where it is, it evens out further than it has to, noise does
//! not count, and after a failure it waits, twice as long each time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyshard_admin::types::BalanceRequest;
use polyshard_catalog::{OpState, ProcedureRecord};
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_planner::forecast::moment;
use polyshard_wire::Shutdown;
use polyshard_workflow::Procedure;

use crate::config::RebalanceConfig;
use crate::operator::{Manner, Operations, now_ms};

/// Procedures looked at to see how the last ones went.
const LOOKED_AT: u32 = 100;
/// The longest wait after failures.
const BACK_OFF_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Fewer requests a second than this on all shards tell nothing of where load is.
const REQUESTS_MIN: u64 = 10;
/// Fewer requests than this since it began to count say nothing yet: one in eight is looked at.
const COUNTED_MIN: u64 = 500;
/// Less data than this on all shards is not worth a move.
const BYTES_MIN: u64 = 16 * 1024 * 1024;
const MINUTE_MS: i64 = 60_000;
const DAY_MINUTES: i64 = 24 * 60;

/// What came of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Round {
    /// All is even enough.
    Fine,
    /// Moves have begun.
    Begun(String),
    /// It waits for something that ends by itself.
    Waits(String),
    /// Somebody should look.
    Hindered(String),
}

impl Round {
    /// What came of it, for people.
    fn words(&self) -> String {
        match self {
            Round::Fine => "it was even enough".to_owned(),
            Round::Begun(what) => what.clone(),
            Round::Waits(why) => format!("it waited, because {why}"),
            Round::Hindered(why) => format!("it was hindered: {why}"),
        }
    }
}

/// What came of the last look, for whoever asks.
#[derive(Default)]
pub(crate) struct Said(Mutex<Option<String>>);

impl Said {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, config: &RebalanceConfig, what: &str) {
        let (from, until) = config.hours;
        let clock = |minutes: u32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        let hours = match i64::from(until - from.min(until)) == DAY_MINUTES {
            true => String::new(),
            false => format!(", between {} and {} UTC", clock(from), clock(until)),
        };
        let says = format!("every {} s{hours}; {what}", config.every.as_secs());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(says);
    }
}

/// Plans and applies again and again, until the shutdown.
pub(crate) async fn run(operations: Arc<Operations>, config: RebalanceConfig, shutdown: Shutdown) {
    if !config.auto {
        return;
    }
    let mut said = Round::Fine;
    operations.by_itself().set(&config, "it has not looked yet");
    loop {
        tokio::select! {
            () = shutdown.started() => return,
            () = tokio::time::sleep(config.every) => {}
        }
        if !is_quiet(now_ms(), config.hours) {
            operations.by_itself().set(&config, "it is not the hour for it");
            continue;
        }
        let round = tokio::select! {
            () = shutdown.started() => return,
            round = once(&operations, &config) => round,
        };
        let what = format!("when it looked at {}, {}", moment(now_ms()), round.words());
        operations.by_itself().set(&config, &what);
        if round != said {
            match &round {
                Round::Fine | Round::Begun(_) => {}
                Round::Waits(why) => tracing::info!(why, "load is not evened out just now"),
                Round::Hindered(why) => tracing::warn!(why, "load is not evened out now"),
            }
        }
        said = round;
    }
}

/// One round: moves of at most one map are begun.
async fn once(operations: &Operations, config: &RebalanceConfig) -> Round {
    let latest = match operations.catalog().procedures(LOOKED_AT).await {
        Ok(latest) => latest,
        Err(error) => return Round::Hindered(error.to_string()),
    };
    if let Some(running) = latest.iter().find(|one| one.state == OpState::Running) {
        return Round::Waits(format!("operation {} ({}) is under way", running.id, running.kind));
    }
    let mut hindered = Vec::new();
    for map in operations.map_names() {
        if let Some(why) = backs_off(&latest, &map, config.every, now_ms()) {
            hindered.push(why);
            continue;
        }
        let asked = BalanceRequest { drain: None, slack: Some(config.slack_percent), by: None };
        let manner = Manner {
            moves_max: config.moves_max,
            goal_percent: Some(config.slack_percent / 2),
            requests_min: REQUESTS_MIN,
            counted_min: COUNTED_MIN,
            bytes_min: BYTES_MIN,
            resting: resting(&latest, &map, config.cooldown, now_ms()),
            spared: drained(&latest, config.cooldown, now_ms()),
        };
        match operations.apply_so(map.clone(), asked, &manner).await {
            Ok(answer) => {
                if let Some(id) = answer.procedure {
                    let moves = answer.moves.len();
                    tracing::info!(%map, procedure = id, moves, "evening out load");
                    return Round::Begun(format!("{moves} moves of map {map} were begun"));
                }
            }
            // Another map may be planned all the same.
            Err(problem) => hindered.push(format!("map {map}: {}", problem.message)),
        }
    }
    if hindered.is_empty() { Round::Fine } else { Round::Hindered(hindered.join("; ")) }
}

/// The attempts at a map, the latest first.
fn attempts<'a>(
    latest: &'a [ProcedureRecord],
    map: &'a MapName,
) -> impl Iterator<Item = &'a ProcedureRecord> {
    let mut attempts: Vec<&ProcedureRecord> =
        latest.iter().filter(|one| one.kind == "rebalance" && one.map.as_ref() == Some(map)).collect();
    attempts.sort_by_key(|one| std::cmp::Reverse(one.started_ms));
    attempts.into_iter()
}

/// Why a map is left alone for a while: the last attempts have failed.
fn backs_off(latest: &[ProcedureRecord], map: &MapName, every: Duration, now_ms: i64) -> Option<String> {
    let failures = attempts(latest, map).take_while(|one| one.state == OpState::RolledBack).count();
    let last = attempts(latest, map).next().filter(|_| failures > 0)?;
    let doubled = every.saturating_mul(1 << failures.min(20));
    let wait = doubled.min(BACK_OFF_MAX.max(every));
    let until_ms = last.ended_ms.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
    (now_ms < until_ms).then(|| {
        format!(
            "map {map}: the last attempt failed: {}; it is tried again after {}; 'polyshard rebalance {map} --plan' \
             shows whether there is still anything to do",
            last.message.as_deref().unwrap_or("no reason was recorded"),
            moment(until_ms)
        )
    })
}

/// What was moved lately, and stays where it is for now.
fn resting(latest: &[ProcedureRecord], map: &MapName, cooldown: Duration, now_ms: i64) -> Vec<KeyRange> {
    // Of one that failed, what it has not come to is tried again after a while.
    let lately = attempts(latest, map).filter(|one| is_late(one, cooldown, now_ms));
    // One that cannot be read is of a newer program, which lets it rest by itself.
    let read = lately.filter_map(|one| Procedure::read(&one.body).ok());
    read.flat_map(|procedure| procedure.moved().cloned().collect::<Vec<_>>()).collect()
}

/// Shards that were emptied lately, of whatever map: somebody is about to take them out.
fn drained(latest: &[ProcedureRecord], cooldown: Duration, now_ms: i64) -> Vec<ShardId> {
    let lately = latest.iter().filter(|one| is_late(one, cooldown, now_ms));
    lately.filter_map(|one| Procedure::read(&one.body).ok()?.drains().cloned()).collect()
}

fn is_late(one: &ProcedureRecord, cooldown: Duration, now_ms: i64) -> bool {
    let since = now_ms.saturating_sub(i64::try_from(cooldown.as_millis()).unwrap_or(i64::MAX));
    one.ended_ms >= since
}

/// Whether a moment is within the hours, which may go over midnight; both are minutes of the day in UTC.
pub(crate) fn is_quiet(now_ms: i64, (from, until): (u32, u32)) -> bool {
    let now = (now_ms / MINUTE_MS).rem_euclid(DAY_MINUTES);
    let (from, until) = (i64::from(from), i64::from(until));
    if from <= until { (from..until).contains(&now) } else { now >= from || now < until }
}

#[cfg(test)]
mod tests {
    use polyshard_map::KeyBytes;
    use polyshard_workflow::Task;

    use super::*;

    #[test]
    fn what_came_of_it_is_told_with_how_often_and_when_it_is_done() {
        let said = Said::default();
        assert_eq!(said.get(), None);
        let config = |hours| RebalanceConfig {
            auto: true,
            every: Duration::from_secs(3_600),
            hours,
            cooldown: Duration::ZERO,
            moves_max: 1,
            slack_percent: 20,
        };
        said.set(&config((0, 24 * 60)), &Round::Fine.words());
        assert_eq!(said.get().as_deref(), Some("every 3600 s; it was even enough"));
        said.set(&config((22 * 60, 5 * 60 + 30)), &Round::Waits("a move is under way".to_owned()).words());
        let wanted = "every 3600 s, between 22:00 and 05:30 UTC; it waited, because a move is under way";
        assert_eq!(said.get().as_deref(), Some(wanted));
    }

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

    fn record(state: OpState, started_ms: i64) -> ProcedureRecord {
        ProcedureRecord {
            id: polyshard_shard::OpId::new(uuid::Uuid::from_u128(started_ms.unsigned_abs().into())),
            kind: "rebalance".to_owned(),
            map: Some(tenants()),
            body: serde_json::Value::Null,
            step: String::new(),
            state,
            wish: polyshard_catalog::Wish::Run,
            token: 1,
            started_ms,
            ended_ms: started_ms,
            message: Some("no room".to_owned()),
        }
    }

    fn tenants() -> MapName {
        MapName::new("tenants").unwrap()
    }

    #[test]
    fn after_failures_it_waits_twice_as_long_each_time_and_then_tries_again() {
        let every = Duration::from_secs(10);
        let waits = |latest: &[ProcedureRecord], now_ms| backs_off(latest, &tenants(), every, now_ms);
        assert_eq!(waits(&[], 0), None);
        let once = [record(OpState::RolledBack, 100_000)];
        let why = waits(&once, 119_999).unwrap();
        assert!(
            why.contains("no room") && why.contains("1970-01-01 00:02:00") && why.contains("--plan"),
            "{why}"
        );
        assert_eq!(waits(&once, 120_000), None, "not for ever, whether or not somebody has looked");
        let twice = [record(OpState::RolledBack, 100_000), record(OpState::RolledBack, 200_000)];
        assert!(waits(&twice, 239_999).is_some());
        assert_eq!(waits(&twice, 240_000), None);
        let mut mended = twice.to_vec();
        mended.push(record(OpState::Done, 210_000));
        assert_eq!(waits(&mended, 210_001), None);
        let other = MapName::new("others").unwrap();
        assert_eq!(backs_off(&once, &other, every, 100_001), None, "other maps go on");
        let many: Vec<ProcedureRecord> = (0..90).map(|at| record(OpState::RolledBack, at)).collect();
        assert_eq!(waits(&many, 89 + i64::try_from(BACK_OFF_MAX.as_millis()).unwrap()), None);
    }

    #[test]
    fn what_was_moved_rests_for_its_time() {
        let [first, second] = [7, 8].map(|byte| KeyRange::point(KeyBytes::new(vec![byte])));
        let shard = ShardId::new("s1").unwrap();
        let carry = |range: &KeyRange| Task::Move {
            map: tenants(),
            range: range.clone(),
            to: shard.clone(),
            keep_ms: 0,
            arrives: None,
            operation: None,
            why: None,
        };
        let both = || Procedure::new(vec![carry(&first), carry(&second)]).draining(Some(shard.clone()));
        let (mut done, mut failed) = (both(), both());
        done.advance();
        done.advance();
        failed.advance();
        failed.give_up("no room".to_owned());
        let cooldown = Duration::from_secs(10);
        for (state, procedure, rest) in [
            (OpState::Done, done, vec![first.clone(), second.clone()]),
            (OpState::RolledBack, failed, vec![first.clone()]),
        ] {
            // It counts from its end.
            let mut moved = record(state, 5_000);
            (moved.body, moved.ended_ms) = (procedure.write(), 50_000);
            let moved = [moved];
            assert_eq!(resting(&moved, &tenants(), cooldown, 60_000), rest);
            assert_eq!(resting(&moved, &tenants(), cooldown, 60_001), []);
            assert_eq!(drained(&moved, cooldown, 60_000), std::slice::from_ref(&shard));
            assert_eq!(drained(&moved, cooldown, 60_001), []);
        }
    }
}
