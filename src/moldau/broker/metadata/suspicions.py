"""Which brokers do not answer, for this broker's controller: as controller it watches all others, otherwise the one that is controller.

A controller that does not answer is suspected only by a broker that reaches half of the others at least: one that is cut off from all of
them, but not from the tree, would become controller and could send its decisions to none, and what it has others lead would have no leader.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.peers.reach import Reach
from moldau.broker.peers.watch import PeerWatch
from moldau.cluster.controller.events import BrokerSuspected, ControllerSuspected

if TYPE_CHECKING:
    from moldau.broker.peers.connections import Connect
    from moldau.cluster.queries import LiveBroker
    from moldau.cluster.snapshot import BrokerInfo
    from moldau.ports.clock import Clock, Timer

STARTING_S = 5.0
"""A broker that has just registered may take so long until it listens."""
KNOWN_AFTER_S = 0.5
"""The controller's address comes with its first message: it is looked for again after this time."""


class Suspicions:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        connect: "Connect",
        clock: "Clock",
        timeout_s: Callable[[], float],
        suspect: Callable[[BrokerSuspected | ControllerSuspected], object],
        brokers: "Callable[[], Mapping[int, BrokerInfo]]",
    ) -> None:
        """`suspect` is called when a suspicion begins or ends; `timeout_s`: `suspicion.timeout.ms`; `brokers`: all that are registered."""
        self._broker_id = broker_id
        self._connect = connect
        self._clock = clock
        self._timeout_s = timeout_s
        self._suspect = suspect
        self._brokers = brokers
        self._watches: dict[tuple[int, int], PeerWatch] = {}
        """As controller: of incarnations of brokers."""
        self._of_controller: PeerWatch | None = None
        self._reach: Reach | None = None
        """While the controller does not answer, until this broker reaches others."""
        self._replaced: int | None = None
        """The broker that was controller until this one was, if it did not answer."""
        self._again: Timer | None = None

    def watch(self, brokers: "Mapping[int, LiveBroker]") -> None:
        """As controller watch these, and no others; none when there is another controller."""
        for broker_id, epoch in list(self._watches):
            if broker_id not in brokers or brokers[broker_id].epoch != epoch:
                self._watches.pop((broker_id, epoch)).close()
        grace_s = STARTING_S if self._watches else 0.0
        for broker_id, broker in brokers.items():
            if broker_id == self._broker_id or (broker_id, broker.epoch) in self._watches:
                continue
            changed = partial(self._changed, broker_id, broker.epoch)
            is_suspected = broker_id == self._replaced
            self._watches[broker_id, broker.epoch] = self._watch(broker.info, changed, grace_s=grace_s, is_suspected=is_suspected)
            if is_suspected:
                changed(True)
        if brokers:
            self._replaced = None

    def watch_controller(self, controller: "Callable[[], BrokerInfo | None] | None") -> None:
        """Watch the broker that is controller, as soon as it is known where it is; None for no other one."""
        if self._of_controller is not None:
            if self._of_controller.is_suspected:
                self._replaced = self._of_controller.broker.broker_id
                self._controller_changed(self._replaced, False)
            self._of_controller.close()
            self._of_controller = None
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if controller is None:
            return
        self._replaced = None
        found = controller()
        if found is None:
            self._again = self._clock.call_later(KNOWN_AFTER_S, partial(self.watch_controller, controller))
        else:
            self._of_controller = self._watch(found, partial(self._controller_changed, found.broker_id))

    @property
    def suspects(self) -> bool:
        """Whether a broker is suspected that the controller on this one watches."""
        return any(watch.is_suspected for watch in self._watches.values())

    def close(self) -> None:
        """Watch nothing any more."""
        self.watch({})
        self.watch_controller(None)

    def _watch(
        self, broker: "BrokerInfo", changed: Callable[[bool], object], *, grace_s: float = 0.0, is_suspected: bool = False
    ) -> PeerWatch:
        return PeerWatch(
            self._connect,
            self._clock,
            broker,
            timeout_s=self._timeout_s,
            changed=changed,
            grace_s=grace_s,
            is_suspected=is_suspected,
        )

    def _changed(self, broker_id: int, epoch: int, is_suspected: bool) -> None:
        self._suspect(BrokerSuspected(broker_id, epoch, is_suspected))

    def _controller_changed(self, broker_id: int, is_suspected: bool) -> None:
        if self._reach is not None:
            self._reach.close()
            self._reach = None
        others = [info for each, info in self._brokers().items() if each not in (self._broker_id, broker_id)]
        if is_suspected and others:
            suspect = partial(self._suspect, ControllerSuspected(broker_id, True))
            self._reach = Reach(self._connect, self._clock, others, timeout_s=self._timeout_s, reached=suspect)
        else:
            self._suspect(ControllerSuspected(broker_id, is_suspected))
