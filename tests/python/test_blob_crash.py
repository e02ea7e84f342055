"""A server that is killed while blobs are written: what was acknowledged is there, byte for byte and once."""

import base64
import os
import random
import threading

from azure.core.exceptions import AzureError

from blob_help import connect, read

ROUNDS = 6 if os.environ.get("POLYSHARD_LONG") else 2
# Acknowledged writes after which the server is killed, in the middle of the next ones.
WRITES_BEFORE_KILL = 400
PAGE = 512
PAGES = 64
# Some are kept in the row, and some are objects.
SIZES = [10, 5_000, 70_000, 300_000]


def content_of(seed, size):
    return random.Random(seed).randbytes(size)


class Writer:
    """Writes until the server is gone. `known` is what was acknowledged; `maybe` is what was sent and not answered."""

    def __init__(self, number, seen):
        self.number, self.seen = number, seen
        self.round = 0

    def run(self, doors, round_):
        self.round = round_
        with connect(doors) as client:
            container = client.get_container_client("crash")
            try:
                for step in range(100_000):
                    self.step(container, step, f"{self.number}-{round_}-{step}")
                    self.seen.count()
            except AzureError:
                return


class Puts(Writer):
    """New blobs and overwritten ones, whole and in blocks, and some that are deleted again."""

    def __init__(self, number, seen):
        super().__init__(number, seen)
        self.possible = {}

    def step(self, container, step, seed):
        content = content_of(seed, SIZES[step % len(SIZES)])
        name = f"put/{self.number}/{step % 17 if step % 2 else seed}"
        blob = container.get_blob_client(name)
        before = self.possible.get(name, {None})
        if step % 10 == 9:
            victim = sorted(self.possible)[step % len(self.possible)]
            was = self.possible[victim]
            if None in was:
                return
            self.possible[victim] = was | {None}
            container.delete_blob(victim)
            self.possible[victim] = {None}
        elif step % 3 == 0:
            names = [base64.b64encode(f"{n:03}".encode()).decode() for n in range(3)]
            third = len(content) // 3 + 1
            for n, each in enumerate(names):
                blob.stage_block(each, content[n * third:(n + 1) * third])
            self.possible[name] = before | {content}
            blob.commit_block_list(names)
            self.possible[name] = {content}
        else:
            self.possible[name] = before | {content}
            blob.upload_blob(content, overwrite=True)
            self.possible[name] = {content}

    def check(self, container):
        for name, possible in self.possible.items():
            blob = container.get_blob_client(name)
            found = read(blob) if blob.exists() else None
            assert found in possible, f"{name} is not what was acknowledged"
        return {name for name, possible in self.possible.items() if None not in possible}


class Blocks(Writer):
    """Blocks that are acknowledged and not committed yet: they are as durable as a blob."""

    def __init__(self, number, seen):
        super().__init__(number, seen)
        self.staged = {}

    def step(self, container, step, seed):
        name = f"blocks/{self.number}/{self.round}-{step // 20}"
        block = base64.b64encode(f"{step:05}".encode()).decode()
        content = content_of(seed, SIZES[step % len(SIZES)])
        container.get_blob_client(name).stage_block(block, content)
        self.staged.setdefault(name, []).append((block, content))

    def check(self, container):
        for name, blocks in self.staged.items():
            blob = container.get_blob_client(name)
            committed, waiting = blob.get_block_list("all")
            if not committed:
                sizes = {block.id: block.size for block in waiting}
                assert all(sizes.get(block) == len(content) for block, content in blocks), f"{name}: a block is lost"
                blob.commit_block_list([block for block, _ in blocks])
            assert read(blob) == b"".join(content for _, content in blocks)
        return set(self.staged)


class Appends(Writer):
    """Every acknowledged block once, in order, and behind them at most one that was not answered, at each kill."""

    def __init__(self, number, seen):
        super().__init__(number, seen)
        self.log, self.sent = [], None

    def name(self):
        return f"log/{self.number}"

    def step(self, container, step, seed):
        blob = container.get_blob_client(self.name())
        if not self.log:
            self.log.append((None, b"", True))
            blob.create_append_blob()
        content = content_of(seed, [20, 3000, 80_000][step % 3])
        self.log.append((seed, content, False))
        blob.append_block(content)
        self.log[-1] = (seed, content, True)

    def check(self, container):
        if not self.log or not container.get_blob_client(self.name()).exists():
            assert not any(known for _, _, known in self.log[1:])
            return set()
        found, place = read(container.get_blob_client(self.name())), 0
        for seed, content, known in self.log:
            there = found[place:place + len(content)] == content
            assert there or not known, f"{seed} was acknowledged and is not in its place"
            place += len(content) if there else 0
        assert place == len(found), "something is there that nobody sent, or twice"
        return {self.name()}


class Pages(Writer):
    """Pages of one blob, each written by one request at a time."""

    def __init__(self, number, seen):
        super().__init__(number, seen)
        self.possible, self.made = {}, False

    def name(self):
        return f"pages/{self.number}"

    def step(self, container, step, seed):
        blob = container.get_blob_client(self.name())
        if not self.made:
            blob.create_page_blob(PAGES * PAGE)
            self.made = True
        chance = random.Random(seed)
        count = chance.choice([1, 2, 9])
        first = chance.randrange(PAGES - count)
        clear = step % 5 == 4
        content = bytes(count * PAGE) if clear else chance.randbytes(count * PAGE)
        these = {first + n: content[n * PAGE:(n + 1) * PAGE] for n in range(count)}
        for page, data in these.items():
            self.possible[page] = self.possible.get(page, {bytes(PAGE)}) | {data}
        self.last = these
        if clear:
            blob.clear_page(first * PAGE, count * PAGE)
        else:
            blob.upload_page(content, first * PAGE, count * PAGE)
        self.possible.update({page: {data} for page, data in these.items()})
        self.last = {}

    def check(self, container):
        if not self.made:
            return set()
        found = read(container.get_blob_client(self.name()))
        pages = [found[n * PAGE:(n + 1) * PAGE] for n in range(PAGES)]
        assert len(found) == PAGES * PAGE
        for number, page in enumerate(pages):
            assert page in self.possible.get(number, {bytes(PAGE)}), f"page {number} is not what was acknowledged"
        # One request is done as a whole or not at all; of pages that were equal before nothing can be told.
        done = {pages[page] == data for page, data in self.last.items() if self.possible[page] != {data}}
        assert len(done) <= 1, "a write of pages is there in part"
        # From here on it is known what is there.
        self.possible, self.last = {number: {page} for number, page in enumerate(pages)}, {}
        return {self.name()}


class Seen:
    """Counts what was acknowledged."""

    def __init__(self):
        self.lock, self.enough, self.done, self.wanted = threading.Lock(), threading.Event(), 0, 0

    def count(self):
        with self.lock:
            self.done += 1
            if self.done >= self.wanted:
                self.enough.set()


def test_nothing_acknowledged_is_lost(own_doors):
    seen = Seen()
    writers = [Puts(0, seen), Puts(1, seen), Blocks(2, seen), Appends(3, seen), Pages(4, seen), Pages(5, seen)]
    with connect(own_doors) as client:
        client.create_container("crash")
    for round_ in range(ROUNDS):
        seen.enough.clear()
        seen.wanted = seen.done + WRITES_BEFORE_KILL
        threads = [threading.Thread(target=writer.run, args=(own_doors, round_)) for writer in writers]
        for thread in threads:
            thread.start()
        assert seen.enough.wait(120), "the server does not keep up"
        own_doors.kill()
        for thread in threads:
            thread.join()
        with connect(own_doors) as client:
            container = client.get_container_client("crash")
            # It does not wait for what the killed one has left behind.
            container.upload_blob(f"after/{round_}", content_of(round_, SIZES[-1]))
            there = set().union(*[writer.check(container) for writer in writers])
            listed = [each.name for each in container.list_blobs()]
            assert len(set(listed)) == len(listed) and there <= set(listed)
            # Everything listed is whole.
            for name in listed:
                found = container.get_blob_client(name).download_blob()
                assert len(found.readall()) == found.properties.size
