"""What is wrong, or remarkable, with the files of mirrors and with the clusters that they name, before they run."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.mirror import loops
from moldau.mirror.catalog import Catalog
from moldau.mirror.clusters import on_network
from moldau.mirror.flows import PlannedMirror
from moldau.mirror.inventory import MIRROR_SOURCE, mirror_sources, no_copy, source_text
from moldau.mirror.loops import Severity
from moldau.mirror.naming import SourceTopic, TargetNameError
from moldau.mirror.operator import Operator
from moldau.mirror.plan.values import Mode, Partitioning
from moldau.mirror.start_offsets import beyond_the_end, unknown
from moldau.mirror.target_topics import configs_of_all
from moldau.model.errors import PeerError, WorldError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.ports.clock import Clock
    from moldau.ports.transport import Network
    from moldau.wire.brokers import Brokers

READ, WRITE, CREATE, DESCRIBE, DESCRIBE_CONFIGS = 3, 4, 5, 8, 10
"""Operations of Kafka's AclOperation: bits of what Metadata calls authorized operations."""
_NAMES = {READ: "Read", WRITE: "Write", CREATE: "Create", DESCRIBE: "Describe", DESCRIBE_CONFIGS: "DescribeConfigs"}
_NOT_GIVEN = -2147483648
_VERSIONS = VersionRange(8, 10)
"""With the operations of the cluster, too."""
_SHOWN = 5
FILES_AT_ONCE = 16


class Found(NamedTuple):
    """One finding."""

    severity: Severity
    file: str
    text: str


class Checked(NamedTuple):
    """A file, and what its clusters have."""

    file: str
    plan: "MirrorPlan"
    sources: dict[str, Catalog | str]
    """Or why a source cannot be read."""
    target: Catalog | str
    found: list[Found]


def check_files(plans: "Mapping[str, MirrorPlan]", timeout_s: float) -> list[Checked]:
    """What files, by their names, and their clusters have. All are asked at the same time: each cluster gets the whole time-out."""

    async def run(network: "Network", clock: "Clock") -> list[Checked]:
        at_once = asyncio.Semaphore(FILES_AT_ONCE)

        async def check(file: str, plan: "MirrorPlan") -> Checked:
            async with at_once:
                operator = Operator(plan, "check", timeout_s, network, clock)
                try:
                    return await check_file(operator, file)
                finally:
                    operator.close()

        return await asyncio.gather(*(check(file, plan) for file, plan in plans.items()))

    return on_network(run)


async def check_file(operator: Operator, file: str) -> Checked:
    """What a file and its clusters have."""
    plan, found = operator.plan, list[Found]()
    sources, target = await asyncio.gather(operator.source_catalogs(), _target_catalog(operator))
    for catalog in sources.values():
        if isinstance(catalog, str):
            found.append(Found(Severity.ERROR, file, catalog))
    if isinstance(target, str):
        found.append(Found(Severity.ERROR, file, target))
    known = {name: catalog for name, catalog in sources.items() if isinstance(catalog, Catalog)}
    labels = {name: plan.label(name) for name in known}
    selection = plan.selection
    if isinstance(target, Catalog):
        try:
            selection = (await operator.board()).selection(selection)
        except (PeerError, WorldError) as error:
            found.append(Found(Severity.ERROR, file, f"the orders in the target cannot be read: {error}"))
    found += (Found(Severity.WARNING, file, text) for text in _unmatched(plan, known))
    for name, catalog in known.items():
        topics = selection.of(catalog.topics)
        for denied in selection.of(catalog.denied):
            found.append(Found(Severity.ERROR, file, f"topic {denied} of {_the(labels[name])}: access denied"))
        reads = [READ, DESCRIBE, *([DESCRIBE_CONFIGS] if plan.sync.configs else [])]
        found += [
            Found(each.severity, file, each.text) for each in await _rights(operator, operator.sources[name], labels[name], topics, reads)
        ]
        if isinstance(target, Catalog):
            found += [each._replace(file=file) for each in await _places(operator, name, catalog, target, topics)]
            found += [each._replace(file=file) for each in await _starts(operator, name, catalog, target, topics)]
    return Checked(file, plan, sources, target, found)


async def _target_catalog(operator: Operator) -> Catalog | str:
    try:
        return await operator.target_catalog()
    except (PeerError, WorldError) as error:
        return str(error)


def check_together(checked: Sequence[Checked]) -> list[Found]:
    """Loops, rings, and topics that several mirrors claim; of the mirrors whose clusters answer."""
    topics: dict[str, set[str]] = {}
    mirrors = []
    for each in checked:
        known = {name: catalog for name, catalog in each.sources.items() if isinstance(catalog, Catalog)}
        if isinstance(each.target, str):
            continue
        for catalog in (*known.values(), each.target):
            topics.setdefault(catalog.cluster_id, set()).update(catalog.topics)
        ids = {name: catalog.cluster_id for name, catalog in known.items()}
        mirrors.append(PlannedMirror(each.file, each.plan, ids, each.target.cluster_id))
    return [Found(finding.kind.severity, "", str(finding)) for finding in loops.find(mirrors, topics)]


def _unmatched(plan: "MirrorPlan", catalogs: dict[str, Catalog]) -> Iterator[str]:
    names = {topic for catalog in catalogs.values() for topic in (*catalog.topics, *catalog.denied)}
    of = ", ".join(_the(plan.label(name)) for name in sorted(catalogs))
    for pattern in plan.topics.include:
        if catalogs and not any(pattern.fullmatch(name) for name in names):
            yield f"[topics] include: {pattern.pattern!r} matches no topic of {of}"


async def _places(operator: Operator, source: str, catalog: Catalog, target: Catalog, topics: Sequence[str]) -> list[Found]:
    """Where the topics of a source go: what is missing in the target, and what does not fit."""
    plan, found, missing, present = operator.plan, list[Found](), list[str](), list[str]()
    the_source = _the(plan.label(source))
    for topic in topics:
        seen = catalog.topics[topic]
        try:
            name = plan.names.target(SourceTopic(source, topic))
        except TargetNameError as error:
            found.append(Found(Severity.ERROR, "", str(error)))
            continue
        there = target.topics.get(name)
        if name in target.denied:
            found.append(Found(Severity.ERROR, "", f"topic {name} of the target: access denied"))
            continue
        if there is None:
            missing.append(name)
            continue
        present.append(name)
        if there.partitions < seen.partitions and plan.partitioning is Partitioning.SAME:
            text = f"topic {name} has {there.partitions} partitions in the target, and {seen.partitions} in {the_source}"
            if plan.sync.growth:
                found.append(Found(Severity.NOTICE, "", f"{text}: the others will be added"))
            else:
                found.append(Found(Severity.ERROR, "", f"{text}, and [sync] growth is false"))
    if plan.mode is Mode.COPY:
        found += await _copied(operator, source, catalog, target, present)
    if missing:
        found.append(Found(Severity.NOTICE, "", f"the target lacks {_listed(missing)} of {the_source}, which the mirror will create"))
    found += await _rights(operator, operator.target, "target", present, [WRITE], creates=bool(missing))
    return found


async def _starts(operator: Operator, source: str, catalog: Catalog, target: Catalog, topics: Sequence[str]) -> list[Found]:
    """Starts that lead to nothing in a source."""
    label = _the(operator.plan.label(source))
    (start,) = (each.start for each in operator.plan.sources if each.name == source)
    found = []
    if lacking := list(unknown(start, catalog, topics)):
        found.append(Found(Severity.WARNING, "", f"[start] names {_some(lacking)}, which {label} does not have"))
    try:
        beyond = await beyond_the_end(operator, source, catalog, target, topics)
    except (PeerError, WorldError) as error:
        return [*found, Found(Severity.NOTICE, "", f"whether starts are beyond the ends of logs of {label} is not known: {error}")]
    if beyond:
        text = f"[start] is beyond the end of logs of {label}; these partitions wait until their logs are that long"
        found.append(Found(Severity.WARNING, "", f"{text}: {_some(list(map(str, beyond)))}"))
    return found


async def _copied(operator: Operator, source: str, catalog: Catalog, target: Catalog, topics: Sequence[str]) -> list[Found]:
    """Whether topics of the target are copies of those of the source."""
    try:
        configs = await operator.of_target(configs_of_all(operator.target, topics, [MIRROR_SOURCE]))
    except (PeerError, WorldError) as error:
        return [Found(Severity.ERROR, "", f"whether {_listed(topics)} of the target are copies cannot be found out: {error}")]
    found, others = list[Found](), dict[str, str]()
    for topic, answer in configs.items():
        if isinstance(answer, PeerError):
            found.append(Found(Severity.ERROR, "", f"whether topic {topic} of the target is a copy cannot be found out: {answer}"))
        elif (of := answer.get(MIRROR_SOURCE, "")) != source_text(catalog.cluster_id, catalog.topics[topic].topic_id):
            others[topic] = of
    originals = [topic for topic, of in others.items() if not of]
    try:
        theirs = await operator.of_source(source, mirror_sources(operator.sources[source], originals)) if originals else {}
    except (PeerError, WorldError):
        theirs = {}
    turned = [topic for topic in originals if theirs.get(topic) == source_text(target.cluster_id, target.topics[topic].topic_id)]
    if turned:
        text = f"the source has {_listed(turned)} as a copy of the target's; clients have to move before this mirror can run"
        found.append(Found(Severity.NOTICE, "", f"{text} (mirror promote of the other mirror, then mirror fail-back of this one)"))
    reasons: dict[str, list[str]] = {}
    for topic, of in others.items():
        if topic not in turned:
            reasons.setdefault(no_copy(of, catalog.cluster_id), []).append(topic)
    return [*found, *(Found(Severity.ERROR, "", f"{_listed(names)} of the target: {reason}") for reason, names in reasons.items())]


async def _rights(
    operator: Operator, brokers: "Brokers", cluster: str, topics: Sequence[str], operations: Sequence[int], *, creates: bool = False
) -> list[Found]:
    """What a client may not do, as far as the cluster says it."""
    request = MetadataRequest(
        [MetadataRequestTopic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    try:
        response = await operator.within(brokers.ask(ApiKey.METADATA, request, version=_VERSIONS), cluster, brokers)
    except (PeerError, WorldError) as error:
        return [Found(Severity.NOTICE, "", f"{cluster}: rights are not known: {error}")]
    found = []
    answers = list(response.topics) if topics else []
    if any(topic.topic_authorized_operations == _NOT_GIVEN for topic in answers if not topic.error_code):
        found.append(Found(Severity.NOTICE, "", f"{cluster}: rights are not known: the cluster does not say which operations are allowed"))
    for operation in operations:
        lacking = [topic.name for topic in answers if not topic.error_code and not _allows(topic.topic_authorized_operations, operation)]
        if lacking:
            found.append(Found(Severity.ERROR, "", f"{cluster}: {_NAMES[operation]} is not allowed for {_listed(lacking)}"))
    if creates and not _allows(response.cluster_authorized_operations, CREATE):
        found.append(
            Found(Severity.WARNING, "", f"{cluster}: Create is not allowed in the cluster; each missing topic needs that right itself")
        )
    return found


def _allows(operations: Any, operation: int) -> bool:
    return operations == _NOT_GIVEN or bool(operations >> operation & 1)


def _the(label: str) -> str:
    return f"the {label}" if label == "source" else label


def _listed(topics: Sequence[str]) -> str:
    return f"{'topics' if len(topics) > 1 else 'topic'} {_some(topics)}"


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return f"{', '.join(texts[:_SHOWN])}{f' and {more} more' if more > 0 else ''}"
