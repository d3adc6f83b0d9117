"""Two network namespaces with a slow link between them (`slow_link.c`): a far one, and a near one, which this process enters. As root."""

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load import build

NEAR_ADDRESS, FAR_ADDRESS, DEVICE = "10.77.0.1", "10.77.0.2", "wan"
QUEUE_PACKETS = 5_000
_CLONE_NEWNET = 0x40000000
_SENDER = """
import socket, sys
listening = socket.create_server((sys.argv[1], 0))
print(listening.getsockname()[1], flush=True)
made = [listening.accept()[0] for _ in range(int(sys.argv[2]))]
import threading
def send(made):
    block = bytes(1 << 18)
    try:
        while True:
            made.sendall(block)
    except OSError:
        pass
for each in made:
    threading.Thread(target=send, args=(each,)).start()
"""


@dataclass(frozen=True, slots=True)
class SlowLink:
    """What the link does, each way."""

    delay_ms: float
    loss_percent: float
    mbit_s: float
    congestion: str
    """The congestion control of both sides' TCP."""

    @property
    def queue_ms(self) -> float:
        """How long a packet waits at most: a round trip."""
        return 2 * self.delay_ms


class SlowNetwork:
    """The namespaces. Made by `slow_network`."""

    def __init__(self, link: SlowLink, near: str, far: str) -> None:
        self.link = link
        self.near = near
        self.within_far = ("ip", "netns", "exec", far)
        """What runs a command in the far namespace."""

    def tcp_share(self, connections: int, seconds: float) -> float:
        """The part of the link that so many bare TCP connections fill, from the far side to the near one."""
        command = [*self.within_far, sys.executable, "-c", _SENDER, FAR_ADDRESS, str(connections)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender, contextlib.ExitStack() as stack:
            assert sender.stdout is not None
            address = FAR_ADDRESS, int(sender.stdout.readline())
            made = [stack.enter_context(socket.create_connection(address)) for _ in range(connections)]
            for each in made:
                each.setblocking(False)
            received, begun = 0, time.monotonic()
            while (passed := time.monotonic() - begun) < seconds:
                for each in made:
                    with contextlib.suppress(BlockingIOError):
                        received += len(each.recv(1 << 20))
                time.sleep(0.001)
            sender.kill()
        return received * 8 / passed / (self.link.mbit_s * 1e6)


@contextlib.contextmanager
def slow_network(link: SlowLink, programs: Path) -> Iterator[SlowNetwork]:
    """Make them, and move this process into the near one for good. At the end what the link carried is printed to stderr."""
    if os.geteuid():
        raise SystemExit("network namespaces need root")
    program = build(programs, "slow_link")
    near, far = (f"moldau-{side}-{os.getpid()}" for side in ("near", "far"))
    with contextlib.ExitStack() as stack:
        for name in (near, far):
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
        carrying = stack.enter_context(_carrying(program, link, near, far))
        for name, address in ((near, NEAR_ADDRESS), (far, FAR_ADDRESS)):
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
            _run("ip", "-n", name, "link", "set", "dev", DEVICE, "up", "txqueuelen", str(QUEUE_PACKETS))
            _run("ip", "-n", name, "link", "set", "dev", "lo", "up")
            _run("ip", "netns", "exec", name, "sysctl", "-q", "-w", f"net.ipv4.tcp_congestion_control={link.congestion}")
        _enter(near)
        yield SlowNetwork(link, near, far)
        carrying.terminate()
        ways: list[dict[str, Any]] = json.loads(carrying.communicate(timeout=10)[0])
        print(
            *(f"{way}: {figures}" for way, figures in zip(("to the far side", "to the near side"), ways, strict=True)),
            sep="\n",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _carrying(program: Path, link: SlowLink, near: str, far: str) -> "Iterator[subprocess.Popen[str]]":
    numbers = (link.delay_ms, link.loss_percent, link.mbit_s, link.queue_ms)
    with subprocess.Popen([str(program), near, far, *map(str, numbers)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise SystemExit("the link was not made; does this kernel have TUN?")
            yield process
        finally:
            process.terminate()


def _enter(namespace: str) -> None:
    """Move this thread, which is the only one, and what it starts."""
    library = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{namespace}", "rb") as file:
        if library.setns(file.fileno(), _CLONE_NEWNET):
            raise SystemExit(f"{namespace}: {os.strerror(ctypes.get_errno())}")


def _run(*command: str) -> None:
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
