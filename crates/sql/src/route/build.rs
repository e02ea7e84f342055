//! A statement's analysis, put together from what the walk through it has found.

use crate::ast::{self, SetExpr};
use polyshard_map::ShardId;

use super::Context;
use super::analysis::{Action, Analysis, Called, Occurrence, Place};
use super::builder::{Builder, Use};
use super::cte::Env;
use super::formula::KeyColumn;
use super::from::{OWN_SCHEMA, check_not_own};
use super::lock::ReferenceLock;
use super::mention;
use super::scope::relation_of;
use super::value::Family;
use crate::error::{SqlError, SqlState};
use crate::kind::{CopyWhat, Ddl, Kind, RelationName};
use crate::schema::{Placement, Schema, Table, TableName, Volatility};
use crate::statement::{Statement, nested};

/// Functions whose effect is on one database, so that several must not run them for one statement.
const ONE_SHARD_FUNCTIONS: [&str; 9] = [
    "nextval",
    "currval",
    "lastval",
    "setval",
    "set_config",
    "pg_notify",
    "pg_export_snapshot",
    "txid_current",
    "dblink",
];

/// Functions that tell what the session has done before, on a session that others share.
const OF_THE_SESSION: [&str; 2] = ["currval", "lastval"];

pub(super) fn build(statement: &Statement, context: &Context<'_>) -> Result<Analysis, SqlError> {
    match statement.kind() {
        Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge => parsed(statement, context),
        Kind::Copy(copy) => match &copy.what {
            CopyWhat::Query(query) => build(query, context),
            CopyWhat::Table { name, .. } => whole(std::slice::from_ref(name), copy.from, context),
        },
        Kind::Explain(explain) => build(&explain.statement, context),
        Kind::Declare(declare) => build(&declare.query, context),
        Kind::Prepare(prepare) => build(&prepare.statement, context),
        Kind::Truncate(tables) => truncate(tables, context),
        Kind::Lock(tables) => {
            let analysis = whole(tables, false, context)?;
            let reference_lock = analysis.reads_reference.then_some(ReferenceLock::Alone);
            Ok(Analysis { reference_lock, ..analysis })
        }
        Kind::Ddl(ddl) => schema_change(statement, ddl, context),
        Kind::Vacuum => Ok(plain(Action::Everywhere, true, context)),
        Kind::Do => {
            super::block::check(statement.text(), context)?;
            Ok(plain(Action::Everywhere, true, context))
        }
        Kind::Call => Err(SqlError::unsupported(
            "CALL is not offered: a procedure may touch rows of any shard",
            "Send the statements of the procedure themselves, or call a function in a statement that names a key.",
        )),
        Kind::Unparsed => unparsed(statement, context),
        Kind::Begin(_)
        | Kind::Commit { .. }
        | Kind::Rollback { .. }
        | Kind::Savepoint(_)
        | Kind::Release(_)
        | Kind::RollbackTo(_)
        | Kind::PrepareTransaction(_)
        | Kind::CommitPrepared(_)
        | Kind::RollbackPrepared(_)
        | Kind::Set(_)
        | Kind::SetConfig(_)
        | Kind::SetTransaction { .. }
        | Kind::SetConstraints
        | Kind::Reset(_)
        | Kind::Show(_)
        | Kind::Discard(_)
        | Kind::Fetch(_)
        | Kind::Close(_)
        | Kind::Execute(_)
        | Kind::Deallocate(_)
        | Kind::Listen(_)
        | Kind::Unlisten(_)
        | Kind::Notify { .. }
        | Kind::Polyshard(_) => Ok(plain(Action::Anywhere, false, context)),
    }
}

fn plain(action: Action, writes: bool, context: &Context<'_>) -> Analysis {
    Analysis {
        action,
        writes,
        reads_reference: false,
        strict: context.strict,
        one_shard_only: None,
        reference_lock: None,
        separable: true,
        tables: Vec::new(),
        unknown: Vec::new(),
        system: Vec::new(),
        writes_system: false,
        undeclared: None,
        called: Vec::new(),
        describes: false,
        aside: false,
    }
}

fn parsed(statement: &Statement, context: &Context<'_>) -> Result<Analysis, SqlError> {
    let mut builder = Builder::new(context);
    let env = Env::empty();
    match statement.ast() {
        Some(ast::Statement::Query(query)) => drop(builder.query(query, None, &env)?),
        Some(other) => drop(builder.write(other, &env)?),
        None => return unparsed(statement, context),
    }
    if let Some(left_out) = statement.left_out() {
        builder.one_shard_only.get_or_insert_with(|| left_out.to_owned());
    }
    let top_insert = is_plain_insert(statement);
    finish(builder, statement, top_insert)
}

/// An INSERT of values or arrays that is the whole statement: only that can be cut.
fn is_plain_insert(statement: &Statement) -> bool {
    let insert = match statement.ast() {
        Some(ast::Statement::Insert(insert)) => insert,
        Some(ast::Statement::Query(query)) => match query.body.as_ref() {
            SetExpr::Insert(ast::Statement::Insert(insert)) => insert,
            _ => return false,
        },
        _ => return false,
    };
    let Some(source) = &insert.source else { return false };
    matches!(source.body.as_ref(), SetExpr::Values(_)) || super::unnest::arrays(source).is_some()
}

fn finish(mut builder: Builder<'_>, statement: &Statement, top_insert: bool) -> Result<Analysis, SqlError> {
    let context = builder.context;
    let ours = |(schema, name): &(Option<String>, String)| {
        (schema.as_deref() == Some("polyshard")).then(|| crate::call::refused_inside(name)).flatten()
    };
    if let Some(refusal) = builder.functions.iter().find_map(ours) {
        return Err(refusal);
    }
    let called = called(&builder, context.schema);
    check_session(&called, context.schema)?;
    let mut occurrences = Vec::new();
    let (mut reads_reference, mut reference_written) = (false, None);
    let mut undeclared = None;
    let mut tables = Vec::with_capacity(builder.instances.len());
    for instance in 0..builder.instances.len() {
        let table = builder.instances[instance].table.clone();
        let use_ = builder.instances[instance].use_.clone();
        tables.push((table.name.clone(), use_ != Use::Read));
        if table.placement == (Placement::Reference { declared: false }) {
            undeclared.get_or_insert_with(|| table.name.clone());
        }
        match &table.placement {
            Placement::Reference { .. } if use_ == Use::Read => reads_reference = true,
            Placement::Reference { .. } => reference_written = Some(table.name.clone()),
            Placement::Local(_) | Placement::Sharded { .. } => {
                occurrences.push(occurrence(&mut builder, instance, &table, use_)?);
            }
        }
    }
    let writes = tables.iter().any(|(_, written)| *written);
    let separable = writes && is_separable(&mut builder);
    if let (Some(written), Some(other)) = (&reference_written, occurrences.first()) {
        return Err(SqlError::unsupported(
            format!(
                "the statement writes reference table {written} and uses table {}, which is not on every shard",
                other.table
            ),
            "Read the rows first, and write the reference table by a statement of its own.",
        ));
    }
    // Every shard would insert all of its rows.
    let inner_insert = builder.insert.is_some() && !top_insert;
    let inner_insert = inner_insert.then(|| "INSERT inside another statement".to_owned());
    let one_shard_only = builder.one_shard_only.take().or(inner_insert).or_else(|| {
        let one_shard = called.iter().find(|called| {
            ONE_SHARD_FUNCTIONS.contains(&called.name.as_str())
                || called.name.starts_with("pg_advisory")
                || called.name.starts_with("pg_try_advisory")
                || called.name.starts_with("lo_")
        });
        one_shard.map(|called| format!("{}()", called.name))
    });
    let action = if reference_written.is_some() {
        Action::ReferenceWrite
    } else if occurrences.is_empty() {
        if reads_reference { Action::ReferenceRead } else { Action::Anywhere }
    } else {
        match builder.insert.take() {
            Some(mut insert) if top_insert => {
                let rows = insert.keys.len();
                // The table's own occurrence is what the rows say.
                let own = occurrences.iter().position(|found| matches!(found.use_, Use::Add { .. }));
                own.map(|own| occurrences.remove(own));
                insert.others = occurrences;
                insert.text = statement.text().clone();
                match &mut insert.arrays {
                    Some(arrays) => arrays.cut = super::unnest::Cut::of(statement.text()),
                    None if rows > 1 => insert.spans = super::insert::spans(statement.text(), rows),
                    None => {}
                }
                Action::Insert(Box::new(insert))
            }
            _ => Action::Placed(occurrences),
        }
    };
    if !matches!(action, Action::Placed(_) | Action::Insert(_)) {
        check_functions(&called)?;
    }
    let unknown = std::mem::take(&mut builder.unknown);
    if !unknown.is_empty() {
        mention::check_unknown(statement, &unknown, context)?;
    }
    let describes = matches!(action, Action::Anywhere)
        && !writes
        && unknown.is_empty()
        && super::catalog::is_asked(&builder.system, &called, statement.text());
    let aside = matches!(action, Action::Anywhere)
        && unknown.is_empty()
        && super::catalog::is_aside(&builder.system, &called, statement.text());
    Ok(Analysis {
        action,
        writes,
        reads_reference,
        describes,
        aside,
        strict: context.strict,
        one_shard_only,
        reference_lock: builder.reference_lock.filter(|_| reference_written.is_none()),
        separable,
        tables,
        unknown,
        system: builder.system,
        writes_system: builder.writes_system,
        undeclared,
        called,
    })
}

/// Whether all tables that are not on every shard are bound to the key of one that is written, and to its map.
fn is_separable(builder: &mut Builder<'_>) -> bool {
    let mut placed = Vec::new();
    for instance in 0..builder.instances.len() {
        let table = builder.instances[instance].table.clone();
        match (&table.placement, builder.key_node(instance)) {
            (Placement::Reference { .. }, _) => {}
            (Placement::Sharded { map, .. }, Some(node)) => {
                placed.push((map.clone(), node, builder.instances[instance].use_ != Use::Read));
            }
            (Placement::Sharded { .. } | Placement::Local(_), _) => return false,
        }
    }
    placed.iter().any(|(map, node, written)| {
        *written && placed.iter().all(|(other, key, _)| other == map && builder.graph.reaches(*node, *key))
    })
}

fn occurrence(
    builder: &mut Builder<'_>,
    instance: usize,
    table: &Table,
    use_: Use,
) -> Result<Occurrence, SqlError> {
    let place = match &table.placement {
        Placement::Sharded { map, column, key_type } => {
            let definition = &table.columns[*column];
            let (Some(node), Some(family)) = (builder.key_node(instance), Family::of_column(definition))
            else {
                return Err(SqlError::new(
                    SqlState::INVALID_TABLE_DEFINITION,
                    format!("column \"{}\" of table {} cannot be a key", definition.name, table.name),
                )
                .hint("Use a column of type integer, bigint, text, uuid, date, timestamptz or bytea."));
            };
            Place::Sharded {
                map: map.clone(),
                column_name: definition.name.clone(),
                column: KeyColumn { key_type: key_type.clone(), family },
                formula: builder.graph.formula(node),
            }
        }
        Placement::Local(shard) => Place::Local(shard.clone()),
        Placement::Reference { .. } => {
            return Err(SqlError::new(SqlState::INTERNAL_ERROR, "a reference table has no place of its own"));
        }
    };
    Ok(Occurrence { table: table.name.clone(), place, use_ })
}

/// The functions that are called and are not known to be harmless.
fn called(builder: &Builder<'_>, schema: &Schema) -> Vec<Called> {
    let mut found = Vec::new();
    for (schema_name, name) in &builder.functions {
        if schema_name.as_deref() == Some("polyshard") {
            continue;
        }
        let schemas: Vec<&str> = match schema_name {
            Some(schema) => vec![schema],
            None => builder.context.search_path.iter().map(String::as_str).collect(),
        };
        let user = schemas.iter().find_map(|schema_name| {
            let full = TableName { schema: (*schema_name).to_owned(), name: name.clone() };
            schema.functions.get(&full)
        });
        let builtin = schema.unstable_builtins.get(name).copied().unwrap_or(Volatility::Immutable);
        found.push(match user {
            Some(function) => Called {
                name: name.clone(),
                volatility: function.volatility,
                reads_tables: !function.table_free && function.volatility != Volatility::Immutable,
            },
            None => Called { name: name.clone(), volatility: builtin, reads_tables: false },
        });
    }
    found
}

/// A function of the user's could read a sharded table, and would see one shard's part of it.
fn check_functions(called: &[Called]) -> Result<(), SqlError> {
    match called.iter().find(|called| called.reads_tables) {
        None => Ok(()),
        Some(called) => Err(SqlError::unsupported(
            format!("function {} may read tables, and the statement names no key", called.name),
            "Name a key by a condition on a sharded table, or make the function IMMUTABLE if it reads no table.",
        )),
    }
}

/// The last number of a sequence would be that of whoever had the shard's session before; and where ids of a sharded
/// table come from blocks, the sequence counts something else.
fn check_session(called: &[Called], schema: &Schema) -> Result<(), SqlError> {
    let is_users = |name: &str| schema.functions.keys().any(|function| function.name == name);
    let asked = called.iter().find(|called| OF_THE_SESSION.contains(&called.name.as_str()));
    match asked.filter(|called| !is_users(&called.name)) {
        None => Ok(()),
        Some(called) => Err(SqlError::unsupported(
            format!("{}() tells what a session of a shard has done, and sessions are shared", called.name),
            "Ask for the id with the row: INSERT … RETURNING id; or SELECT nextval(…) first, and insert its answer.",
        )),
    }
}

/// Statements about whole tables.
fn whole(tables: &[RelationName], writes: bool, context: &Context<'_>) -> Result<Analysis, SqlError> {
    let mut builder = Builder::new(context);
    let env = Env::empty();
    let mut scope = super::scope::Scope::new(None);
    for table in tables {
        builder.relation(table.schema.clone(), table.name.clone(), None, Vec::new(), &mut scope, &env)?;
    }
    let mut occurrences = Vec::new();
    let (mut reference, mut names) = (false, Vec::new());
    let mut undeclared = None;
    for instance in 0..builder.instances.len() {
        let table = builder.instances[instance].table.clone();
        names.push((table.name.clone(), writes));
        if table.placement == (Placement::Reference { declared: false }) {
            undeclared.get_or_insert_with(|| table.name.clone());
        }
        match &table.placement {
            Placement::Reference { .. } => reference = true,
            _ => occurrences.push(occurrence(&mut builder, instance, &table, Use::Read)?),
        }
    }
    let action = match (occurrences.is_empty(), reference) {
        (false, _) => Action::Placed(occurrences),
        (true, true) if writes => Action::ReferenceWrite,
        (true, true) => Action::ReferenceRead,
        (true, false) => Action::Anywhere,
    };
    let analysis = plain(action, writes, context);
    Ok(Analysis {
        reads_reference: reference && !writes,
        tables: names,
        unknown: builder.unknown,
        system: builder.system,
        writes_system: builder.writes_system,
        undeclared,
        ..analysis
    })
}

/// TRUNCATE empties a table on every shard, or a local one on its own.
fn truncate(tables: &[RelationName], context: &Context<'_>) -> Result<Analysis, SqlError> {
    let mut analysis = whole(tables, true, context)?;
    if let Action::Placed(occurrences) = &analysis.action {
        let shards: Vec<Option<&ShardId>> = occurrences
            .iter()
            .map(|occurrence| match &occurrence.place {
                Place::Local(shard) => Some(shard),
                Place::Sharded { .. } => None,
            })
            .collect();
        let local = shards.iter().any(Option::is_some);
        let alone =
            occurrences.len() == analysis.tables.len() && shards.windows(2).all(|pair| pair[0] == pair[1]);
        if local && !alone {
            return Err(SqlError::unsupported(
                "TRUNCATE of a local table together with others is not supported",
                "Truncate the local table by a statement of its own.",
            ));
        }
        if !local {
            analysis.action = Action::Everywhere;
        }
    }
    Ok(analysis)
}

/// Schema changes go to every shard; those that fill a table from a sharded one would fill it with a part.
fn schema_change(statement: &Statement, ddl: &Ddl, context: &Context<'_>) -> Result<Analysis, SqlError> {
    if ddl.temporary {
        let query = match statement.ast() {
            Some(ast::Statement::CreateTable(table)) => table.query.as_deref(),
            _ => None,
        };
        // It is where the rows are that it is filled with.
        return match query {
            None => Ok(plain(Action::Anywhere, true, context)),
            Some(query) => Ok(Analysis { writes: true, ..build(&*nested(&query.to_string())?, context)? }),
        };
    }
    check_changes_nothing_own(statement, ddl)?;
    let filled_from = match statement.ast() {
        Some(ast::Statement::CreateTable(table)) => table.query.as_deref(),
        Some(ast::Statement::CreateView(view)) if view.materialized => Some(view.query.as_ref()),
        Some(ast::Statement::Query(query)) => Some(query.as_ref()),
        _ => None,
    };
    let unreadable = statement.ast().is_none() && mention::fills_table(statement);
    let placed = match filled_from {
        None => unreadable && mention::names_placed_table(statement.text(), context),
        Some(query) => {
            let mut builder = Builder::new(context);
            builder.query(query, None, &Env::empty())?;
            let mut tables = builder.instances.iter().map(|instance| &instance.table.placement);
            tables.any(|placement| !matches!(placement, Placement::Reference { .. }))
        }
    };
    if placed {
        return Err(SqlError::unsupported(
            format!("{} from a table that is not on every shard is not supported", ddl.tag),
            "Create the table first, declare where its rows are, and fill it key by key.",
        ));
    }
    Ok(plain(Action::Everywhere, true, context))
}

/// Without what Polyshard keeps on them, shards are of no use.
fn check_changes_nothing_own(statement: &Statement, ddl: &Ddl) -> Result<(), SqlError> {
    let dropped = match statement.ast() {
        Some(ast::Statement::Drop { names, .. }) => names.iter().filter_map(relation_of).collect(),
        _ => Vec::new(),
    };
    let named = ddl.name.iter().map(|name| (name.schema.clone(), name.name.clone()));
    for (schema, name) in named.chain(dropped) {
        check_not_own(schema.as_deref(), &name)?;
        if matches!(ddl.tag.as_str(), "DROP SCHEMA" | "ALTER SCHEMA") && name == OWN_SCHEMA {
            return Err(SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("schema {OWN_SCHEMA} is what Polyshard keeps on its shards, and cannot be changed"),
            ));
        }
    }
    Ok(())
}

/// What could not be parsed may pass if it names nothing of the user's.
fn unparsed(statement: &Statement, context: &Context<'_>) -> Result<Analysis, SqlError> {
    match mention::first(statement.text(), context) {
        None => Ok(plain(Action::Anywhere, true, context)),
        Some(name) => {
            let why = statement.failure().map(|failure| failure.message.to_string());
            let error = SqlError::unsupported(
                format!("it could not be told which shard the statement is for: it names {name}"),
                "Write the statement in a simpler form, or run it on the shard itself.",
            );
            Err(match why {
                Some(why) => error.detail(why),
                None => error,
            })
        }
    }
}

/// The names of the relations that a parsed statement mentions, for the checks of others.
pub(super) fn relation_names(statement: &ast::Statement) -> Vec<(Option<String>, String)> {
    let mut names = Vec::new();
    let _: std::ops::ControlFlow<()> = ast::visit_relations(statement, |name| {
        names.extend(relation_of(name));
        std::ops::ControlFlow::Continue(())
    });
    names
}
