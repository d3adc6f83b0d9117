"""An hour under attack: other clients wait half a second at most, nothing is lost, memory stays below 300 MB, and SIGTERM ends it in time.

Attacks of every kind (`support.attacks`) follow one another against a broker with its registry: an hour in random order in `make torture`,
each of them once in the order in which they are written otherwise. A well-behaved client in a process of its own (`support.good_client`)
produces and fetches all the time.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.attacks import ATTACKS, Target
from support.server import ServerProcess
from support.sizes import TORTURE

pytestmark = [pytest.mark.system, pytest.mark.torture, pytest.mark.alone]

HOUR_S = 3_600.0
STALL_LIMIT_S = 0.5
MEMORY_LIMIT_BYTES = 300_000_000
STOP_LIMIT_S = 10.0
LINE_MAX = 5_000
"""Characters of a line in the log."""
REGISTRY_LINE = "schema registry listening on "


class GoodClient:
    """The process of the well-behaved client."""

    def __init__(self, address: tuple[str, int]) -> None:
        command = [sys.executable, "-m", "support.good_client", address[0], str(address[1])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def is_served(self) -> bool:
        """Whether it has found nothing wrong so far."""
        return self._process.poll() is None

    def report(self) -> dict[str, float]:
        """What it has seen; it ends."""
        out, _ = self._process.communicate("", timeout=120)
        assert self._process.returncode == 0, f"the well-behaved client was not served: {self._process.returncode}"
        found: dict[str, float] = json.loads(out)
        return found


def registry_url(server: ServerProcess) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for line in server.output:
            if line.startswith(REGISTRY_LINE):
                return line.removeprefix(REGISTRY_LINE).strip()
        time.sleep(0.02)
    raise AssertionError("the registry does not listen")


def test_others_are_served_throughout(tmp_path: Path) -> None:
    seed = int(os.environ.get("MOLDAU_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"\nseed {seed}")
    choice = random.Random(seed)
    server = ServerProcess(tmp_path / "data", arguments=["--registry", "127.0.0.1:0"])
    server.start()
    host, _, port = server.bootstrap.rpartition(":")
    target = Target((host, int(port)), registry_url(server))
    begun = time.monotonic()
    longest: dict[str, float] = {}
    lost = served = rounds = 0
    try:
        while rounds == 0 or (TORTURE and time.monotonic() - begun < HOUR_S):
            for name in choice.sample(sorted(ATTACKS), len(ATTACKS)) if TORTURE else ATTACKS:
                good = GoodClient(target.address)
                ATTACKS[name](target, choice)
                assert server.running, server.output[-20:]
                seen = good.report()
                waited_ms, peak_mb = seen["longest_s"] * 1000, server.peak_bytes() / 1e6
                print(f"{name}: others waited {waited_ms:.0f} ms at most; memory so far {peak_mb:.0f} MB at most", flush=True)
                longest[name] = max(longest.get(name, 0.0), seen["longest_s"])
                lost += int(seen["lost"])
                served += int(seen["served"])
            rounds += 1
        peak = server.peak_bytes()
        asked = time.monotonic()
        code = server.stop()
        stop_s = time.monotonic() - asked
    finally:
        if server.running:
            server.kill()
    print(f"{rounds} rounds of {len(ATTACKS)} attacks; others: {served} requests, {max(longest.values()):.3f} s at most, {lost} lost")
    print(f"memory {peak / 1e6:.0f} MB at most; stopped in {stop_s:.1f} s")
    assert (code, lost) == (0, 0)
    assert max(longest.values()) <= STALL_LIMIT_S, longest
    assert peak <= MEMORY_LIMIT_BYTES
    assert stop_s <= STOP_LIMIT_S
    assert not [line for line in server.output if "Traceback" in line or "by a bug" in line]
    assert all(line.rstrip("\n").isprintable() and len(line) < LINE_MAX and " error forged" not in line[:60] for line in server.output)
