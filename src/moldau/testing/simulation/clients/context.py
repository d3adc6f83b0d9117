"""What a simulated client or workload gets of its world.

Clients are coroutines on the simulation's event loop: `asyncio.sleep`, futures, tasks and timeouts all pass in virtual time. They draw only
from their own generator, read no other clock, and never iterate what `asyncio.wait` returns, which are sets.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from moldau.model.identity import TopicPartition
from moldau.ports.clock import Clock
from moldau.ports.transport import Network
from moldau.testing.history.history import History


@dataclass(slots=True)
class PartitionNumbers:
    """The numbers that partitions have in the history. A topic that is created again is another topic to the history: it gets new ones."""

    history: History
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def number(self, topic: str, partition: int) -> int:
        """The number of a partition, given out when it is first asked for."""
        key = topic, partition
        if key not in self._numbers:
            self._numbers[key] = self.history.add_partition(f"{topic}-{partition}")
        return self._numbers[key]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """The partitions that have numbers."""
        return iter(list(self._numbers))

    def forget(self, topic: str) -> None:
        """The topic was deleted: one that is created again under its name gets other numbers."""
        self._numbers = {key: number for key, number in self._numbers.items() if key[0] != topic}


@dataclass(slots=True)
class OperationBudget:
    """How many operations the workloads of a run may still begin. It is emptied when the phase of faults ends."""

    left: int

    def take(self) -> bool:
        """Whether one more may begin; workloads ask before each, and finish what they have begun when it may not."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


@dataclass(frozen=True, slots=True)
class ClientContext:
    """The world as one client sees it. All but `name` and `random` are shared by the clients of a run."""

    name: str
    """Client id, unique in the run."""
    network: Network
    servers: tuple[tuple[str, int], ...]
    """Addresses to bootstrap from."""
    clock: Clock
    """The time of the loop, and the wall's for timestamps of records."""
    random: Random
    """A generator of its own."""
    history: History
    partitions: PartitionNumbers
    budget: OperationBudget
    on_read: Callable[[TopicPartition, int], object]
    """Called with the last record of each partition that a recorded reader has read."""
    told_of: Callable[[TopicPartition], float]
    """The time of which a look-up that begins now may tell: now, or when a leader was deposed that does not know it yet."""
    is_controller: Callable[[tuple[str, int]], bool]
    """Whether the broker at an address is the controller. One that was deposed and does not know it yet refuses by what it knew."""
    rack: str
    """Where it is, if it wants to read from replicas near it; else empty."""
