"""A work queue over a log: each message goes to one worker, at least once.

    work = WorkQueue("localhost:9092", "thumbnails", retry_delays_s=(10, 600))
    work.put(b"image 17")

    with work.worker() as worker:          # in as many processes as there are partitions
        worker.run(make_thumbnail)         # a function of a Task

What a worker fails at is delivered again after a delay: from a topic of its own for each delay, so that its first message is due first,
``thumbnails.retry.1``, ``thumbnails.retry.2``; what has failed after the last of them goes to ``thumbnails.dead``, with the error in its
headers, and stays there to be inspected. Messages in front do not wait for those that failed.

A message is finished when the next one is asked for, and only then may it be committed: a worker that dies leaves what it had in hand to
another. A retry that is not due yet is put back, and its partition is paused until then; the other partitions continue.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, Unpack

from moldau.client.consumer import Consumer
from moldau.client.delivery import Delivery
from moldau.client.message import ConsumedMessage
from moldau.client.producer import Producer
from moldau.client.settings import ConsumerOptions, bootstrap_text
from moldau.model.identity import TopicPartition
from moldau.tracking.topics import QUEUING, TopicDefaults, check_topic, ensure_topic

RETRY_DELAYS_S: Final = (10.0, 60.0, 600.0)

ATTEMPT_HEADER: Final = "moldau.attempt"
"""How often this message was tried before, as decimal digits."""
DUE_HEADER: Final = "moldau.due_ms"
"""When it may be tried again, in ms since 1970."""
ERROR_HEADER: Final = "moldau.error"
ORIGIN_HEADER: Final = "moldau.origin"
"""Where it stood first: topic-partition@offset."""
OUR_HEADERS: Final = frozenset({ATTEMPT_HEADER, DUE_HEADER, ERROR_HEADER, ORIGIN_HEADER})


class WorkQueue:
    """The queue `name` and its topics; one retry for each of `retry_delays_s`. `partitions` bounds how many work at a time.

    The topics are made where they are missing, when the first message is put or the first worker begins. ValueError for a name and delays
    that cannot be meant; RequestFailedError, ConnectionLostError from what needs the brokers.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        name: str = "work",
        *,
        retry_delays_s: Sequence[float] = RETRY_DELAYS_S,
        partitions: int | None = QUEUING.topics.partitions,
    ) -> None:
        check_topic(name)
        if any(delay < 0 for delay in retry_delays_s):
            raise ValueError(f"queue {name}: a delay is not negative: {list(retry_delays_s)}")
        self.bootstrap_servers = bootstrap_text(bootstrap_servers)
        self.name = name
        self.retry_delays_s = tuple(retry_delays_s)
        self._defaults = TopicDefaults(partitions, QUEUING.topics.configs)
        self._there = False
        self._connecting = threading.Lock()
        self._producer: Producer | None = None

    @property
    def group(self) -> str:
        """The group that its workers share."""
        return f"{self.name}.workers"

    @property
    def retry_topics(self) -> list[str]:
        """One for each delay."""
        return [f"{self.name}.retry.{number}" for number in range(1, len(self.retry_delays_s) + 1)]

    @property
    def dead_letter_topic(self) -> str:
        """The topic of messages that failed every time."""
        return f"{self.name}.dead"

    def ensure(self) -> None:
        """Make its topics where they are missing."""
        if not self._there:
            for topic in (self.name, *self.retry_topics, self.dead_letter_topic):
                ensure_topic(self.bootstrap_servers, topic, self._defaults)
            self._there = True

    def put(
        self, value: bytes | str | None, *, key: bytes | str | None = None, headers: Mapping[str, bytes | None] | None = None
    ) -> Delivery:
        """Put a message in; its delivery ends when all in-sync replicas have it."""
        return self.producer.send(self.name, value, key=key, headers=headers)

    @property
    def producer(self) -> Producer:
        """What it sends with; connected now. Any thread may ask, such as those of several workers."""
        with self._connecting:
            if self._producer is None:
                self.ensure()
                self._producer = Producer(self.bootstrap_servers, client_id=f"{self.name} queue")
            return self._producer

    def worker(self, **options: Unpack[ConsumerOptions]) -> "Worker":
        """One worker of this queue; `options` are those of a `Consumer`. One thread uses it."""

        self.ensure()
        return Worker(self, **options)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was put has been delivered. SendError, TimeoutError."""
        if self._producer is not None:
            self._producer.flush(timeout)

    def close(self) -> None:
        """Flush, and close the connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


SLICE_S: Final = 0.2
ERROR_TEXT_MAX: Final = 2_000
NUMBER_DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class Task:
    """A message to be worked on. `attempt` is 1 the first time; `origin` is where it stood first."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    attempt: int
    origin: str
    due_ms: int

    @classmethod
    def of(cls, message: ConsumedMessage) -> Self:
        """Out of the queue's topic or one of its retry topics; headers that are no numbers are passed over."""
        ours = {name: value for name, value in message.headers if name in OUR_HEADERS}
        origin = ours.get(ORIGIN_HEADER)
        return cls(
            message.value,
            message.key,
            tuple((name, value) for name, value in message.headers if name not in OUR_HEADERS),
            _number(ours.get(ATTEMPT_HEADER)) + 1,
            f"{message.topic}-{message.partition}@{message.offset}" if origin is None else origin.decode("utf-8", "replace"),
            _number(ours.get(DUE_HEADER)),
        )

    def failed(self, error: BaseException, due_ms: int) -> list[tuple[str, bytes | None]]:
        """The headers of its retry."""
        reason = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:ERROR_TEXT_MAX]
        return [
            *self.headers,
            (ATTEMPT_HEADER, b"%d" % self.attempt),
            (DUE_HEADER, b"%d" % due_ms),
            (ERROR_HEADER, reason),
            (ORIGIN_HEADER, self.origin.encode()),
        ]


class Worker:
    """Made by `WorkQueue.worker`; takes from the queue's topic and its retry topics, shared with the other workers."""

    def __init__(self, queue: WorkQueue, **options: Unpack[ConsumerOptions]) -> None:
        self._queue = queue
        self._resting: dict[TopicPartition, float] = {}
        self.done = self.retried = self.dead = 0
        """Messages so far."""
        self._stopping = False
        self._messages = Consumer(queue.bootstrap_servers, group_id=queue.group, **options)
        self._messages.subscribe([queue.name, *queue.retry_topics])

    def run(self, handle: Callable[[Task], object], stop: threading.Event | None = None) -> None:
        """Let `handle` do one task after another, until `stop()` is called or the event `stop` is set; then the one in hand is committed.

        An exception of `handle` (no KeyboardInterrupt and the like) sends the task to the next retry topic, or to the dead letters.
        SendError when it cannot be sent there: then the task is not finished, and is delivered again.
        """
        while not self._stopping and (stop is None or not stop.is_set()):
            task = self.take(SLICE_S)
            if task is not None:
                try:
                    handle(task)
                except Exception as error:
                    self.fail(task, error)
                else:
                    self.done += 1
        self.finish()

    def stop(self) -> None:
        """Let `run` finish the task in hand, commit, and return. Any thread may call it, and a signal handler; it returns at once."""
        self._stopping = True

    def take(self, timeout: float | None = None) -> Task | None:
        """The next task that is due; None if there is none within `timeout` seconds. The one before is finished."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._wake()
            left_s = SLICE_S if deadline is None else min(SLICE_S, max(0.0, deadline - time.monotonic()))
            message = self._messages.poll(min([left_s, *(max(0.0, due - time.time()) for due in self._resting.values())]))
            if message is not None:
                task = Task.of(message)
                if task.due_ms <= time.time() * 1000:
                    return task
                self._rest(message, task.due_ms / 1000)
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def fail(self, task: Task, error: BaseException) -> None:
        """The task has failed: send it to the next retry topic, or to the dead letters. SendError."""
        delays = self._queue.retry_delays_s
        if task.attempt <= len(delays):
            topic, due_ms = self._queue.retry_topics[task.attempt - 1], int((time.time() + delays[task.attempt - 1]) * 1000)
            self.retried += 1
        else:
            topic, due_ms = self._queue.dead_letter_topic, 0
            self.dead += 1
        self._queue.producer.send(topic, task.value, key=task.key, headers=task.failed(error, due_ms)).result()

    def finish(self) -> None:
        """The task in hand is done too: commit the offset after it."""
        if self._messages.positions():
            self._messages.commit()

    def _rest(self, message: ConsumedMessage, until: float) -> None:
        """Put a message back, and leave its partition alone until a time in seconds since 1970."""
        where = TopicPartition(message.topic, message.partition)
        self._messages.seek(where, message.offset)
        self._messages.pause(where)
        self._resting[where] = until

    def _wake(self) -> None:
        """Resume partitions that are due, as far as they are still assigned."""
        awake = [where for where, due in self._resting.items() if due <= time.time()]
        ours = self._messages.assignment() if awake else set()
        for where in awake:
            del self._resting[where]
            if where in ours:
                self._messages.resume(where)

    def close(self) -> None:
        """Leave; the task in hand, unless finished, goes to another worker."""
        self._messages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close. Where an exception is on its way already, a failure is logged."""
        self._messages.__exit__(kind, error, trace)


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX else 0
