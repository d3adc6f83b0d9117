"""The network: connections whose bytes travel in virtual time, and everything that can happen to them.

Each direction of a connection is an actor, so that the order between connections is drawn; within one, bytes come in order. What one end
has sent and the other has not taken is in its *window*; what does not fit waits in the sender's queue, as with a full socket.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from moldau.model.errors import StorageError
from moldau.ports.transport import ConnectError, Receiver, Transport
from moldau.testing.network import QueuedTransport
from moldau.testing.simulation.schedule import Actor, ActorGroup, Schedule, ScheduledCall

Accept = Callable[[Transport], Receiver]
Run = Callable[[Callable[[], object]], object]
"""How an end makes its calls: a process that has ended makes none, and may end in the middle of one."""
Address = tuple[str, int]
FIRST_PORT = 40_000
CONNECT_TIMEOUT_S = 5.0
"""After which a connection to a host that does not answer fails."""
NO_PIECE = 1 << 30


@dataclass(slots=True)
class NetworkOptions:
    """How bytes travel in a run."""

    latency_s: float = 0.0005
    """Typical time of one way."""
    tail: float = 0.01
    """How often a transfer takes up to a hundred times as long."""
    window: int = 1 << 16
    piece_max: int = NO_PIECE
    """Most bytes that arrive at a time: as much as is there, or a few, so that frames come in pieces."""


@dataclass(frozen=True, slots=True)
class Party:
    """A process at the network: who it is, what it ends with, how it makes calls."""

    host: str
    group: ActorGroup | None
    run: Run


def run_directly(call: Callable[[], object]) -> object:
    """The calls of a client: they are simply made."""
    return call()


class ConnectionEnd(QueuedTransport):
    """One end of a connection: its :class:`moldau.ports.transport.Transport`."""

    def __init__(self, network: "SimulatedNetwork", party: Party, local: Address, peer: Address) -> None:
        super().__init__(network.options.window)
        self.local = local
        self.peer = peer
        self.other: ConnectionEnd
        self.party = party
        self.is_mute = False
        """What it sends from now on does not arrive, nor does its end: the direction is dead."""
        self.taken = 0
        """Bytes that it has taken so far."""
        self._network = network
        self._arrival: ScheduledCall | None = None
        """The next transfer to this end."""
        self.actor: Actor = network.schedule.actor(f"{peer[0]}:{peer[1]}>{local[0]}", party.group)
        self._fin: Exception | bool | None = False
        """What the other end's close arrives as, once its bytes have; False while it is open."""

    # The port

    def resume_reading(self) -> None:
        """Take them again."""
        if not self.closing and not self.reading:
            self.reading = True
            self.expect()

    def close(self) -> None:
        """Close once the queue is empty."""
        if not self.closing:
            self.closing = True
            self.reading = False
            self._fill()

    def abort(self) -> None:
        """Close at once."""
        self.end(None, ConnectionResetError("reset by peer"))

    # The network

    def end(self, here: Exception | None, there: Exception | None) -> None:
        """The connection ends: this end learns `here` of it at once, the other `there` later."""
        if self.closed:
            return
        receiver = self._take_down()
        if receiver is not None:
            self._network.schedule.post(self.actor, lambda: self.party.run(lambda: receiver.connection_lost(here)))
        if not self.is_mute:
            self.other._fin = there
            self.other.expect()

    def vanish(self) -> None:
        """The process ends without a notification of the other end, which notices it by its next bytes: the host, once it has power again,
        answers them with a reset.
        """
        self.party = Party(self.party.host, None, run_directly)
        self.actor = self._network.schedule.actor(self.actor.name)
        self._arrival = None
        self.closing = self.closed = self.is_mute = True
        self.reading = False
        self.receiver = None
        self._queue.clear()
        self.in_flight.clear()

    def expect(self, *, at_once: bool = False) -> None:
        """Have what the other end has sent arrive; `at_once`: the next piece of what has come."""
        arrival = self._arrival
        if arrival is None or arrival.call is None:
            network = self._network
            self._arrival = network.schedule.post(self.actor, self._arrive, 0.0 if at_once else network.delay())

    def _arrive(self) -> None:
        self._arrival = None
        if not self._network.holds(self):
            self.party.run(self._take)

    def _take(self) -> None:
        source = self.other
        if source.is_mute and not self.closed:
            source.in_flight.clear()
            return
        if self.closed:
            if source.in_flight and not source.closed:  # bytes for a connection that is no more
                hosts = self.party.host, source.party.host
                if not self._network.answers(hosts[0]):  # they are sent again
                    return
                source.in_flight.clear()
                if not self.is_mute and not self._network.is_blocked(*hosts):
                    source.end(ConnectionResetError("reset by peer"), None)
            return
        piece_max = self._network.options.piece_max
        taken = 0
        in_flight = source.in_flight
        while in_flight and self.reading and (receiver := self.receiver) is not None and taken < piece_max:
            room = receiver.get_buffer(-1)
            count = min(len(room), len(in_flight), piece_max - taken)
            room[:count] = in_flight[:count]
            del in_flight[:count]
            taken += count
            self.taken += count
            receiver.buffer_updated(count)
        if taken and source._queue:
            source.room_made()
        if in_flight:
            if self.reading and not self.closed:
                self.expect(at_once=True)
        elif self._fin is not False and not self.closed and (self.reading or self._fin is not None):
            self.end(self._fin if isinstance(self._fin, Exception) else None, None)

    def room_made(self) -> None:
        """The other end has taken bytes: send what waits."""
        self._network.schedule.post(self.actor, lambda: self.party.run(self._drain))

    def _drain(self) -> None:
        if not self._queue:
            return
        self._fill()
        if not self._queue and not self.closing and self.receiver is not None:
            self.receiver.queue_drained()

    def _fill(self) -> None:
        try:
            super()._fill()
        except StorageError:  # the file of what is to be sent cannot be read
            self.end(None, ConnectionResetError("reset by peer"))

    def _filled(self) -> None:
        if self.in_flight:
            if self.is_mute:
                self.in_flight.clear()
            else:
                self.other.expect()
        if self.closing and not self._queue:
            self.end(None, None)


class ConnectionPair:
    """What connects a client's end with a server's."""

    __slots__ = ("ends",)

    def __init__(self, client: ConnectionEnd, server: ConnectionEnd) -> None:
        self.ends = client, server

    @property
    def is_over(self) -> bool:
        """Whether no end has it open."""
        return all(end.closed for end in self.ends)


class SimulatedNetwork:
    """See the module."""

    def __init__(self, schedule: Schedule, random: Random, options: NetworkOptions) -> None:
        self.schedule = schedule
        self.options = options
        self.connections: list[ConnectionPair] = []
        self.refuse_rate = 0.0
        """How many attempts to connect are refused, also by a server that listens."""
        self.on_arriving: Callable[[ConnectionEnd], object] | None = None
        """Called with an end when bytes are about to arrive there."""
        self._random = random
        self._listeners: dict[Address, tuple[Party, Accept]] = {}
        self._silent: dict[str, None] = {}
        """Hosts without power."""
        self._next_port = FIRST_PORT
        self._holding: Callable[[ConnectionEnd], bool] | None = None
        self._held: dict[ConnectionEnd, None] = {}
        self._blocked: dict[tuple[str, str], None] = {}
        """Pairs of hosts, sender and receiver, between which nothing passes."""
        self._connects = schedule.actor("connects")

    # Servers

    def listen(self, party: Party, port: int, accept: Accept) -> None:
        """Take connections there from now on."""
        self._listeners[party.host, port] = party, accept

    def stop_listening(self, host: str) -> None:
        """Refuse connections to a host; those that are open stay."""
        self._listeners = {address: listener for address, listener in self._listeners.items() if address[0] != host}

    def process_ended(self, host: str, *, silently: bool) -> None:
        """The process of a host has ended: the system resets its connections, or without power does not."""
        self.stop_listening(host)
        for connection in self._open():
            for end in connection.ends:
                if end.party.host == host and not end.closed:
                    if silently:
                        end.vanish()
                    else:
                        end.receiver = None
                        end.end(None, ConnectionResetError("reset by peer"))
        if silently:
            self._silent[host] = None

    def host_started(self, host: str) -> None:
        """The host answers again: bytes for connections of before are answered with a reset."""
        self._silent.pop(host, None)
        for connection in self._open():
            for end in connection.ends:
                if end.party.host == host and end.closed:
                    end.is_mute = False
                    end.expect()

    def answers(self, host: str) -> bool:
        """Whether a host has power."""
        return host not in self._silent

    # Clients

    def client(self, host: str) -> "ClientNetwork":
        """The network as a client on this host sees it."""
        return ClientNetwork(self, Party(host, None, run_directly))

    def attempt(
        self,
        party: Party,
        address: Address,
        connecting: "SimulatedConnectAttempt",
        accept: Accept,
        failed: Callable[[ConnectError], object],
    ) -> None:
        """Connect, or fail, later."""
        host, port = address

        def refuse() -> None:
            self.schedule.post(connecting.actor, lambda: party.run(refused))

        def refused() -> None:
            if not connecting.is_over:
                connecting.is_over = True
                failed(ConnectError(host, port, "connection refused", is_refused=True))

        def arrive() -> None:
            if connecting.is_over or not self.answers(party.host):  # of a client that has died no packet comes
                return
            if not self.answers(host) or self.is_blocked(party.host, host) or self.is_blocked(host, party.host):
                self.schedule.post(self._connects, refuse, CONNECT_TIMEOUT_S)
                return
            listener = self._listeners.get(address)
            if listener is None or self._random.random() < self.refuse_rate:
                refuse()
                return
            connecting.is_over = True
            self._establish(party, address, listener, accept)

        self.schedule.post(self._connects, arrive, self.delay())

    # On the way

    def delay(self) -> float:
        """How long a transfer takes."""
        random = self._random.random
        delay = self.options.latency_s * (0.5 + random())
        return delay * (1 + 99 * random()) if random() < self.options.tail else delay

    def open_connections(self) -> list[ConnectionPair]:
        """Those that both ends have open."""
        return [connection for connection in self._open() if not any(end.closed for end in connection.ends)]

    def cut(self, connection: ConnectionPair, random: Random) -> None:
        """Break a connection; of what is on its way a part still arrives."""
        for end in connection.ends:
            if end.in_flight:
                del end.in_flight[random.randint(0, len(end.in_flight)) :]
        for end in connection.ends:
            if not end.closed:
                end.party.run(lambda end=end: end.end(ConnectionResetError("reset by peer"), ConnectionResetError("reset by peer")))  # type: ignore[misc]

    def hold(self, matches: Callable[[ConnectionEnd], bool]) -> None:
        """From now on keep what arrives at the ends that match, until `release`."""
        self._holding = matches

    def release(self) -> None:
        """Let arrive what is held, and hold no more."""
        self._holding = None
        self._expect_held()

    def block(self, sender: str, receiver: str) -> None:
        """From now on nothing of one host reaches the other, until `unblock`; then what was sent meanwhile arrives."""
        self._blocked[sender, receiver] = None

    def unblock(self, sender: str, receiver: str) -> None:
        """Undo it; harmless without a `block`."""
        self._blocked.pop((sender, receiver), None)
        self._expect_held()

    def is_blocked(self, sender: str, receiver: str) -> bool:
        """Whether nothing passes that way."""
        return (sender, receiver) in self._blocked

    def _expect_held(self) -> None:
        held, self._held = self._held, {}
        for end in held:
            end.expect()

    def holds(self, end: ConnectionEnd) -> bool:
        """Whether something for this end is held; then it is noted."""
        if self.on_arriving is not None:
            self.on_arriving(end)
        is_blocked = self._blocked and (end.other.party.host, end.party.host) in self._blocked
        if not is_blocked and (self._holding is None or not self._holding(end)):
            return False
        self._held[end] = None
        return True

    @property
    def held(self) -> int:
        """Ends for which something is held."""
        return len(self._held)

    def half_open(self, connection: ConnectionPair, random: Random) -> None:
        """Nothing of one end arrives any more; the other way works."""
        random.choice(connection.ends).is_mute = True

    def _open(self) -> list[ConnectionPair]:
        self.connections = [connection for connection in self.connections if not connection.is_over]
        return self.connections

    def _establish(self, party: Party, address: Address, listener: tuple[Party, Accept], accept: Accept) -> None:
        server, begin = listener
        own = party.host, self._next_port
        self._next_port += 1
        ends = ConnectionEnd(self, party, own, address), ConnectionEnd(self, server, address, own)
        ends[0].other, ends[1].other = ends[1], ends[0]
        self.connections.append(ConnectionPair(*ends))
        for end, start in ((ends[1], begin), (ends[0], accept)):

            def connected(end: ConnectionEnd = end, start: Accept = start) -> None:
                receiver = start(end)
                if not end.closed:
                    end.receiver = receiver

            self.schedule.post(end.actor, partial(end.party.run, connected))


class SimulatedConnectAttempt:
    """A connection that is being opened."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        """Of whom opens it."""
        self.is_over = False

    def cancel(self) -> None:
        """Give up."""
        self.is_over = True


class ClientNetwork:
    """A :class:`moldau.ports.transport.Network`."""

    def __init__(self, network: SimulatedNetwork, party: Party) -> None:
        self._network = network
        self._party = party
        self._actor = network.schedule.actor(f"{party.host} connects", party.group)

    def connect(self, host: str, port: int, accept: Accept, failed: Callable[[ConnectError], object]) -> SimulatedConnectAttempt:
        """Begin to connect."""
        attempt = SimulatedConnectAttempt(self._actor)
        self._network.attempt(self._party, (host, port), attempt, accept, failed)
        return attempt
