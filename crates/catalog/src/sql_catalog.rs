//! The catalog in its database: [`CatalogTx`] in SQL.

use std::sync::Arc;
use std::time::Duration;

use polyshard_engine::{Access, Database, Dialect, Row, Statement, Transaction, Value};
use polyshard_map::{Delta, Entry, Epoch, GroupName, KeyBytes, KeyRange, Lock, MapName, ShardId};
use polyshard_shard::OpId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::CatalogError;
use crate::bindings::Binding;
use crate::carrier::Wish;
use crate::catalog::CHANGE_CHANNEL;
use crate::datasets::DatasetRecord;
use crate::tx::{CatalogTx, Reply};
use crate::types::{Event, MapRecord, OpRecord, Operation, ShardRecord};
use crate::users::places_nothing;

/// Events kept for routers that were away; one that was away longer reads everything anew.
const EVENTS_KEPT: i64 = 10_000;
/// Ended operations kept for people to look at.
const OPERATIONS_KEPT: i64 = 1_000;

/// One transaction on the catalog. Requests may be held meanwhile, so it makes few round trips: writes wait for the
/// next read, or for the commit, and go with it.
pub(crate) struct SqlCatalog {
    tx: Transaction,
    pending: Vec<Statement>,
    dialect: Dialect,
    lease: Duration,
}

/// The columns of an entry, in the order that [`read_entry`] expects.
pub(crate) const ENTRY_COLUMNS: &str = "lo, hi, shard, state, epoch, grp, lock_owner, lock_until";

impl SqlCatalog {
    pub(crate) async fn begin(db: &Database, lease: Duration) -> Reply<SqlCatalog> {
        let tx = db.begin(Access::Write).await?;
        Ok(SqlCatalog { tx, pending: Vec::new(), dialect: db.dialect(), lease })
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) async fn commit(mut self) -> Reply<()> {
        if !self.pending.is_empty() {
            self.tx.run_known(self.pending).await?;
        }
        Ok(self.tx.commit().await?)
    }

    pub(crate) async fn rows(&mut self, statement: Statement) -> Reply<Vec<Row>> {
        self.pending.push(statement);
        let mut answers = self.tx.run_known(std::mem::take(&mut self.pending)).await?;
        Ok(answers.pop().map(polyshard_engine::Rows::into_rows).unwrap_or_default())
    }

    pub(crate) async fn done(&mut self, statement: Statement) -> Reply<()> {
        self.pending.push(statement);
        Ok(())
    }

    pub(crate) fn own(&self, name: &str) -> String {
        self.dialect.own_table(name)
    }

    /// Reads a shard's record.
    pub(crate) async fn shard(&mut self, id: &polyshard_map::ShardId) -> Reply<Option<ShardRecord>> {
        let sql = format!("SELECT record FROM {} WHERE id = $1", self.own("shard"));
        let rows = self.rows(Statement::new(sql).bind(id.to_string())).await?;
        rows.first().map(|row| from_json("shard record", row.text(0)?)).transpose()
    }

    /// Writes a shard's record.
    pub(crate) async fn put_shard(&mut self, record: &ShardRecord) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (id, record, version) VALUES ($1, $2, $3) ON CONFLICT (id) \
             DO UPDATE SET record = excluded.record, version = excluded.version",
            self.own("shard")
        );
        let statement =
            Statement::new(sql).bind(record.id.to_string()).bind(to_json(record)).bind(record.version as i64);
        self.done(statement).await
    }

    /// Removes a shard's record.
    pub(crate) async fn delete_shard(&mut self, id: &polyshard_map::ShardId) -> Reply<()> {
        let sql = format!("DELETE FROM {} WHERE id = $1", self.own("shard"));
        self.done(Statement::new(sql).bind(id.to_string())).await
    }

    /// How many ranges a shard has, in maps live or not.
    pub(crate) async fn ranges_of(&mut self, id: &polyshard_map::ShardId) -> Reply<Vec<(MapName, u64)>> {
        let sql = format!(
            "SELECT map, count(*) FROM {} WHERE shard = $1 GROUP BY map ORDER BY map",
            self.own("map_range")
        );
        let rows = self.rows(Statement::new(sql).bind(id.to_string())).await?;
        rows.iter().map(|row| Ok((parse("map name", row.text(0)?)?, row.int(1)? as u64))).collect()
    }

    /// Removes a shard's entries of a map from the catalog alone.
    pub(crate) async fn delete_ranges_of(&mut self, id: &polyshard_map::ShardId, map: &MapName) -> Reply<()> {
        let sql = format!("DELETE FROM {} WHERE shard = $1 AND map = $2", self.own("map_range"));
        self.done(Statement::new(sql).bind(id.to_string()).bind(map.to_string())).await
    }

    /// Removes all entries of a map, to be replaced.
    pub(crate) async fn delete_entries(&mut self, map: &MapName) -> Reply<()> {
        let sql = format!("DELETE FROM {} WHERE map = $1", self.own("map_range"));
        self.done(Statement::new(sql).bind(map.to_string())).await
    }

    /// Sees that the next epoch is above this one.
    pub(crate) async fn raise_epoch(&mut self, least: Epoch) -> Reply<()> {
        let sql = format!("UPDATE {} SET epoch = $1 WHERE epoch < $1", self.own("cluster"));
        self.done(Statement::new(sql).bind(least.get() as i64)).await
    }
}

impl CatalogTx for SqlCatalog {
    async fn lock(&mut self) -> Reply<()> {
        let sql = format!("SELECT epoch FROM {}{}", self.own("cluster"), self.dialect.for_update());
        self.done(Statement::new(sql)).await
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    async fn now_ms(&mut self) -> Reply<i64> {
        let rows = self.rows(Statement::new(format!("SELECT {}", self.dialect.now_ms()))).await?;
        let row = rows.first().ok_or(CatalogError::Damaged { what: "clock", detail: "no row".into() })?;
        Ok(row.int(0)?)
    }

    async fn next_epoch(&mut self) -> Reply<Epoch> {
        let sql = format!("UPDATE {} SET epoch = epoch + 1 RETURNING epoch", self.own("cluster"));
        let rows = self.rows(Statement::new(sql)).await?;
        let row =
            rows.first().ok_or(CatalogError::Damaged { what: "cluster row", detail: "missing".into() })?;
        Ok(Epoch::new(row.int(0)? as u64))
    }

    async fn has_shard(&mut self, id: &ShardId) -> Reply<bool> {
        Ok(self.shard(id).await?.is_some())
    }

    async fn depended_on(&mut self, map: &MapName) -> Reply<Option<u64>> {
        self.journal_depends_on(map).await
    }

    async fn placed_by(&mut self, map: &MapName) -> Reply<Option<String>> {
        let sql = format!("SELECT record FROM {}", self.own("dataset_list"));
        let records: Reply<Vec<DatasetRecord>> = self
            .rows(Statement::new(sql))
            .await?
            .iter()
            .map(|row| from_json("dataset", row.text(0)?))
            .collect();
        let found = records?.into_iter().find(|record| record.map == *map && !places_nothing(&record.store));
        Ok(found.map(|record| match Binding::of(&record) {
            Some(binding) => format!("{} {}, by a binding", binding.store, binding.name),
            None => format!("{} {}", record.store, record.name),
        }))
    }

    async fn map(&mut self, map: &MapName) -> Reply<Option<MapRecord>> {
        let sql = format!("SELECT definition, epoch, version, live FROM {} WHERE name = $1", self.own("map"));
        let rows = self.rows(Statement::new(sql).bind(map.to_string())).await?;
        rows.first().map(read_map).transpose()
    }

    async fn put_map(&mut self, record: &MapRecord) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (name, definition, epoch, version, live) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, epoch = excluded.epoch, \
             version = excluded.version, live = excluded.live",
            self.own("map")
        );
        let statement = Statement::new(sql)
            .bind(record.definition.name().to_string())
            .bind(to_json(&record.definition))
            .bind(record.epoch.get() as i64)
            .bind(record.version as i64)
            .bind(i64::from(record.live));
        self.done(statement).await
    }

    async fn delete_map(&mut self, map: &MapName) -> Reply<()> {
        self.delete_entries(map).await?;
        self.forget_quotas(map).await?;
        // What was said about it goes with it: a new map of that name may have keys of another type.
        for table in ["rule", "policy"] {
            let sql = format!("DELETE FROM {} WHERE map = $1", self.own(table));
            self.done(Statement::new(sql).bind(map.to_string())).await?;
        }
        let sql = format!("DELETE FROM {} WHERE name = $1", self.own("map"));
        self.done(Statement::new(sql).bind(map.to_string())).await
    }

    async fn entries(&mut self, map: &MapName, range: &KeyRange) -> Reply<Vec<Entry>> {
        let statement = select_entries(self.dialect, map, range);
        self.rows(statement).await?.iter().map(read_entry).collect()
    }

    async fn group(&mut self, map: &MapName, group: &GroupName) -> Reply<Vec<Entry>> {
        let sql = format!(
            "SELECT {ENTRY_COLUMNS} FROM {} WHERE map = $1 AND grp = $2 ORDER BY lo",
            self.own("map_range")
        );
        let rows = self.rows(Statement::new(sql).bind(map.to_string()).bind(group.to_string())).await?;
        rows.iter().map(read_entry).collect()
    }

    async fn apply(&mut self, map: &MapName, delta: &Delta) -> Reply<()> {
        let table = self.own("map_range");
        let delete: Arc<str> = format!("DELETE FROM {table} WHERE map = $1 AND lo = $2").into();
        let insert: Arc<str> = format!(
            "INSERT INTO {table} (map, {ENTRY_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (map, lo) DO UPDATE SET hi = excluded.hi, shard = excluded.shard, state = excluded.state, \
             epoch = excluded.epoch, grp = excluded.grp, lock_owner = excluded.lock_owner, \
             lock_until = excluded.lock_until"
        )
        .into();
        let removals = delta.remove.iter().map(|range| {
            Statement::new(delete.clone()).bind(map.to_string()).bind(range.lo().as_slice().to_vec())
        });
        let puts = delta.put.iter().map(|entry| {
            Statement::new(insert.clone())
                .bind(map.to_string())
                .bind(entry.range.lo().as_slice().to_vec())
                .bind(entry.range.hi().map(|hi| hi.as_slice().to_vec()))
                .bind(entry.shard.to_string())
                .bind(entry.state.as_str().to_owned())
                .bind(entry.epoch.get() as i64)
                .bind(entry.group.as_ref().map(|group| group.to_string()))
                .bind(entry.lock.as_ref().map(|lock| lock.owner().to_owned()))
                .bind(entry.lock.as_ref().map(|lock| lock.until_ms()))
        });
        let statements: Vec<Statement> = removals.chain(puts).collect();
        self.pending.extend(statements);
        Ok(())
    }

    async fn operation(&mut self, id: OpId) -> Reply<Option<OpRecord>> {
        let sql = format!("{} WHERE id = $1", select_operation(self.dialect));
        let rows = self.rows(Statement::new(sql).bind(id.to_string())).await?;
        rows.first().map(read_operation).transpose()
    }

    async fn running(&mut self, map: Option<&MapName>) -> Reply<Vec<OpRecord>> {
        let sql = format!("{} WHERE state = 'running'", select_operation(self.dialect));
        let statement = match map {
            None => Statement::new(sql),
            Some(map) => Statement::new(format!("{sql} AND map = $1")).bind(map.to_string()),
        };
        self.rows(statement).await?.iter().map(read_operation).collect()
    }

    async fn put_operation(&mut self, record: &OpRecord) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (id, map, kind, body, step, state, token, owner, lease_until, started, message) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO UPDATE SET \
             step = excluded.step, state = excluded.state, token = excluded.token, owner = excluded.owner, \
             lease_until = excluded.lease_until, message = excluded.message",
            self.own("operation")
        );
        let statement = Statement::new(sql)
            .bind(record.op.id.to_string())
            .bind(record.op.map.to_string())
            .bind(record.op.kind.clone())
            .bind(to_json(&record.op))
            .bind(record.step.as_str().to_owned())
            .bind(to_word(&record.state))
            .bind(record.token as i64)
            .bind(record.owner.clone())
            .bind(record.lease_until_ms)
            .bind(record.started_ms)
            .bind(record.message.clone());
        self.done(statement).await
    }

    async fn wish(&mut self, id: OpId) -> Reply<Wish> {
        Ok(self.move_status(id).await?.map_or(Wish::Run, |status| status.wish))
    }

    async fn put_wish(&mut self, id: OpId, wish: Wish) -> Reply<()> {
        self.store_wish(id, wish).await
    }

    async fn publish(&mut self, event: &Event) -> Reply<()> {
        let sql = format!("UPDATE {} SET seq = seq + 1 RETURNING seq", self.own("cluster"));
        let rows = self.rows(Statement::new(sql)).await?;
        let row =
            rows.first().ok_or(CatalogError::Damaged { what: "cluster row", detail: "missing".into() })?;
        let seq = row.int(0)?;
        let insert = format!("INSERT INTO {} (seq, event) VALUES ($1, $2)", self.own("event"));
        let prune = format!("DELETE FROM {} WHERE seq <= $1", self.own("event"));
        let old = format!(
            "DELETE FROM {table} WHERE state <> 'running' AND started < (SELECT min(started) FROM \
             (SELECT started FROM {table} ORDER BY started DESC LIMIT $1) AS kept)",
            table = self.own("operation")
        );
        let statements = vec![
            Statement::new(insert).bind(seq).bind(to_json(event)),
            Statement::new(prune).bind(seq - EVENTS_KEPT),
            Statement::new(old).bind(OPERATIONS_KEPT),
            Statement::notify(CHANGE_CHANNEL, seq.to_string()),
        ];
        self.pending.extend(statements);
        Ok(())
    }
}

/// The entries that overlap or touch a range: from the last that begins below it to the last that begins at
/// or below its end.
pub(crate) fn select_entries(dialect: Dialect, map: &MapName, range: &KeyRange) -> Statement {
    let table = dialect.own_table("map_range");
    let mut sql = format!(
        "SELECT {ENTRY_COLUMNS} FROM {table} WHERE map = $1 \
         AND lo >= COALESCE((SELECT lo FROM {table} WHERE map = $1 AND lo < $2 ORDER BY lo DESC LIMIT 1), $2)"
    );
    let mut params: Vec<Value> = vec![map.to_string().into(), range.lo().as_slice().to_vec().into()];
    if let Some(hi) = range.hi() {
        params.push(hi.as_slice().to_vec().into());
        sql.push_str(" AND lo <= $3");
    }
    sql.push_str(" ORDER BY lo");
    params.into_iter().fold(Statement::new(sql), Statement::bind)
}

pub(crate) fn select_operation(dialect: Dialect) -> String {
    format!(
        "SELECT body, step, state, token, owner, lease_until, started, message FROM {}",
        dialect.own_table("operation")
    )
}

pub(crate) fn read_operation(row: &Row) -> Reply<OpRecord> {
    let op: Operation = from_json("operation", row.text(0)?)?;
    Ok(OpRecord {
        op,
        step: from_word("step", row.text(1)?)?,
        state: from_word("state", row.text(2)?)?,
        token: row.int(3)? as u64,
        owner: row.text(4)?.to_owned(),
        lease_until_ms: row.int(5)?,
        started_ms: row.int(6)?,
        message: row.opt_text(7)?.map(str::to_owned),
    })
}

pub(crate) fn read_map(row: &Row) -> Reply<MapRecord> {
    Ok(MapRecord {
        definition: from_json("definition", row.text(0)?)?,
        epoch: Epoch::new(row.int(1)? as u64),
        version: row.int(2)? as u64,
        live: row.int(3)? != 0,
    })
}

pub(crate) fn read_entry(row: &Row) -> Reply<Entry> {
    let lo = KeyBytes::from(row.blob(0)?);
    let hi = row.opt_blob(1)?.map(KeyBytes::from);
    let lock = match (row.opt_text(6)?, row.opt_int(7)?) {
        (Some(owner), Some(until)) => {
            Some(Lock::new(owner.to_owned(), until).map_err(|e| damaged("lock", e))?)
        }
        _ => None,
    };
    Ok(Entry {
        range: KeyRange::new(lo, hi).map_err(|error| damaged("range", error))?,
        shard: parse("shard", row.text(2)?)?,
        state: parse("state", row.text(3)?)?,
        epoch: Epoch::new(row.int(4)? as u64),
        group: row.opt_text(5)?.map(|group| parse("group", group)).transpose()?,
        lock,
    })
}

pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    what: &'static str,
    text: &str,
) -> Reply<T> {
    text.parse().map_err(|error| damaged(what, error))
}

pub(crate) fn from_json<T: DeserializeOwned>(what: &'static str, text: &str) -> Reply<T> {
    serde_json::from_str(text).map_err(|error| damaged(what, error))
}

fn from_word<T: DeserializeOwned>(what: &'static str, word: &str) -> Reply<T> {
    T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(word))
        .map_err(|error| damaged(what, error))
}

pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("catalog records have string keys only and always serialise")
}

fn to_word<T: Serialize>(value: &T) -> String {
    to_json(value).trim_matches('"').to_owned()
}

fn damaged(what: &'static str, detail: impl std::fmt::Display) -> CatalogError {
    CatalogError::Damaged { what, detail: detail.to_string() }
}
