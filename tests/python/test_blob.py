"""Containers and block blobs with the unmodified Python SDK: every operation, its limits and its errors."""

import base64
import hashlib
import random
import time
import uuid

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.storage.blob import (
    AccessPolicy,
    BlobSasPermissions,
    BlobType,
    ContainerSasPermissions,
    ContentSettings,
    StandardBlobTier,
    generate_blob_sas,
)

from blob_help import MIB, connect, container, crc64, in_an_hour, raw, read, refused, service  # noqa: F401: fixtures
from conftest import ACCOUNT, KEY


def block_id(number):
    return base64.b64encode(f"{number:08}".encode()).decode()


def test_containers_are_made_listed_and_deleted(service):
    prefix = "list" + uuid.uuid4().hex[:8]
    names = sorted(f"{prefix}-{number}" for number in range(5))
    for name in names:
        service.create_container(name, metadata={"MixedCase": name, "other": "a b"})
    found = list(service.list_containers(name_starts_with=prefix, include_metadata=True))
    assert [each.name for each in found] == names
    assert found[0].metadata == {"MixedCase": names[0], "other": "a b"}
    assert found[0].etag and found[0].last_modified and found[0].lease.state == "available"
    pages = [[each.name for each in page]
             for page in service.list_containers(prefix, results_per_page=2).by_page()]
    assert pages == [names[:2], names[2:4], names[4:]]
    refused("ContainerAlreadyExists", service.create_container, names[0], status=409,
            message="The specified container already exists.")
    for name in names:
        service.delete_container(name)
    assert list(service.list_containers(prefix)) == []
    refused("ContainerNotFound", service.delete_container, names[0], status=404,
            message="The specified container does not exist.")


def test_a_deleted_container_is_empty_when_it_is_made_again(service):
    client = service.create_container("again" + uuid.uuid4().hex)
    client.upload_blob("old", b"old", metadata={"a": "b"})
    client.get_blob_client("staged").stage_block(block_id(1), b"x")
    client.delete_container()
    assert not client.exists()
    refused("ContainerNotFound", client.upload_blob, "x", b"x")
    client.create_container()
    assert list(client.list_blobs(include=["snapshots", "uncommittedblobs", "deleted"])) == []
    refused("BlobNotFound", client.get_blob_client("old").download_blob)
    client.upload_blob("old", b"new")
    assert read(client.get_blob_client("old")) == b"new"
    client.delete_container()


def test_container_properties_and_metadata(container):
    before = container.get_container_properties()
    assert before.name == container.container_name and before.metadata == {} and before.public_access is None
    assert (before.lease.status, before.lease.state) == ("unlocked", "available")
    assert not before.has_immutability_policy and not before.has_legal_hold
    container.set_container_metadata({"MixedCase": "Value", "lower_1": "1"})
    after = container.get_container_properties()
    assert after.metadata == {"MixedCase": "Value", "lower_1": "1"} and after.etag != before.etag
    refused("InvalidMetadata", container.set_container_metadata, {"not-good": "x"}, status=400)
    refused("MetadataTooLarge", container.set_container_metadata, {"big": "x" * 8200}, status=400)
    # Writing blobs does not change the container.
    container.upload_blob("x", b"x")
    assert container.get_container_properties().etag == after.etag
    refused("ConditionNotMet", container.set_container_metadata, {}, if_modified_since=in_an_hour(), status=412)
    container.set_container_metadata({})
    assert container.get_container_properties().metadata == {}


def test_stored_policies_are_kept(container):
    soon = in_an_hour().replace(microsecond=0)
    policy = AccessPolicy(ContainerSasPermissions(read=True, list=True), expiry=soon, start=in_an_hour(-1))
    container.set_container_access_policy({"readers": policy, "empty": AccessPolicy()})
    found = container.get_container_access_policy()
    policies = {each.id: each.access_policy for each in found["signed_identifiers"]}
    assert sorted(policies) == ["empty", "readers"] and policies["readers"].permission == "rl"
    assert found["public_access"] is None
    container.set_container_access_policy({})
    assert container.get_container_access_policy()["signed_identifiers"] == []


def test_names_and_missing_containers_are_refused(service, container):
    length = "The specified resource name length is not within the permissible limits."
    refused("OutOfRangeInput", service.create_container, "ab", status=400, message=length)
    refused("OutOfRangeInput", service.create_container, "a" * 64, status=400, message=length)
    for name in ["UPPER", "a--b", "-ab", "ab-", "a_b", "a.b"]:
        refused("InvalidResourceName", service.create_container, name, status=400)
    missing = service.get_container_client("missing")
    for call in [missing.get_container_properties, missing.get_container_access_policy, missing.list_blobs]:
        refused("ContainerNotFound", call, status=404)
    refused("ContainerNotFound", missing.set_container_metadata, {"a": "b"})
    blob = missing.get_blob_client("x")
    refused("ContainerNotFound", blob.upload_blob, b"x", status=404)
    refused("ContainerNotFound", blob.get_blob_properties, status=404)
    refused("ContainerNotFound", blob.stage_block, block_id(1), b"x")
    gone = container.get_blob_client("gone")
    absent = "The specified blob does not exist."
    refused("BlobNotFound", gone.download_blob, status=404, message=absent)
    refused("BlobNotFound", gone.get_blob_properties, status=404)
    refused("BlobNotFound", gone.delete_blob, status=404, message=absent)
    for call, argument in [(gone.set_blob_metadata, {}), (gone.set_http_headers, ContentSettings()),
                           (gone.set_blob_tags, {"a": "b"}), (gone.set_standard_blob_tier, "Cool"),
                           (gone.acquire_lease, 15)]:
        refused("BlobNotFound", call, argument, status=404)
    for call in [gone.create_snapshot, gone.get_blob_tags, gone.get_block_list, gone.undelete_blob]:
        refused("BlobNotFound", call, status=404)
    long = container.get_blob_client("n" * 1024)
    long.upload_blob(b"long")
    assert read(long) == b"long"
    with pytest.raises(HttpResponseError) as caught:
        container.get_blob_client("n" * 1025).upload_blob(b"too long")
    assert caught.value.status_code == 400


def test_small_blobs(container):
    blob = container.get_blob_client("small")
    settings = ContentSettings("text/plain; charset=utf-8", "utf-8", "de", "attachment", "no-cache")
    for content in [b"", b"x", b"first content", bytes(range(256)) * 100, random.Random(1).randbytes(300_000)]:
        written = blob.upload_blob(content, overwrite=True, content_settings=settings, metadata={"MixedCase": "yes"})
        found = blob.get_blob_properties()
        assert read(blob) == content and found.size == len(content)
        assert found.etag == written["etag"] and found.last_modified == written["last_modified"]
        assert found.blob_type == BlobType.BLOCKBLOB and found.metadata == {"MixedCase": "yes"}
        kept = found.content_settings
        assert kept.content_md5 == hashlib.md5(content).digest()
        assert (kept.content_type, kept.content_encoding, kept.content_language, kept.content_disposition,
                kept.cache_control) == (settings.content_type, "utf-8", "de", "attachment", "no-cache")
        assert found.blob_tier == "Hot" and found.blob_tier_inferred
    created = found.creation_time
    blob.upload_blob(b"plain", overwrite=True)
    plain = blob.get_blob_properties()
    assert plain.content_settings.content_type == "application/octet-stream" and plain.metadata == {}
    assert plain.content_settings.content_encoding is None and plain.creation_time >= created
    with pytest.raises(ResourceExistsError) as caught:
        blob.upload_blob(b"again", overwrite=False)
    assert caught.value.error_code == "BlobAlreadyExists" and caught.value.status_code == 409
    assert "The specified blob already exists." in caught.value.message
    assert read(blob) == b"plain"
    assert blob.exists()
    blob.delete_blob()
    assert not blob.exists()


def test_headers_change_alone_and_together(container):
    blob = container.get_blob_client("headers")
    first = blob.upload_blob(b"content", metadata={"kept": "yes"}, content_settings=ContentSettings("text/plain"))
    second = blob.set_http_headers(ContentSettings("application/json", content_language="en"))
    found = blob.get_blob_properties()
    assert second["etag"] == found.etag != first["etag"]
    assert (found.content_settings.content_type, found.content_settings.content_language) == ("application/json", "en")
    # What is not given is cleared, the MD5 too.
    assert found.content_settings.content_md5 is None and found.metadata == {"kept": "yes"}
    third = blob.set_blob_metadata({"MixedCase": "Value", "a_1": "b"})
    found = blob.get_blob_properties()
    assert found.metadata == {"MixedCase": "Value", "a_1": "b"} and found.etag == third["etag"] != second["etag"]
    assert found.content_settings.content_type == "application/json" and read(blob) == b"content"
    refused("InvalidMetadata", blob.set_blob_metadata, {"1digit": "x"}, status=400)
    refused("MetadataTooLarge", blob.set_blob_metadata, {"big": "x" * 8200}, status=400)
    assert blob.get_blob_properties().metadata == {"MixedCase": "Value", "a_1": "b"}


def test_large_uploads_in_parallel_chunks(doors, container):
    content = random.Random(2).randbytes(20 * MIB + 12345)
    with connect(doors, max_block_size=MIB, max_single_put_size=MIB, max_single_get_size=MIB,
                 max_chunk_get_size=MIB) as small:
        blob = small.get_blob_client(container.container_name, "large")
        blob.upload_blob(content, max_concurrency=4, content_settings=ContentSettings("video/mp4"))
        committed, uncommitted = blob.get_block_list("all")
        assert [block.size for block in committed] == [MIB] * 20 + [12345] and uncommitted == []
        assert read(blob, max_concurrency=4) == content
        assert read(blob, offset=5 * MIB - 3, length=2 * MIB + 7) == content[5 * MIB - 3:7 * MIB + 4]
        found = blob.get_blob_properties()
        # The service does not compute the MD5 of a list of blocks.
        assert found.size == len(content) and found.content_settings.content_md5 is None
        assert found.content_settings.content_type == "video/mp4"
    whole = container.get_blob_client("large")
    assert hashlib.md5(read(whole)).digest() == hashlib.md5(content).digest()


def commit(raw, blob, *blocks):
    """Commits blocks of given kinds, in this order. The SDK encodes what it is given as a name once more."""
    names = [(kind, base64.b64encode(block_id(number).encode()).decode()) for kind, number in blocks]
    words = "".join(f"<{kind}>{name}</{kind}>" for kind, name in names)
    body = f"<?xml version='1.0' encoding='utf-8'?><BlockList>{words}</BlockList>".encode()
    return raw("PUT", f"/{blob.container_name}/{blob.blob_name}", body=body, comp="blocklist")


def test_blocks_are_put_out_of_order_and_listed(raw, container):
    blob = container.get_blob_client("blocks")
    parts = [random.Random(number).randbytes(50_000 + number * 30_000) for number in range(4)]
    for number in [2, 0, 3, 1]:
        blob.stage_block(block_id(number), parts[number])
    assert not blob.exists()
    refused("BlobNotFound", blob.download_blob)
    refused("BlobNotFound", blob.delete_blob)
    assert list(container.list_blobs()) == []
    assert [each.name for each in container.list_blobs(include=["uncommittedblobs"])] == ["blocks"]
    committed, uncommitted = blob.get_block_list("all")
    assert committed == [] and sorted((block.id, block.size) for block in uncommitted) == [
        (block_id(number), len(parts[number])) for number in range(4)]
    # The order of the list is that of the blob; a block that is not named is discarded.
    blob.commit_block_list([block_id(3), block_id(0), block_id(2)], metadata={"Case": "x"})
    assert read(blob) == parts[3] + parts[0] + parts[2]
    committed, uncommitted = blob.get_block_list("all")
    assert [block.id for block in committed] == [block_id(3), block_id(0), block_id(2)] and uncommitted == []
    assert blob.get_blob_properties().metadata == {"Case": "x"}
    refused("InvalidBlockList", blob.commit_block_list, [block_id(1)], status=400,
            message="The specified block list is invalid.")
    # A block of the same name is another one until it is committed.
    blob.stage_block(block_id(0), b"new")
    assert read(blob) == parts[3] + parts[0] + parts[2]
    committed, uncommitted = blob.get_block_list("committed")
    assert len(committed) == 3 and uncommitted == []
    committed, uncommitted = blob.get_block_list("uncommitted")
    assert committed == [] and [(block.id, block.size) for block in uncommitted] == [(block_id(0), 3)]
    # The SDK calls every block the latest one, so these are plain requests.
    refusal = commit(raw, blob, ("Uncommitted", 2))
    assert (refusal.status, refusal.code) == (400, "InvalidBlockList")
    assert commit(raw, blob, ("Committed", 2), ("Uncommitted", 0), ("Latest", 3)).status == 201
    assert read(blob) == parts[2] + b"new" + parts[3]
    blob.stage_block(block_id(0), b"discarded")
    assert commit(raw, blob, ("Committed", 0)).status == 201
    assert read(blob) == b"new" and blob.get_block_list("all")[1] == []
    blob.commit_block_list([])
    assert read(blob) == b"" and blob.get_block_list("all") == ([], [])


def test_a_put_discards_blocks_that_wait(container):
    blob = container.get_blob_client("overwritten")
    blob.stage_block(block_id(1), b"x")
    blob.upload_blob(b"whole", overwrite=True)
    assert blob.get_block_list("all") == ([], [])
    refused("InvalidBlockList", blob.commit_block_list, [block_id(1)])
    assert read(blob) == b"whole"
    blob.stage_block(block_id(2), b"y")
    blob.delete_blob()
    refused("BlobNotFound", blob.get_block_list, "all")
    # Identifiers of one blob have one length.
    blob.stage_block(block_id(1), b"x")
    refused("InvalidBlobOrBlock", blob.stage_block, base64.b64encode(b"short").decode(), b"x", status=400)


def test_block_names_are_checked(raw, container):
    path = f"/{container.container_name}/ids"
    answer = raw("PUT", path, body=b"x", comp="block", blockid="no base64!")
    assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
    assert raw("PUT", path, body=b"x", comp="block", blockid=base64.b64encode(b"x" * 65).decode()).status == 400
    answer = raw("PUT", path, body=b"x", comp="block")
    assert answer.status == 400
    answer = raw("PUT", path, body=b"<BlockList><Latest>AA==</Latest>", comp="blocklist")
    assert (answer.status, answer.code) == (400, "InvalidXmlDocument")


def test_ranges(raw, container):
    content = random.Random(3).randbytes(200_000)
    container.upload_blob("ranged", content)
    path = f"/{container.container_name}/ranged"
    for asked, first, last in [("bytes=0-0", 0, 0), ("bytes=10-19", 10, 19), ("bytes=199990-", 199_990, 199_999),
                               ("bytes=199990-300000", 199_990, 199_999), ("bytes=0-199999", 0, 199_999)]:
        for name in ["Range", "x-ms-range"]:
            answer = raw("GET", path, {name: asked})
            assert answer.status == 206 and answer.body == content[first:last + 1]
            assert answer.headers["Content-Range"] == f"bytes {first}-{last}/200000"
            assert answer.headers["Content-Length"] == str(last - first + 1)
            # The MD5 of the blob is not that of a part.
            assert answer.headers["Content-MD5"] is None
            assert base64.b64decode(answer.headers["x-ms-blob-content-md5"]) == hashlib.md5(content).digest()
    answer = raw("GET", path, {"Range": "bytes=0-9", "x-ms-range": "bytes=20-29"})
    assert answer.body == content[20:30]
    answer = raw("GET", path, {"Range": "bytes=200000-"})
    assert (answer.status, answer.code) == (416, "InvalidRange")
    assert b"The range specified is invalid for the current size of the resource." in answer.body
    answer = raw("GET", path, {"x-ms-range": "bytes=0-99", "x-ms-range-get-content-md5": "true"})
    assert base64.b64decode(answer.headers["Content-MD5"]) == hashlib.md5(content[:100]).digest()
    whole = raw("GET", path)
    assert whole.status == 200 and whole.body == content and whole.headers["Accept-Ranges"] == "bytes"
    assert base64.b64decode(whole.headers["Content-MD5"]) == hashlib.md5(content).digest()
    container.upload_blob("large", b"x" * (4 * MIB + 1))
    large = f"/{container.container_name}/large"
    ask = {"x-ms-range": f"bytes=0-{4 * MIB}", "x-ms-range-get-content-md5": "true"}
    assert raw("GET", large, ask).status == 400
    container.upload_blob("empty", b"")
    assert raw("GET", f"/{container.container_name}/empty", {"Range": "bytes=0-9"}).status == 416
    assert read(container.get_blob_client("empty")) == b""
    head = raw("HEAD", path)
    assert head.status == 200 and head.headers["Content-Length"] == "200000" and head.body == b""


def test_wrong_checksums_commit_nothing(raw, container):
    path, content = f"/{container.container_name}/sums", b"checked content"
    md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    crc = base64.b64encode(crc64(content)).decode()
    wrong_crc = base64.b64encode(crc64(b"other")).decode()
    kind = {"x-ms-blob-type": "BlockBlob"}
    for headers, code in [({"Content-MD5": wrong}, "Md5Mismatch"), ({"x-ms-content-crc64": wrong_crc}, "Crc64Mismatch"),
                          ({"Content-MD5": "short"}, "InvalidMd5")]:
        for body in [content, content * 20_000]:
            answer = raw("PUT", path, {**kind, **headers}, body)
            assert (answer.status, answer.code) == (400, code)
            assert raw("HEAD", path).status == 404
            answer = raw("PUT", path, headers, body, comp="block", blockid="AAAA")
            assert (answer.status, answer.code) == (400, code)
            assert raw("GET", path, comp="blocklist", blocklisttype="all").status == 404
    both = {"Content-MD5": md5, "x-ms-content-crc64": crc}
    assert raw("PUT", path, {**kind, **both}, content).status == 400
    answer = raw("PUT", path, {**kind, "Content-MD5": md5}, content)
    assert answer.status == 201 and answer.headers["Content-MD5"] == md5
    answer = raw("PUT", path, {**kind, "x-ms-content-crc64": crc}, content)
    assert answer.status == 201 and answer.headers["x-ms-content-crc64"] == crc
    # What is kept as the blob's MD5 is what the client says it is.
    assert raw("PUT", path, {**kind, "x-ms-blob-content-md5": wrong}, b"other").status == 201
    assert raw("HEAD", path).headers["Content-MD5"] == wrong
    answer = raw("PUT", path, {"Content-MD5": wrong}, b"<BlockList></BlockList>", comp="blocklist")
    assert (answer.status, answer.code) == (400, "Md5Mismatch")
    assert raw("GET", path).body == b"other"
    blob = container.get_blob_client("validated")
    blob.upload_blob(b"x" * 100_000, validate_content=True)
    assert read(blob, validate_content=True) == b"x" * 100_000


def test_tags(service, container):
    name = container.container_name
    for number in range(4):
        blob = container.get_blob_client(f"tagged{number}")
        blob.upload_blob(b"x", tags={"project": "a + b=c" if number < 3 else "other", "number": str(number)})
    first = container.get_blob_client("tagged0")
    assert first.get_blob_tags() == {"project": "a + b=c", "number": "0"}
    before = first.get_blob_properties()
    assert before.tag_count == 2
    first.set_blob_tags({"project": "a + b=c", "number": "10", "more": ""})
    after = first.get_blob_properties()
    assert after.tag_count == 3 and (after.etag, after.last_modified) == (before.etag, before.last_modified)
    assert first.get_blob_tags() == {"project": "a + b=c", "number": "10", "more": ""}

    def found(expression, client=container):
        return [each.name for each in client.find_blobs_by_tags(expression)]

    assert found("\"project\"='a + b=c'") == ["tagged0", "tagged1", "tagged2"]
    assert found("\"project\"='a + b=c' AND \"number\">='1' AND \"number\"<'2'") == ["tagged0", "tagged1"]
    assert found("number='nothing'") == []
    assert found(f"@container='{name}' AND \"number\">'1'", service) == ["tagged0", "tagged2", "tagged3"]
    item = next(service.find_blobs_by_tags(f"@container='{name}' AND \"number\"='3'"))
    assert (item.name, item.container_name) == ("tagged3", name)
    assert item.tags == {"number": "3"}
    refused("InvalidQueryParameterValue", container.find_blobs_by_tags, "no filter", status=400)
    pages = [[each.name for each in page]
             for page in container.find_blobs_by_tags("\"project\">='a'", results_per_page=3).by_page()]
    assert sum(pages, []) == [f"tagged{number}" for number in range(4)] and len(pages[0]) <= 3
    with pytest.raises(HttpResponseError) as caught:
        first.set_blob_tags({f"t{number}": "x" for number in range(11)})
    assert caught.value.status_code == 400
    for tags in [{"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {"k": "a#b"}]:
        with pytest.raises(HttpResponseError) as caught:
            first.set_blob_tags(tags)
        assert caught.value.status_code == 400, tags
    first.set_blob_tags({})
    assert first.get_blob_tags() == {} and found("\"number\"='10'") == []
    listed = {each.name: each.tags for each in container.list_blobs(include=["tags"])}
    assert listed["tagged3"] == {"project": "other", "number": "3"}


def test_tiers(container):
    blob = container.get_blob_client("tiered")
    blob.upload_blob(b"x", standard_blob_tier=StandardBlobTier.COOL)
    before = blob.get_blob_properties()
    assert before.blob_tier == "Cool" and not before.blob_tier_inferred
    blob.set_standard_blob_tier("Hot")
    after = blob.get_blob_properties()
    assert after.blob_tier == "Hot" and after.etag == before.etag and after.blob_tier_change_time
    blob.set_standard_blob_tier("Cold")
    assert blob.get_blob_properties().blob_tier == "Cold"
    assert next(container.list_blobs()).blob_tier == "Cold"
    with pytest.raises(HttpResponseError) as caught:
        blob.set_standard_blob_tier("Tepid")
    assert caught.value.status_code == 400
    # Who writes it anew without a word keeps the tier; what is archived must be brought back first.
    blob.upload_blob(b"y", overwrite=True)
    assert blob.get_blob_properties().blob_tier == "Cold"
    blob.set_standard_blob_tier("Archive")
    archived = "This operation is not permitted on an archived blob."
    refused("BlobArchived", blob.download_blob, status=409, message=archived)
    refused("BlobArchived", blob.upload_blob, b"z", overwrite=True, status=409, message=archived)
    assert blob.get_blob_properties().blob_tier == "Archive"
    blob.delete_blob()


def source(blob):
    token = generate_blob_sas(ACCOUNT, blob.container_name, blob.blob_name, account_key=KEY,
                              permission=BlobSasPermissions(read=True), expiry=in_an_hour())
    return f"{blob.url}?{token}"


def test_copies(container):
    original = container.get_blob_client("original")
    content = random.Random(4).randbytes(150_000)
    original.upload_blob(content, metadata={"Who": "first"}, content_settings=ContentSettings("text/plain"),
                         tags={"t": "1"})
    copy = container.get_blob_client("copy")
    started = copy.start_copy_from_url(original.url)
    assert started["copy_id"]
    until = time.monotonic() + 60
    while (found := copy.get_blob_properties()).copy.status == "pending":
        assert time.monotonic() < until, "it is copied for ever"
        time.sleep(0.05)
    assert found.copy.status == "success" and found.copy.id == started["copy_id"]
    assert found.copy.progress == "150000/150000" and found.copy.source.split("?")[0] == original.url
    assert found.metadata == {"Who": "first"} and found.content_settings.content_type == "text/plain"
    assert read(copy) == content
    refused("NoPendingCopyOperation", copy.abort_copy, started["copy_id"], status=409)
    done = copy.start_copy_from_url(source(original), metadata={"Who": "second"}, requires_sync=True)
    assert done["copy_status"] == "success" and copy.get_blob_properties().metadata == {"Who": "second"}
    assert read(copy) == content
    # A copy is a blob of its own.
    original.upload_blob(b"changed", overwrite=True)
    assert read(copy) == content
    original.delete_blob()
    assert read(copy) == content
    with pytest.raises(HttpResponseError) as caught:
        copy.start_copy_from_url(original.url)
    assert caught.value.status_code == 404
    assert read(copy) == content


def test_conditions_on_the_source_of_a_copy(container):
    original, copy = container.get_blob_client("original"), container.get_blob_client("copy")
    etag = original.upload_blob(b"content")["etag"]
    refused("SourceConditionNotMet", copy.start_copy_from_url, original.url, source_etag='"0x8D0000000000000"',
            source_match_condition=MatchConditions.IfNotModified, status=412)
    refused("BlobNotFound", copy.get_blob_properties)
    copy.start_copy_from_url(original.url, source_etag=etag, source_match_condition=MatchConditions.IfNotModified)
    assert read(copy) == b"content"
    refused("LeaseNotPresentWithBlobOperation", copy.start_copy_from_url, original.url,
            destination_lease=str(uuid.uuid4()), status=412)
    # A lease of the source is in nobody's way.
    lease = original.acquire_lease(-1)
    copy.start_copy_from_url(original.url)
    original.delete_blob(lease=lease)


def test_contents_from_addresses(container):
    original = container.get_blob_client("original")
    content = random.Random(5).randbytes(200_000)
    original.upload_blob(content, metadata={"Kept": "no"}, content_settings=ContentSettings("text/plain"))
    whole = container.get_blob_client("whole")
    whole.upload_blob_from_url(source(original), metadata={"New": "yes"})
    assert read(whole) == content and whole.get_blob_properties().metadata == {"New": "yes"}
    assert whole.get_blob_properties().content_settings.content_type == "text/plain"
    parts = container.get_blob_client("parts")
    parts.stage_block_from_url(block_id(1), source(original), 100, 1000)
    parts.stage_block_from_url(block_id(2), source(original), 0, 50)
    parts.commit_block_list([block_id(1), block_id(2)])
    assert read(parts) == content[100:1100] + content[:50]
    # Only what this server has is fetched, and only with a right to it.
    for address in ["http://169.254.169.254/latest/meta-data", "http://localhost:1/x", original.url + "?sv=2020-12-06"]:
        with pytest.raises(HttpResponseError) as caught:
            whole.upload_blob_from_url(address)
        assert 400 <= caught.value.status_code < 500, address
    assert read(whole) == content


def test_account_information(service, container):
    for found in [service.get_account_information(), container.get_account_information()]:
        assert found["sku_name"] and found["account_kind"]
