"""The stores under test, one line each; every case runs for every one of them on both engines."""

from conformance.blobs import Blobs
from conformance.document import Documents
from conformance.queues import Queues
from conformance.sql import Sql
from conformance.tables import Tables

STORES = [
    Blobs,
    Documents,
    Queues,
    Tables,
    Sql,
]
