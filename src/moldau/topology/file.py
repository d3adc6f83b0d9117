"""Reading where the clusters are. The rest of the file, what runs between the clusters, is read by `moldau.tiers.file`."""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from moldau.model.host_port import Address, parse_addresses
from moldau.model.near_names import did_you_mean
from moldau.model.toml_table import Table, kind_of, read_document
from moldau.topology.values import (
    CategoryName,
    ClusterKind,
    PlannedCategory,
    PlannedCluster,
    PlannedRegistry,
    Topology,
)

KEYS: Final = ("name", "clusters", "registries", "categories", "topics", "mirrors", "auditors", "loads", "limits")
"""All keys of the file."""
HOST: Final = "127.0.0.1"
"""Where processes that are started listen."""
CATEGORIES: Final[tuple[CategoryName, ...]] = get_args(CategoryName)
BROKERS_MAX: Final = 99
_SERVERS: Final = "bootstrap.servers"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_PORT_MAX: Final = 65_535


def read_topology(path: str | os.PathLike[str]) -> Topology:
    """The clusters, registries and categories of a file. PlanFileError names file and line."""
    return topology_of(read_document(Path(path)))


def topology_of(root: Table) -> Topology:
    """The same of a document that is read already. PlanFileError."""
    root.only(*KEYS)
    clusters = {name: _cluster(name, table) for name, table in root.named_tables("clusters", ("settings",))}
    if not clusters:
        root.fail("clusters", "is missing; each cluster is a table with its name, as [clusters.ewr]")
    datacenters = tuple(dict.fromkeys(each.datacenter for each in clusters.values()))
    return Topology(
        root.file,
        root.parsed("name", parse_name),
        clusters,
        {name: _registry(name, table, clusters, datacenters) for name, table in root.named_tables("registries")},
        {name: _category(name, table, clusters, datacenters) for name, table in root.named_tables("categories", ("clusters",))},
    )


def parse_name(text: str) -> str:
    """A name of this file. ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"a name has 1 to 100 letters, digits, '_' and '-', and begins with a letter or digit, not {text!r}")
    return text


def check_table_name(name: str, table: Table) -> None:
    """PlanFileError for a table whose name is none."""
    try:
        parse_name(name)
    except ValueError as error:
        table.fail_here(str(error))


def known_name(table: Table, key: str, what: str, known: Collection[str]) -> str:
    """The text of a key, which is one of these names. PlanFileError."""

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"there is no {what} {text!r}{did_you_mean(text, known)}; there are {', '.join(known) or 'none'}")
        return text

    return table.parsed(key, parse)


def known_names(table: Table, key: str, what: str, known: Collection[str], default: tuple[str, ...] | None) -> tuple[str, ...]:
    """A list of such names, each once. PlanFileError."""
    seen: list[str] = []

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"there is no {what} {text!r}{did_you_mean(text, known)}; there are {', '.join(known) or 'none'}")
        if text in seen:
            raise ValueError(f"{text!r} comes twice")
        seen.append(text)
        return text

    return table.list_of(key, parse, default)


def texts_in(table: Table) -> dict[str, str]:
    """Settings by name, as texts. PlanFileError for a list or a table."""
    return {name: _setting_text(table, name, table.raw(name)) for name in table}


def _setting_text(table: Table, name: str, value: Any) -> str:
    if not isinstance(value, str | bool | int | float):
        table.fail(name, f"must be a text, a number, true or false, not {kind_of(value)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cluster(name: str, table: Table) -> PlannedCluster:
    table.only("kind", "datacenter", "brokers", "port", _SERVERS, "settings")
    check_table_name(name, table)
    kind = table.one_of("kind", ClusterKind)
    datacenter = table.parsed("datacenter", parse_name)
    if _SERVERS in table:
        for each in ("brokers", "port", "settings"):
            if each in table:
                table.fail(each, f"is for a cluster that `moldau tiers up` starts, and one with {_SERVERS} runs already")
        return PlannedCluster(
            name, kind, datacenter, table.parsed(_SERVERS, lambda text: tuple(parse_addresses(text))), False, {}, table.line()
        )
    if "port" not in table:
        table.fail("port", f"is missing: the port of the first broker; or {_SERVERS} of a cluster that runs elsewhere")
    brokers = table.integer("brokers", 1, at_least=1, at_most=BROKERS_MAX)
    port = table.integer("port", 0, at_least=1, at_most=_PORT_MAX - brokers + 1)
    addresses = tuple(Address(HOST, port + number) for number in range(brokers))
    return PlannedCluster(name, kind, datacenter, addresses, True, _settings(table.table("settings")), table.line())


def _settings(table: Table) -> dict[str, str]:
    texts = texts_in(table)
    if not texts:
        return texts
    from moldau.assembly.local_cluster.plan import check_settings  # which clients of clusters without settings do without
    from moldau.model.config.definition import InvalidConfigError

    for name, text in texts.items():
        setting = f"{name}={text}"
        try:
            check_settings([setting], {})
        except InvalidConfigError as error:
            table.fail(name, error.message.removeprefix(f"--set {setting}: "))
    return texts


def _registry(name: str, table: Table, clusters: Mapping[str, PlannedCluster], datacenters: Collection[str]) -> PlannedRegistry:
    table.only("cluster", "port", "url", "datacenters")
    check_table_name(name, table)
    served = known_names(table, "datacenters", "data centre", datacenters, ())
    if "url" in table:
        for each in ("cluster", "port"):
            if each in table:
                table.fail(each, "is for a registry that `moldau tiers up` starts, and one with a url runs already")
        return PlannedRegistry(name, table.parsed("url", _parse_url), served, None, None, table.line())
    if "port" not in table:
        table.fail("port", "is missing: the port of the registry; or the url of one that runs elsewhere")
    cluster = known_name(table, "cluster", "cluster", clusters)
    address = Address(HOST, table.integer("port", 0, at_least=1, at_most=_PORT_MAX))
    return PlannedRegistry(name, f"http://{address}", served, cluster, address, table.line())


def _parse_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is not the URL of a registry (http://HOST:PORT)")
    return text


def _category(name: str, table: Table, clusters: Mapping[str, PlannedCluster], datacenters: Collection[str]) -> PlannedCategory:
    table.only("clusters", "aggregates")
    if name not in CATEGORIES:
        table.fail_here(f"there is no category {name!r}{did_you_mean(name, CATEGORIES)}; there are {', '.join(CATEGORIES)}")
    locals_table = table.table("clusters", required=True)
    found = {}
    for datacenter in locals_table:
        if datacenter not in datacenters:
            hint = did_you_mean(datacenter, datacenters)
            locals_table.fail(datacenter, f"there is no data centre {datacenter!r}{hint}; there are {', '.join(datacenters)}")
        found[datacenter] = known_name(locals_table, datacenter, "cluster", clusters)
        cluster = clusters[found[datacenter]]
        if cluster.kind is not ClusterKind.LOCAL or cluster.datacenter != datacenter:
            problem = f"cluster {cluster.name} is {cluster.kind.value} in {cluster.datacenter}, not the local one of {datacenter}"
            locals_table.fail(datacenter, problem)
    if not found:
        table.fail("clusters", 'names no cluster; the local one of each data centre, as { EWR = "ewr" }')
    aggregates = known_names(table, "aggregates", "cluster", clusters, ())
    for index, each in enumerate(aggregates):
        if clusters[each].kind is not ClusterKind.AGGREGATE:
            table.fail("aggregates", f"cluster {each} is {clusters[each].kind.value}, not aggregate", index)
    return PlannedCategory(next(each for each in CATEGORIES if each == name), found, aggregates, table.line())
