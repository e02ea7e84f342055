//! Removes, in the background, the entities of tables that are gone.

use std::time::Duration;

use polyshard_store::{PeriodicTask, Removal, Upkeep};

use super::statements::texts;
use super::{STORE, TableStore};

/// How often to look. Nobody sees these entities, so only their room is at stake.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// How the entities of tables that are gone are found and removed.
static UPKEEP: Upkeep = Upkeep {
    store: &STORE,
    removals: &[Removal {
        any: |dialect| texts(dialect).any.clone(),
        remove: |dialect| texts(dialect).remove_some.clone(),
    }],
};

impl TableStore {
    /// Starts the task that removes what nobody can see any more.
    pub fn keep_tidy(&self) -> PeriodicTask {
        UPKEEP.start(&self.kit, SWEEP_EVERY, self.deleted.clone())
    }

    /// One round of it.
    pub async fn sweep(&self) {
        UPKEEP.run(self.kit.router(), self.kit.driver(), self.now_ms()).await;
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.kit.now_ms()
    }
}
