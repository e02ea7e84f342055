//! Queries: what columns they give, and whether what is asked of a column may be asked of the tables inside.

use crate::ast::{
    self, Distinct, Expr, GroupByExpr, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    Visit, Visitor, WindowType,
};
use std::ops::ControlFlow;

use super::builder::Builder;
use super::cte::Env;
use super::formula::Formula;
use super::graph::NodeId;
use super::literal::Literal;
use super::scope::{Columns, Item, Output, Outputs, Scope, name_of, relation_of};
use crate::error::SqlError;
use crate::lexer::{cut, folded};

impl Builder<'_> {
    /// Walks a query that sees the given relations around it.
    pub(super) fn query(
        &mut self,
        query: &Query,
        parent: Option<&Scope<'_>>,
        env: &Env<'_>,
    ) -> Result<Outputs, SqlError> {
        self.check_size()?;
        if !query.locks.is_empty() {
            self.one_shard_only.get_or_insert_with(|| "SELECT … FOR UPDATE or FOR SHARE".to_owned());
        }
        let first = self.instances.len();
        let outputs = self.with(query.with.as_ref(), env, |builder, env| {
            let outputs = builder.body(&query.body, query, parent, env)?;
            // With a limit, rows that are asked away make room for others.
            let limited = query.limit_clause.is_some() || query.fetch.is_some();
            Ok(if limited { builder.fixed(outputs) } else { outputs })
        })?;
        self.note_locks(query, first);
        Ok(outputs)
    }

    fn body(
        &mut self,
        body: &SetExpr,
        query: &Query,
        parent: Option<&Scope<'_>>,
        env: &Env<'_>,
    ) -> Result<Outputs, SqlError> {
        match body {
            SetExpr::Select(select) => self.select(select, Some(query), parent, env),
            SetExpr::Query(inner) => {
                let outputs = self.query(inner, parent, env)?;
                self.walk_ends(query, &Scope::new(parent), env)?;
                Ok(outputs)
            }
            SetExpr::SetOperation { .. } => {
                let outputs = self.set_operation(body, parent, env)?;
                self.walk_ends(query, &Scope::new(parent), env)?;
                Ok(outputs)
            }
            SetExpr::Values(values) => {
                let scope = Scope::new(parent);
                self.walk(values, &scope, env)?;
                self.walk_ends(query, &scope, env)?;
                Ok(self.values(values))
            }
            SetExpr::Table(table) => {
                let name = |text: &String| folded_or_quoted(text);
                let Some(table_name) = &table.table_name else { return Ok(Outputs::unknown()) };
                let mut scope = Scope::new(parent);
                let schema = table.schema_name.as_ref().map(name);
                self.relation(schema, name(table_name), None, Vec::new(), &mut scope, env)?;
                self.walk_ends(query, &scope, env)?;
                Ok(self.all_columns(&scope))
            }
            SetExpr::Insert(statement)
            | SetExpr::Update(statement)
            | SetExpr::Delete(statement)
            | SetExpr::Merge(statement) => self.write(statement, env),
        }
    }

    /// The branches of UNION, INTERSECT and EXCEPT, a long chain of which leans to the left.
    fn set_operation(
        &mut self,
        body: &SetExpr,
        parent: Option<&Scope<'_>>,
        env: &Env<'_>,
    ) -> Result<Outputs, SqlError> {
        let mut branches = Vec::new();
        let mut rest = body;
        while let SetExpr::SetOperation { left, right, .. } = rest {
            branches.push(right.as_ref());
            rest = left;
        }
        branches.push(rest);
        let mut all = Vec::with_capacity(branches.len());
        for branch in branches.into_iter().rev() {
            all.push(self.branch(branch, parent, env)?);
        }
        let Some(first) = all.first() else { return Ok(Outputs::unknown()) };
        let complete =
            all.iter().all(|outputs| outputs.complete && outputs.columns.len() == first.columns.len());
        if !complete {
            return Ok(Outputs::unknown());
        }
        let names: Vec<Option<String>> = first.columns.iter().map(|output| output.name.clone()).collect();
        let columns = names.into_iter().enumerate();
        let columns = columns.map(|(place, name)| {
            let nodes: Option<Vec<NodeId>> = all.iter().map(|outputs| outputs.columns[place].node).collect();
            Output { name, node: nodes.and_then(|nodes| self.united(&nodes)), literals: Vec::new() }
        });
        Ok(Outputs { columns: columns.collect(), complete: true })
    }

    pub(super) fn branch(
        &mut self,
        body: &SetExpr,
        parent: Option<&Scope<'_>>,
        env: &Env<'_>,
    ) -> Result<Outputs, SqlError> {
        let outputs = match body {
            SetExpr::Select(select) => self.select(select, None, parent, env)?,
            SetExpr::Query(query) => self.query(query, parent, env)?,
            SetExpr::SetOperation { .. } => {
                self.check_size()?;
                self.set_operation(body, parent, env)?
            }
            SetExpr::Values(values) => {
                self.walk(values, &Scope::new(parent), env)?;
                self.values(values)
            }
            other => {
                let empty = Query {
                    with: None,
                    body: Box::new(other.clone()),
                    order_by: None,
                    limit_clause: None,
                    fetch: None,
                    locks: Vec::new(),
                    for_clause: None,
                    settings: None,
                    format_clause: None,
                    pipe_operators: Vec::new(),
                };
                self.query(&empty, parent, env)?
            }
        };
        Ok(self.settled(outputs))
    }

    /// A column of several branches: what is asked of it is asked of each.
    fn united(&mut self, nodes: &[NodeId]) -> Option<NodeId> {
        let first = *nodes.first()?;
        let family = self.graph.family(first);
        if nodes.iter().any(|node| self.graph.family(*node) != family) {
            return None;
        }
        let ordered = nodes.iter().all(|node| self.graph.is_ordered(*node));
        let sequence = self.step();
        let union = self.graph.add(sequence, family, ordered);
        for node in nodes {
            self.graph.connect(union, *node);
        }
        Some(union)
    }

    fn values(&mut self, values: &ast::Values) -> Outputs {
        let width = values.rows.first().map_or(0, |row| row.content.len());
        let column = |place: usize| {
            let literals = values.rows.iter().map(|row| row.content.get(place).and_then(Literal::read));
            let name = Some(format!("column{}", place + 1));
            let literals = literals.collect::<Option<Vec<Literal>>>().unwrap_or_default();
            Output { name, node: None, literals }
        };
        Outputs { columns: (0..width).map(column).collect(), complete: true }
    }

    /// Gives each column of written values a node, of the type the values have by themselves.
    pub(super) fn settled(&mut self, mut outputs: Outputs) -> Outputs {
        for output in &mut outputs.columns {
            let literals = std::mem::take(&mut output.literals);
            let mut families = literals.iter().filter(|literal| !literal.is_null()).map(Literal::family);
            let Some(family) = families.next().flatten() else { continue };
            if output.node.is_some() || families.any(|other| other != Some(family)) {
                continue;
            }
            let sequence = self.step();
            let node = self.graph.add(sequence, family, true);
            let formula =
                literals.iter().fold(Formula::Nothing, |all, literal| all.or(literal.equals(family)));
            self.graph.constrain(node, formula);
            output.node = Some(node);
        }
        outputs
    }

    fn select(
        &mut self,
        select: &Select,
        query: Option<&Query>,
        parent: Option<&Scope<'_>>,
        env: &Env<'_>,
    ) -> Result<Outputs, SqlError> {
        self.check_size()?;
        let start = self.now();
        let mut scope = Scope::new(parent);
        for tables in &select.from {
            self.tables(tables, &mut scope, env)?;
        }
        let from = start..self.now();
        if let Some(condition) = &select.selection {
            self.condition(condition, &scope, env, from)?;
        }
        self.walk(&select.projection, &scope, env)?;
        self.walk(&select.distinct, &scope, env)?;
        self.walk(&select.group_by, &scope, env)?;
        self.walk(&select.having, &scope, env)?;
        self.walk(&select.named_window, &scope, env)?;
        if let Some(query) = query {
            self.walk_ends(query, &scope, env)?;
        }
        let outputs = self.project(&select.projection, &scope);
        Ok(self.kept_apart(outputs, select, &scope))
    }

    /// ORDER BY and LIMIT.
    fn walk_ends(&mut self, query: &Query, scope: &Scope<'_>, env: &Env<'_>) -> Result<(), SqlError> {
        self.walk(&query.order_by, scope, env)?;
        self.walk(&query.limit_clause, scope, env)?;
        self.walk(&query.fetch, scope, env)
    }

    /// The columns of a SELECT list, or of RETURNING.
    pub(super) fn project(&mut self, items: &[SelectItem], scope: &Scope<'_>) -> Outputs {
        let mut outputs = Outputs { columns: Vec::with_capacity(items.len()), complete: true };
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let name = implied_name(expr);
                    outputs.columns.push(self.output(name, expr, scope));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    outputs.columns.push(self.output(Some(name_of(alias)), expr, scope));
                }
                SelectItem::Wildcard(_) => {
                    let all = self.all_columns(scope);
                    outputs.complete &= all.complete;
                    outputs.columns.extend(all.columns);
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    match self.columns_of(name, scope) {
                        Some(columns) => outputs.columns.extend(columns),
                        None => outputs.complete = false,
                    }
                }
                SelectItem::QualifiedWildcard(..) | SelectItem::ExprWithAliases { .. } => {
                    outputs.complete = false;
                }
            }
        }
        outputs
    }

    fn output(&mut self, name: Option<String>, expr: &Expr, scope: &Scope<'_>) -> Output {
        let node = self.column(expr, scope);
        let literals = if node.is_none() { Literal::read(expr).into_iter().collect() } else { Vec::new() };
        Output { name, node, literals }
    }

    fn columns_of(&mut self, name: &ast::ObjectName, scope: &Scope<'_>) -> Option<Vec<Output>> {
        let (schema, table) = relation_of(name)?;
        let fits =
            |item: &&Item| item.name.as_ref() == Some(&table) && (schema.is_none() || item.schema == schema);
        let mut level = Some(scope);
        while let Some(scope) = level {
            if let Some(item) = scope.items.iter().find(fits) {
                return self.item_outputs(item);
            }
            level = scope.parent;
        }
        None
    }

    /// `*`: columns that USING made one come first, and the order of the others is then left open.
    fn all_columns(&mut self, scope: &Scope<'_>) -> Outputs {
        let mut outputs = Outputs { columns: Vec::new(), complete: scope.merged.is_empty() };
        let merged = scope.merged.iter();
        outputs.columns.extend(merged.map(|(name, node)| Output {
            name: Some(name.clone()),
            node: *node,
            literals: Vec::new(),
        }));
        for item in &scope.items {
            match self.item_outputs(item) {
                Some(columns) => outputs.columns.extend(columns.into_iter().filter(|column| {
                    !scope.merged.iter().any(|(name, _)| column.name.as_ref() == Some(name))
                })),
                None => outputs.complete = false,
            }
        }
        outputs
    }

    /// Where rows are grouped, numbered or thinned out, only columns that keep the groups apart may be asked of.
    fn kept_apart(&mut self, outputs: Outputs, select: &Select, scope: &Scope<'_>) -> Outputs {
        let mut keeps: Vec<Vec<NodeId>> = Vec::new();
        match &select.group_by {
            GroupByExpr::Expressions(expressions, modifiers) => {
                if !expressions.is_empty() || !modifiers.is_empty() {
                    let plain = modifiers.is_empty();
                    keeps.push(if plain {
                        self.group_nodes(expressions, &outputs, scope)
                    } else {
                        Vec::new()
                    });
                }
            }
            GroupByExpr::All(_) => keeps.push(Vec::new()),
        }
        if let Some(Distinct::On(expressions)) = &select.distinct {
            keeps.push(self.group_nodes(expressions, &outputs, scope));
        }
        for partition in windows(&select.projection) {
            let partition = partition.unwrap_or_default();
            keeps.push(partition.iter().filter_map(|expr| self.column(expr, scope)).collect());
        }
        if keeps.is_empty() {
            return outputs;
        }
        let is_kept = |node: NodeId| keeps.iter().all(|kept| kept.contains(&node));
        let (kept, mut closed) = (outputs.clone(), outputs);
        for output in &mut closed.columns {
            output.node = output.node.filter(|node| !is_kept(*node));
        }
        let mut closed = self.fixed(closed);
        for (output, kept) in closed.columns.iter_mut().zip(kept.columns) {
            if let Some(node) = kept.node.filter(|node| is_kept(*node)) {
                output.node = Some(node);
            }
        }
        closed
    }

    /// The columns among expressions of GROUP BY; a number or an alias means a column of the output.
    fn group_nodes(&mut self, expressions: &[Expr], outputs: &Outputs, scope: &Scope<'_>) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for expr in expressions {
            let number = Literal::read(expr).and_then(|literal| literal.number());
            let place = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
            match (place, expr) {
                (Some(place), _) if outputs.complete => {
                    nodes.extend(outputs.columns.get(place).and_then(|output| output.node));
                }
                (Some(_), _) => {}
                (None, Expr::Tuple(parts)) => nodes.extend(self.group_nodes(parts, outputs, scope)),
                (None, expr) => nodes.extend(self.column(expr, scope)),
            }
        }
        nodes
    }
}

/// Gives columns other names, as far as there are some.
pub(super) fn renamed(mut outputs: Outputs, names: &[String]) -> Outputs {
    if names.is_empty() {
        return outputs;
    }
    if !outputs.complete {
        return Outputs::unknown();
    }
    for (output, name) in outputs.columns.iter_mut().zip(names) {
        output.name = Some(name.clone());
    }
    outputs
}

/// The name that a column gets when none is given.
fn implied_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(name_of(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(name_of),
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => implied_name(inner),
        Expr::Function(function) => relation_of(&function.name).map(|(_, name)| name),
        _ => None,
    }
}

/// The PARTITION BY of each window function; none for one whose window is named elsewhere.
fn windows(projection: &[SelectItem]) -> Vec<Option<Vec<Expr>>> {
    struct Windows(Vec<Option<Vec<Expr>>>);
    impl Visitor for Windows {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Function(function) = expr {
                match &function.over {
                    Some(WindowType::WindowSpec(spec)) if spec.window_name.is_none() => {
                        self.0.push(Some(spec.partition_by.clone()));
                    }
                    Some(_) => self.0.push(None),
                    None => {}
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = Windows(Vec::new());
    for item in projection {
        let _ = item.visit(&mut found);
    }
    found.0
}

/// The parser keeps the name after TABLE as text only.
fn folded_or_quoted(text: &str) -> String {
    match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => cut(quoted.replace("\"\"", "\"")),
        None => folded(text),
    }
}

impl Columns {
    /// What a query gives, under the names of an alias.
    pub(super) fn aliased(outputs: Outputs, names: &[String]) -> Columns {
        Columns::Query(renamed(outputs, names))
    }
}
