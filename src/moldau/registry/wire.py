"""The wire format of Confluent's serialisers: one byte 0, the id of the schema as a big-endian int32, then the body.

    00 00 00 00 07 | Avro binary, JSON text, or Protobuf with its message index

A message has the id of its schema and not the schema: a reader asks the registry for it.
"""

from struct import Struct

Octets = bytes | bytearray | memoryview

MAGIC = 0
HEADER_BYTES = 5

_HEADER = Struct(">bi")
SCHEMA_ID_MAX = 2**31 - 1


class WireFormatError(ValueError):
    """A value that is not framed: too short, another first byte, or an id that none can have."""


def frame(schema_id: int, body: Octets) -> bytes:
    """The framed value. WireFormatError for an id that does not fit."""
    if not 0 <= schema_id <= SCHEMA_ID_MAX:
        raise WireFormatError(f"schema id {schema_id} is not from 0 to {SCHEMA_ID_MAX}")
    return b"".join((_HEADER.pack(MAGIC, schema_id), body))


def unframe(value: Octets) -> tuple[int, memoryview]:
    """The id of the schema and a view of the body, nothing copied. WireFormatError names the fault in the first bytes."""
    view = memoryview(value)
    if len(view) < HEADER_BYTES:
        raise WireFormatError(f"a value of {len(view)} bytes has no room for the schema id: {HEADER_BYTES} bytes are needed")
    magic, schema_id = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise WireFormatError(f"the first byte is 0x{magic & 0xFF:02x}, not 0x00: the value does not carry a schema id")
    if schema_id < 0:
        raise WireFormatError(f"schema id {schema_id} is negative")
    return schema_id, view[HEADER_BYTES:]
