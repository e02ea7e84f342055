"""Blobs, with azure-storage-blob: each tenant has a container of its own, and an item is a blob."""

import contextlib

from azure.core.exceptions import AzureError
from azure.storage.blob import BlobServiceClient

from conformance.azure import limited_account, translated
from conformance.server import Failed
from conformance.workload import HoldsData, Workload
from conftest import ACCOUNT, KEY

# Every third item is longer than what is kept in a row: its bytes are an object.
LARGE_EVERY = 3
LARGE_BYTES = 70_000
# Parts the text from what makes it long.
END = "\n"


class Blobs(Workload):
    id = "blob"
    errors = (AzureError,)

    def connect(self, process):
        self.process = process
        options = {} if self.retry else {"retry_total": 0}
        self._service = BlobServiceClient(process.blob, {"account_name": ACCOUNT, "account_key": KEY}, **options)

    def _container(self, tenant):
        return self._service.get_container_client(f"{tenant}-{self.name}")

    def bind(self, map_name, tenants):
        for tenant in tenants:
            words = ["--map", map_name, "--key", "container", "--rule", "before:-"]
            try:
                self.process.cli("bind", self.dataset(tenant), *words)
            except Failed as error:
                if "holds_data" in str(error):
                    raise HoldsData(str(error)) from error
                raise

    def make(self, tenants):
        for tenant in tenants:
            with translated():
                self._container(tenant).create_container()

    def write(self, tenant, number, text):
        # A repeated request finds what the first one has made, so an item is not written only if it is new.
        with translated():
            self._container(tenant).upload_blob(name_of(number), content_of(number, text), overwrite=True)

    def change(self, tenant, number, text):
        self.write(tenant, number, text)

    def remove(self, tenant, number):
        with translated():
            self._container(tenant).delete_blob(name_of(number))

    def look(self, tenant):
        container = self._container(tenant)
        with translated():
            return [container.download_blob(found.name).readall().decode().split(END)[0]
                    for found in container.list_blobs()]

    def read_all(self, tenant):
        return self.look(tenant)

    def dataset(self, tenant):
        return f"blob:{ACCOUNT}/{tenant}-{self.name}"

    def granted_as(self, tenant):
        return f"{tenant}-{self.name}"

    @classmethod
    @contextlib.contextmanager
    def limited(cls, process):
        with limited_account(process):
            yield ACCOUNT, lambda name: cls(process, name)

    def close(self):
        self._service.close()


def name_of(number):
    return f"items/{number:06}"


def content_of(number, text):
    return (text + END + "x" * (LARGE_BYTES if number % LARGE_EVERY == 0 else 0)).encode()
