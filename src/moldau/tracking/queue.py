"""A work queue over a log: each message goes to one worker, at least once.

    work = WorkQueue("localhost:9092", "thumbnails", retry_delays_s=(10, 600))
    work.put(b"image 17")

    with work.worker() as worker:          # in as many processes as there are partitions
        worker.run(make_thumbnail)         # a function of a Task

What a worker fails at comes again after a delay: from a topic of its own for each delay, so that what stands in front is always due first,
``thumbnails.retry.1``, ``thumbnails.retry.2``; what has failed after the last of them goes to ``thumbnails.dead``, with the error in its
headers, and stays there for somebody to look at. Messages in front do not wait for those that failed.
"""

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

from moldau.client.delivery import Delivery
from moldau.client.producer import Producer
from moldau.client.settings import ConsumerOptions, bootstrap_text
from moldau.tracking.topics import QUEUING, TopicDefaults, check_topic, ensure_topic

if TYPE_CHECKING:
    from moldau.tracking.queue_worker import Worker

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
        bootstrap: str | Sequence[str] = "localhost:9092",
        name: str = "work",
        *,
        retry_delays_s: Sequence[float] = RETRY_DELAYS_S,
        partitions: int | None = QUEUING.topics.partitions,
    ) -> None:
        check_topic(name)
        if any(delay < 0 for delay in retry_delays_s):
            raise ValueError(f"queue {name}: a delay is not negative: {list(retry_delays_s)}")
        self.bootstrap = bootstrap_text(bootstrap)
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
        """Where messages end that nobody could do."""
        return f"{self.name}.dead"

    def ensure(self) -> None:
        """Make its topics where they are missing."""
        if not self._there:
            for topic in (self.name, *self.retry_topics, self.dead_letter_topic):
                ensure_topic(self.bootstrap, topic, self._defaults)
            self._there = True

    def put(
        self, value: bytes | str | None, *, key: bytes | str | None = None, headers: Mapping[str, bytes | None] | None = None
    ) -> Delivery:
        """Put a message in; the delivery says when all in-sync replicas have it."""
        return self.producer.send(self.name, value, key=key, headers=headers)

    @property
    def producer(self) -> Producer:
        """What it sends with; connected now. Any thread may ask, such as those of several workers."""
        with self._connecting:
            if self._producer is None:
                self.ensure()
                self._producer = Producer(self.bootstrap, client_id=f"{self.name} queue")
            return self._producer

    def worker(self, **options: Unpack[ConsumerOptions]) -> "Worker":
        """One worker of this queue; `options` are those of a `Consumer`. One thread uses it."""
        from moldau.tracking.queue_worker import Worker

        self.ensure()
        return Worker(self, **options)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was put has been delivered. SendError, TimeoutError."""
        if self._producer is not None:
            self._producer.flush(timeout)

    def close(self) -> None:
        """Flush, and let go of the connections."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
