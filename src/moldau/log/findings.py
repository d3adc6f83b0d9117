"""What `moldau log verify` says about a file."""

from dataclasses import dataclass
from enum import Enum


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
