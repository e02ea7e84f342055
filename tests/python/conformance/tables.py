"""Tables, with azure-data-tables: the tenants share a table, and an item is an entity in one of their partitions."""

import contextlib

from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError
from azure.data.tables import TableServiceClient, UpdateMode

from conformance.azure import bind, limited_account, translated
from conformance.workload import Workload
from conftest import ACCOUNT, KEY

PARTITIONS = 3


class Tables(Workload):
    id = "tables"
    errors = (AzureError,)

    def connect(self, process):
        self.process = process
        options = {} if self.retry else {"retry_total": 0}
        credential = AzureNamedKeyCredential(ACCOUNT, KEY)
        self._service = TableServiceClient(process.table, credential=credential, **options)
        self._table = self._service.get_table_client(self.name)

    def bind(self, map_name, tenants):
        bind(self.process, self.dataset(None), map_name)

    def make(self, tenants):
        with translated():
            self._table.create_table()

    def write(self, tenant, number, text):
        with translated():
            self._table.create_entity({**key(tenant, number), "text": text})

    def change(self, tenant, number, text):
        with translated():
            self._table.update_entity({**key(tenant, number), "text": text}, mode=UpdateMode.REPLACE)

    def remove(self, tenant, number):
        with translated():
            self._table.delete_entity(key(tenant, number))

    def look(self, tenant):
        with translated():
            return [entity["text"] for partition in range(PARTITIONS)
                    for entity in self._table.query_entities(f"PartitionKey eq '{tenant}-{partition}'")]

    def read_all(self, tenant):
        return self.look(tenant)

    def dataset(self, tenant):
        return f"table:{ACCOUNT}/{self.name}"

    def granted_as(self, tenant):
        return self.name

    @classmethod
    @contextlib.contextmanager
    def limited(cls, process):
        with limited_account(process):
            yield ACCOUNT, lambda name: cls(process, name)

    def close(self):
        self._service.close()


def key(tenant, number):
    return {"PartitionKey": f"{tenant}-{number % PARTITIONS}", "RowKey": f"{number:06}"}
