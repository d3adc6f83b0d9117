"""Faults that need several brokers: cuts between them, sessions that expire, a controller that ends, restarts of one after the other.

And disks that fail: not more at a time than replicas can make up for.
"""

from functools import partial
from random import Random

from moldau.cluster import znodes
from moldau.testing.simulation.host_keeper import HostKeeper
from moldau.testing.simulation.loss_budget import LossBudget
from moldau.testing.simulation.nemesis import Nemesis
from moldau.testing.simulation.options import log_uniform
from moldau.testing.simulation.process import Incarnation
from moldau.testing.simulation.tree import SimulatedTree

CUT_S = 0.05, 20.0
"""How long a cut lasts."""
LATE_S = 0.01, 5.0
"""How late the tree's answers and events may be."""
AGAIN_S = 0.1


class ClusterFaults:
    """Adds its kinds to those of a nemesis, and takes the place of those that concern sessions and failing disks."""

    def __init__(self, nemesis: Nemesis, tree: SimulatedTree, budget: LossBudget) -> None:
        self._nemesis = nemesis
        self._tree = tree
        self._budget = budget
        self._failing: list[Incarnation] = []
        """Processes whose disks fail, until they end."""
        self._network = nemesis.keepers[0].host.network
        self._is_rolling = False
        nemesis.kinds |= {
            "cut_link": self._cut_link,
            "isolate": self._isolate,
            "late_tree": self._late_tree,
            "refuse_write": self._refuse_write,
            "kill_controller": self._kill_controller,
            "roll": self._roll,
            "expire_session": self._expire_session,
            "fail_sync": self._fail_sync,
            "fail_directory": self._fail_directory,
        }
        for keeper in nemesis.keepers:
            keeper.host.on_ended.append(self._ended)
        nemesis.on_heal.append(self._heal)

    def _heal(self) -> None:
        self._is_rolling = False
        for process in list(self._failing):
            self._end(process)
        names = [keeper.host.name for keeper in self._nemesis.keepers]
        for sender in names:
            for receiver in names:
                self._network.unblock(sender, receiver)
        for keeper in self._nemesis.keepers:
            if keeper.host.process is not None:
                keeper.host.process.session.late_s = 0.0
                keeper.host.process.session.refused_writes = 0

    def _cut_link(self, random: Random) -> bool:
        """Cut two brokers off from each other, or one from the other."""
        one, two = (keeper.host.name for keeper in random.sample(self._nemesis.keepers, 2))
        self._cut([(one, two)] if random.random() < 0.5 else [(one, two), (two, one)], random)
        return True

    def _isolate(self, random: Random) -> bool:
        """Cut a broker off from all others, one way or both, and perhaps from the tree; clients reach it."""
        keeper = self._nemesis.keeper(random)
        name = keeper.host.name
        others = [other.host.name for other in self._nemesis.keepers if other is not keeper]
        away, towards = [(name, other) for other in others], [(other, name) for other in others]
        seconds = self._cut(random.choice((away, towards, away + towards)), random)
        process = keeper.host.process
        if process is not None and random.random() < 0.5:
            self._tree.away_s = seconds
            process.session.suspend()
        return True

    def _cut(self, pairs: list[tuple[str, str]], random: Random) -> float:
        seconds = log_uniform(random, *CUT_S)
        for pair in pairs:
            self._network.block(*pair)
            self._nemesis.later(partial(self._network.unblock, *pair), seconds)
        return seconds

    def _late_tree(self, random: Random) -> bool:
        """Have answers and events of the tree reach a broker late."""
        process = self._nemesis.keeper(random).host.process
        if process is None:
            return False
        session = process.session
        session.late_s = log_uniform(random, *LATE_S)
        self._nemesis.later(lambda: setattr(session, "late_s", 0.0), log_uniform(random, *CUT_S))
        return True

    def _refuse_write(self, random: Random) -> bool:
        """Have the next writes of a broker to the tree fail, with no effect."""
        process = self._nemesis.keeper(random).host.process
        if process is None or not process.is_serving:
            return False
        process.session.refused_writes = random.choice((1, 1, 3))
        return True

    def _expire_session(self, random: Random) -> bool:
        """Cut a broker off from the tree, and from nothing else, until its session has expired."""
        process = self._nemesis.keeper(random).host.process
        if process is None:
            return False
        self._tree.away_s = self._tree.session_s * log_uniform(random, 0.4, 3.0)
        process.session.suspend()
        return True

    def _kill_controller(self, random: Random) -> bool:
        """End the controller's process, now or in the middle of what it does next."""
        node = self._tree.get(znodes.CONTROLLER)
        if node is None:
            return False
        number = znodes.decode_controller(znodes.CONTROLLER, node.data)
        keeper = self._nemesis.keepers[number - 1]
        process = keeper.host.process
        if process is None or not self._nemesis.falls(keeper, random):
            return False
        if random.random() < 0.3:
            keeper.host.kill()
        else:
            process.crash_at = process.port_calls + int(log_uniform(random, 1, 100))
        return True

    def _roll(self, random: Random) -> bool:
        """Stop one broker after the other, each when the one before serves again."""
        if self._is_rolling:
            return False
        self._is_rolling = True
        self._roll_on([*self._nemesis.keepers], random)
        return True

    def _roll_on(self, left: list[HostKeeper], random: Random) -> None:
        if not self._is_rolling or not left:
            self._is_rolling = False
            return
        processes = [keeper.host.process for keeper in self._nemesis.keepers]
        process = left[0].host.process
        if process is not None and all(each is not None and each.is_serving for each in processes) and self._nemesis.may_stop(process):
            left.pop(0).down_s = log_uniform(random, 0.01, 2.0)
            process.stop()
        self._nemesis.later(partial(self._roll_on, left, random), AGAIN_S)

    def _fail_sync(self, random: Random) -> bool:
        """Have syncs of a broker fail. It starts again after a while: it uses a failed directory no more."""
        process = self._fails(random)
        if process is not None:
            process.host.disk.failing_syncs = random.choice((1, 1, 3))
        return process is not None

    def _fail_directory(self, random: Random) -> bool:
        """Have nothing work in a log directory of a broker until it starts again."""
        process = self._fails(random)
        if process is not None:
            process.host.disk.failing = random.choice(process.host.directories)
        return process is not None

    def _fails(self, random: Random) -> Incarnation | None:
        """The process whose disk is about to fail, if there may be one."""
        process = self._nemesis.keeper(random).host.process
        if process is None or process in self._failing or not self._budget.take_until_restart(process):
            return None
        self._failing.append(process)
        self._nemesis.later(partial(self._end, process), log_uniform(random, 0.1, 10.0))
        return process

    def _end(self, process: Incarnation) -> None:
        if process.host.process is process:
            process.host.kill()

    def _ended(self, process: Incarnation) -> None:
        """The disk works for the next process."""
        if process in self._failing:
            self._failing.remove(process)
            process.host.disk.failing, process.host.disk.failing_syncs = None, 0
