"""The server is killed at each step of a move while clients write; nothing acknowledged is lost or doubled (D8, H1)."""

import os

import pytest

from conformance.traffic import Traffic, check_all

# The first two tenants move, one after the other; the third is on the shard they go to.
TENANTS = [1, 2, 3]
MOVING = TENANTS[0]
# Every place that a move passes, in order.
PLACES = [
    "intent.after", "record_preparing.before", "prepare.before", "prepare.after", "begin.before", "copy.before",
    "copy.after", "verify.before", "record_fencing.before", "raise.before", "raise.after", "await_acks.before",
    "settle.before", "settle.after", "record_departing.before", "depart.before", "depart.after", "activate_from.before",
    "activate_from.after", "record_activating.before", "activate.before", "activate.after", "publish.before",
    "publish.after", "clean.before", "clean.after",
]
# One before anything is copied, one while rows are carried, one before and one after the shard has let go of the range.
FEW = ["copy.before", "depart.before", "depart.after", "clean.before"]


@pytest.mark.parametrize("place", PLACES if os.environ.get("POLYSHARD_LONG") else FEW)
def test_a_kill_during_a_move_loses_nothing(cluster, store, place):
    name = f"killed{store.id}{PLACES.index(place)}"
    cluster.make_map(name, TENANTS[:2])
    cluster.process.cli("map", "add", name, "--key", str(TENANTS[2]), "--to", "s2")
    workload = store(cluster.process, name)
    workload.bind(name, TENANTS)
    workload.make(TENANTS)
    workload.close()
    cluster.expect("held at a failpoint")
    with Traffic(store, name, TENANTS, lambda _: cluster.running.get("first"), forgives=True) as traffic:
        traffic.await_steps(20)
        release = cluster.hold(place)
        move = cluster.process.begin_cli("move", name, "--key", str(MOVING), "--to", "s2")
        cluster.process.await_line(lambda line: "held at a failpoint" in line)
        cluster.kill()
        release()
        move.communicate()
        cluster.start()
        cluster.await_quiet()
        traffic.await_steps(20)
    check_all(store, cluster.process, name, traffic.models)
    cluster.assert_consistent(name)
