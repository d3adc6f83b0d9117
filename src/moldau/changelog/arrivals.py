"""Records of a changelog's topics as a replica takes them, decoded; all are of the partition with a shard's number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from moldau.changelog.values import Change, Key, Table


class ChangeRecord(NamedTuple):
    """A change, of a table's topic."""

    offset: int
    epoch: int
    commit: int
    change: Change
    size: int = 0
    """Of the record, in bytes."""


class Tombstone(NamedTuple):
    """After a deletion, of a table's topic; or where compaction has left nothing else of a row."""

    offset: int
    key: Key


class CommitRecord(NamedTuple):
    """The end of a commit, of the topic of commits."""

    offset: int
    epoch: int
    number: int
    time_ms: int
    changes: Mapping[str, int]
    """How many, by table."""
    complete: bool = True
    """False while the source publishes the rows that it had before its changelog began."""


class TableDefinition(NamedTuple):
    """What a table is from the next commit on, of the topic of commits."""

    offset: int
    table: Table


TableRecord: TypeAlias = ChangeRecord | Tombstone


@dataclass(frozen=True, slots=True)
class TableRecords:
    """What a fetch of a table's topic has brought, in the order of the log."""

    topic: str
    records: Sequence[TableRecord]
    next_offset: int
    at_end: bool
    """All that the log had when it was fetched has been read, also of transactions that were open."""


@dataclass(frozen=True, slots=True)
class CommitRecords:
    """What a fetch of the topic of commits has brought."""

    records: Sequence[CommitRecord | TableDefinition]
    next_offset: int
    at_end: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the partitions of topics begin and end; asked for after everything else that the machine was given."""

    ends: Mapping[str, int]
    """After the last record, records of open transactions included."""
    starts: Mapping[str, int]
    ids: Mapping[str, str]
    """Of the topics, in hexadecimal digits; left out by brokers that are older than ids."""
    delete_retention_ms: int
    """The shortest of them; the longest there is where there are no topics."""


Event: TypeAlias = TableRecords | CommitRecords | Ends
