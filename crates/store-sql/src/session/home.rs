//! Questions about what tables and types there are, asked in a transaction that is on another shard than home: each
//! shard has numbers of its own for them, and clients are to see home's alone.

use polyshard_router::Access;
use polyshard_sql::Analysis;

use super::place::Wanted;
use super::{Done, Session};

impl Session {
    /// Whether a statement is such a question, and can be asked beside what is under way: nothing that the transaction
    /// itself has made or set bears on it.
    pub(super) fn asks_home(&self, wanted: &Wanted<'_>, analysis: &Analysis) -> bool {
        let sets =
            |text: &str| text.trim_start().get(..3).is_some_and(|word| word.eq_ignore_ascii_case("set"));
        if analysis.is_aside() && matches!(wanted, Wanted::Anywhere) && !self.transaction.is_none() {
            return true;
        }
        analysis.reads_catalog()
            && matches!(wanted, Wanted::Anywhere)
            && self.backend.as_ref().is_some_and(|backend| !backend.is_home())
            && self.transaction.global.is_none()
            && self.transaction.temporary.is_empty()
            && !self.transaction.prelude.iter().any(|text| sets(text))
    }

    /// Asks home by a session of its own; the transaction waits. An error fails it, as any other does.
    pub(super) async fn run_at_home(&mut self, text: &str) -> Done {
        self.settle().await?;
        let (backend, parked) = (self.backend.take(), std::mem::take(&mut self.parked));
        let portals = std::mem::take(&mut self.portals);
        let outside = self.step_outside();
        let mut done = self.acquire(&Wanted::Anywhere, Access::Read).await;
        if done.is_ok() {
            if let Some(backend) = self.backend.as_mut().filter(|_| polyshard_sql::sets_jit_alone(text)) {
                // It is set for whoever has the session next.
                backend.closing = true;
            }
            done = self.pass_alone(text).await;
            self.release().await;
        }
        self.step_inside(outside);
        (self.backend, self.parked, self.portals) = (backend, parked, portals);
        self.working_on_own_alone().await;
        self.transaction.failed |= self.told && !self.transaction.is_none();
        done
    }
}
