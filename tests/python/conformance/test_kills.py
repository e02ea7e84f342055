"""The server is killed at each step of a move while the clients of all stores write: nothing is lost (D8, H1)."""

import contextlib
import os

import pytest

from conformance.server import PATIENCE_S
from conformance.stores import STORES
from conformance.traffic import Traffic, check_all

# The first moves; the second is on the shard where it goes.
TENANTS = MOVING, RESTING = [1, 2]
# Every place that a move passes, in order.
PLACES = [
    "intent.after", "prepare.before", "prepare.after", "begin.before", "record_copying.before", "copy.before",
    "copy.after", "record_catching_up.before", "catch_up.before", "verify.before", "record_fencing.before",
    "raise.before", "raise.after", "await_acks.before", "settle.before", "settle.after", "record_departing.before",
    "depart.before", "depart.after", "activate_from.before", "activate_from.after", "record_activating.before",
    "activate.before", "activate.after", "publish.before", "publish.after", "record_cleaning.before", "clean.before",
    "clean.after",
]
# One while rows are carried, one before and one after the shard has let go of the range, and one while it cleans up.
FEW = ["copy.before", "depart.before", "depart.after", "clean.before"]


@pytest.mark.parametrize("place", PLACES if os.environ.get("POLYSHARD_LONG") else FEW)
def test_a_kill_during_a_move_loses_nothing(cluster, place):
    # A tenant's data of all stores moves at once, so that one kill serves for all.
    map_name = f"killed{PLACES.index(place)}"
    cluster.make_map(map_name, [MOVING])
    cluster.process.cli("map", "add", map_name, "--key", str(RESTING), "--to", "s2")
    names = {store: f"{map_name}{store.id}" for store in STORES}
    for store, name in names.items():
        with contextlib.closing(store(cluster.process, name)) as workload:
            workload.bind(map_name, TENANTS)
            workload.make(TENANTS)
    cluster.expect("held at a failpoint")
    with contextlib.ExitStack() as stack:
        traffic = [stack.enter_context(Traffic(store, name, TENANTS, lambda _: cluster.running.get("first"),
                                               forgives=True)) for store, name in names.items()]
        for each in traffic:
            each.await_steps(12)
        release = cluster.hold(place)
        move = cluster.process.begin_cli("move", map_name, "--key", str(MOVING), "--to", "s2")
        cluster.process.await_line(lambda line: "held at a failpoint" in line)
        cluster.kill()
        release()
        move.communicate(timeout=PATIENCE_S)
        cluster.start()
        cluster.await_quiet()
        for each in traffic:
            each.await_steps(12)
    for each, (store, name) in zip(traffic, names.items()):
        check_all(store, cluster.process, name, each.models)
    cluster.assert_consistent(map_name)
