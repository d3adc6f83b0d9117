"""One request of the REST interface, taken apart: names in its path, options behind the question mark, its body; and an answer's body."""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.registry.errors import RestError, invalid_version, unprocessable
from moldau.registry.limits import BODY_ELEMENTS_MAX, count_elements
from moldau.registry.records import NUMBER_MAX
from moldau.registry.subjects import DEFAULT_CONTEXT, GLOBAL_SCOPE, normalize, parse_subject, scope_of

if TYPE_CHECKING:
    from moldau.registry.state import RegistryState

T = TypeVar("T")

OK, NO_CONTENT = 200, 204

LATEST = -1
_DIGITS_MAX = 10


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. `names` are the parts of the path that the route names, `context` comes from a path that begins with one."""

    method: str
    target: str
    """Path and options as they came, for whoever forwards it."""
    names: Mapping[str, str]
    options: Mapping[str, list[str]]
    content: bytes = b""
    context: str = DEFAULT_CONTEXT
    forwarded: bool = False

    def subject(self, state: "RegistryState") -> str:
        """The subject in the path; an alias stands for the subject that its configuration names."""
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
