//! Who may operate: the bearer of the token.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::problem::{ErrorCode, Problem};

/// The token of a server on loopback that was given none: well known, so it protects nothing beyond the machine
/// (it does keep a web page in a browser on this machine from operating the server).
pub const DEVELOPMENT_TOKEN: &str = "polyshard";

/// Shortest token on an address others can reach: 128 bits as base64 have 22 characters, as a careless
/// password 16; anything shorter can be guessed over a network.
pub const TOKEN_BYTES_MIN: usize = 16;

/// A token that must not be used: configure another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// An empty token, or one that cannot stand in an HTTP header.
    #[error("the admin token is empty or has characters that are not visible ASCII; choose another one")]
    Unusable,
    /// Others can reach this address.
    #[error(
        "the admin API would listen on {address}, which other machines can reach, with {what}; \
         set a token of at least {TOKEN_BYTES_MIN} characters, or listen on 127.0.0.1"
    )]
    Weak {
        /// The address.
        address: SocketAddr,
        /// What is wrong with the token.
        what: &'static str,
    },
}

/// The check of the token.
#[derive(Clone)]
pub struct Auth {
    token: String,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth(***)")
    }
}

impl Auth {
    /// A check for an API that listens on `address`; a weak token is accepted on loopback only.
    pub fn new(token: &str, address: SocketAddr) -> Result<Auth, AuthError> {
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(AuthError::Unusable);
        }
        if !address.ip().to_canonical().is_loopback() {
            if token == DEVELOPMENT_TOKEN {
                return Err(AuthError::Weak { address, what: "the well-known development token" });
            }
            if token.len() < TOKEN_BYTES_MIN {
                return Err(AuthError::Weak { address, what: "a short token" });
            }
        }
        Ok(Auth { token: token.to_owned() })
    }

    /// Whether the request carries the token.
    fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let remedy = "send 'Authorization: Bearer <token>' (command line: --token or POLYSHARD_TOKEN)";
        let Some(given) = headers.get(AUTHORIZATION) else {
            return Err(Problem::new(ErrorCode::Unauthorized, "the request has no token").with_remedy(remedy));
        };
        let (scheme, token) = given.as_bytes().split_at_checked(7).unwrap_or((given.as_bytes(), b""));
        // The time must not tell how much of a guessed token is right.
        let right = bool::from(token.ct_eq(self.token.as_bytes()));
        if !scheme.eq_ignore_ascii_case(b"bearer ") || !right {
            return Err(
                Problem::new(ErrorCode::Unauthorized, "the token is not this server's").with_remedy(remedy)
            );
        }
        Ok(())
    }
}

/// Lets only requests with the token pass.
pub(crate) async fn require(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    match auth.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Auth, AuthError};

    #[test]
    fn a_weak_token_stays_on_loopback() {
        for loopback in ["127.0.0.1:7070", "[::1]:7070", "[::ffff:127.0.0.1]:7070"] {
            Auth::new("polyshard", loopback.parse().unwrap()).unwrap();
        }
        for reachable in ["0.0.0.0:7070", "[::]:7070", "192.168.1.4:7070"] {
            for weak in ["polyshard", "short"] {
                let refused = Auth::new(weak, reachable.parse().unwrap()).unwrap_err();
                assert!(matches!(refused, AuthError::Weak { .. }), "{weak} on {reachable}");
            }
            Auth::new("a-long-enough-token", reachable.parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn a_token_must_fit_in_a_header() {
        for unusable in ["", "with space", "newline\n", "naïve"] {
            assert_eq!(Auth::new(unusable, "127.0.0.1:1".parse().unwrap()).unwrap_err(), AuthError::Unusable);
        }
    }

    #[test]
    fn debug_hides_the_token() {
        let auth = Auth::new("hunter2", "127.0.0.1:1".parse().unwrap()).unwrap();
        assert!(!format!("{auth:?}").contains("hunter2"));
    }
}
