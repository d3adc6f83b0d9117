"""What a mirror tries again: since when, why, and how often."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from moldau.ports.clock import Clock


class Retry(NamedTuple):
    """Something that is being tried again."""

    reason: str
    """Of the last failure."""
    since_ms: int
    """The first failure since it last succeeded."""


class Retries:
    """The retries of one part of a mirror, by what they are about: a partition, a topic, a broker."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._retries: dict[Hashable, Retry] = {}
        self.count = 0
        """Failures so far."""

    def failed(self, subject: Hashable, reason: object) -> None:
        """It has failed, and is tried again."""
        self.count += 1
        known = self._retries.get(subject)
        self._retries[subject] = Retry(str(reason), self._clock.time_ms() if known is None else known.since_ms)

    def over(self, subject: Hashable) -> None:
        """It has succeeded, or is not tried any more."""
        self._retries.pop(subject, None)

    def of(self, *subjects: Hashable) -> Retry | None:
        """The retry of the first of these that has one."""
        return next((self._retries[each] for each in subjects if each in self._retries), None)
