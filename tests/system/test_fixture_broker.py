"""`Broker` gives a script a real log in a moment: own port, own directory, gone afterwards; the data survives a restart."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.client.errors import RequestFailedError, UnreachableError
from moldau.model.config.definition import InvalidConfigError
from moldau.model.errors import ErrorCode
from moldau.testing import Broker

pytestmark = pytest.mark.system


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def consume(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=30)
        assert [message.error() for message in messages] == [None] * count
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_what_a_script_needs() -> None:
    with Broker() as broker:
        assert broker.create_topic("orders", partitions=3, config={"retention.ms": -1}) == "orders"
        produce(broker, "orders", b"first", b"second")
        assert consume(broker, "orders", 2) == [b"first", b"second"]
        assert broker.topics() == ["orders"]
        directory = broker.directory
        assert list(directory.glob("orders-*"))
    assert not directory.exists()
    assert not broker.running


def test_data_port_and_topics_survive_a_restart() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        produce(broker, "t", b"before")
        address = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == address
        produce(broker, "t", b"after")
        assert consume(broker, "t", 2) == [b"before", b"after"]


def test_a_stopped_broker_refuses_connections_until_it_is_started() -> None:
    with Broker() as broker:
        broker.stop()
        with pytest.raises(UnreachableError):
            broker.topics()
        broker.stop()
        broker.start()
        broker.start()
        assert broker.topics() == []


def test_a_directory_of_the_callers_is_kept(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        broker.create_topic("kept")
    assert (tmp_path / "kept-0").is_dir()
    with Broker(directory=tmp_path) as broker:
        assert broker.topics() == ["kept"]


def test_settings_are_kafkas_and_checked() -> None:
    with Broker(settings={"auto.create.topics.enable": False, "num.partitions": 4}) as broker:
        broker.create_topic("explicit")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 2000})
        failures: list[object] = []
        producer.produce("implicit", b"x", on_delivery=lambda error, _: failures.append(error))
        producer.flush(30)
        assert failures[0] is not None
        assert broker.topics() == ["explicit"]
    with pytest.raises(InvalidConfigError, match=r"num\.partitons.*num\.partitions"):
        Broker(settings={"num.partitons": 4}).start()


def test_errors_of_topics_are_typed() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        with pytest.raises(RequestFailedError) as caught:
            broker.create_topic("t")
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        broker.delete_topic("t")
        with pytest.raises(RequestFailedError) as caught:
            broker.delete_topic("t")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.delete_topic("t", missing_ok=True)


def test_unique_names_are_legal_and_differ() -> None:
    with Broker() as broker:
        names = [broker.unique_topic("test_x[a/b ü]"), broker.unique_topic("test_x[a/b ü]"), broker.unique_topic("n" * 400)]
        assert len(set(names)) == 3
        for name in names:
            broker.create_topic(name)
        assert broker.topics() == sorted(names)


def test_several_brokers_live_side_by_side() -> None:
    with Broker() as one, Broker() as other:
        one.create_topic("mine")
        assert (one.topics(), other.topics()) == (["mine"], [])
        assert one.bootstrap_servers != other.bootstrap_servers


def test_before_its_start_it_has_no_address() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="not been started"):
        _ = broker.bootstrap_servers
    broker.close()
    assert not broker.directory.exists()


FORKING = """
import os, sys
from moldau.testing import Broker
with Broker() as broker:
    broker.create_topic("t")
    child = os.fork()
    if child == 0:
        broker.close()
        os._exit(0 if broker.directory.exists() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert broker.topics() == ["t"]
print("served on")
"""


def test_a_forked_child_does_not_take_the_broker_down() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "served on\n"), done.stderr


KILLED = """
import os, signal
from moldau.testing.broker import Broker
with Broker() as broker:
    print(broker.directory, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_data_of_a_killed_process_goes_with_the_next_broker_and_that_of_others_stays() -> None:
    with Broker() as other:
        other.create_topic("t")
        done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60, check=False)
        left = Path(done.stdout.strip())
        assert (left / "meta.properties").exists(), done.stderr
        with Broker():
            assert not left.exists()
        other.restart()
        assert other.topics() == ["t"]


@pytest.mark.alone
def test_starting_takes_a_blink() -> None:
    """The target is 50 ms (`benchmarks/startup.py`); here only that it is not a second, on whatever machine this is."""
    begun = time.monotonic()
    with Broker() as broker:
        broker.topics()
        taken_s = time.monotonic() - begun
    assert taken_s < 1.0
