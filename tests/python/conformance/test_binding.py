"""Datasets are bound to a map of the operator, bound again while they are unused, and listed (C8)."""

import pytest

from conformance.server import Failed
from conformance.traffic import text_of
from conformance.workload import HoldsData

TENANTS = [1, 2]


def listed(process, workload):
    """The map of each tenant's dataset, as the operator sees it."""
    maps = {dataset["dataset"]: dataset["map"] for dataset in process.cli("datasets")["datasets"]}
    return [maps.get(workload.dataset(tenant)) for tenant in TENANTS]


def test_a_dataset_is_bound_listed_and_bound_again(cluster, store):
    process, first, second = cluster.process, f"first{store.id}", f"second{store.id}"
    cluster.make_map(first, TENANTS, shard="s1")
    cluster.make_map(second, TENANTS, shard="s2")
    workload = store(process, f"bound{store.id}")
    workload.bind(first, TENANTS)
    workload.bind(second, TENANTS)
    workload.make(TENANTS)
    assert listed(process, workload) == [second, second]
    for tenant in TENANTS:
        workload.write(tenant, 1, text_of(tenant, 1, 0))
    # With data it stays bound, and its map stays.
    with pytest.raises(HoldsData):
        workload.bind(first, TENANTS)
    with pytest.raises(Failed, match="holds_data"):
        process.cli("map", "drop", second)
    assert listed(process, workload) == [second, second]
    # The map that it was bound to before does not place it, and can go; the other does, and moves it.
    process.cli("map", "drop", first, "--destroy", first)
    process.cli("move", second, "--key", str(TENANTS[0]), "--to", "s3", "--wait")
    for tenant in TENANTS:
        assert workload.read_all(tenant) == [text_of(tenant, 1, 0)]
    cluster.assert_consistent(second)
    workload.close()
