"""Compaction, R 2: the log keeps the newest entry of each key, in the background, while it is written and read."""

import itertools
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest

from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.protocol.records.batch import RecordBatchBuilder
from moldau.testing.broker import Broker
from support.paper import FIRST_MS, connect, consumer_for, first_offsets, look_up, publish, read_through, segment_files, wait_until

pytestmark = pytest.mark.system
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
    "delete.retention.ms": 0,
    "segment.ms": 20_000,
}
"""By the time of the records, which is a second later with each of them: the log goes on in a new segment after twenty."""
ROUNDS, KEYS = 30, 12
PATIENCE_S = 90.0
"""The worker has the lowest priority: on a busy machine it gets little of it."""


@pytest.fixture(scope="module")
def cleaning() -> Iterator[Broker]:
    """A broker that looks for something to compact all the time, and brings what is rolled to disk at once."""
    with Broker(settings={"log.cleaner.backoff.ms": 20, "log.cleaner.threads": 2}) as running:
        yield running


def keyed(number: int, key: bytes, value: bytes | None) -> bytes:
    """One record."""
    builder = RecordBatchBuilder()
    builder.append(FIRST_MS + 1000 * number, key, value)
    return builder.build()


def everything(broker: Broker, topic: str) -> dict[int, tuple[bytes | None, bytes | None]]:
    """All that a consumer finds from the beginning on."""
    return dict(read_through(broker, topic))


def fill(broker: Broker, topic: str, rounds: int) -> None:
    """Every key again and again; at the end one of them deleted, and enough others that all of that is in closed segments."""
    records: list[tuple[bytes, bytes | None]] = []
    for number in range(rounds):
        records += [(b"key-%d" % key, b"%d of %d" % (number, key)) for key in range(KEYS)]
    records += [(b"key-0", None), *((b"other", b"%d" % number) for number in range(45))]
    with connect(broker) as connection:
        for number, record in enumerate(records):
            publish(connection, topic, keyed(number, *record))


def test_e1_entries_with_a_newer_one_of_their_key_are_purged_in_the_background(cleaning: Broker) -> None:
    """Servers periodically scan the log and purge entries for which there is a newer one with the same key. R 2.

    What stays, stays at its offset. A null value deletes a key.
    """
    topic = cleaning.create_topic("e01", config=COMPACTED)
    fill(cleaning, topic, ROUNDS)
    last = ROUNDS * KEYS

    def few_are_left() -> bool:
        return len([offset for offset in everything(cleaning, topic) if offset < last]) == KEYS - 1

    wait_until(few_are_left, "only the newest of each key is left", PATIENCE_S)
    found = everything(cleaning, topic)
    assert {offset: content for offset, content in found.items() if offset < last} == {
        (ROUNDS - 1) * KEYS + key: (b"key-%d" % key, b"%d of %d" % (ROUNDS - 1, key)) for key in range(1, KEYS)
    }
    assert (look_up(cleaning, topic, EARLIEST), look_up(cleaning, topic, LATEST)) == (0, last + 46)


def test_e1_a_consumer_from_the_beginning_rebuilds_the_newest_state(cleaning: Broker) -> None:
    """A reader of a compacted topic has, at its end, the newest value of every key, as with the whole history. R 2, N."""
    topic = cleaning.create_topic("e01-state", config=COMPACTED)
    fill(cleaning, topic, 5)
    wait_until(lambda: len(everything(cleaning, topic)) < 5 * KEYS, "something is purged", PATIENCE_S)
    consumer = consumer_for(cleaning, auto_offset_reset="earliest", enable_partition_eof=True)
    state: dict[bytes, bytes] = {}
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(20)
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                break
            if message.value() is None:
                state.pop(message.key(), None)
            else:
                state[message.key()] = message.value()
    finally:
        consumer.close()
    assert state == {b"other": b"44"} | {b"key-%d" % key: b"4 of %d" % key for key in range(1, KEYS)}


def test_e2_compacted_segments_are_swapped_in_and_the_old_ones_deleted_afterwards(cleaning: Broker) -> None:
    """Compaction writes new segments, and swaps them for the old ones, which go later. R 2."""
    topic = cleaning.create_topic("e02", config={**COMPACTED, "file.delete.delay.ms": 0})
    fill(cleaning, topic, ROUNDS)
    folder = cleaning.directory / f"{topic}-0"

    def few_segments() -> bool:
        bases = first_offsets(segment_files(cleaning.directory, topic))
        return len(bases) <= 4 and bases[0] == 0  # in the middle of a swap the first is not there

    wait_until(few_segments, "small segments become one, and the first keeps its name", PATIENCE_S)
    wait_until(lambda: not list(folder.glob("*.deleted")), "the old ones are unlinked", PATIENCE_S)
    assert not list(folder.glob("*.cleaned")) + list(folder.glob("*.swap"))


def test_e2_appends_and_fetches_go_on_meanwhile(cleaning: Broker) -> None:
    """While segments are compacted and swapped, writers append and readers read, and nobody sees a mixture. R 2.

    Three readers read everything from the beginning, again and again, while a writer overwrites the same keys. What each of them finds at
    an offset is what was written there, and of no key it misses the newest as of its start.
    """
    topic = cleaning.create_topic("e02-live", config={**COMPACTED, "file.delete.delay.ms": 0})
    stop = threading.Event()
    written: list[tuple[bytes, bytes]] = []
    acknowledged: list[int] = []
    errors: list[str] = []
    rounds = itertools.count()

    def read_all() -> None:
        while not stop.is_set():
            newest = {key: offset for offset, (key, _) in enumerate(written[: len(acknowledged)])}
            found = list(read_through(cleaning, topic))
            offsets = [offset for offset, _ in found]
            if offsets != sorted(set(offsets)):
                errors.append(f"offsets do not rise: {offsets}")
            there = dict(found)
            errors.extend(f"{content} at {offset}" for offset, content in found if offset < len(written) and content != written[offset])
            seen: dict[bytes | None, int] = {}
            for offset, (key, _) in found:
                seen[key] = max(seen.get(key, -1), offset)
            errors.extend(f"newest of {key!r} at {offset} is lost" for key, offset in newest.items() if seen.get(key, -1) < offset)
            if there:
                next(rounds)

    readers = [threading.Thread(target=read_all) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        with connect(cleaning) as connection:
            for number in range(1500):
                record = (b"key-%d" % (number % 17), b"%d" % number * 20)
                written.append(record)
                assert publish(connection, topic, keyed(number, *record)).offset == number
                acknowledged.append(number)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert errors == []
    assert next(rounds) > 5
    wait_until(lambda: len(everything(cleaning, topic)) < 100, "it was compacted meanwhile, and is now", PATIENCE_S)
