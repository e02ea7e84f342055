"""Tables with the unmodified Python SDK: every operation, every type, queries, transactions, limits and errors."""

import math
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.data.tables import (
    AccountSasPermissions,
    EdmType,
    EntityProperty,
    ResourceTypes,
    TableAccessPolicy,
    TableAnalyticsLogging,
    TableCorsRule,
    TableMetrics,
    TableRetentionPolicy,
    TableSasPermissions,
    TableServiceClient,
    TableTransactionError,
    UpdateMode,
    generate_account_sas,
    generate_table_sas,
)

from conftest import ACCOUNT, KEY


@pytest.fixture
def url(doors):
    """The account's address."""
    return doors.table


@pytest.fixture
def service(url):
    with TableServiceClient(url, credential=AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0) as client:
        yield client


@pytest.fixture
def table(service):
    client = service.create_table("T" + uuid.uuid4().hex)
    yield client
    client.delete_table()


def code_of(error):
    """The service's code; this SDK does not take it out of the answer everywhere."""
    return getattr(error, "error_code", None) or error.response.headers["x-ms-error-code"]


def refused(code, call, *args, **kwargs):
    with pytest.raises(HttpResponseError) as caught:
        result = call(*args, **kwargs)
        if hasattr(result, "__next__"):
            list(result)
    assert code_of(caught.value) == code, caught.value
    return caught.value


def entity(partition, row, **properties):
    return {"PartitionKey": partition, "RowKey": row, **properties}


def keys(entities):
    return [(found["PartitionKey"], found["RowKey"]) for found in entities]


def test_tables(service):
    prefix = "List" + uuid.uuid4().hex
    names = [prefix + letter for letter in "abcd"]
    for name in names:
        service.create_table(name)
    with pytest.raises(ResourceExistsError):
        service.create_table(names[0].upper())
    assert service.create_table_if_not_exists(names[0]).table_name == names[0]
    listed = [table.name for table in service.list_tables() if table.name.startswith(prefix)]
    assert listed == names
    pages = service.list_tables(results_per_page=1).by_page()
    assert [table.name for page in pages for table in page if table.name.startswith(prefix)] == names
    found = service.query_tables("TableName eq @name", parameters={"name": names[2]})
    assert [table.name for table in found] == [names[2]]
    for name in names:
        service.delete_table(name)
    # Deleting what is gone is no error to this SDK.
    service.delete_table(names[0])
    assert not [table for table in service.list_tables() if table.name.startswith(prefix)]


def test_table_names(service):
    for name in ["a", "1abc", "a-b", "x" * 64]:
        with pytest.raises(ValueError):
            service.create_table(name)


def test_a_table_made_again_is_empty(service):
    name = "Again" + uuid.uuid4().hex
    table = service.create_table(name)
    table.create_entity(entity("p", "r"))
    service.delete_table(name)
    with pytest.raises(ResourceNotFoundError):
        table.get_entity("p", "r")
    table = service.create_table(name)
    assert list(table.list_entities()) == []
    service.delete_table(name)


def test_every_type(table):
    sent = entity(
        "o'clock/".replace("/", "-"),
        "ü 日本 %20+&\"",
        text="a\u0000é😀\r\n",
        empty="",
        small=-(2**31),
        large=EntityProperty(2**63 - 1, EdmType.INT64),
        one=1.0,
        third=1 / 3,
        tiny=5e-324,
        infinite=math.inf,
        negative=-math.inf,
        yes=True,
        when=datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=timezone.utc),
        guid=uuid.uuid4(),
        raw=bytes(range(256)),
        nothing=None,
    )
    created = table.create_entity({**sent, "nan": math.nan})
    got = table.get_entity(sent["PartitionKey"], sent["RowKey"])
    assert math.isnan(got.pop("nan"))
    assert got.metadata["etag"] == created["etag"]
    assert got.metadata["timestamp"].tzinfo is not None
    sent.pop("nothing")
    assert dict(got) == sent
    assert isinstance(got["one"], float) and isinstance(got["small"], int)
    assert got["large"].edm_type == EdmType.INT64
    [listed] = [found for found in table.query_entities("one eq 1.0")]
    listed.pop("nan")
    assert dict(listed) == sent


def test_seven_digits_of_a_second(table):
    table.create_entity(entity("p", "r", when=EntityProperty("2026-01-02T03:04:05.1234567Z", EdmType.DATETIME)))
    got = table.get_entity("p", "r")["when"]
    assert got.tables_service_value == "2026-01-02T03:04:05.1234567Z"
    table.update_entity(entity("p", "r", when=got), mode=UpdateMode.REPLACE)
    assert table.get_entity("p", "r")["when"].tables_service_value == "2026-01-02T03:04:05.1234567Z"


def test_changes_and_etags(table):
    created = table.create_entity(entity("p", "r", a=1, b=2))
    with pytest.raises(ResourceExistsError) as caught:
        table.create_entity(entity("p", "r"))
    assert code_of(caught.value) == "EntityAlreadyExists"
    updated = table.update_entity(entity("p", "r", a=3), mode=UpdateMode.MERGE)
    assert updated["etag"] != created["etag"]
    assert dict(table.get_entity("p", "r")) == entity("p", "r", a=3, b=2)
    for change in [
        lambda **kw: table.update_entity(entity("p", "r", a=9), mode=UpdateMode.MERGE, **kw),
        lambda **kw: table.update_entity(entity("p", "r", a=9), mode=UpdateMode.REPLACE, **kw),
        lambda **kw: table.delete_entity("p", "r", **kw),
    ]:
        with pytest.raises(ResourceModifiedError) as caught:
            change(etag=created["etag"], match_condition=MatchConditions.IfNotModified)
        assert caught.value.error_code == "UpdateConditionNotSatisfied"
    only_if = {"etag": updated["etag"], "match_condition": MatchConditions.IfNotModified}
    table.update_entity(entity("p", "r", c=4), mode=UpdateMode.REPLACE, **only_if)
    assert dict(table.get_entity("p", "r")) == entity("p", "r", c=4)
    table.upsert_entity(entity("p", "r", d=5), mode=UpdateMode.MERGE)
    assert dict(table.get_entity("p", "r")) == entity("p", "r", c=4, d=5)
    table.upsert_entity(entity("p", "r", e=6), mode=UpdateMode.REPLACE)
    assert dict(table.get_entity("p", "r")) == entity("p", "r", e=6)
    table.upsert_entity(entity("p", "new", e=6), mode=UpdateMode.MERGE)
    for row in ["r", "new"]:
        table.delete_entity("p", row)
        with pytest.raises(ResourceNotFoundError):
            table.get_entity("p", row)
        refused("ResourceNotFound", table.update_entity, entity("p", row))
    # Deleting what is gone is no error to this SDK.
    table.delete_entity("p", "r")


def test_queries(table):
    rows = [entity(partition, f"{n:03}", n=n, f=n / 2, s=f"s{n % 3}") for partition in "abc" for n in range(40)]
    for partition in "abc":
        table.submit_transaction([("create", row) for row in rows if row["PartitionKey"] == partition])
    ask = lambda text, **kw: keys(table.query_entities(text, **kw))
    expect = lambda test: keys([row for row in rows if test(row)])
    assert keys(table.list_entities()) == keys(rows)
    assert ask("PartitionKey eq 'b'") == expect(lambda row: row["PartitionKey"] == "b")
    found = ask("PartitionKey eq 'b' and RowKey ge '010' and RowKey lt '020' and s eq 's1'")
    assert found == expect(lambda row: row["PartitionKey"] == "b" and 10 <= row["n"] < 20 and row["s"] == "s1")
    assert ask("n gt 30 and not (s eq 's0')") == expect(lambda row: row["n"] > 30 and row["s"] != "s0")
    assert ask("f le 2.5 or s eq 's2'") == expect(lambda row: row["f"] <= 2.5 or row["s"] == "s2")
    assert ask("5L gt n") == expect(lambda row: row["n"] < 5)
    assert ask("missing eq 1") == []
    assert ask("s eq @s and n lt @n", parameters={"s": "s1", "n": 20}) == expect(
        lambda row: row["s"] == "s1" and row["n"] < 20
    )
    assert ask("Timestamp gt @t", parameters={"t": datetime(2020, 1, 1, tzinfo=timezone.utc)}) == keys(rows)
    pages = [keys(page) for page in table.query_entities("s eq 's1'", results_per_page=7).by_page()]
    assert all(len(page) <= 7 for page in pages)
    assert sum(pages, []) == expect(lambda row: row["s"] == "s1")
    [one] = table.query_entities("PartitionKey eq 'a' and RowKey eq '001'", select=["n", "missing"])
    assert dict(one) == {"n": 1, "missing": None}
    assert set(table.get_entity("a", "001", select=["s"])) == {"s"}
    refused("InvalidInput", table.query_entities, "n = 1")
    refused("NotImplemented", table.query_entities, "startswith(s, 'x')")


def test_queries_of_every_literal(table):
    guid, when = uuid.uuid4(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    long = EntityProperty(2**40, EdmType.INT64)
    table.create_entity(entity("p", "r", g=guid, w=when, b=b"\x00\xff", l=long, t=True, q="it's"))
    table.create_entity(entity("p", "s"))
    for text, parameters in [
        ("g eq @x", guid),
        ("w eq @x", when),
        ("w lt @x", when + timedelta(seconds=1)),
        ("b eq @x", b"\x00\xff"),
        ("l eq @x", 2**40),
        ("t eq @x", True),
        ("q eq @x", "it's"),
    ]:
        assert keys(table.query_entities(text, parameters={"x": parameters})) == [("p", "r")], text


def test_continuation_by_token(table):
    rows = [entity(partition, f"日{n}") for partition in ["ä", "ö"] for n in range(5)]
    for row in rows:
        table.create_entity(row)
    pages = table.list_entities(results_per_page=3).by_page()
    found = keys(next(pages))
    while pages.continuation_token:
        pages = table.list_entities(results_per_page=3).by_page(continuation_token=pages.continuation_token)
        found += keys(next(pages))
    assert found == keys(rows)


def test_transactions(table):
    table.create_entity(entity("p", "update", a=1, b=1))
    table.create_entity(entity("p", "delete"))
    answers = table.submit_transaction(
        [
            ("create", entity("p", "create", a=1)),
            ("upsert", entity("p", "upsert", a=1)),
            ("update", entity("p", "update", a=2), {"mode": "merge"}),
            ("delete", entity("p", "delete")),
        ]
    )
    assert len(answers) == 4 and all("etag" in answer for answer in answers[:3])
    assert answers[0]["etag"] == table.get_entity("p", "create").metadata["etag"]
    assert dict(table.get_entity("p", "update")) == entity("p", "update", a=2, b=1)
    before = list(table.list_entities())
    for failing, code in [
        (("create", entity("p", "create")), "EntityAlreadyExists"),
        (("update", entity("p", "missing")), "ResourceNotFound"),
        (("create", entity("p", "first")), "InvalidDuplicateRow"),
    ]:
        with pytest.raises(TableTransactionError) as caught:
            table.submit_transaction([("create", entity("p", "first")), failing, ("create", entity("p", "last"))])
        assert (caught.value.error_code, caught.value.index) == (code, 1), caught.value
        assert list(table.list_entities()) == before
    etag = table.get_entity("p", "create").metadata["etag"]
    table.upsert_entity(entity("p", "create", a=5))
    stale = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
    with pytest.raises(TableTransactionError) as caught:
        table.submit_transaction([("create", entity("p", "x")), ("delete", entity("p", "create"), stale)])
    assert (caught.value.error_code, caught.value.index) == ("UpdateConditionNotSatisfied", 1)
    with pytest.raises(ResourceNotFoundError):
        table.get_entity("p", "x")


def test_limits_of_transactions(table):
    hundred = [("upsert", entity("p", f"{n:03}", n=n)) for n in range(100)]
    assert len(table.submit_transaction(hundred)) == 100
    assert len(list(table.list_entities())) == 100
    with pytest.raises(TableTransactionError) as caught:
        table.submit_transaction(hundred + [("upsert", entity("p", "100"))])
    assert caught.value.error_code == "InvalidInput"
    large = [("upsert", entity("p", f"large{n}", data="x" * 30_000)) for n in range(90)]
    assert len(table.submit_transaction(large)) == 90
    huge = [("upsert", entity("p", f"huge{n}", a="x" * 30_000, b="y" * 30_000)) for n in range(90)]
    with pytest.raises(HttpResponseError):
        table.submit_transaction(huge)
    assert len(list(table.list_entities())) == 190


def test_limits_of_entities(table):
    table.create_entity(entity("p", "many", **{f"p{n}": n for n in range(252)}))
    refused("TooManyProperties", table.create_entity, entity("p", "x", **{f"p{n}": n for n in range(253)}))
    table.create_entity(entity("p", "long", text="é" * 32768))
    refused("PropertyValueTooLarge", table.create_entity, entity("p", "x", text="é" * 32769))
    refused("PropertyValueTooLarge", table.create_entity, entity("p", "x", raw=b"x" * 65537))
    refused("EntityTooLarge", table.create_entity, entity("p", "x", **{f"p{n}": "x" * 32000 for n in range(17)}))
    refused("PropertyNameTooLong", table.create_entity, entity("p", "x", **{"n" * 256: 1}))
    refused("PropertyNameInvalid", table.create_entity, entity("p", "x", **{"a b": 1}))
    table.create_entity(entity("k" * 512, "é" * 512))
    assert table.get_entity("k" * 512, "é" * 512)["RowKey"] == "é" * 512
    refused("PropertyValueTooLarge", table.create_entity, entity("k" * 513, "r"))
    for bad in ["a/b", "a\\b", "a#b", "a?b", "a\tb", "a\u0085b"]:
        refused("OutOfRangeInput", table.create_entity, entity(bad, "r"))
    with pytest.raises(ValueError):
        table.create_entity({"PartitionKey": "p"})


def test_many_entities_in_pages(table):
    for part in range(25):
        table.submit_transaction([("upsert", entity("p", f"{part * 100 + n:05}")) for n in range(100)])
    pages = [keys(page) for page in table.list_entities().by_page()]
    assert [len(page) for page in pages] == [1000, 1000, 500]
    assert sum(pages, []) == [("p", f"{n:05}") for n in range(2500)]


def test_service_properties(service):
    retention = TableRetentionPolicy(enabled=True, days=5)
    service.set_service_properties(
        analytics_logging=TableAnalyticsLogging(read=True, write=True, delete=True, retention_policy=retention),
        hour_metrics=TableMetrics(enabled=True, include_apis=True, retention_policy=retention),
        minute_metrics=TableMetrics(enabled=False),
        cors=[TableCorsRule(["https://www.example.org"], ["GET"], max_age_in_seconds=60, allowed_headers=["x-ms-*"])],
    )
    found = service.get_service_properties()
    assert found["analytics_logging"].read and found["analytics_logging"].retention_policy.days == 5
    assert found["hour_metrics"].enabled and not found["minute_metrics"].enabled
    assert found["cors"][0].allowed_origins == ["https://www.example.org"]
    service.set_service_properties(cors=[])
    assert service.get_service_properties()["cors"] == []


def test_access_policies(table):
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert table.get_table_access_policy() == {}
    policies = {
        "empty": None,
        "read": TableAccessPolicy(permission="r", start=now, expiry=now + timedelta(days=1)),
    }
    table.set_table_access_policy(policies)
    found = table.get_table_access_policy()
    assert set(found) == {"empty", "read"}
    assert found["read"].permission == "r" and found["read"].expiry == now + timedelta(days=1)
    with pytest.raises(ValueError):
        table.set_table_access_policy({f"p{n}": None for n in range(6)})


def test_signatures(url, service, table):
    table.create_entity(entity("b", "5", n=1))
    table.create_entity(entity("d", "1", n=1))
    key = AzureNamedKeyCredential(ACCOUNT, KEY)
    soon = datetime.now(timezone.utc) + timedelta(hours=1)

    def client(**kw):
        token = generate_table_sas(key, table.table_name, expiry=soon, **kw)
        return TableServiceClient(url, credential=AzureSasCredential(token), retry_total=0).get_table_client(
            table.table_name
        )

    reader = client(permission=TableSasPermissions(read=True))
    assert keys(reader.list_entities()) == [("b", "5"), ("d", "1")]
    refused("AuthorizationPermissionMismatch", reader.create_entity, entity("b", "6"))
    with pytest.raises(HttpResponseError):
        reader.submit_transaction([("create", entity("b", "6"))])
    some = client(permission=TableSasPermissions(read=True, add=True), start_pk="b", end_pk="c")
    assert keys(some.list_entities()) == [("b", "5")]
    assert keys(some.query_entities("n eq 1")) == [("b", "5")]
    refused("AuthorizationFailure", some.get_entity, "d", "1")
    refused("AuthorizationFailure", some.create_entity, entity("a", "1"))
    some.create_entity(entity("c", "1"))
    # Rows without a partition are no range of keys, and not all keys either.
    for rows in [{"start_rk": "2"}, {"end_rk": "2"}, {"start_pk": "b", "end_rk": "2"}]:
        with pytest.raises(HttpResponseError) as caught:
            list(client(permission=TableSasPermissions(read=True), **rows).list_entities())
        assert caught.value.status_code == 403, rows
    writer = client(permission=TableSasPermissions(add=True, update=True, delete=True))
    writer.upsert_entity(entity("b", "7"))
    writer.submit_transaction([("upsert", entity("b", "8")), ("delete", entity("b", "7"))])
    other = service.create_table("Other" + uuid.uuid4().hex)
    token = generate_table_sas(key, table.table_name, expiry=soon, permission=TableSasPermissions(read=True))
    stranger = TableServiceClient(url, credential=AzureSasCredential(token), retry_total=0)
    with pytest.raises(HttpResponseError):
        list(stranger.get_table_client(other.table_name).list_entities())
    service.delete_table(other.table_name)
    table.set_table_access_policy({"adder": TableAccessPolicy(permission="a", expiry=soon)})
    token = generate_table_sas(key, table.table_name, policy_id="adder")
    adder = TableServiceClient(url, credential=AzureSasCredential(token), retry_total=0)
    adder = adder.get_table_client(table.table_name)
    adder.create_entity(entity("z", "1"))
    refused("AuthorizationPermissionMismatch", adder.get_entity, "z", "1")


def test_account_signatures_and_wrong_keys(url, service, table):
    key = AzureNamedKeyCredential(ACCOUNT, KEY)
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    token = generate_account_sas(key, ResourceTypes(object=True), AccountSasPermissions(read=True), soon)
    with TableServiceClient(url, credential=AzureSasCredential(token), retry_total=0) as client:
        assert list(client.get_table_client(table.table_name).list_entities()) == []
        refused("AuthorizationResourceTypeMismatch", client.list_tables)
    wrong = AzureNamedKeyCredential(ACCOUNT, "d3Jvbmc=")
    with TableServiceClient(url, credential=wrong, retry_total=0) as client:
        with pytest.raises(ClientAuthenticationError):
            list(client.list_tables())


def test_missing_tables(service):
    missing = service.get_table_client("missing" + uuid.uuid4().hex)
    refused("TableNotFound", missing.list_entities)
    refused("TableNotFound", missing.get_entity, "p", "r")
    refused("TableNotFound", missing.create_entity, entity("p", "r"))
    refused("TableNotFound", missing.get_table_access_policy)
    with pytest.raises(TableTransactionError) as caught:
        missing.submit_transaction([("create", entity("p", "r"))])
    assert caught.value.error_code == "TableNotFound"
