"""The words of the reconciliation: verdicts, and the lines of a report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from moldau.audit.settled import SettledPair
from moldau.audit.told import ToldGap, Unreadable
from moldau.tracking.counts import WINDOW_MS, Count


class Verdict(Enum):
    """What comparing two tiers says. Of the worst first, as they are summed up over the hosts of a window."""

    HIDDEN_LOSS = "loss hidden by duplication"
    """As many events, but other ones."""
    LOSS = "loss"
    DUPLICATION = "duplication"
    PRODUCER_INCOMPLETE = "producer counts incomplete"
    """The log holds more than a producer published that died, or may have: nobody can know yet what it sent."""
    NOT_COUNTED = "not counted yet"
    """One of the tiers has not counted up to here."""
    NOT_DUE = "not yet due"
    COMPLETE = "complete"

    @property
    def alarming(self) -> bool:
        """Whether events are missing or doubled."""
        return self in (Verdict.HIDDEN_LOSS, Verdict.LOSS, Verdict.DUPLICATION)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One producer instance in a window, as two tiers counted it."""

    datacenter: str
    service: str
    host: str
    instance: str
    upper: Count
    lower: Count
    verdict: Verdict
    settled: bool
    """Whether the verdict will stay, unless late events come."""
    note: str = ""
    skewed: bool = False
    """Whether the host's clock put its events into a window of another time."""
    dead_letters: int = 0
    """How many of the lower tier's count were put aside as dead letters."""
    due_ms: int | None = None
    """Of one that is not yet due: when it is, if nothing changes."""


@dataclass(frozen=True, slots=True)
class WindowPair:
    """One window of a topic, as two neighbouring tiers counted it."""

    topic: str
    window_start_ms: int
    upper_tier: str
    lower_tier: str
    upper: Count
    lower: Count
    verdict: Verdict
    settled: bool
    sources: tuple[SourceLine, ...]
    """All of them, those at fault first."""

    @property
    def dead_letters(self) -> int:
        """How many of the lower tier's count were put aside as dead letters."""
        return sum(line.dead_letters for line in self.sources)

    @property
    def due_ms(self) -> int | None:
        """Of one that is not yet due: when all of it is."""
        return max((line.due_ms for line in self.sources if line.due_ms), default=None) if self.verdict is Verdict.NOT_DUE else None

    @property
    def window_end_ms(self) -> int:
        """Not in the window itself."""
        return self.window_start_ms + WINDOW_MS

    @property
    def skewed(self) -> bool:
        """Whether only hosts with wrong clocks have events here."""
        return all(line.skewed for line in self.sources)

    @property
    def sound(self) -> bool:
        """Whether everything is here to stay, but for hosts with wrong clocks."""
        return all(line.settled and line.verdict is Verdict.COMPLETE for line in self.sources if not line.skewed)

    @property
    def noteworthy(self) -> tuple[SourceLine, ...]:
        """The sources that are not simply complete."""
        return tuple(line for line in self.sources if line.verdict is not Verdict.COMPLETE or line.note)


@dataclass(frozen=True, slots=True)
class SkewedHost:
    """A host whose clock is wrong, by so many ms: positive if it is ahead."""

    topic: str
    datacenter: str
    service: str
    host: str
    ahead_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything compared. `watermarks` by topic and tier, in ms: None while nothing is complete."""

    tiers: tuple[str, ...]
    pairs: tuple[WindowPair, ...]
    watermarks: Mapping[tuple[str, str], int | None]
    untracked: Mapping[tuple[str, str], Count] = field(default_factory=dict)
    skewed: tuple[SkewedHost, ...] = ()
    gaps: tuple[ToldGap, ...] = ()
    """What auditors could not count, or have counted in vain."""
    unreadable: tuple[Unreadable, ...] = ()
    uncovered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By tier: topics that it is not known to be meant to count, so that they are not compared there."""
    awaited: tuple[str, ...] = ()
    """Those of these tiers that may still count them, where both tiers and topics were asked for by name."""
    unheard: tuple[str, ...] = ()
    """Topics that were asked for, and of which no tier has counts."""
    dead_letters: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By tier and topic: how many of its untracked records were put aside as dead letters."""
    settled: tuple[SettledPair, ...] = ()
    """Of who watches for long: complete windows that are not among the pairs any more."""

    @property
    def alarming(self) -> bool:
        """Whether anything is missing or doubled."""
        return any(pair.verdict.alarming for pair in self.pairs)

    @property
    def decided(self) -> bool:
        """Whether it is known of all windows if something is missing or doubled; there are some, and all that was asked for by name."""
        return (
            bool(self.pairs or self.settled)
            and not (self.unheard or self.awaited)
            and all(pair.verdict is Verdict.COMPLETE or pair.verdict.alarming for pair in self.pairs)
        )

    @property
    def complete(self) -> bool:
        """Whether there are windows, all complete, and will stay so unless late events come; and all that was asked for by name."""
        return (
            bool(self.pairs or self.settled)
            and not (self.unheard or self.awaited)
            and all(pair.verdict is Verdict.COMPLETE and pair.settled for pair in self.pairs)
        )
