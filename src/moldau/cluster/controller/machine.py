"""The controller as a state machine: events come in, effects come out in the order in which they are carried out.

    role       event                             effects                                       next
    IDLE       BrokerRegistered                  read the controller and its epoch             READING
    READING    another is controller             -                                             FOLLOWING
    READING    no controller                     write: claim it with the next epoch           CLAIMING
    READING    we are, and have resigned         write: the next epoch                         CLAIMING
    CLAIMING   written                           read everything                               LOADING
    CLAIMING   refused                           read the controller and its epoch             READING
    LOADING    read                              elect; send everything to brokers             ACTIVE
    FOLLOWING  ControllerSuspected               read the controller and its epoch, then       CLAIMING
                                                 write: claim it in the place of that one
    FOLLOWING  ControllerChanged                 read the controller and its epoch             READING
    ACTIVE     a later epoch in a write or state answer all NOT_CONTROLLER, resign             READING
    any        CONNECTED again                   read what watches may have missed             same
    any        EXPIRED                           as a failed check; answers of before are      IDLE
                                                 forgotten
    any        Leave                             write: end the claim and the registration     LEFT

Nothing takes the controller's place unconditionally: a claim creates a node that must not exist, and every write of a controller checks
its epoch. What happens in ACTIVE is in `cluster_changes` and `broadcast`. No step works on more than 100 partitions; what is left is
`ContinueLater`, and continues with `Continue`. One that could not become controller is IDLE, and reads the controller again after a while.
"""

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, assert_never

from moldau.cluster import queries
from moldau.cluster.changes import Change, ClaimController, DropController, PutTopic, RaiseControllerEpoch, Unregister
from moldau.cluster.controller.broadcast import Broadcast, Countdown, Floors, StepRotation
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import (
    BecameController,
    BrokerRegistered,
    BrokerSuspected,
    Continue,
    ContinueLater,
    ControllerFailed,
    ControllerResigned,
    ControllerSuspected,
    Effect,
    EffectCompleted,
    Event,
    Leave,
    LogEpochs,
    Outbox,
    RequestReceived,
    Wake,
    WakeUp,
)
from moldau.cluster.controller.image import ClusterImage
from moldau.cluster.controller.incarnations import StoredIncarnations
from moldau.cluster.queries import Contents, ControllerNodes, LiveBroker
from moldau.cluster.store import (
    AdminChanged,
    BrokersChanged,
    ConfigsChanged,
    ControllerChanged,
    DeletionsChanged,
    IsrChanged,
    LogDirsChanged,
    StoreEvent,
    TopicChanged,
    TopicsChanged,
    WriteResult,
)
from moldau.model.config import BrokerConfig
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.ports.coordination import NodeError, SessionEvent, SessionState

if TYPE_CHECKING:
    from moldau.cluster.controller.back_offs import BackOffs
    from moldau.cluster.controller.cluster_changes import ClusterChanges

_LOG = logging.getLogger(__name__)

FIRST_ELECTIONS_PER_WRITE = 1000
NOTIFIED = (ConfigsChanged(), IsrChanged(), LogDirsChanged(), AdminChanged())
LOOK_AGAIN_MS = 1000
"""After this time it is looked again who is controller, and whether it answers."""


class ControllerRole(Enum):
    """What a broker is to the cluster's controller; see the module."""

    IDLE = "idle"
    READING = "reading"
    FOLLOWING = "following"
    CLAIMING = "claiming"
    LOADING = "loading"
    ACTIVE = "active"
    LEFT = "left"


class Controller:
    """See the module."""

    def __init__(self, broker_id: int, config: BrokerConfig, new_topic_id: Callable[[], bytes]) -> None:
        self.role = ControllerRole.IDLE
        self.image = ClusterImage()
        self._broker_id = broker_id
        self._config = config
        self._new_topic_id = new_topic_id
        self._outbox = Outbox(self._refused)
        self._works = StepRotation()
        self.controller_id: int | None = None
        """The broker that was found to be controller; None while that is not known."""
        self._continues = False
        self._broker_epoch = 0
        self._session_id = 0
        self._floors: Floors = {}
        self._now_ms = 0
        self._suspected_controller: int | None = None
        """A broker that does not answer this one while it is controller."""
        self._replacements: BackOffs | None = None
        self._missed: dict[StoreEvent, None] = {}
        """Changes that were seen before we were active, or could not be read."""
        self._waiting: deque[RequestReceived] = deque()
        self._changes: ClusterChanges | None = None
        self._begin(0)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """What is to be done now, in this order."""
        self._now_ms = now_ms
        if self.role is ControllerRole.LEFT and not isinstance(event, RequestReceived):
            return []
        match event:
            case BrokerRegistered():
                self._registered(event)
            case SessionEvent(state):
                self._session_changed(state)
            case EffectCompleted(ticket, outcome):
                self._outbox.receive(ticket, outcome)
            case RequestReceived():
                self._asked(event)
            case LogEpochs(floors):
                self._floors = floors
            case BrokerSuspected():
                self._broker_suspected(event)
            case ControllerSuspected(broker_id, is_suspected):
                self._suspected_controller = broker_id if is_suspected else None
                self._look_at_controller()
            case Leave(unregisters):
                self._leave(unregisters=unregisters)
            case WakeUp():
                if self._changes is not None:
                    self._changes.due(now_ms)
                self._look_at_missed()
                self._look_at_controller()
            case Continue():
                self._continues = False
                self._works.step()
            case _:
                self._store_changed(event)
        if self._works.is_waiting and not self._continues:
            self._continues = True
            self._outbox.effects.append(ContinueLater())
        return self._outbox.take()

    # Becoming controller, and resigning

    def _registered(self, event: BrokerRegistered) -> None:
        if event.broker_epoch != self._broker_epoch:
            self._resign()
            self._broker_epoch = event.broker_epoch
            self._session_id = event.session_id
            self._read_controller()

    def _read_controller(self) -> None:
        self.role = ControllerRole.READING
        self.controller_id = None
        self._outbox.forget()
        self._outbox.read(queries.controller_nodes(), self._controller_read)

    def _controller_read(self, found: ControllerNodes | CoordinationError) -> None:
        if isinstance(found, CoordinationError):
            self._fail(found)
            return
        epoch = max(found.epoch or 0, self._outbox.later_epoch) + 1
        change: Change
        if found.broker_id is None:
            change = ClaimController(self._broker_id, epoch, None if found.epoch is None else found.epoch_version, self._now_ms)
        elif found.owner == self._session_id:
            change = RaiseControllerEpoch(epoch, found.epoch_version, found.version)
        elif self._must_replace(found.broker_id):
            _LOG.warning("controller does not answer and is replaced: broker=%d epoch=%d", found.broker_id, epoch)
            change = ClaimController(self._broker_id, epoch, found.epoch_version, self._now_ms, replaces=True)
        else:
            self.role = ControllerRole.FOLLOWING
            self.controller_id = found.broker_id
            return
        self.role = ControllerRole.CLAIMING
        version = 0 if found.epoch is None else found.epoch_version + 1

        def claimed(outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, WriteResult):
                self._claimed(epoch, version)
            elif isinstance(outcome, NodeError):
                self._read_controller()
            else:
                self._fail(outcome)

        self._outbox.write([change], claimed)

    def _look_at_controller(self) -> None:
        """Where the controller does not answer, see whether it is to be replaced. It may live: it finds another one, or the next epoch, and
        resigns. Where only its connection to this broker is broken they must not replace each other again and again.
        """
        if self.role is ControllerRole.FOLLOWING and self._suspected_controller == self.controller_id:
            self._outbox.read(queries.controller_nodes(), self._controller_read)
        elif self.role is ControllerRole.IDLE and self._broker_epoch:  # something has failed
            self._read_controller()

    def _must_replace(self, broker_id: int) -> bool:
        if self.role is not ControllerRole.FOLLOWING or not self._suspected_controller == broker_id == self.controller_id:
            return False
        if self._replacements is None:
            from moldau.cluster.controller.back_offs import BackOffs

            self._replacements = BackOffs()
        may = self._replacements.may(broker_id, self._now_ms)
        if not may:
            self._outbox.effects.append(Wake(LOOK_AGAIN_MS))
        return may

    def _claimed(self, epoch: int, epoch_version: int) -> None:
        self.role = ControllerRole.LOADING
        self.controller_id = self._broker_id
        self._outbox.epoch_version = epoch_version
        self._missed.clear()
        self._begin(epoch)
        self._outbox.read(queries.controller_owner(), self._controller_seen)
        self._outbox.read_states(queries.contents(), self._loaded)

    def _begin(self, epoch: int) -> None:
        self._outbox.epoch = epoch
        self.image = ClusterImage()
        self._broadcast = Broadcast(self._broker_id, epoch, self.image, self._outbox)
        self._elections = Elections(
            self.image, self._outbox, self._broadcast, self._works, self._config, lambda: self._cluster_changes().repeat_elections()
        )
        self._changes = None
        self._incarnations = StoredIncarnations(self.image, self._outbox)

    def _controller_seen(self, owner: int | CoordinationError) -> None:
        """While we are controller, or have just become it."""
        if not isinstance(owner, CoordinationError) and owner != self._session_id:
            self._refused()

    def _resign(self, *, notes: bool = True) -> None:
        """Forget all that is under way; who waits asks the next controller."""
        was_controller = self._outbox.epoch_version is not None
        self._outbox.epoch_version = None
        self._outbox.forget()
        self._works.clear()
        error = PeerError(ErrorCode.NOT_CONTROLLER, f"broker {self._broker_id} is not controller any more")
        for ticket in list(self._outbox.asked):
            self._outbox.answer(ticket, error)
        self._waiting.clear()
        self._begin(0)
        self.role = ControllerRole.IDLE
        self.controller_id = None
        if was_controller and notes:
            self._outbox.effects.append(ControllerResigned())

    def _leave(self, *, unregisters: bool) -> None:
        """The broker stops. What is written here the end of its session would bring too, but later; so no outcome matters."""
        was_controller = self._outbox.epoch_version is not None
        if unregisters and self._broker_epoch:
            self._outbox.write([*([DropController()] if was_controller else []), Unregister(self._broker_id)], lambda _outcome: None)
        self._resign(notes=False)
        self.role = ControllerRole.LEFT

    def _fail(self, error: CoordinationError) -> None:
        self._resign()
        self._outbox.effects += [ControllerFailed(error), Wake(LOOK_AGAIN_MS)]

    def _refused(self) -> None:
        """A write or a read has found the epoch of another controller."""
        self._resign()
        self._read_controller()

    def _session_changed(self, state: SessionState) -> None:
        if state in (SessionState.EXPIRED, SessionState.CLOSED):
            self._resign()
            self._broker_epoch = 0
            if state is SessionState.CLOSED:  # a stop is no resignation
                self._outbox.take()
        elif state is SessionState.CONNECTED:
            if self.role in (ControllerRole.FOLLOWING, ControllerRole.READING):
                self._read_controller()
            elif self.role in (ControllerRole.LOADING, ControllerRole.ACTIVE):
                for event in (ControllerChanged(), BrokersChanged(), TopicsChanged(), *NOTIFIED):
                    self._store_changed(event)

    # Loading

    def _loaded(self, found: Contents | CoordinationError) -> None:
        if isinstance(found, CoordinationError):
            self._fail(found)
            return
        self._incarnations.found(found.incarnations, found.incarnations_version)
        self.image.set_brokers(found.brokers)
        lossy = dict(self.image.lossy)
        marked = dict.fromkeys(found.marks)
        by_name = {topic.name: topic for topic in found.topics}
        without_id: list[PutTopic] = []
        empty = []
        for topic in found.topics:
            if topic.name in marked:
                continue
            if not topic.node.replicas:
                empty.append(topic.name)
                continue
            topic_id = topic.node.topic_id
            if topic_id is None:
                topic_id = self._new_topic_id()
                without_id.append(PutTopic(topic.name, topic_id, topic.node.replicas, topic.version))
            self.image.add(topic, topic_id)

        def elected() -> None:
            self._incarnations.settle(lossy)
            self._activate()
            for name in marked:
                self._cluster_changes().deletions.resume(name, by_name.get(name))
            for name in empty:
                self._cluster_changes().deletions.remove_empty(name)
            while self._waiting:  # not before it is known which names deletions hold
                self._cluster_changes().carry_out(self._waiting.popleft(), self._now_ms)

        def with_ids() -> None:
            self._elections.run_first(self._floors, FIRST_ELECTIONS_PER_WRITE, self._fail, elected)

        if without_id:
            from moldau.cluster.controller.topic_ids import write_ids

            write_ids(self.image, self._outbox, without_id, with_ids, self._fail)
        else:
            with_ids()

    def _activate(self) -> None:
        """Send everything to brokers; what comes from now on is taken at once."""
        self.role = ControllerRole.ACTIVE
        floors, self._floors = self._floors, {}
        epoch = self._broadcast.epoch
        incomplete = [topic for topic in self.image.topics.values() if topic.missing]
        ready = Countdown(2 + len(incomplete), lambda: self._outbox.effects.append(BecameController(epoch)))
        self._broadcast.everything(self.image.brokers, self._elections.again, ready)
        for topic in incomplete:
            self._cluster_changes().topics.complete(topic, ready, floors)
        self._watch_others()
        if self.image.suspected:
            self._cluster_changes().suspicion_changed(self._now_ms)
        if any(topic.adding or topic.removing for topic in self.image.topics.values()):
            self._cluster_changes().check_moves(self.image.topics.values())
        self._look_at_missed()

    # What others do

    def _store_changed(self, event: StoreEvent) -> None:
        if isinstance(event, ControllerChanged):
            if self.role is ControllerRole.FOLLOWING:
                self._read_controller()
            elif self.role in (ControllerRole.LOADING, ControllerRole.ACTIVE):
                self._outbox.read(queries.controller_owner(), self._controller_seen)
            return
        if self.role is ControllerRole.LOADING:
            self._missed[event] = None
        elif self.role is ControllerRole.ACTIVE:
            match event:
                case BrokersChanged():
                    self._outbox.read(queries.brokers(), self._brokers_read)
                case TopicsChanged() | DeletionsChanged() | TopicChanged():
                    self._cluster_changes().seen(event)
                case ConfigsChanged() | IsrChanged() | LogDirsChanged() | AdminChanged():
                    if self._changes is not None:
                        self._changes.notified(event)
                case _:
                    assert_never(event)

    def _look_at_missed(self) -> None:
        for event in tuple(self._missed):
            del self._missed[event]
            self._store_changed(event)

    def _brokers_read(self, found: dict[int, LiveBroker] | CoordinationError) -> None:
        if isinstance(found, CoordinationError):  # the watch may not be set
            _LOG.warning("live brokers not read; they are read again: reason=%s", found)
            self._missed[BrokersChanged()] = None
            self._outbox.effects.append(Wake(LOOK_AGAIN_MS))
            return
        before = self.image.live
        self.image.set_brokers(found)
        if self.image.live == before:
            return
        new = [broker_id for broker_id, epoch in self.image.live.items() if before.get(broker_id) != epoch]
        self._outbox.brokers_changed(found)
        self._watch_others()
        self._broadcast.update(to=[broker_id for broker_id in found if broker_id not in new])
        self._broadcast.everything(new, self._elections.again)
        self._elect_all()
        if self._changes is not None:
            self._changes.brokers_changed()

    def _broker_suspected(self, event: BrokerSuspected) -> None:
        if self.image.live.get(event.broker_id) != event.epoch:
            return
        self.image.suspect(event.broker_id, event.epoch, is_suspected=event.is_suspected)
        if self.role is ControllerRole.ACTIVE:
            self._cluster_changes().suspicion_changed(self._now_ms)

    def _watch_others(self) -> None:
        if len(self.image.incarnations) > 1:
            self._cluster_changes().watch_others(self._now_ms)

    def _elect_all(self) -> None:
        """Elect for all partitions by what is known of brokers."""
        self._elections.run(list(self.image.topics), then=partial(self._incarnations.settle, dict(self.image.lossy)))

    # Requests

    def _asked(self, event: RequestReceived) -> None:
        self._outbox.asked[event.ticket] = None
        if self.role is ControllerRole.ACTIVE:
            self._cluster_changes().carry_out(event, self._now_ms)
        elif self.role is ControllerRole.LOADING:
            self._waiting.append(event)
        else:
            self._outbox.answer(event.ticket, PeerError(ErrorCode.NOT_CONTROLLER, f"broker {self._broker_id} is not controller"))

    def _cluster_changes(self) -> "ClusterChanges":
        """Loaded when first needed: most starts do without."""
        if self._changes is None:
            from moldau.cluster.controller.cluster_changes import ClusterChanges

            self._changes = ClusterChanges(
                self.image,
                self._outbox,
                self._broadcast,
                self._elections,
                self._works,
                self._config,
                self._new_topic_id,
                self._elect_all,
            )
        return self._changes
