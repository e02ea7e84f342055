"""Clients at work: one for each tenant, that writes, changes, removes and looks, and compares with its model."""

import threading
import time

from conformance.model import Model
from conformance.server import PATIENCE_S

# Items that a tenant has at most, so that reading all of them stays cheap however fast the clients are.
ITEMS_MAX = 24
# A client rests between two things: it is in the way of a move all the same, and leaves the machine to other tests.
REST_S = 0.005
# A client that finds no server tries again after this time.
AGAIN_S = 0.02
# Makes a row of it some hundred bytes, with letters of more than one byte.
FILLING = "ü" * 100


def text_of(tenant, number, version):
    return f"{tenant}/{number}/{version}/{FILLING}"


class Client:
    """Does one thing after another with one tenant's items, and tells the model about each."""

    def __init__(self, workload, tenant):
        self.workload, self.tenant, self.model = workload, tenant, Model(tenant)
        self.steps, self._number = 0, 0

    def step(self):
        """One thing: mostly a write, and at times a change, a removal or a look, in turn."""
        present = self.model.present
        kind = self.steps % 6
        if kind == 5:
            self.model.check(self.workload.look(self.tenant), self.workload.look_max)
        elif kind == 2 and present:
            self._change(present[len(present) // 2])
        elif (kind == 4 or len(present) >= ITEMS_MAX) and present:
            self._remove(present[len(present) // 3])
        else:
            self.write()
        self.steps += 1

    def write(self):
        self._number += 1
        self._send(self.workload.write, self._number, text_of(self.tenant, self._number, 0))

    def _change(self, number):
        self._send(self.workload.change, number, text_of(self.tenant, number, self.steps))

    def _send(self, request, number, text):
        self.model.begin(number, text)
        request(self.tenant, number, text)
        self.model.acknowledge(number, text)

    def _remove(self, number):
        self.model.begin(number, None)
        self.workload.remove(self.tenant, number)
        self.model.acknowledge(number, None)


class Traffic:
    """A client for each tenant, each in a thread of its own, from entering to leaving the context."""

    def __init__(self, store, name, tenants, find_process, forgives=False):
        """`find_process` returns the server process of a tenant, or None while there is none. A case that kills servers
        forgives what fails then: a client connects again, and does not know what became of the request."""
        self._store, self._find, self._forgives, self._errors = store.id, find_process, forgives, store.errors
        self._over, self._wrong = threading.Event(), []
        # Where nothing is killed, the client repeats requests as it does by default. Where a server is killed it must
        # not: a put that is repeated because its answer was lost is rightly there twice.
        self._clients = [Client(store(find_process(tenant), name, retry=not forgives), tenant) for tenant in tenants]
        self._threads = [threading.Thread(target=self._work, args=(client,)) for client in self._clients]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind, _error, _traceback):
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a client has no answer"
        for client in self._clients:
            client.workload.close()
        if kind is None:
            self.assert_unharmed()

    @property
    def models(self):
        """The models; they stand still once the context is left."""
        return [client.model for client in self._clients]

    def assert_unharmed(self):
        assert not self._wrong, "\n".join(self._wrong)

    def await_steps(self, count):
        """Waits until each client has done so many things more."""
        wanted = [client.steps + count for client in self._clients]
        until = time.monotonic() + PATIENCE_S
        while any(client.steps < steps for client, steps in zip(self._clients, wanted)):
            self.assert_unharmed()
            assert time.monotonic() < until, "the clients do not get on"
            time.sleep(0.01)

    def _work(self, client):
        try:
            while not self._over.wait(REST_S):
                try:
                    client.step()
                except self._errors:
                    if not self._forgives:
                        raise
                    client.steps += 1
                    self._reconnect(client)
        except Exception as error:  # noqa: BLE001: whatever a client meets is told
            self._wrong.append(f"{self._store}, tenant {client.tenant}, step {client.steps}: {error!r}")

    def _reconnect(self, client):
        """Connects again, as often as it takes until the test is over."""
        while not self._over.wait(AGAIN_S):
            process = self._find(client.tenant)
            if process is None:
                continue
            try:
                client.workload.connect(process)
                return
            except self._errors:
                continue


def check_all(store, process, name, models):
    """Fails unless the server has what the models say."""
    workload = store(process, name)
    for model in models:
        model.check(workload.read_all(model.tenant))
    workload.close()
