"""The orders that a job's process finds in `_stream_state`: what it does for each."""

import logging
import threading
from typing import Protocol

from moldau.model.errors import MoldauError
from moldau.streams.reports import JobOrder, OrderAnswer, OrderKind

log = logging.getLogger(__name__)


class OrderedRun(Protocol):
    """The run of a job, as orders are given to it."""

    def stop(self) -> None:
        """Stop at the end of the batch that is being written."""

    def settle(self) -> None:
        """Come to rest where all queries stand at the same offsets."""

    def switch(self) -> None:
        """Of a generation beside the current one: take its place."""

    def save(self, to: str) -> None:
        """Make a savepoint in this directory, and continue. MoldauError."""


class JobOrders:
    """Obeys orders, which stay until another one comes: each is seen with every report."""

    def __init__(self, job: str, run: OrderedRun) -> None:
        self._job, self._run = job, run
        self._saved_ms = 0
        """When the order for the last savepoint was given."""
        self.answer: OrderAnswer | None = None
        """To the last order that asks for one; goes with the reports."""

    def obey(self, order: JobOrder) -> None:
        """Begin what is ordered."""
        match order.kind:
            case OrderKind.STOP:
                log.info("job %s: an order to stop has come", self._job)
                self._run.stop()
            case OrderKind.SETTLE:
                self._run.settle()
            case OrderKind.SWITCH:
                self._run.switch()
            case OrderKind.SAVEPOINT:
                if self._saved_ms != order.at_ms:
                    self._saved_ms = order.at_ms
                    threading.Thread(target=self._save, args=(order,), name="moldau-stream-savepoint", daemon=True).start()

    def _save(self, order: JobOrder) -> None:
        """Beside the thread that reports; its next report has the answer."""
        error: str | None = None
        try:
            self._run.save(order.to or "")
        except MoldauError as failure:
            error = str(failure)
            log.warning("job %s: there is no savepoint %s: %s", self._job, order.to, error)
        else:
            log.info("job %s: its savepoint is in %s", self._job, order.to)
        self.answer = OrderAnswer(order.at_ms, error)
