"""Large blobs go through the server in constant memory, up and down, and several of them at a time."""

import hashlib
import os
import random
import threading

from blob_help import MIB, Raw, connect

SIZE = (2048 if os.environ.get("POLYSHARD_LONG") else 200) * MIB
GROWTH_MAX = 64 * MIB
# Where several clients work at once, each may have its own buffers, whatever the size of its blob.
GROWTH_OF_EACH_MAX = 16 * MIB
CLIENTS = 6
PIECE = 256 * 1024


class Source:
    """A file of random bytes that is never whole in memory."""

    def __init__(self, size, seed):
        self.piece, self.size, self.place = random.Random(seed).randbytes(PIECE - 7), size, 0
        self.digest = hashlib.md5()

    def read(self, count=-1):
        count = self.size - self.place if count < 0 else min(count, self.size - self.place)
        parts = []
        while count:
            start = self.place % len(self.piece)
            part = self.piece[start:start + count]
            parts.append(part)
            self.place += len(part)
            count -= len(part)
        data = b"".join(parts)
        self.digest.update(data)
        return data


def program_of(doors):
    """The server's process: the child of the one that opened the doors, or the grandchild."""
    wanted, found = {doors.process.pid}, []
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                rest = file.read().rsplit(")", 1)[1].split()
            parents[int(name)] = int(rest[1])
        except OSError:
            continue
    for child, parent in sorted(parents.items()):
        if parent in wanted and command(child)[:1] and os.path.basename(command(child)[0]) == "polyshard":
            found.append(child)
    assert len(found) == 1, f"the server is not found: {found}"
    return found[0]


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().split("\0")
    except OSError:
        return []


def memory(pid, name):
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


class Peak:
    """Fails if the server's memory grows by more than it may while the context is open."""

    def __init__(self, doors, growth_max=GROWTH_MAX):
        self.pid, self.growth_max = program_of(doors), growth_max

    def __enter__(self):
        # Forgets the peak so far.
        with open(f"/proc/{self.pid}/clear_refs", "w") as file:
            file.write("5")
        self.idle = memory(self.pid, "VmRSS")

    def __exit__(self, kind, _error, _traceback):
        growth = memory(self.pid, "VmHWM") - self.idle
        assert kind or growth <= self.growth_max, f"it grew by {growth // MIB} MiB over {self.idle // MIB} MiB"


def warmed(container):
    """Has the server load what it loads once: certificates, connections, statements."""
    container.upload_blob("warm", b"x" * MIB)
    container.get_blob_client("warm").download_blob().readall()


def digest(answer):
    """The MD5 of a body, and its length, read piece by piece."""
    found, length = hashlib.md5(), 0
    while piece := answer.read(PIECE):
        found.update(piece)
        length += len(piece)
    return found.hexdigest(), length


def test_one_request_of_any_size(own_doors):
    """A Put Blob and a Get Blob of the whole, as curl and the other SDKs send them."""
    with connect(own_doors) as service:
        container = service.create_container("stream-one")
        warmed(container)
        client, source = Raw(own_doors), Source(SIZE, 1)
        with Peak(own_doors):
            headers = {"x-ms-blob-type": "BlockBlob", "Content-Length": str(SIZE)}
            answer = client("PUT", "/stream-one/large", headers, source)
            assert answer.status == 201, answer
            body = client.begin("GET", "/stream-one/large")
            assert digest(body) == (source.digest.hexdigest(), SIZE)
        client.close()
        container.delete_container()


def test_chunks_of_the_sdk(own_doors):
    with connect(own_doors) as service:
        container = service.create_container("stream-chunks")
        warmed(container)
        source = Source(SIZE, 2)
        with Peak(own_doors):
            blob = container.get_blob_client("large")
            blob.upload_blob(source, length=SIZE, max_concurrency=4)
            found, length = hashlib.md5(), 0
            for chunk in blob.download_blob(max_concurrency=2).chunks():
                found.update(chunk)
                length += len(chunk)
            assert (found.hexdigest(), length) == (source.digest.hexdigest(), SIZE)
        container.delete_container()


def test_several_at_a_time(own_doors):
    """Buffers belong to a connection, and do not grow with the blob."""
    with connect(own_doors) as service:
        container = service.create_container("stream-several")
        warmed(container)
        found, size = {}, SIZE // 8

        def work(number):
            client, source = Raw(own_doors), Source(size, number)
            headers = {"x-ms-blob-type": "BlockBlob", "Content-Length": str(size)}
            status = client("PUT", f"/stream-several/{number}", headers, source).status
            found[number] = (status, digest(client.begin("GET", f"/stream-several/{number}")),
                             (source.digest.hexdigest(), size))
            client.close()

        with Peak(own_doors, CLIENTS * GROWTH_OF_EACH_MAX):
            workers = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        assert len(found) == CLIENTS and all(status == 201 and got == sent for status, got, sent in found.values())
        container.delete_container()


def test_a_client_that_reads_slowly_is_not_waited_for_in_memory(own_doors):
    with connect(own_doors) as service:
        container = service.create_container("stream-slow")
        warmed(container)
        client, source = Raw(own_doors), Source(SIZE, 4)
        client("PUT", "/stream-slow/large", {"x-ms-blob-type": "BlockBlob", "Content-Length": str(SIZE)}, source)
        with Peak(own_doors):
            readers = [Raw(own_doors) for _ in range(8)]
            answers = [reader.begin("GET", "/stream-slow/large") for reader in readers]
            assert all(len(answer.read(1)) == 1 for answer in answers)
            # None of them reads on: others are served.
            assert container.get_blob_client("warm").download_blob().readall() == b"x" * MIB
            for reader in readers:
                reader.close()
        client.close()
        container.delete_container()


def test_an_upload_that_breaks_off_leaves_nothing(own_doors):
    with connect(own_doors) as service:
        container = service.create_container("stream-broken")
        container.upload_blob("kept", b"old")
        for name in ["kept", "new"]:
            client = Raw(own_doors)
            client.connection.putrequest("PUT", f"{client.account}/stream-broken/{name}?{client.token}")
            for header, value in [("x-ms-blob-type", "BlockBlob"), ("x-ms-version", "2023-11-03"),
                                  ("Content-Length", str(10 * MIB))]:
                client.connection.putheader(header, value)
            client.connection.endheaders()
            client.connection.send(b"x" * 3 * MIB)
            client.close()
        assert container.get_blob_client("kept").download_blob().readall() == b"old"
        assert [each.name for each in container.list_blobs()] == ["kept"]
        container.delete_container()
