//! Backups and restorations as tables for people.

use polyshard_admin::types::{BackupView, BackupsAnswer, ScheduleView};
use polyshard_server::DepotBackup;

use crate::table::{duration, size, table, time};

/// The backups and restorations of the cluster, and its schedules.
pub fn list(answer: &BackupsAnswer) -> String {
    let mut text = match answer.backups.as_slice() {
        [] => "No backups yet.\n".to_owned(),
        backups => backup_table(backups),
    };
    if !answer.schedules.is_empty() {
        text.push('\n');
        text.push_str(&schedule_table(&answer.schedules));
    }
    text
}

fn backup_table(backups: &[BackupView]) -> String {
    table(
        [
            "id",
            "kind",
            "state",
            "what",
            "class",
            "began",
            "took",
            "databases",
            "size",
            "new",
            "rows",
            "writes waited",
            "address",
        ],
        backups.iter().map(|one| {
            [
                one.id.to_string(),
                one.kind.clone(),
                one.state.to_string(),
                one.what.clone(),
                one.class.clone().unwrap_or_default(),
                time(one.began_ms),
                one.ended_ms.map_or_else(|| "-".to_owned(), |ended| duration(ended - one.began_ms)),
                format!("{}/{}", one.copied, one.databases),
                size(one.bytes),
                size(one.new_bytes),
                one.rows.to_string(),
                format!("{} ms", one.pause_ms),
                one.message.as_ref().map_or_else(|| one.to.clone(), |why| format!("{} ({why})", one.to)),
            ]
        }),
    )
}

fn schedule_table(schedules: &[ScheduleView]) -> String {
    table(
        ["class", "what", "every", "keep", "last began"],
        schedules.iter().map(|one| {
            [
                one.class.clone(),
                one.what.clone(),
                format!("{} s", one.every_seconds),
                one.keep.to_string(),
                one.last_ms.map_or_else(|| "never".to_owned(), time),
            ]
        }),
    )
}

/// The backups in a place.
pub fn depot(found: &[DepotBackup]) -> String {
    if found.is_empty() {
        return "No backups there.\n".to_owned();
    }
    let state = |one: &DepotBackup| match &one.message {
        Some(why) => format!("{} ({why})", one.state),
        None => one.state.to_owned(),
    };
    table(
        ["address", "state", "what", "class", "moment", "size", "new", "cluster"],
        found.iter().map(|one| {
            [
                one.at.clone(),
                state(one),
                one.what.clone(),
                one.class.clone().unwrap_or_default(),
                if one.moment_ms == 0 { "-".to_owned() } else { time(one.moment_ms) },
                size(one.bytes),
                size(one.new_bytes),
                // Its beginning tells clusters apart that share a place.
                one.cluster.as_ref().map_or_else(|| "-".to_owned(), |id| id.chars().take(8).collect()),
            ]
        }),
    )
}
