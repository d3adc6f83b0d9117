"""Applies changed configurations, also those that tools write: reads what a notification is about, and has it obeyed.

A change that is written here is answered when this broker obeys it (`when_applied`). What could not be read is read again. Notifications
are removed after a while: after the end of a session all configurations are compared.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from moldau.broker.metadata.applier import READ_AGAIN_S, MetadataApplier
from moldau.cluster import queries, znodes
from moldau.cluster.snapshot import MetadataCache
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import CoordinationError
from moldau.model.steps import UNFINISHED, Pause, Steps

if TYPE_CHECKING:
    from moldau.ports.clock import Clock

_LOG = logging.getLogger(__name__)


class ConfigApplier:
    """See the module."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        applier: MetadataApplier,
        config: BrokerConfig,
        seen: Sequence[str],
        reconfigured: Callable[[], object],
        clock: "Clock",
    ) -> None:
        """`seen` are notifications from before the configurations were read; `reconfigured` is called when the broker's own are others."""
        self._broker_id = broker_id
        self._cache = cache
        self._applier = applier
        self._config = config
        self._last = seen[-1] if seen else ""
        self._reconfigured = reconfigured
        self._clock = clock
        self._reads_again = False
        self._must_compare = False
        """Whether notifications may have been removed since the last ones were read."""
        self._waiting: dict[str, Callable[[], object]] = {}

    def apply_new(self, *, compares: bool = False) -> None:
        """There may be new notifications. `compares`: and others that were removed before they could be read."""
        self._must_compare = self._must_compare or compares
        self._applier.run(self._apply_new())

    def when_applied(self, notification: str | None, done: Callable[[], object]) -> None:
        """Call `done` when the change of this notification is obeyed; at once if there is none."""
        if notification is None or notification <= self._last:
            done()
        else:
            self._waiting[notification] = done

    def _apply_new(self) -> Steps:
        compares, self._must_compare = self._must_compare, False
        try:
            names = yield from self._applier.answered(queries.notification_names())
            new = [name for name in names if name > self._last]
            changed: Sequence[str | MalformedNodeError] = yield from self._applier.answered(queries.changed_entities(new))
            if compares:
                changed = yield from self._different()
            for entity in changed:
                if isinstance(entity, MalformedNodeError):
                    _LOG.error("notification of a changed configuration skipped: reason=%s", entity)
                else:
                    yield from self._apply(entity)
        except CoordinationError as error:
            _LOG.error("changed configurations not read; they are read again: reason=%s", error)
            self._must_compare = self._must_compare or compares
            if not self._reads_again:
                self._reads_again = True
                self._clock.call_later(READ_AGAIN_S, self._read_again)
        else:
            self._last = max(self._last, *new) if new else self._last
            for name in [name for name in self._waiting if name <= self._last]:
                self._waiting.pop(name)()

    def _read_again(self) -> None:
        """Also for the watch, which a read that has failed may not have set."""
        self._reads_again = False
        self.apply_new()

    def _different(self) -> Generator[Pause, None, list[str]]:
        """The brokers' configurations, and those of topics that are not as they are known here."""
        known = self._cache.snapshot
        found = yield from self._applier.answered(queries.topic_configs(list(known.topics)))
        different = [f"brokers/{znodes.DEFAULT_ENTITY}", f"brokers/{self._broker_id}"]
        for name, values in found.items():
            if isinstance(values, MalformedNodeError) or values != known.topic_config(name):
                different.append(f"topics/{name}")
            yield UNFINISHED
        return different

    def _apply(self, entity: str) -> Steps:
        kind, _, name = entity.partition("/")
        try:
            if kind == "topics":
                yield from self._apply_topic(name)
            elif kind == "brokers" and name in (znodes.DEFAULT_ENTITY, str(self._broker_id)):
                yield from self._apply_broker(None if name == znodes.DEFAULT_ENTITY else self._broker_id)
        except MalformedNodeError as error:
            _LOG.error("changed configuration malformed; the one before applies: entity=%s reason=%s", entity, error)
        except CoordinationError:
            raise
        except Exception as error:  # the other changes are applied, and those who wait for any are answered
            _LOG.error("changed configuration not applied because of a bug: entity=%s", entity, exc_info=error)

    def _apply_topic(self, name: str) -> Steps:
        values = (yield from self._applier.answered(queries.topic_configs([name]))).get(name)
        if isinstance(values, MalformedNodeError):
            raise values
        if values is None:
            return
        cache = self._cache
        if name in cache.new_configs:
            cache.new_configs[name] = values
        if name in cache.snapshot.topics:
            cache.snapshot = cache.snapshot.with_topic_config(name, values)
            yield from self._applier.reconfigure(name)

    def _apply_broker(self, broker_id: int | None) -> Steps:
        values, _ = yield from self._applier.answered(queries.config(znodes.broker_config(broker_id)))
        cache = self._cache
        cache.snapshot = cache.snapshot.with_broker_config(broker_id, values)
        own, cluster = cache.snapshot.broker_config(self._broker_id), cache.snapshot.broker_config(None)
        if self._config.set_dynamic(own=own, cluster=cluster, nodes=znodes.broker_configs(self._broker_id)):
            self._reconfigured()
            for topic in list(cache.snapshot.topics):
                yield from self._applier.reconfigure(topic)
