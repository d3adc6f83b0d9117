"""What a transaction does with its consumers: it commits only what they can still commit (fault T7)."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from moldau.client.delivery import DeliveryThread
from moldau.client.failures import TransactionAbortedError
from moldau.client.transactions import Transaction, TransactionalId
from moldau.model.identity import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Inner:
    """A producer of librdkafka that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: self.asked.append(name)


class Reading:
    """A consumer that stands at 5 of one partition, and may have lost another."""

    def __init__(self, taken_away: set[TopicPartition]) -> None:
        self.gone = taken_away
        self.told: list[str] = []

    def check_transactional(self) -> None:
        return

    def positions(self) -> Mapping[TopicPartition, int]:
        return {T0: 5}

    def taken_away(self) -> set[TopicPartition]:
        return self.gone

    def group_metadata(self) -> Any:
        return None

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.told.append(f"settled {dict(offsets)}")

    def rewind(self) -> None:
        self.told.append("rewind")


def transaction(consumer: Reading) -> tuple[Transaction, Inner]:
    inner = Inner()
    reports = DeliveryThread(cast("Any", inner), "never started")
    owner = TransactionalId(cast("Any", inner), reports, "copier", 1000)
    return Transaction(owner, cast("Any", inner), reports, [consumer]), inner


def test_what_the_consumers_have_handed_out_is_committed() -> None:
    consumer = Reading(set())
    wanted, inner = transaction(consumer)
    with wanted:
        pass
    assert inner.asked == ["init_transactions", "begin_transaction", "send_offsets_to_transaction", "commit_transaction"]
    assert consumer.told == [f"settled { {T0: 5} }"]


def test_a_transaction_with_messages_that_another_member_gets_again_is_aborted() -> None:
    """Committed, its messages would be processed twice: the other member finds no offset after them."""
    consumer = Reading({T1})
    wanted, inner = transaction(consumer)
    with pytest.raises(TransactionAbortedError, match="messages of t-1 went to another member"), wanted:
        pass
    assert inner.asked == ["init_transactions", "begin_transaction", "abort_transaction"]
    assert consumer.told == ["rewind"]


def test_offsets_given_by_the_caller_are_committed_as_they_are() -> None:
    consumer = Reading({T1})
    wanted, inner = transaction(consumer)
    with wanted:
        wanted.commit_offsets(consumer, {T0: 3})
    assert inner.asked[-1] == "commit_transaction"
    assert consumer.told == [f"settled { {T0: 3} }"]
