//! The statements by which other shards get the tables of one that was taken in. On that one itself they change
//! nothing, since all is there.

use std::sync::Arc;

use polyshard_engine::{self as engine, Dialect, Statement, Transaction};
use polyshard_map::ShardId;
use polyshard_sql::{Generated, Table};

use super::Recorded;
use crate::JournalError;
use crate::bring_up::in_order;
use crate::introspect::{Found, USERS};
use crate::quote::{identifier, literal, table_name, text};

/// Rows in one INSERT.
const INSERT_ROWS: usize = 500;

pub(super) async fn texts(
    id: &ShardId,
    tx: &mut Transaction,
    sql: &str,
) -> Result<Vec<String>, JournalError> {
    let fail = |error: engine::Error| JournalError::on(id, error);
    let rows = tx.run(Statement::new(sql)).await.map_err(fail)?;
    rows.iter().map(|row| Ok(row.opt_text(0).map_err(fail)?.unwrap_or_default().to_owned())).collect()
}

/// What cannot be had alike on other shards, each with what to do.
pub(super) async fn obstacles(id: &ShardId, tx: &mut Transaction) -> Result<Vec<String>, JournalError> {
    let types = format!(
        "SELECT format('column %I of %I.%I is of type %s, which is not one of PostgreSQL''s own, and is not taken to \
         the other shards: ALTER TABLE %2$I.%3$I ALTER COLUMN %1$I TYPE %5$s', a.attname, n.nspname, c.relname, \
         format_type(a.atttypid, a.atttypmod), CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) \
         ELSE 'text' END) \
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
         JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A' \
         WHERE c.relkind IN ('r', 'p', 'f') AND a.attnum > 0 AND NOT a.attisdropped AND {USERS} \
         AND coalesce(e.typnamespace, t.typnamespace) <> 'pg_catalog'::regnamespace ORDER BY 1"
    );
    // A default or a check may use one, and so may the cluster's own tables.
    let own_types = format!(
        "SELECT format('type %I.%I is not one of PostgreSQL''s own, and is not taken to the other shards: have columns \
         and their defaults use it no more, then DROP %s %1$I.%2$I', n.nspname, t.typname, \
         CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END) \
         FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid \
         WHERE t.typtype IN ('e', 'd', 'c', 'r') AND (c.oid IS NULL OR c.relkind = 'c') AND {USERS} \
         AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = t.oid AND d.deptype = 'e') ORDER BY 1"
    );
    let foreign = format!(
        "SELECT format('%I.%I is a foreign table: its rows are elsewhere, drop it', n.nspname, c.relname) \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'f' AND {USERS}"
    );
    let keys = format!(
        "SELECT format('constraint %I of %I.%I is not validated: ALTER TABLE ... VALIDATE CONSTRAINT', x.conname, \
         n.nspname, c.relname) FROM pg_constraint x JOIN pg_class c ON c.oid = x.conrelid \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT x.convalidated AND {USERS}"
    );
    let views = format!(
        "SELECT format('%I.%I is a view: drop it, and create it again through Polyshard afterwards', n.nspname, \
         c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('v', 'm') AND {USERS} ORDER BY 1"
    );
    let functions = format!(
        "SELECT format('%I.%I is a function: drop it, and create it again through Polyshard afterwards', n.nspname, \
         p.proname) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE {USERS} \
         AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') ORDER BY 1"
    );
    let mut found = Vec::new();
    for sql in [types, own_types, foreign, keys, views, functions] {
        found.extend(texts(id, tx, &sql).await?);
    }
    Ok(found)
}

/// Schemas, sequences, tables and indexes, in an order in which each finds what it needs.
pub(super) async fn of(
    id: &ShardId,
    tx: &mut Transaction,
    found: &Found,
) -> Result<Vec<Recorded>, JournalError> {
    let own = |sql: String| Recorded::own(Dialect::Postgres, sql);
    let mut out = Vec::new();
    let mut schemas: Vec<&str> = found.schema.tables.keys().map(|name| name.schema.as_str()).collect();
    schemas.dedup();
    for schema in schemas.into_iter().filter(|schema| *schema != "public") {
        out.push(own(format!("CREATE SCHEMA IF NOT EXISTS {}", identifier(schema))));
    }
    let tables: Vec<Arc<Table>> = found.schema.tables.values().cloned().collect();
    for table in in_order(&tables)? {
        let (name, details) = (table_name(Dialect::Postgres, &table.name), &found.details[&table.name]);
        let serial = details.sequences.iter().filter(|sequence| !sequence.identity);
        for sequence in serial.clone() {
            out.push(own(format!("CREATE SEQUENCE IF NOT EXISTS {}", sequence.sequence)));
        }
        let body = texts(id, tx, &definition(&name)).await?;
        let body: Vec<String> = body.into_iter().filter(|part| !part.is_empty()).collect();
        out.push(Recorded::new(format!("CREATE TABLE IF NOT EXISTS {name} ({})", body.join(", "))));
        for sequence in serial {
            let column = identifier(&sequence.column);
            out.push(own(format!("ALTER SEQUENCE {} OWNED BY {name}.{column}", sequence.sequence)));
        }
        out.extend(texts(id, tx, &indexes(&name)).await?.into_iter().map(Recorded::new));
    }
    Ok(out)
}

/// Columns and constraints of a table, as they are written in CREATE TABLE.
fn definition(table: &str) -> String {
    let table = text(table);
    format!(
        "SELECT part FROM (
    SELECT 0 AS kind, a.attnum::int AS place, format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod))
        || CASE WHEN a.attcollation NOT IN (0, t.typcollation)
             THEN format(' COLLATE %I.%I', cn.nspname, co.collname) ELSE '' END
        || CASE WHEN a.attgenerated = 's'
             THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, d.adrelid))
             WHEN a.attidentity <> '' THEN format(' GENERATED %s AS IDENTITY (SEQUENCE NAME %s)',
                 CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END,
                 pg_get_serial_sequence(a.attrelid::regclass::text, a.attname))
             WHEN d.adbin IS NOT NULL THEN ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) ELSE '' END
        || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END AS part
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_collation co ON co.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
    WHERE a.attrelid = {table}::regclass AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT position(x.contype::text IN 'pucxf'), x.oid::bigint::int, format('CONSTRAINT %I %s', x.conname,
        pg_get_constraintdef(x.oid))
    FROM pg_constraint x WHERE x.conrelid = {table}::regclass AND x.contype IN ('p', 'u', 'c', 'x', 'f')
) AS parts ORDER BY kind, place"
    )
}

/// Indexes that stand for no constraint.
fn indexes(table: &str) -> String {
    format!(
        "SELECT regexp_replace(pg_get_indexdef(i.indexrelid), '^CREATE (UNIQUE )?INDEX ', \
         'CREATE \\1INDEX IF NOT EXISTS ') FROM pg_index i WHERE i.indrelid = {}::regclass AND NOT EXISTS \
         (SELECT 1 FROM pg_constraint x WHERE x.conindid = i.indexrelid) ORDER BY 1",
        text(table)
    )
}

/// The rows of a reference table, for the shards that lack them.
pub(super) async fn rows(
    id: &ShardId,
    tx: &mut Transaction,
    table: &Table,
) -> Result<Vec<Recorded>, JournalError> {
    let fail = |error: engine::Error| JournalError::on(id, error);
    let name = table_name(Dialect::Postgres, &table.name);
    let stored = table.columns.iter().filter(|column| column.generated != Generated::Stored);
    let columns: Vec<String> = stored.map(|column| identifier(&column.name)).collect();
    let always = table.columns.iter().any(|column| column.generated == Generated::Always);
    let overriding = if always { "OVERRIDING SYSTEM VALUE " } else { "" };
    let read: Vec<String> = columns.iter().map(|column| format!("{column}::text")).collect();
    let found =
        tx.run(Statement::new(format!("SELECT {} FROM {name}", read.join(", ")))).await.map_err(fail)?;
    let list = columns.join(", ");
    let mut out = Vec::new();
    for page in found.rows().chunks(INSERT_ROWS) {
        let row = |row: &engine::Row| {
            let values: Vec<String> =
                row.values().iter().map(|value| literal(Dialect::Postgres, value)).collect();
            format!("({})", values.join(", "))
        };
        let values: Vec<String> = page.iter().map(row).collect();
        let sql = format!(
            "INSERT INTO {name} ({list}) {overriding}VALUES {} ON CONFLICT DO NOTHING",
            values.join(", ")
        );
        // A shard that comes later gets the rows as they are then.
        out.push(Recorded { rows: true, ..Recorded::new(sql) });
    }
    Ok(out)
}
