"""A log line is an event with fields: the same call gives readable text and JSON that a machine can search."""

import json
import logging
import sys
from decimal import Decimal
from fractions import Fraction

import pytest

from moldau.assembly.server_log import JsonFormatter, TextFormatter


def record(template: str, *fields: object, error: BaseException | None = None) -> logging.LogRecord:
    information = (type(error), error, None) if error else None
    made = logging.LogRecord("moldau.broker.network.connection", logging.WARNING, "connection.py", 1, template, fields, information)
    made.created = 1_767_323_045.678
    return made


def test_text_is_one_line() -> None:
    line = TextFormatter().format(record("connection cut: peer=%s:%d reason=%s", "127.0.0.1", 4711, "not a frame"))
    source = "moldau.broker.network.connection"
    assert line == f"2026-01-02T03:04:05.678Z warning {source} connection cut: peer=127.0.0.1:4711 reason=not a frame"


FORGED = {
    "a line": ("g\n2026-01-02 error \x1b[31m, größer", '"g\\n2026-01-02 error \\u001b[31m, größer"'),
    "a field": ("g generation=7", '"g generation=7"'),
    "the end of a quoted value": ('g" generation=7', '"g\\" generation=7"'),
    "an escape": ("g\\n", '"g\\\\n"'),
    "another direction": ("\u202egnp", '"\\u202egnp"'),
    "a terminal's command in one character": ("\x9b31m", '"\\u009b31m"'),
    "the end of a line elsewhere": ("a\u2028b\x85c", '"a\\u2028b\\u0085c"'),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_value_that_a_peer_has_made_up_can_pass_for_nothing_else(what: str) -> None:
    value, shown = FORGED[what]
    made = record("group rebalances: group=%s generation=%d", value, 1)
    assert TextFormatter().format(made).endswith(f"group rebalances: group={shown} generation=1")
    text = JsonFormatter().format(made)
    assert text.isprintable()
    assert json.loads(text)["group"] == value


def test_a_long_value_is_cut_in_the_middle() -> None:
    made = record("connection cut: peer=%s reason=%s", "p", "x" * 32_000 + " as it ends")
    for shown in (TextFormatter().format(made), json.loads(JsonFormatter().format(made))["reason"]):
        assert len(shown) < 1_200
        assert shown.endswith(" as it ends")
        assert "... (32011 characters) ..." in shown


def test_a_long_line_of_a_traceback_is_cut_too() -> None:
    made = record("cut by a bug: peer=%s", "p", error=ValueError("x" * 32_000 + " as it ends"))
    for shown in (TextFormatter().format(made), json.loads(JsonFormatter().format(made))["traceback"]):
        assert len(shown) < 1_300
        assert shown.endswith(" as it ends")


def test_a_message_of_another_library_is_one_line_too() -> None:
    assert TextFormatter().format(record("odd\nline")).endswith(" odd\\nline")
    assert json.loads(JsonFormatter().format(record("odd\nline")))["event"] == "odd\nline"


def test_a_line_of_a_traceback_cannot_pass_for_one_of_the_log() -> None:
    made = record("cut by a bug: peer=%s", "p", error=ValueError("x\n2026-01-02T03:04:05.678Z info forged\x1b[31m"))
    _, *rest = TextFormatter().format(made).split("\n")
    assert rest
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


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
    assert shown.pop("logger") == "moldau.broker.network.connection"
    assert shown == expected


@pytest.mark.parametrize("number", [Decimal("2.25"), Fraction(9, 4)])
def test_a_number_of_any_type_is_formatted_as_one(number: Decimal | Fraction) -> None:
    """``%d`` and ``%.2f`` refuse text."""
    made = record("slow flush: took=%.2f s count=%d left=%s", float(number), number, number)
    made.args = (number, number, number)
    assert TextFormatter().format(made).endswith(f"slow flush: took=2.25 s count=2 left={number}")
    shown = json.loads(JsonFormatter().format(made))
    assert (shown["took"], shown["count"], shown["left"]) == ("2.25 s", 2, str(number))


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
