"""The records of ``_schemas``, applied in memory: look-ups are answered from here alone. No I/O.

A single record may say 2,147,483,647, the last number there is. Between it and those before it none was given, so ids continue
there: of 1, 2, 3 and 2,147,483,647 the next is 4. Smaller gaps are left alone: they were given once, and messages may carry them.

One thread applies records, in the order of the log; any thread asks. A lock makes each record one step: who asks sees all of it or nothing.

Indexes: versions by subject; for each context the subjects' versions by id and the id by fingerprint; who refers to a version.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from moldau.model.config.tables.registry import MEMORY_BYTES_MAX
from moldau.model.log_throttle import LogThrottle
from moldau.registry import records
from moldau.registry.limits import record_size
from moldau.registry.omitted_keys import OmittedKeys
from moldau.registry.records import NUMBER_MAX, Key, RecordError, SchemaKey, SchemaVersion, Write
from moldau.registry.schemas import languages
from moldau.registry.subjects import DEFAULT_CONTEXT, context_of, in_context_of, parse_subject

if TYPE_CHECKING:
    from moldau.registry.schemas.language import ParseSchema


def next_number(used: Collection[int]) -> int | None:
    """The next number; None if every one is taken."""
    highest = max(used, default=0)
    if highest < NUMBER_MAX:
        return highest + 1
    start, end = max(pairwise(sorted({0, *used})), key=lambda gap: gap[1] - gap[0])
    return start + 1 if start + 1 < end else None


log = logging.getLogger(__name__)

_CONFIRMATIONS_KEPT = 64
_RETIRED_KEPT = 20_000
_LINES_INTERVAL_S, _LINES_MAX = 60.0, 100


class RegistryState:
    """The registry's content up to the last record applied.

    Invariant: `held_bytes` is not above `memory_bytes_max`. A record that does not fit is left out, with what its key had before.
    """

    def __init__(self, parsed: "ParseSchema" = languages.parsed, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        """`parsed` is how decisions that are made over this state have its texts read; it holds none of it."""
        self.memory_bytes_max = memory_bytes_max
        self.left_out = 0
        """Records that did not fit. While there are any, ids and versions may be taken that are not known here."""
        self._left_out_keys = OmittedKeys()
        self.parsed = parsed
        self.lock = threading.RLock()
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.contexts: set[str] = set()
        self.noop_writer = ""
        """The URL in the last NOOP; a writer that takes over puts none there."""
        self.confirmations: deque[tuple[str, str]] = deque(maxlen=_CONFIRMATIONS_KEPT)
        """Nonces and URLs of the last NOOPs."""
        self.held_bytes = 0
        """Memory of all that is kept, about."""
        self._sizes: dict[Key, int] = {}
        self._subjects: dict[str, dict[int, SchemaVersion]] = {}
        self._namesakes: dict[str, set[str]] = {}
        """Subjects outside of the default context by their name."""
        self._by_id: dict[str, dict[int, dict[str, int]]] = {}
        self._ids: dict[str, dict[bytes, int]] = {}
        self._referrers: dict[SchemaKey, set[SchemaKey]] = {}
        self._id_max: dict[str, int] = {}
        self._retired: dict[tuple[str, int], None] = {}
        """Contexts and ids of the last schemas that were deleted for good."""
        self._gap_told: set[str] = set()
        self._lines = LogThrottle(_LINES_INTERVAL_S, _LINES_MAX)

    # Look-ups

    def versions(self, subject: str) -> list[SchemaVersion]:
        """All versions of a subject, deleted ones too, rising."""
        with self.lock:
            found = self._subjects.get(subject)
            return [found[number] for number in sorted(found)] if found else []

    def version(self, subject: str, number: int) -> SchemaVersion | None:
        """One version, deleted or not."""
        with self.lock:
            return self._subjects.get(subject, {}).get(number)

    def subjects(self) -> list[str]:
        """Every subject that has a version, deleted or not, by name."""
        with self.lock:
            found = list(self._subjects)
        return sorted(found)  # sorted outside of the lock, which others need

    def deleted_among(self, subjects: Iterable[str]) -> set[str]:
        """The subjects that have no versions but deleted ones."""
        with self.lock:
            return {each for each in subjects if all(version.deleted for version in self._subjects.get(each, {}).values())}

    def namesakes(self, subject: str) -> list[str]:
        """The subjects with the name of one of the default context in all the others, by context; those that lack schemas too."""
        with self.lock:
            return sorted(self._namesakes.get(subject, set()) | self._left_out_keys.namesakes(subject), key=context_of)

    def holders(self, context: str, schema_id: int) -> dict[str, int]:
        """Which subjects of a context have the schema of this id, and in which version; deleted ones too. In the order of the log."""
        with self.lock:
            return dict(self._by_id.get(context, {}).get(schema_id, {}))

    def schema(self, context: str, schema_id: int) -> SchemaVersion | None:
        """A version with this id: any will do, they have the same text."""
        with self.lock:
            for subject, number in self._by_id.get(context, {}).get(schema_id, {}).items():
                return self._subjects[subject][number]
            return None

    def id_of(self, context: str, fingerprint: bytes) -> int | None:
        """The id of a schema in a context."""
        with self.lock:
            schema_id = self._ids.get(context, {}).get(fingerprint)
            return schema_id if schema_id in self._by_id.get(context, {}) else None

    def id_max(self, context: str) -> int:
        """The highest id that a context has given, also to what is deleted; 0 if none."""
        return self._id_max.get(context, 0)

    def next_id(self, context: str) -> int | None:
        """The id that a new schema of a context gets; never one that is known to have been given. None if every one is taken.

        Of a context nothing is known any more once its last schema was deleted for good and no record names it.
        """
        with self.lock:
            highest = self.id_max(context)
            if highest < NUMBER_MAX:
                return highest + 1
            retired = (schema_id for where, schema_id in self._retired if where == context)
            found = next_number({highest, *self._by_id.get(context, ()), *retired})
        if context not in self._gap_told:
            self._gap_told.add(context)
            log.warning(
                "registry ids continue below the highest: context=%s next=%s reason=a record has id %d, the last possible one",
                context, found, highest,
            )  # fmt: skip
        return found

    def all_contexts(self) -> list[str]:
        """Every context that is known, the default one first."""
        with self.lock:
            used = {context for context, holders in self._by_id.items() if holders}
            return [".", *sorted((self.contexts | used) - {"."})]

    def referrers(self, key: SchemaKey, *, deleted: bool) -> list[SchemaVersion]:
        """Versions that refer to this one, by id; with `deleted` those deleted softly too."""
        with self.lock:
            found = [self._subjects[subject][number] for subject, number in self._referrers.get(key, ())]
        return sorted((each for each in found if deleted or not each.deleted), key=lambda each: (each.id, each.subject, each.version))

    def lacks_schemas(self, subject: str | None = None) -> bool:
        """Whether records of a subject's versions, or of any subject's, were left out; then the newest version may not be known."""
        with self.lock:
            return self._left_out_keys.schemas_of(subject)

    def lacks_setting(self, key: records.ConfigKey | records.ModeKey) -> bool:
        """Whether the record of a configuration or a mode was left out."""
        with self.lock:
            return self._left_out_keys.setting(key)

    def growth(self, writes: "Iterable[Write]") -> int:
        """By how many bytes `held_bytes` would grow; negative where more is removed than added."""
        with self.lock:
            return sum(
                (0 if value is None else record_size(key, value)) - self._sizes.get(records.decode_key(key), 0)
                for key, value in writes
                if isinstance(records.decode_key(key), _KEPT)
            )

    # Records

    def apply(self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Apply one record of the log. One that cannot be read is skipped, with a line in the log."""
        try:
            if record_size(key or b"", b"") > self.memory_bytes_max:
                self._leave_out(offset, None)
                return
            known = records.decode_key(key)
            size = record_size(key or b"", value or b"")
            with self.lock:
                schema = None
                if value is not None and isinstance(known, SchemaKey) and self._has_room(known, size):
                    schema = records.decode_schema(known, value, timestamp_ms)
                    size = max(size, _size_deleted(known, schema, value))
                if value is not None and not self._has_room(known, size):
                    self._leave_out(offset, known)
                    schema = value = None
                else:
                    self._left_out_keys.discard(known)
                if schema is None:
                    self._apply(offset, known, value)
                else:
                    self._put(offset, schema)
                if isinstance(known, _KEPT) and (not isinstance(known, SchemaKey) or self.version(*known) is not None):
                    self._account(known, 0 if value is None else size)
        except RecordError as error:
            self._skip(offset, str(error))

    def _has_room(self, key: Key, size: int) -> bool:
        """Whether a record may be decoded, and kept if it is one of those."""
        growth = size - self._sizes.get(key, 0)
        return growth <= 0 or (self.held_bytes if isinstance(key, _KEPT) else 0) + growth <= self.memory_bytes_max

    def _leave_out(self, offset: int, key: Key | None) -> None:
        self.left_out += 1
        with self.lock:
            self._left_out_keys.add(key)
        if self._lines.due("left out", time.monotonic()):
            log.error(
                "bound reached, registry records left out, registrations are refused: setting=registry.memory.max.bytes value=%d offset=%d "
                "left_out_so_far=%d; start the registry with a larger value",
                self.memory_bytes_max, offset, self.left_out,
            )  # fmt: skip

    def _skip(self, offset: int, reason: str) -> None:
        if self._lines.due(offset, time.monotonic()):
            log.error("registry record skipped: offset=%d reason=%s", offset, reason)

    def _apply(self, offset: int, key: Key, value: bytes | None) -> None:
        match key:
            case SchemaKey():
                assert value is None
                self._remove(key)
                self._forget_if_unused(context_of(key.subject))
            case records.ConfigKey(scope):
                _set(self.configs, scope, None if value is None else records.decode_config(value))
            case records.ModeKey(scope):
                _set(self.modes, scope, None if value is None else records.decode_mode(value))
            case records.DeleteSubjectKey(subject):
                if value is not None:
                    self._delete_up_to(subject, records.decode_delete_subject(value))
            case records.ClearSubjectKey(scope):
                if value is not None:
                    self._clear(scope)
            case records.ContextKey(context):
                if value is None:
                    self.contexts.discard(context)
                    self._forget_if_unused(context)
                else:
                    self.contexts.add(context)
            case records.NoopKey():
                self.noop_writer, nonce = ("", "") if value is None else records.decode_confirmation(value)
                self.confirmations.append((nonce, self.noop_writer))
            case records.UnknownRecordKey(kind):
                self._skip(offset, f"its kind {kind} is not known here")

    def _put(self, offset: int, schema: SchemaVersion) -> None:
        context = context_of(schema.subject)
        same_id = self.schema(context, schema.id)
        if same_id is not None and same_id.text != schema.text:
            theirs = f"that of subject {same_id.subject} version {same_id.version}"
            self._skip(offset, f"it gives id {schema.id} to subject {schema.subject} version {schema.version}, {theirs}")
            return
        key = SchemaKey(schema.subject, schema.version)
        self._remove(key)
        self._subjects.setdefault(schema.subject, {})[schema.version] = schema
        if context != DEFAULT_CONTEXT:
            self._namesakes.setdefault(parse_subject(schema.subject).name, set()).add(schema.subject)
        holders = self._by_id.setdefault(context, {}).setdefault(schema.id, {})
        other = self._subjects[schema.subject].get(holders.get(schema.subject, 0))
        if other is None or not schema.deleted or (other.deleted and other.version < schema.version):
            holders[schema.subject] = schema.version
        self._ids.setdefault(context, {})[schema.fingerprint] = schema.id
        self._retired.pop((context, schema.id), None)
        self._id_max[context] = max(self._id_max.get(context, 0), schema.id)
        for target in _targets(schema):
            self._referrers.setdefault(target, set()).add(key)

    def _remove(self, key: SchemaKey) -> None:
        versions = self._subjects.get(key.subject, {})
        schema = versions.pop(key.version, None)
        if schema is None:
            return
        self._account(key, 0)
        if not versions:
            del self._subjects[key.subject]
            if context_of(key.subject) != DEFAULT_CONTEXT:
                _discard(self._namesakes, parse_subject(key.subject).name, key.subject)
        holders = self._by_id[context_of(key.subject)]
        if holders[schema.id].get(key.subject) == key.version:
            others = [each for each in versions.values() if each.id == schema.id]
            if others:
                holders[schema.id][key.subject] = max(others, key=lambda each: (not each.deleted, each.version)).version
            else:
                del holders[schema.id][key.subject]
        if not holders[schema.id]:
            del holders[schema.id]
            self._retired[context_of(key.subject), schema.id] = None
            if len(self._retired) > _RETIRED_KEPT:
                del self._retired[next(iter(self._retired))]
            self._ids[context_of(key.subject)].pop(schema.fingerprint, None)
        for target in _targets(schema):
            _discard(self._referrers, target, key)

    def _forget_if_unused(self, context: str) -> None:
        """Keep nothing of a context that has no schemas and that no record names. After a tombstone, not while a record is replaced."""
        if context != DEFAULT_CONTEXT and context not in self.contexts and not self._by_id.get(context):
            for table in (self._by_id, self._ids, self._id_max):
                table.pop(context, None)
            self._gap_told.discard(context)

    def _account(self, key: Key, size: int) -> None:
        """A record takes `size` bytes from now on."""
        self.held_bytes += size - self._sizes.pop(key, 0)
        if size:
            self._sizes[key] = size

    def _delete_up_to(self, subject: str, last: int) -> None:
        versions = self._subjects.get(subject, {})
        for number, schema in versions.items():
            if number <= last and not schema.deleted:
                versions[number] = replace(schema, deleted=True)

    def _clear(self, scope: str | None) -> None:
        gone = [
            SchemaKey(subject, number)
            for subject, versions in self._subjects.items()
            if scope is None or subject == scope or (scope.endswith(":") and subject.startswith(scope))
            for number, schema in versions.items()
            if schema.deleted
        ]
        for key in gone:
            self._remove(key)
            self._forget_if_unused(context_of(key.subject))


_KEPT = (SchemaKey, records.ConfigKey, records.ModeKey, records.ContextKey)


def _size_deleted(key: SchemaKey, schema: SchemaVersion, value: bytes) -> int:
    """What a version takes once it is deleted softly, which rewrites its record: other registries leave out names that are written here.

    It is counted from the beginning, so that a deletion never takes more than what it deletes, also in a registry that is full.
    """
    if schema.deleted or (value.endswith(b'"deleted":false}') and b'"schemaType":' in value and value.isascii()):
        return 0  # nothing is missing that is written here, without looking closer: a start reads thousands
    return record_size(records.encode_key(key), records.encode_schema(replace(schema, deleted=True)))


def _targets(schema: SchemaVersion) -> Iterable[SchemaKey]:
    return (SchemaKey(in_context_of(schema.subject, each.subject), each.version) for each in schema.references)


def _discard(table: dict[Any, set[Any]], key: object, value: object) -> None:
    """Take a value out of the set of a key, and leave no empty set."""
    table[key].discard(value)
    if not table[key]:
        del table[key]


def _set(table: dict[str | None, Any], key: str | None, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
