"""Conditions and leases: what the service evaluates before it does what a request asks, and in which order."""

import base64
import email.utils
import itertools
import time
import uuid

import pytest
from azure.core import MatchConditions
from azure.storage.blob import BlobLeaseClient

from blob_help import container, connect, in_an_hour, raw, read, refused, service  # noqa: F401: fixtures

OTHER = '"0x8D0000000000000"'
PUT = {"x-ms-blob-type": "BlockBlob"}


def date(moment):
    return email.utils.format_datetime(moment, usegmt=True)


@pytest.fixture
def path(container):
    container.upload_blob("conditional", b"content", tags={"color": "red"})
    return f"/{container.container_name}/conditional"


def writes(raw, path):
    """Every request that changes a blob, as a function of its headers."""
    def put(headers, body=b"", **query):
        return lambda more: raw("PUT", path, {**headers, **more}, body, **query)

    return {
        "put": put(PUT, b"content"),
        "metadata": put({"x-ms-meta-a": "b"}, comp="metadata"),
        "properties": put({"x-ms-blob-content-type": "text/plain"}, comp="properties"),
        "block list": put({}, b"<BlockList></BlockList>", comp="blocklist"),
        "snapshot": put({}, comp="snapshot"),
        "delete": lambda more: raw("DELETE", path, {"x-ms-delete-snapshots": "include", **more}),
    }


def test_conditions_of_reads(raw, path):
    head = raw("HEAD", path)
    etag, modified = head.headers["ETag"], head.headers["Last-Modified"]
    past, future = date(in_an_hour(-1)), date(in_an_hour())
    met = [{"If-Match": etag}, {"If-Match": "*"}, {"If-None-Match": OTHER}, {"If-Modified-Since": past},
           {"If-Unmodified-Since": future}, {"If-Unmodified-Since": modified},
           {"If-Match": etag, "If-Unmodified-Since": future}, {"x-ms-if-tags": "\"color\"='red'"},
           # One of these two is enough.
           {"If-None-Match": OTHER, "If-Modified-Since": future}, {"If-None-Match": etag, "If-Modified-Since": past}]
    unchanged = [{"If-None-Match": etag}, {"If-Modified-Since": future}, {"If-Modified-Since": modified},
                 {"If-None-Match": etag, "If-Modified-Since": future}]
    failed = [{"If-Match": OTHER}, {"If-Match": 'W/"wrong"'}, {"If-Unmodified-Since": past},
              {"If-Match": OTHER, "If-Unmodified-Since": future}, {"If-Match": OTHER, "If-None-Match": etag},
              {"x-ms-if-tags": "\"color\"='blue'"}]
    for method, query in itertools.product(["GET", "HEAD"], [{}, {"comp": "metadata"}]):
        for headers in met:
            answer = raw(method, path, headers, **query)
            assert answer.status == 200, (method, headers, answer)
        for headers in unchanged:
            answer = raw(method, path, headers, **query)
            assert (answer.status, answer.code, answer.body) == (304, "ConditionNotMet", b""), (method, headers)
        for headers in failed:
            answer = raw(method, path, headers, **query)
            assert (answer.status, answer.code) == (412, "ConditionNotMet"), (method, headers)
            text = b"The condition specified using HTTP conditional header(s) is not met."
            assert text in answer.body or method == "HEAD"
        answer = raw(method, path, {"If-None-Match": "*"}, **query)
        assert (answer.status, answer.code) == (400, "UnsatisfiableCondition"), method
    answer = raw("GET", path, {"Range": "bytes=0-3", "If-Match": etag})
    assert (answer.status, answer.body) == (206, b"cont")


def test_conditions_of_reads_of_what_is_not_there(raw, container):
    path = f"/{container.container_name}/missing"
    for method in ["GET", "HEAD"]:
        for headers in [{}, {"If-None-Match": OTHER}, {"If-Modified-Since": date(in_an_hour())},
                        {"If-Unmodified-Since": date(in_an_hour(-1))}]:
            answer = raw(method, path, headers)
            assert (answer.status, answer.code) == (404, "BlobNotFound"), headers


@pytest.mark.parametrize("name", ["put", "metadata", "properties", "block list", "snapshot", "delete"])
def test_conditions_of_writes(raw, path, name):
    def made():
        assert raw("PUT", path, {**PUT, "x-ms-tags": "color=red"}, b"content").status == 201
        head = raw("HEAD", path)
        return head.headers["ETag"], head.headers["Last-Modified"]

    past, future = date(in_an_hour(-1)), date(in_an_hour())
    write = writes(raw, path)[name]
    etag, modified = made()
    failed = [{"If-Match": OTHER}, {"If-Match": 'W/"wrong"'}, {"If-None-Match": etag}, {"If-Modified-Since": future},
              {"If-Modified-Since": modified}, {"If-Unmodified-Since": past}, {"x-ms-if-tags": "\"color\"='blue'"}]
    for headers in failed:
        answer = write(headers)
        assert (answer.status, answer.code) == (412, "ConditionNotMet"), headers
        assert raw("HEAD", path).headers["ETag"] == etag, headers
    met = [lambda: {"If-Match": etag}, lambda: {"If-Match": "*"}, lambda: {"If-None-Match": OTHER},
           lambda: {"If-Modified-Since": past}, lambda: {"If-Unmodified-Since": future},
           lambda: {"If-Unmodified-Since": modified}, lambda: {"x-ms-if-tags": "\"color\"='red'"}]
    for headers in met:
        answer = write(headers())
        assert answer.status in [200, 201, 202], (headers(), answer)
        etag, modified = made()


def test_conditions_of_creation(raw, container):
    path = f"/{container.container_name}/created"
    for query, headers, body in [({}, PUT, b"x"), ({"comp": "blocklist"}, {}, b"<BlockList></BlockList>"),
                                 ({}, {"x-ms-blob-type": "AppendBlob"}, b""),
                                 ({}, {"x-ms-blob-type": "PageBlob", "x-ms-blob-content-length": "512"}, b"")]:
        for condition in [{"If-Match": "*"}, {"If-Match": OTHER}]:
            answer = raw("PUT", path, {**headers, **condition}, body, **query)
            assert (answer.status, answer.code) == (412, "ConditionNotMet"), (headers, condition)
            assert raw("HEAD", path).status == 404
        assert raw("PUT", path, {**headers, "If-None-Match": "*"}, body, **query).status == 201
        answer = raw("PUT", path, {**headers, "If-None-Match": "*"}, body, **query)
        assert (answer.status, answer.code) == (409, "BlobAlreadyExists"), headers
        assert raw("DELETE", path).status == 202
    answer = raw("DELETE", path, {"If-Match": "*"})
    assert answer.status in [404, 412]


def test_one_of_many_that_create_wins(doors, container):
    import threading
    answers, barrier = [], threading.Barrier(6)

    def create(number):
        with connect(doors) as client:
            blob = client.get_blob_client(container.container_name, "race")
            barrier.wait()
            try:
                blob.upload_blob(str(number).encode(), overwrite=False)
                answers.append(number)
            except Exception as error:  # noqa: BLE001: looked at below
                assert error.error_code == "BlobAlreadyExists", error

    racers = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(answers) == 1 and read(container.get_blob_client("race")) == str(answers[0]).encode()


def test_counting_with_etags_loses_nothing(doors, container):
    import threading
    container.upload_blob("counter", b"0")

    def count():
        with connect(doors) as client:
            blob = client.get_blob_client(container.container_name, "counter")
            done = 0
            while done < 10:
                found = blob.download_blob()
                value = int(found.readall())
                try:
                    blob.upload_blob(str(value + 1).encode(), overwrite=True, etag=found.properties.etag,
                                     match_condition=MatchConditions.IfNotModified)
                    done += 1
                except Exception as error:  # noqa: BLE001: looked at here
                    assert error.error_code == "ConditionNotMet", error

    counters = [threading.Thread(target=count) for _ in range(4)]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join()
    assert read(container.get_blob_client("counter")) == b"40"


def test_leases_of_blobs(container):
    blob = container.get_blob_client("leased")
    etag = blob.upload_blob(b"content")["etag"]
    for wrong in [14, 61, 0]:
        refused("InvalidHeaderValue", blob.acquire_lease, wrong, status=400)
    lease = blob.acquire_lease(15)
    found = blob.get_blob_properties()
    assert (found.lease.status, found.lease.state, found.lease.duration) == ("locked", "leased", "fixed")
    # A lease changes nothing of the blob.
    assert found.etag == etag
    other = str(uuid.uuid4())
    refused("LeaseAlreadyPresent", blob.acquire_lease, 15, status=409, message="There is already a lease present.")
    blob.acquire_lease(-1, lease_id=lease.id)
    assert blob.get_blob_properties().lease.duration == "infinite"
    missing = "There is currently a lease on the blob and no lease ID was specified in the request."
    mismatch = "The lease ID specified did not match the lease ID for the blob."
    for call, arguments in [(blob.upload_blob, {"data": b"x", "overwrite": True}), (blob.delete_blob, {}),
                            (blob.set_blob_metadata, {"metadata": {}}), (blob.set_http_headers, {}),
                            (blob.stage_block, {"block_id": "AAAA", "data": b"x"}),
                            (blob.commit_block_list, {"block_list": []}), (blob.create_append_blob, {})]:
        refused("LeaseIdMissing", call, **arguments, status=412, message=missing)
        refused("LeaseIdMismatchWithBlobOperation", call, **arguments, lease=other, status=412, message=mismatch)
    assert read(blob) == b"content" == read(blob, lease=lease.id)
    refused("LeaseIdMismatchWithBlobOperation", blob.download_blob, lease=other, status=412)
    refused("LeaseIdMismatchWithBlobOperation", blob.get_blob_properties, lease=other, status=412)
    blob.create_snapshot()
    blob.upload_blob(b"by the holder", overwrite=True, lease=lease.id)
    assert blob.get_blob_properties().lease.state == "leased"
    before = lease.id
    lease.change(other)
    assert lease.id == other
    refused("LeaseIdMismatchWithBlobOperation", blob.set_blob_metadata, {}, lease=before)
    refused("LeaseIdMismatchWithLeaseOperation", BlobLeaseClient(blob, before).renew, status=409)
    refused("LeaseIdMismatchWithLeaseOperation", BlobLeaseClient(blob, before).release, status=409)
    lease.renew()
    lease.release()
    found = blob.get_blob_properties().lease
    assert (found.status, found.state, found.duration) == ("unlocked", "available", None)
    refused("LeaseNotPresentWithBlobOperation", blob.upload_blob, b"x", overwrite=True, lease=other, status=412)
    refused("LeaseIdMismatchWithLeaseOperation", BlobLeaseClient(blob, other).renew, status=409)
    blob.delete_blob(delete_snapshots="include")


def test_leases_are_broken(container):
    blob = container.get_blob_client("broken")
    blob.upload_blob(b"content")
    lease = blob.acquire_lease(-1)
    assert lease.break_lease(lease_break_period=2) in [1, 2]
    assert blob.get_blob_properties().lease.state == "breaking"
    refused("LeaseAlreadyPresent", blob.acquire_lease, 15, status=409)
    refused("LeaseIsBreakingAndCannotBeAcquired", blob.acquire_lease, 15, lease_id=lease.id, status=409)
    refused("LeaseIsBreakingAndCannotBeChanged", lease.change, str(uuid.uuid4()), status=409)
    refused("LeaseIsBrokenAndCannotBeRenewed", lease.renew, status=409)
    refused("LeaseIdMissing", blob.set_blob_metadata, {})
    blob.set_blob_metadata({}, lease=lease.id)
    until = time.monotonic() + 60
    while blob.get_blob_properties().lease.state == "breaking":
        assert time.monotonic() < until, "it breaks for ever"
        time.sleep(0.1)
    found = blob.get_blob_properties().lease
    assert (found.status, found.state) == ("unlocked", "broken")
    refused("LeaseIsBrokenAndCannotBeRenewed", lease.renew, status=409)
    blob.set_blob_metadata({"anybody": "may"})
    again = blob.acquire_lease(-1)
    assert again.break_lease(lease_break_period=0) == 0
    assert blob.get_blob_properties().lease.state == "broken"
    # To break what is broken is no error; there has to be one, though.
    again.break_lease(lease_break_period=0)
    never = container.get_blob_client("never")
    never.upload_blob(b"x")
    refused("LeaseNotPresentWithLeaseOperation", BlobLeaseClient(never).break_lease, status=409,
            message="There is currently no lease on the blob.")
    again.release()
    assert blob.get_blob_properties().lease.state == "available"


def test_leases_end_by_themselves(container):
    blob = container.get_blob_client("ends")
    blob.upload_blob(b"content")
    lease = blob.acquire_lease(15)
    refused("LeaseIdMissing", blob.delete_blob)
    until = time.monotonic() + 60
    while blob.get_blob_properties().lease.state == "leased":
        assert time.monotonic() < until, "it does not end"
        time.sleep(0.2)
    found = blob.get_blob_properties().lease
    assert (found.status, found.state) == ("unlocked", "expired")
    # Nobody has had it meanwhile.
    lease.renew()
    assert blob.get_blob_properties().lease.state == "leased"
    lease.release()


def test_leases_of_containers(service):
    client = service.create_container("leased" + uuid.uuid4().hex)
    lease = client.acquire_lease(-1)
    found = client.get_container_properties().lease
    assert (found.status, found.state, found.duration) == ("locked", "leased", "infinite")
    refused("LeaseAlreadyPresent", client.acquire_lease, 15, status=409)
    refused("LeaseIdMissing", client.delete_container, status=412,
            message="There is currently a lease on the container and no lease ID was specified in the request.")
    other = str(uuid.uuid4())
    refused("LeaseIdMismatchWithContainerOperation", client.delete_container, lease=other, status=412,
            message="The lease ID specified did not match the lease ID for the container.")
    refused("LeaseIdMismatchWithContainerOperation", client.get_container_properties, lease=other, status=412)
    # It only protects the container itself.
    client.upload_blob("x", b"x")
    client.set_container_metadata({"a": "b"})
    lease.change(other)
    lease.renew()
    assert lease.break_lease(lease_break_period=0) == 0
    assert client.get_container_properties().lease.state == "broken"
    lease = client.acquire_lease(15, lease_id=other)
    lease.release()
    refused("LeaseNotPresentWithContainerOperation", client.delete_container, lease=other, status=412)
    lease = client.acquire_lease(-1)
    client.delete_container(lease=lease)


def test_a_lease_comes_before_conditions_or_after(raw, path, container):
    """Of several reasons one is told; which of them, SDKs do not depend on, but nothing is done in any case."""
    lease = container.get_blob_client("conditional").acquire_lease(-1)
    etag = raw("HEAD", path).headers["ETag"]
    for name, write in writes(raw, path).items():
        if name == "snapshot":
            continue
        answer = write({"If-Match": OTHER})
        assert answer.status == 412 and answer.code in ["ConditionNotMet", "LeaseIdMissing"], name
        answer = write({"If-Match": OTHER, "x-ms-lease-id": lease.id})
        assert (answer.status, answer.code) == (412, "ConditionNotMet"), name
        answer = write({"If-Match": etag})
        assert (answer.status, answer.code) == (412, "LeaseIdMissing"), name
    assert raw("HEAD", path).headers["ETag"] == etag
    lease.release()


def test_tags_are_conditions(container):
    blob = container.get_blob_client("tagged")
    blob.upload_blob(b"x", tags={"state": "draft", "owner": "a"})
    refused("ConditionNotMet", blob.upload_blob, b"y", overwrite=True,
            if_tags_match_condition="\"state\"='final'", status=412)
    refused("ConditionNotMet", blob.delete_blob, if_tags_match_condition="\"state\"<>'draft'")
    refused("ConditionNotMet", blob.set_blob_tags, {}, if_tags_match_condition="\"owner\">'a'")
    refused("ConditionNotMet", blob.download_blob, if_tags_match_condition="\"none\"='x'")
    assert read(blob, if_tags_match_condition="\"state\"='draft' AND \"owner\"<='a'") == b"x"
    assert read(blob, if_tags_match_condition="\"state\"='final' OR \"owner\"='a'") == b"x"


def test_base64_block_names_are_kept_apart_by_condition(container):
    """Put Block knows no conditions but the lease."""
    blob = container.get_blob_client("blocks")
    names = [base64.b64encode(bytes([number])).decode() for number in range(3)]
    etag = blob.upload_blob(b"x")["etag"]
    for name in names:
        blob.stage_block(name, name.encode())
    assert blob.get_blob_properties().etag == etag
    refused("ConditionNotMet", blob.commit_block_list, names, etag=OTHER,
            match_condition=MatchConditions.IfNotModified)
    # What was refused is still there to be committed.
    blob.commit_block_list(names, etag=etag, match_condition=MatchConditions.IfNotModified)
    assert read(blob) == "".join(names).encode()
