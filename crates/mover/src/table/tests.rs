//! A page of rows begins where the one before ended: what was read before is not passed over again.

use polyshard_engine::{Database, Dialect, Options, SqliteTarget, Statement, Target, Value};
use polyshard_map::{HashSpec, Key, KeyRange, KeyType, MapDefinition, MapName, Scheme};
use polyshard_shard::{Column, Dataset, Native, Placement, RowKey, Shape, TableRows, Travel};

use super::Side;

fn map(scheme: Scheme) -> MapDefinition {
    MapDefinition::new(MapName::new("tenants").unwrap(), KeyType::BigInt, scheme).unwrap()
}

fn shape(columns: &[&str], key: &[usize]) -> Shape {
    let column = |name: &&str| Column {
        name: (*name).to_owned(),
        kind: "ANY".to_owned(),
        travel: Travel::Plain,
        native: Native::Other,
    };
    Shape {
        columns: columns.iter().map(column).collect(),
        primary_key: key.to_vec(),
        references: Vec::new(),
        identity: "item".to_owned(),
        triggers: Vec::new(),
        is_referred_to: false,
    }
}

fn side(
    placement: Placement,
    rows: Option<&str>,
    shape: &Shape,
    definition: &MapDefinition,
    range: KeyRange,
) -> Side {
    let dataset = Dataset {
        name: "items".to_owned(),
        map: definition.name().clone(),
        table: "item".to_owned(),
        placement,
        rows: rows
            .map_or(TableRows::All, |column| TableRows::Numbered { column: column.to_owned(), number: 7 }),
    };
    Side::new(Dialect::Sqlite, &dataset, shape, shape, definition, &[range]).unwrap()
}

/// How SQLite finds the rows of a statement.
async fn plan(table: &str, statement: Statement) -> String {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::Sqlite(SqliteTarget { path: folder.path().join("plan.db") });
    let db = Database::open(target, Options::default(), None).await.unwrap();
    for sql in table.split(';') {
        db.write(Statement::new(sql.to_owned()).into()).await.unwrap();
    }
    let rows = db.read(statement).await.unwrap();
    let details: Vec<String> = rows.into_iter().map(|row| row.text(3).unwrap().to_owned()).collect();
    db.close().await;
    details.join("; ")
}

fn explained(sql: &str, values: Vec<Value>) -> Statement {
    values.into_iter().fold(Statement::new(format!("EXPLAIN QUERY PLAN {sql}")), Statement::bind)
}

async fn page_plan(table: &str, side: &Side, number: Option<i64>, after: RowKey) -> String {
    let (sql, values) = side.select(&side.read_list(), "item", number, (Some(&after), None));
    plan(table, explained(&sql, values)).await
}

#[tokio::test]
async fn with_a_column_for_the_placement() {
    let definition = map(Scheme::Hash(HashSpec::new(0, 16).unwrap()));
    let shape = shape(&["placement", "id", "body"], &[0, 1]);
    let placement = Placement::Column("placement".to_owned());
    let side = side(placement, None, &shape, &definition, definition.buckets(2, 9).unwrap());
    let table = "CREATE TABLE item (placement BLOB, id INTEGER, body TEXT, PRIMARY KEY (placement, id)) WITHOUT ROWID";
    let plan =
        page_plan(table, &side, None, RowKey(vec![Value::Blob(vec![0, 0, 0, 3]), Value::Int(5)])).await;
    assert_eq!(plan, "SEARCH item USING PRIMARY KEY ((placement,id)>(?,?) AND placement<?)");
}

#[tokio::test]
async fn with_the_number_of_a_dataset_in_front() {
    let definition = map(Scheme::Hash(HashSpec::new(0, 16).unwrap()));
    let shape = shape(&["dataset", "pk", "rk", "placement", "props"], &[0, 1, 2]);
    let placement = Placement::Column("placement".to_owned());
    let side = side(placement, Some("dataset"), &shape, &definition, definition.buckets(2, 9).unwrap());
    let table = "CREATE TABLE item (dataset INTEGER, pk TEXT, rk TEXT, placement BLOB, props TEXT, \
                 PRIMARY KEY (dataset, pk, rk)) \
                 WITHOUT ROWID; CREATE INDEX found ON item (dataset, placement)";
    let after =
        [Value::Blob(vec![0, 0, 0, 3]), Value::Int(7), Value::Text("p".into()), Value::Text("r".into())];
    let plan = page_plan(table, &side, Some(7), RowKey(after.to_vec())).await;
    assert_eq!(
        plan,
        "SEARCH item USING INDEX found (dataset=? AND (placement,pk,rk)>(?,?,?) AND placement<?)"
    );
}

/// All datasets of a map in one search, and each row's dataset by another: no list of them is read.
#[tokio::test]
async fn with_all_datasets_of_a_map_in_one_table() {
    let definition = map(Scheme::Hash(HashSpec::new(0, 16).unwrap()));
    let shape = shape(&["dataset", "placement", "id", "body"], &[1, 0, 2]);
    let dataset = Dataset {
        name: "items".to_owned(),
        map: definition.name().clone(),
        table: "item".to_owned(),
        placement: Placement::Column("placement".to_owned()),
        rows: TableRows::OfMap { column: "dataset".to_owned() },
    };
    let range = [definition.buckets(2, 9).unwrap()];
    let side = Side::new(Dialect::Sqlite, &dataset, &shape, &shape, &definition, &range).unwrap();
    let tables = "CREATE TABLE item (dataset INTEGER, placement BLOB, id INTEGER, body TEXT, \
                  PRIMARY KEY (placement, dataset, id)) WITHOUT ROWID; \
                  CREATE TABLE polyshard_dataset (name TEXT, map TEXT, tab TEXT, rows_number INTEGER); \
                  CREATE INDEX of_map ON polyshard_dataset (map, tab, rows_number)";
    let after = RowKey(vec![Value::Blob(vec![0, 0, 0, 3]), Value::Int(7), Value::Int(5)]);
    let plan = page_plan(tables, &side, None, after).await;
    assert_eq!(
        plan,
        "SEARCH item USING PRIMARY KEY ((placement,dataset,id)>(?,?,?) AND placement<?); CORRELATED SCALAR SUBQUERY 1; \
         SEARCH registered USING COVERING INDEX of_map (map=? AND tab=? AND rows_number=?)"
    );
}

#[tokio::test]
async fn with_the_placement_in_the_key() {
    let definition = map(Scheme::Hash(HashSpec::new(0, 16).unwrap()));
    let shape = shape(&["dataset", "pk", "rk", "placement", "props"], &[0, 3, 1, 2]);
    let placement = Placement::Column("placement".to_owned());
    let side = side(placement, Some("dataset"), &shape, &definition, definition.buckets(2, 9).unwrap());
    let after =
        [Value::Blob(vec![0, 0, 0, 3]), Value::Int(7), Value::Text("p".into()), Value::Text("r".into())];
    for (lies, by) in [("", "INDEX sqlite_autoindex_item_1"), (" WITHOUT ROWID", "PRIMARY KEY")] {
        let table = format!(
            "CREATE TABLE item (dataset INTEGER, pk TEXT, rk TEXT, placement BLOB, props TEXT, \
             PRIMARY KEY (dataset, placement, pk, rk)){lies}"
        );
        let plan = page_plan(&table, &side, Some(7), RowKey(after.to_vec())).await;
        let range = "(dataset=? AND (placement,pk,rk)>(?,?,?) AND placement<?)";
        assert_eq!(plan, format!("SEARCH item USING {by} {range}"));
    }
}

/// Engines, and files of earlier versions, may have another key for the same rows.
#[test]
fn a_row_is_put_over_another_by_the_key_of_the_table_that_it_is_put_into() {
    let definition = map(Scheme::Hash(HashSpec::new(0, 16).unwrap()));
    let columns = ["dataset", "pk", "rk", "placement", "props"];
    let (short, long) = (shape(&columns, &[0, 1, 2]), shape(&columns, &[0, 3, 1, 2]));
    let dataset = Dataset {
        name: "items".to_owned(),
        map: definition.name().clone(),
        table: "item".to_owned(),
        placement: Placement::Column("placement".to_owned()),
        rows: TableRows::All,
    };
    let range = [definition.buckets(2, 9).unwrap()];
    let text = |own: &Shape, source: &Shape| {
        let side = Side::new(Dialect::Sqlite, &dataset, own, source, &definition, &range).unwrap();
        side.upsert.to_string()
    };
    let (into_short, into_long) = (text(&short, &long), text(&long, &short));
    assert!(into_short.contains("ON CONFLICT (dataset, pk, rk) DO UPDATE SET props = "), "{into_short}");
    assert!(
        into_long.contains("ON CONFLICT (dataset, placement, pk, rk) DO UPDATE SET props = "),
        "{into_long}"
    );
}

/// Few statements carry many rows, and none of them is about a row that was not asked for.
#[test]
fn rows_are_added_and_removed_many_at_once() {
    let definition = map(Scheme::List);
    let shape = shape(&["tenant", "id", "body"], &[0, 1]);
    let dataset = Dataset {
        name: "items".to_owned(),
        map: definition.name().clone(),
        table: "item".to_owned(),
        placement: Placement::Key(vec!["tenant".to_owned()]),
        rows: TableRows::All,
    };
    let range = [KeyRange::point(definition.placement(&Key::BigInt(42)).unwrap())];
    let side = |dialect| Side::new(dialect, &dataset, &shape, &shape, &definition, &range).unwrap();
    let row = |id: i64| vec![Value::Int(42), Value::Int(id), Value::Text("x".into())];
    let rows: Vec<_> = (0..83).map(row).collect();
    let inserts = side(Dialect::Postgres).inserts(&rows);
    let counts: Vec<usize> = inserts.iter().map(|insert| insert.params().len() / 3).collect();
    assert_eq!(counts, [64, 8, 8, 1, 1, 1]);
    let added: Vec<Value> = inserts.iter().flat_map(|insert| insert.params().to_vec()).collect();
    assert_eq!(added, rows.concat());
    let keys: Vec<RowKey> = (0..33).map(|id| RowKey(vec![Value::Int(42), Value::Int(id)])).collect();
    let keys: Vec<&RowKey> = keys.iter().collect();
    let deletes = side(Dialect::Postgres).deletes(&keys);
    assert_eq!(deletes.len(), 2);
    assert_eq!(deletes[0].text(), deletes[1].text(), "prepared once");
    let ids = |place: usize| deletes[place].params().iter().skip(1).step_by(2).cloned().collect::<Vec<_>>();
    assert_eq!(ids(0), (0..32).map(Value::Int).collect::<Vec<_>>());
    assert_eq!(ids(1), vec![Value::Int(32); 32], "the last one again");
    assert_eq!(side(Dialect::Sqlite).deletes(&keys).len(), 33);
    assert_eq!(side(Dialect::Postgres).deletes(&keys[..1])[0].params().len(), 2);
}

#[tokio::test]
async fn with_the_tenant_in_front() {
    let definition = map(Scheme::List);
    let shape = shape(&["tenant", "id", "body"], &[0, 1]);
    let range = KeyRange::point(definition.placement(&Key::BigInt(42)).unwrap());
    let side = side(Placement::Key(vec!["tenant".to_owned()]), None, &shape, &definition, range);
    let table = "CREATE TABLE item (tenant INTEGER, id INTEGER, body TEXT, PRIMARY KEY (tenant, id))";
    let plan = page_plan(table, &side, None, RowKey(vec![Value::Int(42), Value::Int(5)])).await;
    assert_eq!(plan, "SEARCH item USING INDEX sqlite_autoindex_item_1 ((tenant,id)>(?,?) AND tenant<?)");
}

/// A key without the placement is not looked for in the whole range, neither to be read nor to be deleted.
#[tokio::test]
async fn the_list_of_partitions_leads_to_a_key_without_the_placement() {
    let definition = map(Scheme::Hash(HashSpec::new(0, 16).unwrap()));
    let columns = ["dataset", "pk", "rk", "placement", "props"];
    let (short, long) = (shape(&columns, &[0, 1, 2]), shape(&columns, &[0, 3, 1, 2]));
    let dataset = Dataset {
        name: "items".to_owned(),
        map: definition.name().clone(),
        table: "item".to_owned(),
        placement: Placement::Column("placement".to_owned()),
        rows: TableRows::Numbered { column: "dataset".to_owned(), number: 7 },
    };
    let range = [definition.buckets(2, 9).unwrap()];
    let side = |own: &Shape, source: &Shape| {
        Side::new(Dialect::Sqlite, &dataset, own, source, &definition, &range).unwrap()
    };
    let into_long = side(&long, &short);
    let tables = "CREATE TABLE item (dataset INTEGER, pk TEXT, rk TEXT, placement BLOB, props TEXT, \
                  PRIMARY KEY (dataset, placement, pk, rk)); \
                  CREATE TABLE item_partition (number INTEGER, name TEXT, place BLOB, PRIMARY KEY (number, name)) \
                  WITHOUT ROWID; CREATE TABLE polyshard_dataset (rows_number INTEGER, map TEXT, tab TEXT)";
    let key = RowKey(vec![Value::Int(7), Value::Text("p".into()), Value::Text("r".into())]);
    for text in [&into_long.by_key, &into_long.delete] {
        let found = plan(tables, explained(text, key.0.clone())).await;
        // Whoever deletes need not look at the row itself: for him the index is a covering one.
        let by = "INDEX sqlite_autoindex_item_1 (dataset=? AND placement=? AND pk=? AND rk=?)";
        assert!(found.contains(by), "{text}: {found}");
    }
    // What is in the list is found, and what has no list needs none.
    let folder = tempfile::tempdir().unwrap();
    let target = Target::Sqlite(SqliteTarget { path: folder.path().join("list.db") });
    let db = Database::open(target, Options::default(), None).await.unwrap();
    let rows = "INSERT INTO item VALUES (7, 'p', 'r', x'00000003', 'a'), (7, 'p', 's', x'00000003', 'b'); \
                INSERT INTO item_partition VALUES (7, 'p', x'00000003'); \
                INSERT INTO polyshard_dataset VALUES (7, 'tenants', 'item')";
    for sql in tables.split(';').chain(rows.split(';')) {
        db.write(Statement::new(sql.to_owned()).into()).await.unwrap();
    }
    assert_eq!(db.read(into_long.by_key(&key)).await.unwrap().len(), 1);
    let deleted = db.write(into_long.delete(&key).into()).await.unwrap();
    assert_eq!(deleted[0].affected(), 1);
    assert_eq!(db.read(into_long.by_key(&key)).await.unwrap().len(), 0);
    db.close().await;
    for side in [side(&long, &long), side(&short, &short), side(&short, &long)] {
        assert!(!side.by_key.contains("_partition"), "{}", side.by_key);
    }
}
