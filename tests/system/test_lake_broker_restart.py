"""A task outlives a restart of the broker: it reads on where it was, and neither loses nor repeats a record."""

import threading

import pytest
from confluent_kafka import Producer

from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OffsetRange
from moldau.lake.reading.tasks import RangeRead, ReadError, ReadRules
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system

RECORDS = 400


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.start()
    broker.create_topic("t")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 20, "log_level": 3})
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number)
    assert producer.flush(30) == 0
    return broker


@pytest.mark.parametrize("away_s", [0.0, 1.0])
def test_a_read_goes_on_after_a_restart(broker: Broker, away_s: float) -> None:
    values: list[bytes] = []
    back: threading.Timer | None = None
    try:
        with ClusterLog(broker.bootstrap_servers, "test", 2.0) as log:
            for columns in RangeRead(log, OffsetRange("t", 0, 0, RECORDS), ReadRules(wanted=("value",), bytes_max=1_000)):
                assert columns.value is not None
                if not values:
                    broker.stop()
                    back = threading.Timer(away_s, broker.start)
                    back.start()
                values += columns.value.to_pylist()
    finally:
        if back is not None:
            back.join()
        broker.close()
    assert values == [b"%d" % number for number in range(RECORDS)]


def test_a_broker_that_does_not_come_back_is_given_up_in_time(broker: Broker) -> None:
    offsets: list[int] = []

    def read(log: ClusterLog) -> None:
        rules = ReadRules(wanted=("value",), bytes_max=1_000, poll_timeout_s=1.0)
        for columns in RangeRead(log, OffsetRange("t", 0, 0, RECORDS), rules):
            offsets.extend(columns.offset.tolist())
            broker.stop()

    try:
        given_up = pytest.raises(ReadError, match=r"t-0: offset \d+ of \[0, 400\): nothing came for")
        with ClusterLog(broker.bootstrap_servers, "test", 1.0) as log, given_up:
            read(log)
    finally:
        broker.close()
    assert offsets == list(range(len(offsets)))
    assert 0 < len(offsets) < RECORDS
