"""Batches that cost a reader much more than their bytes: made by hand, since no client of ours would write them."""

from moldau.protocol.records.builder import assemble
from moldau.protocol.records.compression import Compression, compress
from moldau.protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader
from moldau.protocol.varint import uvarint


def record(offset: int, headers: int, value: bytes = b"v") -> bytes:
    """A record with a key and so many empty headers, which takes two bytes of each."""
    body = b"\0\0" + uvarint(offset << 1) + b"\2k" + uvarint(len(value) << 1) + value + uvarint(headers << 1) + b"\0\1" * headers
    return uvarint(len(body) << 1) + body


def batch_of(*headers: int, base_offset: int = 0, compression: Compression = Compression.ZSTD, value: bytes = b"v") -> memoryview:
    """A batch with a record for each number, which is how many headers it has."""
    plain = b"".join(record(offset, count, value) for offset, count in enumerate(headers))
    payload = compress(plain, compression) if compression else plain
    size = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    count = len(headers)
    return memoryview(assemble(BatchHeader(base_offset, size, -1, 2, 0, compression, count - 1, 5, 5, -1, -1, -1, count), payload))
