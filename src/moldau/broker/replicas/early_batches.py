"""Batches that came for a partition before this broker led it.

A client may learn of a new leader before that broker does: of a partition that was just made, or after a failover. The first batch of a
producer is refused then with a retriable error, and the next of those in flight may be the first that the log sees, a moment later. It
would be taken, since the log knows nothing of its producer, and librdkafka would count the one before it as stored as well. So what was
refused is remembered here, and the log has it when the broker leads the partition (`moldau.log.producer_entry` has the rule).

It is remembered for as long as other batches may be in flight, and no longer: the producer may have found the leader elsewhere, and then
its first batch never comes again.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.protocol.records.header import BatchHeader

LIMIT = 1000
"""So many producers are remembered, over all partitions; then one of those that were refused longest ago is forgotten."""
KEPT_MS = 5000
"""After that nothing of the same producer can be in flight any more that came later."""


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at_ms: int


class EarlyBatches:
    """By partition and producer, the first batch that was refused, and when.

    Invariant: `_count` is the number of producers, at most LIMIT; partitions and their producers are in the order of the last refusals.
    """

    __slots__ = ("_count", "_refused")

    def __init__(self) -> None:
        self._refused: dict[tuple[bytes, int], dict[int, _Refused]] = {}
        self._count = 0

    def note(self, topic: bytes, index: int, header: "BatchHeader", now_ms: int) -> None:
        """A batch was refused. `topic`: the UTF-8 bytes of its name, or its id, as its client named it."""
        if header.producer_id < 0:
            return
        producers = self._refused.pop((topic, index), {})
        self._refused[topic, index] = producers
        refused = _Refused(header.producer_epoch, header.base_sequence, now_ms)
        before = producers.pop(header.producer_id, None)
        if before is None:
            self._count += 1
        elif now_ms - before.at_ms < KEPT_MS and (before.epoch, -before.sequence) > (refused.epoch, -refused.sequence):
            refused = before
        producers[header.producer_id] = refused
        if self._count > LIMIT:
            self._forget_one()

    def hand_over(self, partition: "HostedPartition", now_ms: int) -> None:
        """The broker leads the partition from now on: its log refuses what would overtake the batches."""
        if not self._refused:
            return
        for topic in (partition.topic, partition.topic_id):
            producers = self._refused.pop((topic, partition.index), {})
            self._count -= len(producers)
            for producer_id, refused in producers.items():
                if now_ms - refused.at_ms < KEPT_MS:
                    partition.log.note_refused(producer_id, refused.epoch, refused.sequence, now_ms)

    def _forget_one(self) -> None:
        partition, producers = next(iter(self._refused.items()))
        del producers[next(iter(producers))]
        self._count -= 1
        if not producers:
            del self._refused[partition]
