"""The generations of a job: reprocessing gives it new checkpoints and new outputs, and a switch makes them those of the job.

Generation 1 has the names that the job's file has. Generation N has the checkpoints in ``DIRECTORY/@N``, and writes to topics ``TOPIC.vN``
and tables ``PATH.vN``; its dead letters are in ``DIRECTORY/dead-letters/TOPIC@N``. Beside the current one it runs as the job ``JOB@N``.
Which one is current, and where its outputs continue those of the one before, is one record of `_stream_state`, which is written whole: a
reader sees all outputs of a job switched, or none.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from moldau.streams.checkpoints import Positions
from moldau.streams.reports import read_value

_VERSION = 1
BESIDE = "@"
"""In the name under which a generation runs beside the current one: no job has it in its name."""


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Where an output of a job was, or is, written in one generation, and which part of it belongs to the job's output."""

    output: str
    """Its name in the job's file: that of the topic, or the path of the table."""
    kind: str
    """``topic`` or ``table``."""
    place: str
    """The name or path in this generation."""
    generation: int
    begin: Mapping[str, int] = field(default_factory=dict)
    """Where it continues the generation before: offsets by partition, or of a table the number of the version (``version``) after which its
    rows do. Empty: with its first record or row."""
    end: Mapping[str, int] | None = None
    """Where the generation after it continues, in the same way. None: it is the current one."""


@dataclass(frozen=True, slots=True)
class Reprocessing:
    """A generation that is made beside the current one."""

    number: int
    origin: str
    """Where it begins, as it was asked for."""
    starts: Positions
    """The offsets of that."""
    begun_ms: int


@dataclass(frozen=True, slots=True)
class JobGenerations:
    """What the record of a job has."""

    current: int = 1
    last: int = 1
    """The greatest number that was used."""
    places: tuple[OutputPlace, ...] = ()
    """Of all generations that were current, in this order; empty before the first switch."""
    reprocessing: Reprocessing | None = None
    """The one that is made; after the switch the one that has become current, until its process reports as the job."""
    switched_ms: int | None = None

    @property
    def is_switch_open(self) -> bool:
        """Whether the outputs are switched, and the new generation's process has not reported as the job's yet."""
        return self.reprocessing is not None and self.reprocessing.number == self.current

    def switched(self, number: int, ended: list[OutputPlace], continued: list[OutputPlace], time_ms: int) -> "JobGenerations":
        """With the places of generation `number` as the current ones; `ended` are those until now, with their ends."""
        ends = {(each.kind, each.output): each for each in ended}
        former = [replace(each, end=ends.pop((each.kind, each.output), each).end) if each.end is None else each for each in self.places]
        return replace(self, current=number, places=(*former, *ends.values(), *continued), switched_ms=time_ms)


def name_in(name: str, generation: int) -> str:
    """The name of a topic, or the path of a table, in a generation."""
    return name if generation == 1 else f"{name.rstrip('/')}.v{generation}"


def directory_in(directory: str, generation: int) -> str:
    """Where the checkpoints of a generation lie: no query has a name with `@`."""
    return directory if generation == 1 else os.path.join(directory, f"{BESIDE}{generation}")


def suffix_in(generation: int) -> str | None:
    """What follows the name of a directory with dead letters in a generation: no topic has `@` in its name."""
    return None if generation == 1 else f"{BESIDE}{generation}"


def beside_name(job: str, generation: int) -> str:
    """The name under which a generation runs beside the current one."""
    return f"{job}{BESIDE}{generation}"


def encode_generations(known: JobGenerations) -> bytes:
    """The value of the record."""
    return json.dumps({"version": _VERSION, **asdict(known)}, sort_keys=True, separators=(",", ":")).encode()


def decode_generations(value: bytes) -> JobGenerations:
    """ValueError."""
    try:
        known = read_value(value)
        beside = known["reprocessing"]
        return JobGenerations(
            known["current"],
            known["last"],
            tuple(OutputPlace(**each) for each in known["places"]),
            None if beside is None else Reprocessing(**beside),
            known["switched_ms"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the generations of a stream job: {value[:200]!r}") from error
