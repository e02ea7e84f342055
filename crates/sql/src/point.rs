//! Which statements read one row by its primary key, and nothing else: those can be asked by a prepared statement
//! with the literals as its values, and the answer is the same.
//!
//! Only one form is known: `SELECT columns FROM table WHERE column = $1 AND …`, in which every column of the primary
//! key is compared. A literal that stands alone on one side of `=` is read as a parameter of the same type is; and
//! there is one plan for such a statement, whatever the values.

use crate::lexer::{Lexeme, Lexer, Token};
use crate::route::Context;
use crate::schema::Placement;

/// Words that make another statement of it.
const OTHER_WORDS: [&str; 2] = ["into", "from"];

/// Whether the text, with a parameter for each literal, has that form.
pub(crate) fn is_point_read(text: &str, context: &Context<'_>) -> bool {
    let Ok(tokens) = Lexer::tokens(text) else { return false };
    read(&mut Reader { text, rest: &tokens }, context).unwrap_or(false)
}

fn read(reader: &mut Reader<'_>, context: &Context<'_>) -> Option<bool> {
    reader.keyword("select")?;
    while !reader.is_at("from") {
        reader.selected()?;
    }
    reader.keyword("from")?;
    let mut name = (None, reader.name()?);
    if reader.take(|lexeme, _| lexeme == Lexeme::Mark(b'.')).is_some() {
        name = (Some(name.1), reader.name()?);
    }
    if !reader.is_at("where") {
        if reader.is_at("as") {
            reader.keyword("as")?;
        }
        reader.name()?;
    }
    reader.keyword("where")?;
    let table = context.schema.table(name.0.as_deref(), &name.1, context.search_path)?;
    if table.primary_key.is_empty() || !matches!(table.placement, Placement::Sharded { .. }) {
        return Some(false);
    }
    let mut compared = Vec::new();
    loop {
        let mut column = reader.name()?;
        while reader.take(|lexeme, _| lexeme == Lexeme::Mark(b'.')).is_some() {
            column = reader.name()?;
        }
        reader.take(|lexeme, word| lexeme == Lexeme::Operator && word == "=")?;
        reader.take(|lexeme, _| lexeme == Lexeme::Parameter)?;
        compared.push(table.column(&column)?);
        if reader.rest.is_empty() {
            break;
        }
        reader.keyword("and")?;
    }
    Some(table.primary_key.iter().all(|column| compared.contains(column)))
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a [Token],
}

impl<'a> Reader<'a> {
    fn take(&mut self, is: impl FnOnce(Lexeme, &str) -> bool) -> Option<&'a str> {
        let (token, rest) = self.rest.split_first()?;
        let written = &self.text[token.start..token.end];
        is(token.lexeme, written).then(|| {
            self.rest = rest;
            written
        })
    }

    fn is_at(&self, keyword: &str) -> bool {
        self.rest.first().is_some_and(|token| {
            token.lexeme == Lexeme::Word && self.text[token.start..token.end].eq_ignore_ascii_case(keyword)
        })
    }

    fn keyword(&mut self, keyword: &str) -> Option<()> {
        self.take(|lexeme, word| lexeme == Lexeme::Word && word.eq_ignore_ascii_case(keyword)).map(drop)
    }

    /// A name, as stored. One that PostgreSQL folds or cuts by rules of its own is none here.
    fn name(&mut self) -> Option<String> {
        let written = self.take(|lexeme, _| matches!(lexeme, Lexeme::Word | Lexeme::Quoted))?;
        if !written.is_ascii() || written.len() > crate::lexer::IDENTIFIER_BYTES_MAX {
            return None;
        }
        match written.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(quoted) => (!quoted.contains('"')).then(|| quoted.to_owned()),
            None => Some(written.to_ascii_lowercase()),
        }
    }

    /// A part of the list of columns: no call, no operator, no literal.
    fn selected(&mut self) -> Option<()> {
        let is = |lexeme, word: &str| match lexeme {
            Lexeme::Word => !OTHER_WORDS.iter().any(|other| word.eq_ignore_ascii_case(other)),
            Lexeme::Quoted | Lexeme::Mark(b',' | b'.') => true,
            Lexeme::Operator => word == "*",
            _ => false,
        };
        self.take(is).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polyshard_map::{KeyType, MapName};

    use super::*;
    use crate::schema::{Collation, Column, Generated, Schema, Table, TableName, TypeOid};

    fn is_point(sql: &str) -> bool {
        let column = |name: &str| Column {
            name: name.to_owned(),
            type_oid: TypeOid::INT8,
            type_mod: -1,
            type_name: "bigint".to_owned(),
            not_null: true,
            default: None,
            generated: Generated::No,
            collation: Collation::Deterministic,
        };
        let map = MapName::new("tenants").unwrap();
        let sharded = Placement::Sharded { map, column: 0, key_type: KeyType::BigInt };
        let mut schema = Schema::default();
        for (name, placement) in [("t", sharded), ("r", Placement::Reference { declared: true })] {
            let table = Table {
                name: TableName::public(name),
                columns: ["tenant", "id", "Body"].map(column).to_vec(),
                primary_key: vec![0, 1],
                unique: Vec::new(),
                foreign_keys: Vec::new(),
                row_security: false,
                triggers: false,
                placement,
            };
            schema.tables.insert(TableName::public(name), Arc::new(table));
        }
        let search_path = ["public".to_owned()];
        is_point_read(sql, &Context { schema: &schema, search_path: &search_path, strict: true })
    }

    #[test]
    fn all_of_the_primary_key_is_compared_and_nothing_else_is_done() {
        for sql in [
            "SELECT * FROM t WHERE tenant = $1 AND id = $2",
            "select a.id, \"Body\" AS b from public.t AS a where a.id=$1 and a.tenant=$2 and \"Body\" = $3",
            "SELECT t.* FROM t x WHERE TENANT = $1 AND x.id = $2",
        ] {
            assert!(is_point(sql), "{sql}");
        }
        for sql in [
            "SELECT * FROM t WHERE tenant = $1",
            "SELECT * FROM r WHERE tenant = $1 AND id = $2",
            "SELECT * FROM nobody WHERE tenant = $1 AND id = $2",
            "SELECT * INTO x FROM t WHERE tenant = $1 AND id = $2",
            "SELECT id, $1 FROM t WHERE tenant = $2 AND id = $3",
            "SELECT id + tenant FROM t WHERE tenant = $1 AND id = $2",
            "SELECT now() FROM t WHERE tenant = $1 AND id = $2",
            "SELECT * FROM t, r WHERE tenant = $1 AND id = $2",
            "SELECT * FROM t WHERE tenant = $1 OR id = $2",
            "SELECT * FROM t WHERE tenant = $1 AND id > $2",
            "SELECT * FROM t WHERE tenant = $1 AND id = $2 + $3",
            "SELECT * FROM t WHERE tenant = $1 AND id = $2::int",
            "SELECT * FROM t WHERE tenant = $1 AND body = $2 AND id = $3",
            "SELECT * FROM t WHERE tenant = $1 AND id = $2 LIMIT $3",
            "SELECT * FROM t WHERE tenant = $1 AND id = $2 ORDER BY $3",
            "SELECT * FROM t WHERE tenant = $1 AND id = $2 FOR UPDATE",
            "UPDATE t SET id = $1 WHERE tenant = $2 AND id = $3",
        ] {
            assert!(!is_point(sql), "{sql}");
        }
    }
}
