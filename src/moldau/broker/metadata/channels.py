"""The way of what the controller sends to other brokers.

A channel leads to one incarnation of a broker. One request is out at a time, and repeated until it is answered. What comes meanwhile waits
in its order, in entries of at most a hundred partitions or one topic; a statement about a partition, a topic or a deletion replaces an
earlier one that still waits, at the place of the later: so a broker that hangs makes at most as much wait as there are partitions and
topics. The order of what is left is that in which it came, so a partition is never stopped after it was led again.

Each request has a later number than those before it: one that timed out may still reach the broker, by the connection that was given up,
after others; the broker then refuses it.

The list of all topics that exist comes after what is sent of these, and before what is sent later: by it the broker removes what it has
missed, and takes its metadata for complete. So nothing that comes later replaces what is sent of topics before the list.

An incarnation that is not registered any more gets nothing: what waited for it is answered `is_stale`, as is what a broker refuses.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, assert_never

from moldau.broker.metadata.control_messages import VERSIONS, reply_of, request_of
from moldau.broker.peers.connection import PeerCallError
from moldau.cluster.control import (
    AssignedTopic,
    Control,
    ControlReply,
    LeaderAndIsr,
    LedPartition,
    StoppedTopic,
    StopReplica,
    UpdateMetadata,
)
from moldau.cluster.snapshot import TopicInfo
from moldau.model.errors import PeerError

if TYPE_CHECKING:
    from moldau.broker.peers.connection import PeerConnection
    from moldau.broker.peers.connections import Connect
    from moldau.cluster.queries import LiveBroker
    from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

PARTITIONS_MAX = 100
"""Of one request. What is not divided: a topic of more in UpdateMetadata, and the list of all topics, which has a request of its own."""
TIMEOUT_S = 30.0
AGAIN_S = 1.0
"""After this time a request is repeated that the peer has no version for."""
CALLERS_MAX = 10_000
"""Whose replies one channel has outstanding; the oldest get one that says nothing."""
Done = Callable[[ControlReply], object]
_EVERYTHING = ("everything",)
"""What the statement is about that names all topics."""


class Channels:
    """See the module."""

    def __init__(
        self,
        controller_id: int,
        connect: "Connect",
        clock: "Clock",
    ) -> None:
        """`connect` makes connections to brokers."""
        self._controller_id = controller_id
        self._connect = connect
        self._clock = clock
        self._channels: dict[tuple[int, int], Channel] = {}

    def send(self, broker: "LiveBroker", control: Control, done: Done) -> None:
        """Send to an incarnation of a broker; `done` with its reply."""
        key = broker.info.broker_id, broker.epoch
        channel = self._channels.get(key)
        if channel is None:
            connection = self._connect(broker.info, "controller")
            channel = self._channels[key] = Channel(self._controller_id, broker.epoch, connection, self._clock)
        channel.send(control, done)

    def keep(self, live: Mapping[int, int]) -> None:
        """These incarnations are registered: end the channels to others."""
        for broker_id, epoch in list(self._channels):
            if live.get(broker_id) != epoch:
                self._channels.pop((broker_id, epoch)).close()

    def close(self) -> None:
        """End all channels."""
        self.keep({})

    def statistics(self) -> dict[str, int]:
        """How much waits."""
        return {"control_statements_waiting": sum(channel.waiting for channel in self._channels.values())}


class _Caller:
    """The sender of one `Control`, which is divided among entries."""

    __slots__ = ("done", "entries", "floors", "is_stale", "offline")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.entries = 0
        """Entries that are not answered yet and hold a statement of it, or what has replaced one."""
        self.floors: dict[Any, int] = {}
        self.offline: tuple[tuple[bytes, int], ...] = ()
        self.is_stale = False


class _Entry:
    """What one request says. `kind` is the class of its `Control`; statements by what they are about."""

    __slots__ = ("callers", "is_fixed", "kind", "rest", "statements")

    def __init__(self, kind: Callable[..., Control], rest: tuple[Any, ...], *, is_fixed: bool = False) -> None:
        self.kind = kind
        self.is_fixed = is_fixed
        """Whether no later statement replaces one of it."""
        self.rest = rest
        """What the request says besides: epochs, live brokers."""
        self.statements: dict[Hashable, Any] = {}
        self.callers: dict[_Caller, None] = {}

    def control(self) -> Control:
        """It as a value."""
        statements, kind = tuple(self.statements.values()), self.kind
        if self.kind is UpdateMetadata:
            topics = tuple(each for each in statements if isinstance(each, TopicInfo))
            deleted = tuple(each for each in statements if isinstance(each, str))
            return kind(*self.rest, topics, deleted, self.statements.get(_EVERYTHING))
        return kind(self.rest[0], statements, *self.rest[1:])


class Channel:
    """To one incarnation of a broker; see the module.

    Invariant: `_places` has the entry in `_waiting` of each statement that waits and may be replaced.
    """

    def __init__(self, controller_id: int, broker_epoch: int, connection: "PeerConnection", clock: "Clock") -> None:
        self._controller_id = controller_id
        self._broker_epoch = broker_epoch
        self._connection = connection
        self._clock = clock
        self._waiting: deque[_Entry] = deque()
        self._places: dict[Hashable, _Entry] = {}
        self._out: _Entry | None = None
        self._callers: dict[_Caller, None] = {}
        self._timer: Timer | None = None
        self._sequence = 0
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Statements that are not sent yet."""
        return sum(len(entry.statements) for entry in self._waiting)

    def send(self, control: Control, done: Done) -> None:
        """Send after what came before."""
        caller = _Caller(done)
        self._callers[caller] = None
        for entry in _entries(control):
            self._add_caller(entry, caller)
            for about in entry.statements:
                self._replace(about, entry)
            if entry.kind is UpdateMetadata:
                self._drop_needless_updates(entry)
            self._waiting.append(entry)
        while len(self._callers) > CALLERS_MAX:
            oldest = next(iter(self._callers))
            del self._callers[oldest]
            oldest.done(ControlReply(is_stale=True))
        self._send_next()

    def close(self) -> None:
        """The incarnation is over: answer everything."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._connection.close()
        callers, self._callers = self._callers, {}
        self._waiting.clear()
        self._places.clear()
        for caller in callers:
            caller.done(ControlReply(is_stale=True))

    # What waits

    @staticmethod
    def _add_caller(entry: _Entry, caller: _Caller) -> None:
        if caller not in entry.callers:
            entry.callers[caller] = None
            caller.entries += 1

    def _replace(self, about: Hashable, entry: _Entry) -> None:
        """A statement of `entry` makes an earlier one about the same needless: those who have sent that wait for this one."""
        earlier = self._places.get(about)
        if entry.is_fixed:
            self._places.pop(about, None)
        else:
            self._places[about] = entry
        if earlier is not None and earlier is not entry:
            del earlier.statements[about]
            self._move_callers(earlier, entry)
            if not earlier.statements and earlier.kind is not UpdateMetadata:
                self._drop(earlier)

    def _drop_needless_updates(self, later: _Entry) -> None:
        """The list of live brokers alone is needless before a later one, and all topics before a later list of all topics."""
        updates = [each for each in self._waiting if each.kind is UpdateMetadata]
        needless = [each for each in updates if not each.statements]
        if _EVERYTHING in later.statements:
            needless += [each for each in updates if each.is_fixed and each.callers.keys().isdisjoint(later.callers)]
        for earlier in needless:
            self._move_callers(earlier, later)
            self._drop(earlier)

    def _move_callers(self, earlier: _Entry, later: _Entry) -> None:
        for caller in earlier.callers:
            if caller in self._callers:
                self._add_caller(later, caller)

    def _drop(self, entry: _Entry) -> None:
        self._waiting.remove(entry)
        for caller in entry.callers:
            caller.entries -= 1

    # Requests

    def _send_next(self) -> None:
        if self._out is not None or self._is_closed or not self._waiting:
            return
        entry = self._out = self._waiting.popleft()
        if not entry.is_fixed:
            for about in entry.statements:
                del self._places[about]
        self._timer = None
        self._sequence += 1
        api_key, message = request_of(entry.control(), self._controller_id, self._broker_epoch)
        message.sequence = self._sequence
        self._connection.request(api_key, message, self._answered, timeout_s=TIMEOUT_S, version=VERSIONS[api_key])

    def _answered(self, outcome: Any) -> None:
        entry, self._out = self._out, None
        if self._is_closed or entry is None:
            return
        if isinstance(outcome, PeerCallError):
            self._put_back(entry)
            if outcome.retriable:
                self._send_next()
            else:
                _LOG.error("message of the controller not sent: reason=%s", outcome)
                self._timer = self._clock.call_later(AGAIN_S, self._send_next)
            return
        try:
            reply = reply_of(outcome)
        except PeerError as error:  # the controller continues all the same
            address = self._connection.address
            _LOG.error(
                "message of the controller refused: address=%s:%d kind=%s reason=%s", *address, type(entry.control()).__name__, error
            )
            reply = ControlReply(is_stale=True)
        self._end(entry, reply)
        self._send_next()

    def _put_back(self, entry: _Entry) -> None:
        """Have it sent again, but for what was replaced since it was sent."""
        said_something = bool(entry.statements)
        for about in () if entry.is_fixed else list(entry.statements):
            later = self._places.get(about)
            if later is None:
                self._places[about] = entry
            else:
                del entry.statements[about]
                self._move_callers(entry, later)
        self._waiting.appendleft(entry)
        if said_something and not entry.statements:
            self._drop(entry)

    def _end(self, entry: _Entry, reply: ControlReply) -> None:
        for caller in entry.callers:
            caller.entries -= 1
            caller.floors.update(reply.floors)
            caller.is_stale |= reply.is_stale
            caller.offline += reply.offline
            if not caller.entries and caller in self._callers:
                del self._callers[caller]
                caller.done(ControlReply(caller.floors, caller.is_stale, offline=caller.offline))


def _entries(control: Control) -> Iterator[_Entry]:
    """What it says in parts that fit into a request each; at least one."""
    match control:
        case LeaderAndIsr(epoch, partitions):
            yield from _divided(LeaderAndIsr, (epoch,), ((("lead", each.topic, each.info.partition), each, 1) for each in partitions))
        case StopReplica(epoch, topics, deletes):
            stopped = ((("stop", each.name, each.topic_id, each.only, deletes), each, max(each.partitions, 1)) for each in topics)
            yield from _divided(StopReplica, (epoch, deletes), stopped)
        case UpdateMetadata(epoch, controller_id, brokers, topics, deleted, everything):
            served = [(("topic", each.name), each, max(len(each.partitions), 1)) for each in topics]
            gone = [(("deleted", each), each, 1) for each in deleted]
            whole = [] if everything is None else [(_EVERYTHING, everything, PARTITIONS_MAX)]
            rest = epoch, controller_id, brokers
            yield from _divided(UpdateMetadata, rest, iter([*gone, *served, *whole]), is_fixed=everything is not None)
        case _:
            assert_never(control)


def _divided(
    kind: Callable[..., Control],
    rest: tuple[Any, ...],
    statements: "Iterator[tuple[Hashable, LedPartition | StoppedTopic | TopicInfo | str | tuple[AssignedTopic, ...], int]]",
    *,
    is_fixed: bool = False,
) -> Iterator[_Entry]:
    entry, size = _Entry(kind, rest, is_fixed=is_fixed), 0
    for about, statement, partitions in statements:
        if size and size + partitions > PARTITIONS_MAX:
            yield entry
            entry, size = _Entry(kind, rest, is_fixed=is_fixed), 0
        entry.statements[about] = statement
        size += partitions
    yield entry
