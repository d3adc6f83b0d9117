"""What is done to the broker: killed and started again, stopped and continued."""

import os
import signal
import time
from typing import Protocol

from support.workload.world import Worker, World


class Server(Protocol):
    """A broker in a process of its own."""

    @property
    def pid(self) -> int:
        """Of the process that runs now."""

    def start(self) -> None:
        """Start it on the same port and data; return when it listens."""

    def kill(self) -> None:
        """SIGKILL."""


class Nemesis(Worker):
    """One fault after another, at moments of chance; the last one is healed before it ends."""

    def __init__(self, world: World, server: Server, *, calm_s: tuple[float, float]) -> None:
        super().__init__(world, "nemesis")
        self.server = server
        self.calm_s = calm_s
        self.kills = 0
        self.stops = 0

    def live(self, name: str) -> None:
        if self.stopping.wait(self.random.uniform(*self.calm_s)):
            return
        if self.random.random() < 0.6:
            self.kills += 1
            outage = self.history.outage("killed")
            self.server.kill()
            time.sleep(self.random.choice((0, 0, 0.5, 2)))
            self.server.start()
        else:
            self.stops += 1
            outage = self.history.outage("stopped")
            os.kill(self.server.pid, signal.SIGSTOP)
            time.sleep(self.random.choice((0.1, 1, 3, 9)))
            os.kill(self.server.pid, signal.SIGCONT)
        self.history.healed(outage)
