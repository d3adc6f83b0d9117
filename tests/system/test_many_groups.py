"""A thousand groups with a hundred thousand offsets are served within 3 s of a start after a kill, and nothing is lost; ten thousand
groups are listed within 100 ms; one connection commits 10,000 times a second.

The bounds are the real ones, not a share of them, on a machine of usual speed, which needs about half of each; a slower one gets more in
proportion (`support.pace`). Figures are printed (``pytest -s``).
"""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from moldau.protocol.codec import decode, encode
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest, ListGroupsResponse
from moldau.protocol.messages.group_members import JoinGroupRequest, JoinGroupRequestProtocol, SyncGroupRequest, SyncGroupRequestAssignment
from moldau.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from support import pace
from support.memberships import subscription
from support.server import ServerProcess
from support.wire import Wire

pytestmark = [pytest.mark.system, pytest.mark.alone]

GROUPS, PARTITIONS = 1000, 100
LISTED = 10_000
COMMITS = 20_000
AT_ONCE = 50
COMMIT_VERSION = 7


class Connected(NamedTuple):
    server: ServerProcess
    wire: Wire


def connect(server: ServerProcess) -> Wire:
    host, _, port = server.bootstrap.rpartition(":")
    return Wire((host, int(port)))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.max.session.timeout.ms": "10000000"}
    with ServerProcess(tmp_path_factory.mktemp("many-groups"), settings=settings) as server, closing(connect(server)) as wire:
        wire.ask(CreateTopicsRequest([CreatableTopic("t", PARTITIONS, 1)]), 5)
        wire.ask(FindCoordinatorRequest("any"), 2)
        yield Connected(server, wire)


def offset_of(group: int, partition: int) -> int:
    return group * 1000 + partition


def commit(group: int) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(index, offset_of(group, index), 0, f"of {group}") for index in range(PARTITIONS)]
    return OffsetCommitRequest(f"group-{group}", topics=[OffsetCommitRequestTopic("t", partitions=partitions)])


def join(wire: Wire, group: str) -> str:
    """Make a stable group with one member; its id."""
    protocols = [JoinGroupRequestProtocol("range", subscription("t"))]
    joined = wire.ask(JoinGroupRequest(group, 10_000_000, 60_000, protocol_type="consumer", protocols=protocols), 3)
    assignment = [SyncGroupRequestAssignment(joined.member_id, b"all")]
    assert wire.ask(SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=assignment), 2).error_code == 0
    return str(joined.member_id)


def test_a_start_after_a_kill_serves_a_thousand_groups_within_three_seconds_and_nothing_is_lost(running: Connected) -> None:
    server, wire = running
    for number in range(GROUPS):
        (topic,) = wire.ask(commit(number), COMMIT_VERSION).topics
        assert not any(each.error_code for each in topic.partitions)
    members = {f"group-{number}": join(wire, f"group-{number}") for number in range(0, GROUPS, 2)}
    wire.close()
    server.kill()
    begin = time.monotonic()
    server.start()
    with closing(connect(server)) as again:
        found: dict[str, dict[int, tuple[int, str]]] = {}
        waiting = [f"group-{number}" for number in range(GROUPS)]
        while waiting:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None) for group in waiting[:AT_ONCE]])
            for group in again.ask(request, 9).groups:
                if group.error_code:
                    assert group.error_code == 14  # COORDINATOR_LOAD_IN_PROGRESS
                    continue
                waiting.remove(group.group_id)
                ((topic),) = group.topics
                found[group.group_id] = {each.partition_index: (each.committed_offset, each.metadata) for each in topic.partitions}
        took_s = time.monotonic() - begin
        print(f"\n{GROUPS} groups with {GROUPS * PARTITIONS} offsets fetched {took_s:.2f} s after the start of the process")
        assert found == {
            f"group-{number}": {index: (offset_of(number, index), f"of {number}") for index in range(PARTITIONS)}
            for number in range(GROUPS)
        }
        assert took_s <= 3.0 * pace.slowness()
        described = again.ask(DescribeGroupsRequest(list(members)), 5).groups
        assert {each.group_id: (each.group_state, each.members[0].member_id) for each in described} == {
            group: ("Stable", member) for group, member in members.items()
        }


def pipelined(wire: Wire, frames: bytes, answer_bytes: int) -> None:
    """Send all frames, and take all answers meanwhile."""
    sender = threading.Thread(target=wire.socket.sendall, args=(frames,))
    sender.start()
    left = answer_bytes
    while left:
        left -= len(wire.socket.recv(1 << 20))
    sender.join()


def one_commit(group: str, number: int) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(number % PARTITIONS, number)]
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic("t", partitions=partitions)])


def test_ten_thousand_groups_are_listed_within_100_ms(running: Connected) -> None:
    with closing(connect(running.server)) as wire:
        answer = encode(wire.ask(one_commit("listed-0", 0), COMMIT_VERSION), COMMIT_VERSION)
        frames = b"".join(wire.frame(one_commit(f"listed-{number}", number), COMMIT_VERSION) for number in range(1, LISTED))
        pipelined(wire, frames, (8 + len(answer)) * (LISTED - 1))
        wire.due.clear()
        times_ms = []
        for _ in range(5):
            frame = wire.frame(ListGroupsRequest(), 4)
            wire.due.clear()
            begin = time.monotonic()
            wire.socket.sendall(frame)
            (size,) = struct.unpack(">i", wire.read(4))
            body = wire.read(size, 1 << 20)
            times_ms.append((time.monotonic() - begin) * 1000)
        groups = decode(ListGroupsResponse, 4, memoryview(body), 5).groups
        print(f"\n{len(groups)} groups listed in {sorted(times_ms)[2]:.0f} ms (median of 5)")
        assert {f"listed-{number}" for number in range(LISTED)} <= {each.group_id for each in groups}
        assert max(times_ms) <= 100 * pace.slowness(), times_ms


def test_one_connection_commits_ten_thousand_times_a_second(running: Connected) -> None:
    with closing(connect(running.server)) as wire:
        answer = encode(wire.ask(one_commit("fast", 0), COMMIT_VERSION), COMMIT_VERSION)
        took_s = []
        for _ in range(3):
            frames = b"".join(wire.frame(one_commit("fast", number), COMMIT_VERSION) for number in range(COMMITS))
            wire.due.clear()
            begin = time.monotonic()
            pipelined(wire, frames, (8 + len(answer)) * COMMITS)
            took_s.append(time.monotonic() - begin)
        rate = len(took_s) * COMMITS / sum(took_s)
        print(f"\n{rate:.0f} commits/s on one connection, pipelined (over {len(took_s)} runs)")
        assert rate >= 10_000 / pace.slowness(), took_s
