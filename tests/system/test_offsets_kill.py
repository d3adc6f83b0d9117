"""Committed offsets never go back and never vanish, however often the broker is killed (faults A11, A13, T3).

One connection commits rising offsets of several groups, many at a time, while the broker is killed with SIGKILL at random moments and
started again: 40 times with MOLDAU_TORTURE=1, 6 times otherwise. After each start every group must have what was acknowledged last, or
something that was sent after it.
"""

import contextlib
import random
import threading
from pathlib import Path

import pytest

from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from moldau.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from support.server import ServerProcess
from support.sizes import sized
from support.wire import Wire

pytestmark = [pytest.mark.system, pytest.mark.torture]

KILLS = sized(6, 40)
GROUPS = [f"group-{number}" for number in range(5)]
AT_ONCE = 20
LOADING = 14


class Committer:
    """Commits 1, 2, 3, ... of each group in turn, `AT_ONCE` requests at a time; knows what was sent and what was acknowledged."""

    def __init__(self) -> None:
        self.sent = dict.fromkeys(GROUPS, 0)
        self.acknowledged = dict.fromkeys(GROUPS, 0)
        self.refused: list[int] = []
        self._next = 0

    def run(self, wire: Wire) -> None:
        """Until the connection breaks."""
        while True:
            asked = []
            frames = bytearray()
            for _ in range(AT_ONCE):
                group = GROUPS[self._next % len(GROUPS)]
                self._next += 1
                self.sent[group] += 1
                asked.append((group, self.sent[group]))
                topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, self.sent[group])])
                frames += wire.frame(OffsetCommitRequest(group, topics=[topic]), 8)
            wire.socket.sendall(frames)
            for group, offset in asked:
                code = wire.answer().topics[0].partitions[0].error_code
                if code:
                    self.refused.append(code)
                else:
                    self.acknowledged[group] = offset


def connect(server: ServerProcess) -> Wire:
    host, _, port = server.bootstrap.rpartition(":")
    return Wire((host, int(port)))


def fetched(wire: Wire) -> dict[str, int]:
    """What each group has, as soon as the broker knows it; 0 if nothing."""
    found: dict[str, int] = {}
    while len(found) < len(GROUPS):
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None) for group in GROUPS])
        for group in wire.ask(request, 9).groups:
            assert group.error_code in (0, LOADING)
            if not group.error_code:
                found[group.group_id] = group.topics[0].partitions[0].committed_offset if group.topics else 0
    return found


def test_committed_offsets_survive_every_kill(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    committer = Committer()
    settings = {"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "1048576"}
    with ServerProcess(tmp_path, settings=settings) as server:
        wire = connect(server)
        wire.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 5)
        wire.ask(FindCoordinatorRequest("any"), 2)
        for _ in range(KILLS):
            killer = threading.Timer(chance.uniform(0.05, 0.4), server.kill)
            killer.start()
            with contextlib.suppress(AssertionError, ConnectionError):
                committer.run(wire)
            killer.join()
            wire.close()
            assert not server.running
            server.start()
            wire = connect(server)
            found = fetched(wire)
            for group in GROUPS:
                assert committer.acknowledged[group] <= found[group] <= committer.sent[group], group
            committer.sent |= found
        wire.close()
    print(f"{sum(committer.acknowledged.values())} commits acknowledged between {KILLS} kills")
    assert not committer.refused
    assert min(committer.acknowledged.values()) > KILLS
