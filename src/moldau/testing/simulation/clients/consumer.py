"""A consumer as Kafka's clients have it: positions, both isolation levels, seeks, replicas near by, membership in a group.

Everything happens inside the calls: a rebalance takes place in `poll` and `consume`, and listeners are called there. Only heartbeats run by
themselves. What one fetch brought may be handed out by later calls.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, Self

from moldau.client.failures import CommitError, ConsumeError
from moldau.client.message import ConsumedMessage
from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.versions import VersionRange
from moldau.testing.simulation.clients.admin import EARLIEST, LATEST, list_offset
from moldau.testing.simulation.clients.cause import Cause
from moldau.testing.simulation.clients.context import ClientContext
from moldau.testing.simulation.clients.fetching import NearReplicas, SimulatedMessage, messages_of
from moldau.testing.simulation.clients.group import RANGE, SimulatedMembership
from moldau.wire.brokers import REQUEST_TIMEOUT_S, Brokers, check, may_pass
from moldau.wire.connection import Address, RequestLostError
from moldau.wire.group import GroupMetadata, commit_offsets, fetch_offsets

WAIT_S = 0.5
"""How long a fetch waits for records."""
INSIST_S = 60.0
_BY_NAME = VersionRange(4, 12)
_BY_ID = VersionRange(13, 18)
_REFRESH = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
)

Listener = Callable[[list[TopicPartition]], Awaitable[None] | None]


class SimulatedConsumer:
    """See the module. With the methods of `moldau.client.AsyncConsumer`; nothing is committed by itself.

    `on_reset(partition, offset)` is called where the broker says that a position is out of range.
    """

    def __init__(
        self,
        context: ClientContext,
        *,
        group_id: str | None = None,
        topics: Iterable[str] = (),
        isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
        auto_offset_reset: Literal["smallest", "largest", "error"] = "smallest",
        group_instance_id: str | None = None,
        assignor: str = RANGE,
        session_timeout_s: float = 10.0,
        fetch_bytes: int = 1 << 16,
        on_reset: Callable[[TopicPartition, int], object] | None = None,
    ) -> None:
        self.context = context
        self.brokers = Brokers(context)
        self.group_id = group_id
        self.is_committed = isolation_level == "read_committed"
        self._reset = auto_offset_reset
        self._fetch_bytes = fetch_bytes
        self._on_reset = on_reset
        self._instance_id = group_instance_id
        self._assignor = assignor
        self._session_timeout_s = session_timeout_s
        self._membership: SimulatedMembership | None = None
        self._on_assign: Listener | None = None
        self._on_revoke: Listener | None = None
        self._fetch_at: dict[TopicPartition, int | None] = {}
        """Per assigned partition: what to fetch next; None: its position has to be looked up."""
        self._positions: dict[TopicPartition, int] = {}
        """Per assigned partition: the offset after what was handed out, or where it was placed."""
        self._paused: dict[TopicPartition, None] = {}
        self._near = NearReplicas()
        self._buffer: deque[SimulatedMessage] = deque()
        self._turn = 0
        self._topics = tuple(topics)
        if self._topics:
            self._join(self._topics)

    # What it reads

    async def subscribe(self, topics: Iterable[str], *, on_assign: Listener | None = None, on_revoke: Listener | None = None) -> None:
        """Share these topics with the other members of the group. The listeners are called, and awaited, within `poll` and `close`."""
        if self._membership is not None:
            await self.unsubscribe()
        self._on_assign, self._on_revoke = on_assign, on_revoke
        self._join(tuple(topics))

    def _join(self, topics: tuple[str, ...]) -> None:
        if self.group_id is None:
            raise ValueError("subscribe needs a group_id; without a group use assign")
        self._membership = SimulatedMembership(
            self.brokers,
            self.group_id,
            topics,
            assignor=self._assignor,
            instance_id=self._instance_id,
            session_timeout_s=self._session_timeout_s,
            heartbeat_s=self._session_timeout_s / 5,
        )

    async def unsubscribe(self) -> None:
        """Leave the group, or release what was assigned."""
        await self._revoke(list(self._fetch_at))
        self._release(list(self._fetch_at))
        membership, self._membership = self._membership, None
        if membership is not None:
            with suppress(PeerError, WorldError):  # else its session times out
                await membership.leave()

    async def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions, from these offsets if they are given; else from what the group has committed, or where one begins."""
        self._release(list(self._fetch_at))
        for partition in partitions:
            where = TopicPartition(*partition)
            self._fetch_at[where] = None
            if isinstance(partitions, Mapping):
                self._place(where, partitions[partition])

    async def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._fetch_at)

    @property
    def assigned(self) -> list[TopicPartition]:
        """The same in the order in which they came: what a simulation may iterate."""
        return list(self._fetch_at)

    # Messages

    async def poll(self, timeout: float | None = None) -> SimulatedMessage | None:
        """The next record; None if there is none within `timeout` seconds. ConsumeError."""
        found = await self.consume(1, timeout)
        return found[0] if found else None

    async def consume(self, count: int = 500, timeout: float | None = None) -> list[SimulatedMessage]:
        """The records that are there, at most `count`; the first is waited for as with `poll`. ConsumeError."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            left_s = WAIT_S if deadline is None else deadline - loop.time()
            try:
                await self._rebalance()
                if not self._buffer:
                    await self._fetch(min(WAIT_S, max(left_s, 0.0)))
            except (PeerError, WorldError) as error:
                if not may_pass(error):
                    code = error.code if isinstance(error, PeerError) else ErrorCode.NETWORK_EXCEPTION
                    raise ConsumeError(None, None, None, Cause(code, str(error), is_fatal=True)) from error
                await self.brokers.back_off()
            if self._buffer:
                return self._take(count)
            if deadline is not None and loop.time() >= deadline:
                return []

    def __aiter__(self) -> Self:
        """Records for ever: where there are none, it waits."""
        return self

    async def __anext__(self) -> SimulatedMessage:
        message = await self.poll()
        assert message is not None, "without a timeout there is a record"
        return message

    def _take(self, count: int) -> list[SimulatedMessage]:
        found = [self._buffer.popleft() for _ in range(min(count, len(self._buffer)))]
        for message in found:
            self._positions[TopicPartition(message.topic, message.partition)] = message.offset + 1
        return found

    async def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`."""
        for partition in partitions:
            self._paused[partition] = None
            self._drop(partition)

    async def resume(self, *partitions: TopicPartition) -> None:
        """Read these again."""
        for partition in partitions:
            self._paused.pop(partition, None)

    # Offsets of the group

    async def commit(self, offsets: Mapping[TopicPartition, int] | ConsumedMessage | None = None) -> None:
        """Commit after everything handed out, or after one record, or these offsets; once. CommitError."""
        if isinstance(offsets, ConsumedMessage):
            offsets = {TopicPartition(offsets.topic, offsets.partition): offsets.offset + 1}
        wanted = self.positions() if offsets is None else offsets
        if not wanted:
            return
        try:
            if self._membership is not None:
                await self._membership.commit(wanted)
            else:
                await commit_offsets(self.brokers, self.group_metadata(), wanted)
        except (PeerError, WorldError) as error:
            code = error.code if isinstance(error, PeerError) else ErrorCode.NETWORK_EXCEPTION
            perhaps = isinstance(error, RequestLostError) and error.was_sent
            perhaps |= code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            partition, offset = next(iter(wanted.items()))
            cause = Cause(code, str(error), took_effect_perhaps=perhaps)
            raise CommitError(self._group(), *partition, offset, cause) from error

    async def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What the group has committed in these partitions, None: in those assigned; those without a commit are left out."""
        wanted = list(self._fetch_at if partitions is None else partitions)
        return await self.brokers.insist(lambda: fetch_offsets(self.brokers, self._group(), wanted), INSIST_S)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition that records were handed out of, or that was placed."""
        return dict(self._positions)

    def next_offset(self, partition: TopicPartition) -> int:
        """Where the next fetch of an assigned partition begins: after markers too, which `position` does not know of."""
        offset = self._fetch_at[partition]
        return self._positions.get(partition, -1) if offset is None else offset

    async def position(self, partition: TopicPartition) -> int:
        """The offset that comes next in a partition that is assigned."""
        if partition not in self._positions:
            await self.brokers.insist(lambda: self._look_up([partition]), INSIST_S)
        return self._positions[partition]

    def group_metadata(self) -> GroupMetadata:
        """Who this is in its group."""
        return GroupMetadata(self._group()) if self._membership is None else self._membership.metadata

    def _group(self) -> str:
        if self.group_id is None:
            raise ValueError("commit needs a group_id")
        return self.group_id

    # Places in the log

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at an offset of an assigned partition."""
        self._drop(partition)
        self._place(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go back to the first offset, of all assigned partitions where none is named."""
        for partition, offset in (await self.beginning_offsets(partitions or tuple(self._fetch_at))).items():
            await self.seek(partition, offset)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record, of all assigned partitions where none is named."""
        for partition, offset in (await self.end_offsets(partitions or tuple(self._fetch_at))).items():
            await self.seek(partition, offset)

    async def rewind(self) -> None:
        """Go back to what the group has committed: what was handed out since comes again."""
        for partition in list(self._fetch_at):
            self._drop(partition)
            self._fetch_at[partition] = None
            self._positions.pop(partition, None)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return {where: await list_offset(self.brokers, where, EARLIEST, committed=self.is_committed) for where in partitions}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this consumer may see."""
        return {where: await list_offset(self.brokers, where, LATEST, committed=self.is_committed) for where in partitions}

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len((await self.brokers.insist(lambda: self.brokers.topic(topic), INSIST_S)).leaders)

    def _place(self, partition: TopicPartition, offset: int) -> None:
        self._fetch_at[partition] = self._positions[partition] = offset

    def _drop(self, partition: TopicPartition) -> None:
        """Forget what was fetched of a partition and not handed out."""
        if partition in self._positions:
            self._fetch_at[partition] = self._positions[partition]
        self._buffer = deque(message for message in self._buffer if (message.topic, message.partition) != partition)

    async def _look_up(self, partitions: list[TopicPartition]) -> None:
        """Place these at what the group has committed, or where one begins."""
        found = await fetch_offsets(self.brokers, self.group_id, partitions) if self.group_id is not None else {}
        for partition in partitions:
            offset = found.get(partition)
            if offset is None:
                offset = await self._start(partition)
            self._place(partition, offset)

    async def _start(self, partition: TopicPartition) -> int:
        if self._reset == "error":
            raise ConsumeError(*partition, None, Cause(ErrorCode.OFFSET_OUT_OF_RANGE, "no offset is committed"))
        which = EARLIEST if self._reset == "smallest" else LATEST
        return await list_offset(self.brokers, partition, which, committed=self.is_committed)

    # Rebalances

    async def _rebalance(self) -> None:
        """If one is due: revoke, join, take what is assigned."""
        membership = self._membership
        if membership is None:
            return
        while membership.needs_rejoin:
            if membership.is_fenced:
                raise ConsumeError(None, None, None, Cause(ErrorCode.FENCED_INSTANCE_ID, is_fatal=True))
            if membership.is_lost or not membership.is_cooperative:
                await self._revoke(list(self._fetch_at))
                self._release(list(self._fetch_at))
            try:
                assigned = await membership.join(self._fetch_at)
            except PeerError:
                if not membership.is_lost or membership.is_fenced:
                    raise
                await self.brokers.back_off()
                continue
            gone = [partition for partition in self._fetch_at if partition not in assigned]
            if gone:
                await self._revoke(gone)
                self._release(gone)
                membership.needs_rejoin = True  # what was revoked is another member's in the next generation
            new = [partition for partition in assigned if partition not in self._fetch_at]
            self._fetch_at.update(dict.fromkeys(new))
            if self._on_assign is not None:
                await _call(self._on_assign, new)

    async def _revoke(self, partitions: list[TopicPartition]) -> None:
        if partitions and self._on_revoke is not None:
            await _call(self._on_revoke, partitions)

    def _release(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._drop(partition)
            self._fetch_at.pop(partition, None)
            self._positions.pop(partition, None)
            self._near.forget(partition)
            self._paused.pop(partition, None)

    # Fetching

    async def _fetch(self, wait_s: float) -> None:
        """One fetch from one broker; waits for so long where there is nothing."""
        unplaced = [partition for partition, offset in self._fetch_at.items() if offset is None and partition not in self._paused]
        if unplaced:
            await self._look_up(unplaced)
        wanted = [partition for partition in self._fetch_at if partition not in self._paused]
        if not wanted:
            await asyncio.sleep(max(wait_s, 0.05))
            return
        self._turn += 1
        start = self._turn % len(wanted)
        wanted = wanted[start:] + wanted[:start]
        address = await self._source(wanted[0])
        together = [partition for partition in wanted if await self._source(partition) == address]
        asked = {partition: offset for partition in together if (offset := self._fetch_at[partition]) is not None}
        response = await self._ask(address, asked, wait_s)
        ids = {(await self.brokers.topic(partition.topic)).topic_id: partition.topic for partition in asked}
        for topic in response.responses:
            for fetched in topic.partitions:
                partition = TopicPartition(topic.topic or ids[topic.topic_id], fetched.partition_index)
                offset = asked[partition]
                if self._fetch_at.get(partition) == offset:
                    await self._take_fetched(partition, fetched, offset)

    async def _source(self, partition: TopicPartition) -> Address:
        """The broker to read a partition from."""
        return self._near.address(partition, asyncio.get_running_loop().time()) or await self.brokers.leader(partition)

    def _forget(self, partition: TopicPartition) -> None:
        """Ask for its leader before the next fetch."""
        self._near.forget(partition)
        self.brokers.forget_topic(partition.topic)

    async def _ask(self, address: Address, asked: Mapping[TopicPartition, int], wait_s: float) -> Any:
        topics: dict[str, FetchTopic] = {}
        for partition, offset in asked.items():
            known = await self.brokers.topic(partition.topic)
            topic = topics.setdefault(partition.topic, FetchTopic(partition.topic, known.topic_id))
            epoch = known.epochs[partition.partition]
            topic.partitions.append(FetchPartition(partition.partition, epoch, offset, partition_max_bytes=self._fetch_bytes))
        request = FetchRequest(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=1,
            isolation_level=int(self.is_committed),
            topics=list(topics.values()),
            rack_id=self.context.rack,
        )
        try:
            connection = await self.brokers.connection(address)
            versions = _BY_NAME if self.context.random.random() < 0.5 else _BY_ID
            response = await connection.send(ApiKey.FETCH, request, timeout_s=wait_s + REQUEST_TIMEOUT_S, version=versions)
            check(response.error_code, "fetch")
        except (PeerError, RequestLostError):
            for partition in asked:
                self._forget(partition)
            raise
        return response

    async def _take_fetched(self, partition: TopicPartition, fetched: Any, offset: int) -> None:
        code = known_error(fetched.error_code)
        if code is ErrorCode.NONE:
            found, after = messages_of(partition, fetched, offset, committed=self.is_committed)
            self._buffer.extend(found)
            self._fetch_at[partition] = after
            if fetched.preferred_read_replica in self.brokers.addresses:
                address = self.brokers.addresses[fetched.preferred_read_replica]
                self._near.note(partition, address, asyncio.get_running_loop().time())
            elif fetched.preferred_read_replica >= 0:  # live since it has asked for metadata
                self._forget(partition)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._near.forget(partition)
            if self._on_reset is not None:
                self._on_reset(partition, offset)
            self._place(partition, await self._start(partition))
        elif code in _REFRESH:
            self._forget(partition)
            await self.brokers.back_off()
        else:
            raise ConsumeError(*partition, offset, Cause(code))

    # The end

    async def close(self) -> None:
        """Leave the group, and disconnect."""
        if self._membership is not None:
            await self.unsubscribe()
        self.brokers.close()

    def crash(self) -> None:
        """Disconnect without a word, as a process that is killed."""
        if self._membership is not None:
            self._membership.stop()
        self.brokers.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()


async def _call(listener: Listener, partitions: list[TopicPartition]) -> None:
    pending = listener(partitions)
    if pending is not None:
        await pending
