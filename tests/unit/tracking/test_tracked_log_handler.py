"""A log handler never waits, never logs about itself, and says how many lines it dropped."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from moldau.client.failures import SendError
from moldau.tracking import EventSchema, event_schema
from moldau.tracking.logs import TrackedLogHandler

LIMIT_S = 30.0


class Tracker:
    """Takes events, unless the test lets it wait or fail."""

    def __init__(self) -> None:
        self.events: list[tuple[dict[str, Any], int]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.began = threading.Event()
        self.fails: Exception | None = None
        self.lost = False

    def declare(self, source: Any, topic: str, kind: str) -> EventSchema:
        return event_schema(source)

    def track(self, event: dict[str, Any], time: int, topic: str, schema: EventSchema) -> Any:
        logging.getLogger("moldau.client").warning("sending logs too")
        self.began.set()
        assert self.go_on.wait(LIMIT_S)
        if self.fails is not None:
            raise self.fails
        schema.encode(event)
        self.events.append((event, time))
        return self

    def add_done_callback(self, function: Any) -> None:
        function(self)

    def exception(self) -> SendError | None:
        return SendError("logs", None, KafkaError(KafkaError._MSG_TIMED_OUT)) if self.lost else None


@pytest.fixture
def tracker() -> Tracker:
    return Tracker()


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger whose handlers are taken off again."""
    logger = logging.getLogger("shop.orders")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger
    logger.propagate = True
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def handler_of(tracker: Tracker, **options: Any) -> TrackedLogHandler:
    made: Any = tracker
    return TrackedLogHandler(made, **options)


def test_a_line_is_an_event(tracker: Tracker, log: logging.Logger) -> None:
    handler = handler_of(tracker)
    log.addHandler(handler)
    try:
        raise KeyError("order 17")
    except KeyError:
        log.exception("lost %s", "it \ud800")
    handler.close()
    ((event, time_ms),) = tracker.events
    assert (event["level"], event["logger"]) == ("ERROR", "shop.orders")
    assert event["message"] == "lost it ?"
    assert "KeyError: 'order 17'" in event["exception"]
    assert event["function"] == "test_a_line_is_an_event"
    assert time_ms > 1_600_000_000_000
    assert handler.dropped == 0


def test_a_full_queue_drops_lines_and_counts_them(tracker: Tracker, log: logging.Logger) -> None:
    """One line is being sent, two wait, the rest is dropped; no caller has waited."""
    handler = handler_of(tracker, capacity=2)
    log.addHandler(handler)
    tracker.go_on.clear()
    log.info("first")
    assert tracker.began.wait(LIMIT_S)
    for number in range(10):
        log.info("line %d", number)
    assert handler.dropped == 8
    tracker.go_on.set()
    handler.close()
    assert [event["message"] for event, _ in tracker.events] == ["first", "line 0", "line 1"]
    log.info("after the end")
    assert handler.dropped == 9


def test_what_sending_logs_is_left_out(tracker: Tracker) -> None:
    """On the root logger every line of the client would make another one."""
    handler = handler_of(tracker)
    root = logging.getLogger()
    root.addHandler(handler)
    logging.getLogger("shop").error("one")
    handler.close()
    root.removeHandler(handler)
    assert [event["message"] for event, _ in tracker.events] == ["one"]


def test_a_message_that_logs_while_it_is_formatted_does_not_recurse(tracker: Tracker, log: logging.Logger) -> None:
    class Chatty:
        said = False

        def __str__(self) -> str:
            if not self.said:
                self.said = True
                log.info("formatting")
            return "chatty"

    handler = handler_of(tracker)
    log.addHandler(handler)
    handler.emit(logging.LogRecord("shop.orders", logging.INFO, __file__, 1, "%s", (Chatty(),), None))
    handler.close()
    assert [event["message"] for event, _ in tracker.events] == ["chatty"]


def test_what_cannot_be_sent_is_dropped(tracker: Tracker, log: logging.Logger) -> None:
    handler = handler_of(tracker)
    log.addHandler(handler)
    tracker.fails = RuntimeError("the producer is closed")
    log.info("one")
    handler.close()
    assert handler.dropped == 1


def test_what_is_lost_on_its_way_is_counted_too(tracker: Tracker, log: logging.Logger) -> None:
    handler = handler_of(tracker)
    log.addHandler(handler)
    tracker.lost = True
    log.info("one")
    handler.close()
    assert handler.dropped == 1


def test_a_queue_without_room_cannot_be_meant(tracker: Tracker) -> None:
    with pytest.raises(ValueError, match="capacity is at least 1"):
        handler_of(tracker, capacity=0)
