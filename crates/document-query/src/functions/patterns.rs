//! Regular expressions. Patterns run in time linear in the text, so there are no look-arounds and back-references:
//! a pattern with them counts as invalid, which gives undefined.

use std::sync::Arc;

use regex::Captures;

use super::{Function, checked, integer, or_undefined};
use crate::error::QueryError;
use crate::run::Context;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    checked("RegexExtract", 2, Some(4), extract),
    checked("RegexExtractAll", 2, Some(4), extract_all),
    checked("RegexMatch", 2, Some(3), matches),
];

/// Subject, pattern and modifiers.
fn strings(arguments: &[Value]) -> Option<[Arc<str>; 3]> {
    let text = |index: usize| match arguments.get(index) {
        Some(Value::String(text)) => Some(text.clone()),
        None if index == 2 => Some("".into()),
        _ => None,
    };
    Some([text(0)?, text(1)?, text(2)?])
}

fn group(arguments: &[Value]) -> Option<usize> {
    arguments.get(3).map_or(Some(0), |group| integer(group).and_then(|group| usize::try_from(group).ok()))
}

fn matches(context: &mut Context, arguments: &[Value]) -> Result<Value, QueryError> {
    let Some([subject, pattern, modifiers]) = strings(arguments) else { return Ok(Value::Undefined) };
    Ok(or_undefined(context.regex(&pattern, &modifiers).map(|regex| Value::Bool(regex.is_match(&subject)))))
}

fn captured(captures: &Captures<'_>, group: usize) -> Option<Value> {
    captures.get(group).map(|found| Value::from(found.as_str()))
}

fn extract(context: &mut Context, arguments: &[Value]) -> Result<Value, QueryError> {
    let (Some([subject, pattern, modifiers]), Some(group)) = (strings(arguments), group(arguments)) else {
        return Ok(Value::Undefined);
    };
    let captures = context.regex(&pattern, &modifiers).and_then(|regex| regex.captures(&subject));
    Ok(or_undefined(captures.and_then(|captures| captured(&captures, group))))
}

fn extract_all(context: &mut Context, arguments: &[Value]) -> Result<Value, QueryError> {
    let (Some([subject, pattern, modifiers]), Some(group)) = (strings(arguments), group(arguments)) else {
        return Ok(Value::Undefined);
    };
    let Some(regex) = context.regex(&pattern, &modifiers).filter(|regex| group < regex.captures_len()) else {
        return Ok(Value::Undefined);
    };
    let found = regex.captures_iter(&subject).filter_map(|captures| captured(&captures, group));
    Ok(Value::array(found.collect()))
}
