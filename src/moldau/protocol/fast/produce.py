"""Produce by hand: the request decoded without touching its records, the answer encoded in one piece.

One topic with one partition, what nearly every producer sends, takes two unpacks whatever the size of the records, and its answer two
packs. Everything else goes the general way. Versions 3 to 13: 9 and later are flexible, 13 names topics by id.
"""

from collections.abc import Generator
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from moldau.model.errors import ProtocolError
from moldau.model.steps import UNFINISHED, Pause
from moldau.protocol.decoded_bounds import NO_BOUND
from moldau.protocol.fast.cursor import ProduceCursor
from moldau.protocol.fast.produce_response import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_IDS,
    ProducePartitionResult,
    encode_produce_response,
    encode_produce_response_in_steps,
)

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


_new_tuple = tuple.__new__

_ACKS_TIMEOUT = Struct(">hi")
_INDEX = Struct(">i")
# The fixed bytes of a request with one topic, one partition and no transactional id, up to the topic and after it. In flexible
# versions a null id is 0 and a length or count is one more than what it counts, so that 2 stands for one element.
_unpack_head = Struct(">hhiih").unpack_from  # null id (-1), acks, timeout, topics (1), length of the name
_unpack_partition = Struct(">iii").unpack_from  # partitions (1), index, length of the records
_unpack_flexible_head = Struct(">BhiBB").unpack_from  # null id (0), acks, timeout, topics (2), length of the name + 1
_unpack_flexible_partition = Struct(">Bi").unpack_from  # partitions (2), index
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
    frame: ProduceFrame = _new_tuple(ProduceFrame, (None, acks, timeout_ms, [(topic, [(index, view[start:stop])])]))
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
    frame: ProduceFrame = _new_tuple(ProduceFrame, (None, acks, timeout_ms, [(topic, [(index, view[start:])])]))
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
    cursor.tags()
    cursor.end("Produce request")
    return ProduceFrame(transactional_id, acks, timeout_ms, topics)
