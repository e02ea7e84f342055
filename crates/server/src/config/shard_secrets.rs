//! Which variables and files an operator may name as the place of a shard's password: those that are for shards. A
//! shard's address is the operator's to choose, so any other secret could be sent to a host of his own.

use std::path::{Path, PathBuf};

use polyshard_catalog::PasswordSource;

use super::error::ConfigErrors;
use super::options::ENV_PREFIX;
use super::settings::Values;
use super::{Config, SecretSource};

/// Where passwords of shards are that operators add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardSecrets {
    /// Names of variables; one that ends in `*` stands for all that begin so.
    pub variables: Vec<String>,
    /// The folder of their files, if there is one.
    pub folder: Option<PathBuf>,
}

/// A place that is not for shards' passwords.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.what(), self.remedy())]
pub enum NotForShards {
    /// The variable is not among those for shards.
    Variable(String),
    /// The file is not in the folder for shards.
    File(PathBuf),
    /// There is no folder for shards.
    NoFolder(PathBuf),
}

impl NotForShards {
    /// What is wrong.
    pub fn what(&self) -> String {
        match self {
            NotForShards::Variable(name) => format!("variable {name} is not one for passwords of shards"),
            NotForShards::File(file) => {
                format!("file {} is not in the folder for passwords of shards", file.display())
            }
            NotForShards::NoFolder(file) => {
                format!("file {}: there is no folder for passwords of shards", file.display())
            }
        }
    }

    /// What to do.
    pub fn remedy(&self) -> &'static str {
        match self {
            NotForShards::Variable(_) => "name it otherwise, or add it to secrets.shard_variables",
            NotForShards::File(_) => "put it there (secrets.shard_folder)",
            NotForShards::NoFolder(_) => "set secrets.shard_folder",
        }
    }
}

impl ShardSecrets {
    pub(super) fn build(values: &Values, errors: &mut ConfigErrors) -> Option<ShardSecrets> {
        let listed = values.get("secrets.shard_variables")?;
        let variables: Vec<String> = listed
            .text
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        for name in &variables {
            let stem = name.strip_suffix('*').unwrap_or(name);
            if stem.is_empty() || stem.contains('*') {
                errors.push(
                    &listed.origin,
                    format!("secrets.shard_variables: {name:?} stands for too many"),
                    "give a name, or what names begin with and one * at its end, as SHARD_*",
                );
            }
        }
        let folder = values.get("secrets.shard_folder").map(|setting| PathBuf::from(&setting.text));
        Some(ShardSecrets { variables, folder })
    }

    fn has_variable(&self, name: &str) -> bool {
        self.variables.iter().any(|one| match one.strip_suffix('*') {
            Some(stem) => !stem.is_empty() && name.starts_with(stem),
            None => one == name,
        })
    }

    /// Whether a file is in the folder, wherever links lead.
    fn has_file(&self, path: &Path) -> Result<bool, NotForShards> {
        let folder = self.folder.as_ref().ok_or_else(|| NotForShards::NoFolder(path.to_owned()))?;
        // What is not there cannot be read either; the names alone then decide which words are said.
        let place = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
        let (Ok(file), Ok(folder)) = (place(path), place(folder)) else { return Ok(false) };
        let plain = file.components().all(|part| !matches!(part, std::path::Component::ParentDir));
        Ok(plain && file != folder && file.starts_with(folder))
    }
}

impl Config {
    /// Where the password of a shard is, if that is a place for passwords of shards.
    pub fn shard_password(&self, source: &PasswordSource) -> Result<Option<SecretSource>, NotForShards> {
        match source {
            PasswordSource::Config => Ok(None),
            PasswordSource::Env(name) => {
                let other = name.starts_with(ENV_PREFIX)
                    || self
                        .other_secrets()
                        .any(|secret| matches!(secret, SecretSource::Variable(of_other) if of_other == name));
                match self.shard_secrets.has_variable(name) && !other {
                    true => Ok(Some(SecretSource::Variable(name.clone()))),
                    false => Err(NotForShards::Variable(name.clone())),
                }
            }
            PasswordSource::File(path) => {
                let path = PathBuf::from(path);
                let is_path = |other: &Path| match (other.canonicalize(), path.canonicalize()) {
                    (Ok(other), Ok(path)) => other == path,
                    _ => other == path,
                };
                let other = self
                    .other_secrets()
                    .any(|secret| matches!(secret, SecretSource::File(of_other) if is_path(of_other)));
                match self.shard_secrets.has_file(&path)? && !other {
                    true => Ok(Some(SecretSource::File(path))),
                    false => Err(NotForShards::File(path)),
                }
            }
        }
    }

    /// The secrets that are not of shards.
    fn other_secrets(&self) -> impl Iterator<Item = &SecretSource> {
        [&self.catalog.password, &self.admin.token, &self.sql.password]
            .into_iter()
            .chain(self.stores.secrets())
    }
}

#[cfg(test)]
mod tests {
    use polyshard_catalog::PasswordSource;

    use super::super::{File, load};
    use super::NotForShards;

    fn env(name: &str) -> PasswordSource {
        PasswordSource::Env(name.to_owned())
    }

    // B: an operator names the admin token's variable, and a host of his own.
    #[test]
    fn only_what_is_for_shards_can_be_named() {
        let folder = tempfile::tempdir().unwrap();
        let shards = folder.path().join("shards");
        std::fs::create_dir(&shards).unwrap();
        for file in ["shards/eu", "token", "shards/catalog"] {
            std::fs::write(folder.path().join(file), "hunter2").unwrap();
        }
        std::os::unix::fs::symlink(folder.path().join("token"), shards.join("link")).unwrap();
        let text = format!(
            "[admin]\ntoken_env = \"SHARD_ADMIN\"\n[catalog]\nurl = \"postgres://p@h/c\"\n\
             password_file = \"{0}/catalog\"\n[secrets]\nshard_variables = \"SHARD_*, EU1\"\nshard_folder = \"{0}\"\n",
            shards.display()
        );
        let config =
            load(Some(File { name: "polyshard.toml", text: &text }), Vec::new(), &[]).unwrap().config;
        for name in ["SHARD_EU", "EU1"] {
            assert!(config.shard_password(&env(name)).is_ok(), "{name}");
        }
        for name in ["SHARD_ADMIN", "EU12", "PATH", "POLYSHARD__ADMIN__TOKEN", "shard_eu", ""] {
            let refused = config.shard_password(&env(name));
            assert_eq!(refused, Err(NotForShards::Variable(name.to_owned())), "{name}");
        }
        let file =
            |name: &str| config.shard_password(&PasswordSource::File(format!("{}/{name}", shards.display())));
        assert!(file("eu").is_ok());
        for name in ["../token", "link", "catalog", "../shards", "../nothing", ""] {
            assert!(matches!(file(name), Err(NotForShards::File(_))), "{name}");
        }
        assert!(config.shard_password(&PasswordSource::File("/etc/passwd".to_owned())).is_err());
    }

    #[test]
    fn without_a_word_there_is_a_prefix_and_no_folder() {
        let config = load(None, Vec::new(), &[]).unwrap().config;
        assert!(config.shard_password(&env("POLYSHARD_SHARD_EU1")).is_ok());
        for name in ["EU1_PASSWORD", "POLYSHARD__SQL__PASSWORD", "HOME"] {
            assert!(config.shard_password(&env(name)).is_err(), "{name}");
        }
        let file = config.shard_password(&PasswordSource::File("/run/secrets/eu1".to_owned()));
        assert!(matches!(file, Err(NotForShards::NoFolder(_))));
    }
}
