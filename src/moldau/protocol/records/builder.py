"""Record batches out of records, with the bytes that the Java producer writes for them."""

from collections.abc import Iterable, Sequence

from moldau.ports.filesystem import Bytes
from moldau.protocol.records.compression import Compression, compress
from moldau.protocol.records.header import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    pack_header,
    stamp_crc,
)
from moldau.protocol.records.record import Header, Record
from moldau.protocol.varint import uvarint, varint, varlong

_NULL = varint(-1)
_NO_ATTRIBUTES = b"\0"
_ZERO = uvarint(0)


class RecordBatchBuilder:
    """Takes records one by one and makes one batch of them.

    Base timestamp is that of the first record, max timestamp the largest, unless `log_append_time_ms` makes that the time of all.
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        log_append_time_ms: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = -1,
    ) -> None:
        self._base_offset = base_offset
        self._compression = compression
        self._level = level
        self._log_append_time_ms = log_append_time_ms
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._leader_epoch = leader_epoch
        self._attributes = (
            compression
            | (0 if log_append_time_ms is None else LOG_APPEND_TIME_BIT)
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
        )
        self._records = bytearray()
        self._count = 0
        self._last_delta = -1
        self._base_timestamp = 0
        self._max_timestamp = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the batch before compression."""
        return HEADER_SIZE + len(self._records)

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = (), offset: int | None = None
    ) -> None:
        """Add a record. `offset` is the one after the last unless given; offsets ascend."""
        delta = self._last_delta + 1 if offset is None else offset - self._base_offset
        assert delta > self._last_delta, f"offset {offset} does not ascend"
        if self._count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._records += encode_record(timestamp - self._base_timestamp, delta, key, value, headers)
        self._last_delta = delta
        self._count += 1

    def build(self) -> bytes:
        """The batch; it has at least one record."""
        assert self._count, "a batch without records"
        max_timestamp = self._max_timestamp if self._log_append_time_ms is None else self._log_append_time_ms
        payload = compress(self._records, self._compression, self._level)
        header = BatchHeader(
            self._base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(payload),
            self._leader_epoch,
            MAGIC,
            0,
            self._attributes,
            self._last_delta,
            self._base_timestamp,
            max_timestamp,
            *self._producer,
            self._count,
        )
        return bytes(assemble(header, payload))


def encoded_batch(
    records: Bytes,
    count: int,
    timestamp: int,
    compression: Compression,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> tuple[BatchHeader, bytearray]:
    """One batch of `count` records, at least one, of one time, as `encode_record` has made them for the offsets from 0 on; with its header
    but for the checksum.
    """
    payload = compress(records, compression) if compression else records
    attributes = compression | TRANSACTIONAL_BIT if transactional else compression
    length, delta = HEADER_SIZE - LOG_OVERHEAD + len(payload), count - 1
    header = BatchHeader(0, length, -1, MAGIC, 0, attributes, delta, timestamp, timestamp, producer_id, producer_epoch, -1, count)
    return header, assemble(header, payload)


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """One batch of `records`, which ascend by offset from `base_offset` on. At least one. Their timestamp types do not count."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        compression=compression,
        level=level,
        log_append_time_ms=log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        leader_epoch=leader_epoch,
    )
    for offset, timestamp, _, key, value, headers in records:
        builder.append(timestamp, key, value, headers, offset)
    return builder.build()


def recompress(records: bytes, header: BatchHeader, codec: Compression, level: int | None = None) -> bytearray:
    """The batch of `header` with its `records`, which are decompressed, compressed by `codec`; all else stays, but for length and checksum.

    They are not walked.
    """
    payload = compress(records, codec, level)
    return assemble(
        header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload), attributes=header.attributes & ~COMPRESSION_MASK | codec),
        payload,
    )


def assemble(header: BatchHeader, payload: Bytes) -> bytearray:
    """Header and records as one batch; the checksum is set."""
    batch = bytearray(pack_header(header))
    batch += payload
    stamp_crc(batch)
    return batch


def encode_record(timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> bytes:
    """A record as it is in a batch, by its distance from the batch's first."""
    time = varlong(timestamp_delta) if timestamp_delta else _ZERO
    delta = uvarint(offset_delta << 1) if offset_delta else _ZERO
    key_size, key = (_NULL, b"") if key is None else (uvarint(len(key) << 1), key)
    value_size, value = (_NULL, b"") if value is None else (uvarint(len(value) << 1), value)
    body = b"".join((_NO_ATTRIBUTES, time, delta, key_size, key, value_size, value, _encode_headers(headers) if headers else _ZERO))
    return uvarint(len(body) << 1) + body


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [uvarint(len(headers) << 1)]
    for name, content in headers:
        encoded = name.encode()
        parts += (uvarint(len(encoded) << 1), encoded)
        parts += (_NULL,) if content is None else (uvarint(len(content) << 1), content)
    return b"".join(parts)
