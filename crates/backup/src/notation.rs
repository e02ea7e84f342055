//! The forms that values have in copies: as their database writes them, or as SQLite files keep them, which both
//! engines read.

use polyshard_engine::{Dialect, Transaction, Value};
use polyshard_map::KeyBytes;
use polyshard_shard::{Column, Native, Shape, Travel, default_notation, one_notation};

use crate::BackupError;
use crate::lines::{Head, LINES_FORMAT_FILED};
use crate::manifest::engine_word;

/// What the type of a file's column must be called by to keep values of a type of PostgreSQL; none where values are the
/// same on both engines.
fn kept_as(native: Native) -> Option<&'static str> {
    match native {
        Native::Date | Native::Time | Native::Timestamp | Native::TimestampTz => Some("int"),
        Native::Uuid => Some("blob"),
        Native::Interval | Native::Char | Native::Enum | Native::Array | Native::Moments => Some("text"),
        Native::Other | Native::Document | Native::Float => None,
    }
}

/// Has the rows of a table on PostgreSQL read and written as files keep them; those of a file are so anyway.
pub(crate) fn as_files_keep(shape: &mut Shape) {
    for column in &mut shape.columns {
        if kept_as(column.native).is_some() {
            column.travel = Travel::Filed;
        }
    }
}

/// The same for each column in words, as heads have it.
pub(crate) fn kept(shape: &Shape) -> Vec<String> {
    shape.columns.iter().map(|column| kept_as(column.native).unwrap_or_default().to_owned()).collect()
}

/// A value as a column takes it.
pub(crate) fn taken_by(column: &Column, value: Value) -> Value {
    match (column.travel, value) {
        (_, Value::Null) => Value::Null,
        (Travel::Filed, Value::Blob(bytes)) if column.native == Native::Uuid => {
            Value::Text(KeyBytes::new(bytes).to_hex())
        }
        (Travel::Cast | Travel::Filed, value) => Value::Text(match value {
            Value::Null => String::new(),
            Value::Bool(truth) => truth.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Real(number) => format!("{number:?}"),
            Value::Text(text) => text,
            Value::Blob(bytes) => format!("\\x{}", KeyBytes::new(bytes).to_hex()),
        }),
        (Travel::Plain | Travel::Text, value) => value,
    }
}

/// The one notation that there is, as heads name it.
pub(crate) const NOTATION: u32 = 1;

/// Has a transaction take texts as they are written behind a head. Those of an earlier program are as their database
/// had it set, which nobody knows any more; most likely it is so still.
pub(crate) async fn read_as_written(
    tx: &mut Transaction,
    head: &Head,
    dialect: Dialect,
) -> Result<(), BackupError> {
    let is_foreign = head.engine != engine_word(dialect);
    let notation = match is_foreign || head.format >= LINES_FORMAT_FILED || head.notation == Some(NOTATION) {
        true => one_notation(dialect),
        false => (dialect == Dialect::Postgres).then(default_notation),
    };
    if let Some(notation) = notation {
        tx.run(notation).await?;
    }
    Ok(())
}

/// The columns of a table that the rows behind a head go to, in the head's order; or which of them cannot take them.
pub(crate) fn columns_for(head: &Head, shape: &Shape, dialect: Dialect) -> Result<Vec<Column>, String> {
    let same_engine = head.engine == engine_word(dialect);
    if !same_engine && dialect == Dialect::Sqlite && head.format < LINES_FORMAT_FILED {
        return Err(
            "its rows are as PostgreSQL writes them, which files do not read; restore it onto a shard on \
                    PostgreSQL, and move it from there"
                .to_owned(),
        );
    }
    let facing = match (same_engine, dialect) {
        (false, Dialect::Postgres) => shape.facing_file(&file_shape(head))?,
        _ => shape.clone(),
    };
    let column = |(place, (name, kind)): (usize, &(String, String))| {
        let found = facing.column(name).cloned();
        let mut found = found.ok_or_else(|| format!("column {name} of the backup is gone from its table"))?;
        if same_engine && found.kind != *kind {
            return Err(format!("column {name} was {kind} in the backup, and is {} now", found.kind));
        }
        match head.kept.get(place).map_or("", String::as_str) {
            "" => {}
            _ if same_engine => found.travel = Travel::Filed,
            form if found.kind.contains(form) => {}
            _ => {
                return Err(format!(
                    "column {name} is of the type {kind} in the archive and of the type {} in the file; make a new \
                     column of one type for it",
                    found.kind
                ));
            }
        }
        Ok(found)
    };
    head.columns.iter().enumerate().map(column).collect()
}

/// A file's table as a head tells of it.
fn file_shape(head: &Head) -> Shape {
    let column = |(name, kind): &(String, String)| {
        let is_text = ["char", "text", "clob"].iter().any(|word| kind.contains(word));
        let travel = if is_text { Travel::Text } else { Travel::Plain };
        Column { name: name.clone(), kind: kind.clone(), travel, native: Native::Other }
    };
    Shape {
        columns: head.columns.iter().map(column).collect(),
        primary_key: Vec::new(),
        references: Vec::new(),
        identity: head.table.clone(),
        triggers: Vec::new(),
        is_referred_to: false,
    }
}

/// The column whose value no file can keep, of a row that comes from PostgreSQL.
pub(crate) fn unkeepable<'a>(head: &'a Head, row: &[Value]) -> Option<&'a str> {
    let is_list = |kind: &str| kind.ends_with("[]");
    let cannot = |((_, kind), value): &(&(String, String), &Value)| match value {
        Value::Real(number) => number.is_nan(),
        // Of more than one dimension, or with bounds of its own; or with what files have no number for.
        Value::Text(text) if is_list(kind) => {
            text.starts_with("{{")
                || text.starts_with('[')
                || kind == "double precision[]" && text.contains("NaN")
        }
        _ => false,
    };
    head.columns.iter().zip(row).find(cannot).map(|((name, _), _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use polyshard_engine::{Access, Database, Options, Statement, Target};

    use super::*;
    use crate::lines::{LINES_FORMAT, PlacementText};

    fn head(engine: &str, format: u32, columns: &[(&str, &str)], kept: &[&str]) -> Head {
        Head {
            format,
            dataset: "sql:orders (3)".to_owned(),
            table: "orders".to_owned(),
            engine: engine.to_owned(),
            columns: columns.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect(),
            placement: PlacementText::Key(vec!["id".to_owned()]),
            rows_column: None,
            kept: kept.iter().map(|word| (*word).to_owned()).collect(),
            notation: None,
        }
    }

    fn shape(columns: &[(&str, &str, Travel, Native)]) -> Shape {
        let column = |(name, kind, travel, native): &(&str, &str, Travel, Native)| Column {
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
            travel: *travel,
            native: *native,
        };
        let columns: Vec<Column> = columns.iter().map(column).collect();
        Shape { columns, ..file_shape(&head("sqlite", 1, &[], &[])) }
    }

    // D7: what was written on one engine is put on the other only where it means the same.
    #[test]
    fn columns_of_the_other_engine_take_values_of_their_type_and_no_others() {
        let days = |kind: &str| head("postgres", LINES_FORMAT_FILED, &[("day", kind)], &["int"]);
        let file = |kind: &str| shape(&[("\"day\"", kind, Travel::Plain, Native::Other)]);
        let on_file = |head: &Head, shape: &Shape| columns_for(head, shape, Dialect::Sqlite);
        assert_eq!(on_file(&days("date"), &file("date_int")).unwrap()[0].travel, Travel::Plain);
        let why = on_file(&days("date"), &file("text")).unwrap_err();
        assert!(why.contains("column day") && why.contains("date") && why.contains("text"), "{why}");
        let old = head("postgres", LINES_FORMAT, &[("day", "date")], &[]);
        assert!(on_file(&old, &file("date_int")).unwrap_err().contains("as PostgreSQL writes them"));

        let there = shape(&[("day", "date", Travel::Cast, Native::Date)]);
        let back = |head: &Head| columns_for(head, &there, Dialect::Postgres);
        assert_eq!(back(&days("date")).unwrap()[0].travel, Travel::Filed);
        assert_eq!(back(&old).unwrap()[0].travel, Travel::Cast, "as it was written");
        let of_file = |kind: &str| head("sqlite", LINES_FORMAT, &[("\"day\"", kind)], &[]);
        assert_eq!(back(&of_file("date_int")).unwrap()[0].travel, Travel::Filed);
        assert!(back(&of_file("real")).unwrap_err().contains("column day"));
        assert!(back(&days("timestamp")).unwrap_err().contains("was timestamp"));
    }

    #[test]
    fn what_no_file_can_keep_is_named() {
        let head =
            head("postgres", LINES_FORMAT_FILED, &[("id", "bigint"), ("list", "text[]")], &["", "text"]);
        let row = |text: &str| [Value::Int(1), Value::Text(text.to_owned())];
        assert_eq!(unkeepable(&head, &row("{a,b}")), None);
        assert_eq!(unkeepable(&head, &row("{{a},{b}}")), Some("list"));
        assert_eq!(unkeepable(&head, &[Value::Real(f64::NAN), Value::Null]), Some("id"));
    }

    #[test]
    fn values_are_given_as_their_column_takes_them() {
        let uuid = Column {
            name: "mark".to_owned(),
            kind: "uuid".to_owned(),
            travel: Travel::Filed,
            native: Native::Uuid,
        };
        assert_eq!(taken_by(&uuid, Value::Blob(vec![0, 255])), Value::Text("00ff".to_owned()));
        let day = Column { native: Native::Date, ..uuid.clone() };
        assert_eq!(taken_by(&day, Value::Int(8770)), Value::Text("8770".to_owned()));
        let plain = Column { travel: Travel::Plain, ..uuid };
        assert_eq!(taken_by(&plain, Value::Int(1)), Value::Int(1));
        assert_eq!(taken_by(&day, Value::Null), Value::Null);
    }

    // E1: an interval of minus a day and minus an hour, as it was written under sql_standard, is another one elsewhere.
    #[tokio::test]
    async fn rows_of_an_earlier_program_are_read_as_their_database_writes_them() {
        let server = polyshard_testkit::postgres::PgServer::start();
        server.create_database("old");
        server.execute("postgres", "ALTER DATABASE old SET intervalstyle = 'sql_standard'");
        server.execute("postgres", "ALTER DATABASE old SET datestyle = 'SQL, DMY'");
        let target = Target::parse(&server.url("old")).unwrap();
        let db = Database::open(target, Options::default(), None).await.unwrap();
        let mut tx = db.begin(Access::Write).await.unwrap();
        let old = head("postgres", LINES_FORMAT, &[], &[]);
        let new = Head { notation: Some(NOTATION), ..old.clone() };
        let filed = head("postgres", LINES_FORMAT_FILED, &[], &[]);
        let read = "SELECT (extract(epoch FROM $2::text::interval) / 3600)::bigint, \
                    extract(day FROM $1::text::date)::bigint";
        for (head, day, expected) in
            [(&new, "2026-02-03", (-23, 3)), (&old, "03/02/2026", (-25, 3)), (&filed, "2026-02-03", (-23, 3))]
        {
            read_as_written(&mut tx, head, Dialect::Postgres).await.unwrap();
            let rows = tx.run(Statement::new(read).bind(day).bind("-1 1:00:00")).await.unwrap();
            let row = rows.one().unwrap();
            assert_eq!((row.int(0).unwrap(), row.int(1).unwrap()), expected, "{day}");
        }
        tx.rollback().await.unwrap();
        db.close().await;
    }
}
