//! One golden table: every refusal of router and catalog, and what the clients of each protocol family get for it.
//!
//! `UPDATE_GOLDENFILES=1 cargo test -p polyshard-server --test errors` writes what is really answered; read it then.
//! The names are matched without a catch-all, so that a new variant does not compile until it has its lines here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::CatalogError;
use polyshard_engine::{self as engine, ConstraintKind, Expect};
use polyshard_map::{ChangeError, KeyError, LocateError, MapName, ShardId};
use polyshard_router::RouterError;
use polyshard_shard::{FenceEpoch, OpId, ShardError};
use polyshard_store::{Error, ErrorKind, OverQuota};
use uuid::Uuid;

fn shard() -> ShardId {
    ShardId::new("s1").unwrap()
}

fn map() -> MapName {
    MapName::new("tenants").unwrap()
}

fn op() -> OpId {
    OpId::new(Uuid::from_u128(7))
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn engine_errors() -> Vec<engine::Error> {
    let message = || text("words of a database");
    let all = vec![
        engine::Error::Expectation { statement: 0, expected: Expect::Rows(1), got: 0 },
        engine::Error::Constraint {
            kind: ConstraintKind::Unique,
            constraint: text("pk"),
            message: message(),
        },
        engine::Error::Conflict { message: message() },
        engine::Error::Unavailable { message: message() },
        engine::Error::OutcomeUnknown { message: message() },
        engine::Error::Full { message: message() },
        engine::Error::ReadOnly { message: message() },
        engine::Error::InUse { path: "/data/s1.db".into(), pid: Some(7) },
        engine::Error::Invalid { message: message(), sqlstate: None },
        engine::Error::SessionRefused(Arc::new(ShardError::NotAShard)),
        engine::Error::Busy { message: message() },
        engine::Error::Timeout { message: message() },
        engine::Error::Closed,
    ];
    assert_eq!(all.len(), 13, "one for each of engine_name");
    all
}

fn engine_name(error: &engine::Error) -> &'static str {
    match error {
        engine::Error::Expectation { .. } => "Expectation",
        engine::Error::Constraint { .. } => "Constraint",
        engine::Error::Conflict { .. } => "Conflict",
        engine::Error::Unavailable { .. } => "Unavailable",
        engine::Error::OutcomeUnknown { .. } => "OutcomeUnknown",
        engine::Error::Full { .. } => "Full",
        engine::Error::ReadOnly { .. } => "ReadOnly",
        engine::Error::InUse { .. } => "InUse",
        engine::Error::Invalid { .. } => "Invalid",
        engine::Error::SessionRefused(_) => "SessionRefused",
        engine::Error::Busy { .. } => "Busy",
        engine::Error::Timeout { .. } => "Timeout",
        engine::Error::Closed => "Closed",
    }
}

fn shard_errors() -> Vec<ShardError> {
    let dataset = || text("queue:acct/jobs (3)");
    vec![
        ShardError::Engine(engine::Error::Unavailable { message: text("words of a database") }),
        ShardError::Engine(engine::Error::OutcomeUnknown { message: text("words of a database") }),
        ShardError::Superseded(op()),
        ShardError::PastReturn(op()),
        ShardError::FenceBroken(op()),
        ShardError::LocalMapDiffers { map: map(), detail: text("a range") },
        ShardError::HoldsData { dataset: dataset() },
        ShardError::TailLeft(op()),
        ShardError::CannotMove { dataset: dataset(), why: text("it has no key") },
        ShardError::Uncomputable { map: map(), why: text("a collation") },
        ShardError::WrongDatabase { wanted: text("s1"), found: text("s2") },
        ShardError::NotAShard,
        ShardError::Lost { shard: shard(), why: text("no file") },
        ShardError::WasAShard { shard: shard() },
        ShardError::WentBack { shard: shard() },
        ShardError::FormatTooNew { found: 9, known: 1 },
        ShardError::IncarnationChanged { shard: shard() },
        ShardError::OldMap { shard: shard(), upto: FenceEpoch::ZERO },
        ShardError::Damaged { what: "fence", detail: text("no number") },
    ]
}

fn shard_name(error: &ShardError) -> String {
    text(match error {
        ShardError::Engine(error) => return format!("Engine {}", engine_name(error)),
        ShardError::Superseded(_) => "Superseded",
        ShardError::PastReturn(_) => "PastReturn",
        ShardError::FenceBroken(_) => "FenceBroken",
        ShardError::LocalMapDiffers { .. } => "LocalMapDiffers",
        ShardError::HoldsData { .. } => "HoldsData",
        ShardError::TailLeft(_) => "TailLeft",
        ShardError::CannotMove { .. } => "CannotMove",
        ShardError::Uncomputable { .. } => "Uncomputable",
        ShardError::WrongDatabase { .. } => "WrongDatabase",
        ShardError::NotAShard => "NotAShard",
        ShardError::Lost { .. } => "Lost",
        ShardError::WasAShard { .. } => "WasAShard",
        ShardError::WentBack { .. } => "WentBack",
        ShardError::FormatTooNew { .. } => "FormatTooNew",
        ShardError::IncarnationChanged { .. } => "IncarnationChanged",
        ShardError::OldMap { .. } => "OldMap",
        ShardError::Damaged { .. } => "Damaged",
    })
}

fn catalog_errors() -> Vec<CatalogError> {
    let words = || text("words");
    let mut all: Vec<_> = engine_errors().into_iter().map(CatalogError::Engine).collect();
    all.extend([
        CatalogError::Shard { shard: shard(), error: ShardError::NotAShard },
        CatalogError::Change(ChangeError::Gap { gap: text("key 7") }),
        CatalogError::ChangedMeanwhile { what: text("map tenants"), current: 2 },
        CatalogError::Busy { op: op(), kind: text("move") },
        CatalogError::NoSuchMap(map()),
        CatalogError::NoSuchShard(shard()),
        CatalogError::NoSuchOperation(op()),
        CatalogError::NoSuchDataset(text("queue acct/jobs")),
        CatalogError::Exists(text("queue acct/jobs")),
        CatalogError::HoldsData { what: text("map tenants"), remedy: text("move the rows") },
        CatalogError::RolledBack(words()),
        CatalogError::Unfinished { op: op(), why: words() },
        CatalogError::Superseded(op()),
        CatalogError::Unsettled(words()),
        CatalogError::Invalid(words()),
        CatalogError::TooMany(words()),
        CatalogError::NoRoomForMap { map: map(), why: text("no shard is online") },
        CatalogError::FormatTooNew { found: 9, known: 1 },
        CatalogError::Damaged { what: "dataset", detail: words() },
    ]);
    all
}

fn catalog_name(error: &CatalogError) -> String {
    text(match error {
        CatalogError::Engine(error) => return format!("Engine {}", engine_name(error)),
        CatalogError::Shard { error, .. } => return format!("Shard {}", shard_name(error)),
        CatalogError::Change(_) => "Change",
        CatalogError::ChangedMeanwhile { .. } => "ChangedMeanwhile",
        CatalogError::Busy { .. } => "Busy",
        CatalogError::NoSuchMap(_) => "NoSuchMap",
        CatalogError::NoSuchShard(_) => "NoSuchShard",
        CatalogError::NoSuchOperation(_) => "NoSuchOperation",
        CatalogError::NoSuchDataset(_) => "NoSuchDataset",
        CatalogError::Exists(_) => "Exists",
        CatalogError::HoldsData { .. } => "HoldsData",
        CatalogError::RolledBack(_) => "RolledBack",
        CatalogError::Unfinished { .. } => "Unfinished",
        CatalogError::Superseded(_) => "Superseded",
        CatalogError::Unsettled(_) => "Unsettled",
        CatalogError::Invalid(_) => "Invalid",
        CatalogError::TooMany(_) => "TooMany",
        CatalogError::NoRoomForMap { .. } => "NoRoomForMap",
        CatalogError::FormatTooNew { .. } => "FormatTooNew",
        CatalogError::Damaged { .. } => "Damaged",
    })
}

fn router_errors() -> Vec<RouterError> {
    let key = KeyError::Invalid { key_type: text("bigint"), reason: text("too large") };
    let mut all = vec![
        RouterError::Locate(LocateError::Gap { map: text("tenants"), key: text("7") }),
        RouterError::Locate(LocateError::WrongType { map: text("tenants"), source: key }),
        RouterError::NoSuchMap(map()),
        RouterError::CrossShard(vec![shard()]),
        RouterError::ReadOnly(text("key 7 of map tenants")),
        RouterError::Offline(text("key 7 of map tenants")),
        RouterError::Moving(map()),
        RouterError::CatalogAway(text("connection refused")),
        RouterError::FanOut { asked: 2, failed: vec![(shard(), text("away"))] },
        RouterError::Saved(text("no JSON")),
        RouterError::Unconfirmed(text("catalog: connection refused")),
    ];
    all.extend(engine_errors().into_iter().map(RouterError::Engine));
    all.extend(shard_errors().into_iter().map(|error| RouterError::Shard { shard: shard(), error }));
    all.push(RouterError::Catalog(CatalogError::NoSuchDataset(text("queue acct/jobs"))));
    all
}

fn router_name(error: &RouterError) -> String {
    text(match error {
        RouterError::Locate(LocateError::Gap { .. }) => "Locate Gap",
        RouterError::Locate(LocateError::WrongType { .. }) => "Locate WrongType",
        RouterError::NoSuchMap(_) => "NoSuchMap",
        RouterError::CrossShard(_) => "CrossShard",
        RouterError::ReadOnly(_) => "ReadOnly",
        RouterError::Offline(_) => "Offline",
        RouterError::Moving(_) => "Moving",
        RouterError::Shard { error, .. } => return format!("Shard {}", shard_name(error)),
        RouterError::CatalogAway(_) => "CatalogAway",
        RouterError::Engine(error) => return format!("Engine {}", engine_name(error)),
        RouterError::FanOut { .. } => "FanOut",
        RouterError::Saved(_) => "Saved",
        RouterError::Unconfirmed(_) => "Unconfirmed",
        RouterError::Catalog(error) => return format!("Catalog {}", catalog_name(error)),
    })
}

fn line(name: &str, error: &Error, sql: &polyshard_sql::SqlError) -> String {
    let azure = polyshard_azure_storage::failure(error);
    let kind = format!("{:?}", error.kind);
    let code = format!("{} {}", azure.status(), azure.code());
    format!("{name:<30} {kind:<24} {code:<26} {}\n", sql.state.0)
}

#[test]
fn every_error_of_router_and_catalog_has_its_code_in_every_family() {
    let mut table = format!("{:<30} {:<24} {:<26} {}\n", "RouterError", "kind", "azure", "sqlstate");
    for error in router_errors() {
        let sql = polyshard_store_sql::of_router(&error);
        table.push_str(&line(&router_name(&error), &Error::of_router(&error), &sql));
    }
    table.push_str("\nCatalogError\n");
    for error in catalog_errors() {
        let of_store = Error::of_catalog(&error);
        table.push_str(&line(&catalog_name(&error), &of_store, &polyshard_store_sql::of_store(&of_store)));
    }
    table.push_str("\nthe kit's own\n");
    let over = OverQuota { of: text("map tenants"), rate: 5, after: Duration::from_millis(1_500) };
    let own = [("OverQuota", Error::from(over)), ("NotPermitted", Error::new(ErrorKind::NotPermitted, "no"))];
    for (name, error) in own {
        table.push_str(&line(name, &error, &polyshard_store_sql::of_store(&error)));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors/table.txt");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(table, expected, "UPDATE_GOLDENFILES=1 writes {}", path.display());
}

/// The SDKs send a request again after a 503, and not after a 500: what may have been done must not be sent again, and
/// what will never work must not be sent for ever.
#[test]
fn only_what_was_not_done_is_sent_again() {
    let all = router_errors().iter().map(Error::of_router).collect::<Vec<_>>();
    for error in all.into_iter().chain(catalog_errors().iter().map(Error::of_catalog)) {
        let again = polyshard_azure_storage::failure(&error).status() == 503;
        let kinds =
            matches!(error.kind, ErrorKind::Busy | ErrorKind::OverQuota(_) | ErrorKind::OutOfService(_));
        assert_eq!(again, kinds, "{error:?}");
    }
}

/// Words of a database are for the log.
#[test]
fn clients_of_azure_are_shown_no_insides() {
    for error in router_errors().iter().map(Error::of_router) {
        let shown = polyshard_azure_storage::failure(&error).message().to_owned();
        assert!(!shown.contains("words of a database") && !shown.contains("/data/"), "{shown}");
    }
}
