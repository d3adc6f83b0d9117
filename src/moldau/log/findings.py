"""What `moldau log verify` finds, and what it says of that: one verdict, one line for each damaged file, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from moldau.log import names
from moldau.log.checkpoints import OFFSET_CHECKPOINTS
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.partition_metadata import FILE_NAME as PARTITION_METADATA

_BACKUP = "restore it from a backup"
_ADVICE_BY_NAME = {
    names.LEADER_EPOCHS: "remove it while the broker is stopped; later appends start a new file",
    PARTITION_METADATA: "if the records are of the topic that the folder names, remove it while the broker is stopped; it is recreated",
    META_PROPERTIES: f"{_BACKUP}; the broker does not use the directory without it",
    **dict.fromkeys(OFFSET_CHECKPOINTS, "nothing: the next start skips what cannot be used, and writes the file again"),
}
_ADVICE_BY_SUFFIX = {
    names.LOG: f"{_BACKUP} before the broker starts: one that was killed cuts what it had not flushed off there; otherwise consumers get "
    "CORRUPT_MESSAGE there, and a log that the broker keeps offline for it starts again after `moldau log accept-loss`",
    names.INDEX: "remove it while the broker is stopped; the broker rebuilds it",
    names.TIME_INDEX: "remove it while the broker is stopped; the broker rebuilds it",
    names.TRANSACTION_INDEX: f"{_BACKUP}; one that the broker itself finds damaged is rebuilt",
    names.CHECKSUMS: "remove it while the broker is stopped",
    names.SNAPSHOT: "remove it while the broker is stopped; producers are read from an older one and the log",
}


class Severity(Enum):
    """How bad a finding is."""

    DAMAGE = "damage"
    """Bytes that are not what was written, or files that contradict each other."""
    GAP = "gap"
    """Offsets that are missing. Compaction leaves gaps; in a log that is not compacted, records were lost."""
    NOTE = "note"
    """Something that is rebuilt by itself, or that cannot be checked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    severity: Severity
    path: str
    position: int | str
    """Byte in the file, or where else in it (``line 3``)."""
    message: str

    def __str__(self) -> str:
        where = f"byte {self.position}" if isinstance(self.position, int) else self.position
        return f"{self.severity.value}: {self.path}, {where}: {self.message}"


@dataclass(slots=True)
class DamagedFile:
    """A file with damage or a gap: the first of them, and how many more there are."""

    first: Finding
    more: int = 0

    def __str__(self) -> str:
        others = f" (and {self.more} more)" if self.more else ""
        return f"{self.first}{others}. To do: {advice_for(self.first.path)}"


class DamageReport:
    """Findings as they come, put together by file. Notes are counted, and kept only if they are wanted."""

    def __init__(self, *, keep_notes: bool) -> None:
        self.damaged: dict[str, DamagedFile] = {}
        self.notes: list[Finding] = []
        self.note_count = 0
        self._keep_notes = keep_notes

    def take(self, findings: Iterable[Finding]) -> None:
        """Take them all. Raises what the search raises."""
        for finding in findings:
            if finding.severity is Severity.NOTE:
                self.note_count += 1
                if self._keep_notes:
                    self.notes.append(finding)
            elif (known := self.damaged.get(finding.path)) is not None:
                known.more += 1
            else:
                self.damaged[finding.path] = DamagedFile(finding)


def advice_for(path: str) -> str:
    """What to do about a damaged file."""
    name = path.rpartition("/")[2]
    suffix = f".{name.rpartition('.')[2]}"
    return _ADVICE_BY_NAME.get(name) or _ADVICE_BY_SUFFIX.get(suffix) or _BACKUP
