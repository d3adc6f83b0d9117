"""Which names topics may have, and which topics are internal: those whose names begin with an underscore, of brokers, registries, audits
and Spark's checkpoints.

Patterns do not match internal topics, so that `.*` means all topics of events. A pattern that begins with an underscore itself does:
`_?.*` is every topic there is, `_schemas` this one.
"""

import re
from typing import Final

from moldau.model.errors import ErrorCode, PeerError

INTERNAL_PREFIX: Final = "_"

LENGTH_MAX: Final = 249
NAME_RULE: Final = f"a name has 1 to {LENGTH_MAX} letters (a-z, A-Z), digits, '.', '_' and '-', and is neither '.' nor '..'"


_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{LENGTH_MAX}}}")


def is_allowed(name: str) -> bool:
    """Whether a topic may have this name."""
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str) -> None:
    """PeerError INVALID_TOPIC_EXCEPTION unless a topic may have this name."""
    if is_allowed(name):
        return
    if not name:
        problem = "a topic's name is empty"
    elif len(name) > LENGTH_MAX:
        problem = f"the topic's name '{name[:20]}...' has {len(name)} characters"
    else:
        problem = f"a topic cannot be named '{name}'"
    raise PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{problem}; {NAME_RULE}")


def is_internal(topic: str) -> bool:
    """Whether a topic with this name is an internal one."""
    return topic.startswith(INTERNAL_PREFIX)


def names_internal(pattern: str) -> bool:
    """Whether a regular expression matches internal topics too."""
    return pattern.removeprefix("^").startswith(INTERNAL_PREFIX)


def matches(pattern: re.Pattern[str], topic: str) -> bool:
    """Whether a pattern matches the whole name of a topic; not that of an internal one, unless the pattern begins as its name does."""
    return pattern.fullmatch(topic) is not None and (not is_internal(topic) or names_internal(pattern.pattern))
