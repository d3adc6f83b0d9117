"""Records as people and programs read them, for ``moldau consume``. No broker here.

Three formats: ``value`` (the value's bytes), ``json`` (one object per line, everything in it) and a template with ``%`` codes.
In JSON, bytes that are UTF-8 are a string; others are an object ``{"base64": "..."}``, so the two cannot be taken for each other.
A missing key or value (a tombstone) is JSON's ``null``; the other formats write the word ``null`` for it.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Record

TIMESTAMP_TYPES = ("create", "append")

MISSING = b"null"

Formatter = Callable[[TopicPartition, Record], bytes]


class TemplateError(ValueError):
    """A template with a code that means nothing."""


def make_formatter(format_: str, *, terminal: bool) -> Formatter:
    """The formatter for ``value``, ``json`` or a template; TemplateError.

    At a terminal control characters and bytes that are not UTF-8 are written as ``\\x1b``, so that no record can steer the terminal;
    into a file or a pipe bytes go as they are.
    """
    shown = printable if terminal else _as_is
    if format_ == "value":
        return lambda _, record: shown(record.value) + b"\n"
    if format_ == "json":
        return lambda where, record: shown(json_line(where, record).encode()) + b"\n"
    if "%" not in format_:
        raise TemplateError(f"format {format_!r}: neither value nor json, nor a template with % codes such as '%t %p %o %k %s'")
    return _template(format_, shown)


def json_line(where: TopicPartition, record: Record) -> str:
    """One line of JSON with everything that the record has."""
    return json.dumps(
        {
            "topic": where.topic,
            "partition": where.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
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


_Shown = Callable[[bytes | None], bytes]
_Code = Callable[[TopicPartition, Record, _Shown], bytes]

_CODES: dict[str, _Code] = {
    "t": lambda where, record, shown: where.topic.encode(),
    "p": lambda where, record, shown: b"%d" % where.partition,
    "o": lambda where, record, shown: b"%d" % record.offset,
    "T": lambda where, record, shown: b"%d" % record.timestamp,
    "k": lambda where, record, shown: shown(record.key),
    "s": lambda where, record, shown: shown(record.value),
    "h": lambda where, record, shown: b",".join(shown(name.encode()) + b"=" + shown(value) for name, value in record.headers),
    "K": lambda where, record, shown: b"%d" % (-1 if record.key is None else len(record.key)),
    "S": lambda where, record, shown: b"%d" % (-1 if record.value is None else len(record.value)),
    "%": lambda where, record, shown: b"%",
}

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def _template(template: str, shown: _Shown) -> Formatter:
    """Split once into literal bytes and codes; ``\\n`` and ``\\t`` in the text stand for the characters."""
    pieces: list[bytes | _Code] = []
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

    def write(where: TopicPartition, record: Record) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(where, record, shown) for piece in pieces) + b"\n"

    return write
