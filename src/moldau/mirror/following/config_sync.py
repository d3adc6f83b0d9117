"""Configurations of topics, kept as in the source: those that were set for a topic there, but for some that the file excludes.

A copy's topics lose what is not set in the source any more. Those of a merge keep it: they may have settings of their own, and several
sources may go into one; of these the first in the file that has the topic decides.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.mirror import target_topics
from moldau.mirror.inventory import MIRROR_SOURCE
from moldau.mirror.plan.values import Mode
from moldau.mirror.state.following import RefusedConfig
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.mirror.inventory import Inventory
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

TOPICS_AT_ONCE = 50
"""Of one request."""
_REFUSALS = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION, ErrorCode.UNSUPPORTED_VERSION)
"""One configuration may be refused, and the others be taken."""
_LOGGED_EACH_S = 3600.0
_REASONS_LOGGED_MAX = 200


def changes_of(wanted: Mapping[str, str], there: Mapping[str, str], excluded: frozenset[str], *, deletes: bool) -> dict[str, str | None]:
    """What has to change: values to set, None to delete. `wanted`: what is set in the source; `there`: in the target."""
    found: dict[str, str | None] = {
        name: value for name, value in sorted(wanted.items()) if name not in excluded and there.get(name) != value
    }
    if deletes:
        found |= {name: None for name in sorted(there) if name not in excluded and name not in wanted}
    return found


class ConfigSync:
    """See the module. `round` does it once."""

    def __init__(
        self, plan: "MirrorPlan", target: "Brokers", sources: Mapping[str, "Brokers"], inventory: "Inventory", clock: "Clock"
    ) -> None:
        self.refused: list[RefusedConfig] = []
        """Of the last round."""
        self.changed = 0
        """Configurations changed so far."""
        self._plan = plan
        self._target = target
        self._sources = sources
        self._inventory = inventory
        self._clock = clock
        self._excluded = plan.sync.exclude_configs | {MIRROR_SOURCE}
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    async def round(self) -> None:
        """Compare all topics that are mirrored, and set what differs. PeerError, WorldError: a cluster does not answer; the topics of the
        others were compared.
        """
        refused = list[RefusedConfig]()
        done = set[str]()
        failures: list[PeerError | WorldError] = []
        for source in self._sources:
            try:
                await self._compare(source, done, refused)
            except (PeerError, WorldError) as error:
                failures.append(error)
        self.refused = refused
        for each in refused:
            if self._throttle.due(each, self._clock.monotonic()):
                _LOG.warning("configuration not mirrored: topic=%s config=%s reason=%s", *each)
        if failures:
            raise failures[0]

    async def _compare(self, source: str, done: set[str], refused: list[RefusedConfig]) -> None:
        """The topics of one source, but for those that are `done`: several sources may have one topic of the target."""
        names = {each.topic: self._inventory.target_topic(each) for each in self._inventory.partitions if each.source == source}
        topics = sorted(topic for topic, name in names.items() if name not in done)
        done.update(names.values())  # also where the source is away: its topics do not get another one's for that time
        for start in range(0, len(topics), TOPICS_AT_ONCE):
            some = topics[start : start + TOPICS_AT_ONCE]
            wanted = await target_topics.configs_of_all(self._sources[source], some)
            there = await target_topics.configs_of_all(self._target, [names[topic] for topic in some])
            for topic in some:
                await self._have(names[topic], wanted[topic], there[names[topic]], refused)

    async def _have(
        self, topic: str, wanted: Mapping[str, str] | PeerError, there: Mapping[str, str] | PeerError, refused: list[RefusedConfig]
    ) -> None:
        if isinstance(wanted, PeerError):
            refused.append(RefusedConfig(topic, "", f"source: {wanted}"))
            return
        if isinstance(there, PeerError):
            refused.append(RefusedConfig(topic, "", f"target: {there}"))
            return
        if self._plan.mode is Mode.COPY and MIRROR_SOURCE not in there:
            return  # it was promoted
        changes = changes_of(wanted, there, self._excluded, deletes=self._plan.mode is Mode.COPY)
        if changes:
            await self._change(topic, changes, refused)

    async def _change(self, topic: str, changes: Mapping[str, str | None], refused: list[RefusedConfig]) -> None:
        """All at once; where the target refuses that, one by one."""
        error = await target_topics.alter_configs(self._target, topic, changes)
        if error is None:
            self.changed += len(changes)
            _LOG.info("configurations changed in the target: topic=%s configs=%s", topic, ",".join(changes))
        elif error.code in _REFUSALS and len(changes) > 1:
            for name, value in changes.items():
                await self._change(topic, {name: value}, refused)
        else:
            refused.append(RefusedConfig(topic, ",".join(changes), str(error)))
