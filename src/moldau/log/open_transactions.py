"""Transactions of a partition that are not over: which hold its last stable offset down, and which wait for leave to begin."""

from moldau.log.producer_bound import GONE, ProducerBound

ONGOING = -1
SWEEP_MIN = 64
"""So many may be there that hold no more."""


class UnsettledTransactions:
    """Which transactions hold the last stable offset down. Invariant: the keys of `unsettled` rise.

    A transaction holds it at its first record while it is ongoing, and after that until its marker lies before the high watermark: a marker
    that could still be lost decides nothing. Kafka keeps the two kinds apart; here they are one dictionary, in the order of their first
    offsets, so the first that still holds is what counts::

        first offset    marker
                 120        -1      ongoing
                 131       140      ended; holds until the high watermark has passed 140
                 133        -1      ongoing

    Those that hold no more are dropped from the front when the first one is looked up, and all at once when they have become the most.
    """

    __slots__ = ("_sweep_at", "unsettled")

    def __init__(self) -> None:
        self.unsettled: dict[int, int] = {}
        """By first offset where the marker is, `ONGOING` without one. Always the same object, so that it can be asked directly."""
        self._sweep_at = SWEEP_MIN

    def begin(self, first_offset: int) -> None:
        """A transaction begins at the end of the log."""
        self.unsettled[first_offset] = ONGOING

    def end(self, first_offset: int, marker_offset: int) -> None:
        """One ends, with a marker that is about to be written there."""
        self.unsettled[first_offset] = marker_offset

    def first_ongoing(self) -> int | None:
        """The first record of the oldest transaction that has no marker."""
        return next((first for first, marker in self.unsettled.items() if marker == ONGOING), None)

    def forget(self, first_offset: int) -> None:
        """It never began."""
        del self.unsettled[first_offset]

    def resume(self, first_offset: int) -> None:
        """It never ended."""
        self.unsettled[first_offset] = ONGOING

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first record that is not decided, or whose decision is not safe."""
        unsettled = self.unsettled
        if len(unsettled) > self._sweep_at:
            for first in [first for first, marker in unsettled.items() if ONGOING < marker < high_watermark]:
                del unsettled[first]
            self._sweep_at = SWEEP_MIN + 2 * len(unsettled)
        while unsettled:
            first, marker = next(iter(unsettled.items()))
            if not ONGOING < marker < high_watermark:
                return first
            del unsettled[first]
        return None

    def restart(self, first_offsets: list[int]) -> None:
        """These are ongoing and no others."""
        self.unsettled.clear()
        self.unsettled.update(dict.fromkeys(sorted(first_offsets), ONGOING))


class Verification:
    """A question under way, or one that has failed. Compared by identity."""

    __slots__ = ("bumps_epoch", "epoch", "lowest_sequence", "since_ms")

    def __init__(self, epoch: int, sequence: int, since_ms: int, *, bumps_epoch: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.since_ms = since_ms
        self.bumps_epoch = bumps_epoch
        """Whether each transaction has an epoch of its own, so that its first batch here has sequence 0."""


class Verifications:
    """Producers whose first batch of a transaction waits for the coordinator to say that the partition is part of it (KIP-890), by id.

    From the request to the batch there is a `Verification`. It is removed once a transactional batch of the producer or the end of that
    transaction was appended, so that a later answer admits nothing: without that, the records would belong to no transaction
    and hold the last stable offset for ever. One that ended in an error is kept: it remembers the smallest sequence that
    was tried, and no batch after that one may overtake it. So is one of a batch of an unknown producer
    that was refused because the coordinator could not say its epoch yet, because too few replicas were in sync, or because it could not be
    written.
    """

    __slots__ = ("_bound", "_waiting")

    def __init__(self, bound: ProducerBound) -> None:
        self._bound = bound
        self._waiting: dict[int, Verification] = {}

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool | None) -> Verification:
        """Ask for a batch of this epoch and sequence; the verification that covers it and those asked for before.

        `bumps_epoch`: None where the batch was refused and its request's version is not known here: what stands keeps its own.
        """
        waiting = self._waiting.get(producer_id)
        if waiting is None:
            waiting = Verification(epoch, sequence, now_ms, bumps_epoch=bool(bumps_epoch))
            self._bound.admit(self, producer_id, waiting, now_ms, always=True)
            self._waiting[producer_id] = waiting
        elif epoch > waiting.epoch:
            waiting.epoch, waiting.lowest_sequence = epoch, sequence
        elif epoch == waiting.epoch:
            waiting.lowest_sequence = min(waiting.lowest_sequence, sequence)
        if bumps_epoch is not None:
            waiting.bumps_epoch = bumps_epoch
        return waiting

    def get(self, producer_id: int) -> Verification | None:
        """The one that stands."""
        return self._waiting.get(producer_id)

    def end(self, producer_id: int) -> None:
        """It stands no more."""
        if self._waiting.pop(producer_id, None) is not None:
            self._bound.released()

    def marked(self, producer_id: int, epoch: int) -> None:
        """A transaction of the producer has ended with a marker of this epoch.

        Where every end has its own epoch, this may be the end of the transaction before the one that was asked about.
        """
        waiting = self._waiting.get(producer_id)
        if waiting is not None and not (waiting.bumps_epoch and epoch <= waiting.epoch):
            self.end(producer_id)

    def last_use(self, producer_id: int, state: object) -> int:
        """As :meth:`moldau.log.producer_bound.ProducerMemory.last_use`: one whose answer arrives after it was evicted has no effect."""
        waiting = self._waiting.get(producer_id)
        return GONE if waiting is None or waiting is not state else waiting.since_ms

    forget = end

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those that were begun so long ago."""
        for producer_id in [key for key, waiting in self._waiting.items() if now_ms - waiting.since_ms >= expiration_ms]:
            self.end(producer_id)

    def clear(self) -> None:
        """Forget all."""
        self._bound.released(len(self._waiting))
        self._waiting.clear()
