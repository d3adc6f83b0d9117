"""A limit of dead letters is a number or a part of the records."""

import click
import pytest

from moldau.cli.load import Limit, LimitType


def limit(text: str) -> Limit:
    return LimitType().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "dead", "records", "exceeded"),
    [
        ("0", 0, 100, False),
        ("0", 1, 100, True),
        ("3", 3, 3, False),
        ("3", 4, 10_000, True),
        ("1%", 1, 100, False),
        ("1%", 2, 100, True),
        ("0.5%", 1, 100, True),
        ("0%", 0, 0, False),
        ("0%", 1, 1_000_000, True),
        ("100%", 3_000, 3_000, False),
    ],
)
def test_limits(text: str, dead: int, records: int, exceeded: bool) -> None:
    assert limit(text).exceeded_by(dead, records) is exceeded


@pytest.mark.parametrize("text", ["", "-1", "1.5", "101%", "%", "many"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is neither a number nor a percentage"):
        limit(text)
