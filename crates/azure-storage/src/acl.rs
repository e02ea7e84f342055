//! Stored access policies: what a store keeps for a table, queue or container, and their XML.

use crate::xml::{self, Writer};
use crate::{AccountName, Answer, ServiceError, Timestamp};

/// Policies of one resource: the service's own limit.
pub const POLICIES_MAX: usize = 5;

/// Characters of a policy's id: the service's own limit.
pub const POLICY_ID_CHARS_MAX: usize = 64;

/// The part of a store that knows the stored access policies, which a shared access signature may name by `si`.
pub trait Policies: Send + Sync + 'static {
    /// The policies of a table, queue or container. A resource that does not exist has none.
    fn policies<'a>(&'a self, account: &'a AccountName, resource: &'a str) -> Answer<'a, Vec<StoredPolicy>>;
}

/// A stored access policy: the parts of a signature that are kept at the resource, where they can be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// What signatures name it by.
    pub id: String,
    /// When it begins to hold, unless the signature says.
    pub start: Option<Timestamp>,
    /// When it ends, unless the signature says.
    pub expiry: Option<Timestamp>,
    /// What it allows, unless the signature says.
    pub permission: Option<String>,
}

/// Reads the body of a `comp=acl` request.
pub fn parse_policies(body: &[u8]) -> Result<Vec<StoredPolicy>, ServiceError> {
    // All policies are removed by sending none, which some clients do with no body at all.
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let root = xml::parse(body)?;
    if root.name != "SignedIdentifiers" {
        return Err(ServiceError::invalid_xml("the root element must be SignedIdentifiers"));
    }
    if root.children.len() > POLICIES_MAX {
        return Err(ServiceError::invalid_xml("a resource has at most five stored access policies"));
    }
    let mut policies: Vec<StoredPolicy> = Vec::new();
    for element in &root.children {
        let policy = policy(element)?;
        if policies.iter().any(|other| other.id == policy.id) {
            return Err(ServiceError::invalid_xml("two stored access policies have the same Id"));
        }
        policies.push(policy);
    }
    Ok(policies)
}

/// Writes the answer to a `comp=acl` request.
pub fn write_policies(policies: &[StoredPolicy]) -> String {
    let mut xml = Writer::document();
    xml.open("SignedIdentifiers");
    for policy in policies {
        xml.open("SignedIdentifier");
        xml.element("Id", &policy.id);
        xml.open("AccessPolicy");
        for (name, time) in [("Start", policy.start), ("Expiry", policy.expiry)] {
            if let Some(time) = time {
                xml.element(name, &time.iso());
            }
        }
        if let Some(permission) = &policy.permission {
            xml.element("Permission", permission);
        }
        xml.close("AccessPolicy");
        xml.close("SignedIdentifier");
    }
    xml.close("SignedIdentifiers");
    xml.finish()
}

fn policy(element: &xml::Element) -> Result<StoredPolicy, ServiceError> {
    if element.name != "SignedIdentifier" {
        return Err(ServiceError::invalid_xml("SignedIdentifiers holds only SignedIdentifier elements"));
    }
    let id = element.child_text("Id").unwrap_or_default();
    if id.is_empty() || id.chars().count() > POLICY_ID_CHARS_MAX {
        return Err(ServiceError::invalid_xml("the Id of a stored access policy has 1 to 64 characters"));
    }
    let access = element.child("AccessPolicy");
    let given = |name| access.and_then(|access| access.child_text(name)).filter(|text| !text.is_empty());
    let time = |name| match given(name) {
        None => Ok(None),
        Some(text) => match Timestamp::parse_iso(text) {
            Some(time) => Ok(Some(time)),
            None => Err(ServiceError::new(
                400,
                "InvalidXmlNodeValue",
                format!(
                    "The value for one of the XML nodes is not in the correct format: {name} must be ISO 8601."
                ),
            )),
        },
    };
    Ok(StoredPolicy {
        id: id.to_owned(),
        start: time("Start")?,
        expiry: time("Expiry")?,
        permission: given("Permission").map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::{parse_policies, write_policies};

    const ONE: &str = "<SignedIdentifier><Id>MTIz&amp;</Id><AccessPolicy><Start>2026-11-15T07:25:16.0000000Z</Start>\
                       <Expiry>2026-11-16T00:00:00.0000000Z</Expiry><Permission>raup</Permission></AccessPolicy>\
                       </SignedIdentifier>";

    #[test]
    fn policies_are_written_as_they_were_read() {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers>{ONE}<SignedIdentifier><Id>empty</Id>\
             <AccessPolicy></AccessPolicy></SignedIdentifier></SignedIdentifiers>"
        );
        let policies = parse_policies(xml.as_bytes()).unwrap();
        assert_eq!(policies[0].id, "MTIz&");
        assert_eq!(policies[1].expiry, None);
        assert_eq!(write_policies(&policies), xml);
        assert_eq!(parse_policies(b"").unwrap(), []);
    }

    #[test]
    fn too_many_or_strange_policies_are_refused() {
        let six = (0..6)
            .map(|id| format!("<SignedIdentifier><Id>{id}</Id></SignedIdentifier>"))
            .collect::<String>();
        for inner in [
            six,
            ONE.repeat(2),
            "<Other/>".to_owned(),
            "<SignedIdentifier/>".to_owned(),
            format!("<SignedIdentifier><Id>{}</Id></SignedIdentifier>", "x".repeat(65)),
            ONE.replace("2026-11-16", "soon"),
        ] {
            let xml = format!("<SignedIdentifiers>{inner}</SignedIdentifiers>");
            assert_eq!(parse_policies(xml.as_bytes()).unwrap_err().status(), 400, "{inner}");
        }
        assert!(parse_policies(b"<Other/>").is_err());
    }
}
