//! Writes to reference tables, turned into words that give the same rows on every shard, now and when they are run
//! again: the clock becomes a constant, and what only the database can say (ids, random values, the rows of a query) is
//! asked of the first shard once. Pure: the caller asks.

use std::collections::BTreeMap;

use polyshard_engine::Dialect;
use polyshard_sql::ast::{self, Expr, SetExpr};
use polyshard_sql::{Column, Context, Generated, Kind, Placement, SqlError, SqlState, Statement, Table};

use crate::clock;
use crate::defaults;
use crate::entry::Recorded;
use crate::quote::{identifier, text};
use crate::stable::{self, Moment, Stability};

/// Rows that one INSERT … SELECT may write to a reference table: each is a part of the statement that is recorded.
pub const REFERENCE_ROWS_MAX: usize = 10_000;

/// Why something must not differ, in a refusal.
const ON_EACH: &str = "on each shard, and a reference table is the same on all";

/// A write to a reference table, maybe with something to ask first.
#[derive(Debug, Clone)]
pub struct ReferenceWrite {
    plan: Plan,
    /// Whether a GENERATED ALWAYS column is given its value.
    overriding: bool,
}

/// Something to ask of the first shard, in the transaction of the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The query; all its columns are texts.
    pub query: String,
    /// How often it is to be run (or as how many rows): each answer is used once.
    pub times: usize,
    /// The sequence that it would take numbers from, for shards that have no sequences.
    pub sequence: Option<String>,
    /// The query for the highest number in use, where there is a sequence: a shard that has some may have given it.
    pub highest: Option<String>,
}

impl Ask {
    /// On PostgreSQL: all answers in one query.
    pub fn query_for_all(&self) -> String {
        match self.times {
            1 => self.query.clone(),
            times => format!("{} FROM generate_series(1, {times})", self.query),
        }
    }
}

/// What is run on every shard, and recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The write; its answer is shown to the client.
    pub sql: String,
    /// What is to be run after it, on shards of the engine that it names.
    pub after: Vec<Recorded>,
}

#[derive(Debug, Clone)]
enum Plan {
    Same(String),
    /// INSERT … VALUES: each place is the answer of an ask.
    Values {
        insert: Box<ast::Insert>,
        asks: Vec<Ask>,
        places: Vec<Place>,
    },
    /// INSERT … SELECT: the rows are the answer.
    Rows {
        insert: Box<ast::Insert>,
        ask: Ask,
        types: Vec<String>,
        sequences: Vec<(usize, String)>,
    },
}

/// A value of a row that an ask answers.
#[derive(Debug, Clone)]
struct Place {
    row: usize,
    column: usize,
    ask: usize,
    kind: String,
}

impl ReferenceWrite {
    /// What must be asked first; empty if nothing.
    pub fn asks(&self) -> &[Ask] {
        match &self.plan {
            Plan::Same(_) => &[],
            Plan::Values { asks, .. } => asks,
            Plan::Rows { ask, .. } => std::slice::from_ref(ask),
        }
    }

    /// Whether some answer, as a text, may be read as another value under other settings: of dates, times and floats.
    pub fn depends_on_styles(&self) -> bool {
        match &self.plan {
            Plan::Same(_) => false,
            Plan::Values { places, .. } => places.iter().any(|place| has_styles(&place.kind)),
            Plan::Rows { types, .. } => types.iter().any(|kind| has_styles(kind)),
        }
    }

    /// The statements, with the answers of the asks in their order: for each the rows, each a list of texts.
    pub fn fill(self, answers: Vec<Vec<Vec<Option<String>>>>) -> Result<Written, SqlError> {
        let lacks =
            || SqlError::new(SqlState::INTERNAL_ERROR, "an ask of a reference write was not answered");
        let (insert, after) = match self.plan {
            Plan::Same(sql) => return Ok(Written { sql, after: Vec::new() }),
            Plan::Values { mut insert, asks, places } => {
                let sequences =
                    asks.iter().enumerate().filter_map(|(at, ask)| Some((at, ask.sequence.as_ref()?)));
                let after =
                    sequences.map(|(at, sequence)| go_on(sequence, answers.get(at).into_iter().flatten(), 0));
                let after = after.flatten().collect();
                let mut answers: Vec<_> = answers.into_iter().map(Vec::into_iter).collect();
                let rows = rows_mut(&mut insert).ok_or_else(lacks)?;
                for place in places {
                    let answer = answers.get_mut(place.ask).and_then(Iterator::next).ok_or_else(lacks)?;
                    let value = answer.into_iter().next().ok_or_else(lacks)?;
                    rows[place.row].content[place.column] = raw(constant(value.as_deref(), &place.kind));
                }
                (*insert, after)
            }
            Plan::Rows { insert, types, sequences, .. } => {
                let rows = answers.into_iter().next().ok_or_else(lacks)?;
                let after =
                    sequences.iter().filter_map(|(at, sequence)| go_on(sequence, rows.iter(), *at)).collect();
                (with_rows(*insert, &types, &rows)?, after)
            }
        };
        let source = insert.source.as_deref().map(ToString::to_string).unwrap_or_default();
        let mut sql = ast::Statement::Insert(insert).to_string();
        if self.overriding
            && let Some(at) = sql.find(&source)
        {
            sql.insert_str(at, "OVERRIDING SYSTEM VALUE ");
        }
        Ok(Written { sql, after })
    }
}

/// Turns a write to a reference table. `literals` are the parameters as typed SQL literals; `moment` is the time that
/// it has.
pub fn reference_write(
    statement: &Statement,
    context: &Context<'_>,
    literals: &[String],
    moment: Moment<'_>,
) -> Result<ReferenceWrite, SqlError> {
    if matches!(statement.kind(), Kind::Truncate(_)) {
        return Ok(ReferenceWrite::same(statement.text().to_string()));
    }
    let unparsed = || {
        let message = "this statement could not be read, and writes to reference tables must be";
        statement
            .failure()
            .cloned()
            .unwrap_or_else(|| SqlError::unsupported(message, "write it in plainer words"))
    };
    let mut tree = statement.ast().ok_or_else(unparsed)?.clone();
    let stability = Stability { schema: context.schema, moment, literals, otherwise: ON_EACH };
    let changed = stability.fix(&mut tree)?;
    match &mut tree {
        ast::Statement::Insert(insert) => {
            let table = find(context, &insert.table)?;
            check_table(table)?;
            if let Some(assignments) = defaults::on_conflict(insert) {
                defaults::fix_assignments(assignments, Some(table), &stability)?;
            }
            stability.check_rest(insert)?;
            clock::refuse(&ast::Statement::Insert(rest_of(insert)), context, &stability)?;
            plan_insert(insert.clone(), table, &stability, changed, statement)
        }
        ast::Statement::Update(update) => {
            let table = defaults::updated(&update.table, context);
            defaults::fix_assignments(&mut update.assignments, table, &stability)?;
            check_written(statement, context)?;
            refuse_differing(&tree, context, &stability)?;
            Ok(ReferenceWrite::same(tree.to_string()))
        }
        _ => {
            check_written(statement, context)?;
            refuse_differing(&tree, context, &stability)?;
            let sql = if changed { tree.to_string() } else { statement.text().to_string() };
            Ok(ReferenceWrite::same(sql))
        }
    }
}

/// Refuses what may give something else each time, in a statement that is run as it is.
pub(crate) fn refuse_differing(
    tree: &ast::Statement,
    context: &Context<'_>,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    stability.refuse_unstable(tree)?;
    clock::refuse(tree, context, stability)?;
    defaults::refuse_within(tree, context, stability)
}

/// Whether how a value of a type is written depends on settings, as far as is known.
fn has_styles(kind: &str) -> bool {
    const PLAIN: [&str; 18] = [
        "bigint",
        "bool",
        "boolean",
        "bpchar",
        "char",
        "character",
        "character varying",
        "decimal",
        "int2",
        "int4",
        "int8",
        "integer",
        "name",
        "numeric",
        "smallint",
        "text",
        "uuid",
        "varchar",
    ];
    let kind = kind.trim().strip_prefix("pg_catalog.").unwrap_or(kind.trim());
    let name = kind.split('(').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.ends_with(']') || !PLAIN.contains(&name.as_str())
}

/// An INSERT without its rows.
pub(crate) fn rest_of(insert: &ast::Insert) -> ast::Insert {
    ast::Insert { source: None, ..insert.clone() }
}

impl ReferenceWrite {
    pub(crate) fn same(sql: String) -> ReferenceWrite {
        ReferenceWrite { plan: Plan::Same(sql), overriding: false }
    }
}

/// No table that is written has triggers.
fn check_written(statement: &Statement, context: &Context<'_>) -> Result<(), SqlError> {
    let analysis = polyshard_sql::analyse(statement, context)?;
    for (name, written) in analysis.tables() {
        if *written && let Some(table) = context.schema.tables.get(name) {
            check_table(table)?;
        }
    }
    Ok(())
}

fn check_table(table: &Table) -> Result<(), SqlError> {
    // It was one when the statement was looked at; it may have waited for a declaration of another kind since.
    if !matches!(table.placement, Placement::Reference { .. }) {
        let message = format!("table {} was declared otherwise while the statement waited", table.name);
        return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try again."));
    }
    if table.triggers {
        return Err(SqlError::unsupported(
            format!("reference table {} has triggers, which may do otherwise on each shard", table.name),
            "drop the triggers, or shard the table, or keep it on one shard with polyshard.local_table",
        ));
    }
    Ok(())
}

pub(crate) fn find<'a>(context: &'a Context<'_>, object: &ast::TableObject) -> Result<&'a Table, SqlError> {
    let unknown = || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation {object} does not exist"));
    let ast::TableObject::TableName(name) = object else { return Err(unknown()) };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(stable::stored).collect();
    let (schema, name) = match parts.as_slice() {
        [name] => (None, name),
        [schema, name] => (Some(schema.as_str()), name),
        _ => return Err(unknown()),
    };
    let table = context.schema.table(schema, name, context.search_path).ok_or_else(unknown)?;
    Ok(table)
}

pub(crate) fn plan_insert(
    mut insert: ast::Insert,
    table: &Table,
    stability: &Stability<'_>,
    changed: bool,
    statement: &Statement,
) -> Result<ReferenceWrite, SqlError> {
    let named: Vec<usize> = if insert.columns.is_empty() {
        (0..table.columns.len()).filter(|at| table.columns[*at].generated != Generated::Stored).collect()
    } else {
        let at = |name: &ast::ObjectName| {
            let name = name.0.last().and_then(|part| part.as_ident()).map(stable::stored).unwrap_or_default();
            table.column(&name).ok_or_else(|| {
                let message = format!("column {name} of relation {} does not exist", table.name);
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            })
        };
        insert.columns.iter().map(at).collect::<Result<_, _>>()?
    };
    // DEFAULT VALUES is a row of defaults.
    let source = match insert.source.take() {
        Some(source) => source,
        None => {
            return Err(SqlError::unsupported(
                "INSERT ... DEFAULT VALUES into a reference table",
                "name a column: INSERT INTO t (id) VALUES (DEFAULT)",
            ));
        }
    };
    insert.source = Some(source);
    let width = match insert.source.as_deref().map(|source| &*source.body) {
        Some(SetExpr::Values(values)) => {
            values.rows.first().map(|row| row.content.len()).unwrap_or(0).min(named.len())
        }
        _ if insert.columns.is_empty() => match stability.width(insert.source.as_deref()) {
            Some(width) => width.min(named.len()),
            None => named.len(),
        },
        _ => named.len(),
    };
    let named = named[..width].to_vec();
    // What the statement leaves to defaults that would differ is said instead.
    let omitted: Vec<usize> = (0..table.columns.len())
        .filter(|at| !named.contains(at) && stability.default_differs(&table.columns[*at]))
        .collect();
    if !omitted.is_empty() {
        let names = named.iter().chain(&omitted).map(|at| object_name(&table.columns[*at].name));
        insert.columns = names.collect();
    }
    let is_values = matches!(insert.source.as_deref().map(|s| &*s.body), Some(SetExpr::Values(_)));
    if is_values {
        return plan_values(insert, table, stability, &named, &omitted, changed, statement);
    }
    plan_rows(insert, table, stability, &named, &omitted)
}

#[allow(clippy::too_many_arguments, reason = "the parts of one decision, taken apart to be read")]
fn plan_values(
    mut insert: ast::Insert,
    table: &Table,
    stability: &Stability<'_>,
    named: &[usize],
    omitted: &[usize],
    changed: bool,
    statement: &Statement,
) -> Result<ReferenceWrite, SqlError> {
    let mut by_text: BTreeMap<String, usize> = BTreeMap::new();
    let (mut asks, mut places): (Vec<Ask>, Vec<Place>) = (Vec::new(), Vec::new());
    let mut touched = changed || !omitted.is_empty();
    let Some(rows) = rows_mut(&mut insert) else {
        return Ok(ReferenceWrite::same(statement.text().to_string()));
    };
    let always = |at: &usize| table.columns[*at].generated == Generated::Always;
    // A value that the client gives for such a column himself is refused by the database, as it should be.
    let said = named.iter().position(always);
    let given = said.is_some_and(|at| {
        rows.iter().any(|row| row.content.get(at).is_some_and(|value| !stable::is_default(value)))
    });
    let overriding = omitted.iter().any(always) || (said.is_some() && !given);
    for (number, row) in rows.iter_mut().enumerate() {
        for (at, value) in row.content.iter_mut().enumerate() {
            if stable::is_default(value)
                && !(given && said == Some(at))
                && let Some(column) = named.get(at).map(|at| &table.columns[*at])
                && stability.default_differs(column)
            {
                *value = stability.default_of(table, column)?;
                touched = true;
            }
        }
        for at in omitted {
            row.content.push(stability.default_of(table, &table.columns[*at])?);
        }
        for (at, value) in row.content.iter().enumerate() {
            let Some(place) = named.iter().chain(omitted).nth(at) else { continue };
            let column = &table.columns[*place];
            if !stability.differs(value, Some(column)) {
                continue;
            }
            let kind = stable::base_type(&column.type_name);
            let query = format!("SELECT CAST(CAST({value} AS {kind}) AS text)");
            let words = value.to_string();
            let sequence = sequence_of(table, *place).filter(|_| numbers(&words).is_some());
            let highest = sequence.is_some().then(|| highest_of(table, column));
            let ask = *by_text.entry(query.clone()).or_insert_with(|| {
                asks.push(Ask { query, times: 0, sequence, highest });
                asks.len() - 1
            });
            asks[ask].times += 1;
            places.push(Place { row: number, column: at, ask, kind });
        }
    }
    if asks.is_empty() {
        let sql =
            if touched { ast::Statement::Insert(insert).to_string() } else { statement.text().to_string() };
        return Ok(ReferenceWrite::same(sql));
    }
    Ok(ReferenceWrite { plan: Plan::Values { insert: Box::new(insert), asks, places }, overriding })
}

/// INSERT … SELECT: whatever the query is, and in whatever order it gives its rows, they are those of the first shard.
fn plan_rows(
    insert: ast::Insert,
    table: &Table,
    stability: &Stability<'_>,
    named: &[usize],
    omitted: &[usize],
) -> Result<ReferenceWrite, SqlError> {
    let source = insert.source.as_deref().map(ToString::to_string).unwrap_or_default();
    let kind = |at: &usize| stable::base_type(&table.columns[*at].type_name);
    let given = |number: usize| format!("c{number}");
    let names: Vec<String> = (0..named.len()).map(given).collect();
    let mut columns: Vec<String> = named
        .iter()
        .enumerate()
        .map(|(number, at)| format!("CAST(CAST(given.{} AS {}) AS text)", given(number), kind(at)))
        .collect();
    for at in omitted {
        let default = stability.default_of(table, &table.columns[*at])?;
        columns.push(format!("CAST(CAST({default} AS {}) AS text)", kind(at)));
    }
    let query = format!(
        "SELECT {} FROM ({source}) AS given({}) LIMIT {}",
        columns.join(", "),
        names.join(", "),
        REFERENCE_ROWS_MAX + 1
    );
    let types = named.iter().chain(omitted).map(kind).collect();
    let ask = Ask { query, times: 1, sequence: None, highest: None };
    let sequences = omitted.iter().enumerate();
    let sequences =
        sequences.filter_map(|(at, column)| Some((named.len() + at, sequence_of(table, *column)?)));
    let sequences = sequences.collect();
    let overriding = omitted.iter().any(|at| table.columns[*at].generated == Generated::Always);
    Ok(ReferenceWrite { plan: Plan::Rows { insert: Box::new(insert), ask, types, sequences }, overriding })
}

fn rows_mut(insert: &mut ast::Insert) -> Option<&mut Vec<ast::Parens<Vec<Expr>>>> {
    match insert.source.as_deref_mut().map(|source| &mut *source.body) {
        Some(SetExpr::Values(values)) => Some(&mut values.rows),
        _ => None,
    }
}

/// The INSERT with these rows in place of its query.
fn with_rows(
    insert: ast::Insert,
    types: &[String],
    rows: &[Vec<Option<String>>],
) -> Result<ast::Insert, SqlError> {
    if rows.len() > REFERENCE_ROWS_MAX {
        let message =
            format!("INSERT ... SELECT would write more than {REFERENCE_ROWS_MAX} rows to a reference table");
        return Err(SqlError::unsupported(message, "write them in several statements, with WHERE or LIMIT"));
    }
    let values: Vec<String> = rows
        .iter()
        .map(|row| {
            let row: Vec<String> =
                row.iter().zip(types).map(|(value, kind)| constant(value.as_deref(), kind)).collect();
            format!("({})", row.join(", "))
        })
        .collect();
    // With no row it must still be a statement that answers as the INSERT would.
    let source = if values.is_empty() {
        let nothing: Vec<String> = types.iter().map(|kind| constant(None, kind)).collect();
        format!("SELECT {} WHERE false", nothing.join(", "))
    } else {
        format!("VALUES {}", values.join(", "))
    };
    let parsed = polyshard_sql::statements(&source)?;
    let Some(ast::Statement::Query(query)) = parsed.first().and_then(|one| one.ast()).cloned() else {
        return Err(SqlError::new(
            SqlState::INTERNAL_ERROR,
            "rows of a reference table could not be written",
        ));
    };
    Ok(ast::Insert { source: Some(query), ..insert })
}

/// A value that was asked for, as it is written in SQL.
fn constant(value: Option<&str>, kind: &str) -> String {
    match value {
        None => format!("CAST(NULL AS {kind})"),
        Some(value) => format!("CAST({} AS {kind})", text(value)),
    }
}

/// Words that are SQL already.
fn raw(sql: String) -> Expr {
    Expr::Identifier(ast::Ident::new(sql))
}

fn object_name(name: &str) -> ast::ObjectName {
    ast::ObjectName::from(vec![ast::Ident::with_quote('"', name.replace('"', "\"\""))])
}

/// What a call takes numbers from, if it does: a sequence, or a shard's blocks of one.
fn numbers(call: &str) -> Option<&str> {
    call.strip_prefix("polyshard.").unwrap_or(call).strip_prefix("nextval(")
}

/// The sequence that a column takes its value from, as an expression that PostgreSQL reads as one.
fn sequence_of(table: &Table, at: usize) -> Option<String> {
    let column = &table.columns[at];
    if let Some(call) = column.default.as_deref().and_then(numbers) {
        return Some(call.strip_suffix(')')?.to_owned());
    }
    let name = format!("{}.{}", identifier(&table.name.schema), identifier(&table.name.name));
    matches!(column.generated, Generated::ByDefault | Generated::Always)
        .then(|| format!("pg_get_serial_sequence({}, {})", text(&name), text(&column.name)))
}

fn highest_of(table: &Table, column: &Column) -> String {
    let (schema, name) = (identifier(&table.name.schema), identifier(&table.name.name));
    format!("SELECT CAST(max({}) AS text) FROM {schema}.{name}", identifier(&column.name))
}

/// Every shard's sequence goes on behind the numbers that were given, so that whichever is asked next gives new ones.
fn go_on<'a>(
    sequence: &str,
    answers: impl Iterator<Item = &'a Vec<Option<String>>>,
    at: usize,
) -> Option<Recorded> {
    let given = answers.filter_map(|row| row.get(at)?.as_deref()?.parse::<i64>().ok()).max()?;
    let sql = format!(
        "SELECT setval({sequence}::regclass, \
         greatest({given}, coalesce(pg_sequence_last_value({sequence}::regclass), 0)))"
    );
    Some(Recorded::own(Dialect::Postgres, sql))
}
