"""Throttled replication (KIP-73): at most so many bytes a second for replicas that a topic lists, and for those that are not in sync alone.

    rate, of a broker                      replicas, of a topic                        what waits
    leader.replication.throttled.rate      leader.replication.throttled.replicas       a follower's Fetch gets none of their records
    follower.replication.throttled.rate    follower.replication.throttled.replicas     the follower does not fetch them

The rate is measured over `WINDOWS` windows of a second. All records of listed replicas count in it, but a replica that is in sync, or has
been proposed to be, is never held back: committed records wait for no throttle.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.broker.replicas.hosted import HostedPartition
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock, Timer

UNLIMITED = 2**63 - 1
WINDOWS = 11
WINDOW_S = 1.0
ALL = "*"
RESUME_EVERY_S = 0.1
"""While followers wait for their throttle."""


class WindowedRate:
    """Bytes per second over the last windows: those of them that are over count whole, the present one as far as it has come."""

    __slots__ = ("_total", "_windows")

    def __init__(self) -> None:
        self._windows: deque[tuple[float, int]] = deque()
        """Begin and bytes of each that has any."""
        self._total = 0

    def add(self, count: int, now_s: float) -> None:
        """So many bytes now."""
        if self._windows and now_s < self._windows[-1][0] + WINDOW_S:
            begin, before = self._windows.pop()
            self._windows.append((begin, before + count))
        else:
            self._windows.append((now_s, count))
        self._total += count

    def per_second(self, now_s: float) -> float:
        """The rate."""
        total, seconds = self._measured(now_s)
        return total / seconds

    def room(self, limit: int, now_s: float) -> float:
        """How many bytes more the limit allows now; below 0 for how many there were too many."""
        total, seconds = self._measured(now_s)
        return limit * seconds - total

    def _measured(self, now_s: float) -> tuple[int, float]:
        windows = self._windows
        while windows and windows[0][0] <= now_s - WINDOWS * WINDOW_S:
            self._total -= windows.popleft()[1]
        return self._total, max(now_s - windows[0][0], WINDOW_S) if windows else WINDOW_S


class ReplicationThrottle:
    """One side of a broker: ``leader`` or ``follower``."""

    def __init__(
        self, side: str, broker_id: int, config: "BrokerConfig", topic_config: Callable[[str], Mapping[str, str]], clock: "Clock"
    ) -> None:
        """`topic_config`: what a topic sets itself."""
        self._rate_name, self._replicas_name = f"{side}.replication.throttled.rate", f"{side}.replication.throttled.replicas"
        self._broker_id = broker_id
        self._config = config
        self._topic_config = topic_config
        self._clock = clock
        self._rate = WindowedRate()
        self._version = -1
        self._limit = UNLIMITED
        self._listed: dict[str, tuple[str, frozenset[int] | None]] = {}
        """Of topics that list replicas: the text, and the partitions with a replica on this broker that is listed; None for all."""

    @property
    def limit(self) -> int:
        """Bytes per second."""
        if self._version != self._config.version:
            self._version, self._limit = self._config.version, self._config.int(self._rate_name)
            self._listed.clear()
        return self._limit

    def limits(self, partition: TopicPartition) -> bool:
        """Whether this broker's replica is listed, and there is a limit."""
        if self.limit == UNLIMITED:
            return False
        text = self._topic_config(partition.topic).get(self._replicas_name)
        if not text:
            self._listed.pop(partition.topic, None)
            return False
        listed = self._listed.get(partition.topic)
        if listed is None or listed[0] != text:
            listed = self._listed[partition.topic] = text, self._parse(text)
        return listed[1] is None or partition.partition in listed[1]

    def _parse(self, text: str) -> frozenset[int] | None:
        if text.strip() == ALL:
            return None
        pairs = [pair.split(":") for pair in text.split(",")]
        return frozenset(int(partition) for partition, broker in pairs if int(broker) == self._broker_id)

    def add(self, count: int) -> None:
        """Records of listed replicas were sent or fetched."""
        self._rate.add(count, self._clock.monotonic())

    @property
    def room(self) -> float:
        """How many bytes more are allowed now; below 0 for how many there were too many."""
        return self._rate.room(self.limit, self._clock.monotonic())

    @property
    def bytes_per_second(self) -> float:
        """Of listed replicas."""
        return self._rate.per_second(self._clock.monotonic())


class LeaderThrottle(ReplicationThrottle):
    """What this broker sends to followers that are not in sync."""

    def __init__(self, broker_id: int, config: "BrokerConfig", topic_config: Callable[[str], Mapping[str, str]], clock: "Clock") -> None:
        """See `ReplicationThrottle`."""
        super().__init__("leader", broker_id, config, topic_config, clock)

    def holds_back(self, partition: "HostedPartition", follower_id: int) -> bool:
        """Whether a follower gets no records of a partition now."""
        if self.limit == UNLIMITED or not self.limits(partition.topic_partition) or self.room >= 0:
            return False
        machine = partition.machine
        return follower_id not in machine.isr and follower_id not in (machine.proposed_isr or ())

    def sent(self, partition: "HostedPartition", count: int) -> None:
        """Records of a partition go to a follower."""
        if self.limit != UNLIMITED and self.limits(partition.topic_partition):
            self.add(count)


if TYPE_CHECKING:

    class Resumable(Protocol):
        """A fetcher of one source broker."""

        def resume(self, topic_partition: TopicPartition) -> None:
            """Fetch a partition again."""


class FollowerThrottle(ReplicationThrottle):
    """What this broker fetches of partitions that lag: these wait in turn, and as many are resumed as there is room for."""

    def __init__(self, broker_id: int, config: "BrokerConfig", topic_config: Callable[[str], Mapping[str, str]], clock: "Clock") -> None:
        """See `ReplicationThrottle`."""
        super().__init__("follower", broker_id, config, topic_config, clock)
        self._waiting: dict[TopicPartition, Resumable] = {}
        self._timer: Timer | None = None

    def holds_back(self, partition: TopicPartition, fetched: int, *, lags: bool, source: "Resumable") -> bool:
        """Whether a partition, of which so many bytes were fetched, is not to be fetched before `source` has it resumed."""
        if not self.limits(partition):
            return False
        if fetched:
            self.add(fetched)
        if not lags or self.room >= 0:
            return False
        self._waiting[partition] = source
        if self._timer is None:
            self._timer = self._clock.call_later(RESUME_EVERY_S, self._resume)
        return True

    def forget(self, partition: TopicPartition) -> None:
        """It is not followed any more."""
        self._waiting.pop(partition, None)

    def close(self) -> None:
        """Resume nothing any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _resume(self) -> None:
        self._timer = None
        room = self.room
        each_bytes = self._config.int("replica.fetch.max.bytes")
        while self._waiting and room >= 0:
            partition = next(iter(self._waiting))
            source = self._waiting.pop(partition)
            room -= each_bytes
            source.resume(partition)
        if self._waiting and self._timer is None:
            self._timer = self._clock.call_later(RESUME_EVERY_S, self._resume)
