"""What a member reads in the tree before it claims partitions: the members of its group, and the partitions of its topics."""

import logging
from collections.abc import Generator, Mapping
from typing import Any

from moldau.client.coordinated import nodes
from moldau.client.coordinated.assignment import range_assignment
from moldau.client.coordinated.procedure import Step, ask
from moldau.cluster import znodes
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import Coordination, Data, Exists, GetChildren, GetData, NodeError

Plan = dict[TopicPartition, str]
"""Partitions of one member, and the thread of each."""

log = logging.getLogger("moldau.client")


class Planning:
    """Reads for the member `consumer` of `group`, which has so many streams for each topic. Malformed nodes are logged and left out."""

    def __init__(self, tree: Coordination, group: str, consumer: str, streams: Mapping[str, int]) -> None:
        self._tree = tree
        self._group = group
        self._consumer = consumer
        self._topics = sorted(streams)
        self._missing: dict[str, None] = {}
        """Topics that do not exist, each logged once."""

    def plan(self) -> Generator[Step, Any, Plan | None]:
        """The partitions that this member is to have; None if it is not registered. Watches are set for all that may change them."""
        (listed,) = yield from ask(self._tree, [GetChildren(nodes.ids(self._group), watch=True)])
        if isinstance(listed, NodeError) or self._consumer not in listed.names:
            return None
        subscriptions = yield from self._subscriptions(listed.names)
        plan: Plan = {}
        for topic in self._topics:
            partitions = yield from self._partitions(topic)
            threads = {nodes.thread_id(name, number): name for name, each in subscriptions.items() for number in range(each.threads(topic))}
            for thread, mine in range_assignment(partitions, sorted(threads)).items():
                if threads[thread] == self._consumer:
                    plan.update((TopicPartition(topic, partition), thread) for partition in mine)
        return plan

    def _subscriptions(self, names: list[str]) -> Generator[Step, Any, dict[str, nodes.Subscription]]:
        """Of the members, by their ids. A registration does not change, so there is no watch of it."""
        paths = [nodes.registration(self._group, name) for name in names]
        outcomes = yield from ask(self._tree, [GetData(path) for path in paths])
        found = {}
        for name, path, outcome in zip(names, paths, outcomes, strict=True):
            if isinstance(outcome, Data):  # or the member has ended meanwhile
                try:
                    found[name] = nodes.decode_subscription(path, outcome.data)
                except MalformedNodeError as error:
                    log.warning("group %s: %s; this member gets no partitions", self._group, error)
        return found

    def _partitions(self, topic: str) -> Generator[Step, Any, int]:
        """How many partitions a topic has. One that does not exist has none, until it is created."""
        path = znodes.topic(topic)
        while True:
            (outcome,) = yield from ask(self._tree, [GetData(path, watch=True)])
            if isinstance(outcome, Data):
                self._missing.pop(topic, None)
                try:
                    return len(znodes.decode_topic(path, outcome.data).replicas)
                except MalformedNodeError as error:
                    log.warning("group %s: %s; none of its partitions are read", self._group, error)
                    return 0
            (stat,) = yield from ask(self._tree, [Exists(path, watch=True)])
            if stat is None:
                if topic not in self._missing:
                    self._missing[topic] = None
                    log.warning("group %s: topic %s does not exist yet; reading begins when it is created", self._group, topic)
                return 0
