//! The local state of a shard in its own database: [`LocalTx`] in SQL.

use polyshard_engine::{self as engine, Batch, Database, Dialect, Row, Statement, Transaction, Value};
use polyshard_map::{Entry, Epoch, KeyBytes, KeyRange, MapDefinition, MapName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::registered::{CLOSED, select_named};
use crate::shard::FENCE_CHANNEL;
use crate::tx::Reply;
use crate::{
    Ack, Departure, FenceEpoch, FenceRow, LocalEntry, LocalTx, Meta, OpId, OpRow, RouterId, ShardError,
};

/// One transaction on the shard's tables. Requests may be held meanwhile, so it makes few round trips: writes wait for
/// the next read, or for the commit, and go with it.
pub(crate) struct SqlLocal {
    pub(crate) tx: Transaction,
    names: Names,
    /// The identity, once it is locked: nobody else can change it then.
    meta: Option<Meta>,
    pending: Vec<Statement>,
}

/// The table names in the database's dialect, made once a transaction.
struct Names {
    dialect: Dialect,
}

impl Names {
    fn own(&self, name: &str) -> String {
        self.dialect.own_table(name)
    }
}

impl SqlLocal {
    pub(crate) async fn begin(db: &Database) -> Reply<SqlLocal> {
        let tx = db.begin(polyshard_engine::Access::Write).await?;
        Ok(SqlLocal::within(tx, db.dialect()))
    }

    /// A transaction that another has begun.
    pub(crate) fn within(tx: Transaction, dialect: Dialect) -> SqlLocal {
        SqlLocal { tx, names: Names { dialect }, meta: None, pending: Vec::new() }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.names.dialect
    }

    pub(crate) fn own(&self, name: &str) -> String {
        self.names.own(name)
    }

    pub(crate) async fn commit(mut self) -> Reply<()> {
        self.direct().await?;
        Ok(self.tx.commit().await?)
    }

    /// The transaction itself, with everything written.
    pub(crate) async fn direct(&mut self) -> Reply<&mut Transaction> {
        if !self.pending.is_empty() {
            self.tx.run_known(std::mem::take(&mut self.pending)).await?;
        }
        Ok(&mut self.tx)
    }

    pub(crate) async fn run(&mut self, statement: Statement) -> Reply<Vec<Row>> {
        self.pending.push(statement);
        let mut answers = self.tx.run_known(std::mem::take(&mut self.pending)).await?;
        Ok(answers.pop().map(engine::Rows::into_rows).unwrap_or_default())
    }

    pub(crate) async fn done(&mut self, statement: Statement) -> Reply<()> {
        self.pending.push(statement);
        Ok(())
    }

    async fn done_all(&mut self, statements: Vec<Statement>) -> Reply<()> {
        self.pending.extend(statements);
        Ok(())
    }

    /// The shard's identity, or nothing if it has none yet.
    pub(crate) async fn find_meta(&mut self) -> Reply<Option<Meta>> {
        let sql = format!(
            "SELECT format, cluster, shard, incarnation, fence_epoch, pruned_epoch FROM {}{}",
            self.names.own("meta"),
            self.names.dialect.for_update()
        );
        let rows = self.run(Statement::new(sql)).await?;
        self.meta = rows.first().map(read_meta).transpose()?;
        Ok(self.meta.clone())
    }

    /// Gives the shard its identity.
    pub(crate) async fn put_meta(&mut self, meta: &Meta) -> Reply<()> {
        self.meta = None;
        let sql = format!(
            "INSERT INTO {} (one, format, cluster, shard, incarnation, fence_epoch, pruned_epoch) \
             VALUES (1, $1, $2, $3, $4, $5, $6) ON CONFLICT (one) DO UPDATE SET format = excluded.format, \
             cluster = excluded.cluster, shard = excluded.shard, incarnation = excluded.incarnation, \
             fence_epoch = excluded.fence_epoch, pruned_epoch = excluded.pruned_epoch",
            self.names.own("meta")
        );
        let statement = Statement::new(sql)
            .bind(meta.format)
            .bind(meta.cluster.to_string())
            .bind(meta.shard.to_string())
            .bind(meta.incarnation.to_string())
            .bind(meta.fence_epoch.get() as i64)
            .bind(meta.pruned_epoch.get() as i64);
        self.done(statement).await
    }

    /// All definitions of maps kept here.
    pub(crate) async fn definitions(&mut self) -> Reply<Vec<MapDefinition>> {
        let sql = format!("SELECT definition FROM {} ORDER BY name", self.names.own("local_map"));
        let rows = self.run(Statement::new(sql)).await?;
        rows.iter().map(|row| from_json("definition", row.text(0)?)).collect()
    }

    /// Clears what operations have left half-done here: they ended without this shard, which was away.
    pub(crate) async fn clear_unfinished(&mut self) -> Reply<()> {
        for (table, rest) in
            [("fence_ack", ""), ("fence", ""), ("local_range", " WHERE incoming IS NOT NULL")]
        {
            self.done(Statement::new(format!("DELETE FROM {}{rest}", self.names.own(table)))).await?;
        }
        let undo =
            format!("UPDATE {} SET phase = 'undone' WHERE phase = 'prepared'", self.names.own("local_op"));
        self.done(Statement::new(undo)).await
    }

    /// Whether it has ranges of any map.
    pub(crate) async fn has_ranges(&mut self) -> Reply<bool> {
        let sql = format!("SELECT 1 FROM {} LIMIT 1", self.names.own("local_range"));
        Ok(!self.run(Statement::new(sql)).await?.is_empty())
    }

    /// Removes everything of the protocol, and the rows that stores have here, when a shard leaves the cluster for
    /// good: what was destroyed must not come back with the database.
    pub(crate) async fn wipe(&mut self) -> Reply<()> {
        // A name that is closed has no table.
        let registered = self.names.own("dataset");
        let tables = format!("SELECT DISTINCT tab, rows_column FROM {registered} WHERE map <> '{CLOSED}'");
        for row in self.run(Statement::new(tables)).await? {
            let table = row.text(0)?;
            let statement = match row.opt_text(1)? {
                Some(column) => Statement::new(format!(
                    "DELETE FROM {table} WHERE {column} IN \
                     (SELECT rows_number FROM {registered} WHERE tab = $1 AND map <> '{CLOSED}')"
                ))
                .bind(table.to_owned()),
                None => Statement::new(format!("DELETE FROM {table}")),
            };
            self.done(statement).await?;
        }
        for table in [
            "local_range",
            "local_map",
            "local_op",
            "fence_ack",
            "fence",
            "departure",
            "dataset",
            "meta",
            "carried",
        ] {
            self.done(Statement::new(format!("DELETE FROM {}", self.names.own(table)))).await?;
        }
        Ok(())
    }

    /// The definition of a map that has a part here.
    pub(crate) async fn definition(&mut self, map: &MapName) -> Reply<Option<MapDefinition>> {
        let sql = format!("SELECT definition FROM {} WHERE name = $1", self.names.own("local_map"));
        let rows = self.run(Statement::new(sql).bind(map.to_string())).await?;
        rows.first().map(|row| from_json("definition", row.text(0)?)).transpose()
    }

    /// Drops the oldest records of ended operations and of departures beyond `keep`.
    pub(crate) async fn prune(&mut self, keep: i64) -> Reply<()> {
        let ops = self.names.own("local_op");
        let oldest = format!(
            "SELECT max(epoch) FROM (SELECT epoch FROM {ops} WHERE phase <> 'prepared' ORDER BY epoch DESC \
             LIMIT -1 OFFSET $1) AS old"
        );
        let oldest = match self.names.dialect {
            Dialect::Sqlite => oldest,
            Dialect::Postgres => oldest.replace("LIMIT -1 OFFSET", "OFFSET"),
        };
        let rows = self.run(Statement::new(oldest).bind(keep)).await?;
        let Some(mut epoch) = rows.first().map(|row| row.opt_int(0)).transpose()?.flatten() else {
            return Ok(());
        };
        // A move that keeps or cleans its old rows goes on by its record, however old that is.
        let moving = format!(
            "SELECT min(epoch) FROM {ops} WHERE id IN (SELECT op FROM {} UNION ALL SELECT op FROM {})",
            self.names.own("capture"),
            self.names.own("carried")
        );
        let rows = self.run(Statement::new(moving)).await?;
        if let Some(needed) = rows.first().map(|row| row.opt_int(0)).transpose()?.flatten() {
            epoch = epoch.min(needed - 1);
        }
        self.meta = None;
        let delete = format!("DELETE FROM {ops} WHERE epoch <= $1 AND phase <> 'prepared'");
        let meta = format!("UPDATE {} SET pruned_epoch = $1 WHERE pruned_epoch < $1", self.names.own("meta"));
        let departures = format!("DELETE FROM {} WHERE epoch <= $1", self.names.own("departure"));
        for sql in [delete, meta, departures] {
            self.done(Statement::new(sql).bind(epoch)).await?;
        }
        Ok(())
    }
}

impl LocalTx for SqlLocal {
    async fn lock_meta(&mut self) -> Reply<Meta> {
        match &self.meta {
            Some(meta) => Ok(meta.clone()),
            None => self.find_meta().await?.ok_or(ShardError::NotAShard),
        }
    }

    async fn set_fence_epoch(&mut self, epoch: FenceEpoch) -> Reply<()> {
        if let Some(meta) = &mut self.meta {
            meta.fence_epoch = epoch;
        }
        let sql = format!("UPDATE {} SET fence_epoch = $1", self.names.own("meta"));
        self.done(Statement::new(sql).bind(epoch.get() as i64)).await
    }

    async fn op(&mut self, id: OpId) -> Reply<Option<OpRow>> {
        let sql =
            format!("SELECT epoch, token, phase, edit FROM {} WHERE id = $1", self.names.own("local_op"));
        let rows = self.run(Statement::new(sql).bind(id.to_string())).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(OpRow {
            id,
            epoch: Epoch::new(row.int(0)? as u64),
            token: row.int(1)? as u64,
            phase: from_word("phase", row.text(2)?)?,
            edit: row.opt_text(3)?.map(|text| from_json("edit", text)).transpose()?,
        }))
    }

    async fn put_op(&mut self, row: &OpRow) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (id, epoch, token, phase, edit) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) \
             DO UPDATE SET token = excluded.token, phase = excluded.phase, edit = excluded.edit",
            self.names.own("local_op")
        );
        // What was done is in the local map now; the edit is only needed while it can be done or undone.
        let edit = row.edit.as_ref().filter(|_| row.phase == crate::Phase::Prepared).map(to_json);
        let statement = Statement::new(sql)
            .bind(row.id.to_string())
            .bind(row.epoch.get() as i64)
            .bind(row.token as i64)
            .bind(to_word(&row.phase))
            .bind(edit);
        self.done(statement).await
    }

    async fn fence(&mut self, id: OpId) -> Reply<Option<FenceRow>> {
        let sql = format!("{} WHERE op = $1", select_fence(&self.names));
        let rows = self.run(Statement::new(sql).bind(id.to_string())).await?;
        rows.first().map(read_fence).transpose()
    }

    async fn fences(&mut self) -> Reply<Vec<FenceRow>> {
        let sql = select_fence(&self.names);
        self.run(Statement::new(sql)).await?.iter().map(read_fence).collect()
    }

    async fn put_fence(&mut self, row: &FenceRow) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (op, attempt, state, map, ranges, access) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (op) DO UPDATE SET attempt = excluded.attempt, state = excluded.state",
            self.names.own("fence")
        );
        let statement = Statement::new(sql)
            .bind(row.op.to_string())
            .bind(row.attempt as i64)
            .bind(to_word(&row.state))
            .bind(row.map.to_string())
            .bind(to_json(&row.ranges))
            .bind(to_word(&row.access));
        self.done_all(vec![statement, Statement::notify(FENCE_CHANNEL, row.op.to_string())]).await
    }

    async fn delete_fence(&mut self, id: OpId) -> Reply<()> {
        let sql = format!("DELETE FROM {} WHERE op = $1", self.names.own("fence"));
        self.delete_acks(id, None).await?;
        let statement = Statement::new(sql).bind(id.to_string());
        self.done_all(vec![statement, Statement::notify(FENCE_CHANNEL, id.to_string())]).await
    }

    async fn acks(&mut self, id: OpId) -> Reply<Vec<Ack>> {
        let sql = format!("SELECT router, phase FROM {} WHERE op = $1", self.names.own("fence_ack"));
        let rows = self.run(Statement::new(sql).bind(id.to_string())).await?;
        rows.iter().map(read_ack).collect()
    }

    async fn put_ack(&mut self, id: OpId, ack: Ack) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (op, router, phase) VALUES ($1, $2, $3) ON CONFLICT (op, router) \
             DO UPDATE SET phase = excluded.phase",
            self.names.own("fence_ack")
        );
        let statement = Statement::new(sql)
            .bind(id.to_string())
            .bind(i64::from(ack.router.get()))
            .bind(to_word(&ack.phase));
        self.done(statement).await
    }

    async fn delete_acks(&mut self, id: OpId, router: Option<RouterId>) -> Reply<()> {
        let sql = format!("DELETE FROM {} WHERE op = $1", self.names.own("fence_ack"));
        let statement = match router {
            None => Statement::new(sql).bind(id.to_string()),
            Some(router) => Statement::new(format!("{sql} AND router = $2"))
                .bind(id.to_string())
                .bind(i64::from(router.get())),
        };
        self.done(statement).await
    }

    async fn ranges(&mut self, map: &MapName, range: &KeyRange) -> Reply<Vec<LocalEntry>> {
        let meta = self.lock_meta().await?;
        let statement = select_ranges(self.names.dialect, map, range, None);
        self.run(statement).await?.iter().map(|row| read_range(row, &meta)).collect()
    }

    async fn put_ranges(&mut self, map: &MapName, entries: &[Entry], incoming: Option<OpId>) -> Reply<()> {
        let sql: std::sync::Arc<str> = format!(
            "INSERT INTO {} (map, lo, hi, state, epoch, grp, incoming) VALUES ($1, $2, $3, $4, $5, $6, $7) \
             ON CONFLICT (map, lo) DO UPDATE SET hi = excluded.hi, state = excluded.state, epoch = excluded.epoch, \
             grp = excluded.grp, incoming = excluded.incoming",
            self.names.own("local_range")
        )
        .into();
        let statement = |entry: &Entry| {
            Statement::new(sql.clone())
                .bind(map.to_string())
                .bind(entry.range.lo().as_slice().to_vec())
                .bind(entry.range.hi().map(|hi| hi.as_slice().to_vec()))
                .bind(entry.state.as_str().to_owned())
                .bind(entry.epoch.get() as i64)
                .bind(entry.group.as_ref().map(|group| group.to_string()))
                .bind(incoming.map(|id| id.to_string()))
        };
        self.done_all(entries.iter().map(statement).collect()).await
    }

    async fn delete_ranges(&mut self, map: &MapName, entries: &[Entry]) -> Reply<()> {
        let sql: std::sync::Arc<str> =
            format!("DELETE FROM {} WHERE map = $1 AND lo = $2", self.names.own("local_range")).into();
        let statement = |entry: &Entry| {
            Statement::new(sql.clone()).bind(map.to_string()).bind(entry.range.lo().as_slice().to_vec())
        };
        self.done_all(entries.iter().map(statement).collect()).await
    }

    async fn delete_map(&mut self, map: &MapName) -> Reply<()> {
        for (table, column) in [("local_range", "map"), ("local_map", "name")] {
            let sql = format!("DELETE FROM {} WHERE {column} = $1", self.names.own(table));
            self.done(Statement::new(sql).bind(map.to_string())).await?;
        }
        Ok(())
    }

    async fn activate_incoming(&mut self, id: OpId, inside: Option<&[KeyRange]>) -> Reply<u64> {
        let table = self.names.own("local_range");
        let all = [KeyRange::all()];
        for range in inside.unwrap_or(&all) {
            let mut sql = format!("UPDATE {table} SET incoming = NULL WHERE incoming = $1 AND lo >= $2");
            let lo = range.lo().as_slice().to_vec();
            let statement = match range.hi() {
                None => Statement::new(sql).bind(id.to_string()).bind(lo),
                Some(hi) => {
                    sql.push_str(" AND hi <= $3");
                    Statement::new(sql).bind(id.to_string()).bind(lo).bind(hi.as_slice().to_vec())
                }
            };
            self.done(statement).await?;
        }
        let sql = format!("SELECT count(*) FROM {table} WHERE incoming = $1");
        let rows = self.run(Statement::new(sql).bind(id.to_string())).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) as u64)
    }

    async fn delete_incoming(&mut self, id: OpId) -> Reply<()> {
        let sql = format!("DELETE FROM {} WHERE incoming = $1", self.names.own("local_range"));
        self.done(Statement::new(sql).bind(id.to_string())).await
    }

    async fn put_definition(&mut self, definition: &MapDefinition) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (name, definition) VALUES ($1, $2) ON CONFLICT (name) \
             DO UPDATE SET definition = excluded.definition",
            self.names.own("local_map")
        );
        self.done(Statement::new(sql).bind(definition.name().to_string()).bind(to_json(definition))).await
    }

    async fn put_departures(&mut self, rows: &[Departure]) -> Reply<()> {
        let sql: std::sync::Arc<str> = format!(
            "INSERT INTO {} (number, piece, map, lo, hi, target, state, epoch, op) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            self.names.own("departure")
        )
        .into();
        let statement = |(piece, row): (usize, &Departure)| {
            Statement::new(sql.clone())
                .bind(row.number.get() as i64)
                .bind(piece as i64)
                .bind(row.map.to_string())
                .bind(row.range.lo().as_slice().to_vec())
                .bind(row.range.hi().map(|hi| hi.as_slice().to_vec()))
                .bind(row.to.as_ref().map(|to| to.to_string()))
                .bind(row.state.as_str().to_owned())
                .bind(row.epoch.get() as i64)
                .bind(row.op.to_string())
        };
        self.done_all(rows.iter().enumerate().map(statement).collect()).await
    }

    async fn departures_after(&mut self, known: FenceEpoch) -> Reply<Vec<Departure>> {
        let statement = select_departures(self.names.dialect, known);
        self.run(statement).await?.iter().map(read_departure).collect()
    }

    async fn seal(&mut self, capture: OpId) -> Reply<bool> {
        let dialect = self.names.dialect;
        crate::capture::seal(self.direct().await?, dialect, capture).await
    }

    async fn holds_data(&mut self, map: &MapName, ranges: &[KeyRange]) -> Reply<Option<String>> {
        let tables = self.tables(map).await?;
        let Some(definition) = self.definition(map).await?.filter(|_| !tables.is_empty()) else {
            return Ok(None);
        };
        if self.names.dialect == Dialect::Postgres {
            // What a prepared transaction has written cannot be seen, and may be of these ranges.
            let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() LIMIT 1";
            if let Some(row) = self.run(Statement::new(sql)).await?.first() {
                return Ok(Some(format!("the prepared transaction {}", row.text(0)?)));
            }
        }
        for table in tables {
            let inside = table.placement.in_ranges(self.names.dialect, &definition, ranges, "")?;
            let rows = table.and_own_rows(self.names.dialect);
            let number = table.rows_column().unwrap_or("NULL");
            let sql = format!("SELECT {number} FROM {} WHERE {inside}{rows} LIMIT 1", table.table);
            let found = self.run(Statement::new(sql)).await?;
            let Some(row) = found.first() else { continue };
            let Some(number) = table.rows_column().map(|_| row.int(0)).transpose()? else {
                return Ok(Some(table.name));
            };
            let named = self.run(select_named(self.names.dialect, &table, &[number])).await?;
            let name = named.first().map(|row| row.text(0).map(str::to_owned)).transpose()?;
            return Ok(Some(name.unwrap_or(table.name)));
        }
        Ok(None)
    }
}

/// The local map's rows that overlap a range; from `after` on when paging.
pub(crate) fn select_ranges(
    dialect: Dialect,
    map: &MapName,
    range: &KeyRange,
    page: Option<i64>,
) -> Statement {
    let table = dialect.own_table("local_range");
    let mut sql = format!(
        "SELECT lo, hi, state, epoch, grp, incoming FROM {table} WHERE map = $1 AND (hi IS NULL OR hi > $2)"
    );
    let mut params: Vec<Value> = vec![map.to_string().into(), range.lo().as_slice().to_vec().into()];
    if let Some(hi) = range.hi() {
        params.push(hi.as_slice().to_vec().into());
        sql.push_str(&format!(" AND lo < ${}", params.len()));
    }
    // Ranges do not overlap, so the one that reaches over the lower bound is the last that begins at or
    // below it: this bounds the scan of the primary key from below.
    sql.push_str(&format!(
        " AND lo >= COALESCE((SELECT lo FROM {table} WHERE map = $1 AND lo <= $2 \
         ORDER BY lo DESC LIMIT 1), $2) ORDER BY lo"
    ));
    if let Some(limit) = page {
        sql.push_str(&format!(" LIMIT {limit}"));
    }
    params.into_iter().fold(Statement::new(sql), Statement::bind)
}

pub(crate) fn select_departures(dialect: Dialect, known: FenceEpoch) -> Statement {
    let sql = format!(
        "SELECT number, map, lo, hi, target, state, epoch, op FROM {} WHERE number > $1 ORDER BY number, piece",
        dialect.own_table("departure")
    );
    Statement::new(sql).bind(known.get() as i64)
}

fn select_fence(names: &Names) -> String {
    format!("SELECT op, attempt, state, map, ranges, access FROM {}", names.own("fence"))
}

pub(crate) fn select_fences(dialect: Dialect) -> Statement {
    Statement::new(select_fence(&Names { dialect }))
}

pub(crate) fn select_acks(dialect: Dialect, id: OpId) -> Statement {
    let sql = format!("SELECT router, phase FROM {} WHERE op = $1", dialect.own_table("fence_ack"));
    Statement::new(sql).bind(id.to_string())
}

/// A router's acknowledgement, if that raising of the fence stands: locked and looked at in one transaction.
pub(crate) fn acknowledge(
    dialect: Dialect,
    id: OpId,
    attempt: u64,
    router: RouterId,
    phase: crate::AckPhase,
) -> Batch {
    let own = |name| dialect.own_table(name);
    let lock = format!("SELECT fence_epoch FROM {}{}", own("meta"), dialect.for_update());
    let put = format!(
        "INSERT INTO {} (op, router, phase) SELECT op, $3, $4 FROM {} WHERE op = $1 AND attempt = $2 AND state = $5 \
         ON CONFLICT (op, router) DO UPDATE SET phase = excluded.phase",
        own("fence_ack"),
        own("fence")
    );
    let put = Statement::new(put)
        .bind(id.to_string())
        .bind(attempt as i64)
        .bind(i64::from(router.get()))
        .bind(to_word(&phase))
        .bind(to_word(&crate::FenceState::Holding));
    Batch::new().push(Statement::new(lock)).push(put)
}

pub(crate) fn select_meta(dialect: Dialect) -> Statement {
    Statement::new(format!(
        "SELECT format, cluster, shard, incarnation, fence_epoch, pruned_epoch FROM {}",
        dialect.own_table("meta")
    ))
}

pub(crate) fn read_meta(row: &Row) -> Reply<Meta> {
    Ok(Meta {
        format: row.int(0)?,
        cluster: parse("cluster", row.text(1)?)?,
        shard: parse("shard", row.text(2)?)?,
        incarnation: parse("incarnation", row.text(3)?)?,
        fence_epoch: FenceEpoch::new(row.int(4)? as u64),
        pruned_epoch: Epoch::new(row.int(5)? as u64),
    })
}

pub(crate) fn read_fence(row: &Row) -> Reply<FenceRow> {
    Ok(FenceRow {
        op: parse("operation id", row.text(0)?)?,
        attempt: row.int(1)? as u64,
        state: from_word("fence state", row.text(2)?)?,
        map: parse("map name", row.text(3)?)?,
        ranges: from_json("fence ranges", row.text(4)?)?,
        access: from_word("fence access", row.text(5)?)?,
    })
}

pub(crate) fn read_ack(row: &Row) -> Reply<Ack> {
    Ok(Ack { router: RouterId::new(row.int(0)? as u32), phase: from_word("ack", row.text(1)?)? })
}

pub(crate) fn read_departure(row: &Row) -> Reply<Departure> {
    Ok(Departure {
        number: FenceEpoch::new(row.int(0)? as u64),
        map: parse("map name", row.text(1)?)?,
        range: read_bounds(row, 2)?,
        to: row.opt_text(4)?.map(|to| parse("shard", to)).transpose()?,
        state: parse("state", row.text(5)?)?,
        epoch: Epoch::new(row.int(6)? as u64),
        op: parse("operation id", row.text(7)?)?,
    })
}

pub(crate) fn read_range(row: &Row, meta: &Meta) -> Reply<LocalEntry> {
    Ok(LocalEntry {
        entry: Entry {
            range: read_bounds(row, 0)?,
            shard: meta.shard.clone(),
            state: parse("state", row.text(2)?)?,
            epoch: Epoch::new(row.int(3)? as u64),
            group: row.opt_text(4)?.map(|group| parse("group", group)).transpose()?,
            lock: None,
        },
        incoming: row.opt_text(5)?.map(|id| parse("operation id", id)).transpose()?,
    })
}

fn read_bounds(row: &Row, at: usize) -> Reply<KeyRange> {
    let lo = KeyBytes::from(row.blob(at)?);
    let hi = row.opt_blob(at + 1)?.map(KeyBytes::from);
    KeyRange::new(lo, hi).map_err(|error| damaged("range", error))
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(what: &'static str, text: &str) -> Reply<T> {
    text.parse().map_err(|error| damaged(what, error))
}

fn from_json<T: DeserializeOwned>(what: &'static str, text: &str) -> Reply<T> {
    serde_json::from_str(text).map_err(|error| damaged(what, error))
}

fn from_word<T: DeserializeOwned>(what: &'static str, word: &str) -> Reply<T> {
    T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(word))
        .map_err(|error| damaged(what, error))
}

fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("protocol records have string keys only and always serialise")
}

fn to_word<T: Serialize>(value: &T) -> String {
    to_json(value).trim_matches('"').to_owned()
}

fn damaged(what: &'static str, detail: impl std::fmt::Display) -> ShardError {
    ShardError::Damaged { what, detail: detail.to_string() }
}
