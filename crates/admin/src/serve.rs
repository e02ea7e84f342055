//! The API on a front-door listener, over HTTP/1.1.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use polyshard_meter::{Requests, trace};
use polyshard_wire::{Connection, Listener, Served, Shutdown};
use tracing::Instrument;

use crate::problem::{ErrorCode, Problem};

/// How long a client may take to send the head of a request: it is small, and an idle connection holds a place.
const HEAD_MS_MAX: u64 = 10_000;

/// A body of at most so many bytes is read before the request is answered. What a handler leaves unread is otherwise
/// read after the answer if it happens to be there, or else the connection is closed, without a word in the answer: the
/// client's next request on it is lost.
const BODY_BYTES_AHEAD: usize = 16 * 1024;

/// Tells how long the process runs.
pub type Clock = fn() -> Duration;

/// Serves the API until the shutdown starts; requests in hand are answered first. They are counted and timed.
pub async fn serve(listener: Listener, shutdown: Shutdown, router: Router, clock: Clock) -> Served {
    let counters = listener.counters();
    let count = move |request: Request, next: Next| {
        let counters = counters.clone();
        async move {
            let (began, method) = (clock(), word(request.method()));
            let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
            let span = trace::request(parent);
            let answered = async {
                match read_ahead(request).await {
                    Ok(request) => next.run(request).await,
                    Err(problem) => problem.into_response(),
                }
            };
            let response = answered.instrument(span.clone()).await;
            let outcome = Requests::class(response.status().as_u16());
            counters.requests().record(method, outcome, clock().saturating_sub(began));
            trace::answered(&span, method, outcome);
            response
        }
    };
    let router = router.layer(middleware::from_fn(count));
    listener.serve(shutdown, move |connection| handle(connection, router.clone())).await
}

async fn handle(connection: Connection, router: Router) {
    let Connection { stream, peer: _, shutdown, guard } = connection;
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_MS_MAX))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
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
        tracing::debug!(%error, "an admin connection ended early");
    }
    drop(guard);
}

/// Reads a short body, whoever asks for it.
async fn read_ahead(request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let is_short = body.size_hint().exact().is_some_and(|bytes| bytes <= BODY_BYTES_AHEAD as u64);
    if !is_short || body.is_end_stream() {
        return Ok(Request::from_parts(parts, body));
    }
    let reading = to_bytes(body, BODY_BYTES_AHEAD);
    match tokio::time::timeout(Duration::from_millis(HEAD_MS_MAX), reading).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(parts, Body::from(bytes))),
        _ => Err(Problem::new(ErrorCode::Invalid, "the body ended early")),
    }
}

/// A method as it is counted: clients can invent any number of them.
fn word(method: &Method) -> &'static str {
    const KNOWN: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    KNOWN.into_iter().find(|known| method == known).unwrap_or("other")
}
