"""Queues, with azure-storage-queue: each tenant has a queue of its own, and an item is a message."""

import contextlib

from azure.core.exceptions import AzureError
from azure.storage.queue import QueueServiceClient

from conformance.azure import bind, limited_account, translated
from conformance.workload import Workload
from conftest import ACCOUNT, KEY

# Longer than any test: what `read_all` has received and not yet given back is received by nobody else.
INVISIBLE_S = 3600
PAGE = 32
# More than any case writes into one queue.
RECEIVED_MAX = 1000


class Queues(Workload):
    id = "queues"
    errors = (AzureError,)
    look_max = PAGE

    def __init__(self, process, name, retry=True):
        # The last receipt of each message, which a change of it needs.
        self._messages = {}
        super().__init__(process, name, retry)

    def connect(self, process):
        self.process = process
        options = {} if self.retry else {"retry_total": 0}
        credential = {"account_name": ACCOUNT, "account_key": KEY}
        self._service = QueueServiceClient(process.queue, credential, **options)

    def _queue(self, tenant):
        return self._service.get_queue_client(f"{tenant}-{self.name}")

    def bind(self, map_name, tenants):
        for tenant in tenants:
            bind(self.process, self.dataset(tenant), map_name)

    def make(self, tenants):
        for tenant in tenants:
            with translated():
                self._queue(tenant).create_queue()

    def write(self, tenant, number, text):
        with translated():
            self._messages[tenant, number] = self._queue(tenant).send_message(text, time_to_live=-1)

    def change(self, tenant, number, text):
        message = self._messages[tenant, number]
        with translated():
            changed = self._queue(tenant).update_message(message, visibility_timeout=0, content=text)
        self._messages[tenant, number] = changed

    def remove(self, tenant, number):
        with translated():
            self._queue(tenant).delete_message(self._messages[tenant, number])
        del self._messages[tenant, number]

    def look(self, tenant):
        with translated():
            return [message.content for message in self._queue(tenant).peek_messages(max_messages=PAGE)]

    def read_all(self, tenant):
        queue, received = self._queue(tenant), []
        with translated():
            # A message that is received again and again is doubled, and must not keep the test for ever.
            while len(received) < RECEIVED_MAX:
                page = list(queue.receive_messages(messages_per_page=PAGE, max_messages=PAGE,
                                                   visibility_timeout=INVISIBLE_S))
                if not page:
                    break
                received += page
            for message in received:
                queue.update_message(message, visibility_timeout=0)
        return [message.content for message in received]

    def dataset(self, tenant):
        return f"queue:{ACCOUNT}/{tenant}-{self.name}"

    def granted_as(self, tenant):
        return f"{tenant}-{self.name}"

    @classmethod
    @contextlib.contextmanager
    def limited(cls, process):
        with limited_account(process):
            yield ACCOUNT, lambda name: cls(process, name)

    def close(self):
        self._service.close()
