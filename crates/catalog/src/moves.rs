//! Moves in the catalog: how one is begun, undone, paused and cancelled, and what is known of it.

use std::time::Duration;

use polyshard_engine::{Dialect, Row, Statement};
use polyshard_map::{KeyRange, MapName, ShardId, State};
use polyshard_shard::OpId;

use crate::CatalogError;
use crate::carrier::{Progress, Wish};
use crate::catalog::Catalog;
use crate::driver::Driver;
use crate::moving;
use crate::sql_catalog::{SqlCatalog, from_json, to_json};
use crate::tx::{CatalogTx, Reply};
use crate::types::{OpRecord, Step};

/// How often a move that is to begin looks whether a change of its tables has come to all shards, and the pause after a
/// look in vain: five seconds in all, while a process brings the shards up within one.
const SETTLE_LOOKS: usize = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(50);

/// What an operator asks to be moved.
#[derive(Debug, Clone)]
pub struct MoveRequest {
    /// The map.
    pub map: MapName,
    /// What to move; all of it must be on one shard.
    pub range: KeyRange,
    /// Where to.
    pub to: ShardId,
    /// How long the source keeps its rows afterwards, so that the move can be undone.
    pub keep_ms: u64,
    /// The version of the map that the operator saw, if he insists on it.
    pub if_version: Option<u64>,
    /// The lock owner he acts as.
    pub by: Option<String>,
}

/// For whom a move is begun: a procedure that has noted the move's name before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnBehalf {
    /// The name the move gets.
    pub id: OpId,
    /// The procedure.
    pub procedure: OpId,
    /// The token of its driver.
    pub token: u64,
}

/// A move and what is known of it.
#[derive(Debug, Clone)]
pub struct MoveStatus {
    /// What is wanted of it.
    pub wish: Wish,
    /// How far it was when that was last stored.
    pub progress: Progress,
}

impl Driver {
    /// Begins a move, which goes on by itself.
    pub async fn start_move(&self, request: &MoveRequest) -> Reply<OpRecord> {
        self.start_as(request, None, None).await
    }

    /// Likewise; what arrives is in this state from the switch on, whatever it was in before. So a range that was
    /// taken offline to be moved is online again before the old rows are removed.
    pub async fn start_move_into(&self, request: &MoveRequest, state: State) -> Reply<OpRecord> {
        self.start_as(request, Some(state), None).await
    }

    /// Begins a move of a procedure, under the name that is on record there; what arrives may be in a state of its own.
    /// Refused if the procedure has got another driver since, or is to be cancelled: whoever cancels it looks for a
    /// move of that name, and none may begin after he has looked.
    pub async fn start_planned_move(
        &self,
        request: &MoveRequest,
        arrives: Option<State>,
        behalf: OnBehalf,
    ) -> Reply<OpRecord> {
        self.start_as(request, arrives, Some(behalf)).await
    }

    async fn start_as(
        &self,
        request: &MoveRequest,
        arrives: Option<State>,
        behalf: Option<OnBehalf>,
    ) -> Reply<OpRecord> {
        self.until_settled(&request.map).await?;
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        refuse_unsettled(&mut tx, &request.map).await?;
        let captures = [(); 2].map(|()| OpId::new(self.catalog().fresh_id()));
        let mut driver = self.name();
        if let Some(behalf) = behalf {
            tx.require_procedure(behalf.procedure, behalf.token).await?;
            driver.id = behalf.id;
        }
        let record = moving::intend_move(&mut tx, request, arrives, &driver, captures).await?;
        tx.commit().await?;
        self.pass("intent.after")?;
        drop(self.spawn(record.clone()));
        Ok(record)
    }

    /// Begins to take a move back that keeps its old rows: what was written since comes along.
    pub async fn undo_move(&self, id: OpId) -> Reply<OpRecord> {
        self.until_settled(&self.catalog().operation(id).await?.op.map).await?;
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        let map = tx.operation(id).await?.ok_or(CatalogError::NoSuchOperation(id))?.op.map;
        refuse_unsettled(&mut tx, &map).await?;
        let reverse = OpId::new(self.catalog().fresh_id());
        let record = moving::intend_undo(&mut tx, id, &self.name(), reverse).await?;
        tx.commit().await?;
        self.pass("intent.after")?;
        drop(self.spawn(record.clone()));
        Ok(record)
    }

    /// Waits a while for the shards to have all that was decided about a map's tables.
    async fn until_settled(&self, map: &MapName) -> Reply<()> {
        for _ in 0..SETTLE_LOOKS {
            if !self.catalog().journal_depends().await?.iter().any(|(other, _)| other == map) {
                break;
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
        Ok(())
    }

    /// Says what is wanted of a move under way. Cancelling is refused once its ranges have left; if they leave just
    /// now, it goes on.
    pub async fn wish_for(&self, id: OpId, wish: Wish) -> Reply<()> {
        // Asked before the catalog is locked: a shard may take its time.
        let has_left = wish == Wish::Cancel && self.has_left(id).await?;
        let mut tx = self.catalog().begin().await?;
        moving::put_wish(&mut tx, id, wish, has_left).await?;
        tx.commit().await
    }

    /// Whether an operation that departs has let ranges go: where it has not, it can still be given up.
    async fn has_left(&self, id: OpId) -> Reply<bool> {
        let record = self.catalog().operation(id).await?;
        if record.step != Step::Departing {
            return Ok(false);
        }
        for loser in record.op.losers() {
            let name = &record.op.edits[loser].0;
            let left = self.shard(name).await?.has_departed(id).await;
            if left.map_err(|error| CatalogError::Shard { shard: name.clone(), error })? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Catalog {
    /// Stores how far an operation is, if that is news, and answers what is wanted of it.
    pub(crate) async fn wish(&self, id: OpId, progress: Option<&Progress>) -> Reply<Wish> {
        let Some(progress) = progress else {
            return Ok(self.move_status(id).await?.map_or(Wish::Run, |status| status.wish));
        };
        let mut tx = self.begin().await?;
        let sql = format!(
            "INSERT INTO {} (id, wish, progress) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET progress = excluded.progress RETURNING wish",
            tx.own("operation_wish")
        );
        let statement =
            Statement::new(sql).bind(id.to_string()).bind(to_json(&Wish::Run)).bind(to_json(progress));
        let rows = tx.rows(statement).await?;
        let wish = rows.first().map(|row| from_json("wish", row.text(0)?)).transpose()?.unwrap_or(Wish::Run);
        tx.commit().await?;
        Ok(wish)
    }

    /// What is wanted of an operation, and how far it is.
    pub async fn move_status(&self, id: OpId) -> Reply<Option<MoveStatus>> {
        let db = self.db().await?;
        let rows = db.read(select_status(db.dialect(), id)).await?;
        rows.first().map(read_status).transpose()
    }
}

fn select_status(dialect: Dialect, id: OpId) -> Statement {
    let sql = format!("SELECT wish, progress FROM {} WHERE id = $1", dialect.own_table("operation_wish"));
    Statement::new(sql).bind(id.to_string())
}

fn read_status(row: &Row) -> Reply<MoveStatus> {
    let progress = row.opt_text(1)?.map(|text| from_json("progress", text)).transpose()?;
    Ok(MoveStatus { wish: from_json("wish", row.text(0)?)?, progress: progress.unwrap_or_default() })
}

impl SqlCatalog {
    pub(crate) async fn move_status(&mut self, id: OpId) -> Reply<Option<MoveStatus>> {
        let rows = self.rows(select_status(self.dialect(), id)).await?;
        rows.first().map(read_status).transpose()
    }

    pub(crate) async fn store_wish(&mut self, id: OpId, wish: Wish) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (id, wish) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET wish = excluded.wish",
            self.own("operation_wish")
        );
        self.done(Statement::new(sql).bind(id.to_string()).bind(to_json(&wish))).await
    }
}

/// A table must be the same on both shards, and the one on the source must not change any more: what was decided must
/// have come everywhere.
async fn refuse_unsettled(tx: &mut SqlCatalog, map: &MapName) -> Reply<()> {
    match tx.journal_quiet_on(map).await? {
        None => Ok(()),
        Some(position) => Err(CatalogError::Unsettled(format!(
            "a change of a table of map {map} (journal entry {position}) is not on all shards yet; try again when \
             'polyshard schema check' finds no shard behind"
        ))),
    }
}
