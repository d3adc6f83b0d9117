"""Times and durations as people write them, the same for every command: ``90s``, ``1h``, ``2013-01-01T05:00:00Z``, ``@1357016400000``."""

import re
from typing import Any

import click

TIME_FORMS = "a duration ago (90s, 30m, 1h, 2d, 1w), an ISO time (UTC unless it says otherwise), or @ and milliseconds since 1970"
"""For help texts and messages."""
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(rf"(\d{{1,15}}(?:\.\d{{1,9}})?)({'|'.join(_UNIT_MS)})?", re.ASCII)
_MILLISECONDS = re.compile(r"@(\d{1,18})", re.ASCII)


def parse_duration_ms(text: str) -> float:
    """Milliseconds of ``500ms``, ``90s``, ``30m``, ``1.5h``, ``2d``, ``1w``; a number alone is seconds. ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a number of seconds, nor a duration such as 90s, 30m, 2h, 1d")
    return float(found[1]) * _UNIT_MS[found[2] or "s"]


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of an ISO time, ``@1357016400000``, or so long before now: ``90s``, ``1h``, ``2d``. ValueError.

    A time without a zone is UTC. A time before 1970 is 1970: to a broker negative timestamps are something else (-1 the end, -2 the
    beginning).
    """
    from datetime import UTC, datetime  # which most commands do without

    word = text.strip()
    if found := _MILLISECONDS.fullmatch(word):
        return int(found[1])
    ago = _DURATION.fullmatch(word)
    if ago is not None and ago[2]:
        return max(0, now_ms - round(parse_duration_ms(word)))
    try:
        moment = datetime.fromisoformat("" if ago else word)
    except ValueError:
        raise ValueError(f"{text!r} is not a time: write {TIME_FORMS}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


class Time(click.ParamType[int]):
    """A time, in milliseconds since 1970."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The time, or a usage error."""
        from moldau.tracking.clock import now_ms

        try:
            return value if isinstance(value, int) else parse_time(value, now_ms())
        except ValueError as error:
            self.fail(str(error), param, ctx)


TIME = Time()
