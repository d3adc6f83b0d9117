"""One request on its way through the broker, and what its handler may ask of the connection."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from moldau.broker.security import Channel

if TYPE_CHECKING:
    from moldau.broker.admission.memory import Holder
    from moldau.model.steps import Steps
    from moldau.ports.transport import Part

Reply = Callable[[Any], object]
"""Takes the response message to a request; once, now or later."""


if TYPE_CHECKING:

    class DelayedOperation(Protocol):
        """A request that waits for records or for a deadline."""

        def finish(self) -> None:
            """Answer it with what there is: the broker stops."""

        def cancel(self) -> None:
            """Give it up: the connection is lost."""

    class FastPath(Protocol):
        """The shortest way of a Produce request that repeats the one before it."""

        version: int

        @property
        def rows(self) -> int:
            """Requests that are staged and not answered."""

        def prefix_of(self, frame: memoryview) -> bytes:
            """What tells of a request which partition it is for, if that is another than the last one."""

        def reserve(self) -> None:
            """Give these requests a place among the responses, before that of another request."""

        def stage(self, frame: memoryview, correlation_id: int, now_ms: int) -> bool:
            """Stage the batch of a request of this version. False, and nothing has happened, if the general way has to take it."""

    class RequestSource(Holder, Protocol):
        """The connection that a request came by."""

        channel: Channel
        """The client."""
        received_s: float
        """When the last bytes were received."""
        started_s: float
        """When the requests in them began to be handled."""

        def mute(self, throttle_ms: int) -> None:
            """Handle no frame for that long: the client exceeds a quota."""

        def cut(self, reason: object) -> None:
            """Handle no more frames, and close after the responses before."""

        def abort(self) -> None:
            """Close at once; what is queued is dropped."""

        def remember(self, fast: FastPath | None) -> None:
            """Try `fast` first for the next Produce requests."""

        def reserve(self, requests: int = 1, waiting_cost: int = 0) -> "Exchange":
            """A place after all responses so far for those to so many requests; it counts `waiting_cost` bytes until they are there."""

        def answer_run(self, requests: int, parts: Sequence[Part]) -> None:
            """Send the responses to so many requests of the present read, after all before them."""

    class Exchange(Protocol):
        """One request's response, and its hold on the frames that follow it on the connection."""

        @property
        def holder(self) -> RequestSource:
            """The connection."""

        def take_place(self, waiting_cost: int) -> None:
            """Give the response a place after all before it, if it has none; it counts `waiting_cost` bytes until it is there."""

        def withdraw(self) -> None:
            """Give up the place: there will be no response."""

        def reply(self, parts: Sequence[Part]) -> None:
            """Send the response, in the order of the requests; once, now or later. Nothing to send is no parts."""

        def delay(self, operation: DelayedOperation) -> None:
            """Finish or cancel `operation` if the connection ends before `reply`."""

        def hold(self, abandoned: Callable[[], object] | None = None) -> None:
            """Handle no later frame of the connection until `reply` or `resume`. `abandoned` is called if the connection is lost before.

            Steps that wait for another thread yield `Elsewhere` instead, see `run`. A short Produce request holds: only when it is half
            handled is it known to have to wait, and as a generator each would cost what only a few need.
            """

        def resume(self, work: Callable[[], object]) -> None:
            """Run the rest of a request that holds, at the clock's turn; the hold ends before it, and what it stages is written after it. A
            lost connection drops `work`. To be called on the broker's thread.
            """

        def run(self, steps: Steps, *, droppable: bool = True) -> None:
            """Run `steps` in turns, and handle no later frame before their end. `droppable`: whether they may be dropped before the first
            of them if the connection is lost, see `SliceScheduler.run`; steps that count memory from before their first are not.
            """

        def abort(self) -> None:
            """Close the connection at once: because of a bug there is no response."""

        def cut(self, reason: object) -> None:
            """Handle no more frames of the connection, and close it after the responses before this one."""

        def remember(self, fast: FastPath | None) -> None:
            """Try `fast` first for the connection's next Produce requests."""


class Request:
    """One frame. Not made on the shortest way of Produce, where requests differ in their correlation id only."""

    __slots__ = ("api_key", "api_version", "channel", "client_id", "correlation_id", "exchange", "received_s", "size", "started_s")

    def __init__(
        self, channel: Channel, exchange: "Exchange", api_key: int, api_version: int, correlation_id: int, size: int, received_s: float
    ) -> None:
        self.channel = channel
        self.exchange = exchange
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id: str | None = None
        """Known once the header is decoded."""
        self.size = size
        """Bytes of the frame."""
        self.received_s = received_s
        """When the last byte before it was handled was received."""
        self.started_s = received_s
        """When it began to be handled."""
