//! The journal of what every shard must have alike: entries in one order, whose turn it is to add one, what was
//! declared of tables, and the numbers that ids are made from. Only the bookkeeping: what an entry says is the
//! journal's own affair.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_engine::{Access, Dialect, Row, Statement};
use polyshard_map::{MapName, ShardId};
use polyshard_shard::RouterId;
use uuid::Uuid;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::datasets::{DatasetRecord, KeyRule};
use crate::sql_catalog::{SqlCatalog, parse};
use crate::tx::{CatalogTx, Reply};
use crate::types::Event;

/// How long whose turn it is may be silent before another takes it: as with operations, longer than a pause of a
/// process, short enough that nobody waits long for a dead one.
pub const TURN_LEASE: Duration = Duration::from_secs(10);

/// Shards that ever were: their numbers are part of ids, and have so many bits there.
pub const SHARD_NUMBERS_MAX: i64 = 1024;

/// One entry as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its place; they follow each other without gaps.
    pub position: u64,
    /// Who decided it: the turn's own name.
    pub turn: Uuid,
    /// What it says.
    pub body: String,
}

/// The right to add the next entry, for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnLease {
    /// Its own name.
    pub turn: Uuid,
    /// Grows with every turn.
    pub token: u64,
    /// The position that it may add.
    pub position: u64,
}

/// What becomes known of a dataset together with an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetOfTable {
    /// Its store.
    pub store: String,
    /// Its name there.
    pub name: String,
    /// The map that places it.
    pub map: MapName,
    /// The attribute that is its key.
    pub rule: KeyRule,
    /// What the store keeps about it.
    pub body: serde_json::Value,
}

/// An entry to be added, and what becomes true with it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// What it says.
    pub body: String,
    /// Whether it says no more than rows of reference tables, which a shard that comes later gets otherwise.
    pub rows_only: bool,
    /// Maps on which no operation may be under way: it changes tables whose rows may be moving. No move begins either
    /// until every shard has the change.
    pub quiet: Vec<MapName>,
    /// A declaration that must still stand as given, by name: otherwise somebody has taken back what this builds on.
    pub require: Option<(String, String)>,
    /// Declarations by name; none where one is forgotten.
    pub declare: Vec<(String, Option<String>)>,
    /// Datasets that begin.
    pub datasets: Vec<DatasetOfTable>,
    /// Datasets that end, by store and name.
    pub forget: Vec<(String, String)>,
    /// Maps whose ranges the entry's work on the shards depends on: nobody may change them until it is done
    /// everywhere.
    pub depends_on: Vec<MapName>,
}

/// What the catalog knows of the journal, of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalState {
    /// The last position.
    pub position: u64,
    /// Declarations by name.
    pub declarations: Vec<(String, String)>,
}

/// The tables.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    let own = |name| dialect.own_table(name);
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {} (one {int} PRIMARY KEY CHECK (one = 1), format {int} NOT NULL, \
             position {int} NOT NULL, turn {text} NOT NULL, token {int} NOT NULL, lease_until {int} NOT NULL)",
            own("journal_state")
        ),
        format!(
            "INSERT INTO {} (one, format, position, turn, token, lease_until) VALUES (1, 1, 0, '', 0, 0) \
             ON CONFLICT (one) DO NOTHING",
            own("journal_state")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (position {int} PRIMARY KEY, turn {text} NOT NULL, body {text} NOT NULL, \
             rows_only {int} NOT NULL)",
            own("journal")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name {text} PRIMARY KEY, body {text} NOT NULL)",
            own("declaration")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (map {text} NOT NULL, position {int} NOT NULL, PRIMARY KEY (map, position))",
            own("journal_depends")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (map {text} NOT NULL, position {int} NOT NULL, PRIMARY KEY (map, position))",
            own("journal_quiet")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (router {int} PRIMARY KEY, position {int} NOT NULL)",
            own("journal_seen")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name {text} PRIMARY KEY, next {int} NOT NULL)",
            own("id_sequence")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (shard {text} PRIMARY KEY, number {int} NOT NULL UNIQUE)",
            own("shard_number")
        ),
    ]
}

impl Catalog {
    /// The last position and all declarations, of one moment.
    pub async fn journal_state(&self) -> Reply<JournalState> {
        let db = self.db().await?;
        let own = |name| db.dialect().own_table(name);
        let mut tx = db.begin(Access::Read).await?;
        let rows = tx.run(Statement::new(format!("SELECT position FROM {}", own("journal_state")))).await?;
        let position = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) as u64;
        let sql = format!("SELECT name, body FROM {} ORDER BY name", own("declaration"));
        let rows = tx.run(Statement::new(sql)).await?;
        tx.commit().await?;
        let read = |row: &Row| Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned()));
        let declarations: Reply<Vec<_>> = rows.rows().iter().map(read).collect();
        Ok(JournalState { position, declarations: declarations? })
    }

    /// The last position.
    pub async fn journal_position(&self) -> Reply<u64> {
        let db = self.db().await?;
        let sql = format!("SELECT position FROM {}", db.dialect().own_table("journal_state"));
        let rows = db.read(Statement::new(sql)).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) as u64)
    }

    /// Entries after a position, in order, at most so many.
    pub async fn journal_entries(&self, after: u64, limit: u32) -> Reply<Vec<JournalEntry>> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT position, turn, body FROM {} WHERE position > $1 ORDER BY position LIMIT {limit}",
            db.dialect().own_table("journal")
        );
        let rows = db.read(Statement::new(sql).bind(after as i64)).await?;
        rows.rows().iter().map(read_entry).collect()
    }

    /// Takes the turn; none while another has it.
    pub async fn take_turn(&self) -> Reply<Option<TurnLease>> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        let state = tx.turn_state().await?;
        if !state.turn.is_empty() && state.lease_until > now {
            return Ok(None);
        }
        let lease = TurnLease { turn: self.fresh_id(), token: state.token + 1, position: state.position + 1 };
        tx.put_turn(Some(&lease), now).await?;
        tx.commit().await?;
        Ok(Some(lease))
    }

    /// Says that whose turn it is lives. False if the turn is another's by now.
    pub async fn renew_turn(&self, lease: &TurnLease) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        if !tx.turn_state().await?.is(lease) {
            return Ok(false);
        }
        let now = tx.now_ms().await?;
        tx.put_turn(Some(lease), now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Gives the turn back, with nothing decided.
    pub async fn give_turn_back(&self, lease: &TurnLease) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        if tx.turn_state().await?.is(lease) {
            tx.put_turn(None, 0).await?;
        }
        tx.commit().await
    }

    /// Adds the entry and everything that becomes true with it, and gives the turn back: all or nothing. False if the
    /// turn is another's by now.
    #[boxed]
    pub async fn decide(&self, lease: &TurnLease, decision: &Decision) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let state = tx.turn_state().await?;
        if !state.is(lease) || state.position + 1 != lease.position {
            return Ok(false);
        }
        if let Some((name, body)) = &decision.require {
            let sql = format!("SELECT 1 FROM {} WHERE name = $1 AND body = $2", tx.own("declaration"));
            if tx.rows(Statement::new(sql).bind(name.clone()).bind(body.clone())).await?.is_empty() {
                return Ok(false);
            }
        }
        for map in &decision.quiet {
            if let Some(other) = tx.running(Some(map)).await?.into_iter().next() {
                return Err(CatalogError::Busy { op: other.op.id, kind: other.op.kind });
            }
            let sql = format!(
                "INSERT INTO {} (map, position) VALUES ($1, $2) ON CONFLICT (map, position) DO NOTHING",
                tx.own("journal_quiet")
            );
            tx.done(Statement::new(sql).bind(map.to_string()).bind(lease.position as i64)).await?;
        }
        for map in &decision.depends_on {
            if tx.map(map).await?.is_none_or(|record| !record.live) {
                return Err(CatalogError::NoSuchMap(map.clone()));
            }
            if let Some(other) = tx.running(Some(map)).await?.into_iter().next() {
                return Err(CatalogError::Busy { op: other.op.id, kind: other.op.kind });
            }
            let sql = format!("INSERT INTO {} (map, position) VALUES ($1, $2)", tx.own("journal_depends"));
            tx.done(Statement::new(sql).bind(map.to_string()).bind(lease.position as i64)).await?;
        }
        for (name, body) in &decision.declare {
            tx.declare(name, body.as_deref()).await?;
        }
        for (store, name) in &decision.forget {
            if tx.dataset(store, name).await?.is_some() {
                tx.forget_dataset(store, name).await?;
            }
        }
        for dataset in &decision.datasets {
            let DatasetOfTable { store, name, map, rule, body } = dataset.clone();
            let id = tx.next_dataset().await?;
            tx.save_dataset(&DatasetRecord { id, store, name, map, rule, body, version: 1 }).await?;
        }
        let insert = format!(
            "INSERT INTO {} (position, turn, body, rows_only) VALUES ($1, $2, $3, $4)",
            tx.own("journal")
        );
        let statement = Statement::new(insert).bind(lease.position as i64).bind(lease.turn.to_string());
        tx.done(statement.bind(decision.body.clone()).bind(i64::from(decision.rows_only))).await?;
        let moved = format!("UPDATE {} SET position = $1", tx.own("journal_state"));
        tx.done(Statement::new(moved).bind(lease.position as i64)).await?;
        tx.put_turn(None, 0).await?;
        tx.publish(&Event::Journal { position: lease.position }).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Whether a turn's entry was added, when nobody could tell. Afterwards it is certain: a turn that has not decided
    /// by now never will.
    pub async fn settle_turn(&self, lease: &TurnLease) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        if tx.turn_state().await?.is(lease) {
            tx.put_turn(None, 0).await?;
        }
        let sql = format!("SELECT position, turn, body FROM {} WHERE position = $1", tx.own("journal"));
        let rows = tx.rows(Statement::new(sql).bind(lease.position as i64)).await?;
        let entry = rows.first().map(read_entry).transpose()?;
        tx.commit().await?;
        Ok(entry.is_some_and(|entry| entry.turn == lease.turn))
    }

    /// Says that a router's process goes by the schema of a position, or a later one, from now on.
    pub async fn saw(&self, router: RouterId, position: u64) -> Reply<()> {
        let db = self.db().await?;
        let sql = format!(
            "INSERT INTO {} (router, position) VALUES ($1, $2) ON CONFLICT (router) \
             DO UPDATE SET position = excluded.position",
            db.dialect().own_table("journal_seen")
        );
        let statement = Statement::new(sql).bind(i64::from(router.get())).bind(position as i64);
        db.write(statement.into()).await?;
        Ok(())
    }

    /// Which schema each router's process that ever had one goes by; also those of processes that are gone.
    pub async fn seen(&self) -> Reply<Vec<(RouterId, u64)>> {
        let db = self.db().await?;
        let sql = format!("SELECT router, position FROM {}", db.dialect().own_table("journal_seen"));
        let rows = db.read(Statement::new(sql)).await?;
        let read = |row: &Row| Ok((RouterId::new(row.int(0)? as u32), row.int(1)? as u64));
        rows.rows().iter().map(read).collect()
    }

    /// Maps that nobody may change, or move rows of, before the shards have all come to a position.
    pub async fn journal_depends(&self) -> Reply<Vec<(MapName, u64)>> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT map, position FROM {} UNION SELECT map, position FROM {} ORDER BY 2",
            db.dialect().own_table("journal_depends"),
            db.dialect().own_table("journal_quiet")
        );
        let rows = db.read(Statement::new(sql)).await?;
        rows.rows().iter().map(|row| Ok((parse("map name", row.text(0)?)?, row.int(1)? as u64))).collect()
    }

    /// Lets go the maps that entries up to a position depended on: the shards have all come there.
    pub async fn release_depends(&self, upto: u64) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        for table in ["journal_depends", "journal_quiet"] {
            let sql = format!("DELETE FROM {} WHERE position <= $1", tx.own(table));
            tx.done(Statement::new(sql).bind(upto as i64)).await?;
        }
        tx.commit().await
    }

    /// Forgets entries up to a position that say no more than rows: every shard has them, and one that comes later gets
    /// the rows as they are then.
    pub async fn forget_rows(&self, upto: u64) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let sql = format!("DELETE FROM {} WHERE rows_only = 1 AND position <= $1", tx.own("journal"));
        tx.done(Statement::new(sql).bind(upto as i64)).await?;
        tx.commit().await
    }

    /// How many entries are kept that say no more than rows, up to a position.
    pub async fn rows_kept(&self, upto: u64) -> Reply<u64> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT count(*) FROM {} WHERE rows_only = 1 AND position <= $1",
            db.dialect().own_table("journal")
        );
        let rows = db.read(Statement::new(sql).bind(upto as i64)).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) as u64)
    }

    /// The number of a shard, which no other shard ever has.
    pub async fn shard_number(&self, shard: &ShardId) -> Reply<i64> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let table = tx.own("shard_number");
        let known = format!("SELECT number FROM {table} WHERE shard = $1");
        if let Some(row) = tx.rows(Statement::new(known).bind(shard.to_string())).await?.first() {
            return Ok(row.int(0)?);
        }
        let last = format!("SELECT COALESCE(max(number), -1) FROM {table}");
        let rows = tx.rows(Statement::new(last)).await?;
        let number = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(-1) + 1;
        if number >= SHARD_NUMBERS_MAX {
            return Err(CatalogError::Invalid(format!(
                "there were {SHARD_NUMBERS_MAX} shards already, and ids have no room for the number of another"
            )));
        }
        let insert = format!("INSERT INTO {table} (shard, number) VALUES ($1, $2)");
        tx.done(Statement::new(insert).bind(shard.to_string()).bind(number)).await?;
        tx.commit().await?;
        Ok(number)
    }

    /// Takes `count` numbers of a sequence that nobody else gets; answers the first. They are at least `least`.
    #[boxed]
    pub async fn lease_ids(&self, sequence: &str, count: u64, least: i64) -> Reply<i64> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let table = tx.own("id_sequence");
        let known = format!("SELECT next FROM {table} WHERE name = $1");
        let rows = tx.rows(Statement::new(known).bind(sequence.to_owned())).await?;
        let next = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(least).max(least);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let after = next.checked_add(count).ok_or_else(|| {
            CatalogError::Invalid(format!("the ids of {sequence} have come to an end at {next}"))
        })?;
        let put = format!(
            "INSERT INTO {table} (name, next) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET next = excluded.next"
        );
        tx.done(Statement::new(put).bind(sequence.to_owned()).bind(after)).await?;
        tx.commit().await?;
        Ok(next)
    }
}

/// Whose turn it is, as stored.
struct TurnState {
    position: u64,
    turn: String,
    token: u64,
    lease_until: i64,
}

impl TurnState {
    fn is(&self, lease: &TurnLease) -> bool {
        self.token == lease.token && self.turn == lease.turn.to_string()
    }
}

impl SqlCatalog {
    async fn turn_state(&mut self) -> Reply<TurnState> {
        let sql = format!("SELECT position, turn, token, lease_until FROM {}", self.own("journal_state"));
        let rows = self.rows(Statement::new(sql)).await?;
        let missing = CatalogError::Damaged { what: "journal state", detail: "missing".into() };
        let row = rows.first().ok_or(missing)?;
        Ok(TurnState {
            position: row.int(0)? as u64,
            turn: row.text(1)?.to_owned(),
            token: row.int(2)? as u64,
            lease_until: row.int(3)?,
        })
    }

    /// Records whose turn it is; nobody's if none. The token stays, so that an old turn is told from a new one.
    async fn put_turn(&mut self, lease: Option<&TurnLease>, now: i64) -> Reply<()> {
        let table = self.own("journal_state");
        let statement = match lease {
            None => Statement::new(format!("UPDATE {table} SET turn = '', lease_until = 0")),
            Some(lease) => {
                let sql = format!("UPDATE {table} SET turn = $1, token = $2, lease_until = $3");
                let until = now + TURN_LEASE.as_millis() as i64;
                Statement::new(sql).bind(lease.turn.to_string()).bind(lease.token as i64).bind(until)
            }
        };
        self.done(statement).await
    }

    async fn declare(&mut self, name: &str, body: Option<&str>) -> Reply<()> {
        let table = self.own("declaration");
        let statement = match body {
            None => Statement::new(format!("DELETE FROM {table} WHERE name = $1")).bind(name.to_owned()),
            Some(body) => {
                let sql = format!(
                    "INSERT INTO {table} (name, body) VALUES ($1, $2) ON CONFLICT (name) \
                     DO UPDATE SET body = excluded.body"
                );
                Statement::new(sql).bind(name.to_owned()).bind(body.to_owned())
            }
        };
        self.done(statement).await
    }

    /// The position before which no rows of a map may be moved, if there is one.
    pub(crate) async fn journal_quiet_on(&mut self, map: &MapName) -> Reply<Option<u64>> {
        let sql = format!("SELECT max(position) FROM {} WHERE map = $1", self.own("journal_quiet"));
        let rows = self.rows(Statement::new(sql).bind(map.to_string())).await?;
        Ok(rows.first().map(|row| row.opt_int(0)).transpose()?.flatten().map(|position| position as u64))
    }

    /// The position before which a map may not be changed, if there is one.
    pub(crate) async fn journal_depends_on(&mut self, map: &MapName) -> Reply<Option<u64>> {
        let sql = format!("SELECT max(position) FROM {} WHERE map = $1", self.own("journal_depends"));
        let rows = self.rows(Statement::new(sql).bind(map.to_string())).await?;
        Ok(rows.first().map(|row| row.opt_int(0)).transpose()?.flatten().map(|position| position as u64))
    }
}

fn read_entry(row: &Row) -> Reply<JournalEntry> {
    Ok(JournalEntry {
        position: row.int(0)? as u64,
        turn: parse("turn", row.text(1)?)?,
        body: row.text(2)?.to_owned(),
    })
}
