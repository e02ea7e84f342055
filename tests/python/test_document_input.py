"""What no SDK of Cosmos DB sends: each is refused with the service's error, and the server goes on."""

import base64
import hashlib
import hmac
import http.client
import json
import time
import urllib.parse
import uuid
from email.utils import formatdate

import pytest

from conftest import COSMOS_KEY


@pytest.fixture
def send(doors):
    host = doors.document.removeprefix("http://")

    def send(method, path, body=None, **headers):
        names = [name for name in path.split("?")[0].split("/") if name]
        names = [urllib.parse.unquote(name, errors="replace") for name in names]
        kind, link = (names[-1], names[:-1]) if len(names) % 2 else (names[-2] if names else "", names)
        date = formatdate(time.time(), usegmt=True)
        text = f"{method.lower()}\n{kind.lower()}\n{'/'.join(link)}\n{date.lower()}\n\n"
        digest = hmac.new(base64.b64decode(COSMOS_KEY), text.encode(), hashlib.sha256).digest()
        signed = urllib.parse.quote(f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}", safe="")
        connection = http.client.HTTPConnection(host, timeout=30)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"authorization": signed, "x-ms-date": date, **headers})
        answer = connection.getresponse()
        read = answer.read()
        connection.close()
        return answer.status, json.loads(read) if read else None, answer.headers

    return send


@pytest.fixture
def docs(send):
    name = "in" + uuid.uuid4().hex
    assert send("POST", "/dbs", json.dumps({"id": name}))[0] == 201
    made = send("POST", f"/dbs/{name}/colls", json.dumps({"id": "c", "partitionKey": {"paths": ["/pk"]}}))
    assert made[0] == 201 and made[1]["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 1}
    yield f"/dbs/{name}/colls/c/docs"
    assert send("DELETE", f"/dbs/{name}")[0] == 204


def test_bodies(send, docs):
    for body in [b"", b"{", b"\xff\xfe", b"null", b"[]", b"5", b'{"id":"\\ud800","pk":"a"}', b'{"id":"a","n":1e999}',
                 b'{"id":"a","x":' + b"[" * 5000, b'{"id":"a"}{"id":"b"}', b'{"id":"a\x00b"}']:
        status, error, _ = send("POST", docs, body)
        assert (status, error["code"]) == (400, "BadRequest"), body[:30]
        assert send("PATCH", docs + "/a", body, x_ms_documentdb_partitionkey='["a"]')[0] == 400
        assert send("POST", docs, body, x_ms_cosmos_is_batch_request="True", x_ms_cosmos_batch_atomic="True",
                    x_ms_documentdb_partitionkey='["a"]')[0] == 400
        assert send("POST", docs, body, content_type="application/query+json")[0] == 400
    assert send("POST", docs, b"x" * (5 * 1024 * 1024))[0] == 413
    assert send("GET", docs)[1]["_count"] == 0


def test_headers(send, docs):
    for key in ["", "a", "{}", '["a', '["a","b"]', "[[1]]", "[1,2,3,4]", "\x7f"]:
        assert send("GET", docs + "/a", x_ms_documentdb_partitionkey=key)[0] == 400, key
    assert send("GET", docs + "/a")[0] == 400
    for token in ["x", "!!", "e30", "A" * 20_000]:
        assert send("GET", docs, x_ms_continuation=token)[0] == 400
    for count in ["0", "-1", "x", "99999999999999999999"]:
        assert send("GET", docs, x_ms_max_item_count=count)[0] == 200
    for epk in ["x", "F", "é".encode().decode("latin-1")]:
        assert send("GET", docs, x_ms_start_epk=epk)[0] in (200, 400)
    assert send("GET", docs, x_ms_start_epk="30", x_ms_end_epk="10")[1]["_count"] == 0
    for etag in ["", "x", '"', '"00000000-0000-0000-0000-00000000000g"', '"ffffffff-ffff-ffff-ffff-ffffffffffff"']:
        assert send("DELETE", docs + "/a", if_match=etag, x_ms_documentdb_partitionkey='["a"]')[0] == 404


def test_paths(send, docs):
    container = docs.removesuffix("/docs")
    for method, path, status in [("GET", "/nothing", 404), ("GET", "/dbs/%FF", 400), ("PUT", "/dbs", 405), ("PATCH", docs, 405),
                                 ("GET", "/" + "a/" * 20, 400), ("GET", docs + "/a/attachments", 501),
                                 ("POST", container + "/sprocs", 501), ("GET", container + "/udfs/x", 501),
                                 ("GET", "/dbs/none/colls/none/docs", 404), ("GET", "/offers/none", 404),
                                 ("GET", docs + "/a%2Fb", 400)]:
        found = send(method, path, x_ms_documentdb_partitionkey='["a"]' if "%2F" not in path else "x")
        assert found[0] in (status, 401), (method, path, found)
        assert found[1]["message"]


def test_queries(send, docs):
    def ask(body, **headers):
        return send("POST", docs, json.dumps(body), content_type="application/query+json",
                    x_ms_documentdb_query_enablecrosspartition="True", **headers)

    assert ask({"query": "SELECT * FROM c"})[0] == 200
    for body in [{}, {"query": 5}, {"query": "SELECT * FROM c WHERE c.a = @b"}, {"query": "SELECT " + "(" * 5000},
                 {"query": "SELECT * FROM c WHERE " + " OR ".join(["c.a = 1"] * 60_000)},
                 {"query": "SELECT * FROM c", "parameters": [{"value": 5}]}, {"query": "SELECT '\\u0000"}]:
        status, error, _ = ask(body)
        assert (status, error["code"]) == (400, "BadRequest"), str(body)[:60]


def test_containers(send):
    name = "in" + uuid.uuid4().hex
    assert send("POST", "/dbs", json.dumps({"id": name}))[0] == 201
    for body in [{}, {"id": 5}, {"id": "c", "partitionKey": 5}, {"id": "c", "partitionKey": {"paths": []}},
                 {"id": "c", "partitionKey": {"paths": ["x"]}}, {"id": "c", "partitionKey": {"paths": ["/a"], "version": 3}},
                 {"id": "c", "partitionKey": {"paths": ["/a"], "kind": "Range"}},
                 {"id": "c", "partitionKey": {"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash"}},
                 {"id": "c", "defaultTtl": 0}, {"id": "c", "defaultTtl": "x"}, {"id": "$service"}]:
        assert send("POST", f"/dbs/{name}/colls", json.dumps(body))[0] == 400, body
    # A container without a partition key is one partition.
    assert send("POST", f"/dbs/{name}/colls", json.dumps({"id": "fixed"}))[0] == 201
    docs = f"/dbs/{name}/colls/fixed/docs"
    for number in range(3):
        assert send("POST", docs, json.dumps({"id": str(number), "pk": number}))[0] == 201
    assert send("POST", docs, json.dumps({"id": "0"}))[0] == 409
    assert send("GET", docs + "/1")[1]["pk"] == 1
    assert send("GET", docs)[1]["_count"] == 3
    batch = json.dumps([{"operationType": "Create", "resourceBody": {"id": "7", "pk": "x"}}, {"operationType": "Delete", "id": "2"}])
    assert send("POST", docs, batch, x_ms_cosmos_is_batch_request="True", x_ms_cosmos_batch_atomic="True")[0] == 200
    found = send("POST", docs, json.dumps({"query": "SELECT VALUE c.id FROM c ORDER BY c.id"}), content_type="application/query+json")
    assert found[1]["Documents"] == ["0", "1", "7"]
    ranges = f"/dbs/{name}/colls/fixed/pkranges"
    status, _, headers = send("GET", ranges)
    assert status == 200
    assert send("GET", ranges, if_none_match=headers["etag"])[0] == 304
    assert send("DELETE", f"/dbs/{name}")[0] == 204
