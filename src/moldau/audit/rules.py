"""How tiers are compared: which ones, of which topics, and how patiently. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from moldau.audit.verdicts import WindowPair

GRACE_MS = 120_000
PRODUCER_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class Rules:
    """How tiers are compared. Times in ms."""

    now_ms: int
    tiers: tuple[str, ...] = ()
    """From the producers down; empty: producers, then auditors, then loads, each as they were first heard of."""
    grace_ms: int = GRACE_MS
    """How long a lower tier may take after the last change."""
    graces_ms: Mapping[str, int] = field(default_factory=dict)
    """The same by tier, where it is another."""
    only: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    """The topics that a tier is meant to count, if it is another answer than that of `covers`."""
    producer_timeout_ms: int = PRODUCER_TIMEOUT_MS
    """So long after the last sign of life of an instance that did not close, the log's count stands for its own."""
    vouch_ms: int = 180_000
    """How much later than the lower tier's last change an open instance has to be heard of: it counts an event when that is acknowledged,
    which may be two minutes after it is in the log; and clocks differ."""
    skew_ms: int = 300_000
    """Event times so far in the future are a wrong clock's."""
    behind_ms: int = 172_800_000
    """So much older than other hosts' events are those of a host whose clock is behind."""
    topics: Collection[str] | None = None
    """Only these; None: all."""
    since_ms: int | None = None
    """Only windows that end later; watermarks know the others too."""

    def grace_of(self, tier: str) -> int:
        """The grace of a lower tier."""
        return self.graces_ms.get(tier, self.grace_ms)

    def shows(self, pair: WindowPair) -> bool:
        """Whether a window is wanted in the report."""
        return self.since_ms is None or pair.window_end_ms > self.since_ms
