"""A small blocking client of a whole cluster, for tools and for the Spark source: it reads and asks, it does not produce."""

from collections.abc import Mapping
from typing import Any

from moldau.client.brokers import Brokers
from moldau.client.errors import failure
from moldau.client.metadata import TopicMetadata
from moldau.client.partition_requests import (
    READ_UNCOMMITTED,
    Answers,
    Fetched,
    FetchLimits,
    ListedOffset,
    fetch_request,
    list_offsets_request,
    read_fetch,
    read_list_offsets,
)
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.model.topic_names import is_internal
from moldau.protocol.api_keys import ApiKey


class Cluster(Brokers):
    """The cluster that the brokers `bootstrap` ("HOST:PORT", several by commas) belong to. Nothing is connected before it is needed.

    ValueError for a list that cannot be read. UnreachableError, ConnectionLostError (world's fault) and RequestFailedError (an answer
    with an error code) name broker, topic or partition.
    """

    def topics(self, *, internal: bool = False) -> list[TopicMetadata]:
        """All topics by name, asked for now; internal ones, whose names begin with an underscore, only if wanted."""
        found = self.metadata().topics
        return [found[name] for name in sorted(found) if internal or not (found[name].internal or is_internal(name))]

    def topic(self, name: str) -> TopicMetadata:
        """One topic, asked for now. RequestFailedError if there is none."""
        found = self.metadata([name]).topics.get(name)
        if found is None:
            raise failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        if found.error:
            raise failure(found.error, f"topic {name}")
        return found

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        """For each partition the first offset whose record is not older than the timestamp (ms), or EARLIEST, LATEST, MAX_TIMESTAMP."""
        timeout_ms = int(self.timeout_s * 1000)

        def build(partitions: list[TopicPartition]) -> Any:
            return list_offsets_request({where: wanted[where] for where in partitions}, isolation_level, timeout_ms)

        return self.at_leaders(ApiKey.LIST_OFFSETS, wanted, build, lambda response, _: read_list_offsets(response))

    def fetch(self, topic: str, partition: int, offset: int, limits: FetchLimits | None = None) -> Fetched:
        """Record batches of one partition from `offset` on; empty `records` when there were none within `max_wait_ms`."""
        where = TopicPartition(topic, partition)
        return self.fetch_many({where: offset}, limits)[where]

    def fetch_many(self, positions: Mapping[TopicPartition, int], limits: FetchLimits | None = None) -> dict[TopicPartition, Fetched]:
        """Record batches of many partitions, all leaders asked at once. Of a partition that had nothing in time `records` is empty."""
        limits = limits or FetchLimits()
        ids = self._leaders.topic_ids

        def build(partitions: list[TopicPartition]) -> Any:
            return fetch_request({where: positions[where] for where in partitions}, ids, limits)

        def read(response: Any, partitions: list[TopicPartition]) -> Answers[Fetched]:
            return read_fetch(response, {where: positions[where] for where in partitions}, ids)

        return self.at_leaders(ApiKey.FETCH, positions, build, read, timeout_s=self.timeout_s + limits.max_wait_ms / 1000)
