"""The client's side of a connection, without I/O: requests become bytes, received bytes become responses.

Who drives it owns the connection and the deadlines, and opens it so:

    rpc = Rpc("client id", frame_bytes_max, in_flight_max)
    while not rpc.is_open:
        send(rpc.hello())
        while rpc.oldest is not None:
            rpc.buffer_updated(receive_into(rpc.get_buffer()))

That takes one round, or two with a broker that does not know our newest ApiVersions (KIP-511). Then `send` gives the bytes of a
request, and `buffer_updated` a response when its last byte has come. Responses come in the order of the requests; another order is an
error.

One object serves one connection. After an error from `buffer_updated` the position in the stream is lost, or the broker is none to talk
to: the connection has to be closed, and `give_up` names the requests whose outcome is not known.

So it works with exact reads: the size of a frame, then the frame. One that `reads_ahead` takes a short response with one read, and may
have more than one response after it: `next_response` gives them. The bytes of a short frame are copied then.

The size of a frame is only a claim. A frame up to `WHOLE_BYTES_MAX` gets a buffer at once, a longer one a mapping of its own, whose pages
take memory as they are filled. So nothing is copied, and the parts of a response that are `memoryview` keep the frame.
"""

from collections import deque
from functools import lru_cache
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Any, NamedTuple

from moldau import __version__
from moldau.model.errors import ErrorCode, PeerError, ProtocolError, known_error
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from moldau.protocol.headers import decode_response_header, request_header
from moldau.protocol.messages import load
from moldau.protocol.versions import CODEC, VersionRange

WHOLE_BYTES_MAX = 32 * 1024 * 1024
"""Up to so much the C library keeps memory that is freed: the next frame of that size costs a quarter of a new mapping."""

AHEAD_BYTES = 16 * 1024
"""Bytes that are received at once where responses are read ahead."""

HELLOS_KEPT = 4
"""Answers to `hello` that are kept decoded."""
_SIZE = Struct(">i")
_unpack_size = _SIZE.unpack_from
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
_CORRELATION_ID_MAX = 0x7FFFFFFF


class RpcRequest(NamedTuple):
    """A request that was sent."""

    api_key: ApiKey
    version: int
    correlation_id: int


class RpcResponse(NamedTuple):
    """A response, of the response class of its API, and what it answers."""

    call: RpcRequest
    response: Any


class Rpc:
    """See the module.

    Invariant: `_room` is where the next bytes go, never empty: after the bytes in `_start` of `_head` that are no frame yet, or the rest of
    a frame.
    """

    __slots__ = (
        "_client_id",
        "_correlation_id",
        "_frame",
        "_frame_bytes_max",
        "_head",
        "_held",
        "_hello",
        "_hello_version",
        "_in_flight",
        "_in_flight_max",
        "_room",
        "_versions",
    )

    def __init__(self, client_id: str | None, frame_bytes_max: int, in_flight_max: int, *, reads_ahead: bool = False) -> None:
        """`frame_bytes_max` bounds a response, `in_flight_max` the requests that wait for theirs."""
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._in_flight_max = in_flight_max
        self._in_flight: deque[RpcRequest] = deque()
        self._correlation_id = 0
        self._versions: dict[int, VersionRange] | None = None
        self._hello: RpcRequest | None = None
        self._hello_version = CODEC[ApiKey.API_VERSIONS].max
        self._head = memoryview(bytearray(AHEAD_BYTES if reads_ahead else _SIZE.size))
        self._held = 0
        """Bytes in `_head`."""
        self._frame: memoryview | None = None
        self._room = self._head

    @property
    def is_open(self) -> bool:
        """Whether the broker has said which versions it serves."""
        return self._versions is not None

    @property
    def broker_versions(self) -> dict[int, VersionRange]:
        """What the broker says it serves, by API key; empty until the connection is open."""
        return dict(self._versions or {})

    @property
    def oldest(self) -> RpcRequest | None:
        """The request whose response comes next; None if nothing is in flight."""
        return self._in_flight[0] if self._in_flight else None

    def hello(self) -> bytes:
        """The bytes that ask for the broker's versions, as long as the connection is not open."""
        assert self._versions is None, "the versions are known"
        assert self._hello is None, "the versions are asked for"
        message = load(ApiKey.API_VERSIONS).request(client_software_name="moldau", client_software_version=__version__)
        self._hello, data = self._send(ApiKey.API_VERSIONS, message, self._hello_version, answered=True)
        return data

    def send(
        self, api_key: ApiKey, message: Any, *, version: int | VersionRange | None = None, answered: bool = True
    ) -> tuple[RpcRequest, bytes]:
        """A request, and its bytes. `answered`: whether a response comes; to a Produce with acks=0 none does.

        `version` None takes the highest common one, a range the highest common one in it; a number is taken unchecked. PeerError
        (UNSUPPORTED_VERSION) if there is none in common, `UnencodableError` if it cannot carry the message; nothing is sent then.
        """
        assert self._versions is not None, "the versions are not known"
        chosen = version if isinstance(version, int) else self.version_for(api_key, version)
        return self._send(api_key, message, chosen, answered=answered)

    def version_for(self, api_key: ApiKey, within: VersionRange | None = None) -> int:
        """Highest version of an API that both sides know, and that is `within` a range if one is given.

        PeerError (UNSUPPORTED_VERSION) if there is none.
        """
        theirs, ours = (self._versions or {}).get(api_key), within or CODEC[api_key]
        if theirs is not None:
            version = min(theirs.max, ours.max)
            if version >= max(theirs.min, ours.min):
                return version
        offered = "does not serve it" if theirs is None else f"serves versions {theirs}"
        name = api_key.name.lower()
        raise PeerError(ErrorCode.UNSUPPORTED_VERSION, f"{name} is spoken here in versions {ours}, the broker {offered}")

    def get_buffer(self) -> memoryview:
        """Room for the next bytes, never empty; good until `buffer_updated`."""
        return self._room

    def buffer_updated(self, count: int) -> RpcResponse | None:
        """`count` bytes were put into that room: the response that they complete, if any; that to `hello` is kept here.

        ProtocolError if the bytes are no response to the oldest request, PeerError if the broker refuses to tell its versions.
        """
        if self._frame is None:
            self._held += count
            return self._taken()
        self._room = self._room[count:]
        if self._room:
            return None
        frame, self._frame, self._room = self._frame, None, self._head
        return self._answered(frame)

    def next_response(self) -> RpcResponse | None:
        """Where responses are read ahead: the next one that has come with the last."""
        return None if self._frame is not None else self._taken()

    def _taken(self) -> RpcResponse | None:
        """The response at the beginning of `_head`, if it is whole; a frame that does not fit in gets its buffer."""
        head, held = self._head, self._held
        self._room = head[held:]
        if held < _SIZE.size:
            return None
        (size,) = _unpack_size(head)
        if not 0 <= size <= self._frame_bytes_max:
            raise ProtocolError(f"a response of {size} bytes, at most {self._frame_bytes_max} are taken; is this a Kafka broker?")
        end = _SIZE.size + size
        if held < end <= len(head):
            return None
        frame = _room_for(size)
        taken = min(held, end)
        frame[: taken - _SIZE.size] = head[_SIZE.size : taken]
        self._held = held - taken
        head[: self._held] = head[taken:held]
        if taken < end:
            self._frame, self._room = frame, frame[taken - _SIZE.size :]
            return None
        self._room = head[self._held :]
        return self._answered(frame)

    def give_up(self) -> list[RpcRequest]:
        """The requests in flight, oldest first: their responses will not come, and whether they were carried out is not known."""
        calls = list(self._in_flight)
        self._in_flight.clear()
        return calls

    def _send(self, api_key: ApiKey, message: Any, version: int, *, answered: bool) -> tuple[RpcRequest, bytes]:
        assert len(self._in_flight) < self._in_flight_max, "too many requests are in flight"
        correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        header = request_header(api_key, version, correlation_id, self._client_id)
        body = encode(message, version)
        self._correlation_id = correlation_id
        call = RpcRequest(api_key, version, correlation_id)
        if answered:
            self._in_flight.append(call)
        return call, _SIZE.pack(len(header) + len(body)) + header + body

    def _answered(self, frame: memoryview) -> RpcResponse | None:
        if not self._in_flight:
            raise ProtocolError(f"a response of {len(frame)} bytes came where none was due")
        call = self._in_flight[0]
        correlation_id, position = decode_response_header(frame, call.api_key, call.version)
        if correlation_id != call.correlation_id:
            raise ProtocolError(f"a response to request {correlation_id} came where that to {call.correlation_id} was due")
        version = 0 if _is_version_refusal(call, frame, position) else call.version
        if call is self._hello:
            response, versions = _versions_in(bytes(frame[position:]), version)
            self._in_flight.popleft()
            self._take_versions(response, versions)
            return None
        response = decode(load(call.api_key).response, version, frame, position)
        self._in_flight.popleft()
        return RpcResponse(call, response)

    def _take_versions(self, response: Any, versions: dict[int, VersionRange]) -> None:
        """The answer to `hello`: the versions; or the one that the broker knows of the question, which is asked with once."""
        self._hello = None
        newest = CODEC[ApiKey.API_VERSIONS].max
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and self._hello_version == newest:
            known = [entry.max_version for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS]
            self._hello_version = max(0, min(newest - 1, *known)) if known else 0
        elif response.error_code:
            raise PeerError(known_error(response.error_code), f"refused to tell its versions, error {response.error_code}")
        else:
            self._versions = versions


@lru_cache(HELLOS_KEPT)
def _versions_in(body: bytes, version: int) -> tuple[Any, dict[int, VersionRange]]:
    """An answer to `hello`, and the versions in it. It is the same for each connection to brokers of one version."""
    response = decode(load(ApiKey.API_VERSIONS).response, version, body)
    return response, {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in response.api_keys}


def _room_for(size: int) -> memoryview:
    if size <= WHOLE_BYTES_MAX:
        return memoryview(bytearray(size))
    return memoryview(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS))


def _is_version_refusal(call: RpcRequest, frame: memoryview, position: int) -> bool:
    """Whether the broker does not know this version of ApiVersions: it then answers in version 0, whatever was asked (KIP-511)."""
    if call.api_key is not ApiKey.API_VERSIONS:
        return False
    return bytes(frame[position : position + 2]) == _UNSUPPORTED_VERSION
