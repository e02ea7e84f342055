//! The tasks by which a range goes into an archive, or is dropped, and comes back; and who does what needs a depot.

use std::future::Future;
use std::pin::Pin;

use polyshard_catalog::{ArchiveState, CatalogError};
use polyshard_map::{ARCHIVED, KeyRange, MapDefinition, MapName, ShardId, State};
use polyshard_shard::OpId;
use serde::{Deserialize, Serialize};

use crate::procedure::{Procedure, Task};

/// One task of an archive. Each can be repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case", deny_unknown_fields)]
pub enum Archiving {
    /// Hold a range under a name, and set what may be done with it.
    Hold {
        /// What.
        of: Held,
        /// What may be done with it.
        state: State,
    },
    /// Let go of a range, with what may be done with it; one that is not held under this name stays as it is.
    LetGo {
        /// What.
        of: Held,
        /// What may be done with it.
        state: State,
    },
    /// Hold a range under another name.
    PassOn {
        /// What, and under which name.
        of: Held,
        /// The other.
        to: String,
    },
    /// Write an archive.
    Write {
        /// Its name.
        archive: String,
    },
    /// Read it back, and compare it with the rows.
    Compare {
        /// Its name.
        archive: String,
    },
    /// Remove the rows of an offline range; only forward from here.
    DropRows {
        /// What.
        of: Held,
    },
    /// Note how far an archive is.
    Note {
        /// Its name.
        archive: String,
        /// How far.
        state: ArchiveState,
    },
    /// Remove an archive that holds nothing that is not elsewhere.
    Forget {
        /// Its name.
        archive: String,
    },
    /// Point an empty range at another shard.
    Assign {
        /// What.
        of: Held,
        /// Where to.
        to: ShardId,
    },
    /// Put the rows of an archive back.
    Restore {
        /// Its name.
        archive: String,
    },
    /// Have nothing mapped where a range was.
    Remove {
        /// What.
        of: Held,
    },
}

/// A range that is held under a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The map.
    pub map: MapName,
    /// The range.
    pub range: KeyRange,
    /// The name.
    pub owner: String,
}

impl Archiving {
    /// The word in logs and failpoints.
    pub fn as_str(&self) -> &'static str {
        match self {
            Archiving::Hold { state: State::Offline, .. } => "hold_offline",
            Archiving::Hold { .. } => "hold",
            Archiving::LetGo { .. } => "let_go",
            Archiving::PassOn { .. } => "pass_on",
            Archiving::Write { .. } => "write_archive",
            Archiving::Compare { .. } => "compare_archive",
            Archiving::DropRows { .. } => "drop_rows",
            Archiving::Note { .. } => "note_archive",
            Archiving::Forget { .. } => "forget_archive",
            Archiving::Assign { .. } => "assign",
            Archiving::Restore { .. } => "restore_archive",
            Archiving::Remove { .. } => "remove_range",
        }
    }

    /// The range that it is about.
    pub fn held(&self) -> Option<&Held> {
        match self {
            Archiving::Hold { of, .. }
            | Archiving::LetGo { of, .. }
            | Archiving::PassOn { of, .. }
            | Archiving::DropRows { of }
            | Archiving::Assign { of, .. }
            | Archiving::Remove { of } => Some(of),
            Archiving::Write { .. }
            | Archiving::Compare { .. }
            | Archiving::Note { .. }
            | Archiving::Forget { .. }
            | Archiving::Restore { .. } => None,
        }
    }

    /// Whether there is no way back from it: it is done, however long it takes.
    pub fn is_final(&self) -> bool {
        match self {
            Archiving::DropRows { .. }
            | Archiving::PassOn { .. }
            | Archiving::Note { .. }
            | Archiving::Remove { .. }
            | Archiving::LetGo { .. } => true,
            Archiving::Hold { .. }
            | Archiving::Write { .. }
            | Archiving::Compare { .. }
            | Archiving::Forget { .. }
            | Archiving::Assign { .. }
            | Archiving::Restore { .. } => false,
        }
    }

    /// What it is, for people.
    pub fn describe(&self, definition: Option<&MapDefinition>) -> String {
        let range = match (self.held(), definition) {
            (Some(held), Some(definition)) => definition.describe_range(&held.range),
            _ => "a range".to_owned(),
        };
        match self {
            Archiving::Hold { state, .. } => format!("hold {range}, and set it {state}"),
            Archiving::LetGo { state, .. } => format!("set {range} {state}, and let go of it"),
            Archiving::PassOn { to, .. } => format!("hold {range} as {to}"),
            Archiving::Write { archive } => format!("write archive {archive}"),
            Archiving::Compare { archive } => {
                format!("read archive {archive} back and compare it with the rows")
            }
            Archiving::DropRows { .. } => format!("delete the rows of {range}"),
            Archiving::Note { archive, state } => format!("note that {archive} is {}", state.as_str()),
            Archiving::Forget { archive } => format!("remove archive {archive}"),
            Archiving::Assign { to, .. } => format!("point {range} at shard {to}"),
            Archiving::Restore { archive } => format!("put the rows of archive {archive} back"),
            Archiving::Remove { .. } => format!("have nothing mapped at {range}"),
        }
    }
}

/// The name under which a range is held while its rows go into an archive.
pub fn going(archive: &str) -> String {
    format!("archive:{archive}")
}

/// The name under which a range is held that is dropped: no archive has its rows.
fn dropping(name: &str) -> String {
    format!("drop:{name}")
}

/// Why a range is held whose rows are to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// They are in this archive.
    Archive(&'a str),
    /// They come back from this archive, and do not.
    Restore(&'a str),
    /// Nobody wants them.
    Drop,
}

/// What a range is held for under a name.
pub fn purpose(owner: &str) -> Purpose<'_> {
    match owner.split_once(':') {
        Some(("drop", _)) => Purpose::Drop,
        Some(("restore", archive)) => Purpose::Restore(archive),
        Some((_, archive)) => Purpose::Archive(archive),
        None => Purpose::Archive(owner),
    }
}

/// The name under which it is held when they are in it.
pub fn gone(archive: &str) -> String {
    format!("{ARCHIVED}{archive}")
}

/// The name under which it is held while they come back.
pub fn coming(archive: &str) -> String {
    format!("restore:{archive}")
}

fn task(step: Archiving) -> Task {
    Task::Archive(step)
}

/// Some ranges, each with the name of its archive, go into archives one after the other. If it is given up, those whose
/// rows are not being deleted yet are as they were.
pub fn archive(map: &MapName, parts: &[(KeyRange, String)]) -> Procedure {
    let (mut tasks, mut undo) = (Vec::new(), Vec::new());
    for (range, name) in parts {
        let of = Held { map: map.clone(), range: range.clone(), owner: going(name) };
        let archive = name.clone();
        tasks.extend([
            Archiving::Hold { of: of.clone(), state: State::ReadOnly },
            Archiving::Write { archive: archive.clone() },
            Archiving::Compare { archive: archive.clone() },
            Archiving::Hold { of: of.clone(), state: State::Offline },
            // From here on it may be the only place that has them.
            Archiving::Note { archive: archive.clone(), state: ArchiveState::Written },
            Archiving::DropRows { of: of.clone() },
            Archiving::PassOn { of: of.clone(), to: gone(name) },
            Archiving::Note { archive: archive.clone(), state: ArchiveState::Archived },
        ]);
        undo.extend([Archiving::LetGo { of, state: State::Online }, Archiving::Forget { archive }]);
    }
    Procedure::new(tasks.into_iter().map(task).collect()).or_else(undo.into_iter().map(task).collect())
}

/// Some ranges, each with a name of its own, are dropped with their rows.
pub fn drop_ranges(map: &MapName, parts: &[(KeyRange, String)]) -> Procedure {
    let (mut tasks, mut undo) = (Vec::new(), Vec::new());
    for (range, name) in parts {
        let of = Held { map: map.clone(), range: range.clone(), owner: dropping(name) };
        tasks.extend([
            Archiving::Hold { of: of.clone(), state: State::Offline },
            Archiving::DropRows { of: of.clone() },
            Archiving::Remove { of: of.clone() },
        ]);
        undo.push(Archiving::LetGo { of, state: State::Online });
    }
    Procedure::new(tasks.into_iter().map(task).collect()).or_else(undo.into_iter().map(task).collect())
}

/// The rows of an archive come back, to another shard if one is named.
pub fn restore(map: &MapName, range: &KeyRange, archive: &str, to: Option<&ShardId>) -> Procedure {
    let held = |owner| Held { map: map.clone(), range: range.clone(), owner };
    let (name, mut tasks) = (archive.to_owned(), Vec::new());
    tasks.push(Archiving::PassOn { of: held(gone(archive)), to: coming(archive) });
    tasks.extend(to.map(|to| Archiving::Assign { of: held(coming(archive)), to: to.clone() }));
    tasks.extend([
        Archiving::Restore { archive: name.clone() },
        Archiving::LetGo { of: held(coming(archive)), state: State::Online },
        Archiving::Note { archive: name, state: ArchiveState::Restored },
    ]);
    let undo = [
        Archiving::DropRows { of: held(coming(archive)) },
        Archiving::PassOn { of: held(coming(archive)), to: gone(archive) },
    ];
    Procedure::new(tasks.into_iter().map(task).collect()).or_else(undo.into_iter().map(task).collect())
}

/// Does what needs a depot.
pub trait Archiver: Send + Sync {
    /// Writes an archive; one that is whole is not written again.
    fn write<'a>(&'a self, archive: &'a str) -> Stepping<'a>;
    /// Reads it back and compares it with the rows.
    fn compare<'a>(&'a self, archive: &'a str) -> Stepping<'a>;
    /// Removes rows of an offline range, for a while.
    fn drop_rows<'a>(&'a self, of: &'a Held, mark: OpId) -> Stepping<'a>;
    /// Puts the rows of an archive back, whatever is there of them.
    fn restore<'a>(&'a self, archive: &'a str, mark: OpId) -> Stepping<'a>;
    /// Removes an archive from its place.
    fn forget<'a>(&'a self, archive: &'a str) -> Stepping<'a>;
}

/// What a step of an archive gives.
pub type Stepping<'a> = Pin<Box<dyn Future<Output = Result<Stepped, NotStepped>> + Send + 'a>>;

/// How a step went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stepped {
    /// It is done; with something to say when all is, perhaps.
    Done(Option<String>),
    /// A part of it is, for people.
    Part(String),
}

/// Why a step was not done.
#[derive(Debug)]
pub enum NotStepped {
    /// Try again.
    Later(String),
    /// It cannot be done.
    Refused(String),
    /// The catalog said no.
    Catalog(CatalogError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_given_up_only_before_rows_are_deleted_and_its_stored_form_is_read() {
        let map = MapName::new("orders").unwrap();
        let procedure = archive(&map, &[(KeyRange::all(), "orders-2024-01".to_owned())]);
        let mut procedure = Procedure::read(&procedure.write()).unwrap();
        let mut final_from = None;
        for at in 0.. {
            let Some(Task::Archive(step)) = procedure.next().cloned() else { break };
            match final_from {
                None if step.is_final() => {
                    assert_eq!(step.as_str(), "note_archive");
                    final_from = Some(at);
                }
                None => {}
                Some(_) => assert!(step.is_final(), "{step:?}"),
            }
            procedure.advance();
        }
        assert_eq!(final_from, Some(4));
    }

    #[test]
    fn what_format_1_stores_of_an_archive_is_read_for_ever() {
        let text = r#"{"task":"archive","step":"drop_rows","of":{"map":"orders","range":{"lo":"","hi":null},
            "owner":"archive:x"}}"#;
        let map = MapName::new("orders").unwrap();
        let of = Held { map, range: KeyRange::all(), owner: going("x") };
        assert_eq!(serde_json::from_str::<Task>(text).unwrap(), Task::Archive(Archiving::DropRows { of }));
    }
}
