"""SQL with unmodified Python drivers and an ORM: psycopg 3, asyncpg, SQLAlchemy with reflection."""

import asyncio
import uuid

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from conftest import make_tenants


@pytest.fixture
def words(doors):
    return doors.libpq()


@pytest.fixture
def tables(words):
    """A sharded table and a reference table of this test's own."""
    name = "t" + uuid.uuid4().hex[:12]
    with psycopg.connect(words, autocommit=True) as connection:
        run = connection.execute
        if not run("SELECT 1 WHERE %s = ANY(%s)", ["x", ["x"]]).fetchone():
            raise AssertionError("arrays are not understood")
        make_tenants(connection)
        run(f"CREATE TABLE {name} (tenant bigint, id bigint, body text, paid boolean DEFAULT false, "
            f"total numeric(10,2), PRIMARY KEY (tenant, id))")
        run(f"CREATE TABLE {name}_kind (code text PRIMARY KEY, label text NOT NULL)")
        run(f"SELECT polyshard.shard_table('{name}', 'tenants', 'tenant')")
        run(f"SELECT polyshard.reference_table('{name}_kind')")
        yield name
        run(f"DROP TABLE {name}")
        run(f"DROP TABLE {name}_kind")


def test_psycopg_binds_fetches_and_rolls_back(words, tables):
    with psycopg.connect(words) as connection:
        with connection.cursor() as cursor:
            for tenant in range(10):
                cursor.execute(f"INSERT INTO {tables} (tenant, id, body, total) VALUES (%s, %s, %s, %s)",
                               (tenant, 1, f"of {tenant}", "12.50"))
                connection.commit()
            cursor.execute(f"SELECT body, paid, total FROM {tables} WHERE tenant = %s", (3,))
            body, paid, total = cursor.fetchone()
            assert (body, paid, str(total)) == ("of 3", False, "12.50")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute(f"INSERT INTO {tables} (tenant, id) VALUES (3, 1)")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        with connection.transaction():
            connection.execute(f"UPDATE {tables} SET paid = true WHERE tenant = 3")
            with pytest.raises(ZeroDivisionError):
                with connection.transaction():
                    connection.execute(f"DELETE FROM {tables} WHERE tenant = 3")
                    raise ZeroDivisionError
        # Prepared after a few uses; binary results, too.
        for _ in range(8):
            row = connection.execute(f"SELECT paid FROM {tables} WHERE tenant = %s", (3,), binary=True).fetchone()
            assert row == (True,)
        assert connection.execute(f"SELECT count(*) FROM {tables}").fetchone() == (10,)


def test_asyncpg_prepares_and_runs_transactions(doors, tables):
    async def work():
        connection = await asyncpg.connect(**doors.asyncpg())
        try:
            insert = await connection.prepare(f"INSERT INTO {tables} (tenant, id, body) VALUES ($1, $2, $3)")
            for tenant in range(10):
                await insert.fetch(tenant, 1, f"of {tenant}")
            assert await connection.fetchval(f"SELECT body FROM {tables} WHERE tenant = $1", 7) == "of 7"
            async with connection.transaction():
                await connection.execute(f"UPDATE {tables} SET body = 'new' WHERE tenant = $1", 7)
                with pytest.raises(asyncpg.UniqueViolationError):
                    async with connection.transaction():
                        await insert.fetch(7, 1, "twice")
            assert await connection.fetchval(f"SELECT body FROM {tables} WHERE tenant = $1", 7) == "new"
            assert await connection.fetchval(f"SELECT count(*) FROM {tables}") == 10
        finally:
            await connection.close()

    asyncio.run(work())


def test_answers_are_taken_in_parts(doors, words, tables):
    """Server-side cursors of psycopg, cursors of asyncpg, SQLAlchemy's streams: of one shard and of all."""
    with psycopg.connect(words, autocommit=True) as connection:
        for number in range(40):
            connection.execute(f"INSERT INTO {tables} (tenant, id, body) VALUES (%s, %s, %s)",
                               (number % 10, number, f"n{number}"))
    queries = [(f"SELECT id, body FROM {tables} WHERE tenant = %s ORDER BY id", (3,), [3, 13, 23, 33]),
               (f"SELECT id, body FROM {tables} WHERE id >= %s ORDER BY id", (5,), list(range(5, 40)))]
    for query, values, wanted in queries:
        with psycopg.connect(words) as connection:
            with connection.cursor("parts") as cursor:
                cursor.itersize = 3
                cursor.execute(query, values)
                assert [column.name for column in cursor.description] == ["id", "body"]
                assert cursor.fetchone() == (wanted[0], f"n{wanted[0]}")
                assert [row[0] for row in cursor] == wanted[1:]
            with connection.cursor("again", scrollable=True) as cursor:
                cursor.execute(query, values, binary=True)
                cursor.scroll(2)
                assert cursor.fetchone()[0] == wanted[2]
                cursor.scroll(0, mode="absolute")
                assert [row[0] for row in cursor.fetchmany(2)] == wanted[:2]
            with connection.cursor("kept", withhold=True) as cursor:
                cursor.execute(query, values)
                assert cursor.fetchone()[0] == wanted[0]
                connection.commit()
                assert [row[0] for row in cursor.fetchall()] == wanted[1:]
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(words))
    for query, values, wanted in queries:
        with engine.connect().execution_options(stream_results=True, max_row_buffer=4) as connection:
            found = connection.exec_driver_sql(query, values)
            assert [row[0] for row in found.yield_per(3)] == wanted
    engine.dispose()

    async def work():
        connection = await asyncpg.connect(**doors.asyncpg())
        try:
            for query, values, wanted in queries:
                async with connection.transaction():
                    cursor = connection.cursor(query.replace("%s", "$1"), *values, prefetch=4)
                    assert [row["id"] async for row in cursor] == wanted
        finally:
            await connection.close()

    asyncio.run(work())


def test_queries_over_all_shards_are_copied_out(words, tables):
    with psycopg.connect(words, autocommit=True) as connection:
        for number in range(20):
            connection.execute(f"INSERT INTO {tables} (tenant, id) VALUES (%s, %s)", (number, number))
        with connection.cursor() as cursor:
            with cursor.copy(f"COPY (SELECT id % 2, count(*) FROM {tables} GROUP BY 1 ORDER BY 1) TO STDOUT") as copy:
                assert b"".join(copy) == b"0\t10\n1\t10\n"
            with cursor.copy(f"COPY {tables} (id) TO STDOUT") as copy:
                assert sorted(int(row[0]) for row in copy.rows()) == list(range(20))


def test_sqlalchemy_maps_and_reflects(words, tables):
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(words))

    class Base(DeclarativeBase):
        pass

    class Note(Base):
        __tablename__ = tables
        tenant: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
        id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
        body: Mapped[str | None]
        paid: Mapped[bool] = mapped_column(default=False)

    with Session(engine) as session:
        session.add(Note(tenant=5, id=1, body="five"))
        session.commit()
        note = session.get(Note, (5, 1))
        note.paid = True
        session.commit()
        found = session.scalars(sa.select(Note).where(Note.tenant == 5, Note.paid)).all()
        assert [note.body for note in found] == ["five"]
    inspector = sa.inspect(engine)
    assert tables in inspector.get_table_names()
    columns = {column["name"]: column for column in inspector.get_columns(tables)}
    assert list(columns) == ["tenant", "id", "body", "paid", "total"]
    assert isinstance(columns["tenant"]["type"], sa.BigInteger)
    assert inspector.get_pk_constraint(tables)["constrained_columns"] == ["tenant", "id"]
    reflected = sa.Table(tables, sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(reflected.c.body).where(reflected.c.tenant == 5)).all()
        assert rows == [("five",)]
    engine.dispose()


def test_a_migration_in_sqlalchemy_uses_savepoints(words, tables):
    """DDL, data of reference tables and savepoints in one transaction, as Alembic and Django run migrations."""
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(words))
    versions = sa.Table(f"{tables}_version", sa.MetaData(), sa.Column("number", sa.String(32), primary_key=True))
    with engine.begin() as connection:
        assert not sa.inspect(connection).has_table(versions.name)
        versions.create(connection)
        connection.execute(sa.insert(versions).values(number="1"))
        with pytest.raises(ZeroDivisionError):
            with connection.begin_nested():
                connection.execute(sa.text(f"ALTER TABLE {tables} ADD COLUMN gone text"))
                connection.execute(sa.update(versions).values(number="2"))
                raise ZeroDivisionError
        with pytest.raises(sa.exc.IntegrityError):
            with connection.begin_nested():
                connection.execute(sa.insert(versions).values(number="1"))
        with connection.begin_nested():
            connection.execute(sa.text(f"ALTER TABLE {tables} ADD COLUMN kept text"))
            connection.execute(sa.update(versions).values(number="3"))
    with engine.connect() as connection:
        assert connection.execute(sa.select(versions.c.number)).all() == [("3",)]
        names = [column["name"] for column in sa.inspect(connection).get_columns(tables)]
        assert "kept" in names and "gone" not in names
    with engine.begin() as connection:
        versions.drop(connection)
    engine.dispose()
