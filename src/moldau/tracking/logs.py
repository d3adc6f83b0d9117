"""Log lines as tracked events: a `logging.Handler` that never waits for brokers and never logs about itself.

    handler = TrackedLogHandler(tracker)
    logging.getLogger().addHandler(handler)

A line is put into a queue with a bound and sent by a thread. Where the queue is full, lines are dropped and counted, `dropped`; what the
sending itself logs is left out, or every line would make more lines. Close the handler before its tracker.
"""

import logging
import os
import queue
import threading
import time
import traceback
import weakref
from typing import Any, Final

from moldau.model.errors import MoldauError
from moldau.tracking.producer import TrackerProducer
from moldau.tracking.schemas.event_schema import EventSchema

LOG_TOPIC: Final = "logs"
CAPACITY: Final = 10_000
CLOSE_TIMEOUT_S: Final = 5.0
_OWN_LOGGERS: Final = ("moldau", "confluent_kafka")
_STOP: Final = None

LOG_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "LogLine",
    "namespace": "moldau.tracking",
    "doc": "One line of a program's log.",
    "fields": [
        {"name": "level", "type": "string"},
        {"name": "level_number", "type": "int"},
        {"name": "logger", "type": "string"},
        {"name": "message", "type": "string"},
        {"name": "exception", "type": ["null", "string"], "default": None},
        {"name": "file", "type": "string"},
        {"name": "line", "type": "int"},
        {"name": "function", "type": "string"},
        {"name": "process", "type": "long"},
        {"name": "thread", "type": "string"},
    ],
}

Line = tuple[dict[str, Any], int]
"""The event, and its time in ms."""


class TrackedLogHandler(logging.Handler):
    """Sends what it is handed to `topic`, through `tracker`, which stays open. At most `capacity` lines wait."""

    def __init__(
        self, tracker: TrackerProducer, topic: str = LOG_TOPIC, *, level: int | str = logging.NOTSET, capacity: int = CAPACITY
    ) -> None:
        super().__init__(level)
        if capacity < 1:
            raise ValueError(f"capacity is at least 1 line, not {capacity}")
        self._sender = _Sender(tracker, topic, tracker.declare(LOG_SCHEMA, topic=topic, kind="logs"), capacity)
        self._formatting = threading.local()
        self._end = weakref.finalize(self, self._sender.close, CLOSE_TIMEOUT_S)
        self._pid = os.getpid()

    @property
    def dropped(self) -> int:
        """Lines so far that were not sent: no room, no broker, after the end. Those of a forked process are not counted."""
        return self._sender.dropped

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line, or drop it. Returns at once."""
        if record.name.partition(".")[0] in _OWN_LOGGERS or getattr(self._formatting, "active", False) or self._sender.is_this_thread():
            return
        self._formatting.active = True
        try:
            line = (_event(record), int(record.created * 1000))
        except Exception:  # a message whose arguments do not fit it, or whose __str__ fails: reported as logging does
            self.handleError(record)
            return
        finally:
            self._formatting.active = False
        if os.getpid() == self._pid:
            self._sender.put(line)

    def close(self) -> None:
        """Send what is queued, for some seconds, and end."""
        if self._end.detach() is not None:
            self._sender.close(CLOSE_TIMEOUT_S)
        super().close()


class _Sender:
    """The queue and its thread. It does not know the handler, so that a handler without references is collected."""

    def __init__(self, tracker: TrackerProducer, topic: str, schema: EventSchema, capacity: int) -> None:
        self._tracker = tracker
        self._topic = topic
        self._schema = schema
        self._queue: queue.Queue[Line | None] = queue.Queue(capacity)
        self._closed = False
        self._deadline = float("inf")
        self._counting = threading.Lock()
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="moldau tracked logs", daemon=True)
        self._thread.start()

    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def put(self, line: Line) -> None:
        try:
            if self._closed:
                raise queue.Full
            self._queue.put_nowait(line)
        except queue.Full:
            self._drop()

    def _drop(self) -> None:
        with self._counting:
            self.dropped += 1

    def _run(self) -> None:
        while (line := self._queue.get()) is not _STOP:
            try:
                if time.monotonic() >= self._deadline:
                    raise TimeoutError
                event, time_ms = line
                self._tracker.track(event, time_ms, self._topic, schema=self._schema).add_done_callback(self._ended)
            except (MoldauError, RuntimeError, ValueError, OSError):
                self._drop()

    def _ended(self, delivery: Any) -> None:
        if delivery.exception() is not None:
            self._drop()

    def close(self, timeout_s: float) -> None:
        self._closed = True
        self._deadline = time.monotonic() + timeout_s
        if self.is_this_thread():  # which may be the one that finds a handler to be garbage
            return
        try:
            self._queue.put(_STOP, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)


def _event(record: logging.LogRecord) -> dict[str, Any]:
    exception = record.exc_text
    if exception is None and record.exc_info and record.exc_info[0] is not None:
        exception = "".join(traceback.format_exception(*record.exc_info))
    return {
        "level": record.levelname,
        "level_number": record.levelno,
        "logger": record.name,
        "message": _writable(record.getMessage()),
        "exception": None if exception is None else _writable(exception),
        "file": record.pathname,
        "line": record.lineno,
        "function": record.funcName or "",
        "process": record.process or 0,
        "thread": record.threadName or "",
    }


def _writable(text: str) -> str:
    """Text that UTF-8 can write: half a surrogate pair is replaced."""
    return text.encode("utf-8", "replace").decode()
