"""What models of newcomers have: enums, arrays, generated columns and schemas of their own, with asyncpg and psycopg on SQLite
shards; `test_types.py` has PostgreSQL's (G1, C1, C7)."""

import asyncio
import uuid

import asyncpg
import psycopg
import pytest
from psycopg.types.enum import EnumInfo, register_enum

from conftest import Mood, make_tenants

TENANTS = range(8)


@pytest.fixture
def words(doors):
    if doors.engine != "sqlite":
        pytest.skip("PostgreSQL has them itself")
    return doors.libpq()


@pytest.fixture
def name(words):
    """A sharded table of a schema, with an enum, arrays and a generated column."""
    name = "n" + uuid.uuid4().hex[:12]
    with psycopg.connect(words, autocommit=True) as connection:
        run = connection.execute
        make_tenants(connection)
        run(f"CREATE SCHEMA {name}")
        run(f"CREATE TYPE {name}.mood AS ENUM ('sad', 'calm', 'glad')")
        run(f"CREATE TABLE {name}.note (tenant bigint PRIMARY KEY, mood {name}.mood NOT NULL, tags text[], counts int[], "
            f"many int GENERATED ALWAYS AS (tenant * 2) STORED)")
        run(f"SELECT polyshard.shard_table('{name}.note', 'tenants', 'tenant')")
        yield name
        run(f"DROP TABLE {name}.note")
        run(f"DROP TYPE {name}.mood")
        run(f"DROP SCHEMA {name}")


def test_asyncpg_binds_and_reads_them(doors, words, name):
    async def run():
        connection = await asyncpg.connect(**doors.asyncpg())
        try:
            insert = f"INSERT INTO {name}.note (tenant, mood, tags, counts) VALUES ($1, $2, $3, $4)"
            for tenant in TENANTS:
                await connection.execute(insert, tenant, "calm" if tenant % 2 else "glad", ["a", "b c", None], [tenant])
            row = await connection.fetchrow(f"SELECT * FROM {name}.note WHERE tenant = $1", 3)
            assert tuple(row) == (3, "calm", ["a", "b c", None], [3], 6)
            found = await connection.fetch(f"SELECT tenant FROM {name}.note WHERE $1 = ANY(counts)", 5)
            assert [row["tenant"] for row in found] == [5]
            found = await connection.fetch(f"SELECT tenant FROM {name}.note WHERE tags @> $1 ORDER BY tenant", ["b c"])
            assert [row["tenant"] for row in found] == list(TENANTS)
            found = await connection.fetch(f"SELECT tenant FROM {name}.note WHERE mood = $1 ORDER BY tenant", "glad")
            assert [row["tenant"] for row in found] == [0, 2, 4, 6]
            found = await connection.fetch(f"SELECT tenant FROM {name}.note ORDER BY mood DESC, tenant")
            assert [row["tenant"] for row in found] == [0, 2, 4, 6, 1, 3, 5, 7]
            with pytest.raises(asyncpg.InvalidTextRepresentationError):
                await connection.execute(insert, 100, "angry", [], [])
        finally:
            await connection.close()

    asyncio.run(run())


def test_psycopg_knows_the_enum(words, name):
    with psycopg.connect(words, autocommit=True) as connection:
        register_enum(EnumInfo.fetch(connection, f"{name}.mood"), connection, Mood)
        for binary in [False, True]:
            cursor = connection.cursor(binary=binary)
            mark = "%b" if binary else "%s"
            for tenant in TENANTS:
                key = tenant + 100 * binary
                values = (key, Mood.glad, ["x", '"y"'], [1, None])
                cursor.execute(f"INSERT INTO {name}.note (tenant, mood, tags, counts) VALUES ({', '.join([mark] * 4)})",
                               values)
                cursor.execute(f"SELECT * FROM {name}.note WHERE tenant = %s", (key,))
                assert cursor.fetchone() == (*values, key * 2)
        connection.execute(f"SET search_path TO {name}")
        assert connection.execute("SELECT current_schema()").fetchone() == (name,)
        assert connection.execute("SELECT count(*) FROM note WHERE mood = 'glad'").fetchone() == (16,)
        with pytest.raises(psycopg.errors.GeneratedAlways):
            connection.execute("INSERT INTO note (tenant, mood, many) VALUES (7, 'sad', 1)")
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            connection.execute(f"DROP SCHEMA {name}")
