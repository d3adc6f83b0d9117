"""A faster codec of Fetch, versions 4 to 18: 12 and later are flexible, 13 and later name topics by id."""

from collections.abc import Callable, Generator, Iterator
from struct import Struct
from typing import NamedTuple

from moldau.model.steps import Pause, drain
from moldau.protocol.codec.primitives import NO_BOUND
from moldau.protocol.fast.cursor import FrameCursor
from moldau.protocol.fast.fetch_response import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_IDS,
    FetchPartitionResult,
    Records,
    encode_fetch_response,
    encode_fetch_response_in_steps,
)

__all__ = [
    "FetchFrame",
    "FetchFramePartition",
    "FetchPartitionResult",
    "Records",
    "decode_fetch",
    "decode_fetch_in_steps",
    "encode_fetch_response",
    "encode_fetch_response_in_steps",
    "next_epoch",
]

NO_HIGH_WATERMARK = 2**63 - 1
NO_DIRECTORY = bytes(16)

NO_SESSION = 0
"""The session id of a request or response without a session (KIP-227)."""
NO_EPOCH = -1
"""The session epoch of a request without a session, or that closes one."""
EPOCH_MAX = 2**31 - 1

_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_LEADER_EPOCH = 9
_FIRST_WITH_RACK = 11
_FIRST_WITH_REPLICA_STATE = 15
_FIRST_WITH_DIRECTORIES = 17
_FIRST_WITH_HIGH_WATERMARK = 18


def next_epoch(epoch: int) -> int:
    """The session epoch after this one: 1 again after the greatest."""
    return 1 if epoch >= EPOCH_MAX else epoch + 1


class FetchFramePartition(NamedTuple):
    """What is wanted of one partition. Offsets and epochs are -1 where the version or the client does not say."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: bytes = NO_DIRECTORY
    high_watermark: int = NO_HIGH_WATERMARK


class FetchFrame(NamedTuple):
    """A Fetch request. `replica_id` is -1 for a consumer. Topics are UTF-8 bytes of the name, or the 16 bytes of the id."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[FetchFramePartition]]]
    forgotten: list[tuple[bytes, list[int]]]
    rack_id: str
    cluster_id: str | None


_AT_ONCE = 128
"""Partitions, or topics, that are decoded in one step."""

_REPLICA_ID = Struct(">i")
_LIMITS = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_SESSION = Struct(">ii")
_INDEX = Struct(">i")
_REPLICA_STATE = Struct(">iq")
_HIGH_WATERMARK = Struct(">q")

_PARTITION_4 = Struct(">iqi")  # index, fetch offset, max bytes
_PARTITION_5 = Struct(">iqqi")  # index, fetch offset, log start offset, max bytes
_PARTITION_9 = Struct(">iiqqi")  # index, leader epoch, fetch offset, log start offset, max bytes
_PARTITION_12 = Struct(">iiqiqi")  # index, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes

# A whole request for one partition of one topic by id, without tags and without the rack that ends it: (replica id before version 15,)
# max wait, min bytes, max bytes, isolation level, session id and epoch, topics (2 for one), topic id, partitions (2), the partition's
# fields, no tags of partition and topic, forgotten topics (1 for none), length of the rack + 1.
_ONE_13 = Struct(">iiiibiiB16sBiiqiqiBBBB")
_ONE_15 = Struct(">iiibiiB16sBiiqiqiBBBB")
# The tagged fields of a follower's request: one, number 1 of 13 bytes, the replica's id and epoch, none in it.
_OF_FOLLOWER = Struct(">BBBiqB")
# The same by name, in two parts: up to the length of the name, and from the number of partitions to the length of the rack.
_HEAD_11 = Struct(">iiiibiiih")
_BODY_11 = Struct(">iiiqqiih")
_HEAD_12 = Struct(">iiiibiiBB")
_BODY_12 = Struct(">BiiqiqiBBBB")


class _Tagged:
    """The tagged fields of a request, which may be missing."""

    __slots__ = ("cluster_id", "replica")

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.replica = (-1, -1)

    def read_cluster_id(self, cursor: FrameCursor) -> None:
        self.cluster_id = cursor.nullable_string()

    def read_replica_state(self, cursor: FrameCursor) -> None:
        replica_id, replica_epoch = cursor.fields(_REPLICA_STATE)
        self.replica = (replica_id, replica_epoch)
        cursor.tags()


class _TaggedOfPartition:
    __slots__ = ("directory_id", "high_watermark")

    def __init__(self) -> None:
        self.directory_id = NO_DIRECTORY
        self.high_watermark = NO_HIGH_WATERMARK

    def read_directory_id(self, cursor: FrameCursor) -> None:
        self.directory_id = cursor.uuid()

    def read_high_watermark(self, cursor: FrameCursor) -> None:
        (self.high_watermark,) = cursor.fields(_HIGH_WATERMARK)


def decode_fetch(view: memoryview, position: int, version: int, elements_max: int = NO_BOUND) -> FetchFrame:
    """Decode the body of a Fetch request, which starts at `position` and fills `view`.

    ProtocolError if it is malformed, or if topics and partitions together are more than `elements_max`.
    """
    if version >= _FIRST_WITH_RACK:
        one = _decode_one_by_id if version >= FIRST_WITH_TOPIC_IDS else _decode_one_by_name
        frame = one(view, position, version)
        if frame is not None:
            return frame
    return drain(decode_fetch_in_steps(view, position, version, elements_max))


def _decode_one_by_id(view: memoryview, position: int, version: int) -> FetchFrame | None:
    """The whole request if it has the form that a consumer or follower of one partition sends, else None."""
    layout = _ONE_15 if version >= _FIRST_WITH_REPLICA_STATE else _ONE_13
    end = position + layout.size
    if end >= len(view):
        return None
    (*replica, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, topic, partitions,
     partition, leader_epoch, offset, last_fetched_epoch, log_start, partition_bytes, tags, topic_tags, forgotten, rack_size,
    ) = layout.unpack_from(view, position)  # fmt: skip
    if topics != 2 or partitions != 2 or tags or topic_tags or forgotten != 1:
        return None
    stop, replica_id, replica_epoch = end + rack_size - 1, replica[0] if replica else -1, -1
    if not 0 < rack_size < 0x80:
        return None
    if version >= _FIRST_WITH_REPLICA_STATE and stop + _OF_FOLLOWER.size == len(view):
        count, number, size, replica_id, replica_epoch, inner = _OF_FOLLOWER.unpack_from(view, stop)
        if count != 1 or number != 1 or size != 13 or inner:
            return None
    elif stop + 1 != len(view) or view[stop]:
        return None
    rack = bytes(view[end:stop])
    if not rack.isascii():
        return None
    wanted = (partition, leader_epoch, offset, last_fetched_epoch, log_start, partition_bytes)
    limits = (max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch)
    return _frame_of_one(replica_id, limits, topic, wanted, rack, replica_epoch)


def _decode_one_by_name(view: memoryview, position: int, version: int) -> FetchFrame | None:
    """The same for versions 11 and 12, with a name in ASCII."""
    head, body = (_HEAD_11, _BODY_11) if version < FIRST_FLEXIBLE else (_HEAD_12, _BODY_12)
    start = position + head.size
    if start >= len(view):
        return None
    replica_id, *limits, topics, length = head.unpack_from(view, position)
    if version < FIRST_FLEXIBLE:
        stop = start + length
        end = stop + body.size
        if topics != 1 or length < 0 or end > len(view):
            return None
        partitions, partition, leader_epoch, offset, log_start, partition_bytes, forgotten, rack_size = body.unpack_from(view, stop)
        last_fetched_epoch = -1
        if partitions != 1 or forgotten or rack_size < 0 or end + rack_size != len(view):
            return None
        rack = bytes(view[end:])
    else:
        stop = start + length - 1
        end = stop + body.size
        if topics != 2 or not 0 < length < 0x80 or end >= len(view):
            return None
        (partitions, partition, leader_epoch, offset, last_fetched_epoch, log_start, partition_bytes, tags, topic_tags, forgotten,
         rack_size) = body.unpack_from(view, stop)  # fmt: skip
        if partitions != 2 or tags or topic_tags or forgotten != 1:
            return None
        if not 0 < rack_size < 0x80 or end + rack_size != len(view) or view[-1]:
            return None
        rack = bytes(view[end:-1])
    topic = bytes(view[start:stop])
    if not topic.isascii() or not rack.isascii():
        return None
    wanted = (partition, leader_epoch, offset, last_fetched_epoch, log_start, partition_bytes)
    return _frame_of_one(replica_id, tuple(limits), topic, wanted, rack)


def _frame_of_one(
    replica_id: int, limits: tuple[int, ...], topic: bytes, wanted: tuple[int, ...], rack: bytes, replica_epoch: int = -1
) -> FetchFrame:
    topics = [(topic, [_partition(wanted, NO_DIRECTORY, NO_HIGH_WATERMARK)])]
    frame: FetchFrame = tuple.__new__(FetchFrame, (replica_id, replica_epoch, *limits, topics, [], rack.decode("ascii"), None))
    return frame


def decode_fetch_in_steps(
    view: memoryview, position: int, version: int, elements_max: int = NO_BOUND
) -> Generator[Pause, None, FetchFrame]:
    """As `decode_fetch`, for a request of any length."""
    cursor = FrameCursor(view, position, elements_max, flexible=version >= FIRST_FLEXIBLE)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    tagged = _Tagged()
    if version < _FIRST_WITH_REPLICA_STATE:
        (replica_id,) = cursor.fields(_REPLICA_ID)
        tagged.replica = (replica_id, -1)
    max_wait_ms, min_bytes, max_bytes, isolation_level = cursor.fields(_LIMITS)
    session_id, session_epoch = cursor.fields(_SESSION) if version >= _FIRST_WITH_SESSIONS else (0, -1)
    topics: list[tuple[bytes, list[FetchFramePartition]]] = []
    least_bytes = _least_bytes(version)
    for _ in range(cursor.count("topics", 3)):
        topic = cursor.topic(by_id=by_id)
        left = cursor.count("partitions", least_bytes)
        partitions = _read_partitions(cursor, version, min(left, _AT_ONCE))
        while (left := left - _AT_ONCE) > 0:
            yield None
            partitions += _read_partitions(cursor, version, min(left, _AT_ONCE))
        topics.append((topic, partitions))
        cursor.tags()
        if not len(topics) % _AT_ONCE:
            yield None
    forgotten: list[tuple[bytes, list[int]]] = []
    if version >= _FIRST_WITH_SESSIONS:
        for _ in range(cursor.count("forgotten topics", 3)):
            topic = cursor.topic(by_id=by_id)
            forgotten.append((topic, list(cursor.fields(Struct(f">{cursor.count('partitions', 4)}i")))))
            cursor.tags()
            if not len(forgotten) % _AT_ONCE:
                yield None
    rack_id = cursor.string() if version >= _FIRST_WITH_RACK else ""
    if cursor.flexible:
        known = {0: tagged.read_cluster_id}
        if version >= _FIRST_WITH_REPLICA_STATE:
            known[1] = tagged.read_replica_state
        cursor.tags(known)
    cursor.end("Fetch request")
    limits = (max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch)
    frame: FetchFrame = tuple.__new__(FetchFrame, (*tagged.replica, *limits, topics, forgotten, rack_id, tagged.cluster_id))
    return frame


def _least_bytes(version: int) -> int:
    """What a partition takes at least."""
    if version >= FIRST_FLEXIBLE:
        return _PARTITION_12.size + 1
    if version >= _FIRST_WITH_LEADER_EPOCH:
        return _PARTITION_9.size
    return _PARTITION_5.size if version >= _FIRST_WITH_LOG_START_OFFSET else _PARTITION_4.size


def _read_partitions(cursor: FrameCursor, version: int, count: int) -> list[FetchFramePartition]:
    if version >= FIRST_FLEXIBLE:
        return [_read_partition(cursor, version) for _ in range(count)]
    if version >= _FIRST_WITH_LEADER_EPOCH:
        return [
            _partition((index, epoch, offset, -1, log_start, max_bytes), NO_DIRECTORY, NO_HIGH_WATERMARK)
            for index, epoch, offset, log_start, max_bytes in _rows(cursor, _PARTITION_9, count)
        ]
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        return [
            _partition((index, -1, offset, -1, log_start, max_bytes), NO_DIRECTORY, NO_HIGH_WATERMARK)
            for index, offset, log_start, max_bytes in _rows(cursor, _PARTITION_5, count)
        ]
    return [
        _partition((index, -1, offset, -1, -1, max_bytes), NO_DIRECTORY, NO_HIGH_WATERMARK)
        for index, offset, max_bytes in _rows(cursor, _PARTITION_4, count)
    ]


def _rows(cursor: FrameCursor, layout: Struct, count: int) -> Iterator[tuple[int, ...]]:
    """The next `count` rows of fixed size."""
    return layout.iter_unpack(cursor.take(count * layout.size, "partitions"))


def _read_partition(cursor: FrameCursor, version: int) -> FetchFramePartition:
    fields = cursor.fields(_PARTITION_12)
    view, position = cursor.view, cursor.position
    if position < len(view) and view[position] == 0:  # no tags, the usual case
        cursor.position = position + 1
        return _partition(fields, NO_DIRECTORY, NO_HIGH_WATERMARK)
    tagged = _TaggedOfPartition()
    known: dict[int, Callable[[FrameCursor], None]] = {}
    if version >= _FIRST_WITH_DIRECTORIES:
        known[0] = tagged.read_directory_id
    if version >= _FIRST_WITH_HIGH_WATERMARK:
        known[1] = tagged.read_high_watermark
    cursor.tags(known)
    return _partition(fields, tagged.directory_id, tagged.high_watermark)


def _partition(fields: tuple[int, ...], directory_id: bytes, high_watermark: int) -> FetchFramePartition:
    made: FetchFramePartition = tuple.__new__(FetchFramePartition, (*fields, directory_id, high_watermark))
    return made
