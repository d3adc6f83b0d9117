"""The last decision of a query is found whatever its leader shows at first: a batch that was decided and is missed would be doubled."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from moldau.client.partition_requests import EARLIEST, FetchedBatches
from moldau.lake.writing.decisions import Decision, DecisionLog, DecisionState
from moldau.model.errors import CorruptBatchError, WorldError
from moldau.model.identity import Offset, TopicPartition
from moldau.protocol.records.batch import RecordBatchBuilder

WHERE = TopicPartition("_spark_commits", 0)


class Listed(NamedTuple):
    offset: int


class Leader:
    """One partition: batches of a record each, the offsets that compaction took left out."""

    def __init__(self, end: int, values: Mapping[int, tuple[bytes, bytes | None]]) -> None:
        self.end, self.values = end, values
        self.knows = end
        """Up to where it knows that all is committed."""
        self.clock = 0.0
        self.knows_at = 0.0

    def list_offsets(self, times: dict[TopicPartition, int], isolation_level: int = 0) -> dict[TopicPartition, Listed]:
        return {where: Listed(0 if time == EARLIEST else self.end) for where, time in times.items()}

    def fetch(self, topic: str, partition: int, offset: int, limits: Any) -> FetchedBatches:
        known = self.end if self.clock >= self.knows_at else self.knows
        data = b"".join(self._batch(at, *self.values[at]) for at in sorted(self.values) if offset <= at < known)
        return FetchedBatches(memoryview(data), Offset(known), Offset(known), Offset(0))

    def _batch(self, offset: int, key: bytes, value: bytes | None) -> bytes:
        builder = RecordBatchBuilder(base_offset=offset)
        builder.append(0, key, value)
        return bytes(builder.build())

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    def log(self) -> DecisionLog:
        cluster: Any = self
        return DecisionLog(cluster, cluster, WHERE.topic, "flights", monotonic=lambda: self.clock, sleep=self.sleep)


def decision(batch: int) -> bytes:
    return Decision("flights", "run", batch, DecisionState.DECIDED, (), 0).to_bytes()


def last(leader: Leader) -> int | None:
    found = leader.log().last()
    return None if found is None else found.batch


def test_the_last_of_a_query_counts() -> None:
    many = {at: (b"other", decision(at)) for at in range(300)}
    assert last(Leader(300, many)) is None
    assert last(Leader(300, {**many, 3: (b"flights", decision(1)), 9: (b"flights", decision(2))})) == 2
    assert last(Leader(300, {**many, 9: (b"flights", decision(2)), 280: (b"flights", None)})) is None, "a tombstone: there is none"


def test_what_compaction_took_away_is_no_end() -> None:
    assert last(Leader(900, {7: (b"flights", decision(3))})) == 3
    assert last(Leader(900, {})) is None


def test_a_leader_that_does_not_know_yet_what_is_committed_is_waited_for() -> None:
    """It was elected a moment ago. Taken for the truth, its silence would abort what is decided."""
    leader = Leader(10, {8: (b"flights", decision(4))})
    leader.knows, leader.knows_at = 5, 2.0
    assert last(leader) == 4
    leader = Leader(10, {8: (b"flights", decision(4))})
    leader.knows, leader.knows_at = 5, 1e9
    with pytest.raises(WorldError, match=r"partition _spark_commits-0: its leader shows nothing from offset \d to 10"):
        last(leader)


def test_a_decision_that_was_changed_on_the_disk_is_not_believed() -> None:
    class Damaged(Leader):
        def _batch(self, offset: int, key: bytes, value: bytes | None) -> bytes:
            whole = bytearray(super()._batch(offset, key, value))
            whole[-2] ^= 1
            return bytes(whole)

    with pytest.raises(CorruptBatchError, match="partition _spark_commits-0: the batch at offset 3 is damaged"):
        last(Damaged(4, {3: (b"flights", decision(1))}))
