//! What counting one request costs, in nanoseconds: `cargo run --release -p polyshard-meter --example cost`.

use std::time::Instant;

use polyshard_meter::{Counter, Histogram, Requests, Top};

const TIMES: u64 = 10_000_000;

fn main() {
    let (entered, reads, ended, times) =
        (Counter::default(), Counter::default(), Counter::default(), Histogram::default());
    let hot: Top<(String, u64)> = Top::new(256);
    let began = Instant::now();
    for number in 0..TIMES {
        // As the router does it: every eighth key is looked at, every fourth request is timed.
        if entered.add(1).is_multiple_of(8) {
            hot.add(&("tenants".to_owned(), number % 1000), 8);
        }
        let since = reads.add(1).is_multiple_of(4).then(Instant::now);
        ended.add_one();
        if let Some(since) = since {
            times.record_for(since.elapsed(), 4);
        }
    }
    println!("the router's part: {} ns a request", began.elapsed().as_nanos() as u64 / TIMES);
    let door = Requests::default();
    let began = Instant::now();
    for _ in 0..TIMES {
        door.record("GET", Requests::class(200), began.elapsed());
    }
    println!("a door's part: {} ns a request", began.elapsed().as_nanos() as u64 / TIMES);
    assert_eq!(times.times().count() + ended.get(), 2 * TIMES);
}
