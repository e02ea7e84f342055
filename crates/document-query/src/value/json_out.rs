//! Values as JSON text, in the order of their properties and without spaces.

use std::fmt::Write;

use super::{Value, format_number};

impl Value {
    /// The JSON text; empty for undefined. Numbers that JSON has no form for are written as strings, as the service
    /// does: `"NaN"`, `"Infinity"`, `"-Infinity"`.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    /// Appends the JSON text.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Value::Undefined => {}
            Value::Null => out.push_str("null"),
            Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Value::Number(number) if number.is_finite() => out.push_str(&format_number(*number)),
            Value::Number(number) => write_json_string(&format_number(*number), out),
            Value::String(text) => write_json_string(text, out),
            Value::Array(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    separate(position, out);
                    item.write_json(out);
                }
                out.push(']');
            }
            Value::Object(object) => {
                out.push('{');
                for (position, (key, value)) in object.iter().enumerate() {
                    separate(position, out);
                    write_json_string(key, out);
                    out.push(':');
                    value.write_json(out);
                }
                out.push('}');
            }
        }
    }
}

fn separate(position: usize, out: &mut String) {
    if position > 0 {
        out.push(',');
    }
}

/// Appends `text` as a JSON string.
pub(crate) fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (position, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0C => "\\f",
            0x00..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[plain..position]);
        if escape.is_empty() {
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.push_str(escape);
        }
        plain = position + 1;
    }
    out.push_str(&text[plain..]);
    out.push('"');
}
