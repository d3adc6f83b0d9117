"""What becomes of messages that were sent: a future each, and the thread that takes librdkafka's delivery reports and completes them.

A future costs a tenth of one of `concurrent.futures`. The thread keeps failures until they are read, says when the queue has room, and
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
"""Held only by who waits for a message that is still on its way, and by what ends such a one."""


class DeliveryListener(Protocol):
    """Who is told of messages that were given up."""

    def gave_up(self, delivery: "Delivery") -> None:
        """This one has failed."""

    def heard_fatal(self, error: BaseException) -> None:
        """Librdkafka has raised a fatal error into a delivery report."""


class Delivery:
    """One message on its way. It ends as delivered or as a `moldau.client.failures.SendError`, in the producer's own thread."""

    __slots__ = ("_callbacks", "_delivered", "_error", "_keeper", "_seen")

    def __init__(self, keeper: DeliveryListener) -> None:
        self._keeper = keeper
        self._delivered: Delivered | None = None
        self._error: SendError | None = None
        self._callbacks: list[Callable[[Delivery], object]] | None = None
        self._seen = False

    def done(self) -> bool:
        """Whether it has ended."""
        return self._delivered is not None or self._error is not None

    def result(self, timeout: float | None = None) -> Delivered:
        """Wait, and say where the message stands. SendError if it was given up, TimeoutError after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._delivered is not None
        return self._delivered

    def exception(self, timeout: float | None = None) -> SendError | None:
        """Wait, and say why it was given up; None if it was delivered. TimeoutError after `timeout` seconds."""
        if not self.done():
            ended = threading.Event()
            self._when_done(lambda _: ended.set())
            if not ended.wait(timeout):
                raise TimeoutError(f"a message is still on its way after {timeout} s")
        self._seen = True
        return self._error

    def __await__(self) -> Generator[Any, None, Delivered]:
        """``await delivery``, in asyncio: where the message stands, or SendError."""
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
        """Why it was given up, if nobody has asked yet."""
        return None if self._seen else self._error

    def report(self, error: "KafkaError | None", message: "Report") -> None:
        """Librdkafka's delivery report.

        Confluent-kafka calls it with the exception of a fatal error pending, which the first call into C then raises, as the cause of
        a SystemError.
        """
        try:
            topic = message.topic() or ""
        except SystemError as broken:
            self._keeper.heard_fatal(broken)
            topic = message.topic() or ""
        if error is None:
            self._end(Delivered(topic, message.partition() or 0, message.offset(), message.timestamp()[1]), None)
        else:
            partition = message.partition()
            hint = refused_by_broker(error.code(), message)
            self.refuse(SendError(topic, None if partition is None or partition < 0 else partition, error, hint))

    def refuse(self, error: SendError) -> None:
        """It is not delivered, or was not even taken into the queue."""
        self._end(None, error)
        self._keeper.gave_up(self)

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
        """It has ended and somebody waits: whichever comes second finds what the other has left, and each function is taken once."""
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
        """Wait for all of them, then say where each stands; or the first failure in their order. TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for each in self:
            each.exception(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return [each.result() for each in self]


ANY_PARTITION = -1


class MessageDefaults(NamedTuple):
    """What goes with the messages of one call that do not say it themselves."""

    key: bytes | str | None
    headers: Headers | None
    partition: int | None
    timestamp: int | None


class OutgoingMessage(NamedTuple):
    """One message to be queued, and what will become of it."""

    topic: str
    value: bytes | str | None
    key: bytes | str | None
    partition: int
    more: dict[str, Any]
    delivery: Delivery


def outgoing(topic: str, message: Message, defaults: MessageDefaults, delivery: Delivery) -> OutgoingMessage:
    """The message with what goes with it. ValueError for a timestamp that librdkafka would take for "now"."""
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
"""Ctrl-C is not heard while librdkafka waits, so it waits in slices."""
FAILURES_KEPT = 1_000


class DeliveryThread:
    """Serves `inner` from its start until it is told to stop. Calls `delivered` now and then, when messages were."""

    def __init__(self, inner: "Inner", name: str, delivered: Callable[[], object] = lambda: None) -> None:
        self._inner = inner
        self._delivered = delivered
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stopping = False
        self._room = threading.Condition()
        self._failed: deque[Delivery] = deque(maxlen=FAILURES_KEPT)
        self.failures = 0
        self.fatal: KafkaError | None = None
        """The error after which nothing is sent any more."""
        self.broken = threading.Event()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon. It is not waited for."""
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
        """Do what may call delivery reports; None where a fatal error came up meanwhile, which is kept in `fatal`."""
        from confluent_kafka import KafkaException

        try:
            return call()
        except (KafkaException, SystemError) as error:
            self.heard_fatal(error)
            return None

    def wait_for_room(self) -> None:
        """Librdkafka's queue is full: wait until something has left it, or a moment."""
        with self._room:
            self._room.wait(SLICE_S)

    def gave_up(self, delivery: Delivery) -> None:
        """A message has failed; keep it until somebody asks."""
        self.failures += 1
        self._failed.append(delivery)

    def heard_fatal(self, error: BaseException) -> None:
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
        """Failures since the last time that nobody has asked about."""
        found = []
        while self._failed:
            error = self._failed.popleft().unseen_failure
            if error is not None:
                found.append(error)
        return found
