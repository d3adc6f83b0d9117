"""What a fetch response holds for a consumer: the records that its isolation level shows, and where to read next. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.client.message import ConsumedMessage
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import batches, iterate
from moldau.protocol.records.control import ControlType, end_txn_marker_of
from moldau.protocol.records.header import BatchHeader, verify_crc

_DECOMPRESSED_BYTES_MAX = 1 << 24
Address = tuple[str, int]
NEAR_S = 20.0
"""How long a consumer reads from the replica that a leader has named, until it asks the leader again."""


@dataclass(slots=True)
class SimulatedMessage(ConsumedMessage):
    """A record with the leader epoch of its batch, which tells the log before a loss from the one after it."""

    leader_epoch: int = -1


class AbortedTransactions:
    """The aborted transactions of one response: which batches of producers they hide (KIP-98)."""

    def __init__(self, aborted: Iterable[Any]) -> None:
        self._coming = sorted(((each.first_offset, each.producer_id) for each in aborted), reverse=True)
        self._open: dict[int, None] = {}

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a batch is of an aborted transaction. Batches are given in the order of the log, markers too."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open[self._coming.pop()[1]] = None
        if header.is_control:
            marker = end_txn_marker_of(batch)
            if marker is not None and marker.type is ControlType.ABORT:
                self._open.pop(header.producer_id, None)
            return True
        return header.is_transactional and header.producer_id in self._open


def messages_of(partition: TopicPartition, fetched: Any, position: int, *, committed: bool) -> tuple[Sequence[SimulatedMessage], int]:
    """The records of one partition's response from a position on, and the position after them.

    AssertionError for a batch with a wrong checksum: a broker must never send one.
    """
    aborted = AbortedTransactions((fetched.aborted_transactions or ()) if committed else ())
    found: list[SimulatedMessage] = []
    for header, batch in batches(memoryview(bytes(fetched.records or b""))):
        assert verify_crc(batch), f"{partition}: the batch at offset {header.base_offset} has a wrong checksum"
        if header.last_offset < position:
            aborted.hides(header, batch)
            continue
        if not aborted.hides(header, batch):
            epoch = header.partition_leader_epoch
            records = iterate(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX)
            found += [
                SimulatedMessage(record.value, record.key, record.headers, record.timestamp, *partition, record.offset, epoch)
                for record in records
                if record.offset >= position
            ]
        position = header.last_offset + 1
    return found, position


class NearReplicas:
    """Replicas that leaders have named to a consumer to read from. After a while the leader is asked again."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, tuple[Address, float]] = {}

    def note(self, partition: TopicPartition, address: Address, now_s: float) -> None:
        """The leader has named the broker at this address."""
        self._found[partition] = address, now_s + NEAR_S

    def address(self, partition: TopicPartition, now_s: float) -> Address | None:
        """Where to read a partition, if not from its leader."""
        address, until_s = self._found.get(partition, (None, 0.0))
        return address if now_s < until_s else None

    def forget(self, partition: TopicPartition) -> None:
        """Ask the leader before the next fetch."""
        self._found.pop(partition, None)
