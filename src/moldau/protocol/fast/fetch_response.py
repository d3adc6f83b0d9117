"""The answer to Fetch, versions 4 to 18, as parts: bytes, and the ranges of files that the records are in.

All sizes are known before the first part, since a range of a file knows its length. Bytes that stand side by side are one part, so an
answer with one partition is its header, its records, and the few bytes after them.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import NamedTuple

from moldau.model.steps import Pause, drain
from moldau.ports.filesystem import Bytes
from moldau.ports.transport import FileRange, Part
from moldau.protocol.fast import writing
from moldau.protocol.fast.writing import LeaderEndpoint
from moldau.protocol.varint import uvarint

FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
_FIRST_WITH_LOG_START_OFFSET = 5
_FIRST_WITH_SESSIONS = 7
_FIRST_WITH_READ_REPLICA = 11
_FIRST_WITH_NODE_ENDPOINTS = 16

Records = Part | Sequence[Part] | None
"""Records of a partition: bytes, a range of a file, several of these, or None for null."""


class FetchPartitionResult(NamedTuple):
    """What is answered for one partition. What a version does not have is left out.

    `aborted_transactions`: (producer id, first offset) of each, None for null. `diverging_epoch`: (epoch, end offset).
    `current_leader`: (broker, epoch). `snapshot_id`: (end offset, epoch). The last three are sent only when set.
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Records
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot_id: tuple[int, int] | None = None


TopicResults = tuple[bytes, Sequence[FetchPartitionResult]]
"""A topic's name as UTF-8 bytes, or its id from version 13 on; its partitions."""

_AT_ONCE = 128
"""Partitions that are encoded in one step."""
_MERGED_BYTES_MAX = 16 * 1024
"""Longer records stay a part of their own rather than be copied."""
_NULL = b"\xff\xff\xff\xff"
_NULL_FLEXIBLE = b"\0"

_FRAME = Struct(">ii")  # size, correlation id
_INT32 = Struct(">i")
_INT32_PAIR = Struct(">ii")
_INT64_PAIR = Struct(">qq")
_INT32_INT64 = Struct(">iq")
_INT64_INT32 = Struct(">qi")
_STATUS = Struct(">ihi")  # throttle time, error, session id
# Answer with one topic and one partition: size, correlation id, no tags, throttle time, error, session id, topics (2), and after the
# topic partitions (2), index, error, high watermark, last stable and log start offset, no list of aborted (0) or an empty one (1), read
# replica.
_ONE_HEAD = Struct(">iiBihiB")
_ONE_PARTITION = Struct(">BihqqqBi")
# The same in version 11: no tags, four bytes for each count and for the length of the records, two for the length of the topic's name.
_ONE_HEAD_11 = Struct(">iiihiih")
_ONE_PARTITION_11 = Struct(">iihqqqiii")
_PARTITION_4 = Struct(">ihqq")  # index, error, high watermark, last stable offset
_PARTITION_5 = Struct(">ihqqq")  # and log start offset
_PARTITION_12 = Struct(">ihqqqBi")  # and no list of aborted (0), read replica


def encode_fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[TopicResults],
    node_endpoints: Sequence[LeaderEndpoint] = (),
) -> list[Part]:
    """The whole framed answer. `node_endpoints`: addresses of the current leaders named in it (version 16 and later)."""
    if version >= _FIRST_WITH_READ_REPLICA and len(topics) == 1 and not node_endpoints:
        topic, partitions = topics[0]
        if len(partitions) == 1 and len(topic) < 0x7F:
            parts = _encode_one_range(version, correlation_id, throttle_ms, error_code, session_id, topic, partitions[0])
            if parts is not None:
                return parts
    return drain(encode_fetch_response_in_steps(version, correlation_id, throttle_ms, error_code, session_id, topics, node_endpoints))


def _encode_one_range(
    version: int, correlation_id: int, throttle_ms: int, error_code: int, session_id: int, topic: bytes, result: FetchPartitionResult
) -> list[Part] | None:
    """The whole answer if its only partition has a range of a file and nothing uncommon, else None."""
    partition, error, high_watermark, last_stable, log_start, records, aborted, read_replica, diverging, leader, snapshot = result
    if aborted or not isinstance(records, FileRange):
        return None
    if diverging is not None or leader is not None or snapshot is not None:
        return None
    if version < FIRST_FLEXIBLE:
        size = _ONE_HEAD_11.size + len(topic) + _ONE_PARTITION_11.size + records.length - 4
        head = _ONE_HEAD_11.pack(size, correlation_id, throttle_ms, error_code, session_id, 1, len(topic))
        fields = _ONE_PARTITION_11.pack(
            1, partition, error, high_watermark, last_stable, log_start, -1 if aborted is None else 0, read_replica, records.length
        )
        return [head + topic + fields, records]
    named = topic if version >= FIRST_WITH_TOPIC_IDS else bytes((len(topic) + 1,)) + topic
    fields = _ONE_PARTITION.pack(2, partition, error, high_watermark, last_stable, log_start, 0 if aborted is None else 1, read_replica)
    length = uvarint(records.length + 1)
    size = 19 + len(named) + len(fields) + len(length) + records.length
    head = _ONE_HEAD.pack(size, correlation_id, 0, throttle_ms, error_code, session_id, 2)
    return [head + named + fields + length, records, b"\0\0\0"]


def encode_fetch_response_in_steps(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[TopicResults],
    node_endpoints: Sequence[LeaderEndpoint] = (),
) -> Generator[Pause, None, list[Part]]:
    """As `encode_fetch_response`, for results of any number."""
    flexible = version >= FIRST_FLEXIBLE
    answer = _Parts()
    write = answer.write
    left = _AT_ONCE
    if flexible:
        write(writing.NO_TAGS)  # of the response header
    if version >= _FIRST_WITH_SESSIONS:
        write(_STATUS.pack(throttle_ms, error_code, session_id))
    else:
        write(_INT32.pack(throttle_ms))
    write(writing.count(len(topics), flexible=flexible))
    for topic, partitions in topics:
        write(writing.topic(topic, by_id=version >= FIRST_WITH_TOPIC_IDS, flexible=flexible))
        write(writing.count(len(partitions), flexible=flexible))
        for partition in partitions:
            _write_partition(answer, partition, version)
            left -= 1
            if not left:
                left = _AT_ONCE
                answer.join_run()
                yield None
        if flexible:
            write(writing.NO_TAGS)
    if flexible:
        write(writing.node_endpoints(node_endpoints if version >= _FIRST_WITH_NODE_ENDPOINTS else ()))
    return answer.finish(correlation_id)


def _write_partition(answer: "_Parts", result: FetchPartitionResult, version: int) -> None:
    flexible = version >= FIRST_FLEXIBLE
    partition, error, high_watermark, last_stable, log_start, records, aborted, read_replica, diverging, leader, snapshot = result
    if flexible and aborted is None:
        fields = _PARTITION_12.pack(partition, error, high_watermark, last_stable, log_start, 0, read_replica)
        if isinstance(records, FileRange) and diverging is leader is snapshot is None:  # the usual case
            answer.write(fields + uvarint(records.length + 1))
            answer.place(records, records.length)
            answer.write(writing.NO_TAGS)
            return
        answer.write(fields)
    else:
        if version >= _FIRST_WITH_LOG_START_OFFSET:
            answer.write(_PARTITION_5.pack(partition, error, high_watermark, last_stable, log_start))
        else:
            answer.write(_PARTITION_4.pack(partition, error, high_watermark, last_stable))
        answer.write(_aborted(aborted, flexible=flexible))
        if version >= _FIRST_WITH_READ_REPLICA:
            answer.write(_INT32.pack(read_replica))
    _write_records(answer, records, flexible=flexible)
    if flexible:
        answer.write(writing.NO_TAGS if diverging is leader is snapshot is None else _tags(result))


def _aborted(transactions: Sequence[tuple[int, int]] | None, *, flexible: bool) -> bytes:
    if transactions is None:
        return _NULL_FLEXIBLE if flexible else _NULL
    no_tags = writing.NO_TAGS if flexible else b""
    return writing.count(len(transactions), flexible=flexible) + b"".join([_INT64_PAIR.pack(*each) + no_tags for each in transactions])


def _write_records(answer: "_Parts", records: Records, *, flexible: bool) -> None:
    if records is None:
        answer.write(_NULL_FLEXIBLE if flexible else _NULL)
        return
    if isinstance(records, FileRange):
        answer.write(uvarint(records.length + 1) if flexible else _INT32.pack(records.length))
        answer.place(records, records.length)
        return
    parts = records if isinstance(records, (list, tuple)) else (records,)
    size = 0
    for part in parts:
        size += part.length if isinstance(part, FileRange) else len(part)
    answer.write(uvarint(size + 1) if flexible else _INT32.pack(size))
    for part in parts:
        if isinstance(part, FileRange):
            answer.place(part, part.length)
        elif len(part) > _MERGED_BYTES_MAX:
            answer.place(part, len(part))
        else:
            answer.write(part)


def _tags(result: FetchPartitionResult) -> bytes:
    fields = []
    if result.diverging_epoch is not None:
        fields.append((0, _INT32_INT64.pack(*result.diverging_epoch) + writing.NO_TAGS))
    if result.current_leader is not None:
        fields.append((1, _INT32_PAIR.pack(*result.current_leader) + writing.NO_TAGS))
    if result.snapshot_id is not None:
        fields.append((2, _INT64_INT32.pack(*result.snapshot_id) + writing.NO_TAGS))
    return writing.tags(fields)


class _Parts:
    """Parts being put together: small bytes gather in a run until a part that stays by itself ends it."""

    __slots__ = ("_parts", "_run", "_runs", "_size")

    def __init__(self) -> None:
        self._run: list[Bytes] = [b""]  # the place of size and correlation id
        self._runs = [self._run]
        self._parts: list[Part] = []
        self._size = 4  # the correlation id counts, the size itself does not

    def write(self, data: Bytes) -> None:
        self._run.append(data)
        self._size += len(data)

    def join_run(self) -> None:
        """Make one piece of the run so far: until then each has a header in memory, and a join takes 80 bytes more for each."""
        self._run[1:] = [b"".join(self._run[1:])]

    def place(self, part: Part, size: int) -> None:
        self._parts.append(part)
        self._size += size
        self._run = []
        self._runs.append(self._run)

    def finish(self, correlation_id: int) -> list[Part]:
        self._runs[0][0] = _FRAME.pack(self._size, correlation_id)
        parts: list[Part] = [b"".join(self._runs[0])]
        for part, run in zip(self._parts, self._runs[1:], strict=True):
            parts.append(part)
            if run:
                parts.append(b"".join(run))
        return parts
