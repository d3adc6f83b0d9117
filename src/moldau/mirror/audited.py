"""Which topics of the target a mirror counts for the audit, as one pattern: those that its file selects, by their names there."""

import re
from typing import TYPE_CHECKING

from moldau.mirror.naming import SEPARATOR, Naming
from moldau.model.topic_names import is_internal

if TYPE_CHECKING:
    from moldau.mirror.patterns import Pattern
    from moldau.mirror.plan.values import MirrorPlan

_FLAGS = re.compile(r"\(\?([aiLmsux]+)\)")


def audited_topics(plan: "MirrorPlan") -> "Pattern":
    """The pattern, for whole names. Topics that operators add or remove at run time do not change it.

    re.error: patterns that do not go into one, as those that name their groups alike.
    """
    included = "|".join(_included(each) for each in plan.topics.include)
    excluded = "|".join(map(_scoped, plan.topics.exclude))
    names = rf"(?!(?:{excluded})\Z)(?:{included})" if excluded else f"(?:{included})"
    if plan.naming is Naming.SOURCE_TOPIC:
        names = f"(?:{'|'.join(re.escape(source.name) for source in plan.sources)}){re.escape(SEPARATOR)}{names}"
    return re.compile(names)


def _included(pattern: "Pattern") -> str:
    """Internal topics only by their exact names, as in :mod:`moldau.mirror.selection`."""
    exact = f"{re.escape(pattern.pattern)}|" if is_internal(pattern.pattern) else ""
    return f"{exact}(?!_){_scoped(pattern)}"


def _scoped(pattern: "Pattern") -> str:
    """Flags at its beginning hold for all of it, and for it alone."""
    flags = _FLAGS.match(pattern.pattern)
    return f"(?:{pattern.pattern})" if flags is None else f"(?{flags[1]}:{pattern.pattern[flags.end() :]})"
