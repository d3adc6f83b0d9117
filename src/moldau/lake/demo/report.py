"""What the demonstration found: the numbers that must be equal, and how long each step took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.lake.checksum import Tally
from moldau.lake.demo.inputs import BadLine


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
    """A question to the table, the SQL of it, and the answer as a small table."""

    title: str
    sql: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The load's consumer group, and by how many offsets it was behind the topic."""

    group: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Report:
    """The whole account. Counts are of this moment's input, log and table, whichever run put them there."""

    input: str
    topic: str
    table: str
    expected: Tally
    """All lines of the input that are events, good and bad."""
    log: Tally
    lake: Tally
    dead_letters: Tally
    expected_dead: Tally
    sent: int
    """Events that this run published, and below loaded; 0 when all was there."""
    loaded: int
    sent_bytes: int
    log_bytes: int
    lake_bytes: int
    lake_files: int
    table_version: int
    steps: Sequence[Step]
    questions: Sequence[Question]
    bad_lines: Sequence[BadLine]
    lag: GroupLag

    @property
    def stored(self) -> Tally:
        """The table and the dead letters together."""
        return self.lake + self.dead_letters

    @property
    def missing(self) -> int:
        """Lines of the input that are not stored, or not in the log."""
        return max(self.stored.missing_from(self.expected), self.log.missing_from(self.expected))

    @property
    def doubled(self) -> int:
        """Events stored, or in the log, beyond the first of each line."""
        return max(self.stored.doubled, self.log.doubled)

    @property
    def checksums_agree(self) -> bool:
        """Whether log, table and dead letters hold what was read, by content."""
        return (
            self.log.checksum == self.expected.checksum
            and self.stored.checksum == self.expected.checksum
            and self.dead_letters.checksum == self.expected_dead.checksum
        )

    @property
    def complete(self) -> bool:
        """Nothing missing, nothing doubled, nothing changed."""
        return not self.missing and not self.doubled and self.checksums_agree

    def as_json(self) -> Mapping[str, Any]:
        """For machines; checksums as hexadecimal digits."""
        return {
            "input": self.input,
            "topic": self.topic,
            "table": self.table,
            "table_version": self.table_version,
            "read": self.expected.events,
            "published": self.log.events,
            "stored": self.lake.events,
            "dead_letters": self.dead_letters.events,
            "bad_lines": self.expected_dead.events,
            "missing": self.missing,
            "doubled": self.doubled,
            "checksums": {
                "input": f"{self.expected.checksum:016x}",
                "log": f"{self.log.checksum:016x}",
                "stored": f"{self.stored.checksum:016x}",
            },
            "complete": self.complete,
            "lag": {"group": self.lag.group, "before": self.lag.before, "after": self.lag.after},
            "this_run": {"published": self.sent, "published_bytes": self.sent_bytes, "loaded": self.loaded},
            "log_bytes": self.log_bytes,
            "lake_bytes": self.lake_bytes,
            "lake_files": self.lake_files,
            "steps": [
                {"name": step.name, "events": step.events, "seconds": round(step.seconds, 3), "rate": step.rate and round(step.rate)}
                for step in self.steps
            ],
            "questions": [
                {"title": q.title, "sql": q.sql, "columns": list(q.columns), "rows": [list(r) for r in q.rows]} for q in self.questions
            ],
        }
