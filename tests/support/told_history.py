"""Short words to tell a history by hand: the clock ticks a second at each word."""

from itertools import count

from moldau.testing.history.checker import check
from moldau.testing.history.history import NONE, NOT_OURS, History, Outcome
from moldau.testing.history.kinds import Kind


class Told:
    """One topic of two partitions, an idempotent producer and a read_committed reader to begin with."""

    def __init__(self) -> None:
        seconds = count()
        self.history = History(clock=lambda: float(next(seconds)))
        self.history.now()
        self.left, self.right = (self.history.add_partition(name) for name in ("t-0", "t-1"))
        self.producer = self.history.add_producer("p")
        self.reader = self.history.add_reader("r")

    # Producers

    def stored(self, offset: int, *, by: int | None = None, to: int | None = None, transaction: int = NONE, source: int = NONE) -> int:
        """Sent and acknowledged at an offset; the value."""
        value = self.sent(by=by, to=to, transaction=transaction, source=source)
        self.history.send_ended(value, Outcome.OK, offset)
        return value

    def failed(self) -> int:
        """Sent, and certainly not stored."""
        value = self.sent()
        self.history.send_ended(value, Outcome.FAILED)
        return value

    def sent(self, *, by: int | None = None, to: int | None = None, transaction: int = NONE, source: int = NONE) -> int:
        """Sent, and never heard of again."""
        producer, partition = self.producer if by is None else by, self.left if to is None else to
        return self.history.send(producer, partition, transaction=transaction, source=source)

    def transactional(self, name: str, transactional_id: str, *, copies_for: str = "") -> int:
        """A transactional producer that is ready."""
        producer = self.history.add_producer(name, transactional_id=transactional_id, copies_for=copies_for)
        self.history.producer_ready(producer)
        return producer

    def commit(self, transaction: int) -> None:
        """Asked and told."""
        self.history.ask_commit(transaction)
        self.history.transaction_ended(transaction, Outcome.OK)

    def abort(self, transaction: int) -> None:
        """Told to be aborted, never asked to commit."""
        self.history.transaction_ended(transaction, Outcome.FAILED)

    # Consumers

    def polled(
        self,
        *records: tuple[int, int],
        by: int | None = None,
        of: int | None = None,
        transaction: int = NONE,
        foreign: int = NONE,
        epoch: int = NONE,
    ) -> None:
        """One poll that gave these (offset, value), of one leader epoch; `foreign`: an offset with a value that is none of ours."""
        partition = self.left if of is None else of
        rows = [(partition, offset, value, epoch) for offset, value in records]
        if foreign != NONE:
            rows.append((partition, foreign, NOT_OURS, NONE))
        self.history.polled(self.reader if by is None else by, self.history.now(), rows, transaction=transaction)

    def positioned(self, offset: int, *, by: int | None = None, of: int | None = None) -> None:
        """The reader is moved."""
        self.history.position(self.reader if by is None else by, self.left if of is None else of, offset)

    def offset_committed(self, offset: int, outcome: Outcome = Outcome.OK, *, group: str = "g", transaction: int = NONE) -> None:
        """A group's offset of the left partition."""
        number = self.history.commit_offset(group, self.left, offset, transaction=transaction)
        if transaction == NONE and outcome != Outcome.UNKNOWN:
            self.history.offset_commit_ended(number, outcome)

    def offset_seen(self, offset: int, *, group: str = "g") -> None:
        """The same, looked up."""
        self.history.saw_offset(group, self.left, offset, self.history.now())

    def end_seen(self, offset: int, *, committed: bool = False) -> None:
        """The end of the left partition, looked up."""
        self.history.saw_end(self.left, offset, self.history.now(), committed=committed)

    # Faults

    def lost(self, from_offset: int, *, epoch: int = 0) -> None:
        """A power cut takes the left partition's records from an offset on."""
        self.history.lost(self.left, from_offset, self.history.now(), epoch)

    # The judgement

    def anomalies(self) -> set[Kind]:
        """What is wrong with it."""
        return set(check(self.history)[0])
