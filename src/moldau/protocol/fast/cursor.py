"""Reading the parts of a request that have no fixed place, for the general ways of the fast decoders.

Every length is checked against the bytes left before it is used; whatever does not fit is a ProtocolError.

A partition takes six bytes of a request and makes several hundred bytes of objects and answer. So at most `decoded_max` bytes of a
request, its header included, may be anything but records. What may be read ends there, and each stretch of records moves that end on by
its length: counts and sizes that go beyond are refused before anything is made of them. A request no longer than the bound is not
restricted. Topics and partitions together are at most `elements_max`.
"""

from collections.abc import Callable, Mapping
from struct import Struct

from moldau.model.errors import ProtocolError
from moldau.protocol.codec.primitives import NO_BOUND, too_many_elements
from moldau.protocol.headers import decode_request_header
from moldau.protocol.varint import read_uvarint

UUID_BYTES = 16
STRING_BYTES_MAX = 32767
FIRST_FLEXIBLE = 9
"""Version of Produce."""

_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from


class FrameCursor:
    """A place in a request, moving forward. `flexible` says which of the two encodings lengths and counts have."""

    __slots__ = ("_elements_left", "_elements_max", "flexible", "position", "view")

    def __init__(self, view: memoryview, position: int, elements_max: int = NO_BOUND, *, flexible: bool) -> None:
        """`elements_max`: bound of all counts together, those of tagged fields too."""
        self.view = view
        self.position = position
        self.flexible = flexible
        self._elements_max = self._elements_left = elements_max

    def fields(self, layout: Struct) -> tuple[int, ...]:
        """The next fields of fixed size."""
        start = self.position
        self.position = start + layout.size
        if self.position > len(self.view):
            raise ProtocolError(f"{layout.size} bytes are wanted at byte {start}, but the request ends at {len(self.view)}")
        return layout.unpack_from(self.view, start)

    def count(self, what: str, bytes_each: int) -> int:
        """How many elements the array that starts here has; each takes at least `bytes_each` bytes."""
        count = self._length(_int32, 4)
        left = len(self.view) - self.position
        if not 0 <= count <= left // bytes_each:
            raise ProtocolError(f"{count} {what} at byte {self.position} cannot be in the {left} bytes left")
        self._elements_left -= count
        if self._elements_left < 0:
            too_many_elements(self._elements_max)
        return count

    def nullable_string(self) -> str | None:
        """A string or null."""
        length = self._length(_int16, 2)
        return None if length == -1 else _text(self._take_text(length))

    def string(self) -> str:
        """A string that may not be null."""
        return _text(self._take_text(self._length(_int16, 2)))

    def uuid(self) -> bytes:
        """The 16 bytes of an id."""
        return bytes(self.take(UUID_BYTES, "id"))

    def topic(self, *, by_id: bool) -> bytes:
        """A topic's name as checked UTF-8 bytes, or its id."""
        if by_id:
            return self.uuid()
        name = bytes(self._take_text(self._length(_int16, 2)))
        if not name.isascii():
            _text(name)
        return name

    def tags(self, known: Mapping[int, Callable[["FrameCursor"], None]] | None = None) -> None:
        """Read the tagged fields in `known`, skip the others. Nothing is there unless the encoding is flexible."""
        if not self.flexible:
            return
        view, position = self.view, self.position
        if position < len(view) and not view[position]:  # none, the usual case
            self.position = position + 1
            return
        count = self._uvarint()
        self._elements_left -= count
        if self._elements_left < 0:
            too_many_elements(self._elements_max)
        for _ in range(count):
            tag, size = self._uvarint(), self._uvarint()
            taken = self.take(size, "tagged field")
            read = None if known is None else known.get(tag)
            if read is not None:
                value = FrameCursor(taken, 0, flexible=True)
                read(value)
                value.end("tagged field")

    def end(self, what: str) -> None:
        """Nothing may follow."""
        if self.position != len(self.view):
            raise ProtocolError(f"{len(self.view) - self.position} bytes follow the {what}")

    def _uvarint(self) -> int:
        view, position = self.view, self.position
        if position < len(view) and view[position] < 0x80:
            self.position = position + 1
            return view[position]
        value, self.position = read_uvarint(view, position)
        return value

    def _length(self, fixed: Callable[[memoryview, int], tuple[int, ...]], fixed_size: int) -> int:
        if self.flexible:
            return self._uvarint() - 1
        if self.position + fixed_size > len(self.view):
            raise ProtocolError(f"length at byte {self.position} is cut off by the end of the request at {len(self.view)}")
        length = fixed(self.view, self.position)[0]
        self.position += fixed_size
        return length

    def _take_text(self, length: int) -> memoryview:
        if length > STRING_BYTES_MAX:
            raise ProtocolError(f"string of {length} bytes at byte {self.position} is longer than {STRING_BYTES_MAX}")
        return self.take(length, "string")

    def take(self, length: int, what: str) -> memoryview:
        """The next `length` bytes, which are named in the error if they are not there."""
        start = self.position
        stop = start + length
        if length < 0 or stop > len(self.view):
            raise ProtocolError(f"{what} of {length} bytes at byte {start} does not fit in a request that ends at {len(self.view)}")
        self.position = stop
        return self.view[start:stop]


def _text(encoded: memoryview | bytes) -> str:
    try:
        return str(encoded, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"string is not UTF-8: {error}") from error


class ProduceCursor(FrameCursor):
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
