"""What a coordinator needs of its internal topic: ``__consumer_offsets`` for groups, ``__transaction_state`` for transactions.

The topic is compacted and keyed; a record without a value deletes its key. A coordinator has the keys of the partitions that this
broker leads (`partition_for`); it appends every change before it answers, and reads a partition from its start when it becomes the
partition's coordinator. :mod:`moldau.broker.coordinators.state_topic` is the real one; tests of the coordinators put a list in its place.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from moldau.model.errors import PeerError
from moldau.protocol.records.builder import encode_record
from moldau.protocol.records.control import EndTxnMarker
from moldau.protocol.records.record import Record

KeyValue = tuple[bytes, bytes | None]
Done = Callable[[PeerError | None], object]


class TransactionalProducer(NamedTuple):
    """Whose transaction the appended records are part of."""

    producer_id: int
    epoch: int


class LoadedBatch(NamedTuple):
    """A batch of the topic as it is read back. `producer_id` is -1 unless the batch is part of a transaction.

    A control batch has no `records` but its `marker`.
    """

    base_offset: int
    producer_id: int
    producer_epoch: int
    marker: EndTxnMarker | None
    records: Sequence[Record]


class EncodedRecords(list[KeyValue]):
    """Records for one append, encoded as they are added: many in steps, so that the append itself, one step, need not encode them."""

    __slots__ = ("encoded",)

    def __init__(self) -> None:
        super().__init__()
        self.encoded = bytearray()

    def add(self, key: bytes, value: bytes | None) -> None:
        """One more."""
        self.encoded += encode_record(0, len(self), key, value)
        self.append((key, value))


class StateLog(Protocol):
    """One internal topic. All calls and callbacks are on the broker's thread."""

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, or will have once it is made."""

    def partition_for(self, key: str) -> int:
        """The partition that holds the state of a group or a transactional id: Java's hash of the string, as in Kafka."""

    def may_be_led_elsewhere(self, partition: int) -> bool:
        """Whether another broker may lead a partition that this one leads: then what is known of it here may be old."""

    def append(self, partition: int, records: Sequence[KeyValue], done: Done, producer: TransactionalProducer | None = None) -> int | None:
        """Append all records in one batch, then ``done(None)`` once they are as safe as ``acks=all`` promises, inside the call or later.
        Many should be `EncodedRecords`.

        Returns the offset of the first record. None when the log refuses them: then nothing of them is in the log, and ``done(error)`` has
        been called with the code for the client: COORDINATOR_NOT_AVAILABLE when replicas are missing or the disk failed, NOT_COORDINATOR
        when the partition is not led here any more, MESSAGE_TOO_LARGE when the batch is. With an offset, ``done(error)`` says that they
        are in the log and will not be safe: the coordinator has to resign. So that replicas are missing after the append is no error
        here: the log waits until they are back.
        """

    def load(self, partition: int, take: Callable[[LoadedBatch], object], done: Done) -> Callable[[], object]:
        """Read the partition from its start to its end as of now, in slices between which requests are served, then ``done``. What is
        returned drops the load: nothing more is read, and ``done`` is not called.

        A batch or record that is damaged is left out with a line in the log that names partition and offset; the rest is read.
        """

    def settled(self, partition: int, done: Done) -> None:
        """``done(None)`` once all that the partition has now is on every in-sync replica, and where the topic is written to disk at once
        (`flush.messages`) also there, inside the call if it is. ``done(error)`` as in `append` for records that will not be.
        """
