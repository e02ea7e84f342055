"""What the stores of the Azure Storage family share: its errors, and an account with the rights of a user."""

import contextlib

from azure.core.exceptions import HttpResponseError

from conformance.server import Failed
from conformance.workload import Busy, HoldsData, NotGranted
from conftest import ACCOUNT


@contextlib.contextmanager
def translated():
    """Raises the refusals of the service as those of the suite."""
    try:
        yield
    except HttpResponseError as error:
        # The SDKs keep the code of an error in different places; all of them show it.
        if error.status_code == 403 and "AuthorizationFailure" in str(error):
            raise NotGranted(str(error)) from error
        # Only a quota is answered with the words of a rate; a shard that is away is another 503.
        if error.status_code == 503 and "requests a second" in str(error):
            raise Busy(float(error.response.headers["Retry-After"])) from error
        raise


def bind(process, dataset, map_name):
    """Binds a dataset whose keys begin with the tenant."""
    try:
        process.cli("bind", dataset, "--map", map_name, "--rule", "before:-")
    except Failed as error:
        if "holds_data" in str(error):
            raise HoldsData(str(error)) from error
        raise


@contextlib.contextmanager
def limited_account(process):
    """The account has the rights of the user of its name, none at first, and all rights again in the end."""
    process.cli("user", "add", ACCOUNT, "--account")
    try:
        yield
    finally:
        process.cli("user", "remove", ACCOUNT)
