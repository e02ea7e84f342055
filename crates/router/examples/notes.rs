//! The router as a library (B7): writes notes of tenants, each to the shard that has the tenant.
//!
//! `cargo run -p polyshard-router --example notes -- postgres://user:password@host/catalog tenants 100`
//!
//! The process keeps its own copy of the map. It needs no proxy, hears of map changes by itself, and is held for
//! a moment, not failed, while a range changes hands.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{Catalog, ShardRecord};
use polyshard_engine::{Batch, Dialect, Options, Statement, Target};
use polyshard_map::{Key, KeyRange, MapName};
use polyshard_router::{Access, FanOutOptions, Router, RouterOptions, Ticket};
use polyshard_shard::{RouterId, ShardOptions};
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [catalog, map, count] = args.as_slice() else {
        return Err("give the catalog's address, a map with bigint keys, and how many notes to write".into());
    };
    let (map, count): (MapName, i64) = (map.parse()?, count.parse()?);
    let router = start(Target::parse(catalog)?).await?;

    // Every shard gets the table; a fan-out asks them all, and fails if one does not answer.
    let all = KeyRange::all();
    let create = async |ticket: &Ticket| ticket.write(create_table(ticket.dialect()).into()).await;
    router.fan_out(&map, &all, Access::Write, FanOutOptions::default(), create).await?;

    for number in 0..count {
        let tenant = Key::BigInt(number % 100);
        let keys = [tenant.clone()];
        // The call goes to the one shard that has the key; if the range changes hands meanwhile, to the new one.
        let shard = router
            .call(&map, &keys, Access::Write, async |ticket| {
                let insert = Statement::new("INSERT INTO notes (tenant, number) VALUES ($1, $2)");
                ticket.write(Batch::from(insert.bind(number % 100).bind(number))).await?;
                Ok(ticket.shard().clone())
            })
            .await?;
        println!("wrote {number} {shard}");
    }

    // Summed over the shards: each counts its own.
    let count = async |ticket: &Ticket| {
        let rows = ticket.read(Statement::new("SELECT count(*) FROM notes")).await?;
        rows.one()?.int(0)
    };
    let counts = router.fan_out(&map, &all, Access::Read, FanOutOptions::default(), count).await?;
    println!("total {}", counts.answers.iter().map(|(_, rows)| rows).sum::<i64>());
    router.close().await;
    Ok(())
}

/// A router on a catalog. Passwords of shards are taken to be the catalog's own.
async fn start(target: Target) -> Result<Router, Box<dyn Error>> {
    let password = match &target {
        Target::Postgres(postgres) => Some(postgres.password.clone()),
        Target::Sqlite(_) => None,
    };
    let connect = Arc::new(move |record: &ShardRecord| {
        let target = Target::parse(&record.url)?;
        Ok(match &password {
            Some(password) => target.with_password(password.clone()),
            None => target,
        })
    });
    let owner = format!("notes {}", Uuid::new_v4());
    let catalog = Arc::new(Catalog::new(target, Options::default(), owner, Arc::new(Uuid::new_v4)));
    let options = RouterOptions {
        router: RouterId::new(rand::random()),
        shard: ShardOptions::default(),
        hold_max: Duration::from_secs(2),
        wait_max: Duration::from_secs(20),
        poll: Duration::from_secs(1),
        saved: None,
    };
    Ok(Router::start(catalog, connect, options).await?)
}

fn create_table(dialect: Dialect) -> Statement {
    let int = dialect.bigint();
    Statement::new(format!("CREATE TABLE IF NOT EXISTS notes (tenant {int} NOT NULL, number {int} NOT NULL)"))
}
