"""A queue moves to another shard while its consumers have messages in their hands (D1-D4, H1)."""

import threading

from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY
from test_move import ended

MESSAGES = 150
HELD = 20
CONSUMERS = 6


def move(doors, tenant):
    here = doors.cli("map", "locate", "herds", str(tenant))["shard"]
    there = next(shard["id"] for shard in doors.cli("shard", "list")["shards"] if shard["id"] != here)
    ended(doors, doors.cli("move", "herds", "--key", str(tenant), "--to", there)["parts"][0]["operation"])
    assert doors.cli("map", "locate", "herds", str(tenant))["shard"] == there


def test_what_consumers_hold_is_theirs_after_a_move(own_doors):
    doors = own_doors
    service = QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)
    first = doors.cli("shard", "list")["shards"][0]["id"]
    doors.cli("map", "create", "herds", "--kind", "list", "--key", "bigint")
    doors.cli("map", "add", "herds", "--key", "1", "--to", first)
    doors.cli("bind", "queue:*-herd", "--map", "herds", "--rule", "before:-")
    queue = service.create_queue("1-herd", metadata={"Kept": "yes"})
    for number in range(MESSAGES):
        queue.send_message(str(number))
    queue.send_message("hidden", visibility_timeout=3600, time_to_live=-1)
    held = []
    while len(held) < HELD:
        held += queue.receive_messages(messages_per_page=10, max_messages=10, visibility_timeout=3600)
    assert [message.content for message in held] == [str(number) for number in range(HELD)]

    move(doors, 1)
    properties = queue.get_queue_properties()
    assert properties.approximate_message_count == MESSAGES + 1 and properties.metadata == {"Kept": "yes"}
    # Nobody else gets them, those who have them can go on, and the others come in the same order.
    updated = queue.update_message(held[0], visibility_timeout=3600, content="changed")
    queue.delete_message(updated)
    queue.delete_message(held[1])
    again = queue.update_message(held[2], visibility_timeout=0)
    peeked = [message.content for message in queue.peek_messages(max_messages=32)]
    assert peeked[:31] == [str(number) for number in range(HELD, HELD + 31)]

    # Consumers go on during the next moves: each message is had by one of them, once.
    taken, wrong, lock = [], [], threading.Lock()

    def consume():
        try:
            while (message := queue.receive_message(visibility_timeout=3600)) is not None:
                queue.delete_message(message)
                with lock:
                    taken.append((message.content, message.dequeue_count))
        except Exception as error:  # noqa: BLE001: whatever a consumer meets is told
            wrong.append(repr(error))

    consumers = [threading.Thread(target=consume) for _ in range(CONSUMERS)]
    for consumer in consumers:
        consumer.start()
    move(doors, 1)
    move(doors, 1)
    for consumer in consumers:
        consumer.join()
    assert wrong == []
    # The one that was given back is had a second time.
    expected = [(str(number), 1) for number in range(HELD, MESSAGES)] + [(again.content, 2)]
    assert sorted(taken) == sorted(expected)
    for message in held[3:]:
        queue.delete_message(message)
    assert queue.get_queue_properties().approximate_message_count == 1
    service.close()
