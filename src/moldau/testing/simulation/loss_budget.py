"""How many brokers may end without an orderly stop at a time, so that no acknowledged record can be lost.

A power cut takes what a broker has not synced. Others have it: a record is committed when at least as many replicas have it as
``min.insync.replicas`` says. So one broker less than that may have lost something at a time. A broker that was killed has lost nothing,
but nothing tells it from one that has, so it counts too, and so does one whose disk fails. A broker may have lost something from its end
until the controller has taken account of its next registration and it is in sync again in all its partitions.
"""

from moldau.testing.simulation.process import Host, Incarnation
from moldau.testing.simulation.tree import SimulatedTree
from moldau.testing.simulation.tree_view import incarnations, partitions_in, registration


class LossBudget:
    """See the module."""

    def __init__(self, tree: SimulatedTree, hosts: list[Host], most: int | None) -> None:
        """`most`: of brokers at a time; None where nothing is ever lost."""
        self._tree = tree
        self._numbers = {host.name: number for number, host in enumerate(hosts, 1)}
        self._most = most
        self._fallen: dict[str, Host] = {}
        """Brokers that may have lost something, or will."""
        self._failing: dict[str, Incarnation] = {}
        """Processes whose disks fail, or whose successors crash in their start: their hosts cannot recover for as long as they run."""

    def take(self, host: Host) -> bool:
        """Whether a broker may end now, or soon. It is counted from then on."""
        if self._most is None:
            return True
        self.refresh()
        if host.name not in self._fallen and len(self._fallen) >= self._most:
            return False
        self._fallen[host.name] = host
        return True

    def take_until_restart(self, process: Incarnation) -> bool:
        """The same for a broker that will have to start again before it can recover."""
        if not self.take(process.host):
            return False
        self._failing[process.host.name] = process
        return True

    def refresh(self) -> None:
        """Count those no more that have recovered."""
        for name in list(self._fallen):
            if self._has_recovered(self._fallen[name]):
                del self._fallen[name]

    def may_lack(self, host: Host) -> bool:
        """Whether its logs may lack committed records."""
        return host.name in self._fallen

    def _has_recovered(self, host: Host) -> bool:
        process, number = host.process, self._numbers[host.name]
        found = registration(self._tree, number)
        if process is None or process is self._failing.get(host.name) or process.crash_at >= 0:
            return False
        if found is None or found[1] != process.session.session_id:
            return False
        if incarnations(self._tree).get(number, found[0]) != found[0]:
            return False
        own = [partition for partition in partitions_in(self._tree) if number in partition.replicas]
        return all(partition.state is not None and number in partition.state.isr for partition in own)
