//! The properties of an account's blob service, as XML.

use polyshard_azure_storage::xml::{self, Element};
use polyshard_azure_storage::{PropertiesPatch, ServiceError};

use crate::reply::errors::missing_node;
use crate::store::{BlobPropertiesPatch, DeleteRetention, Website};

/// Days that deleted blobs may be kept: the service's limit.
const RETENTION_DAYS_MAX: u32 = 365;

/// Reads the properties that are to be set.
pub(crate) fn parse_properties(body: &[u8]) -> Result<BlobPropertiesPatch, ServiceError> {
    let common = PropertiesPatch::parse(body)?;
    let root = xml::parse(body)?;
    Ok(BlobPropertiesPatch {
        common,
        delete_retention: root.child("DeleteRetentionPolicy").map(read_retention).transpose()?,
        default_version: root
            .child_text("DefaultServiceVersion")
            .map(str::trim)
            .filter(|version| !version.is_empty())
            .map(str::to_owned),
        website: root.child("StaticWebsite").map(read_website).transpose()?,
    })
}

fn read_retention(element: &Element) -> Result<DeleteRetention, ServiceError> {
    let allow_permanent_delete = match element.child("AllowPermanentDelete") {
        None => false,
        Some(_) => truth(element, "AllowPermanentDelete")?,
    };
    if !truth(element, "Enabled")? {
        return Ok(DeleteRetention { days: None, allow_permanent_delete });
    }
    let days = element.child_text("Days").ok_or_else(|| missing_node("Days"))?;
    match days.trim().parse() {
        Ok(number) if (1..=RETENTION_DAYS_MAX).contains(&number) => {
            Ok(DeleteRetention { days: Some(number), allow_permanent_delete })
        }
        _ => Err(invalid_node("Days", days)),
    }
}

fn read_website(element: &Element) -> Result<Website, ServiceError> {
    let enabled = truth(element, "Enabled")?;
    let own = |name: &str| {
        let text = element.child_text(name).map(str::trim).filter(|text| !text.is_empty());
        text.filter(|_| enabled).map(str::to_owned)
    };
    Ok(Website {
        enabled,
        index_document: own("IndexDocument"),
        error_document: own("ErrorDocument404Path"),
        default_index_path: own("DefaultIndexDocumentPath"),
    })
}

fn truth(element: &Element, name: &'static str) -> Result<bool, ServiceError> {
    match element.child_text(name).map(str::trim) {
        None => Err(missing_node(name)),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(invalid_node(name, other)),
    }
}

fn invalid_node(name: &'static str, value: &str) -> ServiceError {
    let message = "The value provided for one of the XML nodes is not in the correct format.";
    let shown: String = value.chars().take(64).collect();
    ServiceError::new(400, "InvalidXmlNodeValue", message)
        .detail("XmlNodeName", name)
        .detail("XmlNodeValue", shown)
}
