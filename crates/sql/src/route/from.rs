//! FROM: relations and joins, and which side of a join a condition says something about.

use crate::ast::{Join, JoinConstraint, JoinOperator, TableAlias, TableFactor, TableWithJoins};
use std::ops::Range;

use super::builder::{Builder, Resolved, Use};
use super::cte::Env;
use super::graph::{NodeId, Sequence};
use super::query::renamed;
use super::scope::{Columns, Item, Scope, name_of, relation_of};
use crate::error::{SqlError, SqlState};
use crate::statement::statements;

/// Schemas whose relations every shard has alike.
const SYSTEM_SCHEMAS: [&str; 3] = ["pg_catalog", "information_schema", "pg_toast"];

/// The schema in which each shard keeps what it needs itself, and the entities and messages of its part of the keys.
pub(super) const OWN_SCHEMA: &str = "polyshard";

/// No statement of a client's is about those: it would see or change one shard's part, behind the backs of the stores.
pub(super) fn check_not_own(schema: Option<&str>, name: &str) -> Result<(), SqlError> {
    if schema != Some(OWN_SCHEMA) {
        return Ok(());
    }
    let message = format!("relation \"{OWN_SCHEMA}.{name}\" does not exist");
    Err(SqlError::new(SqlState::UNDEFINED_TABLE, message).hint(
        "What Polyshard keeps on its shards is not SQL's: entities and messages are at the doors of tables and \
         queues, and polyshard.entity_get reads an entity.",
    ))
}

impl Builder<'_> {
    /// A relation and what is joined to it.
    pub(super) fn tables(
        &mut self,
        tables: &TableWithJoins,
        scope: &mut Scope<'_>,
        env: &Env<'_>,
    ) -> Result<(), SqlError> {
        let (start, items) = (self.now(), scope.items.len());
        self.factor(&tables.relation, scope, env)?;
        for join in &tables.joins {
            self.join(join, start, items, scope, env)?;
        }
        Ok(())
    }

    fn join(
        &mut self,
        join: &Join,
        start: Sequence,
        items: usize,
        scope: &mut Scope<'_>,
        env: &Env<'_>,
    ) -> Result<(), SqlError> {
        let (middle, right_items) = (self.now(), scope.items.len());
        self.factor(&join.relation, scope, env)?;
        let end = self.now();
        // A condition says something about those rows that only matter where it holds.
        let (constraint, about, keeps) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
                (constraint, start..end, Keeps::Either)
            }
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                (constraint, middle..end, Keeps::Left)
            }
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                (constraint, start..middle, Keeps::Right)
            }
            JoinOperator::FullOuter(constraint) => (constraint, end..end, Keeps::Both),
            JoinOperator::CrossJoin(constraint) => (constraint, start..end, Keeps::Either),
            _ => return Ok(()),
        };
        match constraint {
            JoinConstraint::On(condition) => self.condition(condition, scope, env, about),
            JoinConstraint::Using(columns) => {
                let names: Option<Vec<String>> =
                    columns.iter().map(|column| relation_of(column).map(|(_, name)| name)).collect();
                for name in names.unwrap_or_default() {
                    self.merge(name, keeps, &about, items..right_items, scope);
                }
                Ok(())
            }
            JoinConstraint::Natural => {
                for name in self.common(items..right_items, scope) {
                    self.merge(name, keeps, &about, items..right_items, scope);
                }
                Ok(())
            }
            JoinConstraint::None => Ok(()),
        }
    }

    /// USING: two columns of a name become one.
    fn merge(
        &mut self,
        name: String,
        keeps: Keeps,
        about: &Range<Sequence>,
        left: Range<usize>,
        scope: &mut Scope<'_>,
    ) {
        let path = [name];
        let right_items = left.end..scope.items.len();
        let left = match self.resolve_here(&path, scope, left) {
            Resolved::Node(node) => node,
            Resolved::Missing => None,
        };
        let merged = std::mem::take(&mut scope.merged);
        let right = match self.resolve_here(&path, scope, right_items) {
            Resolved::Node(node) => node,
            Resolved::Missing => None,
        };
        scope.merged = merged;
        if let (Some(left), Some(right)) = (left, right) {
            self.equal(left, right, about);
        }
        let node = match keeps {
            // In an inner join each stands for the other.
            Keeps::Either => left,
            Keeps::Left => left,
            Keeps::Right => right,
            Keeps::Both => None,
        };
        let [name] = path;
        scope.merged.retain(|(known, _)| *known != name);
        scope.merged.push((name, node));
    }

    /// Two columns are equal, as far as these rows go.
    pub(super) fn equal(&mut self, one: NodeId, other: NodeId, about: &Range<Sequence>) {
        for (from, to) in [(one, other), (other, one)] {
            if about.contains(&self.graph.sequence(to)) {
                self.graph.connect(from, to);
            }
        }
    }

    /// The names that both sides of NATURAL have; none if that is not known.
    fn common(&mut self, left: Range<usize>, scope: &Scope<'_>) -> Vec<String> {
        let mut names = [Vec::new(), Vec::new()];
        for (place, item) in scope.items.iter().enumerate().skip(left.start) {
            let side = usize::from(place >= left.end);
            match self.item_outputs(item) {
                Some(columns) => names[side].extend(columns.into_iter().filter_map(|column| column.name)),
                None => return Vec::new(),
            }
        }
        let [mut left, right] = names;
        left.retain(|name| right.contains(name));
        left.dedup();
        left
    }

    fn factor(&mut self, factor: &TableFactor, scope: &mut Scope<'_>, env: &Env<'_>) -> Result<(), SqlError> {
        match factor {
            TableFactor::Table { name, alias, args: None, with_ordinality: false, sample, .. } => {
                self.walk(sample, scope, env)?;
                let Some((schema, name)) = relation_of(name) else {
                    return self.opaque(factor, None, scope, env);
                };
                let (alias, columns) = alias_of(alias.as_ref());
                self.relation(schema, name, alias, columns, scope, env)
            }
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                self.function(name);
                let own = relation_of(name).map(|(_, name)| name);
                let name = alias_of(alias.as_ref()).0.or(own);
                self.opaque(factor, name, scope, env)
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                self.walk(sample, scope, env)?;
                let outputs = match lateral {
                    true => self.query(subquery, Some(scope), env)?,
                    false => self.query(subquery, scope.parent, env)?,
                };
                let outputs = self.settled(outputs);
                let (name, columns) = alias_of(alias.as_ref());
                scope.items.push(Item { name, schema: None, columns: Columns::aliased(outputs, &columns) });
                Ok(())
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.tables(table_with_joins, scope, env)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                // Under an alias the names inside are out of sight, and so is what is asked of them.
                let mut inner = Scope::new(scope.parent);
                self.tables(table_with_joins, &mut inner, env)?;
                let name = alias_of(alias.as_ref()).0;
                scope.items.push(Item { name, schema: None, columns: Columns::Unknown });
                Ok(())
            }
            TableFactor::TableFunction { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::JsonTable { alias, .. }
            | TableFactor::XmlTable { alias, .. } => {
                let name = alias_of(alias.as_ref()).0;
                self.opaque(factor, name, scope, env)
            }
            other => Err(SqlError::unsupported(
                format!("this is not understood: {other}"),
                "Write the statement in PostgreSQL's own SQL.",
            )),
        }
    }

    /// Something whose columns are not known; sub-queries in its arguments see the relations before it.
    fn opaque(
        &mut self,
        factor: &TableFactor,
        name: Option<String>,
        scope: &mut Scope<'_>,
        env: &Env<'_>,
    ) -> Result<(), SqlError> {
        self.walk(factor, scope, env)?;
        self.step();
        scope.items.push(Item { name, schema: None, columns: Columns::Unknown });
        Ok(())
    }

    /// A name in a FROM: a CTE, a view, a table, or something else.
    pub(super) fn relation(
        &mut self,
        schema: Option<String>,
        name: String,
        alias: Option<String>,
        columns: Vec<String>,
        scope: &mut Scope<'_>,
        env: &Env<'_>,
    ) -> Result<(), SqlError> {
        let shown = alias.clone().or_else(|| Some(name.clone()));
        if schema.is_none()
            && let Some(found) = self.cte(&name, env)?
        {
            let found = match found {
                Columns::Query(outputs) => {
                    let outputs = self.settled(outputs);
                    Columns::aliased(outputs, &columns)
                }
                other => other,
            };
            scope.items.push(Item { name: shown, schema: None, columns: found });
            return Ok(());
        }
        let path = self.context.search_path;
        if let Some(view) = self.context.schema.view(schema.as_deref(), &name, path).cloned() {
            let outputs = self.view(&view)?;
            let outputs = renamed(renamed(outputs, &view.columns), &columns);
            let schema = if alias.is_some() { None } else { Some(view.name.schema.clone()) };
            scope.items.push(Item { name: shown, schema, columns: Columns::Query(outputs) });
            return Ok(());
        }
        let schema = match self.context.schema.table(schema.as_deref(), &name, path).cloned() {
            Some(table) => {
                let instance = self.instance(&table, Use::Read)?;
                let schema = if alias.is_some() { None } else { Some(table.name.schema.clone()) };
                let columns = Columns::Table { instance, renamed: columns };
                scope.items.push(Item { name: shown, schema, columns });
                return Ok(());
            }
            None => schema,
        };
        check_not_own(schema.as_deref(), &name)?;
        let system = match &schema {
            Some(schema) => SYSTEM_SCHEMAS.contains(&schema.as_str()),
            None => name.starts_with("pg_"),
        };
        if !system {
            self.unknown.push(name);
        } else if schema.as_deref() == Some("information_schema") {
            self.system.push("information_schema".to_owned());
        } else {
            self.system.push(name);
        }
        self.step();
        scope.items.push(Item { name: shown, schema, columns: Columns::Unknown });
        Ok(())
    }

    fn view(&mut self, view: &crate::schema::View) -> Result<super::scope::Outputs, SqlError> {
        let unreadable = || {
            SqlError::unsupported(
                format!("the definition of view {} could not be understood", view.name),
                "Use the view's tables instead of the view.",
            )
        };
        let address = std::ptr::from_ref(view).addr();
        if self.expanding.contains(&address) {
            return Err(unreadable());
        }
        let parsed = statements(&view.definition).map_err(|_| unreadable())?;
        let query = match parsed.as_slice() {
            [one] => match one.ast() {
                Some(crate::ast::Statement::Query(query)) => query,
                _ => return Err(unreadable()),
            },
            _ => return Err(unreadable()),
        };
        self.expanding.push(address);
        let outputs = self.query(query, None, &Env::empty());
        self.expanding.pop();
        Ok(self.settled(outputs?))
    }
}

/// Whose column stays when two become one.
#[derive(Clone, Copy)]
enum Keeps {
    Either,
    Left,
    Right,
    Both,
}

/// The alias's name, and the names it gives to columns.
pub(super) fn alias_of(alias: Option<&TableAlias>) -> (Option<String>, Vec<String>) {
    match alias {
        None => (None, Vec::new()),
        Some(alias) => {
            (Some(name_of(&alias.name)), alias.columns.iter().map(|column| name_of(&column.name)).collect())
        }
    }
}
