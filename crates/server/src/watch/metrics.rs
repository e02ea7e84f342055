//! The page of metrics. Labels are shards, doors, maps and words of protocols, never keys: their number is bounded.

use polyshard_admin::types::OperationState;
use polyshard_meter::{Kind, Text};
use polyshard_router::meter::ShardCounts;

use super::{ASK_WAIT, Watcher, process};

impl Watcher {
    pub(super) async fn metrics_text(&self) -> String {
        let mut page = Text::default();
        page.metric("polyshard_build_info", Kind::Gauge, "The version that runs.");
        page.sample("polyshard_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.router_metrics(&mut page);
        self.shard_metrics(&mut page);
        self.engine_metrics(&mut page);
        self.door_metrics(&mut page);
        self.map_metrics(&mut page);
        self.span_metrics(&mut page);
        self.check_metrics(&mut page);
        self.catalog_metrics(&mut page).await;
        process::write(&mut page);
        page.finish()
    }

    fn router_metrics(&self, page: &mut Text) {
        let (status, meter) = (self.router.status(), self.router.meter());
        let counters = [
            ("polyshard_router_requests_total", "Requests that named keys.", meter.entered()),
            (
                "polyshard_router_waits_total",
                "Requests that waited for a range being switched.",
                meter.waits.get(),
            ),
            ("polyshard_router_retries_total", "Calls that were tried again.", meter.retries.get()),
            (
                "polyshard_router_over_quota_total",
                "Requests that were refused because there were more than their quota allows.",
                self.operations.host().quotas().rejected(),
            ),
        ];
        for (name, help, value) in counters {
            page.metric(name, Kind::Counter, help);
            page.sample(name, &[], value);
        }
        let gauges = [
            ("polyshard_router_tickets", "Requests that are on a shard now.", status.tickets as u64),
            ("polyshard_router_holds", "Ranges whose requests wait now.", status.holds as u64),
            ("polyshard_router_fresh", "Whether the map was read from the catalog.", u64::from(status.fresh)),
        ];
        for (name, help, value) in gauges {
            page.metric(name, Kind::Gauge, help);
            page.sample(name, &[], value);
        }
    }

    fn shard_metrics(&self, page: &mut Text) {
        let view = self.router.view();
        let counts: Vec<(&str, ShardCounts)> =
            view.shards.keys().map(|id| (id.as_str(), self.router.shard_counts(id))).collect();
        let name = "polyshard_shard_requests_total";
        page.metric(name, Kind::Counter, "Requests that reached a shard.");
        for (shard, counts) in &counts {
            page.sample(name, &[("shard", shard), ("access", "read")], counts.reads);
            page.sample(name, &[("shard", shard), ("access", "write")], counts.writes);
        }
        let name = "polyshard_shard_errors_total";
        page.metric(name, Kind::Counter, "Failures on a shard that were not the requests' own fault.");
        for (shard, counts) in &counts {
            page.sample(name, &[("shard", shard)], counts.errors);
        }
        let name = "polyshard_shard_requests_inside";
        page.metric(name, Kind::Gauge, "Requests that are on a shard now.");
        for (shard, counts) in &counts {
            page.sample(name, &[("shard", shard)], counts.inside);
        }
        let name = "polyshard_shard_request_seconds";
        page.metric(name, Kind::Histogram, "How long requests were on a shard.");
        for (shard, counts) in &counts {
            page.times(name, &[("shard", shard)], &counts.times);
        }
        self.gauge_metrics(page);
    }

    fn gauge_metrics(&self, page: &mut Text) {
        let traffic = self.traffic_now();
        let name = "polyshard_shard_up";
        page.metric(name, Kind::Gauge, "Whether a shard answered when it was last asked for its size.");
        for shard in &traffic.shards {
            if let Some(reachable) = shard.reachable {
                page.sample(name, &[("shard", shard.shard.as_str())], u8::from(reachable));
            }
        }
        let columns = [
            ("polyshard_shard_bytes", "The size of a shard."),
            ("polyshard_shard_bytes_max", "The limit of a shard's size."),
            ("polyshard_shard_connections", "Sessions of a shard's database, of whatever process."),
        ];
        for (column, (name, help)) in columns.into_iter().enumerate() {
            page.metric(name, Kind::Gauge, help);
            for shard in &traffic.shards {
                let value = [shard.bytes, shard.bytes_max, shard.connections][column];
                if let Some(value) = value {
                    page.sample(name, &[("shard", shard.shard.as_str())], value);
                }
            }
        }
    }

    fn engine_metrics(&self, page: &mut Text) {
        let view = self.router.view();
        let stats: Vec<_> =
            view.shards.keys().filter_map(|id| Some((id.as_str(), self.router.engine_stats(id)?))).collect();
        let counters = [
            ("polyshard_engine_reads_total", "Reads answered."),
            ("polyshard_engine_writes_total", "Writes answered."),
            ("polyshard_engine_commits_total", "Commits that answered them."),
            ("polyshard_engine_reruns_total", "Commits run again because one write of the group failed."),
            ("polyshard_engine_sessions_total", "Connections opened."),
        ];
        for (column, (name, help)) in counters.into_iter().enumerate() {
            page.metric(name, Kind::Counter, help);
            for (shard, stats) in &stats {
                let values =
                    [stats.reads, stats.writes, stats.groups, stats.groups_rerun, stats.sessions_opened];
                page.sample(name, &[("shard", shard)], values[column]);
            }
        }
        let name = "polyshard_engine_queued";
        page.metric(name, Kind::Gauge, "Writes waiting for their turn now.");
        for (shard, stats) in &stats {
            page.sample(name, &[("shard", shard)], stats.queued);
        }
    }

    fn door_metrics(&self, page: &mut Text) {
        let columns = [
            ("polyshard_door_connections", Kind::Gauge, "Connections now."),
            ("polyshard_door_accepted_total", Kind::Counter, "Connections so far."),
            ("polyshard_door_refused_total", Kind::Counter, "Connections refused at the limit."),
            ("polyshard_door_panics_total", Kind::Counter, "Connections lost to a bug."),
        ];
        for (column, (name, kind, help)) in columns.into_iter().enumerate() {
            page.metric(name, kind, help);
            for (door, counters) in &self.doors {
                let counts = counters.counts();
                let values = [counts.open, counts.accepted, counts.refused, counts.panicked];
                page.sample(name, &[("door", door)], values[column]);
            }
        }
        let name = "polyshard_door_requests_total";
        page.metric(name, Kind::Counter, "Requests answered, by operation and outcome.");
        for (door, counters) in &self.doors {
            for tally in counters.requests().tallies() {
                let labels =
                    [("door", door.as_str()), ("operation", tally.operation), ("outcome", tally.outcome)];
                page.sample(name, &labels, tally.count);
            }
        }
        let name = "polyshard_door_request_seconds";
        page.metric(name, Kind::Histogram, "How long answers took, from the request's head to the answer.");
        for (door, counters) in &self.doors {
            let times = counters.requests().times();
            if times.count() > 0 {
                page.times(name, &[("door", door)], &times);
            }
        }
    }

    fn span_metrics(&self, page: &mut Text) {
        let name = "polyshard_trace_spans_total";
        page.metric(name, Kind::Counter, "Spans of traces, by whether the collector took them.");
        let Some(spans) = &self.spans else { return };
        page.sample(name, &[("outcome", "sent")], spans.sent.get());
        page.sample(name, &[("outcome", "dropped")], spans.dropped.get());
    }

    fn map_metrics(&self, page: &mut Text) {
        let view = self.router.view();
        let name = "polyshard_map_entries";
        page.metric(name, Kind::Gauge, "Entries of a map.");
        for (map, known) in &view.maps {
            page.sample(name, &[("map", map.as_str())], known.map.len());
        }
        let name = "polyshard_map_epoch";
        page.metric(name, Kind::Gauge, "The epoch of a map; grows with its changes.");
        for (map, known) in &view.maps {
            page.sample(name, &[("map", map.as_str())], known.map.epoch().get());
        }
    }

    /// Labels are the classes of schedules, of which a configuration has few; those asked for have an empty one.
    async fn backup_metrics(&self, page: &mut Text) {
        let last = tokio::time::timeout(ASK_WAIT, self.operations.catalog().last_runs()).await;
        let Ok(Ok(last)) = last else { return };
        let name = "polyshard_backup_last_success_timestamp_seconds";
        page.metric(name, Kind::Gauge, "When the last backup of a class that was done began.");
        for (class, at_ms) in last {
            page.sample(name, &[("class", &class)], at_ms / 1000);
        }
    }

    /// What the checker found when it last ran by itself.
    fn check_metrics(&self, page: &mut Text) {
        let found = self.operations.found().get();
        let Some(at_ms) = found.at_ms else { return };
        let name = "polyshard_check_time_seconds";
        page.metric(name, Kind::Gauge, "When the checker last ran by itself, in seconds since 1970.");
        page.sample(name, &[], at_ms / 1000);
        let name = "polyshard_check_found";
        page.metric(name, Kind::Gauge, "What the checker found then: more than 0 needs a look.");
        let misplaced: u64 = found.misplaced.values().sum();
        let counts = [
            ("misplaced_rows", misplaced),
            ("differences", found.differences),
            ("broken_links", found.broken),
            ("unchecked", found.unchecked.len() as u64),
        ];
        for (kind, count) in counts {
            page.sample(name, &[("kind", kind)], count);
        }
    }

    async fn catalog_metrics(&self, page: &mut Text) {
        let operations = tokio::time::timeout(ASK_WAIT, self.operations.operation_views()).await;
        let operations = operations.ok().and_then(Result::ok);
        page.metric("polyshard_catalog_up", Kind::Gauge, "Whether the catalog answers.");
        page.sample("polyshard_catalog_up", &[], u8::from(operations.is_some()));
        let Some(operations) = operations else { return };
        let name = "polyshard_operations_running";
        page.metric(name, Kind::Gauge, "Operations that are not finished, by kind.");
        let mut running = std::collections::BTreeMap::<&str, u64>::new();
        for operation in operations.iter().filter(|op| op.state == OperationState::Running) {
            *running.entry(operation.kind.as_str()).or_insert(0) += 1;
        }
        for (kind, count) in running {
            page.sample(name, &[("kind", kind)], count);
        }
        self.backup_metrics(page).await;
        self.archive_metrics(page, &operations).await;
    }
}
