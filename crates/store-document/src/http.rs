//! The endpoint: HTTP/1.1 connections, each request read within limits, passed to the service and answered.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use polyshard_meter::Requests;
use polyshard_wire::{Connection, Listener, Served, Shutdown};

use crate::failure::Failure;
use crate::handler::DocumentService;

/// How long a client may take to send the head of a request: an idle connection holds a place.
const HEAD_MAX: Duration = Duration::from_secs(60);
/// How long it may take to send a body.
const BODY_MAX: Duration = Duration::from_secs(60);
/// Bytes of a body at most: a batch of two megabytes, in which texts may be escaped.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a refused body that are read and thrown away, and for how long.
const PASSED_OVER_BYTES_MAX: usize = 16 * 1024 * 1024;
const PASS_OVER_MAX: Duration = Duration::from_secs(5);
/// Bytes of the head of a request at most.
const HEAD_BYTES_MAX: usize = 128 * 1024;

/// A request with its body.
#[derive(Debug)]
pub(crate) struct Request {
    pub method: String,
    /// As it was sent.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Request {
    /// The value of a header that is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether a header says yes, in any case.
    pub fn is_set(&self, name: &str) -> bool {
        self.header(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

/// An answer.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// A body that is there as a whole.
pub(crate) struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Serves connections until the shutdown starts; requests in hand are answered first.
pub(crate) async fn serve(listener: Listener, shutdown: Shutdown, service: Arc<DocumentService>) -> Served {
    listener.serve(shutdown, move |connection| handle(connection, service.clone())).await
}

async fn handle(connection: Connection, service: Arc<DocumentService>) {
    let Connection { stream, peer: _, shutdown, guard } = connection;
    let answer = |request: hyper::Request<Incoming>| {
        let (service, requests) = (service.clone(), guard.requests());
        async move {
            let (began, method) = (service.now_ticks(), word(request.method().as_str()));
            let reply = answer(&service, request).await;
            let took = service.now_ticks().saturating_sub(began).max(0).unsigned_abs();
            requests.record(
                method,
                Requests::class(reply.status),
                Duration::from_nanos(took.saturating_mul(100)),
            );
            Ok::<_, Infallible>(encode(reply))
        }
    };
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut http = std::pin::pin!(http);
    let ended = tokio::select! {
        ended = http.as_mut() => ended,
        () = shutdown.started() => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if let Err(error) = ended {
        // The client went away or sent no HTTP: its own affair.
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(service: &DocumentService, request: hyper::Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let mut request =
        Request { method: head.method.as_str().to_owned(), path, headers: head.headers, body: Bytes::new() };
    // Nothing is kept of the body of somebody who has no key.
    if let Err(failure) = service.authorize(&request) {
        pass_over(body).await;
        return service.refused(&failure);
    }
    match read_body(body).await {
        Ok(bytes) => {
            request.body = bytes;
            service.answer(&request).await
        }
        Err(failure) => service.refused(&failure),
    }
}

async fn read_body(mut body: Incoming) -> Result<Bytes, Failure> {
    let too_large = || Failure::too_large("Request size is too large");
    let mut bytes = Vec::new();
    let is_long = body.size_hint().lower() > BODY_BYTES_MAX as u64;
    let reading = async {
        while let Some(data) = next_data(&mut body).await? {
            if is_long || bytes.len() + data.len() > BODY_BYTES_MAX {
                return Ok(false);
            }
            bytes.extend(&data);
        }
        Ok(true)
    };
    match tokio::time::timeout(BODY_MAX, reading).await {
        Ok(Ok(true)) => Ok(Bytes::from(bytes)),
        Ok(Ok(false)) => {
            pass_over(body).await;
            Err(too_large())
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(Failure::bad_request("the body took too long")),
    }
}

/// Reads the rest of a body that is refused, within limits: a client that is still sending would not see the answer.
async fn pass_over(mut body: Incoming) {
    let reading = async {
        let mut left = PASSED_OVER_BYTES_MAX;
        while let Ok(Some(data)) = next_data(&mut body).await {
            left = left.saturating_sub(data.len());
            if left == 0 {
                return;
            }
        }
    };
    // The answer is sent in any case.
    let _ = tokio::time::timeout(PASS_OVER_MAX, reading).await;
}

/// The next bytes of a body.
async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Failure::bad_request("the body ended early")),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

fn encode(reply: Reply) -> hyper::Response<Whole> {
    let body = (!reply.body.is_empty()).then(|| Bytes::from(reply.body));
    let mut response = hyper::Response::new(Whole(body));
    *response.status_mut() = hyper::StatusCode::from_u16(reply.status).unwrap_or_default();
    for (name, value) in reply.headers {
        // What cannot stand in a header is left out; ids in headers are percent-encoded before.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

/// A method as it is counted: clients can invent any number of them.
fn word(method: &str) -> &'static str {
    const KNOWN: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    KNOWN.into_iter().find(|known| method == *known).unwrap_or("other")
}
