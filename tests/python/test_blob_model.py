"""Random sequences of all operations on blobs against a model, while the blobs move from shard to shard."""

import os
import random
import threading
import time
import uuid

from blob_help import Raw, connect
from blob_walk import Walk
from conftest import ACCOUNT

LONG = bool(os.environ.get("POLYSHARD_LONG"))
STEPS = 100_000 if LONG else 400
MOVES_MIN = 3
PATIENCE_S = 120
TENANTS = [1, 2, 3]


def seed():
    """The one that the environment names replays a failure."""
    given = os.environ.get("POLYSHARD_SEED")
    return int(given) if given else random.SystemRandom().randrange(10 ** 6) if LONG else 21


class Mover:
    """Moves ranges to the next shard, one after the other, until the context is left."""

    def __init__(self, doors, map_name, ranges):
        self.doors, self.map, self.ranges = doors, map_name, ranges
        self.shards = [shard["id"] for shard in doors.cli("shard", "list")["shards"]]
        self.done, self.wrong, self.over = 0, [], threading.Event()
        self.thread = threading.Thread(target=self._work)

    def _work(self):
        while not self.over.wait(0.05):
            words = self.ranges[self.done % len(self.ranges)]
            shard = self.shards[(1 + self.done // len(self.ranges)) % len(self.shards)]
            answer = self.doors.cli("move", self.map, *words, "--to", shard, "--wait")
            if "error" in answer:
                self.wrong.append(answer)
                return
            self.done += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, _error, _traceback):
        self.over.set()
        self.thread.join()
        assert kind or not self.wrong, self.wrong


def walk(doors, container, names, mover):
    """Walks for so many steps, and until there were moves; then compares everything."""
    number = seed()
    raw = Raw(doors)
    walker = Walk(raw, container, names, random.Random(number), waits=LONG)
    until, steps = time.monotonic() + PATIENCE_S, 0
    try:
        with mover:
            while steps < STEPS or mover.done < MOVES_MIN:
                assert steps < STEPS or time.monotonic() < until, f"only {mover.done} moves: {mover.wrong}"
                walker.step()
                steps += 1
        walker.check()
    except BaseException:
        print(f"\nPOLYSHARD_SEED={number}, step {steps}, {mover.done} moves; the last requests:")
        print("\n".join(walker.trace))
        raise
    finally:
        raw.close()
    # Every operation had its turn.
    assert STEPS < 400 or len(walker.kinds) == len(walker.operations), walker.kinds


def test_a_container_over_several_shards(own_doors):
    """The first segment of a name places the blob, and a listing merges the shards."""
    own_doors.cli("map", "create", "model", "--kind", "list", "--key", "bigint")
    for tenant in TENANTS:
        own_doors.cli("map", "add", "model", "--key", str(tenant), "--to", "s1")
    container = "model" + uuid.uuid4().hex
    bound = own_doors.cli("bind", f"blob:{container}", "--map", "model", "--key", "name", "--rule", "before:/")
    assert "error" not in bound, bound
    with connect(own_doors) as service:
        service.create_container(container)
        names = ["1/a", "1/dir/ü c", "2/b", "2//e", "3/x"]
        walk(own_doors, container, names, Mover(own_doors, "model", [["--key", str(tenant)] for tenant in TENANTS]))
        service.delete_container(container)


def test_a_container_on_the_default_map(own_doors):
    """Account, container and name are the key of a range map, which is cut within the container."""
    container = "model" + uuid.uuid4().hex
    with connect(own_doors) as service:
        service.create_container(container)
        # The map is there as soon as it is needed.
        service.get_container_client(container).upload_blob("first", b"x")
        service.get_container_client(container).delete_blob("first")
        here = f"{ACCOUNT}/{container}"
        cuts = [["--range", f"{here}/..{here}/dir/"], ["--range", f"{here}/dir/..{here}/e"], ["--range", f"{here}/e.."]]
        names = ["a", "dir/b", "dir/ü c", "e//f"]
        walk(own_doors, container, names, Mover(own_doors, "blobs", cuts))
        service.delete_container(container)
    checked = own_doors.cli("check", "blobs")
    assert checked == [{"map": "blobs", "misplaced": [], "unreachable": []}], checked
