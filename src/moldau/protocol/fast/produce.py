"""A faster codec of Produce: the request decoded without touching its records, the answer encoded in one piece, as the bytes of one whole
frame: size, response header, body.

One topic with one partition, what nearly every producer sends, takes two unpacks whatever the size of the records, and its answer two
packs. Everything else goes the general way. Versions 3 to 13: 9 and later are flexible, 13 names topics by id.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from moldau.model.errors import ProtocolError
from moldau.model.steps import UNFINISHED, Pause, drain
from moldau.protocol.codec.primitives import NO_BOUND
from moldau.protocol.fast import writing
from moldau.protocol.fast.cursor import FIRST_FLEXIBLE, FrameCursor, ProduceCursor
from moldau.protocol.fast.writing import LeaderEndpoint

FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_MESSAGES = 8
_FIRST_WITH_LEADERS = 10


class ProducePartitionResult(NamedTuple):
    """What became of the records of one partition.

    `log_append_time_ms` is -1 unless the broker sets the topic's timestamps. `record_errors` names records by their index in the
    batch. `current_leader` (broker, leader epoch) helps with NOT_LEADER_OR_FOLLOWER. What a version does not have is left out.
    """

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    current_leader: tuple[int, int] | None = None


TopicResults = tuple[bytes, Sequence[ProducePartitionResult]]
"""A topic's name as UTF-8 bytes, or its id from version 13 on; its partitions."""

# The answer for one partition without an error message: before and after the topic, which has the place of the comma.
# Flexible: size, correlation id, no tags, topics (2 for one), length of the name + 1, and then partitions (2), index, error, base offset,
# append time, log start offset, no record errors (1), null message (0), no tags of partition and topic, throttle time, no tags.
_FLEXIBLE_HEAD = Struct(">iiBBB")
_FLEXIBLE_HEAD_BY_ID = Struct(">iiBB")
_FLEXIBLE_TAIL = Struct(">BihqqqBBBBiB")
# Size, correlation id, topics (1), length of the name, and then partitions (1), index, error, base offset, append time,
# log start offset (from version 5), no record errors (0) and null message (-1) (from version 8), throttle time.
_HEAD = Struct(">iiih")
_TAIL_3 = Struct(">iihqqi")
_TAIL_5 = Struct(">iihqqqi")
_TAIL_8 = Struct(">iihqqqihi")

_PARTS_AT_ONCE = 1000
"""Pieces of an answer that are made in one step, and joined: a join takes 80 bytes for each while it lasts."""

_PARTITION = Struct(">ihqq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_INT32_PAIR = Struct(">ii")


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicResults],
    throttle_ms: int = 0,
    node_endpoints: Sequence[LeaderEndpoint] = (),
) -> bytes:
    """The whole answer. `node_endpoints`: addresses of the current leaders named in it (version 10 and later)."""
    if len(topics) == 1 and not node_endpoints:
        topic, partitions = topics[0]
        if len(partitions) == 1 and len(topic) < 0x7F:
            index, error, base, append_time, log_start, message, record_errors, leader = partitions[0]
            if message is None and leader is None and not record_errors:
                size = len(topic)
                if version >= FIRST_FLEXIBLE:
                    tail = _FLEXIBLE_TAIL.pack(2, index, error, base, append_time, log_start, 1, 0, 0, 0, throttle_ms, 0)
                    if version >= FIRST_WITH_TOPIC_IDS:
                        return _FLEXIBLE_HEAD_BY_ID.pack(size + 46, correlation_id, 0, 2) + topic + tail
                    return _FLEXIBLE_HEAD.pack(size + 47, correlation_id, 0, 2, size + 1) + topic + tail
                if version >= _FIRST_WITH_MESSAGES:
                    tail = _TAIL_8.pack(1, index, error, base, append_time, log_start, 0, -1, throttle_ms)
                elif version >= _FIRST_WITH_LOG_START_OFFSET:
                    tail = _TAIL_5.pack(1, index, error, base, append_time, log_start, throttle_ms)
                else:
                    tail = _TAIL_3.pack(1, index, error, base, append_time, throttle_ms)
                return _HEAD.pack(size + len(tail) + 10, correlation_id, 1, size) + topic + tail
    return drain(encode_produce_response_in_steps(version, correlation_id, topics, throttle_ms, node_endpoints))


def encode_produce_response_in_steps(
    version: int,
    correlation_id: int,
    topics: Sequence[TopicResults],
    throttle_ms: int = 0,
    node_endpoints: Sequence[LeaderEndpoint] = (),
) -> Generator[Pause, None, bytes]:
    """As `encode_produce_response`, for results of any number."""
    flexible = version >= FIRST_FLEXIBLE
    parts = [_INT32.pack(correlation_id)]
    if flexible:
        parts.append(writing.NO_TAGS)
    parts.append(writing.count(len(topics), flexible=flexible))
    pieces: list[bytes] = []
    for topic, partitions in topics:
        parts.append(writing.topic(topic, by_id=version >= FIRST_WITH_TOPIC_IDS, flexible=flexible))
        parts.append(writing.count(len(partitions), flexible=flexible))
        for partition in partitions:
            _write_partition(parts, partition, version)
            if len(parts) >= _PARTS_AT_ONCE:
                pieces.append(b"".join(parts))
                parts.clear()
                yield UNFINISHED
        if flexible:
            parts.append(writing.NO_TAGS)
    parts.append(_INT32.pack(throttle_ms))
    if flexible:
        parts.append(writing.node_endpoints(node_endpoints if version >= _FIRST_WITH_LEADERS else ()))
    pieces.append(b"".join(parts))
    return b"".join((_INT32.pack(sum(map(len, pieces))), *pieces))


def _write_partition(parts: list[bytes], result: ProducePartitionResult, version: int) -> None:
    flexible = version >= FIRST_FLEXIBLE
    parts.append(_PARTITION.pack(result.partition, result.error_code, result.base_offset, result.log_append_time_ms))
    if version >= _FIRST_WITH_LOG_START_OFFSET:
        parts.append(_INT64.pack(result.log_start_offset))
    if version >= _FIRST_WITH_MESSAGES:
        parts.append(writing.count(len(result.record_errors), flexible=flexible))
        for record_index, message in result.record_errors:
            parts.append(_INT32.pack(record_index))
            parts.append(writing.nullable_string(message, flexible=flexible))
            if flexible:
                parts.append(writing.NO_TAGS)
        parts.append(writing.nullable_string(result.error_message, flexible=flexible))
    if flexible:
        leader = result.current_leader if version >= _FIRST_WITH_LEADERS else None
        parts.append(writing.tags([] if leader is None else [(0, _INT32_PAIR.pack(*leader) + writing.NO_TAGS)]))


__all__ = [
    "PARTITIONS_AT_ONCE",
    "LongProduceError",
    "ProduceFrame",
    "ProducePartitionResult",
    "decode_produce",
    "decode_produce_in_steps",
    "encode_produce_response",
    "encode_produce_response_in_steps",
]

PARTITIONS_AT_ONCE = 64
"""Topics and partitions of a request, together, that are decoded in one step."""


class LongProduceError(Exception):
    """The request has more topics and partitions than one step decodes: `decode_produce_in_steps`."""


class ProduceFrame(NamedTuple):
    """A Produce request.

    Topics are named as the version does: UTF-8 bytes, or the 16 bytes of the id. Records are views into the request, None for null.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[bytes, list[tuple[int, memoryview | None]]]]
    mirror: str | None = None
    """The mirror that sends it, by a tagged field of ours."""
    known_ends: tuple[int, ...] = ()
    """By another one: for each partition an offset that its log has reached by what the mirror knows."""


_new_tuple = tuple.__new__

_ACKS_TIMEOUT = Struct(">hi")
_INDEX = Struct(">i")
# The fixed bytes of a request with one topic, one partition and no transactional id, up to the topic and after it. In flexible
# versions a null id is 0 and a length or count is one more than what it counts, so that 2 means one element.
_unpack_head = Struct(">hhiih").unpack_from  # null id (-1), acks, timeout, topics (1), length of the name
_unpack_partition = Struct(">iii").unpack_from  # partitions (1), index, length of the records
_unpack_flexible_head = Struct(">BhiBB").unpack_from  # null id (0), acks, timeout, topics (2), length of the name + 1
_unpack_flexible_partition = Struct(">Bi").unpack_from  # partitions (2), index
_MIRROR, _KNOWN_ENDS = 10000, 10001  # the tags
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the request


def decode_produce(
    view: memoryview, position: int, version: int, decoded_max: int = NO_BOUND, elements_max: int = NO_BOUND
) -> ProduceFrame:
    """Decode the body of a Produce request, which starts at `position` and fills `view`. LongProduceError if that takes more than one step.

    ProtocolError if it is malformed, if more than `decoded_max` bytes, header included, are not records, or if topics and partitions
    together are more than `elements_max`.
    """
    try:
        if version >= FIRST_FLEXIBLE:
            frame = _one_partition_flexible(view, position, version)
        else:
            frame = _one_partition(view, position)
    except (struct_error, IndexError):
        frame = None  # too short for one partition; the general way says where
    if frame is not None:
        return frame
    try:
        next(decode_produce_in_steps(view, position, version, decoded_max, elements_max))
    except StopIteration as end:
        decoded: ProduceFrame = end.value
        return decoded
    raise LongProduceError


def _one_partition_flexible(view: memoryview, position: int, version: int) -> ProduceFrame | None:
    """The whole request if it has the usual form, else None."""
    null_id, acks, timeout_ms, topics, name_size = _unpack_flexible_head(view, position)
    if null_id or topics != 2:
        return None
    if version >= FIRST_WITH_TOPIC_IDS:
        start = position + 8
        stop = start + 16
    else:
        start = position + 9
        stop = start + name_size - 1
        if not 0 < name_size < 0x80:
            return None
    topic = bytes(view[start:stop])
    partitions, index = _unpack_flexible_partition(view, stop)
    if partitions != 2 or (version < FIRST_WITH_TOPIC_IDS and not topic.isascii()):
        return None
    # The length of the records, in up to five bytes. 128 bytes to 2 MiB take two or three.
    start = stop + 5
    size = view[start]
    start += 1
    shift = 0
    if size >= 0x80:
        size &= 0x7F
        while True:
            byte = view[start]
            start += 1
            shift += 7
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            if shift == 28:
                return None
    stop = start + size - 1
    if size == 0 or view[stop:] != _NO_TAGS:
        return None
    frame: ProduceFrame = _new_tuple(ProduceFrame, (None, acks, timeout_ms, [(topic, [(index, view[start:stop])])], None, ()))
    return frame


def _one_partition(view: memoryview, position: int) -> ProduceFrame | None:
    """The whole request if it has the usual form, else None."""
    null_id, acks, timeout_ms, topics, name_size = _unpack_head(view, position)
    start = position + 14
    stop = start + name_size
    if null_id != -1 or topics != 1 or name_size < 0:
        return None
    topic = bytes(view[start:stop])
    partitions, index, size = _unpack_partition(view, stop)
    start = stop + 12
    if partitions != 1 or size < 0 or start + size != len(view) or not topic.isascii():
        return None
    frame: ProduceFrame = _new_tuple(ProduceFrame, (None, acks, timeout_ms, [(topic, [(index, view[start:])])], None, ()))
    return frame


def decode_produce_in_steps(
    view: memoryview, position: int, version: int, decoded_max: int = NO_BOUND, elements_max: int = NO_BOUND
) -> Generator[Pause, None, ProduceFrame]:
    """As `decode_produce`, for a request of any length."""
    cursor = ProduceCursor(view, position, version, decoded_max, elements_max)
    try:
        return (yield from _read(cursor, by_id=version >= FIRST_WITH_TOPIC_IDS))
    except ProtocolError as error:
        raise cursor.explained(error) from None


def _read(cursor: ProduceCursor, *, by_id: bool) -> Generator[Pause, None, ProduceFrame]:
    transactional_id = cursor.nullable_string()
    acks, timeout_ms = cursor.fields(_ACKS_TIMEOUT)
    topics: list[tuple[bytes, list[tuple[int, memoryview | None]]]] = []
    left = PARTITIONS_AT_ONCE
    for _ in range(cursor.count("topics", 3)):
        topic = cursor.topic(by_id=by_id)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(cursor.count("partitions", 6)):
            (index,) = cursor.fields(_INDEX)
            partitions.append((index, cursor.records()))
            cursor.tags()
            left -= 1
            if not left:
                left = PARTITIONS_AT_ONCE
                yield UNFINISHED
        cursor.tags()
        topics.append((topic, partitions))
        left -= 1
        if not left:
            left = PARTITIONS_AT_ONCE
            yield UNFINISHED
    tagged = _Tagged()
    cursor.tags({_MIRROR: tagged.read_mirror, _KNOWN_ENDS: tagged.read_known_ends})
    cursor.end("Produce request")
    return ProduceFrame(transactional_id, acks, timeout_ms, topics, tagged.mirror, tagged.known_ends)


class _Tagged:
    __slots__ = ("known_ends", "mirror")

    def __init__(self) -> None:
        self.mirror: str | None = None
        self.known_ends: tuple[int, ...] = ()

    def read_mirror(self, cursor: FrameCursor) -> None:
        self.mirror = cursor.nullable_string()

    def read_known_ends(self, cursor: FrameCursor) -> None:
        self.known_ends = tuple(cursor.fields(_INT64)[0] for _ in range(cursor.count("known ends", _INT64.size)))
