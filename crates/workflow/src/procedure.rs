//! A procedure as a value: tasks in order, how far they are, and what is done if it is given up. Pure.

use polyshard_catalog::PasswordSource;
use polyshard_map::{KeyRange, MapDefinition, MapName, ShardId, State};
use polyshard_mover::OldRows;
use polyshard_shard::OpId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::archiving::Archiving;
use polyshard_planner::rule::Rule;

/// The format this program writes.
const FORMAT: u32 = 1;
/// Tasks of one procedure: a plan with more is made in several, since its whole text is stored after each task.
pub const TASKS_MAX: usize = 1_000;

/// Tasks in order, and how far they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Procedure {
    format: u32,
    /// What is to be done.
    tasks: Vec<Task>,
    /// What is done instead of the rest, if it is given up.
    #[serde(default)]
    undo: Vec<Task>,
    /// How many tasks are done; once it is given up, how many of those that undo.
    done: usize,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_up: Option<String>,
    /// What it makes itself, noted before: undoing takes away nothing else, whatever has the same name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    made: Vec<Made>,
    /// Whether the move under way waits because the procedure was asked to: one that somebody else has paused stays so.
    #[serde(default, skip_serializing_if = "is_false")]
    pauses: bool,
    /// What its tasks have to say when it is done, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    report: Vec<String>,
    /// The shard that it empties.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drains: Option<ShardId>,
    /// How many tasks were done when it was given up.
    #[serde(default, skip_serializing_if = "is_zero")]
    done_before: usize,
}

/// Something that a procedure makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "made", rename_all = "snake_case", deny_unknown_fields)]
pub enum Made {
    /// A shard.
    Shard {
        /// Its name.
        shard: ShardId,
        /// Its incarnation, by which it is told from another of that name.
        incarnation: Uuid,
    },
    /// A map, which was not there before.
    Map {
        /// Its name.
        map: MapName,
    },
}

/// One task. Each can be repeated: what is so already is not done again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Set what may be done with a range.
    SetState {
        /// The map.
        map: MapName,
        /// Which range.
        range: KeyRange,
        /// The state.
        state: State,
    },
    /// Move a range, part by part if it is on several shards.
    Move {
        /// The map.
        map: MapName,
        /// What to move.
        range: KeyRange,
        /// Where to.
        to: ShardId,
        /// How long the old shard keeps its rows.
        #[serde(default)]
        keep_ms: u64,
        /// The state that it arrives in; none leaves it as it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arrives: Option<State>,
        /// The move under way, noted before it begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OpId>,
        /// Why, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Add an empty shard.
    AddShard {
        /// Its name.
        shard: ShardId,
        /// Its address.
        url: String,
        /// Its region.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<String>,
        /// Its tier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tier: Option<String>,
    },
    /// Take out a shard that is empty; one that is not stays.
    RemoveShard {
        /// Its name.
        shard: ShardId,
    },
    /// Take in a database that has tables of its own, as a shard that owns nothing yet.
    TakeIn(TakeIn),
    /// Make a map whose every key is on one shard.
    CreateMap {
        /// The map.
        definition: Box<MapDefinition>,
        /// The shard.
        shard: ShardId,
        /// Where the keys of a list map are found.
        columns: Columns,
    },
    /// Drop a map that places nothing.
    DropMap {
        /// The map.
        map: MapName,
    },
    /// Have the tables of a shard that was taken in on every shard, placed by a map.
    AdoptTables {
        /// The map.
        map: MapName,
        /// The shard.
        shard: ShardId,
        /// Which columns are keys.
        columns: Columns,
    },
    /// Put rows right that a shard has and does not own.
    RepairRows {
        /// The map.
        map: MapName,
        /// The shard.
        shard: ShardId,
        /// Whether the owner is right where it cannot be decided.
        #[serde(default)]
        owner_wins: bool,
        /// What becomes of rows from before their range went elsewhere, where the owner has none.
        #[serde(default)]
        old: OldRows,
    },
    /// Make reference tables that differ what most shards have.
    RepairReference {
        /// The shard that is right, if somebody has said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        like: Option<ShardId>,
        /// Whether rows that the others lack may go.
        #[serde(default)]
        confirmed: bool,
    },
    /// A step by which a range goes into an archive, or comes back.
    Archive(Archiving),
    /// Record a rule.
    AddRule {
        /// The map.
        map: MapName,
        /// What it says.
        rule: Rule,
    },
}

/// A database to take in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeIn {
    /// The name it gets.
    pub shard: ShardId,
    /// Its address.
    pub url: String,
    /// Where its password comes from.
    pub password: PasswordSource,
    /// Its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Its tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
}

/// Which columns are keys: one of a name wherever it is, and those of single tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub everywhere: Option<String>,
    /// By schema and table.
    #[serde(default)]
    pub single: Vec<(String, String, String)>,
    /// By schema, the tables that the database had before it was taken in; all that are there, if none are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<(String, String)>,
}

impl Procedure {
    /// These tasks, in order.
    pub fn new(tasks: Vec<Task>) -> Procedure {
        Procedure {
            format: FORMAT,
            tasks,
            undo: Vec::new(),
            done: 0,
            given_up: None,
            made: Vec::new(),
            pauses: false,
            report: Vec::new(),
            drains: None,
            done_before: 0,
        }
    }

    /// With what is done if it is given up.
    pub fn or_else(mut self, undo: Vec<Task>) -> Procedure {
        self.undo = undo;
        self
    }

    /// With the shard that it empties, if it does.
    pub fn draining(mut self, shard: Option<ShardId>) -> Procedure {
        self.drains = shard;
        self
    }

    /// The shard that it empties.
    pub fn drains(&self) -> Option<&ShardId> {
        self.drains.as_ref()
    }

    /// The stored form.
    pub fn write(&self) -> Value {
        serde_json::to_value(self).expect("a procedure has string keys only and always serialises")
    }

    /// Reads the stored form.
    pub fn read(body: &Value) -> Result<Procedure, String> {
        let procedure: Procedure =
            serde_json::from_value(body.clone()).map_err(|error| format!("it cannot be read: {error}"))?;
        if procedure.format > FORMAT {
            return Err("it is of a newer program; upgrade this process".to_owned());
        }
        Ok(procedure)
    }

    /// What is to be done next; none if it has ended.
    pub fn next(&self) -> Option<&Task> {
        self.list().get(self.done)
    }

    fn next_mut(&mut self) -> Option<&mut Task> {
        let done = self.done;
        match self.given_up {
            None => self.tasks.get_mut(done),
            Some(_) => self.undo.get_mut(done),
        }
    }

    /// The next task is done.
    pub fn advance(&mut self) {
        assert!(self.done < self.list().len(), "a procedure that has ended does not go on");
        self.done += 1;
    }

    /// Goes no further; what undoes it comes next, of what it has made itself. The first reason stays.
    pub fn give_up(&mut self, why: String) {
        if self.given_up.is_some() {
            return;
        }
        self.given_up = Some(why);
        self.done_before = std::mem::take(&mut self.done);
        let mut undo = std::mem::take(&mut self.undo);
        undo.retain(|task| match task {
            Task::RemoveShard { shard } => self.made_shard(shard).is_some(),
            Task::DropMap { map } => self.has_made_map(map),
            _ => true,
        });
        self.undo = undo;
    }

    /// Notes what is about to be made; of a shard the last word counts.
    pub fn note(&mut self, making: Made) {
        if let Made::Shard { shard: of, .. } = &making {
            self.made.retain(|made| !matches!(made, Made::Shard { shard, .. } if shard == of));
        }
        if !self.made.contains(&making) {
            self.made.push(making);
        }
    }

    /// The incarnation of a shard that it makes.
    pub fn made_shard(&self, id: &ShardId) -> Option<Uuid> {
        self.made.iter().find_map(|made| match made {
            Made::Shard { shard, incarnation } if shard == id => Some(*incarnation),
            _ => None,
        })
    }

    /// Whether it makes a map of that name.
    pub fn has_made_map(&self, name: &MapName) -> bool {
        self.made.iter().any(|made| matches!(made, Made::Map { map } if map == name))
    }

    /// Adds to what is said when it is done.
    pub fn say(&mut self, line: String) {
        self.report.push(line);
    }

    /// What is said when it is done, if anything.
    pub fn report(&self) -> Option<String> {
        (!self.report.is_empty()).then(|| self.report.join("; "))
    }

    /// Whether the move under way waits because of it.
    pub fn pauses(&self) -> bool {
        self.pauses
    }

    /// Notes whether it has the move under way wait.
    pub fn set_pauses(&mut self, pauses: bool) {
        self.pauses = pauses;
    }

    /// Notes the move by which its next task is done, before it begins; none when that has ended.
    pub fn note_operation(&mut self, id: Option<OpId>) {
        self.pauses = false;
        if let Some(Task::Move { operation, .. }) = self.next_mut() {
            *operation = id;
        }
    }

    /// What it has moved by now, also if it was given up after that.
    pub fn moved(&self) -> impl Iterator<Item = &KeyRange> {
        let done = if self.given_up.is_some() { self.done_before } else { self.done };
        self.tasks.iter().take(done).filter_map(|task| match task {
            Task::Move { range, .. } => Some(range),
            _ => None,
        })
    }

    /// Why it was given up.
    pub fn given_up(&self) -> Option<&str> {
        self.given_up.as_deref()
    }

    /// The move under way.
    pub fn operation(&self) -> Option<OpId> {
        match self.next() {
            Some(Task::Move { operation, .. }) => *operation,
            _ => None,
        }
    }

    /// How far it is: `3 of 7`, or that it is being given up.
    pub fn count(&self) -> String {
        let (at, of) = ((self.done + 1).min(self.list().len()), self.list().len());
        match self.given_up {
            None => format!("{at} of {of}"),
            Some(_) => format!("rolling back, {at} of {of}"),
        }
    }

    fn list(&self) -> &[Task] {
        match self.given_up {
            None => &self.tasks,
            Some(_) => &self.undo,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Task {
    /// The word in logs and failpoints.
    pub fn as_str(&self) -> &'static str {
        match self {
            Task::SetState { .. } => "set_state",
            Task::Move { .. } => "move",
            Task::AddShard { .. } => "add_shard",
            Task::RemoveShard { .. } => "remove_shard",
            Task::AddRule { .. } => "add_rule",
            Task::TakeIn(_) => "take_in",
            Task::CreateMap { .. } => "create_map",
            Task::DropMap { .. } => "drop_map",
            Task::AdoptTables { .. } => "adopt_tables",
            Task::RepairRows { .. } => "repair_rows",
            Task::RepairReference { .. } => "repair_reference",
            Task::Archive(step) => step.as_str(),
        }
    }

    /// Whether there is no way back from it: it is done, however long it takes.
    pub fn is_final(&self) -> bool {
        matches!(self, Task::Archive(step) if step.is_final())
    }

    /// The map that it is about.
    pub fn map(&self) -> Option<&MapName> {
        match self {
            Task::SetState { map, .. }
            | Task::Move { map, .. }
            | Task::AddRule { map, .. }
            | Task::DropMap { map }
            | Task::RepairRows { map, .. }
            | Task::AdoptTables { map, .. } => Some(map),
            Task::CreateMap { definition, .. } => Some(definition.name()),
            Task::Archive(step) => step.held().map(|held| &held.map),
            Task::AddShard { .. }
            | Task::RemoveShard { .. }
            | Task::TakeIn(_)
            | Task::RepairReference { .. } => None,
        }
    }

    /// What it is, for people; `definition` is that of its map.
    pub fn describe(&self, definition: Option<&MapDefinition>) -> String {
        let range = |range: &KeyRange| match definition {
            Some(definition) => definition.describe_range(range),
            None => "a range".to_owned(),
        };
        match self {
            Task::SetState { range: of, state, .. } => format!("set {} {state}", range(of)),
            Task::Move { range: of, to, .. } => format!("move {} to {to}", range(of)),
            Task::AddShard { shard, .. } => format!("add shard {shard}"),
            Task::RemoveShard { shard } => format!("remove shard {shard}"),
            Task::TakeIn(database) => format!("take {} in as shard {}", database.url, database.shard),
            Task::CreateMap { definition, shard, .. } => {
                format!("make map {}, all of it on shard {shard}", definition.name())
            }
            Task::DropMap { map } => format!("drop map {map}"),
            Task::AdoptTables { map, shard, .. } => {
                format!("have the tables of shard {shard} on every shard, placed by map {map}")
            }
            Task::RepairRows { map, shard, .. } => {
                format!("put rows of map {map} right that are on shard {shard} and not its own")
            }
            Task::RepairReference { like: None, .. } => {
                "make reference tables that differ what most shards have".to_owned()
            }
            Task::RepairReference { like: Some(like), .. } => {
                format!("make reference tables that differ what shard {like} has")
            }
            Task::Archive(step) => step.describe(definition),
            Task::AddRule { rule, .. } => format!("record the rule: {}", rule.describe(definition)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procedure() -> Procedure {
        let map = MapName::new("tenants").unwrap();
        let set = |state| Task::SetState { map: map.clone(), range: KeyRange::all(), state };
        let (to, range) = (ShardId::new("s2").unwrap(), KeyRange::all());
        let carry = Task::Move {
            map: map.clone(),
            range,
            to,
            keep_ms: 0,
            arrives: Some(State::Online),
            operation: None,
            why: None,
        };
        Procedure::new(vec![set(State::Offline), carry]).or_else(vec![set(State::Online)])
    }

    #[test]
    fn what_is_given_up_is_undone_and_keeps_its_first_reason() {
        let mut procedure = procedure();
        procedure.advance();
        assert_eq!(procedure.count(), "2 of 2");
        procedure.give_up("no room".to_owned());
        procedure.give_up("something later".to_owned());
        assert_eq!(procedure.next().map(Task::as_str), Some("set_state"));
        procedure.advance();
        assert_eq!((procedure.next(), procedure.given_up()), (None, Some("no room")));
    }

    #[test]
    fn only_what_it_has_made_itself_is_undone() {
        let (shard, map) = (ShardId::new("s9").unwrap(), MapName::new("tenants").unwrap());
        let undo = vec![Task::DropMap { map: map.clone() }, Task::RemoveShard { shard: shard.clone() }];
        let fresh = || Procedure::new(vec![]).or_else(undo.clone());
        let mut none = fresh();
        none.give_up("there is one of that name".to_owned());
        assert_eq!(none.next(), None);
        let mut made = fresh();
        let [first, second] = [1, 2].map(Uuid::from_u128);
        made.note(Made::Shard { shard: shard.clone(), incarnation: first });
        made.note(Made::Shard { shard: shard.clone(), incarnation: second });
        let mut made = Procedure::read(&made.write()).unwrap();
        assert_eq!((made.made_shard(&shard), made.has_made_map(&map)), (Some(second), false));
        made.give_up("no".to_owned());
        assert_eq!(made.next().map(Task::as_str), Some("remove_shard"));
        made.advance();
        assert_eq!(made.next(), None);
    }

    #[test]
    fn the_stored_form_of_format_1_is_read_for_ever() {
        let text = r#"{"format":1,"tasks":[{"task":"set_state","map":"tenants","range":{"lo":"","hi":null},
            "state":"offline"},{"task":"move","map":"tenants","range":{"lo":"","hi":null},"to":"s2","keep_ms":0,
            "arrives":"online"}],"undo":[{"task":"set_state","map":"tenants","range":{"lo":"","hi":null},
            "state":"online"}],"done":0}"#;
        let stored: Value = serde_json::from_str(text).unwrap();
        assert_eq!(Procedure::read(&stored).unwrap(), procedure());
        assert_eq!(Procedure::read(&procedure().write()).unwrap(), procedure());
        let newer = text.replace("\"format\":1", "\"format\":2");
        assert!(Procedure::read(&serde_json::from_str(&newer).unwrap()).is_err());
    }
}
