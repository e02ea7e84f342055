"""Over a quota a client is told when to come again, and other keys are not held up (E6)."""

import itertools
import time

import pytest

from conformance.server import PATIENCE_S
from conformance.traffic import text_of
from conformance.workload import Busy

LIMITED, FREE = 1, 2
# So low that no machine is too slow to exceed it.
RATE = 1
REQUESTS_MAX = 50


def test_a_key_over_its_quota_has_to_wait_and_no_other_has(cluster, store):
    process, name = cluster.process, f"quota{store.id}"
    cluster.make_map(name, [LIMITED, FREE])
    # A client that repeats by itself would wait and hide the refusal.
    workload = store(process, name, retry=False)
    workload.bind(name, [LIMITED, FREE])
    workload.make([LIMITED, FREE])
    numbers = itertools.count(1)
    written = []

    def write(tenant):
        number = next(numbers)
        workload.write(tenant, number, text_of(tenant, number, 0))
        if tenant == LIMITED:
            written.append(text_of(tenant, number, 0))

    process.cli("quota", "set", name, "--key", str(LIMITED), "--requests", str(RATE))
    with pytest.raises(Busy) as refused:
        for _ in range(REQUESTS_MAX):
            write(LIMITED)
    assert 0 < refused.value.retry_after_s <= 2 / RATE
    with pytest.raises(Busy):
        for _ in range(REQUESTS_MAX):
            workload.look(LIMITED)
    # Others go on at once: they are refused nothing.
    for _ in range(20):
        write(FREE)
    assert len(workload.look(FREE)) == 20
    # After the time that it was told, the client is let in. A refused request costs nothing more.
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            write(LIMITED)
            break
        except Busy as busy:
            assert time.monotonic() < until, "it is refused for ever"
            time.sleep(busy.retry_after_s)
    process.cli("quota", "remove", name, "--key", str(LIMITED))
    for _ in range(5):
        write(LIMITED)
    # What was refused was not done.
    assert sorted(workload.read_all(LIMITED)) == sorted(written)
    workload.close()
