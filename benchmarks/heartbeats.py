"""What heartbeats cost: 1,000 groups of 5 members, each over a connection of its own, that say every 3 seconds that they live.

    python benchmarks/heartbeats.py [--groups 1000] [--members 5] [--interval 3] [--seconds 15] [--runs 3] [--out FILE]

The broker's processor time as a share of one core (the bound is 25 %), and how long answers take. Moldau alone. The members join and sync
as real ones do, all at once: 5,000 JoinGroup, 5,000 SyncGroup and 1,000 appended assignments are the time to form the groups. Where fewer
files may be open there are fewer groups.
"""

import argparse
import resource
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from measure import Results, cpu_seconds, load_average, resident_mb, spread
from moldau.model.host_port import parse_host_port
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from moldau.protocol.headers import decode_response_header, request_header
from moldau.protocol.messages import load
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from support.server import ServerProcess

JOIN, SYNC = (import_module(load(key).request.__module__) for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
"""Modules of messages by what is in them: their names are not the same in each checkout that `pairs.py` measures."""
HeartbeatRequest = load(ApiKey.HEARTBEAT).request
VERSIONS = {ApiKey.FIND_COORDINATOR: 2, ApiKey.JOIN_GROUP: 3, ApiKey.SYNC_GROUP: 3, ApiKey.HEARTBEAT: 4}
GATHER_MS = 2000
"""New groups wait so long for all of their members."""
SUBSCRIPTION = struct.pack(">hih", 0, 1, 6) + b"events" + struct.pack(">i", -1)
FILES_SPARE = 200
ERROR_CODE = slice(-3, -1)
"""Where a heartbeat's answer has it: before the tags."""


class Member:
    """One member on its own connection; requests and answers go one at a time."""

    def __init__(self, address: tuple[str, int], group: str) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.asked = ApiKey.HEARTBEAT
        self.member_id = ""
        self.heartbeat = b""

    def frame(self, request: Any, api_key: ApiKey) -> bytes:
        """A request's bytes."""
        payload = request_header(api_key, VERSIONS[api_key], 1, "bench") + encode(request, VERSIONS[api_key])
        return struct.pack(">i", len(payload)) + payload

    def send(self, request: Any, api_key: ApiKey) -> None:
        """Ask."""
        self.asked = api_key
        self.socket.sendall(self.frame(request, api_key))

    def receive(self) -> Any:
        """The answer, decoded."""
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        _, position = decode_response_header(frame, self.asked, VERSIONS[self.asked])
        return decode(load(self.asked).response, VERSIONS[self.asked], frame, position)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise SystemExit("the broker has closed a connection")
            data += more
        return data


def form_groups(members: Sequence[Member]) -> None:
    """Have all join and sync."""
    members[0].send(FindCoordinatorRequest("any"), ApiKey.FIND_COORDINATOR)
    members[0].receive()
    for member in members:
        protocols = [JOIN.JoinGroupRequestProtocol("range", SUBSCRIPTION)]
        request = JOIN.JoinGroupRequest(member.group, 45_000, 60_000, protocol_type="consumer", protocols=protocols)
        member.send(request, ApiKey.JOIN_GROUP)
    joined = [member.receive() for member in members]
    for member, answer in zip(members, joined, strict=True):
        if answer.error_code:
            raise SystemExit(f"{member.group}: JoinGroup was answered {answer.error_code}")
        member.member_id = answer.member_id
        given = [SYNC.SyncGroupRequestAssignment(each.member_id, SUBSCRIPTION) for each in answer.members]
        member.send(SYNC.SyncGroupRequest(member.group, answer.generation_id, member.member_id, assignments=given), ApiKey.SYNC_GROUP)
        member.heartbeat = member.frame(HeartbeatRequest(member.group, answer.generation_id, member.member_id), ApiKey.HEARTBEAT)
    for member in members:
        if member.receive().error_code:
            raise SystemExit(f"{member.group}: SyncGroup failed")


def beat(members: Sequence[Member], interval_s: float, seconds: float) -> list[float]:
    """Send each member's heartbeat once per interval, evenly; how long the answers took."""
    poll = select.epoll()
    by_file = {member.socket.fileno(): index for index, member in enumerate(members)}
    for file in by_file:
        poll.register(file, select.EPOLLIN)
    sent_at = [0.0] * len(members)
    took: list[float] = []
    begun = time.monotonic()
    sent, total = 0, round(seconds / interval_s * len(members))
    per_second = len(members) / interval_s
    while len(took) < total:
        now = time.monotonic()
        due = min(round((now - begun) * per_second), total)
        while sent < due:
            index = sent % len(members)
            sent_at[index] = time.monotonic()
            members[index].socket.send(members[index].heartbeat)
            sent += 1
        for file, _ in poll.poll(0.002):
            index = by_file[file]
            answer = members[index].socket.recv(4096)
            took.append(time.monotonic() - sent_at[index])
            if any(answer[ERROR_CODE]):
                raise SystemExit(f"{members[index].group}: a heartbeat was answered {answer[ERROR_CODE].hex()}")
    poll.close()
    return took


def main() -> None:
    """Form the groups once; measure several times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--interval", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = Results(given.out)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    allowed = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    groups = min(given.groups, (allowed - FILES_SPARE) // given.members)
    needed = groups * given.members + FILES_SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    settings = {"group.initial.rebalance.delay.ms": str(GATHER_MS), "max.connections": str(needed)}
    with tempfile.TemporaryDirectory() as folder, ServerProcess(Path(folder) / "data", settings=settings) as server:
        idle_mb = resident_mb(server.pid)
        address = parse_host_port(server.bootstrap)
        members = [Member(address, f"group-{number}") for number in range(groups) for _ in range(given.members)]
        begun = time.monotonic()
        form_groups(members)
        results.write(
            system="moldau",
            test="heartbeats",
            phase="groups formed",
            seconds=round(time.monotonic() - begun - GATHER_MS / 1000, 2),
            idle_mb=idle_mb,
            rss_mb=resident_mb(server.pid),
        )
        rows: list[dict[str, float]] = []
        for run in range(given.runs):
            load, before, begun = load_average(), cpu_seconds(server.pid), time.monotonic()
            took = sorted(beat(members, given.interval, given.seconds))
            wall, cpu = time.monotonic() - begun, cpu_seconds(server.pid) - before
            row = {
                "core_percent": round(cpu / wall * 100, 1),
                "us_per_heartbeat": round(cpu / len(took) * 1e6, 1),
                "p99_ms": round(took[len(took) * 99 // 100] * 1000, 2),
            }
            rows.append(row)
            results.write(system="moldau", test="heartbeats", run=run, heartbeats=len(took), load=load, **row)
        summary = {name: spread([row[name] for row in rows]) for name in rows[0]}
        results.write(system="moldau", test="heartbeats", summary=True, groups=groups, members=given.members, **summary)
        for member in members:
            member.socket.close()


if __name__ == "__main__":
    main()
