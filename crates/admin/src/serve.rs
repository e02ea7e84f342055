//! The API on a front-door listener, over HTTP/1.1.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{self, Next};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use polyshard_meter::{Requests, trace};
use polyshard_wire::{Connection, Listener, Served, Shutdown};
use tracing::Instrument;

/// How long a client may take to send the head of a request: it is small, and an idle connection holds a place.
const HEAD_MS_MAX: u64 = 10_000;

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
            let response = next.run(request).instrument(span.clone()).await;
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

/// A method as it is counted: clients can invent any number of them.
fn word(method: &Method) -> &'static str {
    const KNOWN: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    KNOWN.into_iter().find(|known| method == known).unwrap_or("other")
}
