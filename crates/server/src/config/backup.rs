//! Where backups are kept, and when they are taken.

use std::collections::BTreeSet;
use std::time::Duration;

use super::build::number;
use super::error::{ConfigErrors, Origin};
use super::settings::{Settings, Values};
use super::{BackupConfig, ScheduleConfig};

/// So long that the time of day fits beside it into a backup's name.
const CLASS_CHARS_MAX: usize = 30;

/// What the values say; every mistake is in `errors`.
pub(super) fn build(settings: &Settings, errors: &mut ConfigErrors) -> BackupConfig {
    let to = settings.values.get("backup.to").map(|setting| setting.text.clone());
    let mut schedules = Vec::new();
    let mut classes = BTreeSet::new();
    for (origin, values) in settings.list("backups").unwrap_or_default() {
        let Some(schedule) = schedule(origin, values, errors) else { continue };
        if !classes.insert(schedule.class.clone()) {
            let message = format!("class {} has two schedules", schedule.class);
            errors.push(origin, message, "remove one of them");
        }
        if to.is_none() {
            errors.push(origin, "there is a schedule, and no place for its backups", "set backup.to");
        }
        schedules.push(schedule);
    }
    BackupConfig { to, schedules }
}

fn schedule(origin: &Origin, values: &Values, errors: &mut ConfigErrors) -> Option<ScheduleConfig> {
    let mut required = |name: &str, example: &str| {
        if !values.contains_key(name) {
            errors.push(origin, format!("the schedule has no {name}"), format!("give it one, as {example}"));
        }
    };
    required("class", "class = \"gold\"");
    required("every_seconds", "every_seconds = 3600");
    required("keep", "keep = 24");
    let class = values.get("class")?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if class.text.is_empty() || class.text.len() > CLASS_CHARS_MAX || !class.text.bytes().all(fits) {
        let remedy = format!("use up to {CLASS_CHARS_MAX} lower-case letters, digits and -");
        errors.push(&class.origin, format!("{:?} is no name of a class", class.text), remedy);
    }
    let tier = values.get("tier").map(|setting| setting.text.clone());
    let map = values.get("map").and_then(|setting| match setting.text.parse() {
        Ok(map) => Some(map),
        Err(error) => {
            errors.push(&setting.origin, format!("map: {error}"), "name a map");
            None
        }
    });
    if tier.is_some() && map.is_some() {
        errors.push(origin, "a schedule is for a tier or for a map", "make two schedules");
    }
    Some(ScheduleConfig {
        class: class.text.clone(),
        every: Duration::from_secs(number(values, "every_seconds")?),
        keep: number(values, "keep")?,
        tier,
        map,
    })
}
