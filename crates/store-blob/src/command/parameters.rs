//! Query parameters that mean the same for many operations.

use polyshard_azure_storage::{Request, ServiceError};

use crate::model::SnapshotId;
use crate::reply::errors;

/// Entries in one part of a list, also if more are asked for: the service's limit.
pub(super) const LIST_MAX: usize = 5000;

/// How many entries of a list are asked for, if the client says.
pub(super) fn max_results(request: &Request) -> Result<Option<usize>, ServiceError> {
    const NAME: &str = "maxresults";
    let Some(text) = given(request, NAME) else { return Ok(None) };
    let number: i64 =
        text.parse().map_err(|_| ServiceError::invalid_query(NAME, text, "it must be a whole number"))?;
    match usize::try_from(number) {
        Ok(number) if number > 0 && i32::try_from(number).is_ok() => Ok(Some(number)),
        _ => Err(errors::out_of_range(NAME, text, "1", &i32::MAX.to_string())),
    }
}

/// A parameter that says something.
pub(super) fn given<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    request.query(name).filter(|text| !text.is_empty())
}

/// The snapshot that is meant. Versions of blobs are not kept here.
pub(super) fn snapshot(request: &Request) -> Result<Option<SnapshotId>, ServiceError> {
    if given(request, "versionid").is_some() {
        return Err(errors::not_built("blob versions (versionid)"));
    }
    parse_snapshot(request, "snapshot")
}

/// A parameter that names a snapshot.
pub(super) fn parse_snapshot(request: &Request, name: &str) -> Result<Option<SnapshotId>, ServiceError> {
    let Some(text) = given(request, name) else { return Ok(None) };
    let bad = || ServiceError::invalid_query(name, text, "it must be the time that a snapshot was given");
    SnapshotId::parse(text).map(Some).ok_or_else(bad)
}

/// What a list is to show: the words that are asked for, of those that there are.
pub(super) fn include<'r>(request: &'r Request, known: &[&str]) -> Result<Vec<&'r str>, ServiceError> {
    let Some(text) = given(request, "include") else { return Ok(Vec::new()) };
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let is_known = |word: &&str| known.iter().any(|known| known.eq_ignore_ascii_case(word));
    if words.iter().all(is_known) {
        return Ok(words);
    }
    Err(ServiceError::invalid_query("include", text, "it has a word that this list does not know"))
}

/// Whether a word is among those asked for.
pub(super) fn has(words: &[&str], word: &str) -> bool {
    words.iter().any(|own| own.eq_ignore_ascii_case(word))
}
