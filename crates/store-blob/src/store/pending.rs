//! What is announced and what is to be removed: rows that lie beside the blob's own, so that they move with it, and
//! the sweep needs to know nothing of requests under way.

use std::sync::Arc;
use std::time::Duration;

use polyshard_engine::Dialect;

use super::home::{Home, one};
use super::rows::Step;
use super::statements::texts;
use super::{BlobStore, StoreError};
use crate::model::Blob;
use crate::objects::ObjectId;

/// What a row of the table of pending things is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingKind {
    /// An object that is being written, and that no row names yet.
    Announced,
    /// An object that no row names, or soon none: it is deleted when that is so.
    Object,
    /// Extents or pages of a content, with their objects.
    Content,
    /// Uncommitted blocks, with their objects.
    Stage,
    /// A deleted blob or snapshot that is kept for a time.
    Deleted,
    /// A content whose rows are being written, and that no row names yet.
    AnnouncedContent,
}

impl PendingKind {
    pub const ALL: [PendingKind; 6] = [
        PendingKind::Announced,
        PendingKind::Object,
        PendingKind::Content,
        PendingKind::Stage,
        PendingKind::Deleted,
        PendingKind::AnnouncedContent,
    ];

    pub fn number(self) -> i64 {
        match self {
            PendingKind::Announced => 0,
            PendingKind::Object => 1,
            PendingKind::Content => 2,
            PendingKind::Stage => 3,
            PendingKind::Deleted => 4,
            PendingKind::AnnouncedContent => 5,
        }
    }
}

/// Something that is no longer needed, or may not be soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unneeded {
    /// An object.
    Object(ObjectId),
    /// A content of extents or pages.
    Content(i64),
    /// A set of uncommitted blocks.
    Stage(i64),
}

impl BlobStore {
    /// Announces an object, before its first byte is written.
    pub(super) fn announce(&self, home: &Home, id: &ObjectId) -> Step {
        Step::new(home, |dialect| texts(dialect).announce.clone()).bind(id.as_str())
    }

    /// Takes the announcement of an object away, in the transaction that names the object. It fails if the object is to
    /// be deleted.
    pub(super) fn take(&self, home: &Home, id: &ObjectId) -> Step {
        one(Step::new(home, |dialect| texts(dialect).take.clone()).bind(id.as_str()))
    }

    /// Gives up an announced object, which is then deleted soon.
    pub(super) fn give_up(&self, home: &Home, id: &ObjectId) -> Step {
        let step = Step::new(home, |dialect| texts(dialect).condemn.clone()).bind(id.as_str());
        // As if it were long ago: nothing has ever named it, so no backup needs it.
        step.bind(millis(self.options.keep_removed))
    }

    /// Notes something that no row will name any more. The sweep makes sure that none does, before it removes it.
    pub(super) fn pend(&self, home: &Home, what: &Unneeded) -> Step {
        let (id, kind, number) = match what {
            Unneeded::Object(id) => (id.as_str().to_owned(), PendingKind::Object, 0),
            Unneeded::Content(number) => (content_id(*number), PendingKind::Content, *number),
            Unneeded::Stage(number) => (format!("s{number:016x}"), PendingKind::Stage, *number),
        };
        self.pend_as(home, id, kind, number, 0)
    }

    /// Notes a content whose rows are written before the row that names it: taken away by [`BlobStore::take_content`].
    pub(super) fn announce_content(&self, home: &Home, content: i64) -> Step {
        one(self.pend_as(home, content_id(content), PendingKind::AnnouncedContent, content, 0))
    }

    /// Begins every transaction that writes rows of an announced content. It fails if the content is to be removed:
    /// nobody would remove rows that are written afterwards.
    pub(super) fn hold_content(&self, home: &Home, content: i64) -> Step {
        one(of_announced(home, content, |dialect| texts(dialect).hold_noted.clone()))
    }

    /// The same of a content that may have been announced, after its row could not be written. If it is not known
    /// whether it was, the note tells.
    pub(super) async fn forget_content_unless_named(
        &self,
        home: &Home,
        announced: Option<i64>,
        error: &StoreError,
    ) {
        if let (Some(content), false) = (announced, error.is_outcome_unknown()) {
            self.forget_content(home, content).await;
        }
    }

    /// Takes the note of a content away, in the transaction that names the content. It fails if the content is to be
    /// removed.
    pub(super) fn take_content(&self, home: &Home, content: i64) -> Step {
        one(of_announced(home, content, |dialect| texts(dialect).take_noted.clone()))
    }

    /// Gives up an announced content, which is then removed soon. From now on no row can come to name it.
    pub(super) fn give_up_content(&self, home: &Home, content: i64) -> Step {
        let step = of_announced(home, content, |dialect| texts(dialect).condemn_noted.clone());
        // As if it were long ago: nothing has ever named it, so no backup needs it.
        step.bind(PendingKind::Content.number()).bind(millis(self.options.keep_removed))
    }

    /// Gives up a content that no row will name, if it was announced. If this fails, the sweep finds it later.
    pub(super) async fn forget_content(&self, home: &Home, content: i64) {
        if let Err(error) = self.write(home, vec![self.give_up_content(home, content)]).await {
            tracing::debug!(%error, "the rows of a content that was not named are removed later");
        }
    }

    /// Notes a deleted blob or snapshot that is to be removed after a time.
    pub(super) fn pend_deleted(&self, home: &Home, snapshot: i64, after_ms: i64) -> Step {
        let after = after_ms - millis(self.options.keep_removed);
        let id = format!("d{:016x}", self.kit.random());
        self.pend_as(home, id, PendingKind::Deleted, snapshot, after)
    }

    fn pend_as(&self, home: &Home, id: String, kind: PendingKind, number: i64, after_ms: i64) -> Step {
        let step = Step::new(home, |dialect| texts(dialect).pend.clone());
        step.bind(id).bind(kind.number()).bind(number).bind(after_ms)
    }

    /// Notes all that the content of a row consists of, when that row is replaced or deleted.
    pub(super) fn pend_content(&self, home: &Home, blob: &Blob) -> Vec<Step> {
        let object = blob.object.clone().map(Unneeded::Object);
        let content = (blob.content != 0).then_some(Unneeded::Content(blob.content));
        let stage = (blob.stage != 0).then_some(Unneeded::Stage(blob.stage));
        [object, content, stage].into_iter().flatten().map(|what| self.pend(home, &what)).collect()
    }
}

fn content_id(content: i64) -> String {
    format!("c{content:016x}")
}

/// A statement about the note of an announced content.
fn of_announced(home: &Home, content: i64, text: fn(Dialect) -> Arc<str>) -> Step {
    Step::new(home, text).bind(content_id(content)).bind(PendingKind::AnnouncedContent.number())
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
