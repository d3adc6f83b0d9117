"""What a member of a consumer group says and is given, in the format of Kafka's consumers. No I/O.

Subscription and assignment both begin with a version (int16) and topics; later versions add fields behind those. Numbers are big-endian::

    subscription: version, topic count (int32), topic names (int16 length and text), ...
    assignment:   version, topic count (int32), for each: topic name, partition count (int32), partitions (int32 each), ...
"""

from struct import Struct, error

from moldau.model.identity import TopicPartition

_INT16, _INT32 = Struct(">h"), Struct(">i")


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Topics in a member's subscription, sorted; None where it is of another format, or cut off."""
    try:
        count, at = _INT32.unpack_from(metadata, 2)[0], 6
        topics = []
        for _ in range(_sane(count, metadata)):
            name, at = _text(metadata, at)
            topics.append(name)
    except (error, ValueError):
        return None
    return tuple(sorted(topics))


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Partitions in a member's assignment, sorted; None where it is of another format, or cut off. No bytes are no partitions."""
    if not assignment:
        return ()
    partitions = []
    try:
        count, at = _INT32.unpack_from(assignment, 2)[0], 6
        for _ in range(_sane(count, assignment)):
            name, at = _text(assignment, at)
            (size,) = _INT32.unpack_from(assignment, at)
            at += 4
            for _ in range(_sane(size, assignment)):
                partitions.append(TopicPartition(name, _INT32.unpack_from(assignment, at)[0]))
                at += 4
    except (error, ValueError):
        return None
    return tuple(sorted(partitions))


def _sane(count: int, data: bytes) -> int:
    if not 0 <= count <= len(data):
        raise ValueError("a count beyond the bytes that are there")
    return count


def _text(data: bytes, at: int) -> tuple[str, int]:
    size: int = _INT16.unpack_from(data, at)[0]
    end = at + 2 + size
    if size < 0 or end > len(data):
        raise ValueError("a name beyond the bytes that are there")
    return data[at + 2 : end].decode(), end
