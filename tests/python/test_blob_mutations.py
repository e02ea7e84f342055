"""Requests that nearly make sense: each is done, or answered with an error that has a code; none harms the server."""

import os
import random

from blob_help import container, raw, read, service  # noqa: F401: fixtures

LONG = bool(os.environ.get("POLYSHARD_LONG"))
REQUESTS = 50_000 if LONG else 1_500
COMPONENTS = [None, "list", "metadata", "acl", "lease", "block", "blocklist", "page", "pagelist", "appendblock", "seal",
              "snapshot", "tier", "tags", "properties", "copy", "undelete", "blobs", "batch", "stats", "incrementalcopy",
              "query", "expiry", "legalhold", "nonsense", ""]
VALUES = ["", "*", "0", "-1", "1", "512", "18446744073709551616", "bytes=0-511", "bytes=512-0", "bytes=-5", "bytes=0-",
          "bytes=0-18446744073709551615", "true", "update", "clear", "include", "acquire", "break", "BlockBlob",
          "PageBlob", "AppendBlob", "AAAA", "AAAAAAAAAAA=", "not base64!", '"0x8D0000000000000"', "W/\"x\"", "a=b&c=d",
          "a=b&a=b", "=", "%", "\"a\"='b'", "\"a\"=", "Hot", "Thu, 01 Jan 2015 00:00:00 GMT", "yesterday", "x" * 3000,
          "2011-03-09T01:42:34.9360000Z", "00000000-0000-0000-0000-000000000001", "http://[", "/x", "\u00fc\u00e9",
          "a,b;c"]
HEADERS = ["Range", "x-ms-range", "x-ms-blob-type", "x-ms-blob-content-length", "x-ms-lease-action", "x-ms-lease-id",
           "x-ms-lease-duration", "x-ms-lease-break-period", "x-ms-proposed-lease-id", "If-Match", "If-None-Match",
           "If-Modified-Since", "x-ms-if-tags", "x-ms-tags", "x-ms-meta-a", "x-ms-meta-", "x-ms-meta-a-b",
           "x-ms-copy-source", "x-ms-copy-source-range", "x-ms-page-write", "x-ms-access-tier", "Content-MD5",
           "x-ms-content-crc64", "x-ms-delete-snapshots", "x-ms-sequence-number-action", "x-ms-blob-sequence-number",
           "x-ms-blob-condition-appendpos", "x-ms-blob-condition-maxsize", "x-ms-if-sequence-number-eq", "Content-Type",
           "x-ms-range-get-content-md5", "x-ms-blob-content-md5", "x-ms-version", "x-ms-requires-sync", "Origin",
           "x-ms-client-request-id", "x-ms-copy-action", "x-ms-blob-public-access", "x-ms-structured-body"]
BODIES = [b"", b"x", b"x" * 512, b"<BlockList><Latest>AAAA</Latest></BlockList>", b"<BlockList><Latest>",
          b"<!DOCTYPE x>",
          b"<Tags><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tags>", b"<Tags>&x;</Tags>", b"\xff\xfe\x00",
          b"<SignedIdentifiers/>", b"<StorageServiceProperties/>", b"<a>" * 5000, b"x" * 70_000,
          b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nDELETE /x HTTP/1.1\r\n\r\n\r\n--b--\r\n"]
PARAMETERS = ["snapshot", "prevsnapshot", "blockid", "blocklisttype", "prefix", "marker", "delimiter", "maxresults",
              "include", "where", "timeout", "copyid", "versionid", "restype"]


def mutated(chance, path):
    """A random request below a container."""
    query = {chance.choice(PARAMETERS): chance.choice([*VALUES, "container", "service", "account"])
             for _ in range(chance.choice([0, 0, 1, 2]))}
    component = chance.choice(COMPONENTS)
    if component is not None:
        query["comp"] = component
    headers = {chance.choice(HEADERS): chance.choice(VALUES) for _ in range(chance.choice([0, 1, 2, 4]))}
    headers = {name: value.encode() for name, value in headers.items()}
    names = ["", "/kept", "/new", "/%ff", "/a%00b", "/"]
    target = chance.choice([*[path + name for name in names], "/", "/$root/x"])
    method = chance.choice(["GET", "HEAD", "PUT", "PUT", "PUT", "DELETE", "POST", "OPTIONS", "PATCH"])
    return method, target, headers, query


def test_nothing_harms_the_server(raw, service, container):
    seed = int(os.environ.get("POLYSHARD_SEED", random.SystemRandom().randrange(10 ** 6) if LONG else 5))
    chance, path = random.Random(seed), f"/{container.container_name}"
    for number in range(REQUESTS):
        method, target, headers, query = mutated(chance, path)
        # The container itself, and what others look at, stay.
        if (method == "DELETE" and target in [path, f"{path}/", "/"]) or (target == "/" and method == "PUT"):
            continue
        body = chance.choice(BODIES) if method in ["PUT", "POST"] else b""
        answer = raw(method, target, headers, body, **query)
        told = f"POLYSHARD_SEED={seed}, {number}: {method} {target} {query} {headers} {body[:80]} -> {answer}"
        assert answer.status < 500 or answer.status == 501, told
        assert answer.status < 400 or answer.code, told
    # It goes on as before.
    raw("PUT", f"{path}/kept", {"x-ms-lease-action": "break", "x-ms-lease-break-period": "0"}, comp="lease")
    container.upload_blob("last", b"x" * 100_000)
    assert read(container.get_blob_client("last")) == b"x" * 100_000
    assert "last" in [found.name for found in container.list_blobs()]
