//! Procedures as operators see them: operations among others.

use polyshard_admin::Problem;
use polyshard_admin::types::{OperationState, OperationView};
use polyshard_catalog::{CatalogError, OpState, ProcedureRecord, Wish};
use polyshard_shard::OpId;
use polyshard_workflow::Procedure;

use super::{OPERATIONS_SHOWN, Operations};
use crate::problem;

impl Operations {
    pub(super) async fn procedure_of(&self, id: OpId) -> Result<Option<ProcedureRecord>, Problem> {
        self.catalog.procedure(id).await.map_err(|error| problem::of_catalog(&error))
    }

    /// A procedure as it is shown, with how far the move is that it is at.
    pub(super) async fn procedure_view(&self, record: &ProcedureRecord) -> Result<OperationView, Problem> {
        let mut view = OperationView {
            id: record.id.to_string(),
            kind: record.kind.clone(),
            map: record.map.clone(),
            state: match record.state {
                OpState::Running => OperationState::Running,
                OpState::Done => OperationState::Done,
                OpState::RolledBack => OperationState::RolledBack,
            },
            step: record.step.clone(),
            ranges: Vec::new(),
            from: None,
            to: None,
            progress: None,
            paused: record.wish == Wish::Pause && record.state == OpState::Running,
            started_ms: record.started_ms,
            message: record.message.clone(),
        };
        let at = Procedure::read(&record.body).ok().and_then(|procedure| procedure.operation());
        if let (Some(id), OpState::Running) = (at, record.state) {
            let operation = match self.catalog.operation(id).await {
                // It is noted before it begins.
                Err(CatalogError::NoSuchOperation(_)) => return Ok(view),
                other => other.map_err(|error| problem::of_catalog(&error))?,
            };
            let shown = self.shown(&operation).await?;
            view.step = format!("{} ({})", record.step, shown.step);
            (view.from, view.to, view.progress) = (shown.from, shown.to, shown.progress);
            view.ranges = shown.ranges;
            view.message = view.message.or(shown.message);
        }
        Ok(view)
    }

    /// Puts procedures among operations: what is under way first, then the latest.
    pub(super) async fn add_procedures(&self, shown: &mut Vec<OperationView>) -> Result<(), Problem> {
        let records = self.catalog.procedures(OPERATIONS_SHOWN).await;
        for record in records.map_err(|error| problem::of_catalog(&error))? {
            shown.push(self.procedure_view(&record).await?);
        }
        shown.sort_by_key(|view| (view.state != OperationState::Running, std::cmp::Reverse(view.started_ms)));
        Ok(())
    }
}
