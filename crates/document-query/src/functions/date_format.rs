//! DateTimeFormat: custom format specifiers such as `yyyy-MM-dd HH:mm:ss.fff`.

use super::calendar::{DAY, Moment};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Replaces the specifiers of a format. A backslash keeps the character behind it, quotes keep what is between them.
pub(super) fn format(moment: &Moment, format: &str) -> String {
    let characters: Vec<char> = format.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        match character {
            '\\' => {
                out.extend(characters.get(at + 1));
                at += 2;
            }
            '\'' | '"' => {
                let length = characters[at + 1..].iter().take_while(|next| **next != character).count();
                out.extend(&characters[at + 1..at + 1 + length]);
                at += length + 2;
            }
            _ => {
                let count = characters[at..].iter().take_while(|next| **next == character).count();
                match specifier(moment, character, count) {
                    Some(text) => out.push_str(&text),
                    None => out.extend(std::iter::repeat_n(character, count)),
                }
                at += count;
            }
        }
    }
    out
}

/// The text of a specifier of `count` equal characters.
fn specifier(moment: &Moment, character: char, count: usize) -> Option<String> {
    let hour12 = if moment.hour % 12 == 0 { 12 } else { moment.hour % 12 };
    let name = |name: &str| if count == 3 { name[..3].to_owned() } else { name.to_owned() };
    Some(match character {
        'y' if count <= 2 => padded(moment.year % 100, count),
        'y' => padded(moment.year, count),
        'M' if count >= 3 => name(MONTHS[(moment.month - 1) as usize]),
        'M' => padded(moment.month, count),
        'd' if count >= 3 => name(WEEKDAYS[weekday(moment)]),
        'd' => padded(moment.day, count),
        'H' => padded(moment.hour, count.min(2)),
        'h' => padded(hour12, count.min(2)),
        'm' => padded(moment.minute, count.min(2)),
        's' => padded(moment.second, count.min(2)),
        'f' if count <= 7 => format!("{:07}", moment.fraction)[..count].to_owned(),
        'F' if count <= 7 => format!("{:07}", moment.fraction)[..count].trim_end_matches('0').to_owned(),
        't' => (if moment.hour < 12 { "AM" } else { "PM" })[..count.min(2)].to_owned(),
        _ => return None,
    })
}

fn padded(number: i64, width: usize) -> String {
    // Wider numbers than the longest year are no format of a date.
    let width = width.min(5);
    format!("{number:0width$}")
}

/// Days after a Thursday, which 1970-01-01 was.
fn weekday(moment: &Moment) -> usize {
    moment.ticks().map_or(0, |ticks| ticks.div_euclid(DAY).rem_euclid(7) as usize)
}
