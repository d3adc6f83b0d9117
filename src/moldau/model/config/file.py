"""Configuration files, loaded only when there is one.

TOML with bare dotted keys, ``num.partitions = 3``. TOML reads a dotted key as nested tables, so ``max.connections`` and
``max.connections.per.ip`` cannot stand in one document. Such keys are names here, not paths: where plain TOML refuses the file, it is read
again with every bare key in quotes.

A ``server.properties`` as Kafka's brokers read it (the format of java.util.Properties): comments (``#``, ``!``), ``=``, ``:`` or blanks
between key and value, a backslash at the end of a line, escapes, the last of several equal keys. Listeners of a KRaft controller are left
out: there is none here.
"""

import re
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


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_KEY_END = re.compile(r"(?:[^\\=:\s]|\\.)*", re.DOTALL)
_BETWEEN = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WITH_LISTENERS = ("listeners", "advertised.listeners")
CONTROLLER_LISTENERS = "controller.listener.names"


def read_properties(text: str, file_name: str) -> list[Entry]:
    """All settings of a file. InvalidConfigError names file and line."""
    entries: dict[str, Entry] = {}
    for number, line in _logical_lines(text):
        origin = f"{file_name}:{number}"
        key = _KEY_END.match(line)
        between = _BETWEEN.match(line, key.end() if key else 0)
        assert key is not None
        assert between is not None
        name = _unescape(key.group(), origin)
        entries[name] = Entry(name, _unescape(line[between.end() :], origin).strip(), origin)
    return [_without_controller(entry, entries.get(CONTROLLER_LISTENERS)) for entry in entries.values()]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, continued ones joined, with the number of the first of them."""
    number, joined = 0, ""
    for at, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if not joined:
            number = at
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield number, joined + line
        joined = ""
    if joined:
        yield number, joined


def _unescape(text: str, origin: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if escaped[:1] == "u":
            if len(escaped) != 5:
                raise InvalidConfigError(f"{origin}: \\u needs four hexadecimal digits")
            return chr(int(escaped[1:], 16))
        return _CONTROL.get(escaped, escaped)

    return _ESCAPE.sub(character, text)


def _without_controller(entry: Entry, controllers: Entry | None) -> Entry:
    if controllers is None or entry.name not in _WITH_LISTENERS:
        return entry
    names = {name.strip().upper() for name in controllers.text.split(",")}
    kept = [each for each in entry.text.split(",") if each.partition("://")[0].strip().upper() not in names]
    return entry._replace(text=",".join(kept))
