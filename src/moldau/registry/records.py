"""The values of the records of ``_schemas``, in Confluent's own format: JSON, with these names in this order.

`docs/formats/schemas-topic.md` shows them byte by byte. A value says what is so from now on about what its key names
(`moldau.registry.record_keys`); a record without one (a tombstone) takes it back. Names that are not known here are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moldau.registry.fingerprint import fingerprint
from moldau.registry.record_json import RecordError, number_in, object_in, optional_object, text_in, to_json
from moldau.registry.record_keys import SchemaKey
from moldau.registry.schemas.compatibility import CompatibilityLevel
from moldau.registry.subjects import Reference

AVRO = "AVRO"

CONFIG_FIELDS: Mapping[str, type] = {
    "alias": str, "aliasForDeks": str, "normalize": bool, "validateFields": bool, "validateNewSchemas": bool, "validateRules": bool,
    "compatibilityLevel": str, "compatibilityPolicy": str, "compatibilityGroup": str, "defaultMetadata": dict, "overrideMetadata": dict,
    "defaultRuleSet": dict, "overrideRuleSet": dict,
}  # fmt: skip
"""What a configuration may say, in the order in which it is stored."""
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
    """The version that a record tells. RecordError for a value that cannot be read."""
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
        raise RecordError(f"its metadata, rules or text cannot be understood: {error}") from error
    return schema


def encode_config(subject: str | None, config: Mapping[str, Any]) -> bytes:
    """The value of a record with a ConfigKey."""
    fields = {} if subject is None else {"subject": subject}
    return to_json({**fields, **{name: config[name] for name in CONFIG_FIELDS if config.get(name) is not None}})


def decode_config(data: bytes) -> dict[str, Any]:
    """The configuration that a record tells. RecordError for a value that cannot be read."""
    fields = object_in(data, "value")
    found = {name: fields[name] for name in CONFIG_FIELDS if fields.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, CONFIG_FIELDS[name]):
            raise RecordError(f"its {name} is {value!r}, a value of another type is needed")
    if found.get("compatibilityLevel", "NONE") not in _LEVELS:
        raise RecordError(f"its compatibilityLevel is {found['compatibilityLevel']!r}, which is none")
    return found


def encode_mode(subject: str | None, mode: str) -> bytes:
    """The value of a record with a ModeKey."""
    return to_json({"mode": mode} if subject is None else {"subject": subject, "mode": mode})


def decode_mode(data: bytes) -> str:
    """The mode that a record tells."""
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
