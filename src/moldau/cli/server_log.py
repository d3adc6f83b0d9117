"""The server's own log on standard error: events with fields, as text or as one JSON object per line.

Modules log ``"connection cut: peer=%s:%d reason=%s"``: the event, then its fields by name. As text that is the line; as JSON the same
template is taken apart into ``{"event": "connection cut", "peer": "127.0.0.1:4711", "reason": "..."}``.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


def set_up_logging(level: str, format_: str) -> None:
    """Send everything from `level` on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """``2026-01-02T03:04:05.678Z warning moldau.broker.connection connection cut: peer=127.0.0.1:4711 reason=...``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever peers have put into their names; and a traceback after it if there is one."""
        line = f"{_time(record)} {record.levelname.lower()} {record.name} {_printable(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``event`` and the event's own fields; ``traceback`` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name} | event_fields(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def event_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The event and its fields. Numbers that stand alone stay numbers; text without a name becomes ``detail``."""
    event, colon, rest = str(record.msg).partition(": ")
    if not colon or not isinstance(record.args, tuple) or "%" in event:
        return {"event": record.getMessage()}
    import re

    unnamed, *named = re.split(r"(?:^|\s)([A-Za-z_]\w*)=", rest)
    pairs = [("detail", unnamed), *zip(named[::2], named[1::2], strict=True)]
    fields: dict[str, Any] = {"event": event}
    taken = 0
    for name, template in pairs:
        count = template.count("%") - 2 * template.count("%%")
        values = record.args[taken : taken + count]
        taken += count
        if template:
            fields[name] = values[0] if template in ("%s", "%d") and isinstance(values[0], int | float) else template % values
    return fields


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
