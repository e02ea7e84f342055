//! Statements that need no grammar are told by their first words: transactions, settings, cursors, schema changes.

use crate::call;
use crate::copy;
use crate::cursor::Cursor;
use crate::ddl;
use crate::error::{SqlError, SqlState};
use crate::kind::{
    Declare, Direction, Discard, Execute, Explain, Fetch, Isolation, Kind, Prepare, RelationName, Setting,
    TransactionModes,
};
use crate::lexer::Lexeme;
use crate::statement::nested;

/// The kind of a statement, from its first words; none if the parser must tell.
pub(crate) fn kind(cursor: &mut Cursor<'_>) -> Result<Option<Kind>, SqlError> {
    let Some(first) = cursor.peek() else { return Ok(None) };
    if first.lexeme == Lexeme::Mark(b'(') {
        return Ok(None);
    }
    let word = cursor.text_of(first).to_ascii_lowercase();
    if first.lexeme != Lexeme::Word {
        return Err(syntax_error(cursor));
    }
    if word == "select" {
        let setting = || call::set_config(cursor).map(Kind::SetConfig);
        return Ok(call::call(cursor).map(Kind::Polyshard).or_else(setting));
    }
    if matches!(word.as_str(), "with" | "insert" | "update" | "delete" | "merge" | "values" | "table") {
        return Ok(None);
    }
    cursor.advance();
    let kind = match word.as_str() {
        "begin" | "start" => Kind::Begin(begin(cursor)?),
        "commit" | "end" => commit(cursor)?,
        "rollback" | "abort" => rollback(cursor)?,
        "savepoint" => Kind::Savepoint(name(cursor)?),
        "release" => {
            cursor.take("savepoint");
            Kind::Release(name(cursor)?)
        }
        "prepare" => prepare(cursor)?,
        "execute" => execute(cursor)?,
        "deallocate" => {
            cursor.take("prepare");
            Kind::Deallocate(name_or_all(cursor)?)
        }
        "declare" => declare(cursor)?,
        "fetch" | "move" => fetch(cursor, word == "move")?,
        "close" => Kind::Close(name_or_all(cursor)?),
        "set" => set(cursor)?,
        "reset" => return reset(cursor).map(Some),
        "show" => Kind::Show(setting_name(cursor)?),
        "discard" => discard(cursor)?,
        "explain" => return explain(cursor).map(Some),
        "copy" => return copy::copy(cursor).map(|copy| Some(Kind::Copy(Box::new(copy)))),
        "truncate" => {
            cursor.take("table");
            let tables = relations(cursor)?;
            while cursor.advance().is_some() {}
            Kind::Truncate(tables)
        }
        "lock" => {
            cursor.take("table");
            let tables = relations(cursor)?;
            while cursor.advance().is_some() {}
            Kind::Lock(tables)
        }
        "listen" => Kind::Listen(name(cursor)?),
        "unlisten" => Kind::Unlisten(if cursor.take_operator("*") { None } else { Some(name(cursor)?) }),
        "notify" => {
            let channel = name(cursor)?;
            let payload = if cursor.take_mark(b',') { cursor.literal() } else { None };
            Kind::Notify { channel, payload }
        }
        "call" => return Ok(Some(Kind::Call)),
        "do" => return Ok(Some(Kind::Do)),
        "vacuum" | "analyze" | "analyse" | "checkpoint" => return Ok(Some(Kind::Vacuum)),
        "create" | "alter" | "drop" | "comment" | "grant" | "revoke" | "reindex" | "refresh" | "cluster"
        | "security" | "import" | "reassign" => return Ok(Some(Kind::Ddl(ddl::ddl(&word, cursor)))),
        "load" => return Ok(Some(Kind::Unparsed)),
        _ => return Err(syntax_error_at(cursor, first)),
    };
    if cursor.is_at_end() { Ok(Some(kind)) } else { Err(syntax_error(cursor)) }
}

pub(crate) fn syntax_error(cursor: &Cursor<'_>) -> SqlError {
    match cursor.peek() {
        Some(token) => syntax_error_at(cursor, token),
        None => SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input"),
    }
}

fn syntax_error_at(cursor: &Cursor<'_>, token: crate::lexer::Token) -> SqlError {
    let near = cursor.text_of(token);
    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{near}\""))
}

fn name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    cursor.name().ok_or_else(|| syntax_error(cursor))
}

fn text(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    cursor.literal().ok_or_else(|| syntax_error(cursor))
}

fn name_or_all(cursor: &mut Cursor<'_>) -> Result<Option<String>, SqlError> {
    if cursor.take("all") { Ok(None) } else { name(cursor).map(Some) }
}

/// A relation's name; `ONLY` and `*` make no difference to where its rows are.
pub(crate) fn relation(cursor: &mut Cursor<'_>) -> Result<RelationName, SqlError> {
    cursor.take("only");
    let (schema, name) = cursor.qualified().ok_or_else(|| syntax_error(cursor))?;
    cursor.take_operator("*");
    Ok(RelationName { schema, name })
}

fn relations(cursor: &mut Cursor<'_>) -> Result<Vec<RelationName>, SqlError> {
    let mut found = vec![relation(cursor)?];
    while cursor.take_mark(b',') {
        found.push(relation(cursor)?);
    }
    Ok(found)
}

fn begin(cursor: &mut Cursor<'_>) -> Result<TransactionModes, SqlError> {
    if !cursor.take("transaction") {
        cursor.take("work");
    }
    modes(cursor)
}

fn modes(cursor: &mut Cursor<'_>) -> Result<TransactionModes, SqlError> {
    let mut modes = TransactionModes::default();
    while !cursor.is_at_end() {
        if cursor.take_all(&["isolation", "level"]) {
            modes.isolation = Some(if cursor.take_all(&["read", "uncommitted"]) {
                Isolation::ReadUncommitted
            } else if cursor.take_all(&["read", "committed"]) {
                Isolation::ReadCommitted
            } else if cursor.take_all(&["repeatable", "read"]) {
                Isolation::RepeatableRead
            } else if cursor.take("serializable") {
                Isolation::Serializable
            } else {
                return Err(syntax_error(cursor));
            });
        } else if cursor.take_all(&["read", "only"]) {
            modes.read_only = Some(true);
        } else if cursor.take_all(&["read", "write"]) {
            modes.read_only = Some(false);
        } else if cursor.take_all(&["not", "deferrable"]) {
            modes.deferrable = Some(false);
        } else if cursor.take("deferrable") {
            modes.deferrable = Some(true);
        } else {
            return Err(syntax_error(cursor));
        }
        cursor.take_mark(b',');
    }
    Ok(modes)
}

fn chain(cursor: &mut Cursor<'_>) -> bool {
    if !cursor.take("transaction") {
        cursor.take("work");
    }
    if cursor.take_all(&["and", "no", "chain"]) {
        return false;
    }
    cursor.take_all(&["and", "chain"])
}

fn commit(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    if cursor.take("prepared") {
        return text(cursor).map(Kind::CommitPrepared);
    }
    Ok(Kind::Commit { chain: chain(cursor) })
}

fn rollback(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    if cursor.take("prepared") {
        return text(cursor).map(Kind::RollbackPrepared);
    }
    let chain = chain(cursor);
    if !cursor.take("to") {
        return Ok(Kind::Rollback { chain });
    }
    cursor.take("savepoint");
    name(cursor).map(Kind::RollbackTo)
}

fn prepare(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    let mut ahead = cursor.clone();
    if ahead.take("transaction") && ahead.peek().is_some_and(|token| token.lexeme == Lexeme::Text) {
        *cursor = ahead;
        return text(cursor).map(Kind::PrepareTransaction);
    }
    let name = name(cursor)?;
    let types = match cursor.is_mark(b'(') {
        true => split(cursor.parenthesised().ok_or_else(|| syntax_error(cursor))?)?,
        false => Vec::new(),
    };
    if !cursor.take("as") {
        return Err(syntax_error(cursor));
    }
    let statement = nested(cursor.rest())?;
    while cursor.advance().is_some() {}
    Ok(Kind::Prepare(Box::new(Prepare { name, types, statement })))
}

fn execute(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    let name = name(cursor)?;
    let arguments = match cursor.is_mark(b'(') {
        true => split(cursor.parenthesised().ok_or_else(|| syntax_error(cursor))?)?,
        false => Vec::new(),
    };
    Ok(Kind::Execute(Execute { name, arguments }))
}

/// The parts between the commas that stand in no parentheses.
fn split(text: &str) -> Result<Vec<String>, SqlError> {
    let tokens = crate::lexer::Lexer::tokens(text)?;
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for token in &tokens {
        match token.lexeme {
            Lexeme::Mark(b'(' | b'[') => depth += 1,
            Lexeme::Mark(b')' | b']') => depth = depth.saturating_sub(1),
            Lexeme::Mark(b',') if depth == 0 => {
                parts.push(text[start..token.start].trim().to_owned());
                start = token.end;
            }
            _ => {}
        }
    }
    if !tokens.is_empty() {
        parts.push(text[start..].trim().to_owned());
    }
    Ok(parts)
}

fn declare(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    let name = name(cursor)?;
    let (mut hold, mut scroll, mut binary) = (false, None, false);
    while !cursor.take("for") {
        if cursor.take_all(&["with", "hold"]) {
            hold = true;
        } else if cursor.take_all(&["no", "scroll"]) {
            scroll = Some(false);
        } else if cursor.take("scroll") {
            scroll = Some(true);
        } else if cursor.take("binary") {
            binary = true;
        } else if cursor.peek().is_none_or(|token| token.lexeme != Lexeme::Word) {
            return Err(syntax_error(cursor));
        } else {
            cursor.advance();
        }
    }
    let query = nested(cursor.rest())?;
    while cursor.advance().is_some() {}
    Ok(Kind::Declare(Box::new(Declare { name, hold, scroll, binary, query })))
}

fn fetch(cursor: &mut Cursor<'_>, moves: bool) -> Result<Kind, SqlError> {
    let mut ahead = cursor.clone();
    // A cursor may be called by one of these words; then it is the last.
    let direction = match direction(&mut ahead) {
        Some(direction) if !ahead.is_at_end() => {
            *cursor = ahead;
            direction
        }
        _ => Direction::By(1),
    };
    if !cursor.take("from") {
        cursor.take("in");
    }
    Ok(Kind::Fetch(Fetch { name: name(cursor)?, moves, direction }))
}

/// The direction of FETCH, if one is said.
fn direction(cursor: &mut Cursor<'_>) -> Option<Direction> {
    let count = |cursor: &mut Cursor<'_>| {
        let mut ahead = cursor.clone();
        let count = ahead.literal()?.parse::<i64>().ok()?;
        *cursor = ahead;
        Some(count)
    };
    // Without a number it is one row.
    let several = |cursor: &mut Cursor<'_>| match cursor.take("all") {
        true => Direction::ALL,
        false => count(cursor).unwrap_or(1),
    };
    Some(if cursor.take("next") {
        Direction::By(1)
    } else if cursor.take("prior") {
        Direction::By(-1)
    } else if cursor.take("first") {
        Direction::Absolute(1)
    } else if cursor.take("last") {
        Direction::Absolute(-1)
    } else if cursor.take("absolute") {
        Direction::Absolute(count(cursor)?)
    } else if cursor.take("relative") {
        Direction::Relative(count(cursor)?)
    } else if cursor.take("all") {
        Direction::By(Direction::ALL)
    } else if cursor.take("forward") {
        Direction::By(several(cursor))
    } else if cursor.take("backward") {
        Direction::By(several(cursor).checked_neg()?)
    } else {
        Direction::By(count(cursor)?)
    })
}

fn set(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    if cursor.take_all(&["session", "characteristics", "as", "transaction"]) {
        return Ok(Kind::SetTransaction { session: true, modes: modes(cursor)? });
    }
    let mut local = false;
    let session_authorization = cursor.is("session") && cursor.is_ahead(1, "authorization");
    if cursor.take("local") {
        local = true;
    } else if !session_authorization {
        cursor.take("session");
    }
    if cursor.take("constraints") {
        while cursor.advance().is_some() {}
        return Ok(Kind::SetConstraints);
    }
    if cursor.take("transaction") {
        if cursor.is("snapshot") {
            let hint = "Snapshots cannot be passed between sessions here; use one session.";
            return Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT is not supported", hint));
        }
        return Ok(Kind::SetTransaction { session: false, modes: modes(cursor)? });
    }
    let name = setting_name(cursor)?;
    let keyword_only =
        matches!(name.as_str(), "timezone" | "role" | "session_authorization" | "client_encoding");
    if !cursor.take_operator("=") && !cursor.take("to") && !keyword_only {
        return Err(syntax_error(cursor));
    }
    if cursor.take("default")
        || name == "timezone" && cursor.take("local")
        || name == "role" && cursor.take("none")
    {
        return Ok(Kind::Set(Setting { local, name, values: None }));
    }
    let mut values = vec![setting_value(cursor)?];
    while cursor.take_mark(b',') {
        values.push(setting_value(cursor)?);
    }
    Ok(Kind::Set(Setting { local, name, values: Some(values) }))
}

/// A setting's name; the spellings in several words are turned into the name that SHOW knows.
fn setting_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    if cursor.take_all(&["time", "zone"]) {
        return Ok("timezone".to_owned());
    }
    if cursor.take_all(&["session", "authorization"]) {
        return Ok("session_authorization".to_owned());
    }
    if cursor.take_all(&["transaction", "isolation", "level"]) {
        return Ok("transaction_isolation".to_owned());
    }
    if cursor.take("names") {
        return Ok("client_encoding".to_owned());
    }
    if cursor.take("schema") {
        return Ok("search_path".to_owned());
    }
    let mut full = name(cursor)?.to_ascii_lowercase();
    while cursor.take_mark(b'.') {
        full.push('.');
        full.push_str(&name(cursor)?.to_ascii_lowercase());
    }
    Ok(full)
}

fn setting_value(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    if cursor.take("interval") {
        // SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE
        let value = text(cursor)?;
        cursor.take_all(&["hour", "to", "minute"]);
        return Ok(value);
    }
    match cursor.literal() {
        Some(value) => Ok(value),
        None => name(cursor),
    }
}

fn reset(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    if cursor.take("all") {
        return Ok(Kind::Reset(None));
    }
    setting_name(cursor).map(|name| Kind::Reset(Some(name)))
}

fn discard(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    let what = match name(cursor)?.as_str() {
        "all" => Discard::All,
        "plans" => Discard::Plans,
        "sequences" => Discard::Sequences,
        "temp" | "temporary" => Discard::Temporary,
        _ => return Err(syntax_error(cursor)),
    };
    Ok(Kind::Discard(what))
}

fn explain(cursor: &mut Cursor<'_>) -> Result<Kind, SqlError> {
    let (mut analyze, mut format) = (false, "text".to_owned());
    let mut ahead = cursor.clone();
    let options = ahead.parenthesised().filter(|_| !ahead.is_at_end());
    match options {
        // `EXPLAIN (SELECT 1)` ends with its parentheses; options are followed by a statement.
        Some(options) => {
            for option in split(options)? {
                let mut words = option.split_whitespace();
                let name = words.next().unwrap_or_default().to_ascii_lowercase();
                let value = words.next().unwrap_or("true").trim_matches('\'').to_ascii_lowercase();
                match name.as_str() {
                    "analyze" | "analyse" => analyze = !matches!(value.as_str(), "false" | "off" | "0"),
                    "format" => format = value,
                    _ => {}
                }
            }
            *cursor = ahead;
        }
        None => {
            analyze = cursor.take("analyze") || cursor.take("analyse");
            cursor.take("verbose");
        }
    }
    let rest = cursor.rest();
    let statement = nested(rest)?;
    let prefix = cursor.before().trim_end().to_owned();
    Ok(Kind::Explain(Box::new(Explain { analyze, format, prefix, statement })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(sql: &str) -> Option<(String, bool, Direction)> {
        let statement = crate::statements(sql).ok()?.remove(0);
        let Kind::Fetch(Fetch { name, moves, direction }) = statement.kind() else { return None };
        Some((name.clone(), *moves, *direction))
    }

    #[test]
    fn fetch_says_which_rows_of_which_cursor() {
        let of = |name: &str, direction| Some((name.to_owned(), false, direction));
        let (by, absolute) = (Direction::By, Direction::Absolute);
        assert_eq!(fetched("FETCH c"), of("c", by(1)));
        assert_eq!(fetched("FETCH next"), of("next", by(1)));
        assert_eq!(fetched("FETCH FROM c"), of("c", by(1)));
        assert_eq!(fetched("fetch 5 in \"C\""), of("C", by(5)));
        assert_eq!(fetched("FETCH -5 c"), of("c", by(-5)));
        assert_eq!(fetched("FETCH FORWARD c"), of("c", by(1)));
        assert_eq!(fetched("FETCH FORWARD 100 FROM c"), of("c", by(100)));
        assert_eq!(fetched("FETCH ALL c"), of("c", by(Direction::ALL)));
        assert_eq!(fetched("FETCH BACKWARD ALL FROM c"), of("c", by(-Direction::ALL)));
        assert_eq!(fetched("FETCH PRIOR FROM c"), of("c", by(-1)));
        assert_eq!(fetched("FETCH LAST FROM c"), of("c", absolute(-1)));
        assert_eq!(fetched("FETCH ABSOLUTE 7 c"), of("c", absolute(7)));
        assert_eq!(fetched("FETCH RELATIVE -2 FROM c"), of("c", Direction::Relative(-2)));
        assert_eq!(fetched("MOVE 3 c"), Some(("c".to_owned(), true, by(3))));
        assert_eq!(fetched("FETCH"), None);
        assert_eq!(fetched("FETCH 'x' FROM c"), None);
        assert_eq!(fetched("FETCH 1 FROM c d"), None);
    }
}
