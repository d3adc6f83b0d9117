"""Reading the file of tiers. docs/tiers.md is its reference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from moldau.mirror.patterns import parse_pattern
from moldau.mirror.plan.file import KEYS_BETWEEN, TABLES_BETWEEN, parse_tier, plan_between
from moldau.mirror.plan.values import Mode
from moldau.model.config.definition import InvalidConfigError, parse_value
from moldau.model.config.store import topic_definition
from moldau.model.toml_table import Table, parse_document, read_document
from moldau.model.topic_names import NAME_RULE, is_allowed
from moldau.tiers.toml_text import toml_lines
from moldau.tiers.values import PlannedAuditor, PlannedLoad, PlannedTopic, TierMirror, Tiers
from moldau.topology.file import check_table_name, known_name, known_names, texts_in, topology_of
from moldau.topology.values import PlannedCluster, Topology

LAG_MAX_MS: Final = 24 * 3_600_000
_LAG: Final = "mirror.lag.max.ms"
_PARTITIONS_MAX: Final = 100_000
_INSTANCES_MAX: Final = 99
_INTERVAL_S: Final = 10
_INTERVAL_MAX_S: Final = 3_600
_LAG_LIMIT_MS: Final = 365 * 24 * 3_600_000


def read_tiers(path: Path) -> Tiers:
    """The tiers of a file. PlanFileError names file and line."""
    return _tiers(read_document(path))


def parse_tiers(text: str, file: str) -> Tiers:
    """The tiers that this text describes; `file` is its name in messages. PlanFileError."""
    return _tiers(parse_document(text, file))


def _tiers(root: Table) -> Tiers:
    topology = topology_of(root)
    limits = root.table("limits")
    limits.only(_LAG)
    return Tiers(
        topology,
        tuple(_topic(name, table, topology) for name, table in root.named_tables("topics", ("configs",))),
        tuple(_mirror(name, table, topology.clusters) for name, table in root.named_tables("mirrors", TABLES_BETWEEN)),
        tuple(_auditor(name, table, topology) for name, table in root.named_tables("auditors")),
        tuple(_load(name, table, topology) for name, table in root.named_tables("loads")),
        limits.integer(_LAG, LAG_MAX_MS, at_least=1, at_most=_LAG_LIMIT_MS),
    )


def _topic(name: str, table: Table, topology: Topology) -> PlannedTopic:
    table.only("category", "partitions", "configs")
    if not is_allowed(name):
        table.fail_here(f"no topic has this name; {NAME_RULE}")
    partitions = table.integer("partitions", 1, at_least=1, at_most=_PARTITIONS_MAX) if "partitions" in table else None
    category = known_name(table, "category", "category", topology.categories)
    return PlannedTopic(name, category, partitions, _configs(table.table("configs")), table.line())


def _configs(table: Table) -> dict[str, str]:
    texts = texts_in(table)
    for name, text in texts.items():
        try:
            parse_value(topic_definition(name), text)
        except InvalidConfigError as error:
            table.fail(name, error.message)
    return texts


def _mirror(name: str, table: Table, clusters: Mapping[str, PlannedCluster]) -> TierMirror:
    table.only("from", "to", "instances", *KEYS_BETWEEN)
    sources = known_names(table, "from", "cluster", clusters, None)
    if not sources:
        table.fail("from", "an empty list mirrors nothing")
    target = known_name(table, "to", "cluster", clusters)
    plan = plan_between(table, name, {each: clusters[each].addresses for each in sources}, clusters[target].addresses)
    instances = table.integer("instances", 1, at_least=1, at_most=_INSTANCES_MAX)
    return TierMirror(name, sources, target, instances, plan, _plan_text(name, table, sources, target, clusters), table.line())


def _plan_text(name: str, table: Table, sources: tuple[str, ...], target: str, clusters: Mapping[str, PlannedCluster]) -> str:
    """The file of the mirror itself, as `moldau mirror run` takes it."""

    def servers(cluster: str) -> dict[str, str]:
        return {"bootstrap.servers": clusters[cluster].bootstrap}

    content: dict[str, Any] = {"name": name}
    if table.raw("mode") == Mode.COPY.value:
        content["source"] = servers(sources[0])
    else:
        content["sources"] = {each: servers(each) for each in sources}
    content["target"] = servers(target)
    content |= {key: table.raw(key) for key in KEYS_BETWEEN if key in table}
    return f"# made from {table.file}:{table.line()} by moldau tiers up\n{toml_lines(content)}"


def _auditor(name: str, table: Table, topology: Topology) -> PlannedAuditor:
    table.only("cluster", "tier", "topics", "interval.s")
    check_table_name(name, table)
    if "cluster" not in table and name not in topology.clusters:
        table.fail("cluster", f"is missing, and there is no cluster {name!r}; there are {', '.join(topology.clusters)}")
    return PlannedAuditor(
        name,
        known_name(table, "cluster", "cluster", topology.clusters) if "cluster" in table else name,
        _tier(name, table),
        table.parsed("topics", parse_pattern) if "topics" in table else None,
        table.integer("interval.s", _INTERVAL_S, at_least=1, at_most=_INTERVAL_MAX_S),
        table.line(),
    )


def _load(name: str, table: Table, topology: Topology) -> PlannedLoad:
    table.only("cluster", "tier", "topics", "to", "interval.s")
    check_table_name(name, table)
    topics = table.list_of("topics", _parse_topic, None)
    if not topics:
        table.fail("topics", "an empty list loads nothing")
    return PlannedLoad(
        name,
        known_name(table, "cluster", "cluster", topology.clusters),
        _tier(name, table),
        topics,
        table.text("to") if "to" in table else f"lake/{name}",
        table.integer("interval.s", _INTERVAL_S, at_least=1, at_most=_INTERVAL_MAX_S),
        table.line(),
    )


def _tier(name: str, table: Table) -> str:
    """The tier under which a process publishes counts: by default its own name."""
    if "tier" in table:
        return table.parsed("tier", parse_tier)
    try:
        return parse_tier(name)
    except ValueError as error:
        table.fail_here(str(error))


def _parse_topic(text: str) -> str:
    if not is_allowed(text):
        raise ValueError(f"no topic has the name {text!r}; {NAME_RULE}")
    return text
