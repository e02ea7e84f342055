//! Answers about an account's service.

use polyshard_azure_storage::xml::Writer;
use polyshard_azure_storage::{Response, Timestamp};

use super::document;
use crate::store::BlobProperties;

/// What the document of the properties ends with.
const END: &str = "</StorageServiceProperties>";

pub(crate) fn properties(properties: &BlobProperties) -> Response {
    let common = properties.common.to_xml();
    // What only blobs have comes after what all services have.
    let start = common.strip_suffix(END).unwrap_or(&common);
    let empty = Writer::document().finish();
    let mut xml = Writer::document();
    if let Some(version) = &properties.default_version {
        xml.element("DefaultServiceVersion", version);
    }
    let retention = &properties.delete_retention;
    xml.open("DeleteRetentionPolicy");
    xml.element("Enabled", &retention.days.is_some().to_string());
    if let Some(days) = retention.days {
        xml.element("Days", &days.to_string());
        xml.element("AllowPermanentDelete", &retention.allow_permanent_delete.to_string());
    }
    xml.close("DeleteRetentionPolicy");
    let website = &properties.website;
    xml.open("StaticWebsite");
    xml.element("Enabled", &website.enabled.to_string());
    for (name, text) in [
        ("IndexDocument", &website.index_document),
        ("ErrorDocument404Path", &website.error_document),
        ("DefaultIndexDocumentPath", &website.default_index_path),
    ] {
        if let Some(text) = text {
            xml.element(name, text);
        }
    }
    xml.close("StaticWebsite");
    let own = xml.finish();
    document(200, format!("{start}{}{END}", own.strip_prefix(&empty).unwrap_or_default()))
}

pub(crate) fn properties_set() -> Response {
    Response::new(202)
}

/// There is one copy as far as clients can tell, so the replica is always up to date.
pub(crate) fn stats(now: Timestamp) -> Response {
    let mut xml = Writer::document();
    xml.open("StorageServiceStats");
    xml.open("GeoReplication");
    xml.element("Status", "live");
    xml.element("LastSyncTime", &now.rfc1123());
    xml.close("GeoReplication");
    xml.close("StorageServiceStats");
    document(200, xml.finish())
}

/// What kind of account it is: the one that has all that is here, with a replica that can be read.
pub(crate) fn account_info() -> Response {
    Response::new(200)
        .header("x-ms-sku-name", "Standard_RAGRS")
        .header("x-ms-account-kind", "StorageV2")
        .header("x-ms-is-hns-enabled", "false")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse_properties;

    #[test]
    fn what_only_blobs_have_is_read_and_written() {
        let body = "<StorageServiceProperties><DefaultServiceVersion>2020-10-02</DefaultServiceVersion>\
                    <DeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days></DeleteRetentionPolicy>\
                    <StaticWebsite><Enabled>true</Enabled><IndexDocument>index.html</IndexDocument></StaticWebsite>\
                    </StorageServiceProperties>";
        let patch = parse_properties(body.as_bytes()).unwrap();
        assert_eq!(patch.delete_retention.unwrap().days, Some(7));
        assert_eq!(patch.default_version.as_deref(), Some("2020-10-02"));
        let stored = BlobProperties {
            delete_retention: patch.delete_retention.unwrap(),
            website: patch.website.clone().unwrap(),
            default_version: patch.default_version.clone(),
            ..BlobProperties::default()
        };
        let written = properties(&stored);
        let again = parse_properties(&written.body).unwrap();
        assert_eq!(again.delete_retention, patch.delete_retention);
        assert_eq!(again.website, patch.website);
        assert_eq!(again.default_version, patch.default_version);
        for bad in
            ["<Enabled>true</Enabled>", "<Enabled>yes</Enabled>", "<Enabled>true</Enabled><Days>0</Days>"]
        {
            let body = format!(
                "<StorageServiceProperties><DeleteRetentionPolicy>{bad}</DeleteRetentionPolicy>\
                 </StorageServiceProperties>"
            );
            assert!(parse_properties(body.as_bytes()).is_err(), "{bad}");
        }
    }
}
