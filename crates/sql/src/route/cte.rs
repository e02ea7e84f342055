//! WITH: which query a name stands for. A reference to a read-only query is expanded where it stands, each by itself.

use crate::ast::{Cte, Query, SetExpr, SetOperator, With};

use super::builder::Builder;
use super::scope::{Columns, Outputs, name_of};
use crate::error::SqlError;

/// The queries of the WITH clauses that are in sight.
pub(super) struct Env<'e> {
    ctes: &'e [Cte],
    /// What those gave that write: they run once, whether anybody reads from them or not.
    written: &'e [Option<Outputs>],
    /// How many of them are in sight.
    upto: usize,
    recursive: bool,
    parent: Option<&'e Env<'e>>,
}

impl<'e> Env<'e> {
    /// Nothing in sight.
    pub(super) fn empty() -> Env<'e> {
        Env { ctes: &[], written: &[], upto: 0, recursive: false, parent: None }
    }
}

impl Builder<'_> {
    /// Goes on with the clause's queries in sight.
    pub(super) fn with<T>(
        &mut self,
        with: Option<&With>,
        env: &Env<'_>,
        then: impl FnOnce(&mut Self, &Env<'_>) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let Some(with) = with else { return then(self, env) };
        let ctes = &with.cte_tables;
        let mut written: Vec<Option<Outputs>> = vec![None; ctes.len()];
        for (place, cte) in ctes.iter().enumerate() {
            if writes(&cte.query) {
                let inner = Env {
                    ctes,
                    written: &written,
                    upto: if with.recursive { ctes.len() } else { place },
                    recursive: with.recursive,
                    parent: Some(env),
                };
                let outputs = self.query(&cte.query, None, &inner)?;
                let outputs = self.fixed(outputs);
                let outputs = named(outputs, cte);
                written[place] = Some(outputs);
            }
        }
        let inner =
            Env { ctes, written: &written, upto: ctes.len(), recursive: with.recursive, parent: Some(env) };
        then(self, &inner)
    }

    /// The columns of a CTE, if the name is one.
    pub(super) fn cte(&mut self, name: &str, env: &Env<'_>) -> Result<Option<Columns>, SqlError> {
        let mut level = Some(env);
        while let Some(env) = level {
            let place = env.ctes[..env.upto].iter().rposition(|cte| name_of(&cte.alias.name) == name);
            if let Some(place) = place {
                return self.expand(place, env).map(Some);
            }
            level = env.parent;
        }
        Ok(None)
    }

    fn expand(&mut self, place: usize, env: &Env<'_>) -> Result<Columns, SqlError> {
        if let Some(outputs) = &env.written[place] {
            return Ok(Columns::Query(outputs.clone()));
        }
        let cte = &env.ctes[place];
        let address = std::ptr::from_ref(cte).addr();
        if self.expanding.contains(&address) {
            // Its own earlier rows.
            let own = self.recursive.iter().rev().find(|(known, _)| *known == address);
            return Ok(own.map_or(Columns::Unknown, |(_, outputs)| Columns::Query(outputs.clone())));
        }
        let is_recursive = env.recursive && mentions_itself(cte);
        let inner = Env { upto: if env.recursive { env.upto } else { place }, ..*env };
        self.expanding.push(address);
        let outputs = match is_recursive {
            true => self.repeated(cte, address, &inner),
            false => self.query(&cte.query, None, &inner),
        };
        self.expanding.pop();
        Ok(Columns::Query(named(outputs?, cte)))
    }

    /// A recursive query. A column that each round takes over from the round before has the values of the first.
    fn repeated(&mut self, cte: &Cte, address: usize, env: &Env<'_>) -> Result<Outputs, SqlError> {
        let query = &cte.query;
        let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
        let (left, right) = match query.body.as_ref() {
            SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } if plain => (left, right),
            _ => return self.query(query, None, env).map(opaque),
        };
        let first = self.branch(left, None, env)?;
        let mut own = opaque(first.clone());
        for (output, first) in own.columns.iter_mut().zip(&first.columns) {
            if let Some(node) = first.node {
                let sequence = self.step();
                let (family, ordered) = (self.graph.family(node), self.graph.is_ordered(node));
                output.node = Some(self.graph.add(sequence, family, ordered));
            }
        }
        self.recursive.push((address, named(own.clone(), cte)));
        let next = self.branch(right, None, env);
        self.recursive.pop();
        let next = next?;
        if !first.complete || !next.complete || first.columns.len() != next.columns.len() {
            return Ok(opaque(first));
        }
        let mut outputs = first;
        for ((output, own), next) in outputs.columns.iter_mut().zip(&own.columns).zip(&next.columns) {
            output.literals.clear();
            output.node = match (output.node, own.node, next.node) {
                (Some(first), Some(own), Some(next)) if self.graph.reaches(own, next) => {
                    self.graph.connect(first, own);
                    Some(first)
                }
                _ => None,
            };
        }
        Ok(self.fixed(outputs))
    }

    /// Columns from which something can be learnt, and which nothing can be asked of: the rows are there anyway.
    pub(super) fn fixed(&mut self, mut outputs: Outputs) -> Outputs {
        for output in &mut outputs.columns {
            if let Some(inner) = output.node {
                let sequence = self.step();
                let (family, ordered) = (self.graph.family(inner), self.graph.is_ordered(inner));
                let node = self.graph.add(sequence, family, ordered);
                self.graph.connect(inner, node);
                output.node = Some(node);
            }
        }
        outputs
    }
}

/// With the names that the CTE gives to its columns.
fn named(outputs: Outputs, cte: &Cte) -> Outputs {
    let names: Vec<String> = cte.alias.columns.iter().map(|column| name_of(&column.name)).collect();
    super::query::renamed(outputs, &names)
}

fn opaque(mut outputs: Outputs) -> Outputs {
    for output in &mut outputs.columns {
        output.node = None;
        output.literals.clear();
    }
    outputs
}

fn writes(query: &Query) -> bool {
    matches!(
        query.body.as_ref(),
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
    )
}

fn mentions_itself(cte: &Cte) -> bool {
    let name = name_of(&cte.alias.name);
    let mut found = false;
    let _: std::ops::ControlFlow<()> = crate::ast::visit_relations(&*cte.query, |relation| {
        found |= super::scope::relation_of(relation)
            .is_some_and(|(schema, last)| schema.is_none() && last == name);
        std::ops::ControlFlow::Continue(())
    });
    found
}
