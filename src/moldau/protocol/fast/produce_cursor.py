"""Reading Produce requests of any form within a bound: records may fill a request, but all else becomes objects of many times its size.

A partition takes six bytes of a request and makes several hundred bytes of objects and answer. So at most `decoded_max` bytes of a
request, its header included, may be anything but records. What may be read ends there, and each stretch of records moves that end on by
its length: counts and sizes that go beyond are refused before anything is made of them. A request no longer than the bound is not
restricted. Topics and partitions together are at most `elements_max`.
"""

from struct import Struct

from moldau.model.errors import ProtocolError
from moldau.protocol.decoded_bounds import NO_BOUND
from moldau.protocol.fast.cursor import Cursor
from moldau.protocol.fast.produce_response import FIRST_FLEXIBLE
from moldau.protocol.headers import decode_request_header

_int32 = Struct(">i").unpack_from


class ProduceCursor(Cursor):
    """A place in a Produce request of this version."""

    __slots__ = ("_decoded_max", "_request", "_version")

    def __init__(self, request: memoryview, position: int, version: int, decoded_max: int, elements_max: int) -> None:
        readable = request if len(request) <= decoded_max else request[:decoded_max]
        super().__init__(readable, position, elements_max, flexible=version >= FIRST_FLEXIBLE)
        self._request = request
        self._version = version
        self._decoded_max = decoded_max

    def records(self) -> memoryview | None:
        """A view of records, or None for null."""
        length = self._length(_int32, 4)
        if length == -1:
            return None
        if length > 0 and self.view is not self._request:
            self.view = self._request[: len(self.view) + length]
        return self.take(length, "records")

    def explained(self, error: ProtocolError) -> ProtocolError:
        """`error`, which ended the reading; it names the bound if that is what cut the request off."""
        if len(self.view) == len(self._request):
            return error
        return _beyond_bound(len(self._request), self._version, self._decoded_max, error)


def produce_body(frame: memoryview, version: int, decoded_max: int = NO_BOUND) -> int:
    """Where the body of the Produce request in `frame` begins. ProtocolError if the header is malformed or longer than the bound."""
    try:
        return decode_request_header(frame[:decoded_max]).body_position
    except ProtocolError as error:
        if len(frame) <= decoded_max:
            raise
        raise _beyond_bound(len(frame), version, decoded_max, error) from None


def _beyond_bound(size: int, version: int, decoded_max: int, error: ProtocolError) -> ProtocolError:
    return ProtocolError(
        f"PRODUCE (key 0) version {version}: request of {size} bytes refused, "
        f"at most {decoded_max} beside records are taken (request.decoded.max.bytes): {error.message}"
    )
