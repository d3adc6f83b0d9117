"""How tiers are compared: which ones, of which topics, and how patiently; and which topics a tier has to count. Pure.

A tier covers what it has ever counted. Beyond that an auditor covers the topics that its published pattern matches; a load publishes
only what it has loaded, so a topic that it never loaded is not known to be its own. `Rules.only` overrides this.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from moldau.audit.tree import NO_TREE, TierTree
from moldau.audit.verdicts import WindowPair
from moldau.model.topic_names import is_internal, matches
from moldau.tracking.audit_record import AUDIT_TOPIC, PRODUCER_TIER
from moldau.tracking.counts import WINDOW_MS

if TYPE_CHECKING:
    from moldau.audit.tiers import TierCounts


def is_counted(topic: str, pattern: re.Pattern[str] | None) -> bool:
    """Whether an auditor counts a topic: if the pattern matches it; None: all but internal ones."""
    if topic == AUDIT_TOPIC:
        return False
    return not is_internal(topic) if pattern is None else matches(pattern, topic)


def covers(found: "TierCounts", tier: str, topic: str) -> bool:
    """Whether a tier has to count a topic, by its own records. A tier without any record has to: it is expected."""
    if tier == PRODUCER_TIER or tier not in found.heard_ms or found.has_counts_of(tier, topic):
        return True
    return publishes_its_topics(found, tier) and is_counted(topic, _compiled(found.pattern_of(tier)))


def publishes_its_topics(found: "TierCounts", tier: str) -> bool:
    """Whether a tier has published which topics it counts, as auditors do: it will not count another one."""
    return tier in found.auditors


def _compiled(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error:
        return re.compile(".*", re.DOTALL)


GRACE_MS = 120_000
PRODUCER_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class Rules:
    """How tiers are compared. Times in ms."""

    now_ms: int
    tree: TierTree = NO_TREE
    """From the producers down; empty: a chain of producers, then auditors, then loads, each as they were first seen."""
    grace_ms: int = GRACE_MS
    """How long a lower tier may take after the last change."""
    graces_ms: Mapping[str, int] = field(default_factory=dict)
    """The same by tier, where it is another."""
    only: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    """The topics that a tier has to count, where that differs from `covers`."""
    producer_timeout_ms: int = PRODUCER_TIMEOUT_MS
    """So long after the last record of an instance that did not close, the log's count is taken for its own."""
    vouch_ms: int = 180_000
    """How much later than the lower tier's last change an open instance has to publish: it counts an event when that is acknowledged,
    which may be two minutes after it is in the log; and clocks differ."""
    skew_ms: int = 300_000
    """Event times so far in the future are a wrong clock's."""
    behind_ms: int = 172_800_000
    """So much older than other hosts' events are those of a host whose clock lags."""
    topics: Collection[str] | None = None
    """Only these; None: all."""
    since_ms: int | None = None
    """Only windows that end later; watermarks know the others too."""

    @property
    def tiers(self) -> tuple[str, ...]:
        """Those that were asked for by name."""
        return self.tree.names

    def grace_of(self, tier: str) -> int:
        """The grace of a lower tier."""
        return self.graces_ms.get(tier, self.grace_ms)

    def shows(self, pair: WindowPair) -> bool:
        """Whether a window is wanted in the report."""
        return self.shows_window(pair.window_start_ms)

    def shows_window(self, start_ms: int) -> bool:
        """Whether the window that begins then is wanted in the report."""
        return self.since_ms is None or start_ms + WINDOW_MS > self.since_ms
