"""What becomes of messages that were sent: a future each, and the thread that takes librdkafka's delivery reports and completes them.

A future costs a tenth of one of `concurrent.futures`. The thread keeps failures until they are read, notifies when the queue has room, and
keeps the fatal error that ends the producer. It knows the producer of librdkafka and not the one around it, so that a producer without
references is collected.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from moldau.client.failures import ClientError, SendError, refused_by_broker
from moldau.client.message import Delivered, Headers, Message

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Message as Report
    from confluent_kafka import Producer as Inner


_callbacks_lock = threading.Lock()
"""Held only by a thread that waits for a message on its way, and by the one that completes it."""


class DeliveryListener(Protocol):
    """Receives messages that failed, and fatal errors."""

    def delivery_failed(self, delivery: "Delivery") -> None:
        """This one has failed."""

    def record_fatal(self, error: BaseException) -> None:
        """Librdkafka has raised a fatal error into a delivery report."""


class Delivery:
    """One message on its way. It ends as delivered or as a `moldau.client.failures.SendError`, in the producer's own thread."""

    __slots__ = ("_callbacks", "_delivered", "_error", "_listener", "_seen")

    def __init__(self, listener: DeliveryListener) -> None:
        self._listener = listener
        self._delivered: Delivered | None = None
        self._error: SendError | None = None
        self._callbacks: list[Callable[[Delivery], object]] | None = None
        self._seen = False

    def done(self) -> bool:
        """Whether it has ended."""
        return self._delivered is not None or self._error is not None

    def result(self, timeout: float | None = None) -> Delivered:
        """Wait, and return where the message is in the log. SendError if it failed, TimeoutError after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._delivered is not None
        return self._delivered

    def exception(self, timeout: float | None = None) -> SendError | None:
        """Wait, and return why it failed; None if it was delivered. TimeoutError after `timeout` seconds."""
        if not self.done():
            ended = threading.Event()
            self._when_done(lambda _: ended.set())
            if not ended.wait(timeout):
                raise TimeoutError(f"a message is still on its way after {timeout} s")
        self._seen = True
        return self._error

    def __await__(self) -> Generator[Any, None, Delivered]:
        """``await delivery``, in asyncio: where the message is in the log, or SendError."""
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            ended = asyncio.Event()
            self._when_done(lambda _: loop.call_soon_threadsafe(ended.set))
            yield from ended.wait().__await__()
        return self.result()

    def add_done_callback(self, function: "Callable[[Delivery], object]") -> None:
        """Call `function` with this delivery when it ends, in the producer's thread; at once if it has ended."""
        self._seen = True
        self._when_done(function)

    @property
    def unseen_failure(self) -> SendError | None:
        """Why it failed, if that was not read yet."""
        return None if self._seen else self._error

    def report(self, error: "KafkaError | None", message: "Report") -> None:
        """Librdkafka's delivery report.

        Confluent-kafka calls it with the exception of a fatal error pending, which the first call into C then raises, as the cause of
        a SystemError.
        """
        try:
            topic = message.topic() or ""
        except SystemError as broken:
            self._listener.record_fatal(broken)
            topic = message.topic() or ""
        if error is None:
            self._end(Delivered(topic, message.partition() or 0, message.offset(), message.timestamp()[1]), None)
        else:
            partition = message.partition()
            hint = refused_by_broker(error.code(), message)
            self.refuse(SendError(topic, None if partition is None or partition < 0 else partition, error, hint))

    def refuse(self, error: SendError) -> None:
        """Complete it as failed on the way, or before it was queued."""
        self._end(None, error)
        self._listener.delivery_failed(self)

    def _end(self, delivered: Delivered | None, error: SendError | None) -> None:
        self._delivered, self._error = delivered, error
        if self._callbacks is not None:
            self._call_back()

    def _when_done(self, function: "Callable[[Delivery], object]") -> None:
        with _callbacks_lock:
            self._callbacks = [*(self._callbacks or ()), function]
        if self.done():
            self._call_back()

    def _call_back(self) -> None:
        """Call the functions that wait, each once. Called by the thread that adds one and by the one that completes the delivery."""
        with _callbacks_lock:
            functions, self._callbacks = self._callbacks, None
        for function in functions or ():
            function(self)

    def __repr__(self) -> str:
        return f"<Delivery: {self._error or self._delivered or 'on its way'}>"


class Deliveries(tuple[Delivery, ...]):
    """The deliveries of a message set, in its order."""

    __slots__ = ()

    def done(self) -> bool:
        """Whether all have ended."""
        return all(each.done() for each in self)

    def __await__(self) -> Generator[Any, None, list[Delivered]]:
        """``await deliveries``, in asyncio: as `result`."""
        for each in self:
            if not each.done():
                try:
                    yield from each.__await__()
                except ClientError:
                    continue
        return self.result()

    def result(self, timeout: float | None = None) -> list[Delivered]:
        """Wait for all of them, then return where each is in the log; or raise the first failure in their order. TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for each in self:
            each.exception(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return [each.result() for each in self]


ANY_PARTITION = -1


class MessageDefaults(NamedTuple):
    """Key, headers, partition and timestamp for messages of one call that have none of their own."""

    key: bytes | str | None
    headers: Headers | None
    partition: int | None
    timestamp: int | None


class OutgoingMessage(NamedTuple):
    """One message to be queued, and its delivery."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    partition: int
    more: dict[str, Any]
    delivery: Delivery


def outgoing(topic: str, message: Message, defaults: MessageDefaults, delivery: Delivery) -> OutgoingMessage:
    """The message with its defaults. ValueError for a timestamp that librdkafka would take for "now"."""
    more: dict[str, Any] = {"on_delivery": delivery.report}
    headers = message.headers or defaults.headers
    if headers:
        more["headers"] = list(headers.items() if isinstance(headers, Mapping) else headers)
    timestamp = defaults.timestamp if message.timestamp is None else message.timestamp
    if timestamp is not None:
        if timestamp < 1:
            raise ValueError(f"topic {topic}: a timestamp is at least 1 ms, not {timestamp}")
        more["timestamp"] = timestamp
    key = defaults.key if message.key is None else message.key
    return OutgoingMessage(topic, message.value, key, ANY_PARTITION if defaults.partition is None else defaults.partition, more, delivery)


R = TypeVar("R")
log = logging.getLogger("moldau.client")

SLICE_S = 0.2
"""Ctrl-C is not handled while librdkafka waits, so it waits in slices."""
FAILURES_KEPT = 1_000


class DeliveryThread:
    """Serves `inner` from `start` to `stop`. Calls `delivered` from time to time, after messages were delivered."""

    def __init__(self, inner: "Inner", name: str, delivered: Callable[[], object] = lambda: None) -> None:
        self._inner = inner
        self._delivered = delivered
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopping = False
        self._room = threading.Condition()
        self._failed: deque[Delivery] = deque(maxlen=FAILURES_KEPT)
        self.failures = 0
        self.fatal: KafkaError | None = None
        """The error after which nothing can be sent."""
        self.broken = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End soon, without a wait."""
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            waiting, failures = len(self._inner), self.failures
            if self.serve(lambda: self._inner.poll(SLICE_S)):
                if len(self._inner) < waiting and self.failures == failures:
                    self._delivered()
                with self._room:
                    self._room.notify_all()

    def serve(self, call: Callable[[], R]) -> R | None:
        """Make a call that may deliver reports; None where a fatal error came up meanwhile, which is kept in `fatal`."""
        from confluent_kafka import KafkaException

        try:
            return call()
        except (KafkaException, SystemError) as error:
            self.record_fatal(error)
            return None

    def wait_for_room(self) -> None:
        """Librdkafka's queue is full: wait until something has left it, or a moment."""
        with self._room:
            self._room.wait(SLICE_S)

    def delivery_failed(self, delivery: Delivery) -> None:
        """A message has failed; keep it until the failure is read."""
        self.failures += 1
        self._failed.append(delivery)

    def record_fatal(self, error: BaseException) -> None:
        """An exception out of librdkafka while it was served; or, confluent-kafka having lost that, out of a delivery report."""
        from confluent_kafka import KafkaException

        found: BaseException | None = error
        while found is not None and not isinstance(found, KafkaException):
            found = found.__cause__
        if found is not None and found.args[0].fatal():
            self.fatal = found.args[0]
            self.broken.set()
        elif not isinstance(error, SystemError):
            log.warning("producer: %s", error)

    def take_unseen(self) -> "list[SendError]":
        """Failures since the last time that were not read."""
        found = []
        while self._failed:
            error = self._failed.popleft().unseen_failure
            if error is not None:
                found.append(error)
        return found
