"""A transaction does what librdkafka's error classes ask for: again, abort, or give up; and its consumers go where it went."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.client import transactions
from moldau.client.delivery import Delivery, DeliveryThread
from moldau.client.failures import FencedError, SendError, TransactionAbortedError, TransactionError
from moldau.client.transactions import Transaction, TransactionalId
from moldau.model.identity import TopicPartition

T0 = TopicPartition("t", 0)
RETRIABLE = KafkaException(KafkaError(KafkaError._TIMED_OUT, "again", retriable=True))
ABORTABLE = KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "abort", txn_requires_abort=True))
FENCED = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
FATAL = KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "broken", fatal=True))
NEITHER = KafkaException(KafkaError(KafkaError._STATE, "not now"))


class FakeInner:
    """A producer of librdkafka: `outcomes` are what the calls of a name raise, one after the other; then they succeed."""

    def __init__(self, **outcomes: Sequence[BaseException]) -> None:
        self.calls: list[str] = []
        self.outcomes = {name: list(errors) for name, errors in outcomes.items()}
        self.queued = 0

    def __len__(self) -> int:
        return self.queued

    def flush(self, _: float) -> None:
        self.calls.append("flush")
        self.queued = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*_: object) -> None:
            self.calls.append(name.removesuffix("_transaction").removesuffix("_transactions"))
            if self.outcomes.get(name):
                raise self.outcomes[name].pop(0)

        return call


class FakeConsumer:
    """A consumer that has handed out five messages."""

    def __init__(self) -> None:
        self.settled: Mapping[TopicPartition, int] = {}
        self.lost: set[TopicPartition] = set()
        self.rewound = 0

    def check_transactional(self) -> None:
        pass

    def positions(self) -> Mapping[TopicPartition, int]:
        return {T0: 5}

    def taken_away(self) -> set[TopicPartition]:
        return self.lost

    def group_metadata(self) -> Any:
        return "member"

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.settled = offsets

    def rewind(self) -> None:
        self.rewound += 1


class Scene:
    """A producer with the transactional id x, and a consumer."""

    def __init__(self, inner: FakeInner, timeout_ms: int = 60_000) -> None:
        self.inner = inner
        self.consumer = FakeConsumer()
        self.reports = DeliveryThread(cast("Any", inner), "test")
        self.owner = TransactionalId(cast("Any", inner), self.reports, "x", timeout_ms)

    def transaction(self, *consumers: FakeConsumer) -> Transaction:
        return Transaction(self.owner, cast("Any", self.inner), self.reports, consumers)

    def run(self, body: Callable[[], object] = lambda: None) -> None:
        with self.transaction(self.consumer):
            body()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_PAUSE_S", 0.0)


def test_everything_is_sent_before_offsets_and_messages_are_committed() -> None:
    inner = FakeInner()
    scene = Scene(inner)
    scene.run(lambda: setattr(inner, "queued", 3))
    assert inner.calls == ["init", "begin", "send_offsets_to", "flush", "commit"]
    assert (scene.consumer.settled, scene.consumer.rewound) == ({T0: 5}, 0)
    scene.run()
    assert inner.calls[5:] == ["begin", "send_offsets_to", "commit"], "the id is taken over once"


def test_offsets_of_the_applications_own() -> None:
    inner = FakeInner()
    scene = Scene(inner)
    with scene.transaction() as transaction:
        transaction.commit_offsets(scene.consumer, {T0: 3})
    assert inner.calls == ["init", "begin", "send_offsets_to", "commit"]
    assert scene.consumer.settled == {T0: 3}


def test_messages_that_another_member_gets_again_abort_the_transaction_that_they_went_into() -> None:
    """A rebalance in the middle of it: what was made of them would be there twice."""
    scene = Scene(FakeInner())
    scene.consumer.lost = {T0}
    with pytest.raises(TransactionAbortedError, match="messages of t-0 went to another member"):
        scene.run()
    assert scene.inner.calls == ["init", "begin", "abort"]
    assert scene.consumer.rewound == 1


def test_what_is_retriable_is_tried_again() -> None:
    inner = FakeInner(init_transactions=[RETRIABLE], send_offsets_to_transaction=[RETRIABLE], commit_transaction=[RETRIABLE, RETRIABLE])
    Scene(inner).run()
    assert inner.calls == ["init", "init", "begin", "send_offsets_to", "send_offsets_to", "commit", "commit", "commit"]


@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
def test_what_has_to_be_aborted_is_aborted_and_may_be_done_again(call: str) -> None:
    inner = FakeInner(**{call: [ABORTABLE]})
    scene = Scene(inner)
    with pytest.raises(TransactionAbortedError, match=r"^transactional id x: ILLEGAL_GENERATION: abort"):
        scene.run()
    assert (inner.calls[-1], scene.consumer.rewound, scene.consumer.settled) == ("abort", 1, {})
    scene.run()
    assert scene.consumer.settled == {T0: 5}


def test_an_exception_aborts_after_what_was_sent_has_ended() -> None:
    """Librdkafka does not wait for partitions that it is adding to the transaction, and breaks."""
    inner = FakeInner(abort_transaction=[RETRIABLE])
    scene = Scene(inner)

    def fails() -> None:
        inner.queued = 3
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scene.run(fails)
    assert inner.calls == ["init", "begin", "flush", "abort", "abort"]
    assert scene.consumer.rewound == 1


def test_a_message_that_librdkafka_did_not_take_aborts_too() -> None:
    scene = Scene(FakeInner())
    refused = SendError("t", None, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    with pytest.raises(TransactionAbortedError) as caught:
        scene.run(lambda: Delivery(scene.reports).refuse(refused))
    assert caught.value.__cause__ is refused
    assert scene.reports.take_unseen() == [], "the transaction has raised it"
    scene.run(lambda: _look_at(Delivery(scene.reports), refused))


def _look_at(delivery: Delivery, error: SendError) -> None:
    """An application that reads the failure and continues."""
    delivery.refuse(error)
    assert delivery.exception() is error


@pytest.mark.parametrize("call", ["init_transactions", "begin_transaction", "send_offsets_to_transaction", "commit_transaction"])
def test_a_fenced_producer_says_so(call: str) -> None:
    inner = FakeInner(**{call: [FENCED]})
    scene = Scene(inner)
    with pytest.raises(FencedError, match=r"^transactional id x: FENCED: fenced") as caught:
        scene.run()
    assert not hasattr(caught.value, "__notes__")
    assert "abort" not in inner.calls, "the coordinator has fenced it"


def test_a_transaction_that_was_open_for_too_long_is_distinguished_from_one_that_another_has_fenced() -> None:
    """To librdkafka both are the same (fault T8)."""
    scene = Scene(FakeInner(commit_transaction=[FENCED]), timeout_ms=0)
    with pytest.raises(FencedError) as caught:
        scene.run()
    assert caught.value.__notes__ == ["its transaction was open for 0 s; after 0 ms brokers abort one and fence its producer"]


def test_any_other_end_of_the_producer() -> None:
    with pytest.raises(TransactionError, match="INVALID_TXN_STATE") as caught:
        Scene(FakeInner(commit_transaction=[FATAL])).run()
    assert caught.value.fatal
    assert not isinstance(caught.value, FencedError | TransactionAbortedError)


def test_an_abort_that_fails_is_reported_with_what_it_was_for() -> None:
    scene = Scene(FakeInner(abort_transaction=[FENCED]))
    with pytest.raises(FencedError) as caught:
        scene.run(lambda: 1 // 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(KeyboardInterrupt):
        Scene(FakeInner(abort_transaction=[FENCED])).run(lambda: (_ for _ in ()).throw(KeyboardInterrupt))


def test_a_coordinator_that_never_answers_is_given_up() -> None:
    scene = Scene(FakeInner(commit_transaction=[RETRIABLE] * 3), timeout_ms=0)
    with pytest.raises(TransactionError, match="whether it was committed is unknown: close this producer"):
        scene.run()


def test_what_is_wrong_at_the_moment_is_reported() -> None:
    with pytest.raises(TransactionError, match="STATE: not now"):
        Scene(FakeInner(begin_transaction=[NEITHER])).run()


def test_a_fatal_error_that_surfaces_as_a_system_error() -> None:
    """confluent-kafka raises it so when delivery reports are called meanwhile; the call says the rest when it is made again."""
    broken = SystemError("returned NULL without setting an exception")
    broken.__cause__ = FENCED
    with pytest.raises(FencedError):
        Scene(FakeInner(commit_transaction=[broken, FENCED])).run()
    with pytest.raises(SystemError):
        Scene(FakeInner(commit_transaction=[SystemError("ours")])).run()


def test_an_interrupted_commit_is_brought_to_its_end() -> None:
    """librdkafka has begun to commit, which cannot be taken back; Ctrl-C then passes through."""
    for outcome in ([KeyboardInterrupt()], [KeyboardInterrupt(), RETRIABLE], [KeyboardInterrupt(), NEITHER]):
        inner = FakeInner(commit_transaction=outcome)
        scene = Scene(inner)
        with pytest.raises(KeyboardInterrupt):
            scene.run()
        assert inner.calls[2:] == ["send_offsets_to", *["commit"] * (len(outcome) + (outcome[-1] is not NEITHER))]
        assert (scene.consumer.settled, scene.consumer.rewound, scene.owner.current) == ({T0: 5}, 0, None)
        scene.run()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(), RuntimeError("the consumer's own")])
def test_what_was_interrupted_before_it_was_handed_over_is_aborted(interruption: BaseException) -> None:
    inner = FakeInner(send_offsets_to_transaction=[interruption])
    scene = Scene(inner)
    with pytest.raises(type(interruption)):
        scene.run()
    assert inner.calls == ["init", "begin", "send_offsets_to", "abort"]
    assert (scene.consumer.settled, scene.consumer.rewound, scene.owner.current) == ({}, 1, None)
    scene.run()
    assert scene.consumer.settled == {T0: 5}


def test_an_interrupted_commit_that_has_to_be_aborted_is_aborted() -> None:
    inner = FakeInner(commit_transaction=[KeyboardInterrupt(), ABORTABLE])
    scene = Scene(inner)
    with pytest.raises(KeyboardInterrupt):
        scene.run()
    assert (inner.calls[-1], scene.consumer.settled, scene.consumer.rewound) == ("abort", {}, 1)


def test_an_interrupted_abort_and_an_interrupted_beginning() -> None:
    inner = FakeInner(abort_transaction=[KeyboardInterrupt(), NEITHER])
    scene = Scene(inner)
    with pytest.raises(KeyboardInterrupt):
        scene.run(lambda: 1 // 0)
    assert inner.calls == ["init", "begin", "abort", "abort"]
    assert (scene.consumer.rewound, scene.owner.current) == (1, None)
    inner = FakeInner(begin_transaction=[KeyboardInterrupt()])
    scene = Scene(inner)
    with pytest.raises(KeyboardInterrupt):
        scene.run()
    assert (inner.calls, scene.owner.current) == (["init", "begin", "abort"], None)
    scene.run()


def test_an_interrupted_commit_that_cannot_be_brought_to_its_end_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "_COMPLETE_S", 0.0)
    scene = Scene(FakeInner(commit_transaction=[KeyboardInterrupt(), *[RETRIABLE] * 100_000]))
    with pytest.raises(KeyboardInterrupt):
        scene.run()
    assert (
        "producer: transaction not ended after KeyboardInterrupt: transactional id x: TIMED_OUT: again; whether it was committed is unknown"
        in caplog.text
    )
    assert scene.owner.current is None


def test_the_id_is_not_waited_for_for_ever() -> None:
    scene = Scene(FakeInner(init_transactions=[RETRIABLE] * 3), timeout_ms=0)
    with pytest.raises(TransactionError, match=r"^transactional id x: TIMED_OUT: again; the id could not be taken over within 0 s; "):
        scene.run()


def test_one_at_a_time() -> None:
    scene = Scene(FakeInner())
    with scene.transaction(), pytest.raises(RuntimeError, match="transactional id x: one transaction at a time"):
        scene.transaction().begin()
    scene.run()
