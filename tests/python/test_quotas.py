"""Quotas: a key, each key of a map, a table or a queue has so many requests a second, and the rest is told to wait (E6)."""

import psycopg
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY


def refused(work, most=100):
    """Does something until it is refused; the refusal."""
    for _ in range(most):
        try:
            work()
        except (HttpResponseError, psycopg.Error) as error:
            return error
    pytest.fail(f"nothing was refused within {most} requests")


def test_requests_beyond_a_quota_are_told_when_to_come_again(own_doors):
    doors = own_doors
    credential = AzureNamedKeyCredential(ACCOUNT, KEY)
    tables = TableServiceClient(doors.table, credential=credential, retry_total=0)
    queues = QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    things, others = tables.create_table("quotathings"), tables.create_table("quotaothers")
    jobs = queues.create_queue("quotajobs")
    for number in range(20):
        things.upsert_entity({"PartitionKey": "p", "RowKey": str(number)})
        jobs.send_message(str(number))

    # A quota so low that no machine is too slow to reach it.
    assert doors.cli("quota", "set", "table:quotathings", "--requests", "1")["requests"] == 1
    assert doors.cli("quota", "set", "queue:quotajobs", "--requests", "1")["requests"] == 1
    for work in [lambda: things.get_entity("p", "1"), lambda: list(things.list_entities()),
                 lambda: things.upsert_entity({"PartitionKey": "p", "RowKey": "1"}),
                 lambda: jobs.send_message("x"), jobs.peek_messages]:
        error = refused(work)
        assert error.status_code == 503 and error.error_code == "ServerBusy", error
        assert int(error.response.headers["Retry-After"]) >= 1
        assert "1 requests a second" in str(error), error
    others.upsert_entity({"PartitionKey": "p", "RowKey": "1"})

    # A batch is as many requests as it has operations: at two a second, the next must wait for all of them.
    assert doors.cli("quota", "set", "table:quotathings", "--requests", "2")["requests"] == 2
    operations = [("upsert", {"PartitionKey": "p", "RowKey": str(number)}) for number in range(100)]
    things.submit_transaction(operations)
    assert int(refused(lambda: things.get_entity("p", "1"), 2).response.headers["Retry-After"]) >= 5

    # Without a quota all is as before; a client as it is out of the box waits by itself and succeeds.
    doors.cli("quota", "remove", "table:quotathings")
    for _ in range(20):
        things.get_entity("p", "1")
    doors.cli("quota", "set", "table:quotathings", "--requests", "2")
    patient = TableServiceClient(doors.table, credential=credential).get_table_client("quotathings")
    for _ in range(5):
        patient.get_entity("p", "1")
    listed = doors.cli("quota", "list")["quotas"]
    assert [quota["of"]["kind"] for quota in listed] == ["dataset", "dataset"]
    # It outlives its table, and can be taken back then.
    tables.delete_table("quotathings")
    for of in ["table:quotathings", "queue:quotajobs"]:
        doors.cli("quota", "remove", of)
    assert doors.cli("quota", "list")["quotas"] == []
    assert "has no quota" in doors.cli("quota", "remove", "queue:quotajobs")["error"]["message"]


def test_one_tenants_quota_is_no_other_tenants(own_doors):
    doors = own_doors
    with psycopg.connect(doors.libpq(), autocommit=True) as connection:
        connection.execute("SELECT polyshard.create_map('paying', 'hash', 'bigint')")
        connection.execute("CREATE TABLE paid (tenant bigint, id bigint, PRIMARY KEY (tenant, id))")
        connection.execute("SELECT polyshard.shard_table('paid', 'paying', 'tenant')")
        read = lambda tenant: connection.execute("SELECT count(*) FROM paid WHERE tenant = %s", [tenant]).fetchone()
        doors.cli("quota", "set", "paying", "--key", "42", "--requests", "1")
        error = refused(lambda: read(42))
        assert error.sqlstate == "53400" and "key 42 of map paying" in str(error), error
        for _ in range(20):
            assert read(43) == (0,)
        # One for each: tenant 42 keeps its own.
        doors.cli("quota", "set", "paying", "--each", "--requests", "1")
        doors.cli("quota", "set", "paying", "--key", "42", "--requests", "1000000")
        for tenant in [7, 8]:
            assert refused(lambda: read(tenant)).sqlstate == "53400"
        for _ in range(20):
            assert read(42) == (0,)
        # What was begun is not broken off: a transaction is let in, or refused, where it begins.
        doors.cli("quota", "set", "paying", "--key", "42", "--requests", "1")
        doors.cli("quota", "set", "paying", "--key", "42", "--requests", "2")
        with connection.transaction():
            for number in range(10):
                connection.execute("INSERT INTO paid VALUES (42, %s)", [number])
        doors.cli("quota", "remove", "paying", "--each")
        doors.cli("quota", "remove", "paying", "--key", "42")
        assert read(42) == (10,)
        assert doors.cli("quota", "list")["quotas"] == []
    # A map's quotas go with it.
    doors.cli("map", "create", "brief", "--kind", "hash", "--key", "bigint")
    doors.cli("quota", "set", "brief", "--each", "--requests", "1")
    doors.cli("map", "drop", "brief")
    doors.cli("map", "create", "brief", "--kind", "hash", "--key", "bigint")
    assert doors.cli("quota", "list")["quotas"] == []
    assert doors.cli("quota", "set", "nosuchmap", "--each", "--requests", "1")["error"]["code"] == "not_found"
    assert doors.cli("quota", "set", "paying", "--key", "x", "--requests", "1")["error"]["code"] == "invalid"
    assert doors.cli("quota", "set", "paying", "--each", "--requests", "0")["error"]["code"] == "invalid"
