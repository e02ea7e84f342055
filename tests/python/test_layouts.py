"""Files that earlier versions have made hold entities in another order, and serve beside new ones (decision 16; D2, G2, H1)."""

import itertools
import os
import sqlite3

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient, UpdateMode

from conformance.server import await_true
from conftest import ACCOUNT, KEY, Doors

COLUMNS = ("dataset INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, placement BLOB NOT NULL, ts INTEGER NOT NULL, "
           "props TEXT NOT NULL")
# As they were made first, and then; the other files are as they are made now.
EARLIER = {
    "s1": [f"CREATE TABLE polyshard_entity ({COLUMNS}, PRIMARY KEY (dataset, pk, rk)) WITHOUT ROWID, STRICT",
           "CREATE INDEX polyshard_entity_placement ON polyshard_entity (dataset, placement)"],
    "s2": [f"CREATE TABLE polyshard_entity ({COLUMNS}, PRIMARY KEY (dataset, placement, pk, rk)) WITHOUT ROWID, STRICT"],
}
PARTITIONS = [f"p{number:02}" for number in range(40)]


@pytest.fixture
def doors(program):
    opened = Doors("sqlite", "plain")
    yield opened
    opened.stop()


def open_file(doors, shard):
    return sqlite3.connect(os.path.join(doors.data, "shards", f"{shard}.db"), isolation_level=None, timeout=30)


def lay_out(doors, shard, statements):
    """Makes the table of entities, which is empty, as an earlier version has."""
    file = open_file(doors, shard)
    told = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'polyshard_entity'"
    # The tables of stores are made when a shard is first used, which may be after the program said that it is ready.
    await_true(f"triggers on {shard}", lambda: file.execute(told).fetchall())
    triggers = [sql for (sql,) in file.execute(told)]
    assert file.execute("SELECT count(*) FROM polyshard_entity").fetchone() == (0,)
    file.execute("BEGIN IMMEDIATE")
    for statement in ["DROP TABLE polyshard_entity", *statements, *triggers]:
        file.execute(statement)
    file.execute("COMMIT")
    file.close()


def layout(doors, shard):
    file = open_file(doors, shard)
    [(sql,)] = file.execute("SELECT sql FROM sqlite_schema WHERE name = 'polyshard_entity'")
    file.close()
    return sql


def assert_lists(doors, shard):
    """The list of partitions, which scans go by, is that of the entities."""
    file = open_file(doors, shard)
    listed, there = (file.execute(sql).fetchall() for sql in [
        "SELECT number, name, place FROM polyshard_entity_partition ORDER BY 1, 2",
        "SELECT DISTINCT dataset, pk, placement FROM polyshard_entity ORDER BY 1, 2"])
    file.close()
    assert listed == there, shard


def assert_found(table, expected):
    """All of them, in order, with the versions that the client knows; and what some filters let through."""
    found = [(row["PartitionKey"], row["RowKey"], row["n"], row.metadata["etag"]) for row in table.list_entities()]
    assert found == sorted((pk, rk, n, etag) for (pk, rk), (n, etag) in expected.items())
    for name, fits in [("n ge 100 and n lt 200", lambda pk, n: 100 <= n < 200),
                       ("PartitionKey ge 'p10' and PartitionKey lt 'p30' and n ne 150",
                        lambda pk, n: "p10" <= pk < "p30" and n != 150),
                       ("PartitionKey eq 'p07' or n eq 250", lambda pk, n: pk == "p07" or n == 250)]:
        keys = [(row["PartitionKey"], row["RowKey"]) for row in table.query_entities(name, results_per_page=7)]
        assert keys == sorted(key for key, (n, _) in expected.items() if fits(key[0], n)), name


def test_files_of_all_layouts_serve_together(doors):
    shards = [shard["id"] for shard in doors.cli("shard", "list")["shards"]]
    assert len(shards) == 4
    for shard, statements in EARLIER.items():
        lay_out(doors, shard, statements)
    doors.kill()
    doors.cli("map", "create", "places", "--kind", "hash", "--key", "text")
    doors.cli("bind", "table:Layouts", "--map", "places", "--key", "PartitionKey")
    service = TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY))
    table = service.create_table("Layouts")
    expected = {}

    def put(pk, rk, n):
        told = table.upsert_entity({"PartitionKey": pk, "RowKey": rk, "n": n}, mode=UpdateMode.REPLACE)
        expected[pk, rk] = (n, told["etag"])

    for number, pk in enumerate(PARTITIONS):
        for row in range(8):
            put(pk, f"{row}", number * 8 + row)
    assert_found(table, expected)
    entries = {entry["shard"]: entry["range"]["buckets"] for entry in doors.cli("map", "entries", "places")["entries"]}
    assert sorted(entries) == sorted(shards)
    # A part of each shard goes to each other one, and between two moves everything is written to a little.
    for step, (source, target) in enumerate(itertools.permutations(shards, 2)):
        first, last = entries[source]
        entries[source] = [first + 40, last]
        moved = doors.cli("move", "places", "--buckets", f"{first}..{first + 40}", "--to", target, "--wait")
        assert "error" not in moved, moved
        for pk in PARTITIONS[step::12]:
            put(pk, "1", 1000 + step)
            if expected.pop((pk, "2"), None):
                table.delete_entity(pk, "2")
            put(pk, f"new {step}", step)
        assert_found(table, expected)
    assert doors.cli("check", "places") == [{"map": "places", "misplaced": [], "unreachable": []}]
    for shard in shards:
        assert_lists(doors, shard)
        assert layout(doors, shard) == EARLIER.get(shard, [layout(doors, "s3")])[0]
    assert "WITHOUT ROWID" not in layout(doors, "s3")
    table.delete_entity("p00", "0")
    del expected["p00", "0"]
    assert_found(table, expected)
