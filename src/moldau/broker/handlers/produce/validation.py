"""What a produced batch must be before it may enter a log, beyond what its header alone says (`protocol.records.header.check_batch`).

Kafka's rules and codes, and its order: the size is compared before anything is looked at. The records are walked only where a rule needs
them: keys in a compacted topic, another codec than the topic's, ``produce.validation=records``, timestamps bounded to the past, and a
header that claims one too far ahead. See `record_walk` for these, and `walks` for where that happens.
"""

from typing import TYPE_CHECKING

from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.header import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchHeader, check_batch

if TYPE_CHECKING:
    from moldau.broker.handlers.produce.walks import BatchWalks, Walk
    from moldau.broker.replicas.hosted import HostedPartition

ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7


def prepare(
    walks: "BatchWalks",
    partition: "HostedPartition",
    records: memoryview | None,
    version: int,
    now_ms: int,
    *,
    transactional: bool = False,
    is_kept: bool = False,
) -> "tuple[memoryview, BatchHeader, Walk | None]":
    """The batch to append and its header, another one than was sent where the topic's codec differs; or with what has to run elsewhere
    before these are known, and the batch, or a copy of it unless it `is_kept`. PeerError says what is wrong.

    `transactional`: whether the request has a transactional id, without which no batch may be part of a transaction; `is_kept`: whether
    `records` are memory of the request's own.
    """
    if partition.is_internal:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic_partition} is internal: no client may write to it")
    check_no_mirror(partition)
    if records is None:
        raise PeerError(ErrorCode.INVALID_RECORD, f"{partition.topic_partition}: no record batch was sent for the partition")
    size = len(records)
    if size > partition.limits.max_message_bytes:  # before anything is looked at
        raise PeerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{partition.topic_partition}: batch of {size} bytes, max.message.bytes is {partition.limits.max_message_bytes}",
        )
    try:
        header = check_batch(records)
    except CorruptBatchError:
        raise
    except PeerError as error:
        raise PeerError(error.code, f"{partition.topic_partition}: {error.message}") from error
    check_header(partition, header, version)
    if header.attributes & TRANSACTIONAL_BIT and not transactional:
        raise PeerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{partition.topic_partition}: transactional batch in a request without a transactional id",
        )
    late = header.max_timestamp > now_ms + partition.limits.after_max_ms
    if not (partition.limits.walks_records or late):
        check_segment(partition, size)
        return records, header, None
    from moldau.broker.handlers.produce.record_walk import RecordRules

    walked = walks.begin(RecordRules.of(partition, late=late), records, header, now_ms, is_kept=is_kept)
    if not isinstance(walked, tuple):
        return walked.batch, header, walked
    check_segment(partition, len(walked[0]))
    return *walked, None


def header_of_refused(records: memoryview | None, bytes_max: int) -> BatchHeader | None:
    """The header of a batch of so many bytes that is refused with a retriable error before it is checked; None if it will be refused
    whenever it comes.
    """
    if records is None or len(records) > bytes_max:
        return None
    try:
        return check_batch(records)
    except PeerError:
        return None


def check_no_mirror(partition: "HostedPartition") -> None:
    """Clients may write to a partition. PeerError POLICY_VIOLATION for one that is a mirror's."""
    if partition.machine.is_mirror:
        raise PeerError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.topic_partition} is a mirror (mirror.source is set): only the mirror writes to it until `moldau mirror promote`",
        )


def check_segment(partition: "HostedPartition", size: int) -> None:
    """A batch of this size fits into a segment. PeerError RECORD_LIST_TOO_LARGE."""
    segment_bytes = partition.log.config.segment_bytes
    if size > segment_bytes:
        raise PeerError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"{partition.topic_partition}: batch of {size} bytes, segment.bytes is {segment_bytes}"
        )


def check_header(partition: "HostedPartition", header: BatchHeader, version: int) -> None:
    """The rules that need no more than the header. PeerError."""
    where = partition.topic_partition
    if header.compression == ZSTD and version < FIRST_VERSION_WITH_ZSTD:
        raise PeerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{where}: zstd needs Produce version {FIRST_VERSION_WITH_ZSTD}, not {version}"
        )
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise PeerError(ErrorCode.INVALID_TIMESTAMP, f"{where}: a producer may not set the timestamp type to LogAppendTime")
