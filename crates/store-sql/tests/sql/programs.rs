//! PostgreSQL's own programs. G1.

use std::fs;

use crate::support::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn pgbench_runs_in_all_its_modes() {
    let cluster = Cluster::with_tables().await;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.sql");
    let words = "\\set t random(1, 200)\n\\set i random(1, 1000000000)\n\
                 INSERT INTO notes VALUES (:t, :i, 'x') ON CONFLICT DO NOTHING;\n\
                 SELECT body FROM notes WHERE tenant = :t AND id = :i;\n\
                 BEGIN;\nUPDATE notes SET body = 'y' WHERE tenant = :t AND id = :i;\n\
                 SELECT count(*) FROM notes WHERE tenant = :t;\nEND;\n";
    fs::write(&script, words).unwrap();
    for mode in ["simple", "extended", "prepared"] {
        let script = script.to_str().unwrap();
        let arguments = ["-n", "-M", mode, "-c", "8", "-j", "2", "-t", "20", "-f", script];
        let (done, said) = cluster.program("pgbench", &arguments).await;
        assert!(done, "{mode}: {said}");
        assert!(said.contains("number of transactions actually processed: 160/160"), "{mode}: {said}");
        assert!(said.contains("number of failed transactions: 0"), "{mode}: {said}");
    }
    let count = |shard: &str| {
        cluster.on_shard(shard, "SELECT count(*) FROM notes WHERE body = 'y'").parse::<i32>().unwrap()
    };
    assert!(count("s1") > 0 && count("s2") > 0);
    cluster.close().await;
}

/// It would read one shard's part of every table, and call it the whole.
#[tokio::test(flavor = "multi_thread")]
async fn pg_dump_is_told_what_to_use_instead() {
    let cluster = Cluster::with_tables().await;
    for arguments in [&[][..], &["--schema-only"], &["--data-only", "--table=notes"]] {
        let (done, said) = cluster.program("pg_dump", arguments).await;
        assert!(!done && said.contains("polyshard backup"), "{arguments:?}: {said}");
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_describes_lists_and_completes() {
    let cluster = Cluster::with_tables().await;
    for command in [
        "\\d",
        "\\d notes",
        "\\d+ countries",
        "\\dt+",
        "\\l+",
        "\\dn+",
        "\\du",
        "\\df",
        "\\di",
        "\\dp",
        "\\dT",
        "\\conninfo",
    ] {
        let (done, said) = cluster.program("psql", &["-v", "ON_ERROR_STOP=1", "-c", command]).await;
        assert!(done && !said.contains("ERROR"), "{command}: {said}");
    }
    let script = "BEGIN; INSERT INTO notes VALUES (5, 1, 'a'); SAVEPOINT s; INSERT INTO notes VALUES (5, 1, 'b');\n\
                  ROLLBACK TO s; COMMIT; SELECT body FROM notes WHERE tenant = 5;";
    let (_, said) = cluster.program("psql", &["-Atc", script]).await;
    assert!(said.contains("duplicate key"), "{said}");
    cluster.close().await;
}
