"""Keys as numbers: the bucket of each, which must never change, and codes that are equal where keys are.

Numbers of any width have the hash of the same number of 64 bits, so a column that becomes wider leaves its keys in their buckets.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moldau.lake.merging.options import column_of

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_CODES_MAX = 2**31


def bucket_numbers(rows: Any, keys: Sequence[str], buckets: int) -> Any:
    """The bucket of each row (int64); -1 where a column of the key is null."""
    hashed = np.zeros(rows.num_rows, np.uint64)
    complete = np.ones(rows.num_rows, np.bool_)
    for name in keys:
        column = _one_array(column_of(rows, name))
        hashed = _mixed(hashed * _MULTIPLIER + _hash(column))
        complete &= column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(complete, (hashed % np.uint64(buckets)).astype(np.int64), -1)


def key_codes(rows: Any, keys: Sequence[str]) -> Any:
    """A number for each row, the same for two rows if and only if they have the same key (int64)."""
    codes = np.zeros(rows.num_rows, np.int64)
    count = 1
    for name in keys:
        encoded = _one_array(column_of(rows, name)).dictionary_encode()
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if count * len(encoded.dictionary) >= _CODES_MAX:
            found, codes = np.unique(codes, return_inverse=True)
            count = len(found)
        codes = codes * len(encoded.dictionary) + own
        count *= max(1, len(encoded.dictionary))
    return codes


def _one_array(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _hash(array: Any) -> Any:
    kind = array.type
    if pa.types.is_decimal(kind):
        array = array.cast(pa.string())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_date(kind):
        array = array.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    if pa.types.is_integer(array.type):
        return _mixed(pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64))
    return _hash_of_bytes(array.cast(pa.binary()))


def _hash_of_bytes(array: Any) -> Any:
    """Of each value the sum of its bytes times powers of a multiplier, and its length."""
    if not len(array):
        return np.zeros(0, np.uint64)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4).astype(np.int64)
    first, last = bounds[0], bounds[-1]
    lengths = np.diff(bounds)
    if first == last:
        return _mixed(lengths.view(np.uint64))
    octets = np.frombuffer(data, np.uint8)[first:last].astype(np.uint64)
    powers = np.full(int(lengths.max()), _MULTIPLIER, np.uint64).cumprod()
    places = np.arange(last - first) - np.repeat(bounds[:-1] - first, lengths)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((octets + np.uint64(1)) * powers[places])])
    return _mixed(sums[bounds[1:] - first] - sums[bounds[:-1] - first] + lengths.view(np.uint64))


def _mixed(numbers: Any) -> Any:
    """Each bit of the result depends on all bits of a number (splitmix64)."""
    numbers = numbers + _MULTIPLIER
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIX[0]
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _MIX[1]
    return numbers ^ (numbers >> np.uint64(31))
