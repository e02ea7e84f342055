//! What a process printed, line by line, while it is still printing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The lines of both outputs, in the order they were read.
#[derive(Debug, Default)]
pub struct Log {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Log {
    /// All of it so far.
    pub fn text(&self) -> String {
        self.lines().iter().map(|line| format!("{line}\n")).collect()
    }

    /// The first line that passes `test`, waiting for it up to `patience`.
    pub fn wait_for(&self, patience: Duration, test: impl Fn(&str) -> bool) -> Option<String> {
        let deadline = Instant::now() + patience;
        let mut lines = self.lines();
        let mut seen = 0;
        loop {
            if let Some(line) = lines[seen..].iter().find(|line| test(line)) {
                return Some(line.clone());
            }
            seen = lines.len();
            let left = deadline.checked_duration_since(Instant::now())?;
            lines = self.more.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lines with a warning, an error or a panic that contain none of the allowed words.
    pub fn complaints(&self, allow: &[&str]) -> Vec<String> {
        let lines = self.lines();
        let complaints = lines.iter().filter(|line| is_complaint(line));
        complaints.filter(|line| !allow.iter().any(|word| line.contains(word))).cloned().collect()
    }

    /// The doors listed before the ready line, by name; a scheme before the address is left out.
    pub(super) fn doors(&self) -> BTreeMap<String, String> {
        let lines = self.lines();
        let before = lines.iter().take_while(|line| !line.starts_with("ready"));
        let doors = before.filter(|line| line.starts_with("  ")).filter_map(|line| {
            let mut words = line.split_whitespace();
            let (door, address) = (words.next()?, words.next()?);
            let address =
                address.split_once("://").map_or(address, |(_, address)| address).trim_end_matches('/');
            Some((door.to_owned(), address.to_owned()))
        });
        doors.collect()
    }

    pub(super) fn read(&self, from: impl Read) {
        let mut from = BufReader::new(from);
        let mut bytes = Vec::new();
        // A pipe that cannot be read has the same meaning as one that is closed: there is no more to come.
        while from.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
            bytes.clear();
            self.lines().push(line);
            self.more.notify_all();
        }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        // A test that panicked while it looked at the lines has not harmed them.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The level stands among the first words of a line, or in its own field when the log is JSON.
fn is_complaint(line: &str) -> bool {
    let level = line.split_whitespace().take(3).any(|word| matches!(word, "WARN" | "ERROR"));
    level
        || ["\"level\":\"WARN\"", "\"level\":\"ERROR\"", "panicked at"].iter().any(|mark| line.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::Log;
    use std::time::Duration;

    fn log(text: &str) -> Log {
        let log = Log::default();
        log.read(text.as_bytes());
        log
    }

    #[test]
    fn complaints_are_found_in_text_and_in_json() {
        let log = log("2026-01-01T00:00:00Z  WARN door: slow\n{\"level\":\"ERROR\",\"message\":\"bad\"}\n\
                       2026-01-01T00:00:00Z  INFO saying that WARN and ERROR are words\nthread 'a' panicked at b\n");
        assert_eq!(log.complaints(&[]).len(), 3);
        assert_eq!(log.complaints(&["slow", "bad"]), ["thread 'a' panicked at b"]);
    }

    #[test]
    fn doors_are_the_indented_lines_before_ready() {
        let log = log(
            "polyshard 0.1\n  admin  http://127.0.0.1:7070/\n  sql    127.0.0.1:6432\nready\n  not    one\n",
        );
        let doors = log.doors();
        assert_eq!(doors.len(), 2);
        assert_eq!(doors["admin"], "127.0.0.1:7070");
        assert_eq!(doors["sql"], "127.0.0.1:6432");
    }

    #[test]
    fn waiting_finds_what_is_there_and_gives_up_on_what_is_not() {
        let log = log("one\ntwo\n");
        assert_eq!(log.wait_for(Duration::ZERO, |line| line == "two"), Some("two".to_owned()));
        assert_eq!(log.wait_for(Duration::from_millis(1), |line| line == "three"), None);
    }
}
