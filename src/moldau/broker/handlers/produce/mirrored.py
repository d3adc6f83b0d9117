"""Produce by a mirror: whole batches of its source, stored as they are, with their offsets, leader epochs, times and producers.

A request of this kind has a tagged field of ours. Each partition gets one batch or several, and takes them as a follower does: written at
once, not staged, for no client has anything staged in a mirror's partition. The rest is as for any Produce: the level of acknowledgement,
the gate, the answer, whose base offset is where the log ends. What the log has already is left out, so that to send batches again, or
from two processes, changes nothing.
"""

from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.handlers.produce.operation import ProduceOperation, ProducePart
from moldau.broker.replicas.mirrored import append_mirrored
from moldau.log.mirrored import check_known_end
from moldau.model.errors import ErrorCode, PeerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.broker.handlers.produce.operation import Services
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.broker.security import Channel
    from moldau.log.partition_log import AppendResult
    from moldau.protocol.fast.produce import ProduceFrame
    from moldau.protocol.records.header import BatchHeader


class MirrorPart(ProducePart):
    """The batches for one partition."""

    __slots__ = ("appended", "before_holes", "known_end")

    known_end: int
    """The log has reached this offset by what the mirror knows; -1: it knows nothing."""
    before_holes: "Callable[[], object]"
    """Called before offsets are left out, as the source's log was compacted."""
    appended: "Callable[[HostedPartition], object]"
    """Called after batches were written."""

    def stage(self, now_ms: int) -> "AppendResult":
        """Write what the log does not have. PeerError with the log unchanged; StorageError, with some batches in the log perhaps."""
        check_mirror(self.partition)
        self.check_end()
        self.records, result = append_mirrored(self.partition, self.records, now_ms, self.before_holes)
        if self.records:
            self.appended(self.partition)
        return result

    def check_end(self) -> None:
        """The log has not lost what the mirror has stored in it. PeerError."""
        check_known_end(str(self.partition.topic_partition), self.partition.log.log_end_offset, self.known_end)

    def refused(self, now_ms: int) -> None:
        """Its mirror sends it again; no client is to be held back."""


class MirrorProduce(ProduceOperation):
    """One request of a mirror."""

    def __init__(
        self, broker: "Services", channel: "Channel", request: "ProduceFrame", version: int, correlation_id: int, *, is_kept: bool = False
    ) -> None:
        super().__init__(broker, channel, request, version, correlation_id, is_kept=is_kept)
        self._is_transactional = request.transactional_id is not None
        self.transactional_id = None
        self._known_ends = iter(request.known_ends)

    def prepare_part(self, topic: bytes, index: int, records: memoryview | None, now_ms: int) -> ProducePart:
        """Check the batches for one partition as far as they can be checked before they are written. Called in the request's order."""
        part = MirrorPart(index)
        part.known_end = next(self._known_ends, -1)
        self._prepare(part, topic, records, now_ms)
        return part

    def _accept(self, part: ProducePart, records: memoryview | None, now_ms: int) -> None:
        where = part.partition.topic_partition
        if self._is_transactional:
            raise PeerError(ErrorCode.INVALID_REQUEST, f"{where}: a mirror's batches bring their transactions; it has no transactional id")
        check_mirror(part.partition)
        assert isinstance(part, MirrorPart)
        part.check_end()
        if not records:
            raise PeerError(ErrorCode.INVALID_RECORD, f"{where}: no record batch was sent for the partition")
        part.records, part.before_holes = records, partial(self._broker.replicas.logs.note_holes, where)
        part.appended = self._broker.mirror_epochs.look

    def _check(self, topic: bytes, part: ProducePart) -> None:
        if not part.partition.is_led:
            raise self._broker.missing_partition(topic, part.index, by_id=self._by_id)

    def _note_early(self, topic: bytes, index: int, header: "BatchHeader | None", now_ms: int) -> None:
        """A mirror sends batches again itself."""

    def _note_refused(self, partition: "HostedPartition", records: memoryview | None, now_ms: int) -> None:
        """The same."""


def check_mirror(partition: "HostedPartition") -> None:
    """A mirror may write to a partition. PeerError INVALID_REQUEST for one that is no mirror's."""
    if not partition.machine.is_mirror:
        raise PeerError(ErrorCode.INVALID_REQUEST, f"{partition.topic_partition} is no mirror (mirror.source is not set), or none any more")
