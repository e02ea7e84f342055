//! Which datasets a shard has rows of: each is registered before its first row comes, so that it can be told which map
//! a row is of, and forgotten after its last one.

use polyshard_engine::{self as engine, Dialect, Row, Statement};
use polyshard_map::MapName;

use crate::dataset::{Dataset, Placement, TableRows, part_name};
use crate::sql_local::SqlLocal;
use crate::tx::Reply;
use crate::{LocalTx, Shard, ShardError};

/// Stands where a dataset's map would, when its name is closed: no map is called so.
pub(crate) const CLOSED: &str = "";

impl Shard {
    /// The names of all datasets registered here that begin so.
    pub async fn registered(&self, prefix: &str) -> Result<Vec<String>, ShardError> {
        let sql = format!("SELECT name FROM {} ORDER BY name", self.dialect().own_table("dataset"));
        let rows = self.control().read(Statement::new(sql)).await?;
        let names: Result<Vec<String>, engine::Error> =
            rows.rows().iter().map(|row| row.text(0).map(str::to_owned)).collect();
        Ok(names?.into_iter().filter(|name| name.starts_with(prefix)).collect())
    }

    /// Takes a registration away whose dataset is none any more, whether its table is there or not, if a statement
    /// changes a row here just before, and no move has to do with its map. False if nothing was done.
    pub async fn unregister_if(&self, name: &str, condition: &Statement) -> Result<bool, ShardError> {
        let mut tx = SqlLocal::begin(self.control()).await?;
        // In the order of those who register.
        if !tx.holds(Some(condition)).await? {
            return Ok(false);
        }
        tx.lock_meta().await?;
        if tx.is_moving(name).await? {
            return Ok(false);
        }
        let sql = format!("DELETE FROM {} WHERE name = $1", tx.own("dataset"));
        tx.done(Statement::new(sql).bind(name.to_owned())).await?;
        tx.commit().await?;
        Ok(true)
    }
}

impl SqlLocal {
    /// Whether a statement changes a row, which then stays locked; true without one.
    pub(crate) async fn holds(&mut self, condition: Option<&Statement>) -> Reply<bool> {
        let Some(condition) = condition else { return Ok(true) };
        Ok(self.direct().await?.run(condition.clone()).await?.affected() > 0)
    }

    /// Whether a move has to do here with the map of a registered dataset.
    async fn is_moving(&mut self, name: &str) -> Reply<bool> {
        let sql = format!(
            "SELECT 1 FROM {} AS capture JOIN {} AS dataset ON dataset.map = capture.map \
             WHERE dataset.name = $1 AND capture.op <> capture.capture LIMIT 1",
            self.own("capture"),
            self.own("dataset")
        );
        Ok(!self.run(Statement::new(sql).bind(name.to_owned())).await?.is_empty())
    }

    /// Records a dataset, unless its name is closed.
    pub(crate) async fn put_dataset(&mut self, dataset: &Dataset) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} AS had (name, map, tab, placement, rows_column, rows_number) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (name) DO UPDATE SET map = excluded.map, tab = excluded.tab, \
             placement = excluded.placement, rows_column = excluded.rows_column, \
             rows_number = excluded.rows_number WHERE had.map <> '{CLOSED}'",
            self.own("dataset")
        );
        let (column, number) = match &dataset.rows {
            TableRows::All => (None, None),
            TableRows::Numbered { column, number } => (Some(column.clone()), Some(*number)),
            TableRows::OfMap { .. } => panic!("{} stands for several datasets", dataset.name),
        };
        let statement = Statement::new(sql)
            .bind(dataset.name.clone())
            .bind(dataset.map.to_string())
            .bind(dataset.table.clone())
            .bind(dataset.placement.to_text())
            .bind(column)
            .bind(number);
        if self.direct().await?.run(statement).await?.affected() == 0 {
            let message = format!("{} is being bound to another map; try again", dataset.name);
            return Err(engine::Error::Unavailable { message }.into());
        }
        Ok(())
    }

    /// Closes the name of a dataset that has no rows here, in any of its tables, so that it never gets any. False if it
    /// has or had some. Whoever registers a dataset begins with this name.
    pub(crate) async fn close_dataset(&mut self, name: &str) -> Reply<bool> {
        let table = self.own("dataset");
        // A move may have brought rows of a further table alone.
        let parts = part_name(name, "");
        let insert = format!(
            "INSERT INTO {table} (name, map, tab, placement) SELECT $1, '{CLOSED}', '', '' WHERE NOT EXISTS \
             (SELECT 1 FROM {table} AS part WHERE substr(part.name, 1, {}) = $2) ON CONFLICT DO NOTHING",
            parts.chars().count()
        );
        self.done(Statement::new(insert).bind(name.to_owned()).bind(parts)).await?;
        let closed = format!("SELECT 1 FROM {table} WHERE name = $1 AND map = '{CLOSED}'");
        Ok(!self.run(Statement::new(closed).bind(name.to_owned())).await?.is_empty())
    }

    /// Opens a name again that was closed.
    pub(crate) async fn reopen_dataset(&mut self, name: &str) -> Reply<()> {
        let table = self.own("dataset");
        let sql = format!("DELETE FROM {table} WHERE name = $1 AND map = '{CLOSED}'");
        self.done(Statement::new(sql).bind(name.to_owned())).await
    }

    /// The tables that hold rows which a map places here.
    pub(crate) async fn tables(&mut self, map: &MapName) -> Reply<Vec<Dataset>> {
        let statement = select_tables(self.dialect(), map);
        self.run(statement).await?.iter().map(|row| read_table(row, map)).collect()
    }

    /// Whether a dataset is registered as it is.
    pub(crate) async fn is_registered(&mut self, dataset: &Dataset) -> Reply<bool> {
        let sql = format!("SELECT 1 FROM {} WHERE name = $1 AND map = $2 AND tab = $3", self.own("dataset"));
        let statement = Statement::new(sql)
            .bind(dataset.name.clone())
            .bind(dataset.map.to_string())
            .bind(dataset.table.clone());
        Ok(!self.run(statement).await?.is_empty())
    }

    /// Takes the registration of a dataset away that is deleted everywhere and has no rows here. True if it was not
    /// there any more; false if it was, or stays because the table has a row of it, or because a move that may still
    /// bring one has to do with this shard.
    pub(crate) async fn forget_dataset(&mut self, name: &str) -> Reply<bool> {
        let registered = self.own("dataset");
        let sql = format!("SELECT tab, rows_column, rows_number, map FROM {registered} WHERE name = $1");
        let found = self.run(Statement::new(sql).bind(name.to_owned())).await?;
        let Some(row) = found.first() else { return Ok(true) };
        let (Some(column), Some(number)) = (row.opt_text(1)?, row.opt_int(2)?) else { return Ok(true) };
        let moving =
            format!("SELECT 1 FROM {} WHERE map = $1 AND op <> capture LIMIT 1", self.own("capture"));
        if !self.run(Statement::new(moving).bind(row.text(3)?.to_owned())).await?.is_empty() {
            return Ok(false);
        }
        let sql = format!("SELECT 1 FROM {} WHERE {column} = {number} LIMIT 1", row.text(0)?);
        if self.run(Statement::new(sql)).await?.is_empty() {
            let sql = format!("DELETE FROM {registered} WHERE name = $1");
            self.done(Statement::new(sql).bind(name.to_owned())).await?;
        }
        Ok(false)
    }
}

pub(crate) fn select_datasets(dialect: Dialect, map: &MapName) -> Statement {
    let sql = format!(
        "SELECT name, tab, placement, rows_column, rows_number FROM {} WHERE map = $1 ORDER BY name",
        dialect.own_table("dataset")
    );
    Statement::new(sql).bind(map.to_string())
}

/// One row for each table of a map, however many datasets are in it: the index is searched for one table after the
/// other, and not read from end to end.
pub(crate) fn select_tables(dialect: Dialect, map: &MapName) -> Statement {
    let registered = dialect.own_table("dataset");
    let sql = format!(
        "WITH RECURSIVE found (tab) AS (SELECT min(tab) FROM {registered} WHERE map = $1 \
         UNION ALL SELECT (SELECT min(later.tab) FROM {registered} AS later \
         WHERE later.map = $1 AND later.tab > found.tab) FROM found WHERE found.tab IS NOT NULL), \
         named (name) AS (SELECT (SELECT one.name FROM {registered} AS one WHERE one.map = $1 AND one.tab = found.tab \
         ORDER BY one.rows_number LIMIT 1) FROM found WHERE found.tab IS NOT NULL) \
         SELECT kept.name, kept.tab, kept.placement, kept.rows_column, kept.rows_number \
         FROM named CROSS JOIN {registered} AS kept WHERE kept.name = named.name ORDER BY kept.name"
    );
    Statement::new(sql).bind(map.to_string())
}

/// Those of some datasets of a table that are registered, by their numbers.
pub(crate) fn select_named(dialect: Dialect, table: &Dataset, numbers: &[i64]) -> Statement {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    let sql = format!(
        "SELECT name, tab, placement, rows_column, rows_number FROM {} WHERE map = $1 AND tab = $2 \
         AND rows_number IN ({}) ORDER BY rows_number",
        dialect.own_table("dataset"),
        numbers.join(", ")
    );
    Statement::new(sql).bind(table.map.to_string()).bind(table.table.clone())
}

pub(crate) fn read_dataset(row: &Row, map: &MapName) -> Reply<Dataset> {
    let rows = match (row.opt_text(3)?, row.opt_int(4)?) {
        (Some(column), Some(number)) => TableRows::Numbered { column: column.to_owned(), number },
        _ => TableRows::All,
    };
    Ok(Dataset {
        name: row.text(0)?.to_owned(),
        map: map.clone(),
        table: row.text(1)?.to_owned(),
        placement: Placement::from_text(row.text(2)?)?,
        rows,
    })
}

/// What stands for all datasets in the table of the one that was read, if several share it. Its name is the same on
/// both engines.
pub(crate) fn read_table(row: &Row, map: &MapName) -> Reply<Dataset> {
    let one = read_dataset(row, map)?;
    let TableRows::Numbered { column, .. } = one.rows else { return Ok(one) };
    let own = one.table.strip_prefix("polyshard_").map(|own| format!("polyshard.{own}"));
    let name = own.unwrap_or_else(|| one.table.clone());
    Ok(Dataset { name, rows: TableRows::OfMap { column }, ..one })
}
