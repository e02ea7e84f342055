//! Lists of containers and of blobs.

use std::fmt::Write as _;

use polyshard_azure_storage::Response;
use polyshard_azure_storage::xml::{self, Writer};

use super::container::access_text;
use super::{document, quoted, rfc1123};
use crate::checksum::Digests;
use crate::command::{AskedBlobs, AskedContainers, Find};
use crate::lease_rules::LeaseState;
use crate::model::{
    Blob, BlobKind, BlobPage, BlobQuery, Container, ContainerPage, ContainerQuery, FoundPage, Lease, Listed,
    Metadata, Tags, Tier,
};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// The containers of an account.
pub(crate) fn containers(
    base_url: &str,
    query: &ContainerQuery,
    asked: &AskedContainers,
    page: &ContainerPage,
) -> Response {
    let mut xml = Writer::document();
    xml.open_with("EnumerationResults", &[("ServiceEndpoint", &format!("{base_url}/"))]);
    repeated(&mut xml, &query.prefix, query.marker.as_deref(), asked.max);
    xml.open("Containers");
    for container in &page.containers {
        write_container(&mut xml, container, asked.has_metadata);
    }
    xml.close("Containers");
    finish(xml, page.next.as_deref())
}

fn write_container(xml: &mut Writer, container: &Container, has_metadata: bool) {
    xml.open("Container");
    xml.element("Name", &container.name);
    xml.open("Properties");
    xml.element("Last-Modified", &rfc1123(container.modified));
    // Unlike a blob's in a list, it has its quotes.
    xml.element("Etag", &quoted(container.etag));
    write_lease(xml, &container.lease, container.now_ms);
    if let Some(access) = access_text(container.access) {
        xml.element("PublicAccess", access);
    }
    xml.element("DefaultEncryptionScope", "$account-encryption-key");
    xml.element("DenyEncryptionScopeOverride", "false");
    xml.element("HasImmutabilityPolicy", "false");
    xml.element("HasLegalHold", "false");
    xml.element("ImmutableStorageWithVersioningEnabled", "false");
    xml.close("Properties");
    if has_metadata {
        write_metadata(xml, &container.metadata);
    }
    xml.close("Container");
}

/// The blobs of a container.
pub(crate) fn blobs(
    base_url: &str,
    container: &str,
    query: &BlobQuery,
    asked: &AskedBlobs,
    page: &BlobPage,
) -> Response {
    let mut xml = Writer::document();
    let attributes = [("ServiceEndpoint", &*format!("{base_url}/")), ("ContainerName", container)];
    xml.open_with("EnumerationResults", &attributes);
    repeated(&mut xml, &query.prefix, query.marker.as_deref(), asked.max);
    if let Some(delimiter) = &query.delimiter {
        xml.element("Delimiter", delimiter);
    }
    xml.open("Blobs");
    for entry in &page.entries {
        match entry {
            Listed::Prefix(prefix) => {
                xml.open("BlobPrefix");
                write_name(&mut xml, prefix);
                xml.close("BlobPrefix");
            }
            Listed::Blob(blob) => write_blob(&mut xml, blob, asked),
        }
    }
    xml.close("Blobs");
    finish(xml, page.next.as_deref())
}

fn write_blob(xml: &mut Writer, blob: &Blob, asked: &AskedBlobs) {
    xml.open("Blob");
    write_name(xml, &blob.name);
    if blob.deleted != 0 {
        xml.element("Deleted", "true");
    }
    if let Some(id) = blob.snapshot_id() {
        xml.element("Snapshot", &id.to_string());
    }
    write_properties(xml, blob, asked);
    if asked.has_metadata {
        write_metadata(xml, &blob.props.metadata);
    }
    if asked.has_tags && !blob.props.tags.is_empty() {
        xml.open("Tags");
        write_tag_set(xml, &blob.props.tags);
        xml.close("Tags");
    }
    xml.empty("OrMetadata");
    xml.close("Blob");
}

fn write_properties(xml: &mut Writer, blob: &Blob, asked: &AskedBlobs) {
    let props = &blob.props;
    xml.open("Properties");
    xml.element("Creation-Time", &rfc1123(blob.created));
    xml.element("Last-Modified", &rfc1123(blob.modified));
    xml.element("Etag", &blob.etag.to_string());
    xml.element("Content-Length", &blob.size.to_string());
    let md5 = Digests { md5: props.headers.content_md5, ..Digests::default() }.md5_text();
    for (name, value) in [
        ("Content-Type", &props.headers.content_type),
        ("Content-Encoding", &props.headers.content_encoding),
        ("Content-Language", &props.headers.content_language),
        ("Content-MD5", &md5),
        ("Cache-Control", &props.headers.cache_control),
        ("Content-Disposition", &props.headers.content_disposition),
    ] {
        if let Some(value) = value {
            xml.element(name, value);
        }
    }
    if blob.kind == BlobKind::Page {
        xml.element("x-ms-blob-sequence-number", &props.sequence.to_string());
    }
    xml.element("BlobType", blob.kind.as_str());
    match (props.tier, blob.kind) {
        (Some(tier), _) => xml.element("AccessTier", &tier.to_string()),
        (None, BlobKind::Block) => {
            xml.element("AccessTier", &Tier::Hot.to_string());
            xml.element("AccessTierInferred", "true");
        }
        (None, BlobKind::Append | BlobKind::Page) => {}
    }
    if let Some(changed) = props.tier_changed {
        xml.element("AccessTierChangeTime", &rfc1123(changed));
    }
    if blob.snapshot == 0 {
        write_lease(xml, &blob.lease, blob.now_ms);
    }
    if asked.has_copy {
        write_copy(xml, blob);
    }
    xml.element("ServerEncrypted", super::blob::ENCRYPTED);
    if props.is_sealed {
        xml.element("Sealed", "true");
    }
    if !props.tags.is_empty() {
        xml.element("TagCount", &props.tags.len().to_string());
    }
    if blob.deleted != 0 {
        xml.element("DeletedTime", &rfc1123(blob.deleted));
        let left = props.kept_until_ms.saturating_sub(blob.now_ms).max(0);
        xml.element("RemainingRetentionDays", &(left / DAY_MS).to_string());
    }
    xml.close("Properties");
}

fn write_copy(xml: &mut Writer, blob: &Blob) {
    let Some(copy) = &blob.props.copy else { return };
    let (done, of) = copy.progress;
    xml.element("CopyId", &copy.id.hyphenated().to_string());
    xml.element("CopyStatus", copy.status.as_str());
    xml.element("CopySource", &copy.source);
    xml.element("CopyProgress", &format!("{done}/{of}"));
    if let Some(completed) = copy.completed {
        xml.element("CopyCompletionTime", &rfc1123(completed));
    }
    if let Some(description) = &copy.description {
        xml.element("CopyStatusDescription", description);
    }
}

fn write_lease(xml: &mut Writer, lease: &Lease, now_ms: i64) {
    let state: LeaseState = lease.state(now_ms);
    xml.element("LeaseStatus", state.status());
    xml.element("LeaseState", state.as_str());
    if let Some(duration) = lease.duration(now_ms) {
        xml.element("LeaseDuration", duration);
    }
}

fn write_metadata(xml: &mut Writer, metadata: &Metadata) {
    if metadata.is_empty() {
        return xml.empty("Metadata");
    }
    xml.open("Metadata");
    metadata.iter().for_each(|(name, value)| xml.element(name, value));
    xml.close("Metadata");
}

/// `<TagSet>`
pub(super) fn write_tag_set(xml: &mut Writer, tags: &Tags) {
    xml.open("TagSet");
    for (name, value) in tags {
        xml.open("Tag");
        xml.element("Key", name);
        xml.element("Value", value);
        xml.close("Tag");
    }
    xml.close("TagSet");
}

/// A name; percent-encoded, and said to be so, if XML has no way to write it.
fn write_name(xml: &mut Writer, name: &str) {
    let is_plain = |char: char| xml::is_xml_char(char) && char != '\u{FFFE}' && char != '\u{FFFF}';
    if name.chars().all(is_plain) {
        return xml.element("Name", name);
    }
    xml.open_with("Name", &[("Encoded", "true")]);
    xml.text(&percent_encoded(name));
    xml.close("Name");
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The blobs that have certain tags.
pub(crate) fn found(base_url: &str, find: &Find, page: &FoundPage) -> Response {
    let mut xml = Writer::document();
    xml.open_with("EnumerationResults", &[("ServiceEndpoint", &format!("{base_url}/"))]);
    xml.element("Where", &find.text);
    xml.open("Blobs");
    for blob in &page.blobs {
        xml.open("Blob");
        write_name(&mut xml, &blob.name);
        xml.element("ContainerName", &blob.container);
        xml.open("Tags");
        write_tag_set(&mut xml, &blob.tags);
        xml.close("Tags");
        xml.close("Blob");
    }
    xml.close("Blobs");
    finish(xml, page.next.as_deref())
}

/// What the client asked for, which a list repeats.
fn repeated(xml: &mut Writer, prefix: &str, marker: Option<&str>, max: Option<usize>) {
    match prefix {
        "" => xml.empty("Prefix"),
        prefix => write_text(xml, "Prefix", prefix),
    }
    match marker {
        None => xml.empty("Marker"),
        Some(marker) => xml.element("Marker", marker),
    }
    if let Some(max) = max {
        xml.element("MaxResults", &max.to_string());
    }
}

fn write_text(xml: &mut Writer, name: &str, text: &str) {
    if text.chars().all(xml::is_xml_char) {
        return xml.element(name, text);
    }
    xml.open_with(name, &[("Encoded", "true")]);
    xml.text(&percent_encoded(text));
    xml.close(name);
}

/// The end of every list: clients look for the marker even where there is none.
fn finish(mut xml: Writer, next: Option<&str>) -> Response {
    match next {
        Some(next) => xml.element("NextMarker", next),
        None => xml.empty("NextMarker"),
    }
    xml.close("EnumerationResults");
    document(200, xml.finish())
}
