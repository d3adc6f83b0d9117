"""One request of the REST interface, taken apart: names in its path, options after the question mark, its body; and the body of its answer.

Answers have Confluent's names in Confluent's order; what is empty is left out.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.registry.errors import RestError, invalid_version, unprocessable
from moldau.registry.limits import BODY_ELEMENTS_MAX, count_elements
from moldau.registry.records import NUMBER_MAX, SchemaVersion, guid
from moldau.registry.subjects import DEFAULT_CONTEXT, GLOBAL_SCOPE, normalize, parse_subject, scope_of

if TYPE_CHECKING:
    from moldau.registry.state import RegistryState


T = TypeVar("T")

OK, NO_CONTENT = 200, 204

LATEST = -1
_DIGITS_MAX = 10


@dataclass(frozen=True, slots=True)
class RestRequest:
    """What was asked. `names` are the parts of the path that the route names, `context` comes from a path that begins with one."""

    method: str
    target: str
    """Path and options as received, for forwarding."""
    names: Mapping[str, str]
    options: Mapping[str, list[str]]
    content: bytes = b""
    context: str = DEFAULT_CONTEXT
    forwarded: bool = False

    def subject(self, state: "RegistryState") -> str:
        """The subject in the path; an alias is replaced by the subject that its configuration names."""
        found = self.qualified(self.names["subject"])
        alias = state.configs.get(found, {}).get("alias")
        if not alias:
            return found
        return normalize(alias) if alias.startswith(":.") else f"{scope_of(parse_subject(found).context)}{alias}"

    def scope(self) -> str | None:
        """Where a configuration or mode is to be set: a subject, a whole context, or None for the default context."""
        name = self.names.get("subject")
        found = scope_of(self.context) if name is None else self.qualified(name)
        if found.startswith(":") and not found.endswith(":") and not parse_subject(found).name:
            found = f"{found}:" if found != GLOBAL_SCOPE[:-1] else GLOBAL_SCOPE
        return found or None

    def qualified(self, subject: str) -> str:
        """A subject in the context of the path, unless it names one itself."""
        if self.context != DEFAULT_CONTEXT and not subject.startswith(":"):
            return f"{scope_of(self.context)}{subject}"
        return normalize(subject)

    @property
    def version(self) -> int:
        """The version in the path; -1 for ``latest``. RestError 42202."""
        text = self.names["version"]
        if text in ("latest", "-1"):
            return LATEST
        if not _is_number(text) or int(text) < 1:
            raise invalid_version(text)
        return int(text)

    @property
    def id(self) -> int:
        """The schema id in the path. RestError 404 for what can be none."""
        text = self.names["id"]
        if not _is_number(text):
            raise RestError(404, 404, "HTTP 404 Not Found")
        return int(text)

    def text(self, name: str, default: str = "") -> str:
        """An option's value."""
        return self.options.get(name, [default])[0]

    def flag(self, name: str) -> bool:
        """Whether an option is ``true``."""
        return self.text(name).lower() == "true"

    def page(self, found: Iterable[T]) -> list[T]:
        """That part of a list which ``offset`` and ``limit`` ask for."""
        offset, limit = self._number("offset", 0), self._number("limit", LATEST)
        return list(itertools.islice(found, offset, None if limit < 0 else offset + limit))

    def json(self) -> Any:
        """The body. RestError 400 if it is not JSON in UTF-8; NaN and halves of surrogate pairs are none: no other registry reads them."""
        if not self.content.strip():
            raise unprocessable("a body is needed")
        if count_elements(self.content) > BODY_ELEMENTS_MAX:
            raise RestError(413, 413, f"The body has more than {BODY_ELEMENTS_MAX:,} JSON values")
        try:
            text = self.content.decode("utf-8-sig")
            found = json.loads(text, parse_constant=_refuse_constant)
            if "\\ud" in text or "\\uD" in text:
                json.dumps(found, ensure_ascii=False).encode()
        except RecursionError as error:
            raise RestError(400, 400, "The body is JSON that is nested too deeply") from error
        except ValueError as error:
            raise RestError(400, 400, f"The body is not JSON: {error}") from error
        return found

    def _number(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not _is_number(text.removeprefix("-")):
            raise unprocessable(f"{name} is not a number")
        return max(int(text), LATEST if default < 0 else 0)


def _is_number(text: str) -> bool:
    """Whether this is a number that fits into an int32, without a sign."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= NUMBER_MAX


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def encode_json(value: Any) -> bytes:
    """An answer's body; nothing for None."""
    return b"" if value is None else json.dumps(value, separators=(",", ":")).encode()


def version_view(schema: SchemaVersion, text: str | None = None) -> dict[str, Any]:
    """A version of a subject; `text` replaces the stored one where another format was asked for."""
    return {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        **_content(schema, text),
        **_when(schema),
        **({"deleted": True} if schema.deleted else {}),
    }


def registered_view(schema: SchemaVersion, sent: str) -> dict[str, Any]:
    """What a registration comes to.

    A Protobuf schema that was `sent` as a descriptor is stored as text. That text is left out here: Confluent's client keeps the schema of
    the answer if there is one, and takes it for a descriptor later.
    """
    found = {"id": schema.id, "version": schema.version, **_content(schema, None), **_when(schema)}
    if schema.type == "PROTOBUF" and sent != schema.text:
        del found["schema"]
    return found


def schema_view(schema: SchemaVersion, text: str | None = None, *, named: bool = False, id_max: int | None = None) -> dict[str, Any]:
    """The schema of an id; `named` adds the subject and the version where it was looked up."""
    where = {"subject": schema.subject, "version": schema.version} if named else {}
    highest = {} if id_max is None else {"maxId": id_max}
    return {**where, **_content(schema, text), **highest, **_when(schema)}


def config_view(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, as GET gives it."""
    return dict(config)


def config_update_view(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, as PUT gives it back: there the level has another name."""
    return {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}


def _content(schema: SchemaVersion, text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"guid": guid(schema.fingerprint), "schemaType": schema.type}
    if schema.references:
        found["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        found["metadata"] = schema.metadata
    if schema.rule_set is not None:
        found["ruleSet"] = schema.rule_set
    found["schema"] = schema.text if text is None else text
    return found


def _when(schema: SchemaVersion) -> dict[str, Any]:
    return {} if schema.timestamp_ms is None else {"ts": schema.timestamp_ms}
