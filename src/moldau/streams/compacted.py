"""A compacted topic as a secondary store of a stream: the latest value of each key, up to offsets that are fixed for a batch.

A process reads the topic once, and then what came between two batches. What it keeps of a key is the value's bytes; they are decoded where
they are looked up, by Spark, as those of an input are.

A deletion is in the log for `delete.retention.ms`. So a process whose version is older than that, when records have come since, does not
bring it to the newest one: a deletion between the two may have been compacted away. It reads the topic from its beginning.

Compaction bounds repetition: a process that reads the topic from its beginning for a batch that another process has noted does not find a
value that was overwritten after the note and compacted since. `min.compaction.lag.ms` of the topic keeps such values for so long.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from moldau.client.admin import Admin, AdminResource, AdminResourceType
from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.tasks import RangeRead, ReadRules
from moldau.model.identity import TopicPartition
from moldau.streams.errors import StreamError
from moldau.streams.json_values import CORRUPT, is_corrupt, json_event, json_schema
from moldau.streams.lookups import Store, StoreVersion, added_names, with_lookup
from moldau.streams.outputs import key_text
from moldau.streams.versions import Note
from moldau.tracking.clock import now_ms

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TOPIC_VERSION = "_topic_version"
FORMATS: Final = ("bytes", "json")
STOP, SKIP = "stop", "skip"
_CLIENT_ID = "moldau-stream"
_KEY, _VALUE, _EVENT = "_lookup_key", "_lookup_value", "_lookup_event"
_OFFSETS, _STARTS, _ID = "offsets", "starts", "id"
_AT_MS, _DELETIONS_MS = "at_ms", "deletions_ms"
"""Of a note: when the topic ended there, and for how long it has deletions."""


@dataclass(frozen=True, slots=True)
class CompactedStore(Store):
    """A topic whose records are found by their keys. A record without a value deletes its key."""

    topic: str
    name: str
    directory: str
    brokers: str
    format: str = "json"
    schema: "StructType | None" = None
    """Of JSON objects."""
    undecodable: str = STOP

    def join(self, rows: Any, on: str | Sequence[str], *, how: str = "left_outer", version_column: str = TOPIC_VERSION) -> Any:
        """The rows with the fields of the latest value for their key (of format bytes: `value`), and the offsets up to which it was read.

        The key of a record is `on` as an output writes it: one column as text, several as a JSON object. Fields that the rows have as
        columns get `right_` before their names. Without a match: nulls, or with `how="inner"` no row. ValueError.
        """
        from pyspark.sql import functions
        from pyspark.sql.types import BinaryType, StringType, StructType

        keys = (on,) if isinstance(on, str) else tuple(on)
        names = added_names(rows, ["value"] if self.schema is None else self.schema.names, keys, version_column, how)
        added = StructType().add(_VALUE, BinaryType()).add(version_column, StringType())
        keyed = rows.withColumn(_KEY, key_text(rows, keys).cast("binary"))
        found = with_lookup(keyed, self, (_KEY,), added, dropped=(_KEY,), how=how)
        version = functions.col(version_column)
        ours = [functions.col(f"`{name}`") for name in rows.columns]
        if self.schema is None:
            return found.select(*ours, functions.col(_VALUE).alias(names["value"]), version)
        event = json_event(functions.col(_VALUE), self.schema)
        found = found.select(*ours, functions.col(_VALUE), event.alias(_EVENT), version)
        corrupt = functions.col(_VALUE).isNotNull() & is_corrupt(functions.col(_EVENT))
        if self.undecodable == STOP:
            where = (
                f"topic {self.topic}: the value of a key is no JSON object of the store's schema; undecodable='skip' makes nulls of it: "
            )
            text = functions.concat(functions.lit(where), functions.left(functions.col(_VALUE).cast("string"), functions.lit(200)))
            found = found.filter(functions.when(corrupt, functions.raise_error(text).cast("boolean")).otherwise(functions.lit(True)))
        fields = [functions.when(~corrupt, functions.col(f"{_EVENT}.`{name}`")).alias(names[name]) for name in self.schema.names]
        return found.select(*ours, *fields, version)

    def newest(self) -> Note:
        """StreamError if there is no such topic; WorldError, PeerError."""
        at_ms = now_ms()
        with ClusterLog(self.brokers, _CLIENT_ID, isolation_level=READ_COMMITTED) as source:
            known = source.topics([self.topic]).get(self.topic)
            if known is None:
                raise StreamError(f"there is no topic {self.topic} at {self.brokers}")
            partitions = [TopicPartition(self.topic, number) for number in range(known.partitions)]
            ends, starts = (source.offsets(dict.fromkeys(partitions, edge)) for edge in (LATEST, EARLIEST))
            noted = {key: {str(each.partition): of[each] for each in partitions} for key, of in ((_OFFSETS, ends), (_STARTS, starts))}
            return {**noted, _ID: known.id, _AT_MS: at_ms, _DELETIONS_MS: self._deletions_ms(source)}

    def _deletions_ms(self, source: ClusterLog) -> int:
        entries = Admin(source.cluster).describe_configs(AdminResource(AdminResourceType.TOPIC, self.topic))
        return int(next(entry.value for entry in entries if entry.name == "delete.retention.ms") or 0)

    def load(self, note: Note, before: StoreVersion | None) -> StoreVersion:
        """ReadError, DataLossError; WorldError, PeerError."""
        if not isinstance(before, _TopicVersion) or not before.leads_to(note, now_ms()):
            before = _TopicVersion({_OFFSETS: {}, _STARTS: {}, _ID: note[_ID]}, {})
        with ClusterLog(self.brokers, _CLIENT_ID, isolation_level=READ_COMMITTED) as source:
            return before.brought_to(note, source, self.topic)


class _TopicVersion(StoreVersion):
    def __init__(self, note: Note, values: dict[bytes, bytes]) -> None:
        self.note, self._values = note, values
        self.label = json.dumps(note[_OFFSETS], sort_keys=True, separators=(",", ":"))

    def leads_to(self, note: Note, time_ms: int) -> bool:
        """Whether only records are missing, and all of them are there. Where the log begins later now, values are gone that this version
        has; and deletions may be gone that came after it."""
        if self.note[_ID] != note[_ID] or not self.note[_STARTS].items() <= note[_STARTS].items():
            return False
        if self.note[_OFFSETS] != note[_OFFSETS] and time_ms - self.note.get(_AT_MS, 0) >= note.get(_DELETIONS_MS, 0):
            return False
        return all(offset <= note[_OFFSETS].get(number, -1) for number, offset in self.note[_OFFSETS].items())

    def brought_to(self, note: Note, source: ClusterLog, topic: str) -> "_TopicVersion":
        """The version of the note, which takes the values over from this one."""
        ends = {TopicPartition(topic, int(number)): offset for number, offset in note[_OFFSETS].items()}
        had = {where: self.note[_OFFSETS].get(str(where.partition), 0) for where in ends}
        changed = [where for where, end in ends.items() if end > had[where]]
        firsts = source.offsets(dict.fromkeys(changed, EARLIEST)) if changed else {}
        values, rules = self._values, ReadRules(wanted=frozenset(("key", "value")))
        for where in changed:
            wanted = OffsetRange(topic, where.partition, max(had[where], firsts[where]), ends[where])
            for columns in RangeRead(source, wanted, rules, topic_id=note[_ID]):
                for key, value in zip(columns.key.to_pylist(), columns.value.to_pylist(), strict=True):  # type: ignore[union-attr]  # wanted
                    if value is not None:
                        values[key] = value
                    else:
                        values.pop(key, None)
        values.pop(None, None)  # type: ignore[call-overload]  # a record without a key is of none
        return _TopicVersion(note, values)

    def columns(self, keys: Sequence[Any]) -> tuple[list[Any], Any]:
        encoded = keys[0].dictionary_encode()
        values = pa.array([self._values.get(key) for key in encoded.dictionary.to_pylist()], pa.binary())
        found = values.take(encoded.indices)
        return [found], found


def compacted_store(
    topic: str, name: str, directory: str, brokers: str, value_format: str, schema: "str | StructType | None", undecodable: str
) -> CompactedStore:
    """ValueError for what does not go together."""
    if value_format not in FORMATS:
        raise ValueError(f"topic {topic}: format of a store is {' or '.join(FORMATS)}, not {value_format!r}")
    if undecodable not in (STOP, SKIP):
        raise ValueError(f"topic {topic}: undecodable is stop or skip, not {undecodable!r}")
    if (value_format == "json") == (schema is None):
        raise ValueError(f"topic {topic}: format json needs the schema of its objects, and format bytes has none")
    known = None if schema is None else json_schema(schema)
    if known is not None and CORRUPT in known.names:
        raise ValueError(f"topic {topic}: {CORRUPT} cannot be a field of its objects")
    return CompactedStore(topic, name, directory, brokers, value_format, known, undecodable)
