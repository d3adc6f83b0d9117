"""What a process reports of itself and of its partitions: values, and their records in `_mirror_state` (docs/formats/mirror-state.md)."""

import json
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import groupby
from typing import Any, NamedTuple

from moldau.mirror.partitions import Halt

WHOLE_TOPIC = -1
"""Instead of a partition's number: the report is about the topic."""
CHUNK_BYTES = 128 * 1024
"""Of the rows in one record; then another one begins."""


class State(Enum):
    """How a partition stands."""

    STARTING = "starting"
    """Its position is being looked up, or its first fetch is out."""
    MIRRORING = "mirroring"
    PAUSED = "paused"
    """By an operator."""
    RETRYING = "retrying"
    TRUNCATED = "truncated"
    DELETED = "deleted"
    RECREATED = "recreated"
    OUT_OF_RETENTION = "out of retention"
    POISONED = "poisoned"
    DENIED = "denied"
    REFUSED = "refused"
    PROMOTED = "promoted"
    LOOP = "loop"
    ORIGIN_LOST = "origin lost"

    @staticmethod
    def of(halt: Halt) -> "State":
        """The state of a partition that waits for an operator."""
        return State[halt.name]

    @property
    def is_halted(self) -> bool:
        """Whether it waits for an operator's decision."""
        return self.name in Halt.__members__


class Row(NamedTuple):
    """What is reported of one partition; None: not known."""

    source: str
    topic: str
    topic_id: bytes
    number: int
    """`WHOLE_TOPIC`: about the topic, none of whose partitions can be mirrored."""
    state: State
    reason: str = ""
    since_ms: int = 0
    """When the state began, as far as this process knows; 0: not known."""
    position: int | None = None
    end: int | None = None
    lag_bytes: int | None = None
    newest_ms: int | None = None
    """Timestamp of the newest record that is in the target."""
    bytes_s: float = 0.0
    records_s: float = 0.0

    @property
    def lag_records(self) -> int | None:
        """Offsets of the source that are not in the target."""
        return None if self.position is None or self.end is None else max(self.end - self.position, 0)

    def lag_s(self, now_ms: int) -> float | None:
        """Age of the newest mirrored record while there is a lag."""
        lag = self.lag_records
        if not lag:
            return None if lag is None else 0.0
        return None if self.newest_ms is None else max(now_ms - self.newest_ms, 0) / 1000

    @property
    def name(self) -> str:
        """Of the partition or the topic."""
        return self.topic if self.number == WHOLE_TOPIC else f"{self.topic}-{self.number}"


class OsProcess(NamedTuple):
    """Where a process runs."""

    host: str
    pid: int


class Process(NamedTuple):
    """What a process reports of itself."""

    instance: str
    at_ms: int
    started_ms: int
    host: str
    pid: int
    chunks: int
    """Records with rows."""
    generation: int
    """Of its group that it has joined; -1: none."""
    transactions: int
    retries: int
    reason: str = ""
    """Why the process as a whole tries something again."""
    ended: bool = False
    """It was stopped in order."""
    reason_since_ms: int = 0
    """Since when it tries that; 0: it does not."""


def chunks_of(rows: Iterable[Row]) -> list[bytes]:
    """The values of the records with these rows."""
    found: list[bytes] = []
    parts: list[str] = []
    size = 0
    for part in _parts(sorted(rows, key=lambda row: row[:4])):
        if parts and size + len(part) > CHUNK_BYTES:
            found.append(f"[{','.join(parts)}]".encode())
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    if parts:
        found.append(f"[{','.join(parts)}]".encode())
    return found


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    """Rows of one topic together, so many that a record may begin after each part."""
    for (source, topic, topic_id), of_topic in groupby(rows, key=lambda row: row[:3]):
        cells: list[list[Any]] = []
        size = 0
        for row in of_topic:
            cells.append([row.number, row.state.value, row.reason, *row[6:11], round(row.bytes_s, 1), round(row.records_s, 1)])
            size += 100 + len(row.reason)
            if size > CHUNK_BYTES // 2:
                yield _part(source, topic, topic_id, cells)
                cells, size = [], 0
        if cells:
            yield _part(source, topic, topic_id, cells)


def _part(source: str, topic: str, topic_id: bytes, cells: list[list[Any]]) -> str:
    return json.dumps({"source": source, "topic": topic, "topic_id": topic_id.hex(), "partitions": cells}, separators=(",", ":"))


def rows_in(value: bytes) -> list[Row]:
    """The rows of a record. ValueError."""
    try:
        return [
            Row(part["source"], part["topic"], bytes.fromhex(part["topic_id"]), number, State(state), *rest)
            for part in json.loads(value)
            for number, state, *rest in part["partitions"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not rows of partitions: {value[:200]!r}") from error


def process_value(process: Process) -> bytes:
    """The value of a process's own record; its name is in the key."""
    fields = process._asdict()
    del fields["instance"]
    return json.dumps(fields, separators=(",", ":")).encode()


def process_in(instance: str, value: bytes) -> Process:
    """ValueError."""
    try:
        fields = json.loads(value)
        return Process(instance, **{name: fields[name] for name in Process._fields[1:] if name in fields})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not the report of a process: {value[:200]!r}") from error
