//! The texts of the statements, made once for each engine.

use std::sync::{Arc, LazyLock};

use polyshard_engine::Dialect;

use super::changes::CHANGES_MAX;
use crate::schema::{ENTITIES, PARTITIONS};

/// Where a scan begins: at the key given, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    At,
    After,
}

/// How many rows the statements insert that insert several: a whole batch is one of them. Every connection keeps each
/// of them prepared, so there are few.
pub(super) const INSERT_ROWS: [usize; 5] = [CHANGES_MAX, 32, 8, 4, 1];

/// The statements of one engine. Those that name an entity by its key have its placement as their last parameter, if
/// the engine finds rows by it.
pub(super) struct Texts {
    /// Whether they do.
    pub by_placement: bool,
    /// `$1` dataset, `$2` pk, `$3` rk.
    pub get: Arc<str>,
    /// Dataset, pk, rk, placement, ts, props; nothing is changed if there is one. It answers with no row, which takes
    /// SQLite 40 % less time: the new row's `ts` is the one given.
    pub insert: Arc<str>,
    /// As insert, for each number of [`INSERT_ROWS`], into one partition: dataset, pk, placement and ts, which all rows
    /// share, then rk and props of each.
    pub insert_rows: [Arc<str>; INSERT_ROWS.len()],
    /// As insert, but replaces what is there.
    pub upsert: Arc<str>,
    /// Dataset, pk, rk, ts, props.
    pub replace: Arc<str>,
    /// As replace, if the row's `ts` is `$6`.
    pub replace_at: Arc<str>,
    /// Dataset, pk, rk.
    pub delete: Arc<str>,
    /// As delete, if the row's `ts` is `$4`.
    pub delete_at: Arc<str>,
    /// `$1` dataset.
    pub any: Arc<str>,
    /// `$1` dataset, `$2` how many.
    pub remove_some: Arc<str>,
    /// `$1` dataset, `$2` pk: the partition that is [`PARTITIONS_AHEAD`] further, if there is one. None where the
    /// engine has no list of them, nor anybody who waits while it looks into each.
    pub partition_ahead: Option<Arc<str>>,
    dialect: Dialect,
    scans: [Arc<str>; 8],
}

/// Partitions that are looked into by one scan for rows that few of them have: a tenth of a millisecond.
pub(super) const PARTITIONS_AHEAD: usize = 128;

/// Props of more bytes are long: most entities have far fewer.
pub(super) const LONG_BYTES: usize = 32 * 1024;

/// What a scan does with long props.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Long {
    /// An empty text stands for them: nobody knows how long the rows are that come next, and hundreds of a megabyte
    /// each are too much at a time.
    #[default]
    Marked,
    /// They are read like others.
    Read,
}

/// What a scan asks beside where it begins and ends. Parameters come after the scan's own.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Which rows to look at: ` AND rk …`, an interval of row keys that an index has in each partition.
    pub rows: String,
    /// Of which of them to read the props; all if it is empty. The others have none, and are not passed over by the
    /// database: it would look at all that there is until it finds enough.
    pub wanted: String,
    /// What to do with long ones.
    pub long: Long,
}

/// The statements for an engine.
pub(super) fn texts(dialect: Dialect) -> &'static Texts {
    static SQLITE: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Sqlite));
    static POSTGRES: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

/// What a scan is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// One partition: `$1` dataset, `$2` pk, `$3` the first rk, `$4` how many rows, `$5` the last rk if there is one.
    /// Rows are rk, ts, props.
    Partition,
    /// Partitions: `$1` dataset, `$2` and `$3` the first pk and rk, `$4` how many rows, `$5` the last pk if there is
    /// one. Rows are rk, ts, props, pk, placement.
    Partitions,
}

/// Whether a scan has a last key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    End,
    Last,
}

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let (table, partitions) = (dialect.own_table(ENTITIES), dialect.own_table(PARTITIONS));
        let text = |text: String| Arc::<str>::from(text);
        let by_placement = dialect == Dialect::Sqlite;
        // The conditions of one entity, with so many parameters before that of its placement.
        let one = |before: usize| match by_placement {
            true => format!("dataset = $1 AND placement = ${} AND pk = $2 AND rk = $3", before + 1),
            false => "dataset = $1 AND pk = $2 AND rk = $3".to_owned(),
        };
        let columns = "(dataset, pk, rk, placement, ts, props) VALUES ($1, $2, $3, $4, $5, $6)";
        // SQLite need not be able to undo one that ignores what is there, though triggers may change another table.
        let insert = |values: &str| {
            text(match dialect {
                Dialect::Sqlite => format!("INSERT OR IGNORE INTO {table} {values}"),
                Dialect::Postgres => {
                    format!("INSERT INTO {table} {values} ON CONFLICT (dataset, pk, rk) DO NOTHING")
                }
            })
        };
        let insert_rows = |rows: usize| {
            let row = |row: usize| match dialect {
                // It finds a parameter's name by looking at all before it: hundreds of them have none.
                Dialect::Sqlite => "(?1, ?2, ?3, ?4, ?, ?)".to_owned(),
                Dialect::Postgres => format!("($1, $2, $3, $4, ${}, ${})", row * 2 + 5, row * 2 + 6),
            };
            let rows: Vec<String> = (0..rows).map(row).collect();
            insert(&format!("(dataset, pk, placement, ts, rk, props) VALUES {}", rows.join(", ")))
        };
        // Files of SQLite may have one key or the other: see the schema.
        let conflict = match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => "(dataset, pk, rk) ",
        };
        // Every change of a row is later than the one before, whatever the clocks say.
        let replace = |before: usize| {
            let one = one(before);
            format!(
                "UPDATE {table} SET ts = CASE WHEN ts >= $4 THEN ts + 1 ELSE $4 END, props = $5 WHERE {one}"
            )
        };
        let mut scans = Vec::new();
        for over in [Over::Partition, Over::Partitions] {
            for from in [From::At, From::After] {
                for until in [Until::End, Until::Last] {
                    scans.push(text(scan(dialect, over, from, until, &Asked::default())));
                }
            }
        }
        Texts {
            by_placement,
            get: text(format!("SELECT ts, props FROM {table} WHERE {}", one(3))),
            insert: insert(columns),
            insert_rows: INSERT_ROWS.map(insert_rows),
            upsert: text(format!(
                "INSERT INTO {table} AS kept {columns} ON CONFLICT {conflict}DO UPDATE SET \
                 ts = CASE WHEN kept.ts >= excluded.ts THEN kept.ts + 1 ELSE excluded.ts END, \
                 props = excluded.props RETURNING ts"
            )),
            replace: text(format!("{} RETURNING ts", replace(5))),
            replace_at: text(format!("{} AND ts = $6 RETURNING ts", replace(6))),
            delete: text(format!("DELETE FROM {table} WHERE {} RETURNING ts", one(3))),
            delete_at: text(format!("DELETE FROM {table} WHERE {} AND ts = $4 RETURNING ts", one(4))),
            // On SQLite the list of partitions leads to the rows of one table: the key begins with the placement.
            any: text(match dialect {
                Dialect::Sqlite => {
                    format!(
                        "SELECT 1 FROM {partitions} CROSS JOIN {table} WHERE number = $1 AND dataset = $1 \
                         AND placement = place AND pk = +name LIMIT 1"
                    )
                }
                Dialect::Postgres => format!("SELECT 1 FROM {table} WHERE dataset = $1 LIMIT 1"),
            }),
            remove_some: text(match dialect {
                Dialect::Sqlite => format!(
                    "DELETE FROM {table} WHERE dataset = $1 AND (placement, pk, rk) IN \
                     (SELECT placement, pk, rk FROM {partitions} CROSS JOIN {table} WHERE number = $1 \
                     AND dataset = $1 AND placement = place AND pk = +name LIMIT $2)"
                ),
                Dialect::Postgres => format!(
                    "DELETE FROM {table} WHERE dataset = $1 AND (pk, rk) IN \
                     (SELECT pk, rk FROM {table} WHERE dataset = $1 ORDER BY pk, rk LIMIT $2)"
                ),
            }),
            partition_ahead: (dialect == Dialect::Sqlite).then(|| {
                text(format!(
                    "SELECT name FROM {} WHERE number = $1 AND name > $2 ORDER BY name LIMIT 1 OFFSET {}",
                    dialect.own_table(PARTITIONS),
                    PARTITIONS_AHEAD - 1
                ))
            }),
            scans: scans.try_into().expect("two of three kinds are eight"),
            dialect,
        }
    }

    /// A scan.
    pub fn scan(&self, over: Over, from: From, until: Until, asked: &Asked) -> Arc<str> {
        if !asked.rows.is_empty() || !asked.wanted.is_empty() || asked.long == Long::Read {
            return scan(self.dialect, over, from, until, asked).into();
        }
        let at = usize::from(over == Over::Partitions) * 4
            + usize::from(from == From::After) * 2
            + usize::from(until == Until::Last);
        self.scans[at].clone()
    }
}

fn scan(dialect: Dialect, over: Over, from: From, until: Until, asked: &Asked) -> String {
    let (table, partitions) = (dialect.own_table(ENTITIES), dialect.own_table(PARTITIONS));
    let above = if from == From::At { ">=" } else { ">" };
    let Asked { rows, wanted, long } = asked;
    let props = match long {
        Long::Read => "props".to_owned(),
        Long::Marked => format!("CASE WHEN octet_length(props) <= {LONG_BYTES} THEN props ELSE '' END"),
    };
    let props = if wanted.is_empty() { props } else { format!("CASE WHEN {wanted} THEN {props} END") };
    let last = |column: &str| match until {
        Until::Last => format!(" AND {column} <= $5"),
        Until::End => String::new(),
    };
    // Where SQLite has the partition `$2`.
    let place = format!("placement = (SELECT place FROM {partitions} WHERE number = $1 AND name = $2)");
    match (over, dialect) {
        (Over::Partition, _) => {
            let place = if dialect == Dialect::Sqlite { format!("{place} AND ") } else { String::new() };
            format!(
                "SELECT rk, ts, {props} FROM {table} WHERE dataset = $1 AND {place}pk = $2 AND rk {above} $3\
                 {}{rows} ORDER BY rk LIMIT $4",
                last("rk")
            )
        }
        (Over::Partitions, Dialect::Postgres) => format!(
            "SELECT rk, ts, {props}, pk, placement FROM {table} WHERE dataset = $1 AND (pk, rk) {above} ($2, $3)\
             {}{rows} ORDER BY pk, rk LIMIT $4",
            last("pk")
        ),
        // The rest of the partition where it begins, and then those that are listed after it, each in one piece. Both
        // are read as far as they are wanted, and not sorted: without the plus SQLite would search for what it knows of
        // `name` beside, and not for the name itself.
        (Over::Partitions, Dialect::Sqlite) => format!(
            "SELECT rk, ts, {props}, pk, placement FROM {table} WHERE dataset = $1 AND {place} AND pk = $2 \
             AND rk {above} $3{}{rows} UNION ALL \
             SELECT rk, ts, {props}, name, place FROM {partitions} CROSS JOIN {table} \
             WHERE number = $1 AND name > $2{} AND dataset = $1 AND placement = place AND pk = +name{rows} \
             ORDER BY 4, 1 LIMIT $4",
            last("pk"),
            last("name")
        ),
    }
}

#[cfg(test)]
mod tests;
