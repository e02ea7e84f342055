//! A password that cannot be printed.

use std::fmt;

/// A password; every way of printing it shows `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(password: impl Into<String>) -> Secret {
        Secret(password.into())
    }

    /// The password itself, for the one place that sends it to the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether there is no password.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(password: &str) -> Secret {
        Secret::new(password)
    }
}

impl From<String> for Secret {
    fn from(password: String) -> Secret {
        Secret::new(password)
    }
}
