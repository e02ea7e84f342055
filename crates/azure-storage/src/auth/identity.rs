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
    pub(crate) overrides: Option<Box<ResponseOverrides>>,
    pub(crate) encryption_scope: Option<String>,
}

/// Headers that a blob is answered with in place of its own, as the signature says (`rscc`, `rscd`, `rsce`, `rscl`,
/// `rsct`). They are part of what is signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseOverrides {
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// `Content-Disposition`.
    pub content_disposition: Option<String>,
    /// `Content-Encoding`.
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    pub content_language: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
}

/// What a signature is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SasScope {
    /// An account's resources of these types: letters of `s`, `c` and `o`.
    Account { resource_types: String },
    /// One table (its name in lower case), queue, container, blob (`container/blob`), or all blobs of a directory
    /// (`container/directory`).
    Service { resource: String, level: Level },
}

/// What sort of resource a signature for one resource is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A table, queue or container, with all that is in it.
    Container,
    /// Blobs: nothing of their container.
    Object,
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

    /// The same for a resource that may be open to everybody: a request without credentials may go on if it is.
    pub fn require_unless_public(
        &self,
        operation: SasOperation,
        is_public: bool,
    ) -> Result<(), ServiceError> {
        if *self == Identity::Anonymous && is_public { Ok(()) } else { self.require(operation) }
    }

    /// Headers that the answer must have in place of the blob's own; none unless a signature says so.
    pub fn response_overrides(&self) -> Option<&ResponseOverrides> {
        match self {
            Identity::Sas(sas) => sas.overrides.as_deref(),
            Identity::SharedKey | Identity::Anonymous => None,
        }
    }

    /// Whether this table may be touched. The path of the request was compared already: this is for tables named in
    /// the parts of a `$batch`.
    pub fn require_table(&self, table: &str) -> Result<(), ServiceError> {
        match self {
            Identity::Sas(Sas { scope: SasScope::Service { resource, .. }, .. })
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
                    let message =
                        "This request is not authorized to perform this operation using this resource type.";
                    let reason = format!("the signature's srt '{resource_types}' does not have '{letter}'");
                    return Err(
                        ServiceError::new(403, "AuthorizationResourceTypeMismatch", message).because(reason)
                    );
                }
                operation.account
            }
            // Whatever the store asks for: a signature for a blob says nothing of the container it is in.
            SasScope::Service { level: Level::Object, .. }
                if operation.resource_type != ResourceType::Object =>
            {
                Need::Never
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
        let message = "This request is not authorized to perform this operation using this permission.";
        Err(ServiceError::new(403, "AuthorizationPermissionMismatch", message).because(lacking))
    }

    /// The encryption scope (`ses`) that is to be used for whatever is written with it. A store without encryption
    /// scopes has to reject such a signature.
    pub fn encryption_scope(&self) -> Option<&str> {
        self.encryption_scope.as_deref()
    }

    /// The letters of its permissions.
    pub fn permissions(&self) -> &str {
        &self.permissions
    }
}

/// A request without credentials for what is not open to everybody.
pub(super) fn no_credentials() -> ServiceError {
    let message = "Server failed to authenticate the request. Please refer to the information in the www-authenticate \
                   header.";
    ServiceError::new(401, "NoAuthenticationInformation", message)
        .because("it has no credentials; sign it with an account key, or use a shared access signature")
        .header("WWW-Authenticate", "SharedKey")
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
    use super::{Identity, Level, Need, ResourceType, Sas, SasOperation, SasScope, TableKeyRange};

    const UPSERT: SasOperation = SasOperation::object(Need::All("au"));
    const CREATE: SasOperation = SasOperation::container(Need::Any("cw"));
    const LIST: SasOperation = SasOperation::new(ResourceType::Service, Need::All("l"), Need::Never);

    fn code(identity: &Identity, operation: SasOperation) -> Option<&'static str> {
        identity.require(operation).err().map(|error| error.code())
    }

    fn account(resource_types: &str, permissions: &str) -> Identity {
        let scope = SasScope::Account { resource_types: resource_types.to_owned() };
        sas(scope, permissions)
    }

    fn sas(scope: SasScope, permissions: &str) -> Identity {
        let permissions = permissions.to_owned();
        Identity::Sas(Sas { scope, permissions, keys: None, overrides: None, encryption_scope: None })
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
            let error = identity.require(policies).unwrap_err();
            assert_eq!(error.reason(), Some("no shared access signature can allow it; use an account key"));
        }
    }

    fn table(name: &str) -> Identity {
        sas(SasScope::Service { resource: name.to_owned(), level: Level::Container }, "raudlcw")
    }

    #[test]
    fn a_signature_for_a_blob_is_for_nothing_of_its_container() {
        let list = SasOperation::new(ResourceType::Container, Need::All("l"), Need::All("l"));
        let read = SasOperation::object(Need::All("r"));
        let scope = |level| SasScope::Service { resource: "c/b".to_owned(), level };
        let (container, blob) = (sas(scope(Level::Container), "rl"), sas(scope(Level::Object), "rl"));
        assert_eq!((code(&container, list), code(&container, read)), (None, None));
        assert_eq!(code(&blob, list), Some("AuthorizationPermissionMismatch"));
        assert_eq!(code(&blob, read), None);
    }

    #[test]
    fn what_is_public_is_open_without_credentials_and_no_signature_is_widened() {
        let read = SasOperation::object(Need::All("r"));
        assert_eq!(Identity::Anonymous.require_unless_public(read, true), Ok(()));
        let refused = Identity::Anonymous.require_unless_public(read, false).unwrap_err();
        assert_eq!(refused.code(), "NoAuthenticationInformation");
        assert!(account("o", "w").require_unless_public(read, true).is_err());
        assert_eq!(Identity::SharedKey.require_unless_public(read, false), Ok(()));
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
