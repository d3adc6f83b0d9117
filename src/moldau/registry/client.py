"""A client of a schema registry, ours or Confluent's, over the standard library alone.

    registry = RegistryClient("http://127.0.0.1:8081")
    schema_id = registry.register("orders-value", '{"type": "record", ...}')
    registry.schema(schema_id).text

What cannot change is asked for once and kept: the schema of an id, the id under which a schema was registered, a version of a subject.
`latest`, `versions` and the rest ask each time. Any thread may use it; a copy (pickle) carries the URL and nothing else.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from moldau.registry.client_errors import (
    INCOMPATIBLE,
    SCHEMA_NOT_FOUND,
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnavailableError,
    UnknownSchemaError,
    reasons,
)
from moldau.registry.rest_connection import RestConnection
from moldau.registry.subjects import Reference

__all__ = [
    "IncompatibleSchemaError", "Reference", "RegisteredSchema", "RegistryClient", "RegistryError", "RegistryUnavailableError",
    "SubjectVersion", "UnknownSchemaError",
]  # fmt: skip

AVRO = "AVRO"


class RegisteredSchema(NamedTuple):
    """The schema of an id. `type` is AVRO, JSON or PROTOBUF."""

    id: int
    type: str
    text: str
    references: tuple[Reference, ...] = ()


class SubjectVersion(NamedTuple):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    type: str
    text: str
    references: tuple[Reference, ...] = ()


class RegistryClient:
    """The registry at `url` (several addresses by commas, tried in turn). `timeout_s` bounds the wait for each answer.

    RegistryError: the registry refused (`status`, `code`, `message`), RegistryUnavailableError: no address answered. ValueError for a
    URL that cannot be read. Nothing is connected before it is needed.
    """

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self._rest = RestConnection(url, timeout_s)
        self._schemas: dict[int, RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], SubjectVersion] = {}
        self._ids: dict[tuple[object, ...], int] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id. UnknownSchemaError if no schema has it."""
        found = self._schemas.get(schema_id)
        if found is None:
            try:
                answer = self._rest.request("GET", f"/schemas/ids/{schema_id}")
            except RegistryError as error:
                if error.code == SCHEMA_NOT_FOUND:
                    raise UnknownSchemaError(schema_id, error.message) from error
                raise
            found = RegisteredSchema(schema_id, answer.get("schemaType", AVRO), answer["schema"], _references(answer))
            self._schemas[schema_id] = found
        return found

    def register(self, subject: str, text: str, *, type: str = AVRO, references: Sequence[Reference] = (), normalize: bool = False) -> int:  # noqa: A002
        """The id of this schema, which becomes the subject's next version unless it is one already.

        IncompatibleSchemaError if the subject's compatibility forbids it; RegistryError, code 42201, for a text that is no schema.
        """
        key = (subject, text, type, tuple(references), normalize)
        found = self._ids.get(key)
        if found is None:
            try:
                answer = self._rest.request(
                    "POST", f"{_subject(subject)}/versions{_normalize(normalize)}", _schema_body(text, type, references)
                )
            except RegistryError as error:
                if error.status == INCOMPATIBLE:
                    raise IncompatibleSchemaError(subject, error.message, reasons(error.message, text)) from None
                raise
            found = self._ids[key] = int(answer["id"])
        return found

    def lookup(
        self,
        subject: str,
        text: str,
        *,
        type: str = AVRO,  # noqa: A002
        references: Sequence[Reference] = (),
        normalize: bool = False,
    ) -> SubjectVersion:
        """The version of the subject that is this schema; RegistryError, code 40401 or 40403, if it has none."""
        return _version(self._rest.request("POST", f"{_subject(subject)}{_normalize(normalize)}", _schema_body(text, type, references)))

    def latest(self, subject: str) -> SubjectVersion:
        """The newest version of a subject, asked for now. RegistryError, code 40401, for a subject without any."""
        return self._kept(_version(self._rest.request("GET", f"{_subject(subject)}/versions/latest")))

    def version(self, subject: str, version: int) -> SubjectVersion:
        """One version of a subject, a deleted one too. RegistryError, code 40401 or 40402, if there is none."""
        found = self._versions.get((subject, version))
        if found is None:
            found = self._kept(_version(self._rest.request("GET", f"{_subject(subject)}/versions/{version}?deleted=true")))
        return found

    def referenced(self, schema: RegisteredSchema | SubjectVersion) -> list[SubjectVersion]:
        """All schemas that this one refers to, directly or not, each once and after those that it needs itself."""
        ordered: dict[tuple[str, int], SubjectVersion] = {}

        def visit(references: tuple[Reference, ...]) -> None:
            for reference in references:
                key = (reference.subject, reference.version)
                if key not in ordered:
                    found = self.version(*key)
                    visit(found.references)
                    ordered[key] = found

        visit(schema.references)
        return list(ordered.values())

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """The numbers of a subject's versions, rising, those `deleted` softly too if wanted. RegistryError, code 40401, if it has none."""
        return [int(number) for number in self._rest.request("GET", f"{_subject(subject)}/versions{_deleted(deleted)}")]

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """All subjects by name, those whose versions were all `deleted` softly too if wanted."""
        return [str(name) for name in self._rest.request("GET", f"/subjects{_deleted(deleted)}")]

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject, whose numbers are returned: softly, ids and texts stay; then `permanent`. RegistryError."""
        return [int(number) for number in self._delete(_subject(subject), permanent=permanent)]

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        """Delete one version, or the "latest"; its number. As `delete_subject`."""
        return int(self._delete(f"{_subject(subject)}/versions/{version}", permanent=permanent))

    def _delete(self, path: str, *, permanent: bool) -> Any:
        self._ids.clear()
        return self._rest.request("DELETE", f"{path}?permanent=true" if permanent else path)

    def compatibility(self, subject: str | None = None) -> str:
        """The level that holds for a subject, or with None for all that have none of their own: BACKWARD, FULL_TRANSITIVE, ..."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}?defaultToGlobal=true"
        return str(self._rest.request("GET", path)["compatibilityLevel"])

    def set_compatibility(self, subject: str | None, level: str) -> None:
        """Set the level of a subject, or with None of all that have none of their own."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._rest.request("PUT", path, {"compatibility": level})

    def incompatibilities(
        self,
        subject: str,
        text: str,
        *,
        version: int | str | None = "latest",
        type: str = AVRO,  # noqa: A002
        references: Sequence[Reference] = (),
    ) -> list[str]:
        """What forbids this schema as the subject's next version, beside `version` (None: those of the level); empty when nothing does."""
        path = f"/compatibility{_subject(subject)}/versions{'' if version is None else f'/{version}'}?verbose=true"
        answer = self._rest.request("POST", path, _schema_body(text, type, references))
        return [] if answer["is_compatible"] else list(answer.get("messages") or ["incompatible"])

    def close(self) -> None:
        """Close connections; the next request connects again."""
        self._rest.close()

    def _kept(self, found: SubjectVersion) -> SubjectVersion:
        self._versions[found.subject, found.version] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.url, self.timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _make(url: str, timeout_s: float) -> RegistryClient:
    return RegistryClient(url, timeout_s=timeout_s)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _subject(subject: str) -> str:
    return f"/subjects/{_quoted(subject)}"


def _deleted(deleted: bool) -> str:
    return "?deleted=true" if deleted else ""


def _normalize(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _schema_body(text: str, kind: str, references: Sequence[Reference]) -> dict[str, object]:
    body: dict[str, object] = {"schema": text}
    if kind != AVRO:
        body["schemaType"] = kind
    if references:
        body["references"] = [each._asdict() for each in references]
    return body


def _references(answer: Any) -> tuple[Reference, ...]:
    return tuple(Reference(each["name"], each["subject"], int(each["version"])) for each in answer.get("references") or ())


def _version(answer: Any) -> SubjectVersion:
    return SubjectVersion(
        answer["subject"], int(answer["version"]), int(answer["id"]), answer.get("schemaType", AVRO), answer["schema"], _references(answer)
    )
