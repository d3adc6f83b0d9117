"""Records as people and programs read them, for ``moldau consume``. No broker here.

Three formats: ``value`` (the value's bytes), ``json`` (one object per line, everything in it) and a template with ``%`` codes.
In JSON, bytes that are UTF-8 are a string; others are an object ``{"base64": "..."}``, so the two cannot be taken for each other.
A missing key or value (a tombstone) is JSON's ``null``; the other formats write the word ``null`` for it.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TIMESTAMP_TYPES = ("create", "append")

MISSING = b"null"


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record with its place. `timestamp_type` 0 was set by the producer, 1 by the broker."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


Formatter = Callable[[ConsumedRecord], bytes]


class TemplateError(ValueError):
    """A template with a code that means nothing."""


def make_formatter(format_: str, *, terminal: bool) -> Formatter:
    """The formatter for ``value``, ``json`` or a template; TemplateError.

    At a terminal control characters and bytes that are not UTF-8 are written as ``\\x1b``, so that no record can steer the terminal;
    into a file or a pipe bytes go as they are.
    """
    shown = printable if terminal else _as_is
    if format_ == "value":
        return lambda record: shown(record.value) + b"\n"
    if format_ == "json":
        return lambda record: shown(json_line(record).encode()) + b"\n"
    if "%" not in format_:
        raise TemplateError(f"format {format_!r}: neither value nor json, nor a template with % codes such as '%t %p %o %k %s'")
    return _template(format_, shown)


def json_line(record: ConsumedRecord) -> str:
    """One line of JSON with everything that the record has."""
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
            "headers": [[name, json_bytes(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def json_bytes(data: bytes | None) -> Any:
    """Bytes as a JSON value: a string where they are UTF-8, else ``{"base64": ...}``, null where there are none."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def printable(data: bytes | None) -> bytes:
    """Bytes safe to write to a terminal: UTF-8 as it is, other bytes and control characters but tab and line end escaped."""
    if data is None:
        return MISSING
    text = data.decode("utf-8", "backslashreplace")
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text)
    return text.encode("utf-8", "backslashreplace")


def _as_is(data: bytes | None) -> bytes:
    return MISSING if data is None else data


_CODES: dict[str, Callable[[ConsumedRecord, Callable[[bytes | None], bytes]], bytes]] = {
    "t": lambda record, _: record.topic.encode(),
    "p": lambda record, _: b"%d" % record.partition,
    "o": lambda record, _: b"%d" % record.offset,
    "T": lambda record, _: b"%d" % record.timestamp_ms,
    "k": lambda record, shown: shown(record.key),
    "s": lambda record, shown: shown(record.value),
    "h": lambda record, shown: b",".join(shown(name.encode()) + b"=" + shown(value) for name, value in record.headers),
    "K": lambda record, _: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda record, _: b"%d" % (-1 if record.value is None else len(record.value)),
    "%": lambda record, _: b"%",
}

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def _template(template: str, shown: Callable[[bytes | None], bytes]) -> Formatter:
    """Split once into literal bytes and codes; ``\\n`` and ``\\t`` in the text stand for the characters."""
    pieces: list[bytes | Callable[[ConsumedRecord, Callable[[bytes | None], bytes]], bytes]] = []
    characters = iter(template)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            pieces.append(_ESCAPES.get(following, "\\" + following).encode())
        elif character == "%":
            code = next(characters, "")
            if code not in _CODES:
                raise TemplateError(f"format {template!r}: no code %{code}; there are {', '.join('%' + c for c in _CODES)}")
            pieces.append(_CODES[code])
        else:
            pieces.append(character.encode())

    def write(record: ConsumedRecord) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(record, shown) for piece in pieces) + b"\n"

    return write
