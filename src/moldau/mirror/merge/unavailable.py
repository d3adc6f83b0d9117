"""Partitions of the target that take no records for now: without a leader, or with too few replicas in sync.

What goes there waits, and is not fetched. The rest is mirrored without it, since a transaction fails as a whole. From time to time
a transaction tries them again. It fails with them if that was too early, so the pause is a multiple of what it took.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from moldau.mirror.merge.route import Route
from moldau.mirror.partitions import SourcePartition
from moldau.mirror.plan.values import Limits
from moldau.mirror.retries import Retries, Retry
from moldau.model.errors import PeerError
from moldau.model.identity import TopicPartition
from moldau.model.log_throttle import LogThrottle
from moldau.ports.clock import Clock, Timer

_LOG = logging.getLogger(__name__)

PAUSE = 10
"""Times what the transaction took that failed: the others' records wait so long, too."""
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100


class Unavailable:
    """See the module. `released` is called when what goes to a partition may be written again."""

    def __init__(self, route: Route, limits: Limits, retries: Retries, clock: Clock, released: Callable[[], object]) -> None:
        self._route = route
        self._limits = limits
        self._retries = retries
        self._clock = clock
        self._released = released
        self._failures: dict[TopicPartition, int] = {}
        """In a row."""
        self._timers: dict[TopicPartition, Timer] = {}
        """Of those that are not tried now."""
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    def failed(self, targets: Mapping[TopicPartition, PeerError], took_s: float) -> None:
        """A transaction that took so long has failed, because these did not take their records."""
        for target, error in targets.items():
            failures = self._failures.get(target, 0)
            self._failures[target] = failures + 1
            if (timer := self._timers.get(target)) is not None:
                timer.cancel()
            self._timers[target] = self._clock.call_later(
                max(self._limits.backoff_s(failures), PAUSE * took_s), partial(self._release, target)
            )
            self._retries.failed(target, error)
            if self._throttle.due((target, error.code), self._clock.monotonic()):
                _LOG.warning("target partition takes no records, trying again: partition=%s reason=%s", target, error)

    def stored(self, targets: Iterable[TopicPartition]) -> None:
        """These have taken records."""
        for target in self._failures.keys() & set(targets):
            del self._failures[target]
            self._retries.over(target)

    def holds(self, partition: SourcePartition) -> bool:
        """Whether records of a partition of a source wait, since they may go to one that is not tried now."""
        return bool(self._timers) and any(self._route.may_go(partition, target) for target in self._timers)

    def retry(self, partition: SourcePartition) -> Retry | None:
        """Why they wait, or have waited until the transaction that is written now."""
        return self._retries.of(*(target for target in self._failures if self._route.may_go(partition, target)))

    def close(self) -> None:
        """Try nothing again."""
        for timer in self._timers.values():
            timer.cancel()

    def _release(self, target: TopicPartition) -> None:
        del self._timers[target]
        self._released()
