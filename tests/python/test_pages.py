"""Pages of a query go on where they ended, through a move of what is listed and a restart of the server (E6, D3)."""

import pytest

from conftest import Doors
from test_move import TENANTS, connect, ended, prepare

ROWS = 12


@pytest.fixture(params=["sqlite", "postgres"])
def doors(request, program):
    opened = Doors(request.param, "plain")
    yield opened
    opened.stop()


def test_pages_go_on_through_a_move_and_a_restart(doors):
    shards = prepare(doors)
    tables, _ = connect(doors)
    orders = tables.get_table_client("Orders")
    written = [(f"{tenant}-x", f"{row:03}") for tenant in TENANTS for row in range(ROWS)]
    for partition, row in written:
        orders.create_entity({"PartitionKey": partition, "RowKey": row, "n": int(row)})

    def page(token, filter_):
        orders = connect(doors)[0].get_table_client("Orders")
        pages = orders.query_entities(filter_, results_per_page=5).by_page(continuation_token=token)
        found = [(entity["PartitionKey"], entity["RowKey"]) for entity in next(pages)]
        return found, pages.continuation_token

    for filter_, wanted in [("", written), ("n ge 3", [key for key in written if int(key[1]) >= 3])]:
        listed, token, turn = [], None, 0
        while True:
            found, token = page(token, filter_)
            listed += found
            if token is None:
                break
            turn += 1
            if turn in (1, 3):
                # What was listed in part lies elsewhere when the rest is asked for.
                here = doors.cli("map", "locate", "tenants", "1")["shard"]
                there = next(shard for shard in shards if shard != here)
                part = doors.cli("move", "tenants", "--key", "1", "--to", there)["parts"][0]
                assert ended(doors, part["operation"])["state"] == "done"
            if turn == 2:
                doors.kill()
        assert turn > 3
        assert listed == wanted
