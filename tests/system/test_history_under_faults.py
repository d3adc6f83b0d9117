"""Clients of many kinds see no anomaly while the broker is killed and stopped (A1-A14).

Producers that are idempotent, careless, and transactional over several partitions (librdkafka, and the Java client with the transactions
of KIP-890), with zombies among them; readers by assignment in both isolations, groups with eager and cooperative members that leave,
crash and come back; copiers that consume, transform and produce exactly once, feeders that write into what they read. Meanwhile the
broker is killed (SIGKILL) and started again, or stopped (SIGSTOP) for up to nine seconds, longer than transactions and sessions may last;
and the topics that hold offsets and transactions are compacted. This goes on for 20 seconds, or ten minutes with MOLDAU_TORTURE=1; then
everything is healed and drained, and the checker looks at what everyone did and saw.
"""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from moldau.testing.broker import Broker
from moldau.testing.history.checker import assert_clean
from moldau.testing.history.saving import save
from support.paper import wait_until
from support.server import ServerProcess
from support.sizes import sized
from support.workload.consumers import Member, join
from support.workload.run import run
from support.workload.world import NUMBERS, PARTITIONS, World

pytestmark = [pytest.mark.system, pytest.mark.torture, pytest.mark.alone]

SECONDS = sized(20, 600)
FAULTS_LEAST = 3
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    # many segments, and those of the coordinators' own topics are compacted again and again
    "log.roll.ms": "1500",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.segment.delete.delay.ms": "100",
}


def test_no_anomaly_under_faults(tmp_path: Path) -> None:
    seed = int(os.environ.get("MOLDAU_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"seed {seed}: MOLDAU_SEED={seed} repeats the choices, not their moments")
    with ServerProcess(tmp_path / "data", settings=SETTINGS) as server:
        world = World(server.bootstrap, seed)
        try:
            nemesis = run(world, server, tmp_path, seconds=SECONDS, faults_least=FAULTS_LEAST)
        except BaseException as failure:
            failure.add_note(f"seed {seed}, history so far: {save(world.history, tmp_path / 'history.jsonl')}")
            failure.add_note("the server's last words:\n" + "".join(server.output[-30:]))
            raise
        assert nemesis.kills + nemesis.stops >= FAULTS_LEAST
        assert "Traceback" not in "".join(server.output)
        cleaned = (server.data / "cleaner-offset-checkpoint").read_text()
        assert "__consumer_offsets" in cleaned
        assert "__transaction_state" in cleaned
    assert_clean(world.history, tmp_path, f"(seed {seed})")


def test_a_member_closes_while_an_assignment_waits_for_it() -> None:
    """The library hands the assignment over from within `close`, and answers no question for offsets there."""
    with Broker() as broker:
        world = World(broker.bootstrap_servers, 0)
        admin = AdminClient(world.settings())
        admin.create_topics([NewTopic(NUMBERS, PARTITIONS, 1)])[NUMBERS].result(30)
        member = Member(world, "member", group="g", strategy="cooperative-sticky")
        reading = join(member, "member", [NUMBERS], "g", **member.settings)

        def assigned() -> bool:
            return bool(admin.describe_consumer_groups(["g"])["g"].result(10).state == ConsumerGroupState.STABLE)

        wait_until(assigned, "the group is stable")  # nothing polls, so that the assignment stays in the library's queue
        begun = time.monotonic()
        reading.end()
        assert time.monotonic() - begun < 30
