"""Where a stream begins and how far it reads, in a file that may change while it runs (option ``limitsFile``).

::

    {"starts": {"flights": {"0": 23}}, "ends": {"flights": {"0": 50, "1": 17}}, "group": false, "round": "a1"}

A topic under `ends` is read up to there; of its partitions that are not named nothing is read. A topic that is not there is read without
a limit. A missing file has none. With another `round` than before there is one more batch, if only an empty one. The stream's process reads
the file before each batch that it plans.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.lake.reading.offsets import OptionError
from moldau.model.identity import TopicPartition

PartitionOffsets = Mapping[str, Mapping[str, int]]
"""By topic and partition, as text."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What a file of limits has."""

    starts: PartitionOffsets = field(default_factory=dict)
    """Where a stream without a checkpoint begins, instead of where its options say: partitions that a topic has got since, at their first
    records."""
    ends: PartitionOffsets = field(default_factory=dict)
    group: bool = True
    """Whether the offsets are committed to the group."""
    round: str = ""
    """Stands in the offsets of batches."""

    def start(self, partition: TopicPartition, otherwise: int) -> int:
        """Where the partition begins."""
        return self.starts.get(partition.topic, {}).get(str(partition.partition), otherwise)

    def limit(self, ends: Mapping[TopicPartition, int], reached: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of a batch within the limits; a partition that must not be read stays where it is, or is left out."""
        limited: dict[TopicPartition, int] = {}
        for partition, end in ends.items():
            if partition.topic not in self.ends:
                limited[partition] = end
                continue
            most = self.ends[partition.topic].get(str(partition.partition))
            if most is not None:
                limited[partition] = min(end, most)
            elif partition in reached:
                limited[partition] = reached[partition]
        return limited

    def round_after(self, ids: Mapping[str, str], name: str) -> dict[str, str]:
        """The round of the batch after the one with these ids, under `name`."""
        now = self.round or ids.get(name, "")
        return {name: now} if now else {}


NO_LIMITS = StreamLimits()


def read_limits(path: str | None) -> StreamLimits:
    """The limits of now. OptionError for a file that cannot be read."""
    if path is None:
        return NO_LIMITS
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        return StreamLimits(found.get("starts", {}), found.get("ends", {}), bool(found.get("group", True)), str(found.get("round", "")))
    except FileNotFoundError:
        return NO_LIMITS
    except (OSError, ValueError, AttributeError) as error:
        raise OptionError("limitsFile", f"{path} cannot be read: {error}") from error


def write_limits(path: str, limits: StreamLimits) -> None:
    """Whole, or as before; no limits are no file. OSError."""
    if limits == NO_LIMITS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    descriptor, partial = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.")
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump({"starts": limits.starts, "ends": limits.ends, "group": limits.group, "round": limits.round}, file)
    os.replace(partial, path)
