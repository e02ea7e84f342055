"""Documents, with azure-cosmos: the tenants share a container, and an item is a document in one of their partitions."""

import contextlib

from azure.core.exceptions import AzureError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from conformance.server import Failed
from conformance.workload import Busy, HoldsData, NotGranted, Workload
from conftest import COSMOS_ACCOUNT, COSMOS_KEY

PARTITIONS = 3
CONTAINER = "items"


@contextlib.contextmanager
def translated():
    """Raises the refusals of the service as those of the suite."""
    try:
        yield
    except CosmosHttpResponseError as error:
        if error.status_code == 403:
            raise NotGranted(str(error)) from error
        if error.status_code == 429:
            raise Busy(int(error.headers["x-ms-retry-after-ms"]) / 1000) from error
        raise


class Documents(Workload):
    id = "document"
    errors = (AzureError,)

    def connect(self, process):
        self.process = process
        # Zero repetitions after a quota's refusal would mean the usual nine.
        options = {} if self.retry else {"retry_total": 0, "retry_throttle_total": -1}
        self._client = CosmosClient(process.document, COSMOS_KEY, **options)
        self._container = self._client.get_database_client(self.name).get_container_client(CONTAINER)

    def bind(self, map_name, tenants):
        try:
            self.process.cli("bind", self.dataset(None), "--map", map_name, "--rule", "before:-")
        except Failed as error:
            if "holds_data" in str(error):
                raise HoldsData(str(error)) from error
            raise

    def make(self, tenants):
        with translated():
            self._client.create_database(self.name).create_container(CONTAINER, PartitionKey("/pk"))

    def write(self, tenant, number, text):
        # A repeated request finds what the first one has made, so an item is not written only if it is new.
        with translated():
            self._container.upsert_item({**key(tenant, number), "text": text})

    def change(self, tenant, number, text):
        with translated():
            self._container.replace_item(key(tenant, number)["id"], {**key(tenant, number), "text": text})

    def remove(self, tenant, number):
        with translated():
            self._container.delete_item(key(tenant, number)["id"], key(tenant, number)["pk"])

    def look(self, tenant):
        with translated():
            return [item["text"] for partition in range(PARTITIONS)
                    for item in self._container.query_items("SELECT * FROM c", partition_key=f"{tenant}-{partition}")]

    def read_all(self, tenant):
        return self.look(tenant)

    def dataset(self, tenant):
        return f"document:{COSMOS_ACCOUNT}/{self.name}/{CONTAINER}"

    def granted_as(self, tenant):
        return f"{self.name}/{CONTAINER}"

    @classmethod
    @contextlib.contextmanager
    def limited(cls, process):
        process.cli("user", "add", COSMOS_ACCOUNT, "--account")
        try:
            yield COSMOS_ACCOUNT, lambda name: cls(process, name)
        finally:
            process.cli("user", "remove", COSMOS_ACCOUNT)

    def close(self):
        self._client.close()


def key(tenant, number):
    return {"id": f"{number:06}", "pk": f"{tenant}-{number % PARTITIONS}"}
