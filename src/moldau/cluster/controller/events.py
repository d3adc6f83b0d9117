"""What the controller receives and what it wants done, and the outbox that connects an effect with the event that answers it.

effect                                                     answered by
Read and Write, to the tree; Send, to a broker             EffectCompleted, with the effect's ticket
Wake, after a delay                                        WakeUp
ContinueLater, when others have had their turn             Continue
Answer, to the caller of a RequestReceived                 -
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.cluster import queries, znodes
from moldau.cluster.changes import Change
from moldau.cluster.control import Control, ControlReply
from moldau.cluster.queries import LiveBroker, Query
from moldau.cluster.store import StoreEvent, WriteResult
from moldau.model.errors import CoordinationError
from moldau.model.identity import TopicPartition
from moldau.model.value import Value
from moldau.ports.coordination import NodeError, SessionEvent

if TYPE_CHECKING:
    from moldau.cluster.controller.requests import Request

S = TypeVar("S", bound=queries.FoundStates)
T = TypeVar("T")

# Events


class BrokerRegistered(Value):
    """This broker is registered, in this incarnation."""

    broker_epoch: int
    session_id: int


class EffectCompleted(Value):
    """A read, a write, or what was sent has come to its outcome, or its error."""

    ticket: int
    outcome: Any


class RequestReceived(Value):
    """A broker asks for a change."""

    ticket: int
    request: "Request"


class LogEpochs(Value):
    """The latest leader epochs that logs of this broker know. To come before `BrokerRegistered`."""

    floors: Mapping[TopicPartition, int]


class Leave(Value):
    """This broker stops: it becomes controller no more. With `unregisters` it has the tree say so at once, before its session ends."""

    unregisters: bool


class BrokerSuspected(Value):
    """An incarnation of a broker does not answer, or answers again."""

    broker_id: int
    epoch: int
    is_suspected: bool


class ControllerSuspected(Value):
    """The broker that is controller does not answer, or answers again."""

    broker_id: int
    is_suspected: bool


class WakeUp(Value):
    """The delay of `Wake` is over."""


class Continue(Value):
    """The answer to `ContinueLater`."""


Event = (
    BrokerRegistered
    | SessionEvent
    | StoreEvent
    | EffectCompleted
    | RequestReceived
    | LogEpochs
    | BrokerSuspected
    | ControllerSuspected
    | Leave
    | WakeUp
    | Continue
)

# Effects


class Read(Value):
    """Make a query of the tree."""

    ticket: int
    query: Query[Any]


class Write(Value):
    """Write to the tree; with an `epoch_version` only while the controller's epoch has this version."""

    ticket: int
    changes: Sequence[Change]
    epoch_version: int | None


class Send(Value):
    """Send to a broker, in this incarnation."""

    ticket: int
    broker: LiveBroker
    control: Control


class Answer(Value):
    """The outcome of a request, see there."""

    ticket: int
    outcome: Any


class Wake(Value):
    """Answer with `WakeUp` after a delay."""

    delay_ms: int


class ContinueLater(Value):
    """Answer with `Continue` soon."""


class BecameController(Value):
    """This broker is controller, and live brokers have everything."""

    epoch: int


class ControllerResigned(Value):
    """This broker is not controller any more."""


class EpochsRaised(Value):
    """The tree was older than the logs of this broker: leader epochs of so many partitions were raised above those of the logs."""

    partitions: int


class ControllerFailed(Value):
    """The tree refuses what a controller needs; this broker is not controller until its session or the controller changes."""

    error: CoordinationError


Effect = Read | Write | Send | Answer | Wake | ContinueLater | BecameController | ControllerResigned | EpochsRaised | ControllerFailed


class Outbox:
    """The effects of a step, and for each that is answered who continues then. What is expected is forgotten at a resignation."""

    def __init__(self, refused: Callable[[], object]) -> None:
        self._refused = refused
        self.epoch_version: int | None = None
        """Version of the node of our controller epoch; None while we are not controller."""
        self.epoch = 0
        """Our controller epoch; 0 while we are not controller."""
        self.later_epoch = 0
        """The epoch of a later controller that was found last. The next one has to be later, also if the node of the epoch was lost."""
        self.effects: list[Effect] = []
        self.asked: dict[int, None] = {}
        """Requests that are not answered yet."""
        self._last_ticket = 0
        self._expected: dict[int, Callable[[Any], object]] = {}
        self._sent: dict[int, LiveBroker] = {}

    def take(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self.effects = self.effects, []
        return effects

    def read(self, query: Query[T], then: Callable[[T | CoordinationError], object]) -> None:
        """Make a query, and call `then` with the outcome."""
        self.effects.append(Read(self._expect(then), query))

    def read_states(self, query: Query[S], then: Callable[[S | CoordinationError], object]) -> None:
        """As `read`, for a query that finds states of partitions. If a later controller has written one, `refused` is called instead of
        `then`: brokers must not learn of it from us before that one sends what it has found at first.
        """

        def read(outcome: S | CoordinationError) -> None:
            if not isinstance(outcome, CoordinationError):
                latest = max((each.controller_epoch for each in queries.states_in(outcome)), default=0)
                if latest > self.epoch:
                    self.later_epoch = latest
                    self._refused()
                    return
            then(outcome)

        self.read(query, read)

    def write(self, changes: Sequence[Change], then: Callable[[WriteResult | CoordinationError], object]) -> None:
        """Write as controller, and call `then` with the outcome; `refused` instead if another is controller."""
        epoch_version = self.epoch_version

        def written(outcome: WriteResult | CoordinationError) -> None:
            if epoch_version is not None and isinstance(outcome, NodeError) and outcome.path == znodes.CONTROLLER_EPOCH:
                self._refused()
            else:
                then(outcome)

        self.effects.append(Write(self._expect(written), changes, epoch_version))

    def send(self, broker: LiveBroker, control: Control, then: Callable[[ControlReply], object]) -> None:
        """Send to a broker, and call `then` with the reply, or an empty one when the broker has ended."""
        ticket = self._expect(then)
        self._sent[ticket] = broker
        self.effects.append(Send(ticket, broker, control))

    def answer(self, ticket: int, outcome: object) -> None:
        """Answer a request, unless a resignation has answered it."""
        if ticket in self.asked:
            del self.asked[ticket]
            self.effects.append(Answer(ticket, outcome))

    def receive(self, ticket: int, outcome: Any) -> None:
        """Have the one continue who waits for it, if it is still expected."""
        self._sent.pop(ticket, None)
        then = self._expected.pop(ticket, None)
        if then is not None:
            then(outcome)

    def brokers_changed(self, live: Mapping[int, LiveBroker]) -> None:
        """Wait no longer for replies of brokers that have ended or registered again."""
        for ticket, broker in list(self._sent.items()):
            now = live.get(broker.info.broker_id)
            if now is None or now.epoch != broker.epoch:
                self.receive(ticket, ControlReply())

    def forget(self) -> None:
        """Expect nothing any more."""
        self._expected.clear()
        self._sent.clear()

    def _expect(self, then: Callable[[Any], object]) -> int:
        self._last_ticket += 1
        self._expected[self._last_ticket] = then
        return self._last_ticket
