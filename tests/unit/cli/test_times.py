"""Times and durations are read as people write them, by every command in the same way."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from moldau.cli.offsets import POINT
from moldau.cli.options import SECONDS, TIME, parse_duration_ms, parse_time

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("500ms", NOW_MS - 500),
        ("90s", NOW_MS - 90_000),
        ("30m", NOW_MS - 1_800_000),
        ("1h", NOW_MS - 3_600_000),
        ("1.5h", NOW_MS - 5_400_000),
        ("2d", NOW_MS - 172_800_000),
        ("1w", NOW_MS - 604_800_000),
        ("999999w", 0),
        ("2013-01-01T05:00:00Z", 1357016400000),
        ("2013-01-01T05:00", 1357016400000),
        ("1969-12-31T23:59:59.998Z", 0),
        ("@1357016400000", 1357016400000),
    ],
)
def test_times_are_read(text: str, time_ms: int) -> None:
    assert parse_time(text, NOW_MS) == time_ms


@pytest.mark.parametrize("text", ["", "1", "20130101", "1.5", "h", "-1h", "1y", "1 h", "beginning", "-3", "@", "@-5", "12:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: write a duration ago"):
        parse_time(text, NOW_MS)


@pytest.mark.parametrize(("text", "ms"), [("0", 0), ("30", 30_000), ("0.5", 500), ("250ms", 250), ("1.5m", 90_000), ("1d", 86_400_000)])
def test_durations_are_read(text: str, ms: float) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "1e300", "soon", "5 m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of seconds, nor a duration such as 90s"):
        parse_duration_ms(text)


def test_commands_that_take_a_time_a_point_or_seconds_read_them_in_the_same_way() -> None:
    """Claim: what the help calls TIME, POINT or SECONDS is read by the one reader of it."""
    readers = {"TIME": TIME, "POINT": POINT, "SECONDS": SECONDS}
    found = [(name, option) for name, option in _options(application, click.Context(application), "moldau") if option.metavar in readers]
    assert [f"{name} {option.opts}" for name, option in found if option.type is not readers[str(option.metavar)]] == []
    assert len(found) > 10


def _options(command: click.Command, context: click.Context, name: str) -> Iterator[tuple[str, click.Option]]:
    yield from ((name, each) for each in command.params if isinstance(each, click.Option))
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield from _options(inner, context, f"{name} {each}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--since", "1h"],
        ["consume", "t", "--from", "1h"],
        ["topic", "trim", "t", "--before", "1h"],
        ["group", "reset", "g", "--to", "1h"],
        ["audit", "report", "--since", "1h"],
        ["audit", "report", "--grace", "lake=15m"],
        ["audit", "watch", "--since", "1h", "--every", "1m"],
    ],
    ids=" ".join,
)
def test_an_hour_ago_is_no_wrong_use(arguments: list[str]) -> None:
    done = CliRunner().invoke(application, [*arguments, "--bootstrap", "127.0.0.1:1", "--timeout", "100ms"])
    assert "127.0.0.1:1: connection refused (tried for 0.1 s)" in done.output
    assert done.exit_code == 1
