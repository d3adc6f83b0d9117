"""What goes wrong with the processes of a mirror: they end, stand still, and are cut off.

In some runs each process has an instance name of its own, and all run beside each other. In the others there is one name, and one process:
a second one takes over while the first stands still. That one finds out that another has its name when it continues, and ends.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from moldau.testing.simulation.mirrors.process import MirrorHost
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.options import log_uniform
from moldau.testing.simulation.simulation import Simulation

MIRROR_FAULTS = ("mirror_kill", "mirror_pause", "mirror_cut")
DOWN_S = 0.01, 4.0
PAUSE_S = 0.05, 20.0
CUT_S = 0.05, 20.0
TAKEOVER_S = 0.01, 5.0
TURNS = 1, 300
"""A process ends or stands still after so many turns of its loop, which it makes while it has something to do."""


class MirrorFaults:
    """Adds its kinds to those of a nemesis."""

    def __init__(self, nemesis: Nemesis, hosts: Sequence[MirrorHost], clusters: Sequence[Simulation]) -> None:
        self._nemesis = nemesis
        self._hosts = hosts
        self._clusters = clusters
        self._network = clusters[0].network
        self._is_over = False
        nemesis.kinds |= {"mirror_kill": self._kill, "mirror_pause": self._pause, "mirror_cut": self._cut}
        nemesis.on_heal.append(self._heal)
        for host in hosts:
            host.may_start = self._may_start

    def begin(self) -> None:
        """Start what runs at first."""
        for host in self._hosts:
            if self._may_start(host):
                host.start()

    def _may_start(self, host: MirrorHost) -> bool:
        """Whether no other process of its instance runs."""
        return not any(other.process is not None and _has_name_of(other, host) for other in self._hosts)

    def _heal(self) -> None:
        self._is_over = True
        for host in self._hosts:
            for sender, receiver in self._links(host, self._clusters):
                self._network.unblock(sender, receiver)
            if host.process is not None and host.process.is_paused:
                host.schedule.resume(host.process.loop.group)
        self.begin()

    def _links(self, host: MirrorHost, clusters: Sequence[Simulation]) -> list[tuple[str, str]]:
        """Both ways between a process and the brokers of clusters."""
        brokers = [each.name for cluster in clusters for each in cluster.hosts]
        return [pair for broker in brokers for pair in ((host.name, broker), (broker, host.name))]

    def _strikes(self, random: Random, strike: Callable[[MirrorHost], object]) -> bool:
        """Do it to a process that runs: at once, or in the middle of what it does next."""
        running = [host for host in self._hosts if host.process is not None and not host.process.is_paused]
        if not running:
            return False
        host = random.choice(running)
        process = host.process
        assert process is not None, "it runs"

        def later() -> None:
            if not self._is_over and host.process is process:
                strike(host)

        if random.random() < 0.3:
            strike(host)
        else:
            process.loop.in_turns(int(log_uniform(random, *TURNS)), later)
        return True

    def _kill(self, random: Random) -> bool:
        down_s, silently = log_uniform(random, *DOWN_S), random.random() < 0.3

        def kill(host: MirrorHost) -> None:
            host.down_s = down_s
            host.end(silently=silently)

        return self._strikes(random, kill)

    def _pause(self, random: Random) -> bool:
        pause_s, takeover_s, is_taken_over = log_uniform(random, *PAUSE_S), log_uniform(random, *TAKEOVER_S), random.random() < 0.7

        def pause(host: MirrorHost) -> None:
            host.pause(pause_s)
            if is_taken_over:
                for other in self._hosts:
                    if other is not host and other.process is None and other.plan.mirror == host.plan.mirror:
                        self._nemesis.later(partial(self._take_over, other), takeover_s)

        return self._strikes(random, pause)

    def _take_over(self, host: MirrorHost) -> None:
        if not self._is_over:
            host.start()

    def _cut(self, random: Random) -> bool:
        """Cut a process off from a cluster, or from a broker of one, one way or both."""
        host, cluster = random.choice(self._hosts), random.choice(self._clusters)
        links = self._links(host, [cluster])
        if random.random() < 0.5:
            broker = random.choice(cluster.hosts).name
            links = [pair for pair in links if broker in pair]
        way = random.randrange(3)
        if way < 2:
            links = links[way::2]
        seconds = log_uniform(random, *CUT_S)
        for pair in links:
            self._network.block(*pair)
            self._nemesis.later(partial(self._network.unblock, *pair), seconds)
        return host.process is not None


def _has_name_of(one: MirrorHost, other: MirrorHost) -> bool:
    return (one.plan.mirror, one.plan.instance) == (other.plan.mirror, other.plan.instance)
