//! The text that a shared access signature signs: which fields, in which order, by the version it was made for.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/create-service-sas> and
//! <https://learn.microsoft.com/rest/api/storageservices/create-account-sas>

use crate::{AccountName, ApiVersion, StoreKind};

/// From here on names begin with the service: `/table/account/name`.
const SERVICE_IN_NAME: ApiVersion = ApiVersion::known(2015, 2, 21);
/// From here on addresses and protocols are signed.
const ADDRESS_AND_PROTOCOL: ApiVersion = ApiVersion::known(2015, 4, 5);
/// From here on headers that blobs are answered with are signed.
pub(super) const BLOB_HEADERS: ApiVersion = ApiVersion::known(2013, 8, 15);
/// From here on a blob's signature tells what it is for, and which snapshot.
pub(super) const BLOB_RESOURCE: ApiVersion = ApiVersion::known(2018, 11, 9);
/// From here on a signature may be for a directory.
pub(super) const DIRECTORY: ApiVersion = ApiVersion::known(2020, 2, 10);
/// From here on the encryption scope is signed.
const ENCRYPTION_SCOPE: ApiVersion = ApiVersion::known(2020, 12, 6);

/// The text of an account SAS; `field` gives the decoded value of a query parameter, or nothing.
pub(super) fn account<'a>(account: &AccountName, sv: ApiVersion, field: impl Fn(&str) -> &'a str) -> String {
    let mut names = vec!["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"];
    if sv >= ENCRYPTION_SCOPE {
        names.push("ses");
    }
    let mut text = format!("{account}\n");
    for name in names {
        text.push_str(field(name));
        // After the last one too, unlike in a service SAS.
        text.push('\n');
    }
    text
}

/// The text of a SAS for one table, queue, container or blob, whose name is `resource`.
pub(super) fn service<'a>(
    kind: StoreKind,
    account: &AccountName,
    resource: &str,
    sv: ApiVersion,
    field: impl Fn(&str) -> &'a str,
) -> String {
    let prefix = if sv >= SERVICE_IN_NAME { format!("/{}", kind.as_str()) } else { String::new() };
    let name = format!("{prefix}/{account}/{resource}");
    let snapshot = match field("sr") {
        "bs" => field("snapshot"),
        "bv" => field("versionid"),
        _ => "",
    };
    let mut lines = vec![field("sp"), field("st"), field("se"), name.as_str(), field("si")];
    if sv >= ADDRESS_AND_PROTOCOL {
        lines.extend([field("sip"), field("spr")]);
    }
    lines.push(field("sv"));
    match kind {
        StoreKind::Queue => {}
        StoreKind::Table => lines.extend(["spk", "srk", "epk", "erk"].map(field)),
        StoreKind::Blob => {
            if sv >= BLOB_RESOURCE {
                lines.extend([field("sr"), snapshot]);
            }
            if sv >= ENCRYPTION_SCOPE {
                lines.push(field("ses"));
            }
            if sv >= BLOB_HEADERS {
                lines.extend(["rscc", "rscd", "rsce", "rscl", "rsct"].map(field));
            }
        }
    }
    lines.join("\n")
}
