"""A batch with fewer records, or with a delete horizon: what is kept is copied, in stretches where it can be.

Offsets never change, so base offset and last offset delta stay, also where the first or the last record goes, and with them the last
sequence of the producer. Timestamps are deltas to the base timestamp, which stays too; a delete horizon takes its place (KIP-534), and only
then every record is written anew.
"""

from moldau.log.cleaning.key_map import REPLACED, UnreadableRecordsError
from moldau.model.errors import ProtocolError
from moldau.protocol.records.builder import assemble
from moldau.protocol.records.compression import compress
from moldau.protocol.records.header import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    BatchHeader,
)
from moldau.protocol.records.walk import long_varint
from moldau.protocol.varint import read_varint, read_varlong, uvarint, varlong

NO_TIMESTAMP = -1


def select(records: bytes, position: int, end: int, states: bytes | bytearray, *, with_timestamps: bool) -> tuple[list[bytes], int]:
    """The records that are not replaced, in stretches, and the largest of their timestamp deltas (0 unless asked for).

    UnreadableRecordsError where the records are not as many as there are `states`, or do not end at `end`.
    """
    stretches: list[bytes] = []
    start, newest = -1, None
    p = position
    try:
        for state in states:
            n = records[p]
            if n < 0x80:
                q = p + 1
            elif records[p + 1] < 0x80:
                n += (records[p + 1] << 7) - 0x80
                q = p + 2
            else:
                n, q = long_varint(records, p)
            if state == REPLACED:
                if start >= 0:
                    stretches.append(records[start:p])
                    start = -1
            else:
                if start < 0:
                    start = p
                if with_timestamps:
                    t = records[q + 1]
                    if t >= 0x80:
                        t = long_varint(records, q + 1)[0]
                    t = ~(t >> 1) if t & 1 else t >> 1
                    if newest is None or t > newest:
                        newest = t
            p = q + (n >> 1)
    except IndexError:
        p = -1
    if p != end:
        raise UnreadableRecordsError
    if start >= 0:
        stretches.append(records[start:end])
    return stretches, newest or 0


def shift_timestamps(records: bytes, shift: int) -> bytes:
    """Records whose timestamp deltas are `shift` larger. UnreadableRecordsError."""
    shifted: list[bytes] = []
    position = 0
    try:
        while position < len(records):
            size, body = read_varint(records, position)
            delta, rest = read_varlong(records, body + 1)
            position = body + size
            if not rest <= position <= len(records):
                raise UnreadableRecordsError
            encoded = varlong(delta + shift)
            shifted += (uvarint((1 + len(encoded) + position - rest) << 1), records[body : body + 1], encoded, records[rest:position])
    except ProtocolError as error:
        raise UnreadableRecordsError from error
    return b"".join(shifted)


def rebuilt(header: BatchHeader, records: bytes, count: int, newest_delta: int, horizon_ms: int | None) -> bytearray:
    """The batch of `header` with these `count` records instead. `newest_delta`: the largest timestamp delta in them.

    With `horizon_ms` that is the base timestamp from now on. UnreadableRecordsError.
    """
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if not attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = base_timestamp + newest_delta
    if horizon_ms is not None:
        if not attributes & LOG_APPEND_TIME_BIT:  # else the deltas are not looked at
            records = shift_timestamps(records, base_timestamp - horizon_ms)
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
    payload = compress(records, attributes & COMPRESSION_MASK)
    return assemble(
        header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=count,
        ),
        payload,
    )


def emptied(header: BatchHeader) -> bytearray:
    """The batch without records: what is left are its offsets and its producer's sequence."""
    return assemble(
        header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD,
            attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )
