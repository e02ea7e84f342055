//! Answers about a blob.

use polyshard_azure_storage::Response;
use polyshard_azure_storage::xml::Writer;

use super::{document, lease_state, metadata, rfc1123, state};
use crate::checksum::Digests;
use crate::model::{
    Appended, Blob, BlobKind, ContentHeaders, CopyState, Deleted, SnapshotId, Tags, Tier, Written,
};

/// Whether the bytes are encrypted by this server. Whether the disks under it do so is not known here.
pub(super) const ENCRYPTED: &str = "false";

/// The headers that both a read of the bytes and one of the properties have.
fn described(response: Response, blob: &Blob) -> Response {
    let mut response = state(response, blob.etag, blob.modified)
        .header("Accept-Ranges", "bytes")
        .header("x-ms-creation-time", rfc1123(blob.created))
        .header("x-ms-blob-type", blob.kind.as_str());
    response = metadata(response, &blob.props.metadata);
    if blob.snapshot == 0 {
        response = lease_state(response, &blob.lease, blob.now_ms);
    }
    match blob.kind {
        BlobKind::Block => {}
        BlobKind::Page => response = sequence(response, blob),
        BlobKind::Append => {
            response = response.header("x-ms-blob-committed-block-count", blob.props.blocks.to_string());
            if blob.props.is_sealed {
                response = response.header("x-ms-blob-sealed", "true");
            }
        }
    }
    if !blob.props.tags.is_empty() {
        response = response.header("x-ms-tag-count", blob.props.tags.len().to_string());
    }
    if let Some(copy) = &blob.props.copy {
        response = copy_state(response, copy);
    }
    response.header("x-ms-server-encrypted", ENCRYPTED)
}

fn copy_state(response: Response, copy: &CopyState) -> Response {
    let (done, of) = copy.progress;
    let mut response = response
        .header("x-ms-copy-id", copy.id.hyphenated().to_string())
        .header("x-ms-copy-source", copy.source.clone())
        .header("x-ms-copy-status", copy.status.as_str())
        .header("x-ms-copy-progress", format!("{done}/{of}"));
    if let Some(completed) = copy.completed {
        response = response.header("x-ms-copy-completion-time", rfc1123(completed));
    }
    match &copy.description {
        Some(description) => response.header("x-ms-copy-status-description", description.clone()),
        None => response,
    }
}

/// The content headers, but for the MD5, which means the bytes that are answered.
fn content(response: Response, own: &ContentHeaders, overrides: &ContentHeaders) -> Response {
    let pairs = [
        ("Content-Type", &overrides.content_type, &own.content_type),
        ("Content-Encoding", &overrides.content_encoding, &own.content_encoding),
        ("Content-Language", &overrides.content_language, &own.content_language),
        ("Content-Disposition", &overrides.content_disposition, &own.content_disposition),
        ("Cache-Control", &overrides.cache_control, &own.cache_control),
    ];
    pairs.into_iter().fold(response, |response, (name, first, second)| {
        match first.as_ref().or(second.as_ref()) {
            Some(value) => response.header(name, value.clone()),
            None => response,
        }
    })
}

fn md5_text(md5: Option<[u8; 16]>) -> Option<String> {
    Digests { md5, ..Digests::default() }.md5_text()
}

fn with(response: Response, name: &'static str, value: Option<String>) -> Response {
    match value {
        Some(value) => response.header(name, value),
        None => response,
    }
}

fn sequence(response: Response, blob: &Blob) -> Response {
    response.header("x-ms-blob-sequence-number", blob.props.sequence.to_string())
}

/// The properties of a blob, as an answer without a body.
pub(crate) fn properties(blob: &Blob, overrides: &ContentHeaders) -> Response {
    let response = described(Response::new(200).header("Content-Length", blob.size.to_string()), blob);
    let response = content(response, &blob.props.headers, overrides);
    let response = with(response, "Content-MD5", md5_text(blob.props.headers.content_md5));
    tier(response, blob)
}

fn tier(response: Response, blob: &Blob) -> Response {
    let response = match (blob.props.tier, blob.kind) {
        (Some(tier), _) => response.header("x-ms-access-tier", tier.to_string()),
        // What has none is as the account has it.
        (None, BlobKind::Block) => response
            .header("x-ms-access-tier", Tier::Hot.to_string())
            .header("x-ms-access-tier-inferred", "true"),
        (None, BlobKind::Append | BlobKind::Page) => response,
    };
    with(response, "x-ms-access-tier-change-time", blob.props.tier_changed.map(rfc1123))
}

/// What a part of a blob is answered with, without its bytes.
pub(crate) struct Bytes<'a> {
    pub blob: &'a Blob,
    /// The first byte and how many there are, if a range was asked for.
    pub range: Option<(u64, u64)>,
    /// Sums of the range, if they were asked for.
    pub digests: Digests,
    pub overrides: &'a ContentHeaders,
}

impl Bytes<'_> {
    /// The answer, to which the bytes are still to be given.
    pub fn head(&self) -> Response {
        let (blob, own) = (self.blob, &self.blob.props.headers);
        let whole = md5_text(own.content_md5);
        let response = match self.range {
            None => with(described(Response::new(200), blob), "Content-MD5", whole),
            Some((first, length)) => {
                let last = (first + length).saturating_sub(1);
                let response = described(Response::new(206), blob)
                    .header("Content-Range", format!("bytes {first}-{last}/{}", blob.size));
                let response = with(response, "x-ms-blob-content-md5", whole);
                let response = with(response, "Content-MD5", self.digests.md5_text());
                with(response, "x-ms-content-crc64", self.digests.crc64_text())
            }
        };
        content(response, own, self.overrides)
    }
}

/// A blob was put, or its blocks were.
pub(crate) fn written(written: &Written) -> Response {
    sums(encrypted(changed(201, &written.blob)), written.digests.as_ref())
}

/// A block was put.
pub(crate) fn block(digests: Option<&Digests>) -> Response {
    sums(encrypted(Response::new(201)), digests)
}

/// Bytes were appended.
pub(crate) fn appended(appended: &Appended) -> Response {
    written(&appended.written)
        .header("x-ms-blob-append-offset", appended.offset.to_string())
        .header("x-ms-blob-committed-block-count", appended.written.blob.props.blocks.to_string())
}

/// Pages were written or cleared.
pub(crate) fn pages(written: &Written) -> Response {
    let response = sequence(changed(201, &written.blob), &written.blob);
    sums(encrypted(response), written.digests.as_ref())
}

/// Properties, metadata or the like were set.
pub(crate) fn set(blob: &Blob) -> Response {
    let response = encrypted(changed(200, blob));
    if blob.kind == BlobKind::Page { sequence(response, blob) } else { response }
}

pub(crate) fn sealed(blob: &Blob) -> Response {
    changed(200, blob).header("x-ms-blob-sealed", "true")
}

pub(crate) fn snapshot(id: SnapshotId, blob: &Blob) -> Response {
    encrypted(changed(201, blob)).header("x-ms-snapshot", id.to_string())
}

pub(crate) fn deleted(deleted: Deleted) -> Response {
    let is_permanent = deleted == Deleted::Gone;
    Response::new(202).header("x-ms-delete-type-permanent", is_permanent.to_string())
}

pub(crate) fn undeleted() -> Response {
    Response::new(200)
}

/// The tier was set; what comes back from the archive does so at once.
pub(crate) fn tier_set() -> Response {
    Response::new(200)
}

pub(crate) fn tags_set() -> Response {
    Response::new(204)
}

pub(crate) fn tags(tags: &Tags) -> Response {
    let mut xml = Writer::document();
    xml.open("Tags");
    super::list::write_tag_set(&mut xml, tags);
    xml.close("Tags");
    document(200, xml.finish())
}

/// A copy was begun, and may be done already.
pub(crate) fn copied(written: &Written) -> Response {
    let response = sums(changed(202, &written.blob), written.digests.as_ref());
    match &written.blob.props.copy {
        Some(copy) => response
            .header("x-ms-copy-id", copy.id.hyphenated().to_string())
            .header("x-ms-copy-status", copy.status.as_str()),
        None => response,
    }
}

pub(crate) fn copy_aborted() -> Response {
    Response::new(204)
}

fn changed(status: u16, blob: &Blob) -> Response {
    state(Response::new(status), blob.etag, blob.modified)
}

fn encrypted(response: Response) -> Response {
    response.header("x-ms-request-server-encrypted", ENCRYPTED)
}

/// The sums of what was sent.
fn sums(response: Response, digests: Option<&Digests>) -> Response {
    let response = with(response, "Content-MD5", digests.and_then(Digests::md5_text));
    with(response, "x-ms-content-crc64", digests.and_then(Digests::crc64_text))
}
