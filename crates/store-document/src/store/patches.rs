//! Patches: a document is read, changed in memory, and written if it is still as it was read.

use polyshard_document_query::{Environment, Limits, Parameters, Query, Value};

use super::home::Key;
use super::items::{Condition, Item, Written, replace};
use super::{Container, DocumentStore};
use crate::document::{Document, stamped};
use crate::failure::Failure;
use crate::patch::Patch;

/// How often a change is tried again after somebody else was quicker.
pub(super) const TRIES_MAX: u32 = 50;

impl DocumentStore {
    /// Changes a document by a patch. Answers what it became, too.
    pub(crate) async fn patch(
        &self,
        container: &Container,
        key: &Key,
        id: &str,
        patch: &Patch,
        condition: Condition,
    ) -> Result<(Written, Document), Failure> {
        for _ in 0..TRIES_MAX {
            let found = self.get(container, key, id).await?;
            if matches!(condition, Condition::Etag(etag) if etag != found.stamp.etag) {
                return Err(Failure::etag());
            }
            let document = self.patched(patch, &found)?;
            let etag = self.new_etag();
            let step = replace(key, &document, etag, Condition::Etag(found.stamp.etag));
            if let Some(row) = self.write_one(key, step).await?.first() {
                let stamp = self.stamp(container, row.int(0)?, etag, row.int(1)?);
                return Ok((Written { is_new: false, stamp }, document));
            }
        }
        Err(Failure::contended())
    }

    /// What a document becomes, if the patch's condition is met.
    pub(super) fn patched(&self, patch: &Patch, found: &Item) -> Result<Document, Failure> {
        let value = Value::from_json(&found.body).map_err(|error| Failure::damaged("document", error))?;
        if let Some(condition) = &patch.condition
            && !self.is_met(condition, &stamped(&value, &found.stamp))?
        {
            return Err(Failure::precondition("The condition of the patch is not met."));
        }
        Document::of_value(&patch.apply(&value)?)
    }

    /// Whether a document meets `FROM c WHERE …`.
    fn is_met(&self, condition: &str, document: &Value) -> Result<bool, Failure> {
        let query = Query::parse(&format!("SELECT * {condition}"), &Limits::default())?;
        let environment = Environment { now_ticks: self.kit.now_ticks(), ..Environment::default() };
        let mut execution = query.bind(&Parameters::new())?.execute(environment);
        execution.push(document, b"")?;
        execution.finish()?;
        Ok(execution.next_row().is_some())
    }
}
