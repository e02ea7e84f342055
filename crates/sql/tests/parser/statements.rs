//! A list of PostgreSQL statements of many kinds: each is understood, or listed as not.

use polyshard_sql::{Kind, statements};

use super::connect;

/// One statement a line; lines with `--` in front are remarks.
const LIST: &str = include_str!("statements.sql");

/// What the parser does not understand, though PostgreSQL does. The door refuses these if they name a table.
const NOT_UNDERSTOOD: &str = include_str!("not_understood.sql");

#[tokio::test]
async fn statements_are_understood_or_listed() {
    let (_server, client) = connect().await;
    client.batch_execute("SET statement_timeout = '10s'").await.expect("no statement runs for long");
    let (mut understood, mut not_understood, mut wrong) = (0, Vec::new(), Vec::new());
    for sql in LIST.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")) {
        // Every statement is real: whatever PostgreSQL says of it, it is not a syntax error.
        let prepared = client.batch_execute(&format!("BEGIN; {sql}; ROLLBACK")).await;
        let _ = client.batch_execute("ROLLBACK").await;
        if let Err(error) = prepared {
            let code = error.code().expect("the server's own error").code().to_owned();
            if code == "42601" {
                wrong.push(format!("{sql}: {error:?}"));
                continue;
            }
        }
        match statements(sql) {
            Ok(all) if all.len() == 1 && *all[0].kind() != Kind::Unparsed => understood += 1,
            _ => not_understood.push(sql),
        }
    }
    assert!(wrong.is_empty(), "PostgreSQL does not know these:\n{}", wrong.join("\n"));
    let known: Vec<&str> = NOT_UNDERSTOOD.lines().filter(|line| !line.is_empty()).collect();
    println!("{understood} understood, {} not", not_understood.len());
    assert_eq!(not_understood, known, "the list of what is not understood has changed");
}
