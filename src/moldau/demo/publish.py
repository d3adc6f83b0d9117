"""The three hosts together: started side by side, followed while they publish, and what they have done in the end.

What a host sends is decided from the log: a line that the topic holds is not sent again, whichever run put it there. So it does not matter
in which order the lines arrived, nor how far each partition had come when a run was killed.
"""

import base64
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.demo.children import Child, host
from moldau.demo.host import HostResult, Orders

FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Events of 2013 are older than any retention, and the counts of them are to be there when the demonstration is run again."""


class PublishError(RuntimeError):
    """Events could not be published; what was acknowledged stays, and the next run goes on behind it."""


def ensure_topics(bootstrap: str, topic: str, partitions: int) -> None:
    """Create the topic of the events and that of the audit unless they are there. The client's errors; PublishError."""
    from moldau.tracking.audit_record import AUDIT_PARTITIONS, AUDIT_TOPIC

    with Cluster(bootstrap, client_id="moldau-demo") as cluster:
        for name, count in ((topic, partitions), (AUDIT_TOPIC, AUDIT_PARTITIONS)):
            there = cluster.metadata([name]).topics.get(name)
            if there is None or there.error:
                Admin(cluster).create_topic(name, count, configs=FOR_EVER)
            elif len(there.partitions) != count:
                raise PublishError(f"topic {name} has {len(there.partitions)} partitions, not {count}; use another --dir")


def as_bits(lines: Any) -> str:
    """Numbers of lines as a bit for each, in base64."""
    if not len(lines):
        return ""
    there = np.zeros(int(lines[-1]) + 1, np.uint8)
    there[lines] = 1
    return base64.b64encode(np.packbits(there, bitorder="little").tobytes()).decode()


@dataclass(frozen=True, slots=True)
class PublishTotals:
    """What all hosts have dealt with, and how much of it was sent now."""

    hosts: tuple[HostResult, ...]
    bad_shown: tuple[tuple[int, str], ...]

    @property
    def read(self) -> int:
        """Lines of the input, the planted loss among them."""
        return sum(each.read for each in self.hosts)

    @property
    def bad(self) -> int:
        """Lines that are no events."""
        return sum(each.bad for each in self.hosts)

    @property
    def sent(self) -> int:
        """Lines sent in this run."""
        return sum(each.sent for each in self.hosts)

    @property
    def sent_bytes(self) -> int:
        """Their bytes."""
        return sum(each.sent_bytes for each in self.hosts)

    @property
    def planted_lines(self) -> tuple[int, ...]:
        """The line that was counted and never sent, if one was."""
        return tuple(each.planted_line for each in self.hosts if each.planted_line is not None)


class HostPublishers:
    """The hosts at work. `progress` is told how many lines they have dealt with, by their number, from threads of this class."""

    def __init__(self, orders: Sequence[Orders], logs: Path, progress: Callable[[int, int], object]) -> None:
        self._progress = progress
        self.ended = 0.0
        """When the last one so far ended, on the monotonic clock."""
        self._children = [host(each.to_bytes(), logs / f"host-{each.host + 1}.log") for each in orders]
        self._done: list[HostResult | None] = [None] * len(orders)
        self._threads = [
            threading.Thread(target=self._follow, args=(number, child), name=f"moldau demo host {number}", daemon=True)
            for number, child in enumerate(self._children)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def over(self) -> bool:
        """Whether all hosts have ended, well or not."""
        return not any(thread.is_alive() for thread in self._threads)

    def result(self) -> PublishTotals:
        """Wait for all of them. PublishError with what a host said that has failed."""
        for thread in self._threads:
            thread.join()
        hosts = []
        for child, done in zip(self._children, self._done, strict=True):
            if done is None:
                raise PublishError(f"a host has failed; {child.log} ends with: {child.said()}")
            hosts.append(done)
        shown = sorted((int(line), str(reason)) for done in hosts for line, reason in done.bad_shown)
        return PublishTotals(tuple(hosts), tuple(shown[:10]))

    def stop(self) -> None:
        """End those that are still at work."""
        for child in self._children:
            child.kill()

    def _follow(self, number: int, child: Child) -> None:
        assert child.process.stdout is not None
        for line in child.process.stdout:
            said = json.loads(line)
            if "result" in said:
                self._done[number] = HostResult(**said["result"])
            else:
                self._progress(number, said["done"])
        child.process.wait()
        self.ended = max(self.ended, time.monotonic())
