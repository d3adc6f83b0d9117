"""Has everything that comes along with the records follow, at its intervals, in one process of a mirror: the first of its members by name.

All members have the same list of names, of the generation that they joined last. Where two of them do it for a moment, each does what the
other one would.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from moldau.mirror.following.config_sync import ConfigSync
from moldau.mirror.following.group_sync import GroupSync
from moldau.mirror.partitions import SourcePartition
from moldau.mirror.reachability import is_logged
from moldau.mirror.retries import Retries
from moldau.mirror.state.following import REASON_MAX, SHOWN_MAX, Following, GroupFailure, RefusedConfig
from moldau.mirror.together import together
from moldau.model.errors import PeerError, WorldError
from moldau.model.log_throttle import LogThrottle

if TYPE_CHECKING:
    from moldau.mirror.inventory import Inventory
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

CHECK_S = 0.1
"""How often it looks whether a round that is due is this process's to do."""
GROUPS, CONFIGS = "groups", "configs"
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100


class Follower:
    """See the module. `is_first`: whether it is this process now."""

    def __init__(
        self,
        plan: "MirrorPlan",
        instance: str,
        target: "Brokers",
        sources: Mapping[str, "Brokers"],
        inventory: "Inventory",
        clock: "Clock",
        is_first: Callable[[], bool],
        is_followed: Callable[[SourcePartition], bool],
    ) -> None:
        """`is_followed`: whether a partition of a source is neither halted nor paused, in any process."""
        self._plan = plan
        self._instance = instance
        self._clock = clock
        self._is_first = is_first
        self._groups = GroupSync(plan, target, sources, inventory, clock, is_followed)
        self._configs = ConfigSync(plan, target, sources, inventory, clock)
        self._done_ms = {GROUPS: 0, CONFIGS: 0}
        """When the last round ended."""
        self.retries = Retries(clock)
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    async def run(self) -> None:
        """Follow, until it is cancelled."""
        rounds = []
        if self._plan.groups.patterns.include:
            rounds.append(self._repeat(GROUPS, self._groups.round, self._plan.groups.interval_ms / 1000))
        if self._plan.sync.configs:
            rounds.append(self._repeat(CONFIGS, self._configs.round, self._plan.sync.interval_ms / 1000))
        await together(*rounds, asyncio.Event().wait())

    def report(self) -> Following | None:
        """How it is; None if another process does it."""
        if not self._is_first():
            return None
        groups, configs = self._groups, self._configs
        return Following(
            instance=self._instance,
            groups_ms=self._done_ms[GROUPS],
            groups=groups.groups,
            groups_busy=groups.busy,
            commits=groups.commits,
            checkpoints=groups.checkpoints,
            group_failures=tuple(GroupFailure(name, reason[:REASON_MAX]) for name, reason in sorted(groups.failures.items())[:SHOWN_MAX]),
            group_failure_count=len(groups.failures),
            groups_reason=self._reason(GROUPS),
            configs_ms=self._done_ms[CONFIGS],
            configs_changed=configs.changed,
            refused=tuple(RefusedConfig(topic, config, reason[:REASON_MAX]) for topic, config, reason in configs.refused[:SHOWN_MAX]),
            refused_count=len(configs.refused),
            configs_reason=self._reason(CONFIGS),
        )

    def _reason(self, what: str) -> str:
        retry = self.retries.of(what)
        return "" if retry is None else retry.reason[:REASON_MAX]

    async def _repeat(self, what: str, act: Callable[[], Awaitable[None]], interval_s: float) -> None:
        due_s = 0.0
        while True:
            if self._clock.monotonic() >= due_s and self._is_first():
                try:
                    await act()
                    self._done_ms[what] = self._clock.time_ms()
                    self.retries.over(what)
                except (PeerError, WorldError) as error:
                    self._failed(what, error)
                except Exception:
                    self.retries.failed(what, "a bug, of which the log has more")
                    _LOG.exception("%s not followed because of a bug: mirror=%s", what, self._plan.name)
                due_s = self._clock.monotonic() + interval_s
            await asyncio.sleep(max(CHECK_S, due_s - self._clock.monotonic()))

    def _failed(self, what: str, error: PeerError | WorldError) -> None:
        self.retries.failed(what, error)
        if not is_logged(error) and self._throttle.due((what, str(error)), self._clock.monotonic()):
            _LOG.warning("%s not followed, trying again: mirror=%s reason=%s", what, self._plan.name, error)
