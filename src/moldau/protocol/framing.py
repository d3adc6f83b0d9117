"""Frames out of a stream of bytes: a size of four bytes, then that many bytes of payload. No I/O.

All connections of one thread receive into one :class:`ReceiveBuffer`, one after the other, each for the time of one call. What a read
leaves over moves into a buffer of the connection's own:

* A small beginning of a frame (up to 64 KiB) is kept as it is, in a buffer of exactly its size. At the next read it is put in front of the
  new bytes, in the shared buffer, so that the read can be as long as ever and bring further frames.
* A bigger one gets a buffer for that frame alone, and the following reads go straight there: only what came first is copied. The buffer is
  up to eight times what has come, so a frame of 1 MB is allocated at once after the first quarter, while a claim of 100 MB costs what
  was sent for it and no more than eight times as much; where memory is short, a quarter more than has come. One such buffer is kept for
  the next frame of up to about 1 MB, of any connection: filling a new one with zeros was a twentieth of the work for a stream of such
  frames.

Two bounds hold for a frame: one for all, and a narrower one for requests other than Produce, whose bytes are all decoded, into objects
of many times their size. Such a request is refused as soon as its API key has come, before the rest is received.

A connection between frames owns no buffer. Nothing is ever resized, so views handed out never stand in the way of growing: a bigger
buffer is another one.

The order of calls is `get_buffer`, `updated`, then `frames` to its end, or else `stash`, before any other connection of the thread
receives. A frame's view is good until the call that received it returns.
"""

from collections.abc import Callable, Iterator
from mmap import mmap
from struct import Struct

from moldau.model.errors import ProtocolError
from moldau.protocol.api_keys import ApiKey, api_name

SIZE_BYTES = 4
RECEIVE_BUFFER_BYTES = 256 * 1024
CARRY_BYTES_MAX = 64 * 1024
"""Up to so much of a frame is copied in front of the next read rather than given a buffer of its own."""
SPARE_BYTES = 1024 * 1024 + CARRY_BYTES_MAX
"""Size of the buffer that is kept: the longest batch that a topic takes by default, and what stands around it."""
GROWTH = 8
"""How many times what has come a buffer may be."""
SHORT_GROWTH = 1.25
"""The same where memory is short. Buffers still grow by a factor, so that what is copied is a few times the frame."""

_read_size = Struct(">i").unpack_from
_read_api = Struct(">hh").unpack_from
_API_BYTES = 4
"""API key and version, the first bytes of a request."""
_NO_API = -1

_HTTP_WORDS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ", b"HTTP")


class OwnMapping(mmap):
    """The buffer of one long frame, into which nothing else is received."""


class ReceiveBuffer:
    """Where the connections of one thread receive, each in turn; and the buffers for what does not fit."""

    __slots__ = ("_spare", "_spare_bytes", "is_short", "view")

    def __init__(
        self, size: int = RECEIVE_BUFFER_BYTES, spare_bytes: int = SPARE_BYTES, is_short: Callable[[], bool] = lambda: False
    ) -> None:
        self.view = memoryview(mmap(-1, size))  # takes memory only as far as it has been filled
        self.is_short = is_short
        """Whether memory is short: buffers then grow by `SHORT_GROWTH`."""
        self._spare: bytearray | None = None
        self._spare_bytes = spare_bytes

    def take(self, size: int, size_max: int) -> memoryview:
        """A buffer of `size` bytes, whatever is in them. It may take up to `size_max` bytes of memory if a new one has to be made.

        A larger one than is kept is a mapping of its own: its memory goes back to the system with it, where an allocator would keep it.
        """
        if size > self._spare_bytes:
            return memoryview(OwnMapping(-1, size))
        buffer, self._spare = self._spare, None
        if buffer is None and size_max >= self._spare_bytes:
            buffer = bytearray(self._spare_bytes)
        return memoryview(bytearray(size) if buffer is None else buffer)[:size]

    def give_back(self, view: memoryview) -> None:
        """What was received into `view` is not read any more once the call that received it has returned."""
        buffer = view.obj
        if isinstance(buffer, bytearray) and len(buffer) == self._spare_bytes:
            self._spare = buffer


class FrameReader:
    """One connection's stream of bytes, cut into frames.

    Invariant: the bytes received and not yet handed out are ``_view[_start:_end]``. Between calls `_view` is never the shared one.
    `_offer_start` says where in the shared buffer the offered room begins, or -1 when the room is in the connection's own.
    """

    __slots__ = (
        "_buffers",
        "_carry_max",
        "_decoded_max",
        "_end",
        "_frame_max",
        "_offer_start",
        "_shared",
        "_start",
        "_usual_max",
        "_view",
        "received",
    )

    def __init__(self, shared: ReceiveBuffer, max_frame_bytes: int, max_decoded_bytes: int | None = None) -> None:
        """`max_decoded_bytes`: bound of requests other than Produce; None for none of their own."""
        self._buffers = shared
        self._shared = shared.view
        self._frame_max = max_frame_bytes
        self._decoded_max = max_frame_bytes if max_decoded_bytes is None else max_decoded_bytes
        self._usual_max = min(self._frame_max, self._decoded_max)
        self._carry_max = min(CARRY_BYTES_MAX, len(shared.view) // 2)
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        self._offer_start = 0
        self.received = 0
        """Bytes received so far."""

    @property
    def pending_bytes(self) -> int:
        """Bytes received and not handed out: part of a frame, or after `stash` whole frames as well."""
        return self._end - self._start

    @property
    def held_bytes(self) -> int:
        """Memory that this connection holds for itself between calls; of a buffer that is longer than needed, all."""
        return 0 if self._view is None else memoryview(self._view.obj).nbytes

    @property
    def has_room(self) -> bool:
        """Whether the frame that has come in part fits into what this connection holds: the rest of it takes no further memory."""
        view, start = self._view, self._start
        return view is not None and self._end - start >= SIZE_BYTES and SIZE_BYTES + int(_read_size(view, start)[0]) <= len(view) - start

    @property
    def next_api(self) -> int:
        """API key of the request that comes next; -1 where that has not been received."""
        view, start = self._view, self._start
        if view is None or self._end - start < SIZE_BYTES + _API_BYTES:
            return _NO_API
        key: int = _read_api(view, start + SIZE_BYTES)[0]
        return key

    def get_buffer(self) -> memoryview:
        """Room for the next bytes, never empty."""
        view = self._view
        if view is None:
            self._offer_start = 0
            return self._shared
        assert view is not self._shared, "frames were left in the shared buffer: iterate to the end or stash"
        pending = self._end - self._start
        if pending <= self._carry_max:
            self._offer_start = pending
            self._shared[:pending] = view[self._start : self._end]
            return self._shared[pending:]
        if self._end == len(view):
            self._move(view)
        self._offer_start = -1
        assert self._view is not None
        return self._view[self._end :]

    def updated(self, count: int) -> None:
        """`count` bytes were put into what `get_buffer` gave last."""
        self.received += count
        if self._offer_start < 0:
            self._end += count
        else:
            self._view = self._shared
            self._start = 0
            self._end = self._offer_start + count

    def frames(self) -> Iterator[memoryview]:
        """Every whole frame received, without its size. ProtocolError for a size that is negative or beyond a bound.

        A caller that stops before the end calls `stash`; the frames left come with the next `frames`.
        """
        while True:
            view, start, end = self._view, self._start, self._end
            payload = start + SIZE_BYTES
            if view is None or end < payload:
                break
            size: int = _read_size(view, start)[0]
            if not 0 <= size <= self._usual_max:
                self._check_unusual(size, view[start:end])
            stop = payload + size
            if end < stop:
                break
            self._start = stop
            yield view[payload:stop]
        if view is self._shared and start == end:  # what nearly every read ends with, without a call
            self._view = None
            self._start = self._end = 0
        elif view is not None and (start == end or start > 0 or view is self._shared):
            self._move(view)

    def stash(self) -> int:
        """After stopping at a frame: move what is left in the shared buffer into one of the connection's own; own none if nothing is.
        The `held_bytes` then.
        """
        view = self._view
        if view is None:
            return 0
        if view is self._shared or self._start == self._end:
            self._move(view)
        return self.held_bytes

    def discard(self) -> None:
        """Give up what has come, and its memory: nothing more is received. The connection itself may be collected much later."""
        view, self._view = self._view, None
        if view is not None and view is not self._shared:
            self._buffers.give_back(view)
        self._start = self._end = 0

    def _check_unusual(self, size: int, received: memoryview) -> None:
        """ProtocolError unless the frame may have that size, as far as the bytes received so far show."""
        if not 0 <= size <= self._frame_max:
            raise ProtocolError(_size_refused(bytes(received[:SIZE_BYTES]), size, self._frame_max))
        if len(received) < SIZE_BYTES + _API_BYTES:
            return
        key, version = _read_api(received, SIZE_BYTES)
        if key != ApiKey.PRODUCE:
            raise ProtocolError(
                f"{api_name(key)} (key {key}) version {version}: request of {size} bytes refused, "
                f"at most {self._decoded_max} are taken (request.decoded.max.bytes)"
            )

    def _move(self, view: memoryview) -> None:
        """Take what is pending in `view` into a new buffer; none if nothing is."""
        pending = self._end - self._start
        if pending > self._carry_max:
            most = int((SHORT_GROWTH if self._buffers.is_short() else GROWTH) * pending)
            target = self._buffers.take(self._capacity(view, pending, most), most)
            target[:pending] = view[self._start : self._end]
            self._view = target
        elif pending:
            self._view = memoryview(bytearray(view[self._start : self._end]))
        else:
            self._view = None
        if view is not self._shared:
            self._buffers.give_back(view)
        self._start = 0
        self._end = pending

    def _capacity(self, view: memoryview, pending: int, most: int) -> int:
        """Bytes for a buffer that takes what is pending, more than a carry: all of a frame cut off, unless that is more than `most`."""
        size: int = _read_size(view, self._start)[0]
        wanted = SIZE_BYTES + size
        if wanted <= pending:  # whole frames that wait for a consumer who stopped
            return pending + self._carry_max
        return min(wanted, most)


def kept(frame: memoryview) -> memoryview:
    """The bytes of a frame for longer than the call that received it; a long one, which has a mapping to itself, is not copied."""
    return frame if isinstance(frame.obj, OwnMapping) else memoryview(bytearray(frame))


def _size_refused(head: bytes, size: int, size_max: int) -> str:
    if head[:2] == b"\x16\x03":
        seen = "; this looks like a TLS handshake on a plaintext port"
    elif head in _HTTP_WORDS:
        seen = "; this looks like HTTP"
    elif head == b"SSH-":
        seen = "; this looks like SSH"
    else:
        seen = ""
    return f"frame of {size} bytes refused, at most {size_max} are taken{seen}"
