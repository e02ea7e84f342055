//! One connection: requests read one after the other within limits, each passed to the store and answered.

use std::net::SocketAddr;
use std::pin::{Pin, pin};

use polyshard_meter::{Requests, trace};
use polyshard_wire::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{Instrument, Span, debug, error};
use uuid::Uuid;

use crate::auth::{Check, authenticate, locate, version};
use crate::http::{CONTINUE, Finish, Framing, Head, encode};
use crate::stream::{Closed, Keep, Stream};
use crate::{
    API_VERSION_DEFAULT, ApiVersion, BodyFormat, Context, Door, Endpoint, Headers, Method, Request, Response,
    Scheme, ServiceError, StoreKind, Timestamp,
};

/// Serves one connection until either side closes it.
pub(crate) async fn run<S>(
    stream: S,
    peer: SocketAddr,
    shutdown: &Shutdown,
    door: &Door,
    scheme: Scheme,
    requests: &Requests,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let stream = Stream::new(stream, door.limits);
    let mut connection = Exchange { stream, peer, shutdown, door, scheme, requests };
    let mut stop = pin!(shutdown.started());
    loop {
        match connection.next(stop.as_mut()).await {
            Ok(After::Next) => {}
            Ok(After::Close) if connection.stream.is_empty() => return connection.stream.close().await,
            Ok(After::Close | After::Drain) => return connection.stream.drain(shutdown).await,
            Err(reason) => {
                debug!(?reason, "the connection ended");
                return;
            }
        }
    }
}

/// What to do after a response.
enum After {
    /// Read the next request.
    Next,
    /// Close: all that the client sent was read.
    Close,
    /// Close, though the client may still be sending.
    Drain,
}

struct Exchange<'a, S> {
    stream: Stream<S>,
    peer: SocketAddr,
    shutdown: &'a Shutdown,
    door: &'a Door,
    scheme: Scheme,
    requests: &'a Requests,
}

/// What is known of a request when its answer is written.
struct Asked {
    request_id: Uuid,
    now: Timestamp,
    method: Option<Method>,
    client_request_id: Option<String>,
    version: ApiVersion,
    format: BodyFormat,
    span: Span,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Exchange<'_, S> {
    /// Reads one request and answers it.
    async fn next(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Result<After, Closed> {
        let head = self.stream.head(stop).await?;
        let (request_id, now) = (self.door.surroundings.request_id(), self.door.surroundings.now());
        let kind = self.door.service.kind();
        let head = match head {
            Ok(head) => head,
            // Where the next request starts is not known after this.
            Err(error) => {
                let asked = Asked::nothing(request_id, now, kind);
                return self.answer(Err(error), &asked, After::Drain).await;
            }
        };
        let Head { framing, expects_continue, close, .. } = *head;
        let mut request = request_of(*head, self.peer);
        let mut asked = Asked::of(&request, request_id, now, kind);
        let span = asked.span.clone();
        let admitted = self.admit(&request, &mut asked).instrument(span.clone()).await;

        // A body that nobody is going to use is not kept, nor waited for if the client has not begun to send it.
        let keep = if admitted.is_ok() { Keep::All } else { Keep::Nothing };
        let unsent = expects_continue && self.stream.is_empty() && framing != Framing::Length(0);
        let read = match (&admitted, unsent) {
            (Err(_), true) => Err(None),
            (Err(_), false) => self.stream.body(framing, keep).await?.map_err(Some),
            (Ok(_), _) if too_long(framing, self.door.limits.body_bytes_max) => {
                Err(Some(ServiceError::body_too_large(self.door.limits.body_bytes_max)))
            }
            (Ok(_), unsent) => {
                if unsent {
                    self.stream.write(CONTINUE).await?;
                }
                self.stream.body(framing, keep).await?.map_err(Some)
            }
        };
        let stays = if close || self.shutdown.is_started() { After::Close } else { After::Next };
        match (admitted, read) {
            (Ok(context), Ok(body)) => {
                request.body = body;
                let (method, path) = (request.method, request.path.as_str().to_owned());
                let answer = self.door.service.call(context, request).instrument(span).await;
                let status = answer.as_ref().map_or_else(ServiceError::status, |response| response.status);
                debug!(%request_id, %method, path, status, "request answered");
                self.answer(answer, &asked, stays).await
            }
            (Err(error), Ok(_)) => self.answer(Err(error), &asked, stays).await,
            (Err(error), Err(_)) | (Ok(_), Err(Some(error))) => {
                self.answer(Err(error), &asked, After::Drain).await
            }
            (Ok(_), Err(None)) => {
                unreachable!("only a refused request's body is left unread without an error")
            }
        }
    }

    /// Finds account, version and identity; nothing of the body is needed for that.
    async fn admit(&self, request: &Request, asked: &mut Asked) -> Result<Context, ServiceError> {
        let (door, scheme, now) = (self.door, self.scheme, asked.now);
        let kind = door.service.kind();
        let version = version(request)?;
        asked.version = version;
        let (located, keys) = locate(kind, &door.accounts, scheme, request)?;
        let check = Check { kind, located: &located, keys, version, scheme, now };
        let (identity, resource) = authenticate(&check, request, &*door.service).await?;
        if located.endpoint == Endpoint::Secondary && !request.method.is_read() {
            let message = "Write operations are not allowed on the secondary endpoint; use the primary one.";
            return Err(ServiceError::new(403, "InsufficientAccountPermissions", message));
        }
        Ok(Context {
            request_id: asked.request_id,
            account: located.account,
            identity,
            resource,
            version,
            endpoint: located.endpoint,
            now,
            scheme,
            base_url: located.base_url,
        })
    }

    /// Writes a response, or the error in its place.
    async fn answer(
        &mut self,
        answer: Result<Response, ServiceError>,
        asked: &Asked,
        after: After,
    ) -> Result<After, Closed> {
        let write_error = |error: ServiceError| error.to_response(asked.format, asked.request_id, asked.now);
        let mut response = answer.unwrap_or_else(write_error);
        if let Some(name) = response.unwritable_header() {
            error!(request_id = %asked.request_id, name, "a response's header has a character that cannot be sent");
            response = write_error(ServiceError::internal());
        }
        let took = self.door.surroundings.now().distance(asked.now);
        let operation = asked.method.map_or("unread", Method::as_str);
        let outcome = Requests::class(response.status);
        self.requests.record(operation, outcome, took);
        let finish = Finish {
            method: asked.method,
            request_id: asked.request_id,
            client_request_id: asked.client_request_id.as_deref(),
            version: asked.version,
            now: asked.now,
            close: !matches!(after, After::Next),
        };
        self.stream.write(&encode(&response, &finish)).await?;
        trace::answered(&asked.span, operation, outcome);
        Ok(after)
    }
}

impl Asked {
    /// Of a request that could not be read.
    fn nothing(request_id: Uuid, now: Timestamp, kind: StoreKind) -> Asked {
        let format = BodyFormat::of(kind, &Headers::new(), &[]);
        let version = API_VERSION_DEFAULT;
        let span = Span::none();
        Asked { request_id, now, method: None, client_request_id: None, version, format, span }
    }

    fn of(request: &Request, request_id: Uuid, now: Timestamp, kind: StoreKind) -> Asked {
        /// The service echoes no more than this.
        const CLIENT_ID_BYTES_MAX: usize = 1024;
        let client_request_id = request.headers.get("x-ms-client-request-id");
        Asked {
            method: Some(request.method),
            client_request_id: client_request_id
                .filter(|id| id.len() <= CLIENT_ID_BYTES_MAX)
                .map(str::to_owned),
            format: BodyFormat::of(kind, &request.headers, &request.query),
            span: trace::request(request.headers.get("traceparent")),
            ..Asked::nothing(request_id, now, kind)
        }
    }
}

fn request_of(head: Head, peer: SocketAddr) -> Request {
    let Head { method, target, path, query, headers, .. } = head;
    Request { method, target, path, query, headers, body: Vec::new(), peer }
}

fn too_long(framing: Framing, bytes_max: usize) -> bool {
    matches!(framing, Framing::Length(length) if length > bytes_max as u64)
}
