"""Starts the processes of a host again: each after a while, perhaps to crash in its start."""

from random import Random

from moldau.testing.simulation.options import log_uniform
from moldau.testing.simulation.process import Host, Incarnation

DOWN_S = 0.5
"""How long a process that ended without a fault of the script stays away."""


class HostKeeper:
    """Starts the process of a host again when one has ended."""

    def __init__(self, host: Host, *, may_cut_power: bool) -> None:
        self.host = host
        self.down_s = DOWN_S
        """How long the next one stays away."""
        self.is_over = False
        """Whether nothing goes wrong any more."""
        self.is_kept = True
        """Whether it is started again at all."""
        self.start_crash: tuple[int, bool] | None = None
        """The port call at which the next start crashes, and whether with the power."""
        self._may_cut_power = may_cut_power
        self._actor = host.schedule.actor("nemesis")
        host.on_ended.append(self._ended)

    def falls(self, random: Random) -> None:
        """The process is about to end: how long it stays away, and whether it crashes in its next start."""
        self.down_s = log_uniform(random, 0.01, 4.0)
        if random.random() < 0.2:
            self.start_crash = int(log_uniform(random, 1, 500)), random.random() < 0.5 and self._may_cut_power

    def heal(self) -> None:
        """From now on the process runs, and nothing of its host fails."""
        self.is_over = True
        self.down_s = 0.0
        self.start_crash = None
        host = self.host
        host.disk.make_room()
        host.disk.failing_syncs = 0
        host.disk.slowness = 1.0
        host.disk.failing = None
        if host.process is None:
            self.restart()
        else:
            host.process.crash_at = -1

    def restart(self) -> None:
        """Start a process, unless one runs."""
        if self.host.process is not None or not self.is_kept:
            return
        crash, self.start_crash = self.start_crash, None
        if crash is None:
            self.host.start()
        else:
            self.host.start(crash_at=crash[0], power_cut=crash[1])

    def _ended(self, _process: Incarnation) -> None:
        down_s, self.down_s = self.down_s, DOWN_S
        self.host.schedule.post(self._actor, self.restart, 0.01 if self.is_over else down_s)
