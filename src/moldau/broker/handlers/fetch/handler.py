"""The Fetch requests of a connection: answered at once, or when there is enough, or in steps."""

from typing import TYPE_CHECKING

from moldau.broker.handlers.fetch.call import FetchCall, ReadPermit
from moldau.broker.handlers.fetch.operation import Fetch, wanted_only
from moldau.broker.handlers.fetch.waiting import answer_or_wait
from moldau.model.errors import ProtocolError
from moldau.protocol.fast.fetch import NO_EPOCH, decode_fetch
from moldau.protocol.headers import decode_request_header

if TYPE_CHECKING:
    from moldau.broker.handlers.fetch.call import Services
    from moldau.broker.request import Exchange, RequestSource
    from moldau.ports.transport import Part
    from moldau.protocol.fast.fetch import FetchFrame

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
        if request.session_epoch != NO_EPOCH or request.session_id:
            return self._handle_in_session(source, frame, position, request, version, correlation_id, received_s)
        fetch = Fetch(broker, source, self._permit, version, correlation_id, received_s, request)
        answer = answer_or_wait(fetch, source, len(frame))
        return answer if type(answer) is list else None

    def _handle_in_session(
        self,
        source: "RequestSource",
        frame: memoryview,
        position: int,
        request: "FetchFrame",
        version: int,
        correlation_id: int,
        received_s: float,
    ) -> "list[Part] | None":
        """Handle a short request that opens, continues or closes a session, which may have many partitions or be busy."""
        from moldau.broker.handlers.fetch.session_fetch import answer_in_session, is_long

        if is_long(self._broker.fetch_sessions, request.session_id):
            self._handle_in_steps(source.reserve(waiting_cost=len(frame)), frame, position, version, correlation_id, received_s)
            return None
        call = FetchCall(self._broker, source, self._permit, version, correlation_id, received_s)
        return answer_in_session(call, request, len(frame))

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
