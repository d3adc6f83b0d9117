"""What is wrong with tiers, found by their file alone: before anything runs, and without a cluster.

* Loops and contradictions of mirrors, as `moldau.mirror.loops` finds them.
* A topic of a category that does not get from a local cluster to an aggregate of the category.
* Clusters without an auditor, topics that the auditors of a cluster do not count.
* Topics that a source of a mirror keeps for a shorter time than the mirror may lag: retention deletes records before they are mirrored.
* Addresses and tiers that are given twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from moldau.mirror import loops
from moldau.mirror.flows import Flows, Place, PlannedMirror, follow
from moldau.mirror.loops import Severity
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.model.host_port import Address
from moldau.tiers.values import Tiers
from moldau.topology.values import PlannedCluster

_TOPICS_SHOWN = 5
_DELETE = "delete"


class Check(Enum):
    """What was looked for. The values are those of ``--json``."""

    ADDRESS_TWICE = "address twice"
    TIER_TWICE = "tier twice"
    MIRRORS = "mirrors"
    """One of the findings of `moldau.mirror.loops`."""
    NOT_MIRRORED = "not mirrored"
    RETENTION = "retention"
    NO_AUDITOR = "no auditor"
    NOT_AUDITED = "not audited"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, with the line of what is to be changed."""

    check: Check
    severity: Severity
    line: int
    text: str


def find(tiers: Tiers) -> list[Finding]:
    """All findings, in the order of their lines."""
    mirrors = _planned_mirrors(tiers)
    known = _known_topics(tiers)
    flows = follow(mirrors, known)
    found = [
        *_addresses(tiers),
        *_tier_names(tiers),
        *_loops(tiers, mirrors, known),
        *_not_mirrored(tiers, flows),
        *_retention(tiers, flows),
        *_audit(tiers, flows, known),
    ]
    return sorted(found, key=lambda finding: finding.line)


def _planned_mirrors(tiers: Tiers) -> list[PlannedMirror]:
    """With the names of clusters as their ids."""
    found = []
    for mirror in tiers.mirrors:
        ids = {source.name: cluster for source, cluster in zip(mirror.plan.sources, mirror.sources, strict=True)}
        found.append(PlannedMirror(f"{tiers.topology.file}:{mirror.line}", mirror.plan, ids, mirror.target))
    return found


def _known_topics(tiers: Tiers) -> dict[str, set[str]]:
    """The topics of each cluster that producers write to."""
    known: dict[str, set[str]] = {name: set() for name in tiers.topology.clusters}
    for category in tiers.topology.categories.values():
        names = {topic.name for topic in tiers.topics_of(category.name)}
        for cluster in category.clusters.values():
            known[cluster] |= names
    return known


def _addresses(tiers: Tiers) -> Iterator[Finding]:
    seen: dict[Address, str] = {}
    for what, addresses, line in _listeners(tiers):
        for address in addresses:
            if address in seen:
                yield Finding(Check.ADDRESS_TWICE, Severity.ERROR, line, f"{what}: {seen[address]} has the address {address} already")
                break
            seen[address] = what


def _listeners(tiers: Tiers) -> Iterator[tuple[str, tuple[Address, ...], int]]:
    for cluster in tiers.topology.clusters.values():
        yield f"cluster {cluster.name}", cluster.addresses, cluster.line
    for registry in tiers.topology.registries.values():
        if registry.address is not None:
            yield f"registry {registry.name}", (registry.address,), registry.line


def _tier_names(tiers: Tiers) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    named = [
        *((f"auditor {each.name}", each.tier, each.line) for each in tiers.counting),
        *((f"load {each.name}", each.tier, each.line) for each in tiers.loads),
    ]
    for what, tier, line in named:
        if tier in seen:
            text = f"{what}: {seen[tier]} publishes its counts as tier {tier} already, and a tier is one cluster or one load"
            yield Finding(Check.TIER_TWICE, Severity.ERROR, line, text)
        seen.setdefault(tier, what)


def _loops(tiers: Tiers, mirrors: list[PlannedMirror], known: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    lines = {planned.plan.name: mirror.line for planned, mirror in zip(mirrors, tiers.mirrors, strict=True)}
    for finding in loops.find(mirrors, known):
        names = [mirror.plan.name for mirror in finding.mirrors]
        text = (
            f"{'mirror' if len(names) == 1 else 'mirrors'} {', '.join(names)}: {finding.kind.value}: cluster {', '.join(finding.clusters)}"
        )
        if finding.topics:
            text += f"; {_named_topics(finding.topics)}"
        yield Finding(Check.MIRRORS, finding.kind.severity, lines[names[0]], text)


def _not_mirrored(tiers: Tiers, flows: Flows) -> Iterator[Finding]:
    reached = _reached(flows)
    for category in tiers.topology.categories.values():
        topics = [topic.name for topic in tiers.topics_of(category.name)]
        for aggregate in category.aggregates:
            for cluster in category.clusters.values():
                missing = [each for each in topics if aggregate not in reached.get(Place(cluster, each), ())]
                if topics and not missing:
                    continue
                if not topics and aggregate in tiers.downstream([cluster]):
                    continue
                what = _named_topics(missing) if missing else "what it has"
                text = f"category {category.name}: no mirror brings {what} from {cluster} to {aggregate}"
                yield Finding(Check.NOT_MIRRORED, Severity.ERROR, category.line, text)


def _reached(flows: Flows) -> dict[Place, set[str]]:
    """The clusters that each topic gets to, by whatever way."""
    steps: dict[Place, set[Place]] = {}
    for flow in flows.flows:
        steps.setdefault(flow.source, set()).add(flow.target)
    reached = {}
    for start in steps:
        seen: set[Place] = set()
        waiting = [start]
        while waiting:
            new = steps.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        reached[start] = {place.cluster_id for place in seen}
    return reached


def _retention(tiers: Tiers, flows: Flows) -> Iterator[Finding]:
    """Configurations of topics are those of the file, also in the targets of mirrors, which keep them equal."""
    topics = {topic.name: topic for topic in tiers.topics}
    reported = set()
    for mirror, source, _ in flows.flows:
        cluster = tiers.topology.clusters[source.cluster_id]
        topic = topics.get(source.topic)
        own = {} if topic is None else topic.configs
        kept_ms = _kept_ms(cluster, own)
        if kept_ms is None or kept_ms >= tiers.lag_max_ms:
            continue
        by_topic = topic is not None and "retention.ms" in own
        finding = Finding(
            Check.RETENTION,
            Severity.ERROR,
            topic.line if topic is not None and by_topic else cluster.line,
            f"cluster {cluster.name} keeps {_named_topics([source.topic])} for {kept_ms:,} ms, and mirror {mirror.plan.name} may lag "
            f"{tiers.lag_max_ms:,} ms ([limits] mirror.lag.max.ms): retention would delete records before they are mirrored",
        )
        if finding not in reported:
            reported.add(finding)
            yield finding


def _kept_ms(cluster: PlannedCluster, configs: Mapping[str, str]) -> int | None:
    """How long the cluster keeps records of a topic; None: for ever, by time, or not known because the cluster is not of the file."""
    if not cluster.is_started and "retention.ms" not in configs:
        return None
    config = BrokerConfig(read_static(settings=[f"{name}={text}" for name, text in cluster.settings.items()])).topic(configs)
    kept_ms = config.int("retention.ms")
    return None if kept_ms < 0 or _DELETE not in config.list("cleanup.policy") else kept_ms


def _audit(tiers: Tiers, flows: Flows, known: Mapping[str, Iterable[str]]) -> Iterator[Finding]:
    topics = {name: {*there} for name, there in known.items()}
    for flow in flows.flows:
        topics[flow.target.cluster_id].add(flow.target.topic)
    for cluster in tiers.topology.clusters.values():
        auditors = [each for each in tiers.counting if each.cluster == cluster.name]
        if not auditors:
            text = f"cluster {cluster.name}: no auditor counts it, so a loss on the way to it is not found"
            yield Finding(Check.NO_AUDITOR, Severity.WARNING, cluster.line, text)
            continue
        missed = sorted(topic for topic in topics[cluster.name] if not any(each.counts(topic) for each in auditors))
        if missed:
            text = f"auditor {auditors[0].name}: does not count {_named_topics(missed)} of cluster {cluster.name}"
            yield Finding(Check.NOT_AUDITED, Severity.WARNING, auditors[0].line, text)


def _named_topics(topics: Iterable[str]) -> str:
    names = list(topics)
    more = len(names) - _TOPICS_SHOWN
    shown = f"{', '.join(names[:_TOPICS_SHOWN])}{f' and {more} more' if more > 0 else ''}"
    return f"topic {shown}" if len(names) == 1 else f"topics {shown}"
