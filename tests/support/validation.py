"""The full walk over a batch that was not decompressed yet."""

from moldau.protocol.records.batch import decompressed_records
from moldau.protocol.records.header import read_header
from moldau.protocol.records.validate import RecordsSummary, validate_records


def validated(batch: memoryview, max_bytes: int = 1 << 27) -> RecordsSummary:
    """What the walk sees; its errors, and those of decompression."""
    header = read_header(batch)
    return validate_records(decompressed_records(batch, header, max_bytes), header)
