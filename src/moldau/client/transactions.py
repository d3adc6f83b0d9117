"""Transactions of a producer: begun, committed, aborted, and ended after an interruption.

====================  =======================================================================================================
an error that is      means
====================  =======================================================================================================
retriable             the same call again; it continues where it was
abortable             abort; nothing of the transaction is visible, and it may be done again from its beginning
fatal                 this producer cannot be used any more: fenced by another one, or its transaction timed out
====================  =======================================================================================================
"""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from moldau.client.delivery import SLICE_S, DeliveryThread, log
from moldau.client.failures import ClientError, FencedError, SendError, TransactionAbortedError, TransactionError
from moldau.model.identity import TopicPartition

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
        """Fence the producer that has the id, and end its open transaction. Once is enough. ValueError without an id.

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
        """Call, and retry while the error is retriable; in slices, so that Ctrl-C is handled."""
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
                self._reports.record_fatal(broken)
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


_ABORT_FLUSH_S = 10.0
_COMPLETE_S = 10.0
"""How long the end of an interrupted commit is waited for."""
_UNKNOWN = "; whether it was committed is unknown: close this producer, the next one with this id completes or aborts it"


class TransactionalConsumer(Protocol):
    """What a transaction needs of a consumer whose offsets it commits; see `moldau.client.consumer.Consumer`."""

    def check_transactional(self) -> None:
        """ValueError for a consumer that commits by itself, or has no group."""

    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each partition that it has handed out messages of."""

    def taken_away(self) -> set[TopicPartition]:
        """The partitions that it has lost together with messages that it has handed out."""

    def group_metadata(self) -> Any:
        """Who it is in its group, for the fencing of KIP-447."""

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are committed."""

    def rewind(self) -> None:
        """Go back to what is committed."""


class Transaction:
    """One transaction, to be entered once. It commits at the end of the ``with``, and aborts where an exception leaves it."""

    def __init__(
        self, owner: TransactionalId, inner: "Inner", reports: DeliveryThread, consumers: "Sequence[TransactionalConsumer]"
    ) -> None:
        for consumer in consumers:
            consumer.check_transactional()
        self._owner = owner
        self._inner = inner
        self._reports = reports
        self._consumers = {id(each): each for each in consumers}
        self._committed: dict[int, Mapping[TopicPartition, int]] = {}
        self._begun_at = time.monotonic()

    @property
    def open_s(self) -> float:
        """Seconds since it was begun."""
        return time.monotonic() - self._begun_at

    def commit_offsets(
        self,
        consumer: TransactionalConsumer,
        offsets: Mapping[TopicPartition, int] | None = None,
        notes: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """Commit with the transaction where the consumer's group reads next: after what was handed out, or at `offsets`.

        `notes` are texts to be kept with the offsets, as their metadata.

        TransactionAbortedError (the group has rebalanced without this member, or has assigned to another one a partition whose messages may
        be part of the transaction; with `offsets` the caller has to check that), FencedError.
        """
        from moldau.client.librdkafka import foreign_offsets

        consumer.check_transactional()
        self._consumers[id(consumer)] = consumer
        if offsets is None:
            self._check_kept(consumer)
        wanted = consumer.positions() if offsets is None else offsets
        self._committed[id(consumer)] = wanted
        if wanted:
            member, positions = consumer.group_metadata(), foreign_offsets(wanted, notes)
            self._do(lambda: self._inner.send_offsets_to_transaction(positions, member, SLICE_S))

    def _check_kept(self, consumer: TransactionalConsumer) -> None:
        """TransactionAbortedError if messages that were handed out went to another member, which gets them again."""
        gone = consumer.taken_away()
        if gone:
            from confluent_kafka import KafkaError

            names = ", ".join(map(str, sorted(gone)))
            raise TransactionAbortedError(
                self._owner.name or "", KafkaError(KafkaError.REBALANCE_IN_PROGRESS, f"messages of {names} went to another member")
            )

    def begin(self) -> None:
        """Begin; messages that are sent from now on are part of it. RuntimeError while another one is open."""
        if self._owner.current is not None:
            raise RuntimeError(f"transactional id {self._owner.name}: one transaction at a time")
        self._owner.take_over(None)
        self._begun_at = time.monotonic()
        self._owner.current = self
        try:
            self._do(self._inner.begin_transaction)
        except ClientError:
            self._end()
            raise
        except BaseException as interruption:
            self._complete(interruption, committing=False)
            raise

    def commit(self) -> None:
        """Wait for everything that was sent, commit the consumers' offsets and all of it.

        TransactionAbortedError if it had to be aborted instead, FencedError, TransactionError. Interrupted (by Ctrl-C) before all of it was
        handed over it aborts, and afterwards it commits all the same; then the interruption passes through.
        """
        failed: list[SendError] = []
        handed_over = False
        try:
            for number, consumer in self._consumers.items():
                if number not in self._committed:
                    self.commit_offsets(consumer)
            self._flush(None)
            failed = self._reports.take_unseen()
            if failed:  # librdkafka does not know those that it refused
                raise TransactionAbortedError(self._owner.name or "", failed[0].error)
            handed_over = True
            self._do(lambda: self._inner.commit_transaction(SLICE_S))
            self._settle()
        except TransactionAbortedError as error:
            self._abort()
            raise error from (failed[0] if failed else error.__cause__)
        except ClientError:
            raise
        except BaseException as interruption:
            self._complete(interruption, committing=handed_over)
            raise
        finally:
            self._end()

    def _complete(self, interruption: BaseException, *, committing: bool) -> None:
        """End a transaction that was interrupted. It can no longer be aborted once librdkafka began to commit."""
        try:
            if committing:
                self._owner.until_done(lambda: _once_more(self._inner.commit_transaction), _COMPLETE_S, _UNKNOWN)
                self._settle()
            else:
                self._flush(_COMPLETE_S)
                self._abort(_COMPLETE_S)
        except TransactionAbortedError:
            self._abort(_COMPLETE_S)
        except ClientError as failure:
            log.warning("producer: transaction not ended after %s: %s", type(interruption).__name__, failure)
        finally:
            self._end()

    def _settle(self) -> None:
        for number, consumer in self._consumers.items():
            consumer.settle(self._committed[number])

    def abort(self) -> None:
        """Undo it, and put its consumers back to where they were before it. FencedError, TransactionError."""
        try:
            self._flush(_ABORT_FLUSH_S)
            self._abort()
        except ClientError:
            raise
        except BaseException as interruption:
            self._complete(interruption, committing=False)
            raise
        finally:
            self._end()

    def _abort(self, limit_s: float | None = None) -> None:
        self._owner.until_done(
            lambda: _once_more(self._inner.abort_transaction), self._owner.patience_s if limit_s is None else limit_s, _UNKNOWN
        )
        for consumer in self._consumers.values():
            consumer.rewind()

    def _end(self) -> None:
        self._reports.take_unseen()  # they failed with the transaction
        self._owner.current = None

    def _flush(self, limit_s: float | None) -> None:
        """Let everything that was sent end.

        Before an abort too: librdkafka aborts without waiting for partitions that it is about to add to the transaction, and the
        coordinator, which then knows of no transaction, answers with INVALID_TXN_STATE; librdkafka takes that for fatal.
        """
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while len(self._inner) and self._reports.fatal is None and (deadline is None or time.monotonic() < deadline):
            self._reports.serve(lambda: self._inner.flush(SLICE_S))

    def _do(self, call: Callable[[], None]) -> None:
        self._owner.until_done(call, self._owner.patience_s, _UNKNOWN)

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Commit, or where an exception leaves the block, abort and let it pass."""
        if error is None:
            self.commit()
        elif isinstance(error, ClientError) and error.fatal:
            self._end()
        else:
            self._abort_after(error)

    def _abort_after(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self._complete(error, committing=False)
            return
        try:
            if isinstance(error, TransactionAbortedError):  # librdkafka sends nothing more: a flush would wait for nothing
                self._abort()
            else:
                self.abort()
        except ClientError as failure:
            raise failure from error
        finally:
            self._end()


def _once_more(call: Callable[[float], object]) -> None:
    """Ask for an end that may have been reached already, in the moment of an interruption."""
    from confluent_kafka import KafkaException

    try:
        call(SLICE_S)
    except KafkaException as exception:
        if exception.args[0].code() != exception.args[0]._STATE:
            raise
