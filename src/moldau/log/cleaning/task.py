"""What a worker is asked to do, and what it says, as bytes: JSON, for both ends are this program."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from moldau.log.transaction_index import TransactionIndexEntry

WORK = "moldau.log.cleaning.work:compact"


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A sealed segment: its base offset, its bytes, and where the next segment begins."""

    base_offset: int
    size: int
    end_offset: int


class ProducerEnd(NamedTuple):
    """The last record of an idempotent producer that is still remembered; `last_offset` is -1 if it is a marker."""

    producer_id: int
    last_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CleaningTask:
    """One pass over one log. `sources` are all segments before `end_offset`; those before `first_dirty` were cleaned already."""

    folder: str
    sources: list[SourceSegment]
    first_dirty: int
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    """For the map of keys."""
    map_load_factor: float
    """How full its table may be."""
    chunk_bytes: int
    """Read at a time."""
    bytes_per_second: float
    """Read and written together."""
    decompressed_bytes_max: int
    aborted: list[TransactionIndexEntry] = field(default_factory=list)
    producers: list[ProducerEnd] = field(default_factory=list)

    def encode(self) -> bytes:
        """As bytes."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "CleaningTask":
        """From bytes."""
        fields: dict[str, Any] = json.loads(data)
        fields["sources"] = [SourceSegment(**source) for source in fields["sources"]]
        fields["aborted"] = [TransactionIndexEntry(*aborted) for aborted in fields["aborted"]]
        fields["producers"] = [ProducerEnd(*producer) for producer in fields["producers"]]
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class GroupWritten:
    """These segments may be replaced by the one whose files, `suffixes` of them, wait as ``.cleaned``, on disk."""

    sources: list[SourceSegment]
    size: int
    largest_timestamp: int
    largest_offset: int
    """Last offset of the batch that reaches it."""
    suffixes: list[str]


@dataclass(slots=True)
class PassDone:
    """The pass is over: everything before `end_offset` is clean. Bytes and records are those of both readings, and what was kept."""

    end_offset: int
    bytes_mapped: int = 0
    records_mapped: int = 0
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    """Of data batches, as their headers say."""
    records_kept: int = 0
    batches_unreadable: int = 0
    """Sound by their checksum, but with records that cannot be walked: kept as they are."""
    map_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BadBatch:
    """The pass cannot be finished: a batch is damaged."""

    path: str
    position: int
    first_offset: int
    last_offset: int
    """As far as its header is to be believed."""
    reason: str


@dataclass(frozen=True, slots=True)
class StorageFailed:
    """The pass cannot be finished: a file could not be read or written."""

    path: str
    reason: str
    no_space: bool


@dataclass(frozen=True, slots=True)
class EntryMissing:
    """The pass cannot be finished: the index of aborted transactions lacks the one whose marker is at `offset`."""

    offset: int


PassMessage = GroupWritten | PassDone | BadBatch | StorageFailed | EntryMissing

_KINDS: dict[str, type[PassMessage]] = {kind.__name__: kind for kind in (GroupWritten, PassDone, BadBatch, StorageFailed, EntryMissing)}


def encode_message(message: PassMessage) -> bytes:
    """As bytes."""
    return json.dumps([type(message).__name__, asdict(message)]).encode()


def decode_message(data: bytes) -> PassMessage:
    """From bytes."""
    kind, fields = json.loads(data)
    if kind == GroupWritten.__name__:
        fields["sources"] = [SourceSegment(**source) for source in fields["sources"]]
    return _KINDS[kind](**fields)
