//! Plain tables for people: columns in line, no frames, no colours, so that they can be cut and searched.

use comfy_table::{Table, presets};
use polyshard_server::Timestamp;

/// A table with these columns.
pub fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.map(str::to_uppercase));
    for row in rows {
        table.add_row(row);
    }
    lines(&table)
}

/// Names and values, one a line.
pub fn pairs(rows: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    lines(&table)
}

/// A value that may be missing.
pub fn or_dash(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or("-".to_owned(), ToString::to_string)
}

/// Yes or no.
pub fn yes_no(truth: bool) -> String {
    if truth { "yes" } else { "no" }.to_owned()
}

/// `512 B`, `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    let mut scaled = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{scaled:.1} {unit}") };
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.1} TiB")
}

/// A time as it is in UTC: `2026-11-15T16:00:00Z`.
pub fn time(ms: i64) -> String {
    let iso = Timestamp::from_unix_ms(ms).map_or_else(|| format!("{ms} ms."), Timestamp::iso);
    format!("{}Z", iso.split('.').next().unwrap_or_default())
}

/// `0.4 s`, `12 s`, `3 min 5 s`, `2 h 0 min`.
pub fn duration(ms: i64) -> String {
    let (ms, seconds) = (ms.max(0), ms.max(0) / 1000);
    match seconds {
        0..10 => format!("{:.1} s", ms as f64 / 1000.0),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.to_string().lines() {
        // The first column's padding and the last one's filling are of no use.
        text.push_str(line.strip_prefix(' ').unwrap_or(line).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_as_people_read_them() {
        let sizes = [0, 1_023, 1_536, 5 << 20, 3 << 40].map(super::size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 TiB"]);
    }

    #[test]
    fn times_are_as_people_read_them() {
        assert_eq!(super::time(1_794_744_005_999), "2026-11-15T12:00:05Z");
        let durations = [340, 12_900, 185_000, 7_260_000].map(super::duration);
        assert_eq!(durations, ["0.3 s", "12 s", "3 min 5 s", "2 h 1 min"]);
    }
}
