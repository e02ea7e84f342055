//! Objects of an object store, below a prefix: S3 and what speaks like it, and Azure blobs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::path::Path;
use object_store::{
    ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutOptions,
    PutPayload, RetryConfig,
};

use super::{Item, Variables};
use crate::BackupError;

/// The variables that are passed on: those that the stores' own tools read.
const VARIABLES: [&str; 14] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURE_STORAGE_TOKEN",
];

/// How often a request is tried again, and how long in all: a store that is away for longer is told of.
const RETRIES_MAX: usize = 6;
const RETRY_WAIT: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    url: String,
}

impl Objects {
    pub(super) fn open(url: &str, variables: &Variables) -> Result<Objects, BackupError> {
        let refuse = |why: String| BackupError::Refused(format!("{url}: {why}"));
        let parsed = url::Url::parse(url).map_err(|error| refuse(error.to_string()))?;
        if !parsed.username().is_empty() && parsed.scheme().starts_with("s3") || parsed.password().is_some() {
            // It is shown in lists and logs.
            return Err(BackupError::Refused(
                "the address of an object store holds no secret; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
                 AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, for the server"
                    .to_owned(),
            ));
        }
        // The one TLS library of this program; if somebody installed it before, it is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (scheme, prefix) =
            ObjectStoreScheme::parse(&parsed).map_err(|error| refuse(error.to_string()))?;
        let given = VARIABLES.iter().filter_map(|name| Some((name.to_ascii_lowercase(), variables(name)?)));
        let given: Vec<(String, String)> = given.collect();
        // Whoever names an address without encryption means it.
        let plain = given.iter().any(|(_, value)| value.starts_with("http://"));
        let client = ClientOptions::new().with_allow_http(plain);
        let retry =
            RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_WAIT, ..RetryConfig::default() };
        let store: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let mut builder = AmazonS3Builder::new().with_url(url).with_client_options(client);
                for (name, value) in &given {
                    if let Ok(key) = name.parse::<AmazonS3ConfigKey>() {
                        builder = builder.with_config(key, value);
                    }
                }
                builder.with_retry(retry).build().map(|store| Arc::new(store) as _)
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let mut builder = MicrosoftAzureBuilder::new().with_url(url).with_client_options(client);
                for (name, value) in &given {
                    if let Ok(key) = name.parse::<AzureConfigKey>() {
                        builder = builder.with_config(key, value);
                    }
                }
                builder.with_retry(retry).build().map(|store| Arc::new(store) as _)
            }
            other => return Err(refuse(format!("{other:?} is no store that backups can be kept in"))),
        };
        let store = store.map_err(|error| refuse(error.to_string()))?;
        Ok(Objects { store, prefix, url: url.to_owned() })
    }

    fn path(&self, path: &str) -> Path {
        path.split('/').fold(self.prefix.clone(), |folder, name| folder.join(name))
    }

    fn wrong(&self, path: &str, error: &object_store::Error) -> BackupError {
        BackupError::Failed(format!("{}/{path}: {error}", self.url))
    }

    fn item(&self, meta: &ObjectMeta) -> Item {
        let parts = meta.location.prefix_match(&self.prefix);
        let path = parts.map_or_else(String::new, |parts| {
            parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")
        });
        Item { path, bytes: meta.size, modified_ms: meta.last_modified.timestamp_millis() }
    }

    pub(super) async fn put(&self, path: &str, bytes: Bytes) -> Result<(), BackupError> {
        let put = self.store.put(&self.path(path), PutPayload::from_bytes(bytes)).await;
        put.map(drop).map_err(|error| self.wrong(path, &error))
    }

    pub(super) async fn put_new(&self, path: &str, bytes: Bytes) -> Result<bool, BackupError> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.store.put_opts(&self.path(path), PutPayload::from_bytes(bytes), options).await;
        match put {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.wrong(path, &error)),
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Option<Bytes>, BackupError> {
        let found = async { self.store.get(&self.path(path)).await?.bytes().await };
        match found.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.wrong(path, &error)),
        }
    }

    pub(super) async fn look(&self, path: &str) -> Result<Option<Item>, BackupError> {
        match self.store.head(&self.path(path)).await {
            Ok(meta) => Ok(Some(self.item(&meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.wrong(path, &error)),
        }
    }

    pub(super) async fn list(&self, below: &str) -> Result<Vec<Item>, BackupError> {
        let folder = self.path(below);
        let listed: Result<Vec<ObjectMeta>, _> = self.store.list(Some(&folder)).try_collect().await;
        let listed = listed.map_err(|error| self.wrong(below, &error))?;
        Ok(listed.iter().map(|meta| self.item(meta)).collect())
    }

    pub(super) async fn names(&self) -> Result<Vec<String>, BackupError> {
        let listed = self.store.list_with_delimiter(Some(&self.prefix)).await;
        let listed = listed.map_err(|error| self.wrong("", &error))?;
        let name = |path: &Path| path.filename().map(str::to_owned);
        Ok(listed.common_prefixes.iter().filter_map(name).collect())
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), BackupError> {
        match self.store.delete(&self.path(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.wrong(path, &error)),
        }
    }
}
