//! Files for browsers, served beside the API without a token: the pages ask for it themselves.

use axum::Router;
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// One file.
#[derive(Debug, Clone, Copy)]
pub struct PageFile {
    /// Its path: `/`, `/console/app.js`.
    pub path: &'static str,
    /// What it is.
    pub content_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
}

/// Nothing but files of this server may run, be shown or be asked, and nobody may put the pages in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The routes of these files.
pub fn page_router(files: impl IntoIterator<Item = PageFile>) -> Router {
    files.into_iter().fold(Router::new(), |router, file| router.route(file.path, get(move || serve(file))))
}

async fn serve(file: PageFile) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, file.content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // The files change with the server, and are small and near.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, file.bytes).into_response()
}
