//! Questions that were asked before: asked of each shard in one go, and combined without a temporary table if their
//! rows are few. What the first answer said, every other one says.

use crate::across::notes;
use crate::support::{Cluster, refusal, rows};

/// More than enough for a question to be learnt, and then to be kept prepared.
const TIMES: usize = 7;

/// What the sessions of the shards were asked last, by those who are the door.
fn asked_last(cluster: &Cluster, like: &str) -> usize {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname IN ('s1', 's2') AND query LIKE '{like}' \
         AND pid <> pg_backend_pid()"
    );
    cluster.on_shard("s1", &sql).parse().unwrap()
}

// C2: in both protocols, for the plans that have few rows.
#[tokio::test]
async fn a_question_that_is_asked_again_is_answered_the_same() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    for sql in [
        "SELECT count(*) FROM notes",
        "SELECT count(*), sum(id), avg(id), min(body), max(tenant), bool_and(id > 0) FROM notes WHERE id = 2",
        "SELECT body, count(DISTINCT tenant) FROM notes GROUP BY body HAVING count(*) > 1 ORDER BY body DESC",
        "SELECT tenant, body FROM notes WHERE id = 1 ORDER BY tenant DESC LIMIT 3 OFFSET 2",
        "SELECT DISTINCT body || '\"\\,{}' || NULL, body || '\"\\,{}' FROM notes ORDER BY 2",
        "SELECT body FROM notes WHERE tenant < 4 ORDER BY id, tenant * -1",
        "SELECT sum(tenant) FROM notes WHERE body = 'no such'",
        "SELECT body, sum(tenant) FROM notes WHERE body = 'no such' GROUP BY body",
        "SELECT id::numeric(9,3), tenant::text::varchar(3) FROM notes ORDER BY tenant, id LIMIT 2",
        // Rows of one shard after those of the other: sorted here.
        "SELECT tenant, id, body FROM notes WHERE id = 2",
        "SELECT FROM notes",
    ] {
        let mut first = rows(&client, sql).await;
        first.sort();
        let binary = client.query(sql, &[]).await.unwrap();
        assert_eq!(binary.len(), first.len(), "{sql}");
        let described = |rows: &[tokio_postgres::Row]| -> Vec<(String, u32)> {
            let columns = rows.first().map_or(&[][..], |row| row.columns());
            columns.iter().map(|column| (column.name().to_owned(), column.type_().oid())).collect()
        };
        for time in 0..TIMES {
            let mut again = rows(&client, sql).await;
            again.sort();
            assert_eq!(again, first, "{sql}, asked {time} times before");
            let again = client.query(sql, &[]).await.unwrap();
            assert_eq!(again.len(), binary.len(), "{sql}");
            assert_eq!(described(&again), described(&binary), "{sql}");
        }
    }
    // The order is that of the first answer too.
    for ordered in [
        "SELECT polyshard.shard(), count(*) FROM notes GROUP BY 1 ORDER BY 1",
        "SELECT body, tenant FROM notes ORDER BY tenant DESC, body LIMIT 5",
    ] {
        let first = rows(&client, ordered).await;
        for _ in 0..TIMES {
            assert_eq!(rows(&client, ordered).await, first);
        }
    }
    assert!(
        asked_last(&cluster, "WITH ps_0%") > 0,
        "one of them combines what it is given, with no temporary table"
    );
    cluster.close().await;
}

// C2: values that differ from one time to the next.
#[tokio::test]
async fn a_question_with_other_values_is_answered_for_those() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    for least in [1_i64, 5, 19, 2, 30, 7] {
        let expected = (21 - least).max(0);
        let sql = "SELECT count(*), max(body) FROM notes WHERE tenant >= $1 AND id = 1";
        let row = client.query_one(sql, &[&least]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), expected);
        let sql = format!("SELECT count(*), max(body) FROM notes WHERE tenant >= {least} AND id = 1");
        assert_eq!(rows(&client, &sql).await[0][0], expected.to_string());
        // What stands in a type is a part of it.
        let cut = format!("SELECT repeat('x', 40)::varchar({least}), count(*) FROM notes GROUP BY 1");
        let shown = rows(&client, &cut).await;
        assert_eq!(shown, [["x".repeat(usize::try_from(least).unwrap()), "40".to_owned()]]);
        let limited = rows(&client, &format!("SELECT tenant FROM notes ORDER BY 1 LIMIT {least}")).await;
        assert_eq!(limited.len() as i64, least);
    }
    cluster.close().await;
}

// C2: a column's own collation says how its values are ordered, wherever that is done.
#[tokio::test]
async fn texts_keep_their_collation_however_they_travel() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    client
        .batch_execute(
            "CREATE TABLE words (tenant bigint, word text COLLATE \"C\", other text COLLATE \"und-x-icu\", \
             PRIMARY KEY (tenant, word)); SELECT polyshard.shard_table('words', 'tenants', 'tenant')",
        )
        .await
        .unwrap_or_else(|error| panic!("{error:?}"));
    for (tenant, word) in ["a", "B", "c", "D", "_e"].into_iter().enumerate() {
        client
            .batch_execute(&format!("INSERT INTO words VALUES ({tenant}, '{word}', '{word}')"))
            .await
            .unwrap();
    }
    for _ in 0..TIMES {
        let words = rows(&client, "SELECT word FROM words ORDER BY word").await.concat();
        assert_eq!(words, ["B", "D", "_e", "a", "c"]);
        let words = rows(&client, "SELECT other FROM words ORDER BY other").await.concat();
        assert_eq!(words, ["_e", "a", "B", "c", "D"]);
        assert_eq!(rows(&client, "SELECT max(word), max(other) FROM words").await, [["c", "D"]]);
    }
    cluster.close().await;
}

// C2, C3: more rows than fit come the longer way; so they do when there are fewer again.
#[tokio::test]
async fn an_answer_may_outgrow_what_was_learnt_of_it() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let grouped = "SELECT tenant, id, count(*) FROM notes GROUP BY id, tenant ORDER BY tenant, id";
    let sized = "SELECT body FROM notes ORDER BY body DESC LIMIT 3";
    for _ in 0..TIMES {
        assert_eq!(rows(&client, grouped).await.len(), 40);
        assert_eq!(rows(&client, sized).await.concat(), ["b", "b", "b"]);
    }
    client
        .batch_execute(
            "INSERT INTO notes SELECT 1, n, repeat('c', 300000 * (n / 3000)) FROM generate_series(3, 3002) n",
        )
        .await
        .unwrap();
    for _ in 0..TIMES {
        let all = rows(&client, grouped).await;
        assert_eq!(all.len(), 3040);
        assert_eq!(all[3001], ["1", "3002", "1"]);
        let long = rows(&client, sized).await.concat();
        assert!(long.iter().all(|body| body.len() == 300_000), "they are longer than is held here");
    }
    client.batch_execute("DELETE FROM notes WHERE tenant = 1 AND id > 2").await.unwrap();
    for _ in 0..TIMES {
        assert_eq!(rows(&client, grouped).await.len(), 40);
        assert_eq!(rows(&client, sized).await.concat(), ["b", "b", "b"]);
    }
    cluster.close().await;
}

// C3: an error is the statement's, and the sessions go on; also if the table is changed under what is prepared.
#[tokio::test]
async fn what_is_prepared_on_the_shards_survives_errors_and_changes() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let count = "SELECT count(*) FROM notes";
    for _ in 0..TIMES {
        for sql in ["SELECT sum(1 / (id - 1)) FROM notes", "SELECT 1 / (id - 1) FROM notes"] {
            assert_eq!(refusal(&client, sql).await.0, "22012");
        }
        let overflow = "SELECT sum(9223372036854775807 - id)::bigint FROM notes";
        assert_eq!(refusal(&client, overflow).await.0, "22003");
        assert_eq!(rows(&client, count).await, [["40"]]);
    }
    let (all, most) = ("SELECT * FROM notes", "SELECT max(id) FROM notes");
    for (change, columns) in [
        ("SELECT 1", 3),
        ("ALTER TABLE notes ADD COLUMN extra int DEFAULT 7", 4),
        ("ALTER TABLE notes ALTER COLUMN extra TYPE text", 4),
        ("ALTER TABLE notes DROP COLUMN extra", 3),
    ] {
        client.batch_execute(change).await.unwrap();
        for _ in 0..TIMES {
            let found = rows(&client, all).await;
            assert_eq!((found.len(), found[0].len()), (40, columns), "{change}");
            assert_eq!(rows(&client, most).await, [["2"]]);
            assert_eq!(client.query(all, &[]).await.unwrap()[0].len(), columns);
        }
    }
    // Changed past the door: nobody was told.
    for shard in ["s1", "s2"] {
        cluster.on_shard(shard, "ALTER TABLE notes ALTER COLUMN id TYPE numeric(20,0)");
    }
    for _ in 0..TIMES {
        assert_eq!(rows(&client, most).await, [["2"]]);
        assert_eq!(rows(&client, all).await.len(), 40);
    }
    cluster.close().await;
}

// C3, E3: sessions that died while they were pooled are found out before anything was said.
#[tokio::test]
async fn a_question_survives_the_end_of_pooled_sessions() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    for _ in 0..TIMES {
        assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["40"]]);
        assert_eq!(rows(&client, "SELECT tenant FROM notes").await.len(), 40);
        cluster.server().execute(
            "postgres",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 's2'",
        );
    }
    cluster.close().await;
}
