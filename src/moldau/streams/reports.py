"""What a job's process reports of itself: values, and their records in `_stream_state` (docs/streams.md#where-it-is-kept).

A record of a process has the key ``{"instance":"...","job":"..."}``, an order the key ``{"job":"...","order":"stop"}``, and where a job's
outputs are (`moldau.streams.generations`) the key ``{"generations":true,"job":"..."}``. Each is complete by itself, so that the last record
of a key counts, and compaction loses nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any

from moldau.lake.reading.input_counts import InputCounts

_VERSION = 1


class JobState(Enum):
    """How a process stands."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class QueryReport:
    """How far one query is."""

    name: str
    run: str | None = None
    """Spark's id of the query: that of its checkpoint."""
    batch: int | None = None
    """The last one that is written."""
    batch_ms: int = 0
    """How long it took."""
    batch_rows: int = 0
    finished_ms: int | None = None
    watermark_ms: int | None = None
    positions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By topic and partition: the next offset to read."""
    inputs: Mapping[str, InputCounts] = field(default_factory=dict)
    """By topic."""
    state_rows: int = 0
    state_bytes: int = 0
    late_rows: int = 0
    """What came after the watermark and Spark dropped, since the first start: rows, or groups of rows that a task had aggregated before."""
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """What became of an order that leaves the process running."""

    order_ms: int
    """When the order was given."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class JobReport:
    """A process that runs a job, or ran it."""

    job: str
    instance: str
    host: str
    pid: int
    pid_namespace: str
    """Of the host: a process id counts only within its own."""
    epoch: int
    """The number of this takeover of the job; the process with the highest one is the job's."""
    started_ms: int
    at_ms: int
    state: JobState
    directory: str
    error: str | None = None
    queries: tuple[QueryReport, ...] = ()
    generation: int = 1
    """Of the checkpoints and outputs with which it runs."""
    settled: bool = False
    """Whether all its queries have ended at the same offsets of each topic, and the outputs have all that the watermark there gives."""
    answer: OrderAnswer | None = None

    @property
    def who(self) -> str:
        """For messages."""
        return f"process {self.pid} on {self.host}"


class OrderKind(Enum):
    """What a process is to do."""

    STOP = "stop"
    """Stop after the batch that it is at."""
    SETTLE = "settle"
    """Bring all queries to the same offsets and the outputs to the watermark there, and stop."""
    SWITCH = "switch"
    """Of a job that is reprocessed: take the place of the running one when it has caught up."""
    SAVEPOINT = "savepoint"
    """Copy the checkpoints between two batches, and continue."""


@dataclass(frozen=True, slots=True)
class JobOrder:
    """What the process of an instance is to do."""

    instance: str
    at_ms: int
    kind: OrderKind = OrderKind.STOP
    to: str | None = None
    """The directory of a savepoint."""


@dataclass(frozen=True, slots=True)
class StateKey:
    """What a record is of: a process of a job, an order to one, or the job's generations."""

    job: str
    instance: str | None = None
    is_order: bool = False
    is_generations: bool = False


def process_key(job: str, instance: str) -> bytes:
    """The key of a process's record."""
    return _json({"job": job, "instance": instance})


def order_key(job: str) -> bytes:
    """The key of a job's order."""
    return _json({"job": job, "order": "stop"})


def generations_key(job: str) -> bytes:
    """The key of the record with a job's generations."""
    return _json({"job": job, "generations": True})


def encode_report(report: JobReport) -> bytes:
    """The value of a process's record."""
    return _json({"version": _VERSION, **asdict(report), "state": report.state.value})


def encode_order(order: JobOrder) -> bytes:
    """The value of an order."""
    return _json({"version": _VERSION, **asdict(order), "kind": order.kind.value})


def decode_report(value: bytes) -> JobReport:
    """ValueError."""
    try:
        known = read_value(value)
        queries = tuple(_query(each) for each in known.pop("queries"))
        answer = known.pop("answer", None)
        return JobReport(
            **{
                **_known(JobReport, known),
                "state": JobState(known["state"]),
                "queries": queries,
                "answer": None if answer is None else OrderAnswer(**_known(OrderAnswer, answer)),
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the report of a stream job: {value[:200]!r}") from error


def decode_order(value: bytes) -> JobOrder:
    """ValueError."""
    try:
        known = _known(JobOrder, read_value(value))
        return JobOrder(**{**known, "kind": OrderKind(known.get("kind", OrderKind.STOP.value))})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an order for a stream job: {value[:200]!r}") from error


def decode_key(key: bytes) -> StateKey:
    """What the record is of. ValueError."""
    try:
        found = json.loads(key)
        return StateKey(found["job"], found.get("instance"), "order" in found, "generations" in found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a key of _stream_state: {key[:200]!r}") from error


def _query(value: Mapping[str, Any]) -> QueryReport:
    known = _known(QueryReport, value)
    inputs = {topic: InputCounts(**_known(InputCounts, each)) for topic, each in known["inputs"].items()}
    return QueryReport(**{**known, "inputs": inputs, "outputs": tuple(known["outputs"])})


def _known(kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """Of a newer version's fields those that are known here."""
    return {each.name: value[each.name] for each in fields(kind) if each.name in value}


def read_value(value: bytes) -> dict[str, Any]:
    """The JSON of a record of this version. ValueError, KeyError, TypeError."""
    found: dict[str, Any] = json.loads(value)
    if found["version"] != _VERSION:
        raise ValueError(f"it is of version {found['version']}; version {_VERSION} is read here")
    return found


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
