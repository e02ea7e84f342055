//! Where a password or token is: given, in an environment variable, or in a file.

use std::io::Read;
use std::path::PathBuf;

use polyshard_engine::Secret;

/// Most bytes of a file that holds a secret: far more than any password, far less than a wrong file.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Where a password or token is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SecretSource {
    /// There is none.
    #[default]
    None,
    /// It stands in the configuration.
    Given(Secret),
    /// In this environment variable.
    Variable(String),
    /// In this file; one line end at its end is not part of it.
    File(PathBuf),
}

/// A secret that cannot be had: set the variable or write the file.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set, or empty.
    #[error("environment variable {0} is not set; set it for the server to the password or token")]
    Variable(String),
    /// The file cannot be read.
    #[error("file {file} cannot be read: {reason}; put the password or token into it", file = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

impl SecretSource {
    /// The secret; `variable` looks up the environment, so that this crate's parts do not.
    pub fn resolve(
        &self,
        variable: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Option<Secret>, SecretError> {
        match self {
            SecretSource::None => Ok(None),
            SecretSource::Given(secret) => Ok(Some(secret.clone())),
            SecretSource::Variable(name) => match variable(name).filter(|value| !value.is_empty()) {
                Some(value) => Ok(Some(Secret::new(value))),
                None => Err(SecretError::Variable(name.clone())),
            },
            SecretSource::File(path) => {
                let refused = |reason: String| SecretError::File { path: path.clone(), reason };
                let file = std::fs::File::open(path).map_err(|e| refused(e.to_string()))?;
                let mut text = String::new();
                file.take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(|e| refused(e.to_string()))?;
                let secret =
                    text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
                if secret.is_empty() {
                    Err(refused("it is empty".to_owned()))
                } else {
                    Ok(Some(Secret::new(secret)))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SecretSource;

    #[test]
    fn a_secret_is_found_where_it_is_said_to_be() {
        let none = |_: &str| None;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "hunter2\r\n").unwrap();
        let of = |source: SecretSource| source.resolve(none).unwrap().map(|s| s.reveal().to_owned());
        assert_eq!(of(SecretSource::None), None);
        assert_eq!(of(SecretSource::Given("x".into())), Some("x".to_owned()));
        assert_eq!(of(SecretSource::File(path.clone())), Some("hunter2".to_owned()));
        let variable = SecretSource::Variable("PASSWORD".to_owned());
        let found = variable.resolve(|name| (name == "PASSWORD").then(|| "y".to_owned())).unwrap().unwrap();
        assert_eq!(found.reveal(), "y");
        assert!(variable.resolve(none).unwrap_err().to_string().contains("PASSWORD is not set"));
        std::fs::write(&path, "\n").unwrap();
        assert!(SecretSource::File(path).resolve(none).unwrap_err().to_string().contains("it is empty"));
    }
}
