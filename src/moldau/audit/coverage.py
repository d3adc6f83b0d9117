"""Which topics a tier is meant to count, so that it is judged on these alone. Pure.

A tier covers what it has ever counted. Beyond that an auditor covers the topics that its pattern matches, for it says which; a load says
only what it has loaded, so a topic that it never did is not known to be its own. Whoever knows better says so: `Rules.only`.
"""

import re
from typing import TYPE_CHECKING

from moldau.model.topic_names import is_internal, matches
from moldau.tracking.audit_record import AUDIT_TOPIC, PRODUCER_TIER

if TYPE_CHECKING:
    from moldau.audit.tiers import TierCounts


def is_counted(topic: str, pattern: re.Pattern[str] | None) -> bool:
    """Whether an auditor counts a topic: if the pattern matches it; None: all but internal ones."""
    if topic == AUDIT_TOPIC:
        return False
    return not is_internal(topic) if pattern is None else matches(pattern, topic)


def covers(found: "TierCounts", tier: str, topic: str) -> bool:
    """Whether a tier is meant to count a topic, as far as it says so itself. One that never said anything is: somebody waits for it."""
    if tier == PRODUCER_TIER or tier not in found.heard_ms or found.has_counts_of(tier, topic):
        return True
    return says_what_it_counts(found, tier) and is_counted(topic, _compiled(found.pattern_of(tier)))


def says_what_it_counts(found: "TierCounts", tier: str) -> bool:
    """Whether a tier has published which topics it counts, as auditors do: it will not count another one."""
    return tier in found.auditors


def _compiled(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error:
        return re.compile(".*", re.DOTALL)
