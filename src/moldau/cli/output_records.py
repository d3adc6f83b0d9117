"""Records as people and programs read them, for ``moldau consume``. No broker here.

Three formats: ``value`` (the value's bytes), ``json`` (one object per line, everything in it) and a template with ``%`` codes.
In JSON, bytes that are UTF-8 are a string; others are an object ``{"base64": "..."}``, so the two differ.
A missing key or value (a tombstone) is JSON's ``null``; the other formats write the word ``null`` for it.

A formatter writes many records at once, column by column: what is the same for all of them is put together once.
"""

import base64
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from json.encoder import encode_basestring
from typing import Any

from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Columns, Header

TIMESTAMP_TYPES = ("create", "append")

MISSING = b"null"

Formatter = Callable[[TopicPartition, Columns], bytes]
Octets = Sequence[bytes | None]

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class TemplateError(ValueError):
    """A template with a code that means nothing."""


def make_formatter(format_: str, *, terminal: bool, decoded: Collection[str] = ()) -> Formatter:
    """The formatter for ``value``, ``json`` or a template; TemplateError.

    At a terminal control characters and bytes that are not UTF-8 are written as ``\\x1b``, so that no record can steer the terminal;
    into a file or a pipe bytes go as they are. Columns named in `decoded` ("keys", "values") hold JSON texts.
    """
    shown = _printables if terminal else _as_they_are
    if format_ == "value":
        return lambda _, columns: b"".join([b"\n".join(shown(columns.values)), b"\n"])
    if format_ == "json":
        line = _json_lines(decoded)
        return (lambda where, columns: printable(line(where, columns))) if terminal else line
    if "%" not in format_:
        raise TemplateError(f"format {format_!r}: neither value nor json, nor a template with % codes such as '%t %p %o %k %s'")
    return _template(format_, shown)


def _json_lines(decoded: Collection[str]) -> Formatter:
    """One line of JSON per record, with everything that the record has."""
    key = _json_text if "keys" in decoded else _json_octets
    value = _json_text if "values" in decoded else _json_octets

    def write(where: TopicPartition, columns: Columns) -> bytes:
        topic = _json(where.topic).replace("%", "%%")
        line = (
            f'{{"topic":{topic},"partition":{where.partition},"offset":%d,"timestamp":%d,"timestamp_type":"%s",'
            '"key":%s,"value":%s,"headers":%s}\n'
        )
        rows = zip(
            columns.offsets,
            columns.timestamps,
            [TIMESTAMP_TYPES[each] for each in columns.timestamp_types],
            map(key, columns.keys),
            map(value, columns.values),
            [_json_headers(each) if each else "[]" for each in columns.headers],
            strict=True,
        )
        return "".join([line % row for row in rows]).encode()

    return write


def _json_octets(data: bytes | None) -> str:
    """As `json_bytes`; text, which is the rule, the short way."""
    try:
        return "null" if data is None else encode_basestring(data.decode())
    except UnicodeDecodeError:
        return _json(json_bytes(data))


def _json_text(data: bytes | None) -> str:
    return "null" if data is None else data.decode()


def _json_headers(headers: Sequence[Header]) -> str:
    return f"[{','.join(f'[{_json(name)},{_json_octets(value)}]' for name, value in headers)}]"


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


def _printables(column: Octets) -> Sequence[bytes]:
    return [printable(each) for each in column]


def _as_they_are(column: Octets) -> Sequence[bytes]:
    return [MISSING if each is None else each for each in column]


_Shown = Callable[[Octets], Sequence[bytes]]
_Column = Callable[[Columns, _Shown], Iterable[bytes | int]]


def _header_texts(columns: Columns, shown: _Shown) -> Iterable[bytes]:
    for headers in columns.headers:
        names, values = shown([name.encode() for name, _ in headers]), shown([value for _, value in headers])
        yield b",".join([b"%b=%b" % each for each in zip(names, values, strict=True)])


_COLUMNS: dict[str, tuple[bytes, _Column]] = {
    "o": (b"%d", lambda columns, _: columns.offsets),
    "T": (b"%d", lambda columns, _: columns.timestamps),
    "k": (b"%b", lambda columns, shown: shown(columns.keys)),
    "s": (b"%b", lambda columns, shown: shown(columns.values)),
    "h": (b"%b", _header_texts),
    "K": (b"%d", lambda columns, _: _sizes(columns.keys)),
    "S": (b"%d", lambda columns, _: _sizes(columns.values)),
}
"""By the letter of a template: how `%` of bytes writes one, and all of them."""
_SAME: dict[str, Callable[[TopicPartition], bytes]] = {
    "t": lambda where: where.topic.encode(),
    "p": lambda where: b"%d" % where.partition,
    "%": lambda where: b"%",
}
"""What all records of a partition have in common."""
_CODES = "tpoTkshKS%"

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def _sizes(column: Octets) -> list[int]:
    return [-1 if each is None else len(each) for each in column]


def _template(template: str, shown: _Shown) -> Formatter:
    """Split once into literal bytes and codes; ``\\n`` and ``\\t`` in the text are replaced by the characters."""
    pieces: list[bytes | str] = []
    characters = iter(template)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            pieces.append(_ESCAPES.get(following, "\\" + following).encode())
        elif character == "%":
            code = next(characters, "")
            if not code or code not in _CODES:
                raise TemplateError(f"format {template!r}: no code %{code}; there are {', '.join('%' + c for c in _CODES)}")
            pieces.append(code)
        else:
            pieces.append(character.encode())
    used = [_COLUMNS[piece][1] for piece in pieces if isinstance(piece, str) and piece in _COLUMNS]

    def placeholder(piece: bytes | str, where: TopicPartition) -> bytes:
        if isinstance(piece, str) and piece in _COLUMNS:
            return _COLUMNS[piece][0]
        return (piece if isinstance(piece, bytes) else _SAME[piece](where)).replace(b"%", b"%%")

    def write(where: TopicPartition, columns: Columns) -> bytes:
        line = b"".join([*(placeholder(piece, where) for piece in pieces), b"\n"])
        if not used:
            return (line % ()) * len(columns)
        return b"".join([line % row for row in zip(*(column(columns, shown) for column in used), strict=True)])

    return write
