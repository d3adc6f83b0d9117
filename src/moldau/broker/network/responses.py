"""The responses of one connection, in the order of their requests.

Responses that are there gather in `ready`. One that comes later (a fetch that waits, an append that waits for its sync) is a
`PendingResponse` in `pending`; what is answered after it waits there too.

Invariant: the first of `pending` has no response yet, except while `collect` has not been called after a response came.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from moldau.model.steps import Steps
from moldau.ports.transport import FileRange, Part, release_parts

if TYPE_CHECKING:
    from moldau.broker.request import DelayedOperation, FastPath, RequestSource

RANGE_COST = 512
"""What a file range counts among the bytes that wait; its own bytes stay in the file."""


if TYPE_CHECKING:

    class ResponseSource(RequestSource, Protocol):
        """The connection, as its pending responses see it."""

        def respond(self, pending: "PendingResponse", parts: Sequence[Part]) -> None:
            """The response is there."""

        def place(self, pending: "PendingResponse", waiting_cost: int) -> None:
            """Give it the place after all responses so far."""

        def withdraw(self, pending: "PendingResponse") -> None:
            """Forget it."""

        def hold(self) -> None:
            """Handle no frame until `release`, or until a response that holds is there; once for each call."""

        def resume(self, work: Callable[[], object]) -> None:
            """Call `work` at the clock's turn, after one hold."""

        def run(self, pending: "PendingResponse", steps: Steps, *, droppable: bool) -> None:
            """Run steps in turns."""

        def abort(self) -> None:
            """Close at once."""

        def remember(self, fast: FastPath | None) -> None:
            """Try `fast` first."""


class PendingResponse:
    """The place of one request's response among those of its connection; an :class:`moldau.broker.request.Exchange`."""

    __slots__ = ("abandoned", "cost", "delayed", "holder", "holds", "is_placed", "parts", "requests")

    def __init__(self, source: "ResponseSource") -> None:
        self.holder = source
        self.parts: Sequence[Part] | None = None
        """The response, once it is there."""
        self.is_placed = False
        """Whether it is among those of `ResponseQueue.pending`, or was."""
        self.cost = 0
        self.requests = 1
        """Requests that it answers: more than one for a run of the shortest way of Produce."""
        self.delayed: DelayedOperation | None = None
        self.abandoned: Callable[[], object] | None = None
        self.holds = False
        """Whether no later frame is handled until the response is there."""

    def reply(self, parts: Sequence[Part]) -> None:
        """Send the response, in the order of the requests."""
        self.holder.respond(self, parts)

    def take_place(self, waiting_cost: int) -> None:
        """Give the response a place after all before it, if it has none."""
        if not self.is_placed:
            self.holder.place(self, waiting_cost)

    def withdraw(self) -> None:
        """Give up the place: there will be no response."""
        self.holder.withdraw(self)

    def delay(self, operation: "DelayedOperation") -> None:
        """Finish or cancel `operation` if the connection ends before `reply`."""
        self.delayed = operation

    def hold(self, abandoned: Callable[[], object] | None = None) -> None:
        """Handle no later frame until `reply` or `resume`."""
        if self.parts is None and not self.holds:
            self.holds = True
            self.abandoned = abandoned
            self.holder.hold()

    def resume(self, work: Callable[[], object]) -> None:
        """Run the rest of a request that holds."""
        self.holds = False
        self.holder.resume(work)

    def run(self, steps: Steps, *, droppable: bool = True) -> None:
        """Run `steps` in turns."""
        self.holder.run(self, steps, droppable=droppable)

    def abort(self) -> None:
        """Close the connection at once."""
        self.holder.abort()

    def cut(self, reason: object) -> None:
        """Close the connection after the responses before this one."""
        self.holder.cut(reason)

    def remember(self, fast: "FastPath | None") -> None:
        """Try `fast` first for the next Produce requests."""
        self.holder.remember(fast)


class ResponseQueue:
    """See the module."""

    __slots__ = ("_ready_cost", "cost", "pending", "ready", "requests")

    def __init__(self) -> None:
        self.ready: list[Part] = []
        self.pending: deque[PendingResponse] = deque()
        self.requests = 0
        """Requests whose responses are pending."""
        self.cost = 0
        """Bytes of memory that the responses take. Those put into `ready` directly do not count: they are shorter than their requests."""
        self._ready_cost = 0
        """What those of `ready` have in `cost`."""

    def place(self, parts: Sequence[Part], source: "ResponseSource") -> None:
        """A response that is there, to the request after the last one."""
        if self.pending:
            self.fill(self.append(PendingResponse(source)), parts)
        else:
            self.ready.extend(parts)
            cost = _cost(parts)
            self.cost += cost
            self._ready_cost += cost

    def append(self, pending: PendingResponse, waiting_cost: int = 0, requests: int = 1) -> PendingResponse:
        """Give `pending` the place after all responses so far; it counts `waiting_cost` until it has its parts."""
        self.pending.append(pending)
        pending.requests = requests
        self.requests += requests
        pending.is_placed = True
        pending.cost = waiting_cost
        self.cost += waiting_cost
        return pending

    def remove(self, pending: PendingResponse) -> None:
        """Take back a place: there is no response."""
        self.pending.remove(pending)
        self.requests -= pending.requests
        self.cost -= pending.cost

    def fill(self, pending: PendingResponse, parts: Sequence[Part]) -> None:
        """The response for the place of `pending`."""
        assert pending.parts is None, "a request was answered twice"
        pending.delayed = pending.abandoned = None
        pending.parts = parts
        cost = _cost(parts)
        self.cost += cost - pending.cost
        pending.cost = cost

    def collect(self) -> None:
        """Move the responses that nothing waits before from `pending` to `ready`."""
        pending = self.pending
        while pending and (parts := pending[0].parts) is not None:
            first = pending.popleft()
            self.requests -= first.requests
            self._ready_cost += first.cost
            self.ready.extend(parts)

    def take(self) -> list[Part]:
        """What may be sent now."""
        if self.pending:
            self.collect()
        ready, self.ready = self.ready, []
        self.cost -= self._ready_cost
        self._ready_cost = 0
        return ready

    def give_up(self) -> None:
        """The connection is lost: end what waits, release what is there."""
        pending, self.pending = self.pending, deque()
        self.requests = 0
        for each in pending:
            if each.delayed is not None:
                each.delayed.cancel()
            if each.abandoned is not None:
                each.abandoned()
            release_parts(each.parts or ())
        release_parts(self.ready)
        self.ready = []
        self.cost = self._ready_cost = 0


def _cost(parts: Sequence[Part]) -> int:
    cost = 0
    for part in parts:
        cost += RANGE_COST if isinstance(part, FileRange) else len(part)
    return cost
