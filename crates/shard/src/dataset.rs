//! What the protocol must know of a table whose rows are placed by a map: where it is, and how a row's key is found.

use polyshard_engine::Dialect;
use polyshard_map::{HashSpec, KeyRange, KeyType, MapDefinition, MapName, Scheme};

use crate::ShardError;

/// A table whose rows are placed by a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// Its name to people.
    pub name: String,
    /// The map that places it.
    pub map: MapName,
    /// Its table, as it is written in SQL: qualified and quoted where need be.
    pub table: String,
    /// How the placement of a row is found.
    pub placement: Placement,
    /// Which rows of the table are meant.
    pub rows: TableRows,
}

/// What stands between the name of a dataset and that of one of its further tables.
const PART_MARK: char = '#';

/// What shards call the rows that a dataset has in a further table of its store: those in the first one are called as
/// the dataset is.
pub fn part_name(whole: &str, table: &str) -> String {
    format!("{whole}{PART_MARK}{table}")
}

/// The name of the dataset, of that of any of its parts. A name of a dataset ends with its number in brackets, so that
/// none is taken for that of a part.
pub fn whole_name(name: &str) -> &str {
    let is_table = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match name.rsplit_once(PART_MARK) {
        Some((whole, table)) if whole.ends_with(')') && is_table(table) => whole,
        _ => name,
    }
}

/// Which rows of a table are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableRows {
    /// All: the dataset has the table to itself.
    All,
    /// Those of one dataset, in a table that several share.
    Numbered {
        /// The column that holds the number of a row's dataset.
        column: String,
        /// The dataset's number.
        number: i64,
    },
    /// Those of all datasets of the map that are registered on the shard for the table.
    OfMap {
        /// The column that holds the number of a row's dataset.
        column: String,
    },
}

impl Dataset {
    /// The column that tells datasets apart, in a table that several share.
    pub fn rows_column(&self) -> Option<&str> {
        match &self.rows {
            TableRows::All => None,
            TableRows::Numbered { column, .. } | TableRows::OfMap { column } => Some(column),
        }
    }

    /// The number of its rows, if it is one of several datasets in its table.
    pub fn number(&self) -> Option<i64> {
        match self.rows {
            TableRows::Numbered { number, .. } => Some(number),
            TableRows::All | TableRows::OfMap { .. } => None,
        }
    }

    /// Whether it stands for all of the map's datasets in a table that several share.
    pub fn is_of_map(&self) -> bool {
        matches!(self.rows, TableRows::OfMap { .. })
    }

    /// The condition that a row is one of its rows; nothing if all of the table are.
    pub fn own_rows(&self, dialect: Dialect) -> Option<String> {
        match &self.rows {
            TableRows::All => None,
            TableRows::Numbered { column, number } => Some(format!("{column} = {number}")),
            TableRows::OfMap { column } => Some(self.registered(dialect, column)),
        }
    }

    /// The same, after other conditions.
    pub fn and_own_rows(&self, dialect: Dialect) -> String {
        self.own_rows(dialect).map_or_else(String::new, |own| format!(" AND {own}"))
    }

    /// The condition that a row is of any dataset of the map, whichever of them this is; nothing if it has the table to
    /// itself. `row` is put before the column: `OLD` or `NEW`; empty for none.
    pub fn rows_of_map(&self, dialect: Dialect, row: &str) -> Option<String> {
        self.rows_column().map(|column| self.registered(dialect, &of_row(row, column)))
    }

    /// Looked up row by row, and never listed: what it costs does not depend on how many datasets there are. The
    /// database would make a join of it, and perhaps begin with all datasets, if it were not for the offset.
    fn registered(&self, dialect: Dialect, number: &str) -> String {
        format!(
            "EXISTS (SELECT 1 FROM {} AS registered WHERE registered.map = {} AND registered.tab = {} \
             AND registered.rows_number = {number} LIMIT 1 OFFSET 0)",
            dialect.own_table("dataset"),
            text(self.map.as_ref()),
            text(&self.table)
        )
    }
}

/// A text as an SQL literal.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// How the placement of a row is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// It is stored in this column, as bytes.
    Column(String),
    /// It is computed from these columns, which hold the components of the map's key in order. Names are as they are
    /// written in SQL: quoted where need be.
    Key(Vec<String>),
}

/// What the stored form of a computed placement begins with; no column is called so without quotes.
const KEY_MARK: &str = "key:";

impl Placement {
    /// The stored form.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Placement::Column(column) => column.clone(),
            Placement::Key(columns) => {
                format!("{KEY_MARK}{}", serde_json::to_string(columns).expect("a list of texts"))
            }
        }
    }

    /// Reads the stored form.
    pub(crate) fn from_text(text: &str) -> Result<Placement, ShardError> {
        let Some(columns) = text.strip_prefix(KEY_MARK) else {
            return Ok(Placement::Column(text.to_owned()));
        };
        serde_json::from_str(columns).map(Placement::Key).map_err(|error| ShardError::Damaged {
            what: "placement of a dataset",
            detail: error.to_string(),
        })
    }

    /// An SQL expression for a row's placement bytes. `row` is put before the columns: a table's name or alias, `OLD`
    /// or `NEW`; empty for none.
    pub fn expression(
        &self,
        dialect: Dialect,
        definition: &MapDefinition,
        row: &str,
    ) -> Result<String, ShardError> {
        let columns = match self {
            Placement::Column(column) => return Ok(of_row(row, column)),
            Placement::Key(columns) => typed(columns, definition, row)?,
        };
        match definition.scheme() {
            Scheme::Hash(hash) => Ok(match dialect {
                Dialect::Postgres => format!("int4send({})", bucket(dialect, hash, &columns)),
                Dialect::Sqlite => {
                    format!("polyshard_bucket_bytes({})", bucket(dialect, hash, &columns))
                }
            }),
            Scheme::List | Scheme::Range => key_bytes(dialect, &columns, definition),
            Scheme::RangeHash { .. } | Scheme::ListHash { .. } => {
                Err(uncomputable(definition, "it has segments"))
            }
        }
    }

    /// An SQL condition that holds for the rows of these ranges. It has no parameters, so that it can stand in a
    /// trigger, and compares the columns themselves where an index on them can then be used.
    pub fn in_ranges(
        &self,
        dialect: Dialect,
        definition: &MapDefinition,
        ranges: &[KeyRange],
        row: &str,
    ) -> Result<String, ShardError> {
        let parts: Result<Vec<String>, ShardError> =
            ranges.iter().map(|range| self.in_range(dialect, definition, range, row)).collect();
        Ok(any(&parts?))
    }

    fn in_range(
        &self,
        dialect: Dialect,
        definition: &MapDefinition,
        range: &KeyRange,
        row: &str,
    ) -> Result<String, ShardError> {
        if let Some(condition) = self.number_range(definition, range, row) {
            return Ok(condition);
        }
        let placement = self.expression(dialect, definition, row)?;
        // An index with another column behind the placement can then be searched by both.
        if matches!(self, Placement::Column(_)) && *range == KeyRange::point(range.lo().clone()) {
            return Ok(format!("({placement} = {})", bytes(dialect, range.lo().as_slice())));
        }
        let lo = format!("{placement} >= {}", bytes(dialect, range.lo().as_slice()));
        Ok(match range.hi() {
            None => format!("({lo})"),
            Some(hi) => format!("({lo} AND {placement} < {})", bytes(dialect, hi.as_slice())),
        })
    }

    /// The column that [`Placement::in_ranges`] compares as it is stored, where it does that, and the condition that a
    /// row is below the end of a range: none if the range has no end.
    pub fn compared(
        &self,
        dialect: Dialect,
        definition: &MapDefinition,
        range: &KeyRange,
    ) -> Option<(&str, Option<String>)> {
        let end = |column: &str, hi: &[u8]| match self {
            Placement::Column(_) => Some(format!("{column} < {}", bytes(dialect, hi))),
            Placement::Key(_) => number_side(definition, column, hi, "<", "<="),
        };
        let column = match self {
            Placement::Column(column) => column,
            Placement::Key(_) => self.number_column(definition)?,
        };
        match range.hi() {
            None => Some((column, None)),
            Some(hi) => Some((column, Some(end(column, hi.as_slice())?))),
        }
    }

    /// The one column of the key, if its numbers are in the order of placements.
    fn number_column(&self, definition: &MapDefinition) -> Option<&str> {
        let Placement::Key(columns) = self else { return None };
        match (columns.as_slice(), definition.scheme(), definition.key_type()) {
            ([column], Scheme::List | Scheme::Range, KeyType::BigInt | KeyType::Int) => Some(column),
            _ => None,
        }
    }

    /// The range as a comparison of numbers, if the key is one.
    fn number_range(&self, definition: &MapDefinition, range: &KeyRange, row: &str) -> Option<String> {
        let column = of_row(row, self.number_column(definition)?);
        let lo = match range.lo().as_slice() {
            [] => format!("{column} IS NOT NULL"),
            bytes => number_side(definition, &column, bytes, ">=", ">")?,
        };
        Some(match range.hi() {
            None => format!("({lo})"),
            Some(hi) => format!("({lo} AND {})", number_side(definition, &column, hi.as_slice(), "<", "<=")?),
        })
    }
}

/// That one of these holds: as a tree of little depth, since SQLite takes no deep ones.
fn any(parts: &[String]) -> String {
    match parts {
        [] => "(1 = 0)".to_owned(),
        [one] => one.clone(),
        _ => {
            let (left, right) = parts.split_at(parts.len() / 2);
            format!("({} OR {})", any(left), any(right))
        }
    }
}

/// The comparison of a column with a bound of a range: a key, or the bytes next above a key; nothing lies between.
fn number_side(
    definition: &MapDefinition,
    column: &str,
    bound: &[u8],
    at: &str,
    above: &str,
) -> Option<String> {
    let width = if *definition.key_type() == KeyType::BigInt { 8 } else { 4 };
    let number = |bytes: &[u8]| -> Option<i64> {
        match definition.key_type().decode(bytes).ok()? {
            polyshard_map::Key::BigInt(number) => Some(number),
            polyshard_map::Key::Int(number) => Some(number.into()),
            _ => None,
        }
    };
    match bound.len() {
        len if len == width => Some(format!("{column} {at} {}", literal(number(bound)?))),
        len if len == width + 1 && bound[width] == 0 => {
            Some(format!("{column} {above} {}", literal(number(&bound[..width])?)))
        }
        _ => None,
    }
}

/// A literal both engines read as a whole number: the least one cannot be written plainly.
fn literal(number: i64) -> String {
    if number == i64::MIN { "(-9223372036854775807 - 1)".to_owned() } else { format!("({number})") }
}

fn of_row(row: &str, column: &str) -> String {
    if row.is_empty() { column.to_owned() } else { format!("{row}.{column}") }
}

fn typed(
    columns: &[String],
    definition: &MapDefinition,
    row: &str,
) -> Result<Vec<(String, KeyType)>, ShardError> {
    let types = definition.key_type().components();
    if types.len() != columns.len() {
        let why = format!("its key has {} parts and the table names {} columns", types.len(), columns.len());
        return Err(uncomputable(definition, &why));
    }
    Ok(columns.iter().map(|column| of_row(row, column)).zip(types.iter().cloned()).collect())
}

/// An expression for the bucket, as a number.
fn bucket(dialect: Dialect, hash: &HashSpec, columns: &[(String, KeyType)]) -> String {
    match dialect {
        Dialect::Postgres => {
            let columns: Vec<(&str, KeyType)> =
                columns.iter().map(|(column, kind)| (column.as_str(), kind.clone())).collect();
            hash.sql_bucket_expression(&columns)
        }
        Dialect::Sqlite => {
            let types: Vec<String> = columns.iter().map(|(_, kind)| kind.to_string()).collect();
            let columns: Vec<&str> = columns.iter().map(|(column, _)| column.as_str()).collect();
            let (seed, buckets) = (hash.seed(), hash.buckets());
            format!("polyshard_bucket({seed}, {buckets}, '{}', {})", types.join(","), columns.join(", "))
        }
    }
}

/// An expression for the encoded key.
fn key_bytes(
    dialect: Dialect,
    columns: &[(String, KeyType)],
    definition: &MapDefinition,
) -> Result<String, ShardError> {
    match (dialect, columns) {
        (Dialect::Sqlite, [(column, kind)]) => Ok(format!("polyshard_key('{kind}', {column})")),
        (Dialect::Postgres, [(column, kind)]) => {
            let flip = |bytes: String| format!("set_byte({bytes}, 0, get_byte({bytes}, 0) # 128)");
            Ok(match kind {
                KeyType::Int => flip(format!("int4send(({column})::int)")),
                KeyType::BigInt => flip(format!("int8send(({column})::bigint)")),
                KeyType::Date => flip(format!("date_send(({column})::date)")),
                // As it is stored, which is the same for both timestamp types: behind the count of columns, the type
                // and the length, where a NULL has nothing. A cast would go through the session's time zone.
                KeyType::Timestamp => {
                    flip(format!("NULLIF(substring(record_send(ROW({column})) FROM 13), ''::bytea)"))
                }
                KeyType::Uuid => format!("uuid_send(({column})::uuid)"),
                KeyType::Text => format!("convert_to(({column})::text, 'UTF8')"),
                KeyType::Binary => format!("({column})::bytea"),
                KeyType::Tuple(_) => return Err(uncomputable(definition, "tuples do not nest")),
            })
        }
        _ => Err(uncomputable(definition, "its key has several parts, and it is not a hash map")),
    }
}

fn bytes(dialect: Dialect, bytes: &[u8]) -> String {
    let hex = polyshard_map::KeyBytes::from(bytes).to_hex();
    match dialect {
        Dialect::Postgres => format!("'\\x{hex}'::bytea"),
        Dialect::Sqlite => format!("x'{hex}'"),
    }
}

fn uncomputable(definition: &MapDefinition, why: &str) -> ShardError {
    ShardError::Uncomputable { map: definition.name().clone(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use polyshard_engine::{Database, Options, Statement, Target};
    use polyshard_map::Key;

    use super::*;

    #[test]
    fn the_parts_of_a_dataset_have_its_name() {
        for (name, whole) in [
            ("blob:acct/docs (7)", "blob:acct/docs (7)"),
            ("blob:acct/docs (7)#blob_block", "blob:acct/docs (7)"),
            ("sql:a)#b (7)", "sql:a)#b (7)"),
            ("sql:a)#b (7)#more", "sql:a)#b (7)"),
            ("polyshard.queue_message", "polyshard.queue_message"),
        ] {
            assert_eq!(whole_name(name), whole, "{name}");
        }
        assert_eq!(whole_name(&part_name("x (1)", "y_2")), "x (1)");
    }

    // E4: the ranges of many strays, as they are left out of queries.
    #[tokio::test]
    async fn thousands_of_ranges_are_one_condition_that_sqlite_takes() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::sqlite(folder.path().join("one.db"));
        let db = Database::open(target, Options::default(), None).await.unwrap();
        for sql in [
            "CREATE TABLE thing (tenant BIGINT)",
            "INSERT INTO thing WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 9999) \
             SELECT n FROM n",
        ] {
            db.write(Statement::new(sql).into()).await.unwrap();
        }
        let map = MapName::new("tenants").unwrap();
        let definition = MapDefinition::new(map, KeyType::BigInt, Scheme::Range).unwrap();
        let point = |n: i64| KeyRange::point(KeyType::BigInt.encode(&Key::BigInt(2 * n)).unwrap());
        let ranges: Vec<KeyRange> = (0..5_000).map(point).collect();
        let rule = Placement::Key(vec!["tenant".to_owned()]);
        let inside = rule.in_ranges(Dialect::Sqlite, &definition, &ranges, "").unwrap();
        let sql = format!("SELECT count(*) FROM thing WHERE NOT {inside} AND tenant % 2 = 0");
        assert_eq!(db.read(Statement::new(sql)).await.unwrap().rows()[0].int(0).unwrap(), 0);
        let sql = format!("SELECT count(*) FROM thing WHERE {inside}");
        assert_eq!(db.read(Statement::new(sql)).await.unwrap().rows()[0].int(0).unwrap(), 5_000);
        db.close().await;
    }
}
