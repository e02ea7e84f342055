"""Clients read and write while their tenants move to another shard and back, and notice nothing (D2, H1)."""

import os

from conformance.traffic import Traffic, check_all

TENANTS = [1, 2, 3]
ROUNDS = 5 if os.environ.get("POLYSHARD_LONG") else 1


def test_clients_notice_nothing_of_moves(cluster, store):
    name = f"moving{store.id}"
    cluster.make_map(name, TENANTS)
    workload = store(cluster.process, name)
    workload.bind(name, TENANTS)
    workload.make(TENANTS)
    with Traffic(store, name, TENANTS, lambda _: cluster.process) as traffic:
        for _ in range(ROUNDS):
            for tenant, shard in [(1, "s2"), (2, "s3"), (1, "s1"), (2, "s1")]:
                traffic.await_steps(12)
                cluster.process.cli("move", name, "--key", str(tenant), "--to", shard, "--wait")
                assert cluster.process.cli("map", "locate", name, str(tenant))["shard"] == shard
        traffic.await_steps(12)
    check_all(store, cluster.process, name, traffic.models)
    cluster.assert_consistent(name)
    workload.close()
