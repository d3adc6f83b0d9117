"""However a stream is split into reads, byte by byte or not, whoever shares the buffer, and wherever a consumer stops: the same frames."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.framing import FrameReader, ReceiveBuffer
from support.sizes import sized

MAX_FRAME_BYTES = 1 << 20

thorough = settings(max_examples=sized(25, 3000), deadline=None)
payloads = st.lists(
    st.binary(max_size=40) | st.integers(0, 900).map(lambda size: bytes(index & 0xFF for index in range(size))), max_size=12
)

buffers = st.builds(ReceiveBuffer, st.integers(16, 600) | st.just(1 << 18), st.integers(20, 1000))


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in frames)


class Connection:
    """A stream on its way through a reader."""

    def __init__(self, shared: ReceiveBuffer, frames: list[bytes]) -> None:
        self.reader = FrameReader(shared, MAX_FRAME_BYTES)
        self.sent = frames
        self.stream = stream_of(frames)
        self.received: list[bytes] = []

    def receive(self, size: int) -> None:
        """A read of at most `size` bytes."""
        room = self.reader.get_buffer()
        assert len(room) > 0
        piece = self.stream[: min(size, len(room))]
        self.stream = self.stream[len(piece) :]
        room[: len(piece)] = piece
        self.reader.updated(len(piece))

    def consume(self, stop_after: int | None = None) -> None:
        """Take frames, all or so many."""
        if stop_after == 0:
            self.reader.stash()
            return
        for payload in self.reader.frames():
            self.received.append(bytes(payload))
            if stop_after is not None:
                stop_after -= 1
                if stop_after == 0:
                    self.reader.stash()
                    return


@thorough
@given(payloads, buffers, st.data())
def test_any_split_gives_the_same_frames(frames: list[bytes], shared: ReceiveBuffer, data: st.DataObject) -> None:
    connection = Connection(shared, frames)
    while connection.stream:
        connection.receive(data.draw(st.integers(1, 300)))
        connection.consume()
        assert connection.reader.pending_bytes == len(stream_of(frames)) - len(connection.stream) - len(stream_of(connection.received))
    assert connection.received == frames
    assert connection.reader.held_bytes == 0


@thorough
@given(payloads, buffers)
def test_byte_by_byte(frames: list[bytes], shared: ReceiveBuffer) -> None:
    connection = Connection(shared, frames)
    while connection.stream:
        connection.receive(1)
        connection.consume()
    assert connection.received == frames
    assert connection.reader.held_bytes == 0


@thorough
@given(st.lists(payloads, min_size=2, max_size=3), buffers, st.data())
def test_connections_that_take_turns_and_stop_at_any_frame(streams: list[list[bytes]], shared: ReceiveBuffer, data: st.DataObject) -> None:
    connections = [Connection(shared, frames) for frames in streams]
    while busy := [connection for connection in connections if connection.stream]:
        connection = data.draw(st.sampled_from(busy))
        connection.receive(data.draw(st.integers(1, 300)))
        connection.consume(data.draw(st.none() | st.integers(0, 3)))
    for connection in connections:
        connection.consume()
        assert connection.received == connection.sent
        assert connection.reader.held_bytes == 0
