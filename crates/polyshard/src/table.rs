//! Plain tables for people: columns in line, no frames, no colours, so that they can be cut and searched.

use comfy_table::{Table, presets};

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
}
