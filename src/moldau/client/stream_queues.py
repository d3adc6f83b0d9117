"""The messages between the feeder's thread and those of the streams' users, and what is finished of them. No I/O, no threads of its own.

Rules: a partition belongs to one stream, so that its order is kept; a stream holds one message at a time; a message counts as
finished only if its partition is still assigned and no seek has moved it meanwhile, by its `epoch`. One lock guards everything.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from moldau.client.message import ConsumedMessage
from moldau.model.identity import TopicPartition

MESSAGES_MAX = 5_000
BYTES_MAX = 16 << 20
"""A stream that has so much waiting gets nothing more until half of it is taken."""
_NEVER = float("inf")


class Lane:
    """One stream's part: its partitions, what waits, what is held."""

    def __init__(self, topic: str, number: int, lock: threading.RLock, now: float) -> None:
        self.topic = topic
        self.number = number
        self.partitions: set[TopicPartition] = set()
        self.waiting: deque[ConsumedMessage] = deque()
        self.bytes = 0
        self.held: tuple[ConsumedMessage, int] | None = None
        """The message that was handed out and is not finished, and the epoch of its partition then."""
        self.full = False
        """Nothing more is fetched, until half of what waits is taken."""
        self.asking_since = _NEVER
        self.asked_at = now
        """When a user of the stream began to wait for a message, if it still does; and when the last wait ended."""
        self.called_stuck = False
        self.news = threading.Condition(lock)

    def weigh(self) -> bool:
        """Look again whether it is full; whether it has just ceased to be."""
        if not self.full:
            self.full = len(self.waiting) >= MESSAGES_MAX or self.bytes >= BYTES_MAX
        elif 2 * len(self.waiting) <= MESSAGES_MAX and 2 * self.bytes <= BYTES_MAX:
            self.full = False
            return True
        return False

    def drop(self, gone: set[TopicPartition]) -> None:
        """Forget what waits of these partitions."""
        self.waiting = deque(each for each in self.waiting if (each.topic, each.partition) not in gone)
        self.bytes = sum(map(_weight, self.waiting))
        self.weigh()


@dataclass(slots=True)
class _Ownership:
    """The lane of an assigned partition, and the epoch of its assignment."""

    lane: Lane
    epoch: int
    finished: int | None = None
    settled: int | None = None


class StreamQueues:
    """The lanes of `streams` (how many for each topic), guarded by `lock`."""

    def __init__(self, streams: Mapping[str, int], monotonic: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self.finishing = threading.Condition(self.lock)
        self.room = threading.Condition(self.lock)
        now = monotonic()
        self.lanes = {topic: [Lane(topic, number, self.lock, now) for number in range(count)] for topic, count in streams.items()}
        self._owned: dict[TopicPartition, _Ownership] = {}
        self._epochs = 0
        self._monotonic = monotonic

    # The users' side

    def finish(self, lane: Lane) -> None:
        """What the lane holds is done."""
        with self.lock:
            if lane.held is not None:
                message, epoch = lane.held
                owned = self._owned.get(TopicPartition(message.topic, message.partition))
                if owned is not None and owned.epoch == epoch:
                    owned.finished = message.offset + 1
                lane.held = None
                self.finishing.notify_all()

    def take(self, lane: Lane, timeout: float | None, ended: Callable[[], bool]) -> ConsumedMessage | None:
        """The lane's next message; waits for it, until `ended` or `timeout` seconds have passed: then None. The one before is finished."""
        with self.lock:
            self.finish(lane)
            arrived = bool(lane.waiting)
            if not arrived:
                lane.asking_since = self._monotonic()
                arrived = lane.news.wait_for(lambda: bool(lane.waiting) or ended(), timeout)
                lane.asking_since = _NEVER
            lane.asked_at, lane.called_stuck = self._monotonic(), False
            if not arrived or not lane.waiting or ended():
                return None
            message = lane.waiting.popleft()
            lane.bytes -= _weight(message)
            if lane.weigh():
                self.room.notify()
            lane.held = (message, self._owned[TopicPartition(message.topic, message.partition)].epoch)
            return message

    def wake(self) -> None:
        """Wake every stream that waits."""
        with self.lock:
            for lane in self.all_lanes():
                lane.news.notify_all()

    # The feeder's side

    def all_lanes(self) -> Iterable[Lane]:
        """Every lane, topic by topic."""
        return (lane for lanes in self.lanes.values() for lane in lanes)

    def own(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """These are assigned, to streams of their topics by number; None: to the one that has the fewest."""
        with self.lock:
            for where, number in sorted(partitions.items()):
                lanes = self.lanes[where.topic]
                lane = min(lanes, key=lambda each: len(each.partitions)) if number is None else lanes[number]
                self._epochs += 1
                lane.partitions.add(where)
                self._owned[where] = _Ownership(lane, self._epochs)

    def hold_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these."""
        gone = set(partitions)
        with self.lock:
            for lane in self.all_lanes():
                lane.drop(gone)

    def wait_until_finished(self, partitions: Iterable[TopicPartition], timeout_s: float) -> bool:
        """Wait until no stream holds a message of these partitions."""
        gone = set(partitions)

        def nothing_held() -> bool:
            held = (lane.held[0] for lane in self.all_lanes() if lane.held is not None)
            return not any((each.topic, each.partition) in gone for each in held)

        with self.lock:
            return self.finishing.wait_for(nothing_held, timeout_s)

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """These are revoked; messages of them that are held will not count."""
        with self.lock:
            for where in partitions:
                owned = self._owned.pop(where, None)
                if owned is not None:
                    owned.lane.partitions.discard(where)
                    owned.lane.drop({where})

    def move(self, where: TopicPartition, offset: int) -> None:
        """This one is read from `offset` on: forget what waits, and what is held will not count. To be committed, as if finished so far."""
        with self.lock:
            owned = self._owned[where]
            self._epochs += 1
            self._owned[where] = _Ownership(owned.lane, self._epochs, offset)
            owned.lane.drop({where})

    def put(self, messages: Iterable[ConsumedMessage]) -> None:
        """Add fetched messages; those of partitions that are not assigned are dropped."""
        with self.lock:
            touched = {}
            for message in messages:
                owned = self._owned.get(TopicPartition(message.topic, message.partition))
                if owned is not None:
                    owned.lane.waiting.append(message)
                    owned.lane.bytes += _weight(message)
                    touched[id(owned.lane)] = owned.lane
            for lane in touched.values():
                lane.news.notify()
                lane.weigh()

    def full(self) -> set[TopicPartition]:
        """The partitions of lanes that are full."""
        with self.lock:
            return {where for lane in self.all_lanes() if lane.full for where in lane.partitions}

    def starving(self, patience_s: float) -> bool:
        """Whether a stream that has partitions has waited so long for a message."""
        with self.lock:
            before = self._monotonic() - patience_s
            return any(lane.partitions and lane.asking_since < before for lane in self.all_lanes())

    def wait_for_room(self, timeout_s: float) -> None:
        """Wait until a lane is full no longer, or a moment."""
        with self.lock:
            self.room.wait(timeout_s)

    def take_finished(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Where to read next, of the partitions (None: all) where that has changed since it was last taken."""
        with self.lock:
            found = {}
            for where in self._owned if partitions is None else partitions:
                owned = self._owned.get(where)
                if owned is not None and owned.finished is not None and owned.finished != owned.settled:
                    found[where] = owned.settled = owned.finished
            return found

    def finished(self) -> dict[TopicPartition, int]:
        """Where to read next, of all partitions that something is finished of."""
        with self.lock:
            return {where: owned.finished for where, owned in self._owned.items() if owned.finished is not None}

    def stuck(self, patience_s: float) -> list[Lane]:
        """Lanes with messages that have not been taken for so long, each returned once."""
        with self.lock:
            before = self._monotonic() - patience_s
            lanes = [lane for lane in self.all_lanes() if lane.waiting and lane.asking_since == _NEVER]
            found = [lane for lane in lanes if lane.asked_at < before and not lane.called_stuck]
            for lane in found:
                lane.called_stuck = True
            return found


def _weight(message: ConsumedMessage) -> int:
    return len(message.value or b"") + len(message.key or b"") + 100
