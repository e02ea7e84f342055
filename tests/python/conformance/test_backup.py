"""One tenant's data is restored from a backup while the others are used (E1)."""

import os

import pytest

from conformance.server import Failed
from conformance.traffic import Client, Traffic, check_all

RESTORED, OTHERS = 1, [2, 3]


def test_a_shardlet_is_restored_beside_the_running_rest(cluster, store):
    name = f"saved{store.id}"
    cluster.make_map(name, [RESTORED, *OTHERS])
    workload = store(cluster.process, name)
    workload.bind(name, [RESTORED, *OTHERS])
    workload.make([RESTORED, *OTHERS])
    client = Client(workload, RESTORED)
    backup = os.path.join(cluster.folder, name)
    shardlet = ["--map", name, "--key", str(RESTORED)]
    with Traffic(store, name, OTHERS, lambda _: cluster.process) as traffic:
        for _ in range(25):
            client.step()
        cluster.process.cli("backup", "take", backup, *shardlet)
        then = client.model.copy()
        for _ in range(25):
            client.step()
        # On another shard by now: it is restored to where its key is.
        cluster.process.cli("move", name, "--key", str(RESTORED), "--to", "s2", "--wait")
        check_all(store, cluster.process, name, [client.model])
        traffic.await_steps(12)
        cluster.expect("use --replace to put those of the backup in their place")
        with pytest.raises(Failed, match="--replace"):
            cluster.process.cli("restore", backup, *shardlet)
        cluster.process.cli("restore", backup, *shardlet, "--replace")
        traffic.await_steps(12)
    check_all(store, cluster.process, name, [then, *traffic.models])
    # It can be used as before.
    workload.write(RESTORED, 1000, f"{RESTORED}/1000/0/")
    then.begin(1000, f"{RESTORED}/1000/0/")
    then.acknowledge(1000, f"{RESTORED}/1000/0/")
    check_all(store, cluster.process, name, [then])
    cluster.assert_consistent(name)
    workload.close()
