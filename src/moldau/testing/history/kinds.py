"""The names of what can be wrong, with the numbers of the fault list where they have one."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """An anomaly; the value is how a report calls it."""

    LOST_WRITE = "A1 lost write"
    """Must have been stored, something after it was polled, it never."""
    UNSEEN = "A2 unseen"
    """Must have been stored; the drain ended without it."""
    INCONSISTENT_OFFSET = "A3 inconsistent offset"
    """One partition and offset, two values."""
    REUSED_EPOCH = "A3 reused leader epoch"
    """After a power cut a lost offset was written again without a higher leader epoch: readers cannot tell the two logs apart."""
    DUPLICATE = "A4 duplicate"
    """One value of an idempotent producer at two offsets."""
    ABORTED_READ = "A5 aborted read"
    """Polled by read_committed though its send failed or its transaction did not commit."""
    PHANTOM = "A5 phantom"
    """Polled though no producer sent it there."""
    POLL_SKIP = "A6 poll skip"
    """A poll began after something that the consumer had not been given yet."""
    POLL_SKIP_INTERNAL = "A6 poll skip, internal"
    """The same between two records of one poll."""
    NONMONOTONIC_POLL = "A7 nonmonotonic poll"
    """A poll began at or before what the consumer had been given, and no call had moved it."""
    NONMONOTONIC_POLL_INTERNAL = "A7 nonmonotonic poll, internal"
    """The same between two records of one poll."""
    NONMONOTONIC_SEND = "A8 nonmonotonic send"
    """A later send of an idempotent producer landed before an earlier one."""
    NONMONOTONIC_SEND_INTERNAL = "A8 nonmonotonic send, internal"
    """The same within one transaction."""
    CIRCULAR_FLOW = "A9 circular flow"
    """Transactions that each read what the next one wrote (G1c, by write-read edges only: Kafka isolates no writes)."""
    PRECOMMITTED_READ = "A9 precommitted read"
    """A transaction polled its own value, or anyone polled a value before its commit was asked for."""
    TORN_TRANSACTION = "A10 torn transaction"
    """Part of a transaction is there, another part is not."""
    OFFSET_WENT_BACK = "A11 committed offset went back"
    """A group's offset is an older one than was committed and acknowledged."""
    OFFSET_VANISHED = "A11 committed offset vanished"
    """A group has no offset after one was committed and acknowledged."""
    OFFSET_FROM_NOWHERE = "A11 committed offset from nowhere"
    """A group's offset is one that no member committed, or only a transaction that did not commit."""
    STALE_COMMIT = "A11 stale commit"
    """A member that had lost a partition committed for it, over its successor."""
    STUCK = "A12 stuck"
    """An operation took too long though no fault was there any more."""
    SPURIOUS_OFFSET = "A13 spurious offset"
    """An offset of 0, -1 or simply too low, in an acknowledgement, a list of offsets or a group's offset."""
    OUT_OF_RANGE = "A14 out of range"
    """A consumer got the error that its position is out of range, and it is not."""
    ZOMBIE = "zombie producer"
    """A producer sent or committed after another had taken over its transactional id."""
    COPY_DOUBLED = "copy doubled"
    """A record was processed twice under exactly-once."""
    COPY_LOST = "copy lost"
    """The group's offset is past a record that was never processed."""
    COPY_REORDERED = "copy reordered"
    """Copies stand in another order than their originals."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding; `text` names values, partitions, offsets and times in seconds since the start of the run."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}"
