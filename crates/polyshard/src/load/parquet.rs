//! Rows of a Parquet file in PostgreSQL's text form.

use std::fs::File;
use std::io::{self, Write};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

/// A file and how many of its rows were read.
pub struct Columns {
    pub names: Vec<String>,
    pub rows: u64,
    reader: SerializedFileReader<File>,
}

impl Columns {
    /// Opens a file; its columns are named by its schema.
    pub fn open(file: File) -> io::Result<Columns> {
        let reader = SerializedFileReader::new(file).map_err(wrong)?;
        let meta = reader.metadata().file_metadata();
        let names = meta.schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
        let rows = u64::try_from(meta.num_rows()).unwrap_or_default();
        Ok(Columns { names, rows, reader })
    }

    /// Hands each row, with its number from 1, as a line of text to `take`, until that says it is enough.
    pub fn each(
        &self,
        mut take: impl FnMut(u64, &dyn Fn(&mut Vec<u8>) -> io::Result<()>) -> io::Result<bool>,
    ) -> io::Result<()> {
        for (at, row) in self.reader.get_row_iter(None).map_err(wrong)?.enumerate() {
            let row = row.map_err(wrong)?;
            if !take(at as u64 + 1, &|out| put_row(out, &row))? {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn put_row(out: &mut Vec<u8>, row: &Row) -> io::Result<()> {
    for (at, (_, field)) in row.get_column_iter().enumerate() {
        if at > 0 {
            out.push(b'\t');
        }
        put_field(out, field)?;
    }
    out.push(b'\n');
    Ok(())
}

fn put_field(out: &mut Vec<u8>, field: &Field) -> io::Result<()> {
    match field {
        Field::Null => out.extend_from_slice(b"\\N"),
        Field::Str(text) => put_escaped(out, text.as_bytes()),
        Field::Bytes(bytes) => {
            out.extend_from_slice(b"\\\\x");
            for byte in bytes.data() {
                write!(out, "{byte:02x}")?;
            }
        }
        Field::Bool(value) => out.push(if *value { b't' } else { b'f' }),
        Field::Float(value) => put_number(out, f64::from(*value), value)?,
        Field::Double(value) => put_number(out, *value, value)?,
        Field::Float16(value) => put_number(out, f64::from(*value), &f32::from(*value))?,
        Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => {
            put_escaped(out, field.to_json_value().to_string().as_bytes());
        }
        plain => write!(out, "{plain}")?,
    }
    Ok(())
}

fn put_number(out: &mut Vec<u8>, value: f64, shown: &dyn std::fmt::Display) -> io::Result<()> {
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
        Ok(())
    } else {
        write!(out, "{shown}")
    }
}

fn put_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => out.push(*other),
        }
    }
}

fn wrong(error: parquet::errors::ParquetError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the Parquet file cannot be read: {error}"))
}
