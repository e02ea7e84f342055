"""Real servers for the cases: `polyshard` processes on free ports, on files or on a PostgreSQL of their own."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request

from conftest import ACCOUNT, ROOT

# How long anything may take that has to happen; only a hang reaches it, even on a busy machine.
PATIENCE_S = 60
SHARDS = ["s1", "s2", "s3"]
DOORS = ["admin", "blob", "document", "queue", "table", "sql"]
COMPLAINT = re.compile(r"^\S+ +(WARN|ERROR)\b|panicked at")


def program():
    """The program under test: the one just built, or another that the environment names."""
    return os.environ.get("POLYSHARD_PROGRAM") or os.path.join(ROOT, "target", "debug", "polyshard")


def await_true(what, is_true):
    """Waits until the condition holds."""
    until = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < until, f"{what}: did not happen within {PATIENCE_S} s"
        time.sleep(0.05)


class Failed(Exception):
    """A command of the operator was refused; the error as the program prints it."""


class Process:
    """One running server process."""

    def __init__(self, arguments, environment):
        outside = {name: value for name, value in os.environ.items() if not name.startswith("POLYSHARD")}
        self.log, self._more = [], threading.Condition()
        self._child = subprocess.Popen([program(), "up", *arguments], env=outside | environment, text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.await_line(lambda line: line.startswith("ready"))
        except AssertionError:
            self.kill()
            raise
        self.addresses = {words[0]: words[1] for words in map(str.split, self.log)
                          if len(words) == 2 and words[0] in DOORS}
        self.admin = self.addresses["admin"]
        self.blob, self.queue, self.table = (f"{self.addresses[door]}/{ACCOUNT}" for door in ["blob", "queue", "table"])
        self.document = self.addresses["document"]
        self.sql_host, self.sql_port = re.search(r"@(.+):(\d+)/", self.addresses["sql"]).groups()

    def _read(self):
        for line in self._child.stdout:
            with self._more:
                self.log.append(line.rstrip("\n"))
                self._more.notify_all()
        with self._more:
            self.log.append(None)
            self._more.notify_all()

    def await_line(self, is_wanted):
        """Waits until the server has printed such a line."""
        def there():
            return any(line is not None and is_wanted(line) for line in self.log)
        with self._more:
            self._more.wait_for(lambda: there() or None in self.log, PATIENCE_S)
            assert there(), "the server has not printed the line that was waited for:\n" + self.text()

    def text(self):
        return "\n".join(line for line in self.log if line is not None)

    def complaints(self):
        """Its warnings, errors and panics."""
        return [line for line in self.log if line is not None and COMPLAINT.search(line)]

    def get(self, path):
        """The answer of the admin API, for what is asked again and again."""
        request = urllib.request.Request(self.admin + path, headers={"Authorization": "Bearer polyshard"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def cli(self, *arguments):
        """The answer to an operator's command."""
        ran = self.begin_cli(*arguments)
        out, err = ran.communicate(timeout=2 * PATIENCE_S)
        if ran.returncode != 0:
            raise Failed(f"polyshard {' '.join(arguments)}: {err}")
        return json.loads(out or "null")

    def begin_cli(self, *arguments):
        """An operator's command, under way."""
        command = [program(), *arguments, "--json", "--server", self.admin]
        return subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def kill(self):
        """Ends it as a power cut would."""
        self._child.kill()
        self._end()

    def stop(self):
        """Asks it to end, and waits until it has."""
        self._child.terminate()
        status = self._end()
        assert status == 0, f"the server ended with {status}:\n{self.text()}"

    def _end(self):
        try:
            status = self._child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            status = "a hang"
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), "somebody else holds the output of a server that has ended"
        self._child.stdout.close()
        return status


class Cluster:
    """Shards and a catalog of one engine, and the server processes on them."""

    def __init__(self, engine):
        self.engine = engine
        self.folder = tempfile.mkdtemp(prefix="polyshard-conformance-")
        # A place of a move at which there is a file of its name here is waited at.
        self.holds = os.path.join(self.folder, "holds")
        os.mkdir(self.holds)
        self.running, self._ended, self._expected = {}, [], []
        self._databases, self._arguments = None, []
        if engine == "postgres":
            self._start_databases()

    def _start_databases(self):
        binary = os.path.join(ROOT, "target", "debug", "examples", "databases")
        self._databases = subprocess.Popen([binary, "catalog", *SHARDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           text=True)
        line = self._databases.stdout.readline()
        assert line, "PostgreSQL does not start"
        urls = json.loads(line)
        config = os.path.join(self.folder, "polyshard.toml")
        with open(config, "w") as file:
            file.write(f'[catalog]\nurl = "{urls["catalog"]}"\n')
            for shard in SHARDS:
                file.write(f'[[shards]]\nid = "{shard}"\nurl = "{urls[shard]}"\n')
        self._arguments = ["--config", config]
        # A busy machine may take longer than the 250 ms after which sessions are cut off. Clients must not notice.
        self.expect("router does not answer the fence")

    @property
    def process(self):
        """The first server process."""
        return self.running["first"]

    def start(self, name="first"):
        """Starts a server process, or starts it again on its data; it has other ports then."""
        environment = {f"POLYSHARD__{door.upper()}__LISTEN": "127.0.0.1:0" for door in DOORS}
        environment["POLYSHARD_FAILPOINT_HOLD"] = self.holds
        # Bytes of blobs: all processes of the cluster have this folder.
        environment["POLYSHARD__BLOB__OBJECTS"] = os.path.join(self.folder, "objects")
        arguments = ["--data", os.path.join(self.folder, name), *self._arguments]
        self.running[name] = Process(arguments, environment)
        return self.running[name]

    def kill(self, name="first"):
        """Kills a server process."""
        process = self.running.pop(name)
        process.kill()
        # The next change waits for it in vain.
        self.expect("processes that do not say that they know of a change are cut off")
        self._ended.append(process)

    def expect(self, words):
        """A warning or error with these words may be in the log of any of its processes."""
        self._expected.append(words)

    def hold(self, place):
        """Has every operation that comes to the place wait there; the condition that lets them go on."""
        path = os.path.join(self.holds, place)
        open(path, "w").close()
        return lambda: os.remove(path)

    def make_map(self, name, tenants, shard="s1"):
        """Makes a map of these tenants, all on one shard."""
        self.process.cli("map", "create", name, "--kind", "list", "--key", "bigint")
        for tenant in tenants:
            self.process.cli("map", "add", name, "--key", str(tenant), "--to", shard)

    def await_quiet(self, process=None):
        """Waits until no operation is under way."""
        def quiet():
            operations = (process or self.process).get("/v1/operations")["operations"]
            return all(operation["state"] != "running" for operation in operations)
        await_true("the end of all operations", quiet)

    def assert_consistent(self, map_name):
        """Fails if catalog and shards differ about the map, or a row is not where its key belongs."""
        self.process.cli("map", "check", map_name)
        assert self.process.cli("check", map_name) == [{"map": map_name, "misplaced": [], "unreachable": []}]

    def stop(self):
        """Ends everything; fails if a process complained about something that the case did not expect."""
        wrong = []
        try:
            for process in self.running.values():
                self._ended.append(process)
                try:
                    process.stop()
                except AssertionError as error:
                    wrong.append(str(error))
        finally:
            if self._databases:
                self._databases.stdin.close()
                self._databases.wait(PATIENCE_S)
                self._databases.stdout.close()
            shutil.rmtree(self.folder)
        complaints = [line for process in self._ended for line in process.complaints()
                      if not any(words in line for words in self._expected)]
        assert not complaints and not wrong, "\n".join(["unexpected in the log:", *complaints, *wrong])
