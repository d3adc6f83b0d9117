"""A transactional producer of whole batches: one transaction at a time, with the batches of many partitions and the offsets of a group.

By the protocol of KIP-890 where the target has `transaction.version` 2, which saves two rounds, else by that of KIP-98. A transaction fails
as a whole: after any error the producer takes its transactional id again (`begin_again`), which ends what was open, by the decision that
was stored if there was one, else by an abort.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from moldau.mirror.merge.outgoing import Outgoing, next_sequence
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.versions import VersionRange
from moldau.wire.brokers import Brokers, CoordinatorType, check
from moldau.wire.connection import Address, ClientConnection
from moldau.wire.group import GroupMetadata

ACKS_ALL = -1
PRODUCE_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_S = 15.0
INSIST_S = 60.0
"""How long a request to a coordinator is repeated."""
ROUNDS_OUT = 5
"""Produce requests of a partition that may be out: what an idempotent producer may have at most."""
_TRANSACTION_VERSION = "transaction.version"
_NO_PRODUCER = -1, -1


class _Versions(NamedTuple):
    produce: VersionRange
    end_txn: VersionRange
    txn_offset_commit: VersionRange


_BY_KIP_98 = _Versions(VersionRange(3, 11), VersionRange(0, 4), VersionRange(3, 4))
_BY_KIP_890 = _Versions(VersionRange(12, 12), VersionRange(5, 5), VersionRange(5, 5))
_ADD_PARTITIONS = VersionRange(0, 3)
"""Later versions are for brokers."""
_API_VERSIONS = VersionRange(3, 4)


class PartitionRefusedError(Exception):
    """The target does not take a batch, and would not take it the next time."""

    def __init__(self, target: TopicPartition, code: ErrorCode, message: str | None) -> None:
        super().__init__(f"{target}: {code.name.lower()}" + (f": {message}" if message else ""))
        self.target = target
        self.code = code


class PartitionsUnavailableError(Exception):
    """Partitions of the target that do not take batches for now, and why."""

    def __init__(self, targets: Mapping[TopicPartition, PeerError]) -> None:
        super().__init__("; ".join(map(str, targets.values())))
        self.targets = targets


class Writer:
    """See the module. `begin_again` comes first."""

    def __init__(self, brokers: Brokers, transactional_id: str, timeout_s: float, rounds_out: int = ROUNDS_OUT) -> None:
        """`timeout_s`: after which the target aborts a transaction that is not ended. `rounds_out`: unanswered requests of a partition."""
        self._rounds_out = rounds_out
        self.transactional_id = transactional_id
        self._brokers = brokers
        self._timeout_ms = int(timeout_s * 1000)
        self._versions: _Versions | None = None
        self._identity = _NO_PRODUCER
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    @property
    def producer_id(self) -> int:
        """Of what is written now."""
        return self._identity[0]

    async def begin_again(self) -> None:
        """Take the transactional id: what was open under it is ended, and an older producer may do nothing any more.

        PeerError, WorldError.
        """
        if self._versions is None:
            self._versions = _BY_KIP_890 if await self._has_transaction_version_2() else _BY_KIP_98
        request = InitProducerIdRequest(self.transactional_id, self._timeout_ms, *_NO_PRODUCER)
        response = await self._ask(ApiKey.INIT_PRODUCER_ID, request)
        self._take(response.producer_id, response.producer_epoch)

    async def write(self, batches: Sequence[Outgoing]) -> None:
        """Add batches to the transaction, in their order for each partition; their base offsets are set.

        PartitionRefusedError, PartitionsUnavailableError, PeerError, WorldError: the transaction cannot be committed any more.
        """
        assert self._versions is not None, "it has begun"
        if self._versions is _BY_KIP_98:
            await self._add({each.target for each in batches} - self._added)
        producer_id, epoch = self._identity
        rounds: list[dict[TopicPartition, Outgoing]] = []
        depth: dict[TopicPartition, int] = {}
        for each in batches:
            sequence = self._sequences.get(each.target, 0)
            each.stamp(producer_id, epoch, sequence)
            self._sequences[each.target] = next_sequence(sequence, each.count)
            place = depth.get(each.target, 0)
            depth[each.target] = place + 1
            if place == len(rounds):
                rounds.append({})
            rounds[place][each.target] = each
        leaders = await self._leaders(depth)
        connections = {address: await self._brokers.connection(address, "produce") for address in dict.fromkeys(leaders.values())}
        out: deque[tuple[list[asyncio.Future[Any]], dict[TopicPartition, Outgoing]]] = deque()
        try:
            for one in rounds:  # nothing is awaited between two rounds but answers: they are sent in this order
                if len(out) >= self._rounds_out:
                    await self._answered(*out.popleft())
                out.append((self._send(one, leaders, connections), one))
            while out:
                await self._answered(*out.popleft())
        finally:
            for futures, _ in out:
                for future in futures:
                    future.cancel()

    async def fence(self, member: GroupMetadata, partition: TopicPartition, offset: int) -> None:
        """Commit an offset of a group with the transaction, as the member that this process is. PeerError, among them ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: it is none any more; WorldError.
        """
        assert self._versions is not None, "it has begun"
        if self._versions is _BY_KIP_98:
            await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest(self.transactional_id, *self._identity, member.group_id))
        committed = TxnOffsetCommitRequestPartition(partition.partition, offset, committed_metadata="")
        topics = [TxnOffsetCommitRequestTopic(partition.topic, [committed])]
        request = TxnOffsetCommitRequest(
            self.transactional_id, member.group_id, *self._identity, member.generation_id, member.member_id, member.instance_id, topics
        )
        kind, version = CoordinatorType.GROUP, self._versions.txn_offset_commit

        async def ask() -> None:
            response = await self._brokers.ask_coordinator(kind, member.group_id, ApiKey.TXN_OFFSET_COMMIT, request, version=version)
            for topic in response.topics:
                for each in topic.partitions:
                    self._brokers.check_coordinator(kind, member.group_id, each.error_code)

        await self._brokers.insist(ask, INSIST_S)

    async def commit(self) -> None:
        """End the transaction. PeerError, WorldError: its outcome is not known before `begin_again`."""
        assert self._versions is not None, "it has begun"
        request = EndTxnRequest(self.transactional_id, *self._identity, committed=True)
        response = await self._ask(ApiKey.END_TXN, request, self._versions.end_txn)
        self._added.clear()
        if self._versions is _BY_KIP_890:
            self._take(response.producer_id, response.producer_epoch)

    def _take(self, producer_id: int, epoch: int) -> None:
        self._identity = producer_id, epoch
        self._sequences.clear()
        self._added.clear()

    async def _has_transaction_version_2(self) -> bool:
        response = await self._brokers.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("moldau", "mirror"), version=_API_VERSIONS)
        return any(each.name == _TRANSACTION_VERSION and each.max_version_level >= 2 for each in response.finalized_features)

    async def _add(self, partitions: Iterable[TopicPartition]) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(number)
        if not topics:
            return
        request = AddPartitionsToTxnRequest([], self.transactional_id, *self._identity, list(topics.values()))

        async def ask() -> None:
            kind, key = CoordinatorType.TRANSACTION, self.transactional_id
            response = await self._brokers.ask_coordinator(kind, key, ApiKey.ADD_PARTITIONS_TO_TXN, request, version=_ADD_PARTITIONS)
            for topic in response.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    self._brokers.check_coordinator(kind, key, each.partition_error_code)

        await self._brokers.insist(ask, INSIST_S)
        self._added.update(TopicPartition(topic.name, number) for topic in topics.values() for number in topic.partitions)

    async def _ask(self, api_key: ApiKey, request: Any, version: VersionRange | None = None) -> Any:
        """Ask the coordinator of the transactional id."""
        kind, key = CoordinatorType.TRANSACTION, self.transactional_id

        async def ask() -> Any:
            response = await self._brokers.ask_coordinator(kind, key, api_key, request, version=version)
            self._brokers.check_coordinator(kind, key, response.error_code)
            return response

        return await self._brokers.insist(ask, INSIST_S)

    # Produce

    async def _leaders(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, Address]:
        found: dict[TopicPartition, Address] = {}
        without: dict[TopicPartition, PeerError] = {}
        for target in targets:
            try:
                found[target] = await self._brokers.leader(target)
            except PeerError as error:
                if error.code not in _UNAVAILABLE:
                    raise
                without[target] = error
        if without:
            raise PartitionsUnavailableError(without)
        return found

    def _send(
        self,
        batches: Mapping[TopicPartition, Outgoing],
        leaders: Mapping[TopicPartition, Address],
        connections: Mapping[Address, ClientConnection],
    ) -> "list[asyncio.Future[Any]]":
        """At most one batch of each partition."""
        assert self._versions is not None, "it has begun"
        by_leader: dict[Address, dict[str, TopicProduceData]] = {}
        for target, each in batches.items():
            topic = by_leader.setdefault(leaders[target], {}).setdefault(target.topic, TopicProduceData(target.topic))
            topic.partition_data.append(PartitionProduceData(target.partition, each.data))
        return [
            connections[address].send(
                ApiKey.PRODUCE,
                ProduceRequest(self.transactional_id, ACKS_ALL, PRODUCE_TIMEOUT_MS, list(topics.values())),
                timeout_s=REQUEST_TIMEOUT_S,
                version=self._versions.produce,
            )
            for address, topics in by_leader.items()
        ]

    async def _answered(self, futures: "list[asyncio.Future[Any]]", batches: Mapping[TopicPartition, Outgoing]) -> None:
        failure: Exception | None = None
        unavailable: dict[TopicPartition, PeerError] = {}
        for response in await asyncio.gather(*futures):
            for topic in response.responses:
                for answer in topic.partition_responses:
                    target = TopicPartition(topic.name, answer.index)
                    if not answer.error_code:
                        batches[target].base_offset = answer.base_offset
                        continue
                    error = self._failed(target, answer.error_code, answer.error_message)
                    if isinstance(error, PeerError) and error.code in _UNAVAILABLE:
                        unavailable[target] = error
                    else:
                        failure = failure or error
        if failure is not None:
            raise failure
        if unavailable:
            raise PartitionsUnavailableError(unavailable)

    def _failed(self, target: TopicPartition, code: int, message: str | None) -> PeerError | PartitionRefusedError:
        try:
            check(code, f"{target}")
        except PeerError as error:
            self._brokers.forget_topic(target.topic)
            return PartitionRefusedError(target, error.code, message) if error.code in _REFUSALS else error
        raise AssertionError("an answer with an error code")


_REFUSALS = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.CORRUPT_MESSAGE,
)
_UNAVAILABLE = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Of one partition, while others take records."""
