//! The API on a front-door listener, over HTTP/1.1.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use polyshard_wire::{Connection, Listener, Served, Shutdown};

/// How long a client may take to send the head of a request: it is small, and an idle connection holds a place.
const HEAD_MS_MAX: u64 = 10_000;

/// Serves the API until the shutdown starts; requests in hand are answered first.
pub async fn serve(listener: Listener, shutdown: Shutdown, router: Router) -> Served {
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
