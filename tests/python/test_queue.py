"""Queues with the unmodified Python SDK: every operation, its limits and its errors."""

import datetime
import threading
import time
import urllib.error
import urllib.request
import uuid

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import (
    AccessPolicy,
    BinaryBase64DecodePolicy,
    BinaryBase64EncodePolicy,
    CorsRule,
    Metrics,
    QueueAnalyticsLogging,
    QueueClient,
    QueueSasPermissions,
    QueueServiceClient,
    RetentionPolicy,
    generate_account_sas,
    generate_queue_sas,
)

from conftest import ACCOUNT, KEY


@pytest.fixture
def url(doors):
    """The account's address."""
    return doors.queue


@pytest.fixture
def service(url):
    with QueueServiceClient(url, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0) as client:
        yield client


@pytest.fixture
def queue(service):
    client = service.create_queue("q" + uuid.uuid4().hex)
    yield client
    client.delete_queue()


def refused(code, call, *args, **kwargs):
    with pytest.raises(HttpResponseError) as caught:
        result = call(*args, **kwargs)
        if hasattr(result, "__next__"):
            list(result)
    assert caught.value.error_code == code, caught.value
    return caught.value


def texts(messages):
    return [message.content for message in messages]


def until(condition):
    """Waits until a condition holds; only a hang reaches the end."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.05)


def test_queues_are_made_listed_and_deleted(service):
    names = sorted(f"list-{number}-{uuid.uuid4().hex}" for number in range(5))
    for name in names:
        service.create_queue(name, metadata={"MixedCase": name, "other": "a b"})
    listed = list(service.list_queues(name_starts_with="list-", include_metadata=True, results_per_page=2))
    assert [queue.name for queue in listed] == names
    assert listed[0].metadata["MixedCase"] == names[0]
    pages = [[queue.name for queue in page] for page in service.list_queues("list-", results_per_page=2).by_page()]
    assert [len(page) for page in pages] == [2, 2, 1]
    # The same metadata again is no error to the service (204), though the SDK makes one of it; other metadata is (409).
    for metadata, status in [({"mixedcase": names[0], "other": "a b"}, 204), (None, 409)]:
        seen = []
        with pytest.raises(ResourceExistsError) as caught:
            service.get_queue_client(names[0]).create_queue(
                metadata=metadata, raw_response_hook=lambda response: seen.append(response.http_response.status_code)
            )
        assert caught.value.error_code == "QueueAlreadyExists" and seen == [status]
    for name in names:
        service.delete_queue(name)
    assert list(service.list_queues("list-")) == []
    with pytest.raises(ResourceNotFoundError) as caught:
        service.delete_queue(names[0])
    assert caught.value.error_code == "QueueNotFound"


def test_metadata_keeps_its_case(queue):
    queue.set_queue_metadata({"MixedCase": "Value", "lower": "1"})
    properties = queue.get_queue_properties()
    assert properties.metadata == {"MixedCase": "Value", "lower": "1"}
    queue.set_queue_metadata({})
    assert queue.get_queue_properties().metadata == {}
    refused("InvalidMetadata", queue.set_queue_metadata, {"not-good": "x"})
    # Clients write such a header in different ways, so that it would come back as something else.
    refused("InvalidMetadata", queue.set_queue_metadata, {"latin": "ü"})
    refused("MetadataTooLarge", queue.set_queue_metadata, {"big": "x" * 8200})


def test_messages_are_sent_received_and_deleted(queue):
    sent = [queue.send_message(text) for text in ["first", "<&>'\" \r\n end ", "ünï €", ""]]
    assert len({message.id for message in sent}) == 4 and all(message.pop_receipt for message in sent)
    assert queue.get_queue_properties().approximate_message_count == 4
    received = list(queue.receive_messages())
    assert texts(received) == ["first", "<&>'\" \r\n end ", "ünï €", ""]
    message = received[0]
    assert message.id == sent[0].id and message.dequeue_count == 1 and message.pop_receipt != sent[0].pop_receipt
    assert message.expires_on - message.inserted_on == datetime.timedelta(days=7)
    assert 25 < (message.next_visible_on - message.inserted_on).total_seconds() < 60
    assert list(queue.receive_messages()) == []
    assert queue.get_queue_properties().approximate_message_count == 4
    for message in received:
        queue.delete_message(message)
    assert queue.get_queue_properties().approximate_message_count == 0
    refused("MessageNotFound", queue.delete_message, message)


def test_messages_come_in_batches_in_order(queue):
    for number in range(40):
        queue.send_message(str(number))
    pages = [texts(page) for page in queue.receive_messages(messages_per_page=32).by_page()]
    assert pages[0] == [str(number) for number in range(32)]
    assert pages[1] == [str(number) for number in range(32, 40)]
    refused("OutOfRangeQueryParameterValue", queue.receive_messages, messages_per_page=33)


def test_peeking_changes_nothing(queue):
    queue.send_message("a")
    queue.send_message("b")
    for _ in range(2):
        peeked = queue.peek_messages(max_messages=32)
        assert texts(peeked) == ["a", "b"]
        assert peeked[0].dequeue_count == 0 and not peeked[0].pop_receipt


def test_updates_change_text_visibility_and_receipt(queue):
    queue.send_message("old")
    message = queue.receive_message(visibility_timeout=60)
    updated = queue.update_message(message, content="new", visibility_timeout=0)
    assert updated.pop_receipt != message.pop_receipt
    refused("PopReceiptMismatch", queue.update_message, message, visibility_timeout=0)
    refused("PopReceiptMismatch", queue.delete_message, message)
    again = queue.receive_message(visibility_timeout=60)
    assert again.content == "new" and again.dequeue_count == 2
    # Without a text the old one stays.
    updated = queue.update_message(again.id, again.pop_receipt, visibility_timeout=0)
    assert queue.peek_messages()[0].content == "new"
    queue.delete_message(updated)
    refused("MessageNotFound", queue.update_message, again, visibility_timeout=1)


def test_a_message_comes_back_after_its_visibility_timeout(queue):
    queue.send_message("hidden", visibility_timeout=600)
    assert queue.receive_message() is None and queue.peek_messages() == []
    queue.send_message("later", visibility_timeout=1)
    until(lambda: queue.peek_messages())
    first = queue.receive_message(visibility_timeout=600)
    assert first.content == "later" and queue.receive_message() is None
    held = queue.update_message(first, visibility_timeout=1)
    until(lambda: queue.peek_messages())
    second = queue.receive_message()
    assert second.id == first.id and second.dequeue_count == 2
    refused("PopReceiptMismatch", queue.delete_message, held.id, held.pop_receipt)


def test_messages_live_as_long_as_they_are_told(queue):
    queue.send_message("short", time_to_live=1)
    queue.send_message("for ever", time_to_live=-1)
    until(lambda: texts(queue.peek_messages(max_messages=2)) == ["for ever"])
    assert queue.receive_message().expires_on.year == 9999
    refused("OutOfRangeQueryParameterValue", queue.send_message, "x", time_to_live=0)
    refused("OutOfRangeQueryParameterValue", queue.send_message, "x", visibility_timeout=604801)
    refused("OutOfRangeQueryParameterValue", queue.send_message, "x", visibility_timeout=5, time_to_live=5)


def test_clearing_empties_a_queue(queue):
    for number in range(10):
        queue.send_message(str(number))
    queue.receive_message()
    queue.clear_messages()
    assert queue.get_queue_properties().approximate_message_count == 0
    queue.send_message("after")
    assert queue.receive_message().content == "after"


def test_large_and_binary_messages(queue):
    queue.send_message("x" * 65536)
    assert queue.receive_message().content == "x" * 65536
    error = refused("RequestBodyTooLarge", queue.send_message, "x" * 65537)
    assert error.status_code == 413
    assert "The request body is too large and exceeds the maximum permissible limit." in error.message
    queue.send_message("for ever", time_to_live=2**53 - 1)
    assert queue.receive_message().expires_on.year == 9999
    binary = QueueClient(
        queue.url.rsplit("/", 1)[0],
        queue.queue_name,
        {"account_name": ACCOUNT, "account_key": KEY},
        message_encode_policy=BinaryBase64EncodePolicy(),
        message_decode_policy=BinaryBase64DecodePolicy(),
    )
    content = bytes(range(256)) * 100
    binary.send_message(content)
    assert binary.receive_message().content == content


def test_names_and_missing_queues_are_refused(service):
    for name, code in [("ab", "OutOfRangeInput"), ("UPPER", "InvalidResourceName"), ("a--b", "InvalidResourceName")]:
        refused(code, service.create_queue, name)
    missing = service.get_queue_client("missing")
    for call in [missing.get_queue_properties, missing.receive_message, missing.clear_messages, missing.peek_messages]:
        refused("QueueNotFound", call)
    refused("QueueNotFound", missing.send_message, "x")
    refused("QueueNotFound", missing.set_queue_metadata, {"a": "b"})


def test_credentials_are_checked(url, queue):
    other_key = QueueClient(url, queue.queue_name, {"account_name": ACCOUNT, "account_key": "c2VjcmV0"}, retry_total=0)
    refused("AuthenticationFailed", other_key.send_message, "x")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/{queue.queue_name}/messages")
    assert caught.value.headers["x-ms-error-code"] == "NoAuthenticationInformation"


def test_signatures_allow_what_they_say(url, queue):
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    past = soon - datetime.timedelta(hours=2)

    def client(token):
        return QueueClient(url, queue.queue_name, token, retry_total=0)

    add = generate_queue_sas(ACCOUNT, queue.queue_name, KEY, QueueSasPermissions(add=True), soon)
    client(add).send_message("by signature")
    refused("AuthorizationPermissionMismatch", client(add).receive_message)
    process = generate_queue_sas(ACCOUNT, queue.queue_name, KEY, QueueSasPermissions(process=True), soon)
    client(process).delete_message(client(process).receive_message())
    expired = generate_queue_sas(ACCOUNT, queue.queue_name, KEY, QueueSasPermissions(add=True), past)
    refused("AuthenticationFailed", client(expired).send_message, "x")
    account = generate_account_sas(ACCOUNT, KEY, "o", "raup", soon, services="q")
    client(account).send_message("x")
    refused("AuthorizationResourceTypeMismatch", client(account).get_queue_properties)


def test_stored_policies_limit_signatures(url, queue):
    soon = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(hours=1)
    policy = AccessPolicy(permission=QueueSasPermissions(read=True, add=True), expiry=soon)
    queue.set_queue_access_policy({"senders": policy})
    stored = queue.get_queue_access_policy()
    assert list(stored) == ["senders"] and stored["senders"].permission == "ra"
    token = generate_queue_sas(ACCOUNT, queue.queue_name, KEY, policy_id="senders")
    sender = QueueClient(url, queue.queue_name, token, retry_total=0)
    sender.send_message("by policy")
    refused("AuthorizationPermissionMismatch", sender.receive_message)
    queue.set_queue_access_policy({})
    assert queue.get_queue_access_policy() == {}
    refused("AuthenticationFailed", sender.send_message, "x")


def test_service_properties(service):
    week = RetentionPolicy(enabled=True, days=7)
    service.set_service_properties(
        analytics_logging=QueueAnalyticsLogging(read=True, retention_policy=week),
        hour_metrics=Metrics(enabled=True, include_apis=True, retention_policy=week),
        cors=[CorsRule(["https://a.example"], ["GET", "PUT"], max_age_in_seconds=9)],
    )
    service.set_service_properties(minute_metrics=Metrics(enabled=True, include_apis=False))
    properties = service.get_service_properties()
    assert properties["analytics_logging"].read and properties["analytics_logging"].retention_policy.days == 7
    assert properties["hour_metrics"].include_apis and properties["minute_metrics"].enabled
    assert properties["cors"][0].max_age_in_seconds == 9


def test_other_origins_are_let_in_by_rules(url, service, queue):
    origin = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}

    def preflight():
        ask = urllib.request.Request(f"{url}/{queue.queue_name}", method="OPTIONS", headers=origin)
        return urllib.request.urlopen(ask)

    service.set_service_properties(cors=[])
    with pytest.raises(urllib.error.HTTPError) as caught:
        preflight()
    assert caught.value.code == 403 and caught.value.headers["x-ms-error-code"] == "CorsPreflightFailure"
    service.set_service_properties(
        cors=[CorsRule(["https://a.example"], ["GET"], exposed_headers=["x-ms-*"], max_age_in_seconds=9)]
    )
    with preflight() as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "https://a.example"
        assert answer.headers["Access-Control-Max-Age"] == "9"
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    token = generate_queue_sas(ACCOUNT, queue.queue_name, KEY, QueueSasPermissions(read=True), soon)
    peek = f"{url}/{queue.queue_name}/messages?peekonly=true&{token}"
    with urllib.request.urlopen(urllib.request.Request(peek, headers=origin)) as answer:
        exposed = answer.headers["Access-Control-Expose-Headers"].split(",")
        assert "x-ms-request-id" in exposed and "x-ms-*" not in exposed
    # A page is shown what went wrong, too.
    gone = peek.replace(f"/{queue.queue_name}/messages", f"/{queue.queue_name}/messages/nothing")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(gone, headers=origin))
    assert caught.value.headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert "x-ms-error-code" in caught.value.headers["Access-Control-Expose-Headers"]
    with urllib.request.urlopen(peek) as answer:
        assert answer.headers["Access-Control-Allow-Origin"] is None


def test_statistics_are_at_the_secondary_endpoint(url):
    # The SDK puts the account's path behind that of the secondary endpoint, and signs all of it.
    host = url.split("://")[1]
    credential = {"account_name": ACCOUNT, "account_key": KEY}
    with QueueServiceClient(url, credential, secondary_hostname=f"{host}-secondary", retry_total=0) as service:
        assert service.get_service_stats()["geo_replication"]["status"] == "live"
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    token = generate_account_sas(ACCOUNT, KEY, "s", "r", soon, services="q")
    with urllib.request.urlopen(f"{url}-secondary/?restype=service&comp=stats&{token}") as answer:
        assert b"<Status>live</Status>" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/?restype=service&comp=stats&{token}")
    assert caught.value.headers["x-ms-error-code"] == "InvalidQueryParameterValue"


def test_many_consumers_share_a_queue(queue):
    for number in range(60):
        queue.send_message(str(number))
    taken, lock = [], threading.Lock()

    def consume():
        while (message := queue.receive_message()) is not None:
            queue.delete_message(message)
            with lock:
                taken.append(message.content)

    consumers = [threading.Thread(target=consume) for _ in range(8)]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.join()
    assert sorted(taken, key=int) == [str(number) for number in range(60)]
