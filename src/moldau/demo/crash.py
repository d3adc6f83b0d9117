"""A broker that is killed while the hosts publish, when half of the events are sent, and a mirror with it where there are mirrors.

In a cluster of its own the broker is started again at three quarters; `moldau tiers up` starts again at once what has ended.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from moldau.client.metadata import PartitionMetadata, TopicMetadata
from moldau.demo.children import ChildError
from moldau.model.errors import MoldauError
from moldau.model.identity import BrokerId

LIMIT_S = 120.0
"""For new leaders, and for a broker to be in sync again, on a machine that is busy."""
_POLL_S = 0.05
_NO_LEADER = -1


class CrashError(MoldauError):
    """A cluster has not recovered from the end of a broker."""


@dataclass(frozen=True, slots=True)
class CrashReport:
    """The broker that was killed, and how the cluster fared."""

    broker: int
    sent: int
    """Events that were sent before, of `to_send`."""
    to_send: int
    led: int
    """Partitions of the topic that it led, of `partitions`."""
    partitions: int
    leaderless_s: float
    """Until all of them had other leaders."""
    down_s: float
    """Until it was started again."""
    catch_up_s: float
    """From then until all partitions of the cluster had all replicas in sync."""
    mirror: str = ""
    """The process of the mirror that was killed just before the broker, if one was."""
    mirror_down_s: float = 0.0
    """Until it was started again and mirrored, by the time that the broker was back."""


class KillableBrokers(Protocol):
    """The processes of a cluster."""

    def kill(self, broker_id: int) -> None:
        """SIGKILL for one broker."""

    def restart(self, broker_id: int) -> None:
        """Have it started again."""


class KillableMirror(Protocol):
    """The process of a mirror."""

    mirror: str
    """Its name."""

    def kill_mirror(self) -> None:
        """SIGKILL."""

    def wait_for_mirror(self) -> float:
        """Until it has been started again, and mirrors; how long after the kill that was, in seconds."""


class DescribedTopics(Protocol):
    """A `Cluster`, as far as it is asked here."""

    def topic(self, name: str) -> TopicMetadata:
        """One topic."""

    def topics(self, *, internal: bool = False) -> Sequence[TopicMetadata]:
        """All topics."""


class BrokerCrash:
    """Kills the leader of the first partition of `topic`. A thread of its own waits for what hosts report by `progress`."""

    def __init__(
        self, brokers: KillableBrokers, cluster: DescribedTopics, topic: str, to_send: int, *, mirror: KillableMirror | None = None
    ) -> None:
        """The thread alone uses `cluster`. With a mirror, `brokers` start again what was killed, and `restart` waits for that."""
        self._mirror = mirror
        self._brokers = brokers
        self._cluster = cluster
        self._topic = topic
        self._to_send = to_send
        self._sent: dict[int, int] = {}
        self._over = False
        self._abandoned = threading.Event()
        self._changed = threading.Condition()
        self._report: CrashReport | None = None
        self._error: MoldauError | ChildError | None = None
        self._thread = threading.Thread(target=self._run, name="moldau demo crash", daemon=True)
        self._thread.start()

    def progress(self, host: int, sent: int) -> None:
        """This host has sent so many events."""
        with self._changed:
            self._sent[host] = sent
            self._changed.notify()

    def finish(self) -> CrashReport | None:
        """Wait until the cluster has recovered; None if so little was sent that no broker was killed.

        CrashError, ChildError, the client's errors.
        """
        self._end()
        if self._error is not None:
            raise self._error
        return self._report

    def stop(self) -> None:
        """End the thread; a broker that is down stays down."""
        self._abandoned.set()
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            sent = self._wait_sent(self._to_send / 2)
            if sent is not None:
                self._report = self._crash(sent)
        except (MoldauError, ChildError) as error:
            self._error = error

    def _wait_sent(self, least: float) -> int | None:
        """Until so many events are sent: how many; None when no more come, or none were to come."""
        with self._changed:
            while True:
                sent = sum(self._sent.values())
                if 0 < least <= sent:
                    return sent
                if self._over:
                    return None
                self._changed.wait()

    def _crash(self, sent: int) -> CrashReport:
        self._wait(lambda: self._led_without(BrokerId(_NO_LEADER)), "leaders")
        before = self._partitions()
        broker = before[0].leader
        if self._mirror is not None:
            self._mirror.kill_mirror()
        killed = time.monotonic()
        self._brokers.kill(broker)
        self._wait(lambda: self._led_without(broker), "other leaders")
        led_again = time.monotonic()
        if self._mirror is None:
            self._wait_sent(self._to_send * 3 / 4)
        begun = time.monotonic()
        self._brokers.restart(broker)
        restarted = begun if self._mirror is None else time.monotonic()
        mirror, mirror_down_s = ("", 0.0) if self._mirror is None else (self._mirror.mirror, self._mirror.wait_for_mirror())
        self._wait(self._all_in_sync, "all replicas in sync")
        return CrashReport(
            broker,
            sent,
            self._to_send,
            sum(each.leader == broker for each in before),
            len(before),
            led_again - killed,
            restarted - killed,
            time.monotonic() - restarted,
            mirror,
            mirror_down_s,
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise CrashError(f"{LIMIT_S:.0f} s after a broker was killed the cluster does not have {what}; more in the logs")
            if self._abandoned.wait(_POLL_S):
                raise CrashError("not waited for")

    def _partitions(self) -> Sequence[PartitionMetadata]:
        return self._cluster.topic(self._topic).partitions

    def _led_without(self, broker: BrokerId) -> bool:
        return all(each.leader not in (broker, _NO_LEADER) for each in self._partitions())

    def _all_in_sync(self) -> bool:
        return all(len(each.isr) == len(each.replicas) for topic in self._cluster.topics(internal=True) for each in topic.partitions)
