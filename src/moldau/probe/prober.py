"""Sends a probe to the partition of each broker at a steady rate, reads all of them, and measures.

A probe counts for its broker if it was acknowledged in time and the broker led its own partition when it was sent: after a failover another
broker may take it, which says nothing about this one. For a mirror those count that were acknowledged at all.

The caller's thread sends and measures. One thread looks after the topic, since brokers that do not answer hold it up; one thread reads the
cluster, and one each mirror. They hand over what they see by a queue, which is emptied at each tick.
"""

import logging
import secrets
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Literal, NamedTuple, Self

from moldau.client.cluster import Cluster
from moldau.client.consumer import Consumer
from moldau.client.delivery import Delivery
from moldau.client.failures import ClientError
from moldau.client.producer import Producer
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.model.log_throttle import LogThrottle
from moldau.probe.canary import Canary, ends, look, partition_numbers
from moldau.probe.measures import Measure, Way

_LOG = logging.getLogger(__name__)

TOPIC = "_probe"
LOOK_S = 2.0
ASK_S = 5.0
POLL_S = 0.2
CLOSE_S = 1.0
START_LIMIT_S = 10.0
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 20
_VALUE = struct.Struct(">8sq")


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What is probed, and how."""

    bootstrap: str
    topic: str = TOPIC
    replicas: int = 1
    rate: float = 5.0
    """Probes a second to each broker."""
    limit_s: float = 5.0
    """A probe that takes longer is lost."""
    mirrors: Mapping[str, str] = field(default_factory=dict)
    """Bootstrap servers of clusters where a mirror brings the topic, and its name there."""
    mirror_limit_s: float = 30.0


class BrokerReport(NamedTuple):
    """What became of the probes of a broker."""

    broker: int
    acknowledged: Measure
    read: Measure


class ProbeReport(NamedTuple):
    """Of one interval."""

    brokers: tuple[BrokerReport, ...]
    mirrors: Mapping[str, Measure]

    @property
    def is_decided(self) -> bool:
        """Whether a probe of each broker, and of each mirror, has arrived or is lost."""
        return all(measure.ended for measure in (*(each.acknowledged for each in self.brokers), *self.mirrors.values()))

    @property
    def availability(self) -> float:
        """The worst of all; 0 if nothing could be probed."""
        shares = [each.acknowledged.availability for each in self.brokers] + [each.availability for each in self.mirrors.values()]
        return min((share for share in shares if share is not None), default=0.0)


class _Event(NamedTuple):
    """A probe was acknowledged (way ""), could not be sent (None), or was read in a cluster."""

    way: str | None
    number: int
    at: float


class Prober:
    """See the module. As a context manager; `run` it."""

    def __init__(self, options: ProbeOptions) -> None:
        self._options = options
        self._run = secrets.token_bytes(8)
        """Tells our probes from those of others."""
        self._number = 0
        self._owners: dict[int, int] = {}
        """The broker of each probe that may still be acknowledged or read."""
        self._sent: list[tuple[float, int]] = []
        self._acknowledged: dict[int, Way] = {}
        self._read: dict[int, Way] = {}
        self._mirrors = {bootstrap: Way(options.mirror_limit_s) for bootstrap in options.mirrors}
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._canary: Canary | None = None
        self._looked = threading.Event()
        self._read_from_now_on = threading.Semaphore(0)
        """Released once by each reader."""
        self._over = threading.Event()
        self._producer = Producer(
            options.bootstrap, client_id="moldau-probe", linger_ms=0, delivery_timeout_ms=max(1000, int(options.limit_s * 1000))
        )
        reads = {options.bootstrap: options.topic, **options.mirrors}
        self._threads = [threading.Thread(target=self._look_after, name="probe topic")]
        self._threads += [threading.Thread(target=self._follow, args=each, name=f"probe reader {each[0]}") for each in reads.items()]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        with suppress(ClientError, TimeoutError):  # probes to brokers that are away
            self._producer.close(CLOSE_S)

    def run(self, interval_s: float) -> Iterator[ProbeReport]:
        """A report after each interval. TimeoutError if no broker can be asked for the topic at first."""
        if not self._looked.wait(START_LIMIT_S):
            raise TimeoutError(f"topic {self._options.topic}: could not be made at {self._options.bootstrap} within {START_LIMIT_S:g} s")
        for _ in range(1 + len(self._mirrors)):
            self._read_from_now_on.acquire()
        tick_s = 1 / self._options.rate
        next_tick = time.monotonic()
        report_at = next_tick + interval_s
        while True:
            now = time.monotonic()
            if now >= next_tick:
                next_tick = max(next_tick + tick_s, now)
                self._send(now)
            self._drain()
            self._expire(now)
            if now >= report_at:
                report_at += interval_s
                yield self._report()
            time.sleep(max(0.0, min(next_tick, report_at) - time.monotonic()))

    # The caller's thread

    def _send(self, now: float) -> None:
        canary = self._canary
        assert canary is not None, "looked at before the first tick"
        for broker, number_of_partition in canary.partitions.items():
            self._number += 1
            number = self._number
            self._owners[number] = broker
            self._sent.append((now, number))
            acknowledged = self._acknowledged.setdefault(broker, Way(self._options.limit_s))
            acknowledged.sent(number, now)
            self._read.setdefault(broker, Way(self._options.limit_s)).sent(number, now)
            for way in self._mirrors.values():
                way.sent(number, now)
            if broker not in canary.led:
                acknowledged.lost(number)
            value = _VALUE.pack(self._run, number)
            delivery = self._producer.send(self._options.topic, value, partition=number_of_partition)
            delivery.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, delivery: Delivery) -> None:
        """In the producer's thread."""
        self._events.put(_Event("" if delivery.exception() is None else None, number, time.monotonic()))

    def _drain(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            broker = self._owners.get(event.number)
            if broker is None:
                continue
            if event.way is None:
                self._acknowledged[broker].lost(event.number)
                self._read[broker].withdrawn(event.number)
                for way in self._mirrors.values():
                    way.withdrawn(event.number)
            elif event.way == "":
                self._acknowledged[broker].arrived(event.number, event.at)
            elif event.way == self._options.bootstrap:
                self._read[broker].arrived(event.number, event.at)
            else:
                self._mirrors[event.way].arrived(event.number, event.at)

    def _expire(self, now: float) -> None:
        for way in (*self._acknowledged.values(), *self._read.values(), *self._mirrors.values()):
            way.expire(now)
        kept_s = max(self._options.limit_s, self._options.mirror_limit_s)
        old = 0
        while old < len(self._sent) and now - self._sent[old][0] > kept_s:
            self._owners.pop(self._sent[old][1], None)
            old += 1
        del self._sent[:old]

    def _report(self) -> ProbeReport:
        brokers = tuple(
            BrokerReport(broker, self._acknowledged[broker].take(), self._read[broker].take()) for broker in sorted(self._acknowledged)
        )
        return ProbeReport(brokers, {bootstrap: way.take() for bootstrap, way in self._mirrors.items()})

    # Other threads

    def _look_after(self) -> None:
        throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)
        with Cluster(self._options.bootstrap, timeout_s=ASK_S) as cluster:
            while not self._over.is_set():
                try:
                    self._canary = look(cluster, self._options.topic, self._options.replicas)
                    self._looked.set()
                except MoldauError as error:
                    if throttle.due(str(error), time.monotonic()):
                        _LOG.warning("topic cannot be looked after: topic=%s reason=%s", self._options.topic, error)
                self._over.wait(LOOK_S)

    def _follow(self, bootstrap: str, topic: str) -> None:
        """Read all partitions of the topic in a cluster, from their ends on; those that come later from their beginnings."""
        throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)
        with (
            Cluster(bootstrap, timeout_s=ASK_S) as cluster,
            Consumer(bootstrap, client_id="moldau-probe", close_timeout_ms=1000, settings={"fetch.wait.max.ms": 100}) as consumer,
        ):
            positions: dict[TopicPartition, int | Literal["smallest", "largest"]] = {}
            if bootstrap == self._options.bootstrap:
                self._looked.wait(START_LIMIT_S)  # it is made then
            with _logged(bootstrap, throttle):
                positions |= ends(cluster, topic)
            consumer.assign(positions)
            self._read_from_now_on.release()
            look_at = time.monotonic() + LOOK_S
            while not self._over.is_set():
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_S
                    with _logged(bootstrap, throttle):
                        new = {TopicPartition(topic, number) for number in partition_numbers(cluster, topic)} - positions.keys()
                        if new:
                            positions |= {**dict.fromkeys(new, "smallest"), **consumer.positions()}
                            consumer.assign(positions)
                self._read_some(consumer, bootstrap, has_partitions=bool(positions))

    def _read_some(self, consumer: Consumer, bootstrap: str, *, has_partitions: bool) -> None:
        if not has_partitions:
            self._over.wait(POLL_S)
            return
        try:
            message = consumer.poll(POLL_S)
        except ClientError as error:
            _LOG.warning("probes cannot be read: cluster=%s reason=%s", bootstrap, error)
            self._over.wait(POLL_S)
            return
        if message is not None and message.value is not None and len(message.value) == _VALUE.size:
            run, number = _VALUE.unpack(message.value)
            if run == self._run:
                self._events.put(_Event(bootstrap, number, time.monotonic()))


@contextmanager
def _logged(bootstrap: str, throttle: LogThrottle) -> Iterator[None]:
    """A cluster that cannot be asked is logged, and asked again later."""
    try:
        yield
    except MoldauError as error:
        if throttle.due(str(error), time.monotonic()):
            _LOG.warning("probes cannot be read: cluster=%s reason=%s", bootstrap, error)
