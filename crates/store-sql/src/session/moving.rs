//! Writes over several shards while ranges are being moved: rows count on the shard that owns them only.

use std::ops::ControlFlow;

use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use polyshard_sql::ast::{Expr, Ident, Statement as Tree, visit_relations};
use polyshard_sql::{Context, SqlError, SqlState, folded};

use super::{Session, Stop};
use crate::across::motion::{self, Motion};
use crate::reply;

/// What a shard has said about ranges that are being moved.
pub(super) type Said = Vec<Vec<Option<String>>>;

impl Session {
    /// Asks the shard that works for us which ranges are being moved, in the transaction that is open on it.
    pub(super) async fn ask_motion(&mut self) -> Result<Said, Stop> {
        let Some(backend) = &mut self.backend else { return Ok(Said::new()) };
        let asked = backend.ask_all(&motion::question()).await;
        asked.map_err(|error| Stop::Refused(reply::of_engine(&error)))
    }

    /// A write's text for a shard: without the rows that are not its own.
    pub(super) async fn own_write(
        &mut self,
        text: &str,
        shard: &ShardId,
        said: Said,
    ) -> Result<String, Stop> {
        if said.is_empty() {
            return Ok(text.to_owned());
        }
        let schema = self.current_schema().await?;
        let mut motion = Motion::default();
        motion.learn(said)?;
        let foreign = motion.foreign(Dialect::Postgres, shard, &self.door.router.view(), &schema)?;
        if foreign.is_empty() {
            return Ok(text.to_owned());
        }
        let parsed = polyshard_sql::statements(text)?;
        let Some(tree) = parsed.first().and_then(|statement| statement.ast()) else {
            return Err(in_motion().into());
        };
        let context = Context { schema: &schema, search_path: &self.search_path, strict: true };
        let mut conditions = Vec::new();
        let mut relations = 0;
        let _: ControlFlow<()> = visit_relations(tree, |name| {
            relations += 1;
            let mut parts = name.0.iter().rev().filter_map(|part| part.as_ident()).map(folded);
            let (short, within) = (parts.next().unwrap_or_default(), parts.next());
            let table = context.schema.table(within.as_deref(), &short, context.search_path);
            conditions.extend(table.and_then(|table| foreign.get(&table.name)));
            ControlFlow::Continue(())
        });
        match (conditions.as_slice(), relations, tree.clone()) {
            ([], _, _) => Ok(text.to_owned()),
            // The conditions are in PostgreSQL's words.
            _ if self.backend.as_ref().is_some_and(|backend| backend.is_inside()) => Err(in_motion().into()),
            ([condition], 1, Tree::Update(mut update)) => {
                update.selection = Some(narrowed(update.selection.as_ref(), condition));
                Ok(update.to_string())
            }
            ([condition], 1, Tree::Delete(mut delete)) => {
                delete.selection = Some(narrowed(delete.selection.as_ref(), condition));
                Ok(delete.to_string())
            }
            _ => Err(in_motion().into()),
        }
    }
}

/// What was asked for, of the rows that do not meet the condition. As raw text: it is only printed.
fn narrowed(selection: Option<&Expr>, condition: &str) -> Expr {
    let own = format!("({condition}) IS NOT TRUE");
    Expr::Identifier(Ident::new(match selection {
        Some(selection) => format!("({selection}) AND {own}"),
        None => own,
    }))
}

/// A write that cannot be narrowed to the rows of their owners.
pub(super) fn in_motion() -> SqlError {
    SqlError::new(
        SqlState::SERIALIZATION_FAILURE,
        "a range of the tables is being moved, or its old rows are still kept",
    )
    .hint("Try again when the move is done, or write rows of one shard at a time.")
}
