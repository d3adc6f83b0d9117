"""A log line is an event with fields: the same call gives readable text and JSON that a machine can search."""

import json
import logging
import sys

import pytest

from moldau.cli.server_log import JsonFormatter, TextFormatter


def record(template: str, *fields: object, error: BaseException | None = None) -> logging.LogRecord:
    information = (type(error), error, None) if error else None
    made = logging.LogRecord("moldau.broker.connection", logging.WARNING, "connection.py", 1, template, fields, information)
    made.created = 1_767_323_045.678
    return made


def test_text_is_one_line() -> None:
    line = TextFormatter().format(record("connection cut: peer=%s:%d reason=%s", "127.0.0.1", 4711, "not a frame"))
    assert line == "2026-01-02T03:04:05.678Z warning moldau.broker.connection connection cut: peer=127.0.0.1:4711 reason=not a frame"


def test_a_name_that_a_peer_has_made_up_cannot_begin_another_line() -> None:
    line = TextFormatter().format(record("group rebalances: group=%s generation=%d", "g\n2026-01-02 error \x1b[31m, größer", 1))
    assert line.endswith("group rebalances: group=g\\n2026-01-02 error \\x1b[31m, größer generation=1")


@pytest.mark.parametrize(
    ("template", "fields", "expected"),
    [
        (
            "connection cut: peer=%s:%d reason=%s",
            ("::1", 4711, "a: b=c"),
            {"event": "connection cut", "peer": "::1:4711", "reason": "a: b=c"},
        ),
        ("folder left alone: path=%s bytes=%d", ("/d", 7), {"event": "folder left alone", "path": "/d", "bytes": 7}),
        (
            "connection closed: peer=%s reason=idle for %d ms",
            ("p", 5),
            {"event": "connection closed", "peer": "p", "reason": "idle for 5 ms"},
        ),
        ("disk at 100%%: share=%d%%", (99,), {"event": "disk at 100%: share=99%"}),
        ("almost full: share=%d%%", (99,), {"event": "almost full", "share": "99%"}),
        ("checkpoint not used: %s", ("line 3",), {"event": "checkpoint not used", "detail": "line 3"}),
        ("started", (), {"event": "started"}),
        ("%s: odd", ("x",), {"event": "x: odd"}),
    ],
)
def test_json_has_the_fields_by_name(template: str, fields: tuple[object, ...], expected: dict[str, object]) -> None:
    shown = json.loads(JsonFormatter().format(record(template, *fields)))
    assert shown.pop("time") == "2026-01-02T03:04:05.678Z"
    assert shown.pop("level") == "warning"
    assert shown.pop("logger") == "moldau.broker.connection"
    assert shown == expected


def test_a_traceback_stays_within_its_line_of_json() -> None:
    try:
        raise ValueError("bad\nluck")
    except ValueError:
        made = record("cut by a bug: peer=%s", "p")
        made.exc_info = sys.exc_info()
    text = JsonFormatter().format(made)
    assert "\n" not in text
    assert "ValueError: bad\nluck" in json.loads(text)["traceback"]
    assert "ValueError: bad" in TextFormatter().format(made)
