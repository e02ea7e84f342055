//! A PostgreSQL server of its own with databases, for the tests in other languages, until standard input ends.
//!
//! `cargo run -p polyshard-testkit --example databases -- catalog s1 s2`
//!
//! Prints one line of JSON when it accepts connections: the address of each database, with the superuser's password.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    // These tests kill the program and never the machine. Transactions over several shards are prepared.
    let settings = vec![("max_prepared_transactions".to_owned(), "20".to_owned())];
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
    for name in &names {
        server.create_database(name);
    }
    let addresses: BTreeMap<&str, String> =
        names.iter().map(|name| (name.as_str(), server.url(name))).collect();
    println!("{}", serde_json::json!(addresses));
    std::io::stdout().flush().expect("the test reads");
    // Nothing is ever written to it: it ends with the test, however that ends.
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input can be read");
}
