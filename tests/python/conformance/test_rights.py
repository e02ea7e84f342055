"""A limited user may do what was granted and nothing else, for a store, a dataset and a key (E7)."""

import contextlib
import itertools

from conformance.stores import STORES
from conformance.traffic import text_of
from conformance.workload import NotGranted

MINE, FOREIGN = 1, 2
TENANTS = [MINE, FOREIGN]
NOTHING, READ, WRITE = set(), {"read"}, {"read", "write"}


@contextlib.contextmanager
def granted(process, user, right, *on):
    """The user has the right, and has it no more afterwards."""
    process.cli("user", "grant", user, right, *on)
    yield
    process.cli("user", "revoke", user, right, *on)


def is_refused(request, *arguments):
    try:
        request(*arguments)
    except NotGranted:
        return True
    return False


class User:
    """A limited user's client of one dataset, and an item of each tenant that it wrote when it was allowed to."""

    def __init__(self, workload):
        self.workload, self._numbers = workload, itertools.count(100)
        # The numbers of each tenant's items.
        self.written = {tenant: [] for tenant in TENANTS}

    def rights(self, tenant):
        """What is not refused to the user on the tenant's items."""
        rights = set()
        if not is_refused(self.workload.look, tenant):
            rights.add("read")
        number = next(self._numbers)
        if not is_refused(self.workload.write, tenant, number, text_of(tenant, number, 0)):
            rights.add("write")
            self.written[tenant].append(number)
        else:
            written = self.written[tenant][0]
            assert is_refused(self.workload.change, tenant, written, text_of(tenant, written, 1))
            assert is_refused(self.workload.remove, tenant, written)
        return rights


def test_a_user_may_do_what_was_granted_and_nothing_else(cluster, store):
    process = cluster.process
    name, other = f"rights{store.id}", f"others{store.id}"
    cluster.make_map(name, TENANTS)
    owners = [store(process, dataset) for dataset in [name, other]]
    for owner in owners:
        owner.bind(name, TENANTS)
        owner.make(TENANTS)
    foreign_store = next(each.id for each in STORES if each is not store)
    with store.limited(process) as (user, connect):
        workloads = [connect(dataset) for dataset in [name, other]]
        mine, others = [User(workload) for workload in workloads]

        def rights():
            """On my key, on a foreign key, and on both of another dataset."""
            return [each.rights(tenant) for each in [mine, others] for tenant in TENANTS]

        with granted(process, user, "write"):
            assert rights() == [WRITE, WRITE, WRITE, WRITE]
        assert rights() == [NOTHING, NOTHING, NOTHING, NOTHING]
        with granted(process, user, "read"):
            assert rights() == [READ, READ, READ, READ]
        with granted(process, user, "write", "--store", store.id):
            assert rights() == [WRITE, WRITE, WRITE, WRITE]
        with granted(process, user, "write", "--store", foreign_store):
            assert rights() == [NOTHING, NOTHING, NOTHING, NOTHING]
        with granted(process, user, "write", "--map", name, "--key", str(MINE)):
            assert rights() == [WRITE, NOTHING, WRITE, NOTHING]
        with granted(process, user, "read", "--store", store.id, "--map", name, "--key", str(MINE)):
            assert rights() == [READ, NOTHING, READ, NOTHING]
        with granted(process, user, "write", "--store", store.id, "--table", mine.workload.granted_as(MINE)):
            # A tenant may have a dataset of its own.
            is_shared = mine.workload.dataset(MINE) == mine.workload.dataset(FOREIGN)
            assert rights() == [WRITE, WRITE if is_shared else NOTHING, NOTHING, NOTHING]
        # Datasets are made by those who may change the schema.
        more = connect(f"more{store.id}")
        more.bind(name, TENANTS)
        with granted(process, user, "write"):
            assert is_refused(more.make, TENANTS)
        with granted(process, user, "schema"):
            more.make(TENANTS)
            assert User(more).rights(MINE) == WRITE
        for workload in [*workloads, more]:
            workload.close()
    # What was refused was not done.
    for owner, each in zip(owners, [mine, others]):
        for tenant, numbers in each.written.items():
            assert sorted(owner.read_all(tenant)) == sorted(text_of(tenant, number, 0) for number in numbers)
        owner.close()
