//! The files of a query across shards, and which of their rows count while ranges are being moved.
//!
//! A file may have rows of ranges that it does not own, not yet or no more. Which ranges those are is read first, and
//! the query itself makes sure, in its own read of the files, that nothing of it has changed.

use std::collections::BTreeMap;

use polyshard_engine::Dialect;
use polyshard_sql::TableName;

use crate::functions::UNMOVED;
use crate::translate::quoted;

/// What [`Across::question`] answers where nothing is being moved.
pub const QUIET: &str = "[]";

/// One file.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The name that it is attached under.
    pub database: String,
    /// Conditions, in SQLite's SQL, that hold for the rows of a table that are here and not its own.
    pub foreign: BTreeMap<TableName, String>,
}

/// The files of a query.
#[derive(Clone, Debug)]
pub struct Across {
    pub(crate) databases: Vec<Attached>,
    pub(crate) guard: String,
}

impl Across {
    /// Files with what each has answered to [`Across::question`].
    pub fn new(files: Vec<(Attached, String)>) -> Across {
        let checks: Vec<String> = files
            .iter()
            .map(|(file, known)| {
                format!("{UNMOVED}({}, '{}')", motion(&file.database), known.replace('\'', "''"))
            })
            .collect();
        // Asked once, by whichever table is read first, and for all files: no row is seen before.
        let guard = format!("(SELECT {})", checks.join(" + "));
        Across { databases: files.into_iter().map(|(file, _)| file).collect(), guard }
    }

    /// A query for which ranges are being moved, as far as each file knows: a JSON text for each, of rows of an id, a
    /// map, and either ranges as JSON or the two bounds in hex.
    pub fn question(databases: &[String]) -> String {
        let each: Vec<String> = databases.iter().map(|database| motion(database)).collect();
        format!("SELECT {}", each.join(", "))
    }
}

fn motion(database: &str) -> String {
    let own = |table| format!("{}.{}", quoted(database), Dialect::Sqlite.own_table(table));
    format!(
        "(SELECT json_group_array(json_array(id, map, ranges, lo, hi)) FROM (SELECT capture AS id, map, ranges, \
         NULL AS lo, NULL AS hi FROM {} UNION ALL SELECT incoming, map, NULL, hex(lo), \
         CASE WHEN hi IS NOT NULL THEN hex(hi) END FROM {} WHERE incoming IS NOT NULL ORDER BY 1, 2, 4 LIMIT -1))",
        own("capture"),
        own("local_range")
    )
}
