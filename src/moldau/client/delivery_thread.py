"""The thread that takes librdkafka's delivery reports, and what it keeps: failures nobody has asked about, room in the queue, the end.

It knows the producer of librdkafka and not the one around it, so that a producer that nobody holds any more can go.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from moldau.client.delivery import Delivery

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Producer as Inner

    from moldau.client.failures import SendError

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
