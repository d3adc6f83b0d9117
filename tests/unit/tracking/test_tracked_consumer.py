"""What could not be decoded for want of the registry was not handed out: it is in no commit, and comes again (F1, B4)."""

from collections import deque
from collections.abc import Iterator, Mapping

import pytest

from moldau.client import consumer as module
from moldau.client.message import ConsumedMessage
from moldau.model.identity import TopicPartition
from moldau.registry.client import RegisteredSchema
from moldau.registry.client_errors import RegistryUnavailableError
from moldau.registry.wire import frame
from moldau.tracking import TrackedConsumer, event_schema
from moldau.tracking.producer import text_bytes, time_bytes
from support.tracked_events import TEN_FIELDS, MemoryRegistry, page_view

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
HEADER = time_bytes(1_300_000_000_123) + text_bytes("shop") + text_bytes("web-1") + text_bytes("east") + bytes(16)


class FakeSession:
    """Partitions of one topic, all fetched at once. It cannot seek: librdkafka refuses that for a partition that was just assigned."""

    group = "g"
    commits_by_itself = True
    closed = False

    def __init__(self, *_: object) -> None:
        self.there: deque[ConsumedMessage] = deque()
        self.stored: dict[TopicPartition, int] = {}

    def fetch(self, count: int, _timeout: float) -> list[ConsumedMessage]:
        """The next ones."""
        return [self.there.popleft() for _ in range(min(count, len(self.there)))]

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As if committed."""
        self.stored.update(offsets)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Committed."""
        self.stored.update(offsets)

    def seek(self, where: TopicPartition, offset: int) -> None:
        """No."""
        raise AssertionError(f"{where} cannot seek to {offset}")

    def close(self, _timeout: float | None) -> None:
        """Nothing is open."""
        self.closed = True


class Away(MemoryRegistry):
    """One that can be away."""

    there = False

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Only if it is there."""
        if not self.there:
            raise RegistryUnavailableError("http://nowhere: connection refused")
        return super().schema(schema_id)


@pytest.fixture
def registry() -> Away:
    return Away()


@pytest.fixture
def consumer(registry: Away, monkeypatch: pytest.MonkeyPatch) -> Iterator[TrackedConsumer]:
    """Of two partitions with three events each, in turns."""
    monkeypatch.setattr(module, "Session", FakeSession)
    schema = event_schema(TEN_FIELDS)
    schema_id = registry.register("t-value", schema.text)
    with TrackedConsumer("nobody:1", registry, group_id="g") as made:
        session(made).there.extend(
            ConsumedMessage(
                frame(schema_id, HEADER + schema.encode(page_view(offset))), topic="t", partition=where.partition, offset=offset
            )
            for offset in range(3)
            for where in (P0, P1)
        )
        yield made


def session(consumer: TrackedConsumer) -> FakeSession:
    """What it reads from."""
    found = consumer.messages.reader._session
    assert isinstance(found, FakeSession)
    return found


def refused(consumer: TrackedConsumer) -> None:
    with pytest.raises(RegistryUnavailableError):
        consumer.poll(0)


def test_it_is_the_next_one_without_any_seek(consumer: TrackedConsumer, registry: Away) -> None:
    """The message is at hand: that it comes again hangs on nothing that may fail, and what failed is what is raised."""
    refused(consumer)
    refused(consumer)
    assert consumer.messages.positions() == {P0: 0}
    assert consumer.messages.statistics() == {"handed_out": 0, "buffered": 6}
    registry.there = True
    assert [str(next(consumer)) for _ in range(6)] == [f"t-{partition} at offset {offset}" for offset in range(3) for partition in range(2)]


def test_a_commit_stops_before_it(consumer: TrackedConsumer, registry: Away) -> None:
    registry.there = True
    for _ in range(3):
        next(consumer)
    registry.there = False
    consumer._general._writers._parsed.clear()
    refused(consumer)
    consumer.commit()
    assert session(consumer).stored == {P0: 2, P1: 1}
    consumer.close()
    assert session(consumer).stored == {P0: 2, P1: 1}


def test_it_goes_with_its_partition(consumer: TrackedConsumer, registry: Away) -> None:
    """Another member reads it then, and nothing is known of it here."""
    refused(consumer)
    consumer.messages.reader.revoked([P0])
    registry.there = True
    assert str(next(consumer)) == "t-1 at offset 0"
    assert session(consumer).stored == {}


def test_a_seek_goes_elsewhere(consumer: TrackedConsumer, registry: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one after it, and also if it is made before the registry's failure is raised."""
    monkeypatch.setattr(FakeSession, "seek", lambda *_: None)
    refused(consumer)
    consumer.messages.seek(P0, 1)
    registry.there = True
    assert (str(next(consumer)), consumer.messages.positions()[P0]) == ("t-1 at offset 0", 1)
    registry.there = False
    consumer._general._writers._parsed.clear()

    def seek_and_fail(_: int) -> RegisteredSchema:
        consumer.messages.seek(P1, 2)
        raise RegistryUnavailableError("http://nowhere: connection refused")

    monkeypatch.setattr(registry, "schema", seek_and_fail)
    refused(consumer)
    assert consumer.messages.positions()[P1] == 2
    assert consumer.messages.statistics()["buffered"] == 0
