"""The answers of one connection, in the order of their requests.

Answers that are there gather in `ready`. One that comes later (a fetch that waits, an append that waits for its sync) holds a slot; what is
answered behind it waits in slots too.

Invariant: the first slot is one that has no answer yet, except while `collect` has not been called after an answer came.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.ports.transport import FileRange, Part

if TYPE_CHECKING:
    from moldau.broker.handlers.fetch import WaitingFetch
    from moldau.broker.long_fetch import LongFetch

RANGE_COST = 512
"""What a file range counts among the bytes that wait; its own bytes stay in the file."""


class Slot:
    """The place of an answer among those of its connection."""

    __slots__ = ("abandoned", "cost", "delayed", "holds", "parts")

    def __init__(self) -> None:
        self.parts: Sequence[Part] | None = None
        """The answer, once it is there."""
        self.cost = 0
        self.delayed: WaitingFetch | LongFetch | None = None
        """The fetch that waits, for whoever has to end it."""
        self.abandoned: Callable[[], object] | None = None
        """What to call when no connection waits for the answer any more."""
        self.holds = False
        """Whether no later frame is handled until the answer is there."""


class Answers:
    """See the module."""

    __slots__ = ("_ready_cost", "_slot_cost", "ready", "slots")

    def __init__(self) -> None:
        self.ready: list[Part] = []
        self.slots: deque[Slot] = deque()
        self._ready_cost = 0
        self._slot_cost = 0

    @property
    def cost(self) -> int:
        """Bytes of memory that the answers take. Those put into `ready` directly do not count: they are shorter than their requests."""
        return self._ready_cost + self._slot_cost

    def place(self, parts: Sequence[Part]) -> None:
        """An answer that is there, to the request after the last one."""
        if self.slots:
            self.hold(parts)
        else:
            self.ready.extend(parts)
            self._ready_cost += _cost(parts)

    def hold(self, parts: Sequence[Part] | None, waiting_cost: int = 0) -> Slot:
        """A place behind all answers so far, for an answer or for what will be one; it counts `waiting_cost` until that is there."""
        slot = Slot()
        self.slots.append(slot)
        slot.cost = waiting_cost
        self._slot_cost += waiting_cost
        if parts is not None:
            self.fill(slot, parts)
        return slot

    def fill(self, slot: Slot, parts: Sequence[Part]) -> None:
        """The answer that `slot` stands for."""
        assert slot.parts is None, "a request was answered twice"
        slot.delayed = slot.abandoned = None
        slot.parts = parts
        cost = _cost(parts)
        self._slot_cost += cost - slot.cost
        slot.cost = cost

    def collect(self) -> None:
        """Move the answers that nothing waits before from the slots to `ready`."""
        slots = self.slots
        while slots and (parts := slots[0].parts) is not None:
            cost = slots.popleft().cost
            self._slot_cost -= cost
            self._ready_cost += cost
            self.ready.extend(parts)

    def take(self) -> list[Part]:
        """What may be sent now."""
        self.collect()
        ready, self.ready = self.ready, []
        self._ready_cost = 0
        return ready

    def give_up(self) -> None:
        """Nobody is there any more: end what waits, release what is there."""
        slots, self.slots = self.slots, deque()
        for slot in slots:
            if slot.delayed is not None:
                slot.delayed.cancel()
            if slot.abandoned is not None:
                slot.abandoned()
            release(slot.parts or ())
        release(self.ready)
        self.ready = []
        self._ready_cost = self._slot_cost = 0


def _cost(parts: Sequence[Part]) -> int:
    cost = 0
    for part in parts:
        cost += RANGE_COST if isinstance(part, FileRange) else len(part)
    return cost


def release(parts: Sequence[Part]) -> None:
    """Give back the files of parts that are not sent."""
    for part in parts:
        if isinstance(part, FileRange):
            part.release()
