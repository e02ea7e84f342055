//! Shared access signatures for blobs: what each sort is for, what it signs in each version, and what it never opens.

mod support;

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_KEY, StoreKind};
use support::{Reply, Running};

/// 2026-11-15T00:00:00Z.
const NOW_S: i64 = 1_794_700_800;
const NEWEST: &str = "2026-10-06";

/// A service SAS by the documentation: `name` is the canonical resource's end, the fields are given in the query, and
/// some of them are signed by the version.
fn token(name: &str, sv: &str, fields: &[(&str, &str)]) -> String {
    let field =
        |wanted: &str| fields.iter().find(|(name, _)| *name == wanted).map_or("", |(_, value)| *value);
    let service = if sv >= "2015-02-21" { "/blob" } else { "" };
    let resource = format!("{service}/devstoreaccount1/{name}");
    let mut lines = vec![field("sp"), field("st"), field("se"), resource.as_str(), field("si")];
    if sv >= "2015-04-05" {
        lines.extend([field("sip"), field("spr")]);
    }
    lines.push(sv);
    if sv >= "2018-11-09" {
        lines.extend([field("sr"), if field("sr") == "bv" { field("versionid") } else { field("snapshot") }]);
    }
    if sv >= "2020-12-06" {
        lines.push(field("ses"));
    }
    if sv >= "2013-08-15" {
        lines.extend(["rscc", "rscd", "rsce", "rscl", "rsct"].map(field));
    }
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&lines.join("\n"));
    let query: String = fields.iter().map(|(name, value)| format!("{name}={value}&")).collect();
    format!("{query}sv={sv}&sig={}", signature.replace('+', "%2B"))
}

/// The fields of one that is good for a day.
fn good<'a>(sr: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("sr", sr), ("sp", "racwdl"), ("se", "2026-11-16")], more].concat()
}

fn ask(door: &Running, method: &str, target: &str, headers: &str) -> Reply {
    door.clock.set_s(NOW_S);
    door.ask(format!("{method} /devstoreaccount1/{target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n").as_bytes())
}

fn code(door: &Running, target: &str, headers: &str) -> Option<String> {
    let reply = ask(door, "PUT", target, headers);
    let code = reply.header("x-ms-error-code").map(str::to_owned);
    assert_eq!(reply.status == 200, code.is_none());
    code
}

const FAILED: Option<&str> = Some("AuthenticationFailed");
const MISMATCH: Option<&str> = Some("AuthorizationPermissionMismatch");

#[test]
fn each_sort_opens_what_it_is_for_in_every_version() {
    let door = Running::start(StoreKind::Blob);
    for sv in ["2012-02-12", "2013-08-15", "2015-02-21", "2015-04-05", "2018-11-09", "2020-12-06", NEWEST] {
        let container = token("c", sv, &good("c", &[]));
        let blob = token("c/d/b", sv, &good("b", &[]));
        for (target, expected) in [
            (format!("c/d/b?{container}"), None),
            (format!("c/other?{container}"), None),
            (format!("c?restype=container&comp=list&{container}"), None),
            (format!("c2/b?{container}"), FAILED),
            (format!("?comp=list&{container}"), FAILED),
            (format!("c/d/b?{blob}"), None),
            (format!("c/d/b2?{blob}"), FAILED),
            (format!("c/d?{blob}"), FAILED),
            (format!("c?restype=container&{blob}"), FAILED),
        ] {
            assert_eq!(code(&door, &target, "").as_deref(), expected, "{target}");
        }
    }
}

#[test]
fn a_signature_for_a_blob_is_for_nothing_of_its_container() {
    let door = Running::start(StoreKind::Blob);
    let blob = token("c/b", NEWEST, &good("b", &[]));
    assert_eq!(code(&door, &format!("c/b?{blob}"), "need: object\r\n"), None);
    assert_eq!(code(&door, &format!("c/b?{blob}"), "need: list\r\n").as_deref(), MISMATCH);
    let container = token("c", NEWEST, &good("c", &[]));
    assert_eq!(code(&door, &format!("c?restype=container&{container}"), "need: list\r\n"), None);
}

#[test]
fn what_is_alone_in_the_path_is_a_blob_of_the_root_container() {
    let door = Running::start(StoreKind::Blob);
    for sv in ["2015-04-05", NEWEST] {
        let blob = token("$root/logo.png", sv, &good("b", &[]));
        let root = token("$root", sv, &good("c", &[]));
        // In older versions nothing but the name tells what a signature is for.
        let container = token("logo.png", sv, &good("c", &[]));
        let as_blob = container.replace("sr=c", "sr=b");
        for (target, expected) in [
            (format!("logo.png?{blob}"), None),
            (format!("logo.png?{root}"), None),
            (format!("$root/logo.png?{root}"), None),
            (format!("$root?restype=container&{root}"), None),
            (format!("logo.png?restype=container&{blob}"), FAILED),
            (format!("logo.png?{container}"), FAILED),
            (format!("logo.png?{as_blob}"), FAILED),
            (format!("logo.png/x?{root}"), FAILED),
            // A list without a restype is of no container.
            (format!("logo.png?comp=list&{container}"), FAILED),
            (format!("logo.png?comp=list&{blob}"), None),
        ] {
            assert_eq!(code(&door, &target, "").as_deref(), expected, "{target}");
        }
        // A signature for a blob of the root container that is called like a container does not delete that.
        let target = format!("logo.png?restype=container&{}", token("logo.png", sv, &good("b", &[])));
        assert_eq!(code(&door, &target, "need: list\r\n").as_deref(), MISMATCH);
    }
}

#[test]
fn snapshots_versions_and_directories_are_signed() {
    let door = Running::start(StoreKind::Blob);
    let time = "2026-11-14T00:00:00.0000000Z";
    let snapshot = token("c/b", NEWEST, &good("bs", &[("snapshot", time)]));
    let other = snapshot.replace(time, "2026-11-13T00:00:00.0000000Z");
    let base = snapshot.replace(&format!("snapshot={time}&"), "");
    let version = token("c/b", NEWEST, &good("bv", &[("versionid", time)]));
    let directory = token("c/d/e", NEWEST, &good("d", &[("sdd", "2")]));
    for (target, expected) in [
        (format!("c/b?{snapshot}"), None),
        (format!("c/b?{other}"), FAILED),
        (format!("c/b?{base}"), FAILED),
        (format!("c/b?{version}"), None),
        (format!("c/b?{}", version.replace("-14T", "-13T")), FAILED),
        (format!("c/d/e/f/b?{directory}"), None),
        (format!("c/d/e?{directory}"), None),
        (format!("c/d/e2/b?{directory}"), FAILED),
        (format!("c/d?{directory}"), FAILED),
        (format!("c/d/e/b?{}", directory.replace("sdd=2", "sdd=1")), FAILED),
        (format!("c/d/e/b?{}", directory.replace("sdd=2", "sdd=0")), FAILED),
        (format!("c/d/e/b?{}", directory.replace("sdd=2&", "")), FAILED),
        (format!("c/d/e/b?{}", token("c/d", "2019-12-12", &good("d", &[("sdd", "1")]))), FAILED),
        (format!("c/b?{}", token("c/b", "2015-04-05", &good("bs", &[("snapshot", time)]))), FAILED),
        (format!("c/b?{}", token("c/b", NEWEST, &good("x", &[]))), FAILED),
    ] {
        assert_eq!(code(&door, &target, "").as_deref(), expected, "{target}");
    }
}

#[test]
fn an_encryption_scope_is_signed_from_its_version_on() {
    let door = Running::start(StoreKind::Blob);
    let scoped = token("c/b", "2020-12-06", &good("b", &[("ses", "mine")]));
    assert_eq!(code(&door, &format!("c/b?{scoped}"), ""), None);
    assert_eq!(code(&door, &format!("c/b?{}", scoped.replace("mine", "yours")), "").as_deref(), FAILED);
    let before = token("c/b", "2020-10-02", &good("b", &[("ses", "mine")]));
    assert_eq!(code(&door, &format!("c/b?{before}"), ""), None);
}

#[test]
fn headers_of_the_answer_are_signed_and_given_to_the_store() {
    let door = Running::start(StoreKind::Blob);
    let fields =
        [("rscc", "no-cache"), ("rscd", "inline"), ("rsce", "gzip"), ("rscl", "de"), ("rsct", "text/plain")];
    let overrides = |sv, fields: &[(&str, &str)], target: &str| {
        let reply = ask(&door, "GET", &format!("{target}?{}", token("c/b", sv, &good("b", fields))), "");
        assert_eq!(reply.status, 200);
        reply.header("Overrides").map(str::to_owned)
    };
    assert_eq!(overrides(NEWEST, &fields, "c/b").as_deref(), Some("no-cache|inline|gzip|de|text/plain"));
    assert_eq!(overrides("2013-08-15", &fields[4..], "c/b").as_deref(), Some("||||text/plain"));
    // Before, they were not signed: whoever has a link could have put them there.
    assert_eq!(overrides("2012-02-12", &fields, "c/b"), None);
    assert_eq!(overrides(NEWEST, &[], "c/b"), None);
    let signed = token("c/b", NEWEST, &good("b", &fields));
    assert_eq!(
        code(&door, &format!("c/b?{}", signed.replace("inline", "attachment")), "").as_deref(),
        FAILED
    );
    assert_eq!(code(&door, &format!("c/b?{signed}%0D%0A"), "").as_deref(), FAILED);
    let split = token("c/b", NEWEST, &good("b", &[("rsct", "a\r\nb: c")])).replace("\r\n", "%0D%0A");
    assert_eq!(code(&door, &format!("c/b?{}", split.replace(' ', "%20")), "").as_deref(), FAILED);
}

#[test]
fn a_stored_policy_is_that_of_the_container() {
    let door = Running::start(StoreKind::Blob);
    // The container `orders` has the policy `read-only`.
    let of = |name: &str, sr| token(name, NEWEST, &[("sr", sr), ("si", "read-only")]);
    for token in [of("orders", "c"), of("orders/a/b", "b")] {
        assert_eq!(code(&door, &format!("orders/a/b?{token}"), "need: read\r\n"), None);
        assert_eq!(code(&door, &format!("orders/a/b?{token}"), "need: delete\r\n").as_deref(), MISMATCH);
    }
    assert_eq!(code(&door, &format!("none/b?{}", of("none/b", "b")), "").as_deref(), FAILED);
}

#[test]
fn an_account_signature_is_for_blobs_by_letter_and_resource_type() {
    let door = Running::start(StoreKind::Blob);
    let account = |ss: &str, srt: &str| {
        let text = format!("devstoreaccount1\nrl\n{ss}\n{srt}\n\n2026-11-16\n\n\n2020-12-06\n\n");
        let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&text).replace('+', "%2B");
        format!("c/b?sp=rl&ss={ss}&srt={srt}&se=2026-11-16&sv=2020-12-06&sig={signature}")
    };
    for (ss, srt, need, expected) in [
        ("b", "o", "read", None),
        ("bqt", "sco", "read", None),
        ("b", "sco", "list", None),
        ("b", "o", "list", Some("AuthorizationResourceTypeMismatch")),
        ("b", "sc", "read", Some("AuthorizationResourceTypeMismatch")),
        ("b", "o", "delete", MISMATCH),
        ("qt", "o", "read", Some("AuthorizationServiceMismatch")),
    ] {
        let found = code(&door, &account(ss, srt), &format!("need: {need}\r\n"));
        assert_eq!(found.as_deref(), expected, "{ss} {srt} {need}");
    }
    // What an account's signature does not sign is not taken from it.
    let reply = ask(&door, "GET", &format!("{}&rsct=text/html", account("b", "o")), "");
    assert_eq!((reply.status, reply.header("Overrides")), (200, None));
}

#[test]
fn a_signature_that_is_given_twice_is_refused() {
    for (kind, name) in
        [(StoreKind::Blob, "/blob"), (StoreKind::Queue, "/queue"), (StoreKind::Table, "/table")]
    {
        let door = Running::start(kind);
        let text = "devstoreaccount1\nr\nbqt\no\n\n2026-11-16\n\n\n2020-12-06\n\n";
        let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(text).replace('+', "%2B");
        let good = format!("c/b?sp=r&ss=bqt&srt=o&se=2026-11-16&sv=2020-12-06&sig={signature}");
        assert_eq!(code(&door, &good, ""), None, "{name}");
        for more in [format!("&sig={signature}"), "&sig=AAAA".to_owned(), "&Sig=".to_owned()] {
            assert_eq!(code(&door, &format!("{good}{more}"), "").as_deref(), FAILED, "{name}{more}");
        }
    }
}

#[test]
fn without_credentials_only_what_is_public_is_open() {
    let door = Running::start(StoreKind::Blob);
    for (method, headers, expected) in [
        ("GET", "", None),
        ("GET", "need: public\r\n", None),
        ("HEAD", "need: public\r\n", None),
        ("GET", "need: read\r\n", Some("NoAuthenticationInformation")),
        ("PUT", "need: public\r\n", Some("NoAuthenticationInformation")),
        ("DELETE", "need: public\r\n", Some("NoAuthenticationInformation")),
    ] {
        let mut client = door.connect();
        client
            .send(format!("{method} /devstoreaccount1/c/b HTTP/1.1\r\nHost: h\r\n{headers}\r\n").as_bytes());
        let (status, head) = client.head();
        let code = head.lines().find_map(|line| line.strip_prefix("x-ms-error-code: "));
        assert_eq!(
            (status, code),
            (if expected.is_none() { 200 } else { 401 }, expected),
            "{method} {headers}"
        );
    }
}

#[test]
fn the_account_is_in_the_path_or_in_the_name_of_the_host() {
    let door = Running::start(StoreKind::Blob);
    door.clock.set_s(NOW_S);
    for (host, target, resource) in [
        ("h:10000", "/devstoreaccount1/c/d%2Fe/?x=1", "/c/d%2Fe/"),
        ("h:10000", "/devstoreaccount1/logo.png", "/logo.png"),
        ("h:10000", "/devstoreaccount1/$root/logo.png", "/$root/logo.png"),
        ("h:10000", "/devstoreaccount1-secondary/c//b", "/c//b"),
        ("devstoreaccount1.blob.localhost:10000", "/c//b", "/c//b"),
        ("devstoreaccount1.blob.localhost:10000", "/logo.png", "/logo.png"),
        ("devstoreaccount1-secondary.blob.localhost", "/devstoreaccount1", "/devstoreaccount1"),
        // Another service's host names no account here.
        ("devstoreaccount1.queue.localhost", "/devstoreaccount1/c/b", "/c/b"),
    ] {
        let reply = door.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!((reply.status, reply.header("Resource")), (200, Some(resource)), "{host} {target}");
    }
}
