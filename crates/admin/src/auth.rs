//! Who may operate: the bearer of a token, as far as its role goes.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::problem::{ErrorCode, Problem};
use crate::types::{Role, UserName};

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

/// The name under which the token of the configuration stands in the log.
const CONFIGURED: &str = "admin.token";

/// The bearer of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The token's name.
    pub name: UserName,
    /// What the bearer may do.
    pub role: Role,
}

/// The tokens beside that of the configuration.
pub trait Tokens: Send + Sync + 'static {
    /// Who bears a token; none if it is nobody's.
    fn bearer(&self, token: &[u8]) -> Option<Bearer>;
}

/// The check of the token.
#[derive(Clone)]
pub struct Auth {
    token: String,
    others: Option<Arc<dyn Tokens>>,
    /// The least that any request takes.
    floor: Role,
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
        Ok(Auth { token: token.to_owned(), others: None, floor: Role::Viewer })
    }

    /// The same check, which also knows other tokens.
    #[must_use]
    pub fn with_tokens(self, others: Arc<dyn Tokens>) -> Auth {
        Auth { others: Some(others), ..self }
    }

    /// The same check, for requests that take at least this role.
    #[must_use]
    pub(crate) fn at_least(self, floor: Role) -> Auth {
        Auth { floor, ..self }
    }

    /// What a request takes: to look on, to change something, or what all these requests take.
    fn needed(&self, method: &Method) -> Role {
        let looks = *method == Method::GET || *method == Method::HEAD;
        self.floor.max(if looks { Role::Viewer } else { Role::Operator })
    }

    /// Who sends the request.
    fn bearer(&self, headers: &HeaderMap) -> Result<Bearer, Problem> {
        let remedy = "send 'Authorization: Bearer <token>' (command line: --token or POLYSHARD_TOKEN)";
        let Some(given) = headers.get(AUTHORIZATION) else {
            return Err(Problem::new(ErrorCode::Unauthorized, "the request has no token").with_remedy(remedy));
        };
        let (scheme, token) = given.as_bytes().split_at_checked(7).unwrap_or((given.as_bytes(), b""));
        // The time must not tell how much of a guessed token is right.
        let right = bool::from(token.ct_eq(self.token.as_bytes()));
        let wrong =
            || Problem::new(ErrorCode::Unauthorized, "the token is not this server's").with_remedy(remedy);
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Err(wrong());
        }
        if right {
            let name = UserName::new(CONFIGURED).map_err(|error| Problem::new(ErrorCode::Internal, error))?;
            return Ok(Bearer { name, role: Role::Admin });
        }
        self.others.as_ref().and_then(|others| others.bearer(token)).ok_or_else(wrong)
    }
}

/// Lets only requests with a token of a sufficient role pass.
pub(crate) async fn require(State(auth): State<Auth>, mut request: Request, next: Next) -> Response {
    let bearer = match auth.bearer(request.headers()) {
        Ok(bearer) => bearer,
        Err(problem) => return problem.into_response(),
    };
    let needed = auth.needed(request.method());
    if bearer.role < needed {
        let message =
            format!("token {} is for a {}, and this takes the role {needed}", bearer.name, bearer.role);
        let problem = Problem::new(ErrorCode::Forbidden, message)
            .with_remedy(format!("ask an administrator for one: 'polyshard token add NAME --role {needed}'"));
        return problem.into_response();
    }
    request.extensions_mut().insert(bearer);
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::{Auth, AuthError};
    use crate::types::Role;

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
    fn looking_on_changing_and_saying_who_may_are_three_roles() {
        let auth = Auth::new("polyshard", "127.0.0.1:1".parse().unwrap()).unwrap();
        assert_eq!(auth.needed(&Method::GET), Role::Viewer);
        assert_eq!(auth.needed(&Method::POST), Role::Operator);
        assert_eq!(auth.needed(&Method::DELETE), Role::Operator);
        let of_users = auth.at_least(Role::Admin);
        assert_eq!(of_users.needed(&Method::GET), Role::Admin);
        assert_eq!(of_users.needed(&Method::DELETE), Role::Admin);
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
