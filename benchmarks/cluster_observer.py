"""What each broker of a cluster knows about a topic, asked again and again over connections that stay open."""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cluster_systems import BROKERS, ClusterSystem
from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.client.metadata import ClusterMetadata, PartitionMetadata, from_response
from moldau.client.reassignments import PREFERRED, Reassignments
from moldau.model.errors import MoldauError
from moldau.model.host_port import parse_host_port
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.partition_reassignments import ElectLeadersRequest, TopicPartitions

ASK_S = 0.5
"""How long a broker may take for an answer."""
RECOVERY_S = 150.0
ELECTION_S = 30.0


def wait_until(condition: Callable[[], bool], what: str, *, limit_s: float = RECOVERY_S, pause_s: float = 0.01) -> float:
    """The seconds until the condition holds; `what` it is, for the error of a measurement that waits in vain."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > limit_s:
            raise SystemExit(f"not within {limit_s:.0f} s: {what}")
        time.sleep(pause_s)
    return time.monotonic() - begun


class Observer:
    """One topic of one cluster."""

    def __init__(self, system: ClusterSystem, topic: str) -> None:
        self.system = system
        self.topic = topic
        self._connections = {each: self._connect(each) for each in BROKERS}

    def partitions(self, broker_id: int) -> tuple[PartitionMetadata, ...] | None:
        """The topic's partitions as one broker knows them; None from one that does not answer, or does not know the topic."""
        request = MetadataRequest([MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        try:
            found: ClusterMetadata = from_response(self._connections[broker_id].request(ApiKey.METADATA, request))
        except MoldauError:
            return None
        topic = found.topics.get(self.topic)
        return topic.partitions if topic is not None and not topic.error and topic.partitions else None

    def is_led(self, partition: int, leaders: Iterable[int], *, asked: Iterable[int] = BROKERS) -> bool:
        """Whether one of the brokers `asked` names one of these leaders."""
        wanted = list(leaders)
        return any(found is not None and found[partition].leader in wanted for found in map(self.partitions, asked))

    def is_whole(self) -> bool:
        """Whether every broker says that every replica is in sync: one that was stopped has an old view at first."""
        views = [self.partitions(each) for each in BROKERS]
        return all(view is not None and all(len(each.isr) == len(each.replicas) for each in view) for view in views)

    def is_led_as_preferred(self) -> bool:
        """Whether every broker says that the first replica of each partition leads it."""
        views = [self.partitions(each) for each in BROKERS]
        return all(view is not None and all(each.leader == each.replicas[0] for each in view) for view in views)

    def wait_whole(self) -> None:
        """Until every replica is in sync."""
        wait_until(self.is_whole, f"{self.system.name}: all replicas of {self.topic} are in sync", pause_s=0.05)

    def lead_as_preferred(self) -> None:
        """Have the first replicas lead, and wait until they do."""
        wait_until(self._lead_as_preferred, f"{self.system.name}: the preferred replicas of {self.topic} lead", pause_s=0.2)

    def prefer_other(self, partition: int) -> int:
        """Put the second replica of a partition first, which does not lead it so far: its broker."""
        before = self.partitions(BROKERS[0])
        assert before is not None
        first, second, *others = before[partition].replicas
        wanted = (second, first, *others)
        with Cluster(self.system.bootstrap) as cluster:
            refused = Reassignments(cluster).alter({TopicPartition(self.topic, partition): wanted})
        if refused:
            raise SystemExit(f"{self.system.name}: {refused}")

        def is_known() -> bool:
            views = [self.partitions(each) for each in BROKERS]
            return all(view is not None and view[partition].replicas == wanted for view in views)

        wait_until(is_known, f"{self.system.name}: the replicas of {self.topic}-{partition} are {wanted}")
        self.wait_whole()
        return second

    def elect(self, partition: int, preferred: int) -> float:
        """Seconds from a request to elect the preferred leader, sent to the controller, until a broker names it as the leader."""
        request = ElectLeadersRequest(PREFERRED, [TopicPartitions(self.topic, [partition])], int(ELECTION_S * 1000))
        what = f"{self.system.name}: broker {preferred} leads {self.topic}-{partition}"
        with self._connect(self.system.controller(), ELECTION_S) as elector:
            elector.connect()
            begun = time.monotonic()
            pending = elector.send(ApiKey.ELECT_LEADERS, request)
            wait_until(lambda: self.is_led(partition, [preferred]), what, limit_s=ELECTION_S, pause_s=0.002)
            seconds = time.monotonic() - begun
            elector.receive(pending)
        return seconds

    def _lead_as_preferred(self) -> bool:
        """Elect them where others lead: refused for a moment by some that have only just become in sync."""
        if self.is_led_as_preferred():
            return True
        places = [TopicPartition(self.topic, each.partition) for each in self.partitions(BROKERS[0]) or ()]
        if places:
            with Cluster(self.system.bootstrap) as cluster:
                Reassignments(cluster).elect(places)
        return self.is_led_as_preferred()

    def close(self) -> None:
        """Close the connections."""
        for each in self._connections.values():
            each.close()

    def _connect(self, broker_id: int, timeout_s: float = ASK_S) -> BrokerConnection:
        host, port = parse_host_port(self.system.addresses[broker_id])
        return BrokerConnection(host, port, client_id="bench", timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
