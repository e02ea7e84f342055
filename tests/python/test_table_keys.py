"""Keys with every character that a URL, a filter or a header could trip over, with both forms of the Python SDK (G2)."""

import asyncio
import uuid
from contextlib import asynccontextmanager

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ResourceNotFoundError
from azure.data.tables import TableServiceClient, UpdateMode
from azure.data.tables.aio import TableServiceClient as AsyncTableServiceClient

from conftest import ACCOUNT, KEY

ODD = ["", " ", "'", "''", "a'b", "a b", "%", "%25", "%2F", "a%2", "+", "a+b", "&", "a=b&c", "ü", "日本", "😀", "\U0010ffff",
       "e\u0301", "\u200b", "\u00a0", "\ufeff", "a\u2028b", 'a"b', "<x>", "{x}", "[y]", "a:b;c,d", "(p)", "a)b",
       "','RowKey='", "$batch", "~!@$^*_-|`", "A", "a", ".", "..", "%C3%BC", "\ue000", "\ufffd", "😀" * 255, "x" * 511]


def entity(partition, row, **properties):
    return {"PartitionKey": partition, "RowKey": row, **properties}


def keys(entities):
    return [(found["PartitionKey"], found["RowKey"]) for found in entities]


@pytest.fixture
def table(doors):
    with TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0) as service:
        client = service.create_table("K" + uuid.uuid4().hex)
        yield client
        client.delete_table()


def test_odd_keys(table):
    for key in ODD:
        table.create_entity(entity(key, key, n=1))
        table.update_entity(entity(key, key, text=key), mode=UpdateMode.MERGE)
        assert dict(table.get_entity(key, key)) == entity(key, key, n=1, text=key)
        found = table.query_entities("PartitionKey eq @key and RowKey eq @key and text eq @key", parameters={"key": key})
        assert keys(found) == [(key, key)]
        answers = table.submit_transaction([("upsert", entity(key, key)), ("create", entity(key, "z" + key[:-1]))])
        assert answers[0]["etag"] == table.get_entity(key, key).metadata["etag"]
        table.submit_transaction([("delete", entity(key, key))])
        with pytest.raises(ResourceNotFoundError):
            table.get_entity(key, key)
    expected = sorted((key, "z" + key[:-1]) for key in ODD)
    assert keys(table.list_entities()) == expected
    pages = table.list_entities(results_per_page=1).by_page()
    assert sum((keys(page) for page in pages), []) == expected


@asynccontextmanager
async def async_table(doors):
    # It looks for what to trust before the doors are open.
    words = {"credential": AzureNamedKeyCredential(ACCOUNT, KEY), "connection_verify": doors.certificate or True}
    async with AsyncTableServiceClient(doors.table, retry_total=0, **words) as service:
        client = await service.create_table("A" + uuid.uuid4().hex)
        yield client
        await client.delete_table()


def test_odd_keys_of_the_asynchronous_sdk(doors):
    """Its HTTP library writes paths anew before it sends them."""
    async def one(client, key):
        await client.create_entity(entity(key, key, n=1))
        await client.update_entity(entity(key, key, text=key), mode=UpdateMode.MERGE)
        assert dict(await client.get_entity(key, key)) == entity(key, key, n=1, text=key)
        found = client.query_entities("PartitionKey eq @key and text eq @key", parameters={"key": key})
        assert keys([row async for row in found]) == [(key, key)]
        await client.submit_transaction([("upsert", entity(key, key)), ("create", entity(key, "z" + key[:-1]))])
        await client.delete_entity(key, key)

    async def run():
        async with async_table(doors) as client:
            await asyncio.gather(*[one(client, key) for key in ODD])
            found = [row async for row in client.list_entities(results_per_page=7)]
            assert keys(found) == sorted((key, "z" + key[:-1]) for key in ODD)

    asyncio.run(run())
