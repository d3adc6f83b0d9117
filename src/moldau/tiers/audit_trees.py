"""The tiers of the audit and what each takes from, as files for the audit: a tree for each category.

A category's events are in its local clusters, and in what mirrors make of these. A cluster without an auditor has its own name as a tier:
the audit compares what takes from it with what it takes from.
"""

from collections.abc import Iterable
from typing import Any

from moldau.tiers.toml_text import toml_table
from moldau.tiers.values import PlannedLoad, Tiers
from moldau.topology.values import PlannedCategory
from moldau.tracking.audit_record import PRODUCER_TIER


def audit_trees(tiers: Tiers, *, loads: bool) -> dict[str, str]:
    """The text of the file by category; `loads`: with their tiers, which count only where loads run."""
    return {name: _tree(tiers, category, tiers.loads if loads else ()) for name, category in tiers.topology.categories.items()}


def _tree(tiers: Tiers, category: PlannedCategory, loads: Iterable[PlannedLoad]) -> str:
    names = {each.cluster: each.tier for each in reversed(tiers.counting)}  # of several the first counts
    clusters = tiers.downstream(category.clusters.values())
    tree: dict[str, dict[str, Any]] = {}
    for name in clusters:
        cluster = tiers.topology.clusters[name]
        tier: dict[str, Any] = {"bootstrap": cluster.bootstrap}
        if name in category.clusters.values():
            tier |= {"from": [PRODUCER_TIER], "datacenters": [cluster.datacenter]}
        else:
            tier["from"] = [names.get(source, source) for source in _sources(tiers, name, clusters)]
        tree[names.get(name, name)] = tier
    for load in loads:
        if load.cluster in clusters:
            cluster = tiers.topology.clusters[load.cluster]
            tree[load.tier] = {"bootstrap": cluster.bootstrap, "from": [names.get(cluster.name, cluster.name)]}
    head = f"# made from {tiers.topology.file} by moldau tiers up: category {category.name}\n"
    return head + "".join(toml_table(("tiers", name), tier) for name, tier in tree.items())


def _sources(tiers: Tiers, cluster: str, among: Iterable[str]) -> list[str]:
    """The clusters that mirrors bring to this one."""
    found = dict.fromkeys(source for mirror in tiers.mirrors if mirror.target == cluster for source in mirror.sources)
    return [each for each in among if each in found]
