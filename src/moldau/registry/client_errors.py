"""Errors of a registry's client, and the reasons for an incompatible schema. Every message names what was asked for.

    {errorType:'TYPE_MISMATCH', description:'The type (path '/fields/1/type') of a field in the new schema does not match with the old
    schema', additionalInfo:'reader type: STRING not compatible with writer type: INT'}, {oldSchemaVersion: 1}, {oldSchema: '...'}

becomes ``field 'price': The type (path '/fields/1/type') of ...``. Avro's paths count fields and Protobuf's have their numbers; the name is
looked up in the schema's own text.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from moldau.model.errors import MoldauError, WorldError

_REASON = re.compile(
    r"""\{errorType:(['"])\w+\1,\ description:(['"])(?P<text>.*?)\2(?:,\ additionalInfo:(['"])(?P<more>.*?)\4)?\}(?=,\ \{|\]|,|$)""",
    re.DOTALL | re.VERBOSE,
)
_VERSION = re.compile(r"\{oldSchemaVersion: (\d+)\}")
_OLD = re.compile(r"\{oldSchema: '(.*?)'\}(?=, \{|\]|,|$)", re.DOTALL)
_PATH = re.compile(r"path '([^']*)'")
_OF_PROTOBUF = re.compile(r"#/(?:.*/)?(\w+)/(\d+)")
LENGTH_MAX = 300


def reasons(message: str, text: str) -> list[str]:
    """The reasons in a registry's error for the schema `text`, each one line; the beginning of the error where there are none."""
    version, old = _VERSION.search(message), _OLD.search(message)
    found = []
    for match in _REASON.finditer(message):
        sentence = match["text"]
        of_new = sentence.find("new schema") < sentence.find("old schema") or old is None
        name = _field(sentence, text if of_new or old is None else old[1])
        more = match["more"]
        if more and more not in sentence:
            sentence += f" ({more})"
        if version is not None:
            sentence = sentence.replace("the old schema", f"the old schema (version {version[1]})")
        found.append(sentence if name is None or sentence.startswith("The field '") else f"field '{name}': {sentence}")
    lines = [" ".join(each.split()) for each in found or [message]]
    return [each if len(each) <= LENGTH_MAX else f"{each[:LENGTH_MAX]}..." for each in dict.fromkeys(lines)]


def _field(sentence: str, text: str) -> str | None:
    """The name of the field that the sentence is about, with those around it: ``buyer.id``."""
    path = _PATH.search(sentence)
    if path is None:
        return None
    by_number = _OF_PROTOBUF.fullmatch(path[1])
    if by_number is not None:
        message, number = by_number[1], by_number[2]
        found = re.search(rf"\bmessage\s+{message}\b.*?\b(\w+)\s*=\s*{number}\b", text, re.DOTALL)
        return None if found is None else found[1]
    return _avro_field(path[1], text)


def _avro_field(path: str, text: str) -> str | None:
    try:
        at: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    names: list[str] = []
    before = ""
    for step in path.split("/")[1:]:
        try:
            at = at[int(step)] if isinstance(at, list) else at[step]
        except (LookupError, TypeError, ValueError):
            break
        if before == "fields" and isinstance(at, dict):
            names.append(str(at.get("name")))
        before = step
    return ".".join(names) or None


SUBJECT_NOT_FOUND = 40401
VERSION_NOT_FOUND = 40402
SCHEMA_NOT_FOUND = 40403
INCOMPATIBLE = 409


class RegistryError(MoldauError):
    """The registry answered with an error: the HTTP status, Confluent's error code, and its message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{message} (status {status}, code {code})")
        self.status = status
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type["RegistryError"], tuple[int, int, str]]:
        return RegistryError, (self.status, self.code, self.message)


class UnknownSchemaError(RegistryError):
    """No schema has this id."""

    def __init__(self, schema_id: int, message: str = "") -> None:
        super().__init__(404, SCHEMA_NOT_FOUND, message or f"schema id {schema_id} is not known to the registry")
        self.schema_id = schema_id

    def __reduce__(self) -> tuple[type["UnknownSchemaError"], tuple[int, str]]:  # type: ignore[override]
        return UnknownSchemaError, (self.schema_id, self.message)


class IncompatibleSchemaError(RegistryError):
    """A schema that is not compatible with earlier versions of its subject.

    One line names the field, the reason, and the number of further `reasons`; `message` is the whole text of the registry, with schemas.
    """

    def __init__(self, subject: str, message: str, reasons: Sequence[str]) -> None:
        super().__init__(409, INCOMPATIBLE, message)
        self.subject = subject
        self.reasons = tuple(reasons)
        more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        self.args = (f"subject {subject}: the schema is not compatible with an earlier version: {reasons[0]}{more}",)

    def __reduce__(self) -> tuple[type["IncompatibleSchemaError"], tuple[str, str, tuple[str, ...]]]:  # type: ignore[override]
        return IncompatibleSchemaError, (self.subject, self.message, self.reasons)


class RegistryUnavailableError(WorldError):
    """None of the registry's addresses answered."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retriable=True)

    def __reduce__(self) -> tuple[type["RegistryUnavailableError"], tuple[str]]:
        return RegistryUnavailableError, (str(self),)
