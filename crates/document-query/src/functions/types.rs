//! Type checks: `IS_…`.

use super::{Function, dates, integer, plain};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    plain("IS_ARRAY", 1, 1, |a| Value::Bool(matches!(a[0], Value::Array(_)))),
    plain("IS_BOOL", 1, 1, |a| Value::Bool(matches!(a[0], Value::Bool(_)))),
    plain("IS_DATETIME", 1, 1, |a| Value::Bool(dates::read(&a[0]).is_some())),
    plain("IS_DEFINED", 1, 1, |a| Value::Bool(!a[0].is_undefined())),
    plain("IS_FINITE_NUMBER", 1, 1, |a| Value::Bool(a[0].as_number().is_some_and(f64::is_finite))),
    plain("IS_INTEGER", 1, 1, |a| Value::Bool(integer(&a[0]).is_some())),
    plain("IS_NULL", 1, 1, |a| Value::Bool(matches!(a[0], Value::Null))),
    plain("IS_NUMBER", 1, 1, |a| Value::Bool(matches!(a[0], Value::Number(_)))),
    plain("IS_OBJECT", 1, 1, |a| Value::Bool(matches!(a[0], Value::Object(_)))),
    plain("IS_PRIMITIVE", 1, 1, |a| Value::Bool(a[0].is_primitive())),
    plain("IS_STRING", 1, 1, |a| Value::Bool(matches!(a[0], Value::String(_)))),
];
