"""What a replica takes of a record of a table's topic: commit, key, and the row after the change.

The rest of the envelope is passed over and never built: the row before the change above all, which no store needs. What cannot be read so
is read by `moldau.changelog.envelope`: records of other connectors, text that no UTF-8 has, and what is wrong, which it names.
"""

from typing import TYPE_CHECKING, Final

from moldau.changelog import envelope
from moldau.changelog.arrivals import ChangeRecord, TableRecord, Tombstone
from moldau.changelog.columns import row_from_json
from moldau.changelog.errors import RecordError
from moldau.changelog.values import Change, Op, Row
from moldau.model.extras import MissingExtraError
from moldau.model.identity import TopicPartition

try:
    from msgspec import MsgspecError, Struct
    from msgspec.json import Decoder
except ImportError as error:
    raise MissingExtraError("a replica of a changelog", "msgspec", "changelog") from error

if TYPE_CHECKING:
    from moldau.protocol.records.record import Record

_Json = bool | int | float | str | None | dict[str, str]
_OBJECTS: Final = frozenset([dict])
_NO_COLUMNS: Final = b"{}"
_WRAPPED: Final = b'{"schema"'
"""How a key begins that Kafka Connect's converter has written."""


class _Source(Struct, gc=False):
    changelog: str
    epoch: int
    commit: int


class _Envelope(Struct, gc=False):
    op: Op
    source: _Source
    after: dict[str, _Json] | None = None


_envelope: Final = Decoder(_Envelope).decode
_key: Final = Decoder(dict[str, _Json]).decode


def table_record(where: TopicPartition, table: str, record: "Record") -> TableRecord:
    """A record of the topic of `table`. RecordError."""
    key, value = record.key, record.value
    if not key or key == _NO_COLUMNS or key.startswith(_WRAPPED):
        return _whole(where, table, record)
    try:
        columns = tuple(_row(_key(key)).values())
        if value is None:
            return Tombstone(record.offset, columns)
        found = _envelope(value)
        after = None if found.after is None else _row(found.after)
    except (MsgspecError, RecursionError, ValueError):
        return _whole(where, table, record)
    source = found.source
    if source.commit == envelope.UNKNOWN or (after is None) != (found.op is Op.DELETE):
        return _whole(where, table, record)
    return ChangeRecord(record.offset, source.epoch, source.commit, Change(table, found.op, columns, None, after), len(key) + len(value))


def _row(found: dict[str, _Json]) -> Row:
    return found if _OBJECTS.isdisjoint(map(type, found.values())) else row_from_json(found)  # type: ignore[return-value]


def _whole(where: TopicPartition, table: str, record: "Record") -> TableRecord:
    """By all that is known of envelopes."""
    found = envelope.decode_change(*where, record.offset, record.key, record.value)
    if isinstance(found, envelope.Tombstone):
        return Tombstone(record.offset, found.key)
    if found.commit == envelope.UNKNOWN:
        raise RecordError(*where, record.offset, "the change has no number of a commit: it was not written by a publisher of a changelog")
    size = len(record.key or b"") + len(record.value or b"")
    return ChangeRecord(record.offset, found.epoch, found.commit, found.change._replace(table=table, before=None), size)
