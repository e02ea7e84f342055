//! The text of a table, as the schema keeps it, with a constraint more or less.

use polyshard_sql::SqlError;

use crate::fail::fail;

/// With one more constraint behind all others.
pub(super) fn with_constraint(table: &str, constraint: &str) -> Result<String, SqlError> {
    let end = marks(table).filter(|(_, mark, depth)| (*mark, *depth) == (b')', 0)).last();
    let (end, ..) = end.ok_or_else(|| fail("XX000", "the text of a table has no end"))?;
    Ok(format!("{}, {constraint}{}", &table[..end], &table[end..]))
}

/// Without the foreign key of this name, which is quoted; as it is if it has none.
pub(super) fn without_reference(table: &str, name: &str) -> String {
    let head = format!("CONSTRAINT {name} FOREIGN KEY ");
    let mut begin = None;
    for (at, mark, depth) in marks(table) {
        let outermost = matches!((mark, depth), (b',', 1) | (b')', 0));
        if let (Some(begin), true) = (begin, outermost) {
            return format!("{}{}", &table[..begin], &table[at..]);
        }
        if outermost && table[at + 1..].trim_start().starts_with(&head) {
            begin = Some(at);
        }
    }
    table.to_owned()
}

/// The commas and closing parentheses outside of quotes, each with its place and how deep it is.
fn marks(text: &str) -> impl Iterator<Item = (usize, u8, usize)> + '_ {
    let (mut depth, mut quote) = (0_usize, None);
    text.bytes().enumerate().filter_map(move |(at, byte)| {
        match (quote, byte) {
            // A doubled quote ends it and begins it again.
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(') => depth += 1,
            (None, b')') => {
                depth = depth.saturating_sub(1);
                return Some((at, byte, depth));
            }
            (None, b',') => return Some((at, byte, depth)),
            (None, _) => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_comes_and_goes() {
        let table = "CREATE TABLE \"a\" (\"x, (\" TEXT CHECK (\"x, (\" <> ')'), CONSTRAINT \"p\" PRIMARY KEY (\"x, (\")) STRICT";
        let key =
            "CONSTRAINT \"k\" FOREIGN KEY (\"x, (\") REFERENCES \"b\" (\"y\") DEFERRABLE INITIALLY DEFERRED";
        let with = with_constraint(table, key).unwrap();
        assert_eq!(with, table.replace(") STRICT", &format!(", {key}) STRICT")));
        let other = "CONSTRAINT \"k2\" FOREIGN KEY (\"x, (\") REFERENCES \"b\" (\"y\")";
        let both = with_constraint(&with, other).unwrap();
        assert_eq!(without_reference(&both, "\"k2\""), with);
        assert_eq!(without_reference(&both, "\"k\""), with_constraint(table, other).unwrap());
        assert_eq!(without_reference(table, "\"k\""), table);
        assert_eq!(without_reference(table, "\"p\""), table);
    }
}
