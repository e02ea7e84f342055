//! What is wrong with a configuration: where, what, and what to write instead.

use std::fmt;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A line of the file, counted from 1.
    Line {
        /// The file.
        file: String,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag,
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Line { file, line } => write!(f, "{file}:{line}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag => f.write_str("command line"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// One mistake: fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {message}; {remedy}")]
pub struct ConfigError {
    /// Where.
    pub origin: Origin,
    /// What, with the option's name; never a secret.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Every mistake of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The mistakes, in the order of the file, then of the environment, then of flags.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, origin: &Origin, message: impl Into<String>, remedy: impl Into<String>) {
        let error = ConfigError { origin: origin.clone(), message: message.into(), remedy: remedy.into() };
        // Two rules may trip over the same mistake; the reader needs it once.
        if !self.0.contains(&error) {
            self.0.push(error);
        }
    }

    pub(super) fn sorted(mut self) -> ConfigErrors {
        self.0.sort_by(|a, b| a.origin.cmp(&b.origin));
        self
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
