//! Values of parameters that are written into a statement's text are the values that the client sent.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::both;
use crate::support::{Cluster, rows};

/// Runs a statement with parameters of types that are not those of Rust's values.
async fn typed(client: &Client, sql: &str, values: &[(&(dyn ToSql + Sync), Type)]) -> u64 {
    let rows = client.query_typed(sql, values).await;
    u64::try_from(rows.unwrap_or_else(|error| panic!("{sql}: {error:?}")).len()).unwrap()
}

/// `character` by itself is a character of length one, and a value that is cut is another row's key.
async fn characters_are_not_cut(cluster: &Cluster) {
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE TABLE codes (b char(5) PRIMARY KEY, c bpchar, n int)").await;
    run("SELECT polyshard.reference_table('codes')").await;
    run("INSERT INTO codes VALUES ('1', 'one', 1)").await;
    let insert = "INSERT INTO codes VALUES ($1, $2, $3) RETURNING n";
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&"12345", Type::BPCHAR), (&"two words", Type::BPCHAR), (&2_i32, Type::INT4)];
    assert_eq!(typed(&client, insert, &values).await, 1);
    let shown = "SELECT b, c, n FROM codes ORDER BY b";
    assert_eq!(run(shown).await, [["1    ", "one", "1"], ["12345", "two words", "2"]]);
    // By the driver itself, which is told the column's type.
    let delete = client.prepare("DELETE FROM codes WHERE b = $1").await.unwrap();
    assert_eq!(client.execute(&delete, &[&"12"]).await.unwrap(), 0);
    assert_eq!(client.execute(&delete, &[&"12345"]).await.unwrap(), 1);
    assert_eq!(run("SELECT b FROM codes").await, [["1    "]]);
    // In arrays, too.
    let any: [(&(dyn ToSql + Sync), Type); 1] = [(&vec!["12345", "123"], Type::BPCHAR_ARRAY)];
    assert_eq!(typed(&client, "DELETE FROM codes WHERE b = ANY($1) RETURNING n", &any).await, 0);
    // As arguments of EXECUTE.
    run("INSERT INTO codes VALUES ('12345', 'x', 3)").await;
    run("PREPARE gone (bpchar) AS DELETE FROM codes WHERE b = $1").await;
    run("EXECUTE gone('12')").await;
    assert_eq!(run("SELECT count(*) FROM codes").await, [["2"]]);
    run("EXECUTE gone('12345')").await;
    assert_eq!(run("SELECT b FROM codes").await, [["1    "]]);
    // On all shards at once.
    run("CREATE TABLE tagged (tenant bigint PRIMARY KEY, b char(5))").await;
    run("SELECT polyshard.shard_table('tagged', 'tenants', 'tenant')").await;
    for tenant in 0..8 {
        run(&format!("INSERT INTO tagged VALUES ({tenant}, '1')")).await;
        run(&format!("INSERT INTO tagged VALUES ({}, '12345')", tenant + 100)).await;
    }
    let by_code = client.prepare("SELECT tenant FROM tagged WHERE b = $1").await.unwrap();
    assert_eq!(client.query(&by_code, &[&"12345"]).await.unwrap().len(), 8);
    assert_eq!(client.query(&by_code, &[&"12"]).await.unwrap().len(), 0);
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn characters_that_are_bound_are_not_cut() {
    for cluster in both().await {
        characters_are_not_cut(&cluster).await;
        cluster.close().await;
    }
}

/// A write on several shards, in every way that there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_on_several_shards_finds_the_rows_of_its_value_alone() {
    for (cluster, ways) in both().await.into_iter().zip([&["two_phase", "eventual"][..], &["eventual"]]) {
        let client = cluster.connect().await;
        let run = async |sql: &str| rows(&client, sql).await;
        run("CREATE TABLE tagged (tenant bigint PRIMARY KEY, b char(5))").await;
        run("SELECT polyshard.shard_table('tagged', 'tenants', 'tenant')").await;
        for tenant in 0..8 {
            run(&format!("INSERT INTO tagged VALUES ({tenant}, '1')")).await;
        }
        for way in ways {
            run(&format!("SET polyshard.multi_shard = '{way}'")).await;
            let sql = "DELETE FROM tagged WHERE b = $1 AND tenant IN (0, 1, 2, 3, 4, 5, 6, 7)";
            let delete = client.prepare(sql).await.unwrap();
            assert_eq!(client.execute(&delete, &[&"12345"]).await.unwrap(), 0, "{way}");
            assert_eq!(run("SELECT count(*) FROM tagged WHERE b = '1'").await, [["8"]], "{way}");
        }
        drop(client);
        cluster.close().await;
    }
}

/// Types that a driver of Rust does not know are bound as texts by others: here by psql's `\bind`.
#[tokio::test(flavor = "multi_thread")]
async fn bits_and_internal_characters_are_not_cut() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE TABLE bits (b bit(4), v varbit, c \"char\", f float8, m bpchar, PRIMARY KEY (b))").await;
    run("SELECT polyshard.reference_table('bits')").await;
    run("SET extra_float_digits = -10").await;
    run("SET DateStyle = 'SQL, DMY'").await;
    let insert = client.prepare("INSERT INTO bits VALUES ($1, $2, $3, $4, $5)").await.unwrap();
    let types: Vec<&str> = insert.params().iter().map(Type::name).collect();
    assert_eq!(types, ["bit", "varbit", "char", "float8", "bpchar"]);
    let bits = |bits: &[u8], count: u32| Raw([&count.to_be_bytes()[..], bits].concat());
    let values: [&(dyn ToSql + Sync); 5] =
        [&bits(&[0b1010_0000], 4), &bits(&[0b1110_0000], 3), &Raw(b"x".to_vec()), &(0.1 + 0.2), &"a  "];
    assert_eq!(client.execute(&insert, &values).await.unwrap(), 1);
    run("RESET extra_float_digits").await;
    let shown = "SELECT b, v, c, f = 0.1::float8 + 0.2::float8, octet_length(m) FROM bits";
    assert_eq!(run(shown).await, [["1010", "111", "x", "t", "3"]]);
    // Within a transaction, whose settings stay as they are.
    run("BEGIN").await;
    let update = client.prepare("UPDATE bits SET f = $2 WHERE b = $1").await.unwrap();
    let (key, third) = (bits(&[0b1010_0000], 4), 1.0_f64 / 3.0);
    assert_eq!(client.execute(&update, &[&key, &third]).await.unwrap(), 1);
    assert_eq!(run("SHOW DateStyle").await, [["SQL, DMY"]]);
    run("COMMIT").await;
    for shard in ["s1", "s2"] {
        assert_eq!(cluster.on_shard(shard, "SELECT f = 1::float8 / 3 FROM bits"), "t");
    }
    drop(client);
    cluster.close().await;
}

/// A value in a type's binary form.
#[derive(Debug)]
struct Raw(Vec<u8>);

impl ToSql for Raw {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(tokio_postgres::types::IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}
