"""A tenant moves to another shard while the SDKs write his tables and queues, and while the server is killed (D1-D4, H1)."""

import os
import threading
import time

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY, Doors

TENANTS = [1, 2, 3, 4]
PATIENCE_S = 90


@pytest.fixture(params=["sqlite", "postgres"])
def doors(request, program):
    opened = Doors(request.param, "plain")
    yield opened
    opened.stop()


def connect(doors):
    tables = TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)
    queues = QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    return tables, queues


def prepare(doors):
    """A map of tenants, who all begin on the first shard, with a table and a queue each."""
    shards = [shard["id"] for shard in doors.cli("shard", "list")["shards"]]
    doors.cli("map", "create", "tenants", "--kind", "list", "--key", "bigint")
    for tenant in TENANTS:
        doors.cli("map", "add", "tenants", "--key", str(tenant), "--to", shards[0])
        doors.cli("bind", f"queue:{tenant}-jobs", "--map", "tenants", "--rule", "before:-")
    doors.cli("bind", "table:Orders", "--map", "tenants", "--rule", "before:-")
    tables, queues = connect(doors)
    tables.create_table("Orders")
    for tenant in TENANTS:
        queues.create_queue(f"{tenant}-jobs")
    return shards


def write(doors, tenant, acknowledged, errors, stop, forgiving):
    """Puts entities and messages of one tenant. Whoever kills the server must forgive what fails then."""
    tables, queues = connect(doors)
    number = len(acknowledged)
    while not stop.is_set():
        number += 1
        try:
            entity = {"PartitionKey": f"{tenant}-{number % 5}", "RowKey": f"{number:06}", "body": "x" * 100}
            tables.get_table_client("Orders").create_entity(entity)
            acknowledged.append(("entity", tenant, f"{number:06}"))
            queues.get_queue_client(f"{tenant}-jobs").send_message(f"{number:06}")
            acknowledged.append(("message", tenant, f"{number:06}"))
        except AzureError as error:
            if not forgiving:
                errors.append(f"tenant {tenant}, {number}: {error}")
                return
            time.sleep(0.05)
            tables, queues = connect(doors)


def assert_found(doors, acknowledged):
    """Everything that was acknowledged is there exactly once."""
    tables, queues = connect(doors)
    found = [("entity", int(row["PartitionKey"].split("-")[0]), row["RowKey"])
             for row in tables.get_table_client("Orders").list_entities()]
    for tenant in TENANTS:
        queue = queues.get_queue_client(f"{tenant}-jobs")
        while messages := list(queue.receive_messages(messages_per_page=32, visibility_timeout=600, max_messages=32)):
            found += [("message", tenant, message.content) for message in messages]
    assert len(found) == len(set(found)), "something is there twice"
    missing = set(acknowledged) - set(found)
    assert not missing, f"acknowledged and gone: {sorted(missing)[:5]}"
    assert doors.cli("check", "tenants") == [{"map": "tenants", "misplaced": [], "unreachable": []}]


def start_writers(doors, acknowledged, errors, stop, forgiving):
    threads = [threading.Thread(target=write, args=(doors, tenant, acknowledged[tenant], errors, stop, forgiving))
               for tenant in TENANTS]
    for thread in threads:
        thread.start()
    return threads


def ended(doors, operation):
    """Waits for the end of an operation."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        shown = doors.cli("ops", "show", operation)
        if shown.get("state") in ("done", "rolled_back"):
            return shown
        time.sleep(0.05)
    raise AssertionError(f"the move does not end: {shown}")


def test_writers_see_nothing_of_a_move(doors):
    shards = prepare(doors)
    acknowledged, errors, stop = {tenant: [] for tenant in TENANTS}, [], threading.Event()
    threads = start_writers(doors, acknowledged, errors, stop, forgiving=False)
    for tenant, shard in [(1, shards[1]), (2, shards[2]), (1, shards[2])]:
        time.sleep(0.3)
        part = doors.cli("move", "tenants", "--key", str(tenant), "--to", shard)["parts"][0]
        assert ended(doors, part["operation"])["state"] == "done"
        assert doors.cli("map", "locate", "tenants", str(tenant))["shard"] == shard
    # One that is undone again.
    part = doors.cli("move", "tenants", "--key", "3", "--to", shards[1], "--keep", "10m")["parts"][0]
    until = time.monotonic() + PATIENCE_S
    while doors.cli("ops", "show", part["operation"])["step"] != "keeping":
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.3)
    undo = doors.cli("ops", "undo", part["operation"])
    assert ended(doors, undo["id"])["state"] == "done"
    assert doors.cli("map", "locate", "tenants", "3")["shard"] == shards[0]
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert_found(doors, [one for each in acknowledged.values() for one in each])


def test_a_server_killed_during_moves_loses_nothing(doors):
    shards = prepare(doors)
    acknowledged, errors, stop = {tenant: [] for tenant in TENANTS}, [], threading.Event()
    threads = start_writers(doors, acknowledged, errors, stop, forgiving=True)
    # Each costs the time after which a dead process is replaced. Every state of a move has a test of the program's own.
    waits = [0.0, 0.02, 0.05, 0.1, 0.2] if os.environ.get("POLYSHARD_LONG") else [0.02, 0.1]
    for round_, wait in enumerate(waits):
        time.sleep(0.3)
        tenant, shard = TENANTS[round_ % 2], shards[(round_ // 2 + 1) % len(shards)]
        parts = doors.cli("move", "tenants", "--key", str(tenant), "--to", shard).get("parts", [])
        time.sleep(wait)
        doors.kill()
        for part in parts:
            ended(doors, part["operation"])
    stop.set()
    for thread in threads:
        thread.join()
    assert_found(doors, [one for each in acknowledged.values() for one in each])
