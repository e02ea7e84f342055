"""Writes on several shards that are completed whatever happens, with psycopg and asyncpg (C3)."""

import asyncio
import random

import asyncpg
import psycopg

from conftest import make_tenants

ACCOUNTS = 24


def made(doors, table):
    """A bank, and a connection that may write on several shards."""
    connection = psycopg.connect(doors.libpq(), autocommit=True)
    connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, balance bigint NOT NULL)")
    make_tenants(connection)
    connection.execute(f"SELECT polyshard.shard_table('{table}', 'tenants', 'id')")
    connection.execute("SET polyshard.multi_shard = 'eventual'")
    connection.execute("SET polyshard.strict = off")
    with connection.cursor() as cursor:
        values = ", ".join(["(%s, 100)"] * ACCOUNTS)
        cursor.execute(f"INSERT INTO {table} VALUES {values}", range(ACCOUNTS))
        assert cursor.rowcount == ACCOUNTS
    return connection


def test_one_statement_writes_on_all_shards(doors):
    connection = made(doors, "bank_one")
    rows = connection.execute("UPDATE bank_one SET balance = balance + %s RETURNING id, balance", [1]).fetchall()
    assert sorted(rows) == [(id, 101) for id in range(ACCOUNTS)]
    (name,) = connection.execute("SHOW polyshard.last_write").fetchone()
    assert connection.execute("SELECT polyshard.write_completed(%s)", [name]).fetchone() == ("true",)
    assert doors.cli("writes", "show", name)["completed"] is True
    # Money moves by one statement, on whichever shards.
    move = "UPDATE bank_one SET balance = balance + CASE id WHEN %s THEN -10 ELSE 10 END WHERE id IN (%s, %s)"
    for _ in range(20):
        payer, payee = random.sample(range(ACCOUNTS), 2)
        assert connection.execute(move, [payer, payer, payee]).rowcount == 2
    total = connection.execute("SELECT sum(balance)::bigint, count(*) FROM bank_one").fetchone()
    assert total == (101 * ACCOUNTS, ACCOUNTS)
    connection.close()


def test_a_named_cursor_reads_before_a_transaction_writes(doors):
    connection = made(doors, "bank_three")
    with connection.transaction(), connection.cursor("first") as cursor:
        cursor.execute("SELECT id, balance FROM bank_three WHERE id = 7")
        assert cursor.fetchmany(10) == [(7, 100)]
        assert cursor.fetchmany(10) == []
        connection.execute("UPDATE bank_three SET balance = 1 WHERE id = 7")
    assert connection.execute("SELECT balance FROM bank_three WHERE id = 7").fetchone() == (1,)
    connection.close()


def test_transactions_over_sqlite_files_are_all_or_nothing(doors):
    if doors.engine != "sqlite":
        return
    connection = made(doors, "bank_two")
    for number in range(20):
        payer, payee = random.sample(range(ACCOUNTS), 2)
        try:
            with connection.transaction():
                look = "SELECT balance FROM bank_two WHERE id = %s"
                (before,) = connection.execute(look, [payer]).fetchone()
                connection.execute("UPDATE bank_two SET balance = balance - 10 WHERE id = %s", [payer])
                assert connection.execute(look, [payer]).fetchone() == (before - 10,)
                with connection.transaction(force_rollback=True):
                    connection.execute("UPDATE bank_two SET balance = 0 WHERE id = %s", [payee])
                connection.execute("UPDATE bank_two SET balance = balance + 10 WHERE id = %s", [payee])
                third = random.choice([id for id in range(ACCOUNTS) if id not in (payer, payee)])
                with connection.transaction(force_rollback=True):
                    connection.execute("UPDATE bank_two SET balance = 0 WHERE id = %s", [third])
                if number % 4 == 0:
                    raise InterruptedError
        except InterruptedError:
            pass
    total = connection.execute("SELECT sum(balance)::bigint, count(*) FROM bank_two").fetchone()
    assert total == (100 * ACCOUNTS, ACCOUNTS)
    connection.close()

    async def by_asyncpg():
        async_connection = await asyncpg.connect(**doors.asyncpg())
        await async_connection.execute("SET polyshard.multi_shard = 'eventual'")
        for _ in range(10):
            payer, payee = random.sample(range(ACCOUNTS), 2)
            async with async_connection.transaction():
                look = "SELECT balance FROM bank_two WHERE id = $1"
                before = await async_connection.fetchval(look, payer)
                assert await async_connection.fetchval(look + " FOR UPDATE", payer) == before
                change = "UPDATE bank_two SET balance = balance + $1 WHERE id = $2 RETURNING balance"
                await async_connection.fetchval(change, -10, payer)
                await async_connection.fetchval(change, 10, payee)
        await async_connection.execute("SET polyshard.strict = off")
        total = await async_connection.fetchval("SELECT sum(balance)::bigint FROM bank_two")
        await async_connection.close()
        return total

    assert asyncio.run(by_asyncpg()) == 100 * ACCOUNTS
