"""A server that is killed while tables are written: what was acknowledged is there, and transactions are whole."""

import os
import re
import signal
import subprocess
import threading

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError
from azure.data.tables import TableServiceClient

ACCOUNT = "devstoreaccount1"
# The emulators' key, which Microsoft publishes.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
ROUNDS = 3
WRITERS = 6
# Acknowledged writes after which the server is killed, in the middle of the next ones.
WRITES_BEFORE_KILL = 150
ROWS_IN_TRANSACTION = 5


class Server:
    """The real program on a folder."""

    def __init__(self, folder):
        binary = os.path.join(ROOT, "target", "debug", "polyshard")
        doors = [f"{door}.listen=127.0.0.1:0" for door in ["admin", "queue", "table"]]
        command = [binary, "up", "--data", str(folder)] + [word for door in doors for word in ("--set", door)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stdout:
            if found := re.match(r"\s+table\s+(http://\S+)", line):
                self.url = f"{found.group(1)}/{ACCOUNT}"
            if line.startswith("ready"):
                break
        assert self.url, "the server does not start"

    def client(self):
        return TableServiceClient(self.url, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module", autouse=True)
def binary():
    subprocess.run(["cargo", "build", "--quiet", "-p", "polyshard"], cwd=ROOT, check=True)


def write(server, writer, round_, acknowledged, enough):
    """Writes single entities and transactions in turn until the server is gone."""
    with server.client() as client:
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


def test_nothing_acknowledged_is_lost(tmp_path):
    acknowledged = []
    for round_ in range(ROUNDS):
        server = Server(tmp_path)
        with server.client() as client:
            client.create_table_if_not_exists("crash")
        these, enough = [], threading.Event()
        threads = [
            threading.Thread(target=write, args=(server, writer, round_, these, enough)) for writer in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(60), "the server does not keep up"
        server.kill()
        for thread in threads:
            thread.join()
        acknowledged += these
    server = Server(tmp_path)
    with server.client() as client:
        rows = {}
        for found in client.get_table_client("crash").list_entities():
            key, _, part = found["RowKey"].partition("-")
            rows.setdefault((found["PartitionKey"], key), []).append(part)
    for key in acknowledged:
        assert key in rows, f"{key} was acknowledged and is gone"
    for key, parts in rows.items():
        whole = parts == [""] or sorted(parts) == [str(row) for row in range(ROWS_IN_TRANSACTION)]
        assert whole, f"transaction {key} is there in part: {parts}"
    server.stop()
