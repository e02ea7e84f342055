//! Shared access signatures: read from the query, verified, and held against time, address, protocol and service.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::identity::{Level, other_resource};
use super::{Check, ResponseOverrides, Sas, SasScope, TableKeyRange, sas_layout, signed_blob};
use crate::{ApiVersion, Policies, Request, Scheme, ServiceError, StoreKind, StoredPolicy, Timestamp};

/// Checks the signature in a request's query, in the service's order: the signature itself first, so that nobody
/// learns about policies or resources from a forged one.
pub(super) async fn verify<P: Policies + ?Sized>(
    check: &Check<'_>,
    request: &Request,
    policies: &P,
) -> Result<Sas, ServiceError> {
    let field = |name: &str| request.query(name).unwrap_or_default();
    let Some(sv) = ApiVersion::parse(field("sv")) else {
        return Err(refused("its sv must be a version of the service, as YYYY-MM-DD"));
    };
    if request.query("skoid").is_some() {
        return Err(refused("user delegation keys are not known here; sign with an account key"));
    }
    // The type of the account's kind comes from these two; a service SAS has neither.
    let of_account = request.query("ss").is_some() || request.query("srt").is_some();
    let (resource, level) =
        if of_account { (String::new(), Level::Container) } else { signed_resource(check, request, sv)? };
    let text = if of_account {
        sas_layout::account(&check.located.account, sv, field)
    } else {
        sas_layout::service(check.kind, &check.located.account, &resource, sv, field)
    };
    check_signature(check, field("sig"), &text)?;
    if check.kind == StoreKind::Table && !of_account {
        check_table(check, &resource)?;
    }

    let policy = match field("si") {
        "" => None,
        id => {
            let container = resource.split('/').next().unwrap_or_default();
            let stored = policies.policies(&check.located.account, container).await?;
            let found = stored.into_iter().find(|policy| policy.id == id);
            Some(found.ok_or_else(|| refused("the stored access policy that its si names does not exist"))?)
        }
    };
    let grant = Grant::of(field, policy.as_ref())?;
    grant.check_time(check.now)?;
    check_address(field("sip"), request.peer.ip().to_canonical())?;
    check_protocol(field("spr"), check.scheme)?;
    let encryption_scope = Some(field("ses")).filter(|scope| !scope.is_empty()).map(str::to_owned);
    if !of_account {
        let keys = if check.kind == StoreKind::Table { key_range(request)? } else { None };
        let overrides = match check.kind {
            StoreKind::Blob if sv >= sas_layout::BLOB_HEADERS => overrides(request)?,
            _ => None,
        };
        let scope = SasScope::Service { resource, level };
        return Ok(Sas { scope, permissions: grant.permissions, keys, overrides, encryption_scope });
    }
    if !field("ss").contains(check.kind.letter()) {
        let message = "This request is not authorized to perform this operation using this service.";
        let reason = format!("the signature's ss '{}' does not have '{}'", field("ss"), check.kind.letter());
        return Err(ServiceError::new(403, "AuthorizationServiceMismatch", message).because(reason));
    }
    let scope = SasScope::Account { resource_types: field("srt").to_owned() };
    Ok(Sas { scope, permissions: grant.permissions, keys: None, overrides: None, encryption_scope })
}

/// The name that a service SAS signs. A queue's and a blob's come from the path, so that another path gives another
/// signature; a table's comes from the query and is compared with the path afterwards.
fn signed_resource(
    check: &Check<'_>,
    request: &Request,
    sv: ApiVersion,
) -> Result<(String, Level), ServiceError> {
    let (name, level) = match check.kind {
        StoreKind::Table => (request.query("tn").unwrap_or_default().to_lowercase(), Level::Container),
        StoreKind::Queue => {
            (check.located.resource.segments()?.into_iter().next().unwrap_or_default(), Level::Container)
        }
        StoreKind::Blob => signed_blob::resource(&check.located.resource, request, sv)?,
    };
    if name.is_empty() {
        return Err(refused("it names neither a resource nor the services and resource types of an account"));
    }
    Ok((name, level))
}

/// Whether the path is that of the table signed for. A `$batch` names its tables inside; there the store asks.
fn check_table(check: &Check<'_>, table: &str) -> Result<(), ServiceError> {
    let path = check.located.resource.decoded()?;
    let addressed = path.split(['(', '/']).next().unwrap_or_default();
    if addressed == "$batch" || addressed.to_lowercase() == table { Ok(()) } else { Err(other_resource()) }
}

fn check_signature(check: &Check<'_>, signature: &str, text: &str) -> Result<(), ServiceError> {
    // A plus sign that was not percent-encoded has become a space; base64 has none of its own.
    let signature = signature.replace(' ', "+");
    let signed = STANDARD.decode(&signature).unwrap_or_default();
    if check.keys.iter().any(|key| key.verifies(text, &signed)) {
        return Ok(());
    }
    Err(ServiceError::authentication_failed(format!(
        "Signature did not match. String to sign used was '{text}'. Sign it with a key of account '{}'.",
        check.located.account
    )))
}

/// What a signature and its policy give together.
struct Grant {
    permissions: String,
    start: Option<Timestamp>,
    expiry: Timestamp,
}

impl Grant {
    fn of<'a>(field: impl Fn(&str) -> &'a str, policy: Option<&StoredPolicy>) -> Result<Grant, ServiceError> {
        let time = |name: &str| match field(name) {
            "" => Ok(None),
            text => match Timestamp::parse_iso(text) {
                Some(time) => Ok(Some(time)),
                None => Err(refused(&format!("its {name} must be a time in ISO 8601"))),
            },
        };
        let permissions = Some(field("sp")).filter(|sp| !sp.is_empty()).map(str::to_owned);
        let stored = |part: fn(&StoredPolicy) -> Option<Timestamp>| policy.and_then(part);
        let start = either(time("st")?, stored(|policy| policy.start), "start")?;
        let expiry = either(time("se")?, stored(|policy| policy.expiry), "expiry")?;
        let stored = policy.and_then(|policy| policy.permission.clone());
        let permissions = either(permissions, stored, "permission")?;
        Ok(Grant {
            permissions: permissions
                .ok_or_else(|| refused("neither it nor a stored policy has permissions (sp)"))?,
            start,
            expiry: expiry.ok_or_else(|| refused("neither it nor a stored policy has an expiry (se)"))?,
        })
    }

    fn check_time(&self, now: Timestamp) -> Result<(), ServiceError> {
        if self.start.is_none_or(|start| start <= now) && now < self.expiry {
            return Ok(());
        }
        let start = self.start.map(|start| format!("Start [{}] - ", start.rfc1123())).unwrap_or_default();
        Err(ServiceError::authentication_failed(format!(
            "Signature not valid in the specified time frame: {start}Expiry [{}] - Current [{}]. Make a new one.",
            self.expiry.rfc1123(),
            now.rfc1123()
        )))
    }
}

/// The value from the signature or from the stored policy; the service allows no field in both.
fn either<T>(signed: Option<T>, stored: Option<T>, what: &str) -> Result<Option<T>, ServiceError> {
    match (signed, stored) {
        (Some(_), Some(_)) => {
            Err(refused(&format!("its {what} is also in its stored policy; give it only once")))
        }
        (signed, stored) => Ok(signed.or(stored)),
    }
}

/// `sip`: an IPv4 address, or two with a hyphen between.
fn check_address(sip: &str, peer: IpAddr) -> Result<(), ServiceError> {
    if sip.is_empty() {
        return Ok(());
    }
    let (first, last) = sip.split_once('-').unwrap_or((sip, sip));
    let (Ok(first), Ok(last)) = (first.trim().parse::<Ipv4Addr>(), last.trim().parse::<Ipv4Addr>()) else {
        return Err(refused("its sip must be an IPv4 address or a range of them"));
    };
    match peer {
        IpAddr::V4(peer) if (first..=last).contains(&peer) => Ok(()),
        _ => {
            let message = "This request is not authorized to perform this operation using this source IP.";
            Err(ServiceError::new(403, "AuthorizationSourceIPMismatch", message)
                .detail("SourceIP", peer.to_string()))
        }
    }
}

/// `spr`: `https`, or both.
fn check_protocol(spr: &str, scheme: Scheme) -> Result<(), ServiceError> {
    match spr {
        "" | "https,http" | "http,https" => Ok(()),
        "https" if scheme == Scheme::Https => Ok(()),
        "https" => {
            let message = "This request is not authorized to perform this operation using this protocol.";
            Err(ServiceError::new(403, "AuthorizationProtocolMismatch", message)
                .because("the signature is for https only"))
        }
        _ => Err(refused("its spr must be https or https,http")),
    }
}

/// The keys that a signature is limited to. Rows without a partition mean nothing, and not that there is no limit.
fn key_range(request: &Request) -> Result<Option<TableKeyRange>, ServiceError> {
    let given = |name: &str| request.query(name).filter(|key| !key.is_empty()).map(str::to_owned);
    let range = TableKeyRange {
        start_partition: given("spk"),
        start_row: given("srk"),
        end_partition: given("epk"),
        end_row: given("erk"),
    };
    let lacks = |row: &Option<String>, partition: &Option<String>| row.is_some() && partition.is_none();
    if lacks(&range.start_row, &range.start_partition) {
        return Err(refused("it has an srk without an spk"));
    }
    if lacks(&range.end_row, &range.end_partition) {
        return Err(refused("it has an erk without an epk"));
    }
    Ok((range.start_partition.is_some() || range.end_partition.is_some()).then_some(range))
}

/// The headers that a blob is answered with in place of its own, if there are any.
fn overrides(request: &Request) -> Result<Option<Box<ResponseOverrides>>, ServiceError> {
    let given = |name: &str| match request.query(name).filter(|value| !value.is_empty()) {
        Some(value) if value.chars().any(char::is_control) => {
            Err(refused(&format!("its {name} cannot be the value of a header")))
        }
        value => Ok(value.map(str::to_owned)),
    };
    let overrides = ResponseOverrides {
        cache_control: given("rscc")?,
        content_disposition: given("rscd")?,
        content_encoding: given("rsce")?,
        content_language: given("rscl")?,
        content_type: given("rsct")?,
    };
    Ok((overrides != ResponseOverrides::default()).then(|| Box::new(overrides)))
}

pub(super) fn refused(reason: &str) -> ServiceError {
    ServiceError::authentication_failed(format!("The shared access signature is not valid: {reason}."))
}
