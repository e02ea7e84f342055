"""What a store's file must provide to join the suite. It knows the store's client; it does not know the cases."""


class NotGranted(Exception):
    """The server refused a request for want of a right."""


class Busy(Exception):
    """The server refused a request over a quota."""

    def __init__(self, retry_after_s):
        super().__init__(f"retry after {retry_after_s} s")
        self.retry_after_s = retry_after_s


class HoldsData(Exception):
    """The server refused to bind a dataset that has rows."""


class Workload:
    """A client of one store, and the datasets called `name` in which tenants keep items, each a number and a text.

    Several workloads with the same `name` are several clients of the same datasets. A method returns only when the
    server has acknowledged the request. A refusal for want of a right is `NotGranted`, one over a quota is `Busy`; every
    other failure of a request is an error of the client itself, one of `errors`.
    """

    # The id of the store, as `polyshard user grant --store` takes it.
    id = ""
    # What the store's client raises.
    errors = ()
    # How many items `look` returns at most, or None if it returns all.
    look_max = None

    def __init__(self, process, name, retry=True):
        """A client of the server `process`; with `retry`, it repeats failed requests as the client does by default."""
        self.name, self.retry = name, retry
        self.connect(process)

    def connect(self, process):
        """Connects to a server process, also after the one before was killed."""
        raise NotImplementedError

    def bind(self, map_name, tenants):
        """Binds the datasets of these tenants, made or not, to the map that has them as keys; or raises `HoldsData`."""
        raise NotImplementedError

    def make(self, tenants):
        """Creates the datasets of these tenants."""
        raise NotImplementedError

    def write(self, tenant, number, text):
        """Adds an item."""
        raise NotImplementedError

    def change(self, tenant, number, text):
        """Changes an item that this workload has written."""
        raise NotImplementedError

    def remove(self, tenant, number):
        """Removes an item that this workload has written."""
        raise NotImplementedError

    def look(self, tenant):
        """The texts of the tenant that one ordinary read returns; it needs the right to read, and changes nothing."""
        raise NotImplementedError

    def read_all(self, tenant):
        """The texts of all items of the tenant, as often as they are there. It may change what `change` depends on."""
        raise NotImplementedError

    def dataset(self, tenant):
        """The dataset that has the tenant's items, as `polyshard datasets` lists it."""
        raise NotImplementedError

    def granted_as(self, tenant):
        """The same dataset, as `polyshard user grant --table` takes it."""
        raise NotImplementedError

    @classmethod
    def limited(cls, process):
        """A context with a user without rights: `(user, connect)`, where `connect(name)` is a workload of this user."""
        raise NotImplementedError

    def close(self):
        """Closes the client's connections."""
        raise NotImplementedError
