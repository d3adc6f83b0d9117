"""Trying again: pauses double up to a second, time has an end, and what cannot pass is not waited for."""

import pytest

from moldau.client.errors import ConnectionLostError, RequestFailedError, Retry, failure, may_pass
from moldau.model.errors import ErrorCode, MoldauError, StorageError
from moldau.model.host_port import Address


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s

    def retry(self, timeout_s: float) -> Retry:
        return Retry(timeout_s, sleep=self.sleep, monotonic=lambda: self.now)


LOST = ConnectionLostError(Address("b", 1), "gone")


def tire(retry: Retry, trouble: MoldauError) -> None:
    """Try until it is given up."""
    with pytest.raises(type(trouble)) as caught:
        _pause_for_ever(retry, trouble)
    assert caught.value is trouble


def _pause_for_ever(retry: Retry, trouble: MoldauError) -> None:
    while True:
        retry.pause(trouble)


def test_pauses_double_up_to_a_second_and_the_last_one_ends_with_the_time() -> None:
    """With 2 s to try and a next pause of a second, trying ended after 1.26 s, and `(tried for 2 s)` was not so."""
    time = FakeTime()
    tire(time.retry(5.0), LOST)
    assert time.pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0, 0.74])
    assert time.now == pytest.approx(105.0)
    time = FakeTime()
    tire(time.retry(2.0), LOST)
    assert time.now == pytest.approx(102.0)


def test_an_unknown_topic_has_a_second() -> None:
    time = FakeTime()
    tire(time.retry(30.0), failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t"))
    assert time.now <= 101.0
    assert len(time.pauses) == 5


@pytest.mark.parametrize(
    "trouble",
    [failure(ErrorCode.OFFSET_OUT_OF_RANGE, "p"), failure(4711, "p"), StorageError("broken", path="/d"), MoldauError("other")],
)
def test_what_cannot_pass_is_raised_at_once(trouble: MoldauError) -> None:
    time = FakeTime()
    tire(time.retry(30.0), trouble)
    assert time.pauses == []


def test_a_damaged_batch_is_not_asked_for_again_though_kafka_calls_that_retriable() -> None:
    assert ErrorCode.CORRUPT_MESSAGE.retriable
    assert not may_pass(RequestFailedError(ErrorCode.CORRUPT_MESSAGE, "partition t-0"))
