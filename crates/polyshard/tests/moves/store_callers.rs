//! What callers of the table and queue doors do: put, change, read, take and delete, and tell the ledger.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::azure::{Azure, Reply, TABLE, queue};
use crate::ledger::{Fate, Ledger};
use crate::stores::with_queue;
use crate::writers::{Addresses, TENANTS};

/// A table with one entity for each tenant, which is increased by whoever has seen its last state.
pub const COUNTS: &str = "Counts";
/// How long a caller waits before he knocks again.
const AGAIN: Duration = Duration::from_millis(20);
/// How long a message is its taker's own.
const HIDDEN: Duration = Duration::from_secs(5);

/// An entity's address.
pub fn entity(table: &str, tenant: i64, row: &str) -> String {
    let partition =
        if table == COUNTS { "n".to_owned() } else { (row.parse::<i64>().unwrap() % 3).to_string() };
    format!("/devstoreaccount1/{table}(PartitionKey='{tenant}-{partition}',RowKey='{row}')")
}

/// What an entity of [`COUNTS`] has.
pub fn count(reply: &Reply) -> Option<i64> {
    let body: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
    body["n"].as_i64().filter(|_| reply.status == 200)
}

/// Works until it is over, on a new connection whenever something has failed.
pub fn work(ledger: &Ledger, doors: &Addresses, process: usize, kind: &'static str, over: &AtomicBool) {
    let random = StdRng::seed_from_u64(process as u64);
    let mut caller = Caller { ledger, random, mine: Vec::new() };
    while !over.load(Ordering::SeqCst) {
        let Ok(mut azure) = Azure::connect(&doors.get(process)) else {
            std::thread::sleep(AGAIN);
            continue;
        };
        while !over.load(Ordering::SeqCst) {
            let done = if kind == "entity" { caller.entity(&mut azure) } else { caller.message(&mut azure) };
            if let Err(error) = done {
                ledger.failed(process, error);
                std::thread::sleep(AGAIN);
                break;
            }
        }
    }
}

struct Caller<'a> {
    ledger: &'a Ledger,
    random: StdRng,
    /// Entities of its own that are there.
    mine: Vec<(i64, i64)>,
}

impl Caller<'_> {
    fn entity(&mut self, azure: &mut Azure) -> Result<(), String> {
        let tenant = self.random.random_range(0..TENANTS);
        match self.random.random_range(0..10) {
            0..4 => {
                let id = self.put("entity", tenant, |id| azure.put_entity(tenant, id))?;
                self.mine.push((tenant, id));
            }
            4..6 if !self.mine.is_empty() => {
                let (tenant, id) = self.mine.swap_remove(self.random.random_range(0..self.mine.len()));
                let item = ("entity", tenant, id);
                self.ledger.note(item, Fate::Unknown);
                let reply = azure.delete_entity(tenant, id).map_err(|error| error.to_string())?;
                match reply.status {
                    204 => self.ledger.note(item, Fate::Gone),
                    404 => {
                        self.ledger.note(item, Fate::There);
                        return Err(format!("LOST: {item:?} is not there to be deleted"));
                    }
                    _ => return Err(said(&reply)),
                }
            }
            6 if !self.mine.is_empty() => {
                let (tenant, id) = self.mine[self.random.random_range(0..self.mine.len())];
                let reply = azure.table("GET", &entity(TABLE, tenant, &id.to_string()), "");
                let reply = reply.map_err(|error| error.to_string())?;
                match reply.status {
                    200 => {}
                    404 => return Err(format!("LOST: entity {id} of {tenant} is not there to be read")),
                    _ => return Err(said(&reply)),
                }
            }
            7 => {
                self.look(azure, tenant)?;
            }
            _ => self.bump(azure, tenant)?,
        }
        Ok(())
    }

    /// Reads a counter: its value, and the state that it is of.
    fn look(&mut self, azure: &mut Azure, tenant: i64) -> Result<(i64, String), String> {
        let from = Instant::now();
        let reply =
            azure.table("GET", &entity(COUNTS, tenant, "n"), "").map_err(|error| error.to_string())?;
        if reply.status == 404 {
            return Err(format!("LOST: the count of {tenant} is not there"));
        }
        let (Some(n), Some(etag)) = (count(&reply), reply.header("etag")) else { return Err(said(&reply)) };
        self.ledger.seen(("count", tenant), from, n);
        Ok((n, etag.to_owned()))
    }

    /// Increases a counter, if nobody else has done so since it was read.
    fn bump(&mut self, azure: &mut Azure, tenant: i64) -> Result<(), String> {
        let (n, etag) = self.look(azure, tenant)?;
        let (from, counter) = (Instant::now(), ("count", tenant));
        let (target, match_) = (entity(COUNTS, tenant, "n"), format!("If-Match: {etag}\r\n"));
        let reply = azure.table_with("PUT", &target, &match_, &format!(r#"{{"n":{}}}"#, n + 1));
        match reply {
            Ok(reply) if reply.status == 204 => self.ledger.bumped(counter, from, Some(n + 1)),
            // Somebody else was first: nothing was written.
            Ok(reply) if reply.status == 412 => {}
            Ok(reply) => {
                self.ledger.bumped(counter, from, None);
                return Err(said(&reply));
            }
            Err(error) => {
                self.ledger.bumped(counter, from, None);
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    fn message(&mut self, azure: &mut Azure) -> Result<(), String> {
        let tenants: Vec<i64> = with_queue().collect();
        let tenant = tenants[self.random.random_range(0..tenants.len())];
        if self.random.random_range(0..3) > 0 {
            self.put("message", tenant, |id| azure.put_message(tenant, id))?;
            return Ok(());
        }
        let target = format!("/devstoreaccount1/{}/messages", queue(tenant));
        let query = format!("?numofmessages=2&visibilitytimeout={}", HIDDEN.as_secs());
        let from = Instant::now();
        let reply = azure.queue("GET", &target, &query, "").map_err(|error| error.to_string())?;
        if reply.status != 200 {
            return Err(said(&reply));
        }
        for message in reply.body.split("<QueueMessage>").skip(1) {
            let (Some(number), Some(name), Some(receipt)) =
                (inner(message, "MessageText"), inner(message, "MessageId"), inner(message, "PopReceipt"))
            else {
                return Err(format!("not a message: {message}"));
            };
            let item = ("message", tenant, number.parse().map_err(|_| format!("not ours: {number}"))?);
            if let Some(wrong) = self.ledger.taken(item, from, HIDDEN) {
                return Err(wrong);
            }
            // Every other one comes again.
            if self.random.random_range(0..2) == 0 {
                continue;
            }
            let receipt = receipt.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
            let (target, query) = (format!("{target}/{name}"), format!("?popreceipt={receipt}"));
            match azure.queue("DELETE", &target, &query, "") {
                Ok(reply) if reply.status == 204 => self.ledger.note(item, Fate::Gone),
                // Its time was over: it may be somebody else's by now.
                Ok(reply) if [400, 404].contains(&reply.status) && from.elapsed() >= HIDDEN => {}
                Ok(reply) if [400, 404].contains(&reply.status) => {
                    return Err(format!("LOST: the receipt of {item:?} is refused: {}", said(&reply)));
                }
                Ok(reply) => {
                    self.ledger.doubt(item);
                    return Err(said(&reply));
                }
                Err(error) => {
                    self.ledger.doubt(item);
                    return Err(error.to_string());
                }
            }
        }
        Ok(())
    }

    /// Puts a new item; answers its number.
    fn put(
        &mut self,
        kind: &'static str,
        tenant: i64,
        put: impl FnOnce(i64) -> std::io::Result<Reply>,
    ) -> Result<i64, String> {
        let id = self.ledger.number();
        // Noted before it is known: a caller who is never answered does not know either.
        self.ledger.note((kind, tenant, id), Fate::Unknown);
        let reply = put(id).map_err(|error| error.to_string())?;
        if ![201, 204].contains(&reply.status) {
            return Err(said(&reply));
        }
        self.ledger.note_put((kind, tenant, id));
        Ok(id)
    }
}

/// What is between the tags of this name.
fn inner<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let rest = text.split_once(&format!("<{tag}>"))?.1;
    Some(rest.split_once('<')?.0)
}

fn said(reply: &Reply) -> String {
    format!("{} {}", reply.status, reply.body)
}
