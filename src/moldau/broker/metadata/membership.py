"""This broker in its cluster: reads what it has to know before it opens logs, joins, and runs its controller.

read     the cluster's id and all configurations; makes a new cluster, and registers in it by the same write
join     registers otherwise, becomes controller or follows one, applies what the controller sends until all its partitions are open
ask      submits a request to the controller
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from moldau.broker.metadata.applier import MetadataApplier
from moldau.broker.metadata.registration import Registration, registration_of
from moldau.cluster import queries, znodes
from moldau.cluster.changes import NewCluster
from moldau.cluster.control import Control, ControlReply
from moldau.cluster.controller.events import BrokerRegistered, Leave, LogEpochs
from moldau.cluster.controller.machine import Controller
from moldau.cluster.controller.runner import ControllerRunner
from moldau.cluster.queries import ConfigNodes, LiveBroker
from moldau.cluster.snapshot import BrokerInfo, MetadataCache, MetadataSnapshot
from moldau.cluster.store import ConfigsChanged, MetadataStore, StoreEvent, WriteResult
from moldau.model.errors import CoordinationError, ErrorCode, PeerError
from moldau.model.identity import ID_BYTES, TopicPartition, format_id
from moldau.ports.coordination import NodeExistsError, SessionEvent, SessionState

if TYPE_CHECKING:
    from moldau.broker.admission.slices import SliceScheduler
    from moldau.broker.metadata.channels import Channels
    from moldau.broker.metadata.config_applier import ConfigApplier
    from moldau.broker.metadata.forwarding import ControllerForwarder
    from moldau.broker.metadata.hand_over import HandOver
    from moldau.broker.metadata.suspicions import Suspicions
    from moldau.broker.peers.connections import Connect
    from moldau.cluster.controller.requests import Request
    from moldau.log.manager import LogManager
    from moldau.model.config.store import BrokerConfig
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)

HAND_OVER_SHARE = 0.5
"""Which share of `shutdown.timeout.ms` there is at most for handing leaderships over."""
LINGER_S = 0.3
"""For how long a broker that stops names the leaders that have taken over from it: by then the others name them too."""
_RESERVED_IDS = (bytes(ID_BYTES), bytes(ID_BYTES - 1) + b"\x01")
"""That of no topic, and that of KRaft's metadata."""


class OtherClusterError(CoordinationError):
    """The store is another cluster's than the one that was asked for."""

    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(f"{znodes.CLUSTER_ID}: the store belongs to cluster {found}, not to {wanted}", retriable=False)
        self.found = found
        self.wanted = wanted


class ClusterMembership:
    """See the module."""

    def __init__(
        self,
        config: "BrokerConfig",
        store: MetadataStore,
        cache: MetadataCache,
        *,
        clock: "Clock",
        slices: "SliceScheduler",
        random_bytes: Callable[[int], bytes],
        reconfigured: Callable[[], object],
        raised_epochs: Callable[[int], object],
        connect: "Connect",
    ) -> None:
        """`reconfigured` is called when the broker's configuration has changed, `raised_epochs` when the store is found to be older than
        the logs. `connect` makes connections to other brokers.
        """
        self._config = config
        self._store = store
        self._cache = cache
        self._clock = clock
        self._slices = slices
        self._random_bytes = random_bytes
        self._reconfigured = reconfigured
        self._raised_epochs = raised_epochs
        self._connect = connect
        self._channels: Channels | None = None
        self._forwarder: ControllerForwarder | None = None
        self._suspicions: Suspicions | None = None
        self._controller_id: int | None = None
        """The broker that is controller, as far as is known."""
        self._broker_id = config.int("broker.id")
        self._is_serving = False
        self._seen: tuple[str, ...] = ()
        self._joined: Callable[[CoordinationError | None], object] | None = None
        self._configs: ConfigApplier | None = None
        self._has_missed = False
        """Whether configurations may have changed, since they were read, without an event that was applied."""
        self._has_expired = False
        """Whether a session has ended since they were read: notifications may have been removed."""
        self._registrar: Registration
        self._registration: tuple[int, int] | None = None
        """Incarnation and session of the registration that was made with the cluster."""
        self._runner: ControllerRunner
        self._applier: MetadataApplier
        self._logs: LogManager
        store.listen(self._heard)

    # Start

    def read(
        self,
        info: BrokerInfo,
        cluster_id: str | None,
        done: Callable[[ConfigNodes | CoordinationError], object],
        *,
        registers: bool = True,
    ) -> None:
        """Read the cluster's id, which becomes that of the snapshot, and all configurations.

        A new store gets `cluster_id`, or a random one; with that this broker is registered as `info`, for there are no partitions that it
        would have to open before, unless `registers` is false. OtherClusterError when a store has another id.
        """

        def found(outcome: tuple[list[str], str | None] | CoordinationError) -> None:
            if isinstance(outcome, CoordinationError):
                done(outcome)
                return
            missing, known = outcome
            if known is not None and cluster_id not in (None, known):
                done(OtherClusterError(known, str(cluster_id)))
                return
            self._cache.snapshot = MetadataSnapshot(known or cluster_id or format_id(self._random_bytes(ID_BYTES)))
            if missing or known is None:
                new_id = None if known is not None else self._cache.snapshot.cluster_id
                broker = registration_of(info, self._clock) if registers and (known, cluster_id) == (None, None) else None
                is_empty = len(missing) == len(znodes.ROOTS)
                self._store.write([NewCluster(missing, new_id, broker)], partial(written, broker is not None, is_empty))
            else:
                queries.answer(self._store, queries.notification_names(), partial(names_read, False))

        def written(is_registered: bool, is_empty: bool, outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, NodeExistsError):  # another broker was faster, or is registered with this id
                self.read(info, cluster_id, done, registers=outcome.path != znodes.broker(self._broker_id))
            elif isinstance(outcome, CoordinationError):
                done(outcome)
            else:
                if is_registered and outcome.created_id is not None:
                    self._registration = (outcome.created_id, self._store.session_id)
                queries.answer(self._store, queries.notification_names(), partial(names_read, is_empty))

        def names_read(was_empty: bool, outcome: Any) -> None:
            if isinstance(outcome, CoordinationError):
                done(outcome)
                return
            self._seen = tuple(outcome[-1:])
            if was_empty and not outcome:  # this broker has just made the cluster, and no configuration was written since
                configs_read(ConfigNodes({}, {}))
            else:
                queries.answer(self._store, queries.configs(), configs_read)

        def configs_read(outcome: ConfigNodes | CoordinationError) -> None:
            if not isinstance(outcome, CoordinationError):
                own = {name: values for name, values in outcome.topics.items() if values}
                self._cache.snapshot = MetadataSnapshot(self._cache.snapshot.cluster_id, topic_configs=own, broker_configs=outcome.brokers)
                brokers = outcome.brokers
                nodes = znodes.broker_configs(self._broker_id)
                self._config.set_dynamic(own=brokers.get(self._broker_id, {}), cluster=brokers.get(None, {}), nodes=nodes)
            done(outcome)

        queries.answer(self._store, queries.cluster(), found)

    def join(
        self,
        info: BrokerInfo,
        applier: MetadataApplier,
        logs: "LogManager",
        log_epochs: Mapping[TopicPartition, int],
        done: Callable[[CoordinationError | None], object],
    ) -> None:
        """Register, and open what the controller says; `done` when that is open."""
        self._applier = applier
        self._logs = logs
        self._joined = done
        self._runner = ControllerRunner(
            Controller(self._broker_id, self._config, self._new_topic_id),
            self._store,
            self._clock,
            self._send,
            soon=self._soon,
            became_controller=self._became_controller,
            failed=self._failed,
            raised_epochs=self._raised_epochs,
            brokers_changed=self._brokers_changed,
            controller_changed=self._controller_changed,
        )
        self._runner.take(LogEpochs(log_epochs))
        self._registrar = Registration(
            self._store,
            self._clock,
            info,
            registered=self._registered,
            failed=self._failed,
            made=self._registration,
            clean_epochs=logs.clean_epochs(),
        )

    def serve(self) -> None:
        """From now on take turns with requests."""
        self._is_serving = True
        self._applier.serve()
        self._apply_missed()

    def _registered(self, epochs: tuple[int, ...], session_id: int) -> None:
        self._applier.broker_epoch = epochs[-1]
        self._logs.broker_epochs = epochs
        self._runner.take(BrokerRegistered(epochs[-1], session_id))

    def _failed(self, error: CoordinationError) -> None:
        if self._joined is None:
            _LOG.error("not controller, not registered, or neither: reason=%s", error)
        self._end_start(error)

    def _became_controller(self) -> None:
        """All is applied here."""
        self._cache.complete()
        self._end_start(None)

    def _end_start(self, error: CoordinationError | None) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            joined(error)

    def _soon(self, call: Callable[[], object]) -> None:
        if self._is_serving:
            self._slices.call_later(call)
        else:
            call()

    def _send(self, broker: LiveBroker, control: Control, done: Callable[[ControlReply], object]) -> None:
        """To this broker by its applier, to others by channels, which are loaded when first needed."""
        if broker.info.broker_id == self._broker_id:
            self._applier.apply(broker.epoch, control, done)
            return
        if self._channels is None:
            from moldau.broker.metadata.channels import Channels

            self._channels = Channels(self._broker_id, self._connect, self._clock)
        self._channels.send(broker, control, done)

    def _brokers_changed(self, brokers: Mapping[int, LiveBroker]) -> None:
        if self._channels is not None:
            self._channels.keep({broker_id: broker.epoch for broker_id, broker in brokers.items()})
        if self._suspicions is not None or len(brokers) > 1:
            self._watch().watch(brokers)

    def _controller_changed(self, broker_id: int | None) -> None:
        """Where another broker is controller, that one sends what this one has to open, once it can connect."""
        self._controller_id = broker_id
        if broker_id is None or broker_id == self._broker_id:
            if self._suspicions is not None:
                self._suspicions.watch_controller(None)
            return
        self._watch().watch_controller(lambda: self._cache.snapshot.brokers.get(broker_id))
        if self._joined is not None:
            self._applier.forget_configs()
            self._end_start(None)

    @property
    def suspects(self) -> bool:
        """Whether the controller, if it is here, suspects a broker that is registered."""
        return self._suspicions is not None and self._suspicions.suspects

    def _watch(self) -> "Suspicions":
        """Loaded when there is first another broker."""
        if self._suspicions is None:
            from moldau.broker.metadata.suspicions import Suspicions

            self._suspicions = Suspicions(
                self._broker_id,
                self._connect,
                self._clock,
                lambda: self._config.int("suspicion.timeout.ms") / 1000,
                self._runner.take,
                lambda: self._cache.snapshot.brokers,
            )
        return self._suspicions

    def _new_topic_id(self) -> bytes:
        """An id that no topic has had."""
        while (topic_id := self._random_bytes(ID_BYTES)) in _RESERVED_IDS:
            pass
        return topic_id

    # Afterwards

    def hand_over(self) -> "HandOver | None":
        """Begin to hand leaderships over to other brokers, which ends soon in any case; None where there are none."""
        if len(self._cache.snapshot.brokers) < 2 or not self._config.boolean("controlled.shutdown.enable"):
            return None
        from moldau.broker.metadata.hand_over import HandOver
        from moldau.cluster.controller.requests import ShutDownBroker

        config = self._config
        leads = any(info.leader == self._broker_id for topic in self._cache.snapshot.topics.values() for info in topic.partitions)
        return HandOver(
            ShutDownBroker(self._broker_id, self._applier.broker_epoch),
            partial(self.ask, forwards=True),
            self._clock,
            retries=config.int("controlled.shutdown.max.retries"),
            back_off_s=config.int("controlled.shutdown.retry.backoff.ms") / 1000,
            linger_s=LINGER_S if leads else 0.0,
            timeout_s=config.int("shutdown.timeout.ms") / 1000 * HAND_OVER_SHARE,
        )

    def report_leader(self, leader_id: int) -> None:
        """Have the controller know that this broker gets nothing from a leader that it follows."""
        from moldau.cluster.controller.requests import ReportLeader

        request = ReportLeader(leader_id, self._broker_id, self._applier.broker_epoch)
        self.ask(request, lambda _outcome: None, forwards=True, timeout_s=self._config.int("suspicion.timeout.ms") / 1000)

    def stop(self) -> None:
        """Do nothing by itself any more: the broker stops. Where there are others it leaves the tree at once, so that they have not to wait
        for its logs to be closed.
        """
        self._registrar.end()
        self._runner.take(Leave(len(self._cache.snapshot.brokers) > 1))
        self._runner.stop()
        self._applier.close()
        if self._channels is not None:
            self._channels.close()
        if self._forwarder is not None:
            self._forwarder.close()
        if self._suspicions is not None:
            self._suspicions.close()

    def ask(self, request: "Request", done: Callable[[Any], object], *, forwards: bool = False, timeout_s: float | None = None) -> None:
        """Have the controller carry out a request; `done` with its outcome, of a configuration when this broker obeys it.

        Where another broker is controller, or becomes it meanwhile, NOT_CONTROLLER; or with `forwards` it is sent to that one, for
        `request.timeout.ms` at most or for another time.
        """

        def answered(outcome: Any) -> None:
            if isinstance(outcome, PeerError) and outcome.code is ErrorCode.NOT_CONTROLLER:  # resigned meanwhile
                self._forward(request, done, timeout_s)
            else:
                done(outcome)

        if forwards and self._controller_id != self._broker_id:
            self._forward(request, done, timeout_s)
        else:
            self._ask_here(request, answered if forwards else done)

    def _ask_here(self, request: "Request", done: Callable[[Any], object]) -> None:
        from moldau.cluster.controller.requests import AlteredConfig

        def answered(outcome: Any) -> None:
            if isinstance(outcome, AlteredConfig):
                self._config_applier().when_applied(outcome.notification, lambda: done(outcome))
            else:
                done(outcome)

        self._runner.ask(request, answered)

    def _forward(self, request: "Request", done: Callable[[Any], object], timeout_s: float | None) -> None:
        if self._forwarder is None:
            from moldau.broker.metadata.forwarding import ControllerForwarder

            def controller() -> BrokerInfo | None:
                return None if self._controller_id is None else self._cache.snapshot.brokers.get(self._controller_id)

            def own() -> Callable[["Request", Callable[[Any], object]], object] | None:
                return self._ask_here if self._controller_id == self._broker_id else None

            self._forwarder = ControllerForwarder(self._connect, controller, own, self._clock)
        self._forwarder.ask(request, done, self._config.int("request.timeout.ms") / 1000 if timeout_s is None else timeout_s)

    def _heard(self, event: StoreEvent | SessionEvent) -> None:
        if isinstance(event, ConfigsChanged):
            self._has_missed = True
            self._apply_missed()
        elif isinstance(event, SessionEvent):
            if event.state is SessionState.CONNECTED:
                self._apply_missed()
            else:  # the watch is lost
                self._has_missed = True
                self._has_expired = self._has_expired or event.state is SessionState.EXPIRED

    def _apply_missed(self) -> None:
        """Of a topic that the controller has not sent yet nothing would be applied, so this waits for the end of the start."""
        if self._has_missed and self._is_serving:
            compares, self._has_missed, self._has_expired = self._has_expired, False, False
            self._config_applier().apply_new(compares=compares)

    def _config_applier(self) -> "ConfigApplier":
        """Loaded when first needed."""
        if self._configs is None:
            from moldau.broker.metadata.config_applier import ConfigApplier

            self._configs = ConfigApplier(
                self._broker_id, self._cache, self._applier, self._config, self._seen, self._reconfigured, self._clock
            )
        return self._configs
