"""What is fetched from a source cluster: by one reader for each leader (`mirror.leader`), or by a few, which share its partitions. Each has
a connection and a fetch session of its own: while one waits for the round trip to its broker, and for a segment that the network has
lost, the others' answers come.

A partition is fetched from the broker that the metadata name; where that changes, or the
broker says that it does not lead, the metadata are asked for again, no more often than `REFRESH_S`. What is fetched goes to the mirror at
once, and the partition is fetched again while the mirror writes, as long as the mirror has room for more.

Found here, and never passed over: a log that was truncated below the position, a topic that was deleted or made again, records that
retention deleted before they were fetched, a batch with a wrong checksum. The partition halts, and the others are fetched.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from moldau.fetching.events import Follow, Resumed, Unfollow
from moldau.mirror.fetched import LIMITS, Limits, Taker
from moldau.mirror.gathered_lines import GatheredLines
from moldau.mirror.leader import DENIALS, Followed, LeaderReader, end_of
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.mirror.reachability import is_logged
from moldau.mirror.retries import Retries, Retry
from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
from moldau.model.identity import TopicPartition
from moldau.model.log_throttle import LogThrottle
from moldau.ports.probe import reached
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.wire.brokers import Brokers
    from moldau.wire.connection import Address

_LOG = logging.getLogger(__name__)

REFRESH_S = 0.1
"""Between two requests for the metadata of topics in trouble."""
DENIALS_MAX = 5
"""How often in a row the metadata have to say that a topic does not exist, or is another one: a broker that has just started, or that is
cut off from the others, does not know all.
"""
DENIED_S = 3.0
"""And for how long at least: one that starts may be the only one that answers."""
_METADATA = "metadata"
_LOGGED_EACH_S = 60.0
_REASONS_LOGGED_MAX = 100


class SourceReader:
    """See the module.

    `committed`: fetch up to the last stable offset. `verifies`: look at checksums, for a mirror that makes new ones. `may_fetch`: the next
    Fetch waits for it.
    """

    def __init__(
        self,
        name: str,
        brokers: "Brokers",
        clock: "Clock",
        taker: Taker,
        may_fetch: asyncio.Event,
        *,
        committed: bool,
        verifies: bool,
        limits: Limits = LIMITS,
    ) -> None:
        self.name = name
        self.brokers = brokers
        self.clock = clock
        self.taker = taker
        self.may_fetch = may_fetch
        self.committed = committed
        self.verifies = verifies
        self.limits = limits
        self.throttle = LogThrottle(_LOGGED_EACH_S, _REASONS_LOGGED_MAX)
        self.retries = Retries(clock)
        self._lines = GatheredLines(_LOG, clock)
        self._followed: dict[TopicPartition, Followed] = {}
        self._leaders: dict[Address, dict[int, LeaderReader]] = {}
        """The readers of each leader by their numbers, those that have partitions."""
        self._troubled: set[str] = set()
        """Topics whose metadata are to be asked for again."""
        self._denials: dict[str, tuple[int, float]] = {}
        """How often, and since when."""
        self._trouble = asyncio.Event()
        self._refreshing = asyncio.ensure_future(self._refresh())

    def follow(self, partition: SourcePartition, position: Position) -> None:
        """Fetch a partition from a position on."""
        self.unfollow(partition)
        self._followed[partition.topic_partition] = Followed(partition, position)
        self.find_leader(partition.topic)

    def unfollow(self, partition: SourcePartition) -> None:
        """Fetch a partition no more; nothing of it is given any more. Nothing without effect."""
        followed = self._followed.get(partition.topic_partition)
        if followed is not None and followed.partition == partition:
            del self._followed[partition.topic_partition]
            self._leave(followed)
            self.retries.over(partition.topic_partition)

    def resume(self, partition: SourcePartition) -> None:
        """There is room for more of a partition."""
        followed = self._followed.get(partition.topic_partition)
        if followed is not None and followed.leader is not None:
            followed.leader.step(Resumed(partition.topic_partition))

    def position(self, partition: SourcePartition) -> Position | None:
        """Where a partition is fetched next; None if it is not followed."""
        followed = self._followed.get(partition.topic_partition)
        return followed.position if followed is not None and followed.partition == partition else None

    def retry(self, partition: SourcePartition) -> Retry | None:
        """Why a partition is not fetched for the moment, if that is so."""
        followed = self._followed.get(partition.topic_partition)
        if followed is None:
            return None
        leader = _METADATA if followed.leader is None else followed.leader.name
        return self.retries.of(partition.topic_partition, partition.topic, leader)

    async def close(self) -> None:
        """Fetch nothing any more."""
        self._refreshing.cancel()
        self._lines.flush()
        self._followed.clear()
        leaders, self._leaders = self._leaders, {}
        for readers in leaders.values():
            for reader in readers.values():
                reader.close()
        await asyncio.gather(self._refreshing, return_exceptions=True)

    # Of its readers

    def followed(self, topic_partition: TopicPartition) -> "Followed | None":
        """A partition that is followed."""
        return self._followed.get(topic_partition)

    def find_leader(self, topic: str) -> None:
        """Ask who leads the partitions of a topic."""
        self._troubled.add(topic)
        self._trouble.set()

    def doubt_leader(self, topic: str) -> None:
        """Who leads the partitions of a topic may have changed. Another broker is asked: the last one may be cut off from the others, and
        name a leader of before for ever.
        """
        self.brokers.forget_topic(topic)
        self.find_leader(topic)

    def halt(self, followed: "Followed", why: Halt, reason: str) -> None:
        """An operator has to decide."""
        partition = followed.partition
        message = "partition halts: %s, %s: source=%s"
        self._lines.add(partition.topic_partition, logging.ERROR, message, why.value, reason, self.name)
        self.unfollow(partition)
        self.taker.halt(partition, why, reason)

    def warn(self, subject: object, reason: object) -> None:
        """Say what is tried again."""
        self.retries.failed(subject, reason)
        if is_logged(reason):
            return
        if isinstance(subject, TopicPartition):
            self._lines.add(subject, logging.WARNING, "not fetched, trying again: source=%s reason=%s", self.name, str(reason))
        elif self.throttle.due((subject, str(reason)), self.clock.monotonic()):
            shown = str(reason).removeprefix(f"{subject}: ")  # of a broker, whose errors begin with its address
            _LOG.warning("not fetched, trying again: source=%s subject=%s reason=%s", self.name, subject, shown)

    # Leaders

    async def _refresh(self) -> None:
        while True:
            await self._trouble.wait()
            self._trouble.clear()
            topics, self._troubled = self._troubled, set()
            wanted = sorted(topics & {each.topic for each in self._followed})
            if wanted:
                try:
                    await self._ask(wanted)
                except (PeerError, WorldError) as error:
                    self.warn(_METADATA, error)
                    self._troubled |= topics
                    self._trouble.set()
                    await self.brokers.back_off()
                except Exception:
                    _LOG.exception("leaders not found because of a bug: source=%s", self.name)
            await asyncio.sleep(REFRESH_S)

    async def _ask(self, topics: list[str]) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)
        response = await self.brokers.ask(ApiKey.METADATA, request)
        self.retries.over(_METADATA)
        self.brokers.learn_brokers(response)
        for found in response.topics:
            self._learn(found)

    def _learn(self, found: Any) -> None:
        name, error = found.name, known_error(found.error_code)
        mine = [each for tp, each in self._followed.items() if tp.topic == name]
        if not mine:
            self._denials.pop(name, None)
            return
        ids = {each.partition.topic_id for each in mine}
        exists_no_more = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if exists_no_more or (not error and ids != {found.topic_id}):
            now_s = self.clock.monotonic()
            count, since_s = self._denials.get(name, (0, now_s))
            self._denials[name] = count + 1, since_s
            is_sure = count + 1 >= DENIALS_MAX and now_s - since_s >= DENIED_S
            if is_sure:
                reached("mirror: a topic was deleted or made again")
            else:
                reached("mirror: the topic was doubted")
            for each in mine:
                if is_sure and (exists_no_more or each.partition.topic_id != found.topic_id):
                    now = "" if exists_no_more else f", the topic id is {found.topic_id.hex()} now"
                    reason = f"topic id {each.partition.topic_id.hex()} does not exist any more{now}"
                    self.halt(each, Halt.DELETED if exists_no_more else Halt.RECREATED, reason)
            if not is_sure:
                self.warn(name, "does not exist, or is another topic")
                self.doubt_leader(name)
            return
        if error in DENIALS:
            for each in mine:
                self.halt(each, Halt.DENIED, f"{error.name.lower()} for topic {name}")
            return
        if error:
            self.warn(name, error.name.lower())
            self.doubt_leader(name)
            return
        self._denials.pop(name, None)
        self.retries.over(name)
        topic = self.brokers.learn(found)
        for each in mine:
            number = each.partition.number
            address = topic.leaders[number] if number < len(topic.leaders) else None
            if address is None:
                self._leave(each)
                self.warn(each.partition.topic_partition, "no leader")
                self.doubt_leader(name)
            else:
                self._read_from(each, address, topic.epochs[number])

    def _read_from(self, followed: "Followed", address: "Address", epoch: int) -> None:
        leader = followed.leader
        if leader is not None and leader.address == address and followed.leader_epoch == epoch:
            return
        if leader is not None and leader.address != address:
            self._leave(followed)
        reader = self._reader_of(address) if followed.leader is None else followed.leader
        followed.leader, followed.leader_epoch = reader, epoch
        partition = followed.partition
        reader.step(Follow(partition.topic_partition, partition.topic_id, epoch, end_of(followed.position)))

    def _reader_of(self, address: "Address") -> LeaderReader:
        """The reader of a leader that has the fewest partitions: a further one, as long as there may be more."""
        readers = self._leaders.setdefault(address, {})
        free = next((number for number in range(self.limits.connections) if number not in readers), None)
        if free is None:
            return min(readers.values(), key=lambda reader: len(reader.fetcher.partitions))
        readers[free] = LeaderReader(self, address, free)
        return readers[free]

    def _leave(self, followed: "Followed") -> None:
        leader, followed.leader = followed.leader, None
        if leader is not None:
            leader.step(Unfollow(followed.partition.topic_partition))
            if not leader.fetcher.partitions:
                self._leaders.get(leader.address, {}).pop(leader.number, None)
                leader.close()
                self.retries.over(leader.name)
