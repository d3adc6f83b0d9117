"""The keys of the records of ``_schemas``, in Confluent's own format: JSON, with these names in this order.

A key says what its record is about, its value (`moldau.registry.records`) what is so from now on. A kind that is not known here is no
error: it is told as `UnknownKey`.
"""

from typing import Any, NamedTuple

from moldau.registry.record_json import RecordError, number_in, object_in, text_in, to_json

NO_MAGIC, SCHEMA_MAGIC = 0, 1


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
        case UnknownKey(kind):
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
            return UnknownKey(str(kind))


def _with_subject(kind: str, subject: str | None) -> dict[str, Any]:
    named = {} if subject is None else {"subject": subject}
    return {"keytype": kind, **named, "magic": NO_MAGIC}
