"""The header that every tracked event begins with, read from the bytes without the rest of the event.

A tracked event is an Avro record in Confluent's wire format (0x00, schema id) whose first field is ``header``, so that the header is
at the same place in every event:

    00 | schema id, 4 bytes | time, zigzag varint | service | host | datacenter, each length and UTF-8 | guid, 16 bytes | the event's own

The *guid* is 8 random bytes of the producer instance, then a big-endian 64-bit count, so that `guid[:8]` names the instance. The
*checksum* of a set of events is the sum modulo 2^64 of `checksum.guid_hash`: it depends on no order, and Spark SQL's ``xxhash64(guid)``
gives the same hash (as a signed number), so that a table can be checked with one expression. All of this is on disk: do not change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

HEADER_FIELD: Final = "header"
HEADER_NAME: Final = "moldau.tracking.EventHeader"
GUID_BYTES: Final = 16
INSTANCE_BYTES: Final = 8
HASH_SEED: Final = 42
"""The seed of Spark SQL's xxhash64."""

HEADER_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "EventHeader",
    "namespace": "moldau.tracking",
    "doc": "When and where an event came to be, and which one it is.",
    "fields": [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "service", "type": "string"},
        {"name": "host", "type": "string"},
        {"name": "datacenter", "type": "string"},
        {"name": "guid", "type": {"type": "fixed", "name": "Guid", "size": GUID_BYTES}},
    ],
}
"""The schema of the header, as it stands in the schema of every tracked event."""

TIME_MIN_MS: Final = -62_135_596_800_000
TIME_MAX_MS: Final = 253_402_300_799_999
"""Event times lie in the years 1 to 9999."""

_FIRST_BYTE = 5
_TEXT_BYTES_MAX = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EventHeader:
    """The header of one event. `time_ms` is the event's time, in ms since 1970, UTC: when it happened, not when it was sent."""

    time_ms: int
    service: str
    host: str
    datacenter: str
    guid: bytes

    @property
    def time(self) -> datetime:
        """The event's time, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.time_ms)

    @property
    def instance(self) -> str:
        """The producer instance that it came from, as 16 hex digits."""
        return instance_of(self.guid)


def instance_of(guid: bytes) -> str:
    """The producer instance that made this guid, as 16 hex digits."""
    return guid[:INSTANCE_BYTES].hex()


def read_header(value: bytes | memoryview | None) -> EventHeader | None:
    """The header of a framed value; None for what cannot be a tracked event, by the bytes of the header alone."""
    if value is None or len(value) < _FIRST_BYTE + 4 + GUID_BYTES or value[0] != 0:
        return None
    try:
        zigzag, at = _varint(value, _FIRST_BYTE)
        time_ms = (zigzag >> 1) ^ -(zigzag & 1)
        if not TIME_MIN_MS <= time_ms <= TIME_MAX_MS:
            return None
        service, at = _text(value, at)
        host, at = _text(value, at)
        datacenter, at = _text(value, at)
    except (IndexError, ValueError):
        return None
    guid = bytes(value[at : at + GUID_BYTES])
    return EventHeader(time_ms, service, host, datacenter, guid) if len(guid) == GUID_BYTES else None


def is_tracked_schema(schema: Mapping[str, Any] | Sequence[Any] | str) -> bool:
    """Whether events of this Avro schema (as JSON has it) are tracked: a record whose first field is the header."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record" or not schema.get("fields"):
        return False
    first = schema["fields"][0]
    return first.get("name") == HEADER_FIELD and is_header_type(first.get("type"), namespace_of(schema))


def is_header_type(type_: Any, namespace: str = "") -> bool:
    """Whether a type in an Avro schema is the header's, written out or by its name, with these fields in this order.

    `namespace` is that of the record around it: a name without one stands in it, and registries leave out what follows from it. A
    timestamp without its logical type, and documentation and defaults, make no difference to the bytes.
    """
    if isinstance(type_, str):
        return full_name({"name": type_}, namespace) == HEADER_NAME
    if not isinstance(type_, Mapping) or type_.get("type") != "record":
        return False
    if full_name(type_, namespace) != HEADER_NAME:
        return False
    fields = [(field.get("name"), _plain(field.get("type"))) for field in type_.get("fields", ())]
    return fields == [("time", "long"), ("service", "string"), ("host", "string"), ("datacenter", "string"), ("guid", "fixed 16")]


def full_name(schema: Mapping[str, Any], around: str = "") -> str:
    """The name of a named type with its namespace; without one of its own it is in the one `around` it."""
    name = str(schema.get("name", ""))
    namespace = schema.get("namespace", around)
    return name if "." in name or not namespace else f"{namespace}.{name}"


def namespace_of(schema: Mapping[str, Any]) -> str:
    """The namespace of a named type, in which stand the types inside it."""
    return full_name(schema).rpartition(".")[0]


def _plain(type_: Any) -> Any:
    if not isinstance(type_, Mapping):
        return type_
    return f"fixed {type_.get('size')}" if type_.get("type") == "fixed" else _plain(type_.get("type"))


def _varint(value: bytes | memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits, and where it ends. IndexError, ValueError for bytes that are none."""
    result = value[at] & 0x7F
    shift = 7
    while value[at] & 0x80:
        at += 1
        result |= (value[at] & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a varint of more than 64 bits")
    return result, at + 1


def _text(value: bytes | memoryview, at: int) -> tuple[str, int]:
    zigzag, at = _varint(value, at)
    end = at + (zigzag >> 1)
    if zigzag & 1 or end > len(value) or end - at > _TEXT_BYTES_MAX:
        raise ValueError("a length that cannot be")
    return str(value[at:end], "utf-8"), end
