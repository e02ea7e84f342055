"""Listing blobs with the unmodified Python SDK: prefixes, delimiters, pages, odd names, and many blobs."""

import random
import urllib.parse
import xml.etree.ElementTree

import pytest
from azure.storage.blob import BlobPrefix

from blob_help import container, raw, read, refused, service  # noqa: F401: fixtures

# Names with every character that a URL, XML or a header could trip over.
ODD = ["a", "A", "a/b", "a/", "a//b", "a//", "b b", "b+b", "%", "%25", "%2F", "a%2Fb", "%C3%BC", "ü", "日本", "😀",
       "\U0010ffff", "e\u0301", "é", "&", "a=b&c", "#x", "?y", "a?b#c", "'", "''", '"', "<x>", "{x}", "[y]", "(p)",
       "a:b;c,d", "~!@$^*_-|`", "\u200b", "\u00a0", "\ufeff", "a\u2028b", "back\\slash", "a.b", "..x", "x..", "日" * 300,
       "z" * 1024, " lead", "trail ", "tab\tin", "line\nfeed", "carriage\rreturn", "\x01", "in\x1fside", "\ufffe",
       "$web", "comp=list", "a&comp=tags"]


def names(found):
    return [each.name for each in found]


def by_bytes(several):
    return sorted(several, key=lambda name: name.encode())


def test_odd_names(container):
    for name in ODD:
        blob = container.get_blob_client(name)
        blob.upload_blob(name.encode(), metadata={"Is": "odd"})
        assert read(blob) == name.encode(), name
        assert blob.get_blob_properties().metadata == {"Is": "odd"}
    assert names(container.list_blobs()) == by_bytes(ODD)
    pages = [names(page) for page in container.list_blobs(results_per_page=3).by_page()]
    assert sum(pages, []) == by_bytes(ODD) and all(len(page) <= 3 for page in pages)
    for name in ODD:
        found = names(container.list_blobs(name_starts_with=name))
        assert found == by_bytes(other for other in ODD if other.startswith(name)), name
    for name in ODD:
        container.delete_blob(name)
    assert list(container.list_blobs()) == []


def test_names_are_not_normalised(raw, container):
    """The SDK's HTTP library would take the dots out before it sends a path."""
    path = f"/{container.container_name}"
    odd = ["x/./y", "x/../y", "x/y", "./x", "x//y", "x%2Fz", "x%20y", "%2E%2E/x"]
    for name in odd:
        answer = raw("PUT", f"{path}/{name}", {"x-ms-blob-type": "BlockBlob"}, name.encode())
        assert answer.status == 201, name
    for name in odd:
        assert raw("GET", f"{path}/{name}").body == name.encode()
    # Decoded once.
    assert names(container.list_blobs()) == by_bytes(map(urllib.parse.unquote, odd))
    assert raw("GET", f"{path}/x%2Fy").body == b"x/y"
    assert raw("GET", f"{path}/x%252Fy").status == 404


def level(container, **options):
    """What one level of names holds: blobs by name, prefixes with their delimiter."""
    return sum(levels(container, **options), [])


def levels(container, **options):
    """The same by pages. The SDK puts the prefixes of a page before its blobs."""
    return [by_bytes(names(page)) for page in container.walk_blobs(**options).by_page()]


def test_levels_by_delimiter(container):
    every = ["a", "a-b", "a/1", "a/2", "a/b/1", "a/b/2", "a//x", "b/1", "b/c/d/e", "c", "é/x", "é", "z/"]
    for name in every:
        container.upload_blob(name, b"x")
    assert level(container) == ["a", "a-b", "a/", "b/", "c", "z/", "é", "é/"]
    assert level(container, name_starts_with="a/") == ["a//", "a/1", "a/2", "a/b/"]
    assert level(container, name_starts_with="a") == ["a", "a-b", "a/"]
    assert level(container, name_starts_with="a//") == ["a//x"]
    assert level(container, name_starts_with="b/c/d") == ["b/c/d/"]
    assert level(container, name_starts_with="nothing") == []
    assert level(container, delimiter="-") == ["a", "a-", "a//x", "a/1", "a/2", "a/b/1", "a/b/2", "b/1", "b/c/d/e", "c",
                                               "z/", "é", "é/x"]
    assert level(container, delimiter="/b") == ["a", "a-b", "a//x", "a/1", "a/2", "a/b", "b/1", "b/c/d/e", "c", "z/",
                                                "é", "é/x"]
    # A marker between pages may lie at a prefix: its blobs are not told again.
    for size in [1, 2, 3]:
        pages = levels(container, results_per_page=size)
        assert sum(pages, []) == ["a", "a-b", "a/", "b/", "c", "z/", "é", "é/"], size
        assert all(len(page) <= size for page in pages)
    found = list(container.walk_blobs(name_starts_with="b/"))
    assert {each.name: isinstance(each, BlobPrefix) for each in found} == {"b/1": False, "b/c/": True}


def test_pages_go_on_while_names_come_and_go(container):
    every = [f"n{number:03}" for number in range(40)]
    for name in every:
        container.upload_blob(name, b"x")
    pages = container.list_blobs(results_per_page=3).by_page()
    first = names(next(pages))
    assert first == every[:3]
    # The marker's own name may be gone, and others come before and behind it.
    container.delete_blob("n002")
    container.delete_blob("n003")
    container.upload_blob("n0000", b"x")
    container.upload_blob("n0035", b"x")
    rest = sum((names(page) for page in pages), [])
    assert rest == by_bytes([*every[4:], "n0035"])
    now = by_bytes([*every[:2], *every[4:], "n0000", "n0035"])
    pages = container.list_blobs(results_per_page=5).by_page()
    assert names(next(pages)) == now[:5]
    # A token outlives the client that had it.
    again = container.list_blobs(results_per_page=5).by_page(continuation_token=pages.continuation_token)
    assert sum(map(names, again), []) == now[5:]


def test_what_listings_include(container):
    blob = container.get_blob_client("full")
    blob.upload_blob(b"content", metadata={"MixedCase": "a<&>b"}, tags={"color": "red"})
    container.get_blob_client("copied").start_copy_from_url(blob.url)
    container.get_blob_client("waiting").stage_block("AAAA", b"x")
    plain = {each.name: each for each in container.list_blobs()}
    assert list(plain) == ["copied", "full"]
    assert not plain["full"].metadata and plain["full"].tags is None and plain["full"].copy.id is None
    found = blob.get_blob_properties()
    listed = plain["full"]
    assert (listed.size, listed.etag, listed.last_modified, listed.creation_time, listed.blob_tier) == (
        7, found.etag.strip('"'), found.last_modified, found.creation_time, "Hot")
    assert listed.content_settings.content_md5 == found.content_settings.content_md5
    assert listed.content_settings.content_type == "application/octet-stream" and listed.lease.state == "available"
    whole = {each.name: each for each in
             container.list_blobs(include=["metadata", "tags", "copy", "uncommittedblobs", "snapshots", "deleted"])}
    assert list(whole) == ["copied", "full", "waiting"]
    assert whole["full"].metadata == {"MixedCase": "a<&>b"} and whole["full"].tags == {"color": "red"}
    assert whole["copied"].copy.status == "success" and whole["copied"].copy.id
    assert whole["waiting"].size in [0, None]


def test_answers_of_listings(raw, container):
    for number in range(3):
        container.upload_blob(f"b{number}", b"x")
    query = {"restype": "container", "comp": "list"}
    answer = raw("GET", f"/{container.container_name}", maxresults="2", prefix="b", **query)
    root = xml.etree.ElementTree.fromstring(answer.body)
    assert answer.status == 200 and root.tag == "EnumerationResults"
    assert root.get("ContainerName") == container.container_name
    assert (root.findtext("Prefix"), root.findtext("MaxResults")) == ("b", "2")
    assert [each.text for each in root.iter("Name")] == ["b0", "b1"] and root.findtext("NextMarker")
    answer = raw("GET", f"/{container.container_name}", marker=root.findtext("NextMarker"), **query)
    root = xml.etree.ElementTree.fromstring(answer.body)
    # The last page has the element too.
    assert [each.text for each in root.iter("Name")] == ["b2"] and root.find("NextMarker") is not None
    assert not root.findtext("NextMarker")
    for name in ["b1/x", "b10"]:
        container.upload_blob(name, b"x")
    answer = raw("GET", f"/{container.container_name}", delimiter="/", **query)
    blobs = xml.etree.ElementTree.fromstring(answer.body).find("Blobs")
    assert sorted((each.findtext("Name"), each.tag) for each in blobs) == [
        ("b0", "Blob"), ("b1", "Blob"), ("b1/", "BlobPrefix"), ("b10", "Blob"), ("b2", "Blob")]
    for wrong in ["0", "-1", "x"]:
        answer = raw("GET", f"/{container.container_name}", maxresults=wrong, **query)
        assert answer.status == 400, wrong
    assert raw("GET", f"/{container.container_name}", include="nonsense", **query).status == 400
    assert raw("GET", f"/{container.container_name}", maxresults="10000", **query).status in [200, 400]
    # What XML cannot say is encoded.
    container.upload_blob("x\x02y", b"x")
    answer = raw("GET", f"/{container.container_name}", prefix="x", **query)
    name = xml.etree.ElementTree.fromstring(answer.body).find(".//Name")
    assert name.get("Encoded") == "true" and urllib.parse.unquote(name.text) == "x\x02y"


def test_random_names_are_listed_like_a_sorted_set(container):
    chance = random.Random(10)
    every = {"".join(chance.choice(["a", "b", "/", "ü", "0", "-"]) for _ in range(chance.randint(1, 8)))
             for _ in range(150)}
    for name in every:
        container.upload_blob(name, b"")
    for _ in range(25):
        prefix = "".join(chance.choice(["a", "b", "/", "ü"]) for _ in range(chance.randint(0, 2)))
        size = chance.choice([1, 3, 7, 100])
        inside = by_bytes(name for name in every if name.startswith(prefix))
        pages = container.list_blobs(name_starts_with=prefix, results_per_page=size).by_page()
        assert sum(map(names, pages), []) == inside, prefix
        expected = []
        for name in inside:
            head, separator, _ = name[len(prefix):].partition("/")
            shown = prefix + head + separator
            if shown not in expected:
                expected.append(shown)
        assert level(container, name_starts_with=prefix, results_per_page=size) == by_bytes(expected), prefix


@pytest.mark.parametrize("shape", ["flat", "nested"])
def test_a_page_of_many_blobs(raw, container, shape):
    """More than a page holds, so that the client must come again by itself."""
    count = 5200 if shape == "flat" else 300
    for number in range(count):
        name = f"{number:05}" if shape == "flat" else f"{number:03}/{number}"
        headers = {"x-ms-blob-type": "BlockBlob"}
        assert raw("PUT", f"/{container.container_name}/{name}", headers).status == 201
    if shape == "flat":
        assert names(container.list_blobs()) == [f"{number:05}" for number in range(count)]
        refused("BlobNotFound", container.delete_blob, "x")
    else:
        assert level(container) == [f"{number:03}/" for number in range(count)]
