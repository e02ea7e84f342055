"""Queries of documents with the unmodified Python SDK of Cosmos DB, over one partition and over all."""

import random
import uuid

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from conftest import COSMOS_KEY

TEAMS = ["red", "green", "blue"]
ITEMS = [{"id": f"{number:03}", "pk": f"p{number % 7}", "n": number, "team": TEAMS[number % 3],
          "tags": [f"t{number % 2}", f"t{number % 5}"], "maybe": None if number % 4 == 0 else number}
         if number % 6 else {"id": f"{number:03}", "pk": f"p{number % 7}", "n": number, "team": TEAMS[number % 3]}
         for number in range(60)]


@pytest.fixture(scope="module")
def container(doors):
    with CosmosClient(doors.document, COSMOS_KEY) as client:
        name = "query" + uuid.uuid4().hex
        container = client.create_database(name).create_container("c", PartitionKey("/pk"))
        for item in ITEMS:
            container.create_item(item)
        yield container
        client.delete_database(name)


def ask(container, query, parameters=None, **options):
    options = options or {"enable_cross_partition_query": True}
    return list(container.query_items(query, parameters=parameters, **options))


def pages(container, query, size, **options):
    """All rows, each page asked for by a client that knows the token alone."""
    options = options or {"enable_cross_partition_query": True}
    found, token = [], None
    while True:
        page = container.query_items(query, max_item_count=size, **options).by_page(token)
        rows = list(next(page, []))
        assert len(rows) <= size
        found += rows
        token = page.continuation_token
        if not token:
            return found


def test_filters(container):
    assert {row["id"] for row in ask(container, "SELECT * FROM c")} == {item["id"] for item in ITEMS}
    assert sorted(ask(container, "SELECT VALUE c.n FROM c WHERE c.n > 50")) == list(range(51, 60))
    found = ask(container, "SELECT c.id, c.n FROM c WHERE c.team = @team AND c.n < @n",
                [{"name": "@team", "value": "red"}, {"name": "@n", "value": 10}])
    assert sorted(row["n"] for row in found) == [0, 3, 6, 9]
    assert sorted(ask(container, "SELECT VALUE c.n FROM c WHERE c.maybe = null")) == [
        item["n"] for item in ITEMS if "maybe" in item and item["maybe"] is None]
    assert sorted(ask(container, "SELECT VALUE c.n FROM c WHERE NOT IS_DEFINED(c.maybe)")) == [
        item["n"] for item in ITEMS if "maybe" not in item]
    assert ask(container, "SELECT VALUE c.n FROM c WHERE c.id = '017'") == [17]
    assert ask(container, "SELECT VALUE c.n FROM c WHERE c.id = '017' AND c.pk = 'p3'") == [17]
    assert ask(container, "SELECT VALUE c.n FROM c WHERE c.id = '017' AND c.pk = 'p4'") == []
    found = ask(container, "SELECT * FROM c WHERE c.n = 5")[0]
    assert found == container.read_item("005", "p5")


def test_a_partition(container):
    own = sorted(item["n"] for item in ITEMS if item["pk"] == "p2")
    assert sorted(ask(container, "SELECT VALUE c.n FROM c", partition_key="p2")) == own
    assert pages(container, "SELECT VALUE c.n FROM c", 2, partition_key="p2") == own
    assert ask(container, "SELECT VALUE COUNT(1) FROM c", partition_key="p2") == [len(own)]
    assert ask(container, "SELECT VALUE c.n FROM c WHERE c.pk = 'p2' AND c.n = 2", enable_cross_partition_query=False) == [2]
    with pytest.raises(CosmosHttpResponseError) as caught:
        ask(container, "SELECT * FROM c WHERE c.n = 1", enable_cross_partition_query=False)
    assert caught.value.status_code == 400


def test_a_few_partitions(container):
    own = sorted(item["n"] for item in ITEMS if item["pk"] in ("p1", "p4"))
    query = "SELECT VALUE c.n FROM c WHERE c.pk IN ('p4', 'none', 'p1', 'p1', 5)"
    assert sorted(ask(container, query)) == own
    for size in [1, 4, 100]:
        assert sorted(pages(container, query, size)) == own
    assert ask(container, "SELECT VALUE COUNT(1) FROM c WHERE c.pk IN ('p1', 'p4') AND c.n >= 0") == [len(own)]
    assert ask(container, "SELECT VALUE c.n FROM c WHERE c.pk = 'none'") == []
    query = "SELECT VALUE c.n FROM c WHERE c.id IN ('017', '003', '004', 'none') AND c.pk IN ('p3', 'p0')"
    assert sorted(pages(container, query, 1)) == [3, 17]
    assert sorted(ask(container, "SELECT VALUE c.n FROM c WHERE c.id IN ('017', '003', '059')")) == [3, 17, 59]
    asked = [(item["id"], item["pk"]) for item in ITEMS[::5]]
    assert {item["id"] for item in container.read_items(asked)} == {id for id, _ in asked}


def test_order(container):
    numbers = [item["n"] for item in ITEMS]
    assert ask(container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC") == numbers[::-1]
    by_team = sorted(ITEMS, key=lambda item: (item["team"], -item["n"]))
    query = "SELECT VALUE c.n FROM c ORDER BY c.team, c.n DESC"
    assert ask(container, query) == [item["n"] for item in by_team]
    assert pages(container, query, 7) == [item["n"] for item in by_team]
    assert ask(container, "SELECT TOP 5 VALUE c.n FROM c ORDER BY c.n") == numbers[:5]
    assert ask(container, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 5") == numbers[10:15]
    assert pages(container, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 15", 4) == numbers[10:25]


def test_pages_go_on_where_they_ended(container):
    numbers = [item["n"] for item in ITEMS]
    for size in [1, 7, 59, 60, 61]:
        assert sorted(pages(container, "SELECT VALUE c.n FROM c", size)) == numbers
    assert len(pages(container, "SELECT VALUE c.n FROM c OFFSET 5 LIMIT 20", 3)) == 20
    assert len(pages(container, "SELECT TOP 10 VALUE c.n FROM c", 3)) == 10
    tags = [tag for item in ITEMS for tag in item.get("tags", [])]
    assert sorted(pages(container, "SELECT VALUE t FROM c JOIN t IN c.tags", 3)) == sorted(tags)
    page = container.query_items("SELECT * FROM c", enable_cross_partition_query=True, max_item_count=2).by_page()
    next(page)
    with pytest.raises(CosmosHttpResponseError) as caught:
        list(next(container.query_items("SELECT c.id FROM c", enable_cross_partition_query=True).by_page(page.continuation_token)))
    assert caught.value.status_code == 400


def test_aggregates_groups_and_distinct(container):
    numbers = [item["n"] for item in ITEMS]
    assert ask(container, "SELECT VALUE COUNT(1) FROM c") == [60]
    assert ask(container, "SELECT VALUE SUM(c.n) FROM c") == [sum(numbers)]
    assert ask(container, "SELECT MIN(c.n) AS low, MAX(c.n) AS high, AVG(c.n) AS mean FROM c") == [
        {"low": 0, "high": 59, "mean": 29.5}]
    groups = ask(container, "SELECT c.team, COUNT(1) AS n FROM c GROUP BY c.team")
    assert {row["team"]: row["n"] for row in groups} == {"red": 20, "green": 20, "blue": 20}
    assert sorted(ask(container, "SELECT DISTINCT VALUE c.pk FROM c")) == [f"p{number}" for number in range(7)]
    assert sorted(pages(container, "SELECT DISTINCT VALUE c.pk FROM c", 2)) == [f"p{number}" for number in range(7)]
    found = pages(container, "SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk", 3)
    assert sum(row["n"] for row in found) == 60 and len(found) == 7


def test_arrays_and_functions(container):
    found = ask(container, "SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(c.tags, 't4')")
    assert sorted(found) == [item["n"] for item in ITEMS if "t4" in item.get("tags", [])]
    assert ask(container, "SELECT VALUE {\"up\": UPPER(c.team), \"next\": c.n + 1} FROM c WHERE c.n = 3") == [
        {"up": "RED", "next": 4}]
    assert sorted(ask(container, "SELECT VALUE c.n FROM c WHERE c.team IN ('red', 'blue') AND c.n BETWEEN 3 AND 6")) == [3, 5, 6]
    assert sorted(ask(container, "SELECT VALUE c.n FROM c WHERE c.id LIKE '01%'")) == list(range(10, 20))


def test_a_query_that_is_wrong_says_where(container):
    for query in ["SELECT", "SELECT * FROM c WHERE", "SELECT * FROM c ORDER", "SELECT NOSUCH(1) FROM c", "UPDATE c"]:
        with pytest.raises(CosmosHttpResponseError) as caught:
            ask(container, query)
        assert caught.value.status_code == 400
        assert "SC" in caught.value.message
    with pytest.raises(CosmosHttpResponseError) as caught:
        ask(container, "SELECT udf.f(c.n) FROM c")
    assert caught.value.status_code == 501


def test_many_documents_of_any_length(doors):
    rng = random.Random(7)
    with CosmosClient(doors.document, COSMOS_KEY) as client:
        name = "many" + uuid.uuid4().hex
        container = client.create_database(name).create_container("c", PartitionKey("/pk"))
        sizes = {}
        for number in range(150):
            size = rng.choice([10, 10, 10, 1000, 30_000, 400_000 if number % 10 == 0 else 10])
            sizes[f"{number}"] = size
            container.create_item({"id": f"{number}", "pk": f"p{number % 40}", "text": "x" * size, "size": size})
        found = pages(container, "SELECT c.id, c.text FROM c", 50)
        assert {row["id"]: len(row["text"]) for row in found} == sizes
        assert {row["id"]: len(row["text"]) for row in pages(container, "SELECT * FROM c", 1000)} == sizes
        assert ask(container, "SELECT VALUE SUM(c.size) FROM c") == [sum(sizes.values())]
        client.delete_database(name)
