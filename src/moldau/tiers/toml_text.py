"""Values as TOML, for files that are made from the file of tiers: those of mirrors and of the audit."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r'[^\x00-\x1f"\\\x7f]*')


def toml_lines(content: Mapping[str, Any]) -> str:
    """A document, one key of its top to a line."""
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in content.items())


def toml_table(path: Sequence[str], content: Mapping[str, Any]) -> str:
    """A table with its header, after an empty line."""
    return f"\n[{'.'.join(map(_key, path))}]\n{toml_lines(content)}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return f"{{ {', '.join(f'{_key(name)} = {_value(inner)}' for name, inner in value.items())} }}"
        case _:
            raise TypeError(f"no value of TOML: {value!r}")


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'
