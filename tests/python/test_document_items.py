"""Documents with the unmodified Python SDK of Cosmos DB: single operations, conditions, patches, batches and lives."""

import threading
import time
import uuid

import pytest
from azure.core import MatchConditions
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from conftest import COSMOS_KEY

IF_MATCH, IF_NONE_MATCH = MatchConditions.IfNotModified, MatchConditions.IfModified


@pytest.fixture
def database(doors):
    with CosmosClient(doors.document, COSMOS_KEY) as client:
        name = "db" + uuid.uuid4().hex
        yield client.create_database(name)
        client.delete_database(name)


@pytest.fixture
def container(database):
    return database.create_container("c", PartitionKey("/pk"))


def refused(status, call, *args, **kwargs):
    with pytest.raises(CosmosHttpResponseError) as caught:
        call(*args, **kwargs)
    assert caught.value.status_code == status, caught.value
    return caught.value


def plain(item):
    return {name: value for name, value in item.items() if not name.startswith("_")}


def test_an_item_comes_back_as_it_was(container):
    sent = {"id": "1", "pk": "a", "text": "é日本😀\u0000\"\\", "number": 1.5, "large": 1e300, "minus": -0.25, "none": None,
            "yes": True, "list": [1, "two", None, {"x": []}], "object": {"b": 1, "a": 2, "": 3}, "zero": 0}
    created = container.create_item(sent)
    assert plain(created) == sent
    assert list(plain(created)) == list(sent)
    assert list(created["object"]) == ["b", "a", ""]
    read = container.read_item("1", "a")
    assert read == created
    assert read["_self"].endswith(f"docs/{read['_rid']}/")
    assert abs(read["_ts"] - time.time()) < 60
    headers = container.client_connection.last_response_headers
    assert float(headers["x-ms-request-charge"]) == 1
    assert headers["etag"] == read["_etag"]
    assert headers["x-ms-session-token"].startswith("0:")


def test_create_read_replace_upsert_delete(container):
    created = container.create_item({"id": "1", "pk": "a", "n": 1})
    with pytest.raises(CosmosResourceExistsError):
        container.create_item({"id": "1", "pk": "a"})
    container.create_item({"id": "1", "pk": "b"})
    replaced = container.replace_item("1", {"id": "1", "pk": "a", "n": 2})
    assert (replaced["n"], replaced["_rid"]) == (2, created["_rid"])
    assert replaced["_etag"] != created["_etag"]
    upserted = container.upsert_item({"id": "1", "pk": "a", "n": 3})
    assert (upserted["n"], upserted["_rid"]) == (3, created["_rid"])
    new = container.upsert_item({"id": "2", "pk": "a"})
    assert new["_rid"] != created["_rid"]
    container.delete_item("1", "a")
    with pytest.raises(CosmosResourceNotFoundError):
        container.read_item("1", "a")
    with pytest.raises(CosmosResourceNotFoundError):
        container.delete_item("1", "a")
    with pytest.raises(CosmosResourceNotFoundError):
        container.replace_item("1", {"id": "1", "pk": "a"})
    assert container.read_item("1", "b")["pk"] == "b"


def test_conditions(container):
    first = container.create_item({"id": "1", "pk": "a", "n": 1})
    second = container.replace_item("1", {**first, "n": 2}, etag=first["_etag"], match_condition=IF_MATCH)
    stale = {"etag": first["_etag"], "match_condition": IF_MATCH}
    for call in [lambda: container.replace_item("1", {**first, "n": 3}, **stale),
                 lambda: container.upsert_item({**first, "n": 3}, **stale),
                 lambda: container.patch_item("1", "a", [{"op": "incr", "path": "/n", "value": 1}], **stale),
                 lambda: container.delete_item("1", "a", **stale)]:
        with pytest.raises(CosmosAccessConditionFailedError):
            call()
    assert container.read_item("1", "a") == second
    container.read_item("1", "a", etag=second["_etag"], match_condition=IF_NONE_MATCH)
    assert container.client_connection.last_response_headers.get("etag") == second["_etag"]
    with pytest.raises(CosmosAccessConditionFailedError):
        container.delete_item("1", "a", etag='"none of ours"', match_condition=IF_MATCH)
    with pytest.raises(CosmosResourceNotFoundError):
        container.delete_item("2", "a", etag=second["_etag"], match_condition=IF_MATCH)
    container.delete_item("1", "a", etag=second["_etag"], match_condition=IF_MATCH)


def test_one_of_many_writers_wins(container):
    first = container.create_item({"id": "1", "pk": "a", "n": 0})
    won = []

    def write(number):
        try:
            container.replace_item("1", {**first, "n": number}, etag=first["_etag"], match_condition=IF_MATCH)
            won.append(number)
        except CosmosAccessConditionFailedError:
            pass

    run([threading.Thread(target=write, args=[number]) for number in range(12)])
    assert won == [container.read_item("1", "a")["n"]]


def run(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_cannot_be_stored_is_refused(container):
    for item in [{"id": "", "pk": "a"}, {"id": "x" * 256, "pk": "a"}, {"id": "a#b", "pk": "a"}, {"id": 5, "pk": "a"},
                 {"id": "1", "pk": ["a"]}, {"id": "1", "pk": "a", "ttl": 0}]:
        with pytest.raises((CosmosHttpResponseError, ValueError, TypeError)):
            container.create_item(item)
    refused(413, container.create_item, {"id": "1", "pk": "a", "text": "x" * (2 * 1024 * 1024)})
    large = {"id": "1", "pk": "a", "text": "x" * (2 * 1024 * 1024 - 100)}
    container.create_item(large)
    assert plain(container.read_item("1", "a")) == large
    assert [plain(item) for item in container.read_all_items()] == [large]
    deep = {"id": "2", "pk": "a"}
    for _ in range(500):
        deep = {"id": "2", "pk": "a", "in": deep}
    refused(400, container.create_item, deep)


def test_the_header_names_the_partition_of_the_document(container):
    connection = container.client_connection
    for key in ['["b"]', "[5]", "[null]", "[{}]"]:
        error = refused(400, connection.CreateItem, container.container_link, {"id": "1", "pk": "a"},
                        options={"partitionKey": key, "disableAutomaticIdGeneration": True, "initialHeaders": {
                            "x-ms-documentdb-partitionkey": key}})
        assert error.sub_status == 1001
    with pytest.raises(CosmosResourceNotFoundError):
        container.read_item("1", "a")


@pytest.mark.parametrize("key", ["", "text", "é/日本", "a\u0000b", "x" * 2000, 5, -1.5, 0, True, False, None])
def test_every_value_is_a_partition_key(container, key):
    container.create_item({"id": "1", "pk": key, "n": 1})
    assert container.read_item("1", key)["n"] == 1
    # To a query of this SDK, None is no partition.
    options = {"enable_cross_partition_query": True} if key is None else {"partition_key": key}
    assert [item["id"] for item in container.query_items("SELECT * FROM c", **options)] == ["1"]
    container.delete_item("1", key)


def test_documents_without_a_partition_key_are_together(container):
    from azure.cosmos.partition_key import NonePartitionKeyValue
    container.create_item({"id": "1"})
    container.create_item({"id": "1", "pk": None})
    assert "pk" in container.read_item("1", None) and "pk" not in container.read_item("1", NonePartitionKeyValue)
    container.delete_item("1", NonePartitionKeyValue)
    assert len(list(container.read_all_items())) == 1


def test_hierarchical_keys(database):
    container = database.create_container("h", PartitionKey(["/a", "/b", "/c"], kind="MultiHash"))
    for a in ["x", "y"]:
        for b in [1, 2]:
            for c in ["p", None]:
                container.create_item({"id": "1", "a": a, "b": b, "c": c})
    assert container.read_item("1", ["x", 1, "p"])["b"] == 1
    assert len(list(container.query_items("SELECT * FROM c", partition_key=["x", 1, None]))) == 1
    assert len(list(container.query_items("SELECT * FROM c", partition_key=["x"]))) == 4
    assert len(list(container.query_items("SELECT * FROM c", partition_key=["x", 2]))) == 2
    assert len(list(container.query_items("SELECT * FROM c", enable_cross_partition_query=True))) == 8


def test_patches(container):
    container.create_item({"id": "1", "pk": "a", "n": 1, "list": [1, 2], "in": {"x": 1}})
    patched = container.patch_item("1", "a", [
        {"op": "add", "path": "/new", "value": {"y": 1}}, {"op": "set", "path": "/in/x", "value": 2},
        {"op": "replace", "path": "/list/0", "value": 9}, {"op": "add", "path": "/list/-", "value": 3},
        {"op": "remove", "path": "/new/y"}, {"op": "incr", "path": "/n", "value": 2.5},
        {"op": "move", "from": "/in/x", "path": "/moved"}])
    assert plain(patched) == {"id": "1", "pk": "a", "n": 3.5, "list": [9, 2, 3], "in": {}, "new": {}, "moved": 2}
    assert container.read_item("1", "a") == patched
    for operations in [[{"op": "replace", "path": "/none", "value": 1}], [{"op": "remove", "path": "/none/x"}],
                       [{"op": "set", "path": "/pk", "value": "b"}], [{"op": "set", "path": "/id", "value": "b"}],
                       [{"op": "jump", "path": "/n"}], [{"op": "incr", "path": "/list", "value": 1}]]:
        refused(400, container.patch_item, "1", "a", operations)
    assert container.read_item("1", "a") == patched
    incr = [{"op": "incr", "path": "/n", "value": 1}]
    with pytest.raises(CosmosAccessConditionFailedError):
        container.patch_item("1", "a", incr, filter_predicate="FROM c WHERE c.n > 100")
    assert container.patch_item("1", "a", incr, filter_predicate="FROM c WHERE c.n > 3")["n"] == 4.5
    with pytest.raises(CosmosResourceNotFoundError):
        container.patch_item("2", "a", incr)


def test_no_increment_is_lost(container):
    container.create_item({"id": "1", "pk": "a", "n": 0})

    def work():
        for _ in range(5):
            container.patch_item("1", "a", [{"op": "incr", "path": "/n", "value": 1}])

    run([threading.Thread(target=work) for _ in range(6)])
    assert container.read_item("1", "a")["n"] == 30


def test_a_batch_does_all(container):
    container.create_item({"id": "old", "pk": "a", "n": 1})
    container.create_item({"id": "gone", "pk": "a"})
    results = container.execute_item_batch([
        ("create", ({"id": "new", "pk": "a"},)), ("upsert", ({"id": "up", "pk": "a"},)),
        ("replace", ("old", {"id": "old", "pk": "a", "n": 2})), ("read", ("old",)), ("delete", ("gone",)),
        ("patch", ("new", [{"op": "set", "path": "/n", "value": 5}])), ("create", ({"id": "gone", "pk": "a", "n": 7},))], "a")
    assert [result["statusCode"] for result in results] == [201, 201, 200, 200, 204, 200, 201]
    assert results[3]["resourceBody"]["n"] == 2
    assert results[5]["resourceBody"] == container.read_item("new", "a")
    assert container.read_item("gone", "a")["n"] == 7
    assert results[0]["resourceBody"]["_ts"] > 0


def test_a_batch_does_nothing_if_one_cannot_be_done(container):
    old = container.create_item({"id": "old", "pk": "a", "n": 1})
    for bad, status in [(("create", ({"id": "old", "pk": "a"},)), 409), (("delete", ("none",)), 404),
                        (("replace", ("old", {"id": "old", "pk": "a"}), {"if_match_etag": '"other"'}), 412),
                        (("create", ({"id": "x", "pk": "b"},)), 400),
                        (("patch", ("old", [{"op": "remove", "path": "/none"}])), 400)]:
        operations = [("create", ({"id": "new", "pk": "a"},)), ("upsert", ({"id": "old", "pk": "a", "n": 2},)), bad]
        if status == 412:
            operations.pop(1)
        with pytest.raises(CosmosBatchOperationError) as caught:
            container.execute_item_batch(operations, "a")
        assert caught.value.error_index == len(operations) - 1, caught.value
        assert caught.value.operation_responses[-1]["statusCode"] == status
        assert {response["statusCode"] for response in caught.value.operation_responses[:-1]} == {424}
    assert [item["id"] for item in container.read_all_items()] == ["old"]
    assert container.read_item("old", "a") == old
    refused(400, container.execute_item_batch, [("read", ("old",))] * 101, "a")


def test_batches_are_atomic_under_concurrency(container):
    for name in ["x", "y"]:
        container.create_item({"id": name, "pk": "a", "n": 0})

    def work():
        for _ in range(5):
            incr = [{"op": "incr", "path": "/n", "value": 1}]
            container.execute_item_batch([("patch", ("x", incr)), ("patch", ("y", incr))], "a")

    run([threading.Thread(target=work) for _ in range(4)])
    assert [container.read_item(name, "a")["n"] for name in ["x", "y"]] == [20, 20]


def test_a_partition_is_deleted(container):
    for number in range(30):
        container.create_item({"id": str(number), "pk": "a" if number % 2 else "b"})
    container.delete_all_items_by_partition_key("a")
    assert {item["pk"] for item in container.read_all_items()} == {"b"}
    assert len(list(container.read_all_items())) == 15


def test_read_many(container):
    for number in range(10):
        container.create_item({"id": str(number), "pk": f"p{number % 3}"})
    asked = [(str(number), f"p{number % 3}") for number in [1, 5, 7, 9]] + [("none", "p0")]
    assert sorted(item["id"] for item in container.read_items(asked)) == ["1", "5", "7", "9"]


def test_a_feed_is_read_page_by_page(container):
    ids = sorted(str(number) for number in range(25))
    for number in ids:
        container.create_item({"id": number, "pk": f"p{int(number) % 4}", "text": "x" * (20_000 if int(number) % 5 == 0 else 10)})
    pages = container.read_all_items(max_item_count=4).by_page()
    sizes, found = [], []
    token = None
    while True:
        page = list(next(pages))
        sizes.append(len(page))
        found += [item["id"] for item in page]
        token = pages.continuation_token
        if not token:
            break
        pages = container.read_all_items(max_item_count=4).by_page(token)
    assert sorted(found) == ids
    assert sizes == [4, 4, 4, 4, 4, 4, 1]


def test_documents_end(database):
    container = database.create_container("t", PartitionKey("/pk"), default_ttl=-1)
    container.create_item({"id": "stays", "pk": "a"})
    container.create_item({"id": "goes", "pk": "a", "ttl": 1})
    other = database.create_container("d", PartitionKey("/pk"), default_ttl=1)
    other.create_item({"id": "goes", "pk": "a"})
    other.create_item({"id": "stays", "pk": "a", "ttl": -1})
    off = database.create_container("o", PartitionKey("/pk"))
    off.create_item({"id": "stays", "pk": "a", "ttl": 1})
    assert container.read_item("goes", "a")["ttl"] == 1
    time.sleep(1.5)
    for each in [container, other, off]:
        assert [item["id"] for item in each.read_all_items()] == ["stays"]
        assert [item["id"] for item in each.query_items("SELECT * FROM c", partition_key="a")] == ["stays"]
    for each in [container, other]:
        with pytest.raises(CosmosResourceNotFoundError):
            each.read_item("goes", "a")
        with pytest.raises(CosmosResourceNotFoundError):
            each.replace_item("goes", {"id": "goes", "pk": "a"})
        with pytest.raises(CosmosResourceNotFoundError):
            each.delete_item("goes", "a")
        created = each.create_item({"id": "goes", "pk": "a", "ttl": 100})
        assert each.read_item("goes", "a") == created


def test_what_is_written_outlives_a_power_cut(own_doors):
    with CosmosClient(own_doors.document, COSMOS_KEY) as client:
        container = client.create_database("kept").create_container("c", PartitionKey("/pk"))
        written = [container.create_item({"id": str(number), "pk": f"p{number % 5}"}) for number in range(20)]
        pages = container.query_items("SELECT * FROM c", enable_cross_partition_query=True, max_item_count=6).by_page()
        found = list(next(pages))
        token = pages.continuation_token
    own_doors.kill()
    with CosmosClient(own_doors.document, COSMOS_KEY) as client:
        container = client.get_database_client("kept").get_container_client("c")
        for item in written:
            assert container.read_item(item["id"], item["pk"]) == item
        pages = container.query_items("SELECT * FROM c", enable_cross_partition_query=True, max_item_count=6).by_page(token)
        for page in pages:
            found += list(page)
        assert sorted(item["id"] for item in found) == sorted(item["id"] for item in written)
