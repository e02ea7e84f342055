//! COPY on both engines, of every kind of table: rows to their shards, errors with their lines. C5, E3, G1.

use std::pin::pin;

use bytes::Bytes;
use futures_util::{SinkExt as _, TryStreamExt as _};
use tokio_postgres::Client;

use crate::support::{Cluster, refusal, rows};

const TABLES: [&str; 7] = [
    "CREATE TABLE notes (tenant bigint, id bigint, body text, at timestamptz DEFAULT now(), PRIMARY KEY (tenant, id))",
    "CREATE TABLE countries (code text PRIMARY KEY, name text)",
    "CREATE TABLE audit (id bigint PRIMARY KEY, what text)",
    "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
    "SELECT polyshard.shard_table('notes', 'tenants', 'tenant')",
    "SELECT polyshard.reference_table('countries')",
    "SELECT polyshard.local_table('audit', 's2')",
];

async fn prepare(cluster: &Cluster) -> Client {
    let client = cluster.connect().await;
    for sql in TABLES {
        rows(&client, sql).await;
    }
    client
}

async fn copy_in(client: &Client, sql: &str, data: &[u8]) -> Result<u64, tokio_postgres::Error> {
    let mut sink = pin!(client.copy_in::<_, Bytes>(sql).await?);
    for piece in data.chunks(777) {
        if sink.send(Bytes::copy_from_slice(piece)).await.is_err() {
            // Why is said at the end.
            break;
        }
    }
    sink.finish().await
}

async fn copy_out(client: &Client, sql: &str) -> String {
    let pieces: Vec<Bytes> = client.copy_out(sql).await.unwrap().try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

fn told(error: &tokio_postgres::Error) -> (String, String, String) {
    let error = error.as_db_error().expect("an answer of the server");
    let where_ = error.where_().unwrap_or_default().to_owned();
    (error.code().code().to_owned(), error.message().to_owned(), where_)
}

/// What COPY promises on either engine.
async fn keeps_its_promises(cluster: &Cluster) {
    let client = prepare(cluster).await;
    let lines: String = (0..1000).map(|n| format!("{}\t{n}\tbody\\t{n}\n", n % 40)).collect();
    assert_eq!(
        copy_in(&client, "COPY notes (tenant, id, body) FROM STDIN", lines.as_bytes()).await.unwrap(),
        1000
    );
    let count = "SELECT count(*), count(DISTINCT tenant), min(body), count(at) FROM notes";
    assert_eq!(rows(&client, count).await, [["1000", "40", "body\t0", "1000"]]);

    // CSV with a header, quotes, line ends in quotes, NULL and the empty text.
    for tenant in 0..40 {
        rows(&client, &format!("DELETE FROM notes WHERE tenant = {tenant}")).await;
    }
    let csv = "tenant,id,body\n1,1,\"a\nb\"\n2,2,\n3,3,\"\"\n4,4,\"say \"\"x\"\"\"";
    let sql = "COPY notes (tenant, id, body) FROM STDIN WITH (FORMAT csv, HEADER)";
    assert_eq!(copy_in(&client, sql, csv.as_bytes()).await.unwrap(), 4);
    let out = copy_out(&client, "COPY (SELECT tenant, body FROM notes WHERE tenant = 1) TO STDOUT").await;
    assert_eq!(out, "1\ta\\nb\n");
    let mut out: Vec<String> =
        copy_out(&client, "COPY notes (tenant, id, body) TO STDOUT WITH (FORMAT csv, HEADER, NULL '-')")
            .await
            .split_inclusive('\n')
            .map(str::to_owned)
            .collect();
    assert_eq!(out.remove(0), "tenant,id,body\n");
    let starred = "COPY (SELECT tenant, body FROM notes WHERE id = 2 OR id = 4) TO STDOUT \
                   WITH (FORMAT csv, DELIMITER ';', NULL '*', FORCE_QUOTE *)";
    let mut starred: Vec<String> = copy_out(&client, starred).await.lines().map(str::to_owned).collect();
    starred.sort();
    assert_eq!(starred, ["\"2\";*", "\"4\";\"say \"\"x\"\"\""]);
    out.sort();
    let wanted = ["1,1,\"a\n", "2,2,-\n", "3,3,\n", "4,4,\"say \"\"x\"\"\"\n", "b\"\n"];
    assert_eq!(out, wanted);

    // A bad row is told with the client's line, and nothing of the COPY is there.
    let bad = "5\t5\tx\n6\t6\tx\n7\tseven\tx\n8\t8\tx\n";
    let error =
        copy_in(&client, "COPY notes (tenant, id, body) FROM STDIN", bad.as_bytes()).await.unwrap_err();
    let (code, message, context) = told(&error);
    assert_eq!(code, "22P02", "{message}");
    assert!(context.contains("COPY notes, line 3"), "{context}");
    let twice = "5\t5\tx\n6\t6\tx\n1\t1\tx\n";
    let error =
        copy_in(&client, "COPY notes (tenant, id, body) FROM STDIN", twice.as_bytes()).await.unwrap_err();
    let (code, _, context) = told(&error);
    assert_eq!(code, "23505");
    assert!(context.contains("line 3"), "{context}");
    for (data, line) in
        [("5\t5\tx\n6\n", 2), ("5\t5\tx\n6\t6\tx\ty\n", 2), ("\\N\t1\tx\n", 1), ("x\t1\ty\n", 1)]
    {
        let error =
            copy_in(&client, "COPY notes (tenant, id, body) FROM STDIN", data.as_bytes()).await.unwrap_err();
        let (_, message, context) = told(&error);
        assert!(context.contains(&format!("line {line}")), "{data:?}: {message}; {context}");
    }
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["4"]]);

    // Reference tables: every shard or none. Local tables: their shard.
    let sql = "COPY countries FROM STDIN WITH (FORMAT csv)";
    assert_eq!(copy_in(&client, sql, b"ch,Switzerland\nis,\"Ice, land\"\n").await.unwrap(), 2);
    let joined = "SELECT DISTINCT c.name FROM notes n JOIN countries c ON c.code = 'is'";
    assert_eq!(rows(&client, joined).await, [["Ice, land"]]);
    assert_eq!(told(&copy_in(&client, sql, b"no,Norway\nch,again\n").await.unwrap_err()).0, "23505");
    assert_eq!(rows(&client, "SELECT count(*) FROM countries").await, [["2"]]);
    assert_eq!(copy_in(&client, "COPY audit FROM STDIN", b"1\tone\n2\ttwo\n").await.unwrap(), 2);
    assert_eq!(copy_out(&client, "COPY audit (what) TO STDOUT").await, "one\ntwo\n");

    // Inside a transaction it is a part of it, on one shard.
    rows(&client, "BEGIN").await;
    copy_in(&client, "COPY audit FROM STDIN", b"3\tthree\n").await.unwrap();
    rows(&client, "ROLLBACK").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM audit").await, [["2"]]);
    for sql in ["COPY notes FROM '/etc/passwd'", "COPY notes TO PROGRAM 'cat'", "COPY nothing FROM STDIN"] {
        let (code, message) = refusal(&client, sql).await;
        assert!(["0A000", "42P01"].contains(&code.as_str()), "{sql}: {code} {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_on_postgresql_shards_keeps_its_promises() {
    let cluster = Cluster::start().await;
    keeps_its_promises(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_on_sqlite_shards_keeps_its_promises() {
    let cluster = Cluster::start_embedded().await;
    keeps_its_promises(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_in_binary_form_is_cut_by_key_too() {
    let cluster = Cluster::start().await;
    let client = prepare(&cluster).await;
    let mut data = b"PGCOPY\n\xff\r\n\0".to_vec();
    data.extend_from_slice(&[0; 8]);
    for number in 0..500_i64 {
        data.extend_from_slice(&3_i16.to_be_bytes());
        for value in [number % 40, number] {
            data.extend_from_slice(&8_i32.to_be_bytes());
            data.extend_from_slice(&value.to_be_bytes());
        }
        data.extend_from_slice(&2_i32.to_be_bytes());
        data.extend_from_slice(b"x\n");
    }
    data.extend_from_slice(&[0xff, 0xff]);
    let sql = "COPY notes (tenant, id, body) FROM STDIN WITH (FORMAT binary)";
    assert_eq!(copy_in(&client, sql, &data).await.unwrap(), 500);
    let sums = "SELECT count(*), sum(tenant), sum(id) FROM notes WHERE body = E'x\\n'";
    assert_eq!(rows(&client, sums).await, [["500", "9550", "124750"]]);
    let shards = rows(&client, "SELECT polyshard.shard(), count(*) FROM notes GROUP BY 1").await;
    assert_eq!(shards.len(), 2, "{shards:?}");
    assert_eq!(told(&copy_in(&client, sql, b"1\t2\tx\n").await.unwrap_err()).0, "22P04");
    assert_eq!(told(&copy_in(&client, sql, &data[..data.len() - 9]).await.unwrap_err()).0, "22P04");
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["500"]]);
    drop(client);
    cluster.close().await;
}

/// C3, C5: the rows of any query over all shards, in every form; inside a transaction with what it has written.
#[tokio::test(flavor = "multi_thread")]
async fn copy_takes_queries_over_all_shards() {
    let cluster = Cluster::start().await;
    let client = prepare(&cluster).await;
    let binary = async |sql: &str| -> Vec<u8> {
        let pieces: Vec<Bytes> = client.copy_out(sql).await.unwrap().try_collect().await.unwrap();
        pieces.concat()
    };
    // Nothing at all is a head and an end, once.
    let all = "COPY notes (tenant, id, body) TO STDOUT WITH (FORMAT binary)";
    let empty = [&b"PGCOPY\n\xff\r\n\0"[..], &[0; 8], &[0xff; 2]].concat();
    assert_eq!(binary(all).await, empty);
    let lines: String = (0..300).map(|n| format!("{}\t{n}\tbody {n}\n", n % 40)).collect();
    copy_in(&client, "COPY notes (tenant, id, body) FROM STDIN", lines.as_bytes()).await.unwrap();

    let grouped = "COPY (SELECT tenant % 3 AS rest, count(*) FROM notes GROUP BY 1 ORDER BY 1) TO STDOUT \
                   WITH (FORMAT csv, HEADER)";
    assert_eq!(copy_out(&client, grouped).await, "rest,count\n0,105\n1,98\n2,97\n");
    let plain = "COPY (SELECT id, body FROM notes WHERE id > 297) TO STDOUT \
                 WITH (FORMAT csv, HEADER, FORCE_QUOTE (body))";
    let mut out: Vec<String> = copy_out(&client, plain).await.lines().map(str::to_owned).collect();
    assert_eq!(out.remove(0), "id,body");
    out.sort();
    assert_eq!(out, ["298,\"body 298\"", "299,\"body 299\""]);
    // psql's way, which is the simple protocol.
    let (done, out) = cluster.program("psql", &["-c", grouped]).await;
    assert!(done && out == "rest,count\n0,105\n1,98\n2,97\n", "{out}");

    // What is copied out in binary form can be copied in again.
    let data = binary(all).await;
    rows(&client, "CREATE TABLE again (tenant bigint, id bigint, body text, PRIMARY KEY (tenant, id))").await;
    rows(&client, "SELECT polyshard.shard_table('again', 'tenants', 'tenant')").await;
    let sql = "COPY again FROM STDIN WITH (FORMAT binary)";
    assert_eq!(copy_in(&client, sql, &data).await.unwrap(), 300);
    let same = "SELECT count(*) FROM notes n JOIN again a USING (tenant, id, body)";
    assert_eq!(rows(&client, same).await, [["300"]]);
    let sorted = "COPY (SELECT id::int FROM notes ORDER BY id DESC LIMIT 1) TO STDOUT WITH (FORMAT binary)";
    let one = [&empty[..19], &[0, 1, 0, 0, 0, 4], &299_i32.to_be_bytes(), &[0xff; 2]].concat();
    assert_eq!(binary(sorted).await, one);

    // A transaction's own rows are there, and an error in the middle is one of the transaction.
    rows(&client, "BEGIN; INSERT INTO notes VALUES (1, 1000, 'mine')").await;
    let mine = "COPY (SELECT body FROM notes WHERE id >= 299 ORDER BY id) TO STDOUT";
    assert_eq!(copy_out(&client, mine).await, "body 299\nmine\n");
    let failing = client.copy_out("COPY (SELECT 1 / (id - 299) FROM notes) TO STDOUT").await;
    let failed = match failing {
        Ok(stream) => stream.try_collect::<Vec<Bytes>>().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(told(&failed).0, "22012");
    assert_eq!(refusal(&client, "SELECT 1").await.0, "25P02");
    rows(&client, "ROLLBACK").await;
    assert_eq!(copy_out(&client, mine).await, "body 299\n");
    let write = "COPY (DELETE FROM notes WHERE id > 5 RETURNING id) TO STDOUT";
    let (state, message) = refusal(&client, write).await;
    assert_eq!(state, "0A000", "{message}");
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["300"]]);
    drop(client);
    cluster.close().await;
}

/// E3: whoever goes away in the middle leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_while_it_copies_leaves_nothing() {
    for cluster in [Cluster::start().await, Cluster::start_embedded().await] {
        let client = prepare(&cluster).await;
        {
            let gone = cluster.connect().await;
            let mut sink =
                pin!(gone.copy_in::<_, Bytes>("COPY notes (tenant, id) FROM STDIN").await.unwrap());
            for number in 0..20 {
                sink.feed(Bytes::from(format!("{number}\t1\n"))).await.unwrap();
            }
            sink.flush().await.unwrap();
        }
        // The same keys can be written at once: nobody holds them.
        for number in 0..20 {
            rows(&client, &format!("INSERT INTO notes (tenant, id) VALUES ({number}, 1)")).await;
        }
        assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["20"]]);
        drop(client);
        cluster.close().await;
    }
}

/// The table was a reference table when the client was asked for its rows, and is sharded when they are there.
#[tokio::test(flavor = "multi_thread")]
async fn copy_into_a_table_that_is_declared_otherwise_meanwhile_is_tried_again() {
    for cluster in [Cluster::start().await, Cluster::start_embedded().await] {
        let client = cluster.connect().await;
        for sql in [
            "CREATE TABLE places (id bigint PRIMARY KEY)",
            "SELECT polyshard.create_map('ids', 'hash', 'bigint')",
        ] {
            rows(&client, sql).await;
        }
        let slow = cluster.connect().await;
        let mut sink = pin!(slow.copy_in::<_, Bytes>("COPY places FROM STDIN").await.unwrap());
        rows(&client, "SELECT polyshard.shard_table('places', 'ids', 'id')").await;
        sink.send(Bytes::from_static(b"1\n2\n3\n")).await.unwrap();
        assert_eq!(told(&sink.finish().await.unwrap_err()).0, "40001");
        assert_eq!(rows(&client, "SELECT count(*) FROM places").await, [["0"]]);
        drop((client, slow));
        cluster.close().await;
    }
}
