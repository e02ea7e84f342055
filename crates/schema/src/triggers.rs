//! What triggers and rules of sharded tables do, as far as their text tells: rows stay under the key that they were
//! routed by, and nothing is written on one shard alone that every shard, or another one, has (C9).

use polyshard_sql::{Placement, Schema, SqlError, SqlState, Table, TableName};
use serde::Deserialize;

use crate::JournalError;
use crate::introspect;

/// All triggers of users' tables, with the text of what they run, and all rules that do something instead of a write.
pub(crate) const QUESTION: &str = "
SELECT json_build_object('schema', n.nspname, 'table', c.relname, 'what', 'trigger ' || t.tgname,
    'before', t.tgtype & 3 = 3, 'instead', false, 'source', p.prosrc)::text
FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace pn ON pn.oid = p.pronamespace
WHERE NOT t.tgisinternal AND pn.nspname NOT IN ('polyshard', 'pg_catalog')
UNION ALL
SELECT json_build_object('schema', n.nspname, 'table', c.relname, 'what', 'rule ' || r.rulename,
    'before', false, 'instead', true, 'source', '')::text
FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND r.is_instead AND r.ev_type IN ('2', '3')
ORDER BY 1";

/// A trigger or rule of a table.
#[derive(Debug, Deserialize)]
pub(crate) struct Acts {
    schema: String,
    table: String,
    /// `trigger t`, `rule r`.
    what: String,
    /// Whether it can change the row that is written.
    before: bool,
    /// Whether something else is done instead.
    instead: bool,
    source: String,
}

/// The answer to [`QUESTION`].
pub(crate) fn read(rows: &[String]) -> Result<Vec<Acts>, JournalError> {
    rows.iter().map(|row| introspect::parse(row)).collect()
}

/// Refuses triggers and rules that do not go with where the tables of this schema are.
pub(crate) fn check(all: &[Acts], schema: &Schema) -> Result<(), SqlError> {
    all.iter().try_for_each(|acts| acts.check(schema))
}

impl Acts {
    fn check(&self, schema: &Schema) -> Result<(), SqlError> {
        let name = TableName { schema: self.schema.clone(), name: self.table.clone() };
        let Some(table) = schema.tables.get(&name) else { return Ok(()) };
        let Placement::Sharded { map, column, .. } = &table.placement else { return Ok(()) };
        let key = &table.columns[*column].name;
        let words = words(&self.source);
        if self.instead || (self.before && assigns(&words, key)) {
            let message = format!("{} of table {name} may change its key column {key}", self.what);
            let hint = "rows are placed by the key that the statement gives: drop it, or have the application \
                        give the key";
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).hint(hint));
        }
        for (of, written) in writes(&words) {
            let Some(target) = found(schema, of, written) else { continue };
            let kind = match &target.placement {
                Placement::Sharded { map: of, .. } if of == map => continue,
                // It may be declared yet, and is looked at again then.
                Placement::Reference { declared: false } => continue,
                Placement::Sharded { .. } => "of another map",
                Placement::Reference { .. } => "that every shard has",
                Placement::Local(_) => "that one shard has",
            };
            let message = format!("{} of table {name} writes to table {}, {kind}", self.what, target.name);
            let hint = "a trigger works on the shard of its row alone: write that table by a statement of its own, or \
                        shard both by the same map";
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).hint(hint));
        }
        Ok(())
    }
}

/// The table that a name means; one without a schema is looked for in `public` first.
fn found<'s>(schema: &'s Schema, of: Option<&str>, name: &str) -> Option<&'s Table> {
    let full = TableName { schema: of.unwrap_or("public").to_owned(), name: name.to_owned() };
    let elsewhere = || schema.tables.iter().find(|(known, _)| of.is_none() && known.name == name);
    schema.tables.get(&full).or_else(|| elsewhere().map(|(_, table)| table)).map(|table| &**table)
}

/// Whether a body assigns to a column of the new row: `NEW.c := …`, `NEW.c = …` as a statement, or `INTO NEW.c`.
fn assigns(words: &[String], column: &str) -> bool {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|known| known == word);
    (0..words.len()).filter(|at| is(*at, "new") && is(at + 1, ".") && is(at + 2, column)).any(|at| {
        let before = at.checked_sub(1).map(|before| words[before].as_str());
        let begins = matches!(before, None | Some(";" | "begin" | "then" | "else" | "loop"));
        is(at + 3, ":=") || (is(at + 3, "=") && begins) || is_into(words, at)
    })
}

/// Whether the target at this place is in the list of an INTO.
fn is_into(words: &[String], mut at: usize) -> bool {
    loop {
        let before = |back: usize| at.checked_sub(back).map(|place| words[place].as_str());
        match before(1) {
            Some("into") => return true,
            Some("strict") => return before(2) == Some("into"),
            Some(",") if before(3) == Some(".") => at -= 4,
            Some(",") if at >= 2 => at -= 2,
            _ => return false,
        }
    }
}

/// The tables that a body writes to, each with its schema if it is said. What EXECUTE makes up is not seen.
fn writes(words: &[String]) -> Vec<(Option<&str>, &str)> {
    let word = |at: usize| words.get(at).map(String::as_str);
    let mut found = Vec::new();
    for at in 0..words.len() {
        let mut name = match (word(at), word(at + 1)) {
            (Some("insert" | "merge"), Some("into")) | (Some("delete"), Some("from")) => at + 2,
            (Some("truncate"), Some("table")) => at + 2,
            (Some("truncate"), _) => at + 1,
            // Not FOR UPDATE, nor ON CONFLICT DO UPDATE SET.
            (Some("update"), next) if next != Some("set") => match at.checked_sub(1).and_then(word) {
                Some("for" | "key") => continue,
                _ => at + 1,
            },
            _ => continue,
        };
        if word(name) == Some("only") {
            name += 1;
        }
        match (word(name), word(name + 1), word(name + 2)) {
            (Some(schema), Some("."), Some(table)) => found.push((Some(schema), table)),
            (Some(table), ..) => found.push((None, table)),
            _ => {}
        }
    }
    found
}

/// The words of a body, in small letters unless they are quoted, and its marks; comments and texts are left out.
fn words(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let after = |mark: &str| rest.find(mark).map_or(rest.len(), |at| at + mark.len());
        let length = if rest.starts_with("--") {
            after("\n")
        } else if rest.starts_with("/*") {
            after("*/")
        } else if first == '\'' || first == '"' {
            let length = quoted(rest, first);
            if first == '"' {
                let name = rest[1..length].strip_suffix('"').unwrap_or_default();
                found.push(name.replace("\"\"", "\""));
            } else {
                found.push("'".to_owned());
            }
            length
        } else if first.is_alphabetic() || first == '_' {
            let inside = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
            let length = rest.find(|letter| !inside(letter)).unwrap_or(rest.len());
            found.push(rest[..length].to_lowercase());
            length
        } else if rest.starts_with(":=") {
            found.push(":=".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                found.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    found
}

/// How long something in quotes is, which are doubled inside.
fn quoted(text: &str, quote: char) -> usize {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            continue;
        }
        if letters.peek().is_some_and(|(_, next)| *next == quote) {
            letters.next();
        } else {
            return at + 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(body: &str) -> bool {
        assigns(&words(body), "tenant")
    }

    #[test]
    fn an_assignment_is_told_from_a_comparison() {
        assert!(sets("BEGIN NEW.tenant := 1; RETURN NEW; END"));
        assert!(sets("begin\n  new . \"tenant\" = 1; end"));
        assert!(sets("BEGIN IF a THEN NEW.tenant = 1; END IF; END"));
        assert!(sets("BEGIN SELECT 1, 2 INTO NEW.id, NEW.tenant; END"));
        assert!(sets("BEGIN SELECT 1 INTO STRICT NEW.tenant; END"));
        assert!(!sets("BEGIN IF NEW.tenant = 1 THEN RETURN NULL; END IF; RETURN NEW; END"));
        assert!(!sets("BEGIN -- NEW.tenant := 1;\n NEW.id := NEW.tenant; /* NEW.tenant := 2 */ END"));
        assert!(!sets("BEGIN RAISE NOTICE 'NEW.tenant := 1;'; SELECT a, NEW.tenant INTO b; END"));
    }

    #[test]
    fn the_tables_that_are_written_are_found() {
        let body = "BEGIN INSERT INTO log VALUES (NEW.a) ON CONFLICT DO UPDATE SET a = 1; \
                    UPDATE ONLY \"Other\".t SET b = 1; DELETE FROM gone; SELECT 1 FROM read FOR UPDATE; \
                    SELECT 1 FROM kept FOR NO KEY UPDATE; TRUNCATE TABLE empty; END";
        let words = words(body);
        let expected = [(None, "log"), (Some("Other"), "t"), (None, "gone"), (None, "empty")];
        assert_eq!(writes(&words), expected);
    }
}
