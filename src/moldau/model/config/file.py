"""A configuration file: TOML with bare dotted keys, ``num.partitions = 3``. Loaded only when there is one.

TOML reads a dotted key as nested tables, so ``max.connections`` and ``max.connections.per.ip`` cannot stand in one document. Such keys are
names here, not paths: where plain TOML refuses the file, it is read again with every bare key in quotes.
"""

import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from moldau.model.config.definition import InvalidConfigError

BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class Entry(NamedTuple):
    """One setting: its name, its value as text, and ``file:line``."""

    name: str
    text: str
    origin: str


def read_file(text: str, file_name: str) -> list[Entry]:
    """All settings of a file. InvalidConfigError names file and line."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        try:
            document = tomllib.loads(_quote_keys(text))
        except tomllib.TOMLDecodeError:
            raise InvalidConfigError(f"{file_name}: {error}") from None
    lines = _lines_of_keys(text)
    entries = []
    for name, value in _flatten(document, ""):
        line = lines.get(name)
        origin = file_name if line is None else f"{file_name}:{line}"
        entries.append(Entry(name, _text_of(value, name, origin), origin))
    return entries


def _flatten(table: dict[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text_of(value: object, name: str, origin: str) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return repr(value)
        case list() if all(isinstance(item, str | int) for item in value):
            return ",".join(str(item) for item in value)
        case _:
            raise InvalidConfigError(f"{origin}: {name}: a {type(value).__name__} is not a value of a configuration", name)


def _quote_keys(text: str) -> str:
    return "\n".join(_quote_key(line) for line in text.split("\n"))


def _quote_key(line: str) -> str:
    key, equals, rest = line.partition("=")
    name = key.strip()
    return f'"{name}" ={rest}' if equals and name and BARE.issuperset(name) else line


def _lines_of_keys(text: str) -> dict[str, int]:
    """Where each key stands, for messages; a key inside a multi-line string may be taken for one, which does no harm."""
    lines: dict[str, int] = {}
    prefix = ""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            prefix = stripped.strip("[] ") + "."
        elif "=" in stripped:
            lines.setdefault(prefix + stripped.partition("=")[0].strip().replace('"', ""), number)
    return lines
