"""Accounts: each has its own keys, queues and tables."""

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY

# As the testkit configures it.
OTHER = "another"
OTHER_KEYS = ["Zmlyc3Qga2V5", "c2Vjb25kIGtleQ=="]


def queues(doors, account, key):
    url = doors.queue.removesuffix(ACCOUNT) + account
    return QueueServiceClient(url, {"account_name": account, "account_key": key}, retry_total=0)


def tables(doors, account, key):
    url = doors.table.removesuffix(ACCOUNT) + account
    return TableServiceClient(url, credential=AzureNamedKeyCredential(account, key), retry_total=0)


def test_each_account_has_its_own_keys_and_names(doors):
    first = queues(doors, ACCOUNT, KEY).create_queue("same-name")
    first.send_message("of the first")
    for n, key in enumerate(OTHER_KEYS):
        other = queues(doors, OTHER, key)
        assert [queue.name for queue in other.list_queues()] == ["same-name"] * n
        queue = other.get_queue_client("same-name")
        if n == 0:
            queue.create_queue()
        assert queue.receive_message() is None
        table = tables(doors, OTHER, key).create_table_if_not_exists("SameName")
        table.upsert_entity({"PartitionKey": "p", "RowKey": "r"})
    assert "SameName" not in [table.name for table in tables(doors, ACCOUNT, KEY).list_tables()]
    assert first.receive_message().content == "of the first"
    for account, key, status in [(OTHER, KEY, 403), (ACCOUNT, OTHER_KEYS[0], 403), ("nobody", KEY, 404)]:
        with pytest.raises(HttpResponseError) as caught:
            queues(doors, account, key).get_service_properties()
        assert caught.value.status_code == status, (account, caught.value)
    queues(doors, OTHER, OTHER_KEYS[0]).delete_queue("same-name")
    tables(doors, OTHER, OTHER_KEYS[1]).delete_table("SameName")
    first.delete_queue()
