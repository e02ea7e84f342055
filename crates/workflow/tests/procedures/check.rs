//! What the checker looks into beyond single maps, and its repairs as procedures (C4, C9, E4).

use polyshard_catalog::OpState;
use polyshard_schema::Declaration;
use polyshard_schema::Link;
use polyshard_sql::TableName;
use polyshard_workflow::{Procedure, Task};

use crate::bed::{Bed, map, shard};

fn repair(name: &str, owner_wins: bool) -> Task {
    let old = polyshard_mover::OldRows::Leave;
    Task::RepairRows { map: map("tenants"), shard: shard(name), owner_wins, old }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_put_right_by_a_procedure_that_says_how_many() {
    let bed = Bed::start().await;
    bed.on(
        "s1",
        "INSERT INTO orders VALUES (1, 1, 'own'), (200, 1, 'lost'), (200, 2, 'same'), (300, 1, 'mine')",
    )
    .await;
    bed.on("s2", "INSERT INTO orders VALUES (200, 2, 'same'), (300, 1, 'theirs')").await;
    let id = bed.begin(Procedure::new(vec![repair("s1", false), repair("s2", false)])).await;
    let ended = bed.end_of(id).await;
    assert_eq!(ended.state, OpState::Done);
    let said = ended.message.unwrap();
    let expected = "1 moved to their owner, 1 removed, since the owner has the same, \
                    1 left: the owner has them otherwise";
    assert!(said.contains(expected) && said.contains("shard s1") && !said.contains("shard s2"), "{said}");
    assert_eq!((bed.count("s1", "orders").await, bed.count("s2", "orders").await), (2, 3));
    let id = bed.begin(Procedure::new(vec![repair("s1", true)])).await;
    let said = bed.end_of(id).await.message.unwrap();
    assert!(said.contains("1 removed, since the owner is right"), "{said}");
    let theirs = bed.on("s2", "SELECT note FROM orders WHERE tenant = 300").await;
    assert_eq!(theirs, [[polyshard_engine::Value::Text("theirs".into())]]);
    assert_eq!(bed.count("s1", "orders").await, 1);
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reference_tables_are_made_what_most_shards_have() {
    let bed = Bed::start().await;
    bed.add_shard("s3", "s3").await;
    let all = ["INSERT INTO country VALUES ('no', 'Norway'), ('dk', 'Denmark'), ('se', 'Sweden')".to_owned()];
    bed.journal.apply(&all).await.unwrap();
    for sql in [
        "DELETE FROM country WHERE code = 'no'",
        "UPDATE country SET name = 'Danmark' WHERE code = 'dk'",
        "INSERT INTO country VALUES ('xx', 'Nowhere')",
    ] {
        bed.on("s2", sql).await;
    }
    let looked = bed.journal.mend(None, true, true).await.unwrap();
    let [one] = looked.as_slice() else { panic!("{looked:?}") };
    assert_eq!((one.shard.as_str(), one.inserted, one.updated, one.deleted), ("s2", 1, 1, 1));
    assert!(one.refused.is_none() && one.like.is_some(), "{one:?}");
    assert!(!bed.journal.check().await.unwrap().differences.is_empty(), "it was only looked at");
    let id = bed.begin(Procedure::new(vec![Task::RepairReference { like: None, confirmed: true }])).await;
    let ended = bed.end_of(id).await;
    assert_eq!(ended.state, OpState::Done, "{ended:?}");
    assert_eq!(bed.journal.check().await.unwrap().differences, []);
    assert_eq!(bed.journal.mend(None, true, true).await.unwrap(), []);

    // Nobody can say which of three is right, but a human.
    bed.on("s1", "DELETE FROM country WHERE code = 'se'").await;
    bed.on("s2", "DELETE FROM country WHERE code = 'dk'").await;
    let looked = bed.journal.mend(None, false, true).await.unwrap();
    assert!(looked.len() == 3 && looked.iter().all(|one| one.refused.is_some()), "{looked:?}");
    let mended = bed.journal.mend(Some(&shard("s3")), false, true).await.unwrap();
    assert_eq!(mended.iter().map(|one| one.inserted).sum::<u64>(), 2, "{mended:?}");
    assert_eq!(bed.journal.check().await.unwrap().differences, []);
    bed.close().await;
}

/// They would go along with the row that they refer to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_a_reference_table_stays_while_rows_of_tenants_refer_to_it() {
    let bed = Bed::start().await;
    bed.add_shard("s3", "s3").await;
    let tables = [
        "CREATE TABLE region (code text PRIMARY KEY, country text REFERENCES country ON DELETE CASCADE)",
        "CREATE TABLE stays (tenant bigint, id bigint, region text REFERENCES region (code) ON DELETE CASCADE, \
         PRIMARY KEY (tenant, id))",
    ];
    for sql in tables {
        bed.journal.apply(&[sql.to_owned()]).await.unwrap();
    }
    bed.journal.declare(Declaration::Reference { table: TableName::public("region") }).await.unwrap();
    let (table, by) = (TableName::public("stays"), map("tenants"));
    bed.journal.declare(Declaration::Sharded { table, map: by, column: "tenant".to_owned() }).await.unwrap();
    bed.journal.finish().await.unwrap();
    for sql in [
        "INSERT INTO country VALUES ('xx', 'Nowhere')",
        "INSERT INTO region VALUES ('xx-1', 'xx')",
        "INSERT INTO stays VALUES (200, 1, 'xx-1')",
    ] {
        bed.on("s2", sql).await;
    }
    for dry_run in [true, false] {
        let mended = bed.journal.mend(None, dry_run, true).await.unwrap();
        let why = |name: &str| {
            let one = mended.iter().find(|one| one.table.ends_with(name)).unwrap();
            one.refused.clone().unwrap()
        };
        assert!(why("region").contains("stays refer to it"), "{mended:?}");
        assert!(
            why("country").contains("region refer to it"),
            "what is kept keeps what it needs: {mended:?}"
        );
        assert_eq!(bed.count("s2", "stays").await, 1);
    }
    bed.on("s2", "DELETE FROM stays").await;
    let mended = bed.journal.mend(None, false, true).await.unwrap();
    assert!(mended.len() == 2 && mended.iter().all(|one| one.refused.is_none()), "{mended:?}");
    assert_eq!((bed.count("s2", "region").await, bed.count("s2", "country").await), (0, 0));
    bed.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_name_nothing_on_any_shard_are_found() {
    let bed = Bed::start().await;
    let schema = bed.journal.schema().await.unwrap();
    let link = |columns: &[&str], to: &str, to_columns: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Link::new(
            TableName::public("lines"),
            names(columns),
            TableName::public(to),
            names(to_columns),
            &schema,
        )
    };
    for (columns, to, to_columns) in [
        (&["id"] as &[&str], "nowhere", &["id"] as &[&str]),
        (&["nothing"], "orders", &["id"]),
        (&["id"], "orders", &["note"]),
        (&["id", "tenant"], "orders", &["id"]),
        (&[], "orders", &[]),
    ] {
        link(columns, to, to_columns).expect_err(to);
    }
    // An order may be on another shard than its lines.
    let link = link(&["id"], "orders", &["id"]).unwrap();
    assert_eq!(link.check(&bed.router, &schema).await.unwrap().rows, 0);
    bed.on("s1", "INSERT INTO orders VALUES (1, 10, ''), (1, 9, '')").await;
    bed.on("s2", "INSERT INTO orders VALUES (200, 20, ''), (200, 100, '')").await;
    bed.on("s1", "INSERT INTO lines VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 100, 'c'), (4, 30, 'd')").await;
    bed.on("s2", "INSERT INTO lines VALUES (200, 9, 'e'), (201, 30, 'f'), (202, 7, 'g')").await;
    let broken = link.check(&bed.router, &schema).await.unwrap();
    assert_eq!((broken.rows, broken.keys), (3, 2));
    assert_eq!(broken.examples, ["30", "7"]);
    bed.on("s2", "INSERT INTO orders VALUES (300, 30, ''), (300, 7, '')").await;
    assert_eq!(link.check(&bed.router, &schema).await.unwrap().rows, 0);
    // Rows of a reference table are on every shard, and count once.
    bed.journal.apply(&["INSERT INTO country VALUES ('no', 'Norway')".to_owned()]).await.unwrap();
    let (country, lines) = (TableName::public("country"), TableName::public("lines"));
    let link =
        Link::new(country, vec!["code".to_owned()], lines, vec!["product".to_owned()], &schema).unwrap();
    let broken = link.check(&bed.router, &schema).await.unwrap();
    assert_eq!((broken.rows, broken.keys), (1, 1));
    bed.close().await;
}
