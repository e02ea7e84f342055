//! The schema as it is read from PostgreSQL: everything that routing and planning need to know.

use std::sync::Arc;

use polyshard_schema::Declaration;
use polyshard_sql::{Collation, Generated, TableName, TypeOid, Volatility};

use crate::cluster::{Cluster, table};
use crate::place::Place;

async fn everything_is_read_from_the_system_catalog(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&[
            "CREATE SCHEMA app",
            "CREATE TYPE app.mood AS ENUM ('sad', 'happy')",
            "CREATE TABLE app.\"Mixed Case\" (id int PRIMARY KEY)",
            "CREATE TABLE t (gone int, id bigserial PRIMARY KEY, name varchar(20) COLLATE \"C\" NOT NULL DEFAULT 'x', \
             mail text UNIQUE, twice int GENERATED ALWAYS AS (length(name) * 2) STORED, \
             own int GENERATED ALWAYS AS IDENTITY, moment timestamptz DEFAULT now(), mood app.mood, \
             other int REFERENCES app.\"Mixed Case\", amount numeric(10, 2), UNIQUE (name, mail))",
            "ALTER TABLE t DROP COLUMN gone",
            "CREATE UNIQUE INDEX t_partial ON t (mood) WHERE mood = 'sad'",
            "CREATE VIEW app.v AS SELECT id, name AS label FROM t WHERE mail IS NOT NULL",
            "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t",
            "CREATE FUNCTION pure(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'",
            "CREATE FUNCTION pure(text) RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'",
            "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER touch BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch()",
        ])
        .await
        .unwrap();
    let schema = cluster.journal.schema().await.unwrap();
    let mixed = TableName { schema: "app".into(), name: "Mixed Case".into() };
    assert_eq!(schema.tables.keys().collect::<Vec<_>>(), [&mixed, &table("t")]);
    let t = &schema.tables[&table("t")];
    let names: Vec<&str> = t.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "name", "mail", "twice", "own", "moment", "mood", "other", "amount"]);
    assert_eq!(t.primary_key, [0]);
    assert_eq!(t.unique, [vec![2], vec![1, 2]]);
    assert!(t.triggers && !t.row_security);
    let [id, name, mail, twice, own, moment, mood, other, amount] = &t.columns[..] else {
        panic!("{names:?}")
    };
    assert_eq!((id.type_oid, id.generated, id.not_null), (TypeOid::INT8, Generated::ByDefault, true));
    assert_eq!(id.default.as_deref(), Some("nextval('public.t_id_seq'::regclass)"));
    assert_eq!((name.type_oid, name.type_mod), (TypeOid::VARCHAR, 24));
    assert_eq!((name.type_name.as_str(), name.collation), ("character varying(20)", Collation::C));
    assert_eq!(name.default.as_deref(), Some("'x'::character varying"));
    assert_eq!((mail.generated, mail.default.as_deref()), (Generated::No, None));
    assert_eq!((twice.generated, twice.default.as_deref()), (Generated::Stored, None));
    assert_eq!(own.generated, Generated::Always);
    assert_eq!((moment.type_oid, moment.default.as_deref()), (TypeOid::TIMESTAMPTZ, Some("now()")));
    assert_eq!(mood.type_name, "app.mood");
    assert_eq!((other.type_oid, amount.type_name.as_str()), (TypeOid::INT4, "numeric(10,2)"));
    let [foreign] = &t.foreign_keys[..] else { panic!("{:?}", t.foreign_keys) };
    assert_eq!((&foreign.columns, &foreign.target), (&vec![7], &mixed));
    assert_eq!(foreign.target_columns, ["id"]);
    // Views have every name written out.
    let view = &schema.views[&TableName { schema: "app".into(), name: "v".into() }];
    assert_eq!(view.columns, ["id", "label"]);
    assert!(view.definition.contains("FROM public.t"), "{}", view.definition);
    assert!(schema.views.contains_key(&table("m")));
    // The least certain of overloads counts.
    let pure = &schema.functions[&table("pure")];
    assert_eq!((pure.volatility, pure.table_free), (Volatility::Stable, false));
    assert_eq!(schema.unstable_builtins["random"], Volatility::Volatile);
    assert_eq!(schema.unstable_builtins["now"], Volatility::Stable);
    assert!(!schema.unstable_builtins.contains_key("lower"));

    cluster.journal.declare(Declaration::TableFree { function: table("pure") }).await.unwrap();
    assert!(cluster.journal.schema().await.unwrap().functions[&table("pure")].table_free);
    cluster.close().await;
}

on_postgres!(everything_is_read_from_the_system_catalog);
