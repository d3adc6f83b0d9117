"""The records of ``_schemas`` in Confluent's own format: keys and values are JSON, with these names in this order.

A key names the thing that its record is about, a value its new state; a record without a value (a tombstone) deletes that. A key of an
unknown kind is no error: it is returned as `UnknownRecordKey`. Unknown names in a value are ignored. `docs/formats/schemas-topic.md` shows
them byte by byte.

The guid of a schema is an MD5 over everything that makes it what it is, shown as a UUID. Confluent's registry computes the same::

    text, then of each reference name, subject, version (int32)
    01, then the metadata: tags with their values, properties with theirs, names that are sensitive, each sorted
    01, then the rules one after the other: migration, domain, encoding; enableAt

Metadata and rules that are missing add nothing. Two schemas with one fingerprint are one schema, and have one id in a context.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from moldau.registry.schemas.compatibility import CompatibilityLevel
from moldau.registry.subjects import Reference

RULES = ("migrationRules", "domainRules", "encodingRules")


def fingerprint(
    text: str, references: Sequence[Reference] = (), metadata: Mapping[str, Any] | None = None, rule_set: Mapping[str, Any] | None = None
) -> bytes:
    """16 bytes."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode() + reference.subject.encode() + reference.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\1" + b"".join(_of_metadata(metadata)))
    if rule_set is not None:
        digest.update(b"\1" + b"".join(_of_rule_set(rule_set)))
    return digest.digest()


def guid(found: bytes) -> str:
    """A fingerprint as it is shown."""
    return str(uuid.UUID(bytes=found))


def parse_guid(text: str) -> bytes | None:
    """The fingerprint that is shown as this, with dashes or without; None for a text that is none."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return None


def _of_metadata(metadata: Mapping[str, Any]) -> Iterable[bytes]:
    for name, values in sorted((metadata.get("tags") or {}).items()):
        yield name.encode()
        yield from (value.encode() for value in sorted(set(values)))
    for name, value in sorted((metadata.get("properties") or {}).items()):
        yield name.encode() + value.encode()
    yield from (name.encode() for name in sorted(set(metadata.get("sensitive") or ())))


def _of_rule_set(rule_set: Mapping[str, Any]) -> Iterable[bytes]:
    for kind in RULES:
        for rule in rule_set.get(kind) or ():
            yield from _of_rule(rule)
    yield str(rule_set.get("enableAt") or "").encode()


def _of_rule(rule: Mapping[str, Any]) -> Iterable[bytes]:
    for name in ("name", "doc", "kind", "mode", "type"):
        yield str(rule.get(name) or "").encode()
    yield from (tag.encode() for tag in sorted(set(rule.get("tags") or ())))
    for name, value in sorted((rule.get("params") or {}).items()):
        yield name.encode() + value.encode()
    for name in ("expr", "onSuccess", "onFailure"):
        yield str(rule.get(name) or "").encode()
    if rule.get("disabled"):
        yield b"\1"


NUMBER_MAX = 2**31 - 1
"""The highest id and version: messages carry ids as int32."""

Write = tuple[bytes, bytes | None]
"""Key and value of a record; without a value it is a tombstone."""


class RecordError(ValueError):
    """A record that cannot be read; the message names the fault."""


def to_json(fields: Mapping[str, Any]) -> bytes:
    """An object as it is stored."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def object_in(data: bytes | None, what: str) -> dict[str, Any]:
    """The object that a key or a value, `what`, is. RecordError."""
    if data is None:
        raise RecordError(f"it has no {what}")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"its {what} is not JSON: {data[:40]!r}") from error
    if not isinstance(fields, dict):
        raise RecordError(f"its {what} is not a JSON object")
    return fields


def optional_object(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """A field that is an object or missing. RecordError."""
    found = fields.get(name)
    if found is not None and not isinstance(found, dict):
        raise RecordError(f"its {name} is not an object")
    return found


def text_in(fields: Mapping[str, Any], name: str) -> str:
    """A field that is text. RecordError."""
    found = fields.get(name)
    if not isinstance(found, str):
        raise RecordError(f"its {name} is {found!r}, a text is needed")
    return found


def number_in(fields: Mapping[str, Any], name: str, *, least: int) -> int:
    """A field that is a whole number of 32 bits, not smaller than `least`. RecordError."""
    found = fields.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= NUMBER_MAX:
        raise RecordError(f"its {name} is {found!r}, a number from {least} to {NUMBER_MAX} is needed")
    return found


NO_MAGIC, SCHEMA_MAGIC = 0, 1


class SchemaKey(NamedTuple):
    """The key of a version of a subject."""

    subject: str
    version: int


class ConfigKey(NamedTuple):
    """Of a record with the configuration of a subject or context, or of the default context (None)."""

    subject: str | None


class ModeKey(NamedTuple):
    """Of a record with the mode of a subject or context, or of the default context (None)."""

    subject: str | None


class DeleteSubjectKey(NamedTuple):
    """Of a record that deletes a subject's versions up to one of them, softly."""

    subject: str


class ClearSubjectKey(NamedTuple):
    """Of a record that makes the deleted versions of a subject, or of all subjects of a context (None: of all), be forgotten."""

    subject: str | None


class ContextKey(NamedTuple):
    """The key of a context."""

    context: str


class NoopKey(NamedTuple):
    """The key of a record without content: at its offset a registry has read to the end."""


class UnknownRecordKey(NamedTuple):
    """Of a record of a kind that is not known here."""

    kind: str


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey | UnknownRecordKey


def encode_key(key: Key) -> bytes:
    """The bytes of a key."""
    match key:
        case SchemaKey(subject, version):
            return to_json({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": SCHEMA_MAGIC})
        case ConfigKey(scope):
            return to_json(_with_subject("CONFIG", scope))
        case ModeKey(scope):
            return to_json(_with_subject("MODE", scope))
        case DeleteSubjectKey(subject):
            return to_json(_with_subject("DELETE_SUBJECT", subject))
        case ClearSubjectKey(scope):
            return to_json(_with_subject("CLEAR_SUBJECT", scope))
        case ContextKey(context):
            return to_json({"keytype": "CONTEXT", "tenant": "default", "context": context, "magic": NO_MAGIC})
        case NoopKey():
            return to_json({"keytype": "NOOP", "magic": NO_MAGIC})
        case UnknownRecordKey(kind):
            raise ValueError(f"records of kind {kind} are not written here")


def decode_key(data: bytes | None) -> Key:
    """What a record is about. RecordError for a key that cannot be read."""
    fields = object_in(data, "key")
    kind = fields.get("keytype")
    subject = fields.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise RecordError(f"the subject of its key is {subject!r}")
    match kind:
        case "SCHEMA":
            if fields.get("magic") not in (0, 1):
                raise RecordError(f"the magic of its key is {fields.get('magic')!r}, 0 and 1 are known")
            return SchemaKey(text_in(fields, "subject"), number_in(fields, "version", least=1))
        case "CONFIG":
            return ConfigKey(subject)
        case "MODE":
            return ModeKey(subject)
        case "DELETE_SUBJECT":
            return DeleteSubjectKey(text_in(fields, "subject"))
        case "CLEAR_SUBJECT":
            return ClearSubjectKey(subject)
        case "CONTEXT":
            return ContextKey(text_in(fields, "context"))
        case "NOOP":
            return NoopKey()
        case _:
            return UnknownRecordKey(str(kind))


def _with_subject(kind: str, subject: str | None) -> dict[str, Any]:
    named = {} if subject is None else {"subject": subject}
    return {"keytype": kind, **named, "magic": NO_MAGIC}


AVRO = "AVRO"

CONFIG_FIELDS: Mapping[str, type] = {
    "alias": str, "aliasForDeks": str, "normalize": bool, "validateFields": bool, "validateNewSchemas": bool, "validateRules": bool,
    "compatibilityLevel": str, "compatibilityPolicy": str, "compatibilityGroup": str, "defaultMetadata": dict, "overrideMetadata": dict,
    "defaultRuleSet": dict, "overrideRuleSet": dict,
}  # fmt: skip
"""The fields of a configuration, in the order in which they are stored."""
_LEVELS = frozenset(level.value for level in CompatibilityLevel)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a subject as it is stored. `timestamp_ms` is the record's, None before it is written."""

    subject: str
    version: int
    id: int
    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    deleted: bool = False
    timestamp_ms: int | None = None

    @property
    def fingerprint(self) -> bytes:
        """What makes it the same schema as another."""
        return fingerprint(self.text, self.references, self.metadata, self.rule_set)


def encode_schema(schema: SchemaVersion) -> bytes:
    """The value of a record with a SchemaKey."""
    fields: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id, "schemaType": schema.type}
    if schema.references:
        fields["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        fields["metadata"] = schema.metadata
    if schema.rule_set is not None:
        fields["ruleSet"] = schema.rule_set
    return to_json({**fields, "schema": schema.text, "deleted": schema.deleted})


def decode_schema(key: SchemaKey, data: bytes, timestamp_ms: int | None = None) -> SchemaVersion:
    """The version in a record. RecordError for a value that cannot be read."""
    fields = object_in(data, "value")
    references = fields.get("references") or []
    try:
        found = tuple(
            Reference(text_in(each, "name"), text_in(each, "subject"), number_in(each, "version", least=-1)) for each in references
        )
    except (TypeError, AttributeError) as error:
        raise RecordError("the references of its value are not objects") from error
    schema = SchemaVersion(
        key.subject,
        key.version,
        number_in(fields, "id", least=0),
        text_in(fields, "schema"),
        text_in(fields, "schemaType") if fields.get("schemaType") else AVRO,
        found,
        optional_object(fields, "metadata"),
        optional_object(fields, "ruleSet"),
        bool(fields.get("deleted")),
        timestamp_ms,
    )
    try:
        _ = schema.fingerprint
    except (TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"its metadata, rules or text cannot be read: {error}") from error
    return schema


def encode_config(subject: str | None, config: Mapping[str, Any]) -> bytes:
    """The value of a record with a ConfigKey."""
    fields = {} if subject is None else {"subject": subject}
    return to_json({**fields, **{name: config[name] for name in CONFIG_FIELDS if config.get(name) is not None}})


def decode_config(data: bytes) -> dict[str, Any]:
    """The configuration in a record. RecordError for a value that cannot be read."""
    fields = object_in(data, "value")
    found = {name: fields[name] for name in CONFIG_FIELDS if fields.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, CONFIG_FIELDS[name]):
            raise RecordError(f"its {name} is {value!r}, a value of another type is needed")
    if found.get("compatibilityLevel", "NONE") not in _LEVELS:
        raise RecordError(f"its compatibilityLevel is {found['compatibilityLevel']!r}, which is no level")
    return found


def encode_mode(subject: str | None, mode: str) -> bytes:
    """The value of a record with a ModeKey."""
    return to_json({"mode": mode} if subject is None else {"subject": subject, "mode": mode})


def decode_mode(data: bytes) -> str:
    """The mode in a record."""
    return text_in(object_in(data, "value"), "mode")


def encode_delete_subject(subject: str, version: int) -> bytes:
    """The value of a record with a DeleteSubjectKey: versions up to this one are deleted."""
    return to_json({"subject": subject, "version": version})


def decode_delete_subject(data: bytes) -> int:
    """Up to which version a subject is deleted."""
    return number_in(object_in(data, "value"), "version", least=0)


def encode_clear_subject(subject: str | None) -> bytes:
    """The value of a record with a ClearSubjectKey."""
    return to_json({} if subject is None else {"subject": subject})


def decode_confirmation(data: bytes) -> tuple[str, str]:
    """URL and nonce in the value of a record with a NoopKey; empty for what is not known here. RecordError for no JSON object."""
    fields = object_in(data, "value")
    writer, nonce = fields.get("writer"), fields.get("confirms")
    return (writer, nonce) if isinstance(writer, str) and isinstance(nonce, str) else ("", "")


def encode_context(context: str) -> bytes:
    """The value of a record with a ContextKey."""
    return to_json({"tenant": "default", "context": context})
