"""What the demonstration found: the audit's report, the independent proof of Spark SQL, and how long each step took."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moldau.audit.verdicts import Report as AuditReport
from moldau.audit.verdicts import Verdict
from moldau.demo.proof import Proof
from moldau.demo.tiers import LAKE_TIER
from moldau.tracking.counts import NOTHING, Count


@dataclass(frozen=True, slots=True)
class Step:
    """One step: how many events went through it, and seconds."""

    name: str
    events: int
    seconds: float

    @property
    def rate(self) -> float | None:
        """Events per second; None for a step that none went through."""
        return self.events / self.seconds if self.events and self.seconds else None


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the SQL of it, and the answer as a small table; `more` rows of it are left out."""

    title: str
    sql: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: int = 0


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The load's consumer group, and by how many offsets it was behind the topic."""

    group: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the topic's log; bytes and files of the table's newest version, and its number."""

    log_bytes: int
    lake_bytes: int
    lake_files: int
    table_version: int


@dataclass(frozen=True, slots=True)
class Report:
    """The whole account. Counts are of this moment's input, log and table, whichever run put them there."""

    input: str
    topic: str
    table: str
    read: int
    """Lines of the input, good and bad."""
    bad_lines: int
    bad_shown: Sequence[tuple[int, str]]
    audit: AuditReport
    proof: Proof
    dead_letters: int
    """Different records in the dead-letter table."""
    planted_lines: tuple[int, ...]
    """Lines whose event was counted and never sent, on purpose."""
    sent: int
    """Lines that this run published, and rows that it loaded; 0 when all was there."""
    loaded: int
    sent_bytes: int
    sizes: Sizes
    steps: Sequence[Step]
    questions: Sequence[Question]
    lag: GroupLag
    picture: str

    @property
    def lake(self) -> Count:
        """What the audit has counted in the lake."""
        return sum((pair.lower for pair in self.audit.pairs if pair.lower_tier == LAKE_TIER), NOTHING)

    @property
    def checksums_agree(self) -> bool:
        """Whether Spark SQL's checksum over the table is the audit's; dead letters are no tracked events, and in neither."""
        return (self.proof.rows, self.proof.checksum) == (self.lake.count, self.lake.checksum)

    @property
    def verdict(self) -> Verdict:
        """The worst of all windows and tiers."""
        return min((pair.verdict for pair in self.audit.pairs), key=list(Verdict).index, default=Verdict.COMPLETE)

    @property
    def sound(self) -> bool:
        """Whether the table holds each event of the input once, unchanged, as the audit says, and the dead letters each bad line."""
        return self.proof.holds and self.checksums_agree and self.dead_letters == self.bad_lines

    @property
    def complete(self) -> bool:
        """Nothing missing, nothing doubled, nothing changed, by the audit and by the proof."""
        return self.audit.complete and self.verdict is Verdict.COMPLETE and self.sound
