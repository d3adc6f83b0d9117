"""The server's own log on standard error: events with fields, as text or as one JSON object per line.

Modules log ``"connection cut: peer=%s:%d reason=%s"``: the event, then its fields by name. As text that is the line; as JSON the same
template is taken apart into ``{"event": "connection cut", "peer": "127.0.0.1:4711", "reason": "..."}``.

Values come from peers for the most part: names of groups, members and topics, and errors that quote them. So every value is cut where it is
long, here and nowhere else, and as text it is quoted where it could pass for another field or another line:

    group is empty: group="g generation=7\\nforged" generation=3
"""

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from numbers import Integral, Number
from typing import Any

VALUE_MAX = 1000
"""Characters of one value; of a longer one the beginning and the end are left, for errors end with what helps."""
END_LEFT = 200
LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_AMBIGUOUS = frozenset('="\\')


def set_up_logging(level: str, format_: str) -> None:
    """Send everything from `level` on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """``2026-01-02T03:04:05.678Z warning moldau.broker.network.connection connection cut: peer=127.0.0.1:4711 reason=...``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever peers have put into their names; and a traceback after it if there is one, its lines indented."""
        line = f"{_time(record)} {record.levelname.lower()} {record.name} {_printable(_message(record, _quoted))}"
        if not record.exc_info:
            return line
        return "\n".join((line, *(f"  {_printable(_cut(each))}" for each in self.formatException(record.exc_info).splitlines())))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``event`` and the event's own fields; ``traceback`` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name} | event_fields(record)
        if record.exc_info:
            fields["traceback"] = "\n".join(map(_cut, self.formatException(record.exc_info).splitlines()))
        return _printable(json.dumps(fields, ensure_ascii=False, default=str))


def event_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The event and its fields. Numbers that stand alone stay numbers; text without a name becomes ``detail``."""
    event, colon, rest = str(record.msg).partition(": ")
    if not colon or not isinstance(record.args, tuple) or "%" in event:
        return {"event": _message(record, _cut)}
    import re

    unnamed, *named = re.split(r"(?:^|\s)([A-Za-z_]\w*)=", rest)
    pairs = [("detail", unnamed), *zip(named[::2], named[1::2], strict=True)]
    fields: dict[str, Any] = {"event": event}
    taken = 0
    for name, template in pairs:
        count = template.count("%") - 2 * template.count("%%")
        values = tuple(_as_argument(value, _cut) for value in record.args[taken : taken + count])
        taken += count
        if template:
            fields[name] = _field(template, values)
    return fields


def _field(template: str, values: tuple[object, ...]) -> object:
    """The value of a field: a number where it stands alone and JSON has such numbers, otherwise text."""
    first = values[0] if values else None
    if template in ("%s", "%d") and isinstance(first, int | float):
        return first
    text = template % values
    return int(text) if template == "%d" or (template == "%s" and isinstance(first, Integral)) else text


def _message(record: logging.LogRecord, shown: Callable[[str], str]) -> str:
    """The message with its arguments as `shown` makes them."""
    if not isinstance(record.args, tuple):
        return record.getMessage()
    if not record.args:
        return _cut(str(record.msg))
    return str(record.msg) % tuple(_as_argument(value, shown) for value in record.args)


def _as_argument(value: object, shown: Callable[[str], str]) -> object:
    """`value` as it is where a template such as ``%d`` may need it, text as `shown` makes it."""
    return value if value is None or isinstance(value, Number) else shown(str(value))


def _quoted(value: str) -> str:
    """A value of a line of text: as it is, or as JSON writes it where it could be read as more than a value."""
    text = _cut(value)
    return text if text.isprintable() and not _AMBIGUOUS.intersection(text) else json.dumps(text, ensure_ascii=False)


def _cut(text: str) -> str:
    if len(text) <= VALUE_MAX:
        return text
    return f"{text[: VALUE_MAX - END_LEFT]}... ({len(text)} characters) ...{text[-END_LEFT:]}"


def _printable(text: str) -> str:
    """Text without what moves a cursor or the direction of writing, as JSON writes it."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
