"""Metrics are kept in memory and sent as what was added since the last time; what could not be sent counts for the next time."""

import re
import threading
from typing import Any

import pytest

from moldau.tracking import EventError, EventSchema, event_schema
from moldau.tracking.metrics import MetricsEmitter

HOUR_S = 3600.0


class Tracker:
    """Takes events, unless it fails."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.sent = threading.Event()
        self.fails: Exception | None = None

    def declare(self, source: Any, topic: str, kind: str) -> EventSchema:
        return event_schema(source)

    def track(self, event: dict[str, Any], *, topic: str, schema: EventSchema) -> Any:
        if self.fails is not None:
            raise self.fails
        schema.encode(event)
        self.events.append(event)
        self.sent.set()
        return self

    def add_done_callback(self, function: Any) -> None:
        function(self)

    def exception(self) -> None:
        return None


def emitter(tracker: Tracker, interval_s: float = HOUR_S) -> MetricsEmitter:
    made: Any = tracker
    return MetricsEmitter(made, interval_s=interval_s)


def taken(tracker: Tracker) -> list[tuple[Any, ...]]:
    found = [(each["name"], each["kind"], each["labels"], each["value"], each["count"]) for each in tracker.events]
    tracker.events.clear()
    return found


def test_a_counter_says_what_was_added() -> None:
    tracker = Tracker()
    metrics = emitter(tracker)
    metrics.counter("requests", path="/").add()
    metrics.counter("requests", path="/").add(2)
    metrics.counter("requests", path="/cart").add()
    metrics.emit()
    assert taken(tracker) == [("requests", "COUNTER", {"path": "/"}, 3.0, 2), ("requests", "COUNTER", {"path": "/cart"}, 1.0, 1)]
    metrics.emit()
    assert taken(tracker) == []
    with pytest.raises(ValueError, match="counter requests: -1 is negative"):
        metrics.counter("requests", path="/").add(-1)
    metrics.close()


def test_a_gauge_says_its_value_every_time() -> None:
    tracker = Tracker()
    metrics = emitter(tracker)
    gauge = metrics.gauge("threads")
    metrics.emit()
    gauge.set(5)
    metrics.emit()
    metrics.emit()
    assert taken(tracker) == [("threads", "GAUGE", {}, 5.0, 1)] * 2
    metrics.close()


def test_a_histogram_counts_by_buckets() -> None:
    tracker = Tracker()
    metrics = emitter(tracker)
    sizes = metrics.histogram("sizes", bounds=(1, 10))
    for value in (0.5, 1, 1.5, 10, 11):
        sizes.observe(value)
    metrics.close()
    (event,) = tracker.events
    assert (event["bounds"], event["counts"], event["value"], event["count"]) == ([1.0, 10.0], [2, 2, 1], 24.0, 5)


def test_what_could_not_be_sent_counts_for_the_next_time() -> None:
    tracker = Tracker()
    metrics = emitter(tracker)
    metrics.counter("requests").add(2)
    metrics.histogram("sizes", bounds=(1,)).observe(3)
    tracker.fails = RuntimeError("not now")
    with pytest.raises(RuntimeError):
        metrics.emit()
    tracker.fails = None
    metrics.counter("requests").add(1)
    metrics.emit()
    assert [(name, value, count) for name, _, _, value, count in taken(tracker)] == [("requests", 3.0, 2), ("sizes", 3.0, 1)]
    metrics.close()


def test_one_that_is_no_event_does_not_hold_up_the_others() -> None:
    """A label that cannot be written is reported every time, and all the others are sent."""
    tracker = Tracker()
    metrics = emitter(tracker)
    metrics.counter("requests", status="\ud800").add()
    metrics.counter("requests", status="404").add()
    with pytest.raises(EventError, match=r"^Metric.*surrogate"):
        metrics.emit()
    assert taken(tracker) == [("requests", "COUNTER", {"status": "404"}, 1.0, 1)]
    metrics.close()


def test_what_cannot_be_sent_is_retried_until_the_end(caplog: pytest.LogCaptureFixture) -> None:
    tracker = Tracker()
    tracker.fails = RuntimeError("queue full")
    metrics = emitter(tracker)
    metrics.counter("requests").add()
    metrics.close()
    assert caplog.messages == ["metrics: not sent at the end: queue full"]


def test_it_sends_by_itself() -> None:
    tracker = Tracker()
    metrics = emitter(tracker, 0.01)
    metrics.gauge("threads").set(1)
    assert tracker.sent.wait(30.0)
    metrics.close()
    metrics.close()


def test_one_name_is_one_kind_of_metric() -> None:
    metrics = emitter(Tracker())
    metrics.counter("requests")
    with pytest.raises(ValueError, match="metric requests is a counter, not a gauge"):
        metrics.gauge("requests")
    with pytest.raises(ValueError, match="the bounds of buckets rise"):
        metrics.histogram("sizes", bounds=(2, 1))
    metrics.close()
    with pytest.raises(ValueError, match="interval_s is more than 0"):
        emitter(Tracker(), 0)


def test_what_is_no_number_and_what_is_no_text_is_refused_where_it_is_given() -> None:
    """Not seconds later by the thread that sends; labels are not made text, for then 1 and "1" would be one metric."""
    metrics = emitter(Tracker())
    wrong: Any = "x"
    number: Any = 200
    for use, message in [
        (lambda: metrics.counter("requests").add(wrong), "counter requests: amount is a number, not 'x' (str)"),
        (lambda: metrics.counter("requests").add(True), "counter requests: amount is a number, not True (bool)"),
        (lambda: metrics.gauge("threads").set(wrong), "gauge threads: value is a number, not 'x' (str)"),
        (lambda: metrics.histogram("sizes").observe(wrong), "histogram sizes: value is a number, not 'x' (str)"),
        (lambda: metrics.counter("queries", code=number), "metric queries: label code is text, not 200 (int)"),
        (lambda: metrics.counter(number), "the name of a metric is text, not 200 (int)"),
    ]:
        do: Any = use
        with pytest.raises(TypeError, match=re.escape(message)):
            do()
    metrics.close()
