"""Append blobs, page blobs, snapshots and deleted blobs with the unmodified Python SDK."""

import base64
import hashlib
import random
import threading

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobType, RetentionPolicy, SequenceNumberAction

from blob_help import MIB, container, raw, read, refused, service  # noqa: F401: fixtures

PAGE = 512


def ranges(blob, **options):
    """The page ranges of a blob as triples: first byte, last byte, whether it was cleared."""
    return [(found.start, found.end, found.cleared) for found in blob.list_page_ranges(**options)]


def test_append_blobs_grow(container):
    blob = container.get_blob_client("log")
    blob.create_append_blob(metadata={"MixedCase": "yes"})
    parts = [random.Random(number).randbytes(1000 + 60_000 * number) for number in range(5)]
    for number, part in enumerate(parts):
        done = blob.append_block(part)
        assert done["blob_append_offset"] == str(sum(len(each) for each in parts[:number]))
        assert done["blob_committed_block_count"] == number + 1
    found = blob.get_blob_properties()
    assert found.blob_type == BlobType.APPENDBLOB and found.append_blob_committed_block_count == 5
    assert found.etag == done["etag"] and found.size == sum(map(len, parts)) and found.metadata == {"MixedCase": "yes"}
    whole = b"".join(parts)
    assert read(blob) == whole
    for first, length in [(0, 1), (999, 2), (60_000, 150_000), (len(whole) - 5, 5)]:
        assert read(blob, offset=first, length=length) == whole[first:first + length]
    # Made again it is empty.
    blob.create_append_blob()
    assert read(blob) == b"" and blob.get_blob_properties().append_blob_committed_block_count in [0, None]
    blob.upload_blob(b"by the", blob_type=BlobType.APPENDBLOB)
    blob.upload_blob(b" SDK", blob_type=BlobType.APPENDBLOB)
    assert read(blob) == b"by the SDK"


def test_conditions_of_appends(container):
    blob = container.get_blob_client("conditions")
    refused("BlobNotFound", blob.append_block, b"x", status=404)
    blob.create_append_blob()
    blob.append_block(b"12345", appendpos_condition=0)
    refused("AppendPositionConditionNotMet", blob.append_block, b"x", appendpos_condition=0, status=412,
            message="The append position condition specified was not met.")
    refused("MaxBlobSizeConditionNotMet", blob.append_block, b"678901", maxsize_condition=10, status=412,
            message="The max blob size condition specified was not met.")
    blob.append_block(b"67890", appendpos_condition=5, maxsize_condition=10)
    assert read(blob) == b"1234567890"
    other = container.get_blob_client("block")
    other.upload_blob(b"x")
    refused("InvalidBlobType", other.append_block, b"x", status=409,
            message="The blob type is invalid for this operation.")
    refused("InvalidBlobType", blob.stage_block, base64.b64encode(b"1").decode(), b"x", status=409)
    refused("InvalidBlobType", blob.upload_page, b"x" * PAGE, 0, PAGE, status=409)


def test_appends_of_many_at_once(container):
    blob = container.get_blob_client("together")
    blob.create_append_blob()
    lines = [[f"{writer}:{number}\n".encode() for number in range(15)] for writer in range(4)]
    answers = []

    def write(mine):
        for line in mine:
            answers.append((int(blob.append_block(line)["blob_append_offset"]), line))

    writers = [threading.Thread(target=write, args=(mine,)) for mine in lines]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    content = read(blob)
    assert sorted(content.splitlines(True)) == sorted(sum(lines, []))
    # Each was told where its own block is.
    assert all(content[offset:offset + len(line)] == line for offset, line in answers) and len(answers) == 60


def test_sealed_append_blobs_take_no_more(container):
    blob = container.get_blob_client("sealed")
    blob.create_append_blob()
    blob.append_block(b"x")
    refused("AppendPositionConditionNotMet", blob.seal_append_blob, appendpos_condition=5, status=412)
    sealed = blob.seal_append_blob()
    assert sealed["blob_sealed"] is True
    refused("BlobIsSealed", blob.append_block, b"y", status=409)
    found = blob.get_blob_properties()
    assert found.is_append_blob_sealed and read(blob) == b"x"
    assert next(container.list_blobs()).is_append_blob_sealed
    blob.set_blob_metadata({"still": "possible"})


def test_wrong_checksums_append_nothing(raw, container):
    blob = container.get_blob_client("sums")
    blob.create_append_blob()
    blob.append_block(b"first")
    path = f"/{container.container_name}/sums"
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    for body in [b"x", b"x" * 200_000]:
        answer = raw("PUT", path, {"Content-MD5": wrong}, body, comp="appendblock")
        assert (answer.status, answer.code) == (400, "Md5Mismatch")
        answer = raw("PUT", path, {"x-ms-content-crc64": "AAAAAAAAAAA="}, body, comp="appendblock")
        assert (answer.status, answer.code) == (400, "Crc64Mismatch")
    assert read(blob) == b"first"
    pages = container.get_blob_client("pages")
    pages.create_page_blob(PAGE)
    headers = {"x-ms-range": "bytes=0-511", "x-ms-page-write": "update", "Content-MD5": wrong}
    answer = raw("PUT", f"/{container.container_name}/pages", headers, b"x" * PAGE, comp="page")
    assert (answer.status, answer.code) == (400, "Md5Mismatch") and read(pages) == bytes(PAGE)


def test_pages_are_written_and_cleared(container):
    blob = container.get_blob_client("pages")
    size = 5 * MIB
    blob.create_page_blob(size, metadata={"MixedCase": "yes"}, sequence_number=7)
    assert ranges(blob) == [] and read(blob) == bytes(size)
    expected, chance = bytearray(size), random.Random(6)
    for _ in range(25):
        count = chance.choice([1, 1, 2, 17, 128, 200])
        first = chance.randrange(0, size // PAGE - count) * PAGE
        data = chance.randbytes(count * PAGE)
        done = blob.upload_page(data, first, len(data))
        assert done["blob_sequence_number"] == 7
        expected[first:first + len(data)] = data
        clear = chance.randrange(0, size // PAGE - 8) * PAGE
        blob.clear_page(clear, 8 * PAGE)
        expected[clear:clear + 8 * PAGE] = bytes(8 * PAGE)
    assert read(blob) == bytes(expected)
    assert read(blob, offset=1000, length=300_001) == bytes(expected[1000:301_001])
    found = blob.get_blob_properties()
    assert found.blob_type == BlobType.PAGEBLOB and found.page_blob_sequence_number == 7 and found.size == size
    # What is written, and nothing else, is listed; ranges that touch are one.
    listed = bytearray(size)
    before = -1
    for first, last, cleared in ranges(blob):
        assert first > before + 1 and first % PAGE == 0 and (last + 1) % PAGE == 0 and not cleared
        listed[first:last + 1] = expected[first:last + 1]
        before = last
    assert listed == expected


def test_page_ranges(container):
    blob = container.get_blob_client("ranges")
    blob.create_page_blob(100 * PAGE)
    blob.upload_page(b"a" * 4 * PAGE, 0, 4 * PAGE)
    blob.upload_page(b"b" * PAGE, 10 * PAGE, PAGE)
    blob.upload_page(b"c" * PAGE, 11 * PAGE, PAGE)
    blob.upload_page(b"d" * PAGE, 99 * PAGE, PAGE)
    assert ranges(blob) == [(0, 2047, False), (5120, 6143, False), (50_688, 51_199, False)]
    assert ranges(blob, offset=PAGE, length=10 * PAGE) == [(512, 2047, False), (5120, 5631, False)]
    blob.clear_page(PAGE, 2 * PAGE)
    assert ranges(blob) == [(0, 511, False), (1536, 2047, False), (5120, 6143, False), (50_688, 51_199, False)]
    pages = [[found.start for found in page] for page in blob.list_page_ranges(results_per_page=3).by_page()]
    assert sum(pages, []) == [0, 1536, 5120, 50_688] and len(pages[0]) <= 3
    snapshot = blob.create_snapshot()["snapshot"]
    blob.upload_page(b"e" * PAGE, 20 * PAGE, PAGE)
    blob.clear_page(10 * PAGE, PAGE)
    # A page that was written anew is a difference, though it may have the same content.
    blob.upload_page(b"a" * PAGE, 0, PAGE)
    found = sorted(ranges(blob, previous_snapshot=snapshot))
    assert found == [(0, 511, False), (5120, 5631, True), (10_240, 10_751, False)]
    snapshots = container.get_blob_client("ranges", snapshot=snapshot)
    assert ranges(snapshots) == [(0, 511, False), (1536, 2047, False), (5120, 6143, False), (50_688, 51_199, False)]
    assert read(snapshots, offset=10 * PAGE, length=2 * PAGE) == b"b" * PAGE + b"c" * PAGE
    assert read(blob, offset=10 * PAGE, length=2 * PAGE) == bytes(PAGE) + b"c" * PAGE


def test_snapshots_of_pages_stay(container):
    blob = container.get_blob_client("generations")
    size = 600 * PAGE
    blob.create_page_blob(size)
    content, chance, kept = bytearray(size), random.Random(7), {}
    for _ in range(4):
        for _ in range(6):
            count = chance.choice([1, 3, 140])
            first = chance.randrange(0, 600 - count) * PAGE
            if chance.random() < 0.3:
                blob.clear_page(first, count * PAGE)
                content[first:first + count * PAGE] = bytes(count * PAGE)
            else:
                data = chance.randbytes(count * PAGE)
                blob.upload_page(data, first, len(data))
                content[first:first + len(data)] = data
        kept[blob.create_snapshot()["snapshot"]] = bytes(content)
    blob.resize_blob(100 * PAGE)
    blob.clear_page(0, 100 * PAGE)
    for snapshot, expected in kept.items():
        assert read(container.get_blob_client("generations", snapshot=snapshot)) == expected
    assert read(blob) == bytes(100 * PAGE)


def test_page_blobs_are_resized_and_numbered(container):
    blob = container.get_blob_client("sized")
    blob.create_page_blob(4 * PAGE)
    blob.upload_page(b"x" * 4 * PAGE, 0, 4 * PAGE)
    blob.resize_blob(2 * PAGE)
    assert read(blob) == b"x" * 2 * PAGE and ranges(blob) == [(0, 1023, False)]
    # What was cut off does not come back.
    blob.resize_blob(6 * PAGE)
    assert read(blob) == b"x" * 2 * PAGE + bytes(4 * PAGE) and ranges(blob) == [(0, 1023, False)]
    refused("InvalidPageRange", blob.upload_page, b"x" * PAGE, 6 * PAGE, PAGE, status=416,
            message="The page range specified is invalid.")
    assert blob.set_sequence_number(SequenceNumberAction.Update, "11")["blob_sequence_number"] == 11
    assert blob.set_sequence_number(SequenceNumberAction.Max, "5")["blob_sequence_number"] == 11
    assert blob.set_sequence_number(SequenceNumberAction.Max, "12")["blob_sequence_number"] == 12
    assert blob.set_sequence_number(SequenceNumberAction.Increment)["blob_sequence_number"] == 13
    data = b"y" * PAGE
    for condition, good, bad in [("if_sequence_number_lte", 13, 12), ("if_sequence_number_lt", 14, 13),
                                 ("if_sequence_number_eq", 13, 14)]:
        refused("SequenceNumberConditionNotMet", blob.upload_page, data, 0, PAGE, **{condition: bad}, status=412)
        refused("SequenceNumberConditionNotMet", blob.clear_page, 0, PAGE, **{condition: bad}, status=412)
        blob.upload_page(data, 0, PAGE, **{condition: good})
    assert read(blob, offset=0, length=PAGE) == data


def test_page_requests_are_checked(raw, container):
    path = f"/{container.container_name}/checked"
    create = {"x-ms-blob-type": "PageBlob", "x-ms-blob-content-length": "1024"}
    for length in ["1000", "-512", "x", str(9 * 1024 ** 4)]:
        assert raw("PUT", path, {**create, "x-ms-blob-content-length": length}).status == 400
    assert raw("PUT", path, create).status == 201
    write = {"x-ms-page-write": "update"}
    for asked, size in [("bytes=0-510", 511), ("bytes=1-512", 512), ("bytes=0-511", 1024), ("bytes=0-1023", 512)]:
        answer = raw("PUT", path, {**write, "x-ms-range": asked}, b"x" * size, comp="page")
        assert answer.status in [400, 416], asked
    large = {**write, "x-ms-range": f"bytes=0-{4 * MIB + 511}"}
    assert raw("PUT", path, large, b"x" * (4 * MIB + 512), comp="page").status in [400, 413, 416]
    assert raw("GET", path).body == bytes(1024)
    assert raw("PUT", path, {"x-ms-blob-content-length": "1000"}, comp="properties").status in [400, 416]
    assert raw("HEAD", path).headers["Content-Length"] == "1024"


def test_huge_sparse_page_blobs(container):
    blob = container.get_blob_client("sparse")
    size = 1024 ** 4
    blob.create_page_blob(size)
    blob.upload_page(b"e" * PAGE, size - PAGE, PAGE)
    blob.upload_page(b"m" * PAGE, size // 2, PAGE)
    assert ranges(blob) == [(size // 2, size // 2 + 511, False), (size - 512, size - 1, False)]
    assert read(blob, offset=size - 1024, length=1024) == bytes(512) + b"e" * 512
    assert blob.get_blob_properties().size == size
    blob.clear_page(0, size // 2 + 512)
    assert ranges(blob) == [(size - 512, size - 1, False)]


def test_snapshots(container):
    blob = container.get_blob_client("snapped")
    blob.upload_blob(b"first", metadata={"v": "1"}, tags={"t": "1"})
    one = blob.create_snapshot()
    assert one["etag"] == blob.get_blob_properties().etag
    two = blob.create_snapshot(metadata={"Own": "yes"})
    blob.upload_blob(b"second", overwrite=True)
    three = blob.create_snapshot()
    assert one["snapshot"] < two["snapshot"] < three["snapshot"]
    clients = [container.get_blob_client("snapped", snapshot=each["snapshot"]) for each in [one, two, three]]
    assert [read(client) for client in clients] == [b"first", b"first", b"second"] and read(blob) == b"second"
    assert [client.get_blob_properties().metadata for client in clients] == [{"v": "1"}, {"Own": "yes"}, {}]
    assert clients[0].get_blob_properties().snapshot == one["snapshot"]
    listed = [each.snapshot for each in container.list_blobs(include=["snapshots"])]
    assert len(listed) == 4 and None in listed
    assert list(filter(None, listed)) == [one["snapshot"], two["snapshot"], three["snapshot"]]
    assert [each.snapshot for each in container.list_blobs()] == [None]
    refused("SnapshotsPresent", blob.delete_blob, status=409)
    clients[0].delete_blob()
    refused("BlobNotFound", clients[0].download_blob, status=404)
    assert read(clients[1]) == b"first"
    blob.delete_blob(delete_snapshots="only")
    assert [each.snapshot for each in container.list_blobs(include=["snapshots"])] == [None]
    refused("BlobNotFound", clients[1].download_blob)
    blob.create_snapshot()
    blob.delete_blob(delete_snapshots="include")
    assert list(container.list_blobs(include=["snapshots"])) == []
    refused("BlobNotFound", blob.create_snapshot, status=404)


def test_snapshots_of_blocks_and_appends_stay(container):
    blocks = container.get_blob_client("blocks")
    parts = {base64.b64encode(bytes([n])).decode(): random.Random(n).randbytes(100_000 + n) for n in range(3)}
    for name, part in parts.items():
        blocks.stage_block(name, part)
    blocks.commit_block_list(list(parts))
    snapshot = blocks.create_snapshot()["snapshot"]
    last = list(parts)[-1]
    blocks.commit_block_list([last])
    # A block that the blob has no more is not there to be committed again.
    refused("InvalidBlockList", blocks.commit_block_list, list(parts))
    old = container.get_blob_client("blocks", snapshot=snapshot)
    assert read(blocks) == parts[last] and read(old) == b"".join(parts.values())
    assert [block.id for block in old.get_block_list("committed")[0]] == list(parts)
    log = container.get_blob_client("log")
    log.create_append_blob()
    log.append_block(b"a" * 70_000)
    snapshot = log.create_snapshot()["snapshot"]
    log.append_block(b"b")
    assert read(container.get_blob_client("log", snapshot=snapshot)) == b"a" * 70_000
    assert read(log) == b"a" * 70_000 + b"b"
    log.create_append_blob()
    log.append_block(b"c")
    assert read(container.get_blob_client("log", snapshot=snapshot)) == b"a" * 70_000 and read(log) == b"c"


@pytest.fixture
def keeping(service):
    service.set_service_properties(delete_retention_policy=RetentionPolicy(enabled=True, days=2))
    yield
    service.set_service_properties(delete_retention_policy=RetentionPolicy(enabled=False))


def test_deleted_blobs_come_back(keeping, container):
    blob = container.get_blob_client("deleted")
    content = random.Random(8).randbytes(100_000)
    blob.upload_blob(content, metadata={"MixedCase": "kept"})
    snapshot = blob.create_snapshot()["snapshot"]
    blob.delete_blob(delete_snapshots="include")
    refused("BlobNotFound", blob.download_blob, status=404)
    assert list(container.list_blobs()) == [] and list(container.list_blobs(include=["snapshots"])) == []
    listed = [(each.name, each.deleted, each.remaining_retention_days) for each in
              container.list_blobs(include=["deleted"])]
    assert listed and listed[-1][:2] == ("deleted", True) and listed[-1][2] in [1, 2]
    blob.undelete_blob()
    assert read(blob) == content and blob.get_blob_properties().metadata == {"MixedCase": "kept"}
    assert read(container.get_blob_client("deleted", snapshot=snapshot)) == content
    assert not any(each.deleted for each in container.list_blobs(include=["deleted", "snapshots"]))
    # To undelete what is not deleted is no error.
    blob.undelete_blob()
    refused("BlobNotFound", container.get_blob_client("never").undelete_blob, status=404)


def test_overwritten_blobs_are_kept_too(keeping, container):
    blob = container.get_blob_client("overwritten")
    blob.upload_blob(b"old")
    blob.upload_blob(b"new", overwrite=True)
    assert read(blob) == b"new"
    found = {bool(each.deleted): each.snapshot for each in container.list_blobs(include=["deleted", "snapshots"])}
    assert found.keys() == {True, False} and found[False] is None and found[True]
    blob.undelete_blob()
    assert read(blob) == b"new"
    assert read(container.get_blob_client("overwritten", snapshot=found[True])) == b"old"
    blob.delete_blob(delete_snapshots="include")


def test_without_retention_deleted_is_gone(container):
    blob = container.get_blob_client("gone")
    blob.upload_blob(b"x")
    blob.delete_blob()
    with pytest.raises(HttpResponseError) as caught:
        blob.undelete_blob()
    assert caught.value.status_code == 404
    assert list(container.list_blobs(include=["deleted"])) == []


def test_a_name_can_be_taken_by_another_kind(container):
    blob = container.get_blob_client("kinds")
    blob.upload_blob(b"block")
    blob.create_append_blob()
    assert blob.get_blob_properties().blob_type == BlobType.APPENDBLOB and read(blob) == b""
    blob.create_page_blob(PAGE)
    assert blob.get_blob_properties().blob_type == BlobType.PAGEBLOB and read(blob) == bytes(PAGE)
    blob.upload_blob(b"block again", overwrite=True)
    assert blob.get_blob_properties().blob_type == BlobType.BLOCKBLOB and read(blob) == b"block again"


def test_appends_and_pages_from_addresses(container):
    from test_blob import source
    original = container.get_blob_client("original")
    content = random.Random(9).randbytes(100 * PAGE)
    original.upload_blob(content)
    log = container.get_blob_client("log")
    log.create_append_blob()
    log.append_block_from_url(source(original), source_offset=10, source_length=50_000)
    log.append_block_from_url(source(original), source_offset=0, source_length=10)
    assert read(log) == content[10:50_010] + content[:10]
    pages = container.get_blob_client("pages")
    pages.create_page_blob(100 * PAGE)
    pages.upload_pages_from_url(source(original), 2 * PAGE, 3 * PAGE, 4 * PAGE)
    assert read(pages) == bytes(2 * PAGE) + content[4 * PAGE:7 * PAGE] + bytes(95 * PAGE)
