"""SQL rows, entities and messages of one tenant in one transaction (H2): together or not at all, seen by the SDKs."""

import asyncio
import json
import os
import threading
import time

import asyncpg
import psycopg
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY
from test_move import ended

TENANTS = range(1, 11)


class World:
    """An order table, an entity table and a queue for each tenant, all of the map `tenants`."""

    def __init__(self, doors):
        self.doors = doors
        self.shards = [shard["id"] for shard in doors.cli("shard", "list")["shards"]]
        doors.cli("map", "create", "tenants", "--kind", "list", "--key", "bigint")
        for tenant in TENANTS:
            shard = self.shards[tenant % 2]
            doors.cli("map", "add", "tenants", "--key", str(tenant), "--to", shard)
            doors.cli("bind", f"queue:{tenant}-outbox", "--map", "tenants", "--rule", "before:-")
        doors.cli("bind", "table:Totals", "--map", "tenants", "--key", "PartitionKey")
        with self.connect() as connection:
            connection.execute("CREATE TABLE orders (tenant bigint, id bigint, item text, PRIMARY KEY (tenant, id))")
            connection.commit()
            connection.execute("SELECT polyshard.shard_table('orders', 'tenants', 'tenant')")
        self.tables().create_table("Totals")
        for tenant in TENANTS:
            self.queues().create_queue(f"{tenant}-outbox")
        self.queues().create_queue("elsewhere")

    def connect(self, **options):
        return psycopg.connect(self.doors.libpq(), **options)

    def tables(self):
        return TableServiceClient(self.doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)

    def queues(self):
        return QueueServiceClient(self.doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)

    def messages(self, tenant):
        return [message.content for message in self.queues().get_queue_client(f"{tenant}-outbox").peek_messages(32)]

    def total(self, tenant, row="t"):
        try:
            return dict(self.tables().get_table_client("Totals").get_entity(str(tenant), row))
        except ResourceNotFoundError:
            return None

    def orders(self, tenant):
        with self.connect() as connection:
            return connection.execute("SELECT count(*) FROM orders WHERE tenant = %s", (tenant,)).fetchone()[0]


@pytest.fixture(scope="module")
def world(own_doors):
    return World(own_doors)


def order(connection, tenant, number, text):
    """An order, its total and its message."""
    connection.execute("INSERT INTO orders VALUES (%s, %s, 'thing')", (tenant, number))
    etag = connection.execute("SELECT polyshard.entity_upsert('Totals', %s, 't', %s)",
                              (str(tenant), json.dumps({"orders": number}))).fetchone()[0]
    assert etag.startswith("W/")
    sent = connection.execute("SELECT polyshard.enqueue(%s, %s, 0, -1)", (f"{tenant}-outbox", text)).fetchone()[0]
    assert len(sent) == 36


def test_all_of_it_is_seen_after_the_commit_and_nothing_before(world):
    with world.connect() as connection:
        order(connection, 1, 1, "first")
        assert (world.messages(1), world.total(1)) == ([], None)
        assert json.loads(connection.execute("SELECT polyshard.entity_get('Totals', '1', 't')").fetchone()[0]) == {
            "orders": 1}
        connection.commit()
        assert world.messages(1) == ["first"] and world.total(1)["orders"] == 1 and world.orders(1) == 1
        order(connection, 1, 2, "never")
        connection.rollback()
        assert world.messages(1) == ["first"] and world.total(1)["orders"] == 1 and world.orders(1) == 1
        # What fails takes all of it along.
        order(connection, 1, 2, "never")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO orders VALUES (1, 1, 'again')")
        connection.rollback()
        order(connection, 1, 2, "never")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("SELECT polyshard.entity_insert('Totals', '1', 't', '{}')")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT polyshard.enqueue('1-outbox', 'x')")
        connection.rollback()
        assert world.messages(1) == ["first"] and world.orders(1) == 1


def test_a_savepoint_takes_back_what_came_after_it(world):
    with world.connect() as connection:
        order(connection, 2, 1, "kept")
        connection.execute("SAVEPOINT here")
        order(connection, 2, 2, "undone")
        connection.execute("SELECT polyshard.entity_delete('Totals', '2', 't')")
        connection.execute("ROLLBACK TO SAVEPOINT here")
        connection.execute("SELECT polyshard.enqueue(queue => '2-outbox', message => 'after', ttl_seconds => 60)")
        # A refusal of the store's is undone by a savepoint as well.
        connection.execute("SAVEPOINT there")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("SELECT polyshard.entity_insert('Totals', '2', 't', '{}')")
        connection.execute("ROLLBACK TO SAVEPOINT there")
        connection.commit()
    assert world.messages(2) == ["kept", "after"] and world.total(2)["orders"] == 1 and world.orders(2) == 1


def test_each_statement_alone_is_a_transaction(world):
    with world.connect(autocommit=True) as connection:
        run = connection.execute
        run("SELECT polyshard.enqueue('3-outbox', 'alone')")
        run("SELECT polyshard.entity_insert('totals', '3', 't', %s)", ('{"n@odata.type": "Edm.Int64", "n": "5"}',))
        run("SELECT * FROM polyshard.entity_merge('Totals', '3', 't', '{\"m\": true}'::jsonb)")
        assert world.messages(3) == ["alone"]
        assert world.total(3)["n"].value == 5 and world.total(3)["m"] is True
        got = run("SELECT polyshard.entity_get('Totals', '3', 't')").fetchone()[0]
        assert json.loads(got) == {"n@odata.type": "Edm.Int64", "n": "5", "m": True}
        assert run("SELECT polyshard.entity_delete('Totals', '3', 't')").fetchone()[0].startswith("W/")
        assert run("SELECT polyshard.entity_delete('Totals', '3', 't')").fetchone() == (None,)
        assert run("SELECT polyshard.entity_get('Totals', '3', 't')").fetchone() == (None,)
        # Several statements in one message are one transaction.
        with pytest.raises(psycopg.errors.UniqueViolation):
            run("INSERT INTO orders VALUES (3, 1, 'x'); SELECT polyshard.enqueue('3-outbox', 'never'); "
                "INSERT INTO orders VALUES (3, 1, 'x')")
        run("INSERT INTO orders VALUES (3, 1, 'x'); SELECT polyshard.enqueue('3-outbox', 'both')")
        assert world.messages(3) == ["alone", "both"] and world.orders(3) == 1
        # Prepared, with numbers in their binary form.
        for n in range(7):
            run("SELECT polyshard.enqueue(%b, %b, %b, %b)", ("3-outbox", f"p{n}", 0, 60), prepare=True)
        assert world.messages(3)[2:] == [f"p{n}" for n in range(7)]


def test_what_cannot_be_is_refused(world):
    def refused(connection, state, sql, *arguments):
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(sql, arguments)
        assert caught.value.sqlstate == state, caught.value
        connection.rollback()
        return caught.value

    with world.connect() as connection:
        refused(connection, "42704", "SELECT polyshard.enqueue('nowhere', 'x')")
        refused(connection, "42704", "SELECT polyshard.entity_upsert('Nowhere', '1', 'r', '{}')")
        refused(connection, "42704", "SELECT polyshard.enqueue('nobody/4-outbox', 'x')")
        refused(connection, "22023", "SELECT polyshard.entity_upsert('Totals', '1', 'r', '[]')")
        refused(connection, "22023", "SELECT polyshard.entity_upsert('Totals', 'x', 'r', '{}')")
        refused(connection, "22023", "SELECT polyshard.entity_upsert('Totals', '1', 'a/b', '{}')")
        refused(connection, "22023", "SELECT polyshard.enqueue('4-outbox', 'x', 5, 1)")
        refused(connection, "22023", "SELECT polyshard.enqueue('4-outbox', 'x', 'soon')")
        refused(connection, "22023", "SELECT polyshard.enqueue('4-outbox', %s)", "x" * 65537)
        refused(connection, "22023", "SELECT polyshard.enqueue('4-outbox', NULL)")
        error = refused(connection, "42883", "SELECT polyshard.enqueue('4-outbox')")
        assert "visibility_seconds" in error.diag.message_hint
        refused(connection, "25006", "SET TRANSACTION READ ONLY; SELECT polyshard.enqueue('4-outbox', 'x')")
        # Rows of a tenant of one shard, a message of a tenant of another.
        connection.execute("INSERT INTO orders VALUES (4, 1, 'x')")
        error = refused(connection, "0A000", "SELECT polyshard.enqueue('5-outbox', 'x')")
        assert "shard" in error.diag.message_primary
        connection.execute("SELECT polyshard.enqueue('4-outbox', 'x')")
        refused(connection, "0A000", "INSERT INTO orders VALUES (5, 1, 'x')")
    assert world.messages(4) == [] and world.messages(5) == [] and world.orders(4) == 0
    # A queue that no map of the user's places may be anywhere; the transaction goes where it is.
    with world.connect() as connection:
        connection.execute("SELECT polyshard.enqueue('elsewhere', 'x')")


def test_a_message_is_deleted_together_with_what_was_done_for_it(world):
    """The other end of an outbox: the message is got by the SDK, and ends with the transaction, or comes back."""
    queue = world.queues().get_queue_client("4-outbox")
    delete = "SELECT polyshard.message_delete(%s, %s, %s)"

    def refused(connection, state, *arguments):
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(delete, arguments)
        assert caught.value.sqlstate == state, caught.value
        connection.rollback()

    queue.clear_messages()
    sent = queue.send_message("work")
    message = queue.receive_message(visibility_timeout=600)
    with world.connect() as connection:
        connection.execute("INSERT INTO orders VALUES (4, 900, 'x')")
        assert connection.execute(delete, ("4-outbox", message.id, message.pop_receipt)).fetchone() == (message.id,)
        connection.rollback()
        assert queue.get_queue_properties().approximate_message_count == 1
        refused(connection, "55000", "4-outbox", message.id, sent.pop_receipt)
        refused(connection, "22023", "4-outbox", message.id, "not one")
        refused(connection, "22023", "4-outbox", "not one", message.pop_receipt)
        refused(connection, "42704", "nowhere", message.id, message.pop_receipt)
        connection.execute("INSERT INTO orders VALUES (4, 900, 'x')")
        connection.execute("SAVEPOINT here")
        connection.execute(delete, ("4-outbox", message.id, message.pop_receipt))
        connection.execute("ROLLBACK TO SAVEPOINT here")
        connection.execute(delete, ("4-outbox", message.id, message.pop_receipt))
        connection.commit()
        assert queue.get_queue_properties().approximate_message_count == 0 and world.orders(4) == 1
        refused(connection, "P0002", "4-outbox", message.id, message.pop_receipt)
        connection.execute("DELETE FROM orders WHERE tenant = 4")


def test_arguments_as_tools_write_them(world):
    with world.connect(autocommit=True) as connection:
        world.queues().get_queue_client("5-outbox").clear_messages()
        run = connection.execute
        # Whatever became of tables just before.
        run("CREATE TABLE passing (a int)")
        run("DROP TABLE passing")
        run("SELECT polyshard.enqueue('5-outbox', E'it''s\\na \\u00fcmlaut\\\\')")
        sent = run("SELECT polyshard.enqueue(CAST(%s AS character varying(20)), (CAST('cast' AS text))) AS sent",
                   ("5-outbox",))
        assert sent.description[0].name == "sent"
        assert run("SELECT polyshard.entity_get('Totals', '5', 'none') found").description[0].name == "found"
        run("SELECT polyshard.enqueue(('5-outbox'), ('parentheses'::text), (0)::int)")
        assert world.messages(5) == ["it's\na ümlaut\\", "cast", "parentheses"]
        for sql in ["SELECT polyshard.enqueue('5-outbox', 'a' || 'b')",
                    "SELECT polyshard.enqueue('5-outbox', 'x') FROM orders WHERE tenant = 5",
                    "SELECT polyshard.enqueue('5-outbox', 'x'), polyshard.enqueue('5-outbox', 'y')",
                    "SELECT polyshard.entity_get('Totals', '5', 't')::jsonb ->> 'n'",
                    "INSERT INTO orders VALUES (5, 1, polyshard.enqueue('5-outbox', 'x'))"]:
            with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
                run(sql)
            assert "a statement of its own" in caught.value.diag.message_hint, sql
        # Who gets a message gets it in XML, which has no such character.
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            run("SELECT polyshard.enqueue('5-outbox', %s)", ("bell \x07",))
        assert "base64" in str(caught.value)
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            run("SELECT polyshard.enqueue('5-outbox', 'x', 604801, -1)")
        assert "604800" in str(caught.value)

    async def numbers():
        connection = await asyncpg.connect(**world.doors.asyncpg())
        await connection.fetchval("SELECT polyshard.enqueue($1, $2, $3, $4)", "5-outbox", "numbers", 0, 600)
        await connection.fetchval("SELECT polyshard.enqueue($1, $2, ttl_seconds => $3::int)", "5-outbox", "named", -1)
        await connection.close()

    asyncio.run(numbers())
    assert world.messages(5)[3:] == ["numbers", "named"]
    world.queues().get_queue_client("5-outbox").clear_messages()


def test_what_shards_keep_is_not_in_the_way_of_sql(world):
    """Each shard has a part of the messages: nobody may take it for all, or change it behind the stores' backs."""
    with world.connect(autocommit=True) as connection:
        for sql in ["SELECT * FROM polyshard.queue_message", "DELETE FROM polyshard.queue_message",
                    "UPDATE polyshard.entity SET pk = 'x'", "TRUNCATE polyshard.queue_message",
                    "INSERT INTO polyshard.meta DEFAULT VALUES", "DROP TABLE polyshard.queue_message",
                    "ALTER TABLE polyshard.entity ADD COLUMN x int", "DROP TABLE IF EXISTS orders2, polyshard.entity",
                    "SELECT (SELECT count(*) FROM polyshard.entity) FROM orders WHERE tenant = 1"]:
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.execute(sql)
        with pytest.raises(psycopg.Error):
            connection.execute("DROP SCHEMA polyshard CASCADE")
        # Nor without the name of their schema.
        for sql in ["SET search_path = polyshard", "SET search_path TO public, \"polyshard\"", "SET LOCAL search_path = Polyshard",
                    "SELECT set_config('search_path', 'polyshard, public', false)",
                    "SELECT pg_catalog.set_config('search_path', 'polyshard', true)"]:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="search_path"):
                connection.execute(sql)
            for bare in ["SELECT * FROM queue_message", "DELETE FROM queue_message", "DROP TABLE queue_message"]:
                with pytest.raises(psycopg.errors.UndefinedTable):
                    connection.execute(bare)
        with pytest.raises(psycopg.Error, match="search_path"):
            world.connect(options="-c search_path=polyshard")
        for block in ["DROP TABLE polyshard.queue_message", "SET search_path = polyshard",
                      "EXECUTE 'ALTER TABLE polyshard.entity ADD COLUMN x int'"]:
            with pytest.raises(psycopg.Error):
                connection.execute(f"DO $$BEGIN {block}; END$$")
        # Nobody has a schema of his own, and a role may be called as ours is.
        connection.execute('SET search_path = "$user", public')
        assert connection.execute("SHOW search_path").fetchone() == ("public",)
        connection.execute("RESET search_path")
    with world.connect(options='-c search_path="$user",public') as connection:
        [path] = connection.execute("SHOW search_path").fetchone()
        assert path.strip('"') == "public"
    with world.connect(autocommit=True) as connection:
        connection.execute("SELECT polyshard.enqueue('5-outbox', 'still there')")
    assert world.messages(5) == ["still there"]
    world.queues().get_queue_client("5-outbox").clear_messages()


def test_in_a_pipeline(world):
    with world.connect() as connection:
        with connection.pipeline():
            connection.execute("INSERT INTO orders VALUES (7, 1, 'x')")
            sent = connection.execute("SELECT polyshard.enqueue('7-outbox', %s)", ("piped",))
            count = connection.execute("SELECT count(*) FROM orders WHERE tenant = 7")
        assert len(sent.fetchone()[0]) == 36 and count.fetchone() == (1,)
        assert world.messages(7) == []
        connection.commit()
        with pytest.raises(psycopg.errors.UndefinedObject):
            with connection.pipeline():
                connection.execute("INSERT INTO orders VALUES (7, 2, 'x')")
                connection.execute("SELECT polyshard.enqueue('nowhere', 'x')")
                connection.execute("SELECT polyshard.enqueue('7-outbox', 'x')")
        connection.rollback()
    assert world.messages(7) == ["piped"] and world.orders(7) == 1
    with world.connect(autocommit=True) as connection, connection.pipeline():
        connection.execute("INSERT INTO orders VALUES (7, 3, 'x')")
        connection.execute("SELECT polyshard.enqueue('7-outbox', 'auto')")
        connection.execute("INSERT INTO orders VALUES (7, 4, 'x')")
    assert world.messages(7) == ["piped", "auto"] and world.orders(7) == 3


def test_a_snapshot_of_before_the_first_message(world):
    """A move would not see what such a transaction writes: it is done now, or tried again."""
    with world.connect() as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for _ in range(2):
            connection.execute("SELECT count(*) FROM orders WHERE tenant = 8")
            try:
                connection.execute("SELECT polyshard.enqueue('8-outbox', 'one')")
            except psycopg.errors.SerializationFailure:
                connection.rollback()
                continue
            connection.commit()
            break
    assert world.messages(8) == ["one"]


def test_mergers_of_one_entity_lose_nothing(world):
    wrong = []

    def merge(worker):
        for number in range(10):
            while True:
                try:
                    with world.connect() as connection:
                        connection.execute("SELECT polyshard.entity_merge('Totals', '1', 'shared', %s)",
                                           (json.dumps({f"k{worker}": number}),))
                    break
                except psycopg.errors.SerializationFailure:
                    continue
                except psycopg.Error as error:
                    wrong.append(repr(error))
                    return

    workers = [threading.Thread(target=merge, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    shared = world.total(1, "shared")
    assert wrong == [] and [shared[f"k{worker}"] for worker in range(4)] == [9] * 4


def test_a_transaction_over_two_shards_is_all_or_nothing(world):
    """E3: asked for, and committed in two phases. Tenants 9 and 10 are on different shards."""

    def seen(tenant):
        total = world.total(tenant)
        return world.messages(tenant), total and total["orders"], world.orders(tenant)

    with world.connect() as connection:
        connection.execute("SET polyshard.multi_shard = 'two_phase'")
        connection.commit()
        if world.doors.engine == "sqlite":
            order(connection, 9, 1, "first")
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                connection.execute("SELECT polyshard.enqueue('10-outbox', 'x')")
            return
        order(connection, 9, 1, "first")
        order(connection, 10, 1, "first")
        assert seen(9) == seen(10) == ([], None, 0)
        connection.commit()
        assert seen(9) == seen(10) == (["first"], 1, 1)
        order(connection, 9, 2, "never")
        order(connection, 10, 2, "never")
        connection.rollback()
        assert seen(9) == seen(10) == (["first"], 1, 1)
        # What fails on one shard takes along what was done on the other; a savepoint takes back both.
        order(connection, 9, 2, "never")
        order(connection, 10, 2, "never")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("SELECT polyshard.entity_insert('Totals', '9', 't', '{}')")
        connection.rollback()
        order(connection, 9, 2, "second")
        connection.execute("SAVEPOINT here")
        order(connection, 9, 3, "never")
        order(connection, 10, 3, "never")
        connection.execute("ROLLBACK TO SAVEPOINT here")
        connection.execute("SELECT polyshard.enqueue('10-outbox', 'second')")
        connection.commit()
        assert seen(9) == (["first", "second"], 2, 2) and seen(10) == (["first", "second"], 1, 1)
        # Messages alone, on both.
        connection.execute("SELECT polyshard.enqueue('9-outbox', 'third')")
        connection.execute("SELECT polyshard.enqueue('10-outbox', 'third')")
        connection.commit()
        assert world.messages(9) == world.messages(10) == ["first", "second", "third"]


@pytest.mark.skipif(not os.environ.get("POLYSHARD_LONG"), reason="what is left undecided is waited for")
def test_two_shards_agree_after_kills(world):
    """E3: the server is killed again and again while transactions over two shards commit."""
    if world.doors.engine == "sqlite":
        return
    doors, stop, acknowledged, wrong = world.doors, threading.Event(), [], []

    def work(worker):
        number = worker * 1_000_000
        while not stop.is_set():
            number += 1
            try:
                with world.connect(connect_timeout=5) as connection:
                    connection.execute("SET polyshard.multi_shard = 'two_phase'")
                    for tenant in (9, 10):
                        connection.execute("INSERT INTO orders VALUES (%s, %s, 'x')", (tenant, number))
                        connection.execute("SELECT polyshard.enqueue(%s, %s, 600)", (f"{tenant}-outbox", str(number)))
                        connection.execute("SELECT polyshard.entity_upsert('Totals', %s, %s, '{}')",
                                           (str(tenant), f"o{number}"))
                acknowledged.append(number)
            except psycopg.OperationalError:
                time.sleep(0.05)  # killed
            except psycopg.Error as error:
                wrong.append(repr(error))
                return

    workers = [threading.Thread(target=work, args=(worker,)) for worker in (1, 2, 3)]
    for worker in workers:
        worker.start()
    for kill in range(1, 6):
        end = time.monotonic() + 120
        while len(acknowledged) < kill * 20:
            assert time.monotonic() < end and wrong == [], wrong
            time.sleep(0.01)
        doors.kill()
    stop.set()
    for worker in workers:
        worker.join()
    assert wrong == []

    def found(tenant):
        with world.connect() as connection:
            rows = connection.execute("SELECT id FROM orders WHERE tenant = %s AND id > 1000000", (tenant,))
            rows = {row[0] for row in rows.fetchall()}
        entities = world.tables().get_table_client("Totals").query_entities(f"PartitionKey eq '{tenant}'")
        return rows, {int(entity["RowKey"][1:]) for entity in entities if entity["RowKey"] != "t"}

    # What nobody decided is rolled back after half a minute; only a hang takes longer than this.
    end = time.monotonic() + 180
    while True:
        (rows, entities), (rows_there, entities_there) = found(9), found(10)
        if rows == entities == rows_there == entities_there and set(acknowledged) <= rows:
            break
        assert time.monotonic() < end, (rows ^ rows_there, rows ^ entities, set(acknowledged) - rows)
        time.sleep(1)
    for tenant in (9, 10):
        left = world.queues().get_queue_client(f"{tenant}-outbox").get_queue_properties().approximate_message_count
        assert left == 3 + len(rows)


def test_together_through_moves_and_a_kill(world):
    """Workers order while the tenant moves to and fro and the server is killed: never one without the other."""
    doors, tenant, stop = world.doors, 6, threading.Event()
    acknowledged, wrong = [], []

    def work(worker):
        number = worker * 1_000_000
        while not stop.is_set():
            number += 1
            try:
                with world.connect(connect_timeout=5) as connection:
                    connection.execute("INSERT INTO orders VALUES (%s, %s, 'x')", (tenant, number))
                    connection.execute("SELECT polyshard.enqueue(%s, %s)", (f"{tenant}-outbox", str(number)))
                    connection.execute("SELECT polyshard.entity_upsert('Totals', %s, %s, '{}')",
                                       (str(tenant), f"o{number}"))
                acknowledged.append(number)
            except psycopg.errors.SerializationFailure:
                continue  # the range was being moved; the next one is another try
            except psycopg.OperationalError:
                time.sleep(0.05)  # killed
            except psycopg.Error as error:
                wrong.append(repr(error))
                return

    workers = [threading.Thread(target=work, args=(worker,)) for worker in (1, 2, 3)]
    for worker in workers:
        worker.start()
    for killed in [False, True, False] if os.environ.get("POLYSHARD_LONG") else [True]:
        here = doors.cli("map", "locate", "tenants", str(tenant))["shard"]
        there = next(shard for shard in world.shards if shard != here)
        part = doors.cli("move", "tenants", "--key", str(tenant), "--to", there)["parts"][0]
        if killed:
            doors.kill()
        ended(doors, part["operation"])
        time.sleep(0.2)
    stop.set()
    for worker in workers:
        worker.join()
    assert wrong == [] and len(acknowledged) > 5
    with world.connect() as connection:
        rows = connection.execute("SELECT id FROM orders WHERE tenant = %s", (tenant,)).fetchall()
    rows = {row[0] for row in rows}
    queue = world.queues().get_queue_client(f"{tenant}-outbox")
    messages = []
    while page := list(queue.receive_messages(messages_per_page=32, visibility_timeout=600, max_messages=32)):
        messages += [int(message.content) for message in page]
    entities = world.tables().get_table_client("Totals").query_entities(f"PartitionKey eq '{tenant}'")
    entities = {int(entity["RowKey"][1:]) for entity in entities}
    assert len(messages) == len(set(messages))
    assert rows == set(messages) == entities
    assert set(acknowledged) <= rows
    assert doors.cli("check", "tenants")[0]["misplaced"] == []


@pytest.mark.skipif(not os.environ.get("POLYSHARD_LONG"), reason="it takes long")
def test_each_message_is_done_once_through_moves_and_kills(world):
    """Consumers note what they did and delete the message in one transaction: each one is done, and once."""
    doors, stop, wrong, messages = world.doors, threading.Event(), [], 200
    queue = world.queues().get_queue_client("1-outbox")
    queue.clear_messages()
    with world.connect() as connection:
        connection.execute("CREATE TABLE done (tenant bigint, id bigint, worker int, PRIMARY KEY (tenant, id, worker))")
        connection.commit()
        connection.execute("SELECT polyshard.shard_table('done', 'tenants', 'tenant')")
    for number in range(messages):
        queue.send_message(str(number), time_to_live=-1)

    def work(worker):
        while not stop.is_set():
            try:
                # Shorter than a kill takes, so that others get it meanwhile.
                message = world.queues().get_queue_client("1-outbox").receive_message(visibility_timeout=2)
                if message is None:
                    time.sleep(0.1)
                    continue
                with world.connect(connect_timeout=5) as connection:
                    connection.execute("INSERT INTO done VALUES (1, %s, %s)", (int(message.content), worker))
                    connection.execute("SELECT polyshard.message_delete('1-outbox', %s, %s)",
                                       (message.id, message.pop_receipt))
            except (AzureError, psycopg.OperationalError):
                time.sleep(0.05)  # killed, or moving
            except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.NoDataFound):
                pass  # somebody else has it by now
            except psycopg.Error as error:
                wrong.append(repr(error))
                return

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for killed in [False, True, False, True]:
        here = doors.cli("map", "locate", "tenants", "1")["shard"]
        there = next(shard for shard in world.shards if shard != here)
        part = doors.cli("move", "tenants", "--key", "1", "--to", there)["parts"][0]
        if killed:
            doors.kill()
        ended(doors, part["operation"])
    end = time.monotonic() + 180
    while world.queues().get_queue_client("1-outbox").get_queue_properties().approximate_message_count > 0:
        assert time.monotonic() < end and wrong == [], wrong
        time.sleep(0.2)
    stop.set()
    for worker in workers:
        worker.join()
    assert wrong == []
    with world.connect() as connection:
        done = [row[0] for row in connection.execute("SELECT id FROM done WHERE tenant = 1").fetchall()]
    assert sorted(done) == list(range(messages))
