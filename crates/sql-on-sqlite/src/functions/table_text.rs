//! The text of a table, as the schema keeps it, with a constraint more or less.

use polyshard_sql::SqlError;

use crate::fail::fail;

/// With one more constraint behind all others.
pub(super) fn with_constraint(table: &str, constraint: &str) -> Result<String, SqlError> {
    let end = marks(table).filter(|(_, mark, depth)| (*mark, *depth) == (b')', 0)).last();
    let (end, ..) = end.ok_or_else(|| fail("XX000", "the text of a table has no end"))?;
    Ok(format!("{}, {constraint}{}", &table[..end], &table[end..]))
}

/// Without the foreign key or check of this name, which is quoted; as it is if it has none.
pub(super) fn without_reference(table: &str, name: &str) -> String {
    let heads = ["FOREIGN KEY", "CHECK"].map(|kind| format!("CONSTRAINT {name} {kind} "));
    let mut begin = None;
    for (at, mark, depth) in marks(table) {
        let outermost = matches!((mark, depth), (b',', 1) | (b')', 0));
        if let (Some(begin), true) = (begin, outermost) {
            return format!("{}{}", &table[..begin], &table[at..]);
        }
        let rest = table[at + 1..].trim_start();
        if outermost && heads.iter().any(|head| rest.starts_with(head.as_str())) {
            begin = Some(at);
        }
    }
    table.to_owned()
}

/// What an index is on, part by part, from its definition: columns by their names, expressions as they are written.
pub(crate) fn index_parts(definition: &str) -> Vec<String> {
    let Some((_, list)) = definition.split_once(" USING btree ") else { return Vec::new() };
    let (mut begin, mut parts) = (1, Vec::new());
    for (at, mark, depth) in marks(list) {
        let ends = (mark, depth) == (b')', 0);
        if ends || (mark, depth) == (b',', 1) {
            parts.push(index_part(list[begin..at].trim()));
            begin = at + 1;
        }
        if ends {
            break;
        }
    }
    parts
}

/// Without its order and its class.
fn index_part(part: &str) -> String {
    let part = part.strip_suffix(" DESC").unwrap_or(part);
    let part = match part.rsplit_once(' ') {
        Some((rest, class)) if class.ends_with("_ops") => rest,
        _ => part,
    };
    let name = part.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match name.map(|name| name.replace("\"\"", "\u{0}")) {
        Some(name) if !name.contains('"') => name.replace('\u{0}', "\""),
        _ => part.to_owned(),
    }
}

/// With a column that may be NULL; its name is quoted.
pub(super) fn without_not_null(table: &str, column: &str) -> String {
    let head = format!("{column} ");
    let mut begin = None;
    for (at, mark, depth) in marks(table) {
        if !matches!((mark, depth), (b'(' | b',', 1) | (b')', 0)) {
            continue;
        }
        if let Some(begin) = begin
            && table[begin..at].trim_start().starts_with(&head)
        {
            let definition = table[begin..at].trim_end_matches(" NOT NULL");
            return format!("{}{definition}{}", &table[..begin], &table[at..]);
        }
        begin = Some(at + 1);
    }
    table.to_owned()
}

/// The commas and parentheses outside of quotes, each with its place and how deep one is behind it.
fn marks(text: &str) -> impl Iterator<Item = (usize, u8, usize)> + '_ {
    let (mut depth, mut quote) = (0_usize, None);
    text.bytes().enumerate().filter_map(move |(at, byte)| {
        match (quote, byte) {
            // A doubled quote ends it and begins it again.
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'(') => {
                depth += 1;
                return Some((at, byte, depth));
            }
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
        let table = "CREATE TABLE \"a\" (\"x, (\" TEXT CHECK (\"x, (\" <> ')'), \
             CONSTRAINT \"p\" PRIMARY KEY (\"x, (\")) STRICT";
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
        let check = with_constraint(&with, "CONSTRAINT \"c\" CHECK ((\"x, (\" <> 'a,b)'))").unwrap();
        assert_eq!(without_reference(&check, "\"c\""), with);
    }

    #[test]
    fn an_index_is_on_its_parts() {
        let parts = |list: &str| {
            index_parts(&format!("CREATE INDEX i ON public.t USING btree ({list}) WHERE (x > 1)"))
        };
        assert_eq!(parts("a, lower(b) text_pattern_ops DESC"), ["a", "lower(b)"]);
        assert_eq!(parts("\"A b\" DESC, \"say \"\"x\"\"\", (c || ',')"), ["A b", "say \"x\"", "(c || ',')"]);
        assert_eq!(parts("f(\"a\", \"b\")"), ["f(\"a\", \"b\")"]);
    }

    #[test]
    fn a_column_may_be_null() {
        let table = "CREATE TABLE \"(a\" (\"b\" INT NOT NULL, \"a b\" TEXT \
             COLLATE pg_numeric NOT NULL, \"c\" INT) STRICT";
        let numeric = table.replace("pg_numeric NOT NULL", "pg_numeric");
        assert_eq!(without_not_null(table, "\"a b\""), numeric);
        assert_eq!(without_not_null(table, "\"b\""), table.replace("INT NOT NULL", "INT"));
        assert_eq!(without_not_null(table, "\"c\""), table);
    }
}
