//! Schema changes, told by their first words: which tag they answer with, and whether they are like the others.

use crate::cursor::Cursor;
use crate::kind::{Ddl, RelationName};

/// Kinds of objects whose names are two words or more; all others are one.
const LONG_KINDS: [(&[&str], &str); 14] = [
    (&["materialized", "view"], "MATERIALIZED VIEW"),
    (&["foreign", "table"], "FOREIGN TABLE"),
    (&["foreign", "data", "wrapper"], "FOREIGN DATA WRAPPER"),
    (&["event", "trigger"], "EVENT TRIGGER"),
    (&["user", "mapping"], "USER MAPPING"),
    (&["access", "method"], "ACCESS METHOD"),
    (&["operator", "class"], "OPERATOR CLASS"),
    (&["operator", "family"], "OPERATOR FAMILY"),
    (&["text", "search", "configuration"], "TEXT SEARCH CONFIGURATION"),
    (&["text", "search", "dictionary"], "TEXT SEARCH DICTIONARY"),
    (&["text", "search", "parser"], "TEXT SEARCH PARSER"),
    (&["text", "search", "template"], "TEXT SEARCH TEMPLATE"),
    (&["default", "privileges"], "DEFAULT PRIVILEGES"),
    (&["large", "object"], "LARGE OBJECT"),
];

/// Reads what follows the first word, which is in lower case.
pub(crate) fn ddl(verb: &str, cursor: &mut Cursor<'_>) -> Ddl {
    let tag_verb = verb.to_ascii_uppercase();
    if !matches!(verb, "create" | "alter" | "drop") {
        return other(verb, tag_verb, cursor);
    }
    cursor.take_all(&["or", "replace"]);
    let mut temporary = false;
    while cursor.is("temp") || cursor.is("temporary") || cursor.is("global") || cursor.is("local") {
        temporary |= cursor.is("temp") || cursor.is("temporary");
        cursor.advance();
    }
    for noise in ["unlogged", "unique", "recursive", "trusted", "procedural", "constraint"] {
        cursor.take(noise);
    }
    let object = kind_words(cursor);
    let concurrently = cursor.take("concurrently");
    if !cursor.take_all(&["if", "not", "exists"]) {
        cursor.take_all(&["if", "exists"]);
    }
    cursor.take("only");
    let name = match object.as_str() {
        // An index may have no name, and then the word ON stands there.
        "INDEX" if verb == "create" && cursor.is("on") => None,
        _ => cursor.qualified().map(|(schema, name)| RelationName { schema, name }),
    };
    let temporary = temporary
        || name.as_ref().is_some_and(|name| name.schema.as_deref().is_some_and(|s| s.starts_with("pg_temp")));
    let outside_transaction =
        concurrently || matches!(object.as_str(), "DATABASE" | "TABLESPACE" | "SUBSCRIPTION" | "SYSTEM");
    Ddl { tag: format!("{tag_verb} {object}"), temporary, outside_transaction, name }
}

fn other(verb: &str, tag_verb: String, cursor: &mut Cursor<'_>) -> Ddl {
    let tag = match verb {
        "refresh" => "REFRESH MATERIALIZED VIEW".to_owned(),
        "security" => "SECURITY LABEL".to_owned(),
        "import" => "IMPORT FOREIGN SCHEMA".to_owned(),
        "reassign" => "REASSIGN OWNED".to_owned(),
        _ => tag_verb,
    };
    let mut concurrently = false;
    let mut ahead = cursor.clone();
    while ahead.peek().is_some() {
        concurrently |= ahead.is("concurrently");
        ahead.advance();
    }
    let whole = cursor.is("database") || cursor.is("system") || cursor.is("schema");
    let outside_transaction = verb == "reindex" && (concurrently || whole);
    let name = if verb == "refresh" {
        cursor.take_all(&["materialized", "view"]);
        cursor.take("concurrently");
        cursor.qualified().map(|(schema, name)| RelationName { schema, name })
    } else {
        None
    };
    Ddl { tag, temporary: false, outside_transaction, name }
}

fn kind_words(cursor: &mut Cursor<'_>) -> String {
    for (words, kind) in LONG_KINDS {
        if cursor.take_all(words) {
            return kind.to_owned();
        }
    }
    cursor.name().unwrap_or_default().to_ascii_uppercase()
}
