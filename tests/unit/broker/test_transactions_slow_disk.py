"""Transactions where every append waits for the disk: what the coordinator and the partitions still have to sync overlaps."""

from typing import Any

import pytest

from moldau.model.errors import ErrorCode
from moldau.protocol.messages.transactions import EndTxnRequest
from support.broker_world import BrokerWorld, Client, batch, produce_request
from support.transactional_producer import NEWEST, RawProducer, read_committed


class SlowClient:
    """Asks, and lets the disk and the clock go on until there is an answer."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.client: Client = world.connect()

    def answers(self, count: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(200):
            found += [answer.body for answer in self.client.answers()]
            if len(found) == count:
                return found
            if self.world.background.jobs:
                self.world.background.run_next()
            else:
                self.world.clock.advance(0.005)
            self.client.peer.push()
        raise AssertionError(f"{len(found)} answers, not {count}")

    def ask(self, request: Any, version: int) -> Any:
        self.client.send(request, version)
        return self.answers(1)[0]


@pytest.fixture
def slow() -> SlowClient:
    world = BrokerWorld(immediate=False, log_flush_interval_messages=1, transaction_state_log_num_partitions=1)
    world.create_topic("t", 2)
    return SlowClient(world)


def test_transactions_end_to_end(slow: SlowClient) -> None:
    producer = RawProducer(slow.ask, "app", NEWEST, now_ms=slow.world.clock.time_ms)
    producer.find()
    assert producer.init() is ErrorCode.NONE
    for number in range(4):
        assert producer.send("t", b"%d" % number) is ErrorCode.NONE
        assert producer.send("t", b"%d" % number, partition=1) is ErrorCode.NONE
        assert producer.end(committed=number % 2 == 0) is ErrorCode.NONE
    assert read_committed(slow.ask, "t") == read_committed(slow.ask, "t", 1) == [b"0", b"2"]


def test_the_next_transaction_may_begin_while_the_last_one_is_being_completed(slow: SlowClient) -> None:
    """The producer is told of the end once that is decided; the markers follow."""
    producer = RawProducer(slow.ask, "app", NEWEST, now_ms=slow.world.clock.time_ms)
    producer.find()
    assert producer.init() is ErrorCode.NONE
    client, producer_id, epoch = slow.client, producer.producer_id, producer.epoch
    for number in range(5):
        records = batch(
            slow.world, b"%d" % number, producer_id=producer_id, producer_epoch=epoch + number, base_sequence=0, transactional=True
        )
        frames = [
            client.frame(produce_request("t", records, acks=-1, transactional_id="app"), 12),
            client.frame(EndTxnRequest("app", producer_id, epoch + number, committed=number % 2 == 0), 5),
        ]
        client.peer.send(b"".join(frames))
    answers = slow.answers(10)
    assert [body.responses[0].partition_responses[0].error_code for body in answers[::2]] == [0] * 5
    assert [body.error_code for body in answers[1::2]] == [0] * 5
    assert read_committed(slow.ask, "t") == [b"0", b"2", b"4"]
