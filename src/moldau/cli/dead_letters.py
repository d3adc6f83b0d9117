"""How many dead letters a load may have before its exit code says so: a number, or a part of the records that it took."""

import re
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `number` of each topic and load, or `percent` of its records."""

    text: str
    number: int | None
    percent: float | None

    def exceeded_by(self, dead_letters: int, records: int) -> bool:
        """Whether `dead_letters` of `records` are too many."""
        if self.number is not None:
            return dead_letters > self.number
        assert self.percent is not None
        return dead_letters * 100 > self.percent * records


class LimitType(click.ParamType[Limit]):
    """``100``, ``1%``, ``0.5%``."""

    name = "N|N%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Limit:
        """A limit."""
        if isinstance(value, Limit):
            return value
        found = re.fullmatch(r"(?:(\d{1,18})|(\d{1,3}(?:\.\d{1,6})?)%)", str(value).strip())
        if found is None or float(found[2] or 0) > 100:
            self.fail(f"{value!r} is neither a number nor a percentage from 0% to 100%", param, ctx)
        return Limit(str(value).strip(), None if found[1] is None else int(found[1]), None if found[2] is None else float(found[2]))
