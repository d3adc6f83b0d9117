"""The verdicts of the reconciliation, the lines of a report, and its summary by topic and pair of tiers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from moldau.audit.tiers import ReportedGap, SettledPair, UnreadableRecord
from moldau.tracking.clock import moment
from moldau.tracking.counts import NOTHING, WINDOW_MS, Count
from moldau.tracking.latencies import Latencies


def joined(tiers: Iterable[str]) -> str:
    """The name of tiers that are compared together."""
    return " + ".join(tiers)


class Verdict(Enum):
    """The outcome of comparing two tiers. The worst first, as they are summed up over the hosts of a window."""

    HIDDEN_LOSS = "loss hidden by duplication"
    """As many events, but other ones."""
    LOSS = "loss"
    DUPLICATION = "duplication"
    PRODUCER_INCOMPLETE = "producer counts incomplete"
    """The log holds more than a producer published that died, or may have: what it sent is unknown."""
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
    upper_tiers: tuple[str, ...] = ()
    """The upper tiers that counted it; all of them if none did."""


@dataclass(frozen=True, slots=True)
class WindowPair:
    """One window of a topic, as a tier counted it and those above it did together."""

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
    undecided: tuple[str, ...] = ()
    """The upper tiers, of several, that may still count events of this window."""

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
        return not self.undecided and all(line.settled and line.verdict is Verdict.COMPLETE for line in self.sources if not line.skewed)

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
    gaps: tuple[ReportedGap, ...] = ()
    """What auditors could not count, or have counted without effect."""
    unreadable: tuple[UnreadableRecord, ...] = ()
    uncovered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By tier: topics that it is not known to have to count, so that they are not compared there."""
    awaited: tuple[str, ...] = ()
    """Those of these tiers that may still count them, where both tiers and topics were asked for by name."""
    unheard: tuple[str, ...] = ()
    """Topics that were asked for, and of which no tier has counts."""
    dead_letters: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By tier and topic: how many of its untracked records were put aside as dead letters."""
    settled: tuple[SettledPair, ...] = ()
    """In a long watch: complete windows that are no longer among the pairs."""
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By tier: the ids of the clusters that are counted under its name, where they are several."""
    latencies: Mapping[tuple[str, str, int], Latencies] = field(default_factory=dict)
    """By topic, tier and start of the window: how long events were on their way to the tier."""

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


@dataclass(slots=True)
class Summary:
    """All windows of a topic, as a tier counted them and those above it did together."""

    topic: str
    upper_tier: str
    lower_tier: str
    upper: Count = NOTHING
    lower: Count = NOTHING
    windows: dict[Verdict, int] = field(default_factory=dict)
    dead_letters: int = 0
    """How many of the lower tier's count were put aside as dead letters."""
    due_ms: int | None = None
    """When all of its windows are due that are not yet."""

    @property
    def verdict(self) -> Verdict:
        """The worst of its windows."""
        return min(self.windows, key=list(Verdict).index)

    @property
    def verdict_text(self) -> str:
        """The verdict, and of how many windows if not of all; and how many events are dead letters."""
        total = sum(self.windows.values())
        number = self.windows[self.verdict]
        text = verdict_text(self.verdict, self.due_ms)
        if number < total:
            text += f" ({number:,} of {total:,} windows)"
        return f"{text}, {self.dead_letters:,} in dead letters" if self.dead_letters else text


def verdict_text(verdict: Verdict, due_ms: int | None) -> str:
    """The verdict as people read it: what is not yet due with its time."""
    return f"not due until {moment(due_ms)}" if verdict is Verdict.NOT_DUE and due_ms is not None else verdict.value


def summaries(report: Report) -> list[Summary]:
    """One for each topic and pair of tiers, in their order."""
    found: dict[tuple[str, str], Summary] = {}
    for pair in report.pairs:
        key = (pair.topic, pair.lower_tier)
        summary = found.setdefault(key, Summary(pair.topic, pair.upper_tier, pair.lower_tier))
        summary.upper, summary.lower = summary.upper + pair.upper, summary.lower + pair.lower
        summary.windows[pair.verdict] = summary.windows.get(pair.verdict, 0) + 1
        summary.dead_letters += pair.dead_letters
        summary.due_ms = max(filter(None, (summary.due_ms, pair.due_ms)), default=None)
    for settled in report.settled:
        key = (settled.topic, settled.lower_tier)
        summary = found.setdefault(key, Summary(settled.topic, settled.upper_tier, settled.lower_tier))
        summary.upper, summary.lower = summary.upper + settled.count, summary.lower + settled.count
        summary.dead_letters += settled.dead_letters
        if settled.windows or not summary.windows:
            summary.windows[Verdict.COMPLETE] = summary.windows.get(Verdict.COMPLETE, 0) + settled.windows
    return sorted(found.values(), key=lambda each: (each.topic, report.tiers.index(each.lower_tier)))


def overall(report: Report) -> str:
    """The worst verdict of all windows, and of tiers that have not counted a topic yet; "nothing to compare" without any."""
    verdicts = [pair.verdict for pair in report.pairs] + [Verdict.COMPLETE for _ in report.settled]
    verdicts += [Verdict.NOT_COUNTED] if report.awaited else []
    return min(verdicts, key=list(Verdict).index).value if verdicts else "nothing to compare"
