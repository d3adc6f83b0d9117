"""What a process keeps of a compacted topic between two batches. No broker is started."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from moldau.client.partition_requests import EARLIEST
from moldau.model.identity import TopicPartition
from moldau.streams import compacted
from moldau.streams.compacted import CompactedStore

LOG = TopicPartition("airports", 0)


DAY_MS = 86_400_000


class Topic:
    """A topic of one partition, in place of the brokers; counts the records that are read. It has deletions for a day."""

    cluster = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0
        monkeypatch.setattr(compacted, "now_ms", lambda: self.now_ms)
        retention = SimpleNamespace(name="delete.retention.ms", value=str(DAY_MS))
        monkeypatch.setattr(compacted, "Admin", lambda _: SimpleNamespace(describe_configs=lambda _: [retention]))
        self.records: list[tuple[bytes | None, bytes | None] | None] = []
        self.start = self.read = 0
        monkeypatch.setattr(compacted, "ClusterLog", lambda *_, **__: self)
        monkeypatch.setattr(compacted, "RangeRead", self._range)

    def __enter__(self) -> "Topic":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def topics(self, _: Any) -> Mapping[str, Any]:
        return {LOG.topic: SimpleNamespace(partitions=1, id="a1")}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {where: self.start if edge == EARLIEST else len(self.records) for where, edge in wanted.items()}

    def _range(self, _: Any, wanted: Any, *__: Any, **___: Any) -> Iterator[Any]:
        assert wanted.start >= self.start
        found = [each for each in self.records[wanted.start : wanted.end] if each is not None]
        keys, values = zip(*found, strict=True) if found else ((), ())
        self.read += len(keys)
        yield SimpleNamespace(key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()))


STORE = CompactedStore(LOG.topic, "airports", "", "", "bytes")


def values(version: Any) -> list[bytes | None]:
    ((found,), _) = version.columns([pa.array([b"EWR", b"JFK", b"LGA", None], pa.binary())])
    return list(found.to_pylist())


def test_values_that_were_deleted_with_their_records_are_in_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has read them before sees what one sees that begins; while nothing is deleted, only what is new is read."""
    topic = Topic(monkeypatch)
    topic.records += [(b"EWR", b"1"), (b"JFK", b"2"), (None, b"3")]
    version = STORE.load(STORE.newest(), None)
    assert values(version) == [b"1", b"2", None, None]
    topic.records += [(b"JFK", None), (b"LGA", b"4")]
    version = STORE.load(STORE.newest(), version)
    assert (values(version), topic.read) == ([b"1", None, b"4", None], 5)
    topic.start = 1
    topic.records.append((b"JFK", b"5"))
    note = STORE.newest()
    assert values(STORE.load(note, version)) == values(STORE.load(note, None)) == [None, b"5", b"4", None]


def test_a_deletion_that_was_compacted_away_while_nothing_was_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that is a day old may miss it, and is not brought to the newest one; a younger one is, and one of a topic that has nothing
    new, whatever its age."""
    topic = Topic(monkeypatch)
    topic.records += [(b"EWR", b"1"), (b"JFK", b"2")]
    version = STORE.load(STORE.newest(), None)
    topic.now_ms = 5 * DAY_MS
    version = STORE.load(STORE.newest(), version)
    assert topic.read == 2
    topic.now_ms += DAY_MS - 1
    topic.records += [(b"EWR", None), (b"LGA", b"3")]
    assert values(STORE.load(STORE.newest(), version)) == [None, b"2", b"3", None]
    assert topic.read == 4
    version = STORE.load(STORE.newest(), None)
    topic.records += [(b"JFK", None), (b"LGA", b"4")]
    topic.records[:6] = [None, None, None, None, None, (b"LGA", b"4")]  # compacted, twice
    topic.now_ms += DAY_MS
    note = STORE.newest()
    assert values(STORE.load(note, version)) == values(STORE.load(note, None)) == [None, None, b"4", None]


def test_notes_of_an_older_moldau_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not have the time, and the topic is read from its beginning."""
    topic = Topic(monkeypatch)
    topic.records += [(b"EWR", b"1")]
    older = {key: value for key, value in STORE.newest().items() if key in ("offsets", "starts", "id")}
    version = STORE.load(older, None)
    topic.records += [(b"JFK", b"2")]
    assert values(STORE.load(STORE.newest(), version)) == [b"1", b"2", None, None]
