//! The options of the store, and how it is started with them.

use std::sync::Arc;
use std::time::Duration;

use polyshard_store::{Configured, Kind, Kit, OptionSpec, StartError, Started};

use crate::handler::BlobService;
use crate::objects::Objects;
use crate::store::{BlobOptions, BlobStore, Rates};

/// The folder below that of the process's data where objects are, unless it is said otherwise.
const FOLDER: &str = "blobs";
const DAY_S: u64 = 24 * 3600;
/// More a second is no limit.
const RATE_MAX: u64 = 1_000_000_000;

/// The options.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "blob.objects",
        Kind::Text,
        "",
        "Where the bytes of blobs are kept that do not lie in rows: a folder, `s3://bucket/prefix` or \
         `az://container/prefix`; the folder `blobs` in the data directory by default. Keys of an object store come \
         from the usual environment variables, such as `AWS_ACCESS_KEY_ID`. All processes of a cluster need the same \
         place: one with another place refuses blobs that do not fit into rows.",
    ),
    OptionSpec::new(
        "blob.inline_bytes_max",
        Kind::Integer { min: 0, max: 1024 * 1024 },
        "65536",
        "Bytes of a blob, block or append that lie in its row at most; more of them are an object.",
    ),
    OptionSpec::new(
        "blob.keep_removed_s",
        Kind::Integer { min: 0, max: 365 * DAY_S },
        "3600",
        "How long bytes are kept that no blob has any more. A backup must not take longer: it reads the rows first.",
    ),
    OptionSpec::new(
        "blob.upload_s_max",
        Kind::Integer { min: 60, max: 365 * DAY_S },
        "86400",
        "How long an upload may take at most: what it has left behind is removed then.",
    ),
    OptionSpec::new(
        "blob.account_requests_max",
        Kind::Integer { min: 0, max: RATE_MAX },
        "0",
        "Requests a second for blobs that each process takes of one account; the others are told to come later. 0 is \
         no limit; the service has 20000.",
    ),
    OptionSpec::new(
        "blob.requests_max",
        Kind::Integer { min: 0, max: RATE_MAX },
        "0",
        "Requests a second that each process takes for one blob. 0 is no limit; the service has 500.",
    ),
    OptionSpec::new(
        "blob.bytes_max",
        Kind::Integer { min: 0, max: 1000 * RATE_MAX },
        "0",
        "Bytes a second of one blob that each process sends and takes. 0 is no limit; the service has 60000000.",
    ),
    OptionSpec::new(
        "blob.public_access",
        Kind::Bool,
        "false",
        "Whether containers can be opened to readers without a key.",
    ),
];

/// Where the objects of a process are.
pub(crate) fn objects(configured: &Configured) -> Result<Objects, StartError> {
    let folder = || configured.data.join(FOLDER).to_string_lossy().into_owned();
    let url = configured.values.text("blob.objects").filter(|url| !url.is_empty());
    let objects = Objects::open(&url.map_or_else(folder, str::to_owned), &configured.variable);
    objects.map_err(|error| StartError::new(format!("blob.objects: {error}")))
}

/// Starts the store in a process.
pub(crate) fn start(kit: Kit) -> Result<Started, StartError> {
    let seconds = |path: &str| kit.option(path).map(Duration::from_secs);
    let objects = objects(kit.host().configured())?;
    let options = BlobOptions {
        inline_bytes_max: kit.option("blob.inline_bytes_max")?,
        keep_removed: seconds("blob.keep_removed_s")?,
        upload_max: seconds("blob.upload_s_max")?,
        rates: Rates {
            account_requests: kit.option("blob.account_requests_max")?,
            blob_requests: kit.option("blob.requests_max")?,
            blob_bytes: kit.option("blob.bytes_max")?,
        },
        ..BlobOptions::new(objects)
    };
    let store = Arc::new(BlobStore::new(kit.clone(), options));
    let accounts = polyshard_azure_storage::resolve_accounts(&kit)?;
    let service = BlobService::new(store.clone(), accounts);
    let service = Arc::new(service.with_public_access(kit.option("blob.public_access")?));
    let handler = polyshard_azure_storage::handler(&kit, "blob", service)?;
    Ok(Started { handlers: vec![handler], jobs: vec![store.keep_tidy()], ..Started::default() })
}
