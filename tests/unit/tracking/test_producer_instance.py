"""What a producer instance counts: what was acknowledged, nothing that was refused; after an uncertain end it is used no more."""

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError

from moldau.client.failures import SendError
from moldau.tracking.checksum import guid_hash
from moldau.tracking.counts import Count, RunningCount
from moldau.tracking.instance import CountedDelivery, Instance


class Keeper:
    """Hears of failures."""

    def __init__(self) -> None:
        self.failed: list[Any] = []

    def delivery_failed(self, delivery: Any) -> None:
        self.failed.append(delivery)

    def record_fatal(self, error: BaseException) -> None:
        raise AssertionError(error)


class Report:
    """A delivery report of librdkafka."""

    def topic(self) -> str:
        return "page-views"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_300_000_000_000


def failure(code: int) -> SendError:
    return SendError("page-views", 0, KafkaError(code))


def test_guids_name_the_instance_and_count_up() -> None:
    instance = Instance(b"\1" * 8)
    assert [instance.next_guid() for _ in range(3)] == [b"\1" * 8 + bytes(7) + bytes([n]) for n in range(3)]
    assert instance.name == "01" * 8
    assert Instance().name != Instance().name


def test_an_event_is_counted_when_it_is_delivered_and_before_anybody_hears_of_it() -> None:
    instance, keeper, heard = Instance(), Keeper(), []
    guid = instance.next_guid() or b""
    delivery = CountedDelivery(keeper, instance, "page-views", 1_300_000_123_456, 100, guid_hash(guid))
    delivery.add_done_callback(lambda _: heard.extend(instance.take()))
    assert instance.take() == []
    delivery.report(None, Report())  # type: ignore[arg-type]
    count = Count(1, 100, guid_hash(guid), 1_300_000_123_456, 1_300_000_123_456)
    assert heard == [("page-views", 1_299_999_600_000, count)]
    assert instance.total == count
    assert delivery.result().offset == 17


def test_increments_are_by_topic_and_window_and_are_taken_once() -> None:
    instance = Instance()
    for topic, time_ms in [("a", 0), ("a", 599_999), ("a", 600_000), ("b", 5)]:
        instance.delivered(topic, time_ms, 10, 1)
    assert instance.take() == [
        ("a", 0, Count(2, 20, 2, 0, 599_999)),
        ("a", 600_000, Count(1, 10, 1, 600_000, 600_000)),
        ("b", 0, Count(1, 10, 1, 5, 5)),
    ]
    assert instance.take() == []
    assert instance.total == Count(4, 40, 4, 0, 600_000)


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_what_was_certainly_refused_is_not_counted(code: int) -> None:
    instance, keeper = Instance(), Keeper()
    instance.usable = True
    delivery = CountedDelivery(keeper, instance, "page-views", 0, 100, 1)
    delivery.refuse(failure(code))
    assert instance.take() == []
    assert (instance.uncertain, instance.usable, len(keeper.failed)) == (0, True, 1)


@pytest.mark.parametrize("code", [KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_INFLIGHT, KafkaError.REQUEST_TIMED_OUT, KafkaError._FATAL])
def test_what_may_be_in_the_log_makes_the_instance_uncertain(code: int) -> None:
    instance = Instance()
    instance.usable = True
    CountedDelivery(Keeper(), instance, "page-views", 0, 100, 1).refuse(failure(code))
    assert instance.take() == []
    assert (instance.uncertain, instance.usable) == (1, False)


def test_a_retired_instance_is_finished_when_its_last_event_is_counted_and_taken() -> None:
    instance = Instance()
    for _ in range(2):
        instance.next_guid()
    instance.delivered("a", 0, 1, 1)
    instance.retire()
    assert instance.next_guid() is None, "what would begin now has to be another's"
    assert not instance.all_ended
    instance.failed(failure(KafkaError._MSG_TIMED_OUT))
    assert not instance.finished, "an increment is left"
    instance.take()
    assert instance.finished


def test_an_event_that_was_begun_and_never_sent_holds_nothing_up() -> None:
    instance = Instance()
    delivery = CountedDelivery(Keeper(), instance, "page-views", 0, 100, guid_hash(instance.next_guid() or b""))
    instance.retire()
    assert not instance.finished
    delivery.abandon()
    assert instance.finished
    assert instance.take() == []


def test_threads_that_begin_while_it_is_retired_are_counted_or_sent_elsewhere() -> None:
    """Every guid that was given out ends before the instance has ended; after that none is given out."""
    for _ in range(20):
        instance, too_late = Instance(), threading.Event()
        given: list[bytes] = []

        def track(instance: Instance = instance, given: list[bytes] = given, too_late: threading.Event = too_late) -> None:
            while (guid := instance.next_guid()) is not None:
                if instance.all_ended:
                    too_late.set()
                given.append(guid)
                instance.delivered("a", 0, 1, guid_hash(guid))

        threads = [threading.Thread(target=track) for _ in range(3)]
        for thread in threads:
            thread.start()
        instance.retire()
        for thread in threads:
            thread.join()
        assert instance.all_ended
        assert not too_late.is_set()
        assert sum(count.count for _, _, count in instance.take()) == len(given)


def test_threads_count_together() -> None:
    instance = Instance()

    def count() -> None:
        for _ in range(2_000):
            instance.delivered("a", 0, 1, guid_hash(instance.next_guid() or b""))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((_, _, counted),) = instance.take()
    prefix = bytes.fromhex(instance.name)
    checksum = sum(guid_hash(prefix + number.to_bytes(8, "big")) for number in range(8_000)) % (1 << 64)
    assert counted == Count(8_000, 8_000, checksum, 0, 0)


def test_an_event_that_is_just_being_counted_keeps_its_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has ended and is not in the counts yet: an instance dropped then would lose its last count without a trace."""
    instance, seen = Instance(), []
    assert instance.next_guid() is not None
    instance.retire()

    def begun() -> RunningCount:
        asking.start()
        asking.join(0.05)
        return RunningCount()

    asking = threading.Thread(target=lambda: seen.append(instance.finished))
    monkeypatch.setattr("moldau.tracking.instance.RunningCount", begun)
    instance.delivered("a", 0, 10, 1)
    asking.join()
    assert seen == [False]
    assert instance.take() == [("a", 0, Count(1, 10, 1, 0, 0))]
    assert instance.finished
