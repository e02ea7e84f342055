//! The rows of an archive as CSV files beside it, which other programs can read.

use std::path::Path;

use bytes::Bytes;
use polyshard_engine::Value;
use polyshard_map::KeyBytes;

use crate::BackupError;
use crate::depot::Location;
use crate::lines::{Head, Line};
use crate::shardlet::read_lines;

/// Bytes of one file: so many are in memory.
const FILE_BYTES: usize = 8 * 1024 * 1024;

/// Writes them: `csv/TABLE-000001.csv` and so on, each with the names of its columns.
pub(crate) async fn write(to: &Location, lines: &Path) -> Result<(), BackupError> {
    let mut file: Option<File> = None;
    for line in read_lines(lines)? {
        match line? {
            Line::Head(head) => {
                if let Some(file) = file.replace(File::new(&head)) {
                    file.put(to).await?;
                }
            }
            Line::Row(row) => {
                let Some(file) = &mut file else { continue };
                file.add(&row);
                if file.text.len() >= FILE_BYTES {
                    file.next(to).await?;
                }
            }
        }
    }
    match file {
        Some(file) => file.put(to).await,
        None => Ok(()),
    }
}

struct File {
    name: String,
    number: u32,
    head: String,
    text: String,
    rows: u64,
}

impl File {
    fn new(head: &Head) -> File {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name = head.dataset.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
        let columns: Vec<String> =
            head.columns.iter().map(|(name, _)| quoted(name.trim_matches('"'))).collect();
        let head = format!("{}\r\n", columns.join(","));
        File { name, number: 1, text: head.clone(), head, rows: 0 }
    }

    fn add(&mut self, row: &[Value]) {
        let fields: Vec<String> = row.iter().map(field).collect();
        self.text.push_str(&fields.join(","));
        self.text.push_str("\r\n");
        self.rows += 1;
    }

    async fn next(&mut self, to: &Location) -> Result<(), BackupError> {
        let text = std::mem::replace(&mut self.text, self.head.clone());
        to.put(&format!("csv/{}-{:06}.csv", self.name, self.number), Bytes::from(text)).await?;
        self.number += 1;
        self.rows = 0;
        Ok(())
    }

    /// Writes what is left; a dataset without rows has no file.
    async fn put(mut self, to: &Location) -> Result<(), BackupError> {
        if self.rows == 0 { Ok(()) } else { self.next(to).await }
    }
}

/// A field. Nothing stands for NULL, and `""` for an empty text.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => quoted(text),
        Value::Blob(bytes) => format!("\\x{}", KeyBytes::from(bytes.as_slice()).to_hex()),
    }
}

fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains([',', '"', '\r', '\n']);
    if plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let row = [
            Value::Null,
            Value::Text(String::new()),
            Value::Text("a,\"b\"".to_owned()),
            Value::Int(-1),
            Value::Blob(vec![0, 255]),
        ];
        let fields: Vec<String> = row.iter().map(field).collect();
        assert_eq!(fields.join(","), r#","","a,""b""",-1,\x00ff"#);
    }
}
