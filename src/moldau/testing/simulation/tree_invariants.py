"""What holds of every change of the coordination tree: who may write the state of a partition, and which states there may be."""

from collections.abc import Iterator, Sequence

from moldau.cluster import znodes
from moldau.cluster.znodes import PartitionState, TopicNode, decode_epoch, decode_state, decode_topic
from moldau.ports.coordination import Create, Delete, Multi, Request, SetData
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.process import Host
from moldau.testing.simulation.tree import SimulatedTree

Place = tuple[str, int]
"""Topic and index."""
_TOPICS = znodes.TOPICS + "/"


class TreeInvariants:
    """See the module."""

    def __init__(self, tree: SimulatedTree, hosts: Sequence[Host]) -> None:
        self.states: dict[Place, PartitionState] = {}
        """As they stand in the tree."""
        self.topic_ids: dict[str, bytes] = {}
        self._elections: dict[Place, list[tuple[int, float]]] = {}
        """Leader epochs, and when each began."""
        self._targets: dict[Place, tuple[int, ...]] = {}
        """Of partitions that are being reassigned: the replicas that shall remain."""
        self._arrived: dict[Place, None] = {}
        """Those of which all these were in sync at some time."""
        self.violations: list[str] = []
        """What was found; the change itself has happened within a call of a broker, which must not see an error."""
        self._tree = tree
        self._hosts = hosts
        tree.nodes.on_written.append(self._written)

    def over_since(self, place: Place, leader_epoch: int) -> float | None:
        """When a leader epoch of a partition ended, None if it is the newest."""
        later = (since for epoch, since in self._elections.get(place, ()) if epoch > leader_epoch)
        return next(later, None)

    def check(self) -> None:
        """Raise what was found."""
        if self.violations:
            raise InvariantError(self.violations[0])

    def _written(self, request: Request, session_id: int) -> None:
        for path, data in _writes(request):
            if not path.startswith(_TOPICS):
                continue
            name, _, rest = path.removeprefix(_TOPICS).partition("/")
            if rest.endswith("/state"):
                place = name, int(rest.split("/")[1])
                if data is None:
                    self.states.pop(place, None)
                    self._elections.pop(place, None)
                else:
                    self._take(place, decode_state(path, data), session_id)
            elif not rest and data is None:
                self.topic_ids.pop(name, None)
                self._targets = {place: target for place, target in self._targets.items() if place[0] != name}
            elif not rest and data is not None:
                self._take_topic(name, decode_topic(path, data))

    def _take_topic(self, name: str, node: TopicNode) -> None:
        self.topic_ids[name] = node.topic_id or b""
        for index, replicas in enumerate(node.replicas):
            place, removing = (name, index), node.removing.get(index, ())
            if removing or node.adding.get(index):
                target = tuple(each for each in replicas if each not in removing)
                if self._targets.get(place) != target:
                    self._targets[place] = target
                    self._arrived.pop(place, None)
                    self._note_arrival(place)
            elif self._targets.pop(place, None) == replicas and place not in self._arrived:
                self._fail(f"{name}-{index}: reassigned to {replicas}, of which not all were in sync")

    def _note_arrival(self, place: Place) -> None:
        target, state = self._targets.get(place), self.states.get(place)
        if target is not None and state is not None and all(each in state.isr for each in target):
            self._arrived[place] = None

    def _take(self, place: Place, state: PartitionState, session_id: int) -> None:
        name = f"{place[0]}-{place[1]}"
        before = self.states.get(place)
        self.states[place] = state
        self._note_arrival(place)
        if not state.isr:
            self._fail(f"{name}: the in-sync set is empty")
        if state.leader >= 0 and state.leader not in state.isr:
            self._fail(f"{name}: the leader {state.leader} is not in sync: {state.isr}")
        if before is not None and state.leader_epoch < before.leader_epoch:
            self._fail(f"{name}: leader epoch {state.leader_epoch} after {before.leader_epoch}")
        if before is None or state.leader_epoch > before.leader_epoch:
            self._elections.setdefault(place, []).append((state.leader_epoch, self._hosts[0].schedule.now))
            epoch = self._tree.get(znodes.CONTROLLER_EPOCH)
            if epoch is None or decode_epoch(znodes.CONTROLLER_EPOCH, epoch.data) != state.controller_epoch:
                self._fail(f"{name}: written by controller epoch {state.controller_epoch}, which is not the newest")
        elif state.leader != before.leader:
            self._fail(f"{name}: leader {state.leader} after {before.leader} in epoch {state.leader_epoch}")
        elif self._writer(session_id) not in (state.leader, None):
            self._fail(f"{name}: broker {self._writer(session_id)} has changed the in-sync set of leader {state.leader}")

    def _writer(self, session_id: int) -> int | None:
        for number, host in enumerate(self._hosts, 1):
            if host.process is not None and host.process.session.session_id == session_id:
                return number
        return None

    def _fail(self, what: str) -> None:
        self.violations.append(what)


def _writes(request: Request) -> Iterator[tuple[str, bytes | None]]:
    """Paths that a request has written, with their data; None for a deletion."""
    match request:
        case Create(path, data):
            yield path, data
        case SetData(path, data):
            yield path, data
        case Delete(path):
            yield path, None
        case Multi(writes):
            for write in writes:
                if isinstance(write, Create | SetData | Delete):
                    yield from _writes(write)
