"""The throttle of replicas that are being moved: at most so many bytes a second on each broker, only for these replicas (KIP-73).

It is kept in dynamic settings, so it lasts until it is removed, whatever becomes of the command that has set it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.model.config.definition import ConfigSource

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.placement import Replicas
    from moldau.model.identity import TopicPartition

F = TypeVar("F", bound=Callable[..., Any])
SIDES = ("leader", "follower")
RATES = tuple(f"{side}.replication.throttled.rate" for side in SIDES)
REPLICAS = tuple(f"{side}.replication.throttled.replicas" for side in SIDES)
_SET_FOR_IT = {AdminResourceType.TOPIC: (ConfigSource.DYNAMIC_TOPIC,), AdminResourceType.BROKER: (ConfigSource.DYNAMIC_BROKER,)}


def throttle_option(function: F) -> F:
    """``--throttle BYTES``, as the parameter `throttle`."""
    text = "Copy at most so many bytes per second from and to each broker. It lasts until the moves are waited for, or verified."
    return click.option("--throttle", metavar="BYTES", type=click.IntRange(1, 2**63 - 2), help=text)(function)


def set_throttle(
    cluster: "Cluster", rate: int, before: "Mapping[TopicPartition, Replicas]", targets: "Mapping[TopicPartition, Replicas]"
) -> None:
    """Throttle the replicas that are copied, on the brokers that have or get one and are live."""
    admin, brokers = Admin(cluster), dict.fromkeys(cluster.metadata([]).brokers)
    listed: dict[str, tuple[list[str], list[str]]] = {}
    for where, replicas in targets.items():
        added = [broker for broker in replicas if broker not in before[where]]
        if added:
            leaders, followers = listed.setdefault(where.topic, ([], []))
            leaders += [f"{where.partition}:{broker}" for broker in before[where]]
            followers += [f"{where.partition}:{broker}" for broker in added]
    for topic, lists in listed.items():
        values = {name: ",".join(pairs) for name, pairs in zip(REPLICAS, lists, strict=True)}
        admin.alter_configs(AdminResource(AdminResourceType.TOPIC, topic), ConfigUpdate(values))
    concerned = dict.fromkeys(broker for where, replicas in targets.items() for broker in (*before[where], *replicas))
    for broker in brokers:
        if broker in concerned:
            admin.alter_configs(AdminResource(AdminResourceType.BROKER, str(broker)), ConfigUpdate(dict.fromkeys(RATES, str(rate))))


def remove_throttle(cluster: "Cluster", topics: Iterable[str], *, rates: bool) -> bool:
    """Delete the lists of throttled replicas of topics, and with `rates` the limits of all live brokers. Whether there was such a list:
    without one limits are not of moves, and stay.
    """
    admin = Admin(cluster)
    found = [_delete(admin, AdminResource(AdminResourceType.TOPIC, topic), REPLICAS) for topic in dict.fromkeys(topics)]
    if rates and any(found):
        for broker in cluster.metadata([]).brokers:
            _delete(admin, AdminResource(AdminResourceType.BROKER, str(broker)), RATES)
    return any(found)


def _delete(admin: Admin, resource: AdminResource, names: Iterable[str]) -> bool:
    sources = _SET_FOR_IT[resource.type]
    found = [each.name for each in admin.describe_configs(resource) if each.name in names and each.source in sources]
    if found:
        admin.alter_configs(resource, ConfigUpdate(delete=found))
    return bool(found)
