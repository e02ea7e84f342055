//! The names of relations in the system catalog: a file has no schemas, and calls a relation by both its names.

use polyshard_sql::{Context, Enum, TableName};

use super::{number, text_literal};
use crate::functions::quote_ident;
use crate::translate::file_name;
use crate::types::{self, TypeInfo};

/// What names mean to a session.
pub(super) struct Names<'c> {
    context: &'c Context<'c>,
}

impl<'c> Names<'c> {
    pub fn new(context: &'c Context<'c>) -> Names<'c> {
        Names { context }
    }

    /// Where names without a schema are looked for.
    pub fn search_path(&self) -> &[String] {
        self.context.search_path
    }

    /// A text of the catalog's list, with SQLite's expressions for what it says of names.
    pub fn filled(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
            out.push_str(&rest[..at]);
            let inner = &rest[at + 1..end - 1];
            match (inner, inner.split_once(' ')) {
                ("schemas", _) => out.push_str(&self.namespaces()),
                ("schema_names", _) => out.push_str(&self.names()),
                (_, Some(("bare", file))) => out.push_str(&self.bare(file)),
                (_, Some(("schema", file))) => out.push_str(&self.schema(file)),
                (_, Some(("nsp", file))) => out.push_str(&self.namespace(file)),
                (_, Some(("prefix", file))) => out.push_str(&self.prefix(file)),
                (_, Some(("visible", file))) => out.push_str(&self.visible(file)),
                (_, Some(("shown", file))) => out.push_str(&self.shown(file)),
                (_, Some(("is_enum", type_oid))) => out.push_str(&self.is_enum(type_oid)),
                (_, Some(("default", column))) => out.push_str(&self.default(column)),
                (_, Some(("type_schema", type_oid))) => out.push_str(&self.type_schema(type_oid)),
                _ => out.push_str(&rest[at..end]),
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }

    fn namespaces(&self) -> String {
        let row =
            |name: &String| format!(", ({}, {})", number(&format!("schema:{name}")), text_literal(name));
        self.context.schema.schemas.iter().map(row).collect()
    }

    /// The enums and their arrays, each with the number of its schema.
    pub fn types(&self) -> impl Iterator<Item = (&'static TypeInfo, u32)> {
        self.context.schema.enums.values().flat_map(|made| {
            let schema = made.name.schema.as_str();
            let within = if schema == "public" { 2200 } else { number(&format!("schema:{schema}")) };
            let array = types::array_of(made.type_oid);
            let both = [Some(made.type_oid), array].into_iter().flatten();
            both.filter_map(types::info).map(move |known| (known, within))
        })
    }

    /// The labels of enums, as the rows of pg_enum.
    pub fn labels(&self) -> String {
        let rows = self.context.schema.enums.values().flat_map(|made| {
            made.labels.iter().enumerate().map(|(place, label)| {
                let own = number(&format!("label:{}:{label}", file_name(&made.name)));
                format!("({own}, {}, {}.0, {})", made.type_oid.0, place + 1, text_literal(label))
            })
        });
        let rows: Vec<String> = rows.collect();
        if rows.is_empty() {
            return "(SELECT 1 AS column1, 1 AS column2, 1.0 AS column3, '' AS column4 WHERE false)"
                .to_owned();
        }
        format!("(VALUES {})", rows.join(", "))
    }

    /// Whether the name alone finds a type.
    fn finds(&self, made: &Enum) -> bool {
        self.context.search_path.contains(&made.name.schema)
    }

    /// The names of enums by their numbers: with the schema, if the name alone does not find it.
    pub fn shown_types(&self) -> String {
        let branch = |made: &Enum| {
            let bare = quote_ident(&made.name.name);
            let shown = match self.finds(made) {
                true => bare,
                false => format!("{}.{bare}", quote_ident(&made.name.schema)),
            };
            let array = types::array_of(made.type_oid).map_or(0, |array| array.0);
            let many = text_literal(&format!("{shown}[]"));
            format!(" WHEN {} THEN {} WHEN {array} THEN {many}", made.type_oid.0, text_literal(&shown))
        };
        self.context.schema.enums.values().map(|made| branch(made)).collect()
    }

    /// The numbers of enums that their names alone do not find, and of their arrays.
    pub fn hidden_types(&self) -> String {
        let hidden = self.context.schema.enums.values().filter(|made| !self.finds(made));
        let both = |made: &Enum| [Some(made.type_oid), types::array_of(made.type_oid)];
        let numbers = hidden.flat_map(|made| both(made)).flatten().map(|known| known.0.to_string());
        numbers.collect::<Vec<_>>().join(", ")
    }

    fn is_enum(&self, type_oid: &str) -> String {
        let enums: Vec<String> = self.context.schema.enums.keys().map(|known| known.0.to_string()).collect();
        format!("{type_oid} IN ({})", enums.join(", "))
    }

    /// A column's default as PostgreSQL shows it: a plain text says what it is one of.
    fn default(&self, column: &str) -> String {
        let (text, type_oid) = (format!("{column}.default_text"), format!("{column}.type_oid"));
        let made = self.shown_types();
        let name = match made.is_empty() {
            true => format!("pg_format_type({type_oid}, -1)"),
            false => format!("(CASE {type_oid}{made} ELSE pg_format_type({type_oid}, -1) END)"),
        };
        format!(
            "(CASE WHEN {text} GLOB '''*''' AND instr(substr({text}, 2, length({text}) - 2), '''') = 0 \
             AND ({type_oid} IN (25, 1043) OR {}) THEN {text} || '::' || {name} ELSE {text} END)",
            self.is_enum(&type_oid)
        )
    }

    fn type_schema(&self, type_oid: &str) -> String {
        let branch = |made: &Enum| {
            let own = Some(made.type_oid).into_iter().chain(types::array_of(made.type_oid));
            let schema = text_literal(&made.name.schema);
            own.map(|known| format!(" WHEN {} THEN {schema}", known.0)).collect::<String>()
        };
        let branches: String = self.context.schema.enums.values().map(|made| branch(made)).collect();
        if branches.is_empty() {
            return "'pg_catalog'".to_owned();
        }
        format!("(CASE {type_oid}{branches} ELSE 'pg_catalog' END)")
    }

    fn names(&self) -> String {
        self.context.schema.schemas.iter().map(|name| format!(", ({})", text_literal(name))).collect()
    }

    /// One expression for a relation of a schema that was made, in which `{before}` is its name, and another for one of
    /// `public`.
    fn either(&self, file: &str, made: &str, public: &str) -> String {
        let schemas = &self.context.schema.schemas;
        if schemas.is_empty() {
            return public.to_owned();
        }
        let list: Vec<String> = schemas.iter().map(|name| text_literal(name)).collect();
        let before = format!("substr({file}, 1, instr({file}, '.') - 1)");
        let made = made.replace("{before}", &before);
        format!("(CASE WHEN {before} IN ({}) THEN {made} ELSE {public} END)", list.join(", "))
    }

    fn bare(&self, file: &str) -> String {
        self.either(file, &format!("substr({file}, instr({file}, '.') + 1)"), file)
    }

    fn schema(&self, file: &str) -> String {
        self.either(file, "{before}", "'public'")
    }

    fn namespace(&self, file: &str) -> String {
        self.either(file, "pg_oid('schema:' || {before})", "2200")
    }

    fn prefix(&self, file: &str) -> String {
        self.either(file, "{before} || '.'", "''")
    }

    /// Whether its name alone finds a relation.
    fn visible(&self, file: &str) -> String {
        let path: Vec<String> = self.context.search_path.iter().map(|name| text_literal(name)).collect();
        let mut sql = format!("{} IN ({})", self.schema(file), path.join(", "));
        let hidden: Vec<String> = self.hidden().iter().map(|name| text_literal(&file_name(name))).collect();
        if !hidden.is_empty() {
            sql.push_str(&format!(" AND {file} NOT IN ({})", hidden.join(", ")));
        }
        format!("({sql})")
    }

    /// Relations behind others of the same name in a schema that comes before theirs.
    fn hidden(&self) -> Vec<&TableName> {
        let (schema, path) = (self.context.schema, self.context.search_path);
        if schema.schemas.is_empty() {
            return Vec::new();
        }
        let first = |name: &TableName| {
            let table = schema.table(None, &name.name, path).map(|table| &table.name);
            table.or_else(|| schema.view(None, &name.name, path).map(|view| &view.name))
        };
        let all = schema.tables.keys().chain(schema.views.keys());
        all.filter(|name| first(name).is_some_and(|first| first != *name)).collect()
    }

    /// As PostgreSQL writes a relation's number: with its schema, if its name alone does not find it.
    fn shown(&self, file: &str) -> String {
        let bare = format!("pg_quote_ident({})", self.bare(file));
        let within = format!("pg_quote_ident({})", self.schema(file));
        format!("(CASE WHEN {} THEN {bare} ELSE {within} || '.' || {bare} END)", self.visible(file))
    }
}

/// The parts of a name as it is written in SQL, folded as PostgreSQL folds.
pub(crate) fn written_parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = text.trim().chars().peekable();
    while let Some(letter) = letters.next() {
        let last = parts.len() - 1;
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => parts[last].push('"'),
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => parts.push(String::new()),
            letter if is_quoted => parts[last].push(letter),
            letter => parts[last].push(letter.to_ascii_lowercase()),
        }
    }
    parts
}

/// Schema and name of a relation as it is written; none for the schema of the system.
pub(super) fn written_name(text: &str) -> (Option<String>, String) {
    let mut parts = written_parts(text);
    let name = parts.pop().unwrap_or_default();
    (parts.pop().filter(|schema| schema != "pg_catalog"), name)
}

/// What a written name is called in the file, if it says no schema in this one.
pub(super) fn written_file(text: &str, within: &str) -> String {
    let (schema, name) = written_name(text);
    file_name(&TableName { schema: schema.unwrap_or_else(|| within.to_owned()), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_postgresql_reads_them() {
        assert_eq!(written_parts("Shop.\"Or.\"\"ders\""), ["shop", "Or.\"ders"]);
        assert_eq!(written_file("t", "public"), "t");
        assert_eq!(written_file("public.t", "shop"), "t");
        assert_eq!(written_file("t", "shop"), "shop.t");
        assert_eq!(written_file("a.T", "public"), "a.t");
        assert_eq!(written_file("pg_catalog.pg_class", "public"), "pg_class");
    }
}
