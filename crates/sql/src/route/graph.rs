//! Columns as nodes, what is known of their values as formulas, and equalities as edges along which it spreads.
//!
//! A node's formula holds in every evaluation that can matter to the answer, unless the column is NULL there. An edge
//! from one node to another says: where it matters, the second column equals the first, or is NULL. It goes one way
//! only where the other way would not hold: from the outer query into a sub-query, from the kept side of an outer join
//! to the other.

use std::ops::Range;

use super::formula::Formula;
use super::value::Family;

/// A column, somewhere in the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(usize);

/// The order in which the parts of a FROM are met: which side of a join a column is on.
pub(super) type Sequence = usize;

struct Node {
    sequence: Sequence,
    family: Family,
    /// Whether `<` on it goes by the order of the map's keys.
    ordered: bool,
    formula: Formula,
    from: Vec<NodeId>,
}

#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    /// Parts of the statement that give no row: `WHERE false`.
    never: Vec<Range<Sequence>>,
}

impl Graph {
    pub(super) fn add(&mut self, sequence: Sequence, family: Family, ordered: bool) -> NodeId {
        self.nodes.push(Node { sequence, family, ordered, formula: Formula::All, from: Vec::new() });
        NodeId(self.nodes.len() - 1)
    }

    pub(super) fn sequence(&self, node: NodeId) -> Sequence {
        self.nodes[node.0].sequence
    }

    pub(super) fn family(&self, node: NodeId) -> Family {
        self.nodes[node.0].family
    }

    pub(super) fn is_ordered(&self, node: NodeId) -> bool {
        self.nodes[node.0].ordered
    }

    /// Adds what is known of the node.
    pub(super) fn constrain(&mut self, node: NodeId, formula: Formula) {
        let known = &mut self.nodes[node.0].formula;
        *known = std::mem::replace(known, Formula::All).and(formula);
    }

    /// Lets what is known of the first spread to the second. Columns of unlike types are never equal for sure.
    pub(super) fn connect(&mut self, from: NodeId, to: NodeId) {
        if self.nodes[from.0].family == self.nodes[to.0].family && from != to {
            self.nodes[to.0].from.push(from);
        }
    }

    pub(super) fn forget_rows(&mut self, range: Range<Sequence>) {
        self.never.push(range);
    }

    /// Whether what is known of the first spreads to the second.
    pub(super) fn reaches(&self, first: NodeId, second: NodeId) -> bool {
        let mut seen = vec![false; self.nodes.len()];
        let mut open = vec![second];
        while let Some(next) = open.pop() {
            if next == first {
                return true;
            }
            if !std::mem::replace(&mut seen[next.0], true) {
                open.extend(&self.nodes[next.0].from);
            }
        }
        false
    }

    /// Everything known of the node, its own and what spreads to it.
    pub(super) fn formula(&self, node: NodeId) -> Formula {
        let sequence = self.sequence(node);
        if self.never.iter().any(|range| range.contains(&sequence)) {
            return Formula::Nothing;
        }
        let first = &self.nodes[node.0];
        if first.from.is_empty() {
            return first.formula.clone();
        }
        let mut seen = vec![false; self.nodes.len()];
        let mut open = vec![node];
        let mut formula = Formula::All;
        while let Some(next) = open.pop() {
            if !std::mem::replace(&mut seen[next.0], true) {
                let next = &self.nodes[next.0];
                formula = formula.and(next.formula.clone());
                open.extend(&next.from);
            }
        }
        formula
    }
}
