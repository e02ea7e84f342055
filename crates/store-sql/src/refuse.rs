//! What would leave something behind on a session of a shard, which the next client would find.

use polyshard_sql::{Kind, SqlError, Statement};

/// Functions that keep something for a session beyond its transaction, with what to use instead.
const SESSION_FUNCTIONS: [(&str, &str); 4] = [
    ("pg_advisory_unlock", "Locks of transactions (pg_advisory_xact_lock) end by themselves."),
    ("pg_advisory_lock", "Use pg_advisory_xact_lock inside a transaction."),
    ("pg_try_advisory_lock", "Use pg_try_advisory_xact_lock inside a transaction."),
    ("set_config", "Use SET, or SET LOCAL inside a transaction."),
];

/// Settings that the door must know of.
const READ_BY_THE_DOOR: [&str; 4] =
    ["search_path", "standard_conforming_strings", "client_encoding", "transaction_isolation"];

/// Why a statement is refused, whatever tables it concerns.
pub(crate) fn refusal(statement: &Statement) -> Option<SqlError> {
    if let Kind::Ddl(ddl) = statement.kind()
        && ddl.temporary
        && !ends_with_transaction(statement)
    {
        if contains(statement.text(), "sequelize_caught_exception") {
            return Some(SqlError::unsupported(
                "findOrCreate makes a temporary function, and sessions of shards are shared",
                "Use findCreateFind, which takes the same arguments, or upsert.",
            ));
        }
        return Some(SqlError::unsupported(
            "temporary objects that outlive their transaction are not offered: sessions of shards are shared",
            "Use CREATE TEMP TABLE … ON COMMIT DROP inside a transaction, WITH … AS (…), or an ordinary table.",
        ));
    }
    let text = statement.text();
    let harmless = |function: &str| {
        function == "set_config" && (is_local_config(text) || polyshard_sql::sets_jit_alone(text))
    };
    let (function, hint) =
        SESSION_FUNCTIONS.iter().find(|(function, _)| contains(text, function) && !harmless(function))?;
    if contains(text, "restrict_nonsystem_relation_kind") {
        // What pg_dump says first.
        return Some(SqlError::unsupported(
            "pg_dump reads one database, and the tables are on several",
            "Use 'polyshard backup', COPY … TO STDOUT, or pg_dump on each shard by itself.",
        ));
    }
    Some(SqlError::unsupported(
        format!("{function} works on a session, and sessions of shards are shared"),
        *hint,
    ))
}

/// Whether it makes a temporary table that is gone with its transaction.
fn ends_with_transaction(statement: &Statement) -> bool {
    use polyshard_sql::ast::{OnCommit, Statement as Tree};
    matches!(statement.ast(), Some(Tree::CreateTable(table)) if table.on_commit == Some(OnCommit::Drop))
}

/// Whether a text has something in it for which a statement may be refused: then the whole statement is looked at.
pub(crate) fn is_suspect(text: &str) -> bool {
    // Most values are shorter than any of the names.
    let shortest = SESSION_FUNCTIONS.iter().map(|(function, _)| function.len()).min();
    shortest.is_some_and(|shortest| text.len() >= shortest)
        && SESSION_FUNCTIONS.iter().any(|(function, _)| contains(text, function))
}

/// Whether a word is in a text, in capitals or not.
fn contains(text: &str, word: &str) -> bool {
    let (text, word) = (text.as_bytes(), word.as_bytes());
    text.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
}

/// Whether every set_config says by a literal that it is for the transaction alone.
fn is_local_config(text: &str) -> bool {
    local_configs(text).is_some()
}

/// What the set_configs of a statement set, in small letters; none if one of them may be for more than the transaction.
pub(crate) fn local_configs(text: &str) -> Option<Vec<String>> {
    let text = text.to_ascii_lowercase();
    let name = |after: &str| {
        let arguments = arguments(after)?;
        let [name, _, "true"] = arguments.as_slice() else { return None };
        // Names and texts must be read alike by the door and by the shard: those that change it are set by SET.
        let name = name.strip_prefix('\'')?.strip_suffix('\'')?;
        (!name.contains('\'') && !READ_BY_THE_DOOR.contains(&name)).then(|| name.to_owned())
    };
    text.split("set_config").skip(1).map(name).collect()
}

/// The arguments of a call, if where each ends is plain to see: without comments, and texts in plain quotes alone.
fn arguments(after: &str) -> Option<Vec<&str>> {
    let call = after.trim_start().strip_prefix('(')?;
    let (mut depth, mut quoted, mut start, mut found) = (0_usize, false, 0, Vec::new());
    for (at, byte) in call.bytes().enumerate() {
        let next = call.as_bytes().get(at + 1).copied().unwrap_or_default();
        match (byte, next) {
            (b'\\', _) => return None,
            (b'\'', _) => quoted = !quoted,
            _ if quoted => {}
            (b'-', b'-') | (b'/', b'*') | (b'"', _) => return None,
            // A parameter; anything else begins a text.
            (b'$', next) if !next.is_ascii_digit() => return None,
            (b'(' | b'[', _) => depth += 1,
            (b')', _) if depth == 0 => {
                found.push(call[start..at].trim());
                return Some(found);
            }
            (b')' | b']', _) => depth = depth.checked_sub(1)?,
            (b',', _) if depth == 0 => {
                found.push(call[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::is_local_config;

    #[test]
    fn a_setting_is_local_only_if_its_own_last_argument_says_so() {
        assert!(is_local_config("SELECT set_config('app.user', $1, true)"));
        assert!(is_local_config(
            "SELECT set_config('app.a', concat('x', f(1)), true), pg_catalog.set_config ( 'b', 'it''s', TRUE )"
        ));
        // The parentheses inside end before the call does.
        assert!(!is_local_config("SELECT set_config('app.a', concat('x', true), false)"));
        assert!(!is_local_config("SELECT set_config('app.a', (true)::text, (1 = 1))"));
        assert!(!is_local_config("SELECT set_config('app.a', 'x) , true', false)"));
        assert!(!is_local_config("SELECT set_config('app.a', $$x$$, true)"));
        assert!(!is_local_config("SELECT set_config('app.a', 'x', /* true */ false)"));
        assert!(!is_local_config("SELECT set_config('search_path', 'x', true)"));
        assert!(!is_local_config("SELECT set_config('app.' || 'a', 'x', true), set_config"));
    }
}
