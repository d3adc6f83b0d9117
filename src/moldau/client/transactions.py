"""Transactions of a producer: begun, committed, aborted, and brought to an end though they are interrupted."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from moldau.client.delivery_thread import SLICE_S, DeliveryThread, log
from moldau.client.failures import ClientError, SendError, TransactionAbortedError
from moldau.client.transactional_id import TransactionalId
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Producer as Inner

_ABORT_FLUSH_S = 10.0
_COMPLETE_S = 10.0
"""How long a commit that was interrupted is brought to its end."""
_UNKNOWN = "; whether it was committed is not known: close this producer, the next one of its id finds out"


class TransactionalConsumer(Protocol):
    """What a transaction needs of a consumer whose offsets it commits; see `moldau.client.consumer.Consumer`."""

    def check_transactional(self) -> None:
        """ValueError for a consumer that commits by itself, or has no group."""

    def positions(self) -> Mapping[TopicPartition, int]:
        """Where it would go on in each partition that it has handed out messages of."""

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
        """Commit with the transaction where the consumer's group reads next: behind what was handed out, or at `offsets`.

        `notes` are texts to be kept with the offsets, as their metadata.

        TransactionAbortedError (the group has gone on without this member, or has given a partition to another one whose messages may
        be part of the transaction; with `offsets` that is for the caller to know), FencedError.
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
        """What was handed out is this member's still. TransactionAbortedError: another one gets it again, so nothing of it may count."""
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
            if failed:  # librdkafka knows nothing of those that it did not take
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
        """Bring to its end what was interrupted. It cannot be undone once librdkafka was told to commit."""
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
            log.warning("interrupted by %s: %s", type(interruption).__name__, failure)
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
            if isinstance(error, TransactionAbortedError):  # librdkafka sends nothing more, and would be waited for in vain
                self._abort()
            else:
                self.abort()
        except ClientError as failure:
            raise failure from error
        finally:
            self._end()


def _once_more(call: Callable[[float], object]) -> None:
    """Ask for an end that may have been asked for already, and have come in the moment of an interruption."""
    from confluent_kafka import KafkaException

    try:
        call(SLICE_S)
    except KafkaException as exception:
        if exception.args[0].code() != exception.args[0]._STATE:
            raise
