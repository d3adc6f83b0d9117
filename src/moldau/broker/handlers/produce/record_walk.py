"""Rules that need the records of a batch: loaded when the first batch has to be checked.

* a compacted topic takes no record without a key (INVALID_RECORD);
* ``produce.validation=records``: sizes, counts and offset deltas of all records (INVALID_RECORD);
* ``message.timestamp.before.max.ms`` below its default, and where a batch is checked also the bound ahead (INVALID_TIMESTAMP);
* ``compression.type`` other than ``producer``: a batch in another codec is recompressed. The timestamps, sequences and counts stay.

Records that break a rule are named one by one, as by Kafka (KIP-467), so that a client fails these and may send the others again; the code
is INVALID_TIMESTAMP as soon as one of them has such a timestamp. A batch with a record that cannot be read is refused as a whole.

A walk touches nothing of the broker, and may run on another thread: see `walks`.
"""

from dataclasses import dataclass

from moldau.broker.replicas.hosted import HostedPartition
from moldau.broker.replicas.rules import UNLIMITED
from moldau.model.errors import BeyondBoundError, CorruptBatchError, ErrorCode, PeerError, RejectedRecordsError
from moldau.protocol.records.batch import decompressed_records, recompress
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.header import BatchHeader, read_header
from moldau.protocol.records.skim import skim
from moldau.protocol.records.validate import RecordsSummary, validate_records

RECORD_ERRORS_MAX = 10_000
"""Records of a batch that are named: librdkafka puts no more into one by default."""

_CODECS = {"uncompressed": Compression.NONE, **{codec.name.lower(): codec for codec in Compression if codec}}


@dataclass(frozen=True, slots=True)
class RecordRules:
    """What the records of a partition obey."""

    where: str
    walks: bool
    """Whether every record is looked at, or the batch is only recompressed."""
    late: bool
    """Whether the header claims a timestamp too far ahead."""
    compacts: bool
    bounds_time: bool
    before_max_ms: int
    after_max_ms: int
    codec: Compression | None
    """The one to store with; None for that of the producer."""
    level: int | None
    bytes_max: int
    decompressed_bytes_max: int
    record_headers_max: int
    batch_headers_max: int

    def recompresses(self, header: BatchHeader) -> bool:
        """Whether a batch with this header is recompressed."""
        return self.codec is not None and self.codec != header.compression

    @staticmethod
    def of(partition: HostedPartition, *, late: bool) -> "RecordRules":
        """Those of a partition now, for a batch whose header claims a timestamp too far ahead or not."""
        rules, config = partition.rules, partition.log.config
        bounded = not config.append_time and config.message_timestamp_before_max_ms != UNLIMITED
        return RecordRules(
            where=str(partition.topic_partition),
            walks=config.compacts or rules.walk_records or bounded or late,
            late=late,
            compacts=config.compacts,
            bounds_time=not config.append_time,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            codec=_CODECS.get(rules.compression_type),
            level=rules.compression_level,
            bytes_max=partition.limits.max_message_bytes,
            decompressed_bytes_max=partition.limits.decompressed_bytes_max,
            record_headers_max=rules.record_headers_max,
            batch_headers_max=rules.batch_headers_max,
        )


def walk(rules: RecordRules, batch: memoryview, header: BatchHeader, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """The batch as it may be stored, and its header. PeerError."""
    try:
        data = decompressed_records(batch, header, rules.decompressed_bytes_max)
    except BeyondBoundError as error:
        raise PeerError(ErrorCode.MESSAGE_TOO_LARGE, f"{rules.where}: {error.message}, the maximum") from error
    return walk_decompressed(rules, batch, data, header, now_ms)


def walk_decompressed(
    rules: RecordRules, batch: memoryview, data: bytes, header: BatchHeader, now_ms: int
) -> tuple[memoryview, BatchHeader]:
    """As `walk`, with the records decompressed. PeerError."""
    if rules.walks:
        _check(rules, data, header, now_ms)
    if rules.codec is None or not rules.recompresses(header):
        return batch, header
    stored = memoryview(recompress(data, header, rules.codec, rules.level))
    if len(stored) > rules.bytes_max:
        raise PeerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{rules.where}: batch of {len(batch)} bytes becomes {len(stored)} with {rules.codec.name.lower()},"
            f" max.message.bytes is {rules.bytes_max}",
        )
    return stored, read_header(stored)


def _check(rules: RecordRules, data: bytes, header: BatchHeader, now_ms: int) -> None:
    try:
        summary = validate_records(data, header, record_headers_max=rules.record_headers_max, batch_headers_max=rules.batch_headers_max)
    except BeyondBoundError as error:
        reason = f"{rules.where}: {error.message} (record.headers.max, batch.headers.max)"
        raise PeerError(ErrorCode.INVALID_RECORD, reason) from error
    except CorruptBatchError:
        raise
    except PeerError as error:
        raise PeerError(error.code, f"{rules.where}: {error.message}") from error
    if (rules.compacts and summary.first_null_key >= 0) or (rules.bounds_time and _is_out_of_bounds(rules, summary, now_ms)):
        _reject(rules, data, header, now_ms)
    if rules.late:
        raise PeerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"{rules.where}: timestamp {header.max_timestamp} of the batch header, which no record has, is more than"
            f" {rules.after_max_ms} ms after the broker's {now_ms}",
        )


def _is_out_of_bounds(rules: RecordRules, summary: RecordsSummary, now_ms: int) -> bool:
    """Whether a timestamp may be, of a record that has one (-1 is none)."""
    return summary.timestamp_min < now_ms - rules.before_max_ms or summary.timestamp_max > now_ms + rules.after_max_ms


def _reject(rules: RecordRules, data: bytes, header: BatchHeader, now_ms: int) -> None:
    """RejectedRecordsError, if a record breaks a rule."""
    errors: list[tuple[int, str]] = []
    code, no_key = ErrorCode.INVALID_RECORD, f"{rules.where}: the record has no key, the topic is compacted"
    bounds = f"is not within {rules.before_max_ms} ms before and {rules.after_max_ms} ms after the broker's {now_ms}"
    least, most = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    for index, (delta, _, is_without_key) in enumerate(skim(data, header.record_count)):
        timestamp = header.base_timestamp + delta
        if is_without_key and rules.compacts:
            errors.append((index, no_key))
        elif rules.bounds_time and timestamp != -1 and not least <= timestamp <= most:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append((index, f"{rules.where}: timestamp {timestamp} {bounds}"))
        if len(errors) >= RECORD_ERRORS_MAX:
            break
    if errors:
        index, reason = errors[0]
        others = f", and {len(errors) - 1} others" if len(errors) > 1 else ""
        raise RejectedRecordsError(code, f"record {index} of the batch{others} refused: {reason}", errors)
