"""From a request's frame to the handler of its API, and from the handler's response to a frame.

An API is in service when it stands in `MODULES`; nothing else is listed by ApiVersions. The module of a handler and the messages of its
API are imported at the first request, so that a start pays for none of them.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import isgeneratorfunction
from struct import Struct
from typing import TYPE_CHECKING, Any

from moldau.broker.admission import LongRequest
from moldau.broker.context import RequestContext
from moldau.broker.metrics.response_errors import error_codes
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.steps import Steps
from moldau.protocol.api_keys import ApiKey, api_name
from moldau.protocol.codec import decoder, encode_into, step_decoder, step_writer
from moldau.protocol.codec.pieces import joined
from moldau.protocol.headers import decode_request_header, response_header
from moldau.protocol.messages import load
from moldau.protocol.versions import CODEC, SERVED, VersionRange

if TYPE_CHECKING:
    from moldau.broker.api.request import Exchange
    from moldau.broker.broker import Broker
    from moldau.broker.security.channel import Channel

Reply = Callable[[Any], object]
Handler = Callable[["Broker", Any, RequestContext, Reply], Steps | None]
"""Called with the decoded request. Steps, returned or of a generator function, are run in turns, see `slices`, the connection held."""

_HANDLERS_PACKAGE = "moldau.broker.handlers"
OWN_WAY = ""
"""In place of a module: the connection knows the way."""

MODULES: dict[ApiKey, str] = {
    ApiKey.PRODUCE: OWN_WAY,
    ApiKey.FETCH: OWN_WAY,
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.METADATA: "metadata",
    ApiKey.OFFSET_COMMIT: "offset_commit",
    ApiKey.OFFSET_FETCH: "offset_fetch",
    ApiKey.FIND_COORDINATOR: "coordinators",
    ApiKey.JOIN_GROUP: "join_group",
    ApiKey.HEARTBEAT: "heartbeat",
    ApiKey.LEAVE_GROUP: "leave_group",
    ApiKey.SYNC_GROUP: "sync_group",
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.LIST_GROUPS: "groups",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.DELETE_RECORDS: "delete_records",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "leader_epochs",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "add_to_txn",
    ApiKey.END_TXN: "end_txn",
    ApiKey.WRITE_TXN_MARKERS: "write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offset_commit",
    ApiKey.DESCRIBE_CONFIGS: "configs",
    ApiKey.ALTER_CONFIGS: "configs",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs",
    ApiKey.CREATE_PARTITIONS: "topics",
    ApiKey.DELETE_GROUPS: "groups",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs",
    ApiKey.OFFSET_DELETE: "offset_delete",
    ApiKey.DESCRIBE_CLUSTER: "cluster",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions",
    ApiKey.LIST_TRANSACTIONS: "transactions",
    ApiKey.LIST_CONFIG_RESOURCES: "configs",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions",
}
"""The APIs in service, and the module in `handlers` that serves each."""

unpack_head = Struct(">hhi").unpack_from
"""API key, version and correlation id: what every request begins with."""
HEAD_SIZE = 8

DECODED_AT_ONCE_MAX = 8 * 1024
"""Bytes of a request that is decoded in one go: at the most a few milliseconds."""
JOINED_MAX = 1024 * 1024
"""Bytes of a response that is copied into one piece."""

PARTS_PER_STEP = 1000
"""Parts of a response that are joined before other work runs."""

_SIZE = Struct(">i")
_handlers: dict[ApiKey, Handler] = {}
_is_in_steps = cache(isgeneratorfunction)


class UnservedError(ProtocolError):
    """A request of an API or a version that is not in service; there is no answer to it that the client could read."""

    def __init__(self, api_key: int, version: int) -> None:
        served = served_versions().get(api_key)
        which = f"served are versions {served}" if served is not None else "not in service"
        super().__init__(f"{api_name(api_key)} (key {api_key}) version {version}: {which}", ErrorCode.UNSUPPORTED_VERSION)


def served_versions() -> dict[int, VersionRange]:
    """The versions that ApiVersions lists, by API key."""
    return {int(key): SERVED[key] for key in MODULES}


def handler_of(api_key: ApiKey) -> Handler:
    """The handler of an API in service that has no way of its own."""
    handler = _handlers.get(api_key)
    if handler is None:
        module = import_module(f"{_HANDLERS_PACKAGE}.{MODULES[api_key]}")
        _handlers.update(module.HANDLERS)
        handler = _handlers[api_key]
    return handler


def dispatch(broker: "Broker", channel: "Channel", exchange: "Exchange", frame: memoryview, received_s: float) -> Steps | None:
    """Decode the request in `frame` and hand it to its handler; `exchange` takes the framed response, now or later.

    What it returns, if anything, has to be run for the response to come; with a frame of more than `DECODED_AT_ONCE_MAX` bytes, which
    count for the connection from now on, at least to its first pause. `received_s`: when the frame was received.
    ProtocolError (also `UnservedError`) if the request cannot be read.
    """
    key, version, correlation_id = unpack_head(frame)
    if key not in MODULES:
        raise UnservedError(key, version)
    api_key = ApiKey(key)
    started_s = broker.clock.monotonic()
    answer = exchange.reply
    if not CODEC[api_key].includes(version):
        if api_key is ApiKey.API_VERSIONS:  # its header may be of a future version too: nothing more is read of it
            broker.counters.answered(api_key, received_s, started_s, (ErrorCode.UNSUPPORTED_VERSION,))
            answer(_unknown_api_versions(correlation_id))
            return None
        raise UnservedError(key, version)

    def count(response: Any) -> None:
        broker.counters.answered(api_key, received_s, started_s, error_codes(response))

    def reply(response: Any) -> None:
        count(response)
        answer(encode_answer(response, api_key, version, correlation_id))

    _, _, _, client_id, position = decode_request_header(frame)
    context = RequestContext(key, version, correlation_id, client_id, channel, exchange)
    if len(frame) > DECODED_AT_ONCE_MAX:
        memory, elements_max = broker.request_memory, broker.decoded_elements_max
        long = LongRequest(memory, exchange.holder, len(frame), memory.admission.others, elements_max)
        return _decoded_in_steps(broker, long, bytes(frame), position, context, answer, reply, count)
    # What follows a request is not looked at, as in Kafka: librdkafka 2.16 sends three zeros too many when it asks for all topics.
    request, _ = decoder(load(api_key).request, version)(frame, position, broker.decoded_elements_max)
    handler = handler_of(api_key)
    if _is_in_steps(handler):
        return _in_steps(handler, broker, request, context, answer, reply, count)
    return handler(broker, request, context, reply)


def _decoded_in_steps(
    broker: "Broker",
    long: LongRequest,
    frame: bytes,
    position: int,
    context: RequestContext,
    answer: Callable[[list[bytes]], object],
    reply: Reply,
    count: Reply,
) -> Steps:
    """A long request: decoded, handled and answered piece by piece."""
    api_key = ApiKey(context.api_key)
    decode = step_decoder(load(api_key).request, context.api_version)
    try:
        request, _ = yield from long.decoded(lambda most: decode(frame, position, most))
        yield from _in_steps(handler_of(api_key), broker, request, context, answer, reply, count)
    finally:
        long.end()


def _in_steps(
    handler: Handler,
    broker: "Broker",
    request: Any,
    context: RequestContext,
    answer: Callable[[list[bytes]], object],
    reply: Reply,
    count: Reply,
) -> Steps:
    """Run a handler in steps. A response that is there when it ends is encoded piece by piece too."""
    responses: list[Any] = []
    running = True

    def take(response: Any) -> None:
        if running:
            responses.append(response)
        else:
            reply(response)

    yield from handler(broker, request, context, take) or ()
    running = False
    for response in responses:
        yield None
        parts: list[Any] = [b"", response_header(context.api_key, context.api_version, context.correlation_id)]
        pieces: list[Any] = [b""]
        for _ in step_writer(type(response), context.api_version)(response, parts.append):
            if len(parts) >= PARTS_PER_STEP:
                pieces += joined(parts)
                parts.clear()
            yield None
        pieces += joined(parts)
        count(response)
        answer(_framed(pieces))


def encode_answer(response: Any, api_key: ApiKey, version: int, correlation_id: int) -> list[bytes]:
    """A response as the parts of a frame."""
    parts: list[Any] = [b"", response_header(api_key, version, correlation_id)]
    encode_into(parts, response, version)
    return _framed(parts)


def _framed(parts: list[Any]) -> list[bytes]:
    """`parts` after their size; one piece unless they are long, then those that are in memory once stay so."""
    size = sum(map(len, parts))
    parts[0] = _SIZE.pack(size)
    return [b"".join(parts)] if size <= JOINED_MAX else parts


def _unknown_api_versions(correlation_id: int) -> list[bytes]:
    """The answer to an ApiVersions request of a version that we do not know: version 0, error 35 (KIP-511)."""
    from moldau.broker.handlers.api_versions import unsupported_version

    return encode_answer(unsupported_version(), ApiKey.API_VERSIONS, 0, correlation_id)
