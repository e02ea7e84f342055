//! Writes within WITH: carried out first, one after the other, their rows laid ready for what follows.
//!
//! In PostgreSQL all parts of such a statement see the tables as they were before it. That is so here as long as no
//! part reads or writes what an earlier one has written, and no query is computed twice with different rows: anything
//! else is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use polyshard_sql::ast::{
    Cte as AstCte, Delete, FromTable, Insert, ObjectName, OnConflictAction, OnInsert, Query, SetExpr,
    Statement as Ast, TableFactor, TableObject, Update, Visit, visit_relations,
};
use polyshard_sql::{Context, SqlError, TableName};

use super::{Cte, Ex, Translator, fold, name_parts};
use crate::fail::{fail, unsupported};

/// Functions that give another value each time.
const VOLATILE: [&str; 4] = ["random", "gen_random_uuid", "uuid_generate", "clock_timestamp"];

/// A relation as it is written: schema and name.
type Name = (Option<String>, String);

impl Translator<'_> {
    /// The parts of WITH before a query or write; `is_top` says that it is the whole statement.
    pub(super) fn with_parts(
        &mut self,
        query: &Query,
        is_top: bool,
        uses: &mut Ex,
    ) -> Result<Vec<String>, SqlError> {
        let mut with = Vec::new();
        let Some(clause) = &query.with else { return Ok(with) };
        let writes = clause.cte_tables.iter().any(is_write);
        if writes && !is_top {
            let message = "WITH clause containing a data-modifying statement must be at the top level";
            return Err(fail("0A000", message));
        }
        if writes {
            Parts::of(query, &clause.cte_tables).check(self.context)?;
        }
        for cte in &clause.cte_tables {
            if is_write(cte) {
                self.write_first(cte, &with)?;
            } else {
                with.push(self.cte(cte, clause.recursive, uses)?);
            }
        }
        Ok(with)
    }

    /// Has a write carried out before the statement; `with` are the queries before it, which it may use.
    fn write_first(&mut self, cte: &AstCte, with: &[String]) -> Result<(), SqlError> {
        let query = &cte.query;
        if query.with.is_some() || query.order_by.is_some() || query.limit_clause.is_some() {
            return Err(unsupported("this write within WITH"));
        }
        let ids_before = self.ids;
        let per_row = self.held.as_ref().map_or(0, |held| held.sequences());
        let written = match query.body.as_ref() {
            SetExpr::Insert(Ast::Insert(insert)) => self.insert(insert),
            SetExpr::Update(Ast::Update(update)) => self.update(update),
            SetExpr::Delete(Ast::Delete(delete)) => self.delete(delete),
            _ => Err(unsupported("this write within WITH")),
        };
        self.ids = ids_before;
        let (sql, columns) = written?;
        let held = self.held.get_or_insert_default();
        if held.sequences() > per_row {
            return Err(unsupported("an id for each row of a query within WITH")
                .hint("insert the rows by a statement of its own"));
        }
        if sql.starts_with("WITH ") {
            return Err(unsupported("an INSERT of several rows with ON CONFLICT DO UPDATE within WITH"));
        }
        let sql = if with.is_empty() { sql } else { format!("WITH RECURSIVE {} {sql}", with.join(", ")) };
        let mut columns = columns.unwrap_or_default();
        if cte.alias.columns.len() > columns.len() {
            let message = format!("WITH query \"{}\" has fewer columns than names are given", cte.alias.name);
            return Err(fail("42P10", message));
        }
        for (column, given) in columns.iter_mut().zip(&cte.alias.columns) {
            column.name = fold(&given.name);
        }
        let alias = held.write(sql, columns.len());
        self.ctes.push(Cte { name: fold(&cte.alias.name), alias, columns });
        Ok(())
    }
}

fn is_write(cte: &AstCte) -> bool {
    matches!(
        cte.query.body.as_ref(),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
    )
}

/// Whether an INSERT may change rows that are there.
fn updates(insert: &Insert) -> bool {
    match &insert.on {
        None => false,
        Some(OnInsert::OnConflict(conflict)) => !matches!(conflict.action, OnConflictAction::DoNothing),
        Some(_) => true,
    }
}

/// What each part of a statement names.
struct Parts {
    /// The queries of WITH.
    queries: BTreeMap<String, Query>,
    /// Its writes, in order.
    writes: Vec<Write>,
    main: BTreeSet<Name>,
}

struct Write {
    name: String,
    names: BTreeSet<Name>,
    /// The table that it writes.
    target: Option<Name>,
    /// Whether rows of others may change with it.
    cascades: bool,
    /// Whether it has RETURNING.
    returns: bool,
}

impl Parts {
    fn of(query: &Query, ctes: &[AstCte]) -> Parts {
        let mut parts = Parts { queries: BTreeMap::new(), writes: Vec::new(), main: BTreeSet::new() };
        for cte in ctes {
            let name = fold(&cte.alias.name);
            if !is_write(cte) {
                parts.queries.insert(name, (*cte.query).clone());
                continue;
            }
            let body = cte.query.body.as_ref();
            let (cascades, returns) = match body {
                SetExpr::Insert(Ast::Insert(insert)) => (updates(insert), insert.returning.is_some()),
                SetExpr::Update(Ast::Update(update)) => (true, update.returning.is_some()),
                SetExpr::Delete(Ast::Delete(delete)) => (true, delete.returning.is_some()),
                _ => (true, false),
            };
            let (names, target) = (named(&cte.query), target(body));
            parts.writes.push(Write { name, names, target, cascades, returns });
        }
        parts.main = named(query.body.as_ref());
        parts.main.extend(named(&query.order_by));
        parts.main.extend(named(&query.limit_clause));
        parts.main.extend(named(&query.fetch));
        parts.main.extend(target(query.body.as_ref()));
        parts
    }

    /// Refuses parts that PostgreSQL would show something else than they would see here.
    fn check(&self, context: &Context<'_>) -> Result<(), SqlError> {
        let mut used: BTreeMap<&str, usize> = BTreeMap::new();
        let mut written: BTreeSet<TableName> = BTreeSet::new();
        for write in &self.writes {
            let mut names = write.names.clone();
            names.extend(write.target.clone());
            self.check_part(&names, &written, &mut used, context)?;
            if let Some((schema, name)) = &write.target
                && let Some(table) = context.schema.table(schema.as_deref(), name, context.search_path)
            {
                written.insert(table.name.clone());
                if write.cascades {
                    add_dependent(&mut written, context);
                }
            }
        }
        self.check_part(&self.main, &written, &mut used, context)?;
        for (name, _) in used.iter().filter(|(_, times)| **times > 1) {
            // Each part computes it anew: it must not read tables, whose rows may come in another order then.
            let Some(query) = self.queries.get(*name) else { continue };
            let text = query.to_string().to_ascii_lowercase();
            let reads = named(query).iter().any(|(schema, table)| {
                schema.is_some() || !self.queries.contains_key(table) && !self.is_write_called(table)
            });
            if reads || VOLATILE.iter().any(|function| text.contains(function)) {
                return Err(refused(format!(
                    "the query \"{name}\" both in a write within WITH and elsewhere"
                )));
            }
        }
        Ok(())
    }

    fn is_write_called(&self, name: &str) -> bool {
        self.writes.iter().any(|write| write.name == name)
    }

    /// One part, after these tables were written.
    fn check_part<'p>(
        &'p self,
        names: &BTreeSet<Name>,
        written: &BTreeSet<TableName>,
        used: &mut BTreeMap<&'p str, usize>,
        context: &Context<'_>,
    ) -> Result<(), SqlError> {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<Name> = names.iter().cloned().collect();
        while let Some((schema, name)) = open.pop() {
            // Also where a query of WITH is called like it, which may read it.
            let (within, path) = (schema.as_deref(), context.search_path);
            let table = context.schema.table(within, &name, path);
            if table.is_some_and(|table| written.contains(&table.name)) {
                return Err(refused(format!("the table \"{name}\" again beside a write of it within WITH")));
            }
            if schema.is_none()
                && let Some((own, query)) = self.queries.get_key_value(&name)
            {
                if seen.insert(own.as_str()) {
                    *used.entry(own.as_str()).or_default() += 1;
                    open.extend(named(query));
                }
                continue;
            }
            if schema.is_none()
                && let Some(write) = self.writes.iter().find(|write| write.name == name)
            {
                if !write.returns {
                    let message = format!("WITH query \"{name}\" does not have a RETURNING clause");
                    return Err(fail("0A000", message));
                }
                continue;
            }
            if table.is_none() && context.schema.view(within, &name, path).is_some() {
                return Err(refused(format!("the view \"{name}\" beside a write within WITH")));
            }
        }
        Ok(())
    }
}

fn refused(what: String) -> SqlError {
    unsupported(what).hint("send the parts as statements of one transaction")
}

/// Adds the tables whose rows may change with those: the ones that refer to them.
fn add_dependent(written: &mut BTreeSet<TableName>, context: &Context<'_>) {
    loop {
        let refers = |table: &polyshard_sql::Table| {
            !written.contains(&table.name)
                && table.foreign_keys.iter().any(|key| written.contains(&key.target))
        };
        let found = context.schema.tables.values().find(|table| refers(table));
        match found {
            Some(table) => written.insert(table.name.clone()),
            None => return,
        };
    }
}

/// The relations that a part names, its own inner queries' among them.
fn named<V: Visit>(part: &V) -> BTreeSet<Name> {
    let mut names = BTreeSet::new();
    let _: ControlFlow<()> = visit_relations(part, |relation| {
        names.extend(name_parts(relation));
        ControlFlow::Continue(())
    });
    names
}

/// The table that is written.
fn target(body: &SetExpr) -> Option<Name> {
    let factor = |factor: &TableFactor| match factor {
        TableFactor::Table { name, .. } => name_parts(name).ok(),
        _ => None,
    };
    let parts = |name: &ObjectName| name_parts(name).ok();
    match body {
        SetExpr::Insert(Ast::Insert(Insert { table: TableObject::TableName(name), .. })) => parts(name),
        SetExpr::Update(Ast::Update(Update { table, .. })) => factor(&table.relation),
        SetExpr::Delete(Ast::Delete(Delete { from, .. })) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = from;
            factor(&from.first()?.relation)
        }
        _ => None,
    }
}
