"""Who may do what with blobs: signatures, stored policies, other origins; settings of the service, and batches."""

import datetime
import urllib.error
import urllib.request
import uuid

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    AccessPolicy,
    AccountSasPermissions,
    BlobAnalyticsLogging,
    BlobBlock,
    BlobClient,
    BlobSasPermissions,
    BlobServiceClient,
    ContainerClient,
    ContainerSasPermissions,
    ContentSettings,
    CorsRule,
    ImmutabilityPolicy,
    Metrics,
    ResourceTypes,
    RetentionPolicy,
    StaticWebsite,
    generate_account_sas,
    generate_blob_sas,
    generate_container_sas,
)

from blob_help import Raw, connect, container, in_an_hour, raw, read, refused, service  # noqa: F401: fixtures
from conftest import ACCOUNT, KEY

MISMATCH = "AuthorizationPermissionMismatch"


@pytest.fixture
def blob(container):
    client = container.get_blob_client("signed/ü b")
    client.upload_blob(b"content", tags={"a": "b"})
    return client


def of_blob(blob, permission, **options):
    """A client of the blob that has a signature alone."""
    options.setdefault("expiry", in_an_hour())
    token = generate_blob_sas(ACCOUNT, blob.container_name, blob.blob_name, account_key=KEY, permission=permission,
                              **options)
    return BlobClient.from_blob_url(f"{blob.url.split('?')[0]}?{token}", retry_total=0)


def of_container(container, permission=None, **options):
    if "policy_id" not in options:
        options.setdefault("expiry", in_an_hour())
    token = generate_container_sas(ACCOUNT, container.container_name, account_key=KEY, permission=permission, **options)
    return ContainerClient.from_container_url(f"{container.url}?{token}", retry_total=0)


def of_account(doors, services="b", types="sco", permission="rwdlacupx", **options):
    token = generate_account_sas(ACCOUNT, KEY, ResourceTypes.from_string(types),
                                 AccountSasPermissions.from_string(permission),
                                 options.pop("expiry", in_an_hour()), services=services, **options)
    return BlobServiceClient(doors.blob, token, retry_total=0)


def test_signatures_of_a_blob(container, blob):
    reader = of_blob(blob, BlobSasPermissions(read=True))
    assert read(reader) == b"content" and reader.get_blob_properties().size == 7
    for call, arguments in [(reader.upload_blob, {"data": b"x", "overwrite": True}), (reader.delete_blob, {}),
                            (reader.set_blob_metadata, {"metadata": {}}), (reader.get_blob_tags, {}),
                            (reader.set_blob_tags, {"tags": {}}), (reader.create_snapshot, {})]:
        refused(MISMATCH, call, **arguments, status=403)
    writer = of_blob(blob, BlobSasPermissions(write=True))
    writer.upload_blob(b"written", overwrite=True)
    writer.set_blob_metadata({"a": "b"})
    refused(MISMATCH, writer.download_blob, status=403)
    refused(MISMATCH, writer.delete_blob, status=403)
    # Creating is less than writing: nothing is overwritten.
    creator = of_blob(blob, BlobSasPermissions(create=True))
    refused("UnauthorizedBlobOverwrite", creator.upload_blob, b"x", overwrite=True, status=403)
    new = container.get_blob_client("new")
    of_blob(new, BlobSasPermissions(create=True)).upload_blob(b"created")
    assert read(new) == b"created" and read(blob) == b"written"
    tagger = of_blob(blob, BlobSasPermissions(tag=True))
    tagger.set_blob_tags({"c": "d"})
    assert tagger.get_blob_tags() == {"c": "d"}
    log = container.get_blob_client("log")
    log.create_append_blob()
    of_blob(log, BlobSasPermissions(add=True)).append_block(b"x")
    refused(MISMATCH, of_blob(log, BlobSasPermissions(read=True)).append_block, b"y")
    assert read(log) == b"x"
    of_blob(blob, BlobSasPermissions(delete=True)).delete_blob()
    assert not blob.exists()


def test_signatures_hold_for_what_they_name(container, blob):
    reader = of_blob(blob, BlobSasPermissions(read=True))
    token = reader.url.split("?", 1)[1]
    other = container.get_blob_client("other")
    other.upload_blob(b"x")
    refused("AuthenticationFailed", BlobClient.from_blob_url(f"{other.url}?{token}", retry_total=0).download_blob,
            status=403)
    with pytest.raises(HttpResponseError) as caught:
        list(ContainerClient.from_container_url(f"{container.url}?{token}", retry_total=0).list_blobs())
    assert caught.value.status_code == 403
    old = blob.create_snapshot()["snapshot"]
    blob.upload_blob(b"newer", overwrite=True)
    signed = generate_blob_sas(ACCOUNT, blob.container_name, blob.blob_name, snapshot=old, account_key=KEY,
                               permission=BlobSasPermissions(read=True), expiry=in_an_hour())
    snapshot = BlobClient(blob.url.split(f"/{blob.container_name}")[0], blob.container_name, blob.blob_name,
                          snapshot=old, credential=signed, retry_total=0)
    assert read(snapshot) == b"content"
    whole = BlobClient.from_blob_url(f"{blob.url}?{signed}", retry_total=0)
    refused("AuthenticationFailed", whole.download_blob, status=403)
    blob.delete_blob(delete_snapshots="include")


def test_signatures_have_times_places_and_protocols(doors, blob):
    read_only = BlobSasPermissions(read=True)
    for options in [{"expiry": in_an_hour(-1)}, {"start": in_an_hour(), "expiry": in_an_hour(2)}]:
        refused("AuthenticationFailed", of_blob(blob, read_only, **options).download_blob, status=403)
    assert read(of_blob(blob, read_only, start=in_an_hour(-1))) == b"content"
    refused("AuthorizationSourceIPMismatch", of_blob(blob, read_only, ip="168.1.5.60-168.1.5.70").download_blob,
            status=403)
    assert read(of_blob(blob, read_only, ip="127.0.0.1")) == b"content"
    secure = of_blob(blob, read_only, protocol="https")
    if doors.blob.startswith("https"):
        assert read(secure) == b"content"
    else:
        refused("AuthorizationProtocolMismatch", secure.download_blob, status=403)


def test_signatures_change_headers_of_answers(blob):
    shown = of_blob(blob, BlobSasPermissions(read=True), content_type="image/png", content_disposition="inline; x=y",
                    cache_control="no-store", content_encoding="utf-8", content_language="de")
    found = shown.get_blob_properties().content_settings
    assert (found.content_type, found.content_disposition, found.cache_control, found.content_encoding,
            found.content_language) == ("image/png", "inline; x=y", "no-store", "utf-8", "de")
    assert blob.get_blob_properties().content_settings.content_type == "application/octet-stream"


def test_signatures_of_a_container(container, blob):
    reader = of_container(container, ContainerSasPermissions(read=True, list=True))
    assert [each.name for each in reader.list_blobs()] == [blob.blob_name]
    assert read(reader.get_blob_client(blob.blob_name)) == b"content"
    refused(MISMATCH, reader.upload_blob, "x", b"x", status=403)
    with pytest.raises(HttpResponseError) as caught:
        reader.delete_container()
    assert caught.value.status_code == 403
    lister = of_container(container, ContainerSasPermissions(list=True))
    assert len(list(lister.walk_blobs())) == 1
    refused(MISMATCH, lister.get_blob_client(blob.blob_name).download_blob)
    refused(MISMATCH, of_container(container, ContainerSasPermissions(read=True)).list_blobs, status=403)
    finder = of_container(container, ContainerSasPermissions(filter_by_tags=True))
    assert [each.name for each in finder.find_blobs_by_tags("a='b'")] == [blob.blob_name]
    refused(MISMATCH, lister.find_blobs_by_tags, "a='b'", status=403)


def test_signatures_of_the_account(doors, service, container, blob):
    whole = of_account(doors)
    assert container.container_name in [each.name for each in whole.list_containers()]
    here = whole.get_container_client(container.container_name)
    here.upload_blob("x", b"x")
    here.delete_blob("x")
    name = "sas" + uuid.uuid4().hex
    whole.create_container(name)
    whole.delete_container(name)
    read_only = of_account(doors, permission="rl")
    refused(MISMATCH, read_only.create_container, name, status=403)
    refused(MISMATCH, read_only.get_container_client(container.container_name).upload_blob, "x", b"x", status=403)
    objects = of_account(doors, types="o")
    assert read(objects.get_blob_client(container.container_name, blob.blob_name)) == b"content"
    refused("AuthorizationResourceTypeMismatch", objects.list_containers, status=403)
    refused("AuthorizationResourceTypeMismatch",
            objects.get_container_client(container.container_name).get_container_properties, status=403)
    queues = of_account(doors, services="q")
    refused("AuthorizationServiceMismatch", queues.list_containers, status=403)
    # Only the key itself may say who else comes in.
    with pytest.raises(HttpResponseError) as caught:
        here.set_container_access_policy({})
    assert caught.value.status_code == 403
    refused("AuthenticationFailed", of_account(doors, expiry=in_an_hour(-1)).list_containers, status=403)


def test_stored_policies_limit_signatures(container, blob):
    soon = in_an_hour().replace(microsecond=0)
    policies = {"readers": AccessPolicy(ContainerSasPermissions(read=True), expiry=soon),
                "late": AccessPolicy(ContainerSasPermissions(read=True), expiry=in_an_hour(-1))}
    container.set_container_access_policy(policies)
    reader = of_container(container, policy_id="readers").get_blob_client(blob.blob_name)
    assert read(reader) == b"content"
    refused(MISMATCH, reader.delete_blob, status=403)
    late = of_container(container, policy_id="late").get_blob_client(blob.blob_name)
    refused("AuthenticationFailed", late.download_blob, status=403)
    container.set_container_access_policy({})
    refused("AuthenticationFailed", reader.download_blob, status=403)


def test_a_signature_given_twice_is_refused(doors, blob):
    token = of_blob(blob, BlobSasPermissions(read=True)).url.split("?", 1)[1]
    path = "/" + "/".join(blob.url.split("?")[0].split("/")[4:])
    once = Raw(doors, token)
    assert once("GET", path).body == b"content"
    signature = next(word for word in token.split("&") if word.startswith("sig="))
    twice = Raw(doors, f"{token}&{signature}")
    assert twice("GET", path).status in [400, 403]
    once.close()
    twice.close()


def test_strangers_are_refused(doors, container, blob):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(blob.url)
    # A container that is not public is not told from one that is not there.
    assert caught.value.code in [401, 404, 409]
    assert caught.value.headers["x-ms-error-code"] in ["NoAuthenticationInformation", "ResourceNotFound",
                                                       "PublicAccessNotPermitted"]
    wrong = BlobServiceClient(doors.blob, {"account_name": ACCOUNT, "account_key": "c2VjcmV0"}, retry_total=0)
    refused("AuthenticationFailed", wrong.get_blob_client(container.container_name, blob.blob_name).download_blob,
            status=403)
    other = doors.blob.replace(ACCOUNT, "stranger")
    unknown = BlobServiceClient(other, {"account_name": "stranger", "account_key": KEY}, retry_total=0)
    with pytest.raises(HttpResponseError) as caught:
        list(unknown.list_containers())
    assert caught.value.status_code in [403, 404]


def test_accounts_do_not_see_each_other(doors, container, blob):
    another = BlobServiceClient(doors.blob.replace(ACCOUNT, "another"),
                                {"account_name": "another", "account_key": "Zmlyc3Qga2V5"}, retry_total=0)
    assert container.container_name not in [each.name for each in another.list_containers()]
    mine = another.create_container(container.container_name)
    mine.upload_blob(blob.blob_name, b"of another")
    assert read(blob) == b"content"
    mine.delete_container()
    assert read(blob) == b"content"


def test_public_containers_are_refused_unless_configured(container):
    refused("PublicAccessNotPermitted", container.set_container_access_policy, {}, public_access="blob", status=409)
    assert container.get_container_access_policy()["public_access"] is None


def test_settings_of_the_service(service):
    week = RetentionPolicy(enabled=True, days=7)
    service.set_service_properties(
        analytics_logging=BlobAnalyticsLogging(read=True, retention_policy=week),
        hour_metrics=Metrics(enabled=True, include_apis=True, retention_policy=week),
        cors=[CorsRule(["https://a.example"], ["GET", "PUT"], max_age_in_seconds=9)],
        target_version="2014-02-14",
        static_website=StaticWebsite(enabled=False),
    )
    # What is not named stays as it was.
    service.set_service_properties(minute_metrics=Metrics(enabled=True, include_apis=False),
                                   delete_retention_policy=RetentionPolicy(enabled=True, days=3))
    found = service.get_service_properties()
    assert found["analytics_logging"].read and found["analytics_logging"].retention_policy.days == 7
    assert found["hour_metrics"].include_apis and found["minute_metrics"].enabled
    assert found["cors"][0].max_age_in_seconds == 9 and found["target_version"] == "2014-02-14"
    assert found["delete_retention_policy"].enabled and found["delete_retention_policy"].days == 3
    service.set_service_properties(delete_retention_policy=RetentionPolicy(enabled=False), cors=[])
    assert not service.get_service_properties()["delete_retention_policy"].enabled


def test_other_origins_are_let_in_by_rules(doors, service, container, blob):
    origin = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}

    def preflight(headers):
        ask = urllib.request.Request(f"{doors.blob}/{container.container_name}/x", method="OPTIONS", headers=headers)
        return urllib.request.urlopen(ask)

    service.set_service_properties(cors=[])
    for headers, status, code in [(origin, 403, "CorsPreflightFailure"), ({}, 400, None)]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            preflight(headers)
        assert caught.value.code == status and code in [None, caught.value.headers["x-ms-error-code"]]
    rule = CorsRule(["https://a.example"], ["GET"], exposed_headers=["x-ms-*"], max_age_in_seconds=9)
    service.set_service_properties(cors=[rule])
    with preflight(origin) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert answer.headers["Access-Control-Max-Age"] == "9"
    shown = of_blob(blob, BlobSasPermissions(read=True)).url
    with urllib.request.urlopen(urllib.request.Request(shown, headers=origin)) as answer:
        assert answer.read() == b"content"
        assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
    with urllib.request.urlopen(shown) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] is None
    service.set_service_properties(cors=[])


def test_statistics_are_at_the_secondary_endpoint(doors):
    token = generate_account_sas(ACCOUNT, KEY, "s", "r", in_an_hour(), services="b")
    with urllib.request.urlopen(f"{doors.blob}-secondary/?restype=service&comp=stats&{token}") as answer:
        assert b"<Status>live</Status>" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{doors.blob}/?restype=service&comp=stats&{token}")
    assert caught.value.headers["x-ms-error-code"] == "InvalidQueryParameterValue"


def test_what_a_signature_does_not_cover_changes_nothing(doors, container, blob):
    """Headers of the answer count in service signatures alone: those of an account do not sign them."""
    token = generate_account_sas(ACCOUNT, KEY, "o", "r", in_an_hour(), services="b")
    for more in ["rsct=text/html", "rscd=a%0D%0Ax%3A+b"]:
        with urllib.request.urlopen(f"{blob.url}?{token}&{more}") as answer:
            assert answer.headers["Content-Type"] == "application/octet-stream"
            assert answer.headers["Content-Disposition"] is None


def test_a_signature_of_a_snapshot_leaves_the_blob_alone(container, blob, raw):
    old = blob.create_snapshot()["snapshot"]
    token = generate_blob_sas(ACCOUNT, blob.container_name, blob.blob_name, snapshot=old, account_key=KEY,
                              permission=BlobSasPermissions(read=True, write=True), expiry=in_an_hour())
    address = f"{blob.url}?snapshot={old}&{token}"
    request = urllib.request.Request(address, b"other", {"x-ms-blob-type": "BlockBlob"}, method="PUT")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert (caught.value.code, caught.value.headers["x-ms-error-code"]) == (400, "InvalidOperation")
    assert read(blob) == b"content"
    # Tags of its own it can have.
    tags = b"<Tags><TagSet><Tag><Key>old</Key><Value>1</Value></Tag></TagSet></Tags>"
    path = blob.url.split(f"/{ACCOUNT}", 1)[1].split("?")[0]
    assert raw("PUT", path, {}, tags, comp="tags", snapshot=old).status == 204
    assert b"old" in raw("GET", path, comp="tags", snapshot=old).body
    assert blob.get_blob_tags() == {"a": "b"}
    blob.delete_blob(delete_snapshots="include")


def test_tags_are_listed_for_those_who_may_see_them(container, blob):
    lister = of_container(container, ContainerSasPermissions(list=True))
    refused(MISMATCH, lister.list_blobs, include=["tags"], status=403)
    both = of_container(container, ContainerSasPermissions(list=True, tag=True))
    assert [each.tags for each in both.list_blobs(include=["tags"])] == [{"a": "b"}]


def test_a_container_is_named_by_its_restype(service, container, blob, raw):
    web = service.create_container("$web")
    try:
        web.upload_blob("index.html", b"x")
        for method in ["DELETE", "PUT", "GET"]:
            answer = raw(method, "/$web/")
            assert (answer.status, answer.code) == (400, "MissingRequiredQueryParameter"), method
        assert read(web.get_blob_client("index.html")) == b"x"
    finally:
        web.delete_container()
    path = blob.url.split(f"/{ACCOUNT}", 1)[1].split("?")[0]
    answer = raw("DELETE", path, restype="account", comp="properties")
    assert (answer.status, answer.code) == (405, "UnsupportedHttpVerb")
    assert read(blob) == b"content"


def test_batches(service, container):
    names = [f"batch/{number} ü" for number in range(10)]
    for name in names:
        container.upload_blob(name, name.encode())
    answers = list(container.set_standard_blob_tier_blobs("Cool", *names[:3]))
    assert [answer.status_code for answer in answers] == [200] * 3
    assert container.get_blob_client(names[2]).get_blob_properties().blob_tier == "Cool"
    assert container.get_blob_client(names[3]).get_blob_properties().blob_tier == "Hot"
    answers = list(container.delete_blobs(*names[:5]))
    assert [answer.status_code for answer in answers] == [202] * 5
    assert [each.name for each in container.list_blobs()] == names[5:]
    # Each stands for itself.
    answers = list(container.delete_blobs(names[0], names[5], "missing", names[6], raise_on_any_failure=False))
    assert [answer.status_code for answer in answers] == [404, 202, 404, 202]
    assert answers[0].headers["x-ms-error-code"] == "BlobNotFound"
    assert [each.name for each in container.list_blobs()] == names[7:]
    for name in ["x", "y"]:
        container.upload_blob(name, b"x")
        container.get_blob_client(name).create_snapshot()
    answers = list(container.delete_blobs("x", "y", delete_snapshots="include"))
    assert [answer.status_code for answer in answers] == [202, 202]
    signed = of_container(container, ContainerSasPermissions(read=True))
    with pytest.raises(HttpResponseError):
        list(signed.delete_blobs(names[7]))
    assert container.get_blob_client(names[7]).exists()
    signed = of_container(container, ContainerSasPermissions(delete=True))
    assert [answer.status_code for answer in signed.delete_blobs(names[7])] == [202]
    with pytest.raises(HttpResponseError) as caught:
        list(container.delete_blobs(*[f"many{number}" for number in range(257)]))
    assert caught.value.status_code == 400


def test_what_is_left_out_says_so(service, container, blob):
    calls = [
        (blob.query_blob, ["SELECT * FROM BlobStorage"]),
        (blob.set_immutability_policy, [ImmutabilityPolicy(expiry_time=in_an_hour(), policy_mode="Unlocked")]),
        (blob.set_legal_hold, [True]),
        (blob.start_copy_from_url, [blob.url, None, True]),
    ]
    for call, arguments in calls:
        with pytest.raises(HttpResponseError) as caught:
            call(*arguments)
        assert caught.value.status_code == 501, (call, caught.value)
    assert read(blob) == b"content"


def test_unknown_requests_are_refused(raw, container):
    path = f"/{container.container_name}"
    for method, query in [("GET", {"comp": "nonsense"}), ("PUT", {"comp": "nonsense"}), ("POST", {}),
                          ("PUT", {"comp": "lease"}), ("PUT", {"restype": "nonsense"})]:
        answer = raw(method, f"{path}/x", **query)
        assert 400 <= answer.status < 500, (method, query)
    answer = raw("PUT", f"{path}/x", body=b"no type")
    assert (answer.status, answer.code) == (400, "MissingRequiredHeader")
    answer = raw("PUT", f"{path}/x", {"x-ms-blob-type": "NoBlob"}, b"x")
    assert (answer.status, answer.code) == (400, "InvalidHeaderValue")
    assert list(container.list_blobs()) == []


def test_requests_are_told_apart(service, container, raw):
    """Every answer names its request, the version and the time."""
    path = f"/{container.container_name}/x"
    headers = {"x-ms-client-request-id": "my-own-id"}
    for answer in [raw("PUT", path, {"x-ms-blob-type": "BlockBlob", **headers}, b"x"), raw("GET", path, headers),
                   raw("HEAD", path + "y", headers), raw("GET", path, headers, comp="nonsense")]:
        assert uuid.UUID(answer.headers["x-ms-request-id"]) and answer.headers["x-ms-version"]
        assert answer.headers["x-ms-client-request-id"] == "my-own-id"
        when = datetime.datetime.strptime(answer.headers["Date"], "%a, %d %b %Y %H:%M:%S GMT")
        assert abs((datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - when).total_seconds()) < 60
    missing = raw("HEAD", path + "y")
    assert (missing.status, missing.code, missing.body) == (404, "BlobNotFound", b"")
    error = raw("GET", path + "y")
    assert b"<Error><Code>BlobNotFound</Code><Message>The specified blob does not exist.\nRequestId:" in error.body


def test_contents_are_given_by_the_signature_of_the_sdk(doors, container):
    """The canonical resource has the path as it was sent, however odd."""
    with connect(doors) as client:
        here = client.get_container_client(container.container_name)
        for name in ["a'b", "a b", "ü/ü", "%41", "a+b", "(x)", "x&y=z", "~tilde", "a,b;c"]:
            here.upload_blob(name, b"x", content_settings=ContentSettings("text/plain", content_language="de, en"))
            here.get_blob_client(name).stage_block("AAAA", b"x")
            here.get_blob_client(name).commit_block_list([BlobBlock("AAAA")], metadata={"A": "b", "a1": "c"})
            assert read(here.get_blob_client(name)) == b"x"
