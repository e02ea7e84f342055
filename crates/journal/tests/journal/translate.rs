//! An SQLite shard for tests that need no translation: SQL that both engines take, and a schema read from pragmas.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::{Statement, Transaction};
use polyshard_journal::{Embedded, SchemaFuture};
use polyshard_sql::{
    Collation, Column, Generated, Placement, Schema, SqlError, SqlState, Table, TableName, TypeOid,
};

/// Passes statements on as they are, but for the schema that SQLite does not have.
pub struct Plain;

fn wrong(error: polyshard_engine::Error) -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, error.to_string())
}

impl Embedded for Plain {
    fn schema<'a>(&'a self, tx: &'a mut Transaction) -> SchemaFuture<'a> {
        Box::pin(async move {
            let mut schema = Schema::default();
            let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'polyshard%' \
                       AND name NOT LIKE 'sqlite%' ORDER BY name";
            for row in tx.run(Statement::new(sql)).await.map_err(wrong)?.iter() {
                let table = read(tx, row.text(0).map_err(wrong)?).await.map_err(wrong)?;
                schema.tables.insert(table.name.clone(), Arc::new(table));
            }
            Ok(schema)
        })
    }

    fn translate(
        &self,
        sql: &str,
        _: &Schema,
        _: &BTreeMap<String, String>,
    ) -> Result<Vec<Statement>, SqlError> {
        Ok(vec![Statement::new(sql.replace("\"public\".", ""))])
    }
}

async fn read(tx: &mut Transaction, name: &str) -> Result<Table, polyshard_engine::Error> {
    let columns =
        Statement::new("SELECT name, type, \"notnull\", pk FROM pragma_table_info($1)").bind(name.to_owned());
    let (mut out, mut primary_key) = (Vec::new(), Vec::new());
    for row in tx.run(columns).await?.iter() {
        if row.int(3)? > 0 {
            primary_key.push((row.int(3)?, out.len()));
        }
        let type_oid = match row.text(1)?.to_lowercase().as_str() {
            "int" | "integer" => TypeOid::INT4,
            "bigint" => TypeOid::INT8,
            _ => TypeOid::TEXT,
        };
        out.push(Column {
            name: row.text(0)?.to_owned(),
            type_oid,
            type_mod: -1,
            type_name: row.text(1)?.to_owned(),
            not_null: row.int(2)? == 1,
            default: None,
            generated: Generated::No,
            collation: Collation::C,
        });
    }
    primary_key.sort_unstable();
    Ok(Table {
        name: TableName::public(name),
        columns: out,
        primary_key: primary_key.into_iter().map(|(_, at)| at).collect(),
        unique: Vec::new(),
        foreign_keys: Vec::new(),
        row_security: false,
        triggers: false,
        placement: Placement::Reference { declared: false },
    })
}
