//! What callers saw of one counter, and whether a machine that does one thing after the other could have answered so.

use std::collections::BTreeMap;
use std::time::Instant;

/// A counter, read or increased.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// When it was asked, and when it was answered.
    from: Instant,
    to: Instant,
    value: i64,
    bumped: bool,
}

/// Looks that were answered, and when increases without an answer were asked for. The counter begins with 0.
#[derive(Debug, Default)]
pub struct History {
    looks: Vec<Look>,
    unknown: Vec<Instant>,
}

impl History {
    /// It was increased to this value.
    pub fn bumped(&mut self, from: Instant, to: Instant, value: i64) {
        self.looks.push(Look { from, to, value, bumped: true });
    }

    /// It was to be increased, and nobody knows whether it was; perhaps it still will be.
    pub fn unknown(&mut self, from: Instant) {
        self.unknown.push(from);
    }

    /// It was read.
    pub fn seen(&mut self, from: Instant, to: Instant, value: i64) {
        self.looks.push(Look { from, to, value, bumped: false });
    }

    /// Why it is not linearizable, with this value at its end.
    ///
    /// The values put everything in one order; only increases that nobody knows of have to be found a place. So it is
    /// linearizable if the values agree with what was over before something was asked, and if every value that no known
    /// increase gave can have come from an unknown one of its own that was asked for before anybody had seen it.
    pub fn fault(&self, end: i64) -> Option<String> {
        let mut bumps: BTreeMap<i64, Look> = BTreeMap::new();
        for look in self.looks.iter().filter(|look| look.bumped) {
            if bumps.insert(look.value, *look).is_some() {
                return Some(format!("two increases gave {}", look.value));
            }
        }
        self.goes_back(end).or_else(|| self.comes_from_nowhere(end, &bumps))
    }

    /// None may give less than what was answered before it was asked; an increase gives more.
    fn goes_back(&self, end: i64) -> Option<String> {
        let mut by_answer: Vec<&Look> = self.looks.iter().collect();
        by_answer.sort_by_key(|look| look.to);
        let mut by_ask: Vec<&Look> = self.looks.iter().collect();
        by_ask.sort_by_key(|look| look.from);
        let (mut answered, mut floor) = (0, 0);
        for look in by_ask {
            while by_answer.get(answered).is_some_and(|before| before.to < look.from) {
                floor = floor.max(by_answer[answered].value);
                answered += 1;
            }
            let enough = if look.bumped { look.value > floor } else { look.value >= floor };
            if !enough {
                return Some(format!("it goes back: {} after {floor}", look.value));
            }
            if look.value > end {
                return Some(format!("it was {} and is {end}", look.value));
            }
        }
        None
    }

    fn comes_from_nowhere(&self, end: i64, bumps: &BTreeMap<i64, Look>) -> Option<String> {
        let mut seen: Vec<&Look> = self.looks.iter().collect();
        seen.sort_by_key(|look| look.value);
        // From the last value down: when somebody first knew that it had come so far.
        let (mut known, mut gaps) = (None, Vec::new());
        for value in (1..=end).rev() {
            while let Some(look) = seen.pop_if(|look| look.value >= value) {
                known = Some(known.map_or(look.to, |known: Instant| known.min(look.to)));
            }
            if !bumps.contains_key(&value) {
                gaps.push((value, known));
            }
        }
        let mut unknown = self.unknown.clone();
        unknown.sort();
        let mut asked = unknown.iter();
        for (value, known) in gaps.into_iter().rev() {
            let fits = asked.next().is_some_and(|asked| known.is_none_or(|known| *asked <= known));
            if !fits {
                let (known, unknown) = (bumps.len(), self.unknown.len());
                return Some(format!(
                    "nobody can have made it {value}: it is {end} after {known} increases and {unknown} unknown ones"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Something that is asked and answered at these milliseconds.
    enum Deed {
        Bump(u64, u64, i64),
        Read(u64, u64, i64),
        Lost(u64),
    }
    use Deed::{Bump, Lost, Read};

    fn fault(deeds: &[Deed], end: i64) -> Option<String> {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut history = History::default();
        for deed in deeds {
            match *deed {
                Bump(from, to, value) => history.bumped(at(from), at(to), value),
                Read(from, to, value) => history.seen(at(from), at(to), value),
                Lost(from) => history.unknown(at(from)),
            }
        }
        history.fault(end)
    }

    #[test]
    fn what_one_machine_could_have_answered_is_right() {
        assert_eq!(fault(&[], 0), None);
        assert_eq!(fault(&[Bump(0, 9, 2), Bump(1, 8, 1), Read(2, 3, 0), Read(4, 5, 2)], 2), None);
        // A lost one may have come at once, late, or never.
        assert_eq!(fault(&[Lost(0), Read(1, 2, 1), Bump(3, 4, 2)], 2), None);
        assert_eq!(fault(&[Lost(0), Bump(1, 2, 1), Read(3, 4, 2)], 2), None);
        assert_eq!(fault(&[Lost(0), Bump(1, 2, 1)], 1), None);
        assert_eq!(fault(&[Lost(0), Bump(1, 2, 1)], 2), None);
    }

    #[test]
    fn what_no_machine_could_have_answered_is_found_out() {
        for (deeds, end) in [
            // Lost, doubled, or from nowhere.
            (vec![Bump(0, 1, 1), Bump(2, 3, 1)], 2),
            (vec![Bump(0, 1, 1)], 0),
            (vec![Bump(0, 1, 1)], 2),
            (vec![Bump(0, 1, 2)], 2),
            (vec![Lost(0), Bump(1, 2, 1)], 3),
            // An old value after a newer one was seen, by another caller too.
            (vec![Bump(0, 1, 1), Read(2, 3, 0)], 1),
            (vec![Bump(0, 9, 1), Read(1, 2, 1), Read(3, 4, 0)], 1),
            (vec![Bump(0, 1, 2), Bump(2, 3, 1)], 2),
            // A value that was seen before anybody had asked for it.
            (vec![Read(0, 1, 1), Bump(2, 3, 1)], 1),
            (vec![Read(0, 1, 1), Lost(2)], 1),
            // Two values and one unknown increase in time; the other one came too late for its value.
            (vec![Lost(0), Read(1, 2, 2), Lost(3), Bump(4, 5, 3)], 3),
        ] {
            assert!(fault(&deeds, end).is_some(), "case with the end {end} passes");
        }
    }
}
