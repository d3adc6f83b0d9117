"""Waits until processes of a mirror have come to the end of what they mirror, and says what is missing if they do not."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from moldau.mirror.partitions import Halt
from moldau.model.identity import TopicPartition
from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.waiting import NotConvergedError

DRAIN_S = 600.0
LOOK_S = 0.5

Ends = Mapping[TopicPartition, tuple[bytes, int]]
"""Of each partition the id that its topic has, and the offset up to which it is to be read."""


async def drained(
    source: Simulation, hosts: Sequence[MirrorHost], measure: Callable[[], Awaitable[Ends]], *, may_grow: bool = False
) -> dict[TopicPartition, Halt]:
    """Wait until each partition has been read to its end by one of the processes, or has halted: those that have. NotConvergedError.

    Ends are measured again and again: a coordinator may still abort a transaction whose records a log has lost, and its marker comes late.
    A position after the end is that of a log which has been truncated, and is to halt, unless logs `may_grow` all the time.
    """
    until = source.schedule.now + DRAIN_S
    while True:
        halts: dict[TopicPartition, Halt] = {}
        missing = next(_left(hosts, await measure(), halts, may_grow=may_grow), "")
        if not missing:
            return halts
        if source.schedule.now > until:
            raise NotConvergedError(f"mirror: {missing}")
        await source.sleep(LOOK_S)


def _left(hosts: Sequence[MirrorHost], ends: Ends, halts: dict[TopicPartition, Halt], *, may_grow: bool) -> Iterator[str]:
    """What the processes have not done; what stands still is put into `halts`."""
    works = [host.process.work for host in hosts if host.process is not None and host.process.work is not None]
    found = [each for work in works for each in work.progress().items()]
    for topic_partition, (topic_id, end) in ends.items():
        mine = [(partition.topic_id, progress) for partition, progress in found if partition.topic_partition == topic_partition]
        halt = next((progress.halt for _, progress in mine if progress.halt is not None), None)
        written = max(
            (progress.position or 0 for known, progress in mine if known == topic_id and progress.position is not None), default=None
        )
        if written is not None and (written >= end if may_grow else written == end):
            continue
        if halt is not None:
            halts[topic_partition] = halt
        elif not mine:
            yield f"no process has {topic_partition}"
        elif all(known != topic_id for known, _ in mine):
            yield f"no process has noticed that {topic_partition} is of another topic now"
        else:
            yield f"{topic_partition} is written up to {written} of {end}"
