"""Consumer groups, Moldau and Apache Kafka in one run: how soon a new group reads, and how long a rebalance of 20 members takes.

    python benchmarks/groups.py [--runs 5] [--out FILE]

* *first record*: from `subscribe` of the only member of a new group to its first record, confluent-kafka with its defaults. Beside Kafka as
  it is shipped (it waits three seconds for further members) and beside Kafka told not to wait (`group.initial.rebalance.delay.ms=0`).
* *rebalance*: 20 members over raw connections: from the JoinGroup of the first, over the heartbeats by which the others learn of it and
  their own JoinGroup, to the last answer to SyncGroup. Clients wait an interval of their own between two heartbeats; that is left out.
"""

import argparse
import contextlib
import tempfile
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, Producer

from measure import Results, spread
from moldau.client.connection import BrokerConnection
from moldau.model.errors import ErrorCode
from moldau.model.host_port import parse_addresses
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from systems import BEFORE, System, kafka, moldau

MEMBERS = 20
REBALANCES = 10
LIMIT_S = 30.0
TOPIC = "first-record"
SHIPPED, AT_ONCE = "kafka as shipped", "kafka without delay"


def first_record_s(system: System) -> float:
    """From the subscription of a new group's only member to its first record."""
    settings = {"bootstrap.servers": system.bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        begun = time.monotonic()
        consumer.subscribe([TOPIC])
        while time.monotonic() - begun < LIMIT_S:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                return time.monotonic() - begun
    finally:
        consumer.close()
    raise SystemExit(f"{system.name}: no record after {LIMIT_S} s")


class Member:
    """One member of a group, over a connection of its own."""

    def __init__(self, system: System, group: str) -> None:
        [address] = parse_addresses(system.bootstrap)
        self.connection = BrokerConnection(address.host, address.port, client_id="bench", timeout_s=LIMIT_S)
        self.group = group
        self.member_id = ""
        self.generation = -1

    def await_rebalance(self) -> None:
        """Heartbeat until told that the group rebalances."""
        beat = HeartbeatRequest(self.group, self.generation, self.member_id)
        while (code := self.connection.request(ApiKey.HEARTBEAT, beat).error_code) != ErrorCode.REBALANCE_IN_PROGRESS:
            if code != ErrorCode.NONE:
                raise SystemExit(f"Heartbeat: error {code}")

    def join(self) -> JoinGroupRequest:
        """The request to join, or to join again."""
        return JoinGroupRequest(
            self.group,
            30_000,
            60_000,
            self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        )


def rebalance(members: list[Member]) -> float:
    """All join, the first of them such that the group has to rebalance, the leader hands out, all are told: seconds."""
    begun = time.monotonic()
    pending = [members[0].connection.send(ApiKey.JOIN_GROUP, members[0].join())]
    for member in members[1:]:
        member.await_rebalance()
        pending.append(member.connection.send(ApiKey.JOIN_GROUP, member.join()))
    joined = [member.connection.receive(waiting) for member, waiting in zip(members, pending, strict=True)]
    for answer in joined:
        if answer.error_code != ErrorCode.NONE:
            raise SystemExit(f"JoinGroup: error {answer.error_code}")
    waiting_for_sync = []
    for member, answer in zip(members, joined, strict=True):
        member.generation = answer.generation_id
        handed_out = (
            [SyncGroupRequestAssignment(each.member_id, b"part") for each in answer.members] if answer.leader == member.member_id else []
        )
        request = SyncGroupRequest(
            member.group,
            answer.generation_id,
            member.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=handed_out,
        )
        waiting_for_sync.append(member.connection.send(ApiKey.SYNC_GROUP, request))
    for member, waiting in zip(members, waiting_for_sync, strict=True):
        synced = member.connection.receive(waiting)
        if synced.error_code != ErrorCode.NONE or synced.assignment != b"part":
            raise SystemExit(f"SyncGroup: error {synced.error_code}")
    return time.monotonic() - begun


def rebalances(system: System) -> list[float]:
    """Several rebalances of one group, seconds each."""
    group = uuid.uuid4().hex
    members = [Member(system, group) for _ in range(MEMBERS)]
    members[0].connection.request(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[group]))
    for count, member in enumerate(members):  # a new member is given its id first (KIP-394), and those that are there join again
        member.member_id = member.connection.request(ApiKey.JOIN_GROUP, member.join()).member_id
        rebalance([member, *members[:count]])
    durations = [rebalance(members) for _ in range(REBALANCES)]
    for member in members:
        member.connection.close()
    return durations


def main() -> None:
    """All systems in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="Moldau of another checkout in Kafka's place")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    first: dict[str, list[float]] = {}
    rounds: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moldau-bench-")))
        systems = {"moldau": stack.enter_context(moldau(folder / "moldau"))}
        if given.before is not None:
            systems[BEFORE] = stack.enter_context(moldau(folder / "before", checkout=given.before))
        else:
            systems[SHIPPED] = stack.enter_context(kafka(folder / "kafka"))
            systems[AT_ONCE] = stack.enter_context(kafka(folder / "kafka-0", {"group.initial.rebalance.delay.ms": "0"}))
        for system in systems.values():
            producer = Producer({"bootstrap.servers": system.bootstrap, "log_level": 0})
            producer.produce(TOPIC, b"x" * 200)
            if producer.flush(LIMIT_S):
                raise SystemExit(f"{system.name}: the record was not taken")
            first_record_s(system)  # the offsets topic is there from now on
        for run in range(given.runs):
            for name, system in systems.items():
                seconds = first_record_s(system)
                first.setdefault(name, []).append(seconds)
                results.write(system=name, test="first record", run=run, seconds=round(seconds, 4))
                if name != SHIPPED:
                    durations = rebalances(system)
                    rounds.setdefault(name, []).extend(durations)
                    results.write(system=name, test="rebalance", run=run, ms=spread([1000 * each for each in durations]))
    for name in first:
        results.write(system=name, test="first record", summary=True, seconds=spread(first[name]))
    for name in rounds:
        results.write(system=name, test="rebalance", summary=True, ms=spread([1000 * each for each in rounds[name]]))


if __name__ == "__main__":
    main()
