"""Produce versions 0 to 2: listed by ApiVersions for the sake of older librdkafka, always answered with UNSUPPORTED_VERSION.

Request: acks int16, timeout int32, topics [name string, partitions [index int32, records bytes]].
Answer: topics [name string, partitions [index int32, error int16, base offset int64, from version 2 append time int64]],
from version 1 throttle time int32.
"""

from struct import Struct

from moldau.model.errors import ErrorCode, ProtocolError
from moldau.protocol.fast.cursor import ProduceCursor

_INT32 = Struct(">i")
_INT16 = Struct(">h")
_ACKS_TIMEOUT = Struct(">hi")
_PARTITION = Struct(">ihq")
_APPEND_TIME = Struct(">q")


def refuse_old_produce(
    frame: memoryview, position: int, version: int, correlation_id: int, decoded_max: int, elements_max: int
) -> bytes | None:
    """The answer as a frame, None where the client asks for none (acks 0).

    ProtocolError if the request is malformed, if more than `decoded_max` bytes of it are not records, or if topics and partitions together
    are more than `elements_max`.
    """
    cursor = ProduceCursor(frame, position, version, decoded_max, elements_max)
    try:
        return _answer(cursor, version, correlation_id)
    except ProtocolError as error:
        raise cursor.explained(error) from None


def _answer(cursor: ProduceCursor, version: int, correlation_id: int) -> bytes | None:
    acks, _ = cursor.fields(_ACKS_TIMEOUT)
    topics = cursor.count("topics", 6)
    parts = [_INT32.pack(correlation_id), _INT32.pack(topics)]
    for _ in range(topics):
        name = cursor.topic(by_id=False)
        partitions = cursor.count("partitions", 8)
        parts += [_INT16.pack(len(name)), name, _INT32.pack(partitions)]
        for _ in range(partitions):
            (index,) = cursor.fields(_INT32)
            cursor.records()
            parts.append(_PARTITION.pack(index, ErrorCode.UNSUPPORTED_VERSION, -1))
            if version >= 2:
                parts.append(_APPEND_TIME.pack(-1))
    cursor.end("Produce request")
    if version >= 1:
        parts.append(_INT32.pack(0))
    body = b"".join(parts)
    return None if acks == 0 else _INT32.pack(len(body)) + body
