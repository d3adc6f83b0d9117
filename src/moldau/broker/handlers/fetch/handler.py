"""The Fetch requests of a connection: answered at once, or when there is enough, or in steps."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.handlers.fetch.operation import Answer, Fetch, ReadPermit, release_ranges, request_refusal, wanted_only
from moldau.broker.replicas.purgatory import DelayedFetch
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.protocol.fast.fetch import decode_fetch
from moldau.protocol.headers import decode_request_header

if TYPE_CHECKING:
    from moldau.broker.handlers.fetch.operation import Services
    from moldau.broker.request import Exchange, RequestSource
    from moldau.ports.transport import Part

AT_ONCE_BYTES_MAX = 2048
"""Bytes of a request that is handled in one go: 60 to 120 partitions."""


class FetchHandler:
    """The Fetch requests of one connection."""

    __slots__ = ("_broker", "_permit")

    def __init__(self, broker: "Services") -> None:
        self._broker = broker
        self._permit = ReadPermit()

    def handle(
        self, source: "RequestSource", frame: memoryview, version: int, correlation_id: int, received_s: float
    ) -> "list[Part] | None":
        """The response to the request in `frame`, which came by `source` at `received_s`; None if it has its place there, and waits or is
        long. ProtocolError.
        """
        broker, position = self._broker, decode_request_header(frame).body_position
        if len(frame) > AT_ONCE_BYTES_MAX:
            self._handle_in_steps(source.reserve(waiting_cost=len(frame)), frame, position, version, correlation_id, received_s)
            return None
        request = wanted_only(decode_fetch(frame, position, version, broker.admission.limits.decoded_elements_max))
        fetch = Fetch(broker, source, self._permit, request, version, correlation_id, received_s)
        refusal = request_refusal(request)
        if refusal != ErrorCode.NONE:
            return fetch.refuse(refusal)
        topics = fetch.read()
        if fetch.urgent or not fetch.led or not fetch.may_wait or (missing := fetch.missing_bytes()) <= 0:
            return fetch.encode(topics)
        release_ranges(topics)
        exchange = source.reserve(waiting_cost=len(frame))
        waiting = WaitingFetch(fetch, missing)
        exchange.delay(waiting)
        waiting.start(exchange.reply, exchange.abort)
        return None

    def _handle_in_steps(
        self, exchange: "Exchange", frame: memoryview, position: int, version: int, correlation_id: int, received_s: float
    ) -> None:
        from moldau.broker.handlers.fetch.long import LongFetch

        fetch = LongFetch(self._broker, exchange, self._permit, bytes(frame), version, correlation_id, received_s)
        exchange.delay(fetch)
        try:
            exchange.run(fetch.steps(position), droppable=False)
        except ProtocolError:
            exchange.withdraw()
            raise


class WaitingFetch:
    """A fetch that cannot be answered yet. `start` lets it wait; `cancel` gives it up."""

    __slots__ = ("_fetch", "_missing_bytes", "_request")

    def __init__(self, fetch: Fetch, missing_bytes: int) -> None:
        self._fetch = fetch
        self._missing_bytes = missing_bytes
        self._request: DelayedFetch | None = None

    def start(self, answer: Answer, give_up: Callable[[], object]) -> None:
        """Wait; one of the two is called, once: `give_up` if a bug keeps it from being answered."""
        fetch = self._fetch
        fetch.answer = answer
        led = tuple(fetch.led)
        self._request = DelayedFetch(self._attempt, led, self._missing_bytes, give_up, isolation=fetch.isolation, weight=len(led))
        fetch.broker.purgatory.wait(self._request, fetch.frame.max_wait_ms)

    def finish(self) -> None:
        """Answer at once with what there is."""
        if self._request is not None:
            self._fetch.broker.purgatory.finish(self._request)

    def cancel(self) -> None:
        """No connection waits for the answer any more."""
        self._fetch.answer = None  # it refers to the place of the answer, and that to this
        if self._request is not None:
            self._fetch.broker.purgatory.cancel(self._request)

    def _attempt(self, expired: bool) -> bool:
        return self._fetch.attempt(expired, self._request)
