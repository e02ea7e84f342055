"""Types of the user's own on several shards, whose numbers differ: asyncpg in binary form, psycopg with what it knows of
enums and composites, SQLAlchemy (G1, C1)."""

import asyncio
import uuid

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo, register_enum
from sqlalchemy.dialects import postgresql

from conftest import Mood, make_tenants

TENANTS = range(12)


@pytest.fixture
def words(doors):
    if doors.engine != "postgres":
        pytest.skip("types of one's own are PostgreSQL's")
    return doors.libpq()


@pytest.fixture
def name(words):
    """An enum, a composite of it, and a sharded table of both."""
    name = "y" + uuid.uuid4().hex[:12]
    with psycopg.connect(words, autocommit=True) as connection:
        run = connection.execute
        make_tenants(connection)
        run(f"CREATE TYPE {name}_mood AS ENUM ('sad', 'calm', 'glad')")
        run(f"CREATE TYPE {name}_spot AS (mood {name}_mood, n int)")
        run(f"CREATE TABLE {name} (tenant bigint PRIMARY KEY, mood {name}_mood, moods {name}_mood[], "
            f"spot {name}_spot, spots {name}_spot[])")
        run(f"SELECT polyshard.shard_table('{name}', 'tenants', 'tenant')")
        yield name
        run(f"DROP TABLE {name}")
        run(f"DROP TYPE {name}_spot")
        run(f"DROP TYPE {name}_mood")


def test_asyncpg_reads_them_from_every_shard(doors, words, name):
    async def run():
        connection = await asyncpg.connect(**doors.asyncpg())
        try:
            insert = f"INSERT INTO {name} VALUES ($1, $2, $3, $4, $5)"
            for tenant in TENANTS:
                # What a type is is asked in the midst of a transaction, wherever that is.
                async with connection.transaction():
                    spots = [("sad", tenant), ("calm", 0)]
                    await connection.execute(insert, tenant, "calm", ["glad", "sad"], ("glad", tenant), spots)
            read = f"SELECT mood, moods, spot, spots FROM {name}"
            for tenant in TENANTS:
                row = await connection.fetchrow(f"{read} WHERE tenant = $1", tenant)
                assert (row["mood"], row["moods"]) == ("calm", ["glad", "sad"])
                assert dict(row["spot"]) == {"mood": "glad", "n": tenant}
                assert [tuple(spot) for spot in row["spots"]] == [("sad", tenant), ("calm", 0)]
            found = await connection.fetch(f"{read} ORDER BY tenant DESC")
            assert [row["spot"]["n"] for row in found] == list(reversed(TENANTS))
            found = await connection.fetch(f"SELECT tenant FROM {name} WHERE moods = $1", ["glad", "sad"])
            assert len(found) == len(TENANTS)
        finally:
            await connection.close()

    asyncio.run(run())


def test_psycopg_knows_them_on_every_shard(words, name):
    with psycopg.connect(words, autocommit=True) as connection:
        register_enum(EnumInfo.fetch(connection, f"{name}_mood"), connection, Mood)
        info = CompositeInfo.fetch(connection, f"{name}_spot")
        register_composite(info, connection)
        for binary in [False, True]:
            cursor = connection.cursor(binary=binary)
            for tenant in TENANTS:
                key = tenant + 100 * binary
                spot = info.python_type(mood=Mood.sad, n=tenant)
                values = (key, Mood.calm, [Mood.glad, Mood.sad], spot, [spot])
                mark = "%b" if binary else "%s"
                cursor.execute(f"INSERT INTO {name} VALUES ({', '.join([mark] * 5)})", values)
                cursor.execute(f"SELECT * FROM {name} WHERE tenant = %s", (key,))
                assert cursor.fetchone() == values
            cursor.execute(f"SELECT mood, spots[1] FROM {name} WHERE tenant >= %s ORDER BY tenant", (100 * binary,))
            found = [spot.n for mood, spot in cursor.fetchall() if mood is Mood.calm]
            assert found == list(TENANTS) * (1 if binary else 1)


def test_sqlalchemy_reflects_and_uses_an_enum(words, name):
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(words))
    mood = postgresql.ENUM(Mood, name=f"{name}_mood", create_type=False)
    table = sa.Table(name, sa.MetaData(), sa.Column("tenant", sa.BigInteger, primary_key=True),
                     sa.Column("mood", mood), sa.Column("moods", postgresql.ARRAY(mood)))
    with engine.begin() as connection:
        assert f"{name}_mood" in {known["name"] for known in sa.inspect(connection).get_enums()}
    for tenant in TENANTS:
        with engine.begin() as connection:
            connection.execute(table.insert().values(tenant=tenant, mood=Mood.glad, moods=[Mood.sad]))
            row = connection.execute(table.select().where(table.c.tenant == tenant)).one()
            assert (row.mood, row.moods) == (Mood.glad, [Mood.sad])
    engine.dispose()
