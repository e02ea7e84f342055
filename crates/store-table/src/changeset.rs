//! A change set: the requests of a batch read as changes of one partition, and their answers.

use std::collections::HashSet;

use polyshard_azure_storage::{Context, ServiceError, Timestamp};

use crate::batch::{Alike, Answers, Part, PartHead};
use crate::command::Command;
use crate::entity::PartitionKey;
use crate::handler::{authorize, changed_reply};
use crate::name::TableName;
use crate::odata::Level;
use crate::reply::{self, Prefer};
use crate::store::{CHANGES_MAX, Change, ChangeKind};

/// The changes of a change set, found to belong together.
pub(crate) struct ChangeSet {
    pub table: TableName,
    pub partition: PartitionKey,
    pub changes: Vec<Change>,
    pub asked: Vec<Asked>,
}

/// What a change was called, and how it is to be answered.
pub(crate) struct Asked {
    content_id: Option<String>,
    level: Level,
    prefer: Prefer,
}

impl ChangeSet {
    /// Reads the parts of a batch; an error has the number of its part.
    pub fn parse(context: &Context, parts: Vec<Part<'_>>) -> Result<ChangeSet, ServiceError> {
        let mut set = None;
        let read = ChangeSet::read(context, parts, &mut set);
        // What comes twice is told before what is wrong with a part after it.
        if let Some(at) = set.as_ref().and_then(ChangeSet::comes_twice) {
            return Err(reply::numbered(at, reply::row_twice()));
        }
        read?;
        set.ok_or_else(|| reply::invalid_input("the change set is empty"))
    }

    /// Reads parts as far as they can be read.
    fn read(context: &Context, parts: Vec<Part<'_>>, to: &mut Option<ChangeSet>) -> Result<(), ServiceError> {
        let (count, mut last) = (parts.len(), None);
        for (at, part) in parts.into_iter().enumerate() {
            let numbered = |error| reply::numbered(at, error);
            if at >= CHANGES_MAX {
                return Err(reply::too_many_changes());
            }
            if let Some(head) = part.head {
                last = Some(Last { head, insert: None });
            }
            let last: &mut Last = last.as_mut().expect("the first part has a head");
            let command = last.command(context, part.body).map_err(numbered)?;
            authorize(context, &command).map_err(numbered)?;
            let not_change = || numbered(reply::invalid_input("a change set holds changes of entities only"));
            let (table, partition, change, level, prefer) = command.into_change().ok_or_else(not_change)?;
            let set = to.get_or_insert_with(|| ChangeSet {
                table: table.clone(),
                partition: partition.clone(),
                changes: Vec::with_capacity(count),
                asked: Vec::with_capacity(count),
            });
            if set.table != table || set.partition != partition {
                return Err(numbered(reply::other_partition()));
            }
            set.changes.push(change);
            set.asked.push(Asked { content_id: part.content_id, level, prefer });
        }
        Ok(())
    }

    /// The first change of an entity that another one before it changes as well.
    fn comes_twice(&self) -> Option<usize> {
        let mut rows = HashSet::with_capacity(self.changes.len());
        self.changes.iter().position(|change| !rows.insert(&change.row))
    }
}

/// The head of the part that was read last, which those that follow may share.
struct Last {
    head: Box<PartHead>,
    /// What an insert with that head is, but for its entity.
    insert: Option<(TableName, Level, Prefer)>,
}

impl Last {
    fn command(&mut self, context: &Context, body: &[u8]) -> Result<Command, ServiceError> {
        if let Some((table, level, prefer)) = &self.insert {
            return Command::insert(table.clone(), body, *level, *prefer);
        }
        let PartHead { resource, request } = &mut *self.head;
        request.body = body.to_vec();
        let command = Command::parse(context.account.as_str(), resource, request)?;
        if let Command::Change { table, kind: ChangeKind::Insert(_), level, prefer, .. } = &command {
            self.insert = Some((table.clone(), *level, *prefer));
        }
        Ok(command)
    }
}

/// The answers to changes that were made at these times.
pub(crate) fn answer(
    context: &Context,
    table: &TableName,
    partition: &PartitionKey,
    changes: &[Change],
    asked: &[Asked],
    times: &[Timestamp],
) -> Answers {
    let mut answers = Answers::new(context.request_id, times.len());
    // Of the inserts that are not sent back, by their time.
    let mut alike: Option<(Timestamp, Alike)> = None;
    let mut url = reply::UrlOf::new(context, table.name(), partition);
    for ((change, asked), time) in changes.iter().zip(asked).zip(times) {
        let content_id = asked.content_id.as_deref();
        let is_plain = matches!(change.kind, ChangeKind::Insert(_)) && !asked.prefer.wants_content();
        if let Some((_, alike)) = alike.as_ref().filter(|(own, _)| is_plain && own == time) {
            answers.push_alike(content_id, alike, url.of(&change.row));
            continue;
        }
        let own_url = url.of(&change.row);
        let response =
            changed_reply(context, table, partition.clone(), change, *time, asked.level, asked.prefer);
        let response = reply::with_location(response, own_url);
        if is_plain {
            alike = Some((*time, Alike::new(&response, own_url)));
        }
        answers.push(content_id, &response);
    }
    answers
}

#[cfg(test)]
mod tests;
