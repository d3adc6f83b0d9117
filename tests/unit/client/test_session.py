"""What librdkafka calls errors is news, which is logged, or it ends reading after the messages before it and names the place."""

import logging
import re
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.client.failures import CommitError, ConsumeError
from moldau.client.message import ConsumedMessage
from moldau.client.reader import MessageReader
from moldau.client.session import Session
from moldau.model.identity import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def message(offset: int, partition: int = 0, error: KafkaError | None = None, topic: str = "t") -> Any:
    """What librdkafka gives."""
    return SimpleNamespace(
        topic=lambda: topic,
        partition=lambda: partition,
        offset=lambda: offset,
        key=lambda: None,
        value=lambda: b"%d" % offset,
        headers=lambda: None,
        timestamp=lambda: (1, -1),
        error=lambda: error,
    )


class FakeConsumer:
    """A consumer of librdkafka that gives `messages`, and calls what is put among them."""

    made: "FakeConsumer"

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        FakeConsumer.made = self
        self.settings = settings
        self.asked_to_commit: list[tuple[int, int]] = []
        self.committed_now: list[tuple[int, int]] = []
        self.closing: list[Callable[[], None]] = []
        self.closed = False
        self.answers = threading.Event()
        self.answers.set()
        self.messages: list[Any] = []
        self.stored: list[tuple[int, int]] = []
        self.sought: list[tuple[int, int]] = []
        self.errors: list[KafkaError] = []
        self.group: dict[int, int] = {}
        self.results: list[Any] = []
        self.owned = [T0, T1]
        self.subscribed = False
        self.member: str | None = None
        self.leaves = True
        self.polling = False
        self.callbacks: dict[str, Callable[[object, list[Any]], None]] = {}

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks
        self.subscribed, self.member = True, "m"

    def unsubscribe(self) -> None:
        """At the next `poll` what is assigned then is revoked; then the group is left, if it `leaves`."""
        self._fail()
        if self.subscribed and self.member is not None:
            self.subscribed = False
            self.messages.append(self._revoke_all)

    def _revoke_all(self) -> None:
        try:
            self.rebalance("on_revoke", *self.owned)
        finally:
            if self.leaves:
                self.member = None

    def memberid(self) -> str | None:
        return self.member

    def assign(self, partitions: list[Any]) -> None:
        self.owned = [TopicPartition(each.topic, each.partition) for each in partitions]

    def unassign(self) -> None:
        self.owned = []

    def poll(self, _: float) -> Any:
        assert not self.polling, "confluent-kafka aborts the process"
        self.polling = True
        try:
            return self._next()
        finally:
            self.polling = False

    def consume(self, count: int, _: float) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and (one := self._next()) is not None:
            found.append(one)
        return found

    def _next(self) -> Any:
        while self.messages:
            one = self.messages.pop(0)
            if not callable(one):
                return one
            one()
        return None

    def rebalance(self, name: str, *partitions: TopicPartition) -> None:
        self.owned = [where for where in self.owned if where not in partitions] + list(partitions if name == "on_assign" else ())
        self.callbacks[name](self, [confluent_kafka.TopicPartition(*where) for where in partitions])

    def assignment(self) -> list[Any]:
        return [confluent_kafka.TopicPartition(*where) for where in self.owned]

    def store_offsets(self, offsets: list[Any]) -> None:
        self._fail()
        self.stored += [(each.partition, each.offset) for each in offsets]

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self._fail()
        if asynchronous:
            self.asked_to_commit += [(each.partition, each.offset) for each in offsets]
        else:
            self.answers.wait(10.0)
            self.committed_now += [(each.partition, each.offset) for each in offsets]
        return self.results or offsets

    def told(self, error: KafkaError | None, where: TopicPartition, offset: int) -> None:
        """Librdkafka calls back: it has committed this by itself, or has not."""
        self.settings["on_commit"](error, [confluent_kafka.TopicPartition(*where, offset)])

    def close(self) -> None:
        self.closed = True
        for one in self.closing:
            one()

    def committed(self, partitions: list[Any], _: float) -> list[Any]:
        if self.errors and self.errors[0].code() == KafkaError._TIMED_OUT:
            self._fail()
        return [confluent_kafka.TopicPartition(each.topic, each.partition, self.group.get(each.partition, -1001)) for each in partitions]

    def seek(self, where: Any) -> None:
        self._fail()
        self.sought.append((where.partition, where.offset))

    def _fail(self) -> None:
        if self.errors:
            raise KafkaException(self.errors.pop(0))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(confluent_kafka, "Consumer", FakeConsumer)
    return Session({"enable.auto.commit": True}, "g")


@pytest.fixture
def inner(session: Session) -> FakeConsumer:
    return FakeConsumer.made


def offsets(messages: list[ConsumedMessage]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in messages]


def test_messages_are_ours(session: Session, inner: FakeConsumer) -> None:
    inner.messages = [message(7)]
    assert session.fetch(5, 0.0) == [ConsumedMessage(b"7", None, (), None, "t", 0, 7)]
    assert session.fetch(5, 0.0) == []


def test_news_are_logged_once_and_no_error(session: Session, inner: FakeConsumer, caplog: pytest.LogCaptureFixture) -> None:
    missing = message(-1, -1, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "missing")
    late = message(-1, -1, KafkaError(KafkaError._MAX_POLL_EXCEEDED), "")
    away = message(-1, -1, KafkaError(KafkaError._ALL_BROKERS_DOWN), "")
    inner.messages = [missing, missing, late, away, message(7)]
    with caplog.at_level(logging.WARNING):
        assert offsets(session.fetch(9, 0.0)) == [(0, 7)]
    assert [record.message for record in caplog.records] == [
        "consumer: topic missing does not exist yet; retrying",
        "consumer: group g continued without this member, which did not poll within max.poll.interval.ms; it rejoins",
    ]


def test_an_error_ends_reading_after_the_messages_before_it(session: Session, inner: FakeConsumer) -> None:
    broken = message(8, 1, KafkaError(KafkaError._BAD_MSG, "damaged"))
    inner.messages = [message(7), broken]
    assert offsets(session.fetch(9, 0.0)) == [(0, 7)]
    with pytest.raises(ConsumeError, match=r"^partition t-1 at offset 8: BAD_MSG: damaged") as caught:
        session.fetch(9, 0.0)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 1, 8)
    inner.messages = [message(-1, -1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "secret")]
    with pytest.raises(ConsumeError, match=r"^topic secret: TOPIC_AUTHORIZATION_FAILED"):
        session.fetch(9, 0.0)


def test_a_commit_names_what_failed_and_is_stored_too(session: Session, inner: FakeConsumer) -> None:
    session.commit({T0: 5})
    assert inner.stored == [(0, 5)]
    inner.errors = [KafkaError(KafkaError.ILLEGAL_GENERATION)]
    with pytest.raises(CommitError, match=r"^group g, partition t-1 at offset 7: ILLEGAL_GENERATION"):
        session.commit({T1: 7})
    inner.results = [SimpleNamespace(topic="t", partition=1, offset=9, error=KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))]
    with pytest.raises(CommitError, match=r"^group g, partition t-1 at offset 9: OFFSET_METADATA_TOO_LARGE"):
        session.commit({T0: 5, T1: 9})


def test_offsets_of_partitions_that_are_gone_are_not_stored(session: Session, inner: FakeConsumer) -> None:
    inner.errors = [KafkaError(KafkaError._STATE)]
    session.store({T0: 5})
    assert inner.stored == []


def test_a_partition_that_was_just_assigned_is_sought_when_it_is_ready(session: Session, inner: FakeConsumer) -> None:
    inner.errors = [KafkaError(KafkaError._STATE), KafkaError(KafkaError._STATE)]
    session.seek(T0, 5)
    assert inner.sought == [(0, 5)]
    inner.owned, inner.errors = [T1], [KafkaError(KafkaError._STATE)]
    with pytest.raises(ConsumeError, match=r"^partition t-0 at offset 5: STATE"):
        session.seek(T0, 5)


# The reader over it


@pytest.fixture
def reader(session: Session, inner: FakeConsumer) -> MessageReader:
    made = MessageReader(session)
    session.subscribe(["t"], made)
    return made


def test_messages_of_a_partition_that_goes_in_the_middle_of_a_fetch_are_not_handed_out(reader: MessageReader, inner: FakeConsumer) -> None:
    inner.messages = [message(7), message(3, 1), lambda: inner.rebalance("on_revoke", T0), message(4, 1)]
    assert offsets(reader.take(9, 0.0)) == [(1, 3), (1, 4)]


def test_a_message_of_before_is_not_handed_out_though_its_partition_comes_back_in_the_same_fetch(
    reader: MessageReader, inner: FakeConsumer
) -> None:
    """Handed out, it would be finished, and committed, by who has been given the partition from an older offset on.

    fetched at 7, 8 ── revoked ── assigned, from the committed 5 on: reading continues at 5.
    """
    inner.group = {0: 5}
    inner.messages = [
        message(7),
        message(3, 1),
        lambda: inner.rebalance("on_revoke", T0),
        lambda: inner.rebalance("on_assign", T0),
        message(8),
        message(4, 1),
    ]
    assert offsets(reader.take(9, 0.0)) == [(1, 3), (1, 4)]
    inner.messages = [message(5), message(6)]
    assert offsets(reader.take(9, 0.0)) == [(0, 5), (0, 6)]
    assert inner.sought == [(0, 5)]
    reader.wait(0.0)
    assert inner.stored == [(1, 5), (0, 7)]


def test_where_nothing_is_committed_it_is_read_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", FakeConsumer)
    for reset, place in [("smallest", -2), ("latest", -1), ("error", None)]:
        made = MessageReader(session := Session({"enable.auto.commit": True, "auto.offset.reset": reset}, "g"))
        session.subscribe(["t"], made)
        inner = FakeConsumer.made

        def both(inner: FakeConsumer = inner) -> None:
            inner.rebalance("on_lost", T0)
            inner.rebalance("on_assign", T0)

        inner.messages = [message(7), both]
        assert made.take(9, 0.0) == made.take(9, 0.0) == []
        assert inner.sought == ([] if place is None else [(0, place)]), "an error comes by itself"


def test_what_has_not_begun_again_needs_no_telling(reader: MessageReader, inner: FakeConsumer) -> None:
    """Librdkafka cannot seek yet, so it has fetched nothing yet."""
    inner.messages = [
        message(7),
        lambda: inner.rebalance("on_revoke", T0),
        lambda: inner.rebalance("on_assign", T0),
        lambda: inner.errors.append(KafkaError(KafkaError._STATE)),
    ]
    inner.group = {0: 5}
    assert reader.take(9, 0.0) == reader.take(9, 0.0) == []
    assert (inner.sought, inner.errors) == ([], [])


def test_nothing_is_passed_over_while_the_committed_offset_cannot_be_had(reader: MessageReader, inner: FakeConsumer) -> None:
    inner.messages = [message(7), message(3, 1), lambda: inner.rebalance("on_lost", T0), lambda: inner.rebalance("on_assign", T0)]
    assert offsets(reader.take(9, 0.0)) == [(1, 3)]
    inner.messages, inner.group = [message(8)], {0: 5}
    inner.errors = [KafkaError(KafkaError._TIMED_OUT)]
    with pytest.raises(ConsumeError, match="TIMED_OUT"):
        reader.take(9, 0.0)
    assert inner.messages, "nothing was taken"
    reader.take(9, 0.0)
    assert inner.sought == [(0, 5)]


def test_unless_it_comes_back_in_the_same_moment(reader: MessageReader, inner: FakeConsumer) -> None:
    inner.messages = [lambda: inner.rebalance("on_revoke", T0), lambda: inner.rebalance("on_assign", T0), message(7)]
    assert offsets(reader.take(9, 0.0)) == [(0, 7)]


def test_what_is_finished_is_stored_before_its_partition_goes(reader: MessageReader, inner: FakeConsumer) -> None:
    told: list[str] = []
    reader.on_assign = lambda partitions: told.append(f"got {partitions}")
    reader.on_revoke = lambda partitions: told.append(f"gave {partitions}, stored {inner.stored}")
    inner.messages = [lambda: inner.rebalance("on_assign", T0), message(7), message(8)]
    assert offsets(reader.take(1, 0.0)) == [(0, 7)]
    assert offsets(reader.take(1, 0.0)) == [(0, 8)]
    inner.rebalance("on_revoke", T0)
    assert inner.stored == [(0, 8)], "8 is worked on"
    inner.rebalance("on_lost", T1)
    assert told == [f"got {[T0]}", f"gave {[T0]}, stored []", f"gave {[T1]}, stored [(0, 8)]"]
    assert reader.progress.positions() == {}


def test_a_partition_that_is_held_back_comes_again(reader: MessageReader, inner: FakeConsumer) -> None:
    inner.messages = [message(7), message(3, 1), message(8)]
    assert offsets(reader.take(1, 0.0)) == [(0, 7)]
    reader.hold_back([T0])
    assert inner.sought == [(0, 8)]
    assert offsets(reader.take(9, 0.0)) == [(1, 3)]


def test_waiting_ends_without_a_message(reader: MessageReader) -> None:
    assert reader.take(1, 0.01) == []
    assert (reader.ready, reader.buffered, reader.handed_out) == (False, 0, 0)


# Automatic commits


def test_after_a_seek_the_place_is_committed_though_nothing_was_read_there(reader: MessageReader, inner: FakeConsumer) -> None:
    """Librdkafka by itself commits nothing that is not beyond the last commit."""
    inner.messages = [message(7), message(8)]
    reader.take(9, 0.0)
    reader.seek(T0, 3)
    reader.wait(0.0)
    assert inner.asked_to_commit == [(0, 3)]
    inner.told(None, T0, 3)
    inner.messages = [message(3)]
    reader.take(1, 0.0)
    reader.wait(0.0)
    assert (inner.stored, inner.asked_to_commit) == ([(0, 3), (0, 4)], [(0, 3)]), "from there on it does"


def test_what_is_on_its_way_when_a_partition_goes_is_overtaken(reader: MessageReader, inner: FakeConsumer) -> None:
    reader.seek(T0, 3)
    reader.wait(0.0)
    inner.messages = [message(3), message(4)]
    reader.take(1, 0.0)
    reader.take(1, 0.0)
    inner.rebalance("on_revoke", T0)
    assert inner.asked_to_commit == [(0, 3), (0, 4)]


def test_a_failed_last_commit_is_raised_by_close_once(session: Session, inner: FakeConsumer) -> None:
    session.store({T0: 5})
    inner.errors = [KafkaError(KafkaError._WAIT_COORD)]
    with pytest.raises(CommitError, match=r"^group g, partition t-0 at offset 5: WAIT_COORD"):
        session.close()
    session.close()


def test_what_a_commit_has_raised_is_not_raised_again_by_close(
    session: Session, inner: FakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    session.store({T0: 5})
    fenced = KafkaError(KafkaError.FENCED_INSTANCE_ID)
    inner.errors = [fenced, fenced]
    with pytest.raises(CommitError, match="FENCED_INSTANCE_ID"):
        session.commit({T0: 5})
    session.close()
    assert "consumer: offset not committed: group g, partition t-0 at offset 5: FENCED_INSTANCE_ID" in caplog.text


def test_the_last_commit_comes_before_the_group_is_left(session: Session, inner: FakeConsumer) -> None:
    """Librdkafka's own comes after it while the group rebalances, and is refused; by then it is of no matter."""
    session.store({T0: 5})
    inner.closing = [
        lambda: assert_that(inner.committed_now == [(0, 5)]),
        lambda: inner.told(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), T0, 5),
    ]
    session.close()


def test_partitions_of_other_members_are_not_committed_at_the_end(session: Session, reader: MessageReader, inner: FakeConsumer) -> None:
    """It would take them back to where it was."""
    session.store({T0: 5, T1: 7})
    inner.rebalance("on_revoke", T0)
    session.close()
    assert (inner.committed_now, inner.owned) == ([(1, 7)], [])


def test_a_fenced_member_is_closed_though_it_cannot_leave(session: Session, reader: MessageReader, inner: FakeConsumer) -> None:
    inner.errors.append(KafkaError(KafkaError._FATAL))
    session.close()
    assert inner.closed


def test_a_consumer_is_closed_though_its_listener_raises(session: Session, inner: FakeConsumer) -> None:
    def revoked(_: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    careless: Any = SimpleNamespace(revoked=revoked)
    session.subscribe(["t"], careless)
    with pytest.raises(ZeroDivisionError):
        session.close()
    assert inner.closed


def test_an_earlier_failure_is_raised_by_the_next_commit_unless_that_makes_up_for_it(session: Session, inner: FakeConsumer) -> None:
    failed = KafkaError(KafkaError.NOT_COORDINATOR)
    inner.told(failed, T0, 5)
    session.commit({T0: 6})
    inner.told(failed, T0, 7)
    with pytest.raises(CommitError, match=r"^group g, partition t-0 at offset 7: NOT_COORDINATOR"):
        session.commit({T1: 1})
    session.commit({})
    inner.told(failed, T0, 8)
    with pytest.raises(CommitError, match="t-0 at offset 8"):
        session.close()


def test_a_close_that_gets_no_answer_says_what_may_not_be_committed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", FakeConsumer)
    session, inner = Session({"enable.auto.commit": True}, "g", 0.01), FakeConsumer.made
    inner.answers.clear()
    session.store({T0: 5})
    with pytest.raises(
        CommitError, match=r"^group g, partition t-0 at offset 5: TIMED_OUT: no answer within 0.01 s; the offset may not be committed"
    ):
        session.close()
    inner.answers.set()
    for setting_s, argument_s, limit in ((60.0, 0.01, "0.01 s"), (0.02, None, "0.02 s (close_timeout_ms)")):
        session, inner = Session({"enable.auto.commit": True}, "g", setting_s), FakeConsumer.made
        left = threading.Event()
        inner.closing = [partial(wait_for, left)]
        session.close(argument_s)
        assert caplog.messages[-1] == f"consumer: closed; the brokers did not answer within {limit}", "nothing is lost"
        left.set()


# To leave the group


@pytest.fixture
def told(reader: MessageReader) -> list[str]:
    """What the listeners of the reader are called with."""
    heard: list[str] = []
    reader.on_assign = lambda partitions: heard.append(f"got {len(partitions)}")
    reader.on_revoke = lambda partitions: heard.append(f"gave {len(partitions)}")
    return heard


def test_leaving_calls_the_listener_of_revoked_partitions_at_once(session: Session, inner: FakeConsumer, told: list[str]) -> None:
    """Heard later it would take away what is assigned then."""
    inner.messages = [message(7)]
    session.leave()
    assert (told, inner.owned, inner.messages) == (["gave 2"], [], [])
    session.assign({T0: 0})
    inner.messages = [message(0)]
    assert offsets(session.fetch(9, 0.0)) == [(0, 0)]
    assert inner.owned == [T0]
    session.leave()
    assert (told, inner.owned) == (["gave 2"], [])


def test_an_assignment_that_was_queued_before_is_served_too(session: Session, inner: FakeConsumer, told: list[str]) -> None:
    inner.owned = []
    inner.messages = [lambda: inner.rebalance("on_assign", T0, T1)]
    session.leave()
    assert told == ["got 2", "gave 2"]


def test_a_lost_assignment_is_heard_of_though_the_member_is_none_any_more(
    session: Session, inner: FakeConsumer, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    inner.member = None
    inner.messages = [message(-1, -1, KafkaError(KafkaError._MAX_POLL_EXCEEDED)), lambda: inner.rebalance("on_lost", T0, T1)]
    session.leave()
    assert (told, inner.messages) == (["gave 2"], [])
    assert "did not poll within max.poll.interval.ms" in caplog.text


def test_it_is_served_too_after_messages_that_were_fetched_before(session: Session, inner: FakeConsumer, told: list[str]) -> None:
    """Or it would come later, and take away what was assigned meanwhile."""
    inner.messages += [message(7), message(8), lambda: inner.rebalance("on_lost", T0, T1)]
    inner.member = None
    session.leave()
    assert (told, inner.messages) == (["gave 2"], [])
    session.assign({T0: 3})
    assert (session.fetch(9, 0.0), inner.owned) == ([], [T0])


def test_an_error_that_comes_while_leaving_is_raised_by_the_next_fetch(session: Session, inner: FakeConsumer, told: list[str]) -> None:
    inner.messages = [message(-1, -1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "secret")]
    session.leave()
    assert told == ["gave 2"]
    with pytest.raises(ConsumeError, match=r"^topic secret: TOPIC_AUTHORIZATION_FAILED"):
        session.fetch(9, 0.0)


def test_what_is_refused_to_a_fenced_member_is_raised(session: Session, inner: FakeConsumer, told: list[str]) -> None:
    inner.errors = [KafkaError(KafkaError._FATAL)]
    with pytest.raises(ConsumeError, match=r"^consumer: FATAL"):
        session.leave()
    assert (told, inner.owned) == ([], [T0, T1])


def test_what_the_listener_raises_is_raised_and_leaving_continues(session: Session, inner: FakeConsumer, reader: MessageReader) -> None:
    def fails(_: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    reader.on_revoke = fails
    with pytest.raises(ZeroDivisionError):
        session.leave()
    inner.messages = [message(7)]
    session.assign({T0: 0})
    assert (inner.owned, inner.messages) == ([T0], []), "the message was of before"


def test_a_group_that_cannot_be_left_is_waited_for_as_long_as_by_close(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(confluent_kafka, "Consumer", FakeConsumer)
    session, inner = Session({"enable.auto.commit": True}, "g", 0.01), FakeConsumer.made
    session.subscribe(["t"], MessageReader(session))
    inner.leaves = False
    session.leave()
    late = "group g: this member has not left within 0.01 s (close_timeout_ms)"
    assert f"consumer: {late}; each poll continues to leave" in caplog.text
    with pytest.raises(ConsumeError, match=rf"^consumer: TIMED_OUT: {re.escape(late)}; partitions cannot be assigned before"):
        session.assign({T0: 0})
    inner.messages = [message(7), lambda: inner.rebalance("on_assign", T0)]
    assert session.fetch(9, 0.0) == session.fetch(9, 0.0) == []
    assert inner.messages == []
    inner.member = None
    assert session.fetch(9, 0.0) == []
    assert inner.owned == []
    session.assign({T0: 0})
    inner.messages = [message(0)]
    assert offsets(session.fetch(9, 0.0)) == [(0, 0)]


def test_without_a_subscription_leaving_does_not_wait(session: Session, inner: FakeConsumer) -> None:
    session.assign({T0: 0})
    inner.messages = [message(0)]
    session.leave()
    assert (inner.owned, len(inner.messages)) == ([], 1)


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
def test_a_listener_may_leave(session: Session, inner: FakeConsumer, reader: MessageReader, name: str) -> None:
    """The fetch that called it hands out nothing, and what is assigned after it is not taken away."""
    told: list[str] = []

    def leave(_: list[TopicPartition]) -> None:
        told.append(name)
        session.leave()

    setattr(reader, "on_assign" if name == "on_assign" else "on_revoke", leave)
    inner.messages = [message(7), lambda: inner.rebalance(name, T0)]
    assert session.fetch(9, 0.0) == []
    session.assign({T1: 0})
    assert (inner.owned, inner.messages) == ([T1], [])
    assert told == ([name] if name == "on_assign" else [name, name]), "of T0, and of the rest"


def test_what_a_listener_assigns_after_it_has_left_is_assigned_when_that_is_over(
    session: Session, inner: FakeConsumer, reader: MessageReader
) -> None:
    def move(_: list[TopicPartition]) -> None:
        session.leave()
        session.assign({T1: 0})

    reader.on_assign = move
    inner.messages = [lambda: inner.rebalance("on_assign", T0)]
    found = [session.fetch(9, 0.0) for _ in range(3)]
    assert (found, inner.owned) == ([[], [], []], [T1])


def test_a_listener_that_subscribes_again_ends_leaving(session: Session, inner: FakeConsumer, reader: MessageReader) -> None:
    reader.on_revoke = lambda _: session.subscribe(["u"], reader)
    inner.leaves = False
    session.leave()
    inner.messages = [lambda: inner.rebalance("on_assign", T0), message(7)]
    assert offsets(session.fetch(9, 0.0)) == [(0, 7)]


def wait_for(event: threading.Event) -> None:
    assert event.wait(10.0)


def assert_that(what: bool) -> None:
    assert what
