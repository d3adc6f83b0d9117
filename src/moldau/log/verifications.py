"""Producers whose first batch of a transaction waits for the coordinator to say that the partition is part of it (KIP-890).

From the request to the batch there is a `Verification`. It is removed once a transactional batch of the producer or the end of that
transaction was appended, so that a later answer admits nothing: without that, the records would belong to no transaction
and hold the last stable offset for ever. One that ended in an error is kept: it remembers the smallest sequence that
was tried, and no batch after that one may overtake it. So is one of a batch of an unknown producer
that was refused because the coordinator could not say its epoch yet, or because it could not be written.
"""

from moldau.log.producer_bound import GONE, ProducerBound


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
    """By producer id."""

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
        """As :meth:`moldau.log.producer_bound.Remembered.last_use`: one whose answer arrives after it was evicted has no effect."""
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
