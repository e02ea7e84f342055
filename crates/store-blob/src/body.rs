//! The body of a request, whether it was read whole or comes in pieces.

use futures_util::StreamExt;
use futures_util::stream;

use polyshard_azure_storage::{BodyStream, Method, Request, ServiceError};

use crate::checksum::Wanted;
use crate::model::{Expected, Upload};
use crate::objects::ObjectError;
use crate::reply::errors;

/// Bytes of a document in XML that comes in pieces: 50,000 of the longest ids of blocks, and the elements around them.
const DOCUMENT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Whether the body comes in pieces: all that is content of a blob, and the list of blocks, which may be longer than
/// what is read whole.
pub(crate) fn comes_in_pieces(head: &Request) -> bool {
    let is_content =
        matches!(head.query("comp"), None | Some("block" | "blocklist" | "appendblock" | "page"));
    head.method == Method::Put && head.query("restype").is_none() && is_content
}

/// A request without its body.
pub(crate) fn head_of(request: &Request) -> Request {
    Request {
        method: request.method,
        target: request.target.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        headers: request.headers.clone(),
        body: Vec::new(),
        stream: None,
        peer: request.peer,
    }
}

/// How many bytes the body has: those that write content have to say.
pub(crate) fn length(request: &Request) -> Result<u64, ServiceError> {
    match &request.stream {
        None => Ok(request.body.len() as u64),
        Some(stream) => stream.length().ok_or_else(errors::missing_length),
    }
}

/// Takes a body that is a document into memory.
pub(crate) async fn read_document(request: &mut Request) -> Result<(), ServiceError> {
    let Some(mut stream) = request.stream.take() else { return Ok(()) };
    let too_large = || errors::too_large(DOCUMENT_BYTES_MAX);
    if stream.length().is_some_and(|length| length > DOCUMENT_BYTES_MAX) {
        return Err(too_large());
    }
    while let Some(piece) = stream.next().await? {
        if (request.body.len() + piece.len()) as u64 > DOCUMENT_BYTES_MAX {
            return Err(too_large());
        }
        request.body.extend_from_slice(&piece);
    }
    Ok(())
}

/// The body as an upload, of which the client is told the sums that are wanted.
pub(crate) fn upload(
    request: &mut Request,
    expected: Expected,
    wanted: Wanted,
) -> Result<Upload, ServiceError> {
    let length = length(request)?;
    let whole = std::mem::take(&mut request.body);
    let body = request.stream.take().unwrap_or_else(|| BodyStream::whole(whole));
    let pieces = stream::try_unfold(body, |mut body| async move {
        match body.next().await {
            Ok(piece) => Ok(piece.map(|piece| (piece, body))),
            Err(error) => Err(ObjectError::Client(error.message().to_owned())),
        }
    });
    Ok(Upload { length, bytes: pieces.boxed(), expected, wanted })
}
