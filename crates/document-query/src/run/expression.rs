//! The value of an expression.

use super::context::{Context, value_too_large};
use super::operators::{binary, equal, truth, unary};
use super::select::{Flow, run_query};
use super::{like, operators};
use crate::error::{ErrorCode, QueryError};
use crate::functions::Body;
use crate::limits::VALUE_BYTES_MAX;
use crate::plan::{Node, PathStep, SelectPlan};
use crate::syntax::tree::{Binary, Form};
use crate::value::{Object, Value};

/// Evaluates one expression.
pub(crate) fn evaluate(node: &Node, context: &mut Context) -> Result<Value, QueryError> {
    context.step(1)?;
    Ok(match node {
        Node::Constant(value) => value.clone(),
        Node::Parameter(index) => context.parameters[*index].clone(),
        Node::Slot(slot) => context.slots[*slot].clone(),
        Node::Path(base, steps) => match &**base {
            Node::Slot(slot) => follow(&context.slots[*slot], steps).cloned().unwrap_or_default(),
            base => follow(&evaluate(base, context)?, steps).cloned().unwrap_or_default(),
        },
        Node::Index(base, step) => {
            let base = evaluate(base, context)?;
            computed_step(&base, &evaluate(step, context)?)
        }
        Node::Array(items) => {
            let array = Value::array(evaluate_all(items, context)?);
            context.checked(array)?
        }
        Node::Object(properties) => {
            let mut object = Object::new();
            for (key, value) in properties {
                let value = evaluate(value, context)?;
                if !value.is_undefined() {
                    object.insert(key.clone(), value);
                }
            }
            context.checked(Value::object(object))?
        }
        Node::Unary(operator, operand) => unary(*operator, &evaluate(operand, context)?),
        Node::Binary(first, rest) => chain(first, rest, context)?,
        Node::And(items) => all(items, context)?,
        Node::Or(items) => any(items, context)?,
        Node::Coalesce(items) => {
            for item in items {
                let value = evaluate(item, context)?;
                if !value.is_undefined() {
                    return Ok(value);
                }
            }
            Value::Undefined
        }
        Node::Conditional(parts) => {
            let [condition, consequent, alternative] = &**parts;
            let holds = evaluate(condition, context)?.as_bool() == Some(true);
            evaluate(if holds { consequent } else { alternative }, context)?
        }
        Node::In(value, list) => is_in(value, list, context)?,
        Node::Between(parts) => between(parts, context)?,
        Node::Like(parts, escape) => {
            let [value, pattern] = &**parts;
            let (value, pattern) = (evaluate(value, context)?, evaluate(pattern, context)?);
            match (value.as_str(), pattern.as_str()) {
                (Some(text), Some(pattern)) => {
                    context.step((text.len() as u64).saturating_mul(1 + pattern.len() as u64 / 64))?;
                    Value::Bool(like::matches(text, pattern, *escape))
                }
                _ => Value::Undefined,
            }
        }
        Node::Call(function, arguments) => {
            let arguments = evaluate_all(arguments, context)?;
            let result = match function.body {
                Body::Plain(body) => body(&arguments),
                Body::Checked(body) => body(context, &arguments)?,
            };
            context.checked(result)?
        }
        Node::UserCall(name, arguments) => {
            let arguments = evaluate_all(arguments, context)?;
            context.call_user(name, &arguments)?
        }
        Node::Query(form, plan) => sub_query(*form, plan, context)?,
    })
}

fn evaluate_all(nodes: &[Node], context: &mut Context) -> Result<Vec<Value>, QueryError> {
    nodes.iter().map(|node| evaluate(node, context)).collect()
}

/// The value at the end of a path.
pub(crate) fn follow<'v>(value: &'v Value, steps: &[PathStep]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        PathStep::Key(key) => value.property(key),
        PathStep::Index(index) => value.as_array()?.get(usize::try_from(*index).ok()?),
    })
}

fn computed_step(base: &Value, step: &Value) -> Value {
    match step {
        Value::String(key) => base.get(key),
        Value::Number(index) if *index >= 0.0 && index.fract() == 0.0 => base.at(*index as usize),
        _ => Value::Undefined,
    }
}

fn chain(first: &Node, rest: &[(Binary, Node)], context: &mut Context) -> Result<Value, QueryError> {
    let mut left = evaluate(first, context)?;
    for (operator, right) in rest {
        let right = evaluate(right, context)?;
        left = match operator {
            Binary::Concat => concat(&left, &right)?,
            operator => binary(*operator, &left, &right),
        };
    }
    Ok(left)
}

fn concat(left: &Value, right: &Value) -> Result<Value, QueryError> {
    let (Some(left), Some(right)) = (left.as_str(), right.as_str()) else { return Ok(Value::Undefined) };
    if left.len() + right.len() > VALUE_BYTES_MAX {
        return Err(value_too_large());
    }
    Ok(Value::from(format!("{left}{right}")))
}

/// AND: false if any operand is false, undefined if any other is not a boolean.
fn all(items: &[Node], context: &mut Context) -> Result<Value, QueryError> {
    let mut result = Value::Bool(true);
    for item in items {
        match evaluate(item, context)? {
            Value::Bool(false) => return Ok(Value::Bool(false)),
            Value::Bool(true) => {}
            _ => result = Value::Undefined,
        }
    }
    Ok(result)
}

/// OR: true if any operand is true, undefined if any other is not a boolean.
fn any(items: &[Node], context: &mut Context) -> Result<Value, QueryError> {
    let mut result = Value::Bool(false);
    for item in items {
        match evaluate(item, context)? {
            Value::Bool(true) => return Ok(Value::Bool(true)),
            Value::Bool(false) => {}
            _ => result = Value::Undefined,
        }
    }
    Ok(result)
}

fn is_in(value: &Node, list: &[Node], context: &mut Context) -> Result<Value, QueryError> {
    let value = evaluate(value, context)?;
    if value.is_undefined() {
        return Ok(Value::Undefined);
    }
    for item in list {
        if equal(&value, &evaluate(item, context)?) == Some(true) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn between(parts: &[Node; 3], context: &mut Context) -> Result<Value, QueryError> {
    let [value, low, high] = parts;
    let value = evaluate(value, context)?;
    let above = operators::compare(&value, &evaluate(low, context)?).map(|order| order.is_ge());
    let below = operators::compare(&value, &evaluate(high, context)?).map(|order| order.is_le());
    Ok(match (above, below) {
        (Some(false), _) | (_, Some(false)) => Value::Bool(false),
        _ => truth(above.and(below)),
    })
}

fn sub_query(form: Form, plan: &SelectPlan, context: &mut Context) -> Result<Value, QueryError> {
    let mut results = Vec::new();
    run_query(plan, context, &mut |context, value| {
        match form {
            Form::Array => {
                context.charge(&value)?;
                results.push(value);
                return Ok(Flow::Continue);
            }
            Form::Last => results.clear(),
            _ => {}
        }
        results.push(value);
        let enough = match form {
            Form::Exists | Form::All | Form::First => 1,
            Form::Scalar => 2,
            Form::Last | Form::Array => usize::MAX,
        };
        Ok(if results.len() >= enough { Flow::Stop } else { Flow::Continue })
    })?;
    match form {
        Form::Exists => Ok(Value::Bool(!results.is_empty())),
        Form::All => Ok(Value::Bool(results.is_empty())),
        Form::Array => {
            let array = Value::array(results);
            context.checked(array)
        }
        Form::Scalar if results.len() > 1 => {
            let message = "The cardinality of a scalar subquery result set cannot be greater than one.";
            Err(QueryError::new(ErrorCode::SubqueryRows, message))
        }
        Form::Scalar | Form::First | Form::Last => Ok(results.pop().unwrap_or_default()),
    }
}
