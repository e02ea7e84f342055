"""A server that is killed while tables are written: what was acknowledged is there, and transactions are whole."""

import os
import threading

from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError
from azure.data.tables import TableServiceClient

from conftest import ACCOUNT, KEY

ROUNDS = 3 if os.environ.get("POLYSHARD_LONG") else 2
WRITERS = 6
# Acknowledged writes after which the server is killed, in the middle of the next ones.
WRITES_BEFORE_KILL = 150
ROWS_IN_TRANSACTION = 5


def connect(doors):
    return TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)


def write(client, writer, round_, acknowledged, enough):
    """Writes single entities and transactions in turn until the server is gone."""
    with client:
        table = client.get_table_client("crash")
        for n in range(100_000):
            key = f"r{round_}n{n:06}"
            try:
                if n % 2:
                    rows = [("create", {"PartitionKey": f"w{writer}", "RowKey": f"{key}-{row}"}) for row in
                            range(ROWS_IN_TRANSACTION)]
                    table.submit_transaction(rows)
                else:
                    table.create_entity({"PartitionKey": f"w{writer}", "RowKey": key})
            except AzureError:
                return
            acknowledged.append((f"w{writer}", key))
            if len(acknowledged) >= WRITES_BEFORE_KILL:
                enough.set()


def test_nothing_acknowledged_is_lost(own_doors):
    acknowledged = []
    for round_ in range(ROUNDS):
        with connect(own_doors) as client:
            client.create_table_if_not_exists("crash")
        these, enough = [], threading.Event()
        threads = [
            threading.Thread(target=write, args=(connect(own_doors), writer, round_, these, enough))
            for writer in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(60), "the server does not keep up"
        own_doors.kill()
        for thread in threads:
            thread.join()
        acknowledged += these
    with connect(own_doors) as client:
        rows = {}
        for found in client.get_table_client("crash").list_entities():
            key, _, part = found["RowKey"].partition("-")
            rows.setdefault((found["PartitionKey"], key), []).append(part)
    for key in acknowledged:
        assert key in rows, f"{key} was acknowledged and is gone"
    for key, parts in rows.items():
        whole = parts == [""] or sorted(parts) == [str(row) for row in range(ROWS_IN_TRANSACTION)]
        assert whole, f"transaction {key} is there in part: {parts}"
