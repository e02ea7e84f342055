//! What a relation takes in the file, or in all files of a query across shards: SQLite counts the pages.

use polyshard_sql::SqlError;

use super::text_literal;
use crate::fail::unsupported;
use crate::translate::{Ex, How, Translator, quoted};
use crate::types::oid;
use polyshard_sql::TypeOid;

/// The functions that tell sizes: a query with one of them is asked of every shard.
pub const SIZE_FUNCTIONS: [&str; 5] =
    ["pg_total_relation_size", "pg_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size"];

/// A size in bytes, as SQL; NULL for what has no pages of its own here.
pub(crate) fn size(translator: &mut Translator<'_>, name: &str, value: Ex) -> Result<Ex, SqlError> {
    if translator.across.is_none() && translator.settings.sizes_unknown {
        return Ok(Ex::made("NULL".to_owned(), TypeOid::INT8, &[&value]).named(name));
    }
    let files: Vec<String> = match &translator.across {
        Some(across) => across.databases.iter().map(|file| file.database.clone()).collect(),
        None => vec!["main".to_owned()],
    };
    let sum = |one: &dyn Fn(&str) -> String| {
        let each: Vec<String> = files.iter().map(|file| one(file)).collect();
        format!("({})", each.join(" + "))
    };
    if name == "pg_database_size" {
        let sql = sum(&|file| {
            let file = text_literal(file);
            format!(
                "(SELECT \"zc\".page_count * \"zs\".page_size FROM pragma_page_count AS \"zc\", \
                 pragma_page_size AS \"zs\" WHERE \"zc\".schema = {file} AND \"zs\".schema = {file})"
            )
        });
        return Ok(Ex::made(sql, TypeOid::INT8, &[&value]).named(name));
    }
    let value = translator.coerce(value, oid::REGCLASS, -1, How::Explicit)?;
    let own = &value.sql;
    let pages = |which: &str| {
        sum(&|file| {
            // The name leads: SQLite then reads the pages of this one alone.
            format!(
                "(SELECT coalesce(sum(\"zd\".pgsize), 0) FROM {}.sqlite_schema AS \"zm\" CROSS JOIN \
                 dbstat({}, 1) AS \"zd\" WHERE \"zd\".name = \"zm\".name AND {which})",
                quoted(file),
                text_literal(file)
            )
        })
    };
    let table = format!("pg_oid(\"zm\".tbl_name) = {own}");
    let of_table = match name {
        "pg_relation_size" | "pg_table_size" => pages(&format!("{table} AND \"zm\".type = 'table'")),
        "pg_indexes_size" => pages(&format!("{table} AND \"zm\".type = 'index'")),
        "pg_total_relation_size" => pages(&table),
        _ => return Err(unsupported(format!("the function {name}"))),
    };
    let of_index = match name {
        "pg_indexes_size" => "0".to_owned(),
        _ => pages(&format!("pg_oid(\"zm\".name) = {own}")),
    };
    let has =
        |from: &str| format!("EXISTS (SELECT 1 FROM {from} AS \"zk\" WHERE pg_oid(\"zk\".name) = {own})");
    let sql = format!(
        "(CASE WHEN {} THEN {of_table} WHEN {} THEN {of_index} WHEN {} THEN 0 END)",
        has("polyshard_sql_table"),
        has("polyshard_sql_index"),
        has("polyshard_sql_view")
    );
    Ok(Ex::made(sql, TypeOid::INT8, &[&value]).named(name))
}
