//! Objects in an object store: S3 and what speaks like it, and Azure blobs elsewhere.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::path::Path;
use object_store::{
    ClientOptions, MultipartUpload, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutPayload,
    RetryConfig,
};

use super::{Boxed, ByteStream, MARK, ObjectBackend, ObjectError, ObjectId, ObjectWriter};

/// Reads a variable of the environment: secrets of object stores come from there.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

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

/// How often a request is tried again, and how long in all: a store that is away for longer fails the client's request.
const RETRIES_MAX: usize = 3;
const RETRY_WAIT: Duration = Duration::from_secs(10);
/// Bytes of one part of an upload: S3 takes at most 10,000 parts, so larger objects have larger parts.
const PART_BYTES: u64 = 8 * 1024 * 1024;
const PARTS_MAX: u64 = 9_000;

/// A prefix of an object store.
pub struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Remote {
    /// Reads an address.
    pub fn open(url: &str, variables: &Variables) -> Result<Remote, ObjectError> {
        let refuse = |why: String| ObjectError::Failed(format!("{url}: {why}"));
        let parsed = url::Url::parse(url).map_err(|error| refuse(error.to_string()))?;
        if !parsed.username().is_empty() && parsed.scheme().starts_with("s3") || parsed.password().is_some() {
            // It is shown in the configuration and in logs.
            return Err(ObjectError::Failed(
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
            other => return Err(refuse(format!("{other:?} is no store that blobs can be kept in"))),
        };
        Ok(Remote { store: store.map_err(|error| refuse(error.to_string()))?, prefix })
    }

    fn path(&self, path: &str) -> Path {
        path.split('/').fold(self.prefix.clone(), |folder, name| folder.join(name))
    }
}

fn failed(path: &str, error: &object_store::Error) -> ObjectError {
    match error {
        object_store::Error::NotFound { .. } => ObjectError::Gone(path.to_owned()),
        _ => ObjectError::Failed(format!("{path}: {error}")),
    }
}

impl ObjectBackend for Remote {
    fn create<'a>(&'a self, path: &'a str, length: u64) -> Boxed<'a, Box<dyn ObjectWriter>> {
        Box::pin(async move {
            let part_bytes = PART_BYTES.max(length.div_ceil(PARTS_MAX));
            let (store, at) = (self.store.clone(), self.path(path));
            let upload = if length <= part_bytes {
                Upload::Whole
            } else {
                Upload::Parts(store.put_multipart(&at).await.map_err(|error| failed(path, &error))?)
            };
            let part_bytes = usize::try_from(part_bytes).unwrap_or(usize::MAX);
            let path = path.to_owned();
            let writer = RemoteWriter { store, at, path, upload, part_bytes, waiting: BytesMut::new() };
            Ok(Box::new(writer) as Box<dyn ObjectWriter>)
        })
    }

    fn read<'a>(&'a self, path: &'a str, range: Range<u64>) -> Boxed<'a, ByteStream> {
        Box::pin(async move {
            let options = object_store::GetOptions { range: Some(range.into()), ..Default::default() };
            let got = self.store.get_opts(&self.path(path), options).await;
            let got = got.map_err(|error| failed(path, &error))?;
            let path = path.to_owned();
            Ok(got.into_stream().map_err(move |error| failed(&path, &error)).boxed())
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            match self.store.delete(&self.path(path)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(failed(path, &error)),
            }
        })
    }

    fn length<'a>(&'a self, path: &'a str) -> Boxed<'a, Option<u64>> {
        Box::pin(async move {
            match self.store.head(&self.path(path)).await {
                Ok(meta) => Ok(Some(meta.size)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(failed(path, &error)),
            }
        })
    }

    fn list<'a>(&'a self, dataset: u64) -> Boxed<'a, BoxStream<'static, Result<ObjectId, ObjectError>>> {
        Box::pin(async move {
            let folder = self.path(&dataset.to_string());
            let ids = self.store.list(Some(&folder)).filter_map(|meta| {
                let id = match meta {
                    Ok(meta) => meta.location.filename().and_then(ObjectId::parse).map(Ok),
                    Err(error) => Some(Err(failed("list of objects", &error))),
                };
                std::future::ready(id)
            });
            Ok(ids.boxed())
        })
    }

    fn datasets(&self) -> Boxed<'_, Vec<u64>> {
        Box::pin(async move {
            let listed = self.store.list_with_delimiter(Some(&self.prefix)).await;
            let listed = listed.map_err(|error| failed("list of objects", &error))?;
            let name = |path: &Path| path.filename()?.parse::<u64>().ok();
            Ok(listed.common_prefixes.iter().filter_map(name).collect())
        })
    }

    fn delete_all<'a>(&'a self, dataset: u64) -> Boxed<'a, ()> {
        Box::pin(async move {
            let folder = self.path(&dataset.to_string());
            let found = self.store.list(Some(&folder)).map_ok(|meta| meta.location).boxed();
            let mut deleted = self.store.delete_stream(found);
            while let Some(done) = deleted.next().await {
                match done {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(failed("objects of a deleted container", &error)),
                }
            }
            Ok(())
        })
    }

    fn mark<'a>(&'a self, new: &'a str) -> Boxed<'a, String> {
        Box::pin(async move {
            let (path, options) = (self.path(MARK), PutMode::Create.into());
            match self.store.put_opts(&path, PutPayload::from(new.as_bytes().to_vec()), options).await {
                Ok(_) => Ok(new.to_owned()),
                Err(object_store::Error::AlreadyExists { .. }) => {
                    let read = async { self.store.get(&path).await?.bytes().await };
                    let mark = read.await.map_err(|error| failed(MARK, &error))?;
                    Ok(String::from_utf8_lossy(&mark).into_owned())
                }
                Err(error) => Err(failed(MARK, &error)),
            }
        })
    }
}

/// An object that is sent part by part; a short one at once.
struct RemoteWriter {
    store: Arc<dyn ObjectStore>,
    at: Path,
    path: String,
    upload: Upload,
    part_bytes: usize,
    waiting: BytesMut,
}

/// How an object is sent.
enum Upload {
    /// At once, when all of it is there.
    Whole,
    /// In parts. The store keeps them, and charges for them, until the upload is completed or aborted.
    Parts(Box<dyn MultipartUpload>),
    /// No more: it is completed, or a part could not be sent.
    Over,
}

impl ObjectWriter for RemoteWriter {
    fn write(&mut self, bytes: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move {
            self.waiting.extend_from_slice(&bytes);
            while self.waiting.len() >= self.part_bytes {
                let Upload::Parts(upload) = &mut self.upload else { return Ok(()) };
                let part = self.waiting.split_to(self.part_bytes).freeze();
                if let Err(error) = upload.put_part(PutPayload::from_bytes(part)).await {
                    self.abort();
                    return Err(failed(&self.path, &error));
                }
            }
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move {
            let rest = PutPayload::from_bytes(std::mem::take(&mut self.waiting).freeze());
            let done = match &mut self.upload {
                Upload::Over => {
                    return Err(ObjectError::Failed(format!("{}: an earlier part was not sent", self.path)));
                }
                Upload::Whole => self.store.put(&self.at, rest).await,
                Upload::Parts(upload) if rest.content_length() == 0 => upload.complete().await,
                Upload::Parts(upload) => match upload.put_part(rest).await {
                    Ok(()) => upload.complete().await,
                    Err(error) => Err(error),
                },
            };
            // What failed is aborted when this is dropped.
            done.map_err(|error| failed(&self.path, &error))?;
            self.upload = Upload::Over;
            Ok(())
        })
    }
}

impl RemoteWriter {
    /// Has the store forget the parts it has. Nobody waits for that: the request has failed, or its client is gone.
    fn abort(&mut self) {
        let Upload::Parts(mut upload) = std::mem::replace(&mut self.upload, Upload::Over) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let path = self.path.clone();
        runtime.spawn(async move {
            if let Err(error) = upload.abort().await {
                tracing::warn!(path, %error, "the parts of an unfinished upload stay in the object store");
            }
        });
    }
}

impl Drop for RemoteWriter {
    fn drop(&mut self) {
        self.abort();
    }
}

#[cfg(test)]
mod tests;
