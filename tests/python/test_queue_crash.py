"""A server that is killed while a queue is used: no acknowledged message is lost, none is had by two at a time."""

import os
import threading

from azure.core.exceptions import AzureError
from azure.storage.queue import QueueServiceClient

from conftest import ACCOUNT, KEY

ROUNDS = 3 if os.environ.get("POLYSHARD_LONG") else 2
PRODUCERS = 3
CONSUMERS = 3
# Acknowledged messages after which the server is killed, in the middle of the next ones.
PUTS_BEFORE_KILL = 150
# Longer than the test takes: what was got and not deleted stays invisible, so nobody may get it again.
INVISIBLE_S = 3600


def connect(doors):
    return QueueServiceClient(doors.queue, {"account_name": ACCOUNT, "account_key": KEY}, retry_total=0)


class Seen:
    """What the clients know: answers they have had, and requests whose answer never came."""

    def __init__(self):
        self.put, self.put_unknown = set(), set()
        self.got, self.deleted, self.delete_unknown = {}, set(), set()
        # Each of these may have made one message invisible without telling which.
        self.got_unknown = 0
        self.lock = threading.Lock()
        self.enough = threading.Event()


def produce(queue, producer, round_, seen):
    for n in range(100_000):
        text = f"r{round_}p{producer}n{n:06}"
        try:
            queue.send_message(text, time_to_live=-1)
        except AzureError:
            with seen.lock:
                seen.put_unknown.add(text)
            return
        with seen.lock:
            seen.put.add(text)
            if len(seen.put) >= PUTS_BEFORE_KILL * (round_ + 1):
                seen.enough.set()


def consume(queue, seen):
    """Gets messages until the server is gone; every third one is kept, the others are deleted."""
    n = 0
    while True:
        try:
            message = queue.receive_message(visibility_timeout=INVISIBLE_S)
        except AzureError:
            with seen.lock:
                seen.got_unknown += 1
            return
        if message is None:
            continue
        n += 1
        with seen.lock:
            seen.got.setdefault(message.content, []).append(message.dequeue_count)
        if n % 3 == 0:
            continue
        try:
            queue.delete_message(message)
        except AzureError:
            with seen.lock:
                seen.delete_unknown.add(message.content)
            return
        with seen.lock:
            seen.deleted.add(message.content)


def test_no_message_is_lost_or_had_twice(own_doors):
    seen = Seen()
    for round_ in range(ROUNDS):
        with connect(own_doors) as client:
            if round_ == 0:
                client.create_queue("crash")
        seen.enough.clear()
        services = [connect(own_doors) for _ in range(PRODUCERS + CONSUMERS)]
        queues = [service.get_queue_client("crash") for service in services]
        threads = [
            threading.Thread(target=produce, args=(queues[n], n, round_, seen)) for n in range(PRODUCERS)
        ] + [threading.Thread(target=consume, args=(queue, seen)) for queue in queues[PRODUCERS:]]
        for thread in threads:
            thread.start()
        assert seen.enough.wait(120), "the server does not keep up"
        own_doors.kill()
        for thread in threads:
            thread.join()
        for service in services:
            service.close()

    twice = {text: counts for text, counts in seen.got.items() if len(counts) > 1}
    assert not twice, f"had by two while invisible: {twice}"
    with connect(own_doors) as client:
        queue = client.get_queue_client("crash")
        left = queue.get_queue_properties().approximate_message_count
        visible = []
        while message := queue.receive_message(visibility_timeout=INVISIBLE_S):
            visible.append(message.content)
            queue.delete_message(message)
    assert len(set(visible)) == len(visible)
    assert not set(visible) & seen.got.keys(), "a message that somebody has was got again"
    # What was put and is neither deleted nor visible is in the hands of somebody: of a client that got it, or of one
    # whose answer was lost when the server was killed.
    put = seen.put | set(visible) | seen.got.keys()
    held = put - set(visible) - seen.deleted
    unheard = held - seen.got.keys()
    assert len(unheard) <= seen.got_unknown, f"lost: {unheard}"
    assert unheard <= seen.put, unheard
    invisible = left - len(visible)
    kept = seen.got.keys() - seen.deleted - seen.delete_unknown
    most = len(kept) + len(seen.delete_unknown) + seen.got_unknown
    assert len(kept) <= invisible <= most, (len(kept), invisible, most)
    # Nothing came from nowhere.
    assert put <= seen.put | seen.put_unknown
