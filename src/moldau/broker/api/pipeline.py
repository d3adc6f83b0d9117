"""The way of a request from its frame to its response.

1. Header: the API and its version are in service; who the client says it is.
2. Admission: a short message is decoded at once, a long one in steps, once there is room for its elements (`admission`).
3. Authorisation, as far as the API needs leave as a whole.
4. The handler, which replies now or later.
5. Quotas: the response says for how long the client is throttled, and its connection is muted for that time. It becomes a frame, a long one
   in steps.
6. Counters, and the response to its place among those of the connection.

Produce and Fetch have ways of their own.
"""

from collections.abc import Callable, Generator
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from moldau.broker.api.catalog import SERVED_KEYS, ServedApi, UnservedError, served_api
from moldau.broker.metrics.response_errors import error_codes
from moldau.broker.quotas import NO_QUOTAS
from moldau.model.errors import ErrorCode
from moldau.model.steps import Pause, Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decoder, encode_into, step_decoder, step_writer
from moldau.protocol.codec.encoded import joined
from moldau.protocol.headers import decode_request_header, response_header
from moldau.protocol.versions import CODEC

if TYPE_CHECKING:
    from moldau.broker.admission.admission import Admission
    from moldau.broker.admission.elements import LongRequest
    from moldau.broker.metrics.counters import Counters
    from moldau.broker.quotas import Quotas
    from moldau.broker.request import Request
    from moldau.broker.security import Authorizer

DECODED_AT_ONCE_MAX = 8 * 1024
"""Bytes of a request that is decoded in one go: at the most a few milliseconds."""


class Pipeline:
    """See the module."""

    __slots__ = ("_admission", "_counters", "_monotonic", "_services", "authorizer", "quotas")

    def __init__(
        self,
        services: object,
        *,
        monotonic: Callable[[], float],
        counters: "Counters",
        admission: "Admission",
        authorizer: "Authorizer",
        quotas: "Quotas",
    ) -> None:
        """`services` has what the handlers need: the ``Services`` of each of their modules."""
        self._services = services
        self._monotonic = monotonic
        self._counters = counters
        self._admission = admission
        self.authorizer = authorizer
        self.quotas = quotas

    def handle(self, request: "Request", frame: memoryview) -> None:
        """Decode the request in `frame` and call its handler. ProtocolError (also `UnservedError`) if it cannot be read."""
        request.started_s = self._monotonic()
        version = request.api_version
        api_key = SERVED_KEYS.get(request.api_key)
        if api_key is None:
            raise UnservedError(request.api_key, version)
        request.api_key = api_key
        if not CODEC[api_key].includes(version):
            if api_key is ApiKey.API_VERSIONS:  # its header may be of a future version too: nothing more is read of it
                self._refuse_api_versions(request)
                return
            raise UnservedError(api_key, version)
        _, _, _, request.client_id, position = decode_request_header(frame)
        served = served_api(api_key)
        if request.size > DECODED_AT_ONCE_MAX:
            long = self._admission.long_request(request.exchange.holder, request.size)
            request.exchange.run(self._decoded_in_steps(long, served, request, bytes(frame), position), droppable=False)
            return
        # What follows a request is not looked at, as in Kafka: librdkafka 2.16 sends three zeros too many when it asks for all topics.
        message, _ = decoder(served.message, version)(frame, position, self._admission.limits.decoded_elements_max)
        if served.operation is not None and not self.authorizer.allows(request.channel, served.operation):
            self._refuse(served, request)
            return
        if served.in_steps:
            request.exchange.run(self._in_steps(served, message, request))
            return
        steps = served.handler(self._services, message, request, partial(self._reply, request))
        if steps is not None:
            request.exchange.run(steps)

    def _decoded_in_steps(self, long: "LongRequest", served: ServedApi, request: "Request", frame: bytes, position: int) -> Steps:
        """A long request: decoded, handled and answered piece by piece."""
        decode = step_decoder(served.message, request.api_version)
        try:
            message, _ = yield from long.decoded(lambda most: decode(frame, position, most))
            if served.operation is not None and not self.authorizer.allows(request.channel, served.operation):
                self._refuse(served, request)
                return
            yield from self._in_steps(served, message, request)
        finally:
            long.end()

    def _in_steps(self, served: ServedApi, message: Any, request: "Request") -> Steps:
        """Run a handler in steps. A response that is there when it ends is encoded piece by piece too."""
        responses: list[Any] = []
        running = True

        def take(response: Any) -> None:
            if running:
                responses.append(response)
            else:
                self._reply(request, response)

        yield from served.handler(self._services, message, request, take) or ()
        running = False
        for response in responses:
            yield None
            throttle_ms = self._throttle(request, response)
            parts = yield from encode_response_in_steps(response, request.api_key, request.api_version, request.correlation_id)
            self._finish(request, response, parts, throttle_ms)

    def _reply(self, request: "Request", response: Any) -> None:
        throttle_ms = 0 if self.quotas is NO_QUOTAS else self._throttle(request, response)
        parts = encode_response(response, request.api_key, request.api_version, request.correlation_id)
        self._finish(request, response, parts, throttle_ms)

    def _throttle(self, request: "Request", response: Any) -> int:
        """Milliseconds for which the client is muted after this response, which says so."""
        throttle_ms = self.quotas.throttle_ms(request.channel, request.api_key, 1)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        return throttle_ms

    def _finish(self, request: "Request", response: Any, parts: list[bytes], throttle_ms: int) -> None:
        self._counters.answered(request.api_key, request.received_s, request.started_s, error_codes(response))
        if throttle_ms:
            request.exchange.holder.mute(throttle_ms)
        request.exchange.reply(parts)

    def _refuse(self, served: ServedApi, request: "Request") -> None:
        self._reply(request, served.response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    def _refuse_api_versions(self, request: "Request") -> None:
        """The answer to an ApiVersions request of a version that we do not know: version 0, error 35 (KIP-511)."""
        from moldau.broker.api.api_versions import unsupported_version

        self._counters.answered(ApiKey.API_VERSIONS, request.received_s, request.started_s, (ErrorCode.UNSUPPORTED_VERSION,))
        request.exchange.reply(encode_response(unsupported_version(), ApiKey.API_VERSIONS, 0, request.correlation_id))


JOINED_MAX = 1024 * 1024
"""Bytes of a response that is copied into one piece."""
PARTS_PER_STEP = 1000
"""Parts of a response that are joined before other work runs."""

_SIZE = Struct(">i")


def encode_response(response: Any, api_key: int, version: int, correlation_id: int) -> list[bytes]:
    """A response as the parts of a frame."""
    parts: list[Any] = [b"", response_header(api_key, version, correlation_id)]
    encode_into(parts, response, version)
    return _framed(parts)


def encode_response_in_steps(response: Any, api_key: int, version: int, correlation_id: int) -> Generator[Pause, None, list[bytes]]:
    """The same, piece by piece."""
    parts: list[Any] = [b"", response_header(api_key, version, correlation_id)]
    pieces: list[Any] = [b""]
    for _ in step_writer(type(response), version)(response, parts.append):
        if len(parts) >= PARTS_PER_STEP:
            pieces += joined(parts)
            parts.clear()
        yield None
    pieces += joined(parts)
    return _framed(pieces)


def _framed(parts: list[Any]) -> list[bytes]:
    """`parts` after their size; one piece unless they are long, then those that are in memory once stay so."""
    size = sum(map(len, parts))
    parts[0] = _SIZE.pack(size)
    return [b"".join(parts)] if size <= JOINED_MAX else parts
