//! Statements made to break the walk: very deep, very long, or growing without end. None may take the process down.

use std::time::Duration;

use crate::world::World;

/// The stack of a worker thread of the server.
const STACK_BYTES: usize = 2 << 20;

fn on_a_worker_stack(sql: String) -> Result<(), String> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let world = World::new();
        let answer = world.route(&sql, &[], true).map(drop).map_err(|error| error.to_string());
        drop(world.lane(&sql));
        answer
    });
    thread.expect("a thread starts").join().expect("the walk does not panic")
}

#[test]
fn deep_and_long_statements_are_read_or_refused() {
    let chain = |item: &str, count: usize, with: &str| vec![item; count].join(with);
    let nested = |open: &str, inner: &str, close: &str, count: usize| {
        format!("{}{inner}{}", open.repeat(count), close.repeat(count))
    };
    let select = |condition: String| format!("SELECT * FROM orders WHERE {condition}");
    for count in [10, 150, 1_900, 20_000] {
        let statements = [
            select(chain("tenant_id = 5", count, " OR ")),
            select(chain("tenant_id = 5", count, " AND ")),
            select(chain("id", count, " + ") + " = 5"),
            select(chain("note", count, " || ") + " = 'x'"),
            select(nested("(", "tenant_id = 5", ")", count)),
            select(nested("NOT ", "tenant_id = 5", "", count)),
            select(format!("id = {}5", "- ".repeat(count))),
            select(format!("id = 5{}", "::int".repeat(count))),
            select(nested("abs(", "id", ")", count) + " = 5"),
            select(nested("CASE WHEN ", "true", " THEN true END", count)),
            select(nested("EXISTS (SELECT 1 WHERE ", "true", ")", count)),
            select(format!("tenant_id IN ({})", chain("5", count, ", "))),
            select(format!("id {}", "IS NOT NULL ".repeat(count))),
            select(format!("arr{} = 5", "[1]".repeat(count))),
            chain("SELECT tenant_id FROM orders WHERE tenant_id = 5", count, " UNION ALL "),
            format!("SELECT {}1{}", "(SELECT ".repeat(count), ")".repeat(count)),
            format!("SELECT * FROM {}orders{} WHERE tenant_id = 5", "(".repeat(count), ")".repeat(count)),
            format!("SELECT * FROM orders{} WHERE tenant_id = 5", ", countries".repeat(count)),
            format!("INSERT INTO orders (tenant_id, id) VALUES {}", chain("(5, 1)", count, ", ")),
            format!("SELECT {}", chain("1", count, ", ")),
            format!("SELECT {}", "(".repeat(count)),
            format!("SELECT {}1", "-".repeat(count)),
        ];
        for sql in statements {
            // Either answer will do; a stack that runs out would end the process.
            let _ = on_a_worker_stack(sql);
        }
    }
}

#[test]
fn what_grows_without_end_is_refused() {
    let mut sql = "WITH c0 AS (SELECT 1 AS a)".to_owned();
    for number in 1..60 {
        sql += &format!(", c{number} AS (SELECT * FROM c{} x, c{} y)", number - 1, number - 1);
    }
    let error = on_a_worker_stack(format!("{sql} SELECT * FROM c59")).expect_err("it is too large");
    assert!(error.contains("too large"), "{error}");
    let mutual = "WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a";
    on_a_worker_stack(mutual.to_owned()).expect("PostgreSQL refuses it");
}

#[test]
fn long_lists_take_little_time() {
    let keys: Vec<String> = (0..60_000).map(|n| (n % 100).to_string()).collect();
    let list = format!("SELECT * FROM orders WHERE tenant_id IN ({})", keys.join(", "));
    let rows: Vec<String> = (0..20_000).map(|n| format!("({}, {n})", n % 100)).collect();
    let insert = format!("INSERT INTO orders (tenant_id, id) VALUES {}", rows.join(", "));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        on_a_worker_stack(list).expect("it is read");
        on_a_worker_stack(insert).expect("it is read");
        let _ = sender.send(());
    });
    // A quadratic walk would take minutes; this is no measurement.
    receiver.recv_timeout(Duration::from_secs(60)).expect("long lists are read in time");
}
