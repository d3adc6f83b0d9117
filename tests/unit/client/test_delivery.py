"""A delivery ends once, returns its outcome before or after a thread waits for it, and remembers whether it was read."""

import asyncio
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.client.delivery import Deliveries, Delivery, DeliveryThread
from moldau.client.failures import SendError
from moldau.client.message import Delivered

if TYPE_CHECKING:
    from confluent_kafka import Message as Report


class Kept:
    """Who keeps failures."""

    def __init__(self) -> None:
        self.failed: list[Delivery] = []
        self.fatal: list[BaseException] = []

    def delivery_failed(self, delivery: Delivery) -> None:
        self.failed.append(delivery)

    def record_fatal(self, error: BaseException) -> None:
        self.fatal.append(error)


def report(offset: int | None = 7, partition: int | None = 2) -> "Report":
    """What librdkafka hands to a delivery callback."""
    found = SimpleNamespace(
        topic=lambda: "t",
        partition=lambda: partition,
        offset=lambda: offset,
        timestamp=lambda: (1, 1000),
        error=lambda: None,
        value=lambda: b"value",
        key=lambda: None,
    )
    return cast("Report", found)


def test_delivered() -> None:
    delivery = Delivery(Kept())
    assert not delivery.done()
    delivery.report(None, report())
    assert delivery.done()
    assert delivery.result() == Delivered("t", 2, 7, 1000)
    assert delivery.exception() is None


def test_without_acknowledgement_the_offset_is_not_known() -> None:
    delivery = Delivery(Kept())
    delivery.report(None, report(offset=None))
    assert delivery.result().offset is None


def test_a_failure_names_topic_and_partition() -> None:
    kept = Kept()
    delivery = Delivery(kept)
    delivery.report(KafkaError(KafkaError._MSG_TIMED_OUT), report())
    assert kept.failed == [delivery]
    with pytest.raises(SendError, match=r"^partition t-2: MSG_TIMED_OUT: ") as caught:
        delivery.result()
    assert (caught.value.topic, caught.value.partition, caught.value.name) == ("t", 2, "MSG_TIMED_OUT")
    unplaced = Delivery(kept)
    unplaced.report(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), report(partition=-1))
    assert str(unplaced.exception()).startswith("topic t: UNKNOWN_TOPIC_OR_PART")


def test_a_waiting_thread_is_woken_and_a_late_one_gets_the_outcome_at_once() -> None:
    delivery, calls = Delivery(Kept()), []
    delivery.add_done_callback(lambda ended: calls.append(ended.result().offset))
    waiter = threading.Thread(target=lambda: calls.append(delivery.result(10).offset))
    waiter.start()
    delivery.report(None, report())
    waiter.join(10)
    delivery.add_done_callback(lambda ended: calls.append(ended.result().offset))
    assert calls == [7, 7, 7]


def test_waiting_has_an_end() -> None:
    with pytest.raises(TimeoutError):
        Delivery(Kept()).result(0.001)
    with pytest.raises(TimeoutError):
        Deliveries([Delivery(Kept())]).result(0.001)


def test_a_set_has_the_places_of_all_or_the_first_failure() -> None:
    kept = Kept()
    one, two, three = (Delivery(kept) for _ in range(3))
    several = Deliveries([one, two, three])
    one.report(None, report(1))
    assert not several.done()
    two.report(KafkaError(KafkaError._MSG_TIMED_OUT), report())
    three.report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), report())
    with pytest.raises(SendError, match="MSG_TIMED_OUT"):
        several.result()
    assert three.unseen_failure is None, "all of the set was asked about"
    assert Deliveries([one]).result() == [Delivered("t", 2, 1, 1000)]


def test_in_asyncio_a_delivery_is_awaited() -> None:
    async def main() -> list[Any]:
        kept = Kept()
        now, later, failing = (Delivery(kept) for _ in range(3))
        now.report(None, report(1))
        threading.Timer(0.01, lambda: later.report(None, report(2))).start()
        threading.Timer(0.01, lambda: failing.report(KafkaError(KafkaError._MSG_TIMED_OUT), report())).start()
        with pytest.raises(SendError):
            await failing
        with pytest.raises(SendError):
            await Deliveries([now, failing])
        return [await now, *await Deliveries([now, later])]

    assert [place.offset for place in asyncio.run(main())] == [1, 1, 2]


def test_failures_are_seen_by_asking() -> None:
    reports = DeliveryThread(cast("Any", None), "test")
    asked, called_back, unseen = (Delivery(reports) for _ in range(3))
    called_back.add_done_callback(lambda _: None)
    for each in (asked, called_back, unseen):
        each.refuse(SendError("t", None, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
    assert asked.exception() is not None
    assert [error.topic for error in reports.take_unseen()] == ["t"]
    assert reports.take_unseen() == []
    assert reports.failures == 3


def test_a_fatal_error_that_surfaces_in_a_report_is_kept_and_the_report_still_ends() -> None:
    """confluent-kafka calls back with the exception of a fatal error pending; the next call into C raises it."""
    fatal = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
    pending: list[BaseException] = [fatal]

    def topic() -> str:
        if pending:
            raise SystemError("returned a result with an exception set") from pending.pop()
        return "t"

    message = cast("Report", SimpleNamespace(topic=topic, partition=lambda: 1, offset=lambda: None, timestamp=lambda: (0, -1)))
    reports = DeliveryThread(cast("Any", None), "test")
    delivery = Delivery(reports)
    delivery.report(KafkaError(KafkaError._PURGE_QUEUE), message)
    assert str(delivery.exception()).startswith("partition t-1: PURGE_QUEUE")
    assert reports.fatal is fatal.args[0]
    assert reports.broken.is_set()


def test_what_serving_raises_is_kept_if_it_is_fatal_and_logged_if_not(caplog: pytest.LogCaptureFixture) -> None:
    reports = DeliveryThread(cast("Any", None), "test")

    def raises(fatal: bool) -> int:
        raise KafkaException(KafkaError(KafkaError._FENCED, "x", fatal=fatal))

    assert reports.serve(lambda: 3) == 3
    assert reports.serve(lambda: raises(False)) is None
    assert (reports.fatal, "x" in caplog.text) == (None, True)
    assert reports.serve(lambda: raises(True)) is None
    assert reports.fatal is not None
