//! How far it is, and what came of it.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::LoadArgs;
use super::batch::{Span, joined};
use super::read::Progress;
use super::send::{Ended, Tally};
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};

/// How often the line is written anew.
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// Characters of the bar.
const BAR_WIDTH: u64 = 24;

/// Shows how far it is, on a terminal, until it has ended.
pub async fn progress(far: Arc<Progress>, tally: Arc<Tally>, began: Instant, format: Format) {
    if format != Format::People || !std::io::stderr().is_terminal() {
        return;
    }
    while !far.has_ended() {
        tokio::time::sleep(SHOW_EVERY).await;
        let line = line(&far, &tally, began.elapsed());
        // Nobody looks any more if it fails.
        let _gone = write!(std::io::stderr(), "\r\x1b[K{line}").and_then(|()| std::io::stderr().flush());
    }
    let _gone = write!(std::io::stderr(), "\r\x1b[K");
}

fn line(far: &Progress, tally: &Tally, took: Duration) -> String {
    let loaded = tally.loaded.load(Ordering::Relaxed);
    let rate = loaded as f64 / took.as_secs_f64().max(0.001);
    let mut line = String::new();
    if let Some(part) = (far.read() * BAR_WIDTH).checked_div(far.size) {
        let part = part.min(BAR_WIDTH) as usize;
        line.push_str(&format!("[{}{}] ", "#".repeat(part), ".".repeat(BAR_WIDTH as usize - part)));
    }
    line.push_str(&format!("{loaded} rows, {rate:.0} a second"));
    if far.size > far.read() && far.read() > 0 {
        let left = took.as_secs_f64() / far.read() as f64 * (far.size - far.read()) as f64;
        line.push_str(&format!(", about {left:.0} s left"));
    }
    match tally.bad.load(Ordering::Relaxed) {
        0 => {}
        bad => line.push_str(&format!(", {bad} bad")),
    }
    line
}

/// What came of it, and the exit code.
pub fn report(
    args: &LoadArgs,
    tally: &Tally,
    ended: Ended,
    rows_read: u64,
    took: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    let (loaded, bad) = (tally.loaded.load(Ordering::Relaxed), tally.bad.load(Ordering::Relaxed));
    let left = match &ended.failure {
        None => Vec::new(),
        Some(_) => rest(&args.rows, joined(ended.treated.iter().chain(&ended.unknown).copied().collect())),
    };
    let answer = json!({
        "table": args.table,
        "loaded": loaded,
        "bad": bad,
        "read": rows_read,
        "seconds": took.as_secs_f64(),
        "bad_rows": ended.bad_rows,
        "left": left.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unknown": ended.unknown.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "failure": ended.failure,
    });
    output.answer(&answer, |_| {
        let rate = loaded as f64 / took.as_secs_f64().max(0.001);
        let mut text = format!(
            "{loaded} rows are loaded into {}, in {:.1} s ({rate:.0} a second).\n",
            args.table,
            took.as_secs_f64()
        );
        for row in &ended.bad_rows {
            text.push_str(&format!("line {}: {}: {}\n", row.line, row.code, row.message));
        }
        if bad > ended.bad_rows.len() as u64 {
            text.push_str(&format!("… and {} more.\n", bad - ended.bad_rows.len() as u64));
        }
        for span in &ended.unknown {
            text.push_str(&format!(
                "Nobody knows of rows {span} whether they are loaded: look before you load them.\n"
            ));
        }
        text
    })?;
    match ended.failure {
        None if bad == 0 => Ok(Exit::Ok),
        None => Ok(Exit::Conflict),
        Some(failure) => {
            let rows: Vec<String> = left.iter().map(|span| format!("--rows {span}")).collect();
            Err(Failure::new(
                format!("it was stopped: {failure}"),
                format!("the rest is left: {}", rows.join(" ")),
            ))
        }
    }
}

/// The wanted rows that were not treated.
fn rest(wanted: &[Span], treated: Vec<Span>) -> Vec<Span> {
    let all = [Span { first: 1, last: u64::MAX }];
    let wanted = if wanted.is_empty() { &all[..] } else { wanted };
    let mut left = Vec::new();
    for span in joined(wanted.to_vec()) {
        let mut at = span.first;
        for done in treated.iter().filter(|done| done.last >= span.first && done.first <= span.last) {
            if done.first > at {
                left.push(Span { first: at, last: done.first - 1 });
            }
            at = done.last.saturating_add(1);
        }
        if at <= span.last {
            left.push(Span { first: at, last: span.last });
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_was_wanted_without_what_was_treated() {
        let spans = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<Span>>();
        let shown = |wanted: &[&str], treated: &[&str]| {
            rest(&spans(wanted), spans(treated)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[], &["1-10", "21-30"]), ["11-20", "31-"]);
        assert_eq!(shown(&["5-25"], &["1-10", "21-30"]), ["11-20"]);
        assert_eq!(shown(&["5-8"], &["1-10"]), Vec::<String>::new());
        assert_eq!(shown(&["1-3", "7-9"], &["7-7"]), ["1-3", "8-9"]);
    }
}
