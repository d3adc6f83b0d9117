"""The records of ``_schemas``, in Confluent's own format: keys and values are JSON, with these names in this order.

`docs/formats/schemas-topic.md` shows them byte by byte. A key says what its record is about, a value what is so from now on; a record
without a value (a tombstone) takes it back. What is not known here is no error: names are left out, kinds are told as `Unknown`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from moldau.registry.fingerprint import fingerprint
from moldau.registry.reference import Reference
from moldau.registry.schemas.compatibility import CompatibilityLevel

AVRO = "AVRO"
NO_MAGIC, SCHEMA_MAGIC = 0, 1
NUMBER_MAX = 2**31 - 1
"""The highest id and version: messages carry ids as int32."""

CONFIG_FIELDS: Mapping[str, type] = {
    "alias": str, "aliasForDeks": str, "normalize": bool, "validateFields": bool, "validateNewSchemas": bool, "validateRules": bool,
    "compatibilityLevel": str, "compatibilityPolicy": str, "compatibilityGroup": str, "defaultMetadata": dict, "overrideMetadata": dict,
    "defaultRuleSet": dict, "overrideRuleSet": dict,
}  # fmt: skip
"""What a configuration may say, in the order in which it is stored."""
_LEVELS = frozenset(level.value for level in CompatibilityLevel)


class RecordError(ValueError):
    """A record that cannot be understood; the message says what is wrong with it."""


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


class SchemaKey(NamedTuple):
    """Of a record that says what a version of a subject is."""

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
    """Of a record that says that a context exists."""

    context: str


class NoopKey(NamedTuple):
    """Of a record that says nothing: by its offset a registry knows that it has read to the end."""


class UnknownKey(NamedTuple):
    """Of a record of a kind that is not known here."""

    kind: str


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey | UnknownKey


def encode_key(key: Key) -> bytes:
    """The bytes of a key."""
    match key:
        case SchemaKey(subject, version):
            return _json({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": SCHEMA_MAGIC})
        case ConfigKey(scope):
            return _json(_with_subject("CONFIG", scope))
        case ModeKey(scope):
            return _json(_with_subject("MODE", scope))
        case DeleteSubjectKey(subject):
            return _json(_with_subject("DELETE_SUBJECT", subject))
        case ClearSubjectKey(scope):
            return _json(_with_subject("CLEAR_SUBJECT", scope))
        case ContextKey(context):
            return _json({"keytype": "CONTEXT", "tenant": "default", "context": context, "magic": NO_MAGIC})
        case NoopKey():
            return _json({"keytype": "NOOP", "magic": NO_MAGIC})
        case UnknownKey(kind):
            raise ValueError(f"records of kind {kind} are not written here")


def decode_key(data: bytes | None) -> Key:
    """What a record is about. RecordError for a key that cannot be read."""
    fields = _object(data, "key")
    kind = fields.get("keytype")
    subject = fields.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise RecordError(f"the subject of its key is {subject!r}")
    match kind:
        case "SCHEMA":
            if fields.get("magic") not in (0, 1):
                raise RecordError(f"the magic of its key is {fields.get('magic')!r}, 0 and 1 are known")
            return SchemaKey(_text(fields, "subject"), _number(fields, "version", least=1))
        case "CONFIG":
            return ConfigKey(subject)
        case "MODE":
            return ModeKey(subject)
        case "DELETE_SUBJECT":
            return DeleteSubjectKey(_text(fields, "subject"))
        case "CLEAR_SUBJECT":
            return ClearSubjectKey(subject)
        case "CONTEXT":
            return ContextKey(_text(fields, "context"))
        case "NOOP":
            return NoopKey()
        case _:
            return UnknownKey(str(kind))


def encode_schema(schema: SchemaVersion) -> bytes:
    """The value of a record with a SchemaKey."""
    fields: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id, "schemaType": schema.type}
    if schema.references:
        fields["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        fields["metadata"] = schema.metadata
    if schema.rule_set is not None:
        fields["ruleSet"] = schema.rule_set
    return _json({**fields, "schema": schema.text, "deleted": schema.deleted})


def decode_schema(key: SchemaKey, data: bytes, timestamp_ms: int | None = None) -> SchemaVersion:
    """The version that a record tells. RecordError for a value that cannot be read."""
    fields = _object(data, "value")
    references = fields.get("references") or []
    try:
        found = tuple(Reference(_text(each, "name"), _text(each, "subject"), _number(each, "version", least=-1)) for each in references)
    except (TypeError, AttributeError) as error:
        raise RecordError("the references of its value are not objects") from error
    schema = SchemaVersion(
        key.subject,
        key.version,
        _number(fields, "id", least=0),
        _text(fields, "schema"),
        _text(fields, "schemaType") if fields.get("schemaType") else AVRO,
        found,
        _optional_object(fields, "metadata"),
        _optional_object(fields, "ruleSet"),
        bool(fields.get("deleted")),
        timestamp_ms,
    )
    try:
        _ = schema.fingerprint
    except (TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"its metadata, rules or text cannot be understood: {error}") from error
    return schema


def encode_config(subject: str | None, config: Mapping[str, Any]) -> bytes:
    """The value of a record with a ConfigKey."""
    fields = {} if subject is None else {"subject": subject}
    return _json({**fields, **{name: config[name] for name in CONFIG_FIELDS if config.get(name) is not None}})


def decode_config(data: bytes) -> dict[str, Any]:
    """The configuration that a record tells. RecordError for a value that cannot be read."""
    fields = _object(data, "value")
    found = {name: fields[name] for name in CONFIG_FIELDS if fields.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, CONFIG_FIELDS[name]):
            raise RecordError(f"its {name} is {value!r}, a value of another type is needed")
    if found.get("compatibilityLevel", "NONE") not in _LEVELS:
        raise RecordError(f"its compatibilityLevel is {found['compatibilityLevel']!r}, which is none")
    return found


def encode_mode(subject: str | None, mode: str) -> bytes:
    """The value of a record with a ModeKey."""
    return _json({"mode": mode} if subject is None else {"subject": subject, "mode": mode})


def decode_mode(data: bytes) -> str:
    """The mode that a record tells."""
    return _text(_object(data, "value"), "mode")


def encode_delete_subject(subject: str, version: int) -> bytes:
    """The value of a record with a DeleteSubjectKey: versions up to this one are deleted."""
    return _json({"subject": subject, "version": version})


def decode_delete_subject(data: bytes) -> int:
    """Up to which version a subject is deleted."""
    return _number(_object(data, "value"), "version", least=0)


def encode_clear_subject(subject: str | None) -> bytes:
    """The value of a record with a ClearSubjectKey."""
    return _json({} if subject is None else {"subject": subject})


def encode_context(context: str) -> bytes:
    """The value of a record with a ContextKey."""
    return _json({"tenant": "default", "context": context})


def _with_subject(kind: str, subject: str | None) -> dict[str, Any]:
    named = {} if subject is None else {"subject": subject}
    return {"keytype": kind, **named, "magic": NO_MAGIC}


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if data is None:
        raise RecordError(f"it has no {what}")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"its {what} is not JSON: {data[:40]!r}") from error
    if not isinstance(fields, dict):
        raise RecordError(f"its {what} is not a JSON object")
    return fields


def _optional_object(fields: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    found = fields.get(name)
    if found is not None and not isinstance(found, dict):
        raise RecordError(f"its {name} is not an object")
    return found


def _text(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    if not isinstance(found, str):
        raise RecordError(f"its {name} is {found!r}, a text is needed")
    return found


def _number(fields: Mapping[str, Any], name: str, *, least: int) -> int:
    found = fields.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= NUMBER_MAX:
        raise RecordError(f"its {name} is {found!r}, a number from {least} to {NUMBER_MAX} is needed")
    return found
