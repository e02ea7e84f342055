//! Who asks, and what a shared access signature lets them do.

use crate::ServiceError;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Somebody with a key of the account: everything is allowed.
    SharedKey,
    /// Somebody with a shared access signature.
    Sas(Sas),
    /// Somebody without credentials. Such requests reach a store only where it may be open to everybody: to read blobs,
    /// and to ask with `OPTIONS` what other origins may do.
    Anonymous,
}

/// A shared access signature that was verified, is within its time, and fits service, address and protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sas {
    pub(crate) scope: SasScope,
    pub(crate) permissions: String,
    pub(crate) keys: Option<TableKeyRange>,
}

/// What a signature is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SasScope {
    /// An account's resources of these types: letters of `s`, `c` and `o`.
    Account { resource_types: String },
    /// One table (its name in lower case), queue, container, or blob (`container/blob`).
    Service { resource: String },
}

/// What kind of resource an operation is on; an account SAS lists those it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceType {
    /// The service: properties, statistics, lists of tables, queues and containers.
    Service,
    /// A table, queue or container.
    Container,
    /// An entity, message or blob.
    Object,
}

/// Which permissions an operation needs, as the letters of `sp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All of these: an upsert needs `au`.
    All(&'static str),
    /// One of these: to create a queue needs `c` or `w`.
    Any(&'static str),
    /// No signature of this sort can allow it.
    Never,
}

/// What an operation needs of a shared access signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SasOperation {
    resource_type: ResourceType,
    account: Need,
    service: Need,
}

impl SasOperation {
    /// An operation that needs `account` of an account SAS, and `service` of a SAS for a single table, queue, container
    /// or blob.
    pub const fn new(resource_type: ResourceType, account: Need, service: Need) -> SasOperation {
        SasOperation { resource_type, account, service }
    }

    /// An operation on an entity, message or blob, that needs the same of either sort.
    pub const fn object(need: Need) -> SasOperation {
        SasOperation::new(ResourceType::Object, need, need)
    }

    /// An operation on a table, queue or container that only an account SAS can allow.
    pub const fn container(need: Need) -> SasOperation {
        SasOperation::new(ResourceType::Container, need, Need::Never)
    }

    /// An operation on the service, that only an account SAS can allow.
    pub const fn service(need: Need) -> SasOperation {
        SasOperation::new(ResourceType::Service, need, Need::Never)
    }
}

impl Identity {
    /// Whether this operation may go on; otherwise the error says what is missing.
    pub fn require(&self, operation: SasOperation) -> Result<(), ServiceError> {
        match self {
            Identity::SharedKey => Ok(()),
            Identity::Sas(sas) => sas.allows(operation),
            Identity::Anonymous => Err(no_credentials()),
        }
    }

    /// Whether this table may be touched. The path of the request was compared already: this is for tables named in
    /// the parts of a `$batch`.
    pub fn require_table(&self, table: &str) -> Result<(), ServiceError> {
        match self {
            Identity::Sas(Sas { scope: SasScope::Service { resource }, .. })
                if *resource != table.to_lowercase() =>
            {
                Err(other_resource())
            }
            _ => Ok(()),
        }
    }

    /// The range of keys that a table's signature is limited to, if it is.
    pub fn table_keys(&self) -> Option<&TableKeyRange> {
        match self {
            Identity::Sas(sas) => sas.keys.as_ref(),
            Identity::SharedKey | Identity::Anonymous => None,
        }
    }
}

impl Sas {
    /// Whether the signature allows an operation; otherwise the error says what it lacks.
    pub fn allows(&self, operation: SasOperation) -> Result<(), ServiceError> {
        let need = match &self.scope {
            SasScope::Account { resource_types } => {
                let letter = match operation.resource_type {
                    ResourceType::Service => 's',
                    ResourceType::Container => 'c',
                    ResourceType::Object => 'o',
                };
                if !resource_types.contains(letter) {
                    let message = format!(
                        "This request is not authorized to perform this operation using this resource type: the \
                         signature's srt '{resource_types}' does not have '{letter}'."
                    );
                    return Err(ServiceError::new(403, "AuthorizationResourceTypeMismatch", message));
                }
                operation.account
            }
            SasScope::Service { .. } => operation.service,
        };
        let lacking = match need {
            Need::All(letters) if letters.chars().all(|letter| self.permissions.contains(letter)) => {
                return Ok(());
            }
            Need::Any(letters) if letters.chars().any(|letter| self.permissions.contains(letter)) => {
                return Ok(());
            }
            Need::All(letters) => format!("its sp '{}' must have all of '{letters}'", self.permissions),
            Need::Any(letters) => format!("its sp '{}' must have one of '{letters}'", self.permissions),
            Need::Never if operation.account == Need::Never => {
                "no shared access signature can allow it; use an account key".to_owned()
            }
            Need::Never => {
                "no signature of this kind can allow it; use an account key or an account SAS".to_owned()
            }
        };
        let message = format!(
            "This request is not authorized to perform this operation using this permission: {lacking}."
        );
        Err(ServiceError::new(403, "AuthorizationPermissionMismatch", message))
    }

    /// The letters of its permissions.
    pub fn permissions(&self) -> &str {
        &self.permissions
    }
}

/// A request without credentials for what is not open to everybody.
pub(super) fn no_credentials() -> ServiceError {
    let message = "Server failed to authenticate the request: it has no credentials. Sign it with an account key, \
                   or use a shared access signature.";
    ServiceError::new(401, "NoAuthenticationInformation", message).header("WWW-Authenticate", "SharedKey")
}

/// A signature that is for another table than the one addressed.
pub(super) fn other_resource() -> ServiceError {
    ServiceError::authentication_failed(
        "The shared access signature is for another resource than the one addressed.",
    )
}

/// A range of entities, both ends included, from (PartitionKey, RowKey) to (PartitionKey, RowKey).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableKeyRange {
    /// The first partition key, if there is a first one.
    pub start_partition: Option<String>,
    /// The first row key in the first partition.
    pub start_row: Option<String>,
    /// The last partition key, if there is a last one.
    pub end_partition: Option<String>,
    /// The last row key in the last partition.
    pub end_row: Option<String>,
}

impl TableKeyRange {
    /// Whether the range has this entity.
    pub fn contains(&self, partition: &str, row: &str) -> bool {
        let after_start = match &self.start_partition {
            None => true,
            Some(start) if partition == start => self.start_row.as_deref().is_none_or(|start| row >= start),
            Some(start) => partition > start.as_str(),
        };
        let before_end = match &self.end_partition {
            None => true,
            Some(end) if partition == end => self.end_row.as_deref().is_none_or(|end| row <= end),
            Some(end) => partition < end.as_str(),
        };
        after_start && before_end
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, Need, ResourceType, Sas, SasOperation, SasScope, TableKeyRange};

    const UPSERT: SasOperation = SasOperation::object(Need::All("au"));
    const CREATE: SasOperation = SasOperation::container(Need::Any("cw"));
    const LIST: SasOperation = SasOperation::new(ResourceType::Service, Need::All("l"), Need::Never);

    fn code(identity: &Identity, operation: SasOperation) -> Option<&'static str> {
        identity.require(operation).err().map(|error| error.code())
    }

    fn account(resource_types: &str, permissions: &str) -> Identity {
        let scope = SasScope::Account { resource_types: resource_types.to_owned() };
        Identity::Sas(Sas { scope, permissions: permissions.to_owned(), keys: None })
    }

    #[test]
    fn each_lack_has_its_own_code() {
        assert_eq!(code(&Identity::SharedKey, CREATE), None);
        assert_eq!(code(&Identity::Anonymous, UPSERT), Some("NoAuthenticationInformation"));
        assert_eq!(code(&account("o", "rau"), UPSERT), None);
        assert_eq!(code(&account("o", "ra"), UPSERT), Some("AuthorizationPermissionMismatch"));
        assert_eq!(code(&account("sc", "rau"), UPSERT), Some("AuthorizationResourceTypeMismatch"));
        assert_eq!(code(&account("c", "w"), CREATE), None);
        assert_eq!(code(&account("sco", "w"), LIST), Some("AuthorizationPermissionMismatch"));
        // Nobody is sent from one signature to another that does not help either.
        let policies = SasOperation::container(Need::Never);
        for identity in [account("sco", "rwdl"), table("orders")] {
            let message = identity.require(policies).unwrap_err().message().to_owned();
            assert!(
                message.contains("no shared access signature can allow it; use an account key."),
                "{message}"
            );
        }
    }

    fn table(name: &str) -> Identity {
        let scope = SasScope::Service { resource: name.to_owned() };
        Identity::Sas(Sas { scope, permissions: "raudlcw".to_owned(), keys: None })
    }

    #[test]
    fn a_signature_for_one_table_is_for_no_other_and_no_service() {
        let sas = table("orders");
        assert_eq!(code(&sas, UPSERT), None);
        assert_eq!(code(&sas, CREATE), Some("AuthorizationPermissionMismatch"));
        assert_eq!(code(&sas, LIST), Some("AuthorizationPermissionMismatch"));
        assert_eq!(sas.require_table("Orders"), Ok(()));
        assert_eq!(sas.require_table("orders2").unwrap_err().code(), "AuthenticationFailed");
    }

    #[test]
    fn ranges_of_keys_include_both_ends() {
        let text = |text: &str| Some(text.to_owned());
        let range = TableKeyRange {
            start_partition: text("b"),
            start_row: text("5"),
            end_partition: text("d"),
            end_row: None,
        };
        let inside = [("b", "5"), ("b", "6"), ("c", ""), ("d", ""), ("d", "zzz")];
        let outside = [("a", "9"), ("b", "4"), ("b", ""), ("d0", ""), ("e", "")];
        assert!(inside.iter().all(|(partition, row)| range.contains(partition, row)));
        assert!(!outside.iter().any(|(partition, row)| range.contains(partition, row)));
    }
}
