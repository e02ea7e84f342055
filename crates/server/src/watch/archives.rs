//! Metrics of archives and of the rules by which they are made. Labels are maps and rules, which operators make.

use std::collections::BTreeMap;

use polyshard_admin::types::{OperationState, OperationView};
use polyshard_catalog::{ARCHIVE, ArchiveState, RESTORE_ARCHIVE};
use polyshard_meter::{Kind, Text};

use super::{ASK_WAIT, Watcher};
use crate::operator::ARCHIVE_POLICY;

impl Watcher {
    /// What is in archives, and how the rules fare. `operations` are the latest.
    pub(super) async fn archive_metrics(&self, page: &mut Text, operations: &[OperationView]) {
        let catalog = self.operations.catalog();
        let asked = async { (catalog.archives().await, catalog.policies(ARCHIVE_POLICY).await) };
        let Ok((Ok(archives), Ok(rules))) = tokio::time::timeout(ASK_WAIT, asked).await else { return };
        let (mut ranges, mut held) =
            (BTreeMap::<(&str, &str), u64>::new(), BTreeMap::<&str, (u64, u64)>::new());
        for one in &archives {
            *ranges.entry((one.map.as_str(), one.state.as_str())).or_default() += 1;
            if one.state != ArchiveState::Writing {
                let (rows, bytes) = held.entry(one.map.as_str()).or_default();
                (*rows, *bytes) = (*rows + one.rows, *bytes + one.bytes);
            }
        }
        let name = "polyshard_archive_ranges";
        page.metric(name, Kind::Gauge, "Archives of a map, by state.");
        for ((map, state), count) in ranges {
            page.sample(name, &[("map", map), ("state", state)], count);
        }
        let columns = [
            ("polyshard_archive_rows", "Rows in archives of a map."),
            ("polyshard_archive_bytes", "Bytes of these rows, before they were compressed."),
        ];
        for (column, (name, help)) in columns.into_iter().enumerate() {
            page.metric(name, Kind::Gauge, help);
            for (map, (rows, bytes)) in &held {
                page.sample(name, &[("map", map)], [*rows, *bytes][column]);
            }
        }
        let name = "polyshard_archive_given_up";
        page.metric(
            name,
            Kind::Gauge,
            "Archives and restorations that were given up, of the latest operations.",
        );
        for kind in [ARCHIVE, RESTORE_ARCHIVE] {
            let is_it = |one: &&OperationView| one.kind == kind && one.state == OperationState::RolledBack;
            page.sample(name, &[("kind", kind)], operations.iter().filter(is_it).count());
        }
        let name = "polyshard_archive_rule_last_run_timestamp_seconds";
        page.metric(
            name,
            Kind::Gauge,
            "When a rule of archiving was last carried out, in seconds since 1970.",
        );
        for rule in rules.iter().filter(|rule| rule.last_ms > 0) {
            let id = rule.id.to_string();
            page.sample(name, &[("map", rule.map.as_str()), ("rule", &id)], rule.last_ms / 1000);
        }
        let name = "polyshard_archive_rule_failures_total";
        page.metric(name, Kind::Counter, "How often this process could not carry out a rule of archiving.");
        let failures = self.operations.rule_failures().counts();
        for rule in &rules {
            let id = rule.id.to_string();
            let count = failures.get(&id).copied().unwrap_or(0);
            page.sample(name, &[("map", rule.map.as_str()), ("rule", &id)], count);
        }
    }
}
