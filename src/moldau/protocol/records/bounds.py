"""How many headers a reader takes. A header of two bytes becomes objects of a hundred, and 4 KB of zstd can hold twenty million of them."""

from typing import Never

from moldau.model.errors import BeyondBoundError

RECORD_HEADERS_MAX = 10_000
"""Headers of one record. A broker that looks into produced records refuses more by `record.headers.max`, with this default."""
BATCH_HEADERS_MAX = 1_000_000
"""Headers of all records of one batch. As above, `batch.headers.max`."""


def refuse_record_headers(where: str, count: int, count_max: int) -> Never:
    """`where` names the record."""
    raise BeyondBoundError(f"{where} has {count} headers, at most {count_max} are read")


def refuse_batch_headers(where: str, count_max: int) -> Never:
    """`where` names the record with which the batch has more."""
    raise BeyondBoundError(f"with {where} its batch has more than {count_max} headers, the maximum")
