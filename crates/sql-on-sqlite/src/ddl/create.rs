//! CREATE TABLE and INDEX.

use std::sync::Arc;

use polyshard_sql::ast::{
    ColumnDef, ColumnOption, CreateIndex, CreateTable, DataType, Expr, GeneratedAs, OrderBySort,
    SequenceOptions,
};
use polyshard_sql::{
    Collation, Column, Context, Generated, Placement, Schema, SqlError, Table, TableName, TypeOid,
};

use super::constraint::{Constraint, constraints_of, definition};
use super::{
    allowed, beside, generated, literal_option, literal_text, name_list, name_parts, new_name, own_table,
};
use crate::fail::{fail, unsupported};
use crate::settings::Settings;
use crate::translate::{
    ENUM_MARK, How, Ids, Scope, Translator, Visible, column_value, data_type_in, file_name, fold,
    is_comparable, kept_value, quoted, quoted_name,
};
use crate::types;

/// Operator classes by which PostgreSQL finds texts that begin with something, whatever the collation.
const PATTERN_CLASSES: [&str; 3] = ["text_pattern_ops", "varchar_pattern_ops", "bpchar_pattern_ops"];

/// Bytes of a name in PostgreSQL, which cuts longer ones.
const NAME_BYTES_MAX: usize = 63;

pub(super) fn table(create: &CreateTable, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    if create.query.is_some()
        || create.like.is_some()
        || create.inherits.is_some()
        || create.partition_by.is_some()
    {
        return Err(unsupported("CREATE TABLE with AS, LIKE, INHERITS or PARTITION BY"));
    }
    if create.temporary || create.partition_of.is_some() || create.external {
        return Err(unsupported("temporary and partitioned tables"));
    }
    let name = new_name(&create.name, context)?;
    if exists(context.schema, &name) {
        if create.if_not_exists {
            return Ok(Vec::new());
        }
        return Err(fail("42P07", format!("relation \"{}\" already exists", name.name)));
    }
    let mut columns = Vec::new();
    let mut constraints = Vec::new();
    let mut identities = Vec::new();
    for def in &create.columns {
        let Made { column, constraints: own, is_identity } = column(&name, def, context)?;
        identities.push(is_identity);
        if columns.iter().any(|known: &Column| known.name.eq_ignore_ascii_case(&column.name)) {
            return Err(fail("42701", format!("column \"{}\" specified more than once", column.name)));
        }
        columns.push(column);
        constraints.extend(own);
    }
    constraints.extend(constraints_of(&create.constraints)?);
    let mut table = Table {
        name: name.clone(),
        columns,
        primary_key: Vec::new(),
        unique: Vec::new(),
        foreign_keys: Vec::new(),
        row_security: false,
        triggers: false,
        placement: Placement::Reference { declared: false },
    };
    settle(&mut table, &mut constraints, context)?;
    let mut parts = Vec::new();
    for column in &table.columns {
        let mut part = column_text(column)?;
        if let Some(expression) = generated::expression(&table, column, context)? {
            part.push_str(&format!(" GENERATED ALWAYS AS ({expression}) STORED"));
        }
        parts.push(part);
    }
    // Unique ones are kept by indexes, which can be dropped.
    for constraint in constraints.iter().filter(|constraint| constraint.index(&table).is_none()) {
        parts.push(constraint.text(&table, context)?);
    }
    let mut out = vec![format!("CREATE TABLE {} ({}) STRICT", quoted_name(&name), parts.join(", "))];
    out.extend(constraints.iter().filter_map(|constraint| constraint.index(&table)));
    out.push(format!("INSERT INTO polyshard_sql_table (name) VALUES ({})", literal_text(&file_name(&name))));
    for (place, (column, is_identity)) in table.columns.iter().zip(identities).enumerate() {
        out.push(describe_column(&name, column, is_identity, &(place + 1).to_string()));
    }
    out.extend(constraints.iter().map(|constraint| describe_constraint(&name, constraint)));
    // The rows of a defaulted column are filled by us, so its expression must be one we know.
    for column in &table.columns {
        check_default(column, context)?;
    }
    Ok(out)
}

pub(super) fn exists(schema: &Schema, name: &TableName) -> bool {
    let name = file_name(name);
    let same = |known: &TableName| file_name(known).eq_ignore_ascii_case(&name);
    schema.tables.keys().any(same) || schema.views.keys().any(same)
}

/// Gives constraints their names, and checks the columns they are about.
fn settle(table: &mut Table, constraints: &mut [Constraint], context: &Context<'_>) -> Result<(), SqlError> {
    let mut taken: Vec<String> = Vec::new();
    for constraint in constraints.iter_mut() {
        constraint.check(table, context)?;
        if let Constraint::Primary { columns, .. } = constraint {
            if !table.primary_key.is_empty() {
                return Err(fail(
                    "42P16",
                    format!("multiple primary keys for table \"{}\" are not allowed", table.name.name),
                ));
            }
            let places: Vec<usize> = columns.iter().filter_map(|name| table.column(name)).collect();
            for place in &places {
                table.columns[*place].not_null = true;
            }
            table.primary_key = places;
        }
        constraint.settle_name(&table.name.name, &mut taken)?;
    }
    Ok(())
}

/// A column as it was asked for.
pub(super) struct Made {
    pub column: Column,
    /// The constraints written beside it.
    pub constraints: Vec<Constraint>,
    /// Whether it is an identity, rather than serial.
    pub is_identity: bool,
}

/// Reads a column.
pub(super) fn column(table: &TableName, def: &ColumnDef, context: &Context<'_>) -> Result<Made, SqlError> {
    let name = fold(&def.name);
    let (serial, type_oid, type_mod) = match &def.data_type {
        DataType::Custom(custom, modifiers) if modifiers.is_empty() => match name_parts(custom)?.1.as_str() {
            "serial" | "serial4" => (true, TypeOid::INT4, -1),
            "bigserial" | "serial8" => (true, TypeOid::INT8, -1),
            "smallserial" | "serial2" => (true, TypeOid::INT2, -1),
            _ => {
                let (type_oid, type_mod) = data_type_in(&def.data_type, context)?;
                (false, type_oid, type_mod)
            }
        },
        other => {
            let (type_oid, type_mod) = data_type_in(other, context)?;
            (false, type_oid, type_mod)
        }
    };
    storage(type_oid)?;
    let mut column = Column {
        name: name.clone(),
        type_oid,
        type_mod,
        type_name: types::display_with(type_oid, type_mod),
        not_null: false,
        default: None,
        generated: Generated::No,
        collation: Collation::C,
    };
    let sequence = written_name(&sequence_name(&table.name, &name));
    let within = if table.schema == "public" { String::new() } else { written_name(&table.schema) + "." };
    let sequence = format!("nextval({}::regclass)", literal_text(&format!("{within}{sequence}")));
    if serial {
        column.not_null = true;
        column.generated = Generated::ByDefault;
        column.default = Some(sequence.clone());
    }
    let mut constraints = Vec::new();
    let mut is_identity = false;
    for option in &def.options {
        let given = option.name.as_ref().map(fold);
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::Default(expr) => column.default = Some(expr.to_string()),
            ColumnOption::PrimaryKey(_) => {
                column.not_null = true;
                constraints.push(Constraint::Primary { name: given, columns: vec![name.clone()] });
            }
            ColumnOption::Unique(_) => {
                constraints.push(Constraint::Unique { name: given, columns: vec![name.clone()] });
            }
            ColumnOption::Check(check) => {
                constraints.push(Constraint::Check {
                    name: given.or_else(|| check.name.as_ref().map(fold)),
                    expr: check.expr.clone(),
                    about: Vec::new(),
                });
            }
            ColumnOption::ForeignKey(key) => {
                constraints.push(Constraint::foreign(given, vec![name.clone()], key)?);
            }
            ColumnOption::Generated { generated_as, generation_expr: None, sequence_options, .. } => {
                let mut options = sequence_options.iter().flatten();
                if let Some(other) = options.find(|option| !is_usual_option(option, type_oid)) {
                    return Err(unsupported(format!("identity columns with the option{other}")));
                }
                is_identity = true;
                column.not_null = true;
                column.default = Some(sequence.clone());
                column.generated = match generated_as {
                    GeneratedAs::Always => Generated::Always,
                    GeneratedAs::ByDefault => Generated::ByDefault,
                    GeneratedAs::ExpStored => return Err(unsupported("generated columns")),
                };
            }
            ColumnOption::Generated { generation_expr: Some(expr), .. } => {
                column.default = Some(expr.to_string());
                column.generated = Generated::Stored;
            }
            ColumnOption::Collation(collation) => {
                let (_, collation) = name_parts(collation)?;
                if !matches!(collation.as_str(), "C" | "POSIX" | "default" | "ucs_basic") {
                    return Err(unsupported(format!("the collation {collation}")));
                }
            }
            ColumnOption::Comment(_) => {}
            other => return Err(unsupported(format!("{other} in a column"))),
        }
    }
    Ok(Made { column, constraints, is_identity })
}

/// Whether an option of a sequence says what is so anyway.
fn is_usual_option(option: &SequenceOptions, type_oid: TypeOid) -> bool {
    let is = |expr: &Expr, wanted: &str| expr.to_string() == wanted;
    match option {
        SequenceOptions::IncrementBy(by, _) => is(by, "1"),
        SequenceOptions::MinValue(least) => least.as_ref().is_none_or(|least| is(least, "1")),
        SequenceOptions::MaxValue(most) => most.as_ref().is_none_or(|most| match type_oid {
            TypeOid::INT2 => is(most, "32767"),
            TypeOid::INT4 => is(most, "2147483647"),
            _ => is(most, "9223372036854775807"),
        }),
        SequenceOptions::StartWith(first, _) => is(first, "1"),
        // How many are taken at once cannot be seen.
        SequenceOptions::Cache(_) => true,
        SequenceOptions::Cycle(_) => option.to_string().trim().eq_ignore_ascii_case("no cycle"),
    }
}

/// The sequence of a serial column, called as PostgreSQL calls it: ids are counted by its name, on either engine.
fn sequence_name(table: &str, column: &str) -> String {
    let [mut table_bytes, mut column_bytes] = [table.len(), column.len()];
    // The longer one is cut first.
    while table_bytes + column_bytes > NAME_BYTES_MAX - "__seq".len() {
        if table_bytes > column_bytes { table_bytes -= 1 } else { column_bytes -= 1 }
    }
    let cut = |name: &str, bytes: usize| -> String {
        name.char_indices()
            .take_while(|(at, letter)| at + letter.len_utf8() <= bytes)
            .map(|(_, letter)| letter)
            .collect()
    };
    format!("{}_{}_seq", cut(table, table_bytes), cut(column, column_bytes))
}

/// A name as PostgreSQL writes it: in quotes if it needs them.
fn written_name(name: &str) -> String {
    let plain = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '_');
    if name.chars().all(plain) && !name.starts_with(|letter: char| letter.is_ascii_digit()) {
        return name.to_owned();
    }
    quoted(name)
}

/// Types that columns have arrays of.
const ELEMENTS: [TypeOid; 14] = [
    TypeOid::BOOL,
    TypeOid::INT2,
    TypeOid::INT4,
    TypeOid::INT8,
    TypeOid::FLOAT8,
    TypeOid::NUMERIC,
    TypeOid::TEXT,
    TypeOid::VARCHAR,
    TypeOid::DATE,
    TypeOid::TIMESTAMP,
    TypeOid::TIMESTAMPTZ,
    TypeOid::UUID,
    TypeOid::BYTEA,
    TypeOid::JSONB,
];

fn is_element(type_oid: TypeOid) -> bool {
    ELEMENTS.contains(&type_oid) || types::is_enum(type_oid)
}

/// The type that SQLite's strict tables keep a type as.
fn storage(type_oid: TypeOid) -> Result<&'static str, SqlError> {
    Ok(match type_oid {
        TypeOid::BOOL
        | TypeOid::INT2
        | TypeOid::INT4
        | TypeOid::INT8
        | TypeOid::DATE
        | TypeOid::TIME
        | TypeOid::TIMESTAMP
        | TypeOid::TIMESTAMPTZ => "INT",
        TypeOid::FLOAT8 => "REAL",
        TypeOid::NUMERIC => "TEXT COLLATE pg_numeric",
        TypeOid::TEXT
        | TypeOid::VARCHAR
        | TypeOid::BPCHAR
        | TypeOid::JSON
        | TypeOid::JSONB
        | TypeOid::INTERVAL => "TEXT",
        TypeOid::UUID | TypeOid::BYTEA => "BLOB",
        made if types::is_enum(made) => "TEXT",
        array if types::element(array).is_some_and(is_element) => "TEXT",
        other => return Err(unsupported(format!("columns of type {}", types::display(other)))),
    })
}

pub(super) fn column_text(column: &Column) -> Result<String, SqlError> {
    let not_null = if column.not_null { " NOT NULL" } else { "" };
    Ok(format!("{} {}{not_null}", quoted(&column.name), storage(column.type_oid)?))
}

/// The statement that records a column.
pub(super) fn describe_column(
    table: &TableName,
    column: &Column,
    is_identity: bool,
    position: &str,
) -> String {
    let generated = match column.generated {
        Generated::No => "no",
        Generated::ByDefault if is_identity => "identity",
        Generated::ByDefault => "default",
        Generated::Always => "always",
        Generated::Stored => "stored",
    };
    format!(
        "INSERT INTO polyshard_sql_column (table_name, name, position, type_oid, type_mod, type_name, not_null, \
         default_text, generated) VALUES ({}, {}, {position}, {}, {}, {}, {}, {}, '{generated}')",
        literal_text(&file_name(table)),
        literal_text(&column.name),
        column.type_oid.0,
        column.type_mod,
        literal_text(&column.type_name),
        i32::from(column.not_null),
        literal_option(column.default.as_deref()),
    )
}

/// The statement that records a constraint.
pub(super) fn describe_constraint(table: &TableName, constraint: &Constraint) -> String {
    let (kind, columns, target, target_columns) = constraint.facts();
    format!(
        "INSERT INTO polyshard_sql_constraint (table_name, name, kind, columns, target, target_columns, definition) \
         VALUES ({}, {}, '{kind}', {}, {}, {}, {})",
        literal_text(&file_name(table)),
        literal_text(constraint.name()),
        name_list(&columns),
        literal_option(target.as_deref()),
        target_columns.map_or_else(|| "NULL".to_owned(), |columns| name_list(&columns)),
        literal_text(&definition(constraint)),
    )
}

/// Whether a column's default is one that an INSERT can compute.
pub(super) fn check_default(column: &Column, context: &Context<'_>) -> Result<(), SqlError> {
    let (Some(default), false) = (&column.default, column.generated == Generated::Stored) else {
        return Ok(());
    };
    let mut schema = context.schema.clone();
    let name = TableName::public("polyshard_default");
    let table = Table {
        name: name.clone(),
        columns: vec![column.clone()],
        primary_key: Vec::new(),
        unique: Vec::new(),
        foreign_keys: Vec::new(),
        row_security: false,
        triggers: false,
        placement: Placement::Reference { declared: false },
    };
    schema.tables.insert(name, Arc::new(table));
    let context = Context { schema: &schema, ..*context };
    let statements = polyshard_sql::statements("INSERT INTO public.polyshard_default DEFAULT VALUES")?;
    let statement = statements.first().ok_or_else(|| fail("XX000", "one statement was written"))?;
    crate::prepare(statement, &context, &[], &Settings::default()).map(drop).map_err(|error| {
        if error.state.0 == "42703" {
            return fail("0A000", format!("cannot use column reference in DEFAULT expression: {default}"));
        }
        error
    })
}

pub(super) fn index(create: &CreateIndex, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    let table = own_table(&create.table_name, context)?;
    if create.nulls_distinct == Some(false) || !create.with.is_empty() {
        return Err(unsupported("NULLS NOT DISTINCT and WITH in an index"));
    }
    if let Some(method) = &create.using
        && !matches!(method.to_string().to_ascii_lowercase().as_str(), "btree" | "hash")
    {
        return Err(unsupported(format!("indexes USING {method}")));
    }
    let mut columns = Vec::new();
    let mut texts = Vec::new();
    let mut shown = Vec::new();
    let mut names = Vec::new();
    let mut is_plain = create.predicate.is_none();
    for part in &create.columns {
        // Texts are ordered byte by byte here, as these classes order them.
        let class = match &part.operator_class {
            None => String::new(),
            Some(class) => match class.to_string().to_ascii_lowercase() {
                class if PATTERN_CLASSES.contains(&class.as_str()) => format!(" {class}"),
                class => return Err(unsupported(format!("the operator class {class}"))),
            },
        };
        let down = matches!(part.column.options.sort, Some(OrderBySort::Desc));
        let direction = if down { " DESC" } else { "" };
        match &part.column.expr {
            Expr::Identifier(ident) => {
                let name = fold(ident);
                let place = table
                    .column(&name)
                    .ok_or_else(|| fail("42703", format!("column \"{name}\" does not exist")))?;
                let type_oid = table.columns[place].type_oid;
                if !is_comparable(type_oid) {
                    return Err(unsupported(format!("an index on {}", types::display(type_oid))));
                }
                texts.push(format!("{}{direction}", quoted(&name)));
                shown.push(format!("{}{class}{direction}", shown_ident(&name)));
                columns.push(name.clone());
                names.push(name);
            }
            expr => {
                is_plain = false;
                let expr = unnested(expr);
                let (sql, type_oid) = typed_expr(table, context, expr, "")?;
                if sql.contains("random") {
                    return Err(fail("42P17", "functions in index expression must be marked IMMUTABLE"));
                }
                // What is equal must be kept alike, and computed alike by everyone.
                if !INDEXED.contains(&type_oid) || !is_immutable(&sql) {
                    return Err(unsupported(format!("an index on the expression {expr}")));
                }
                texts.push(format!("({sql}){direction}"));
                match expr {
                    Expr::Function(function) => {
                        shown.push(format!("{expr}{class}{direction}"));
                        names.push(name_parts(&function.name)?.1);
                    }
                    _ => {
                        shown.push(format!("({expr}){class}{direction}"));
                        names.push("expr".to_owned());
                    }
                }
            }
        }
    }
    // An index is in the schema of its table.
    let name = match &create.name {
        Some(name) => allowed(name_parts(name)?.1)?,
        None => format!("{}_{}_idx", table.name.name, names.join("_")),
    };
    let predicate = match &create.predicate {
        None => String::new(),
        Some(expr) => {
            let sql = table_expr(table, context, expr, "")?;
            if !is_immutable(&sql) {
                return Err(unsupported(format!("an index on rows where {expr}")));
            }
            format!(" WHERE {sql}")
        }
    };
    let unique = if create.unique { "UNIQUE " } else { "" };
    let exists = if create.if_not_exists { "IF NOT EXISTS " } else { "" };
    let definition = format!(
        "CREATE {unique}INDEX {} ON {}.{} USING btree ({}){}",
        shown_ident(&name),
        shown_ident(&table.name.schema),
        shown_ident(&table.name.name),
        shown.join(", "),
        create.predicate.as_ref().map_or_else(String::new, |expr| format!(" WHERE ({expr})"))
    );
    let file = beside(&table.name, &name);
    let ignore = if create.if_not_exists { "OR IGNORE " } else { "" };
    Ok(vec![
        format!(
            "CREATE {unique}INDEX {exists}{} ON {} ({}){predicate}",
            quoted(&file),
            quoted_name(&table.name),
            texts.join(", ")
        ),
        format!(
            "INSERT {ignore}INTO polyshard_sql_index (name, table_name, is_unique, columns, definition) \
             VALUES ({}, {}, {}, {}, {})",
            literal_text(&file),
            literal_text(&file_name(&table.name)),
            i32::from(create.unique),
            name_list(if is_plain { &columns } else { &[] }),
            literal_text(&definition)
        ),
    ])
}

/// Types of expressions in indexes: those whose equal values are one value in the file.
const INDEXED: [TypeOid; 11] = [
    TypeOid::BOOL,
    TypeOid::INT2,
    TypeOid::INT4,
    TypeOid::INT8,
    TypeOid::FLOAT8,
    TypeOid::TEXT,
    TypeOid::VARCHAR,
    TypeOid::DATE,
    TypeOid::TIMESTAMP,
    TypeOid::TIMESTAMPTZ,
    TypeOid::UUID,
];

/// Whether an expression that was translated gives the same for the same row always: neither chance nor a session's
/// time zone is in it.
fn is_immutable(sql: &str) -> bool {
    !["random", "'UTC'", "SELECT "].iter().any(|other| sql.contains(other))
}

fn unnested(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unnested(inner),
        expr => expr,
    }
}

fn shown_ident(name: &str) -> String {
    crate::functions::quote_ident(name)
}

/// An expression over the columns of a table, as SQLite's schema wants it: no parameter, no alias; `row` is
/// what stands before a column (`new.` in a trigger).
pub(super) fn table_expr(
    table: &Table,
    context: &Context<'_>,
    expr: &Expr,
    row: &str,
) -> Result<String, SqlError> {
    typed_expr(table, context, expr, row).map(|(sql, _)| sql)
}

/// Likewise, with its type.
fn typed_expr(
    table: &Table,
    context: &Context<'_>,
    expr: &Expr,
    row: &str,
) -> Result<(String, TypeOid), SqlError> {
    let settings = Settings::default();
    let mut translator = Translator::new(context, &settings, Vec::new());
    let mut scope = Scope::new();
    scope.columns = table
        .columns
        .iter()
        .map(|column| Visible {
            relation: Some(table.name.name.clone()),
            name: column.name.clone(),
            sql: column_value(format!("{row}{}", quoted(&column.name)), column.type_oid),
            type_oid: column.type_oid,
            type_mod: column.type_mod,
            not_null: column.not_null,
            bare: true,
        })
        .collect();
    translator.scopes.push(scope);
    translator.ids = Ids::None;
    let ex = translator.expr(expr)?;
    let ex = if ex.type_oid == TypeOid::UNKNOWN {
        translator.coerce(ex, TypeOid::TEXT, -1, How::Implicit)?
    } else {
        ex
    };
    // An enum may get more labels than those that are written there.
    let has_labels = ex.sql.contains(ENUM_MARK);
    if !translator.sources.is_empty() || !translator.system.is_empty() || has_labels {
        return Err(unsupported(format!("the expression {expr} in a table's definition")));
    }
    Ok((ex.sql, ex.type_oid))
}

/// An expression of no column, as it goes into a column.
pub(super) fn constant(
    table: &Table,
    context: &Context<'_>,
    expr: &Expr,
    column: &Column,
) -> Result<String, SqlError> {
    let settings = Settings::default();
    let mut translator = Translator::new(context, &settings, Vec::new());
    let mut scope = Scope::new();
    scope.columns.clear();
    translator.scopes.push(scope);
    translator.ids = Ids::None;
    let ex = translator.expr(expr)?;
    let ex = translator.coerce(ex, column.type_oid, column.type_mod, How::Assignment)?;
    if !translator.sources.is_empty() {
        return Err(unsupported(format!("the default {expr} of {}", table.name)));
    }
    Ok(kept_value(ex.sql, column.type_oid))
}

#[cfg(test)]
mod tests {
    use super::{sequence_name, written_name};

    /// As PostgreSQL 15 calls them.
    #[test]
    fn sequences_are_called_as_postgresql_calls_them() {
        assert_eq!(sequence_name("orders", "id"), "orders_id_seq");
        let long = sequence_name(&"t".repeat(63), "id");
        assert_eq!(long, format!("{}_id_seq", "t".repeat(56)));
        let both = sequence_name(&"t".repeat(40), &"c".repeat(40));
        assert_eq!(both, format!("{}_{}_seq", "t".repeat(29), "c".repeat(29)));
        // No letter is cut in two.
        assert_eq!(sequence_name(&"é".repeat(31), "id"), format!("{}_id_seq", "é".repeat(28)));
        assert_eq!(sequence_name(&"é".repeat(31), "idx"), format!("{}_idx_seq", "é".repeat(27)));
        assert_eq!(written_name("orders_id_seq"), "orders_id_seq");
        assert_eq!(written_name("Orders_id_seq"), "\"Orders_id_seq\"");
    }
}
