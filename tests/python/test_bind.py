"""Tables and queues bound to the operator's own map: a tenant's entities and queues are on one shard (C8, H1)."""

import glob
import os
import sqlite3

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY, Doors

TENANTS = range(1, 13)


@pytest.fixture
def doors(program):
    opened = Doors("sqlite", "plain")
    yield opened
    opened.stop()


def shards_with(doors, statement):
    """The names of the shards on which a statement finds something."""
    found = set()
    for path in glob.glob(os.path.join(doors.data, "shards", "*.db")):
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            if database.execute(statement).fetchone() is not None:
                found.add(os.path.basename(path).removesuffix(".db"))
        except sqlite3.OperationalError as error:
            # A shard that no store has used yet has no tables.
            assert "no such table" in str(error)
        finally:
            database.close()
    return found


def test_a_tenants_data_is_on_one_shard(doors):
    tables = TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)
    queues = QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    doors.cli("map", "create", "tenants", "--kind", "hash", "--key", "bigint")
    bound = doors.cli("bind", "table:Orders", "--map", "tenants", "--key", "PartitionKey", "--rule", "before:-")
    assert bound["dataset"] == f"table:{ACCOUNT}/orders" and bound["exists"] is False
    # A queue that exists, and was never used, and names that do not exist yet.
    queues.create_queue("1-jobs")
    for tenant in TENANTS:
        bound = doors.cli("bind", f"queue:{tenant}-jobs", "--map", "tenants", "--rule", "before:-")
        assert bound["exists"] is (tenant == 1) and bound["bound"] is True and bound["map"] == "tenants"
    orders = tables.create_table("Orders")
    for tenant in TENANTS:
        for month in ["2026-10", "2026-11"]:
            orders.create_entity({"PartitionKey": f"{tenant}-{month}", "RowKey": "1"})
        if tenant != 1:
            queues.create_queue(f"{tenant}-jobs")
        queues.get_queue_client(f"{tenant}-jobs").send_message(f"of tenant {tenant}")
    used = set()
    for tenant in TENANTS:
        shard = doors.cli("map", "locate", "tenants", str(tenant))["shard"]
        entities = shards_with(doors, f"SELECT 1 FROM polyshard_entity WHERE pk LIKE '{tenant}-%'")
        messages = shards_with(doors, f"SELECT 1 FROM polyshard_queue_message WHERE body = CAST('of tenant {tenant}' "
                                      "AS BLOB)")
        assert entities == messages == {shard}, tenant
        used.add(shard)
    assert len(used) > 1, "tenants are spread"
    assert len(list(orders.list_entities())) == 2 * len(TENANTS)
    assert queues.get_queue_client("7-jobs").receive_message().content == "of tenant 7"
    # What the map has no key for is refused, and says so.
    with pytest.raises(HttpResponseError) as caught:
        orders.create_entity({"PartitionKey": "nobody", "RowKey": "1"})
    assert caught.value.status_code == 400 and "cannot be placed" in str(caught.value)
    tables.close()
    queues.close()


def test_a_family_of_queues_is_bound_once(doors):
    queues = QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    doors.cli("map", "create", "tenants", "--kind", "hash", "--key", "bigint")
    bound = doors.cli("bind", "queue:*-jobs", "--map", "tenants", "--rule", "before:-")
    assert bound["dataset"] == f"queue:{ACCOUNT}/*-jobs" and bound["exists"] is False and bound["bound"] is True
    doors.cli("bind", "table:*", "--map", "tenants", "--rule", "before:-")
    for tenant in TENANTS:
        queues.create_queue(f"{tenant}-jobs").send_message(f"of tenant {tenant}")
        shard = doors.cli("map", "locate", "tenants", str(tenant))["shard"]
        messages = shards_with(doors, f"SELECT 1 FROM polyshard_queue_message WHERE body = CAST('of tenant {tenant}' "
                                      "AS BLOB)")
        assert messages == {shard}, tenant
    tables = TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)
    tables.set_service_properties(cors=[])
    tables.create_table("Anything").create_entity({"PartitionKey": "7-a", "RowKey": "1"})
    queues.create_queue("mail").send_message("of nobody")
    listed = {one["dataset"]: (one["map"], one["exists"], one["bound"]) for one in doors.cli("datasets")["datasets"]}
    assert listed[f"queue:{ACCOUNT}/7-jobs"] == ("tenants", True, True)
    assert listed[f"queue:{ACCOUNT}/*-jobs"] == ("tenants", False, True)
    assert listed[f"queue:{ACCOUNT}/mail"] == ("queues", True, False)
    assert listed[f"table:{ACCOUNT}/anything"] == ("tenants", True, True)
    # Who makes a queue that could have no place is told at once.
    with pytest.raises(HttpResponseError) as caught:
        queues.create_queue("all-jobs")
    assert caught.value.error_code == "InvalidResourceName"
    for wrong in ["queue:*-*", "queue:*_jobs", "queue:nobody/*", "que*e:jobs", "queue:UPPER*"]:
        assert doors.cli("bind", wrong, "--map", "tenants", "--rule", "before:-")["error"]["code"] == "invalid", wrong
    # What was refused leaves what was bound before.
    doors.cli("bind", "queue:5-jobs", "--map", "tenants", "--rule", "before:-")
    doors.cli("map", "create", "others", "--kind", "hash", "--key", "text")
    assert doors.cli("bind", "queue:5-jobs", "--map", "others")["error"]["code"] == "holds_data"
    listed = {one["dataset"]: (one["map"], one["bound"]) for one in doors.cli("datasets")["datasets"]}
    assert listed[f"queue:{ACCOUNT}/5-jobs"] == ("tenants", True)
    assert doors.cli("unbind", "queue:5-jobs") == {"dataset": "queue:5-jobs"}
    assert doors.cli("unbind", "queue:*-jobs") == {"dataset": "queue:*-jobs"}
    queues.close()
    tables.close()


def test_what_cannot_be_bound_is_refused(doors):
    tables = TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)
    used = tables.create_table("Used")
    used.create_entity({"PartitionKey": "1", "RowKey": "1"})
    doors.cli("map", "create", "tenants", "--kind", "hash", "--key", "bigint")

    def code(*arguments):
        return doors.cli("bind", *arguments)["error"]["code"]

    refused = doors.cli("bind", "table:Used", "--map", "tenants")["error"]
    assert refused["code"] == "holds_data" and "has, or had, rows" in refused["message"], refused
    assert "delete it, bind its name" in refused["remedy"]
    assert code("table:Fresh", "--map", "nowhere") == "not_found"
    for wrong in ["Fresh", "cache:Fresh", "table:a-b", "table:other/Fresh", "queue:Fresh", "queue:nobody"]:
        assert code(wrong, "--map", "tenants") == "invalid", wrong
    assert code("table:Fresh", "--map", "tenants", "--key", "RowKey") == "invalid"
    assert code("table:Fresh", "--map", "tenants", "--rule", "after:-") == "invalid"
    # Nothing of it is left.
    listed = doors.cli("datasets")["datasets"]
    assert [(one["dataset"], one["map"], one["bound"]) for one in listed] == [
        (f"table:{ACCOUNT}/used", "tables", False)
    ]
    used.create_entity({"PartitionKey": "1", "RowKey": "2"})

    doors.cli("bind", "table:Fresh", "--map", "tenants")
    assert doors.cli("map", "drop", "tenants")["error"]["code"] == "holds_data"
    assert doors.cli("unbind", "table:Fresh") == {"dataset": "table:Fresh"}
    assert doors.cli("unbind", "table:Fresh")["error"]["code"] == "not_found"
    assert doors.cli("map", "drop", "tenants") is not None
    tables.close()
