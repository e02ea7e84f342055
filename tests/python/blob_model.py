"""What a container must answer, by the service's documentation: an oracle that shares nothing with the store."""

import copy
import time

PAGE = 512
OTHER = '"0x8D0000000000000"'
# How far the clocks of client and server may be apart when a lease ends; nothing is asked within.
DOUBT_S = 0.6


class Lease:
    """The lease of a blob."""

    def __init__(self):
        self.state, self.id, self.end, self.last = "available", None, None, None

    def settle(self):
        """What time has made of it. Waits until that is certain."""
        if self.end is None:
            return
        now = time.monotonic()
        if now < self.end - DOUBT_S:
            return
        time.sleep(max(0, self.end + DOUBT_S - now))
        self.state = "broken" if self.state == "breaking" else "expired"
        self.end = None

    @property
    def is_held(self):
        return self.state in ["leased", "breaking"]

    def left(self):
        return None if self.end is None else self.end - time.monotonic()

    def refusals(self, given, writes):
        """Why a request with this lease id is refused."""
        self.settle()
        if given is None:
            return {(412, "LeaseIdMissing")} if writes and self.is_held else set()
        if not self.is_held:
            return {(412, "LeaseNotPresentWithBlobOperation"), (412, "LeaseIdMismatchWithBlobOperation"),
                    (412, "LeaseLost")}
        return set() if given == self.id else {(412, "LeaseIdMismatchWithBlobOperation")}

    def written(self):
        """Somebody has written without it."""
        if not self.is_held:
            self.state, self.id = "available", None


class Blob:
    """A blob, or a snapshot of one."""

    def __init__(self, kind, content=b"", metadata=None, content_type="application/octet-stream"):
        self.kind, self.content, self.metadata, self.type = kind, bytes(content), dict(metadata or {}), content_type
        self.tags, self.etag, self.sequence, self.sealed, self.appends = {}, None, 0, False, 0
        # None where it is not known: of copies.
        self.blocks, self.written = [], set()

    def frozen(self):
        return copy.deepcopy(self)


class Name:
    """All that is under one name."""

    def __init__(self):
        self.base, self.staged, self.snapshots, self.lease = None, {}, {}, Lease()


class Model:
    """The names of a container. A refusal is a set of (status, code), of which the server must answer one."""

    def __init__(self, names):
        self.names = {name: Name() for name in names}

    def replace(self, name, blob, etag):
        """A new blob is written under the name. Tags do not stay; snapshots and the lease do."""
        entry = self.names[name]
        before = entry.base
        entry.base, entry.staged = blob, {}
        entry.lease.written()
        assert before is None or etag != before.etag, "the ETag has not changed"
        blob.etag = etag

    def changed(self, name, etag):
        """The blob was changed."""
        entry = self.names[name]
        assert etag != entry.base.etag, "the ETag has not changed"
        entry.base.etag = etag
        entry.lease.written()

    def removed(self, name):
        entry = self.names[name]
        entry.base, entry.staged, entry.lease, entry.snapshots = None, {}, Lease(), {}

    def stage(self, name, block, content):
        entry = self.names[name]
        entry.staged[block] = content
        entry.lease.written()

    def commit(self, name, wanted, metadata, etag):
        entry = self.names[name]
        committed = dict(entry.base.blocks) if entry.base else {}
        blocks = [(block, {"Committed": committed, "Uncommitted": entry.staged,
                           "Latest": {**committed, **entry.staged}}[kind][block]) for kind, block in wanted]
        blob = Blob("BlockBlob", b"".join(content for _, content in blocks), metadata)
        blob.blocks = blocks
        self.replace(name, blob, etag)

    def is_committable(self, name, wanted):
        entry = self.names[name]
        committed = {block for block, _ in entry.base.blocks} if entry.base else set()
        there = {"Committed": committed, "Uncommitted": set(entry.staged), "Latest": committed | set(entry.staged)}
        return all(block in there[kind] for kind, block in wanted)

    def page_written(self, name, first, content):
        """Pages are written, or cleared where there is no content."""
        blob = self.names[name].base
        start, end = first * PAGE, first * PAGE + len(content)
        blob.content = blob.content[:start] + content + blob.content[end:]
        pages = set(range(first, end // PAGE))
        if blob.written is not None:
            blob.written = blob.written | pages if any(content) else blob.written - pages

    def resized(self, name, size):
        blob = self.names[name].base
        blob.content = blob.content[:size] + bytes(max(0, size - len(blob.content)))
        if blob.written is not None:
            blob.written = {page for page in blob.written if page < size // PAGE}

    def ranges(self, blob):
        """The ranges of pages that are written."""
        found = []
        for page in sorted(blob.written):
            if found and found[-1][1] == page * PAGE - 1:
                found[-1] = (found[-1][0], page * PAGE + PAGE - 1)
            else:
                found.append((page * PAGE, page * PAGE + PAGE - 1))
        return found

    def listed(self):
        """Each entry of a listing with snapshots and uncommitted blobs: name, snapshot, size."""
        found = []
        for name, entry in self.names.items():
            found += [(name, snapshot, len(blob.content)) for snapshot, blob in entry.snapshots.items()]
            if entry.base or entry.staged:
                found.append((name, None, len(entry.base.content) if entry.base else 0))
        return sorted(found, key=lambda each: (each[0].encode(), each[1] or "~"))


class Conditions:
    """Conditions of one request, as headers, and how they are refused."""

    def __init__(self, chance, blob, creates=False, reads=False):
        self.headers, self.refusals = {}, set()
        failed = {(304, "ConditionNotMet")} if reads else {(412, "ConditionNotMet")}
        kind = chance.choice(["none"] * 6 + ["current", "other", "any", "not current", "not other", "not any", "tags",
                                             "not tags", "past", "future"])
        if blob is None:
            if kind in ["current", "other", "any"]:
                self.headers["If-Match"] = "*" if kind == "any" else OTHER
                self.refusals = {(412, "ConditionNotMet")}
            elif kind in ["not current", "not other"] or (kind == "not any" and creates):
                self.headers["If-None-Match"] = "*" if kind == "not any" else OTHER
            return
        if kind in ["current", "any"]:
            self.headers["If-Match"] = "*" if kind == "any" else blob.etag
        elif kind == "other":
            self.headers["If-Match"] = OTHER
            self.refusals = {(412, "ConditionNotMet")}
        elif kind == "not current":
            self.headers["If-None-Match"] = blob.etag
            self.refusals = failed
        elif kind == "not other":
            self.headers["If-None-Match"] = OTHER
        elif kind == "not any" and creates:
            self.headers["If-None-Match"] = "*"
            self.refusals = {(409, "BlobAlreadyExists")}
        elif kind == "not any" and reads:
            self.headers["If-None-Match"] = "*"
            self.refusals = {(400, "UnsatisfiableCondition")}
        elif kind in ["tags", "not tags"]:
            key = "k1"
            value = blob.tags.get(key, "none")
            self.headers["x-ms-if-tags"] = f"\"{key}\" {'=' if kind == 'tags' else '<>'} '{value}'"
            if key not in blob.tags:
                # What is compared with a tag that is not there is not true, in either way.
                self.headers["x-ms-if-tags"] = f"\"{key}\" = 'none'"
            if kind == "not tags" or key not in blob.tags:
                self.refusals = {(412, "ConditionNotMet")}
        elif kind in ["past", "future"]:
            when = "Thu, 01 Jan 2015 00:00:00 GMT" if kind == "past" else "Fri, 01 Jan 2055 00:00:00 GMT"
            if chance.random() < 0.5:
                self.headers["If-Modified-Since"] = when
                self.refusals = failed if kind == "future" else set()
            else:
                self.headers["If-Unmodified-Since"] = when
                self.refusals = {(412, "ConditionNotMet")} if kind == "past" else set()
