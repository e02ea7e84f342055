//! A relation that this process does not know may have been made through another since. Sent as it is, a statement
//! about it would meet it on the one shard where it happens to run, and leave a row there that belongs elsewhere.

use polyshard_sql::{Analysis, Kind, Schema, SqlError, SqlState, Statement};

use super::Session;
use crate::reply::state;

impl Session {
    /// Whether a statement names something that may be new.
    pub(super) fn may_be_new(&self, analysis: &Analysis) -> bool {
        // A transaction that has changed tables itself holds everybody else off; what is done inside of a statement was
        // looked at with it.
        self.transaction.schema.is_none() && self.under.is_none() && self.unknown(analysis).is_some()
    }

    fn unknown<'a>(&self, analysis: &'a Analysis) -> Option<&'a String> {
        let is_temporary = |name: &&String| self.transaction.temporary.contains(name);
        analysis.unknown_relations().iter().find(|name| !is_temporary(name))
    }

    /// Asks the catalog, which alone can say that there is no such relation. True if tables have changed since this
    /// process has read them: then the statement is looked at again. A write to what is not there is refused here: it
    /// might be made before the shard looks.
    pub(super) async fn look_for_new(
        &self,
        statement: &Statement,
        analysis: &Analysis,
        schema: &Schema,
    ) -> Result<bool, SqlError> {
        let Some(name) = self.unknown(analysis) else { return Ok(false) };
        if let Err(error) = self.door.router.refresh().await {
            if matches!(statement.kind(), Kind::Select) && !analysis.writes() {
                // As any other read while the catalog is away. Whoever makes a table then has cut this process off from
                // the shards before it is used: it gets no session.
                return Ok(false);
            }
            let message =
                format!("relation \"{name}\" is not known here, and the catalog cannot be asked: {error}");
            return Err(SqlError::new(state::CANNOT_CONNECT_NOW, message).hint("Try again later."));
        }
        if self.door.journal.position() > schema.position {
            return Ok(true);
        }
        // Code that was not looked into may have made a temporary table of that name.
        let unseen = self.backend.as_ref().is_some_and(|backend| backend.closing);
        let rows = matches!(
            statement.kind(),
            Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Copy(_)
        );
        let writes_known = analysis.tables().iter().any(|(_, written)| *written);
        if analysis.writes() && rows && !writes_known && !unseen {
            let message = format!("relation \"{name}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        }
        Ok(false)
    }
}
