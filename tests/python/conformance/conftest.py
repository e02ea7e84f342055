"""Fixtures of the suite: a store, an engine, and servers on it that the cases of a file share."""

import os

import pytest

from conformance.server import Cluster
from conformance.stores import STORES


@pytest.fixture(scope="session")
def built(request):
    """The program is there: built now, unless another one is under test."""
    if not os.environ.get("POLYSHARD_PROGRAM"):
        request.getfixturevalue("program")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def cluster(request, built):
    cluster = Cluster(request.param)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(params=STORES, ids=lambda store: store.id)
def store(request):
    return request.param
