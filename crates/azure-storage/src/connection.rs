//! One connection: requests read one after the other within limits, each passed to the store and answered.

use std::net::SocketAddr;
use std::pin::{Pin, pin};

use polyshard_meter::{Requests, trace};
use polyshard_wire::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{Instrument, Span, debug, error};
use uuid::Uuid;

use crate::auth::{Check, authenticate, locate, version};
use crate::http::{CONTINUE, Finish, Framing, Head, encode, has_body};
use crate::stream::{Closed, End, Incoming, Keep, PIECE_BYTES, Stream};
use crate::{
    API_VERSION_DEFAULT, ApiVersion, BodyFormat, BodyStream, Context, Door, Endpoint, Headers, Identity,
    Method, Request, Response, Scheme, ServiceError, StoreKind, Timestamp,
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

/// What the store is called with.
struct Call {
    context: Context,
    request: Request,
}

/// A body that is read whole.
struct Unread {
    framing: Framing,
    is_held_back: bool,
    streams: bool,
    keep: Keep,
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
        let request = request_of(*head, self.peer);
        let mut asked = Asked::of(&request, request_id, now, kind);
        let span = asked.span.clone();
        let admitted = self.admit(&request, &mut asked).instrument(span).await;
        let stays = if close || self.shutdown.is_started() { After::Close } else { After::Next };
        // A body is not waited for if nobody will use it and the client has not begun to send it.
        let is_held_back = expects_continue && self.stream.is_empty() && framing != Framing::Length(0);
        let context = match admitted {
            Ok(context) => context,
            Err(error) if is_held_back => return self.answer(Err(error), &asked, After::Drain).await,
            Err(error) => {
                let is_skipped = self.stream.body(framing, Keep::Nothing).await?.is_ok();
                let after = if is_skipped { stays } else { After::Drain };
                return self.answer(Err(error), &asked, after).await;
            }
        };
        let streams = self.door.service.streams(&request);
        let limits = &self.door.limits;
        let bytes_max = if streams { limits.stream_bytes_max } else { limits.body_bytes_max as u64 };
        if matches!(framing, Framing::Length(length) if length > bytes_max) {
            return self.answer(Err(ServiceError::body_too_large(bytes_max)), &asked, After::Drain).await;
        }
        // A body of one piece is read before the store is called: there is nothing to gain by doing both at once.
        let piece = PIECE_BYTES.min(limits.body_bytes_max) as u64;
        let is_one_piece = matches!(framing, Framing::Length(length) if length <= piece) && !is_held_back;
        let (path, call) = (request.path.as_str().to_owned(), Call { context, request });
        let (answer, after) = match (streams, is_one_piece) {
            (true, false) => {
                let body = Incoming::new(framing, is_held_back, bytes_max);
                self.call_with_stream(call, body, &asked, stays).await?
            }
            (streams, _) => {
                // Without credentials there are only reads, which need no body: nothing of it is kept in memory.
                let is_anonymous = call.context.identity == Identity::Anonymous;
                let keep = if is_anonymous { Keep::Nothing } else { Keep::All };
                let unread = Unread { framing, is_held_back, streams, keep };
                self.call_with_body(call, unread, &asked, stays).await?
            }
        };
        let status = answer.as_ref().map_or_else(ServiceError::status, |response| response.status);
        let method = asked.method.map_or("", Method::as_str);
        debug!(%request_id, method, path, status, "request answered");
        self.answer(answer, &asked, after).await
    }

    /// Reads the body, then calls the store.
    async fn call_with_body(
        &mut self,
        call: Call,
        unread: Unread,
        asked: &Asked,
        after: After,
    ) -> Result<(Result<Response, ServiceError>, After), Closed> {
        let Call { context, mut request } = call;
        if unread.is_held_back {
            self.stream.write(CONTINUE).await?;
        }
        match self.stream.body(unread.framing, unread.keep).await? {
            Ok(body) if unread.streams => request.stream = Some(BodyStream::whole(body)),
            Ok(body) => request.body = body,
            Err(error) => return Ok((Err(error), After::Drain)),
        }
        Ok((self.door.service.call(context, request).instrument(asked.span.clone()).await, after))
    }

    /// Calls the store and hands the body on as it arrives, both in this task.
    async fn call_with_stream(
        &mut self,
        call: Call,
        mut body: Incoming,
        asked: &Asked,
        after: After,
    ) -> Result<(Result<Response, ServiceError>, After), Closed> {
        let Call { context, mut request } = call;
        let (sender, stream) = BodyStream::sent(body.length());
        request.stream = Some(stream);
        let mut called = pin!(self.door.service.call(context, request).instrument(asked.span.clone()));
        let answer = tokio::select! {
            biased;
            answer = &mut called => Some(answer),
            () = self.stream.feed(&mut body, sender) => None,
        };
        let answer = match answer {
            Some(answer) => answer,
            None => called.await,
        };
        let after = match body.end {
            End::Reached => after,
            End::Lost => After::Drain,
            End::Closed(reason) => return Err(reason),
            // The store has answered early, as it does when it refuses the request.
            End::Open => {
                if self.stream.skip(&mut body).await {
                    after
                } else {
                    After::Drain
                }
            }
        };
        Ok((answer, after))
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
            return Err(ServiceError::secondary_is_read_only());
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
        let mut length = response.body.len() as u64;
        let mut produced = None;
        if let Some(mut source) = response.stream.take() {
            length = source.length;
            // The first piece is waited for, since an error can still be answered before the head is sent.
            let first = if has_body(response.status, asked.method) { source.next().await } else { Ok(None) };
            match first {
                Ok(first) => produced = first.map(|first| (first, source)),
                Err(error) => {
                    response = write_error(error);
                    length = response.body.len() as u64;
                }
            }
        }
        let finish = Finish {
            method: asked.method,
            request_id: asked.request_id,
            client_request_id: asked.client_request_id.as_deref(),
            version: asked.version,
            now: asked.now,
            length,
            close: !matches!(after, After::Next),
        };
        let bytes = encode(&response, &finish);
        let Some((first, source)) = produced else {
            self.record(asked, response.status);
            self.stream.write(&bytes).await?;
            self.trace(asked, response.status);
            return Ok(after);
        };
        let sent = self.stream.write_source(&bytes, first, source).await?;
        let status = sent.as_ref().map_or_else(ServiceError::status, |()| response.status);
        self.record(asked, status);
        self.trace(asked, status);
        sent.map(|()| after).map_err(|error| {
            let (request_id, code, reason) = (asked.request_id, error.code(), error.message());
            error!(%request_id, code, reason, "connection closed: a response's body failed after its head was sent");
            Closed::Broken
        })
    }

    fn record(&self, asked: &Asked, status: u16) {
        let took = self.door.surroundings.now().distance(asked.now);
        self.requests.record(asked.operation(), Requests::class(status), took);
    }

    fn trace(&self, asked: &Asked, status: u16) {
        trace::answered(&asked.span, asked.operation(), Requests::class(status));
    }
}

impl Asked {
    fn operation(&self) -> &'static str {
        self.method.map_or("unread", Method::as_str)
    }

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
    Request { method, target, path, query, headers, body: Vec::new(), stream: None, peer }
}
