"""What a produced batch must be before it may enter a log, beyond what its header alone says (`protocol.records.header.check_batch`).

Kafka's rules and codes. The records are walked only where a rule needs them: keys in a compacted topic, another codec than the
topic's, ``produce.validation=records``, timestamps bounded to the past. See `record_walk` for these.
"""

from typing import TYPE_CHECKING

from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.header import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchHeader, check_batch

if TYPE_CHECKING:
    from moldau.broker.partition import Partition

ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7


def prepare(
    partition: "Partition", records: memoryview | None, version: int, now_ms: int, *, transactional: bool = False
) -> tuple[memoryview, BatchHeader]:
    """The batch to append and its header; another one than was sent where the topic's codec differs. PeerError says what is wrong.

    `transactional`: whether the request has a transactional id, without which no batch may be part of a transaction.
    """
    if partition.is_internal:
        raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.topic_partition} is internal: no client may write to it")
    if records is None:
        raise PeerError(ErrorCode.INVALID_RECORD, f"{partition.topic_partition}: no record batch was sent for the partition")
    try:
        header = check_batch(records)
    except CorruptBatchError:
        raise
    except PeerError as error:
        raise PeerError(error.code, f"{partition.topic_partition}: {error.message}") from error
    check_header(partition, header, version, now_ms)
    if header.attributes & TRANSACTIONAL_BIT and not transactional:
        raise PeerError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"{partition.topic_partition}: transactional batch in a request without a transactional id",
        )
    batch = records
    if partition.walks_records:
        from moldau.broker.record_walk import walk

        batch, header = walk(partition, records, header, now_ms)
    if len(batch) > partition.max_message_bytes:
        raise PeerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{partition.topic_partition}: batch of {len(batch)} bytes, max.message.bytes is {partition.max_message_bytes}",
        )
    segment_bytes = partition.log.config.segment_bytes
    if len(batch) > segment_bytes:
        raise PeerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{partition.topic_partition}: batch of {len(batch)} bytes, segment.bytes is {segment_bytes}",
        )
    return batch, header


def check_header(partition: "Partition", header: BatchHeader, version: int, now_ms: int) -> None:
    """The rules that need no more than the header. PeerError."""
    where = partition.topic_partition
    if header.compression == ZSTD and version < FIRST_VERSION_WITH_ZSTD:
        raise PeerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{where}: zstd needs Produce version {FIRST_VERSION_WITH_ZSTD}, not {version}"
        )
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise PeerError(ErrorCode.INVALID_TIMESTAMP, f"{where}: a producer may not set the timestamp type to LogAppendTime")
    if header.max_timestamp > now_ms + partition.after_max_ms:
        raise PeerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{where}: timestamp {header.max_timestamp} lies more than {partition.after_max_ms} ms after the broker's {now_ms}",
        )
