//! The verbs of the Azure Storage protocols.

use std::fmt;

/// A verb that some Azure Storage operation has; any other is refused before it reaches a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Read.
    Get,
    /// Read without a body.
    Head,
    /// Create or replace.
    Put,
    /// Insert, or a batch.
    Post,
    /// Delete.
    Delete,
    /// Merge an entity.
    Patch,
    /// Merge an entity, as older clients say it.
    Merge,
    /// Ask what another origin may do.
    Options,
}

impl Method {
    /// The verb of that name. Verbs are case-sensitive (RFC 9110, section 9.1).
    pub fn parse(name: &str) -> Option<Method> {
        Some(match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "PUT" => Method::Put,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "PATCH" => Method::Patch,
            "MERGE" => Method::Merge,
            "OPTIONS" => Method::Options,
            _ => return None,
        })
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::Patch => "PATCH",
            Method::Merge => "MERGE",
            Method::Options => "OPTIONS",
        }
    }

    /// Whether it only reads, and so may go to a secondary endpoint.
    pub fn is_read(self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}
