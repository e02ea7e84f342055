//! Requests whose body is the content of a blob, or a part of it.

use polyshard_azure_storage::{Request, ServiceError};

use super::blocks::{block_id, block_list as read_block_list};
use super::conditions::{of_append, of_pages, of_write};
use super::headers::{check_body, expected, lease_id, new_blob, number, page_range, required, text};
use super::{BlobCommand, Put, copy};
use crate::body;
use crate::model::{BlockId, PAGE_BYTES};
use crate::reply::errors;

/// Bytes of one Put Blob: the service's limit.
pub(super) const PUT_BYTES_MAX: u64 = 5_000 * 1024 * 1024;
/// Bytes of one block: the service's limit.
const BLOCK_BYTES_MAX: u64 = 4_000 * 1024 * 1024;
/// Bytes of one append: the service's limit.
const APPEND_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// Bytes of pages in one request: the service's limit.
const PAGES_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of a page blob: the service's limit.
const PAGE_BLOB_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024 * 1024;

/// Put Blob.
pub(super) fn put(request: &Request) -> Result<BlobCommand, ServiceError> {
    let headers = &request.headers;
    const TYPE: &str = "x-ms-blob-type";
    let conditions = of_write(headers)?;
    let mut expected = expected(headers)?;
    let kind = match required(headers, TYPE)? {
        "BlockBlob" => Put::Block,
        "AppendBlob" => Put::Append,
        "PageBlob" => page_blob(request)?,
        other => return Err(ServiceError::invalid_header(TYPE, other)),
    };
    let new = new_blob(headers, kind == Put::Block)?;
    match kind {
        Put::Block => {
            length_up_to(request, PUT_BYTES_MAX)?;
            // The sum that is kept with the blob is checked as well, and before the one of the transport.
            expected.md5 = new.headers.content_md5.or(expected.md5);
        }
        // Their content is written by other requests.
        Put::Append | Put::Page { .. } if body::length(request)? > 0 => {
            return Err(ServiceError::invalid_header("Content-Length", &body::length(request)?.to_string()));
        }
        Put::Append | Put::Page { .. } => {}
    }
    Ok(BlobCommand::Put { kind, new, conditions, expected })
}

fn page_blob(request: &Request) -> Result<Put, ServiceError> {
    const SIZE: &str = "x-ms-blob-content-length";
    const NUMBER: &str = "x-ms-blob-sequence-number";
    let size: u64 = number(&request.headers, SIZE)?.ok_or_else(|| ServiceError::missing_header(SIZE))?;
    check_page_blob_size(size)?;
    match number(&request.headers, NUMBER)?.unwrap_or(0) {
        sequence @ 0.. => Ok(Put::Page { size, sequence }),
        sequence => Err(ServiceError::invalid_header(NUMBER, &sequence.to_string())),
    }
}

/// Whether a page blob can have this size.
pub(super) fn check_page_blob_size(size: u64) -> Result<(), ServiceError> {
    if size.is_multiple_of(PAGE_BYTES) && size <= PAGE_BLOB_BYTES_MAX {
        return Ok(());
    }
    Err(ServiceError::invalid_header("x-ms-blob-content-length", &size.to_string()))
}

/// Put Block, with the bytes or with a URL.
pub(super) fn block(request: &Request) -> Result<BlobCommand, ServiceError> {
    let headers = &request.headers;
    let id = id_of_block(request)?;
    let lease = lease_id(headers, "x-ms-lease-id")?;
    if text(headers, "x-ms-copy-source").is_some() {
        return Ok(BlobCommand::PutBlockFromUrl { id, part: copy::part(request)?, lease });
    }
    length_up_to(request, BLOCK_BYTES_MAX)?;
    Ok(BlobCommand::PutBlock { id, expected: expected(headers)?, lease })
}

fn id_of_block(request: &Request) -> Result<BlockId, ServiceError> {
    let text = request.query("blockid").ok_or_else(|| errors::missing_parameter("blockid"))?;
    // A plus sign that was not percent-encoded has become a space; base64 has none of its own.
    block_id(&text.replace(' ', "+")).map_err(|_| {
        ServiceError::invalid_query("blockid", text, "Not a valid base64 string of at most 64 bytes.")
    })
}

/// Put Block List.
pub(super) fn block_list(request: &Request) -> Result<BlobCommand, ServiceError> {
    check_body(request)?;
    Ok(BlobCommand::PutBlockList {
        blocks: read_block_list(&request.body)?,
        new: new_blob(&request.headers, false)?,
        conditions: of_write(&request.headers)?,
    })
}

/// Append Block, with the bytes or with a URL.
pub(super) fn append(request: &Request) -> Result<BlobCommand, ServiceError> {
    let headers = &request.headers;
    let conditions = of_append(headers)?;
    if text(headers, "x-ms-copy-source").is_some() {
        return Ok(BlobCommand::AppendFromUrl { part: copy::part(request)?, conditions });
    }
    if length_up_to(request, APPEND_BYTES_MAX)? == 0 {
        return Err(ServiceError::invalid_header("Content-Length", "0"));
    }
    Ok(BlobCommand::Append { expected: expected(headers)?, conditions })
}

/// Put Page, with the bytes or with a URL, and Clear Pages.
pub(super) fn pages(request: &Request) -> Result<BlobCommand, ServiceError> {
    const WRITE: &str = "x-ms-page-write";
    let headers = &request.headers;
    let conditions = of_pages(headers)?;
    let (first, last) = page_range(headers)?;
    let is_aligned = first.is_multiple_of(PAGE_BYTES) && last % PAGE_BYTES == PAGE_BYTES - 1;
    // No blob has pages beyond it, and the end of a range can be computed.
    if !is_aligned || last >= PAGE_BLOB_BYTES_MAX {
        let message = "The page range specified is invalid.";
        return Err(ServiceError::new(416, "InvalidPageRange", message));
    }
    let action = required(headers, WRITE)?;
    if action.eq_ignore_ascii_case("clear") {
        return match body::length(request)? {
            0 => Ok(BlobCommand::ClearPages { first, last, conditions }),
            length => Err(ServiceError::invalid_header("Content-Length", &length.to_string())),
        };
    }
    if !action.eq_ignore_ascii_case("update") {
        return Err(ServiceError::invalid_header(WRITE, action));
    }
    let length = last - first + 1;
    if length > PAGES_BYTES_MAX {
        return Err(errors::too_large(PAGES_BYTES_MAX));
    }
    if text(headers, "x-ms-copy-source").is_some() {
        return Ok(BlobCommand::PutPagesFromUrl { first, last, part: copy::part(request)?, conditions });
    }
    if body::length(request)? != length {
        return Err(ServiceError::invalid_header("Content-Length", &body::length(request)?.to_string()));
    }
    Ok(BlobCommand::PutPages { first, expected: expected(headers)?, conditions })
}

/// The length of the body, if it is within a limit.
fn length_up_to(request: &Request, max: u64) -> Result<u64, ServiceError> {
    let length = body::length(request)?;
    if length <= max { Ok(length) } else { Err(errors::too_large(max)) }
}
