//! The container, blob or directory that a shared access signature is for, by its `sr` and the request's path.

use super::identity::Level;
use super::sas::refused;
use super::sas_layout::{BLOB_RESOURCE, DIRECTORY};
use crate::{ApiVersion, RawPath, Request, ServiceError, percent_decode};

/// The container of blobs whose URL names none.
const ROOT: &str = "$root";

/// The name that was signed, as `container` or `container/blob`. It comes from the path, so that another path gives
/// another signature.
pub(super) fn resource(
    path: &RawPath,
    request: &Request,
    sv: ApiVersion,
) -> Result<(String, Level), ServiceError> {
    let (container, blob) = addressed(path, request)?;
    let whole = |blob: Option<&str>| match blob {
        Some(blob) => format!("{container}/{blob}"),
        None => container.clone(),
    };
    let since = |first: ApiVersion, name: (String, Level)| match sv >= first {
        true => Ok(name),
        false => Err(refused("its sr is newer than its version (sv)")),
    };
    match request.query("sr") {
        Some("c") => Ok((container, Level::Container)),
        Some("b") => Ok((whole(blob.as_deref()), Level::Object)),
        Some("bs" | "bv") => since(BLOB_RESOURCE, (whole(blob.as_deref()), Level::Object)),
        Some("d") => {
            let directory = directory(blob.as_deref().unwrap_or_default(), request)?;
            since(DIRECTORY, (whole(Some(&directory)), Level::Object))
        }
        _ => Err(refused("its sr must be c, b, bs, bv or d")),
    }
}

/// The container and the blob in it. What is alone in a path is a container if the query says so, otherwise a blob of
/// the root container: a signature for a container must not be one for a blob that is called like it.
fn addressed(path: &RawPath, request: &Request) -> Result<(String, Option<String>), ServiceError> {
    let (container, blob) = path.as_str()[1..].split_once('/').unwrap_or((&path.as_str()[1..], ""));
    let container = percent_decode(container)?;
    if !blob.is_empty() {
        return Ok((container, Some(percent_decode(blob)?)));
    }
    let is_container = request.query("restype").is_some();
    if is_container || container.is_empty() || container.starts_with('$') {
        return Ok((container, None));
    }
    Ok((ROOT.to_owned(), Some(container)))
}

/// The directory that a blob is in: as many parts of its name as the signature says (`sdd`).
fn directory(blob: &str, request: &Request) -> Result<String, ServiceError> {
    let depth = request.query("sdd").and_then(|depth| depth.parse::<usize>().ok()).filter(|depth| *depth > 0);
    let depth = depth.ok_or_else(|| refused("its sdd must be the depth of a directory, 1 or more"))?;
    let parts: Vec<&str> = blob.split('/').take(depth).collect();
    if parts.len() < depth {
        return Err(refused("the blob is not in the directory that it is for"));
    }
    Ok(parts.join("/"))
}
