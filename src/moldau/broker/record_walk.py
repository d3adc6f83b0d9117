"""Rules that need the records of a batch: loaded when the first topic has one.

* a compacted topic takes no record without a key (INVALID_RECORD);
* ``produce.validation=records``: sizes, counts and offset deltas of all records (INVALID_RECORD);
* ``message.timestamp.before.max.ms`` below its default, and with the full walk also the bound ahead (INVALID_TIMESTAMP);
* ``compression.type`` other than ``producer``: a batch in another codec is compressed anew. The timestamps, sequences and counts stay.
"""

from moldau.broker.partition import UNLIMITED, Partition
from moldau.model.errors import CorruptBatchError, ErrorCode, PeerError
from moldau.protocol.records.batch import decompressed_records, recompress
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import BatchHeader, read_header
from moldau.protocol.records.validate import validate_records

_CODECS = {"uncompressed": Compression.NONE, **{codec.name.lower(): codec for codec in Compression if codec}}


def walk(partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """The batch as it may be stored, and its header. PeerError."""
    rules, config = partition.rules, partition.log.config
    bounded = not config.append_time and config.message_timestamp_before_max_ms != UNLIMITED
    if config.compacts or rules.walk_records or bounded:
        _check_records(partition, batch, header, now_ms)
    codec = _CODECS.get(rules.compression_type, header.compression)
    if codec == header.compression:
        return batch, header
    records = decompressed_records(batch, header, rules.decompressed_bytes_max)
    stored = memoryview(recompress(records, header, Compression(codec), rules.compression_level))
    return stored, read_header(stored)


def _check_records(partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
    config, where = partition.log.config, partition.topic_partition
    try:
        summary = validate_records(decompressed_records(batch, header, partition.rules.decompressed_bytes_max), header)
    except CorruptBatchError:
        raise
    except PeerError as error:
        raise PeerError(error.code, f"{where}: {error.message}") from error
    if config.compacts and summary.first_null_key >= 0:
        raise PeerError(
            ErrorCode.INVALID_RECORD, f"{where}: record {summary.first_null_key} of the batch has no key, the topic is compacted"
        )
    if config.append_time:
        return
    least = now_ms - config.message_timestamp_before_max_ms
    if summary.timestamp_min < least and summary.timestamp_min >= 0:
        raise PeerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{where}: timestamp {summary.timestamp_min} lies more than {config.message_timestamp_before_max_ms} ms before {now_ms}",
        )
    if summary.timestamp_max > now_ms + config.message_timestamp_after_max_ms:
        raise PeerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{where}: timestamp {summary.timestamp_max} lies more than {config.message_timestamp_after_max_ms} ms after {now_ms}",
        )
