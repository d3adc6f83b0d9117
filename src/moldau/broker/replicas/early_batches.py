"""Batches that came for a partition before this broker led it.

A client may learn of a new leader before that broker does: of a partition that was just made, or after a failover. The first batch of a
producer is refused then with a retriable error, and the next of those in flight may be the first that the log sees, a moment later. It
would be taken, since the log knows nothing of its producer, and librdkafka would count the one before it as stored as well. So what was
refused is remembered here, and the log has it when the broker leads the partition (`moldau.log.producer_entry` has the rule).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.protocol.records.header import BatchHeader

LIMIT = 1000
"""So many producers are remembered, over all partitions; then the partition that is here for the longest time is forgotten."""
KEPT_MS = 120_000
"""For so long: the default of `delivery.timeout.ms`, after which a client has given the batch up."""


class EarlyBatches:
    """By partition and producer, the first batch that was refused and when that was.

    Invariant: `_count` is the number of producers, at most LIMIT.
    """

    __slots__ = ("_count", "_refused")

    def __init__(self) -> None:
        self._refused: dict[tuple[bytes, int], dict[int, tuple[BatchHeader, int]]] = {}
        self._count = 0

    def note(self, topic: bytes, index: int, header: "BatchHeader", now_ms: int) -> None:
        """A batch was refused. `topic`: the UTF-8 bytes of its name, or its id, as its client named it."""
        if header.producer_id < 0:
            return
        producers = self._refused.setdefault((topic, index), {})
        before = producers.get(header.producer_id)
        if before is None:
            self._count += 1
        elif (before[0].producer_epoch, -before[0].base_sequence) > (header.producer_epoch, -header.base_sequence):
            header = before[0]
        producers[header.producer_id] = header, now_ms
        while self._count > LIMIT:
            self._count -= len(self._refused.pop(next(iter(self._refused))))

    def hand_over(self, partition: "HostedPartition", now_ms: int) -> None:
        """The broker leads the partition from now on: its log refuses what would overtake the batches."""
        if not self._refused:
            return
        for topic in (partition.topic, partition.topic_id):
            producers = self._refused.pop((topic, partition.index), {})
            self._count -= len(producers)
            for header, noted_ms in producers.values():
                if now_ms - noted_ms < KEPT_MS:
                    partition.log.note_refused(header, noted_ms)
