"""A report in a few lines: each topic and pair of tiers as one, over all windows (pure)."""

from dataclasses import dataclass, field

from moldau.audit.verdicts import Report, Verdict
from moldau.tracking.clock import moment
from moldau.tracking.counts import NOTHING, Count


@dataclass(slots=True)
class Summary:
    """All windows of a topic, as two neighbouring tiers counted them."""

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
    """The verdict as people read it: what is not yet due says until when."""
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
