"""What can go wrong between us and a schema registry; every message names what was asked for."""

from collections.abc import Sequence

from moldau.model.errors import MoldauError, WorldError

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
    """A schema that the readers or writers of its subject's earlier versions could not live with.

    One line says which field, why, and how many `reasons` more there are; `message` is all that the registry said, whole schemas in it.
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
    """None of the registry's addresses gave an answer."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retriable=True)

    def __reduce__(self) -> tuple[type["RegistryUnavailableError"], tuple[str]]:
        return RegistryUnavailableError, (str(self),)
