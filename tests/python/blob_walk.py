"""A random walk over all operations on blobs: each answer is compared with the model's."""

import base64
import time
import urllib.parse
import uuid
import xml.etree.ElementTree

from blob_model import PAGE, Blob, Conditions, Model

BLOCKS = [base64.b64encode(f"block{number}".encode()).decode() for number in range(5)]
# Within the row and beyond it.
SIZES = [0, 1, 511, 4096, 65_536, 65_537, 200_000]
PAGES = 300
# How long a request that is refused because its range moves is repeated.
PATIENCE_S = 60


class Walk:
    """Does one random operation after the other; a difference is an AssertionError."""

    def __init__(self, raw, container, names, chance, waits=False):
        self.raw, self.container, self.names, self.chance, self.waits = raw, container, names, chance, waits
        self.model, self.trace, self.held, self.kinds = Model(names), [], 0, {}
        self.operations = [
            (14, self.put), (5, self.create_append), (5, self.create_pages), (12, self.stage), (9, self.commit),
            (5, self.block_list), (14, self.append), (1, self.seal), (12, self.write_pages), (4, self.clear_pages),
            (3, self.resize), (2, self.number), (5, self.page_ranges), (20, self.get), (8, self.head),
            (6, self.set_metadata), (4, self.set_headers), (4, self.set_tags), (6, self.snapshot), (8, self.delete),
            (4, self.delete_snapshot), (10, self.lease), (4, self.copy), (6, self.list_all), (1, self.wait)]

    def step(self):
        weights = [weight for weight, _ in self.operations]
        operation = self.chance.choices([each for _, each in self.operations], weights)[0]
        self.kinds[operation.__name__] = self.kinds.get(operation.__name__, 0) + 1
        operation(self.chance.choice(self.names))

    # What the operations share.

    def send(self, method, name, headers=None, body=b"", **query):
        path = f"/{self.container}/{urllib.parse.quote(name)}" if name else f"/{self.container}"
        until = time.monotonic() + PATIENCE_S
        while True:
            answer = self.raw(method, path, headers, body, **query)
            # Said only of what was not done: a range that moves is away for a moment.
            if answer.status != 503 or time.monotonic() > until:
                break
            self.held += 1
            time.sleep(0.02)
        words = " ".join(f"{key}={value}" for key, value in query.items())
        self.trace.append(f"{method} {name} {words} {headers} {len(body)} bytes -> {answer.status} {answer.code}")
        del self.trace[:-15]
        return answer

    def compare(self, answer, status, refusals):
        """True if the request was done, as it had to be; False if it was refused, as it had to be."""
        if refusals:
            seen = (answer.status, answer.code)
            assert seen in refusals or (answer.status, None) in refusals, f"{seen} is none of {refusals}"
            return False
        assert answer.status == status, f"{answer.status} {answer.code} instead of {status}: {answer.body[:300]}"
        return True

    def content(self):
        return self.chance.randbytes(self.chance.choice(SIZES))

    def metadata(self):
        return {f"Key{number}": str(self.chance.random()) for number in range(self.chance.choice([0, 0, 1, 3]))}

    def headers_of(self, metadata):
        return {f"x-ms-meta-{key}": value for key, value in metadata.items()}

    def guard(self, name, writes=True, creates=False, kind=None, conditions=True):
        """Headers for conditions and lease of a request, and why it is refused."""
        entry = self.model.names[name]
        headers, refusals = {}, set()
        if conditions:
            chosen = Conditions(self.chance, entry.base, creates, reads=not writes)
            headers, refusals = dict(chosen.headers), set(chosen.refusals)
        if entry.base is None:
            return (headers, refusals) if creates else (headers, refusals | {(404, "BlobNotFound")})
        given = self.chance.choice([entry.lease.id] * 8 + [None, None, str(uuid.UUID(int=7))])
        if given:
            headers["x-ms-lease-id"] = given
        refusals |= entry.lease.refusals(given, writes)
        if kind and entry.base.kind != kind:
            refusals.add((409, "InvalidBlobType"))
        return headers, refusals

    def may_take(self, name, kind):
        """Whether a blob of this kind may be written here: with snapshots the kind stays as it is."""
        entry = self.model.names[name]
        return not entry.snapshots or entry.base.kind == kind

    # Operations.

    def put(self, name):
        if not self.may_take(name, "BlockBlob"):
            return
        guard, refusals = self.guard(name, creates=True)
        blob = Blob("BlockBlob", self.content(), self.metadata(), self.chance.choice(["text/plain", "image/png"]))
        headers = {"x-ms-blob-type": blob.kind, "x-ms-blob-content-type": blob.type}
        if self.chance.random() < 0.3:
            blob.tags = {"k1": str(self.chance.randrange(3))}
            headers["x-ms-tags"] = urllib.parse.urlencode(blob.tags)
        answer = self.send("PUT", name, {**headers, **self.headers_of(blob.metadata), **guard}, blob.content)
        if self.compare(answer, 201, refusals):
            self.model.replace(name, blob, answer.headers["ETag"])

    def create_append(self, name):
        if not self.may_take(name, "AppendBlob"):
            return
        guard, refusals = self.guard(name, creates=True)
        blob = Blob("AppendBlob", metadata=self.metadata())
        headers = {"x-ms-blob-type": blob.kind, **self.headers_of(blob.metadata), **guard}
        answer = self.send("PUT", name, headers)
        if self.compare(answer, 201, refusals):
            self.model.replace(name, blob, answer.headers["ETag"])

    def create_pages(self, name):
        if not self.may_take(name, "PageBlob"):
            return
        guard, refusals = self.guard(name, creates=True)
        blob = Blob("PageBlob", bytes(self.chance.randrange(1, PAGES) * PAGE), self.metadata())
        blob.sequence = self.chance.randrange(5)
        headers = {"x-ms-blob-type": blob.kind, "x-ms-blob-content-length": str(len(blob.content)),
                   "x-ms-blob-sequence-number": str(blob.sequence), **self.headers_of(blob.metadata), **guard}
        answer = self.send("PUT", name, headers)
        if self.compare(answer, 201, refusals):
            self.model.replace(name, blob, answer.headers["ETag"])

    def stage(self, name):
        guard, refusals = self.guard(name, creates=True, kind="BlockBlob", conditions=False)
        block, content = self.chance.choice(BLOCKS), self.content() or b"x"
        answer = self.send("PUT", name, guard, content, comp="block", blockid=block)
        if self.compare(answer, 201, refusals):
            self.model.stage(name, block, content)

    def commit(self, name):
        entry = self.model.names[name]
        if entry.base and entry.base.kind == "BlockBlob" and entry.base.blocks is None:
            return
        if not self.may_take(name, "BlockBlob"):
            return
        guard, refusals = self.guard(name, creates=True, kind="BlockBlob")
        known = [block for block, _ in entry.base.blocks] if entry.base and entry.base.blocks else []
        # Mostly what is there.
        pool = self.chance.choice([sorted(entry.staged), known, sorted(set(known) | set(entry.staged)), BLOCKS])
        chosen = self.chance.sample(pool, self.chance.randint(0, len(pool)))
        kinds = ["Latest", "Latest", "Committed", "Uncommitted"]
        wanted = [(self.chance.choice(kinds), block) for block in chosen]
        xml_list = "".join(f"<{kind}>{block}</{kind}>" for kind, block in wanted)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{xml_list}</BlockList>'.encode()
        metadata = self.metadata()
        if not (entry.base and entry.base.kind != "BlockBlob") and not self.model.is_committable(name, wanted):
            refusals.add((400, "InvalidBlockList"))
        answer = self.send("PUT", name, {**self.headers_of(metadata), **guard}, body, comp="blocklist")
        if self.compare(answer, 201, refusals):
            self.model.commit(name, wanted, metadata, answer.headers["ETag"])

    def block_list(self, name):
        entry = self.model.names[name]
        if entry.base and (entry.base.kind != "BlockBlob" or entry.base.blocks is None):
            return
        refusals = set() if entry.base or entry.staged else {(404, "BlobNotFound")}
        answer = self.send("GET", name, comp="blocklist", blocklisttype="all")
        if not self.compare(answer, 200, refusals):
            return
        root = xml.etree.ElementTree.fromstring(answer.body)
        committed, staged = ([(each.findtext("Name"), int(each.findtext("Size"))) for each in root.find(kind)]
                             for kind in ["CommittedBlocks", "UncommittedBlocks"])
        expected = [(block, len(content)) for block, content in entry.base.blocks] if entry.base else []
        assert committed == expected, f"{committed} instead of {expected}"
        assert sorted(staged) == sorted((block, len(content)) for block, content in entry.staged.items())

    def append(self, name):
        guard, refusals = self.guard(name, kind="AppendBlob")
        blob, content = self.model.names[name].base, self.content()[:70_000] or b"x"
        if blob and blob.kind == "AppendBlob":
            at = len(blob.content)
            if at > 400_000:
                return
            if self.chance.random() < 0.2:
                asked = self.chance.choice([at, at + 1, 0])
                guard["x-ms-blob-condition-appendpos"] = str(asked)
                refusals |= {(412, "AppendPositionConditionNotMet")} if asked != at else set()
            if self.chance.random() < 0.2:
                most = at + len(content) - self.chance.choice([0, 1])
                guard["x-ms-blob-condition-maxsize"] = str(most)
                refusals |= {(412, "MaxBlobSizeConditionNotMet")} if at + len(content) > most else set()
            refusals |= {(409, "BlobIsSealed")} if blob.sealed else set()
        answer = self.send("PUT", name, guard, content, comp="appendblock")
        if self.compare(answer, 201, refusals):
            assert answer.headers["x-ms-blob-append-offset"] == str(len(blob.content))
            blob.content += content
            if blob.appends is not None:
                blob.appends += 1
                assert answer.headers["x-ms-blob-committed-block-count"] == str(blob.appends)
            self.model.changed(name, answer.headers["ETag"])

    def seal(self, name):
        blob = self.model.names[name].base
        if not blob or blob.kind != "AppendBlob" or blob.sealed:
            return
        guard, refusals = self.guard(name, kind="AppendBlob", conditions=False)
        answer = self.send("PUT", name, guard, comp="seal")
        if self.compare(answer, 200, refusals):
            blob.sealed = True
            blob.etag = answer.headers["ETag"]
            self.model.names[name].lease.written()

    def page_guard(self, name, first, count):
        guard, refusals = self.guard(name, kind="PageBlob")
        blob = self.model.names[name].base
        if blob and blob.kind == "PageBlob":
            if (first + count) * PAGE > len(blob.content):
                refusals.add((416, "InvalidPageRange"))
            if self.chance.random() < 0.2:
                word, is_met = self.chance.choice([("le", lambda n: blob.sequence <= n),
                                                   ("lt", lambda n: blob.sequence < n),
                                                   ("eq", lambda n: blob.sequence == n)])
                number = blob.sequence + self.chance.choice([-1, 0, 1])
                if number >= 0:
                    guard[f"x-ms-if-sequence-number-{word}"] = str(number)
                    refusals |= set() if is_met(number) else {(412, "SequenceNumberConditionNotMet")}
        guard["x-ms-range"] = f"bytes={first * PAGE}-{(first + count) * PAGE - 1}"
        return guard, refusals

    def somewhere(self, name):
        blob = self.model.names[name].base
        pages = len(blob.content) // PAGE if blob and blob.kind == "PageBlob" else PAGES
        count = self.chance.choice([1, 1, 3, 17, 130])
        return self.chance.randrange(max(1, pages - count + (1 if self.chance.random() < 0.05 else 0) + 1)), count

    def write_pages(self, name):
        first, count = self.somewhere(name)
        guard, refusals = self.page_guard(name, first, count)
        content = self.chance.randbytes(count * PAGE)
        answer = self.send("PUT", name, {"x-ms-page-write": "update", **guard}, content, comp="page")
        if self.compare(answer, 201, refusals):
            self.model.page_written(name, first, content)
            self.model.changed(name, answer.headers["ETag"])

    def clear_pages(self, name):
        first, count = self.somewhere(name)
        guard, refusals = self.page_guard(name, first, count)
        answer = self.send("PUT", name, {"x-ms-page-write": "clear", **guard}, comp="page")
        if self.compare(answer, 201, refusals):
            self.model.page_written(name, first, bytes(count * PAGE))
            self.model.changed(name, answer.headers["ETag"])

    def resize(self, name):
        guard, refusals = self.guard(name, kind="PageBlob")
        blob = self.model.names[name].base
        if blob and blob.kind != "PageBlob":
            return
        size = self.chance.randrange(1, PAGES) * PAGE
        answer = self.send("PUT", name, {"x-ms-blob-content-length": str(size), **guard}, comp="properties")
        if self.compare(answer, 200, refusals):
            self.model.resized(name, size)
            self.model.changed(name, answer.headers["ETag"])
            # The request sets all headers, of which it names none.
            blob.type = None

    def number(self, name):
        guard, refusals = self.guard(name, kind="PageBlob")
        blob = self.model.names[name].base
        if blob and blob.kind != "PageBlob":
            return
        action, value = self.chance.choice(["increment", "max", "update"]), self.chance.randrange(20)
        headers = {"x-ms-sequence-number-action": action}
        if action != "increment":
            headers["x-ms-blob-sequence-number"] = str(value)
        answer = self.send("PUT", name, {**headers, **guard}, comp="properties")
        if self.compare(answer, 200, refusals):
            blob.sequence = {"increment": blob.sequence + 1, "max": max(blob.sequence, value), "update": value}[action]
            assert answer.headers["x-ms-blob-sequence-number"] == str(blob.sequence)
            self.model.changed(name, answer.headers["ETag"])
            blob.type = None

    def page_ranges(self, name):
        entry = self.model.names[name]
        snapshot = self.chance.choice([None, *entry.snapshots])
        blob = entry.snapshots[snapshot] if snapshot else entry.base
        if not blob or blob.kind != "PageBlob" or blob.written is None:
            return
        query = {"snapshot": snapshot} if snapshot else {}
        answer = self.send("GET", name, comp="pagelist", **query)
        assert answer.status == 200, answer
        root = xml.etree.ElementTree.fromstring(answer.body)
        found = [(int(each.findtext("Start")), int(each.findtext("End"))) for each in root.findall("PageRange")]
        assert found == self.model.ranges(blob), f"{found} instead of {self.model.ranges(blob)}"

    def get(self, name):
        entry = self.model.names[name]
        snapshot = self.chance.choice([None, None, *entry.snapshots])
        headers, refusals, query = {}, set(), {}
        if snapshot:
            blob, query = entry.snapshots[snapshot], {"snapshot": snapshot}
        else:
            blob = entry.base
            headers, refusals = self.guard(name, writes=False)
        first, last = 0, None
        if self.chance.random() < 0.5:
            first = self.chance.choice([0, 1, 700, 65_536, 150_000])
            last = first + self.chance.choice([0, 511, 70_000, 1_000_000])
            headers[self.chance.choice(["Range", "x-ms-range"])] = f"bytes={first}-{last}"
            if blob and first >= len(blob.content):
                refusals.add((416, "InvalidRange"))
        answer = self.send("GET", name, headers, **query)
        if self.compare(answer, 200 if last is None else 206, refusals):
            expected = blob.content[first:] if last is None else blob.content[first:last + 1]
            assert answer.body == expected, f"other content: {len(answer.body)} bytes instead of {len(expected)}"
            self.check_headers(entry, blob, answer, is_snapshot=bool(snapshot))

    def head(self, name):
        entry = self.model.names[name]
        headers, refusals = self.guard(name, writes=False)
        answer = self.send("HEAD", name, headers)
        if self.compare(answer, 200, refusals):
            assert int(answer.headers["Content-Length"]) == len(entry.base.content)
            self.check_headers(entry, entry.base, answer)

    def check_headers(self, entry, blob, answer, is_snapshot=False):
        found = {key[10:]: value for key, value in answer.headers.items() if key.lower().startswith("x-ms-meta-")}
        assert found == blob.metadata, f"{found} instead of {blob.metadata}"
        assert answer.headers["x-ms-blob-type"] == blob.kind
        assert blob.type is None or answer.headers["Content-Type"] == blob.type
        assert int(answer.headers["x-ms-tag-count"] or 0) == len(blob.tags)
        assert (answer.headers["x-ms-blob-sealed"] == "true") == blob.sealed
        if blob.kind == "PageBlob":
            assert answer.headers["x-ms-blob-sequence-number"] == str(blob.sequence)
        if not is_snapshot:
            assert answer.headers["ETag"] == blob.etag, "the ETag is not the one that was told"
            entry.lease.settle()
            found = answer.headers["x-ms-lease-state"]
            assert found == entry.lease.state, f"the lease is {found} and should be {entry.lease.state}"

    def set_metadata(self, name):
        guard, refusals = self.guard(name)
        metadata = self.metadata()
        answer = self.send("PUT", name, {**self.headers_of(metadata), **guard}, comp="metadata")
        if self.compare(answer, 200, refusals):
            self.model.names[name].base.metadata = metadata
            self.model.changed(name, answer.headers["ETag"])

    def set_headers(self, name):
        guard, refusals = self.guard(name)
        kind = self.chance.choice(["text/html", "application/json"])
        answer = self.send("PUT", name, {"x-ms-blob-content-type": kind, **guard}, comp="properties")
        if self.compare(answer, 200, refusals):
            self.model.names[name].base.type = kind
            self.model.changed(name, answer.headers["ETag"])

    def set_tags(self, name):
        guard, refusals = self.guard(name, conditions=False)
        tags = {f"k{number}": str(self.chance.randrange(3)) for number in range(self.chance.choice([0, 1, 2]))}
        inner = "".join(f"<Tag><Key>{key}</Key><Value>{value}</Value></Tag>" for key, value in tags.items())
        body = f"<Tags><TagSet>{inner}</TagSet></Tags>".encode()
        answer = self.send("PUT", name, guard, body, comp="tags")
        if self.compare(answer, 204, refusals):
            self.model.names[name].base.tags = tags
            self.model.names[name].lease.written()

    def snapshot(self, name):
        entry = self.model.names[name]
        if len(entry.snapshots) >= 4:
            return
        chosen = Conditions(self.chance, entry.base) if entry.base else None
        metadata = self.metadata()
        headers = {**self.headers_of(metadata), **(chosen.headers if chosen else {})}
        answer = self.send("PUT", name, headers, comp="snapshot")
        if self.compare(answer, 201, chosen.refusals if chosen else {(404, "BlobNotFound")}):
            made = answer.headers["x-ms-snapshot"]
            assert not entry.snapshots or made > max(entry.snapshots)
            entry.snapshots[made] = entry.base.frozen()
            if metadata:
                entry.snapshots[made].metadata = metadata
            else:
                assert answer.headers["ETag"] == entry.base.etag

    def delete(self, name):
        entry = self.model.names[name]
        what = self.chance.choice([None, "include"] + (["only"] if entry.snapshots and entry.lease.id is None else []))
        guard, refusals = self.guard(name) if what != "only" else ({}, set())
        if what is None and entry.snapshots:
            refusals.add((409, "SnapshotsPresent"))
        answer = self.send("DELETE", name, {**({"x-ms-delete-snapshots": what} if what else {}), **guard})
        if self.compare(answer, 202, refusals):
            if what == "only":
                entry.snapshots = {}
            else:
                self.model.removed(name)

    def delete_snapshot(self, name):
        entry = self.model.names[name]
        if entry.snapshots:
            snapshot = self.chance.choice(sorted(entry.snapshots))
            assert self.send("DELETE", name, snapshot=snapshot).status == 202
            del entry.snapshots[snapshot]
            answer = self.send("GET", name, snapshot=snapshot)
            assert answer.status == 404, answer

    def lease(self, name):
        """One of the five verbs."""
        entry = self.model.names[name]
        if entry.staged and not entry.base:
            # What has nothing but blocks may be leased or not: the service does not say.
            return
        entry.lease.settle()
        verb = self.chance.choice(["acquire", "acquire", "renew", "change", "release", "break"])
        getattr(self, "lease_" + verb)(name, entry, entry.lease)

    def lease_request(self, name, entry, verb, status, refusals, **headers):
        if entry.base is None:
            refusals = {(404, "BlobNotFound")}
        sent = {f"x-ms-{key.replace('_', '-')}": str(value) for key, value in headers.items()}
        answer = self.send("PUT", name, {"x-ms-lease-action": verb, **sent}, comp="lease")
        return answer if self.compare(answer, status, refusals) else None

    def lease_acquire(self, name, entry, lease):
        duration, proposed = self.chance.choice([-1, 15, 60]), self.chance.choice([lease.id, str(uuid.uuid4())])
        proposed = proposed or str(uuid.uuid4())
        refusals = set()
        if lease.state == "breaking" or (lease.state == "leased" and proposed != lease.id):
            refusals = {(409, "LeaseAlreadyPresent"), (409, "LeaseIsBreakingAndCannotBeAcquired")}
        words = {"lease_duration": duration, "proposed_lease_id": proposed}
        if self.lease_request(name, entry, "acquire", 201, refusals, **words):
            lease.state, lease.id, lease.last = "leased", proposed, duration
            lease.end = None if duration < 0 else time.monotonic() + duration

    def given(self, lease):
        return self.chance.choice([lease.id] * 4 + [None]) or str(uuid.UUID(int=9))

    def lease_renew(self, name, entry, lease):
        given = self.given(lease)
        good = given == lease.id and lease.state in ["leased", "expired"]
        if self.lease_request(name, entry, "renew", 200, set() if good else {(409, None)}, lease_id=given):
            lease.state = "leased"
            lease.end = None if lease.last < 0 else time.monotonic() + lease.last

    def lease_change(self, name, entry, lease):
        given, proposed = self.given(lease), str(uuid.uuid4())
        good = given == lease.id and lease.state == "leased"
        if self.lease_request(name, entry, "change", 200, set() if good else {(409, None)}, lease_id=given,
                              proposed_lease_id=proposed):
            lease.id = proposed

    def lease_release(self, name, entry, lease):
        given = self.given(lease)
        refusals = set() if given == lease.id else {(409, None)}
        if self.lease_request(name, entry, "release", 200, refusals, lease_id=given):
            lease.state, lease.id, lease.end = "available", None, None

    def lease_break(self, name, entry, lease):
        period = self.chance.choice([0, 0, 1, 2, 30])
        refusals = {(409, "LeaseNotPresentWithLeaseOperation")} if lease.state == "available" else set()
        if not self.lease_request(name, entry, "break", 202, refusals, lease_break_period=period):
            return
        left = lease.left()
        if lease.is_held and period:
            lease.state = "breaking"
            lease.end = time.monotonic() + (period if left is None else min(period, left))
        else:
            lease.state, lease.end = "broken", None

    def copy(self, name):
        other = self.chance.choice(self.names)
        entry, target = self.model.names[name], self.model.names[other]
        snapshot = self.chance.choice([None, *entry.snapshots])
        blob = entry.snapshots[snapshot] if snapshot else entry.base
        # What becomes of a name that had another kind, or that is copied onto itself, depends on the version.
        if name == other or (blob and target.base and target.base.kind != blob.kind):
            return
        guard, refusals = self.guard(other, creates=True)
        words = f"snapshot={urllib.parse.quote(snapshot)}&" if snapshot else ""
        here = f"{self.raw.connection.host}:{self.raw.connection.port}{self.raw.account}/{self.container}"
        address = f"{self.scheme()}://{here}/{urllib.parse.quote(name)}?{words}{self.raw.token}"
        if blob is None:
            refusals |= {(404, None)}
        answer = self.send("PUT", other, {"x-ms-copy-source": address, **guard})
        if not self.compare(answer, 202, refusals):
            return
        self.await_copy(other, answer)
        made = blob.frozen()
        # Which blocks and pages a copy is made of is not said; one of a blob without blocks has none.
        made.tags, made.written, made.appends = {}, None, None
        made.blocks = [] if blob.blocks == [] else None
        # Whether a copy is sealed, and its number, are asked.
        head = self.send("HEAD", other)
        made.sealed = head.headers["x-ms-blob-sealed"] == "true"
        made.sequence = int(head.headers["x-ms-blob-sequence-number"] or 0)
        self.model.replace(other, made, head.headers["ETag"])

    def scheme(self):
        return "https" if type(self.raw.connection).__name__ == "HTTPSConnection" else "http"

    def await_copy(self, name, answer):
        status, until = answer.headers["x-ms-copy-status"], time.monotonic() + PATIENCE_S
        while status == "pending":
            assert time.monotonic() < until, "it is copied for ever"
            time.sleep(0.02)
            status = self.send("HEAD", name).headers["x-ms-copy-status"]
        assert status == "success", status

    def list_all(self, _name):
        found, marker = [], None
        size = self.chance.choice([1, 3, 5000])
        while marker != "":
            query = {"marker": marker} if marker else {}
            answer = self.send("GET", None, restype="container", comp="list", maxresults=str(size),
                               include="snapshots,uncommittedblobs,metadata", **query)
            assert answer.status == 200, answer
            root = xml.etree.ElementTree.fromstring(answer.body)
            for each in root.iter("Blob"):
                name, snapshot = each.findtext("Name"), each.findtext("Snapshot")
                entry = self.model.names[name]
                blob = entry.snapshots.get(snapshot) if snapshot else entry.base
                metadata = {meta.tag: meta.text for meta in each.find("Metadata") or []}
                assert metadata == (blob.metadata if blob else {}), f"{name}: {metadata}"
                found.append((name, snapshot, int(each.findtext("Properties/Content-Length"))))
            marker = root.findtext("NextMarker") or ""
        assert [each[0] for each in found] == [each[0] for each in self.model.listed()], (found, self.model.listed())
        found.sort(key=lambda each: (each[0].encode(), each[1] or "~"))
        assert found == self.model.listed(), f"{found} instead of {self.model.listed()}"

    def wait(self, _name):
        """Until the next lease ends; the long ones only where there is time."""
        ends = [entry.lease.left() for entry in self.model.names.values() if entry.lease.end]
        if ends and (self.waits or min(ends) < 3):
            time.sleep(max(0, min(min(ends), 16)))

    def check(self):
        """Compares everything there is."""
        for name, entry in self.model.names.items():
            for snapshot, blob in [*entry.snapshots.items(), (None, entry.base)]:
                answer = self.send("GET", name, **({"snapshot": snapshot} if snapshot else {}))
                assert answer.status == (200 if blob else 404), answer
                assert blob is None or answer.body == blob.content
        self.list_all(None)
