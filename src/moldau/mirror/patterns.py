"""Regular expressions for whole names, of topics and of groups: which are included, and which of those are not."""

import re
from dataclasses import dataclass

Pattern = re.Pattern[str]


def parse_pattern(text: str) -> Pattern:
    """A pattern for whole names. ValueError says what is wrong with it."""
    if not text:
        raise ValueError("an empty pattern matches no name")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "; every name is '.*'" if text.startswith("*") else ""
        raise ValueError(f"{text!r} is not a regular expression: {error}{hint}") from None


def is_matched(name: str, patterns: tuple[Pattern, ...]) -> bool:
    """Whether one of these matches the whole name."""
    return any(pattern.fullmatch(name) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """Names that one of `include` matches, and none of `exclude`."""

    include: tuple[Pattern, ...]
    exclude: tuple[Pattern, ...] = ()

    def matches(self, name: str) -> bool:
        """Whether the name is one of them."""
        return is_matched(name, self.include) and not is_matched(name, self.exclude)
