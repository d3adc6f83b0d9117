"""When the states of partitions and topics began, as far as a process has seen it."""

from collections.abc import Hashable, Iterable

from moldau.mirror.state.reports import State
from moldau.ports.clock import Clock


class Beginnings:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: dict[Hashable, tuple[State, int]] = {}

    def of(self, subject: Hashable, state: State, known_ms: int = 0) -> int:
        """When the state began that a subject is in now; `known_ms` where that is known, else when it was seen first."""
        begun = self._begun.get(subject)
        at_ms = known_ms or (begun[1] if begun is not None and begun[0] is state else self._clock.time_ms())
        self._begun[subject] = state, at_ms
        return at_ms

    def forget(self, subjects: Iterable[Hashable]) -> None:
        """These are in no state any more."""
        for each in subjects:
            self._begun.pop(each, None)
