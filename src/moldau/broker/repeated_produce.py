"""The shortest way of a Produce request: a producer's next request is nearly always like its last one.

Same client, same topic, same one partition: between the correlation id and the length of the records every byte is the same. So these
bytes of the last request are kept with what they mean, and a request that has them again needs no decoding: one comparison finds the
partition, one pack makes the answer. Whatever is unusual (other bytes, a partition with special rules, a batch that is refused, tagged
fields) gives None before anything has happened, and the general way (`handlers.produce`) takes the request. Both ways have the same
outcome for every input (property test). With batches of one message this saves a third of the work per message.

A request with a transactional id comes this way while its producer's transaction is ongoing in the partition, so all but the first of a
transaction.
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING

from moldau.broker.replicas.appends import AppendPipeline
from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.errors import ErrorCode, PeerError, StorageError
from moldau.protocol.fast.produce import ProducePartitionResult, encode_produce_response
from moldau.protocol.records.header import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, check_batch

if TYPE_CHECKING:
    from moldau.broker.handlers.produce import ProduceOutcome
    from moldau.ports.transport import Part

HEADER_BYTES_MAX = 1024
"""A connection keeps a header to compare with, so a longer one goes the general way each time."""
FIRST_WITH_LOG_START_OFFSET = 5
FIRST_WITH_ZSTD = 7
FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_IDS = 13
NAME_SIZE_MAX = 0x7E
"""Longer names take a second byte for their length in flexible versions; they go the general way."""

_ACKS_TIMEOUT_SIZE = 6
_BODY = 8  # of the frame: what comes before are API key, version and correlation id
_NO_TAGS = b"\0\0\0"  # of the partition, of the topic, of the request
_ZSTD_BIT = 4  # of the codec numbers 0 to 4 only zstd has it
_read_int32 = Struct(">i").unpack_from
_read_int64 = Struct(">q").unpack_from


class RepeatedProduce:
    """What the last Produce request of a connection looked like."""

    __slots__ = (
        "_bits",
        "_middle",
        "_pack",
        "_partition",
        "_prefix",
        "_records_at",
        "_size",
        "_suffix",
        "_topic",
        "_transactional",
        "acks",
        "version",
    )

    def __init__(self, prefix: bytes, version: int, acks: int, topic: bytes, partition: HostedPartition, *, transactional: bool) -> None:
        """`prefix`: the frame's bytes between the correlation id and the length of the records."""
        self.version = version
        self.acks = acks
        self._prefix = prefix
        self._records_at = _BODY + len(prefix)
        self._topic = topic
        self._partition = partition
        self._bits = TRANSACTIONAL_BIT | LOG_APPEND_TIME_BIT | (_ZSTD_BIT if version < FIRST_WITH_ZSTD else 0)
        self._transactional = TRANSACTIONAL_BIT if transactional else 0
        """Those of `_bits` that a batch has to have."""
        # The answer: size, correlation id, what never changes, base offset, append time, log start offset, what never changes.
        answer = encode_produce_response(version, 0, [(topic, [ProducePartitionResult(partition.index)])])
        if version >= FIRST_WITH_TOPIC_IDS:
            offsets_at = 8 + 2 + 16 + 1 + 6
        elif version >= FIRST_FLEXIBLE:
            offsets_at = 8 + 2 + 1 + len(topic) + 1 + 6
        else:
            offsets_at = 8 + 4 + 2 + len(topic) + 4 + 6
        self._size = len(answer) - 4
        self._middle = answer[8:offsets_at]
        self._suffix = answer[offsets_at + 24 :]
        self._pack = Struct(f">ii{len(self._middle)}sqqq{len(self._suffix)}s").pack

    @staticmethod
    def of(frame: memoryview, body: int, outcome: "ProduceOutcome") -> "RepeatedProduce | None":
        """What to keep of a request that went the general way; None if it was not of the usual kind. `body`: where its body starts."""
        if len(outcome.appended) != 1 or outcome.first_error is not None or outcome.version < FIRST_WITH_LOG_START_OFFSET:
            return None
        topic, results = outcome.topics[0]
        partition = outcome.appended[0][2]
        size = len(topic)
        if len(outcome.topics) != 1 or len(results) != 1 or not partition.is_plain or size > NAME_SIZE_MAX or body > HEADER_BYTES_MAX:
            return None
        named = (outcome.transactional_id or "").encode()
        if len(named) > NAME_SIZE_MAX:
            return None
        index = partition.index.to_bytes(4, "big")
        transactional = outcome.transactional_id is not None
        if outcome.version >= FIRST_FLEXIBLE:
            usual = bytes([len(named) + 1]) + named if transactional else b"\0"
            usual += frame[body + len(usual) : body + len(usual) + _ACKS_TIMEOUT_SIZE]
            usual += b"\2" + (b"" if outcome.version >= FIRST_WITH_TOPIC_IDS else bytes([size + 1])) + topic + b"\2" + index
        else:
            usual = len(named).to_bytes(2, "big") + named if transactional else b"\xff\xff"
            usual += frame[body + len(usual) : body + len(usual) + _ACKS_TIMEOUT_SIZE]
            usual += b"\0\0\0\1" + size.to_bytes(2, "big") + topic + b"\0\0\0\1" + index
        prefix = bytes(frame[_BODY : body + len(usual)])
        if prefix[body - _BODY :] != usual:
            return None
        return RepeatedProduce(prefix, outcome.version, outcome.acks, topic, partition, transactional=transactional)

    def take(self, staged: AppendPipeline, frame: memoryview, correlation_id: int, now_ms: int) -> bytes | None:
        """Stage the batch of a request of this version and give its answer, empty with acks 0. None if the request is not of this form."""
        start = self._records_at
        partition = self._partition
        if not partition.is_plain or frame[_BODY:start] != self._prefix:
            return None
        try:
            if self.version >= FIRST_FLEXIBLE:
                size = frame[start]
                start += 1
                if size >= 0x80:
                    shift = 7
                    size &= 0x7F
                    while (byte := frame[start]) >= 0x80:
                        size |= (byte & 0x7F) << shift
                        start += 1
                        shift += 7
                    size |= byte << shift
                    start += 1
                    if shift > 21:
                        return None
                stop = start + size - 1
                if stop + 3 != len(frame) or frame[stop:] != _NO_TAGS:
                    return None
                batch = frame[start:stop]
            else:
                (size,) = _read_int32(frame, start)
                start += 4
                if start + size != len(frame):
                    return None
                batch = frame[start:]
            header = check_batch(batch)
            size = len(batch)
            transactional = self._transactional
            limits = partition.limits
            if size > limits.max_plain_bytes or header[5] & self._bits != transactional or header[8] > now_ms + limits.after_max_ms:
                return None
            log = partition.log
            if transactional and not log.has_ongoing_transaction(header[9], header[10]):
                return None
            base_offset, _, append_time_ms, duplicate = log.append_as_leader(batch, header, now_ms)
        except (PeerError, StorageError, IndexError, struct_error):  # also too short: the general way says where
            return None
        if not duplicate:
            staged.note_staged(partition, size)
        if self.acks == 0:
            return b""
        return self._pack(self._size, correlation_id, self._middle, base_offset, append_time_ms, log.start_offset, self._suffix)

    def refuse(self, correlation_id: int, failures: Mapping[HostedPartition, StorageError], said: "Part") -> bytes | None:
        """The answer to a request taken here whose batch could not be written, instead of what was `said`; None if it could."""
        error = failures.get(self._partition)
        if error is None:
            return None
        if isinstance(said, bytes) and said and self._partition.has_written(*_read_int64(said, 8 + len(self._middle))):
            return None
        result = ProducePartitionResult(self._partition.index, ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
        return encode_produce_response(self.version, correlation_id, [(self._topic, [result])])
