"""A ``server.properties`` as Kafka's brokers read it (the format of java.util.Properties). Loaded only when there is one.

Taken over from it: comments (``#``, ``!``), ``=``, ``:`` or blanks between key and value, a backslash at the end of a line, escapes, the
last of several equal keys. Listeners of a KRaft controller are left out: there is none here.
"""

import re
from collections.abc import Iterator

from moldau.model.config.definition import InvalidConfigError
from moldau.model.config.file import Entry

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
