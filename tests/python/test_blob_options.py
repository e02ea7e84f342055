"""What the options of the store do: public containers, limits, and where bytes lie."""

import os
import time
import urllib.error
import urllib.request

import pytest
from azure.core.exceptions import HttpResponseError

from blob_help import connect, read, refused
from conformance.server import DOORS, PATIENCE_S, Process

SMALL, LARGE = b"small", b"x" * 70_000


@pytest.fixture
def start(program, tmp_path):
    """Starts a server with options of the section `[blob]`, again and again on the same data."""
    running = []

    def started(**options):
        for process in running:
            process.stop()
        environment = {f"POLYSHARD__{door.upper()}__LISTEN": "127.0.0.1:0" for door in DOORS}
        environment |= {f"POLYSHARD__BLOB__{name.upper()}": str(value) for name, value in options.items()}
        running[:] = [Process(["--data", str(tmp_path / "data")], environment)]
        running[0].certificate = None
        return running[0]

    yield started
    for process in running:
        process.stop()


def objects(tmp_path):
    """The files of the folder of objects."""
    return [path for path in (tmp_path / "data" / "blobs").rglob("*") if path.is_file() and path.name.isalnum()
            and len(path.name) == 32]


def anonymous(url):
    """What somebody without a name is given: the status, and the content."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["x-ms-error-code"]


def test_public_containers(start):
    process = start(public_access="true")
    with connect(process) as service:
        container = service.create_container("public", public_access="blob")
        container.upload_blob("seen", b"by all")
        blob, listing = f"{process.blob}/public/seen", f"{process.blob}/public?restype=container&comp=list"
        assert container.get_container_properties().public_access == "blob"
        assert anonymous(blob) == (200, b"by all")
        assert anonymous(listing)[0] in [401, 403, 404]
        container.set_container_access_policy({}, public_access="container")
        status, body = anonymous(listing)
        assert status == 200 and b"<Name>seen</Name>" in body
        # Nobody writes without a name.
        ask = urllib.request.Request(blob, data=b"x", method="PUT", headers={"x-ms-blob-type": "BlockBlob"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(ask)
        assert caught.value.code in [401, 403, 404]
        container.set_container_access_policy({})
        assert anonymous(blob)[0] in [401, 403, 404] and anonymous(listing)[0] in [401, 403, 404]
        container.set_container_access_policy({}, public_access="container")
    # An operator who takes it back closes what was open.
    process = start(public_access="false")
    assert anonymous(f"{process.blob}/public/seen")[0] in [401, 403, 404, 409]
    with connect(process) as service:
        assert read(service.get_blob_client("public", "seen")) == b"by all"


def test_an_account_is_told_to_come_later(start):
    process = start(account_requests_max=2)
    with connect(process) as service:
        seen, container = [], service.create_container("busy")
        for number in range(20):
            try:
                container.upload_blob(str(number), b"x")
            except HttpResponseError as error:
                seen.append(error)
        assert seen, "nothing was refused"
        for error in seen:
            assert error.status_code == 503 and error.error_code == "ServerBusy", error
            assert float(error.response.headers["Retry-After"]) > 0


def test_a_blob_has_limits_of_its_own(start):
    process = start(requests_max=2)
    with connect(process) as service:
        container = service.create_container("limits")
        for name in ["hot", "cold"]:
            container.upload_blob(name, b"x")
        refusals = 0
        for _ in range(20):
            try:
                read(container.get_blob_client("hot"))
            except HttpResponseError as error:
                assert (error.status_code, error.error_code) == (503, "ServerBusy"), error
                refusals += 1
        assert refusals and read(container.get_blob_client("cold")) == b"x"


def test_bytes_lie_in_rows_or_in_objects(start, tmp_path):
    process = start()
    with connect(process) as service:
        container = service.create_container("bytes")
        container.upload_blob("small", SMALL)
        assert objects(tmp_path) == []
        container.upload_blob("large", LARGE)
        assert [path.read_bytes() for path in objects(tmp_path)] == [LARGE]
    # What is there stays as it is when the option changes.
    process = start(inline_bytes_max=0)
    with connect(process) as service:
        container = service.get_container_client("bytes")
        container.upload_blob("also", SMALL)
        assert sorted(path.stat().st_size for path in objects(tmp_path)) == [len(SMALL), len(LARGE)]
        assert [read(container.get_blob_client(name)) for name in ["small", "large", "also"]] == [SMALL, LARGE, SMALL]


@pytest.mark.skipif(not os.environ.get("POLYSHARD_LONG"), reason="it waits for rounds of the sweep")
def test_bytes_that_no_blob_has_are_removed(start, tmp_path):
    process = start(keep_removed_s=0)
    with connect(process) as service:
        container = service.create_container("removed")
        for name in ["kept", "deleted", "overwritten"]:
            container.upload_blob(name, LARGE)
        container.get_blob_client("staged").stage_block("AAAA", LARGE)
        container.delete_blob("deleted")
        container.upload_blob("overwritten", SMALL, overwrite=True)
        container.upload_blob("staged", SMALL, overwrite=True)
        until = time.monotonic() + 3 * PATIENCE_S
        while len(objects(tmp_path)) > 1:
            assert time.monotonic() < until, objects(tmp_path)
            time.sleep(0.2)
        assert read(container.get_blob_client("kept")) == LARGE
        refused("BlobNotFound", container.get_blob_client("deleted").download_blob)
