"""Counts are published until the brokers have them, each increment under one guid; an instance opens first and closes at the end."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from moldau.client.delivery import Delivery
from moldau.client.failures import SendError
from moldau.client.message import Delivered
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord
from moldau.tracking.counts import Count
from moldau.tracking.instance import CountPublisher, Instance, Origin


def deliver(instance: Instance, topic: str, time_ms: int, size: int, guid_hash: int) -> None:
    """An event begins, and is acknowledged."""
    assert instance.next_guid() is not None
    instance.delivered(topic, time_ms, size, guid_hash)


ORIGIN = Origin("east", "shop", "web-1")
HOUR_MS = 3_600_000


class Sent:
    """A producer that records what is sent, and fails what the test asks for."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.records: list[AuditRecord] = []
        self.fails: list[bool] = []
        self.broken: SendError | None = None

    def delivery_failed(self, delivery: Delivery) -> None:
        pass

    def record_fatal(self, error: BaseException) -> None:
        pass

    def send(self, topic: str, value: bytes, *, key: bytes) -> Delivery:
        assert topic == AUDIT_TOPIC
        record = AuditRecord.from_bytes(value)
        assert key == record.record_key
        self.records.append(record)
        self.events.append(record.kind)
        delivery = Delivery(self)
        if self.fails.pop(0) if self.fails else False:
            delivery.refuse(timed_out())
        else:
            delivery._end(Delivered(topic, 0, 0, 0), None)
        return delivery

    def flush(self, timeout: float | None = None) -> None:
        self.events.append("flush")
        if self.broken is not None:
            raise self.broken

    def close(self, timeout: float | None = None) -> None:
        self.events.append("closed")


def timed_out() -> SendError:
    return SendError("page-views", 0, KafkaError(KafkaError._MSG_TIMED_OUT))


def publisher(sent: Sent, prepare: Callable[[], None] = lambda: None) -> CountPublisher:
    made: Any = sent
    return CountPublisher(made, ORIGIN, HOUR_MS, prepare)


def test_the_whole_life_of_an_instance() -> None:
    sent, instance = Sent(), Instance()
    counts = publisher(sent, lambda: sent.events.append("topic made"))
    counts.open(instance)
    deliver(instance, "page-views", 1_000, 100, 7)
    counts.publish()
    counts.publish()
    deliver(instance, "page-views", 2_000, 50, 8)
    counts.end()
    assert sent.events == ["topic made", "open", "counts", "flush", "counts", "close", "closed"]
    first, second = (record for record in sent.records if record.kind == "counts")
    assert first.count + second.count == Count(2, 150, 15, 1_000, 2_000)
    assert first.guid != second.guid
    assert first.key == second.key == ("page-views", 0, "east", "shop", "web-1", instance.name)
    assert sent.records[-1].count == Count(2, 150, 15, 1_000, 2_000), "a close says all that was counted"


def test_a_record_that_was_not_delivered_is_sent_again_under_its_guid() -> None:
    sent, instance = Sent(), Instance()
    counts = publisher(sent)
    counts.open(instance)
    deliver(instance, "page-views", 1_000, 100, 7)
    sent.fails = [True, True]
    for _ in range(4):
        counts.publish()
    tries = [record for record in sent.records if record.kind == "counts"]
    assert len(tries) == 3
    assert len(set(tries)) == 1
    counts.end()


def test_an_instance_that_is_uncertain_is_not_closed() -> None:
    sent, one, two = Sent(), Instance(), Instance()
    counts = publisher(sent)
    for instance in (one, two):
        counts.open(instance)
        deliver(instance, "page-views", 1_000, 100, 7)
    one.next_guid()
    one.failed(timed_out())
    counts.end()
    assert [record.key.instance for record in sent.records if record.kind == "counts"] == [one.name, two.name]
    assert [record.key.instance for record in sent.records if record.kind == "close"] == [two.name]


def test_an_event_that_failed_is_reported_after_the_counts_are_published() -> None:
    sent, instance = Sent(), Instance()
    counts = publisher(sent)
    counts.open(instance)
    deliver(instance, "page-views", 1_000, 100, 7)
    sent.broken = timed_out()
    with pytest.raises(SendError):
        counts.end()
    assert sent.events == ["open", "flush", "counts", "close", "closed"]


def test_a_producer_that_cannot_publish_its_counts_does_not_close_them() -> None:
    """It retries once; then `close` raises, with the number of events concerned, and with what failed before."""
    sent, instance = Sent(), Instance()
    counts = publisher(sent)
    counts.open(instance)
    deliver(instance, "page-views", 1_000, 100, 7)
    sent.fails, sent.broken = [True, True], timed_out()
    with pytest.raises(SendError) as caught:
        counts.end()
    assert sent.events == ["open", "flush", "counts", "counts", "closed"]
    assert len({record.guid for record in sent.records if record.kind == "counts"}) == 1
    assert caught.value is not sent.broken
    assert caught.value.__notes__ == [
        "so the counts of 1 events of service shop on web-1 are not published",
        f"and before that an event failed: {sent.broken}",
    ]


def test_counts_that_do_not_arrive_at_first_are_sent_again_at_the_end() -> None:
    sent, instance = Sent(), Instance()
    counts = publisher(sent)
    counts.open(instance)
    deliver(instance, "page-views", 1_000, 100, 7)
    sent.fails = [True]
    counts.end()
    assert sent.events == ["open", "flush", "counts", "counts", "close", "closed"]


def test_a_producer_without_events_publishes_nothing() -> None:
    sent = Sent()
    publisher(sent).end()
    assert sent.events == ["flush", "closed"]


def test_an_event_that_another_thread_never_sends_keeps_its_instance_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun, and may still be sent: a close would promise that it is not."""
    monkeypatch.setattr("moldau.tracking.instance.STRAGGLERS_S", 0.02)
    sent, instance = Sent(), Instance()
    counts = publisher(sent)
    counts.open(instance)
    deliver(instance, "page-views", 1_000, 100, 7)
    instance.next_guid()
    counts.end()
    assert sent.events == ["open", "flush", "counts", "closed"]


@pytest.mark.parametrize("field", ["datacenter", "service", "host"])
@pytest.mark.parametrize("text", ["", None, 5, "x" * 1_001])
def test_where_events_come_from_is_text_of_some_length(field: str, text: Any) -> None:
    """It stands in each event and each count; an empty name is that of records without a header."""
    Origin("dc", "shop", "h").check()
    with pytest.raises(ValueError, match=f"^{field} is text of 1 to 1000 characters"):
        Origin("dc", "shop", "h")._replace(**{field: text}).check()
