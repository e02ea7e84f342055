"""What the tests of blobs share: clients of the account, plain requests, and what is refused."""

import datetime
import http.client
import ssl
import urllib.parse
import uuid
from collections import namedtuple

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobServiceClient, generate_account_sas

from conftest import ACCOUNT, KEY

CREDENTIAL = {"account_name": ACCOUNT, "account_key": KEY}
VERSION = "2023-11-03"
MIB = 1024 * 1024
# The polynomial of CRC-64/NVME, reflected.
CRC64_POLYNOMIAL = 0x9A6C9329AC4BC9B5

Answer = namedtuple("Answer", "status code headers body")


def connect(doors, **options):
    """A client of the account that repeats nothing."""
    return BlobServiceClient(doors.blob, CREDENTIAL, **{"retry_total": 0, **options})


@pytest.fixture
def service(doors):
    with connect(doors) as client:
        yield client


@pytest.fixture
def container(service):
    client = service.create_container("c" + uuid.uuid4().hex)
    yield client
    client.delete_container()


@pytest.fixture
def raw(doors):
    client = Raw(doors)
    yield client
    client.close()


def in_an_hour(hours=1):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours)


class Raw:
    """Plain requests over one connection, with a signature of the account."""

    def __init__(self, doors, token=None):
        address = urllib.parse.urlsplit(doors.blob)
        if token is None:
            token = generate_account_sas(ACCOUNT, KEY, "sco", "rwdxlacuptfiy", in_an_hour(24), services="b")
        self.token, self.account = token, address.path
        if address.scheme == "https":
            tls = ssl.create_default_context(cafile=doors.certificate)
            self.connection = http.client.HTTPSConnection(address.netloc, context=tls, timeout=120)
        else:
            self.connection = http.client.HTTPConnection(address.netloc, timeout=120)

    def begin(self, method, path, headers=None, body=b"", **query):
        """Sends a request; `path` is that behind the account, as it is to be sent. The answer is not read yet."""
        words = urllib.parse.urlencode(query)
        target = f"{self.account}{path}?{words}{'&' if words and self.token else ''}{self.token}"
        sent = {"x-ms-version": VERSION, **(headers or {})}
        if method in ["PUT", "POST"] and isinstance(body, bytes):
            sent.setdefault("Content-Length", str(len(body)))
        self.connection.request(method, target, body=body if method in ["PUT", "POST"] else None, headers=sent)
        return self.connection.getresponse()

    def __call__(self, method, path, headers=None, body=b"", **query):
        answer = self.begin(method, path, headers, body, **query)
        return Answer(answer.status, answer.headers["x-ms-error-code"], answer.headers, answer.read())

    def close(self):
        self.connection.close()


def refused(code, call, *args, status=None, message=None, **kwargs):
    """Fails unless the call is refused with this code; with a status and a message of its own, if they are given."""
    with pytest.raises(HttpResponseError) as caught:
        result = call(*args, **kwargs)
        if hasattr(result, "__next__"):
            list(result)
    error = caught.value
    found = getattr(error, "error_code", None) or error.response.headers.get("x-ms-error-code")
    assert found == code, f"{found} instead of {code}: {error}"
    assert status is None or error.status_code == status, f"{error.status_code} instead of {status}: {error}"
    assert message is None or message in error.message, error.message
    return error


def read(blob, **options):
    return blob.download_blob(**options).readall()


def crc64(content):
    """CRC-64/NVME, as Azure computes it, in the form of its header."""
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (CRC64_POLYNOMIAL if crc & 1 else 0)
    return (crc ^ 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
