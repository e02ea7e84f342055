"""Rights of accounts: a key of an account opens what the user of its name was granted, and no more (E7)."""

import psycopg
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient, UpdateMode
from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY


def refused(work, words):
    with pytest.raises(HttpResponseError) as caught:
        work()
    assert caught.value.status_code == 403, caught.value
    assert "AuthorizationFailure" in str(caught.value) or caught.value.error_code == "AuthorizationFailure"
    assert words in str(caught.value), caught.value


def test_an_account_may_do_what_was_granted_and_no_more(own_doors):
    doors = own_doors
    credential = AzureNamedKeyCredential(ACCOUNT, KEY)
    tables = TableServiceClient(doors.table, credential=credential, retry_total=0)
    queues = QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    doors.cli("map", "create", "rightful", "--kind", "hash", "--key", "bigint")
    doors.cli("bind", "table:rightorders", "--map", "rightful", "--rule", "before:-")
    orders, others = tables.create_table("rightorders"), tables.create_table("rightothers")
    jobs = queues.create_queue("rightjobs")
    for tenant in [42, 43]:
        orders.upsert_entity({"PartitionKey": f"{tenant}-a", "RowKey": "1"})
    others.upsert_entity({"PartitionKey": "p", "RowKey": "1"})
    jobs.send_message("one")
    try:
        # From now on the account has its rights and no others: none.
        assert doors.cli("user", "add", ACCOUNT, "--account")["account"] is True
        refused(lambda: orders.get_entity("42-a", "1"), "may not read rightorders")
        refused(lambda: jobs.peek_messages(), "may not read rightjobs")
        refused(lambda: list(tables.list_tables()), "may not read tables")

        doors.cli("user", "grant", ACCOUNT, "read", "--store", "queues")
        doors.cli("user", "grant", ACCOUNT, "write", "--store", "tables", "--map", "rightful", "--key", "42")
        assert len(jobs.peek_messages()) == 1
        refused(lambda: jobs.send_message("two"), "may not write rightjobs")
        refused(lambda: jobs.receive_message(), "may not write rightjobs")
        refused(lambda: queues.create_queue("rightmore"), "may not make or change queues")

        assert orders.get_entity("42-a", "1")["RowKey"] == "1"
        orders.upsert_entity({"PartitionKey": "42-b", "RowKey": "2"})
        assert len(list(orders.query_entities("PartitionKey eq '42-a'"))) == 1
        orders.submit_transaction([("upsert", {"PartitionKey": "42-c", "RowKey": str(n)}) for n in range(3)])
        refused(lambda: orders.get_entity("43-a", "1"), "may not read rightorders of key 43")
        refused(lambda: orders.upsert_entity({"PartitionKey": "43-a", "RowKey": "2"}), "of key 43")
        refused(lambda: list(orders.list_entities()), "of every key")
        refused(lambda: list(orders.query_entities("PartitionKey ge '42'")), "of every key")
        refused(lambda: orders.submit_transaction([("upsert", {"PartitionKey": "43-a", "RowKey": "9"})]), "of key 43")
        refused(lambda: others.get_entity("p", "1"), "may not read rightothers")
        refused(lambda: tables.create_table("rightmore"), "may not make or change tables")
        refused(lambda: tables.delete_table("rightorders"), "may not make or change tables")

        # A name instead of a key; what is taken away is gone at once.
        doors.cli("user", "revoke", ACCOUNT, "write", "--store", "tables", "--map", "rightful", "--key", "42")
        refused(lambda: orders.get_entity("42-a", "1"), "may not read rightorders")
        doors.cli("user", "grant", ACCOUNT, "write", "--store", "tables", "--table", "RightOthers")
        others.update_entity({"PartitionKey": "p", "RowKey": "1", "n": 2}, mode=UpdateMode.REPLACE)
        assert len(list(others.list_entities())) == 1
    finally:
        doors.cli("user", "remove", ACCOUNT)
    # Without a user of its name it may do everything again.
    for table in ["rightorders", "rightothers"]:
        tables.delete_table(table)
    jobs.delete_queue()


def test_functions_of_other_stores_take_the_right_on_what_they_touch(own_doors):
    doors = own_doors
    tables = TableServiceClient(doors.table, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0)
    queues = QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    doors.cli("map", "create", "clerks", "--kind", "hash", "--key", "bigint")
    doors.cli("bind", "table:clerkorders", "--map", "clerks", "--rule", "before:-")
    orders, jobs = tables.create_table("clerkorders"), queues.create_queue("clerkjobs")
    with psycopg.connect(doors.libpq(), autocommit=True) as owner:
        owner.execute("CREATE USER clerk PASSWORD 'a long password'")
        as_clerk = doors.libpq().replace("user=polyshard password=polyshard", "user=clerk password='a long password'")
        with psycopg.connect(as_clerk, autocommit=True) as clerk:

            def refused_in_sql(sql, words):
                with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
                    clerk.execute(sql)
                assert words in str(caught.value), caught.value

            upsert = "SELECT polyshard.entity_upsert('ClerkOrders', '{}-a', '1', '{{\"n\": 1}}')"
            refused_in_sql(upsert.format(42), "clerk may not write clerkorders of key 42")
            doors.cli("user", "grant", "clerk", "write", "--store", "tables", "--map", "clerks", "--key", "42")
            clerk.execute(upsert.format(42))
            assert orders.get_entity("42-a", "1")["n"] == 1
            refused_in_sql(upsert.format(43), "clerk may not write clerkorders of key 43")
            refused_in_sql("SELECT polyshard.entity_get('clerkorders', '43-a', '1')", "may not read clerkorders of key 43")
            refused_in_sql("SELECT polyshard.enqueue('clerkjobs', 'x')", "clerk may not write clerkjobs")
            refused_in_sql("SELECT polyshard.create_map('mine', 'hash', 'bigint')", "may not make or change")
            doors.cli("user", "grant", "clerk", "write", "--store", "queues", "--table", "clerkjobs")
            clerk.execute("SELECT polyshard.enqueue('clerkjobs', 'from clerk')")
            assert jobs.receive_message().content == "from clerk"
            owner.execute("DROP USER clerk")
            with pytest.raises(psycopg.errors.InvalidAuthorizationSpecification):
                clerk.execute("SELECT polyshard.entity_get('clerkorders', '42-a', '1')")
    tables.delete_table("clerkorders")
    jobs.delete_queue()
