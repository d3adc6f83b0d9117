"""A finding: what is wrong with a table, what that costs, and what helps."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """What a finding means."""

    ERROR = "error"
    """Queries fail, or their answers are wrong."""
    WARNING = "warning"
    """It grows, and costs time or disk."""
    NOTICE = "notice"
    """Nothing is wrong."""


class Check(Enum):
    """What was looked at."""

    MISSING_FILES = "missing files"
    FILE_SIZES = "file sizes"
    DAMAGED_FILES = "damaged files"
    ROW_COUNTS = "row counts"
    SCHEMA = "schema"
    SMALL_FILES = "small files"
    CHECKPOINT = "checkpoint"
    TOMBSTONES = "tombstones"
    OLD_VERSIONS = "old versions"
    UNNEEDED_FILES = "unneeded files"
    LOG_LEFTOVERS = "log leftovers"
    MANIFEST = "manifest"


@dataclass(frozen=True, slots=True)
class Finding:
    """One of them. `count` and `bytes` are of what `check` names."""

    check: Check
    severity: Severity
    text: str
    cost: str
    remedy: str
    """What ``--repair`` does, or what else helps."""
    repairable: bool
    count: int
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of a finding."""

    check: Check
    done: bool
    text: str
    """What was done, or why it was not."""
