//! The parser against PostgreSQL's own: what it does not understand is listed, and what it understands it reads alike.

mod expressions;
mod statements;

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tokio_postgres::{Client, NoTls};

async fn connect() -> (PgServer, Client) {
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() });
    server.create_database("parser");
    let (client, connection) =
        tokio_postgres::connect(&server.connect_string("parser"), NoTls).await.expect("it connects");
    tokio::spawn(connection);
    (server, client)
}
