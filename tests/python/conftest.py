"""The program with its doors open, on shards of either engine, with and without TLS."""

import enum
import json
import os
import ssl
import subprocess

import psycopg
import pytest

ACCOUNT = "devstoreaccount1"
# The emulators' key, which Microsoft publishes.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# The key of the Cosmos DB emulator, which Microsoft publishes too.
COSMOS_ACCOUNT = "cosmos"
COSMOS_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqsAJ5oeP4K1r0Mn9wA=="
ROOT = os.path.join(os.path.dirname(__file__), "..", "..")


class Mood(enum.Enum):
    """What tests of enums have in the database too."""

    sad = "sad"
    calm = "calm"
    glad = "glad"


class Doors:
    """The program, started by the testkit on databases of its own, which are gone when it is stopped."""

    def __init__(self, engine, transport):
        binary = os.path.join(ROOT, "target", "debug", "examples", "doors")
        self.engine, command = engine, [binary, engine, transport]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._hear()

    def _hear(self):
        line = self.process.stdout.readline()
        assert line, "the program does not start"
        told = json.loads(line)
        self.admin, self.certificate, self.data = told["admin"], told["certificate"], told["data"]
        self.sql, self.document = told["sql"], told["document"]
        self.blob, self.queue, self.table = (f"{told[door]}/{ACCOUNT}" for door in ["blob", "queue", "table"])
        # What every HTTP library of this process trusts: the clients stay as they are.
        for name in ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]:
            os.environ.pop(name, None)
            if self.certificate:
                os.environ[name] = self.certificate

    def kill(self):
        """Kills the program as a power cut would, and starts it again."""
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        self._hear()

    def libpq(self):
        """What libpq is told to connect."""
        host, port = self.sql.rsplit(":", 1)
        mode = f"sslmode=verify-full sslrootcert={self.certificate}" if self.certificate else "sslmode=disable"
        return f"host={host} port={port} user=polyshard password=polyshard dbname=polyshard {mode}"

    def asyncpg(self):
        """What asyncpg is told to connect."""
        host, port = self.sql.rsplit(":", 1)
        tls = ssl.create_default_context(cafile=self.certificate) if self.certificate else False
        return {"host": host, "port": int(port), "user": "polyshard", "password": "polyshard", "database": "polyshard",
                "ssl": tls}

    def cli(self, *arguments):
        """An operator's command; its answer in JSON, or its error."""
        binary = os.path.join(ROOT, "target", "debug", "polyshard")
        ran = subprocess.run([binary, *arguments, "--json", "--server", self.admin], capture_output=True, text=True)
        return json.loads(ran.stdout or "null") if ran.returncode == 0 else json.loads(ran.stderr)

    def stop(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


def make_tenants(connection):
    """The map that tests of SQL share; whoever is first makes it."""
    try:
        connection.execute("SELECT polyshard.create_map('tenants', 'hash', 'bigint')")
    except psycopg.errors.DuplicateObject:
        pass


def variants():
    """Each engine and each transport; every pair of them where there is time."""
    if os.environ.get("POLYSHARD_LONG"):
        return [(engine, transport) for engine in ["sqlite", "postgres"] for transport in ["plain", "tls"]]
    return [("sqlite", "plain"), ("postgres", "tls")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Tests that share a program run one after the other in one process; the others beside them."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        doors = params.get("doors") or params.get("own_doors") or params.get("cluster")
        # The pairs of engine and transport are those that all files share.
        group = "-".join(doors) if isinstance(doors, tuple) else f"{item.path.parent.stem}-{item.path.stem}-{doors}"
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def program():
    # Of the whole workspace, with an example: the features of the tests' own build, so that nothing is compiled twice.
    words = ["--workspace", "--bin", "polyshard", "--example", "doors", "--example", "databases"]
    subprocess.run(["cargo", "build", "--quiet", *words], cwd=ROOT, check=True)


@pytest.fixture(scope="session", params=variants(), ids="-".join)
def doors(request, program):
    opened = Doors(*request.param)
    yield opened
    opened.stop()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def own_doors(request, program):
    """Doors that a test may kill."""
    opened = Doors(request.param, "plain")
    yield opened
    opened.stop()
