"""Databases and containers of documents with the unmodified Python SDK of Cosmos DB: keys, lists, offers and errors."""

import base64
import threading
import urllib.error
import urllib.request
import uuid

import pytest
from azure.core import MatchConditions
from azure.cosmos import CosmosClient, PartitionKey, ThroughputProperties
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from conftest import COSMOS_KEY


@pytest.fixture
def client(doors):
    with CosmosClient(doors.document, COSMOS_KEY) as client:
        yield client


@pytest.fixture
def database(client):
    name = "db" + uuid.uuid4().hex
    yield client.create_database(name)
    client.delete_database(name)


def refused(status, call, *args, **kwargs):
    with pytest.raises(CosmosHttpResponseError) as caught:
        result = call(*args, **kwargs)
        if hasattr(result, "__next__"):
            list(result)
    assert caught.value.status_code == status, caught.value
    return caught.value


def test_a_wrong_key_is_refused(doors):
    other = base64.b64encode(b"another key").decode()
    assert refused(401, lambda: CosmosClient(doors.document, other)).status_code == 401
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(doors.document)
    assert caught.value.code == 401
    assert b'"code":"Unauthorized"' in caught.value.read()


def test_the_account_names_the_address_that_was_reached(client, doors):
    account = client.get_database_account()
    assert account.ConsistencyPolicy["defaultConsistencyLevel"] == "Session"
    assert account.WritableLocations[0]["databaseAccountEndpoint"] == doors.document + "/"


def test_databases(client):
    prefix = "list" + uuid.uuid4().hex
    names = [f"{prefix}-{number}" for number in range(5)]
    for name in names:
        created = client.create_database(name)
        assert created.read()["id"] == name
    with pytest.raises(CosmosResourceExistsError):
        client.create_database(names[0])
    client.create_database_if_not_exists(names[0])
    assert [found["id"] for found in client.list_databases() if found["id"].startswith(prefix)] == names
    pages = list(client.list_databases(max_item_count=2).by_page())
    assert all(len(list(page)) <= 2 for page in pages)
    query = {"query": "SELECT * FROM root r WHERE r.id = @id", "parameters": [{"name": "@id", "value": names[1]}]}
    assert [found["id"] for found in client.query_databases(**query)] == [names[1]]
    for name in names:
        client.delete_database(name)
    with pytest.raises(CosmosResourceNotFoundError):
        client.delete_database(names[0])
    with pytest.raises(CosmosResourceNotFoundError):
        client.get_database_client(names[0]).read()


@pytest.mark.parametrize("name", ["a b+é%41&=", "日本", "UPPER and lower", "x" * 255, "quote\"'"])
def test_ids_have_any_character(client, name):
    name = name[:223] + uuid.uuid4().hex
    database = client.create_database(name)
    container = database.create_container(name, PartitionKey("/pk"))
    container.create_item({"id": name, "pk": name})
    assert container.read_item(name, name)["id"] == name
    assert [found["id"] for found in database.list_containers()] == [name]
    client.delete_database(name)


def test_ids_that_cannot_be(client, database):
    for name in ["a/b", "a?b", "a#b", "a\\b", "x" * 256]:
        with pytest.raises((CosmosHttpResponseError, ValueError)):
            client.create_database(name)
        with pytest.raises((CosmosHttpResponseError, ValueError)):
            database.create_container(name, PartitionKey("/pk"))


def test_containers(client, database):
    properties = {"indexing_policy": {"indexingMode": "consistent", "automatic": True, "includedPaths": [{"path": "/*"}],
                                      "excludedPaths": [{"path": "/large/*"}]}, "default_ttl": 100}
    container = database.create_container("c1", PartitionKey("/a/b"), **properties)
    read = container.read()
    assert read["partitionKey"] == {"paths": ["/a/b"], "kind": "Hash", "version": 2}
    assert read["indexingPolicy"]["excludedPaths"] == [{"path": "/large/*"}]
    assert read["defaultTtl"] == 100
    assert read["_self"].startswith(database.read()["_self"] + "colls/")
    with pytest.raises(CosmosResourceExistsError):
        database.create_container("c1", PartitionKey("/a"))
    database.create_container_if_not_exists("c1", PartitionKey("/a/b"))
    database.create_container("c2", PartitionKey(["/a", "/b"], kind="MultiHash"))
    assert [found["id"] for found in database.list_containers()] == ["c1", "c2"]
    assert [found["id"] for found in database.query_containers("SELECT * FROM c WHERE c.id = 'c2'")] == ["c2"]
    replaced = database.replace_container("c1", PartitionKey("/a/b"), default_ttl=7)
    assert replaced.read()["defaultTtl"] == 7
    refused(400, database.replace_container, "c1", PartitionKey("/other"))
    old = read["_etag"]
    with pytest.raises(CosmosAccessConditionFailedError):
        database.replace_container("c1", PartitionKey("/a/b"), etag=old, match_condition=MatchConditions.IfNotModified)
    database.delete_container("c1")
    with pytest.raises(CosmosResourceNotFoundError):
        container.read()
    with pytest.raises(CosmosResourceNotFoundError):
        database.delete_container("c1")
    with pytest.raises(CosmosResourceNotFoundError):
        container.read_item("x", "y")


def test_what_was_deleted_is_empty_when_it_is_made_again(client, database):
    container = database.create_container("again", PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "a"})
    database.delete_container("again")
    container = database.create_container("again", PartitionKey("/pk"))
    assert list(container.read_all_items()) == []
    container.create_item({"id": "1", "pk": "a"})
    name = "again" + uuid.uuid4().hex
    for _ in range(2):
        other = client.create_database(name)
        assert list(other.list_containers()) == []
        other.create_container("c", PartitionKey("/pk")).create_item({"id": "1", "pk": "a"})
        client.delete_database(name)


def test_throughput_is_kept_and_changed(database, client):
    container = database.create_container("plain", PartitionKey("/pk"))
    assert container.get_throughput().offer_throughput == 400
    assert container.replace_throughput(1000).offer_throughput == 1000
    assert container.get_throughput().offer_throughput == 1000
    container = database.create_container("manual", PartitionKey("/pk"), offer_throughput=700)
    assert container.get_throughput().offer_throughput == 700
    auto = ThroughputProperties(auto_scale_max_throughput=4000)
    container = database.create_container("auto", PartitionKey("/pk"), offer_throughput=auto)
    assert container.get_throughput().auto_scale_max_throughput == 4000
    container.replace_throughput(ThroughputProperties(auto_scale_max_throughput=5000))
    assert container.get_throughput().auto_scale_max_throughput == 5000
    name = "shared" + uuid.uuid4().hex
    shared = client.create_database(name, offer_throughput=500)
    assert shared.get_throughput().offer_throughput == 500
    client.delete_database(name)
    refused(400, database.create_container, "little", PartitionKey("/pk"), offer_throughput=5)


def test_what_is_not_built_says_so(database):
    error = refused(501, database.create_container, "u", PartitionKey("/pk"),
                    unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]})
    assert "unique keys" in error.message
    container = database.create_container("c", PartitionKey("/pk"))
    for call in [lambda: container.scripts.create_stored_procedure({"id": "s", "body": "function () {}"}),
                 lambda: container.scripts.create_trigger({"id": "t", "body": "", "triggerType": "Pre", "triggerOperation": "All"}),
                 lambda: container.scripts.create_user_defined_function({"id": "u", "body": ""}),
                 lambda: database.create_user({"id": "u"}),
                 lambda: container.create_item({"id": "1", "pk": "a"}, pre_trigger_include="t"),
                 lambda: list(container.query_items_change_feed())]:
        assert "not built" in refused(501, call).message


def test_a_container_is_made_once_by_many(database):
    made = []

    def make():
        try:
            database.create_container("one", PartitionKey("/pk"))
            made.append(1)
        except CosmosResourceExistsError:
            pass

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_container_that_never_had_a_document_can_be_bound(doors, database):
    """C8: what changes nothing leaves nothing behind that keeps a container where it is."""
    name = f"m{uuid.uuid4().hex[:8]}"
    doors.cli("map", "create", name, "--kind", "hash", "--key", "text")
    container = database.create_container("unused", PartitionKey("/tenant"))
    for change in [lambda: container.delete_item("1", "a"), lambda: container.replace_item("1", {"id": "1", "tenant": "a"})]:
        with pytest.raises(CosmosResourceNotFoundError):
            change()
    bound = doors.cli("bind", f"document:cosmos/{database.id}/unused", "--map", name)
    assert bound["bound"] is True and bound["map"] == name
    container.create_item({"id": "1", "tenant": "a"})
    assert container.read_item("1", "a")["tenant"] == "a"
