//! What psql's backslash commands and SQLAlchemy's reflection ask the system catalog, in their own words.

mod common;

use common::{Answer, Lite};

const TABLES: [&str; 4] = [
    "CREATE TABLE parent (a int PRIMARY KEY, b text UNIQUE)",
    "CREATE TABLE item (id bigint PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x', pa int REFERENCES parent ON \
     DELETE CASCADE, n numeric(8,2), CHECK (n > 0))",
    "CREATE INDEX item_name ON item (name)",
    "CREATE VIEW vv AS SELECT id FROM item",
];

async fn opened() -> Lite {
    let mut lite = Lite::open().await;
    for sql in TABLES {
        let answer = lite.run(sql).await;
        assert!(answer.state().is_none(), "{sql}: {answer:?}");
    }
    lite
}

async fn rows(lite: &mut Lite, sql: &str) -> Vec<Vec<String>> {
    match lite.run(sql).await {
        Answer::Rows { rows, .. } => {
            let shown = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
            rows.into_iter().map(|row| row.into_iter().map(shown).collect()).collect()
        }
        other => panic!("{sql}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_question_of_psql_and_sqlalchemy_is_answered() {
    // G1
    let mut lite = opened().await;
    let mut numbers = Vec::new();
    for name in ["parent", "item", "vv", "item_name"] {
        let number = rows(&mut lite, &format!("SELECT oid FROM pg_class WHERE relname = '{name}'")).await;
        numbers.push((format!("{{{name}}}"), number[0][0].clone()));
    }
    let fill = |text: &str| {
        numbers.iter().fold(text.to_owned(), |text, (name, number)| text.replace(name.as_str(), number))
    };
    let mut wrong = Vec::new();
    for block in include_str!("reflection.txt").split("\n\n") {
        let (text, parameters) = match block.split_once("\n-- parameters: ") {
            Some((text, parameters)) => (fill(text), fill(parameters)),
            None => (fill(block), String::new()),
        };
        if text.trim().is_empty() {
            continue;
        }
        let parameters: Vec<Option<&str>> = if block.contains("\n-- parameters: ") {
            parameters.split('\t').map(Some).collect()
        } else {
            Vec::new()
        };
        let answer = lite.run_with(&text, &parameters).await;
        if let Some(state) = answer.state() {
            wrong.push(format!("{text}\n   {state} {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_catalog_tells_the_truth() {
    // G1
    let mut lite = opened().await;
    let tables =
        rows(&mut lite, "SELECT relname, relkind FROM pg_class WHERE relkind IN ('r', 'v') ORDER BY 1").await;
    assert_eq!(tables, [["item", "r"], ["parent", "r"], ["vv", "v"]]);
    let columns = rows(
        &mut lite,
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid) \
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
         WHERE a.attrelid = 'item'::regclass AND a.attnum > 0 ORDER BY a.attnum",
    )
    .await;
    assert_eq!(
        columns,
        [
            ["id", "bigint", "t", "NULL"],
            ["name", "character varying(20)", "t", "'x'::character varying"],
            ["pa", "integer", "f", "NULL"],
            ["n", "numeric(8,2)", "f", "NULL"]
        ]
    );
    let constraints = rows(
        &mut lite,
        "SELECT conrelid::regclass, conname, contype, pg_get_constraintdef(oid) FROM pg_constraint ORDER BY conname",
    )
    .await;
    assert_eq!(
        constraints,
        [
            ["item", "item_n_check", "c", "CHECK ((n > 0))"],
            ["item", "item_pa_fkey", "f", "FOREIGN KEY (pa) REFERENCES parent(a) ON DELETE CASCADE"],
            ["item", "item_pkey", "p", "PRIMARY KEY (id)"],
            ["parent", "parent_b_key", "u", "UNIQUE (b)"],
            ["parent", "parent_pkey", "p", "PRIMARY KEY (a)"]
        ]
    );
    let indexes =
        rows(&mut lite, "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'item' ORDER BY 1")
            .await;
    assert_eq!(indexes[0], ["item_name", "CREATE INDEX item_name ON public.item USING btree (name)"]);
    assert_eq!(indexes[1], ["item_pkey", "CREATE UNIQUE INDEX item_pkey ON public.item USING btree (id)"]);
    let described = rows(
        &mut lite,
        "SELECT column_name, data_type, is_nullable, character_maximum_length, numeric_precision, numeric_scale \
         FROM information_schema.columns WHERE table_name = 'item' ORDER BY ordinal_position",
    )
    .await;
    assert_eq!(described[1], ["name", "character varying", "NO", "20", "NULL", "NULL"]);
    assert_eq!(described[3], ["n", "numeric", "YES", "NULL", "8", "2"]);
    let view = rows(
        &mut lite,
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'vv'::regclass",
    )
    .await;
    assert_eq!(view, [["id", "bigint"]]);
}
