"""SQL, with psycopg: the tenants share a table, and an item is a row."""

import contextlib
import re

import psycopg

from conformance.workload import Busy, HoldsData, NotGranted, Workload

LIMITED_USER = "clerk"
LIMITED_PASSWORD = "a long password"


class Sql(Workload):
    id = "sql"
    errors = (psycopg.Error,)

    def __init__(self, process, name, retry=True, user="polyshard", password="polyshard"):
        self._is_made = False
        self._login = {"user": user, "password": password}
        # The client repeats nothing by itself, whatever `retry` is.
        super().__init__(process, name, retry)

    def connect(self, process):
        self.process = process
        self._connection = psycopg.connect(host=process.sql_host, port=process.sql_port, dbname="polyshard",
                                           sslmode="disable", autocommit=True, **self._login)

    def _run(self, statement, *values):
        """The rows, or how many were changed."""
        try:
            cursor = self._connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else cursor.rowcount
        except psycopg.errors.InsufficientPrivilege as error:
            raise NotGranted(str(error)) from error
        except psycopg.errors.ConfigurationLimitExceeded as error:
            retry_after = re.search(r"try again in (\d+) ms", str(error))
            raise Busy(int(retry_after[1]) / 1000) from error

    def bind(self, map_name, tenants):
        # A table is bound as soon as it is there.
        self._map = map_name
        if self._is_made:
            try:
                self._run(f"SELECT polyshard.shard_table('{self.name}', '{map_name}', 'tenant')")
            except psycopg.errors.FeatureNotSupported as error:
                raise HoldsData(str(error)) from error

    def make(self, tenants):
        self._run(f"CREATE TABLE {self.name} (tenant bigint, number bigint, text text, PRIMARY KEY (tenant, number))")
        self._is_made = True
        self.bind(self._map, tenants)

    def write(self, tenant, number, text):
        assert self._run(f"INSERT INTO {self.name} VALUES (%s, %s, %s)", tenant, number, text) == 1

    def change(self, tenant, number, text):
        change = f"UPDATE {self.name} SET text = %s WHERE tenant = %s AND number = %s"
        assert self._run(change, text, tenant, number) == 1

    def remove(self, tenant, number):
        assert self._run(f"DELETE FROM {self.name} WHERE tenant = %s AND number = %s", tenant, number) == 1

    def look(self, tenant):
        return [text for (text,) in self._run(f"SELECT text FROM {self.name} WHERE tenant = %s", tenant)]

    def read_all(self, tenant):
        return self.look(tenant)

    def dataset(self, tenant):
        return f"sql:public.{self.name}"

    def granted_as(self, tenant):
        return self.name

    @classmethod
    @contextlib.contextmanager
    def limited(cls, process):
        owner = cls(process, "")
        owner._run(f"CREATE USER {LIMITED_USER} PASSWORD '{LIMITED_PASSWORD}'")
        try:
            yield LIMITED_USER, lambda name: cls(process, name, user=LIMITED_USER, password=LIMITED_PASSWORD)
        finally:
            owner._run(f"DROP USER {LIMITED_USER}")
            owner.close()

    def close(self):
        self._connection.close()
