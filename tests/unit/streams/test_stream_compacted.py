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


class Topic:
    """A topic of one partition, in place of the brokers; counts the records that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
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
        keys, values = zip(*self.records[wanted.start : wanted.end], strict=True)
        self.read += len(keys)
        yield SimpleNamespace(key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()))


def test_values_that_were_deleted_with_their_records_are_in_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has read them before sees what one sees that begins; while nothing is deleted, only what is new is read."""
    topic = Topic(monkeypatch)
    store = CompactedStore(LOG.topic, "airports", "", "", "bytes")

    def values(version: Any) -> list[bytes | None]:
        ((found,), _) = version.columns([pa.array([b"EWR", b"JFK", b"LGA", None], pa.binary())])
        return list(found.to_pylist())

    topic.records += [(b"EWR", b"1"), (b"JFK", b"2"), (None, b"3")]
    version = store.load(store.newest(), None)
    assert values(version) == [b"1", b"2", None, None]
    topic.records += [(b"JFK", None), (b"LGA", b"4")]
    version = store.load(store.newest(), version)
    assert (values(version), topic.read) == ([b"1", None, b"4", None], 5)
    topic.start = 1
    topic.records.append((b"JFK", b"5"))
    note = store.newest()
    assert values(store.load(note, version)) == values(store.load(note, None)) == [None, b"5", b"4", None]
