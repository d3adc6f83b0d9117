"""An internal topic that is a list: what tests of coordinators put in place of :class:`moldau.broker.coordinators.state_topic.StateTopic`.

log = ListStateLog()
log.append(0, [(b"key", b"value")], done)     # done(None) at once
log.hold(); ...; log.release()                # answers that come later, in order
log.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE) # the next append is refused
log.newest(0)                                 # what compaction would leave: {key: value}
"""

from collections.abc import Callable, Sequence

from moldau.broker.coordinators.state_log import Done, KeyValue, LoadedBatch, TransactionalProducer
from moldau.broker.coordinators.state_topic import java_hash
from moldau.model.errors import ErrorCode, PeerError
from moldau.ports.clock import Clock
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.protocol.records.record import CREATE_TIME, Record


class ListStateLog:
    """A :class:`moldau.broker.coordinators.state_log.StateLog`. With a `clock` a load is done when the clock's turn comes, else at once."""

    def __init__(self, partitions: int = 50, *, clock: Clock | None = None) -> None:
        self.partitions = partitions
        self.batches: dict[int, list[LoadedBatch]] = {index: [] for index in range(partitions)}
        self.ends = dict.fromkeys(range(partitions), 0)
        """The offset of the next record."""
        self.closed: set[int] = set()
        """Partitions that are led elsewhere."""
        self.doubtful: set[int] = set()
        """Partitions that may be led elsewhere."""
        self.load_failure: PeerError | None = None
        """What loads end with, after everything was read."""
        self.clock = clock
        self._failures: list[PeerError] = []
        self._held: list[Done] | None = None
        self._places: list[tuple[int, int]] = []
        """Of each answer that is held: the partition, and how many of its batches come before what waits."""

    def partition_for(self, key: str) -> int:
        """As Kafka."""
        return java_hash(key) % self.partitions

    def may_be_led_elsewhere(self, partition: int) -> bool:
        """Whether another broker may lead a partition that this one leads."""
        return partition in self.doubtful

    def append(self, partition: int, records: Sequence[KeyValue], done: Done, producer: TransactionalProducer | None = None) -> int | None:
        """Keep a batch, unless it is to fail."""
        error = self._failures.pop(0) if self._failures else None
        if partition in self.closed:
            error = PeerError(ErrorCode.NOT_COORDINATOR, f"partition {partition} is not led here")
        if error is not None:
            done(error)
            return None
        base = self._offsets(partition, len(records))
        now_ms = -1 if self.clock is None else self.clock.time_ms()
        kept = [Record(base + index, now_ms, CREATE_TIME, key, value, []) for index, (key, value) in enumerate(records)]
        self.batches[partition].append(LoadedBatch(base, *(producer or (-1, -1)), None, kept))
        if self._held is None:
            done(None)
        else:
            self._hold(partition, done)
        return base

    def load(self, partition: int, take: Callable[[LoadedBatch], object], done: Done) -> Callable[[], object]:
        """Give every batch there is, then the end."""
        dropped: list[bool] = []

        def read() -> None:
            if dropped:
                return
            try:
                for batch in batches:
                    take(batch)
            except PeerError as error:
                done(error)
            else:
                done(self.load_failure)

        batches = list(self.batches[partition])
        if self.clock is None:
            read()
        else:
            self.clock.call_later(0.0, read)
        return lambda: dropped.append(True)

    def settled(self, partition: int, done: Done) -> None:
        """At once, or at `release` with what is held."""
        if self._held:
            self._hold(partition, done)
        else:
            done(None)

    def _hold(self, partition: int, done: Done) -> None:
        """Answer later what is about the last batch there is."""
        assert self._held is not None
        self._held.append(done)
        self._places.append((partition, len(self.batches[partition]) - 1))

    def committed(self, partition: int) -> list[LoadedBatch]:
        """The batches before the first for which an answer is held."""
        places = [place for index, place in self._places if index == partition]
        return self.batches[partition][: places[0]] if places else list(self.batches[partition])

    def mark(self, partition: int, producer: TransactionalProducer, *, committed: bool, coordinator_epoch: int = 0) -> None:
        """The end of a transaction, as its coordinator writes it."""
        marker = EndTxnMarker(ControlType.COMMIT if committed else ControlType.ABORT, coordinator_epoch)
        self.batches[partition].append(LoadedBatch(self._offsets(partition, 1), *producer, marker, ()))

    def _offsets(self, partition: int, count: int) -> int:
        """The first of the next offsets."""
        base = self.ends[partition]
        self.ends[partition] += count
        return base

    def newest(self, partition: int) -> dict[bytes, bytes]:
        """The value of every key that has one, whatever became of transactions."""
        found: dict[bytes, bytes] = {}
        for record in self.records(partition):
            assert record.key is not None
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
        return found

    def records(self, partition: int) -> list[Record]:
        """All records, oldest first."""
        return [record for batch in self.batches[partition] for record in batch.records]

    def fail(self, code: ErrorCode, times: int = 1) -> None:
        """Refuse the next appends."""
        self._failures += [PeerError(code, "the test wants it so")] * times

    def hold(self) -> None:
        """Answer appends only at `release`. They are in the log at once; what is refused is answered at once."""
        self._held = [] if self._held is None else self._held

    def release(self, count: int | None = None) -> None:
        """Answer what was held, oldest first: `count` of it, or all and hold no more."""
        held = self._held or []
        if count is None:
            self._held = None
        for _ in range(len(held) if count is None else count):
            del self._places[0]
            held.pop(0)(None)

    def answer_held(self, index: int, error: PeerError | None = None) -> None:
        """Answer one of those that are held: out of order, or with an `error` for records that the log has and loses."""
        assert self._held is not None
        del self._places[index]
        self._held.pop(index)(error)

    @property
    def waiting(self) -> int:
        """Answers that are held."""
        return len(self._held or ())
