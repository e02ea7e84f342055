//! Query parameters that are whole numbers within limits.

use std::num::IntErrorKind;

use polyshard_azure_storage::{Request, ServiceError};

use crate::reply;

/// The numbers a parameter may have, both ends included.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub min: i64,
    pub max: i64,
}

/// The number a parameter has, if it is there.
pub(super) fn whole_number(
    request: &Request,
    name: &'static str,
    range: Range,
) -> Result<Option<i64>, ServiceError> {
    let Some(text) = request.query(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let not_a_number = || ServiceError::invalid_query(name, text, "it must be a whole number");
    let number = match text.parse::<i64>() {
        Ok(number) => number,
        // Too long to be kept, and so as good as the largest.
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
        Err(_) => return Err(not_a_number()),
    };
    if (range.min..=range.max).contains(&number) {
        return Ok(Some(number));
    }
    Err(reply::out_of_range(name, text, &range.min.to_string(), &range.max.to_string()))
}

/// A parameter that must be there.
pub(super) fn required<'r>(request: &'r Request, name: &'static str) -> Result<&'r str, ServiceError> {
    request.query(name).ok_or_else(|| reply::missing_parameter(name))
}
