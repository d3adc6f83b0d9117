"""The careful walk over one record, which looks at every number and says what is wrong with it.

It is many times slower than the loops that decode and validate, and runs only for a record that they could not take.
"""

from typing import Never

from moldau.model.errors import BeyondBoundError, ErrorCode, PeerError, ProtocolError
from moldau.protocol.varint import VARLONG_BYTES_MAX, read_varint, read_varlong

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


def long_varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint of any length, still in zigzag form, and the position after it. IndexError if it is cut off or has over 64 bits."""
    value = shift = 0
    for p in range(position, position + VARLONG_BYTES_MAX):
        byte = data[p]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, p + 1
        shift += 7
    raise IndexError


def refuse_record(data: bytes, position: int, index: int) -> PeerError:
    """The error for the record at `position`, the one with the number `index` in its batch."""
    try:
        reason = _fault(data, position)
    except ProtocolError as error:
        reason = error.message
    return PeerError(ErrorCode.INVALID_RECORD, f"record {index} of the batch, at byte {position} of its records: {reason}")


def _fault(data: bytes, start: int) -> str:
    size, position = read_varint(data, start)
    end = position + size
    if size < 0 or end > len(data):
        return f"it has size {size}, but {len(data) - position} bytes are left"
    body = data[:end]
    _, position = read_varlong(body, position + 1)
    delta, position = read_varint(body, position)
    if delta < 0:
        return f"its offset delta is {delta}"
    for what in ("key", "value"):
        length, after = read_varint(body, position)
        if length < -1 or after + length > end:
            return f"its {what} has length {length}, but {end - after} bytes are left in the record"
        if length == -1 and after > position + 1:
            return f"the length -1 of its {what} is written in {after - position} bytes"
        position = after + max(length, 0)
    count, position = read_varint(body, position)
    if not 0 <= count <= end - position:
        return f"it says that it has {count} headers, but {end - position} bytes are left in the record"
    if count > RECORD_HEADERS_MAX:  # not walked here, where each would take a microsecond
        return f"it does not match its size or the record before it, and has {count} headers"
    for number in range(count):
        for what, least in (("key", 0), ("value", -1)):
            length, position = read_varint(body, position)
            if length < least or position + length > end:
                return f"the {what} of header {number} has length {length}, but {end - position} bytes are left in the record"
            position += max(length, 0)
    if position != end:
        return f"{end - position} of its {size} bytes are left over"
    return f"its offset delta {delta} is not what follows the one before"
