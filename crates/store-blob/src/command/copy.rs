//! Requests that take content from a URL.

use polyshard_azure_storage::{Context, RawPath, Request, ServiceError, decode_query, percent_decode};
use uuid::Uuid;

use super::conditions::{of_source, of_write};
use super::headers::{content_headers, flag, lease_id, required, source_expected, source_range, text, tier};
use super::metadata::read_metadata;
use super::tags::tags_of_header;
use super::{BlobCommand, Copy, Part};
use crate::model::{ContentHeaders, CopyOptions, CopyTags, SnapshotId};
use crate::name::{BlobName, ContainerName};
use crate::reply::errors;

/// Bytes of a URL: the service's limit.
const URL_BYTES_MAX: usize = 2 * 1024;

/// The URL of a source, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceUrl {
    text: String,
    scheme_end: usize,
    path_start: usize,
}

/// A source that is a blob of this server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnSource {
    pub name: BlobName,
    pub snapshot: Option<SnapshotId>,
}

impl SourceUrl {
    /// Reads `x-ms-copy-source`.
    fn of(request: &Request) -> Result<SourceUrl, ServiceError> {
        const NAME: &str = "x-ms-copy-source";
        let text = required(&request.headers, NAME)?;
        SourceUrl::parse(text).ok_or_else(|| ServiceError::invalid_header(NAME, text))
    }

    fn parse(text: &str) -> Option<SourceUrl> {
        let (scheme, rest) = text.split_once("://")?;
        let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
        let authority = rest.find('/')?;
        let is_clean = !text.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'#');
        let is_host = authority > 0 && !rest[..authority].contains(['@', '?']);
        let scheme_end = scheme.len();
        (is_http && is_clean && is_host && text.len() <= URL_BYTES_MAX).then(|| SourceUrl {
            text: text.to_owned(),
            scheme_end,
            path_start: scheme_end + 3 + authority,
        })
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.text[self.scheme_end + 3..self.path_start]
    }

    /// Path and query, as they were sent.
    pub fn target(&self) -> &str {
        &self.text[self.path_start..]
    }

    /// The path, as it was sent.
    pub fn path(&self) -> &str {
        self.target().split_once('?').map_or(self.target(), |(path, _)| path)
    }

    /// The query, decoded.
    pub fn query(&self) -> Result<Vec<(String, String)>, ServiceError> {
        decode_query(self.target().split_once('?').map_or("", |(_, query)| query))
    }

    /// The URL as everybody may see it: without a signature.
    pub fn shown(&self) -> String {
        let (url, query) = self.text.split_once('?').unwrap_or((&self.text, ""));
        let is_shown = |pair: &&str| {
            let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
            name.eq_ignore_ascii_case("snapshot") || name.eq_ignore_ascii_case("versionid")
        };
        let shown: Vec<&str> = query.split('&').filter(is_shown).collect();
        if shown.is_empty() { url.to_owned() } else { format!("{url}?{}", shown.join("&")) }
    }

    /// The account and the path after it, if the URL is of this server.
    pub fn own_path(&self, context: &Context) -> Option<(String, RawPath)> {
        let (_, own) = context.base_url.split_once("://")?;
        let (authority, base_path) = own.split_once('/').unwrap_or((own, ""));
        if !authority.eq_ignore_ascii_case(self.authority()) {
            return None;
        }
        if base_path.is_empty() {
            // The host names the account.
            return Some((context.account.as_str().to_owned(), RawPath::new(self.path())?));
        }
        let (account, rest) = self.path()[1..].split_once('/')?;
        Some((account.to_owned(), RawPath::new(&format!("/{rest}"))?))
    }

    /// The blob of this server that the URL names, if it is of this server.
    pub fn own(&self, context: &Context) -> Result<Option<OwnSource>, ServiceError> {
        let Some((account, path)) = self.own_path(context) else { return Ok(None) };
        let bad = || ServiceError::invalid_header("x-ms-copy-source", &self.shown());
        let (container, blob) = path.as_str()[1..].split_once('/').ok_or_else(bad)?;
        let container = ContainerName::new(&account, &percent_decode(container)?).map_err(|_| bad())?;
        let name = BlobName::new(container, percent_decode(blob)?).map_err(|_| bad())?;
        let query = self.query()?;
        let given = |name: &str| {
            let found = query.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        if given("versionid").is_some() {
            return Err(errors::not_built("blob versions (versionid)"));
        }
        let snapshot = match given("snapshot") {
            None => None,
            Some(text) => Some(SnapshotId::parse(text).ok_or_else(bad)?),
        };
        Ok(Some(OwnSource { name, snapshot }))
    }
}

/// Copy Blob, Copy Blob From URL and Put Blob From URL.
pub(super) fn whole(request: &Request) -> Result<BlobCommand, ServiceError> {
    let headers = &request.headers;
    refuse_foreign_rights(request)?;
    let is_put = match text(headers, "x-ms-blob-type") {
        None => false,
        Some("BlockBlob") => true,
        Some(other) => return Err(ServiceError::invalid_header("x-ms-blob-type", other)),
    };
    let metadata = Some(read_metadata(headers)?).filter(|metadata| !metadata.is_empty());
    let expected = source_expected(headers)?;
    let options = CopyOptions {
        metadata,
        tags: tags(request)?,
        tier: tier(headers)?,
        headers: if is_put { own_headers(request)? } else { None },
        seal: flag(headers, "x-ms-seal-blob")?,
        expected,
    };
    let copy = Copy {
        source: SourceUrl::of(request)?,
        source_conditions: of_source(headers)?,
        options,
        conditions: of_write(headers)?,
    };
    if is_put {
        return Ok(BlobCommand::PutFromUrl(copy));
    }
    Ok(BlobCommand::Copy { copy, is_sync: flag(headers, "x-ms-requires-sync")? })
}

/// The destination's content headers, unless they are the source's.
fn own_headers(request: &Request) -> Result<Option<ContentHeaders>, ServiceError> {
    const OPTION: &str = "x-ms-copy-source-blob-properties";
    let own = content_headers(&request.headers)?;
    let of_source = text(&request.headers, OPTION).is_none() || flag(&request.headers, OPTION)?;
    let is_given = own != ContentHeaders::default();
    Ok((is_given || !of_source).then_some(own))
}

fn tags(request: &Request) -> Result<CopyTags, ServiceError> {
    const OPTION: &str = "x-ms-copy-source-tag-option";
    let given = tags_of_header(&request.headers)?;
    let of_source = match text(&request.headers, OPTION) {
        None => false,
        Some(value) if value.eq_ignore_ascii_case("copy") => true,
        Some(value) if value.eq_ignore_ascii_case("replace") => false,
        Some(value) => return Err(ServiceError::invalid_header(OPTION, value)),
    };
    match (given, of_source) {
        (Some(_), true) => {
            let message = "x-ms-tags header must not be present with x-ms-copy-source-tag-option as COPY.";
            Err(ServiceError::new(409, "BothUserTagsAndSourceTagsCopyPresentException", message))
        }
        (None, true) => Ok(CopyTags::OfSource),
        (Some(tags), false) => Ok(CopyTags::These(tags)),
        (None, false) => Ok(CopyTags::None),
    }
}

/// The bytes of a block, an append or pages from a URL.
pub(super) fn part(request: &Request) -> Result<Part, ServiceError> {
    refuse_foreign_rights(request)?;
    Ok(Part {
        source: SourceUrl::of(request)?,
        source_conditions: of_source(&request.headers)?,
        range: source_range(&request.headers)?,
        expected: source_expected(&request.headers)?,
    })
}

/// A token for the source is of another server's making, and there is none here that could be asked.
fn refuse_foreign_rights(request: &Request) -> Result<(), ServiceError> {
    match text(&request.headers, "x-ms-copy-source-authorization") {
        None => Ok(()),
        Some(_) => Err(errors::not_built("tokens for copy sources (x-ms-copy-source-authorization)")),
    }
}

/// Abort Copy Blob.
pub(super) fn abort(request: &Request) -> Result<BlobCommand, ServiceError> {
    const ACTION: &str = "x-ms-copy-action";
    let action = required(&request.headers, ACTION)?;
    if !action.eq_ignore_ascii_case("abort") {
        return Err(ServiceError::invalid_header(ACTION, action));
    }
    let text = request.query("copyid").ok_or_else(|| errors::missing_parameter("copyid"))?;
    let id = Uuid::try_parse(text).map_err(|_| {
        ServiceError::invalid_query("copyid", text, "it must be the id that a copy was given")
    })?;
    Ok(BlobCommand::AbortCopy { id, lease: lease_id(&request.headers, "x-ms-lease-id")? })
}

#[cfg(test)]
mod tests {
    use super::SourceUrl;

    #[test]
    fn urls_are_taken_apart_and_shown_without_signatures() {
        let url = SourceUrl::parse("http://h:1/acct/c/b%20x?snapshot=2026&sv=1&sig=secret").unwrap();
        assert_eq!(url.authority(), "h:1");
        assert_eq!(url.path(), "/acct/c/b%20x");
        assert_eq!(url.shown(), "http://h:1/acct/c/b%20x?snapshot=2026");
        let url = SourceUrl::parse("https://h/c/b?sig=secret").unwrap();
        assert_eq!(url.shown(), "https://h/c/b");
        for bad in
            ["", "h/c/b", "ftp://h/c", "http:///c", "http://h", "http://u@h/c", "http://h/a b", "http://h?x/"]
        {
            assert_eq!(SourceUrl::parse(bad), None, "{bad}");
        }
        assert_eq!(SourceUrl::parse(&format!("http://h/{}", "x".repeat(2048))), None);
    }
}
