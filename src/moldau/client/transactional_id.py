"""A producer's transactional id: taken over from whoever had it, and its calls made as librdkafka's error classes ask for.

====================  =======================================================================================================
an error that is      means
====================  =======================================================================================================
retriable             the same call again; it goes on where it was
abortable             abort; nothing of the transaction is visible, and it may be done again from its beginning
fatal                 this producer is of no more use: fenced off by another one, or its transaction was open for too long
====================  =======================================================================================================
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from moldau.client.delivery_thread import SLICE_S, DeliveryThread
from moldau.client.failures import ClientError, FencedError, TransactionAbortedError, TransactionError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka import Producer as Inner

_PAUSE_S = 0.05


class OpenTransaction(Protocol):
    """A transaction that is open."""

    @property
    def open_s(self) -> float:
        """Seconds since it was begun."""

    def abort(self) -> None:
        """Undo it."""


class TransactionalId:
    """A producer of librdkafka under its transactional id."""

    def __init__(self, inner: "Inner", reports: DeliveryThread, name: str | None, timeout_ms: int, brokers: str = "") -> None:
        self.name = name
        self.brokers = brokers
        self.timeout_ms = timeout_ms
        self.current: OpenTransaction | None = None
        self._inner = inner
        self._reports = reports
        self._taken_over = False

    def take_over(self, timeout: float | None) -> None:
        """Fence off the producer that has the id, end what that one left open. Once is enough. ValueError without an id.

        TransactionError after `timeout` seconds, None: after twice the transaction's timeout.
        """
        if self.name is None:
            raise ValueError("transactions need a producer with a transactional_id")
        if not self._taken_over:
            limit_s = self.patience_s if timeout is None else timeout
            hint = f"; the id could not be taken over within {limit_s:g} s; the brokers that were asked: {self.brokers}"
            self.until_done(lambda: self._inner.init_transactions(SLICE_S), limit_s, hint)
            self._taken_over = True

    @property
    def patience_s(self) -> float:
        """How long what is retriable is tried again: beyond the transaction's timeout, when brokers abort it."""
        return 2 * self.timeout_ms / 1000

    def until_done(self, call: Callable[[], None], limit_s: float, hint: str = "") -> None:
        """Call, and again while the error says that this helps; in slices, so that Ctrl-C is heard."""
        from confluent_kafka import KafkaException

        name = self.name or ""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                call()
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if error.fatal():
                    raise self.fatal_error(error) from exception
                if error.txn_requires_abort():
                    raise TransactionAbortedError(name, error) from exception
                if not _again(error):
                    raise TransactionError(name, error) from exception
                if time.monotonic() > deadline:
                    raise TransactionError(name, error, hint) from exception
                if error.code() != error._TIMED_OUT:
                    time.sleep(_PAUSE_S)
            except SystemError as broken:  # a fatal error came up while delivery reports were called
                self._reports.heard_fatal(broken)
                if self._reports.fatal is None:
                    raise
            else:
                return

    def fatal_error(self, error: "KafkaError") -> ClientError:
        """The exception for what ended the producer, with or without an id."""
        if self.name is None:
            return ClientError("producer", error)
        if error.code() not in (error._FENCED, error.PRODUCER_FENCED, error.INVALID_PRODUCER_EPOCH):
            return TransactionError(self.name, error)
        fenced = FencedError(self.name, error)
        if self.current is not None and self.current.open_s > self.timeout_ms / 1000:
            open_s = f"{self.current.open_s:.0f} s"
            fenced.add_note(f"its transaction was open for {open_s}; after {self.timeout_ms} ms brokers abort one and fence its producer")
        return fenced


def _again(error: "KafkaError") -> bool:
    return error.retriable() or error.code() in (error._TIMED_OUT, error._PREV_IN_PROGRESS)
