//! What WHERE demands of single paths of a document: a superset that a store can look up in its indexes.

use std::ops::Bound;
use std::sync::Arc;

use crate::functions::Function;
use crate::plan::{Node, Origin, PathStep, SelectPlan};
use crate::run::{equal, follow, literal_prefix};
use crate::syntax::tree::{Binary, Unary};
use crate::value::Value;

/// A demand on the value at a path from the document's root.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Where the value is.
    pub path: Vec<PathStep>,
    /// What it must be.
    pub test: Test,
}

/// What a value must be. No test accepts an undefined value.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// Equal to this value.
    Equal(Value),
    /// Equal to one of these; nothing meets an empty list.
    In(Vec<Value>),
    /// Between these, and of their type. One end at least is given; both are of one type.
    Range {
        /// The lower end.
        lower: Bound<Value>,
        /// The upper end.
        upper: Bound<Value>,
    },
    /// A string that starts with this one.
    Prefix(Arc<str>),
    /// Any value, null included.
    Defined,
    /// An array with an item equal to this value.
    Contains(Value),
}

impl Condition {
    /// True when a document meets the condition.
    pub fn accepts(&self, document: &Value) -> bool {
        follow(document, &self.path).is_some_and(|value| self.test.accepts(value))
    }
}

impl Test {
    fn accepts(&self, value: &Value) -> bool {
        let is = |wanted: &Value| equal(value, wanted) == Some(true);
        match self {
            Test::Equal(wanted) => is(wanted),
            Test::In(wanted) => wanted.iter().any(is),
            Test::Range { lower, upper } => {
                let same_type = |end: &Value| end.type_rank() == value.type_rank();
                let above = match lower {
                    Bound::Included(end) => same_type(end) && value.total_order(end).is_ge(),
                    Bound::Excluded(end) => same_type(end) && value.total_order(end).is_gt(),
                    Bound::Unbounded => true,
                };
                above
                    && match upper {
                        Bound::Included(end) => same_type(end) && value.total_order(end).is_le(),
                        Bound::Excluded(end) => same_type(end) && value.total_order(end).is_lt(),
                        Bound::Unbounded => true,
                    }
            }
            Test::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(&**prefix)),
            Test::Defined => !value.is_undefined(),
            Test::Contains(wanted) => value
                .as_array()
                .is_some_and(|items| items.iter().any(|item| equal(item, wanted) == Some(true))),
        }
    }
}

/// For the slots of sources that are a fixed path of the document: slot and path.
type SlotPaths = Vec<(usize, Vec<PathStep>)>;

/// The sources of a query that stand for a path of the document.
pub(crate) fn slot_paths(plan: &SelectPlan) -> SlotPaths {
    let mut paths: SlotPaths = Vec::new();
    for source in plan.sources.iter().filter(|source| !source.iterate) {
        let path = match &source.origin {
            Origin::Root(steps) => Some(steps.clone()),
            Origin::Slot(slot, steps) => extended(&paths, *slot, steps),
            Origin::Query(_) => None,
        };
        paths.extend(path.map(|path| (source.slot, path)));
    }
    paths
}

fn extended(paths: &SlotPaths, slot: usize, steps: &[PathStep]) -> Option<Vec<PathStep>> {
    let (_, start) = paths.iter().find(|(known, _)| *known == slot)?;
    Some(start.iter().chain(steps).cloned().collect())
}

/// The path of an expression that is nothing but a path of the document.
pub(crate) fn document_path(node: &Node, paths: &SlotPaths) -> Option<Vec<PathStep>> {
    match node {
        Node::Slot(slot) => extended(paths, *slot, &[]),
        Node::Path(base, steps) => match &**base {
            Node::Slot(slot) => extended(paths, *slot, steps),
            _ => None,
        },
        _ => None,
    }
}

/// The conditions that the WHERE of a query implies.
pub(crate) fn conditions(plan: &SelectPlan, parameters: &[Value]) -> Vec<Condition> {
    let paths = slot_paths(plan);
    let extractor = Extractor { paths: &paths, parameters };
    let mut conditions = Vec::new();
    // A source that is missing gives no rows; the whole document never is.
    for (_, path) in paths.iter().filter(|(_, path)| !path.is_empty()) {
        conditions.push(Condition { path: path.clone(), test: Test::Defined });
    }
    if let Some(filter) = &plan.filter {
        extractor.implied(filter, &mut conditions);
    }
    conditions.retain(|condition| !(condition.path.is_empty() && condition.test == Test::Defined));
    conditions
}

struct Extractor<'a> {
    paths: &'a SlotPaths,
    parameters: &'a [Value],
}

impl Extractor<'_> {
    fn path(&self, node: &Node) -> Option<Vec<PathStep>> {
        document_path(node, self.paths)
    }

    /// The value of an expression without any part that depends on the document.
    fn constant(&self, node: &Node) -> Option<Value> {
        match node {
            Node::Constant(value) => Some(value.clone()),
            Node::Parameter(index) => self.parameters.get(*index).cloned(),
            Node::Unary(Unary::Minus, operand) => {
                self.constant(operand)?.as_number().map(|number| Value::Number(-number))
            }
            Node::Array(items) => {
                items.iter().map(|item| self.constant(item)).collect::<Option<Vec<_>>>().map(Value::array)
            }
            Node::Object(properties) => {
                let constant = |(key, value): &(Arc<str>, Node)| Some((key.clone(), self.constant(value)?));
                Some(Value::object(properties.iter().map(constant).collect::<Option<_>>()?))
            }
            _ => None,
        }
    }

    /// Adds what is true of every document for which the expression is true.
    fn implied(&self, node: &Node, out: &mut Vec<Condition>) {
        let mut add = |path, test| out.push(Condition { path, test });
        match node {
            Node::And(items) => items.iter().for_each(|item| self.implied(item, out)),
            Node::Or(items) => out.extend(self.implied_by_any(items)),
            Node::Slot(_) | Node::Path(..) => {
                if let Some(path) = self.path(node) {
                    add(path, Test::Equal(Value::Bool(true)));
                }
            }
            Node::Unary(Unary::Not, operand) => match (&**operand, self.path(operand)) {
                (_, Some(path)) => add(path, Test::Equal(Value::Bool(false))),
                // NOT of a test is true only where the test is false, for which its value must exist.
                (Node::In(value, _), _) => out.extend(self.defined(value)),
                (Node::Like(parts, _), _) => out.extend(self.defined(&parts[0])),
                _ => {}
            },
            Node::Binary(left, rest) => {
                if let [(operator, right)] = rest.as_slice() {
                    out.extend(self.comparison(*operator, left, right));
                }
            }
            Node::In(value, list) => {
                let constants: Option<Vec<Value>> = list.iter().map(|item| self.constant(item)).collect();
                match (self.path(value), constants) {
                    (Some(path), Some(values)) => add(path, Test::In(defined_only(values))),
                    (Some(path), None) => add(path, Test::Defined),
                    _ => {}
                }
            }
            Node::Between(parts) => {
                let [value, low, high] = &**parts;
                out.extend(self.comparison(Binary::GreaterOrEqual, value, low));
                out.extend(self.comparison(Binary::LessOrEqual, value, high));
            }
            Node::Like(parts, escape) => out.extend(self.like(&parts[0], &parts[1], *escape)),
            Node::Call(function, arguments) => out.extend(self.call(function, arguments)),
            _ => {}
        }
    }

    fn defined(&self, node: &Node) -> Option<Condition> {
        Some(Condition { path: self.path(node)?, test: Test::Defined })
    }

    fn comparison(&self, operator: Binary, left: &Node, right: &Node) -> Option<Condition> {
        if let Some(path) = self.path(left) {
            let test =
                self.constant(right).map_or_else(|| unknown_end(operator), |end| test_of(operator, end));
            return test.map(|test| Condition { path, test });
        }
        let path = self.path(right)?;
        let mirrored = match operator {
            Binary::Less => Binary::Greater,
            Binary::LessOrEqual => Binary::GreaterOrEqual,
            Binary::Greater => Binary::Less,
            Binary::GreaterOrEqual => Binary::LessOrEqual,
            operator => operator,
        };
        let test = self.constant(left).map_or_else(|| unknown_end(mirrored), |end| test_of(mirrored, end));
        test.map(|test| Condition { path, test })
    }

    fn like(&self, value: &Node, pattern: &Node, escape: Option<char>) -> Option<Condition> {
        let path = self.path(value)?;
        let test = match self.constant(pattern) {
            None => Test::Defined,
            Some(Value::String(pattern)) => match literal_prefix(&pattern, escape) {
                (text, true) => Test::Equal(Value::from(text)),
                (prefix, false) => Test::Prefix(prefix.into()),
            },
            Some(_) => Test::In(Vec::new()),
        };
        Some(Condition { path, test })
    }

    fn call(&self, function: &Function, arguments: &[Node]) -> Option<Condition> {
        let constant = |index: usize| arguments.get(index).and_then(|node| self.constant(node));
        if function.name == "ARRAY_CONTAINS" && arguments.len() == 2 {
            return match (self.path(&arguments[0]), constant(0), self.path(&arguments[1])) {
                (Some(path), _, _) => {
                    let test = constant(1).map_or(Test::Defined, |value| match value {
                        Value::Undefined => Test::In(Vec::new()),
                        value => Test::Contains(value),
                    });
                    Some(Condition { path, test })
                }
                (None, Some(Value::Array(items)), Some(path)) => {
                    Some(Condition { path, test: Test::In(items.to_vec()) })
                }
                _ => None,
            };
        }
        let path = self.path(arguments.first()?)?;
        let exact_case = arguments.len() == 2;
        let test = match (function.name, constant(1)) {
            ("IS_NULL", _) => Test::Equal(Value::Null),
            ("STARTSWITH", Some(Value::String(prefix))) if exact_case => Test::Prefix(prefix),
            ("StringEquals", Some(Value::String(text))) if exact_case => Test::Equal(Value::String(text)),
            // These give true for no undefined first argument.
            ("IS_DEFINED" | "IS_STRING" | "IS_NUMBER" | "IS_BOOL" | "IS_ARRAY" | "IS_OBJECT", _) => {
                Test::Defined
            }
            ("STARTSWITH" | "StringEquals" | "CONTAINS" | "ENDSWITH" | "RegexMatch" | "IS_PRIMITIVE", _) => {
                Test::Defined
            }
            _ => return None,
        };
        Some(Condition { path, test })
    }

    /// Alternatives that all demand one of some values of the same path.
    fn implied_by_any(&self, items: &[Node]) -> Vec<Condition> {
        let mut alternatives = items.iter().map(|item| {
            let mut conditions = Vec::new();
            self.implied(item, &mut conditions);
            conditions.into_iter().filter_map(as_list).collect::<Vec<_>>()
        });
        let Some(mut common) = alternatives.next() else { return Vec::new() };
        for alternative in alternatives {
            common.retain_mut(|(path, values)| match alternative.iter().find(|(other, _)| other == path) {
                Some((_, more)) => {
                    values.extend(more.iter().cloned());
                    true
                }
                None => false,
            });
        }
        common.into_iter().map(|(path, values)| Condition { path, test: Test::In(values) }).collect()
    }
}

fn as_list(condition: Condition) -> Option<(Vec<PathStep>, Vec<Value>)> {
    match condition.test {
        Test::Equal(value) => Some((condition.path, vec![value])),
        Test::In(values) => Some((condition.path, values)),
        _ => None,
    }
}

fn defined_only(mut values: Vec<Value>) -> Vec<Value> {
    values.retain(|value| !value.is_undefined());
    values
}

/// What a comparison with something unknown still demands.
fn unknown_end(operator: Binary) -> Option<Test> {
    matches!(
        operator,
        Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessOrEqual
            | Binary::Greater
            | Binary::GreaterOrEqual
    )
    .then_some(Test::Defined)
}

fn test_of(operator: Binary, end: Value) -> Option<Test> {
    let range = |lower, upper| Some(Test::Range { lower, upper });
    let never = || Some(Test::In(Vec::new()));
    match operator {
        Binary::Equal | Binary::NotEqual if end.is_undefined() => never(),
        Binary::Equal => Some(Test::Equal(end)),
        Binary::NotEqual => Some(Test::Defined),
        Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual
            if !end.is_primitive() || end.as_number().is_some_and(f64::is_nan) =>
        {
            never()
        }
        Binary::Less => range(Bound::Unbounded, Bound::Excluded(end)),
        Binary::LessOrEqual => range(Bound::Unbounded, Bound::Included(end)),
        Binary::Greater => range(Bound::Excluded(end), Bound::Unbounded),
        Binary::GreaterOrEqual => range(Bound::Included(end), Bound::Unbounded),
        _ => None,
    }
}
