"""What there is to mirror: the topics of the sources that the file selects, and their places in the target, which are made here.

A topic that the target refuses is a problem of that topic alone: it is said, tried again with the next look, and the others are mirrored.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror import catalog, target_topics
from moldau.mirror.catalog import Catalog
from moldau.mirror.naming import SourceTopic, TargetNameError
from moldau.mirror.partitions import Halt, SourcePartition
from moldau.mirror.plan.values import Mode, Partitioning
from moldau.mirror.reachability import is_logged
from moldau.model.errors import ErrorCode, MoldauError, PeerError, WorldError
from moldau.model.log_throttle import LogThrottle
from moldau.wire.brokers import may_pass

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers

_LOG = logging.getLogger(__name__)

MIRROR_SOURCE = "mirror.source"
"""The configuration that makes a topic of the target one of a copy. A source's own is never taken over."""
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100
INSIST_S = 5.0
"""How long a look asks a cluster again that does not answer; the others wait for it."""


DENIALS_MAX = 2
"""How many looks in a row have to miss a topic: a broker that has just started does not know all."""


def source_text(cluster_id: str, topic_id: bytes) -> str:
    """`mirror.source` of a copy of this topic."""
    return f"{cluster_id} {topic_id.hex()}"


def no_copy(of: str, source_id: str) -> str:
    """Why a topic of the target with this `mirror.source` cannot be the copy of one of this cluster."""
    cluster_id = of.partition(" ")[0]
    if not of:
        return (
            "no copy, but made by others than a mirror, or promoted; the mirror does not write to it, unless mirror fail-back makes it one"
        )
    if cluster_id != source_id:
        return f"a copy of a topic of another cluster, {cluster_id}, and not of the source's, which is cluster {source_id}"
    return "a copy of an earlier topic of this name, which was deleted in the source and made again"


async def mirror_sources(brokers: "Brokers", topics: Sequence[str]) -> dict[str, str]:
    """`mirror.source` of the topics that are copies; not of those whose configurations may not be read. PeerError, WorldError."""
    found = await target_topics.configs_of_all(brokers, topics, [MIRROR_SOURCE])
    return {
        topic: configs[MIRROR_SOURCE] for topic, configs in found.items() if not isinstance(configs, PeerError) and MIRROR_SOURCE in configs
    }


class UnfitTopicError(Exception):
    """A topic of the target cannot take what is mirrored."""

    def __init__(self, message: str, why: Halt = Halt.REFUSED) -> None:
        super().__init__(message)
        self.why = why


class SameClusterError(MoldauError):
    """Two clusters of a mirror's file, which have to be different ones, are the same."""


class Problem(NamedTuple):
    """Why nothing of a topic is mirrored."""

    why: Halt | None
    """None: the next look tries it again."""
    reason: str
    topic_id: bytes
    """Empty where it is not known."""


class Inventory:
    """See the module. `look` comes first."""

    def __init__(self, plan: "MirrorPlan", target: "Brokers", sources: Mapping[str, "Brokers"], clock: "Clock") -> None:
        self.plan = plan
        self.selection = plan.selection
        self.partitions: tuple[SourcePartition, ...] = ()
        """Of all sources, those whose topic is in the target."""
        self.problems: dict[SourceTopic, Problem] = {}
        """Topics that are not mirrored."""
        self.away: dict[str, PeerError | WorldError] = {}
        """Sources that could not be looked at last, and why."""
        self._mirrored: dict[SourceTopic, bytes] = {}
        """The ids of topics that have been mirrored, also by other processes: one that does not exist any more was deleted."""
        self._denials: dict[SourceTopic, int] = {}
        self.target_id = ""
        self._target = target
        self._sources = sources
        self._clock = clock
        self._catalogs: dict[str, Catalog] = {}
        self._counts: dict[str, int] = {}
        """Partitions of the target's topics."""
        self._copied: dict[str, str] = {}
        """What topics of the target are copies of."""
        self._copies: dict[str, dict[str, str]] = {}
        """By source of a merge: `mirror.source` of topics that are copies."""
        self._throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)

    def cluster_id(self, source: str) -> str:
        """The id of a source's cluster."""
        return self._catalogs[source].cluster_id

    @property
    def seen(self) -> tuple[str, ...]:
        """The sources that have ever answered."""
        return tuple(self._catalogs)

    def target_count(self, topic: str) -> int:
        """How many partitions a topic of the target has."""
        return self._counts.get(topic, 0)

    def target_topic(self, partition: SourcePartition) -> str:
        """Where a topic's records go. TargetNameError."""
        return self.plan.names.target(SourceTopic(partition.source, partition.topic))

    def remember(self, origin: SourceTopic, topic_id: bytes) -> None:
        """A topic has been mirrored."""
        self._mirrored.setdefault(origin, topic_id)

    def forget(self, origin: SourceTopic, topic_id: bytes) -> None:
        """An operator knows that a topic was deleted."""
        if self._mirrored.get(origin) == topic_id:
            del self._mirrored[origin]
            self.problems.pop(origin, None)

    async def meet(self) -> None:
        """Ask which clusters they are. SameClusterError; PeerError, WorldError as of `look`."""
        await self._ask()
        for name in self._catalogs:
            if same := self._same_cluster(name):
                raise SameClusterError(same)

    async def look(self) -> None:
        """Ask all clusters, and make what is missing in the target. A source that does not answer has what it had.

        PeerError, WorldError: the target does not answer, or no source ever has.
        """
        there = await self._ask()
        self._counts = {name: seen.partitions for name, seen in there.topics.items()}
        found: list[SourcePartition] = []
        problems: dict[SourceTopic, Problem] = {}
        for name, seen in self._catalogs.items():
            for denied in self.selection.of(seen.denied):
                problems[SourceTopic(name, denied)] = Problem(Halt.DENIED, "topic authorization failed in the source", b"")
            same = self._same_cluster(name)
            for topic in self.selection.of(seen.topics):
                origin = SourceTopic(name, topic)
                topic_id, count = seen.topics[topic]
                if same:
                    problems[origin] = Problem(Halt.LOOP if seen.cluster_id == self.target_id else Halt.REFUSED, same, topic_id)
                    continue
                try:
                    await self._have(origin, seen)
                except (PeerError, TargetNameError, UnfitTopicError) as error:
                    problems[origin] = Problem(_halt_of(error), str(error), topic_id)
                    self._warn(origin, error)
                else:
                    self._mirrored[origin] = topic_id
                    found += (SourcePartition(name, topic_id, topic, number) for number in range(count))
            problems |= self._deleted(name, seen)
        self.partitions, self.problems = tuple(found), problems

    async def _ask(self) -> Catalog:
        """The target; what the sources have is remembered. All are asked at the same time: one that is away holds up no other."""
        answers = await asyncio.gather(
            catalog.look(self._target, INSIST_S), *(self._ask_source(each) for each in self._sources), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        there = answers[0]
        assert isinstance(there, Catalog), "it is the target's"
        if not self._catalogs:
            raise next(iter(self.away.values()))
        self.target_id = there.cluster_id
        return there

    async def _ask_source(self, name: str) -> None:
        brokers = self._sources[name]
        try:
            seen = await catalog.look(brokers, INSIST_S)
            if self.plan.mode is Mode.MERGE:
                ask = partial(mirror_sources, brokers, self.selection.of(seen.topics))
                self._copies[name] = await brokers.insist(ask, INSIST_S)
        except (PeerError, WorldError) as error:
            self.away[name] = error
            if not is_logged(error) and self._throttle.due((name, str(error)), self._clock.monotonic()):
                _LOG.warning("source not looked at, looking again later: source=%s reason=%s", name, error)
        else:
            self.away.pop(name, None)
            self._catalogs[name] = seen

    def _same_cluster(self, name: str) -> str:
        """That a source is the target, or one that comes before it in the file; empty where it is neither."""
        cluster_id = self._catalogs[name].cluster_id
        if not cluster_id:  # Metadata may leave it out
            return ""
        if cluster_id == self.target_id:
            return f"{self.plan.label(name)} and the target are the same cluster, {cluster_id}"
        for other in self._sources:
            if other == name:
                break
            if other in self._catalogs and self._catalogs[other].cluster_id == cluster_id:
                return f"sources {other} and {name} are the same cluster, {cluster_id}: its records would be merged twice"
        return ""

    def _deleted(self, source: str, seen: Catalog) -> dict[SourceTopic, Problem]:
        """Topics that have been mirrored, and that a source does not have any more."""
        found = {}
        for origin, topic_id in self._mirrored.items():
            if origin.source != source:
                continue
            if origin.topic in seen.topics or origin.topic in seen.denied or not self.selection.selects(origin.topic):
                self._denials.pop(origin, None)
                continue
            self._denials[origin] = self._denials.get(origin, 0) + 1
            reason = f"topic id {topic_id.hex()} does not exist any more"
            found[origin] = Problem(Halt.DELETED if self._denials[origin] >= DENIALS_MAX else None, reason, topic_id)
            self._warn(origin, reason)
        return found

    async def _have(self, origin: SourceTopic, seen: Catalog) -> None:
        """Have a topic in the target, with partitions enough."""
        name, count = self.plan.names.target(origin), seen.topics[origin.topic].partitions
        copied = self._copies.get(origin.source, {}).get(origin.topic, "")
        if copied.partition(" ")[0] == self.target_id:
            raise UnfitTopicError(
                f"topic {origin.topic} of {origin.source} is a copy of one of the target: {MIRROR_SOURCE} is {copied!r}", Halt.LOOP
            )
        known = self._counts.get(name)
        source = source_text(seen.cluster_id, seen.topics[origin.topic].topic_id)
        if known is not None and self.plan.mode is Mode.COPY and self._copied.get(name) != source:
            there = (await target_topics.configs_of(self._target, name, frozenset())).get(MIRROR_SOURCE, "")
            if there != source:
                raise _unfit(name, there, seen.cluster_id, was_copy=origin in self._mirrored)
            self._copied[name] = source
        if known is None:
            configs: dict[str, str] = {}
            if self.plan.sync.configs:
                excluded = self.plan.sync.exclude_configs | {MIRROR_SOURCE}
                configs = await target_topics.configs_of(self._sources[origin.source], origin.topic, excluded)
            if self.plan.mode is Mode.COPY:
                configs[MIRROR_SOURCE] = source
            await self._create(target_topics.WantedTopic(name, count, configs))
            self._counts[name] = count
        elif known < count and self.plan.partitioning is Partitioning.SAME:
            if not self.plan.sync.growth:
                raise UnfitTopicError(f"topic {name} has {known} partitions in the target, and {count} in {origin.source}")
            await target_topics.grow(self._target, name, count)
            self._counts[name] = count

    async def _create(self, topic: target_topics.WantedTopic) -> None:
        """One that the target refuses for a configuration is made without it; the comparison of configurations shows it then."""
        try:
            await target_topics.create(self._target, topic)
        except PeerError as error:
            if error.code is not ErrorCode.INVALID_CONFIG:
                raise
            own = {name: value for name, value in topic.configs.items() if name == MIRROR_SOURCE}
            accepted = await target_topics.accepted_configs(self._target, topic)
            await target_topics.create(self._target, topic._replace(configs=accepted | own))

    def _warn(self, origin: SourceTopic, reason: object) -> None:
        if self._throttle.due((origin, str(reason)), self._clock.monotonic()):
            _LOG.warning("topic not mirrored, looking again later: source=%s topic=%s reason=%s", origin.source, origin.topic, reason)


def _unfit(topic: str, there: str, source_id: str, *, was_copy: bool) -> UnfitTopicError:
    """Why nothing is copied into a topic of the target whose `mirror.source` is `there`."""
    if there:
        why = Halt.RECREATED if there.partition(" ")[0] == source_id else Halt.REFUSED
        return UnfitTopicError(f"topic {topic} of the target is {no_copy(there, source_id)}", why)
    if was_copy:
        return UnfitTopicError(f"topic {topic} of the target is no copy of it any more: it was promoted", Halt.PROMOTED)
    message = f"topic {topic} of the target was not made by this mirror, and is no copy: delete it there to have it copied"
    return UnfitTopicError(f"{message}; moldau mirror fail-back makes a topic of a former source one", Halt.REFUSED)


def _halt_of(error: PeerError | TargetNameError | UnfitTopicError) -> Halt | None:
    if isinstance(error, UnfitTopicError):
        return error.why
    return None if isinstance(error, PeerError) and may_pass(error) else Halt.REFUSED
