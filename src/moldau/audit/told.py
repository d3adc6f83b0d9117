"""What tiers and producer instances have told of themselves, each as the sum of its records in the audit topic. Pure."""

from dataclasses import dataclass

from moldau.tracking.audit_record import Gap
from moldau.tracking.counts import NOTHING, Count


@dataclass(slots=True)
class TierCount:
    """What one tier has told of one key: the count, the time of the newest record of it, and how long that was after its newest event at
    least, all in ms; negative for events of the future."""

    count: Count = NOTHING
    changed_ms: int = 0
    lag_ms: int | None = None
    dead_letters: int = 0


@dataclass(slots=True)
class ProducerInstance:
    """A producer instance: when it opened and closed, its last sign of life, and what it says to have counted in all. Times in ms."""

    instance: str
    datacenter: str
    service: str
    host: str
    opened_ms: int | None = None
    closed_ms: int | None = None
    heard_ms: int = 0
    told_ms: int = 0
    """When it made its newest record, by its own clock."""
    vouched_ms: int = 0
    """The same by the clock that is behind, its own or the broker's: everything before that it has told."""
    published: Count = NOTHING
    declared: Count | None = None

    @property
    def final(self) -> bool:
        """Whether nothing more will come of it: it is closed, and all that it counted has been read."""
        return self.declared is not None and (self.declared.count, self.declared.checksum) == (
            self.published.count,
            self.published.checksum,
        )


@dataclass(frozen=True, slots=True)
class ReportedGap:
    """A gap in what a tier has counted of a topic, and when that was told, in ms."""

    tier: str
    topic: str
    gap: Gap
    time_ms: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record of the audit topic that is no audit record, and why."""

    partition: int
    offset: int
    reason: str
