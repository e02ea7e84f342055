"""Two server processes on one PostgreSQL catalog: one is killed during a move, and the other ends it (B3, D8)."""

import contextlib
import os

import pytest

from conformance.server import PATIENCE_S, Cluster
from conformance.stores import STORES
from conformance.traffic import Traffic, check_all

# The clients of the first begin at the process that is killed, those of the second at the other.
TENANTS = [1, 2]
PLACES = ["copy.before", "raise.after", "depart.before", "depart.after", "activate.after", "clean.before"]
FEW = ["depart.after"]


@pytest.fixture(scope="module")
def pair(built):
    # A file belongs to one process, so there is no such case for the other engine.
    cluster = Cluster("postgres")
    try:
        cluster.start("first")
        cluster.start("second")
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.parametrize("place", PLACES if os.environ.get("POLYSHARD_LONG") else FEW)
def test_a_process_is_killed_and_the_other_goes_on(pair, place):
    map_name = f"pair{PLACES.index(place)}"
    pair.make_map(map_name, TENANTS)
    names = {store: f"{map_name}{store.id}" for store in STORES}
    for store, name in names.items():
        with contextlib.closing(store(pair.running["first"], name)) as workload:
            workload.bind(map_name, TENANTS)
            workload.make(TENANTS)
    pair.expect("held at a failpoint")

    def process_of(tenant):
        return tenant == TENANTS[0] and pair.running.get("first") or pair.running["second"]

    with contextlib.ExitStack() as stack:
        traffic = [stack.enter_context(Traffic(store, name, TENANTS, process_of, forgives=True))
                   for store, name in names.items()]
        await_steps(traffic)
        # One that is carried through while both serve, so that each hears of what the other does.
        pair.running["second"].cli("move", map_name, "--key", str(TENANTS[0]), "--to", "s2", "--wait")
        await_steps(traffic)
        release = pair.hold(place)
        dying = pair.running["first"]
        move = dying.begin_cli("move", map_name, "--key", str(TENANTS[1]), "--to", "s3")
        dying.await_line(lambda line: "held at a failpoint" in line)
        pair.kill("first")
        release()
        move.communicate(timeout=PATIENCE_S)
        # All clients are at the other process now, which ends the move.
        await_steps(traffic)
        pair.await_quiet(pair.running["second"])
        await_steps(traffic)
        pair.start("first")
    # The one that was away has the same to say.
    for each, (store, name) in zip(traffic, names.items()):
        check_all(store, pair.running["first"], name, each.models)
    pair.assert_consistent(map_name)


def await_steps(traffic):
    for each in traffic:
        each.await_steps(12)
