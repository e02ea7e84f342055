//! New data that flows to another shard when the shard of a map's last range is full: no data moves, and reads look in
//! both.

use polyshard_admin::convert::range_view;
use polyshard_admin::types::{SpillAnswer, SpillRequest};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::{CatalogError, ChangeRequest};
use polyshard_engine::Statement;
use polyshard_map::{Change, Entry, Key, KeyBytes, KeyRange, MapDefinition, MapName, Scheme, ShardId, State};
use polyshard_planner::measure;
use polyshard_planner::plan::Place;
use polyshard_shard::{Placement, Shard};
use serde::{Deserialize, Serialize};

use super::archive::ArchiveDoor;
use super::now_ms;
use super::room::on;
use crate::problem;

/// The kind of these policies.
const POLICY: &str = "spill";
/// How often a boundary is chosen anew, each time further above the highest key: writers go on meanwhile.
const TRIES: u32 = 12;
/// How often the same map is looked at, by all processes together.
const EVERY_MS: i64 = 10_000;

/// What a policy says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flow {
    /// The shards, in order; those with the most room, if none are named.
    to: Vec<ShardId>,
}

fn fail(error: CatalogError) -> Problem {
    problem::of_catalog(&error)
}

impl ArchiveDoor {
    pub(super) async fn spill_map(&self, map: MapName, asked: SpillRequest) -> Result<SpillAnswer, Problem> {
        let catalog = &self.operations.catalog;
        let (last, _) = self.last_range(&map).await?;
        for shard in &asked.to {
            self.operations.require_shard(shard).await?;
        }
        let mut policies = catalog.policies(POLICY).await.map_err(fail)?;
        policies.retain(|policy| policy.map == map);
        let answer = |auto: bool, says: String| SpillAnswer {
            map: map.clone(),
            auto,
            range: None,
            from: Some(last.shard.clone()),
            to: None,
            says,
        };
        match asked.auto {
            None => {}
            Some(_) if asked.dry_run => {}
            Some(wanted) => {
                for policy in &policies {
                    catalog.remove_policy(policy.id, POLICY).await.map_err(fail)?;
                }
                if !wanted {
                    return Ok(answer(false, format!("new data of map {map} stays where its last range is")));
                }
                let body = serde_json::to_value(Flow { to: asked.to.clone() }).expect("a list of names");
                catalog.add_policy(&map, POLICY, &body).await.map_err(fail)?;
                tracing::info!(%map, "new data flows to other shards by itself");
                self.wake.notify_one();
                let says = "when its shard is full, new data flows to another".to_owned();
                return Ok(answer(true, says));
            }
        }
        let auto = !policies.is_empty();
        let target = self.target(&last, &asked.to).await?;
        if asked.dry_run {
            let says = format!("new data above the highest key in use would go to shard {target}");
            return Ok(SpillAnswer { to: Some(target), ..answer(auto, says) });
        }
        let range = self.spill_to(&map, &target).await?;
        let known = self.operations.known(&map).await?;
        Ok(SpillAnswer {
            range: Some(range_view(known.map.definition(), &range)),
            to: Some(target.clone()),
            ..answer(auto, format!("new data from there on goes to shard {target}; nothing was moved"))
        })
    }

    /// The last range of a range map, if it is open, online and held by nobody.
    async fn last_range(&self, map: &MapName) -> Result<(Entry, MapDefinition), Problem> {
        self.operations.see().await?;
        let known = self.operations.known(map).await?;
        let definition = known.map.definition().clone();
        let conflict = |message: String, remedy: &str| {
            Err(Problem::new(ErrorCode::Conflict, message).with_remedy(remedy))
        };
        if !matches!(definition.scheme(), Scheme::Range) {
            let message = format!("map {map} is a {} map: it has no last range", definition.scheme().kind());
            return Err(Problem::new(ErrorCode::Unsupported, message).with_remedy(
                "a new key of a list map goes where 'polyshard map add --to' says; a hash map is rebalanced",
            ));
        }
        let last = known.map.entries(&KeyRange::all()).last();
        match last {
            None => conflict(format!("map {map} has no ranges"), "add one with 'polyshard map add'"),
            Some(last) if last.range.hi().is_some() => {
                let hi = last.range.hi().map(|hi| definition.describe_bound(hi)).unwrap_or_default();
                conflict(
                    format!("the last range of map {map} ends at {hi}"),
                    "append the next one to another shard with 'polyshard map add'",
                )
            }
            Some(last) if last.state != State::Online => {
                conflict(format!("the last range of map {map} is {}", last.state), "set it online first")
            }
            Some(last) if last.lock.as_ref().is_some_and(|lock| lock.holds_at(now_ms())) => {
                conflict(format!("the last range of map {map} is held"), "wait until it is let go")
            }
            Some(last) => Ok((last, definition)),
        }
    }

    /// The shard that new data goes to: the first that has room, or the one with the most.
    async fn target(&self, last: &Entry, to: &[ShardId]) -> Result<ShardId, Problem> {
        let places = self.places().await?;
        let fits = |place: &&Place| {
            let entries = place.entries_max.is_none_or(|most| place.entries < most);
            place.shard != last.shard && place.takes && entries && !is_full(place)
        };
        let tier = places.iter().find(|place| place.shard == last.shard).map(|place| place.seen.clone());
        let found = match to {
            [] => places
                .iter()
                .filter(fits)
                .filter(|place| tier.as_ref().is_none_or(|seen| *seen == place.seen))
                .min_by_key(|place| (std::cmp::Reverse(place.room()), place.bytes)),
            named => named.iter().find_map(|id| places.iter().filter(fits).find(|place| place.shard == *id)),
        };
        found.map(|place| place.shard.clone()).ok_or_else(|| {
            Problem::new(ErrorCode::Conflict, "no other shard is online and has room for new data")
                .with_remedy(
                    "add a shard with 'polyshard shard add', of the same region and tier, or name one",
                )
        })
    }

    async fn places(&self) -> Result<Vec<Place>, Problem> {
        let shards = self.operations.catalog.shards().await.map_err(fail)?;
        Ok(measure::places(&self.operations.router, &shards).await)
    }

    /// Gives everything above the highest key in use to another shard: the fence sees to it that nothing is there.
    async fn spill_to(&self, map: &MapName, to: &ShardId) -> Result<KeyRange, Problem> {
        self.operations.journal.ready(to).await.map_err(|error| super::schema::of_journal(&error))?;
        let mut why = None;
        for attempt in 0..TRIES {
            let (last, definition) = self.last_range(map).await?;
            let shard = self.operations.opened(&last.shard).await?;
            let highest = highest(&shard, &definition, &last.range).await?;
            let Some(at) = above(&definition, &last.range, highest.as_ref(), attempt) else {
                let message = format!("there are no keys above the highest in use of map {map}");
                return Err(Problem::new(ErrorCode::Conflict, message));
            };
            let range =
                KeyRange::new(at, None).map_err(|error| Problem::invalid("range", error.to_string()))?;
            let change = Change::Assign { range: range.clone(), to: to.clone() };
            let request = ChangeRequest { map: map.clone(), change, if_version: None, by: None };
            match self.operations.driver.change(&request).await {
                Ok(_) => {
                    self.operations.see().await?;
                    let says = definition.describe_range(&range);
                    tracing::info!(%map, from = %last.shard, %to, range = says, "new data goes to another shard");
                    return Ok(range);
                }
                Err(error) => {
                    let problem = fail(error);
                    // Somebody has written above it meanwhile.
                    if problem.code != ErrorCode::HoldsData {
                        return Err(problem);
                    }
                    why = Some(problem);
                }
            }
        }
        Err(why.unwrap_or_else(|| Problem::unavailable("writers were always ahead; try again")))
    }

    /// Lets new data of the maps whose policy says so flow on, if the shard of their last range is full.
    pub(crate) async fn spill_full(&self) {
        let policies = match self.operations.catalog.policies(POLICY).await {
            Ok(policies) => policies,
            Err(error) => {
                tracing::debug!(%error, "where new data flows cannot be looked at just now");
                return;
            }
        };
        for policy in policies {
            let claimed = self.operations.catalog.claim_policy(policy.id, now_ms() - EVERY_MS).await;
            if !claimed.unwrap_or(false) {
                continue;
            }
            let Ok(flow) = serde_json::from_value::<Flow>(policy.body.clone()) else {
                tracing::warn!(policy = %policy.id, "a policy of a newer program is left alone");
                continue;
            };
            if let Err(problem) = self.spill_if_full(&policy.map, &flow).await {
                tracing::warn!(map = %policy.map, %problem, "new data cannot flow to another shard");
            }
        }
    }

    async fn spill_if_full(&self, map: &MapName, flow: &Flow) -> Result<(), Problem> {
        if self.operations.known(map).await.is_err() {
            return Ok(());
        }
        let (last, _) = self.last_range(map).await?;
        let places = self.places().await?;
        if !places.iter().any(|place| place.shard == last.shard && is_full(place)) {
            return Ok(());
        }
        let target = self.target(&last, &flow.to).await?;
        self.spill_to(map, &target).await.map(drop)
    }
}

/// Whether a shard has no room but what is kept free of its limit.
fn is_full(place: &Place) -> bool {
    place.room() == Some(0)
}

/// The highest placement in use in a range.
async fn highest(
    shard: &Shard,
    definition: &MapDefinition,
    range: &KeyRange,
) -> Result<Option<KeyBytes>, Problem> {
    let wrong = |error| on(shard.id(), error);
    let mut highest: Option<KeyBytes> = None;
    let db = shard.carrier().await.map_err(wrong)?;
    for dataset in shard.tables(definition.name()).await.map_err(wrong)? {
        if shard.shape(&dataset.table).await.map_err(wrong)?.is_none() {
            continue;
        }
        let dialect = shard.dialect();
        let placement = dataset.placement.expression(dialect, definition, "").map_err(wrong)?;
        let within = dataset.placement.in_ranges(dialect, definition, std::slice::from_ref(range), "");
        let within = within.map_err(wrong)?;
        // A column that both orders agree on leads by its index.
        let order = match (&dataset.placement, definition.key_type()) {
            (Placement::Key(columns), key) if columns.len() == 1 && is_ordered(key) => columns[0].clone(),
            _ => placement.clone(),
        };
        let rows = dataset.and_own_rows(dialect);
        let sql = format!(
            "SELECT {placement} FROM {} WHERE {within}{rows} ORDER BY {order} DESC LIMIT 1",
            dataset.table
        );
        let mut scan = db.scan(Statement::new(sql), 1).await.map_err(|error| on(shard.id(), error.into()))?;
        while let Some(page) = scan.next().await.map_err(|error| on(shard.id(), error.into()))? {
            for row in page.rows() {
                let bytes = row.blob(0).map_err(|error| on(shard.id(), error.into()))?;
                highest = highest.max(Some(KeyBytes::new(bytes.to_vec())));
            }
        }
    }
    Ok(highest)
}

fn is_ordered(key: &polyshard_map::KeyType) -> bool {
    use polyshard_map::KeyType;
    matches!(key, KeyType::Int | KeyType::BigInt | KeyType::Date | KeyType::Timestamp)
}

/// A bound above the highest key in use, further each time it is tried; none if there is none.
fn above(
    definition: &MapDefinition,
    range: &KeyRange,
    highest: Option<&KeyBytes>,
    attempt: u32,
) -> Option<KeyBytes> {
    let key_type = definition.key_type();
    let lead = 10_i64.checked_pow(attempt)?;
    let further = |key: &Key| -> Option<Key> {
        Some(match key {
            Key::Int(number) => Key::Int(number.checked_add(i32::try_from(lead).ok()?)?),
            Key::BigInt(number) => Key::BigInt(number.checked_add(lead)?),
            Key::Date(day) => Key::Date(day.checked_add(1 + i32::try_from(attempt).ok()?)?),
            // From a microsecond to days.
            Key::Timestamp(micros) => Key::Timestamp(micros.checked_add(lead)?),
            _ => return None,
        })
    };
    // An empty range goes as a whole.
    let Some(highest) = highest else { return Some(range.lo().clone()) };
    let key = key_type.decode(highest.as_slice()).ok()?;
    let first = match &key {
        Key::Tuple(parts) => parts.first()?,
        single => single,
    };
    // Keys that do not count have no next but the one right after.
    if !matches!(first, Key::Int(_) | Key::BigInt(_) | Key::Date(_) | Key::Timestamp(_)) {
        return Some(highest.successor());
    }
    let next = match &key {
        Key::Tuple(_) => Key::Tuple(vec![further(first)?]),
        _ => further(first)?,
    };
    key_type.encode_bound(&next).ok()
}

#[cfg(test)]
mod tests {
    use polyshard_map::KeyType;

    use super::*;

    // D6: each try is further above, so that one of them is ahead of the writers.
    #[test]
    fn a_bound_is_above_the_highest_key_and_further_each_time() {
        let of = |key: KeyType| MapDefinition::new(MapName::new("m").unwrap(), key, Scheme::Range).unwrap();
        let shown = |definition: &MapDefinition, key: &Key, attempt| {
            let highest = definition.key_type().encode(key).unwrap();
            let at = above(definition, &KeyRange::all(), Some(&highest), attempt);
            at.map(|at| definition.describe_bound(&at))
        };
        let numbers = of(KeyType::BigInt);
        assert_eq!(shown(&numbers, &Key::BigInt(41), 0).as_deref(), Some("42"));
        assert_eq!(shown(&numbers, &Key::BigInt(41), 3).as_deref(), Some("1041"));
        assert_eq!(shown(&numbers, &Key::BigInt(i64::MAX), 0), None);
        let pairs = of(KeyType::tuple(vec![KeyType::Int, KeyType::Text]).unwrap());
        let key = Key::Tuple(vec![Key::Int(7), Key::Text("x".to_owned())]);
        assert_eq!(shown(&pairs, &key, 0).as_deref(), Some("[8]"));
        let days = of(KeyType::Date);
        assert_eq!(shown(&days, &Key::Date(0), 1).as_deref(), Some("\"2000-01-03\""));
        let texts = of(KeyType::Text);
        assert_eq!(shown(&texts, &Key::Text("acme".to_owned()), 2).as_deref(), Some("after \"acme\""));
    }
}
