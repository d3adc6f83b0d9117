"""Metrics as tracked events: counters, gauges and histograms, kept in memory and sent at an interval.

    metrics = MetricsEmitter(tracker, interval_s=10)
    requests = metrics.counter("requests", path="/index")
    requests.add()

A counter and a histogram are sent as what was added since the last time, when there was something: such events add up over hosts and times.
A gauge is sent with its last value every time. One event per metric and interval, however often the metric changes.
"""

import bisect
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Final, TypeVar

from moldau.model.errors import MoldauError
from moldau.tracking.errors import EventError
from moldau.tracking.producer import TrackerProducer

Labels = tuple[tuple[str, str], ...]


class Metric:
    """What the kinds have in common. Any thread may use one."""

    kind = ""

    def __init__(self, name: str, labels: Labels) -> None:
        self.name = name
        self.labels = labels
        self._lock = threading.Lock()

    def take(self) -> dict[str, Any] | None:
        """What to send now; None for nothing."""
        raise NotImplementedError

    def give_back(self, event: dict[str, Any]) -> None:
        """What was taken could not be sent: it counts for the next time."""

    def _event(self, value: float, count: int, bounds: Sequence[float] = (), counts: Sequence[int] = ()) -> dict[str, Any]:
        labels = dict(self.labels)
        return {
            "name": self.name,
            "kind": self.kind,
            "labels": labels,
            "value": value,
            "count": count,
            "bounds": list(bounds),
            "counts": list(counts),
        }


class Counter(Metric):
    """It only rises."""

    kind = "COUNTER"

    def __init__(self, name: str, labels: Labels) -> None:
        super().__init__(name, labels)
        self._value, self._count = 0.0, 0

    def add(self, amount: float = 1.0) -> None:
        """ValueError for a negative amount, TypeError for one that is no number."""
        _check_number(f"counter {self.name}: amount", amount)
        if amount < 0:
            raise ValueError(f"counter {self.name}: {amount} is negative")
        with self._lock:
            self._value += amount
            self._count += 1

    def take(self) -> dict[str, Any] | None:
        """The increase since the last time."""
        with self._lock:
            value, count = self._value, self._count
            self._value, self._count = 0.0, 0
        return self._event(value, count) if count else None

    def give_back(self, event: dict[str, Any]) -> None:
        """Add it again."""
        with self._lock:
            self._value += event["value"]
            self._count += event["count"]


class Gauge(Metric):
    """It has a value at a time."""

    kind = "GAUGE"

    def __init__(self, name: str, labels: Labels) -> None:
        super().__init__(name, labels)
        self._value: float | None = None

    def set(self, value: float) -> None:
        """The value from now on. TypeError for what is no number."""
        _check_number(f"gauge {self.name}: value", value)
        self._value = float(value)

    def take(self) -> dict[str, Any] | None:
        """The value, if there has been one."""
        value = self._value
        return None if value is None else self._event(value, 1)


class Histogram(Metric):
    """How often it was how much; by buckets, each with its upper bound, which belongs to it."""

    kind = "HISTOGRAM"

    def __init__(self, name: str, labels: Labels, bounds: Sequence[float]) -> None:
        super().__init__(name, labels)
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"histogram {name}: the bounds of buckets rise: {list(bounds)}")
        self.bounds = tuple(float(bound) for bound in bounds)
        self._counts, self._sum = [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """One more. TypeError for what is no number."""
        _check_number(f"histogram {self.name}: value", value)
        with self._lock:
            self._counts[bisect.bisect_left(self.bounds, value)] += 1
            self._sum += value

    def take(self) -> dict[str, Any] | None:
        """The observations since the last time."""
        with self._lock:
            counts, total = self._counts, self._sum
            self._counts, self._sum = [0] * len(counts), 0.0
        return self._event(total, sum(counts), self.bounds, counts) if any(counts) else None

    def give_back(self, event: dict[str, Any]) -> None:
        """Add them again."""
        with self._lock:
            self._counts = [one + other for one, other in zip(self._counts, event["counts"], strict=True)]
            self._sum += event["value"]


def _check_number(what: str, value: object) -> None:
    """Floats and integers, numpy's too; no text, and no truth values."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{what} is a number, not {value!r} ({type(value).__name__})")


METRICS_TOPIC: Final = "metrics"
INTERVAL_S: Final = 10.0
BUCKETS_DEFAULT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds for seconds."""

METRIC_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Metric",
    "namespace": "moldau.tracking",
    "doc": "What one metric of one host has done since the last time.",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "MetricKind", "symbols": ["COUNTER", "GAUGE", "HISTOGRAM"]}},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
        {"name": "value", "type": "double", "doc": "A counter's increase, a gauge's value, the sum of a histogram's observations."},
        {"name": "count", "type": "long", "doc": "Observations of a histogram, additions to a counter; 1 for a gauge."},
        {"name": "bounds", "type": {"type": "array", "items": "double"}, "doc": "Upper bounds of a histogram's buckets."},
        {"name": "counts", "type": {"type": "array", "items": "long"}, "doc": "Observations by bucket; one more for those above."},
    ],
}

log = logging.getLogger("moldau.tracking")


M = TypeVar("M", bound=Metric)


class MetricsEmitter:
    """Sends metrics to `topic` every `interval_s` seconds through `tracker`, which stays open. Close it before the tracker."""

    def __init__(self, tracker: TrackerProducer, topic: str = METRICS_TOPIC, *, interval_s: float = INTERVAL_S) -> None:
        if interval_s <= 0:
            raise ValueError(f"interval_s is more than 0, not {interval_s}")
        self._registered: dict[tuple[str, Labels], Metric] = {}
        self._lock = threading.Lock()
        schema = tracker.declare(METRIC_SCHEMA, topic=topic, kind="metrics")
        registered = self._registered

        def send() -> None:
            refused: EventError | None = None
            for metric in list(registered.values()):
                event = metric.take()
                if event is not None:
                    try:
                        tracker.track(event, topic=topic, schema=schema).add_done_callback(_look)
                    except EventError as error:  # of this metric alone: such as a label that UTF-8 cannot write
                        metric.give_back(event)
                        refused = refused or error
                    except Exception:
                        metric.give_back(event)
                        raise
            if refused is not None:
                raise refused

        self._send = send
        self._stop = threading.Event()
        self._thread = threading.Thread(target=_run, args=(send, self._stop, interval_s), name="moldau metrics", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _finish, send, self._stop, self._thread)

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of this name and these labels, which are text. TypeError."""
        return self._get(Counter, name, labels, lambda key: Counter(name, key))

    def gauge(self, name: str, **labels: str) -> Gauge:
        """The gauge of this name and these labels, which are text. TypeError."""
        return self._get(Gauge, name, labels, lambda key: Gauge(name, key))

    def histogram(self, name: str, bounds: Sequence[float] = BUCKETS_DEFAULT, **labels: str) -> Histogram:
        """The histogram of this name and these labels; `bounds` are the upper bounds of its buckets. ValueError, TypeError."""
        return self._get(Histogram, name, labels, lambda key: Histogram(name, key, bounds))

    def _get(self, kind: type[M], name: str, labels: dict[str, str], make: Callable[[Labels], M]) -> M:
        if not isinstance(name, str):
            raise TypeError(f"the name of a metric is text, not {name!r} ({type(name).__name__})")
        for label, text in labels.items():
            if not isinstance(text, str):
                raise TypeError(f"metric {name}: label {label} is text, not {text!r} ({type(text).__name__})")
        key: Labels = tuple(sorted(labels.items()))
        with self._lock:
            found = self._registered.get((name, key))
            if found is None:
                found = self._registered[name, key] = make(key)
        if not isinstance(found, kind):
            raise ValueError(f"metric {name} is a {type(found).__name__.lower()}, not a {kind.__name__.lower()}")
        return found

    def emit(self) -> None:
        """Send now. What cannot be sent is raised; see `TrackerProducer.track`."""
        self._send()

    def close(self) -> None:
        """Send what is left, and end."""
        if self._end.detach() is not None:
            _finish(self._send, self._stop, self._thread)


def _run(send: Callable[[], None], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        _try(send, "not sent, retrying")


def _finish(send: Callable[[], None], stop: threading.Event, thread: threading.Thread) -> None:
    stop.set()
    if thread is not threading.current_thread():  # which may be the one that finds an emitter to be garbage
        thread.join()
    _try(send, "not sent at the end")


def _try(send: Callable[[], None], failed: str) -> None:
    try:
        send()
    except (MoldauError, RuntimeError, OSError) as error:
        log.warning("metrics: %s: %s", failed, error)


def _look(delivery: Any) -> None:
    if delivery.exception() is not None:
        log.warning("metrics: %s", delivery.exception())
