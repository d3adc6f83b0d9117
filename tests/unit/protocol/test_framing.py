"""Frames come out whole, in order, in place, and a connection holds no more memory than what was sent to it is worth."""

from mmap import mmap

import pytest

from moldau.model.errors import ProtocolError
from moldau.protocol.framing import CARRY_BYTES_MAX, GROWTH, RECEIVE_BUFFER_BYTES, SPARE_BYTES, FrameReader, ReceiveBuffer

MAX_FRAME_BYTES = 100 << 20


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def reader(shared: ReceiveBuffer | None = None) -> FrameReader:
    return FrameReader(shared or ReceiveBuffer(), MAX_FRAME_BYTES)


def receive(connection: FrameReader, data: bytes) -> None:
    """One read of the transport; `data` has to fit in the room that is offered."""
    room = connection.get_buffer()
    room[: len(data)] = data
    connection.updated(len(data))


def frames_of(connection: FrameReader, data: bytes) -> list[bytes]:
    """As many reads as it takes, and all frames that come of them."""
    found = []
    while data:
        size = min(len(data), len(connection.get_buffer()))
        receive(connection, data[:size])
        found += [bytes(each) for each in connection.frames()]
        data = data[size:]
    return found


def test_several_frames_in_one_read() -> None:
    connection = reader()
    assert frames_of(connection, frame(b"one") + frame(b"") + frame(b"three")) == [b"one", b"", b"three"]
    assert connection.held_bytes == connection.pending_bytes == 0


def test_frames_are_views_into_the_shared_buffer() -> None:
    shared = ReceiveBuffer()
    connection = reader(shared)
    receive(connection, frame(b"one") + frame(b"two"))
    one, two = connection.frames()
    one[:] = b"ONE"
    assert bytes(shared.view[4:7]) == b"ONE"
    assert bytes(two) == b"two"


def test_a_cut_frame_waits_in_a_buffer_of_its_size() -> None:
    connection = reader()
    assert frames_of(connection, frame(b"one") + frame(b"four")[:6]) == [b"one"]
    assert connection.held_bytes == connection.pending_bytes == 6
    assert frames_of(connection, b"ur" + frame(b"five")) == [b"four", b"five"]
    assert connection.held_bytes == 0


def test_connections_share_the_buffer_in_turn() -> None:
    shared = ReceiveBuffer()
    connections = [reader(shared) for _ in range(3)]
    for number, connection in enumerate(connections):
        assert frames_of(connection, frame(b"connection %d" % number)[:9]) == []
    for number, connection in enumerate(connections):
        assert frames_of(connection, frame(b"connection %d" % number)[9:]) == [b"connection %d" % number]


def test_room_that_was_offered_and_not_used_changes_nothing() -> None:
    """A read that would block: another connection gets the same room."""
    shared = ReceiveBuffer()
    connection = reader(shared)
    assert frames_of(connection, frame(b"one")[:5]) == []
    connection.get_buffer()
    assert frames_of(reader(shared), frame(b"other")) == [b"other"]
    assert frames_of(connection, frame(b"one")[5:]) == [b"one"]


def test_an_empty_read_changes_nothing() -> None:
    connection = reader()
    frames_of(connection, frame(b"one")[:5])
    receive(connection, b"")
    assert list(connection.frames()) == []
    assert frames_of(connection, frame(b"one")[5:]) == [b"one"]


class TestBigFrames:
    def test_only_the_first_piece_is_copied(self) -> None:
        """After a full shared buffer a frame of 1 MB has its buffer, and reads go straight there."""
        connection = reader()
        data = frame(bytes(range(256)) * 4096)
        receive(connection, data[:RECEIVE_BUFFER_BYTES])
        assert list(connection.frames()) == []
        assert (connection.has_room, connection.held_bytes) == (True, SPARE_BYTES)
        room = connection.get_buffer()
        assert len(room) == len(data) - RECEIVE_BUFFER_BYTES
        room[:] = data[RECEIVE_BUFFER_BYTES:]
        connection.updated(len(room))
        (payload,) = connection.frames()
        assert payload == data[4:]
        assert payload.obj is room.obj
        assert connection.held_bytes == 0

    @pytest.mark.parametrize("piece", [1000, 20_000, 70_000, 250_000])
    def test_a_megabyte_takes_at_most_two_steps(self, piece: int) -> None:
        connection = reader()
        data = frame(bytes(1 << 20))
        sizes = []
        while data:
            size = min(piece, len(data), len(connection.get_buffer()))
            receive(connection, data[:size])
            data = data[size:]
            found = [len(each) for each in connection.frames()]
            sizes.append(connection.held_bytes)
        assert found == [1 << 20]
        assert len({size for size in sizes if size > CARRY_BYTES_MAX}) <= 2

    def test_what_follows_a_big_frame_is_read_with_the_next(self) -> None:
        connection = reader()
        assert frames_of(connection, frame(bytes(300_000)) + frame(b"next")) == [bytes(300_000), b"next"]

    def test_the_next_one_is_received_into_the_same_memory_whoever_sends_it(self) -> None:
        shared = ReceiveBuffer()
        one, other = reader(shared), reader(shared)
        data = frame(bytes(1_000_000))
        rooms = []
        for connection in (one, other, one):
            receive(connection, data[:200_000])
            assert list(connection.frames()) == []
            rooms.append(connection.get_buffer().obj)
            assert frames_of(connection, data[200_000:]) == [bytes(1_000_000)]
        assert rooms[0] is rooms[1] is rooms[2]

    def test_two_at_a_time_have_memory_of_their_own(self) -> None:
        shared = ReceiveBuffer()
        one, other = reader(shared), reader(shared)
        for connection, value in ((one, b"1"), (other, b"2")):
            receive(connection, frame(value * 1_000_000)[:200_000])
            assert list(connection.frames()) == []
        assert one.get_buffer().obj is not other.get_buffer().obj
        for connection, value in ((one, b"1"), (other, b"2")):
            assert frames_of(connection, value * (1_000_004 - 200_000)) == [value * 1_000_000]


class TestHostility:
    def test_a_claim_costs_what_was_sent(self) -> None:
        connection = reader()
        receive(connection, frame(bytes(MAX_FRAME_BYTES))[:10])
        assert list(connection.frames()) == []
        assert connection.held_bytes == 10

    def test_a_claim_costs_at_most_eight_times_what_was_sent(self) -> None:
        connection = reader()
        sent = MAX_FRAME_BYTES.to_bytes(4, "big")
        total = 0
        for _ in range(300):
            piece = sent + bytes(min(9973, len(connection.get_buffer())) - len(sent))
            sent = b""
            receive(connection, piece)
            total += len(piece)
            assert list(connection.frames()) == []
            assert connection.held_bytes <= GROWTH * total

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"\xff\xff\xff\xff", "frame of -1 bytes refused"),
            (b"\x80\0\0\0", "frame of -2147483648 bytes"),
            (
                (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
                f"frame of {MAX_FRAME_BYTES + 1} bytes refused, at most {MAX_FRAME_BYTES} are taken",
            ),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
            (b"GET / HTTP/1.1\r\n", "HTTP"),
            (b"POST /topics", "HTTP"),
            (b"PRI * HTTP/2.0", "HTTP"),
            (b"SSH-2.0-OpenSSH", "SSH"),
        ],
    )
    def test_a_size_beyond_the_bound_is_refused_at_once(self, data: bytes, text: str) -> None:
        for size in range(1, len(data) + 1):
            connection = reader()
            receive(connection, frame(b"good") + data[:size])
            frames = connection.frames()
            assert bytes(next(frames)) == b"good"
            if size < 4:
                assert list(frames) == []
            else:
                with pytest.raises(ProtocolError, match=text):
                    next(frames)

    def test_the_largest_frame_allowed_is_taken(self) -> None:
        connection = FrameReader(ReceiveBuffer(), 1000)
        assert frames_of(connection, frame(bytes(1000))) == [bytes(1000)]


class TestRequestsThatAreDecoded:
    """All but Produce have a bound of their own."""

    METADATA = bytes.fromhex("0003 000c")

    def reader(self) -> FrameReader:
        return FrameReader(ReceiveBuffer(), 100_000, 1000)

    def test_one_that_is_too_long_is_refused_as_soon_as_its_key_has_come(self) -> None:
        head = (1001).to_bytes(4, "big") + self.METADATA
        for size in range(1, len(head)):
            connection = self.reader()
            assert frames_of(connection, head[:size]) == []
            wanted = r"^METADATA \(key 3\) version 12: request of 1001 bytes refused, at most 1000 .*request.decoded.max.bytes"
            with pytest.raises(ProtocolError, match=wanted):
                frames_of(connection, head[size:])
        with pytest.raises(ProtocolError, match=r"unknown API \(key 9999\) version 1: request of 50000 bytes"):
            frames_of(self.reader(), frame((9999).to_bytes(2, "big") + b"\0\1" + bytes(49_996)))

    def test_the_longest_allowed_is_taken(self) -> None:
        longest = self.METADATA + bytes(996)
        assert frames_of(self.reader(), frame(longest)) == [longest]

    def test_produce_is_as_long_as_frames_may_be(self) -> None:
        assert frames_of(self.reader(), frame(bytes(100_000))) == [bytes(100_000)]
        with pytest.raises(ProtocolError, match="frame of 100001 bytes refused, at most 100000"):
            frames_of(self.reader(), frame(bytes(100_001)))


class TestTheEnd:
    def test_a_connection_that_is_gone_holds_no_memory(self) -> None:
        """Even where the connection itself stays for a while, in a cycle of references that the collector finds later."""
        connection = reader()
        cut = frame(b"x" * 4_000_000)
        for start in range(0, 1_000_000, 100_000):
            receive(connection, cut[start : start + 100_000])
            assert list(connection.frames()) == []
        assert connection.held_bytes >= 1_000_000
        connection.discard()
        assert (connection.held_bytes, connection.pending_bytes) == (0, 0)
        assert list(connection.frames()) == []

    def test_a_large_buffer_is_a_mapping_that_goes_back_to_the_system(self) -> None:
        shared = ReceiveBuffer()
        assert isinstance(shared.take(SPARE_BYTES + 1, SPARE_BYTES + 1).obj, mmap)
        assert isinstance(shared.take(SPARE_BYTES, SPARE_BYTES).obj, bytearray)


class TestMemory:
    """What a connection says that it holds is what it takes."""

    def test_all_of_a_buffer_counts_that_is_longer_than_the_frame(self) -> None:
        connection = reader()
        receive(connection, frame(bytes(160_000))[:150_000])
        assert list(connection.frames()) == []
        assert connection.held_bytes == SPARE_BYTES

    def test_it_has_room_once_its_buffer_takes_the_whole_frame(self) -> None:
        connection, data = reader(), frame(bytes(1_000_000))
        assert not connection.has_room
        for end, has_room in ((2, False), (50_000, False), (100_000, False), (180_000, False), (800_000, False), (820_000, True)):
            receive(connection, data[connection.received : end])
            assert list(connection.frames()) == []
            assert connection.has_room == has_room
        held = connection.held_bytes
        receive(connection, data[connection.received : -1])
        assert list(connection.frames()) == []
        assert (connection.held_bytes, connection.has_room) == (held, True)
        assert [len(each) for each in frames_of(connection, data[-1:])] == [1_000_000]
        assert not connection.has_room

    def test_where_memory_is_short_a_buffer_is_a_quarter_longer_than_what_has_come(self) -> None:
        connection, data = reader(ReceiveBuffer(is_short=lambda: True)), frame(bytes(3_000_000))
        sizes = set()
        for start in range(0, len(data), 8000):
            found = frames_of(connection, data[start : start + 8000])
            assert connection.held_bytes <= max(1.25 * (start + 8000), 8000)
            sizes.add(connection.held_bytes)
        assert [len(each) for each in found] == [3_000_000]
        assert len(sizes) < 40, "it is not copied at each read"


class TestBackPressure:
    def test_stopping_and_going_on(self) -> None:
        shared = ReceiveBuffer()
        slow, other = reader(shared), reader(shared)
        receive(slow, b"".join(frame(b"%d" % number) for number in range(100)) + frame(b"cut")[:5])
        for payload in slow.frames():
            assert bytes(payload) == b"0"
            break
        slow.stash()
        assert frames_of(other, frame(b"x" * 2000)) == [b"x" * 2000]
        for payload in slow.frames():
            assert bytes(payload) == b"1"
            break
        slow.stash()
        assert [bytes(payload) for payload in slow.frames()] == [b"%d" % number for number in range(2, 100)]
        assert slow.held_bytes == slow.pending_bytes == 5
        assert frames_of(slow, frame(b"cut")[5:]) == [b"cut"]

    def test_going_on_does_not_copy_again(self) -> None:
        connection = reader()
        receive(connection, b"".join(frame(b"%5d" % number) for number in range(20_000)))
        next(connection.frames())
        connection.stash()
        first = next(connection.frames()).obj
        connection.stash()
        assert next(connection.frames()).obj is first

    @pytest.mark.parametrize("count", [10, 20_000])
    def test_a_read_that_was_on_its_way_is_added(self, count: int) -> None:
        """Pausing may come too late for one more read, behind a backlog that is small or large."""
        connection = reader()
        receive(connection, b"".join(frame(b"%5d" % number) for number in range(count)))
        next(connection.frames())
        connection.stash()
        receive(connection, frame(b"late"))
        assert [bytes(payload) for payload in connection.frames()] == [b"%5d" % number for number in range(1, count)] + [b"late"]
        assert connection.held_bytes == 0

    def test_leaving_frames_behind_without_stash_is_a_mistake(self) -> None:
        connection = reader()
        receive(connection, frame(b"one") + frame(b"two"))
        next(connection.frames())
        with pytest.raises(AssertionError, match="stash"):
            connection.get_buffer()


def test_the_api_of_the_next_request_is_known_once_its_key_and_version_have_come() -> None:
    reader = FrameReader(ReceiveBuffer(4096), 1000)
    data = b"\0\0\0\5\0\3\0\7x" + b"\0\0\0\4\0\22\0\0"
    seen = []
    for position in range(len(data)):
        room = reader.get_buffer()
        room[:1] = data[position : position + 1]
        reader.updated(1)
        seen.append(reader.next_api)
        if position == len(data) - 1:
            assert [bytes(frame[1:2]) for frame in reader.frames()] == [b"\3", b"\22"]
        else:
            reader.stash()
    assert seen == [-1] * 7 + [3] * 10
    assert reader.next_api == -1
